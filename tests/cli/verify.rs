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
    Damaged objects in 1 pack are not relied on any more: the next commit stores them again from files that still have the content
    warning: 2 problems found; what is not listed as touched is whole
    `snap repair` puts back what is lost, from remotes and the files of the project; --from names other copies
    ");
    let found = env.snap(["verify", "--data", "--json"]);
    assert_eq!(found.code, Some(4));
    let path = found.json().into_iter().find(|line| line["type"] == "path").unwrap();
    assert_eq!(path["path"], "sub/a");
}

#[test]
fn a_branch_that_is_lost_is_found_by_its_log() {
    let env = TestEnv::new();
    env.write("home/a.txt", "one");
    let id = env.snap(["commit", "home"]).succeeds().stdout;
    fs_err::remove_file(env.path("home/.snap/refs/heads/main")).unwrap();
    let found = env.snap_in("home", ["verify"]);
    assert_eq!(found.code, Some(4), "{}", found.stderr);
    assert!(found.stdout.contains("refs/heads/main is missing"), "{}", found.stdout);
    let hint = format!("snap branch main {}", &id[..12]);
    assert!(found.stderr.contains(&hint), "{}", found.stderr);
    env.snap_in("home", hint.split(' ').skip(1)).succeeds();
    assert_eq!(env.snap_in("home", ["cat", "HEAD:a.txt"]).succeeds().stdout, "one");
    env.snap_in("home", ["verify"]).succeeds();
    // One that was deleted is not missed.
    env.snap_in("home", ["branch", "other"]).succeeds();
    env.snap_in("home", ["branch", "--delete", "other"]).succeeds();
    env.snap_in("home", ["verify"]).succeeds();
}
