//! Random clients and a faulty network, tested against every kind of remote.
//!
//! Three clients commit, push, force, delete, tag, pull and clone, and some of their commands are
//! killed (`client`). A proxy between them and
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
//! 5. No command panicked or ran longer than a limit (`client::LONGEST`).
//!
//! Full disks are separate file systems, which need a mount namespace of their own. Without one only
//! buckets become full.

mod check;
mod client;
mod service;

use std::{path::PathBuf, thread};

use snap_testkit::rng::{Rng, mix};

use client::{Client, Journal};
use service::Service;

pub use service::{Kind, Struck};

/// Clients of one run.
const CLIENTS: usize = 3;

/// Attempts of one kind and seed until at least one push succeeds.
const ATTEMPTS: u64 = 3;

/// How clients, faults and kills follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The clients take turns, a temporary fault lasts for one turn, and kills come at counted
    /// steps. What the clients do follows from the seed; which of several simultaneous requests
    /// meets a fault does not.
    Counted,
    /// The clients run at the same time, and faults and kills come by the clock.
    Timed,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program to test.
    pub program: PathBuf,
    /// The seed.
    pub seed: u64,
    /// The pace.
    pub pace: Pace,
    /// Steps of each client.
    pub steps: usize,
}

/// Runs one kind of remote, and again with another seed if the faults let no push succeed. Returns
/// the faults that were found.
pub fn explore(plan: &Plan, kind: Kind, struck: &mut Struck) -> Vec<String> {
    let attempts = (0..ATTEMPTS).map(|attempt| plan.seed + (attempt << 32));
    let found =
        attempts.filter_map(|seed| run(&Plan { seed, ..plan.clone() }, kind, struck)).next();
    let nothing = || vec!["no push was acknowledged: the runs show nothing".to_owned()];
    let found = found.unwrap_or_else(nothing);
    let (seed, name) = (plan.seed, kind.name());
    let again = || format!("again: tests/soak/run 2 {seed} network:{name}");
    match found.is_empty() {
        true => found,
        false => [again()].into_iter().chain(found).collect(),
    }
}

/// Runs one kind of remote once. Returns the faults that were found, or `None` if no push was
/// acknowledged.
fn run(plan: &Plan, kind: Kind, struck: &mut Struck) -> Option<Vec<String>> {
    let service = Service::start(kind, plan);
    let journal = Journal::default();
    let client = |number: usize| {
        let seed = mix(mix(plan.seed, 100 + number as u64), kind as u64);
        Client::new(number, seed, &service, &journal)
    };
    match plan.pace {
        Pace::Counted => {
            let mut clients: Vec<_> = (0..CLIENTS).map(client).collect();
            let mut rng = Rng::new(mix(plan.seed, 77));
            for _ in 0..plan.steps {
                for client in &mut clients {
                    service.disturb(&mut rng, || client.step());
                }
            }
        }
        Pace::Timed => thread::scope(|scope| {
            let client = &client;
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    scope.spawn(move || {
                        let mut client = client(number);
                        (0..plan.steps).for_each(|_| client.step());
                    })
                })
                .collect();
            service.disturb_until(|| clients.iter().all(thread::ScopedJoinHandle::is_finished));
        }),
    }
    struck.add(&service, &journal);
    let faults = journal.faults();
    if faults.is_empty() && journal.events().iter().all(|event| !event.is_acknowledged) {
        return None;
    }
    service.become_sound();
    Some(check::all(&service, &journal))
}
