//! `snap cat`.

use crate::env::TestEnv;

#[test]
fn a_file_is_printed_by_path_or_by_its_hash() {
    let env = TestEnv::new();
    let large: Vec<u8> =
        (0..3_000_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    env.write("small", "text\n");
    env.write("large", &large);
    env.snap(["commit"]).succeeds();
    assert_eq!(env.snap(["cat", "latest:small"]).succeeds().stdout, "text\n");
    let output = env.command("").args(["cat", "latest:./large"]).output().unwrap();
    assert!(output.stdout == large);

    let listed = env.snap(["ls", "--json", "HEAD:small"]).succeeds().json();
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(env.snap(["cat", id]).succeeds().stdout, "text\n");
    assert_eq!(env.snap(["cat", &id[..8]]).succeeds().stdout, "text\n");
}

#[test]
fn what_is_no_file_is_not_printed() {
    let env = TestEnv::new();
    env.write("sub/file", "");
    env.snap(["commit"]).succeeds();
    insta::assert_snapshot!(env.snap(["cat", "HEAD:sub"]), @r"
    exit: 1
    --- stderr ---
    error: `sub` is a folder, not a file
    hint: `snap ls` lists a folder
    ");
    insta::assert_snapshot!(env.snap(["cat", "HEAD:"]), @r"
    exit: 1
    --- stderr ---
    error: `HEAD:` is a folder, not a file
    hint: `snap ls` lists a folder
    ");
    insta::assert_snapshot!(env.snap(["cat", "HEAD:none"]), @"
    exit: 1
    --- stderr ---
    error: `none` does not exist in `HEAD`
    hint: `snap ls -R HEAD` lists its files and folders
    ");
    insta::assert_snapshot!(env.snap(["cat", "HEAD"]), @r"
    exit: 1
    --- stderr ---
    error: `HEAD` is neither REV:PATH nor a content id
    hint: REV:PATH names a file, such as latest:notes.txt
    ");
    insta::assert_snapshot!(env.snap(["cat", "0123456789"]), @r"
    exit: 1
    --- stderr ---
    error: `0123456789` is neither REV:PATH nor a content id
    hint: REV:PATH names a file, such as latest:notes.txt
    ");
}
