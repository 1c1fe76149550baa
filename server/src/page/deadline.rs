//! Work that takes too long for a page is given up.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use snap_core::{base::observe::Observer, repo::past::PastError};

use crate::{
    problem::{Code, Problem},
    skip::skip_ok,
};

/// So long people wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// In place of commits that there was no time for.
pub(super) const LATE: &str =
    "Looking further back took too long. snap log does it without a limit.";

/// Ends work when its time has come, or when its observer wants that.
pub(super) struct Deadline<'a> {
    ends: Instant,
    observer: &'a dyn Observer,
}

impl<'a> Deadline<'a> {
    /// As long as people wait.
    pub(super) fn usual(observer: &'a dyn Observer) -> Self {
        Self::after(PATIENCE, observer)
    }

    /// So long from now.
    pub(super) fn after(time: Duration, observer: &'a dyn Observer) -> Self {
        Self { ends: Instant::now() + time, observer }
    }
}

impl Observer for Deadline<'_> {
    fn cancelled(&self) -> bool {
        self.observer.cancelled() || Instant::now() >= self.ends
    }
}

/// Why a list ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    All,
    More,
    Late,
    /// The page is beyond the end of the list: this is the last one.
    Beyond {
        last: usize,
    },
}

/// Why a page of a list is not shown that is beyond its end.
pub(super) fn no_page(page: usize, last: usize) -> Problem {
    let why = format!("there is no page {page}: the last one is {last}");
    Problem::new(Code::NotFound, why)
}

/// The items of a page, from 1, of so many each, and why there are no more.
///
/// # Errors
/// Those of the list, but for that there was no time.
pub(super) fn page_of<T>(
    all: impl Iterator<Item = Result<T, PastError>>,
    page: usize,
    rows: usize,
) -> Result<(Vec<T>, End), PastError> {
    let (mut found, met) = (Vec::new(), Cell::new(0_usize));
    let mut all = all.inspect(|_| met.set(met.get() + 1));
    let read = || -> Result<End, PastError> {
        skip_ok(&mut all, (page - 1) * rows)?;
        for item in all {
            let item = item?;
            if found.len() == rows {
                return Ok(End::More);
            }
            found.push(item);
        }
        match page > 1 && found.is_empty() {
            true => Ok(End::Beyond { last: met.get().div_ceil(rows).max(1) }),
            false => Ok(End::All),
        }
    };
    match read() {
        Err(PastError::Interrupted) => Ok((found, End::Late)),
        ended => ended.map(|end| (found, end)),
    }
}

#[cfg(test)]
mod tests {
    use snap_core::base::observe::Silent;

    use super::*;

    struct Gone;

    impl Observer for Gone {
        fn cancelled(&self) -> bool {
            true
        }
    }

    #[test]
    fn work_ends_in_time_and_when_nobody_waits() {
        assert!(!Deadline::usual(&Silent).cancelled());
        assert!(Deadline::after(Duration::ZERO, &Silent).cancelled());
        assert!(Deadline::usual(&Gone).cancelled());
    }
    #[test]
    fn a_page_says_why_it_ends() {
        let list = |late: Option<usize>| {
            (0..5).map(move |at| match Some(at) == late {
                true => Err(PastError::Interrupted),
                false => Ok(at),
            })
        };
        let of = |late, page| page_of(list(late), page, 2).unwrap();
        assert_eq!(of(None, 1), (vec![0, 1], End::More));
        assert_eq!(of(None, 3), (vec![4], End::All));
        assert_eq!(of(None, 4), (vec![], End::Beyond { last: 3 }));
        assert_eq!(of(None, 9), (vec![], End::Beyond { last: 3 }));
        assert_eq!(of(Some(3), 2), (vec![2], End::Late));
        assert_eq!(of(Some(1), 2), (vec![], End::Late));
        assert_eq!(of(Some(2), 1), (vec![0, 1], End::Late));
        let damaged = Err::<u32, _>(PastError::Climbs { path: "x".into() });
        assert!(page_of([damaged].into_iter(), 1, 2).is_err());
    }
}
