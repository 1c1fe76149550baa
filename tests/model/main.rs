//! The random test: compares a model of files, commits, stores, remotes and damage with the real
//! program and the real library.
//!
//! A seed determines a sequence of operations (`generate`). The sequence runs in its own folders
//! (`world`, `execute`). After each step, three things are checked. Every acknowledged commit must
//! contain what the model says (`check`, `stored`). An operation must not change files that it has
//! no right to change (`check`, `restore`). Exit codes must be correct. A failing sequence is
//! minimised (`shrink`) and printed as a script with its seed.
//!
//! | variable               | meaning                                        |
//! |------------------------|------------------------------------------------|
//! | `SNAP_MODEL_SEED`      | seed of the first sequence; default 1          |
//! | `SNAP_MODEL_SEQUENCES` | number of sequences; default 400               |
//! | `SNAP_MODEL_SECONDS`   | time limit for all sequences                   |
//! | `SNAP_MODEL_BINARY`    | another program to test, such as an older one  |
//! | `SNAP_MODEL_FAULTS`    | number of different faults to find; default 1  |

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod change;
mod check;
mod execute;
mod features;
mod files;
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
    env,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use snap_testkit::{mounts, rng::mix};

use features::{Features, say};

/// Number of parallel sequences for each core: most of the time they wait until the times of files
/// have settled.
const THREADS_PER_CORE: usize = 3;

/// Parameters of a run, from the environment.
struct Plan {
    seed: u64,
    sequences: u64,
    until: Option<Instant>,
    faults: usize,
    program: PathBuf,
    may_mount: bool,
}

impl Plan {
    fn read() -> Self {
        let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
        let seconds = number("SNAP_MODEL_SECONDS");
        let own = env!("CARGO_BIN_EXE_snap");
        Self {
            seed: number("SNAP_MODEL_SEED").unwrap_or(1),
            sequences: number("SNAP_MODEL_SEQUENCES").unwrap_or(400),
            until: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
            faults: number("SNAP_MODEL_FAULTS").unwrap_or(1) as usize,
            program: env::var_os("SNAP_MODEL_BINARY").map_or(own.into(), PathBuf::from),
            may_mount: mounts::are_own(),
        }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// The identity of a fault: its kind, and the kinds of operations in the minimal sequence.
type Signature = (&'static str, BTreeSet<String>);

/// All faults found, with their reports.
type Found = BTreeMap<Signature, String>;

/// Number of faults of one kind that are minimised.
const PER_KIND: usize = 8;

#[test]
fn what_was_acknowledged_restores_and_nothing_else_changes() {
    let test = "what_was_acknowledged_restores_and_nothing_else_changes";
    mounts::in_own_mounts_if_possible(test, || {
        let plan = Plan::read();
        let features = Features::detect(&plan.program);
        let began = Instant::now();
        let (done, found) = search(&plan, &features);
        let secs = began.elapsed().as_secs_f64();
        say(&format!("model: {done} sequences from seed {} in {secs:.0} s", plan.seed));
        let reports: Vec<_> = found.into_values().collect();
        assert!(reports.is_empty(), "{}", reports.join("\n"));
    });
}

/// Runs sequences until enough faults are found or the limits are reached.
fn search(plan: &Plan, features: &Features) -> (u64, Found) {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let found = Mutex::new(Found::new());
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..cores * THREADS_PER_CORE {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && !plan.is_over() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= plan.sequences {
                        next.fetch_sub(1, Ordering::Relaxed);
                        return;
                    }
                    let seed = plan.seed + number;
                    let is_wanted = |kind| {
                        let found = found.lock().unwrap();
                        found.keys().filter(|(known, _)| *known == kind).count() < PER_KIND
                    };
                    if let Some((signature, report)) = try_one(plan, features, seed, is_wanted) {
                        let mut found = found.lock().unwrap();
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
    (next.into_inner(), found.into_inner().unwrap())
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
    let run = |ops: &[operation::Op]| {
        execute::run(&plan.program, plan.may_mount, features.has("restore --yes"), ops)
    };
    let (last, fault) = run(&ops).err()?;
    if !is_wanted(fault.kind) {
        return None;
    }
    let kind = fault.kind;
    let (ops, fault) = shrink::minimal(&ops[..=last], fault, run);
    let report = format!(
        "{kind}\nseed: SNAP_MODEL_SEED={seed} SNAP_MODEL_SEQUENCES=1\n{}\n{}",
        operation::script(&ops),
        fault.detail
    );
    let signature = (kind, ops.iter().map(operation::Op::label).collect());
    Some((signature, report))
}
