//! `snap serve` with a bucket or another server as its upstream.

use std::process::Stdio;

use snap_nettest::{Fault, Proxy, Rule, S3Options, S3Server};
use snap_testkit::wait::until;

use crate::{
    env::TestEnv,
    remote::{env, env_of, says},
    serve::{Serving, commit, update},
};

fn notes(env: &TestEnv, dir: &str) -> String {
    env.snap_in(dir, ["cat", "main:notes.txt"]).succeeds().stdout
}

#[test]
fn a_folder_two_replicas_of_a_bucket_and_relays_serve_two_clients() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let env = env_of(&server, &proxy.endpoint());
    fs_err::create_dir(env.path("stores")).unwrap();
    for number in 0..40 {
        env.write(&format!("ada/src/{number}"), format!("text {number}"));
    }
    commit(&env, "ada", "first\n");
    // The bucket, two servers before it, and a relay before one of them.
    let bucket = "s3://bucket/all";
    let replicas = [Serving::start(&env, bucket), Serving::start(&env, bucket)];
    let relay = Serving::with(&env, &["--upstream", &replicas[1].url]);
    let at = |serving: &Serving| format!("{}/team/project", serving.url);
    env.snap_in("ada", ["remote", "add", "origin", &at(&replicas[0])]).succeeds();
    env.snap_in("ada", ["push", "-q"]).succeeds();
    env.snap(["clone", "-q", &at(&relay), "bob"]).succeeds();
    assert_eq!(env.read("bob/src/39"), "text 39");
    commit(&env, "bob", "second\n");
    env.snap_in("bob", ["push", "-q"]).succeeds();
    env.snap_in("ada", ["pull", "-q"]).succeeds();
    assert_eq!(notes(&env, "ada"), "second\n");
    // If two users commit on the same parent, the second push fails, whichever server it uses.
    update(&env, "ada");
    commit(&env, "ada", "third\n");
    commit(&env, "bob", "other\n");
    env.snap_in("ada", ["push", "-q"]).succeeds();
    says(&env.snap_in("bob", ["push", "-q"]), 1, &["the remote has commits that you do not have"]);
    env.snap_in("bob", ["pull", "-q", "--force"]).succeeds();
    assert_eq!(notes(&env, "bob"), "third\n");

    // A server of a folder, and a relay before it.
    let folder = Serving::start(&env, "stores");
    let beside = Serving::with(&env, &["--upstream", &folder.url]);
    env.snap_in("ada", ["push", "-q", &at(&beside), "main"]).succeeds();
    env.snap(["--store", "stores/team/project", "verify", "--data"]).succeeds();
    env.snap(["clone", "-q", &at(&folder), "copy"]).succeeds();
    assert_eq!(env.read("copy/notes.txt"), "third\n");

    // The bucket is unreachable: cached data can still be read, but pushes fail.
    proxy.add(Rule::new(Fault::Reset));
    env.snap(["clone", "-q", &at(&relay), "again"]).succeeds();
    assert_eq!(env.read("again/notes.txt"), "third\n");
    let read = env.snap(["cat", &format!("{}#main:notes.txt", at(&replicas[1]))]).succeeds();
    assert_eq!(read.stdout, "third\n");
    update(&env, "bob");
    commit(&env, "bob", "fourth\n");
    says(&env.snap_in("bob", ["push", "-q"]), 1, &["the upstream does not answer"]);
    proxy.clear_rules();
    env.snap_in("bob", ["push", "-q"]).succeeds();

    // Everything is in the bucket itself, so clients can use it without a server.
    env.snap(["clone", "-q", &format!("{bucket}/team/project"), "direct"]).succeeds();
    assert_eq!(env.read("direct/notes.txt"), "fourth\n");
    for dir in ["ada", "bob", "copy", "again", "direct"] {
        env.snap_in(dir, ["verify", "--data"]).succeeds();
    }
}

#[test]
fn replicas_behind_a_balancer_are_like_one_server() {
    let server = S3Server::start(S3Options::default());
    let mut env = env_of(&server, &server.endpoint());
    let replicas = ["one", "two"].map(|name| {
        let cache = env.path(format!("cache of {name}"));
        env.set("XDG_CACHE_HOME", cache.to_str().unwrap());
        Serving::start(&env, "s3://bucket/all")
    });
    let balancer = Proxy::balancing(&[&replicas[0].url, &replicas[1].url]);
    let url = format!("{}/project", balancer.endpoint());
    for number in 0..6 {
        commit(&env, "work", &format!("change {number}\n"));
        env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
    }
    for number in 0..4 {
        let cache = env.path(format!("cache of client {number}"));
        env.set("XDG_CACHE_HOME", cache.to_str().unwrap());
        let clone = format!("clone{number}");
        env.snap(["clone", "-q", &url, &clone]).succeeds();
        assert_eq!(notes(&env, &clone), "change 5\n");
        env.snap_in(&clone, ["verify", "origin", "--data"]).succeeds();
    }
}

#[test]
fn an_upstream_that_says_nothing_keeps_no_server_from_stopping() {
    let mut env = env();
    fs_err::create_dir(env.path("stores")).unwrap();
    let folder = Serving::start(&env, "stores");
    let proxy = Proxy::start(&folder.url);
    proxy.add(Rule::new(Fault::Stall).path("/packs/"));
    env.set("SNAP_SERVE_LIMITS_STOP_SECS", "1");
    // The relay would wait for the upstream much longer than this test for the relay.
    env.set("SNAP_SERVE_LIMITS_UPSTREAM_SECS", "3600");
    let mut relay = Serving::with(&env, &["--upstream", &proxy.endpoint()]);
    let url = format!("{}/team/project", relay.url);
    let mut push = env.command("work");
    let push = push.args(["push", "-q", &url, "main"]).stderr(Stdio::null());
    let mut push = push.spawn().unwrap();
    until("the relay sends a pack", || {
        proxy.requests().iter().any(|seen| seen.method == "PUT" && seen.path.contains("/packs/"))
    });
    relay.signal("-TERM");
    let ended = relay.ends();
    push.kill().unwrap();
    push.wait().unwrap();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
}

#[test]
fn a_bucket_that_is_one_store_is_served_as_one() {
    let server = S3Server::start(S3Options::default());
    let env = env_of(&server, &server.endpoint());
    commit(&env, "work", "first\n");
    env.snap_in("work", ["push", "-q", "s3://bucket/one"]).succeeds();
    env.write(
        "serve.toml",
        "upstream = \"s3://bucket/one\"\ncache = \"kept\"\ncache_bytes = 1000000\n",
    );
    let serving = Serving::with(&env, &["--config", "serve.toml"]);
    env.snap(["clone", "-q", &serving.url, "copy"]).succeeds();
    assert!(env.path("kept").is_dir());
    commit(&env, "copy", "second\n");
    env.snap_in("copy", ["push", "-q"]).succeeds();
    let read = env.snap(["cat", "s3://bucket/one#main:notes.txt"]).succeeds();
    assert_eq!(read.stdout, "second\n");
}

#[test]
fn what_cannot_stand_behind_a_server_is_told() {
    let env = TestEnv::new();
    let serve = |args: &[&str]| env.snap(["serve"].iter().chain(args));
    let twice = ["cannot be served at once: here and s3://b", "hint: pass only one of them"];
    says(&serve(&["here", "--upstream", "s3://b"]), 2, &twice);
    says(&serve(&["--upstream", "nowhere"]), 1, &["nowhere"]);
    says(&serve(&["what://b/x"]), 2, &["`what` is not a supported remote scheme", "hint: "]);
}
