//! `snap stats`.

use crate::env::TestEnv;

/// Makes two commits, a day apart.
fn env() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("SNAP_TIME", "2026-11-01T10:00:00Z");
    env.write("text", "the same again ".repeat(2000));
    env.write("copy/text", "the same again ".repeat(2000));
    env.snap(["commit", "--reproducible", "-m", "day 1"]).succeeds();
    env.set("SNAP_TIME", "2026-11-02T10:00:00Z");
    env.write("small", "x");
    env.snap(["commit", "--reproducible", "-m", "day 2"]).succeeds();
    env
}

#[test]
fn what_each_commit_added_is_shown() {
    let env = env();
    insta::assert_snapshot!(env.snap(["stats"]), @r"
    exit: 0
    --- stdout ---
    commit                                                           date                         snapshot    changed        new     stored       meta message
    [ID] 2026-11-02 10:00:00 +00:00   58.6 KiB        1 B        1 B        1 B      239 B day 2
    [ID] 2026-11-01 10:00:00 +00:00   58.6 KiB   58.6 KiB   29.3 KiB       33 B      188 B day 1

    Largest files:
      29.3 KiB  [ID]  copy/text
           1 B  [ID]  small

    History:    2 snapshots, 117.2 KiB in total
    Contents:   29.3 KiB (4.0 times smaller)
    Compressed: 34 B (882.4 times smaller)
    Meta:       457 B, compressed 427 B

    Store:      2 packs, 944 B
    Data:       2 frames, 29.3 KiB compressed to 34 B, 14.6 KiB each on average
    Metadata:   2 frames, 457 B compressed to 427 B, 228 B each on average
    Objects:    2 blobs, 3 trees, 2 commits, 0 chunk lists
    ");
    insta::assert_snapshot!(env.snap(["stats", "-n", "0", "HEAD~1"]), @r"
    exit: 0
    --- stdout ---
    History:    1 snapshot, 58.6 KiB in total
    Contents:   29.3 KiB (2.0 times smaller)
    Compressed: 33 B (909.1 times smaller)
    Meta:       218 B, compressed 188 B

    Store:      2 packs, 944 B
    Data:       2 frames, 29.3 KiB compressed to 34 B, 14.6 KiB each on average
    Metadata:   2 frames, 457 B compressed to 427 B, 228 B each on average
    Objects:    2 blobs, 3 trees, 2 commits, 0 chunk lists
    ");
}

#[test]
fn json_has_a_record_of_each_type() {
    let env = env();
    insta::assert_snapshot!(env.snap(["--json", "stats", "-n", "1"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"commit","id":"[ID]","time":"2026-11-02T10:00:00Z","message":"day 2","snapshot_bytes":60001,"changed_files":1,"changed_bytes":1,"new_objects":1,"new_bytes":1,"stored_bytes":1,"meta_objects":2,"meta_bytes":239,"meta_stored_bytes":239}
    {"version":1,"type":"file","path":"copy/text","size":30000,"id":"[ID]","commit":"[ID]"}
    {"version":1,"type":"store","commits":2,"forgotten_commits":0,"snapshot_bytes":120001,"changed_bytes":60001,"new_bytes":30001,"stored_bytes":34,"meta_bytes":457,"meta_stored_bytes":427,"dedup_ratio":4.0,"compression_ratio":882.38,"packs":2,"pack_bytes":944,"data_frames":{"count":2,"raw_bytes":30001,"stored_bytes":34},"meta_frames":{"count":2,"raw_bytes":457,"stored_bytes":427},"blobs":{"count":2,"bytes":30001},"chunk_lists":{"count":0,"bytes":0},"trees":{"count":3,"bytes":287},"commit_objects":{"count":2,"bytes":170},"links":{"count":0,"bytes":0},"repeated":{"count":0,"bytes":0}}
    "#);
}

#[test]
fn all_branches_are_counted_when_asked() {
    let env = env();
    env.snap(["branch", "ahead"]).succeeds();
    env.snap(["branch", "--force", "main", "HEAD~1"]).succeeds();
    let commits = |args: &[&str]| {
        let stats = env.snap([&["--json", "stats"], args].concat()).succeeds().json();
        stats.last().unwrap()["commits"].as_u64().unwrap()
    };
    assert_eq!((commits(&[]), commits(&["--all"]), commits(&["ahead"])), (1, 2, 2));
}

#[test]
fn a_store_without_commits_has_nothing_to_count() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    insta::assert_snapshot!(env.snap(["stats"]), @r"
    exit: 1
    --- stderr ---
    error: branch `main` has no commit yet
    hint: `snap commit` creates the first one
    ");
    insta::assert_snapshot!(env.snap(["stats", "--all"]), @r"
    exit: 0
    --- stdout ---
    History:    0 snapshots, 0 B in total
    Contents:   0 B
    Compressed: 0 B
    Meta:       0 B, compressed 0 B

    Store:      0 packs, 0 B
    Data:       0 frames, 0 B compressed to 0 B, 0 B each on average
    Metadata:   0 frames, 0 B compressed to 0 B, 0 B each on average
    Objects:    0 blobs, 0 trees, 0 commits, 0 chunk lists
    ");
    insta::assert_snapshot!(env.snap(["stats", "-n", "x"]), @r"
    exit: 2
    --- stderr ---
    error: invalid value 'x' for '--max-count <NUMBER>': expected a number

    For more information, try '--help'.
    ");
}

#[test]
fn damage_ends_with_its_own_exit_code() {
    let env = env();
    for entry in fs_err::read_dir(env.path(".snap/objects")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs_err::read(&path).unwrap();
        let Some(at) = bytes.windows(5).position(|window| window == b"small") else { continue };
        bytes[at] ^= 1;
        env.mode(&path, 0o600);
        fs_err::write(&path, bytes).unwrap();
    }
    for args in [&["stats"][..], &["find", "x"], &["log", "--", "small"]] {
        let ran = env.snap(args);
        assert_eq!(ran.code, Some(4), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("hint: `snap verify --data`"), "{}", ran.stderr);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let env = env();
    for args in [&["stats"][..], &["find", "*"], &["log", "--", "text"]] {
        let mut child =
            env.command("").args(args).stdout(std::process::Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert!(child.wait().unwrap().success(), "{args:?}");
    }
}
