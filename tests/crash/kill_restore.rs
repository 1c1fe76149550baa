//! SIGKILL at each step of a restore: each visible file is complete, and another run completes the
//! restore.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, mkfifoat, utimensat};
use snap_explore::steps::{self, Stop, spread, stop_at, was_killed};
use snap_testkit::{
    bytes::Corpus,
    compare::{Options, compare},
    trees,
};

use crate::place::{drafts, folder, snap, well};

/// Most kills of a restore of many kinds of files.
const KILLS: usize = 30;

/// Most kills of a restore of entries of one kind.
const KILLS_OF_KIND: usize = 24;

/// Checks that every file below `target` with its final name is equal to that of `source`.
fn is_whole(source: &Path, target: &Path) {
    let options = Options::content_only();
    let wrong: Vec<String> = compare(source, target, &options)
        .into_iter()
        .filter(|line| !line.contains("missing") && !line.contains(".snap-tmp-"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_restore_killed_at_any_moment_shows_whole_files_only_and_can_be_run_again() {
    let place = folder();
    let (store, source) = (place.path().join("store"), place.path().join("source"));
    trees::text_files(&source, 60, 4096).unwrap();
    for (name, seed) in [("film", 1), ("disk", 2)] {
        let content = Corpus::Random.make_seeded(3 << 20, seed);
        fs_err::write(source.join(name), content).unwrap();
    }
    well(snap(&store).arg("init"));
    well(snap(&store).args(["commit", "-m", "all"]).arg(&source));

    let restore = |target: &Path| {
        let mut command = snap(&store);
        command.args(["restore", "latest"]).arg(target);
        command
    };
    let count = steps::count(&mut restore(&place.path().join("first"))).len();
    let options = Options::default();
    let mut kills = 0;
    for step in spread(count, KILLS) {
        let target = place.path().join(format!("target{step}"));
        // The second run begins with what the first one left.
        for step in [step, step.div_ceil(2)] {
            let output = stop_at(&mut restore(&target), step, Stop::Kill).output().unwrap();
            kills += usize::from(was_killed(output.status));
            if target.exists() {
                is_whole(&source, &target);
            }
        }
        well(&mut restore(&target));
        assert_eq!(compare(&source, &target, &options), [""; 0], "killed at {step}");
        assert_eq!(drafts(&target), Vec::<std::path::PathBuf>::new(), "left over");
        fs_err::remove_dir_all(&target).unwrap();
    }
    assert!(kills > KILLS, "only {kills} kills");
}

#[test]
fn a_restore_killed_while_folders_get_their_attributes_finishes_them_when_run_again() {
    kill_while_made(&|path| fs_err::create_dir(path).unwrap());
}

#[test]
fn a_restore_killed_while_it_makes_links_finishes_them_when_run_again() {
    kill_while_made(&|path| std::os::unix::fs::symlink("target", path).unwrap());
}

#[test]
fn a_restore_killed_while_it_makes_pipes_finishes_them_when_run_again() {
    kill_while_made(&|path| mkfifoat(CWD, path, Mode::from_raw_mode(0o644)).unwrap());
}

/// Restores some entries, which `make` creates in the source. Kills the restore at each step: while
/// it creates them, and while it sets their attributes. Then runs it again.
fn kill_while_made(make: &dyn Fn(&Path)) {
    const ENTRIES: usize = 12;
    let place = folder();
    let (store, source) = (place.path().join("store"), place.path().join("source"));
    fs_err::create_dir(&source).unwrap();
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    for number in 0..ENTRIES {
        let path = source.join(format!("entry-{number:04}"));
        make(&path);
        utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    well(snap(&store).arg("init"));
    well(snap(&store).args(["commit", "-m", "all"]).arg(&source));

    // In a folder that was there before, attributes that differ count as the user's own.
    let target = |number: u64| {
        let target = place.path().join(format!("target{number}"));
        fs_err::create_dir(&target).unwrap();
        target
    };
    let restore = |target: &Path| {
        let mut command = snap(&store);
        command.args(["restore", "latest"]).arg(target);
        command
    };
    let count = steps::count(&mut restore(&target(0))).len();
    assert!(count >= 2 * ENTRIES, "only {count} steps");
    let options = Options { root: false, ..Options::default() };
    for step in spread(count, KILLS_OF_KIND) {
        let target = target(step);
        let output = stop_at(&mut restore(&target), step, Stop::Kill).output().unwrap();
        assert!(was_killed(output.status), "not killed at {step}");
        well(&mut restore(&target));
        assert_eq!(compare(&source, &target, &options), [""; 0], "killed at {step}");
        fs_err::remove_dir_all(&target).unwrap();
    }
}

#[test]
fn a_restore_killed_at_any_step_changes_nothing_that_was_there() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    let place = folder();
    let (store, source) = (place.path().join("store"), place.path().join("source"));
    let set = |path: &Path, mode: u32| {
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let write = |top: &Path, name: &str| {
        let path = top.join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, name).unwrap();
        set(path.parent().unwrap(), 0o755);
        set(&path, 0o644);
    };
    for name in ["there/key", "there/new", "key", "made/deep/new"] {
        write(&source, name);
    }
    std::os::unix::fs::symlink("key", source.join("there/link")).unwrap();
    well(snap(&store).arg("init"));
    well(snap(&store).args(["commit", "-m", "all"]).arg(&source));
    // The user has closed these since.
    let closed = [("there/key", 0o600), ("there", 0o700), ("key", 0o400), ("", 0o750)];
    let prepare = |target: &Path| {
        write(target, "there/key");
        write(target, "key");
        std::os::unix::fs::symlink("key", target.join("there/link")).unwrap();
        closed.iter().for_each(|(name, mode)| set(&target.join(name), *mode));
    };
    let seen = |target: &Path| {
        ["there/key", "there", "there/link", "key", ""].map(|name| {
            let meta = fs_err::symlink_metadata(target.join(name)).unwrap();
            (meta.ino(), meta.mode(), meta.uid(), meta.is_file().then(|| meta.mtime_nsec()))
        })
    };
    let restore = |target: &Path| {
        let mut command = snap(&store);
        command.args(["restore", "latest"]).arg(target);
        command
    };
    let first = place.path().join("first");
    prepare(&first);
    let log = place.path().join("steps");
    let output = restore(&first).env("SNAP_TEST_STEP_LOG", &log).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "the differences are listed");
    let count = fs_err::read_to_string(&log).unwrap().lines().count();
    for step in spread(count, KILLS) {
        let target = place.path().join(format!("target{step}"));
        prepare(&target);
        let before = seen(&target);
        stop_at(&mut restore(&target), step, Stop::Kill).output().unwrap();
        assert_eq!(seen(&target), before, "killed at step {step}");
        let output = restore(&target).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "step {step}");
        assert_eq!(seen(&target), before, "run again after step {step}");
        for name in ["made", "made/deep"] {
            let mode = fs_err::metadata(target.join(name)).unwrap().mode() & 0o7777;
            assert_eq!(mode, 0o755, "{name} after step {step}");
        }
        for name in ["made/deep/new", "there/new"] {
            assert!(target.join(name).exists(), "{name} after step {step}");
        }
    }
}
