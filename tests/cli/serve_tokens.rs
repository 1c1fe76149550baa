//! Tokens of a server with an upstream: its settings name the token file.

use std::os::unix::fs::{MetadataExt, chown};

use snap_testkit::{skip::needs_root, wait::until};

use crate::{
    env::TestEnv,
    remote::{env, says},
    serve::{Serving, commit},
};

/// The error if no token file is configured.
const NOWHERE: [&str; 2] = ["no token file is configured", "hint: set `tokens = \"FILE\"`"];

fn token(env: &TestEnv, args: &[&str]) -> String {
    let added = env.snap([&["serve", "token", "add", "--config", "serve.toml"], args].concat());
    added.succeeds().line().to_owned()
}

#[test]
fn before_an_upstream_no_token_is_made_where_no_server_looks_for_it() {
    let mut env = env();
    let upstream = "upstream = \"http://127.0.0.1:1\"\n";
    env.write("serve.toml", upstream);
    let token = |action: &[&str]| env.snap_in("work", [&["serve", "token"], action].concat());
    for action in [&["add", "ada"][..], &["list"], &["revoke", "ada"]] {
        let told = token(&[action, &["--config", "../serve.toml"]].concat());
        says(
            &told,
            2,
            &[&NOWHERE[..], &["a server with the upstream http://127.0.0.1:1"]].concat(),
        );
        says(&token(&[action, &["--of", "s3://bucket/all"]].concat()), 2, &NOWHERE);
    }
    assert!(!env.path("work/.snap/tokens.toml").exists());
    // The error of starting the server has the same hint.
    let open = ["serve", "--config", "serve.toml", "--listen", "0.0.0.0:0"];
    says(&env.snap(open), 2, &["would accept requests without authentication", NOWHERE[1]]);
    let file = env.path("elsewhere.toml").to_str().unwrap().to_owned();
    env.set("SNAP_SERVE_TOKENS", &file);
    env.snap(["serve", "token", "add", "ada", "--config", "serve.toml"]).succeeds();
    assert!(env.read("elsewhere.toml").contains("ada"));
}

#[test]
fn a_relay_has_tokens_of_its_own() {
    let mut env = env();
    fs_err::create_dir(env.path("stores")).unwrap();
    let folder = Serving::start(&env, "stores");
    let tokens = env.path("tokens.toml");
    let settings = format!("upstream = {:?}\ntokens = {tokens:?}\n", folder.url);
    env.write("serve.toml", settings);
    let root = token(&env, &["root", "--scope", "admin"]);
    let ada = token(&env, &["ada", "--repository", "team/project"]);
    let listed = env.snap(["serve", "token", "list", "--config", "serve.toml"]).succeeds().stdout;
    assert_eq!(listed, "root  admin   all repositories\nada   read    team/project\n");
    let relay = Serving::with(&env, &["--config", "serve.toml"]);
    let url = format!("{}/team/project", relay.url);
    env.snap_in("work", ["remote", "add", "origin", &url]).succeeds();
    says(&env.snap_in("work", ["push", "-q"]), 1, &["a token is required"]);
    env.set("SNAP_REMOTE_SECRET", &root);
    env.snap_in("work", ["push", "-q"]).succeeds();
    env.snap(["--store", "stores/team/project", "verify", "--data"]).succeeds();
    env.set("SNAP_REMOTE_SECRET", &ada);
    env.snap(["clone", "-q", &url, "copy"]).succeeds();
    assert_eq!(env.read("copy/notes.txt"), "first\n");
    commit(&env, "copy", "second\n");
    says(&env.snap_in("copy", ["push", "-q"]), 1, &["the token does not grant `append` on"]);

    env.snap(["serve", "token", "revoke", "ada", "--config", "serve.toml"]).succeeds();
    let read = || env.snap(["cat", &format!("{url}#main:notes.txt")]);
    let mut last = read();
    until("the token is revoked", || {
        let is_served = last.code == Some(0);
        if is_served {
            last = read();
        }
        !is_served
    });
    says(&last, 1, &["the token is invalid or has expired"]);
}

#[test]
fn a_folder_of_another_group_takes_the_file() {
    if !needs_root() {
        return;
    }
    let env = TestEnv::new();
    let nobody = 65_534;
    fs_err::create_dir(env.path("stores")).unwrap();
    // Other users may have no access to the build folder.
    fs_err::copy(env!("CARGO_BIN_EXE_snap"), env.path("snap")).unwrap();
    env.mode("", 0o755);
    chown(env.path("stores"), Some(nobody), Some(0)).unwrap();
    let mut command = env.command_of("", "/usr/bin/setpriv");
    let id = nobody.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    command.arg(env.path("snap")).args(["serve", "token", "add", "ada", "--of", "stores"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made = fs_err::metadata(env.path("stores/tokens.toml")).unwrap();
    assert_eq!((made.uid(), made.mode() & 0o777), (nobody, 0o600));
}
