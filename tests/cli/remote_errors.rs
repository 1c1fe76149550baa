//! What goes wrong with remotes: each is told for what it is, with what to do,
//! and nothing here is harmed.

use std::{
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use snap_nettest::{Denied, Fault, Kind, Proxy, Rule, S3Options, S3Server};

use crate::{
    env::TestEnv,
    remote::{env, env_of, says},
};

struct Bucket {
    server: S3Server,
    proxy: Proxy,
    env: TestEnv,
}

/// A store whose remote is a bucket behind a proxy.
fn bucket() -> Bucket {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let env = env_of(&server, &proxy.endpoint());
    env.snap_in("work", ["remote", "add", "origin", "s3://bucket/p"]).succeeds();
    Bucket { server, proxy, env }
}

#[test]
fn refusals_are_told_apart() {
    let Bucket { server, proxy, env } = bucket();
    for (fault, said, hint) in [
        (Fault::error(400, "ExpiredToken"), "the keys have expired", "get a new token"),
        (Fault::error(403, "RequestTimeTooSkewed"), "the clocks here and there", "set the clock"),
        (Fault::error(403, "SignatureDoesNotMatch"), "the keys are missing", "check the keys"),
        (Fault::error(404, "NoSuchBucket"), "there is no such bucket", "make the bucket first"),
        (Fault::status(507), "no room is left there", "make room there"),
    ] {
        proxy.add(Rule::new(fault));
        let ran = env.snap_in("work", ["push"]);
        says(&ran, 1, &[said, &format!("hint: {hint}"), "s3://bucket/p"]);
        proxy.clear_rules();
    }
    server.deny(Denied::Everything);
    let ran = env.snap_in("work", ["push"]);
    says(&ran, 1, &["permission is denied", "hint: these keys may not do that"]);
    server.deny(Denied::Nothing);
    env.snap_in("work", ["push"]).succeeds();
    env.snap_in("work", ["verify", "--data"]).succeeds();
}

#[test]
fn nobody_there_is_told() {
    let mut env = env();
    // A port that was free a moment ago.
    let server = S3Server::start(S3Options::default());
    let endpoint = server.endpoint();
    for (name, value) in server.environment(&endpoint) {
        env.set(name, &value);
    }
    drop(server);
    let ran = env.snap_in("work", ["remote", "check", "s3://bucket/p"]);
    says(&ran, 1, &["nobody answers there", "hint: is the name of the host right"]);
    assert!(ran.stdout.contains("write           not tried"), "{}", ran.stdout);
}

#[test]
fn a_store_that_is_newer_or_damaged_is_told() {
    let Bucket { server, env, proxy: _proxy } = bucket();
    server.put("p/config.toml", "version = 9\n");
    for args in [&["push"][..], &["pull"], &["ls", "origin#main"]] {
        let ran = env.snap_in("work", args);
        says(&ran, 1, &["the settings of the store at s3://bucket/p cannot be used"]);
    }
    server.put("p/config.toml", vec![b' '; 2 << 20]);
    let ran = env.snap_in("work", ["pull"]);
    let said = "cannot read config.toml at s3://bucket/p: what came is longer than it can be";
    says(&ran, 4, &[said, "hint: nothing that snap writes is: is the location right?"]);
    server.remove("p/config.toml");
    env.snap_in("work", ["push", "-q"]).succeeds();
    let pack = server.keys().into_iter().find(|key| key.contains("objects/")).unwrap();
    // In its first frame; its ends come with the index.
    server.damage(&pack, |bytes| bytes[20] ^= 1);
    let key = pack.strip_prefix("p/").unwrap();
    let place = format!("{key} at s3://bucket/p came damaged in the frame at byte ");
    let ran = env.snap(["clone", "s3://bucket/p", "other"]);
    says(&ran, 4, &["error: the clone in other is not complete", &place]);
    says(&ran, 4, &["hint: what has come is kept: in other, `snap fetch` brings the rest"]);
    let ran = env.snap_in("other", ["restore", "latest", "--overwrite"]);
    says(&ran, 4, &[&place, "hint: what could be restored was; what is here is not damaged"]);
    // Which file is in the first frame is for the threads to settle.
    let read = |file| env.snap(["cat", &format!("s3://bucket/p#main:{file}")]);
    let read = ["notes.txt", "sub/more.txt"].map(read);
    let ran = read.iter().find(|ran| ran.code != Some(0)).expect("one of them is damaged");
    says(ran, 4, &[&place, "hint: nothing here is damaged; run it again"]);
}

#[test]
fn a_bad_network_is_overcome() {
    let Bucket { server: _server, proxy, env } = bucket();
    proxy.add(Rule::new(Fault::Reset).kind(Kind::Put).times(1));
    proxy.add(Rule::new(Fault::LoseReply).path("refs/").kind(Kind::Put).times(1));
    let ran = env.snap_in("work", ["--json", "push"]).succeeds();
    let stats = &ran.json()[0]["stats"];
    assert!(stats["retries"].as_u64().unwrap() >= 2, "{stats}");
    assert_eq!(stats["requests"], proxy.counts().total);
    env.snap(["clone", "-q", "s3://bucket/p", "other"]).succeeds();
}

#[test]
fn interrupted_both_sides_stay_whole() {
    let Bucket { server: _server, proxy, env } = bucket();
    proxy.add(Rule::new(Fault::Stall).kind(Kind::Put).path("objects/"));
    let mut command = env.command("work");
    let mut child =
        command.arg("push").stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while proxy.counts().of(Kind::Put) == 0 && start.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    proxy.clear_rules();
    let ran = env.snap_in("work", ["pull"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    env.snap_in("work", ["push"]).succeeds();
    env.snap(["clone", "-q", "s3://bucket/p", "other"]).succeeds();
    env.snap_in("other", ["verify", "--data"]).succeeds();
}
