//! A model of garbage collection beside running pushes and commits, and a search through every
//! interleaving of its steps.
//!
//! One step of a client is one request, or what it does while it holds the lock of a local store.
//! A client may stop for ever after any step, since others may go on without it.
//!
//! In every state that any interleaving reaches,
//!
//! - each ref has all of its objects, in packs that are there and that an index file lists;
//! - a commit that was taken back after a forget is complete if a ref reaches it;
//! - after a purge was published, no ref reaches a purged object.
//!
//! The program follows the same rules; [`Guard`] lists them. Change this model before you change the
//! rules.
//!
//! | module | what |
//! |---|---|
//! | `world` | what a store holds |
//! | `writer` | a push |
//! | `collector` | a collection, also with a purge |
//! | `actor` | the other clients: merges of index files, forgets and their undo |
//! | `local` | commits and collections in a local store |
//! | `scenarios` | the stores and clients that are explored |

mod actor;
mod collector;
mod guard;
mod local;
mod scenarios;
mod world;
mod writer;

use std::fmt::{self, Write};

use indexmap::IndexSet;

use crate::{
    actor::Actor,
    world::{State, World},
};
pub use crate::{
    guard::{Guard, Guards},
    scenarios::{Scenario, large, small},
};

/// What a search found.
#[derive(Debug)]
pub enum Outcome {
    /// Every state is right.
    Explored {
        /// The number of states.
        states: usize,
        /// True if a pack was deleted in a state in which all clients have succeeded.
        frees: bool,
    },
    /// A state in which something is lost.
    Counterexample {
        /// The loss, and the steps that lead to it.
        text: String,
    },
    /// There are more states than the limit.
    TooManyStates,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Explored { states, .. } => write!(f, "{states} states, nothing lost"),
            Self::Counterexample { text } => write!(f, "counterexample: {text}"),
            Self::TooManyStates => write!(f, "more states than the limit"),
        }
    }
}

/// Explores all interleavings of a scenario, at most `limit` states of them. The first
/// counterexample ends the search; none is shorter.
pub fn explore(scenario: Scenario, guards: Guards, limit: usize) -> Outcome {
    let Scenario { mut world, start, is_local, .. } = scenario;
    let first_packs = start.packs;
    let mut frees = false;
    // Which state and which actor led to each state.
    let mut origins = vec![(0, 0)];
    let mut states = IndexSet::from([start]);
    let mut at = 0;
    while let Some(state) = states.get_index(at).cloned() {
        if let Some(lost) = lost(&world, &state, is_local) {
            return Outcome::Counterexample { text: explain(&world, &states, &origins, at, &lost) };
        }
        let mut is_end = true;
        for (number, actor) in state.actors.iter().enumerate() {
            let actor = world.actor_at(*actor).clone();
            let Some(next) = actor.step(&mut world, state.clone(), guards) else { continue };
            is_end = false;
            let mut reached = next.state;
            reached.actors[number] = world.actor(next.actor);
            if states.insert(reached) {
                origins.push((at, number));
            }
        }
        if states.len() > limit {
            return Outcome::TooManyStates;
        }
        frees |= is_end && first_packs & !state.packs != 0;
        at += 1;
    }
    Outcome::Explored { states: states.len(), frees }
}

/// Returns what is lost in a state.
fn lost(world: &World<Actor>, state: &State, is_local: bool) -> Option<String> {
    let gc = world.gc_at(state.gc);
    let present = world.contents(match is_local {
        true => state.packs,
        false => state.packs & world.packs_in(state.files),
    });
    let counted = world.contents(state.packs & world.packs_in(world.counted(state.files, gc)));
    let tips = state.refs.iter().filter_map(|it| it.commit());
    for tip in tips {
        let lacks = world.lacking(tip, present, gc.forgotten);
        if lacks != 0 {
            return Some(format!("commit {tip} lacks {lacks:b}"));
        }
        let lacks = world.lacking(tip, counted, gc.forgotten);
        if lacks != 0 && !gc.is_fenced && !is_local {
            return Some(format!("no index file that counts lists {lacks:b} of commit {tip}"));
        }
        let reached = world.reached(1 << tip, present, gc.forgotten);
        for actor in state.actors {
            match world.actor_at(actor) {
                Actor::Purged(purged) if reached & purged != 0 => {
                    return Some(format!("commit {tip} reaches something purged"));
                }
                Actor::Restored(commit) => {
                    let others = gc.forgotten & !(1 << commit);
                    let is_reached = world.reached(1 << tip, !0, others) & (1 << commit) != 0;
                    let lacks = world.reached(1 << commit, present, others) & !present;
                    if is_reached && lacks != 0 {
                        return Some(format!("commit {commit} was taken back and lacks {lacks:b}"));
                    }
                }
                _ => {}
            }
        }
    }
    None
}

/// Describes a counterexample: the steps of the clients, and the last state.
fn explain(
    world: &World<Actor>,
    states: &IndexSet<State>,
    origins: &[(usize, usize)],
    end: usize,
    lost: &str,
) -> String {
    let mut path = Vec::new();
    let mut at = end;
    while at != 0 {
        let (before, actor) = origins[at];
        path.push((before, actor));
        at = before;
    }
    let mut text = format!("{lost}\n");
    let mut line = |name: &str, state: &State, actor: usize| {
        let actor = world.actor_at(state.actors[actor]);
        let _ = writeln!(text, "{name} {actor:?}; {:?}", world.gc_at(state.gc));
    };
    for (state, actor) in path.into_iter().rev() {
        line(&format!("{actor}:"), &states[state], actor);
    }
    let last = &states[end];
    let _ = writeln!(text, "refs {:?}\ngc {:?}", last.refs, world.gc_at(last.gc));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More states than any small scenario has.
    const LIMIT: usize = 2_000_000;

    #[test]
    fn no_interleaving_loses_anything() {
        for scenario in small() {
            let name = scenario.name;
            match explore(scenario, Guards::default(), LIMIT) {
                Outcome::Explored { states, .. } => assert!(states > 100, "{name}: {states}"),
                other => panic!("{name}: {other}"),
            }
        }
    }

    #[test]
    fn a_collection_frees_something_beside_each_client() {
        let names = ["a push and a collection", "a forget and a collection"];
        for scenario in small().into_iter().filter(|scenario| names.contains(&scenario.name)) {
            let name = scenario.name;
            let outcome = explore(scenario, Guards::default(), LIMIT);
            assert!(matches!(outcome, Outcome::Explored { frees: true, .. }), "{name}: {outcome}");
        }
    }

    #[test]
    fn each_guard_is_needed() {
        let mut unneeded = Vec::new();
        for guard in Guard::ALL {
            let guards = Guards { removed: Some(guard) };
            let scenario = small().into_iter().find(|it| it.name == guard.needed_in());
            let outcome = explore(scenario.expect("a scenario"), guards, LIMIT);
            if !matches!(outcome, Outcome::Counterexample { .. }) {
                unneeded.push((guard, outcome));
            }
        }
        assert!(unneeded.is_empty(), "{unneeded:?}");
    }

    #[test]
    fn a_limit_of_states_is_reported() {
        let scenario = small().remove(0);
        let outcome = explore(scenario, Guards::default(), 10);
        assert!(matches!(outcome, Outcome::TooManyStates), "{outcome}");
    }
}
