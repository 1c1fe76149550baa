//! Reads remotes in place, without a local copy: `URL#REV:PATH`.

use serde_json::json;
use snap_nettest::{Proxy, S3Options, S3Server};

use crate::{
    env::TestEnv,
    remote::{env, env_of, folder, says},
};

/// Makes a second commit and a tag in `work`, and pushes both to `url`.
fn pushed(env: &TestEnv, url: &str) {
    env.snap_in("work", ["tag", "-q", "v1"]).succeeds();
    env.write("work/notes.txt", "second\n");
    env.snap_in("work", ["commit", "-qm", "two"]).succeeds();
    env.snap_in("work", ["push", "-q", url, "main", "v1"]).succeeds();
}

#[test]
fn a_remote_is_read_as_a_store_is() {
    let env = env();
    let url = folder(&env, "there");
    pushed(&env, &url);
    let snap = |args: &[&str]| env.snap(args).succeeds().stdout;
    assert_eq!(snap(&["ls", &url]), "notes.txt\nsub/\n");
    assert_eq!(snap(&["ls", "-R", &format!("{url}#v1:sub")]), "more.txt\n");
    assert_eq!(snap(&["cat", &format!("{url}#main:notes.txt")]), "second\n");
    assert_eq!(snap(&["cat", &format!("{url}#main~1:notes.txt")]), "first\n");
    assert_eq!(snap(&["cat", &format!("{url}#:notes.txt")]), "second\n");
    assert_eq!(snap(&["log", "--oneline", &url]).lines().count(), 2);
    let all = snap(&["log", "--oneline", "--all", &format!("{url}#main")]);
    assert!(all.contains("(HEAD -> main)") && all.contains("(tag: v1)"), "{all}");
    assert!(snap(&["show", &format!("{url}#v1")]).contains("one"));
    let diff = snap(&["diff", &format!("{url}#v1"), &format!("{url}#main")]);
    assert!(diff.contains("-first\n+second\n"), "{diff}");
    env.write("work/notes.txt", "third\n");
    let diff = env.snap_in("work/sub", ["diff", &format!("{url}#main")]).succeeds().stdout;
    assert!(diff.contains("-second\n+third\n") && !diff.contains("more"), "{diff}");
    snap(&["export", &format!("{url}#main"), "-o", "out.tar"]);
    snap(&["restore", &format!("{url}#main:sub"), "got"]);
    assert_eq!(env.read("got/more.txt"), "more\n");

    let ran = env.snap(["restore", &format!("{url}#main")]);
    says(&ran, 2, &["a bundle or a remote has no project folder; pass the folder to restore into"]);
    let ran = env.snap(["ls", &format!("{url}#mian")]);
    says(&ran, 1, &["`mian` is not a commit, branch or tag", "did you mean `main`?"]);
    let ran = env.snap(["cat", &format!("{url}#main:none")]);
    says(&ran, 1, &["`none` does not exist in `file://"]);
    let ran = env.snap(["ls", &format!("{url}/elsewhere#main")]);
    says(&ran, 1, &["no store found at file://", "check the path"]);
    // Nothing was created at the source or in the current folder.
    assert!(!env.path("there/elsewhere").exists() && !env.path(".snap").exists());
}

#[test]
fn the_path_of_a_folder_stands_for_a_location() {
    let mut env = env();
    pushed(&env, &folder(&env, "there"));
    env.snap(["--store", "bare", "init", "-q"]).succeeds();
    env.snap_in("work", ["push", "-q", "../bare", "main", "v1"]).succeeds();
    let home = env.path("").display().to_string();
    env.set("HOME", home.trim_end_matches('/'));
    let absolute = env.path("there").display().to_string();
    let places =
        [&absolute, "./there", "../away/there", "~/there", "./work", "./bare", "./work/.snap"];
    fs_err::create_dir(env.path("away")).unwrap();
    std::os::unix::fs::symlink(env.path("there"), env.path("away/there")).unwrap();
    for (number, place) in places.into_iter().enumerate() {
        let (at, place) = match place.strip_prefix("../") {
            Some(_) => ("work", place),
            None => ("", place),
        };
        let snap = |args: &[&str]| env.snap_in(at, args).succeeds().stdout;
        assert_eq!(snap(&["ls", &format!("{place}#main")]), "notes.txt\nsub/\n", "{place}");
        assert_eq!(snap(&["cat", &format!("{place}#v1:notes.txt")]), "first\n", "{place}");
        assert_eq!(snap(&["log", "--oneline", &format!("{place}#")]).lines().count(), 2);
        let revs = [format!("{place}#v1"), format!("{place}#main")];
        let diff = snap(&["diff", &revs[0], &revs[1]]);
        assert!(diff.contains("-first\n+second\n"), "{place}: {diff}");
        let target = env.path(format!("got{number}")).display().to_string();
        snap(&["restore", "-q", &format!("{place}#main:sub"), &target]);
        assert_eq!(env.read(&format!("got{number}/more.txt")), "more\n");
    }
    // A bundle, a folder without a store and a path without a revision keep their meaning.
    env.snap_in("work", ["pack", "-q", "-o", "../a#main.snap"]).succeeds();
    assert_eq!(env.snap(["cat", "./a#main.snap:notes.txt"]).succeeds().stdout, "second\n");
    for other in ["../away#main", "../there"] {
        let told = format!("`{other}` is not a commit, branch or tag");
        says(&env.snap_in("work", ["ls", other]), 1, &[&told]);
    }
}

