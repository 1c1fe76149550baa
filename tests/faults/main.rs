//! Random clients and a faulty network, tested against every kind of remote.
//!
//! A run is determined by its seed. Three clients commit, push, force, delete, tag, pull and
//! clone concurrently, and some of their commands are killed (`client`). A proxy between them and
//! the remote drops, repeats, delays, corrupts and fakes answers. Servers are killed, restarted
//! and lose their caches. Disks and buckets are full for a while. Where refs move by
//! compare-and-swap, reads of refs and listings are stale for a while (`service`). Then all
//! faults stop, and everything that was acknowledged must be there (`check`):
//!
//! 1. A push to the shared branch that ended with exit code 0 is an ancestor of the branch.
//! 2. A branch that only one client writes is where its last acknowledged push put it, or where
//!    a later push tried to put it.
//! 3. A tag is where it was put.
//! 4. A full clone of the remote, and each clone that ended with exit code 0, passes `snap verify
//!    --data`.
//! 5. No command panicked or ran longer than [`client::LONGEST`].
//!
//! Full disks are separate file systems, which need root. Without root only buckets become full.
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

use std::{env, io::Write as _, sync::Mutex, thread};

use snap_testkit::{mounts::in_own_mounts_if_possible, rng::mix};

use client::{Client, Journal};
use service::{Kind, Service, Struck};

/// Clients of one run.
const CLIENTS: usize = 3;

/// Steps of each client in one run.
const STEPS: usize = 10;

/// Concurrent runs. A command waits for the network most of the time.
const RUNS_AT_ONCE: usize = 3;

/// Attempts of one kind and seed until at least one push succeeds.
const ATTEMPTS: u64 = 3;

/// If this many runs can suffer a fault, at least one must have suffered it.
const ENOUGH_RUNS: u64 = 4;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn no_fault_of_the_network_loses_what_was_acknowledged() {
    in_own_mounts_if_possible("no_fault_of_the_network_loses_what_was_acknowledged", rounds);
}

fn rounds() {
    let (seed, rounds) = (number("SNAP_FAULTS_SEED", 1), number("SNAP_FAULTS_ROUNDS", 1));
    let only = env::var("SNAP_FAULTS_ONLY").ok();
    let kinds =
        Kind::ALL.into_iter().filter(|kind| only.as_deref().is_none_or(|it| it == kind.name()));
    let kinds: Vec<Kind> = kinds.filter(|kind| kind.is_possible()).collect();
    let runs = (seed..seed + rounds).flat_map(|seed| kinds.iter().map(move |kind| (*kind, seed)));
    let runs = Mutex::new(runs);
    let found = Mutex::new(Vec::new());
    let struck = Mutex::new(Struck::default());
    thread::scope(|scope| {
        for _ in 0..RUNS_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((kind, seed)) = runs.lock().unwrap().next() else { return };
                    let faults = run(kind, seed, &struck);
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
    let struck = struck.into_inner().unwrap();
    // Written directly to stderr, past the test harness, so that a run without faults is noticed.
    let _none = writeln!(std::io::stderr(), "{struck:?}");
    let has_struck = |(runs, count): (u64, u64)| runs < ENOUGH_RUNS || count > 0;
    assert!(has_struck(struck.full), "no client met a full disk: {struck:?}");
    assert!(has_struck(struck.stale), "no client read stale data: {struck:?}");
}

/// Runs one kind of remote with one seed, and again if the faults let no push succeed. Returns
/// the faults that were found.
fn run(kind: Kind, seed: u64, struck: &Mutex<Struck>) -> Vec<String> {
    let attempts = (0..ATTEMPTS).map(|attempt| seed + (attempt << 32));
    let found = attempts.filter_map(|seed| run_once(kind, seed, struck)).next();
    found.unwrap_or_else(|| vec!["no push was acknowledged: the runs show nothing".to_owned()])
}

/// Runs one kind of remote with one seed. Returns the faults that were found, or `None` if no
/// push was acknowledged.
fn run_once(kind: Kind, seed: u64, struck: &Mutex<Struck>) -> Option<Vec<String>> {
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
    struck.lock().unwrap().add(&service, &journal);
    let faults = journal.faults();
    if faults.is_empty() && journal.events().iter().all(|event| !event.is_acknowledged) {
        return None;
    }
    service.become_sound();
    Some(check::all(&service, &journal))
}
