//! Random clients, a proxy that does harm, and every kind of remote.
//!
//! A run follows from a seed. Three clients commit, push, force, delete, tag, pull
//! and clone at once, and some of their commands are killed (`client`). Between
//! them and the remote lies a proxy that drops, repeats, delays, damages and
//! invents answers; servers are killed, started again and lose their caches
//! (`service`). Afterwards the network is sound again and everything that was
//! acknowledged must be there (`check`):
//!
//! 1. A push to the shared branch that ended with exit code 0 is an ancestor of
//!    the branch.
//! 2. A branch that only one client writes stands where its last acknowledged push
//!    put it, or where a later push tried to put it.
//! 3. A tag stands where it was put.
//! 4. A full clone of the remote, and each clone that ended with exit code 0, is
//!    whole under `snap verify --data`.
//! 5. No command panicked or ran longer than [`client::LONGEST`].
//!
//! | variable             | meaning                                          |
//! |----------------------|--------------------------------------------------|
//! | `SNAP_FAULTS_SEED`   | seed of the first round; 1 if not set            |
//! | `SNAP_FAULTS_ROUNDS` | rounds, each over every kind of remote; 1        |
//! | `SNAP_FAULTS_ONLY`   | the name of one kind of remote                   |

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod check;
mod client;
mod service;

use std::{env, sync::Mutex, thread};

use snap_testkit::rng::mix;

use client::{Client, Journal};
use service::{Kind, Service};

/// Clients of one run.
const CLIENTS: usize = 3;

/// Steps of each client in one run.
const STEPS: usize = 10;

/// Runs at once. A command waits for the network most of the time.
const RUNS_AT_ONCE: usize = 3;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn no_fault_of_the_network_loses_what_was_acknowledged() {
    let (seed, rounds) = (number("SNAP_FAULTS_SEED", 1), number("SNAP_FAULTS_ROUNDS", 1));
    let only = env::var("SNAP_FAULTS_ONLY").ok();
    let kinds =
        Kind::ALL.into_iter().filter(|kind| only.as_deref().is_none_or(|it| it == kind.name()));
    let kinds: Vec<Kind> = kinds.collect();
    let runs = (seed..seed + rounds).flat_map(|seed| kinds.iter().map(move |kind| (*kind, seed)));
    let runs = Mutex::new(runs);
    let found = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..RUNS_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((kind, seed)) = runs.lock().unwrap().next() else { return };
                    let faults = run(kind, seed);
                    if !faults.is_empty() {
                        let again =
                            format!("SNAP_FAULTS_SEED={seed} SNAP_FAULTS_ONLY={}", kind.name());
                        found.lock().unwrap().push(format!("{again}\n{}", faults.join("\n")));
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}

/// Runs one kind of remote with one seed; returns what is wrong.
fn run(kind: Kind, seed: u64) -> Vec<String> {
    let service = Service::start(kind, mix(seed, kind as u64));
    let journal = Journal::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (service, journal) = (&service, &journal);
                let seed = mix(mix(seed, 100 + number as u64), kind as u64);
                scope.spawn(move || {
                    let mut client = Client::new(number, seed, service, journal);
                    (0..STEPS).for_each(|_| client.step());
                })
            })
            .collect();
        service.disturb_until(|| clients.iter().all(thread::ScopedJoinHandle::is_finished));
    });
    service.become_sound();
    check::all(&service, &journal)
}
