//! SIGKILL at random moments of a restore: what is visible is whole, and
//! running it again completes it.

use std::{path::Path, thread, time::Instant};

use snap_testkit::{
    bytes::Corpus,
    compare::{Options, compare},
    rng::Rng,
    trees,
};

use crate::place::{drafts, folder, snap, well};

/// Folders that are restored into.
const TARGETS: usize = 12;

/// How often a restore into one is killed before it may finish.
const KILLS_EACH: usize = 4;

/// Every file below `target` that has its name is that of `source`, whole.
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

    // The target itself is left alone when it was there before.
    let options = Options { root: false, ..Options::default() };
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
