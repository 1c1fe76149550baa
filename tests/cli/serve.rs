//! `snap serve`: a server between stores.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::TcpStream,
    process::{Child, Command, ExitStatus, Stdio},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use snap_testkit::wait::{PATIENCE, until};

use crate::{
    env::{TestEnv, noise},
    remote::says,
};

/// A server, stopped on drop.
pub(crate) struct Serving {
    child: Child,
    pub(crate) url: String,
    /// The line that it printed.
    pub(crate) line: String,
}

impl Serving {
    /// Serves `place` on a free port.
    pub(crate) fn start(env: &TestEnv, place: &str) -> Self {
        Self::with(env, &[place])
    }

    /// Serves with any arguments.
    pub(crate) fn with(env: &TestEnv, args: &[&str]) -> Self {
        let mut command = env.command("");
        command.stderr(Stdio::null());
        Self::of(command, args)
    }

    /// Serves in a folder below the root; the log goes to the file `log`.
    pub(crate) fn logging(env: &TestEnv, dir: &str, args: &[&str]) -> Self {
        let mut command = env.command(dir);
        command.stderr(fs_err::File::create(env.path("log")).unwrap().into_parts().0);
        Self::of(command, args)
    }

    /// Starts a server from a command without its arguments.
    fn of(mut command: Command, args: &[&str]) -> Self {
        command.args(["--json", "serve", "--listen", "127.0.0.1:0"]).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let record: Value = serde_json::from_str(&line).unwrap();
        Self { child, url: record["url"].as_str().unwrap().to_owned(), line }
    }

    /// Returns its process id.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns its resident memory in bytes.
    fn resident_bytes(&self) -> usize {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs_err::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    }

    /// Returns its host and port.
    pub(crate) fn address(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }

