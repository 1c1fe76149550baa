//! Short runs of the random tests, with fixed seeds. `tests/soak` runs them with fresh seeds, more
//! threads and more time.

use std::{path::PathBuf, thread};

use parking_lot::Mutex;
use snap_explore::{
    network::{self, Kind, Pace, Struck},
    sequences,
};
use snap_testkit::{mounts::in_own_mounts_if_possible, skip::skip_without_program};

use crate::place::SNAP;

/// Concurrent runs against remotes. A command waits for the network most of the time.
const RUNS_AT_ONCE: usize = 3;

/// Steps of each client of a remote.
const STEPS: usize = 4;

#[test]
fn what_was_acknowledged_restores_and_nothing_else_changes() {
    let test = "random::what_was_acknowledged_restores_and_nothing_else_changes";
    in_own_mounts_if_possible(test, || {
        let outcome = sequences::explore(&sequences::Plan {
            program: PathBuf::from(SNAP.0),
            seed: 1,
            sequences: 40,
            until: None,
            faults: 1,
            jobs: Some(1),
        });
        assert_eq!((outcome.sequences, outcome.faults.join("\n")), (40, String::new()));
    });
}

#[test]
fn no_fault_of_the_network_loses_what_was_acknowledged() {
    let test = "random::no_fault_of_the_network_loses_what_was_acknowledged";
    in_own_mounts_if_possible(test, || {
        let plan = network::Plan {
            program: PathBuf::from(SNAP.0),
            seed: 1,
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
