//! `snap serve`: a server between stores.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::{
    env::{TestEnv, noise},
    remote::says,
};

/// A server that is stopped when this is dropped.
pub(crate) struct Serving {
    child: Child,
    pub(crate) url: String,
    /// What it printed.
    pub(crate) line: String,
}

impl Serving {
    /// Serves what lies at `place`, on a port of its own.
    pub(crate) fn start(env: &TestEnv, place: &str) -> Self {
        Self::with(env, &[place])
    }

    /// The same, told by whatever arguments.
    pub(crate) fn with(env: &TestEnv, args: &[&str]) -> Self {
        let mut command = env.command("");
        command.args(["--json", "serve", "--listen", "127.0.0.1:0"]).args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let record: Value = serde_json::from_str(&line).unwrap();
        Self { child, url: record["url"].as_str().unwrap().to_owned(), line }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn commit(env: &TestEnv, dir: &str, text: &str) {
    env.write(&format!("{dir}/notes.txt"), text);
    env.snap_in(dir, ["commit", "-qm", text.trim()]).succeeds();
}

#[test]
fn a_store_is_cloned_changed_and_pushed_through_a_server() {
    let env = TestEnv::new();
    for number in 0..50 {
        env.write(&format!("here/src/{number}"), format!("text {number}"));
    }
    commit(&env, "here", "first\n");
    let serving = Serving::start(&env, "here");
    let url = serving.url.clone();
    env.snap(["clone", "-q", &url, "there"]).succeeds();
    assert_eq!(env.read("there/src/49"), "text 49");
    commit(&env, "there", "second\n");
    env.snap_in("there", ["push"]).succeeds();
    let again = env.snap_in("there", ["--stats", "push"]).succeeds();
    assert!(again.stderr.contains("Nothing to push"), "{}", again.stderr);
    // The store that is served has it, and what is committed there is seen.
    assert_eq!(env.snap_in("here", ["cat", "main:notes.txt"]).succeeds().stdout, "second\n");
    commit(&env, "here", "third\n");
    env.snap_in("there", ["pull", "-q"]).succeeds();
    assert_eq!(env.snap_in("there", ["cat", "main:notes.txt"]).succeeds().stdout, "third\n");
    let read = env.snap(["cat", &format!("{url}#main~1:notes.txt")]).succeeds();
    assert_eq!(read.stdout, "second\n");
    for dir in ["here", "there"] {
        env.snap_in(dir, ["verify", "--data"]).succeeds();
    }
}

#[test]
fn of_two_who_push_at_once_one_is_told() {
    let env = TestEnv::new();
    commit(&env, "here", "first\n");
    let serving = Serving::start(&env, "here");
    for dir in ["one", "two"] {
        env.snap(["clone", "-q", &serving.url, dir]).succeeds();
        commit(&env, dir, &format!("{dir}\n"));
    }
    env.snap_in("one", ["push", "-q"]).succeeds();
    let refused = env.snap_in("two", ["push", "-q"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("has commits that are not here"), "{}", refused.stderr);
    env.snap_in("two", ["push", "-q", "--force"]).succeeds();
    assert_eq!(env.snap_in("here", ["cat", "main:notes.txt"]).succeeds().stdout, "two\n");
}

#[test]
fn a_folder_of_stores_takes_new_ones() {
    let env = TestEnv::new();
    fs_err::create_dir(env.path("stores")).unwrap();
    commit(&env, "work", "first\n");
    let serving = Serving::start(&env, "stores");
    let url = format!("{}/team/project", serving.url);
    env.snap_in("work", ["remote", "add", "origin", &url]).succeeds();
    let missing = env.snap(["clone", "-q", &url, "none"]);
    assert!(missing.stderr.contains(&format!("there is no store at {url}")), "{}", missing.stderr);
    env.snap_in("work", ["push", "-q"]).succeeds();
    env.snap(["clone", "-q", &url, "copy"]).succeeds();
    assert_eq!(env.read("copy/notes.txt"), "first\n");
    env.snap(["--store", "stores/team/project", "verify", "--data"]).succeeds();
}

#[test]
fn what_lies_elsewhere_in_part_is_not_served_as_if_it_were_here() {
    let env = TestEnv::new();
    env.write("here/src/main", "text");
    // In frames of its own, so that they are not fetched with those of `src`.
    env.write("here/large", noise(3, 6 << 20));
    commit(&env, "here", "first\n");
    let serving = Serving::start(&env, "here");
    env.snap(["clone", "-q", "--path", "src", &serving.url, "part"]).succeeds();
    let again = Serving::start(&env, "part");
    let ran = env.snap(["clone", "-q", &again.url, "copy"]);
    assert_ne!(ran.code, Some(0));
    assert!(ran.stderr.contains("is not complete"), "{}", ran.stderr);
}

#[test]
fn it_stops_when_it_is_asked_to() {
    let env = TestEnv::new();
    commit(&env, "here", "first\n");
    for signal in ["-INT", "-TERM"] {
        let mut serving = Serving::start(&env, "here");
        serving.signal(signal);
        assert_eq!(serving.child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn what_it_cannot_serve_is_told() {
    let env = TestEnv::new();
    let serve = |args: &[&str]| env.snap(["serve"].iter().chain(args));
    says(&serve(&["nowhere"]), 1, &["there is no store at nowhere"]);
    says(&serve(&[]), 1, &["there is no store here or above"]);
    fs_err::create_dir(env.path("stores")).unwrap();
    let open = ["a server at 0.0.0.0:0 would be open to everybody", "hint: it knows no tokens yet"];
    says(&serve(&["stores", "--listen", "0.0.0.0:0"]), 2, &open);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = [&*format!("cannot listen on {address}"), "in use", "hint: --listen says where"];
    says(&serve(&["stores", "--listen", &address]), 1, &said);
    env.write("serve.toml", "lisen = 1\n");
    let unknown = ["serve.toml", "unknown field `lisen`", "expected"];
    says(&serve(&["stores", "--config", "serve.toml"]), 2, &unknown);
}
