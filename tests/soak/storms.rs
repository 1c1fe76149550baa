//! Storms of `kill -9`, by the clock: of commits and merges beside another process, and of a server
//! during pushes. Commits use all cores.
//!
//! `tests/crash` kills at counted steps, with one thread. Here other threads and processes are at
//! any point when the kill comes.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use snap_explore::{
    program::{Program, age_left_over, folder, left_over, printed_id, stderr, well},
    serving::Serving,
    versions,
};
use snap_testkit::rng::Rng;

/// Kills in one storm.
const KILLS: u64 = 40;

/// Longest time before a kill; a commit of a debug build takes about half of this.
const LONGEST_MILLIS: u64 = 150;

/// Alternates between the storms until the time is over. A violated promise panics.
pub(crate) fn run(program: Program<'_>, until: Instant, seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let mut kills = 0;
    while Instant::now() < until {
        commits(program, &mut rng);
        server(program, &mut rng);
        kills += 2 * KILLS;
    }
    println!("{kills} kills");
    Vec::new()
}

fn wait(rng: &mut Rng) {
    thread::sleep(Duration::from_micros(rng.below(LONGEST_MILLIS * 1000)));
}

/// A line of versions of a store, and the acknowledged commits.
struct Line<'p> {
    program: Program<'p>,
    store: PathBuf,
    name: &'static str,
    number: u64,
    acknowledged: BTreeSet<String>,
}

impl<'p> Line<'p> {
    fn new(program: Program<'p>, store: &Path, name: &'static str) -> Self {
        let store = store.to_owned();
        Self { program, store, name, number: 0, acknowledged: BTreeSet::new() }
    }

    /// Returns a commit of the next version.
    fn next(&mut self) -> Command {
        self.number += 1;
        let (work, message) =
            (self.store.with_file_name(self.name), format!("{} {}", self.name, self.number));
        versions::write(&work, &message);
        let mut command = self.program.snap(&self.store);
        command.args(["commit", "-b", self.name, "-m", &message]).arg(work);
        command.env_remove("SNAP_JOBS");
        command
    }

    fn commit(&mut self) {
        let stdout = well(&mut self.next());
        self.acknowledged.extend(printed_id(stdout.as_bytes()));
    }

    /// Checks that no acknowledged commit is lost, and that the newest commits restore.
    fn check(&self, restored: usize) {
        let listed = self.program.log(&self.store, self.name);
        let ids: BTreeSet<String> = listed.iter().map(|commit| commit.id.clone()).collect();
        let lost: Vec<_> = self.acknowledged.difference(&ids).collect();
        assert!(lost.is_empty(), "acknowledged, but not listed: {lost:?}");
        let newest = listed.iter().take(restored);
        newest.for_each(|commit| self.program.restores(&self.store, commit));
    }
}

/// Kills commits and merges while another process commits to another branch.
fn commits(program: Program<'_>, rng: &mut Rng) {
    let place = folder();
    let store = place.path().join("store");
    well(program.snap(&store).arg("init"));
    let (mut main, mut side) =
        (Line::new(program, &store, "main"), Line::new(program, &store, "side"));
    main.commit();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (side, stop) = (&mut side, &stop);
        let company = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                side.commit();
            }
        });
        // The other process must stop even if this thread panics.
        let done = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..KILLS {
                let mut child = main.next().spawn().unwrap();
                wait(rng);
                child.kill().unwrap();
                let output = child.wait_with_output().unwrap();
                main.acknowledged.extend(printed_id(&output.stdout));
                main.check(1);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let company = company.join();
        done.and(company).unwrap_or_else(|panic| resume_unwind(panic));
    });
    age_left_over(&store);
    main.commit();
    assert_eq!(left_over(&store), [""; 0], "left over in tmp/");
    main.check(usize::MAX);
    side.check(usize::MAX);
    well(program.snap(&store).args(["verify", "--data"]));
}

/// Kills a server, and sometimes the client too, during pushes.
fn server(program: Program<'_>, rng: &mut Rng) {
    let place = folder();
    let (store, served) = (place.path().join("store"), place.path().join("served"));
    for store in [&store, &served] {
        well(program.snap(store).arg("init"));
    }
    let rest = [served.to_str().unwrap()];
    let mut serving = Serving::start(program.bare(), &rest);
    let mut main = Line::new(program, &store, "main");
    let mut before = None;
    for number in 0..KILLS {
        main.commit();
        let after = Some(program.log(&store, "main")[0].id.clone());
        let mut push = program.snap(&store);
        push.args(["push", &serving.url("")]);
        let mut child = push.spawn().unwrap();
        wait(rng);
        serving.kill();
        if rng.below(4) == 0 {
            child.kill().unwrap();
        }
        // No repair runs before the check.
        let listed = match before {
            None => Vec::new(),
            Some(_) => program.log(&served, "main"),
        };
        let stands = listed.first().map(|listed| listed.id.clone());
        assert!(before.is_none() || stands == before || stands == after, "{stands:?} at {number}");
        well(program.snap(&served).args(["verify", "--data"]));
        serving.restart(program.bare(), &rest);
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            let stands = program.log(&served, "main")[0].id.clone();
            assert_eq!(Some(stands), after, "acknowledged and lost at {number}");
        }
        well(&mut push);
        let listed = program.log(&served, "main");
        assert_eq!(Some(&listed[0].id), after.as_ref(), "{}", stderr(&output));
        program.restores(&served, &listed[0]);
        before = after;
    }
}
