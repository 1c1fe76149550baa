//! SIGKILL at random moments of a restore: each visible file is complete, and another run completes
//! the restore.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime},
};

use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, mkfifoat, utimensat};
use snap_testkit::{
    bytes::Corpus,
    compare::{Options, compare},
    rng::Rng,
    trees,
};

use crate::place::{drafts, folder, snap, well};

/// Number of target folders.
const TARGETS: usize = 12;

/// Number of kills for each target, before a restore may finish.
const KILLS_EACH: usize = 4;

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
    trees::text_files(&source, 600, 4096).unwrap();
    for (name, seed) in [("film", 1), ("disk", 2)] {
        let content = Corpus::Random.make_seeded(6 << 20, seed);
        fs_err::write(source.join(name), content).unwrap();
    }
    well(snap(&store).arg("init"));
    well(snap(&store).args(["commit", "-m", "all"]).arg(&source));

    let restore = |target: &Path| {
        let mut command = snap(&store);
        command.args(["restore", "latest"]).arg(target);
        command
    };
    let start = Instant::now();
    well(&mut restore(&place.path().join("first")));
    let longest = start.elapsed();

    let options = Options::default();
    let mut rng = Rng::new(2028);
    let mut cut_short = 0;
    for number in 0..TARGETS {
        let target = place.path().join(format!("target{number}"));
        for _ in 0..KILLS_EACH {
            let mut child = restore(&target).spawn().unwrap();
            thread::sleep(longest.mul_f64(rng.unit()));
            child.kill().unwrap();
            cut_short += usize::from(!child.wait().unwrap().success());
            if target.exists() {
                is_whole(&source, &target);
            }
        }
        well(&mut restore(&target));
        assert_eq!(compare(&source, &target, &options), [""; 0]);
        assert_eq!(drafts(&target), Vec::<std::path::PathBuf>::new(), "left over");
        fs_err::remove_dir_all(&target).unwrap();
    }
    assert!(cut_short > TARGETS, "only {cut_short} restores were cut short");
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

/// Restores many entries, which `make` creates in the source. Kills each restore while it sets
/// attributes, and runs it again.
fn kill_while_made(make: &dyn Fn(&Path)) {
    /// Enough that making them takes tens of milliseconds.
    const ENTRIES: usize = 1500;
    let place = folder();
    let (store, source) = (place.path().join("store"), place.path().join("source"));
    fs_err::create_dir(&source).unwrap();
    let names: Vec<String> = (0..ENTRIES).map(|number| format!("entry-{number:04}")).collect();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    for name in &names {
        let path = source.join(name);
        make(&path);
        utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    well(snap(&store).arg("init"));
    well(snap(&store).args(["commit", "-m", "all"]).arg(&source));

    let mut rng = Rng::new(2029);
    let mut cut_short = 0;
    for number in 0..30 {
        let target = place.path().join(format!("target{number}"));
        // In a folder that was there before, attributes that differ count as the user's own.
        fs_err::create_dir(&target).unwrap();
        let restore = || {
            let mut command = snap(&store);
            command.args(["restore", "latest"]).arg(&target);
            command
        };
        let mut child = restore().spawn().unwrap();
        // The first entry is finished first; the others follow.
        let is_begun = || {
            let first = fs_err::symlink_metadata(target.join(&names[0]));
            first.is_ok_and(|found| found.modified().is_ok_and(|time| time == old))
        };
        let start = Instant::now();
        while !is_begun() && start.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_micros(100));
        }
        thread::sleep(Duration::from_micros(rng.below(8_000)));
        child.kill().unwrap();
        cut_short += usize::from(!child.wait().unwrap().success());
        well(&mut restore());
        let options = Options { root: false, ..Options::default() };
        assert_eq!(compare(&source, &target, &options), [""; 0]);
        fs_err::remove_dir_all(&target).unwrap();
    }
    assert!(cut_short > 5, "only {cut_short} restores were cut short");
}
