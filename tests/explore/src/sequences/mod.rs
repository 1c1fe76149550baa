//! The random test: compares a model of files, commits, stores, remotes and damage with the real
//! program and the real library.
//!
//! A seed determines a sequence of operations (`generate`). The sequence runs in its own folders
//! (`world`, `execute`). After each step, three things are checked. Every acknowledged commit must
//! contain what the model says (`check`, `stored`). An operation must not change files that it has
//! no right to change (`check`, `restore`). Exit codes must be correct. A failing sequence is
//! minimised (`shrink`) and printed as a script with its seed.
//!
//! The clock of the program is the number of commands so far (`SNAP_TIME`), and kills come at
//! counted steps. Only the times of files are real: whether they count as settled without a wait
//! depends on the machine.

mod change;
mod check;
mod execute;
mod features;
mod files;
mod forge;
mod generate;
mod model;
mod operation;
mod remotes;
mod repair;
mod restore;
mod shrink;
mod stored;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Instant,
};

use parking_lot::Mutex;
use snap_testkit::{mounts, rng::mix};

use features::{Features, say};

/// Number of sequences at the same time: most of the time they wait until the times of files have
/// settled.
const AT_ONCE: usize = 6;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program to test.
    pub program: PathBuf,
    /// Seed of the first sequence.
    pub seed: u64,
    /// Number of sequences.
    pub sequences: u64,
    /// No sequence starts after this time.
    pub until: Option<Instant>,
    /// Number of different faults after which the run ends.
    pub faults: usize,
    /// Threads of each commit and restore; `None` for the default.
    pub jobs: Option<u32>,
}

impl Plan {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Number of sequences.
    pub sequences: u64,
    /// A report for each fault.
    pub faults: Vec<String>,
}

/// The identity of a fault: its kind, and the kinds of operations in the minimal sequence.
type Signature = (&'static str, BTreeSet<String>);

/// All faults found, with their reports.
type Found = BTreeMap<Signature, String>;

/// Number of faults of one kind that are minimised.
const PER_KIND: usize = 8;

/// Runs sequences until enough faults are found or the limits are reached.
pub fn explore(plan: &Plan) -> Outcome {
    let (sequences, found) = search(plan, &Features::detect(&plan.program));
    Outcome { sequences, faults: found.into_values().collect() }
}

fn search(plan: &Plan, features: &Features) -> (u64, Found) {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let found = Mutex::new(Found::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && !plan.is_over() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= plan.sequences {
                        next.fetch_sub(1, Ordering::Relaxed);
                        return;
                    }
                    let seed = plan.seed + number;
                    let is_wanted = |kind| {
                        let found = found.lock();
                        found.keys().filter(|(known, _)| *known == kind).count() < PER_KIND
                    };
                    if let Some((signature, report)) = try_one(plan, features, seed, is_wanted) {
                        let mut found = found.lock();
                        if !found.contains_key(&signature) {
                            say(&format!("model, after {number} sequences: {report}"));
                        }
                        found.entry(signature).or_insert(report);
                        stop.fetch_or(found.len() >= plan.faults, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    (next.into_inner(), found.into_inner())
}

/// Runs the sequence of one seed. If it finds a fault of a kind that `is_wanted`, returns the fault
/// with a report.
fn try_one(
    plan: &Plan,
    features: &Features,
    seed: u64,
    is_wanted: impl Fn(&'static str) -> bool,
) -> Option<(Signature, String)> {
    let ops = generate::sequence(mix(12, seed), features);
    let options = execute::Options {
        program: &plan.program,
        jobs: plan.jobs,
        may_mount: mounts::are_own(),
        asks: features.has("restore --yes"),
    };
    let run = |ops: &[operation::Op]| execute::run(options, ops);
    let (last, fault) = run(&ops).err()?;
    if !is_wanted(fault.kind) {
        return None;
    }
    let kind = fault.kind;
    let (ops, fault) = shrink::minimal(&ops[..=last], fault, run);
    let report = format!(
        "{kind}\nagain: tests/soak/run 1 {seed} sequences\n{}\n{}",
        operation::script(&ops),
        fault.detail
    );
    let signature = (kind, ops.iter().map(operation::Op::label).collect());
    Some((signature, report))
}
