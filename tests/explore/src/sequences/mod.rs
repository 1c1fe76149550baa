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
pub(crate) mod files;
mod forge;
mod generate;
pub(crate) mod model;
mod operation;
mod remotes;
mod repair;
mod restore;
pub(crate) mod stored;
mod world;

use features::Features;
use operation::Op;
use snap_testkit::{mounts, rng::mix};

use crate::search::{self, Failure, Outcome, Plan, Scenario};

/// Runs sequences until enough faults are found or the limits are reached.
pub fn explore(plan: &Plan) -> Outcome {
    search::run(plan, &Sequences { plan, features: Features::detect(&plan.program) })
}

/// The sequences of a run.
struct Sequences<'p> {
    plan: &'p Plan,
    features: Features,
}

impl Scenario for Sequences<'_> {
    type Op = Op;

    const NAME: &'static str = "sequences";

    /// Settled times differ from run to run.
    const TRIES: usize = 2;

    fn sequence(&self, seed: u64) -> Vec<Op> {
        generate::sequence(mix(12, seed), &self.features)
    }

    fn run(&self, ops: &[Op]) -> Result<(), Failure> {
        let options = execute::Options {
            program: &self.plan.program,
            jobs: self.plan.jobs,
            may_mount: mounts::are_own(),
            asks: self.features.has("restore --yes"),
        };
        execute::run(options, ops)
    }

    fn label(op: &Op) -> String {
        op.label()
    }
}
