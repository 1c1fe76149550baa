//! `snap verify`.

use crate::env::TestEnv;

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("a", "content of a");
    env.snap(["commit", "-m", "one"]).succeeds();
    env.write("b", "content of b");
    env.snap(["commit", "-m", "two"]).succeeds();
    env
}

#[test]
fn a_whole_store_is_said_to_be_whole() {
    let env = env();
    insta::assert_snapshot!(env.snap(["verify"]), @r"
    exit: 0
    --- stderr ---
    Checked 2 packs with 6 objects, and 2 commits that branches and tags reach
    No damage found; --data reads all contents, too
    ");
    insta::assert_snapshot!(env.snap(["verify", "--data"]), @r"
    exit: 0
    --- stderr ---
    Checked 2 packs with 6 objects, and 2 commits that branches and tags reach
    Read [SIZE] of the data
    Everything is as it should be
    ");
    env.snap(["verify", "--sample", "50%"]).succeeds();
    let summary = env.snap(["verify", "--data", "--json"]).succeeds().json();
    assert_eq!(summary[0]["whole"], true);
    insta::assert_snapshot!(env.snap(["verify", "--sample", "200%"]), @r"
    exit: 2
    --- stderr ---
    error: invalid value '200%' for '--sample <PART>': expected a part such as 5% or 0.05

    For more information, try '--help'.
    ");
}

#[test]
fn damage_is_listed_with_what_it_touches() {
    let env = TestEnv::new();
    env.write("sub/a", "content of a");
    env.snap(["commit", "-m", "one"]).succeeds();
    for pack in fs_err::read_dir(env.path(".snap/objects")).unwrap() {
        let pack = pack.unwrap().path();
        let mut bytes = fs_err::read(&pack).unwrap();
        bytes[20] ^= 1;
        env.mode(&pack, 0o644);
        fs_err::write(&pack, bytes).unwrap();
    }
    insta::assert_snapshot!(env.snap(["verify", "--data"]), @r"
    exit: 4
    --- stdout ---
    damaged: pack [ID] is damaged: its bytes hash to [SHORT ID]
    damaged: cannot read a frame of pack [ID] (objects in it: 1): pack [ID] is damaged in the frame at byte 16: its checksum does not match
    touched: commit [ID]
    touched: sub/a in commit [ID]
    --- stderr ---
    Checked 1 pack with 4 objects, and 1 commit that branches and tags reach
    Read [SIZE] of the data
    warning: 2 problems found; what is not listed as touched is whole
    ");
    let found = env.snap(["verify", "--data", "--json"]);
    assert_eq!(found.code, Some(4));
    let path = found.json().into_iter().find(|line| line["type"] == "path").unwrap();
    assert_eq!(path["path"], "sub/a");
}
