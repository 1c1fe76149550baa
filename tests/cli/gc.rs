//! `snap gc`.

use crate::env::TestEnv;

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
    let mut words: Vec<&str> = ran.stderr.split(' ').collect();
    for at in 1..words.len() {
        if is_unit(words[at]) {
            words[at - 1] = "[N]";
        }
    }
    words.join(" ")
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
    error: SNAP_GC_UNDO: `gc.undo` is soon, but must be a time such as 36h, 7d or 2w
    ");
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
