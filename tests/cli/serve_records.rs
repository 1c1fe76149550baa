//! Compares the responses of a server with the output of `snap --json` for the same store.

use std::{
    ffi::OsStr,
    io::{Read, Write},
    net::TcpStream,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use serde_json::Value;

use crate::{env::TestEnv, schema::odd_tree, serve::Serving};

/// Sends a request; the server answers and closes the connection.
fn get(serving: &Serving, path: &str) -> Value {
    let address = serving.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let target = format!("/v1/repos/default/{path}");
    write!(stream, "GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.split(' ').nth(1) == Some("200"), "{path}: {head}");
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{path}: {body}"))
}

/// Returns the printed records of a type, without the fields that only printed lines have.
fn printed(env: &TestEnv, args: &[&str], r#type: &str) -> Vec<Value> {
    let all = env.snap([&["--json"], args].concat()).succeeds().json();
    let wanted = all.into_iter().filter(|record| record["type"] == r#type);
    let records: Vec<Value> = wanted
        .map(|mut record| {
            let fields = record.as_object_mut().unwrap();
            assert_eq!(fields.shift_remove("version"), Some(1.into()));
            fields.shift_remove("type");
            record
        })
        .collect();
    assert!(!records.is_empty(), "{args:?} printed no {type}");
    records
}

/// Asserts that the records are equal, with their fields in the same order.
#[track_caller]
fn same(answered: &Value, printed: &[Value]) {
    let text = |records: &[Value]| records.iter().map(Value::to_string).collect::<Vec<_>>();
    assert_eq!(text(answered.as_array().unwrap()), text(printed));
}

/// Makes every kind of entry, then every kind of change, then restores an earlier state.
fn env() -> TestEnv {
    let mut env = TestEnv::new();
    odd_tree(&env);
    symlink(OsStr::from_bytes(b"to/caf\xe9"), env.path("astray")).unwrap();
    env.write("gone", "soon");
    env.write("moved", "what is moved has some length");
    env.write("mode", "x");
    env.write("other", "1");
    env.write("becomes a link", "x");
    env.set("SNAP_TIME", "2026-11-01T10:00:00.5Z");
    env.snap(["commit", "-q", "-m", "one", "--label", "ci=7"]).succeeds();
    fs_err::remove_file(env.path("gone")).unwrap();
    fs_err::rename(env.path("moved"), env.path(OsStr::from_bytes(b"mov\xe9d"))).unwrap();
    fs_err::remove_file(env.path("becomes a link")).unwrap();
    symlink("mode", env.path("becomes a link")).unwrap();
    env.mode("mode", 0o600);
    env.write("sub/file", "some other text\n");
    env.write("other", "2 and more");
    env.write("fresh/file", "new");
    env.set("SNAP_TIME", "2026-11-02T10:00:00Z");
    env.snap(["commit", "-q", "-m", "two\n\nand why"]).succeeds();
    env.write("sub/file", "some text\n");
    env.set("SNAP_TIME", "2026-11-03T10:00:00Z");
    env.snap(["commit", "-q"]).succeeds();
    env
}

#[test]
fn a_server_answers_with_the_records_that_the_commands_print() {
    let env = env();
    let serving = Serving::start(&env, ".");
    let get = |path: &str| get(&serving, path);
    same(&get("log")["commits"], &printed(&env, &["log"], "commit"));
    let of_path = printed(&env, &["log", "--", "sub/file"], "commit");
    same(&get("log?path=sub/file")["commits"], &of_path);
    let commit = get("commits/main");
    same(&vec![commit.clone()].into(), &printed(&env, &["show"], "commit"));

    let tree = get("commits/main/tree");
    assert_eq!(tree["commit"], commit["id"]);
    same(&tree["entries"], &printed(&env, &["ls", "-R"], "entry"));
    let kinds = ["file", "folder", "symlink", "fifo", "socket"];
    let has = |field: &str| tree["entries"].as_array().unwrap().iter().any(|e| !e[field].is_null());
    let is_there = |kind| tree["entries"].as_array().unwrap().iter().any(|e| e["kind"] == kind);
    assert!(kinds.into_iter().all(is_there), "{tree}");
    assert!(["path_hex", "target_hex", "link", "uid", "mtime"].into_iter().all(has), "{tree}");
    let shallow = get("commits/main/tree?recursive=false");
    same(&shallow["entries"], &printed(&env, &["ls"], "entry"));
    for path in ["sub", "sub/twin"] {
        let below = get(&format!("commits/main/tree/{path}"));
        same(&below["entries"], &printed(&env, &["ls", "-R", &format!("HEAD:{path}")], "entry"));
    }

    for (from, to) in [("HEAD~2", "HEAD~1"), ("HEAD~1", "HEAD"), ("HEAD", "HEAD~2")] {
        let place = |rev: &str| rev.replace("HEAD", "main");
        let diff = get(&format!("diff?from={}&to={}", place(from), place(to)));
        same(&diff["changes"], &printed(&env, &["diff", from, to], "change"));
        let changes = diff["changes"].as_array().unwrap();
        let statuses = ["added", "deleted", "modified", "metadata", "typechange", "renamed"];
        let has = |status| changes.iter().any(|change| change["status"] == status);
        assert!(to == "HEAD" || statuses.into_iter().all(has), "{diff}");
    }

    for pattern in ["*", "sub/**"] {
        let found = get(&format!("find?pattern={pattern}&limit=1000"));
        let found = found["found"].as_array().unwrap().iter();
        let versions = found.flat_map(|one| one["versions"].as_array().unwrap().clone());
        let versions: Vec<Value> = versions.collect();
        same(&versions.into(), &printed(&env, &["find", pattern], "version"));
    }

    let stats = get("stats?limit=10");
    same(&stats["commits"], &printed(&env, &["stats"], "commit"));
    same(&stats["files"], &printed(&env, &["stats"], "file"));
    same(&vec![stats["store"].clone()].into(), &printed(&env, &["stats"], "store"));
}
