//! Errors of remotes: each has a precise message and a hint, and nothing local is damaged.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use snap_nettest::{DavOptions, DavServer, Denied, Fault, Kind, Proxy, Rule, S3Options, S3Server};
use snap_testkit::wait::until;

use crate::{
    env::TestEnv,
    remote::{env, env_of, says},
};

struct Bucket {
    server: S3Server,
    proxy: Proxy,
    env: TestEnv,
}

/// Makes a store whose remote is a bucket behind a proxy.
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
        (Fault::error(400, "ExpiredToken"), "the credentials have expired", "get a new token"),
        (
            Fault::error(403, "RequestTimeTooSkewed"),
            "the local clock and the clock of the service differ too much",
            "set the clock",
        ),
        (
            Fault::error(403, "SignatureDoesNotMatch"),
            "authentication failed",
            "for s3, AWS_ACCESS_KEY_ID",
        ),
        (
            Fault::error(404, "NoSuchBucket"),
            "the bucket does not exist",
            "check the name of the bucket",
        ),
        (Fault::status(507), "the service has no space left", "free some space there"),
    ] {
        proxy.add(Rule::new(fault));
        let ran = env.snap_in("work", ["push"]);
        says(&ran, 1, &[said, &format!("hint: {hint}"), "s3://bucket/p"]);
        proxy.clear_rules();
    }
    server.deny(Denied::Everything);
    let ran = env.snap_in("work", ["push"]);
    says(&ran, 1, &["permission denied", "hint: the credentials are missing or lack permission"]);
    server.deny(Denied::Nothing);
    env.snap_in("work", ["push"]).succeeds();
    env.snap_in("work", ["verify", "--data"]).succeeds();
}

#[test]
fn nobody_there_is_told() {
    let mut env = env();
    // A port that was free a moment ago, so nothing listens there.
    let server = S3Server::start(S3Options::default());
    let endpoint = server.endpoint();
    for (name, value) in server.environment(&endpoint) {
        env.set(name, &value);
    }
    drop(server);
    let ran = env.snap_in("work", ["remote", "check", "s3://bucket/p"]);
    let told = endpoint.replace("http://", "cannot connect to ");
    says(&ran, 1, &[&format!("{told}: "), "hint: check the host name and the network"]);
    assert!(ran.stdout.contains("write           not tested"), "{}", ran.stdout);
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
    let said = "cannot read config.toml at s3://bucket/p: it exceeds the size limit";
    says(&ran, 4, &[said, "hint: snap writes no object this large; check the location"]);
    server.remove("p/config.toml");
    env.snap_in("work", ["push", "-q"]).succeeds();
    let pack = server.keys().into_iter().find(|key| key.contains("objects/")).unwrap();
    // Damages the first frame; the ends of the pack come with the index.
    server.damage(&pack, |bytes| bytes[20] ^= 1);
    let key = pack.strip_prefix("p/").unwrap();
    let place =
        format!("{key} at s3://bucket/p arrived damaged: the checksum of the frame at byte ");
    let ran = env.snap(["clone", "s3://bucket/p", "other"]);
    says(&ran, 4, &["error: the clone in other is incomplete", &place]);
    says(&ran, 4, &["hint: the downloaded part is kept; in other, run `snap fetch`"]);
    let ran = env.snap_in("other", ["restore", "latest", "--overwrite"]);
    says(
        &ran,
        4,
        &[&place, "hint: everything else was restored, and the local store is not damaged"],
    );
    // The threads of the commit decide which file is in the first frame.
    let read = |file| env.snap(["cat", &format!("s3://bucket/p#main:{file}")]);
    let read = ["notes.txt", "sub/more.txt"].map(read);
    let ran = read.iter().find(|ran| ran.code != Some(0)).expect("one of them is damaged");
    says(ran, 4, &[&place, "hint: the local store is not damaged; run the command again"]);
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
    until("it sends a pack", || proxy.counts().of(Kind::Put) > 0);
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

#[test]
fn what_lies_elsewhere_is_no_damage_here() {
    let env = TestEnv::new();
    for text in ["1", "2", "3"] {
        env.write("work/file", text);
        env.snap_in("work", ["commit", "-q"]).succeeds();
    }
    env.snap_in("work", ["push", "-q", "../there"]).succeeds();
    env.snap(["clone", "-q", "--depth", "1", "there", "part"]).succeeds();
    fs_err::rename(env.path("there"), env.path("away")).unwrap();
    for args in [
        &["push", "../other"][..],
        &["pack", "HEAD", "-o", "../all.snap"],
        &["export", "latest~1", "-o", "../old.zip"],
        &["log"],
        &["cat", "latest~1:file"],
    ] {
        let ran = env.snap_in("part", args);
        says(
            &ran,
            4,
            &["hint: the local store is not damaged; run the command again", "cannot be fetched"],
        );
    }
}

#[test]
fn a_share_that_refuses_to_move_a_branch_is_told_by_its_status() {
    let server = DavServer::start(DavOptions::default());
    let proxy = Proxy::start(&server.endpoint());
    let env = env();
    let url = format!("{}/snap", proxy.endpoint().replacen("http", "webdav", 1));
    let push = |text: &str| {
        env.write("work/notes.txt", text);
        env.snap_in("work", ["commit", "-qm", text]).succeeds();
        env.snap_in("work", ["push", &url])
    };
    let moves = || proxy.requests().iter().filter(|seen| seen.method == "MOVE").count() as u64;
    push("first").succeeds();
    let before = moves();
    push("second").succeeds();
    // The branch moves last.
    let others = moves() - before - 1;
    for status in [403, 405, 409, 412] {
        let rule = Rule::new(Fault::error(status, "")).test(|seen| seen.method == "MOVE");
        proxy.add(rule.skip(others));
        let ran = push(&format!("refused with {status}"));
        let said = format!("the service refused the write with status {status}");
        says(
            &ran,
            1,
            &[
                "refs/heads/main",
                &said,
                "hint: the share and its proxies must permit this user",
                "MOVE",
            ],
        );
        assert!(!ran.stderr.contains("client"), "{}", ran.stderr);
        assert!(ran.to_string().contains("main -> main  rejected: "), "{ran}");
        proxy.clear_rules();
        // No claim is left that the next push would wait for.
        let ran = env.snap_in("work", ["push", &url]).succeeds();
        assert!(!ran.stderr.contains("another client"), "{}", ran.stderr);
    }
}
