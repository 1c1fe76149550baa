//! `snap gc`.

use std::{collections::BTreeSet, path::Path};

use snap_testkit::leftovers::files_with;

use crate::{
    base_sequences::copy,
    env::{TestEnv, noise},
};

/// A project with a commit on `main` and another one that only a deleted branch had.
fn with_deleted_branch() -> TestEnv {
    let mut env = TestEnv::new();
    env.write("kept", "kept");
    env.snap(["commit", "-m", "kept"]).succeeds();
    env.write("secret", "secret");
    env.snap(["commit", "-b", "topic", "-m", "secret"]).succeeds();
    fs_err::remove_file(env.path("secret")).unwrap();
    env.write("kept", "kept, too");
    env.snap(["commit", "-m", "later"]).succeeds();
    env.snap(["branch", "-d", "topic"]).succeeds();
    env.snap(["config", "set", "gc.undo", "0s"]).succeeds();
    // The lines of the logs are older than this.
    env.set("SNAP_TIME", "2027-06-01T00:00:00Z");
    env
}

/// Runs `snap gc` and replaces the sizes in its messages: times of files change them.
fn collected(env: &TestEnv, args: &[&str]) -> String {
    let ran = env.snap([&["gc"], args].concat()).succeeds();
    let is_unit = |word: &str| ["B", "KiB"].contains(&word.trim_end_matches(':'));
    let without_sizes = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        for at in 1..words.len() {
            if is_unit(words[at]) {
                words[at - 1] = "[N]";
            }
        }
        format!("{}\n", words.join(" "))
    };
    ran.stderr.lines().map(without_sizes).collect()
}

