//! A store on a read-only disk: everything except writing works.

use std::{ffi::OsStr, path::Path};

use snap_explore::versions;
use snap_testkit::mounts::{in_own_mounts, tool};

use crate::place::{fails, folder, left_over, log, names, restores, snap, stderr, well};

#[test]
fn a_read_only_store_is_read_and_a_commit_says_why_not() {
    in_own_mounts("read_only::a_read_only_store_is_read_and_a_commit_says_why_not", || {
        let place = folder();
        let (store, work) = (place.path().join("store"), place.path().join("work"));
        well(snap(&store).arg("init"));
        for number in 1..=3 {
            let message = format!("main {number}");
            versions::write(&work, &message);
            well(snap(&store).args(["commit", "-m", &message]).arg(&work));
        }
        seal(&store);
        is_read(&store);
        is_not_written(&store, &work);
    });
}

#[test]
fn a_read_only_store_without_its_index_is_read_all_the_same() {
    in_own_mounts("read_only::a_read_only_store_without_its_index_is_read_all_the_same", || {
        let place = folder();
        let (store, work) = (place.path().join("store"), place.path().join("work"));
        well(snap(&store).arg("init"));
        versions::write(&work, "main 1");
        well(snap(&store).args(["commit", "-m", "main 1"]).arg(&work));
        for derived in ["index", "cache", "tmp"] {
            fs_err::remove_dir_all(store.join(derived)).unwrap();
        }
        seal(&store);
        is_read(&store);
    });
}

#[test]
fn a_read_only_store_or_remote_is_read_and_a_push_says_why_not() {
    in_own_mounts("read_only::a_read_only_store_or_remote_is_read_and_a_push_says_why_not", || {
        let place = folder();
        let (store, work) = (place.path().join("store"), place.path().join("work"));
        let there = place.path().join("there");
        let url = format!("file://{}", there.display());
        well(snap(&store).arg("init"));
        well(snap(&store).args(["remote", "add", "origin", &url]));
        let spare = format!("file://{}", place.path().join("spare").display());
        well(snap(&store).args(["remote", "add", "spare", &spare]));
        let commit = |message: &str| {
            versions::write(&work, message);
            well(snap(&store).args(["commit", "-m", message]).arg(&work));
        };
        commit("main 1");
        well(snap(&store).args(["push", "origin"]));
        commit("main 2");
        seal(&there);
        let said = fails(snap(&store).args(["push", "origin"]), 1);
        assert!(said.contains("Read-only file system"), "{said}");
        assert!(said.contains("hint: check the owner and mode of the folder"), "{said}");
        // The cache of a remote is in the store, unless that is read-only.
        seal(&store);
        let pushed = snap(&store).args(["push", "spare"]).output().unwrap();
        let said = stderr(&pushed);
        assert!(pushed.status.success() && said.contains("main -> main  new branch"), "{said}");
        assert!(
            said.contains("warning: the tracking branch of main at spare was not updated"),
            "{said}"
        );
        let listed = well(snap(&store).args(["ls", "-R", "origin#main"]));
        assert!(listed.contains("large"), "{listed}");
        well(snap(&store).args(["log", &format!("{url}#main")]));
        let target = place.path().join("target");
        well(snap(&store).args(["restore", "origin#main"]).arg(&target));
        versions::check(&target, "main 1");
    });
}

/// Makes a folder read-only, even for root.
fn seal(store: &Path) {
    let path = store.as_os_str();
    assert!(tool("mount", [OsStr::new("--bind"), path, path]));
    assert!(tool("mount", [OsStr::new("-o"), OsStr::new("remount,ro,bind"), path]));
}

fn is_read(store: &Path) {
    let commits = log(store, "HEAD");
    assert!(!commits.is_empty());
    commits.iter().for_each(|commit| restores(store, commit));
    well(snap(store).args(["ls", "-R", "latest"]));
    well(snap(store).args(["cat", "latest:large"]));
    well(snap(store).arg("branch"));
    well(snap(store).args(["verify", "--data"]));
}

fn is_not_written(store: &Path, work: &Path) {
    let before = (names(&store.join("objects")), log(store, "HEAD"));
    versions::write(work, "main 4");
    let said = fails(snap(store).arg("commit").arg(work), 1);
    assert!(said.contains("Read-only file system"), "{said}");
    assert!(said.contains("hint: snap log, show, ls"), "{said}");
    let said = fails(snap(store).args(["repair", "--data"]), 1);
    assert!(said.contains("Read-only file system"), "{said}");
    well(snap(store).args(["repair", "--data", "--dry-run"]));
    assert_eq!((names(&store.join("objects")), log(store, "HEAD")), before);
    assert_eq!(left_over(store), [""; 0]);
}
