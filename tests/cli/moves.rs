//! Which moved files and folders a commit reads again.

use serde_json::Value;
use snap_testkit::wait::until;

use crate::env::TestEnv;

/// Commits until no file is read: files that have just changed are not in the stat cache yet.
fn settle(env: &TestEnv) {
    until("a commit reads no file", || commit(env)["bytes_read"] == 0);
}

fn commit(env: &TestEnv) -> Value {
    env.snap(["commit", "--json"]).succeeds().json().remove(0)
}

/// Returns the numbers of new, changed and unmodified files of a commit.
fn counts(made: &Value) -> [u64; 3] {
    ["files_added", "files_modified", "files_unmodified"].map(|key| made[key].as_u64().unwrap())
}

/// A rename changes a file's ctime, as a rewrite does. The rename of a folder changes nothing below
/// it.
#[test]
fn a_moved_file_is_read_again_and_what_is_in_a_moved_folder_is_not() {
    let env = TestEnv::new();
    env.write("a/one", "1".repeat(5000));
    env.write("a/two", "2".repeat(5000));
    env.write("b/three", "3".repeat(5000));
    env.write("b/deep/four", "4".repeat(5000));
    let first = commit(&env);
    assert_eq!((first["bytes_read"].as_u64(), counts(&first)), (Some(20_000), [4, 0, 0]));
    settle(&env);

    fs_err::rename(env.path("a/one"), env.path("b/one again")).unwrap();
    let file_moved = commit(&env);
    assert_eq!((file_moved["bytes_read"].as_u64(), counts(&file_moved)), (Some(5_000), [1, 0, 3]));
    settle(&env);

    fs_err::rename(env.path("b"), env.path("c")).unwrap();
    let folder_moved = commit(&env);
    assert_eq!((&folder_moved["bytes_read"], &folder_moved["files"]), (&0.into(), &4.into()));
    assert_eq!(counts(&folder_moved).iter().sum::<u64>(), 4, "{folder_moved}");
    assert_eq!(counts(&folder_moved)[1], 0, "{folder_moved}");

    let listed = env.snap(["ls", "-R"]).succeeds().stdout;
    assert_eq!(listed, "a/\na/two\nc/\nc/deep/\nc/deep/four\nc/one again\nc/three\n");
    assert_eq!(env.snap(["cat", "HEAD:c/one again"]).succeeds().stdout, "1".repeat(5000));
    env.snap(["verify", "--data"]).succeeds();
}

/// A different file with the same name, size and time must be detected.
#[test]
fn what_takes_the_place_of_a_moved_file_is_read() {
    let env = TestEnv::new();
    env.write("a", "old content");
    settle(&env);
    let time = fs_err::metadata(env.path("a")).unwrap().modified().unwrap();
    fs_err::rename(env.path("a"), env.path("b")).unwrap();
    env.write("a", "new content");
    let file = fs_err::OpenOptions::new().append(true).open(env.path("a")).unwrap();
    file.file().set_modified(time).unwrap();
    let made = commit(&env);
    assert_eq!(made["bytes_read"], 22, "{made}");
    assert_eq!(env.snap(["cat", "HEAD:a"]).succeeds().stdout, "new content");
    assert_eq!(env.snap(["cat", "HEAD:b"]).succeeds().stdout, "old content");
}
