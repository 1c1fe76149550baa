//! Full disks: the command reports the error, leaves nothing half-done, and succeeds once there is
//! free space again.

use std::path::{Path, PathBuf};

use snap_explore::{serving::Serving, versions};
use snap_testkit::{
    bytes::Corpus,
    compare::{Options, compare},
    mounts::{self, in_own_mounts, mount_memory},
};

use crate::place::{drafts, fails, folder, left_over, log, names, restores, snap, stderr, well};

/// Size of the small disk in KiB.
const DISK: u64 = 3 << 10;

/// A file that fills a disk except for `spare` KiB.
struct Filler(PathBuf);

impl Filler {
    fn new(disk: &Path, spare: u64) -> Self {
        let path = disk.join("filler");
        let stat = rustix::fs::statvfs(disk).unwrap();
        let free = stat.f_bavail * stat.f_frsize;
        let len = free.saturating_sub(spare << 10) as usize;
        fs_err::write(&path, Corpus::Random.make_seeded(len, 1)).unwrap();
        Self(path)
    }

    fn remove(self) {
        fs_err::remove_file(self.0).unwrap();
    }
}

fn says_so(said: &str) {
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("hint: free some space, and run the command again"), "{said}");
}

#[test]
fn a_commit_onto_a_full_disk_says_so_and_the_next_one_works() {
    in_own_mounts("full_disk::a_commit_onto_a_full_disk_says_so_and_the_next_one_works", || {
        let place = folder();
        let (disk, work) = (place.path().join("disk"), place.path().join("work"));
        mount_memory(&disk, DISK);
        let store = disk.join("store");
        well(snap(&store).arg("init"));
        let small = work.join("small");
        fs_err::create_dir_all(&work).unwrap();
        fs_err::write(&small, "first").unwrap();
        well(snap(&store).args(["commit", "-m", "first"]).arg(&work));

        // Larger than the whole disk.
        let large = work.join("large");
        fs_err::write(&large, Corpus::Random.make(8 << 20)).unwrap();
        says_so(&fails(snap(&store).arg("commit").arg(&work), 1));
        assert_eq!(left_over(&store), [""; 0], "temporary files take up space");
        assert_eq!(log(&store, "main").len(), 1);
        fs_err::remove_file(&large).unwrap();

        fs_err::write(&small, "second").unwrap();
        well(snap(&store).args(["commit", "-m", "second"]).arg(&work));
        assert_eq!(log(&store, "main").len(), 2);
        well(snap(&store).args(["verify", "--data"]));
    });
}

#[test]
fn wherever_a_commit_runs_out_of_room_nothing_is_lost_and_room_is_given_back() {
    let test = "wherever_a_commit_runs_out_of_room_nothing_is_lost_and_room_is_given_back";
    in_own_mounts(&format!("full_disk::{test}"), || {
        let place = folder();
        let work = place.path().join("work");
        let mut failed = 0;
        // Starts without any free space and ends with more than enough, so that each step of a
        // commit fails once.
        for spare in (0..=40).step_by(4).chain([80, 200, 1000, 1480, 1520, 1560, 1600, 2000]) {
            let disk = place.path().join(format!("disk{spare}"));
            mount_memory(&disk, 2 * DISK);
            let store = disk.join("store");
            well(snap(&store).arg("init"));
            versions::write(&work, "main 1");
            well(snap(&store).args(["commit", "-m", "main 1"]).arg(&work));
            versions::write(&work, "main 12");
            let filler = Filler::new(&disk, spare);
            let mut commit = snap(&store);
            commit.args(["commit", "-m", "main 12"]).arg(&work);
            let output = commit.output().unwrap();
            match output.status.code() {
                Some(0) => {}
                Some(1) => {
                    failed += 1;
                    says_so(&stderr(&output));
                    assert_eq!(log(&store, "main").len(), 1);
                }
                _ => panic!("with {spare} KiB: {}", stderr(&output)),
            }
            assert_eq!(left_over(&store), [""; 0], "with {spare} KiB: {}", stderr(&output));
            log(&store, "main").iter().for_each(|commit| restores(&store, commit));
            filler.remove();
            well(&mut commit);
            let listed = log(&store, "main");
            assert_eq!(listed.len(), 2);
            listed.iter().for_each(|commit| restores(&store, commit));
            well(snap(&store).args(["verify", "--data"]));
            assert!(mounts::tool("umount", [&disk]));
        }
        assert!(failed > 8, "only {failed} commits ran out of room");
    });
}

