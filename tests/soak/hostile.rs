//! Hostile clients by the thousand: they stay silent, send nonsense, claim huge bodies, ask for
//! files outside the store, and leave at any time. The server stays up and small, and serves an
//! honest client when they are gone.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use snap_explore::{
    program::{Program, folder, well},
    serving::serve,
    versions,
};
use snap_testkit::rng::{Rng, mix};

/// Threads that open connections.
const THREADS: u64 = 16;

/// Connections that each of them holds at the same time.
const HELD: usize = 64;

/// Most memory of the server, in KiB.
const MOST_KIB: u64 = 512 << 10;

/// Runs rounds of hostile clients until the time is over.
pub(crate) fn run(program: Program<'_>, until: Instant, seed: u64) -> Vec<String> {
    let place = folder();
    let (store, work) = (place.path().join("store"), place.path().join("work"));
    well(program.snap(&store).arg("init"));
    versions::write(&work, "main 1");
    well(program.snap(&store).args(["commit", "-m", "main 1"]).arg(&work));
    let (mut server, url) = serve(program.bare(), &[store.to_str().unwrap()]);
    let url = url.unwrap();
    let address = url.trim_start_matches("http://").to_owned();
    let (mut rounds, mut found) = (0_u64, Vec::new());
    while Instant::now() < until && found.is_empty() {
        thread::scope(|scope| {
            for number in 0..THREADS {
                let address = &address;
                let mut rng = Rng::new(mix(mix(seed, rounds), number));
                scope.spawn(move || attack(address, &mut rng));
            }
        });
        rounds += 1;
        found.extend(harm(&mut server, rounds));
        let clone = place.path().join(format!("clone{rounds}"));
        let output = program.bare().args(["clone", &url]).arg(&clone).output().unwrap();
        if output.status.success() {
            fs_err::remove_dir_all(clone.join(".snap")).unwrap();
            versions::check(&clone, "main 1");
            fs_err::remove_dir_all(&clone).unwrap();
        } else {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            found.push(format!("round {rounds}: an honest client is not served: {said}"));
        }
    }
    println!("{} hostile clients", rounds * THREADS * HELD as u64);
    let _ended = server.kill();
    let _status = server.wait();
    well(program.snap(&store).args(["verify", "--data"]));
    found
}

/// Returns the harm that a round did to the server.
fn harm(server: &mut Child, round: u64) -> Option<String> {
    if let Some(status) = server.try_wait().unwrap() {
        return Some(format!("round {round}: the server ended: {status}"));
    }
    let text = fs_err::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    (peak > MOST_KIB).then(|| format!("round {round}: the server used {peak} KiB"))
}

/// Opens connections, is hostile on each, and leaves them all at the end.
fn attack(address: &str, rng: &mut Rng) {
    let mut held = Vec::new();
    for _ in 0..HELD {
        // The server may refuse further connections.
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        let sent = nonsense(rng);
        // The server may close the connection before it has read everything.
        let _cut = stream.write_all(&sent);
        if rng.below(2) == 0 {
            let mut answer = vec![0; 4096];
            let len = stream.read(&mut answer).unwrap_or_default();
            let answer = String::from_utf8_lossy(&answer[..len]);
            assert!(!answer.contains("root:"), "a file outside the store was served: {answer}");
        }
        if rng.below(3) > 0 {
            held.push(stream);
        }
    }
}

/// Returns bytes that no honest client sends.
fn nonsense(rng: &mut Rng) -> Vec<u8> {
    const END: &str = "host: a\r\n\r\n";
    let text = match rng.below(10) {
        0 => String::new(),
        1 => {
            let mut bytes = vec![0; rng.below(100_000) as usize];
            rng.fill(&mut bytes);
            return bytes;
        }
        2 => "GET / HT".to_owned(),
        3 => format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(rng.below(1 << 20) as usize)),
        4 => format!("PUT /uploads/x HTTP/1.1\r\ncontent-length: {}\r\n{END}x", u64::MAX / 2),
        5 => format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n{END}ffffffffffffffff\r\n"),
        6 => {
            let up = ["../", "..%2f", "%2e%2e/", "..\\"][rng.index(4)].repeat(8);
            format!("GET /{up}etc/passwd HTTP/1.1\r\n{END}")
        }
        7 => format!("GET / HTTP/1.1\r\n{END}").repeat(200),
        8 => format!("GET / HTTP/1.1\r\nrange: bytes=0-{}\r\n{END}", "0-,".repeat(5000)),
        _ => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\u{1}\u{2}\u{3}".repeat(20),
    };
    text.into_bytes()
}
