//! Searches for faults: runs random sequences of operations, and minimises each one that fails.
//!
//! A seed determines a sequence. A failing sequence is minimised (`shrink`) and printed as
//! a script with its seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    io::Write as _,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Instant,
};

use parking_lot::Mutex;

use crate::shrink;

/// Number of sequences at the same time: they often wait for processes, and some wait until the
/// times of files have settled.
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

/// A fault of the program that a sequence found.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// A short description that does not depend on the sequence.
    pub(crate) kind: &'static str,
    /// The paths, ids and messages.
    pub(crate) detail: String,
}

impl Fault {
    /// Makes a fault of this kind.
    pub(crate) fn new(kind: &'static str, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

/// The number of the failing step, and its fault.
pub(crate) type Failure = (usize, Fault);

/// Random sequences of one kind.
pub(crate) trait Scenario: Sync {
    /// A step. It names everything that it needs, and does nothing if that is missing, so that each
    /// subset of a sequence is a sequence. Its text is a line of a script.
    type Op: Clone + Display;

    /// The kind of `tests/soak/run`.
    const NAME: &'static str;

    /// Runs of a candidate of the minimiser before it counts as not failing.
    const TRIES: usize;

    /// Generates the sequence of a seed.
    fn sequence(&self, seed: u64) -> Vec<Self::Op>;

    /// Runs a sequence in folders of its own.
    fn run(&self, ops: &[Self::Op]) -> Result<(), Failure>;

    /// Returns the kind of an operation, to tell faults apart.
    fn label(op: &Self::Op) -> String;
}

/// The identity of a fault: its kind, and the kinds of operations in the minimal sequence.
type Signature = (&'static str, BTreeSet<String>);

/// All faults found, with their reports.
type Found = BTreeMap<Signature, String>;

/// Number of faults of one kind that are minimised.
const PER_KIND: usize = 8;

/// Runs sequences until enough faults are found or the limits are reached.
pub(crate) fn run<S: Scenario>(plan: &Plan, scenario: &S) -> Outcome {
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
                    if let Some((signature, report)) = try_one(scenario, seed, is_wanted) {
                        let mut found = found.lock();
                        if !found.contains_key(&signature) {
                            say(&format!("{}, after {number} sequences: {report}", S::NAME));
                        }
                        found.entry(signature).or_insert(report);
                        stop.fetch_or(found.len() >= plan.faults, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    Outcome { sequences: next.into_inner(), faults: found.into_inner().into_values().collect() }
}

/// Runs the sequence of one seed. If it finds a fault of a kind that `is_wanted`, returns the fault
/// with a report.
fn try_one<S: Scenario>(
    scenario: &S,
    seed: u64,
    is_wanted: impl Fn(&'static str) -> bool,
) -> Option<(Signature, String)> {
    let ops = scenario.sequence(seed);
    let (last, fault) = scenario.run(&ops).err()?;
    if !is_wanted(fault.kind) {
        return None;
    }
    let kind = fault.kind;
    say(&format!("{}, seed {seed}, step {last}: {kind}; minimising\n{}", S::NAME, fault.detail));
    let (ops, fault) = shrink::minimal(&ops[..=last], fault, S::TRIES, |ops| scenario.run(ops));
    let script: String = ops.iter().map(|op| format!("{op}\n")).collect();
    let report =
        format!("{kind}\nagain: tests/soak/run 1 {seed} {}\n{script}\n{}", S::NAME, fault.detail);
    Some(((kind, ops.iter().map(S::label).collect()), report))
}

/// Writes a line directly to stderr, because the test harness would capture `eprintln!`.
pub(crate) fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}
