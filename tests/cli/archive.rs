//! `snap archive`: a bundle without a store.

use snap_core::disk::scratch::unique_name;

use crate::env::TestEnv;

fn folder() -> TestEnv {
    let env = TestEnv::new();
    env.write("photos/june/sea.jpg", "sea");
    env.write("photos/notes.txt", "notes\n");
    env.write("docs/plan.txt", "plan\n");
    env
}

#[test]
fn a_folder_goes_into_one_file_and_back() {
    let env = folder();
    insta::assert_snapshot!(env.snap(["archive", "photos", "-o", "p.snap", "--reproducible"]), @r"
    exit: 0
    --- stderr ---
    Archived 2 files, [SIZE] into p.snap, [SIZE], in [TIME]
    ");
    assert!(!env.path(".snap").exists());
    insta::assert_snapshot!(env.snap(["ls", "-R", "p.snap"]), @r"
    exit: 0
    --- stdout ---
    june/
    june/sea.jpg
    notes.txt
    ");
    env.snap(["restore", "p.snap", "back"]).succeeds();
    assert_eq!(env.read("back/june/sea.jpg"), "sea");
    env.snap(["unpack", "p.snap"]).succeeds();
    env.snap(["verify", "--data"]).succeeds();
}

#[test]
fn reproducible_archives_of_equal_files_have_equal_commits_if_their_times_are_equal() {
    let env = TestEnv::new();
    for folder in ["one", "two"] {
        env.write(&format!("{folder}/notes.txt"), "notes\n");
    }
    let file = fs_err::OpenOptions::new().write(true).open(env.path("two/notes.txt")).unwrap();
    file.file().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let commit = |folder: &str, file: &str, more: &[&str]| {
        let args = ["--json", "archive", folder, "-o", file];
        env.snap([&args[..], more].concat()).succeeds().json()[0]["commit"].clone()
    };
    let time = "2026-11-21T08:00:00Z";
    let one = commit("one", "1.snap", &["--reproducible", "--time", time]);
    assert_eq!(commit("two", "2.snap", &["--reproducible", "--time", time]), one);
    assert_ne!(commit("two", "3.snap", &["--reproducible", "--time", "2026-11-22T08:00:00Z"]), one);
    assert_ne!(commit("two", "4.snap", &["--time", time]), one);
}

#[test]
fn several_paths_stand_under_their_own_names() {
    let env = folder();
    let args = ["archive", "photos/june", "docs/plan.txt", "-o", "x.snap", "-m", "two", "--json"];
    let made = env.snap(args).succeeds().json();
    assert_eq!((&made[0]["type"], &made[0]["files"]), (&"archived".into(), &2.into()));
    insta::assert_snapshot!(env.snap(["ls", "-R", "x.snap"]), @r"
    exit: 0
    --- stdout ---
    docs/
    docs/plan.txt
    photos/
    photos/june/
    photos/june/sea.jpg
    ");
}

#[test]
fn the_file_itself_is_left_out() {
    let env = folder();
    for force in [&[][..], &["--force"]] {
        let args = ["archive", "photos", "-o", "photos/all of [it].snap"].iter().chain(force);
        env.snap(args).succeeds();
        let listed = env.snap(["ls", "photos/all of [it].snap"]).succeeds();
        assert_eq!(listed.stdout, "june/\nnotes.txt\n");
    }
    let here = ["archive", ".", "-o", "here.snap"];
    env.snap_in("docs", here).succeeds();
    env.snap_in("docs", here.iter().chain(&["-f"])).succeeds();
    insta::assert_snapshot!(env.snap(["ls", "docs/here.snap"]), @r"
    exit: 0
    --- stdout ---
    plan.txt
    ");
    let left = fs_err::read_dir(env.path("docs")).unwrap().count();
    assert_eq!(left, 2, "left over");
}

#[test]
fn what_cannot_be_read_is_said() {
    let env = folder();
    insta::assert_snapshot!(env.snap(["archive", "none", "-o", "x.snap"]), @r"
    exit: 1
    --- stderr ---
    error: cannot read none
      caused by: No such file or directory (os error 2)
    ");
    assert!(!env.path("x.snap").exists());
}

#[test]
fn files_of_the_user_are_archived_and_temporary_files_of_snap_are_not() {
    let env = folder();
    for name in [".snap-part-list.txt", ".snap-scratch-12-18f2a3b400000000-0"] {
        env.write(&format!("photos/{name}"), "the user's");
    }
    let own = ["part", "scratch"].map(|what| unique_name(&format!(".snap-{what}")));
    for name in &own {
        env.write(&format!("photos/{name}"), "left by a killed snap");
    }
    env.snap(["archive", "photos", "-o", "p.snap"]).succeeds();
    let listed = env.snap(["ls", "p.snap"]).succeeds().stdout;
    let kept = ".snap-part-list.txt\n.snap-scratch-12-18f2a3b400000000-0\njune/\nnotes.txt\n";
    assert_eq!(listed, kept);
    env.snap_in("photos", ["commit"]).succeeds();
    assert_eq!(env.snap_in("photos", ["ls"]).succeeds().stdout, kept);
    // A restore does not take them for files that are not part of the snapshot.
    let args = ["restore", "HEAD", "--overwrite", "--delete", "--yes"];
    env.snap_in("photos", args).succeeds();
    assert!(own.iter().all(|name| env.path("photos").join(name).exists()));
}
