//! Credentials for remotes: their sources, and that they do not leak.

use snap_nettest::{DavOptions, DavServer, S3Options, S3Server};

use crate::{
    env::{Ran, TestEnv},
    remote::{env, says},
};

const SECRET: &str = "geheimnis-7f3a";

/// Makes a store whose remote is a bucket; the credentials for it are not set.
fn env_with(server: &S3Server) -> TestEnv {
    let mut env = env();
    for (name, value) in server.environment(&server.endpoint()) {
        if !name.contains("KEY") {
            env.set(name, &value);
        }
    }
    env.snap_in("work", ["remote", "add", "origin", "s3://bucket/p"]).succeeds();
    env
}

fn set(env: &TestEnv, key: &str, value: &str) {
    env.snap_in("work", ["config", "set", key, value]).succeeds();
}

fn server() -> S3Server {
    let (access_key, secret_key) = ("ada".to_owned(), SECRET.to_owned());
    S3Server::start(S3Options { access_key, secret_key, ..S3Options::default() })
}

#[track_caller]
fn keeps_secret(ran: &Ran) {
    assert!(!ran.stderr.contains(SECRET) && !ran.stdout.contains(SECRET), "{}", ran.stderr);
}

#[test]
fn keys_come_from_a_file_that_nobody_else_reads() {
    let server = server();
    let env = env_with(&server);
    env.write("keys", format!("# of the bucket\nname = ada\nsecret = {SECRET}\n"));
    set(&env, "remote.origin.credentials_file", env.path("keys").to_str().unwrap());
    let ran = env.snap_in("work", ["push"]);
    says(
        &ran,
        1,
        &["other users may read it (mode 0644)", "hint: the file needs the lines `name = …`"],
    );
    env.mode("keys", 0o600);
    env.snap_in("work", ["push"]).succeeds();
    let ran = env.snap_in("work", ["remote", "show"]).succeeds();
    assert!(ran.stdout.contains("Keys:     in /"), "{}", ran.stdout);
    env.write("keys", "name = ada\n");
    env.mode("keys", 0o600);
    says(&env.snap_in("work", ["push"]), 1, &["it has no line `secret = …`"]);
    fs_err::remove_file(env.path("keys")).unwrap();
    says(&env.snap_in("work", ["push"]), 1, &["cannot read"]);
}

#[test]
fn keys_come_from_a_command() {
    let server = server();
    let env = env_with(&server);
    let key = "remote.origin.credentials_command";
    let json =
        format!("{{\"Version\":1,\"AccessKeyId\":\"ada\",\"SecretAccessKey\":\"{SECRET}\"}}");
    for command in [
        format!("printf 'name = ada\\nsecret = {SECRET}\\n'"),
        format!("printf '%s\\n' '{SECRET}' 'user: ada'"),
        format!("echo '{json}'"),
    ] {
        set(&env, key, &command);
        keeps_secret(&env.snap_in("work", ["push", "-v", "--stats"]).succeeds());
    }
    set(&env, key, &format!("echo {SECRET} >&2; exit 3"));
    let ran = env.snap_in("work", ["push"]);
    says(&ran, 1, &["the credentials command of origin failed: exit status: 3"]);
    set(&env, key, "true");
    says(&env.snap_in("work", ["push"]), 1, &["its output contains no secret"]);
}

#[test]
fn variables_win_and_wrong_keys_are_told_without_them() {
    let server = server();
    let mut env = env_with(&server);
    set(&env, "remote.origin.credentials_command", "echo name=ada; echo secret=wrong");
    let ran = env.snap_in("work", ["push"]);
    says(&ran, 1, &["authentication failed", "AWS_ACCESS_KEY_ID"]);
    keeps_secret(&ran);
    env.set("SNAP_REMOTE_USER", "ada");
    env.set("SNAP_REMOTE_SECRET", SECRET);
    keeps_secret(&env.snap_in("work", ["push", "-v"]).succeeds());
    env.set("SNAP_REMOTE_USER", "bob");
    let ran = env.snap_in("work", ["push"]);
    says(&ran, 1, &["authentication failed"]);
    keeps_secret(&ran);
    keeps_secret(&env.snap_in("work", ["--json", "push"]));
    for args in [&["config", "list", "--origin"][..], &["remote", "show"], &["remote", "list"]] {
        keeps_secret(&env.snap_in("work", args).succeeds());
    }
    let keys = fs_err::read_dir(env.path("work/.snap")).unwrap().map(|entry| entry.unwrap().path());
    for file in keys.filter(|path| path.is_file()) {
        let bytes = fs_err::read(file).unwrap();
        assert!(!bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()));
    }
}

#[test]
fn a_share_asks_for_name_and_password() {
    let user = Some(("ada".to_owned(), SECRET.to_owned()));
    let server = DavServer::start(DavOptions { user, ..DavOptions::default() });
    let mut env = env();
    let url = format!("{}/snap", server.endpoint().replacen("http", "webdav", 1));
    env.snap_in("work", ["remote", "add", "origin", &url, "--option=username=ada"]).succeeds();
    let ran = env.snap_in("work", ["push"]);
    says(&ran, 1, &["AWS_ACCESS_KEY_ID"]);
    env.set("SNAP_REMOTE_SECRET", SECRET);
    keeps_secret(&env.snap_in("work", ["push", "-v"]).succeeds());
    env.snap(["clone", "-q", &url, "other", "--option", "username=ada"]).succeeds();
    assert_eq!(env.read("other/notes.txt"), "first\n");
    env.snap_in("other", ["pull"]).succeeds();
}

#[test]
fn a_secret_without_a_name_is_refused_and_no_other_account_used() {
    let server = server();
    let mut env = env_with(&server);
    env.set("AWS_ACCESS_KEY_ID", "ada");
    env.set("AWS_SECRET_ACCESS_KEY", SECRET);
    env.set("SNAP_REMOTE_SECRET", "another");
    let ran = env.snap_in("work", ["push"]);
    says(
        &ran,
        2,
        &["the credentials for s3://bucket/p contain a secret but no name", "SNAP_REMOTE_USER"],
    );
    assert_eq!(server.keys(), [""; 0]);
    env.set("SNAP_REMOTE_SECRET", SECRET);
    env.set("SNAP_REMOTE_USER", "ada");
    env.snap_in("work", ["push"]).succeeds();
}

#[test]
fn a_bucket_without_keys_has_the_hints_of_wrong_keys() {
    let server = server();
    let mut env = env_with(&server);
    env.set("AWS_EC2_METADATA_DISABLED", "true");
    let ran = env.snap_in("work", ["ls", "origin#main"]);
    insta::assert_snapshot!(ran, @"
    exit: 1
    --- stderr ---
    error: cannot read config.toml at s3://bucket/p: authentication failed: no credentials were found
    hint: set SNAP_REMOTE_USER and SNAP_REMOTE_SECRET, or `remote.NAME.credentials_file`
    hint: for s3, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY also work
    hint: `snap remote check` tests the credentials
    ");
}

#[test]
fn without_a_temporary_folder_a_remote_names_tmpdir() {
    let server = server();
    let mut env = env_with(&server);
    for (name, value) in server.environment(&server.endpoint()) {
        env.set(name, &value);
    }
    env.snap_in("work", ["push"]).succeeds();
    env.write("file", "");
    let file = env.path("file").display().to_string();
    env.set("TMPDIR", &file);
    env.set("XDG_CACHE_HOME", "");
    let ran = env.snap(["ls", "s3://bucket/p#main"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    let hint = "hint: set TMPDIR to a folder with free space that you may write to\n";
    assert!(ran.stderr.ends_with(hint), "{ran}");
}
