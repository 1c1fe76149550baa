//! Many clients request archives from a server at the same time. Each gets its archive, and the
//! server's memory stays within its limit.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use snap_testkit::{alone::peak_bytes_of, bytes::Corpus, wait::PATIENCE};

use crate::{
    env::TestEnv,
    serve::{Serving, commit},
};

/// Memory limit of the server.
const MOST_BYTES: u64 = 256 << 20;

fn noise(length: usize, seed: u64) -> Vec<u8> {
    Corpus::Random.make_seeded(length, seed)
}

/// Requests a path, with retries while the server is busy. Returns the status and the length of the
/// body.
fn get(serving: &Serving, path: &str) -> (String, usize) {
    let start = Instant::now();
    loop {
        let mut stream = TcpStream::connect(serving.address()).unwrap();
        let head = "Host: localhost\r\nConnection: close";
        write!(stream, "GET {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
        let mut reply = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reply.read_line(&mut head).unwrap(), 0, "{path}: {head}");
        }
        let length = std::io::copy(&mut reply, &mut std::io::sink()).unwrap() as usize;
        let status = head[9..12].to_owned();
        if status != "503" || start.elapsed() > PATIENCE {
            return (status, length);
        }
        assert!(head.to_lowercase().contains("retry-after: "), "{head}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn many_archives_at_once_all_come_and_take_little_memory() {
    let env = TestEnv::new();
    for number in 0..48 {
        env.write(&format!("here/small/{number}"), noise(512 << 10, number));
    }
    for number in 0..4 {
        env.write(&format!("here/large/{number}"), noise(12 << 20, 100 + number));
    }
    commit(&env, "here", "first\n");
    let serving = Serving::start(&env, "here");
    let contents = 48 * (512 << 10) + 4 * (12 << 20);
    thread::scope(|scope| {
        for client in 0..16 {
            let serving = &serving;
            scope.spawn(move || {
                let ending = ["tar", "tar.zst", "zip"][client % 3];
                let path = format!("/v1/repos/default/commits/main/archive.{ending}");
                let (status, length) = get(serving, &path);
                assert_eq!(status, "200", "{path}");
                // Random bytes cannot be compressed.
                assert!(length >= contents, "{path}: {length} of {contents} bytes");
            });
        }
    });
    let peak = peak_bytes_of(serving.process());
    assert!(peak < MOST_BYTES, "{} MiB", peak >> 20);
}
