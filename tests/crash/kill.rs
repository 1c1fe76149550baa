//! SIGKILL at random moments of commits and of merging packs, while another process commits to
//! another branch of the same store.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Child,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use snap_testkit::rng::Rng;

use crate::{
    place::{
        age_left_over, await_id, folder, kill, left_over, log, names, printed_id, restores, snap,
        stderr, well,
    },
    versions,
};

/// Number of killed commits in each of the two tests.
const KILLS: u64 = 150;

/// Number of commits before the first kill, to measure their duration.
const WARM_UP: u64 = 10;

/// After every 50 kills, all listed commits are restored, not only the newest one.
const THOROUGH_EVERY: u64 = 50;

/// A store, a line of versions committed to it, and the acknowledged commits.
struct Scene<'s> {
    store: &'s Path,
    work: PathBuf,
    number: u64,
    acknowledged: BTreeSet<String>,
}

impl<'s> Scene<'s> {
    fn new(store: &'s Path, work: PathBuf) -> Self {
        Self { store, work, number: 0, acknowledged: BTreeSet::new() }
    }

    /// Starts a commit of the next version.
    fn start(&mut self) -> Child {
        self.number += 1;
        let message = format!("main {}", self.number);
        versions::write(&self.work, &message);
        let mut command = snap(self.store);
        command.args(["commit", "-b", "main", "-m", &message]).arg(&self.work).spawn().unwrap()
    }

    /// Commits without a kill. Returns the time until the id, and the time from then to the end.
    fn commit(&mut self) -> (Duration, Duration) {
        let start = Instant::now();
        let mut child = self.start();
        let id = await_id(&mut child);
        let until_id = start.elapsed();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        self.acknowledged.extend(id);
        (until_id, start.elapsed() - until_id)
    }

    /// Checks the invariants after a kill.
    fn check(&self, kills: u64) {
        let listed = log(self.store, "main");
        let ids: BTreeSet<String> = listed.iter().map(|commit| commit.id.clone()).collect();
        let lost: Vec<_> = self.acknowledged.difference(&ids).collect();
        assert!(lost.is_empty(), "acknowledged, but not listed: {lost:?}");
        let looked_at = if kills.is_multiple_of(THOROUGH_EVERY) { listed.len() } else { 1 };
        listed.iter().take(looked_at).for_each(|commit| restores(self.store, commit));
    }

    /// Checks the invariants at the end: no commit is lost, all restore, and nothing is left over.
    fn finish(&mut self, beside: &BTreeSet<String>) {
        age_left_over(self.store);
        self.commit();
        assert_eq!(left_over(self.store), [""; 0], "left over in tmp/");
        let packs = names(&self.store.join("objects")).len();
        assert!(packs <= 60, "{packs} packs");
        self.check(0);
        let listed = log(self.store, "side");
        listed.iter().for_each(|commit| restores(self.store, commit));
        let ids = listed.into_iter().map(|commit| commit.id).collect();
        let lost: Vec<_> = beside.difference(&ids).collect();
        assert!(lost.is_empty(), "acknowledged, but not listed: {lost:?}");
        well(snap(self.store).args(["verify", "--data"]));
    }
}

/// Commits to the branch `side` until `stop` is set; returns the acknowledged commits. None of
/// these commits may fail, even if the other process is killed.
fn commit_beside(store: &Path, work: &Path, stop: &AtomicBool) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for number in 1.. {
        let message = format!("side {number}");
        versions::write(work, &message);
        let mut command = snap(store);
        let stdout = well(command.args(["commit", "-b", "side", "-m", &message]).arg(work));
        acknowledged.insert(printed_id(stdout.as_bytes()).unwrap());
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // Slow enough that the killed process makes progress.
        thread::sleep(Duration::from_millis(150));
    }
    acknowledged
}

/// Runs `rounds` of kills while another process commits, then checks the end.
fn with_company(rounds: impl FnOnce(&mut Scene<'_>)) {
    let place = folder();
    let store = place.path().join("store");
    well(snap(&store).arg("init"));
    let mut scene = Scene::new(&store, place.path().join("main"));
    scene.commit();
    let stop = AtomicBool::new(false);
    let beside = thread::scope(|scope| {
        let side = place.path().join("side");
        let (store, stop) = (&store, &stop);
        let company = scope.spawn(move || commit_beside(store, &side, stop));
        // The other process must stop even if this thread panics.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rounds(&mut scene)));
        stop.store(true, Ordering::Relaxed);
        let beside = company.join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        beside.unwrap()
    });
    scene.finish(&beside);
}

#[test]
fn a_commit_killed_at_any_moment_loses_nothing_that_was_acknowledged() {
    with_company(|scene| {
        let times = (0..WARM_UP).map(|_| scene.commit());
        let longest = times.map(|(until_id, rest)| until_id + rest).max().unwrap();
        let mut rng = Rng::new(2026);
        let mut acknowledged = 0;
        for kills in 1..=KILLS {
            let child = scene.start();
            thread::sleep(longest.mul_f64(rng.unit()));
            let mut child = child;
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            if let Some(id) = printed_id(&output.stdout) {
                acknowledged += 1;
                scene.acknowledged.insert(id);
            }
            scene.check(kills);
        }
        // Otherwise the kills were not spread over the whole commit.
        assert!((1..KILLS).contains(&acknowledged), "{acknowledged} of {KILLS} commits succeeded");
    });
}

#[test]
fn merging_packs_killed_at_any_moment_loses_nothing() {
    with_company(|scene| {
        // These kills come after the commit: packs are merged after the id is printed. If a merge
        // is killed, the next commit merges again.
        let times = (0..WARM_UP).map(|_| scene.commit());
        let longest = times.map(|(_, rest)| rest).max().unwrap();
        let mut rng = Rng::new(2027);
        for kills in 1..=KILLS {
            let mut child = scene.start();
            let id = await_id(&mut child);
            thread::sleep(longest.mul_f64(rng.unit()));
            let said = kill(child);
            assert!(id.is_some(), "ended without an id: {said}");
            scene.acknowledged.extend(id);
            scene.check(kills);
        }
    });
}