#[test]
fn a_deleted_branch_is_deleted_from_the_disk() {
    let env = with_deleted_branch();
    insta::assert_snapshot!(collected(&env, &["--now", "-n"]), @"
    Would free about [N] B: 1 pack to delete
    Dry run: nothing was changed
    ");
    insta::assert_snapshot!(collected(&env, &["--now"]), @"Freed [N] B: 1 pack deleted");
    insta::assert_snapshot!(
        collected(&env, &["--now"]),
        @"Nothing to delete: 2 packs with [N] B are in use"
    );
    env.snap(["verify", "--data"]).succeeds();
}

#[test]
fn an_undo_keeps_what_the_setting_says() {
    let mut env = with_deleted_branch();
    env.set("SNAP_GC_UNDO", "5000d");
    insta::assert_snapshot!(
        collected(&env, &["--now"]),
        @"Nothing to delete: 3 packs with [N] KiB are in use"
    );
    env.set("SNAP_GC_UNDO", "soon");
    insta::assert_snapshot!(env.snap(["gc"]), @"
    exit: 2
    --- stderr ---
    error: SNAP_GC_UNDO: `gc.undo` is soon, but must be a time such as 36h, 7d or 2w; `m` could be minutes or months: write 2h for 120 minutes, or 60d for 2 months
    ");
}

#[test]
fn an_undo_of_what_a_collection_deleted_says_so() {
    let env = with_deleted_branch();
    collected(&env, &["--now"]);
    insta::assert_snapshot!(env.snap(["undo"]), @"
    exit: 1
    --- stderr ---
    error: cannot undo the last change of branch `topic`: `snap gc` has deleted commit [SHORT ID]
    hint: a copy elsewhere may still have it
    hint: `snap undo BRANCH` undoes the last change of one branch
    ");
    insta::assert_snapshot!(env.snap(["undo", "topic"]), @"
    exit: 1
    --- stderr ---
    error: cannot undo the last change of branch `topic`: `snap gc` has deleted commit [SHORT ID]
    hint: a copy elsewhere may still have it
    hint: `snap undo BRANCH` undoes the last change of one branch
    ");
    let ran = env.snap(["undo", "--json"]);
    assert!(ran.stderr.contains(r#""code":"forgotten""#), "{}", ran.stderr);
    env.snap(["verify"]).succeeds();
}

/// A killed collection has deleted a part of a commit. A command beside a collection meets the same.
#[test]
fn a_command_that_reads_a_deleted_commit_names_it() {
    let mut env = TestEnv::new();
    env.write("start", "start");
    env.snap(["commit", "-m", "start"]).succeeds();
    let before = packs(&env.path(".snap"));
    for (name, seed) in [("first", 1), ("second", 2)] {
        env.write(name, noise(seed, 50_000));
        env.snap(["commit", "-b", "topic", "-m", name]).succeeds();
        if name == "first" {
            copy(&env.path(".snap"), &env.path("first-only"));
        }
    }
    let of_first = &packs(&env.path("first-only")) - &before;
    let id = env.snap(["show", "--id", "topic"]).succeeds().stdout.trim().to_owned();
    env.snap(["branch", "-d", "topic"]).succeeds();
    env.snap(["config", "set", "gc.undo", "0s"]).succeeds();
    env.set("SNAP_TIME", "2027-06-01T00:00:00Z");
    // A collection that was killed before its first deletion.
    let all = packs(&env.path(".snap"));
    let mut places = (1..).map(|step| {
        let place = format!("copy{step}");
        copy(&env.path(".snap"), &env.path(&place));
        let mut collection = env.command(".");
        collection.args(["--store", &place, "gc", "--now"]);
        let killed = collection.env("SNAP_TEST_STOP_AT", step.to_string()).output().unwrap();
        assert!(!killed.status.success());
        place
    });
    let epoch = |store: &str| env.read(&format!("{store}/gc"));
    let place = places.find(|place| epoch(place) != epoch(".snap")).unwrap();
    assert_eq!(packs(&env.path(&place)), all);
    // Its first deletion.
    for pack in &of_first {
        fs_err::remove_file(env.path(&place).join("objects").join(pack)).unwrap();
    }
    insta::assert_snapshot!(env.snap(["--store", &place, "restore", &id, "out"]), @"
    exit: 1
    --- stderr ---
    error: commit [SHORT ID] was deleted by a garbage collection
    hint: `snap log --all` lists the commits that are left
    ");
    let revision = format!("{id}:first");
    for args in [&["cat", &revision][..], &["export", &id, "-o", "x.tar"]] {
        let ran = env.snap([&["--store", &place], args].concat());
        assert_eq!(ran.code, Some(1), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("was deleted by a garbage collection"), "{}", ran.stderr);
    }
    let commit = env.snap(["--store", &place, "cat", &format!("{id}:second")]);
    assert_eq!(commit.code, Some(0), "{}", commit.stderr);
    env.snap(["--store", &place, "gc", "--now"]).succeeds();
    env.snap(["--store", &place, "verify"]).succeeds();
}

/// Returns the names of the packs of a store.
fn packs(store: &Path) -> BTreeSet<String> {
    let files = fs_err::read_dir(store.join("objects")).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn damage_ends_a_collection_before_it_deletes() {
    let env = with_deleted_branch();
    for pack in fs_err::read_dir(env.path(".snap/objects")).unwrap() {
        let path = pack.unwrap().path();
        let bytes = fs_err::read(&path).unwrap();
        if bytes.windows(4).any(|part| part == b"kept") {
            fs_err::remove_file(path).unwrap();
        }
    }
    let ran = env.snap(["gc", "--now"]);
    assert_eq!(ran.code, Some(4), "{ran}");
    insta::assert_snapshot!(ran, @"
    exit: 4
    --- stderr ---
    error: commit [ID] is not in the store
    hint: `snap verify --data` lists the damage and the affected paths
    hint: `snap repair` recovers lost data
    ");
}

/// A project that has pushed two branches to a folder, and has deleted one of them there.
fn with_remote() -> TestEnv {
    let mut env = with_deleted_branch();
    env.write("secret", "secret");
    env.snap(["commit", "-b", "topic", "-m", "secret"]).succeeds();
    let url = format!("file://{}", env.path("bucket").display());
    env.snap(["remote", "add", "origin", &url]).succeeds();
    env.snap(["push", "origin", "main", "topic"]).succeeds();
    env.snap(["push", "--delete", "topic"]).succeeds();
    env.set("SNAP_GC_GRACE", "1d");
    env
}

#[test]
fn a_branch_that_was_deleted_at_a_remote_is_deleted_from_its_disk() {
    let env = with_remote();
    insta::assert_snapshot!(collected(&env, &["origin", "--now", "-n"]), @"
    Would free about [N] B at origin: 2 packs to delete
    Dry run: nothing was changed
    9 requests
    ");
    insta::assert_snapshot!(collected(&env, &["origin"]), @"
    Nothing to delete at origin: 4 packs with [N] KiB stay
    11 requests
    4 packs are too new to delete; `--now` deletes them if nothing reaches them
    ");
    insta::assert_snapshot!(collected(&env, &["origin", "--now"]), @"
    Freed [N] B at origin: 2 packs deleted
    25 requests
    ");
    insta::assert_snapshot!(collected(&env, &["origin", "--now"]), @"
    Nothing to delete at origin: 2 packs with [N] B stay
    7 requests
    ");
    env.snap(["verify", "origin", "--data"]).succeeds();
    let url = format!("file://{}", env.path("bucket").display());
    env.snap(["clone", &url, "cloned"]).succeeds();
    // The branch comes back.
    env.snap(["push", "origin", "topic"]).succeeds();
    env.snap(["verify", "origin", "--data"]).succeeds();
}

#[test]
fn a_pack_at_a_remote_is_written_again_without_its_garbage() {
    let env = with_remote();
    env.write("shared", "shared by two branches");
    env.snap(["commit", "-b", "second", "-m", "both"]).succeeds();
    env.snap(["push", "origin", "second"]).succeeds();
    fs_err::remove_file(env.path("secret")).unwrap();
    env.snap(["commit", "-m", "shared"]).succeeds();
    env.snap(["push", "origin", "main"]).succeeds();
    env.snap(["push", "--delete", "second"]).succeeds();
    let collected = |args: &[&str]| {
        let told = collected(&env, &[&["origin", "--now"], args].concat());
        let lines = told.lines().filter(|line| !line.contains(" requests, "));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    insta::assert_snapshot!(collected(&["-n"]), @"
    Would free about [N] KiB at origin: 2 packs to delete; garbage in 1 other pack
    Dry run: nothing was changed
    12 requests
    ");
    insta::assert_snapshot!(collected(&["--max-repack", "1B"]), @"
    Freed [N] B at origin: 2 packs deleted
    [N] KiB of garbage stay in packs that are mostly in use
    28 requests
    ");
    insta::assert_snapshot!(collected(&[]), @"
    Freed [N] KiB at origin: 0 packs deleted; garbage in 1 other pack
    29 requests
    ");
    env.snap(["verify", "origin", "--data"]).succeeds();
    let url = format!("file://{}", env.path("bucket").display());
    env.snap(["clone", &url, "cloned"]).succeeds();
    assert_eq!(env.read("cloned/shared"), "shared by two branches");
}

#[test]
fn forgotten_commits_are_deleted_at_a_remote() {
    let mut env = TestEnv::new();
    env.set("SNAP_TIME", "2026-12-01T00:00:00Z");
    let secret = "only in the first version ".repeat(40);
    for (name, content) in [("first", &*secret), ("second", "2"), ("third", "3")] {
        env.write("file", content);
        env.snap(["commit", "-m", name]).succeeds();
    }
    let bucket = env.path("bucket");
    let url = format!("file://{}", bucket.display());
    env.snap(["remote", "add", "origin", &url]).succeeds();
    env.snap(["push"]).succeeds();
    env.snap(["forget", "HEAD~2"]).succeeds();
    insta::assert_snapshot!(collected(&env, &["origin", "--now"]), @"
    Nothing to delete at origin: 3 packs with [N] KiB stay
    9 requests
    ");
    // `snap undo` can still bring the commit back.
    insta::assert_snapshot!(collected(&env, &["origin", "--forgotten"]), @"
    Nothing to delete at origin: 3 packs with [N] KiB stay
    9 requests
    3 packs are too new to delete; `--now` deletes them if nothing reaches them
    ");
    insta::assert_snapshot!(collected(&env, &["origin", "--forgotten", "--now", "-n"]), @"
    Would free about [N] B at origin: 1 pack to delete
    Dry run: nothing was changed
    Would forget 1 commit there
    6 requests
    ");
    assert!(!files_with(&bucket, secret.as_bytes()).is_empty());
    insta::assert_snapshot!(collected(&env, &["origin", "--forgotten", "--now"]), @"
    Freed [N] B at origin: 1 pack deleted
    Forgot 1 commit there
    24 requests
    ");
    assert!(files_with(&bucket, secret.as_bytes()).is_empty());
    env.snap(["verify", "origin", "--data"]).succeeds();
    env.snap(["clone", &url, "cloned"]).succeeds();
    insta::assert_snapshot!(env.snap(["--store", "cloned/.snap", "log", "--oneline"]).succeeds(), @"
    exit: 0
    --- stdout ---
    [ID] 2026-12-01 00:00:00 +00:00 (HEAD -> main) third
    [ID] 2026-12-01 00:00:00 +00:00 second
    [ID] 2026-12-01 00:00:00 +00:00 (forgotten at origin) first
    ");
    // A branch cannot point at a commit without files.
    let branch = ["--store", "cloned/.snap", "branch", "old", "HEAD~2"];
    insta::assert_snapshot!(env.snap(branch), @"
    exit: 1
    --- stderr ---
    error: commit [SHORT ID] was deleted by a garbage collection
    hint: `snap log --all` lists the commits that are left
    ");
    insta::assert_snapshot!(env.snap(["gc", "--forgotten"]), @"
    exit: 2
    --- stderr ---
    error: the following required arguments were not provided:
      <REMOTE|URL>

    Usage: snap gc --forgotten <REMOTE|URL>

    For more information, try '--help'.
    ");
}

#[test]
fn only_remotes_without_a_server_are_collected() {
    let env = with_remote();
    env.snap(["--store", "other", "init"]).succeeds();
    let url = format!("file://{}", env.path("other").display());
    insta::assert_snapshot!(env.snap(["gc", &url]), @"
    exit: 2
    --- stderr ---
    error: file://[ROOT]/other is the store of a project: run `snap gc` there
    ");
    insta::assert_snapshot!(env.snap(["gc", "http://localhost:1/x"]), @"
    exit: 1
    --- stderr ---
    error: http://localhost:1/x is a snap server, whose garbage this version cannot collect
    hint: a later version will collect it
    ");
    assert_eq!(env.snap(["gc", "--exclusive"]).code, Some(2));
}

#[test]
fn forgotten_commits_wait_and_the_commands_say_until_when() {
    let mut env = TestEnv::new();
    for day in 1..=5 {
        env.set("SNAP_TIME", &format!("2026-11-2{day}T12:00:00Z"));
        env.write("file", format!("version {day}"));
        env.snap(["commit", "-m", "a version"]).succeeds();
    }
    env.set("SNAP_TIME", "2026-11-28T12:00:00Z");
    env.snap(["-q", "forget", "--keep-last", "4"]).succeeds();
    env.set("SNAP_TIME", "2026-11-29T12:00:00Z");
    let forgot = env.snap(["forget", "--keep-last", "3"]).succeeds();
    insta::assert_snapshot!(forgot.stderr, @"
    Forgot 1 of 4 commits
    `snap gc` frees the space after 2026-12-06 12:00:00 +00:00, `snap gc --now` at once
    Until then, `snap undo` takes this back
    ");
    let waits =
        |env: &TestEnv, args: &[&str]| collected(env, args).lines().last().unwrap().to_owned();
    insta::assert_snapshot!(waits(&env, &[]), @"
    2 forgotten commits wait until 2026-12-06 12:00:00 +00:00; `--now` deletes them at once
    ");
    let record = &env.snap(["gc", "--json"]).succeeds().json()[0];
    assert_eq!(record["waiting_commits"], 2);
    assert_eq!(record["waiting_until"], "2026-12-06T12:00:00Z");
    env.set("SNAP_TIME", "2026-12-05T12:00:00Z");
    insta::assert_snapshot!(waits(&env, &[]), @"
    1 forgotten commit waits until 2026-12-06 12:00:00 +00:00; `--now` deletes them at once
    ");
    assert!(!collected(&env, &["--now"]).contains("wait"));
}

/// A server holds its lock; the test does so in its place.
#[test]
fn a_served_store_is_collected_only_if_the_user_wants_it() {
    let env = with_deleted_branch();
    let lock = fs_err::File::create(env.path("serve.lock")).unwrap();
    lock.file().lock().unwrap();
    insta::assert_snapshot!(env.snap(["gc", "--now"]), @"
    exit: 1
    --- stderr ---
    error: `snap serve` serves [ROOT], and would serve this store read-only after `snap gc`
    hint: --yes collects it all the same
    hint: `snap gc -n` shows what would be deleted
    ");
    assert!(collected(&env, &["--now", "-n"]).contains("1 pack to delete"));
    assert!(collected(&env, &["--now", "--yes"]).contains("1 pack deleted"));
    drop(lock);
    env.snap(["gc", "--now"]).succeeds();
}

/// A repair gives up the content of a deleted branch.
#[test]
fn a_content_that_a_repair_gave_up_does_not_stop_a_collection() {
    let mut env = TestEnv::new();
    env.set("SNAP_TIME", "2026-12-01T00:00:00Z");
    env.write("kept", "kept");
    env.snap(["commit", "-m", "kept"]).succeeds();
    env.write("lost", crate::env::noise(1, 50_000));
    env.snap(["commit", "-b", "topic", "-m", "lost"]).succeeds();
    fs_err::remove_file(env.path("lost")).unwrap();
    env.snap(["restore", "main", "--overwrite"]).succeeds();
    env.snap(["branch", "-d", "topic"]).succeeds();
    for pack in fs_err::read_dir(env.path(".snap/objects")).unwrap() {
        let path = pack.unwrap().path();
        let mut bytes = fs_err::read(&path).unwrap();
        if bytes.len() > 50_000 {
            bytes[1000] ^= 1;
            fs_err::write(&path, bytes).unwrap();
        }
    }
    assert_eq!(env.snap(["gc", "--now"]).code, Some(0), "nothing was read yet");
    env.snap(["repair", "--data"]).succeeds();
    assert!(env.path(".snap/quarantine").exists());
    env.snap(["verify", "--data"]).succeeds();
    env.snap(["gc"]).succeeds();
    env.snap(["gc", "--now"]).succeeds();
}