#[test]
fn a_name_stands_for_a_location() {
    let env = env();
    let url = folder(&env, "there");
    pushed(&env, &url);
    env.snap_in("work", ["remote", "add", "far", &url]).succeeds();
    let ran = env.snap_in("work", ["cat", "far#v1:notes.txt"]).succeeds();
    assert_eq!(ran.stdout, "first\n");
    let ran = env.snap_in("work", ["ls", "near#v1"]);
    says(&ran, 1, &["`near#v1` is not a commit, branch or tag"]);
    let ran = env.snap_in("work", ["diff", "far#v1", "main"]);
    says(&ran, 2, &["a snapshot of a remote can be compared only with"]);
    // The name of a branch may contain the separator.
    env.snap_in("work", ["branch", "fix#1"]).succeeds();
    env.snap_in("work", ["ls", "fix#1"]).succeeds();
}

#[test]
fn few_requests_are_made_and_fewer_when_the_index_is_known() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let env = env_of(&server, &proxy.endpoint());
    pushed(&env, "s3://bucket/project");
    fs_err::remove_dir_all(env.path("cache")).unwrap();
    proxy.take_counts();
    for most in [6, 2] {
        let ran = env.snap(["cat", "s3://bucket/project#main:notes.txt"]).succeeds();
        assert_eq!(ran.stdout, "second\n");
        let counts = proxy.take_counts();
        assert!(counts.total <= most, "{counts:?}");
    }
}

#[test]
fn the_refs_of_a_remote_are_listed_without_a_change_here() {
    let env = env();
    let url = folder(&env, "there");
    pushed(&env, &url);
    let id = |rev: &str| {
        let shown = env.snap_in("work", ["--json", "show", rev]).succeeds().json();
        shown[0]["id"].as_str().unwrap().to_owned()
    };
    let (main, v1) = (id("main"), id("v1"));
    let listed = format!("{main}\tHEAD\n{main}\trefs/heads/main\n{v1}\trefs/tags/v1\n");
    assert_eq!(env.snap(["ls-remote", &url]).succeeds().stdout, listed);
    assert!(!env.path(".snap").exists());

    env.snap_in("work", ["remote", "add", "far", &url]).succeeds();
    assert_eq!(env.snap_in("work", ["ls-remote"]).succeeds().stdout, listed);
    let known = env.snap_in("work", ["--json", "remote", "show", "far"]).succeeds().json();
    assert_eq!(known[0]["branches"].as_array().unwrap().len(), 0);
    let refs = env.snap_in("work", ["--json", "ls-remote", "far"]).succeeds().json();
    let fields = |at: usize| [&refs[at]["name"], &refs[at]["kind"], &refs[at]["current"]];
    assert_eq!(fields(0), [&json!("main"), &json!("branch"), &json!(true)]);
    assert_eq!(fields(1), [&json!("v1"), &json!("tag"), &json!(false)]);

    let ran = env.snap(["ls-remote", &format!("{url}/elsewhere")]);
    says(&ran, 1, &["no store found at file://"]);
    env.write("there/refs/tags/v1", "what?");
    let ran = env.snap(["ls-remote", &url]);
    says(&ran, 4, &["v1"]);
    assert!(ran.stdout.contains("refs/heads/main") && !ran.stdout.contains("v1"), "{ran}");
}