    /// Stops it and waits for its end; its log is then complete.
    pub(crate) fn stop(mut self) {
        self.signal("-TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    /// Waits until it ends.
    pub(crate) fn ends(&mut self) -> ExitStatus {
        let mut ended = None;
        until("the server ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    pub(crate) fn signal(&self, signal: &str) {
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

pub(crate) fn commit(env: &TestEnv, dir: &str, text: &str) {
    env.write(&format!("{dir}/notes.txt"), text);
    env.snap_in(dir, ["commit", "-qm", text.trim()]).succeeds();
}

/// Updates the files of `dir` after a pull, or after a push to its store.
pub(crate) fn update(env: &TestEnv, dir: &str) {
    env.snap_in(dir, ["restore", "-q", "HEAD", "--overwrite", "--yes"]).succeeds();
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
    // The served store has the new commit, and commits made in it are visible to clients.
    assert_eq!(env.snap_in("here", ["cat", "main:notes.txt"]).succeeds().stdout, "second\n");
    update(&env, "here");
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
fn without_arguments_it_serves_the_store_one_stands_in() {
    let env = TestEnv::new();
    env.write("here/sub/notes.txt", "deep\n");
    commit(&env, "here", "first\n");
    for (dir, copy) in [("here", "one"), ("here/sub", "two")] {
        let serving = Serving::logging(&env, dir, &[]);
        env.snap(["clone", "-q", &serving.url, copy]).succeeds();
        assert_eq!(env.read(&format!("{copy}/sub/notes.txt")), "deep\n");
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
    assert!(
        refused.stderr.contains("the remote has commits that you do not have"),
        "{}",
        refused.stderr
    );
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
    assert!(missing.stderr.contains(&format!("no store found at {url}")), "{}", missing.stderr);
    env.snap_in("work", ["push", "-q"]).succeeds();
    env.snap(["clone", "-q", &url, "copy"]).succeeds();
    assert_eq!(env.read("copy/notes.txt"), "first\n");
    env.snap(["--store", "stores/team/project", "verify", "--data"]).succeeds();
}

#[test]
fn what_has_no_place_beside_others_there_is_refused_in_words() {
    let env = TestEnv::new();
    fs_err::create_dir(env.path("stores")).unwrap();
    commit(&env, "work", "first\n");
    let serving = Serving::start(&env, "stores");
    let url = format!("{}/team/logs", serving.url);
    env.snap_in("work", ["push", "-q", &url]).succeeds();
    env.snap_in("work", ["branch", "topic"]).succeeds();
    env.snap_in("work", ["push", "-q", &url, "topic"]).succeeds();
    env.snap(["clone", "-q", &url, "copy"]).succeeds();
    env.snap_in("work", ["branch", "--delete", "topic"]).succeeds();
    env.snap_in("work", ["branch", "topic/new"]).succeeds();
    let beside = ["`heads/topic/new` conflicts with `heads/topic`", "hint: choose another name"];
    says(&env.snap_in("work", ["push", "-q", &url, "topic/new"]), 1, &beside);
    // A repository that would contain others, because its folder has the name of a part of a store.
    let around = env.snap_in("work", ["push", "-q", &format!("{}/team", serving.url)]);
    says(&around, 1, &["other repositories lie below `team`"]);
    env.snap(["--store", "stores/team/logs", "verify", "--data"]).succeeds();
}

#[test]
fn what_lies_elsewhere_in_part_is_not_served_as_if_it_were_here() {
    let env = TestEnv::new();
    env.write("here/src/main", "text");
    // This file gets its own frames, so that it is not fetched together with `src`.
    env.write("here/large", noise(3, 6 << 20));
    commit(&env, "here", "first\n");
    let serving = Serving::start(&env, "here");
    env.snap(["clone", "-q", "--path", "src", &serving.url, "part"]).succeeds();
    let again = Serving::start(&env, "part");
    let ran = env.snap(["clone", "-q", &again.url, "copy"]);
    assert_ne!(ran.code, Some(0));
    assert!(ran.stderr.contains("is incomplete"), "{}", ran.stderr);
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
    let nothing = [
        "no/where is neither a store nor a folder of stores",
        "hint: create the folder: `mkdir -p no/where`",
    ];
    says(&serve(&["no/where"]), 1, &nothing);
    says(&serve(&["token", "add", "ada", "--of", "no/where"]), 1, &nothing);
    env.write("file", "");
    says(&serve(&["file"]), 1, &["no store found at file"]);
    says(&serve(&[]), 1, &["no store found in this folder or above"]);
    fs_err::create_dir(env.path("stores")).unwrap();
    let open = [
        "a server at 0.0.0.0:0 would accept requests without authentication",
        "hint: `snap serve token add NAME`",
    ];
    says(&serve(&["stores", "--listen", "0.0.0.0:0"]), 2, &open);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = [
        &*format!("cannot listen on {address}"),
        "in use",
        "hint: pass another address with `--listen",
    ];
    says(&serve(&["stores", "--listen", &address]), 1, &said);
    env.write("serve.toml", "lisen = 1\n");
    let unknown = ["serve.toml", "unknown field `lisen`", "expected"];
    says(&serve(&["stores", "--config", "serve.toml"]), 2, &unknown);
    env.write("serve.toml", "[oidc]\nissuer = \"http://a.example\"\naudience = \"a\"\n");
    let plain = ["serve.toml", "`oidc.issuer` must begin with https://", "hint: docs/server.md"];
    says(&serve(&["stores", "--config", "serve.toml"]), 2, &plain);
}

/// Adds a token for the stores in `of`.
fn token(env: &TestEnv, of: &str, args: &[&str]) -> String {
    env.snap([&["serve", "token", "add", "--of", of], args].concat()).succeeds().line().to_owned()
}

#[test]
fn whoever_has_a_token_may_do_what_it_is_for() {
    let mut env = TestEnv::new();
    commit(&env, "here", "first\n");
    let read = token(&env, "here", &["ada"]);
    let append = token(&env, "here", &["ci", "--scope", "append", "--expires", "2990-01-31"]);
    let write = token(&env, "here", &["bob", "--scope", "write", "--repository", "default"]);
    let listed = env.snap_in("here", ["serve", "token", "list"]).succeeds().stdout;
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines[0], "ada  read    all repositories");
    assert!(lines[1].starts_with("ci   append  all repositories, until 2990-01-31"), "{listed}");
    assert_eq!(lines[2], "bob  write   default");
    let serving = Serving::start(&env, "here");
    let url = serving.url.clone();
    let nobody = env.snap(["clone", "-q", &url, "none"]);
    says(&nobody, 1, &["a token is required", "hint: set a token in SNAP_REMOTE_SECRET"]);
    env.set("SNAP_REMOTE_SECRET", &read);
    env.snap(["clone", "-q", &url, "there"]).succeeds();
    commit(&env, "there", "second\n");
    let refused = env.snap_in("there", ["push", "-q"]);
    says(
        &refused,
        1,
        &["the token does not grant `append` on", "hint: `snap serve token list` on the server"],
    );
    assert!(!refused.stderr.contains(&read), "{}", refused.stderr);
    env.set("SNAP_REMOTE_SECRET", &append);
    env.snap_in("there", ["branch", "mine"]).succeeds();
    env.snap_in("there", ["push", "-q", "origin", "mine", "main"]).succeeds();
    assert_eq!(env.snap_in("here", ["cat", "main:notes.txt"]).succeeds().stdout, "second\n");
    // This token may fast-forward branches, and nothing else.
    let refused = env.snap_in("there", ["push", "-q", "origin", "--delete", "mine"]);
    says(&refused, 1, &["the token does not grant `write` on `default`"]);
    env.snap_in("there", ["branch", "--force", "main", "main~1"]).succeeds();
    let refused = env.snap_in("there", ["push", "-q", "--force"]);
    says(&refused, 1, &["can only be fast-forwarded with this token"]);
    says(&refused, 1, &["pushes the commits as a new branch"]);
    // The server has answered, so it is known that the branch has not moved.
    let refused = env.snap_in("there", ["push", "--force"]);
    let why =
        "main -> main  rejected: permission denied: `refs/heads/main` can only be fast-forwarded";
    says(&refused, 1, &[why]);
    assert!(!refused.stderr.contains("unknown whether"), "{}", refused.stderr);
    env.set("SNAP_REMOTE_SECRET", &write);
    env.snap_in("there", ["push", "-q", "--force"]).succeeds();
    let log = env.snap_in("here", ["branch", "--log", "main"]).succeeds().stdout;
    assert!(log.contains("bob"), "{log}");
    env.snap_in("here", ["serve", "token", "revoke", "bob"]).succeeds();
    let mut refused = env.snap_in("there", ["pull", "-q"]);
    until("the server reads the token file", || {
        let is_served = refused.code == Some(0);
        if is_served {
            refused = env.snap_in("there", ["pull", "-q"]);
        }
        !is_served
    });
    says(&refused, 1, &["the token is invalid or has expired"]);
    // The token file does not disturb other commands.
    env.snap_in("here", ["verify", "--data"]).succeeds();
}

#[test]
fn tokens_that_cannot_be_made_are_told_and_a_server_with_some_may_listen_anywhere() {
    let env = TestEnv::new();
    fs_err::create_dir(env.path("stores")).unwrap();
    let made =
        |args: &[&str]| env.snap([&["serve", "token", "add", "--of", "stores"], args].concat());
    says(&made(&["a b"]), 2, &["`a b` is not a valid token name", "hint: a name has"]);
    says(&made(&["a", "--expires", "2001-01-01"]), 2, &["`2001-01-01` is not a future date"]);
    made(&["a"]).succeeds();
    says(&made(&["a"]), 1, &["token `a` already exists", "hint: `snap serve token revoke"]);
    let revoke = env.snap(["serve", "token", "revoke", "b", "--of", "stores"]);
    says(&revoke, 1, &["token `b` does not exist", "hint: `snap serve token list`"]);
    // The check of tokens passes, so the next error is reported.
    let serve = env.snap(["serve", "stores", "--listen", "192.0.2.1:0"]);
    says(&serve, 1, &["cannot listen on 192.0.2.1:0"]);
    let open = "--without-tokens-anyone-may-read-and-write";
    fs_err::create_dir(env.path("others")).unwrap();
    let serve = env.snap(["serve", "others", open, "--listen", "192.0.2.1:0"]);
    says(&serve, 1, &["cannot listen on 192.0.2.1:0"]);
    env.write("others/tokens.toml", "version = 2");
    let broken = env.snap(["serve", "others"]);
    says(&broken, 2, &["is not a valid token file: version 2 is not supported"]);
}

#[test]
fn it_takes_no_more_connections_than_it_may_open_files() {
    let env = TestEnv::new();
    commit(&env, "here", "first\n");
    let plain = env.command("");
    let mut limited = env.command_of("", "/bin/sh");
    limited.args(["-c", "ulimit -n 120 && exec \"$0\" \"$@\""]).arg(plain.get_program());
    let log = fs_err::File::create(env.path("log")).unwrap();
    limited.stderr(log.into_parts().0);
    // No connection ends because it is idle.
    limited.env("SNAP_SERVE_LIMITS_HEADER_SECS", "600");
    let serving = Serving::of(limited, &["here"]);
    let address = serving.address().to_owned();
    let mut all: Vec<TcpStream> = (0..110)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            // The server may have closed the connection already.
            let _ = stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream
        })
        .collect();
    let answered = |stream: &mut TcpStream| {
        let mut start = [0; 15];
        match stream.read_exact(&mut start) {
            Ok(()) => &start == b"HTTP/1.1 200 OK",
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it hangs"),
            Err(_) => false,
        }
    };
    let taken = all.iter_mut().map(answered).filter(|taken| *taken).count();
    assert_eq!(taken, 90);
    let told = env.read("log");
    assert!(told.contains("connections=90 wanted=10000 files=120"), "{told}");
    drop(all);
    // Other open files still work, and later connections too.
    env.snap(["clone", "-q", &serving.url, "there"]).succeeds();
}

#[test]
fn thousands_who_say_nothing_keep_nobody_from_being_served() {
    let mut env = TestEnv::new();
    commit(&env, "here", "first\n");
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // Both processes open one file for each connection, and other tests open some too.
    let many = 4_000.min((files / 4 * 3).saturating_sub(500)) as usize;
    for (key, value) in
        [("ADDRESS_CONNECTIONS", 0), ("CONNECTIONS", many + 100), ("HEADER_SECS", 600)]
    {
        env.set(&format!("SNAP_SERVE_LIMITS_{key}"), &value.to_string());
    }
    let serving = Serving::start(&env, "here");
    env.snap(["clone", "-q", &serving.url, "before"]).succeeds();
    let before = serving.resident_bytes();
    let address = serving.address();
    let idle: Vec<TcpStream> = (0..many).map(|_| TcpStream::connect(address).unwrap()).collect();
    env.snap(["clone", "-q", &serving.url, "meanwhile"]).succeeds();
    let used = serving.resident_bytes().saturating_sub(before);
    assert!(used < many * (16 << 10), "{used} bytes for {many}");
    drop(idle);
    env.snap(["clone", "-q", &serving.url, "after"]).succeeds();
}

#[test]
fn a_second_server_of_one_folder_is_refused() {
    let env = TestEnv::new();
    commit(&env, "here", "first\n");
    fs_err::create_dir(env.path("stores")).unwrap();
    for place in ["here", "stores"] {
        let serving = Serving::start(&env, place);
        let second = env.snap(["serve", place, "--listen", "127.0.0.1:0"]);
        let told = format!("another server serves {place}");
        says(&second, 1, &[&told, "hint: stop the other server first"]);
        drop(serving);
        // The lock ends with the server.
        drop(Serving::start(&env, place));
    }
}

#[test]
fn a_second_server_of_a_store_in_a_folder_that_is_served_is_refused() {
    let env = TestEnv::new();
    commit(&env, "stores/team/one", "first\n");
    for (first, second) in [
        ("stores", "stores/team/one"),
        ("stores", "stores/team"),
        ("stores/team/one", "stores"),
        ("stores/team", "stores"),
    ] {
        let serving = Serving::start(&env, first);
        let ran = env.snap(["serve", second, "--listen", "127.0.0.1:0"]);
        says(&ran, 1, &["another server serves ", "hint: stop the other server first"]);
        drop(serving);
        drop(Serving::start(&env, second));
    }
}

#[test]
fn a_folder_that_push_made_is_not_served_and_nothing_is_written_into_it() {
    let env = TestEnv::new();
    commit(&env, "here", "first\n");
    let url = format!("file://{}", env.path("stores/remote").display());
    env.snap_in("here", ["push", "-q", &url]).succeeds();
    let files = || {
        let all = env.command_of("stores", "find").arg(".").output().unwrap().stdout;
        String::from_utf8(all).unwrap()
    };
    let before = files();
    for place in ["stores/remote", "stores"] {
        let ran = env.snap(["serve", place, "--listen", "127.0.0.1:0"]);
        let serve = format!("`snap serve {url}` serves it");
        says(&ran, 2, &["is a remote; it does not accept commits", &serve]);
        assert_eq!(files(), before, "{place}");
    }
    // The command in the hint works.
    let mut env = env;
    let cache = env.path("cache").to_str().unwrap().to_owned();
    env.set("XDG_CACHE_HOME", &cache);
    let serving = Serving::start(&env, &url);
    env.snap(["clone", "-q", &serving.url, "copy"]).succeeds();
}

#[test]
fn a_store_that_is_served_takes_pushes_by_its_path() {
    let env = TestEnv::new();
    commit(&env, "here", "first\n");
    fs_err::create_dir(env.path("stores")).unwrap();
    let serving = Serving::start(&env, "stores");
    let url = format!("{}/one", serving.url);
    env.snap_in("here", ["push", "-q", &url]).succeeds();
    env.snap(["clone", "-q", &url, "copy"]).succeeds();
    for round in 0..3 {
        commit(&env, "here", &format!("by path {round}\n"));
        env.snap_in("here", ["push", "-q", "../stores/one"]).succeeds();
        env.snap_in("copy", ["pull", "-q"]).succeeds();
        env.snap_in("copy", ["verify", "--data"]).succeeds();
        commit(&env, "here", &format!("by server {round}\n"));
        env.snap_in("here", ["push", "-q", &url]).succeeds();
    }
    env.snap_in("copy", ["pull", "-q"]).succeeds();
    let log = env.snap_in("copy", ["log", "--oneline", "main"]).succeeds().stdout;
    assert_eq!(log.lines().count(), 7);
}

#[test]
fn a_branch_that_is_not_there_is_not_a_name_that_cannot_be() {
    let env = TestEnv::new();
    commit(&env, "here", "first\n");
    let serving = Serving::start(&env, "here");
    let ran = env.snap(["ls", &format!("{}#nosuch", serving.url)]);
    assert!(!ran.stderr.contains("no name of a branch"), "{}", ran.stderr);
    says(&ran, 1, &["`nosuch`"]);
}

#[test]
fn a_server_is_checked_for_what_can_be_tried_there() {
    let mut env = TestEnv::new();
    commit(&env, "here", "first\n");
    let serving = Serving::start(&env, "here");
    let ran = env.snap(["remote", "check", &serving.url]).succeeds();
    assert!(ran.stdout.contains("write           not tested"), "{}", ran.stdout);
    // A token is printed only once, so also with `-q`.
    let token = env.snap(["serve", "token", "add", "ada", "--of", "here", "-q"]).succeeds();
    assert!(token.line().len() > 20 && token.stderr.is_empty(), "{token}");
    until("the server reads the token file", || {
        env.snap(["ls", &format!("{}#main", serving.url)]).code != Some(0)
    });
    env.set("SNAP_REMOTE_SECRET", "wrong");
    let ran = env.snap(["remote", "check", &serving.url]);
    says(&ran, 1, &["authentication failed"]);
    assert!(ran.stdout.contains("read            not tested"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("does not support this"), "{}", ran.stdout);
}
