//! `snap verify REMOTE`, and the push that sends lost data again.

use crate::{
    env::TestEnv,
    remote::{env, folder, says},
    serve::Serving,
};

/// Makes a store with two commits, and pushes it to the remote `origin`, a folder called `there`.
fn pushed() -> TestEnv {
    let env = env();
    let url = folder(&env, "there");
    env.snap_in("work", ["remote", "add", "origin", &url]).succeeds();
    env.snap_in("work", ["push", "-q"]).succeeds();
    env.write("work/new.txt", "second\n");
    env.snap_in("work", ["commit", "-qm", "two"]).succeeds();
    env.snap_in("work", ["push", "-q"]).succeeds();
    env
}

/// Removes the larger pack of the remote, which has the first commit.
fn lose_a_pack(env: &TestEnv, objects: &str) {
    let packs = fs_err::read_dir(env.path(objects)).unwrap().map(|pack| pack.unwrap().path());
    let lost = packs.max_by_key(|path| fs_err::metadata(path).unwrap().len()).unwrap();
    fs_err::remove_file(lost).unwrap();
}

#[test]
fn a_remote_that_lost_a_pack_is_told_and_the_next_push_repairs_it() {
    let env = pushed();
    insta::assert_snapshot!(env.snap_in("work", ["verify", "origin"]), @r"
    exit: 0
    --- stderr ---
    Checked 2 packs with 8 objects at origin, and 2 commits reachable from branches and tags
    No errors found
    hint: --data also reads all contents
    ");
    lose_a_pack(&env, "there/objects");
    insta::assert_snapshot!(env.snap_in("work", ["push"]), @r"
    exit: 0
    --- stderr ---
    main -> main  is at [SHORT ID]
    Nothing to push: origin is up to date
    ");
    insta::assert_snapshot!(env.snap_in("work", ["verify", "origin"]), @"
    exit: 4
    --- stdout ---
    damaged: pack [SHORT ID] is missing: the index lists it
    affected: commit [SHORT ID]: 2 paths, such as notes.txt
    affected: commit [SHORT ID]: the same paths as in newer commits
    --- stderr ---
    Checked 2 packs with 8 objects at origin, and 2 commits reachable from branches and tags
    Damaged objects in 1 pack are no longer used: the next push sends them again from the local store
    warning: 1 problem found
    hint: `snap repair origin` sends lost data from the local store
    hint: --from PLACE adds another source
    hint: --data reads all contents and may find more damage
    ");
    let records = env.snap_in("work", ["verify", "origin", "--json"]).json();
    let summary = records.last().unwrap();
    assert_eq!((&summary["whole"], &summary["remote"]), (&false.into(), &"origin".into()));
    let ran = env.snap_in("work", ["push", "origin", "--all", "--tags"]);
    says(&ran, 0, &["again that had been lost there"]);
    env.snap_in("work", ["verify", "origin", "--data"]).succeeds();
    env.snap(["clone", "-q", &folder(&env, "there"), "cloned"]).succeeds();
    assert_eq!(env.read("cloned/notes.txt"), "first\n");
    env.snap_in("cloned", ["verify", "--data"]).succeeds();
}

#[test]
fn what_cannot_be_verified_is_refused() {
    let env = pushed();
    let ran = env.snap_in("work", ["verify", "nobody"]);
    says(&ran, 1, &["remote `nobody` does not exist"]);
    let ran = env.snap_in("work", ["verify", "origin", "--against-files"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let ran = env.snap_in("work", ["verify", "--limit-download", "2M"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let nothing = folder(&env, "nothing");
    let ran = env.snap(["verify", &nothing]);
    says(&ran, 1, &["no store found at"]);
    // A location can be verified without a local store.
    env.snap(["verify", &folder(&env, "there"), "--sample", "50%"]).succeeds();
}

#[test]
fn a_server_that_lost_a_pack_is_told_and_gets_it_again() {
    let env = env();
    let serving = Serving::start(&env, "work");
    env.snap(["clone", "-q", &serving.url, "there"]).succeeds();
    env.snap_in("there", ["verify", "origin", "--data"]).succeeds();
    lose_a_pack(&env, "work/.snap/objects");
    let ran = env.snap_in("there", ["verify", "origin"]);
    says(&ran, 4, &[" found\n"]);
    assert!(ran.stdout.contains("affected: commit "), "{}", ran.stdout);
    env.snap_in("there", ["push", "origin"]).succeeds();
    env.snap_in("there", ["verify", "origin", "--data"]).succeeds();
    env.snap_in("work", ["verify", "--data"]).succeeds();
    env.snap(["clone", "-q", &serving.url, "again"]).succeeds();
    assert_eq!(env.read("again/notes.txt"), "first\n");
}

#[test]
fn a_server_replaces_a_damaged_pack_by_the_one_that_is_sent() {
    let env = env();
    let serving = Serving::start(&env, "work");
    env.snap(["clone", "-q", &serving.url, "there"]).succeeds();
    for pack in fs_err::read_dir(env.path("work/.snap/objects")).unwrap() {
        let pack = pack.unwrap().path();
        let mut bytes = fs_err::read(&pack).unwrap();
        bytes[20] ^= 1;
        env.mode(&pack, 0o644);
        fs_err::write(&pack, bytes).unwrap();
    }
    let ran = env.snap_in("there", ["verify", "origin", "--data"]);
    says(&ran, 4, &["found; "]);
    assert!(ran.stdout.contains("its bytes hash to "), "{}", ran.stdout);
    let ran = env.snap_in("there", ["push", "origin"]);
    says(&ran, 0, &["again that had been lost there"]);
    env.snap_in("there", ["verify", "origin", "--data"]).succeeds();
    env.snap_in("work", ["verify", "--data"]).succeeds();
    env.snap(["clone", "-q", &serving.url, "again"]).succeeds();
}

/// Two users: one deletes a branch at the remote and collects its garbage, the other one has seen it.
#[test]
fn a_branch_that_others_deleted_is_named_and_is_no_damage() {
    let env = pushed();
    env.write("work/topic.txt", "only on a branch\n");
    env.snap_in("work", ["commit", "-qm", "topic", "-b", "topic"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "topic"]).succeeds();
    env.snap(["clone", "-q", "there", "theirs"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "--delete", "topic"]).succeeds();
    env.snap_in("work", ["gc", "-q", "origin", "--now"]).succeeds();
    insta::assert_snapshot!(env.snap_in("theirs", ["verify", "origin"]), @"
    exit: 0
    --- stderr ---
    Checked 2 packs with 8 objects at origin, and 2 commits reachable from branches and tags
    Branch topic was deleted at origin, and `snap gc` has deleted its commit [SHORT ID]
    No errors found
    hint: --data also reads all contents
    ");
    env.snap_in("theirs", ["branch", "topic", "origin/topic"]).succeeds();
    let ran = env.snap_in("theirs", ["verify", "origin"]);
    says(&ran, 1, &["Branch topic was deleted at origin"]);
    env.snap_in("theirs", ["verify"]).succeeds();
}

/// The same, behind a server.
#[test]
fn a_branch_that_others_deleted_at_a_server_is_no_damage() {
    let mut env = env();
    let serving = Serving::start(&env, "work");
    env.snap(["clone", "-q", &serving.url, "ours"]).succeeds();
    env.write("ours/topic.txt", "only on a branch\n");
    env.snap_in("ours", ["commit", "-qm", "topic", "-b", "topic"]).succeeds();
    env.snap_in("ours", ["push", "-q", "origin", "topic"]).succeeds();
    env.snap(["clone", "-q", &serving.url, "theirs"]).succeeds();
    env.snap_in("ours", ["push", "-q", "origin", "--delete", "topic"]).succeeds();
    // The server logs the time of the machine.
    env.set("SNAP_TIME", "2099-01-01T00:00:00Z");
    env.snap_in("work", ["gc", "-q", "--now", "--yes"]).succeeds();
    let ran = env.snap_in("theirs", ["verify", "origin"]);
    says(&ran, 0, &["Branch topic was deleted at origin, and `snap gc` has deleted its commit"]);
    env.snap_in("theirs", ["branch", "topic", "origin/topic"]).succeeds();
    let ran = env.snap_in("theirs", ["verify", "origin"]);
    says(&ran, 1, &["Branch topic was deleted at origin"]);
    env.snap_in("theirs", ["verify"]).succeeds();
}

#[test]
fn a_branch_that_was_rewritten_is_no_damage() {
    let env = pushed();
    env.snap(["clone", "-q", "there", "theirs"]).succeeds();
    env.snap(["clone", "-q", "--depth", "1", "there", "shallow"]).succeeds();
    env.snap_in("work", ["rewrite", "-q", "--exclude", "new.txt"]).succeeds();
    env.snap_in("work", ["gc", "-q"]).succeeds();
    env.snap_in("work", ["push", "-q", "--force"]).succeeds();
    env.snap_in("work", ["gc", "-q", "origin", "--now"]).succeeds();
    insta::assert_snapshot!(env.snap_in("theirs", ["verify", "origin"]), @"
    exit: 0
    --- stderr ---
    Checked 2 packs with 6 objects at origin, and 2 commits reachable from branches and tags
    Branch main was moved at origin to [SHORT ID], and `snap gc` has deleted its commit [SHORT ID]
    No errors found
    hint: --data also reads all contents
    ");
    // The history here, which shows that the branch did not move back, lies at the remote.
    says(&env.snap_in("shallow", ["verify", "origin"]), 0, &["Branch main was moved at origin"]);
    let pushed = env.snap_in("theirs", ["push"]);
    says(&pushed, 1, &["rejected"]);
}

/// Someone puts back a copy of the remote of before its last collection.
#[test]
fn a_remote_that_was_set_back_is_read_again() {
    let env = pushed();
    env.write("work/topic.txt", "only on a branch\n");
    env.snap_in("work", ["commit", "-qm", "topic", "-b", "topic"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "topic"]).succeeds();
    let (there, copy) = (env.path("there"), env.path("copy"));
    let run = |from: &std::path::Path, to: &std::path::Path| {
        let done = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
        assert!(done.success());
    };
    run(&there, &copy);
    env.snap_in("work", ["push", "-q", "origin", "--delete", "topic"]).succeeds();
    env.snap_in("work", ["gc", "-q", "origin", "--now"]).succeeds();
    env.snap_in("work", ["verify", "-q", "origin"]).succeeds();
    fs_err::remove_dir_all(&there).unwrap();
    run(&copy, &there);
    let listed = env.snap_in("work", ["ls", "origin#topic"]).succeeds().stdout;
    assert!(listed.contains("topic.txt"), "{listed}");
    env.snap_in("work", ["verify", "origin"]).succeeds();
}

#[test]
fn a_remote_that_is_gone_is_named_by_commands_that_read_from_it() {
    let env = pushed();
    env.snap_in("work", ["ls", "origin#main"]).succeeds();
    fs_err::remove_dir_all(env.path("there")).unwrap();
    fs_err::create_dir(env.path("there")).unwrap();
    for args in
        [&["log", "origin#main"][..], &["ls", "origin#latest"], &["restore", "origin#main", "x"]]
    {
        let ran = env.snap_in("work", args);
        says(&ran, 1, &["is gone: the location is empty"]);
    }
    assert_eq!(fs_err::read_dir(env.path("there")).unwrap().count(), 0);
}
