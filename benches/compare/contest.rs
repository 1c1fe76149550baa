//! Runs several contestants on the same job in turn, for several rounds.
//!
//! The first round is not timed: it warms the page cache, measures memory, and its results are
//! checked. A contestant that fails in it is excluded. After that, each contestant is timed once in
//! each round. Another one starts each round, so that other load on the machine affects all
//! equally.

use crate::{
    Result,
    measure::{Call, Samples},
    place::Place,
};

/// A step outside the timed part.
type Step<'c> = Box<dyn FnMut() -> Result<()> + 'c>;

/// One program in a contest.
pub(crate) struct Contestant<'c> {
    pub(crate) name: String,
    /// Resets the state before each run, the first one included.
    pub(crate) prepare: Step<'c>,
    /// The timed call.
    pub(crate) call: Box<dyn Fn() -> Call + 'c>,
    /// Checks the result of the first run.
    pub(crate) check: Step<'c>,
    /// Returns a count after each run, such as the number of requests.
    pub(crate) count: Box<dyn FnMut() -> Result<Option<u64>> + 'c>,
}

impl<'c> Contestant<'c> {
    /// Makes a contestant that needs no preparation and has no result to check.
    pub(crate) fn plain(name: &str, call: impl Fn() -> Call + 'c) -> Self {
        Self {
            name: name.to_owned(),
            prepare: Box::new(|| Ok(())),
            call: Box::new(call),
            check: Box::new(|| Ok(())),
            count: Box::new(|| Ok(None)),
        }
    }
}

/// The results of a contestant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Score {
    pub(crate) name: String,
    pub(crate) samples: Samples,
    /// Peak memory of the first run.
    pub(crate) peak_bytes: Option<u64>,
    /// The count of each run, including the first one.
    pub(crate) counted: Vec<u64>,
    /// The reason for its exclusion.
    pub(crate) failure: Option<String>,
}

/// Runs the contest: one round of checks, then `runs` timed rounds.
///
/// `change` is called with the number of each round before it starts. An error comes from the
/// contest itself; errors of contestants are in their scores.
pub(crate) fn hold(
    place: &Place,
    runs: usize,
    mut change: impl FnMut(usize) -> Result<()>,
    mut contestants: Vec<Contestant<'_>>,
) -> Result<Vec<Score>> {
    let names = contestants.iter().map(|contestant| contestant.name.clone());
    let mut scores: Vec<Score> = names.map(|name| Score { name, ..Score::default() }).collect();
    for round in 0..=runs {
        change(round)?;
        for turn in 0..contestants.len() {
            let at = (turn + round) % contestants.len();
            let (contestant, score) = (&mut contestants[at], &mut scores[at]);
            if score.failure.is_some() {
                continue;
            }
            let done = match round {
                0 => checked(place, contestant, score),
                _ => timed(place, contestant, score),
            };
            if let Err(error) = done {
                score.failure = Some(error.to_string());
            }
        }
    }
    Ok(scores)
}

fn checked(place: &Place, contestant: &mut Contestant<'_>, score: &mut Score) -> Result<()> {
    (contestant.prepare)()?;
    place.sync();
    score.peak_bytes = (contestant.call)().peak_bytes()?;
    score.counted.extend((contestant.count)()?);
    (contestant.check)()
}

fn timed(place: &Place, contestant: &mut Contestant<'_>, score: &mut Score) -> Result<()> {
    (contestant.prepare)()?;
    place.sync();
    score.samples.push((contestant.call)().time()?);
    score.counted.extend((contestant.count)()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn all_take_turns_and_each_is_prepared_every_time_and_checked_once() {
        let place = Place::new(&std::env::temp_dir()).unwrap();
        let log = RefCell::new(Vec::new());
        let contestant = |name: &'static str| {
            let (prepare, check) = (&log, &log);
            Contestant {
                prepare: Box::new(move || {
                    prepare.borrow_mut().push(format!("prepare {name}"));
                    Ok(())
                }),
                check: Box::new(move || {
                    check.borrow_mut().push(format!("check {name}"));
                    Ok(())
                }),
                ..Contestant::plain(name, || Call::new("true"))
            }
        };
        let change = |round| {
            log.borrow_mut().push(format!("round {round}"));
            Ok(())
        };
        let scores = hold(&place, 2, change, vec![contestant("a"), contestant("b")]).unwrap();
        assert!(scores.iter().all(|score| score.samples.median_secs().is_some()));
        let wanted = [
            "round 0",
            "prepare a",
            "check a",
            "prepare b",
            "check b", //
            "round 1",
            "prepare b",
            "prepare a", //
            "round 2",
            "prepare a",
            "prepare b",
        ];
        assert_eq!(*log.borrow(), wanted);
    }

    #[test]
    fn what_is_counted_is_read_after_every_run() {
        let place = Place::new(&std::env::temp_dir()).unwrap();
        let mut counts = [7, 5, 6].into_iter();
        let counting = Contestant {
            count: Box::new(move || Ok(counts.next())),
            ..Contestant::plain("counting", || Call::new("true"))
        };
        let scores = hold(&place, 2, |_| Ok(()), vec![counting]).unwrap();
        assert_eq!(scores[0].counted, [7, 5, 6]);
    }

    #[test]
    fn who_gives_a_wrong_result_is_never_timed() {
        let place = Place::new(&std::env::temp_dir()).unwrap();
        let wrong = Contestant {
            check: Box::new(|| Err("one byte is wrong".into())),
            ..Contestant::plain("wrong", || Call::new("true"))
        };
        let right = Contestant::plain("right", || Call::new("true"));
        let scores = hold(&place, 3, |_| Ok(()), vec![wrong, right]).unwrap();
        assert_eq!(scores[0].failure.as_deref(), Some("one byte is wrong"));
        assert_eq!(scores[0].samples.median_secs(), None);
        assert!(scores[1].samples.median_secs().is_some());
    }
}
