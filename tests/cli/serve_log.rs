//! The log of a server: one line for each request, as text or as JSON.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::Value;

use crate::{
    env::TestEnv,
    serve::{Serving, commit},
};

/// Requests `target`, with a request id if given. Returns the status and the id of the response.
fn ask(serving: &Serving, target: &str, id: Option<&str>) -> (u16, String) {
    let mut stream = TcpStream::connect(serving.address()).unwrap();
    let id = id.map(|id| format!("X-Request-Id: {id}\r\n")).unwrap_or_default();
    write!(stream, "GET {target} HTTP/1.0\r\nHost: localhost\r\n{id}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let head = answer.split_once("\r\n\r\n").unwrap().0;
    let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), id.to_owned())
}

/// Sends three requests to a server and stops it. Returns the id of the request that had none.
fn asked(env: &TestEnv) -> String {
    commit(env, "here", "first\n");
    let serving = Serving::logging(env, "", &["here"]);
    let refs = "/v1/repos/default/refs?secret=1";
    assert_eq!(ask(&serving, refs, Some("abc")), (200, "abc".to_owned()));
    assert_eq!(ask(&serving, "/v1/nothing", Some("a-404")), (404, "a-404".to_owned()));
    let (status, made) = ask(&serving, refs, None);
    assert_eq!((status, made.len()), (200, 16), "{made}");
    serving.stop();
    made
}

#[test]
fn a_variable_makes_each_line_of_the_log_an_object() {
    let mut env = TestEnv::new();
    env.set("SNAP_SERVE_LOG_FORMAT", "json");
    let made = asked(&env);
    let log = env.read("log");
    let parsed = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    let lines: Vec<Value> = log.lines().map(parsed).collect();
    let of = |id: &str| {
        let line = lines.iter().find(|line| line["span"]["id"] == id);
        let line = line.unwrap_or_else(|| panic!("no {id} in {log}"));
        assert_eq!((&line["level"], &line["message"]), (&"INFO".into(), &"answered".into()));
        assert!(line["timestamp"].is_string() && line["ms"].is_number(), "{line}");
        assert_eq!((&line["method"], &line["address"]), (&"GET".into(), &"127.0.0.1".into()));
        assert_eq!(line["version"], "HTTP/1.0");
        line
    };
    for id in ["abc", &made] {
        let line = of(id);
        assert_eq!((&line["status"], &line["repository"]), (&200.into(), &"default".into()));
        assert_eq!(line["path"], "/v1/repos/default/refs", "the query may be a secret");
    }
    let missing = of("a-404");
    assert_eq!((&missing["status"], &missing["path"]), (&404.into(), &"/v1/nothing".into()));
    let serving = lines.iter().find(|line| line["message"] == "serving").unwrap();
    assert!(serving["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{serving}");
}

#[test]
fn without_it_each_line_is_text() {
    let env = TestEnv::new();
    let made = asked(&env);
    let log = env.read("log");
    assert!(log.contains("\"Serving here at http://127.0.0.1:"), "{log}");
    for (id, said) in [
        ("abc", "path=\"/v1/repos/default/refs\" version=HTTP/1.0 status=200 "),
        ("a-404", "path=\"/v1/nothing\" version=HTTP/1.0 status=404 "),
        (&made, "path=\"/v1/repos/default/refs\" version=HTTP/1.0 status=200 "),
    ] {
        let line = log.lines().find(|line| line.contains(&format!("request{{id=\"{id}\"")));
        let line = line.unwrap_or_else(|| panic!("no {id} in {log}"));
        assert!(line.contains(" INFO ") && line.contains(said), "{line}");
    }
    assert!(!log.contains("secret"), "{log}");
}