#[test]
fn a_restore_onto_a_full_disk_says_so_and_goes_on_when_there_is_room() {
    let test = "a_restore_onto_a_full_disk_says_so_and_goes_on_when_there_is_room";
    in_own_mounts(&format!("full_disk::{test}"), || {
        let place = folder();
        let (store, work) = (place.path().join("store"), place.path().join("work"));
        well(snap(&store).arg("init"));
        versions::write(&work, "main 1");
        well(snap(&store).args(["commit", "-m", "main 1"]).arg(&work));
        let disk = place.path().join("disk");
        mount_memory(&disk, DISK);
        // Attributes of the target are not compared, because they stay unchanged if it existed
        // before.
        let options = Options { root: false, ..Options::default() };
        for spare in [0, 8, 40, 100, 600, 1400] {
            let filler = Filler::new(&disk, spare);
            let target = disk.join("target");
            let mut restore = snap(&store);
            restore.args(["restore", "latest"]).arg(&target);
            says_so(&fails(&mut restore, 1));
            if target.exists() {
                assert_eq!(drafts(&target), Vec::<std::path::PathBuf>::new(), "with {spare} KiB");
            }
            filler.remove();
            well(&mut restore);
            assert_eq!(compare(&work, &target, &options), [""; 0]);
            fs_err::remove_dir_all(&target).unwrap();
        }
    });
}

#[test]
fn a_push_into_a_store_whose_disk_is_full_says_so_and_works_when_there_is_room() {
    let test = "a_push_into_a_store_whose_disk_is_full_says_so_and_works_when_there_is_room";
    in_own_mounts(&format!("full_disk::{test}"), || {
        let place = folder();
        let (store, work) = (place.path().join("store"), place.path().join("work"));
        well(snap(&store).arg("init"));
        versions::write(&work, "main 1");
        well(snap(&store).args(["commit", "-m", "main 1"]).arg(&work));
        let mut failed = 0;
        for spare in [0, 8, 40, 100, 600, 1400, 1480, 1520, 1560, 1600, 1640, 2000] {
            let disk = place.path().join(format!("disk{spare}"));
            mount_memory(&disk, 2 * DISK);
            let there = disk.join("store");
            well(snap(&there).arg("init"));
            let filler = Filler::new(&disk, spare);
            let mut push = snap(&store);
            push.arg("push").arg(&there);
            let output = push.output().unwrap();
            if !output.status.success() {
                failed += 1;
                let said = stderr(&output);
                assert!(said.contains("has no space left"), "with {spare} KiB: {said}");
                let staged = there.join("tmp/staged");
                let left = if staged.exists() { names(&staged) } else { Vec::new() };
                // Packs that arrived complete wait in the shared inbox; nothing else is left.
                assert!(left.iter().all(|name| name.len() == 64), "with {spare} KiB: {left:?}");
                assert!(!there.join("refs/heads/main").exists());
            }
            filler.remove();
            well(&mut push);
            let listed = log(&there, "main");
            assert_eq!(listed.len(), 1);
            restores(&there, &listed[0]);
            well(snap(&there).args(["verify", "--data"]));
            assert!(mounts::tool("umount", [&disk]));
        }
        assert!(failed > 3, "only {failed} pushes ran out of room");
    });
}

#[test]
fn a_push_to_a_server_whose_disk_is_full_says_so_and_works_when_there_is_room() {
    let test = "a_push_to_a_server_whose_disk_is_full_says_so_and_works_when_there_is_room";
    in_own_mounts(&format!("full_disk::{test}"), || {
        let place = folder();
        let (store, work) = (place.path().join("store"), place.path().join("work"));
        well(snap(&store).arg("init"));
        versions::write(&work, "main 1");
        well(snap(&store).args(["commit", "-m", "main 1"]).arg(&work));
        let mut failed = 0;
        // The disk gets full while a pack is received, while packs are published, and later.
        for spare in [0, 8, 40, 100, 600, 1400, 1480, 1520, 1560, 1600, 1640, 2000] {
            let disk = place.path().join(format!("disk{spare}"));
            mount_memory(&disk, 2 * DISK);
            let served = disk.join("store");
            well(snap(&served).arg("init"));
            let serving = Serving::start(snap(&store), &[served.to_str().unwrap()]);
            let filler = Filler::new(&disk, spare);
            let mut push = snap(&store);
            push.args(["push", &serving.url("")]);
            let output = push.output().unwrap();
            if !output.status.success() {
                failed += 1;
                let said = stderr(&output);
                assert!(said.contains("has no space left"), "with {spare} KiB: {said}");
                let staged = served.join("tmp/staged");
                let there = if staged.exists() { names(&staged) } else { Vec::new() };
                // Packs that arrived complete wait in the shared inbox; nothing else is left.
                assert!(there.iter().all(|name| name.len() == 64), "with {spare} KiB: {there:?}");
                assert!(!served.join("refs/heads/main").exists());
            }
            filler.remove();
            well(&mut push);
            let listed = log(&served, "main");
            assert_eq!(listed.len(), 1);
            restores(&served, &listed[0]);
            well(snap(&served).args(["verify", "--data"]));
            drop(serving);
            assert!(mounts::tool("umount", [&disk]));
        }
        assert!(failed > 3, "only {failed} pushes ran out of room");
    });
}
