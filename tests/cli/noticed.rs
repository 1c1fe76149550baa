//! Problems that commits and comparisons detect, and their messages.

use snap_testkit::skip::skip;

use crate::env::TestEnv;

/// Sets so many attributes that reading their list fails with `E2BIG`. Needs root and a file system
/// in memory; otherwise the test is skipped.
fn add_unreadable_attributes(env: &TestEnv, path: &str) -> bool {
    let path = env.path(path);
    let set = (0..300).try_for_each(|n| {
        let name = format!("trusted.{n:0>240}");
        rustix::fs::setxattr(path.as_path(), name, b"value", rustix::fs::XattrFlags::empty())
    });
    if set.is_err() {
        skip("attributes that cannot be read", "needs root and a file system with many attributes");
    }
    set.is_ok()
}

#[test]
fn attributes_that_cannot_be_read_are_named_with_exit_code_3() {
    let env = TestEnv::in_memory();
    env.write("home/notes.txt", "first");
    env.write("home/other.txt", "second");
    if !add_unreadable_attributes(&env, "home/notes.txt") {
        return;
    }
    insta::assert_snapshot!(env.snap_in("home", ["commit"]), @"
    exit: 3
    --- stdout ---
    [ID]
    --- stderr ---
    Created a store at .snap
    warning: cannot read extended attributes of `notes.txt`: Argument list too long (os error 7)
    Committed 2 files, 11 B: 2 added, 0 modified, 0 unmodified
    Read [SIZE], added [SIZE], stored [SIZE] in [TIME]
    warning: committed 1 entry without extended attributes
    ");
    let again = env.snap_in("home", ["commit", "--json"]);
    assert_eq!(again.code, Some(3));
    assert_eq!(again.json()[0]["without_attributes"], 1);
    let status = env.snap_in("home", ["status"]);
    assert_eq!(status.code, Some(3), "{}", status.stderr);
    assert!(status.stderr.contains("cannot read extended attributes"), "{}", status.stderr);
}

#[test]
fn with_checksum_a_commit_reads_every_file() {
    let env = TestEnv::new();
    env.write("home/notes.txt", "first");
    env.write("home/other.txt", "second");
    env.snap_in("home", ["commit"]).succeeds();
    for _ in 0..3 {
        let made =
            env.snap_in("home", ["commit", "--checksum", "--json"]).succeeds().json().remove(0);
        assert_eq!((&made["bytes_read"], &made["created"]), (&11.into(), &false.into()));
    }
}

#[test]
fn verify_against_files_names_what_changed_although_its_times_did_not() {
    let env = TestEnv::new();
    env.write("home/notes.txt", "first");
    env.write("home/same.txt", "same");
    env.write("home/gone.txt", "gone");
    let none = env.snap(["verify", "--against-files"]);
    assert_eq!(none.code, Some(1), "{}", none.stderr);
    env.snap_in("home", ["commit"]).succeeds();
    insta::assert_snapshot!(env.snap_in("home", ["verify", "--against-files"]), @r"
    exit: 0
    --- stderr ---
    Read 3 files, 13 B, and compared them with commit [ID]
    ");

    fs_err::remove_file(env.path("home/gone.txt")).unwrap();
    env.write("home/new.txt", "new");
    let seen = env.snap_in("home", ["verify", "--against-files"]).succeeds();
    assert_eq!(seen.stdout, "deleted: gone.txt\nadded: new.txt\n");

    let before = fs_err::metadata(env.path("home/notes.txt")).unwrap().modified().unwrap();
    env.write("home/notes.txt", "fjrst");
    let file = fs_err::OpenOptions::new().append(true).open(env.path("home/notes.txt")).unwrap();
    file.file().set_modified(before).unwrap();
    insta::assert_snapshot!(env.snap_in("home", ["verify", "--against-files"]), @"
    exit: 4
    --- stdout ---
    deleted: gone.txt
    added: new.txt
    damaged: notes.txt
    --- stderr ---
    Read 2 files, 9 B, and compared them with commit [ID]
    warning: 1 file changed without a new modification time
    hint: `snap restore HEAD --overwrite --checksum --yes` restores the content of the commit
    hint: `snap commit --checksum` commits the current content
    ");
    let json = env.snap_in("home", ["verify", "--against-files", "--json"]);
    assert_eq!(json.code, Some(4));
    let problem = json.json().into_iter().find(|record| record["type"] == "problem").unwrap();
    assert_eq!(problem["path"], "notes.txt");

    env.snap_in("home", ["restore", "HEAD", "--overwrite", "--checksum", "--yes"]).succeeds();
    assert_eq!(env.read("home/notes.txt"), "first");
    env.snap_in("home", ["verify", "--against-files"]).succeeds();
}
