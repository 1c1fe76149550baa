//! The random test of histories: forgets, collections, rewrites and their undo, in several stores
//! with two remotes, against a model of what each store must still have.
//!
//! [`crate::sequences`] tests files and damage: there, no acknowledged commit ever goes. Here, few
//! files with few contents make commits, and what matters is which commits a collection may delete
//! (`model`). After each command, a mark that shares no decision with the program reads the stores
//! (`mark`). Some commands are halted at a counted step while others run (`held`).

mod execute;
mod generate;
mod held;
mod mark;
mod model;
mod operation;

use snap_testkit::rng::mix;

use crate::search::{self, Failure, Outcome, Plan, Scenario};
use operation::Op;

/// Runs histories until enough faults are found or the limits are reached.
pub fn explore(plan: &Plan) -> Outcome {
    search::run(plan, &Histories(plan))
}

/// The histories of a run.
struct Histories<'p>(&'p Plan);

impl Scenario for Histories<'_> {
    type Op = Op;

    const NAME: &'static str = "histories";

    const TRIES: usize = 1;

    fn sequence(&self, seed: u64) -> Vec<Op> {
        generate::sequence(mix(46, seed))
    }

    fn run(&self, ops: &[Op]) -> Result<(), Failure> {
        execute::run(&self.0.program, self.0.jobs, ops)
    }

    fn label(op: &Op) -> String {
        op.label()
    }
}
