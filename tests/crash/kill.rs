//! SIGKILL at each step of commits and of merging packs, while another process commits to another
//! branch of the same store.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use rustix::process::{Signal, kill_process};
use snap_explore::{
    steps::{self, Stop, await_halt, merge_packs, pid, spread, stop_at, was_killed},
    versions,
};

use crate::place::{
    age_left_over, copy, folder, left_over, log, names, printed_id, restores, snap, stderr, well,
};

/// Most kills in each of the two tests.
const KILLS: usize = 45;

/// After every 20 kills, all listed commits are restored, not only the newest one.
const THOROUGH_EVERY: u64 = 20;

/// A store, a line of versions committed to it, and the acknowledged commits.
struct Scene {
    store: PathBuf,
    line: &'static str,
    work: PathBuf,
    number: u64,
    acknowledged: BTreeSet<String>,
}

impl Scene {
    /// A branch of a store, and the folder that is committed to it.
    fn new(store: &Path, line: &'static str) -> Self {
        let work = store.parent().unwrap().join(line);
        let store = store.to_owned();
        Self { store, line, work, number: 0, acknowledged: BTreeSet::new() }
    }

    /// Copies the store, with the number of the copy in its name.
    fn copied(&self, number: u64) -> Self {
        let store = self.store.with_file_name(format!("store{number}"));
        copy(&self.store, &store);
        let (work, acknowledged) = (self.work.clone(), self.acknowledged.clone());
        Self { store, work, acknowledged, ..*self }
    }

    /// Returns a commit of the next version.
    fn next(&mut self) -> Command {
        self.number += 1;
        let message = format!("{} {}", self.line, self.number);
        versions::write(&self.work, &message);
        let mut command = snap(&self.store);
        command.args(["commit", "-b", self.line, "-m", &message]).arg(&self.work);
        command
    }

    fn commit(&mut self) {
        let stdout = well(&mut self.next());
        self.acknowledged.insert(printed_id(stdout.as_bytes()).unwrap());
    }

    /// Starts a commit that halts at a step.
    fn halt(&mut self, step: u64) -> Child {
        let child = stop_at(&mut self.next(), step, Stop::Halt).spawn().unwrap();
        assert!(await_halt(&child), "a commit has more than {step} steps");
        child
    }

    /// Lets a halted commit end; it must succeed.
    fn go_on(&mut self, child: Child) {
        kill_process(pid(&child), Signal::CONT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        self.acknowledged.extend(printed_id(&output.stdout));
    }

    /// Kills a commit of the next version at a step. Returns true if it was killed; it may have
    /// fewer steps.
    fn kill(&mut self, step: u64) -> bool {
        let output = stop_at(&mut self.next(), step, Stop::Kill).output().unwrap();
        self.acknowledged.extend(printed_id(&output.stdout));
        was_killed(output.status)
    }

    /// Checks the invariants after a kill.
    fn check(&self, is_thorough: bool) {
        let listed = log(&self.store, self.line);
        let ids: BTreeSet<String> = listed.iter().map(|commit| commit.id.clone()).collect();
        let lost: Vec<_> = self.acknowledged.difference(&ids).collect();
        assert!(lost.is_empty(), "acknowledged, but not listed: {lost:?}");
        let looked_at = if is_thorough { listed.len() } else { 1 };
        listed.iter().take(looked_at).for_each(|commit| restores(&self.store, commit));
    }

    /// Checks the invariants at the end: no commit is lost, all restore, and nothing is left over.
    fn finish(&mut self, is_thorough: bool) {
        age_left_over(&self.store);
        self.commit();
        assert_eq!(left_over(&self.store), [""; 0], "left over in tmp/");
        let packs = names(&self.store.join("objects")).len();
        assert!(packs <= 60, "{packs} packs");
        self.check(is_thorough);
        well(snap(&self.store).args(["verify", "--data"]));
    }
}

/// The step of a commit before it has any lock: it creates its first file.
const EARLY: u64 = 1;

#[test]
fn a_commit_killed_at_any_moment_loses_nothing_that_was_acknowledged() {
    let place = folder();
    let store = place.path().join("store");
    well(snap(&store).arg("init"));
    let (mut main, mut side) = (Scene::new(&store, "main"), Scene::new(&store, "side"));
    main.commit();
    side.commit();
    let count = steps::count(&mut main.next()).len();
    let (mut rounds, mut kills) = (0, 0);
    for step in spread(count, KILLS) {
        // The other process has begun before the kill, and goes on after it.
        let company = side.halt(EARLY);
        kills += usize::from(main.kill(step));
        side.go_on(company);
        rounds += 1;
        main.check(rounds % THOROUGH_EVERY == 0);
        side.check(rounds % THOROUGH_EVERY == 0);
    }
    assert!(kills > KILLS / 2, "only {kills} kills");
    side.finish(true);
    main.finish(true);
}

#[test]
fn merging_packs_killed_at_any_moment_loses_nothing() {
    let place = folder();
    let before = place.path().join("before");
    well(snap(&before).arg("init"));
    let mut scene = Scene::new(&before, "main");
    let steps = loop {
        scene.commit();
        let mut counted = scene.copied(0);
        let steps = steps::count(&mut counted.next());
        fs_err::remove_dir_all(&counted.store).unwrap();
        if merge_packs(&steps) {
            break steps;
        }
    };
    // The id is printed after the branch is synced, and packs are merged after that.
    let moved = steps.iter().rposition(|step| step.contains("refs/heads/main")).unwrap() + 1;
    let mut kills = 0;
    for step in spread(steps.len() - moved, KILLS).map(|step| step + moved as u64) {
        let mut scene = scene.copied(step);
        let mut side = Scene::new(&scene.store, "side");
        let company = side.halt(EARLY);
        kills += usize::from(scene.kill(step));
        scene.check(false);
        side.go_on(company);
        // The next commit merges again.
        scene.finish(false);
        side.check(true);
        fs_err::remove_dir_all(&scene.store).unwrap();
    }
    assert!(kills > KILLS / 2, "only {kills} kills");
}
