//! A server behind nginx, configured as in docs/deploy.md.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use snap_nettest::{Fault, Proxy, Rule};
use snap_testkit::wait::PATIENCE;

use crate::{
    env::{TestEnv, noise},
    remote,
    serve::{Serving, commit},
    serve_tls::certificate,
    tools,
};

/// An nginx, stopped on drop.
struct Nginx {
    child: Child,
    /// The ports with and without TLS.
    tls: u16,
    plain: u16,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the documented configuration, with the test's name, certificate and addresses.
fn documented(env: &TestEnv, server: &str, (tls, plain): (u16, u16)) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/deploy.md");
    let page = fs_err::read_to_string(page).unwrap();
    let block = page.lines().skip_while(|line| *line != "server {");
    let block = block.take_while(|line| *line != "```");
    let file = |name: &str| env.path(name).display().to_string();
    let changes = [
        ("listen 443 ", format!("listen 127.0.0.1:{plain}; listen 127.0.0.1:{tls} ")),
        ("/etc/nginx/cert.pem", file("cert.pem")),
        ("/etc/nginx/key.pem", file("cert.key")),
        ("http://127.0.0.1:7627", server.to_owned()),
    ];
    changes.iter().fold(block.map(|line| line.to_owned() + "\n").collect(), |text, (old, new)| {
        assert!(text.contains(old), "no {old} in {text}");
        text.replace(old, new)
    })
}

/// Starts nginx before a server, on free ports.
fn nginx(env: &TestEnv, program: &Path, server: &str) -> Nginx {
    fs_err::create_dir_all(env.path("nginx")).unwrap();
    let of = env.path("nginx").display().to_string();
    let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temp: String = temp.map(|kind| format!("{kind}_temp_path {of}/{kind};\n")).concat();
    // Another process may take a port between its choice and its use.
    for _ in 0..10 {
        let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [tls, plain] = taken.map(|listener| listener.local_addr().unwrap().port());
        let block = documented(env, server, (tls, plain));
        let head = format!("daemon off; master_process off; pid {of}/pid;\nevents {{}}\n");
        let all = format!("{head}http {{\naccess_log off;\n{temp}{block}}}\n");
        env.write("nginx/nginx.conf", all);
        let mut command = Command::new(program);
        command.args(["-e", &format!("{of}/error.log"), "-p", &of, "-c"]);
        command.arg(format!("{of}/nginx.conf")).stderr(Stdio::null());
        let mut nginx = Nginx { child: command.spawn().unwrap(), tls, plain };
        let start = Instant::now();
        while nginx.child.try_wait().unwrap().is_none() {
            if TcpStream::connect(("127.0.0.1", plain)).is_ok() {
                return nginx;
            }
            assert!(start.elapsed() < PATIENCE, "it does not listen");
            thread::sleep(Duration::from_millis(10));
        }
    }
    panic!("{}", env.read("nginx/error.log"));
}

/// Sends a request without TLS; returns the head and the body of the response.
fn ask(port: u16, target: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let host = "Host: localhost\r\nConnection: close\r\n";
    write!(stream, "GET {target} HTTP/1.1\r\n{host}{headers}\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn the_documented_proxy_passes_all_on_as_it_is() {
    let Some(program) = tools::find("nginx") else { return };
    let mut env = remote::env();
    fs_err::create_dir(env.path("stores")).unwrap();
    let large = noise(7, 24 << 20);
    env.write("work/large", &large);
    commit(&env, "work", "second\n");
    let trusted = certificate(&env, "cert");
    env.write("serve.toml", "proxies = [\"127.0.0.1\"]\n");
    let serving = Serving::logging(&env, "", &["stores", "--config", "serve.toml"]);
    let nginx = nginx(&env, program.path(), &serving.url);

    // A push goes on with smaller packs when a connection to nginx breaks.
    let line = Proxy::start(&format!("http://127.0.0.1:{}", nginx.plain));
    line.add(Rule::new(Fault::CutAt(5 << 20)).path("/packs/").times(2));
    let cut = format!("{}/team/project", line.endpoint());
    env.snap_in("work", ["push", "-q", &cut, "main"]).succeeds();
    let seen = line.counts();
    assert_eq!(seen.faults, 2);
    assert!(seen.sent_bytes < (36 << 20), "{} bytes were sent", seen.sent_bytes);

    env.set("SSL_CERT_FILE", &trusted);
    let url = format!("https://127.0.0.1:{}/team/project", nginx.tls);
    env.snap(["clone", "-q", &url, "copy"]).succeeds();
    assert!(fs_err::read(env.path("copy/large")).unwrap() == large);
    commit(&env, "copy", "third\n");
    env.snap_in("copy", ["push", "-q"]).succeeds();
    env.snap(["--store", "stores/team/project", "verify", "--data"]).succeeds();
    let read = env.snap(["--store", "stores/team/project", "cat", "main:notes.txt"]).succeeds();
    assert_eq!(read.stdout, "third\n");

    // A page, and repository names with `%2F`. The proxy forwards the address of the client.
    let (head, page) = ask(nginx.plain, "/r/team%2Fproject", "");
    assert!(head.starts_with("HTTP/1.1 200") && page.contains("team/project"), "{head}\n{page}");
    let forwarded = "X-Forwarded-For: 192.0.2.7\r\nX-Request-Id: mine\r\n";
    let long = format!("Authorization: Bearer {}\r\n", "a".repeat(16 << 10));
    for headers in [forwarded, &long] {
        let (head, refs) = ask(nginx.plain, "/v1/repos/team%2Fproject/refs", headers);
        assert!(head.starts_with("HTTP/1.1 200") && refs.contains("heads/main"), "{head}\n{refs}");
    }
    serving.stop();
    let log = env.read("log");
    let asked = log.lines().find(|line| line.contains("address=192.0.2.7"));
    let asked = asked.unwrap_or_else(|| panic!("{log}"));
    assert!(asked.contains("team%2Fproject/refs"), "{asked}");
    assert!(!asked.contains("\"mine\""), "the client's request id was used: {asked}");
}
