//! Short runs of the random tests, with fixed seeds. `tests/soak` runs them with fresh seeds, more
//! threads and more time.

use std::{path::PathBuf, thread};

use parking_lot::Mutex;
use snap_explore::{
    histories,
    network::{self, Kind, Pace, Struck},
    search::{Outcome, Plan},
    sequences,
};
use snap_testkit::{mounts::in_own_mounts_if_possible, skip::skip_without_program};

use crate::place::SNAP;

/// Concurrent runs against remotes. A command waits for the network most of the time.
const RUNS_AT_ONCE: usize = 3;

/// Steps of each client of a remote.
const STEPS: usize = 4;

/// The first seed of each random test.
const SEED: u64 = 1;

/// Returns the faults that this number of random sequences of one kind finds.
fn faults(explore: fn(&Plan) -> Outcome, sequences: u64) -> String {
    let program = PathBuf::from(SNAP.0);
    let plan = Plan { program, seed: SEED, sequences, until: None, faults: 1, jobs: Some(1) };
    let outcome = explore(&plan);
    assert!(outcome.sequences == sequences || !outcome.faults.is_empty());
    outcome.faults.join("\n")
}

#[test]
fn what_was_acknowledged_restores_and_nothing_else_changes() {
    let test = "random::what_was_acknowledged_restores_and_nothing_else_changes";
    in_own_mounts_if_possible(test, || assert_eq!(faults(sequences::explore, 40), ""));
}

#[test]
fn only_a_collection_deletes_and_only_what_nothing_keeps() {
    assert_eq!(faults(histories::explore, 24), "");
}

#[test]
fn no_fault_of_the_network_loses_what_was_acknowledged() {
    let test = "random::no_fault_of_the_network_loses_what_was_acknowledged";
    in_own_mounts_if_possible(test, || {
        let plan = network::Plan {
            program: PathBuf::from(SNAP.0),
            seed: SEED,
            pace: Pace::Counted,
            steps: STEPS,
        };
        let kinds = Mutex::new(Kind::ALL.into_iter());
        let found = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..RUNS_AT_ONCE {
                scope.spawn(|| {
                    loop {
                        let Some(kind) = kinds.lock().next() else { return };
                        if !kind.is_possible() {
                            skip_without_program(&format!("{test}, {}", kind.name()), "sshd");
                            continue;
                        }
                        let faults = network::explore(&plan, kind, &mut Struck::default());
                        found.lock().extend(faults);
                    }
                });
            }
        });
        let found = found.into_inner();
        assert!(found.is_empty(), "{}", found.join("\n"));
    });
}
