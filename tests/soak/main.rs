//! Tests that explore, with a fresh seed and for a given time; `run` builds and calls this.
//!
//!     soak KIND PROGRAM SECONDS SEED
//!
//! | kind | what |
//! |---|---|
//! | `sequences` | random sequences of commands, against a model |
//! | `histories` | random histories of several stores, against a model |
//! | `network`, `network:NAME` | random clients of each kind of remote, or of one, behind a faulty proxy |
//! | `ignore` | random patterns of ignore files, against git |
//! | `storms` | `kill -9` by the clock, of commits and of a server |
//! | `hostile` | thousands of hostile clients of a server |
//! | `model` | every interleaving of the larger scenarios of garbage collection |
//!
//! The program ends with an error when it finds something.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "a report for whoever runs it")]

mod hostile;
mod ignore;
mod storms;

use std::{
    env,
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use snap_explore::{
    histories,
    network::{self, Kind, Pace, Struck},
    program::Program,
    search::{self, Plan},
    sequences,
};
use snap_model::{Guards, Outcome};

/// Steps of each client of a remote in one run.
const STEPS: usize = 10;

/// Concurrent runs against remotes. A command waits for the network most of the time.
const RUNS_AT_ONCE: usize = 3;

/// States of a scenario of the model: about a gigabyte of memory.
const MODEL_STATES: usize = 12_000_000;

/// Different faults of sequences after which the run ends.
const FAULTS: usize = 3;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let [kind, program, seconds, seed] = &args[..] else {
        println!("usage: soak KIND PROGRAM SECONDS SEED");
        return ExitCode::from(2);
    };
    let until = Instant::now() + Duration::from_secs(seconds.parse().unwrap());
    let seed = seed.parse().unwrap();
    let found = match kind.split_once(':').unwrap_or((kind, "")) {
        ("sequences", _) => search(sequences::explore, program, until, seed),
        ("histories", _) => search(histories::explore, program, until, seed),
        ("network", name) => network(program, until, seed, name),
        ("ignore", _) => ignore::run(Program(program), until, seed),
        ("storms", _) => storms::run(Program(program), until, seed),
        ("hostile", _) => hostile::run(Program(program), until, seed),
        ("model", _) => model(),
        _ => vec![format!("there is no kind `{kind}`")],
    };
    println!("{}", found.join("\n"));
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explores all scenarios of the model of garbage collection, whatever the time.
fn model() -> Vec<String> {
    let mut found = Vec::new();
    for scenario in snap_model::small().into_iter().chain(snap_model::large()) {
        let name = scenario.name;
        let outcome = snap_model::explore(scenario, Guards::default(), MODEL_STATES);
        println!("{name}: {outcome}");
        if !matches!(outcome, Outcome::Explored { .. }) {
            found.push(format!("{name}: {outcome}"));
        }
    }
    found
}

/// Runs random sequences of one kind.
fn search(
    explore: fn(&Plan) -> search::Outcome,
    program: &str,
    until: Instant,
    seed: u64,
) -> Vec<String> {
    let outcome = explore(&Plan {
        program: PathBuf::from(program),
        seed,
        sequences: u64::MAX,
        until: Some(until),
        faults: FAULTS,
        jobs: None,
    });
    println!("{} sequences", outcome.sequences);
    outcome.faults
}

/// Runs the kinds of remotes in turn, with one seed after the other.
fn network(program: &str, until: Instant, seed: u64, only: &str) -> Vec<String> {
    let kinds = Kind::ALL.into_iter().filter(|kind| only.is_empty() || kind.name() == only);
    let (kinds, skipped): (Vec<Kind>, Vec<Kind>) = kinds.partition(|kind| kind.is_possible());
    for kind in skipped {
        println!("{}: skipped: sshd is not installed", kind.name());
    }
    let Some(count) = u64::try_from(kinds.len()).ok().filter(|count| *count > 0) else {
        return Vec::new();
    };
    let (next, found) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let struck = Mutex::new(Struck::default());
    thread::scope(|scope| {
        for _ in 0..RUNS_AT_ONCE {
            scope.spawn(|| {
                while Instant::now() < until && found.lock().is_empty() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let plan = network::Plan {
                        program: PathBuf::from(program),
                        seed: seed + number / count,
                        pace: Pace::Timed,
                        steps: STEPS,
                    };
                    let mut met = Struck::default();
                    let faults =
                        network::explore(&plan, kinds[(number % count) as usize], &mut met);
                    struck.lock().join(&met);
                    found.lock().extend(faults);
                }
            });
        }
    });
    println!("{} runs, {:?}", next.into_inner(), struck.into_inner());
    found.into_inner()
}
