//! `snap push`, `pull`, `clone` and `fetch`: two stores with a remote between them.

use std::{
    io::Write,
    process::{Output, Stdio},
    thread,
    time::Instant,
};

use serde_json::Value;
use snap_nettest::{Kind, Proxy, S3Options, S3Server};

use crate::{
    env::{Ran, TestEnv, noise},
    remote::{env, env_of, folder, says},
};

fn add_origin(env: &TestEnv, dir: &str, url: &str) {
    env.snap_in(dir, ["remote", "add", "origin", url]).succeeds();
}

fn commit(env: &TestEnv, dir: &str, text: &str) {
    env.write(&format!("{dir}/notes.txt"), text);
    env.snap_in(dir, ["commit", "-qm", text.trim()]).succeeds();
}

/// Returns the only JSON record of a run.
fn record(ran: &Ran) -> Value {
    let records = ran.json();
    assert_eq!(records.len(), 1, "{}", ran.stdout);
    records.into_iter().next().unwrap()
}

#[test]
fn what_is_pushed_is_cloned_changed_pulled_and_restored() {
    let env = env();
    let url = folder(&env, "there");
    add_origin(&env, "work", &url);
    let ran = env.snap_in("work", ["push"]).succeeds();
    assert!(ran.stderr.starts_with("main -> main  new branch at "), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nSent 5 objects, "), "{}", ran.stderr);
    insta::assert_snapshot!(env.snap_in("work", ["push"]), @r"
    exit: 0
    --- stderr ---
    main -> main  is at [SHORT ID]
    Nothing to push: origin is up to date
    ");

    let ran = env.snap(["clone", &url, "other"]).succeeds();
    assert!(ran.stderr.contains("Restored 2 files, "), "{}", ran.stderr);
    assert!(ran.stderr.contains("On branch main at "), "{}", ran.stderr);
    assert_eq!(env.read("other/notes.txt"), "first\n");
    assert_eq!(env.snap_in("other", ["status", "-s"]).succeeds().stdout, "");
    env.snap_in("other", ["verify", "--data"]).succeeds();

    commit(&env, "other", "second\n");
    let ran = env.snap_in("other", ["push"]).succeeds();
    let line = ran.stderr.lines().next().unwrap();
    assert!(line.starts_with("main -> main  ") && line.contains(".."), "{line}");

    let ran = env.snap_in("work", ["pull"]).succeeds();
    says(&ran, 0, &["main -> main  ", "Received 3 objects", "Files are unchanged"]);
    assert_eq!(env.read("work/notes.txt"), "first\n");
    env.snap_in("work", ["restore", "main", "--overwrite", "-q"]).succeeds();
    assert_eq!(env.read("work/notes.txt"), "second\n");
    insta::assert_snapshot!(env.snap_in("work", ["pull"]), @r"
    exit: 0
    --- stderr ---
    main -> main  is at [SHORT ID], up to date
    ");
    // A remote-tracking branch is a revision.
    let log = |rev: &str| env.snap_in("work", ["log", "--oneline", rev]).succeeds().stdout;
    assert_eq!(log("origin/main"), log("main"));
    insta::assert_snapshot!(env.snap_in("work", ["remote", "show"]), @r"
    exit: 0
    --- stdout ---
    Remote:   origin
    Location: file://[ROOT]/there
    Keys:     from the environment, if any are needed
    Settings: [ROOT]/work/.snap/config.toml:31
    Branch:   main at [SHORT ID], as here
    ");
    // A change of a remote-tracking branch cannot be undone.
    let ran = env.snap_in("work", ["undo"]).succeeds();
    assert!(ran.stderr.contains("main"), "{}", ran.stderr);
    env.snap_in("work", ["remote", "remove", "origin"]).succeeds();
    let ran = env.snap_in("work", ["log", "origin/main"]);
    says(&ran, 1, &["`origin/main` is not a commit, branch or tag"]);
}

#[test]
fn branches_and_tags_go_together_and_can_be_removed() {
    let env = env();
    let url = folder(&env, "there");
    add_origin(&env, "work", &url);
    env.snap_in("work", ["branch", "-q", "side"]).succeeds();
    env.snap_in("work", ["tag", "-q", "v1"]).succeeds();
    let ran = env.snap_in("work", ["--json", "push", "--all", "--tags"]).succeeds();
    let names: Vec<_> =
        record(&ran)["refs"].as_array().unwrap().iter().map(|at| at["name"].clone()).collect();
    assert_eq!(names, ["main", "side", "v1"]);
    env.snap(["clone", &url, "other", "--ref", "v1", "-q"]).succeeds();
    assert_eq!(env.snap_in("other", ["tag"]).succeeds().stdout.lines().count(), 1);
    env.snap_in("other", ["log", "origin/side"]).succeeds();

    insta::assert_snapshot!(env.snap_in("work", ["push", "--delete", "side", "--delete", "v1"]), @r"
    exit: 0
    --- stderr ---
    side  deleted; it was at [SHORT ID]
    v1  deleted; it was at [SHORT ID]
    ");
    let ran = env.snap_in("work", ["push", "--delete", "side"]);
    says(&ran, 1, &["branch `side` does not exist at file://"]);
    let ran = env.snap_in("work", ["pull", "origin", "side"]);
    says(&ran, 1, &["branch `side` does not exist at file://"]);
    let ran = env.snap_in("work", ["push", "origin", "nope"]);
    says(&ran, 1, &["branch `nope` does not exist"]);
    let ran = env.snap_in("work", ["push", "main"]);
    says(&ran, 1, &["remote `main` does not exist", "hint: known remotes: `origin`"]);
}

#[test]
fn two_who_push_to_one_branch_lose_nothing() {
    let env = env();
    let url = folder(&env, "there");
    add_origin(&env, "work", &url);
    env.snap_in("work", ["push", "-q"]).succeeds();
    env.snap(["clone", "-q", &url, "other"]).succeeds();
    commit(&env, "work", "mine\n");
    commit(&env, "other", "yours\n");
    let both = ["work", "other"].map(|dir| {
        let mut command = env.command(dir);
        command.args(["push"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        (dir, command.spawn().unwrap())
    });
    let ended = both.map(|(dir, child)| (dir, child.wait_with_output().unwrap()));
    let lost: Vec<_> = ended.iter().filter(|(_, output)| !output.status.success()).collect();
    assert_eq!(lost.len(), 1, "{ended:?}");
    let (dir, output) = lost[0];
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("the remote has commits that you do not have")
            || said.contains("another client moved"),
        "{said}"
    );
    // The user gets a hint, and following it works.
    let ran = env.snap_in(dir, ["push"]);
    says(&ran, 1, &["hint: `snap pull` downloads them first"]);
    let ran = env.snap_in(dir, ["pull"]);
    says(&ran, 1, &["have diverged", "hint: `snap diff main origin/main`"]);
    env.snap_in(dir, ["diff", "main", "origin/main"]).succeeds();
    let ran = env.snap_in(dir, ["push", "--force"]).succeeds();
    says(&ran, 0, &["main -> main  ", ", forced"]);
    let other = if *dir == "work" { "other" } else { "work" };
    let ran = env.snap_in(other, ["pull", "--force"]).succeeds();
    says(&ran, 0, &[", forced"]);
    assert_eq!(env.snap_in("work", ["log"]).stdout, env.snap_in("other", ["log"]).stdout);
}

/// Pushes from all folders at the same time; returns their outputs in order.
fn push_at_once<'a>(env: &TestEnv, dirs: &'a [String], own: bool) -> Vec<(&'a String, Output)> {
    let start = |dir: &'a String| {
        let mut command = env.command(dir);
        command.args(["push", "-q", "origin"]);
        command.arg(if own { format!("own/{dir}") } else { "main".to_owned() });
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        (dir, command.spawn().unwrap())
    };
    let running: Vec<_> = dirs.iter().map(start).collect();
    let ended = running.into_iter().map(|(dir, child)| (dir, child.wait_with_output().unwrap()));
    ended.collect()
}

#[test]
fn of_two_and_of_eight_who_push_to_a_bucket_at_once_nobody_loses_anything() {
    for count in [2, 8] {
        let server = S3Server::start(S3Options::default());
        let env = env_of(&server, &server.endpoint());
        add_origin(&env, "work", "s3://bucket/p");
        env.snap_in("work", ["push", "-q"]).succeeds();
        let dirs: Vec<String> = (0..count).map(|number| format!("who{number}")).collect();
        for dir in &dirs {
            env.snap(["clone", "-q", "s3://bucket/p", dir]).succeeds();
            commit(&env, dir, &format!("{dir}\n"));
            env.snap_in(dir, ["branch", "-q", &format!("own/{dir}")]).succeeds();
        }
        // To one branch: one push wins, and the others fail with a message.
        let (won, lost): (Vec<_>, Vec<_>) = push_at_once(&env, &dirs, false)
            .into_iter()
            .partition(|(_, output)| output.status.success());
        assert_eq!(won.len(), 1, "{won:?}");
        for (dir, output) in &lost {
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{dir}: {said}");
            assert!(said.contains("the remote has commits that you do not have"), "{dir}: {said}");
            assert!(said.contains("hint: `snap pull` downloads them first"), "{dir}: {said}");
        }
        // Each push goes to its own branch, so all of them win.
        for (dir, output) in push_at_once(&env, &dirs, true) {
            assert!(output.status.success(), "{dir}: {output:?}");
        }
        env.snap(["clone", "-q", "s3://bucket/p", "fresh"]).succeeds();
        env.snap_in("fresh", ["verify", "--data"]).succeeds();
        let log = |dir: &str, rev: &str| {
            let listed = env.snap_in(dir, ["--json", "log", rev]).succeeds().json();
            listed.into_iter().map(|commit| commit["id"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(log("fresh", "main"), log(won[0].0, "main"));
        for dir in &dirs {
            assert_eq!(log("fresh", &format!("origin/own/{dir}")), log(dir, "main"));
        }
    }
}

#[test]
fn requests_are_told_as_they_were_made() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let env = env_of(&server, &proxy.endpoint());
    add_origin(&env, "work", "s3://bucket/project");
    let check = |ran: &Ran, most: u64| {
        let counts = proxy.take_counts();
        let stats = &record(ran)["stats"];
        assert_eq!(stats["requests"], counts.total, "{stats} {counts:?}");
        assert_eq!(stats["requests_by_kind"]["put"], counts.of(Kind::Put), "{stats}");
        assert_eq!(stats["requests_by_kind"]["get"], counts.of(Kind::Get), "{stats}");
        assert_eq!(stats["bytes_sent"], counts.sent_bytes, "{stats}");
        assert!(counts.total <= most, "{counts:?}");
    };
    let snap = |dir: &str, args: &[&str]| env.snap_in(dir, [&["--json"], args].concat()).succeeds();
    let planned = record(&snap("work", &["push", "--dry-run"]));
    assert_eq!(server.keys(), [""; 0], "a dry run writes nothing");
    proxy.take_counts();
    let ran = snap("work", &["push"]);
    assert_eq!(planned["objects"], record(&ran)["objects"]);
    assert_eq!(planned["bytes_to_send"], record(&ran)["bytes_sent"]);
    check(&ran, 11);
    check(&snap("work", &["push"]), 2);
    // The first push has tested the conditional writes of the bucket.
    check(&snap("work", &["push", "s3://bucket/second"]), 9);
    check(&snap("", &["clone", "s3://bucket/project", "other"]), 10);
    commit(&env, "work", "second\n");
    check(&snap("work", &["push"]), 6);
    check(&snap("other", &["pull"]), 6);
    // The text output is a table, also for commands that send no requests.
    let ran = env.snap_in("other", ["pull", "--stats"]).succeeds();
    let total = proxy.take_counts().total;
    assert!(ran.stderr.contains(&format!("\nrequests  {total} (")), "{}", ran.stderr);
    let cost = ran.stderr.lines().last().unwrap();
    assert!(cost.starts_with("cost      0.0") && cost.ends_with(" USD"), "{}", ran.stderr);
    let ran = env.snap_in("other", ["branch", "--stats"]).succeeds();
    assert!(ran.stderr.starts_with("requests  0\nsent      0 B\n"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("cost"), "{}", ran.stderr);
    let ran = env.snap(["--json", "--stats", "ls", "s3://bucket/project#main"]).succeeds();
    let last = ran.json().pop().unwrap();
    assert_eq!(
        (&last["type"], &last["stats"]["requests"]),
        (&"stats".into(), &proxy.take_counts().total.into())
    );
}

#[test]
fn a_limit_is_kept_to() {
    let server = S3Server::start(S3Options::default());
    let env = env_of(&server, &server.endpoint());
    let bytes = noise(7, 150_000);
    env.write("work/noise", &bytes);
    env.snap_in("work", ["commit", "-qm", "noise"]).succeeds();
    add_origin(&env, "work", "s3://bucket/project");
    let start = Instant::now();
    // Requests after a pack wait until the rate limit allows them.
    env.snap_in("work", ["push", "-q", "--limit-upload", "100K"]).succeeds();
    assert!(start.elapsed().as_millis() >= 1000, "{:?}", start.elapsed());
    for bad in ["0", "fast", "-1"] {
        assert_eq!(env.snap_in("work", ["push", "--limit-upload", bad]).code, Some(2));
    }
    let ran = env.snap_in("work", ["config", "set", "transfer.limit_upload", "quick"]);
    says(&ran, 2, &["transfer.limit_upload", "such as 500K, 2M or 1.5MiB"]);
}

#[test]
fn a_clone_goes_only_where_there_is_nothing() {
    let env = env();
    let url = folder(&env, "there");
    let ran = env.snap(["clone", &url, "other"]);
    says(
        &ran,
        1,
        &["no store found at file://", "hint: check the path; `snap push` creates a store"],
    );
    assert!(!env.path("other").exists());
    add_origin(&env, "work", &url);
    env.snap_in("work", ["push", "-q"]).succeeds();
    let ran = env.snap(["clone", &url, "work"]);
    says(&ran, 1, &["work is not an empty folder"]);
    let ran = env.snap(["clone", &url, "other", "--ref", "nope"]);
    says(&ran, 1, &["branch `nope` does not exist"]);
    assert!(!env.path("other").exists());
    fs_err::create_dir(env.path("empty")).unwrap();
    env.snap(["clone", "-q", &url, "empty", "--no-restore"]).succeeds();
    assert_eq!(fs_err::read_dir(env.path("empty")).unwrap().count(), 1);
    // The default name of the folder comes from the location.
    fs_err::create_dir(env.path("below")).unwrap();
    env.snap_in("below", ["clone", "-q", &url]).succeeds();
    assert_eq!(env.read("below/there/notes.txt"), "first\n");
}

#[test]
fn a_part_is_cloned_and_the_rest_comes_when_it_is_needed() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let env = env_of(&server, &proxy.endpoint());
    let bytes = noise(3, 2_000_000);
    env.write("work/large", &bytes);
    env.snap_in("work", ["commit", "-qm", "large"]).succeeds();
    add_origin(&env, "work", "s3://bucket/p");
    env.snap_in("work", ["push", "-q"]).succeeds();
    proxy.take_counts();
    env.snap(["clone", "-q", "s3://bucket/p", "part", "--path", "sub"]).succeeds();
    assert_eq!(env.read("part/sub/more.txt"), "more\n");
    assert!(!env.path("part/large").exists());
    assert!(proxy.take_counts().received_bytes < 1_000_000);
    assert_eq!(env.snap_in("part", ["cat", "latest:sub/more.txt"]).succeeds().stdout, "more\n");
    assert_eq!(proxy.take_counts().total, 0);
    // Missing objects are fetched on demand,
    env.snap_in("part", ["restore", "latest:large", "here", "-q"]).succeeds();
    assert_eq!(fs_err::read(env.path("part/here/large")).unwrap(), bytes);
    assert!(proxy.take_counts().total > 0);
    // or all with one fetch.
    env.snap([
        "clone",
        "-q",
        "s3://bucket/p",
        "again",
        "--depth",
        "1",
        "--path",
        "sub",
        "--no-restore",
    ])
    .succeeds();
    env.snap_in("again", ["fetch", "latest:large"]).succeeds();
    let ran = env.snap_in("again", ["fetch"]).succeeds();
    assert!(!ran.stderr.contains("elsewhere"), "{}", ran.stderr);
    let ran = env.snap_in("again", ["fetch"]).succeeds();
    says(&ran, 0, &["Nothing to fetch: no object of the local commits is missing"]);
    proxy.take_counts();
    env.snap_in("again", ["verify", "--data"]).succeeds();
    env.snap_in("again", ["restore", "latest:large", "here", "-q"]).succeeds();
    assert_eq!(proxy.take_counts().total, 0);
}

#[test]
fn a_pull_brings_an_empty_file_whose_commit_shares_objects_with_other_packs() {
    let mut env = TestEnv::new();
    let url = folder(&env, "there");
    env.write("work/empty", "");
    env.snap_in("work", ["commit", "-qm", "empty"]).succeeds();
    env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
    // Small packs are merged here. The push sends them again, including the objects of the first
    // one.
    for number in 0..14 {
        env.write(&format!("work/file{number}"), noise(number, 3000));
        env.snap_in("work", ["commit", "-qm", "more"]).succeeds();
    }
    env.set("XDG_CACHE_HOME", env.path("another cache").to_str().unwrap());
    env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
    for (dir, args) in [("pulled", &["init", "-q"][..]), ("cloned", &[])] {
        env.set("XDG_CACHE_HOME", env.path(format!("cache of {dir}")).to_str().unwrap());
        match args {
            [] => drop(env.snap(["clone", "-q", &url, dir]).succeeds()),
            args => {
                fs_err::create_dir(env.path(dir)).unwrap();
                env.snap_in(dir, args).succeeds();
                env.snap_in(dir, ["pull", "-q", &url, "main"]).succeeds();
            }
        }
        let verified = env.snap_in(dir, ["verify", "--data"]).succeeds();
        assert!(verified.stderr.contains("No errors found"), "{}", verified.stderr);
    }
}

/// Starts a clone that waits for its first reply. Returns the clone, and a function that answers
/// the request with 404, so that the clone fails.
fn waiting_clone(env: &TestEnv) -> (std::process::Child, impl FnOnce()) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/p", listener.local_addr().unwrap());
    let clone = env.command("").args(["clone", &url, "work"]).stderr(Stdio::piped()).spawn();
    let first = listener.accept().unwrap().0;
    let answer = move || {
        let refuse = |mut stream: std::net::TcpStream| {
            let reply = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(reply.as_bytes());
        };
        refuse(first);
        thread::spawn(move || listener.incoming().flatten().for_each(refuse));
    };
    (clone.unwrap(), answer)
}

#[test]
fn a_clone_that_fails_keeps_a_commit_that_was_made_in_its_store() {
    let env = TestEnv::new();
    let (clone, answer) = waiting_clone(&env);
    env.write("work/notes", "a day of work");
    let id = env.snap_in("work", ["commit"]).succeeds().stdout;
    fs_err::remove_file(env.path("work/notes")).unwrap();
    answer();
    let failed = clone.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&failed.stderr);
    assert_ne!(failed.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("is kept: branches, tags or HEAD have changed in it"), "{stderr}");
    let content = env.snap_in("work", ["cat", &format!("{}:notes", id.trim())]).succeeds();
    assert_eq!(content.stdout, "a day of work");
}

#[test]
fn a_clone_that_fails_keeps_a_store_that_took_the_place_of_its_own() {
    let env = TestEnv::new();
    env.write("other/notes", "mine");
    env.snap_in("other", ["commit"]).succeeds();
    let (clone, answer) = waiting_clone(&env);
    fs_err::rename(env.path("work/.snap"), env.path("old")).unwrap();
    fs_err::rename(env.path("other/.snap"), env.path("work/.snap")).unwrap();
    answer();
    assert_ne!(clone.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(env.snap_in("work", ["cat", "HEAD:notes"]).succeeds().stdout, "mine");
}

#[test]
fn a_clone_that_fails_leaves_nothing_else() {
    let env = TestEnv::new();
    let (clone, answer) = waiting_clone(&env);
    assert!(env.path("work/.snap").exists());
    answer();
    assert_ne!(clone.wait_with_output().unwrap().status.code(), Some(0));
    assert!(!env.path("work").exists());
}

#[test]
fn a_cache_that_cannot_be_made_stops_no_command() {
    let mut env = env();
    let url = folder(&env, "there");
    env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
    // A file in place of a folder stops root, too.
    env.write("caches/snap/remotes", "");
    let caches = env.path("caches");
    env.set("XDG_CACHE_HOME", caches.to_str().unwrap());
    let warning = "warning: no cache of the remote is kept: cannot ";
    for args in [&["ls", &format!("{url}#main")][..], &["verify", &url]] {
        says(&env.snap(args), 0, &[warning]);
    }
    env.snap_in("work", ["commit", "-q", "-b", "new"]).succeeds();
    says(&env.snap_in("work", ["push", &url, "new"]), 0, &[warning]);
}

#[test]
fn a_current_folder_that_was_removed_stops_no_clone_of_a_url() {
    let env = env();
    let url = folder(&env, "there");
    env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
    let target = env.path("cloned");
    for args in [&["clone", "-q", &url, target.to_str().unwrap()][..], &["config", "list"]] {
        fs_err::create_dir(env.path("gone")).unwrap();
        let mut command = env.command_of("gone", "sh");
        command.args(["-c", "/bin/rmdir ../gone && exec \"$@\"", "sh"]);
        command.arg(env!("CARGO_BIN_EXE_snap")).args(args);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(env.read("cloned/notes.txt"), "first\n");
}
