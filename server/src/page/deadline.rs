//! A time limit for the work on a page.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use snap_core::{base::observe::Observer, repo::past::PastError};

use crate::{
    clock::Clock,
    pagination::skip_ok,
    problem::{Code, HttpProblem},
};

/// The time limit of most pages.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Text in place of commits that were not loaded before the deadline.
pub(super) const TOO_LATE_TEXT: &str =
    "Loading older commits took too long. snap log has no time limit.";

/// An observer that cancels at a deadline, or when another observer cancels.
pub(super) struct Deadline<'a> {
    ends: Instant,
    clock: &'a Clock,
    observer: &'a dyn Observer,
}

impl<'a> Deadline<'a> {
    /// Returns a deadline after the time limit of most pages.
    pub(super) fn usual(clock: &'a Clock, observer: &'a dyn Observer) -> Self {
        Self::after(TIME_LIMIT, clock, observer)
    }

    /// Returns a deadline after `time`.
    pub(super) fn after(time: Duration, clock: &'a Clock, observer: &'a dyn Observer) -> Self {
        Self { ends: clock.after(time), clock, observer }
    }
}

impl Observer for Deadline<'_> {
    fn cancelled(&self) -> bool {
        self.observer.cancelled() || self.clock.now() >= self.ends
    }
}

/// Why a list ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageEnd {
    All,
    More,
    Late,
    /// The requested page is beyond the end of the list, which has `last` pages.
    Beyond {
        last: usize,
    },
}

/// Creates the problem for a page number beyond the end.
pub(super) fn no_page(page: usize, last: usize) -> HttpProblem {
    let why = format!("page {page} does not exist; the last page is {last}");
    HttpProblem::new(Code::NotFound, why)
}

/// Returns the items of a page, and why the list ends there. Pages are numbered from 1 and have
/// `rows` items each.
///
/// # Errors
/// The errors of the list. An expired deadline is not an error, but [`PageEnd::Late`].
pub(super) fn page_of<T>(
    all: impl Iterator<Item = Result<T, PastError>>,
    page: usize,
    rows: usize,
) -> Result<(Vec<T>, PageEnd), PastError> {
    let (mut found, seen) = (Vec::new(), Cell::new(0_usize));
    let mut all = all.inspect(|_| seen.set(seen.get() + 1));
    let read = || -> Result<PageEnd, PastError> {
        skip_ok(&mut all, (page - 1) * rows)?;
        for item in all {
            let item = item?;
            if found.len() == rows {
                return Ok(PageEnd::More);
            }
            found.push(item);
        }
        match page > 1 && found.is_empty() {
            true => Ok(PageEnd::Beyond { last: seen.get().div_ceil(rows).max(1) }),
            false => Ok(PageEnd::All),
        }
    };
    match read() {
        Err(PastError::Blocked(_)) => Ok((found, PageEnd::Late)),
        ended => ended.map(|end| (found, end)),
    }
}

#[cfg(test)]
mod tests {
    use snap_core::base::{blocked::Blocked, observe::Silent};

    use super::*;

    struct Disconnected;

    impl Observer for Disconnected {
        fn cancelled(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_deadline_ends_work_on_timeout_or_disconnect() {
        let clock = Clock::manual();
        let deadline = Deadline::usual(&clock, &Silent);
        clock.advance(TIME_LIMIT - Duration::from_millis(1));
        assert!(!deadline.cancelled());
        clock.advance(Duration::from_millis(1));
        assert!(deadline.cancelled());
        assert!(Deadline::after(Duration::ZERO, &clock, &Silent).cancelled());
        assert!(Deadline::usual(&clock, &Disconnected).cancelled());
    }

    #[test]
    fn a_page_reports_why_it_ends() {
        let list = |late: Option<usize>| {
            (0..5).map(move |at| match Some(at) == late {
                true => Err(Blocked::Interrupted.into()),
                false => Ok(at),
            })
        };
        let of = |late, page| page_of(list(late), page, 2).unwrap();
        assert_eq!(of(None, 1), (vec![0, 1], PageEnd::More));
        assert_eq!(of(None, 3), (vec![4], PageEnd::All));
        assert_eq!(of(None, 4), (vec![], PageEnd::Beyond { last: 3 }));
        assert_eq!(of(None, 9), (vec![], PageEnd::Beyond { last: 3 }));
        assert_eq!(of(Some(3), 2), (vec![2], PageEnd::Late));
        assert_eq!(of(Some(1), 2), (vec![], PageEnd::Late));
        assert_eq!(of(Some(2), 1), (vec![0, 1], PageEnd::Late));
        let damaged = Err::<u32, _>(PastError::Climbs { path: "x".into() });
        assert!(page_of([damaged].into_iter(), 1, 2).is_err());
    }
}
