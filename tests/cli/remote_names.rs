//! Names of refs of which one would be a folder of the other, on every kind of service.

use snap_nettest::{Conditions, DavOptions, DavServer, S3Options, S3Server};

use crate::{
    env::{Ran, TestEnv},
    remote::{env, env_of, folder, says},
    serve::Serving,
};

/// What a service does with the place of a ref that was deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is in nobody's way.
    Free,
    /// It stays a file or a folder, which cannot be taken away safely.
    Kept,
}

fn push(env: &TestEnv, url: &str, name: &str) -> Ran {
    env.snap_in("work", ["push", url, name])
}

/// Names that cannot be beside each other here are branches in turn.
fn only(env: &TestEnv, name: &str, other: &str) {
    env.snap_in("work", ["branch", "-d", other]);
    env.snap_in("work", ["branch", "--force", name]).succeeds();
}

#[track_caller]
fn refused(env: &TestEnv, url: &str, (name, other): (&str, &str)) {
    only(env, name, other);
    let beside = format!("`heads/{name}` cannot be beside `heads/{other}`");
    says(&push(env, url, name), 2, &[&beside, "hint: one name would be a folder of the other"]);
}

fn keeps_names_apart(env: &TestEnv, url: &str, place: Place) {
    env.snap_in("work", ["push", "-q", url, "main"]).succeeds();
    for (first, second) in [("x", "x/y"), ("a/b", "a")] {
        only(env, first, second);
        push(env, url, first).succeeds();
        refused(env, url, (second, first));
        let listed = env.snap(["ls", &format!("{url}#{second}")]);
        assert_eq!(listed.code, Some(1), "{url}: {}", listed.stderr);
        env.snap_in("work", ["push", url, "--delete", first]).succeeds();
        let ran = push(env, url, second);
        if place == Place::Kept {
            says(&ran, 2, &["which was deleted there", "hint: ", "under another name"]);
            // The name itself is free.
            only(env, first, second);
            push(env, url, first).succeeds();
            continue;
        }
        says(&ran, 0, &[&format!("{second} -> {second}  new branch")]);
        // And back.
        refused(env, url, (first, second));
        env.snap_in("work", ["push", url, "--delete", second]).succeeds();
        only(env, first, second);
        push(env, url, first).succeeds();
    }
    env.snap(["clone", "-q", url, "copy"]).succeeds();
    env.snap_in("copy", ["verify", "--data"]).succeeds();
    for name in ["x", "a/b"] {
        env.snap_in("copy", ["log", "-n", "1", &format!("origin/{name}")]).succeeds();
    }
}

#[test]
fn a_folder_keeps_names_of_refs_apart() {
    let env = env();
    keeps_names_apart(&env, &folder(&env, "there"), Place::Free);
}

#[test]
fn a_local_store_keeps_names_of_refs_apart() {
    let env = env();
    env.snap(["--store", "there", "init", "-q"]).succeeds();
    keeps_names_apart(&env, &folder(&env, "there"), Place::Free);
}

#[test]
fn a_server_keeps_names_of_refs_apart() {
    let env = env();
    fs_err::create_dir(env.path("stores")).unwrap();
    let serving = Serving::start(&env, "stores");
    keeps_names_apart(&env, &format!("{}/one", serving.url), Place::Free);
}

#[test]
fn buckets_with_and_without_conditions_keep_names_of_refs_apart() {
    for conditions in [Conditions::Kept, Conditions::Ignored] {
        let server = S3Server::start(S3Options::default());
        server.set_conditions(conditions);
        let env = env_of(&server, &server.endpoint());
        keeps_names_apart(&env, "s3://bucket/one", Place::Free);
    }
}

#[test]
fn a_share_keeps_names_of_refs_apart() {
    let (env, server) = (env(), DavServer::start(DavOptions::default()));
    let url = format!("{}/one", server.endpoint().replacen("http", "webdav", 1));
    keeps_names_apart(&env, &url, Place::Kept);
}
