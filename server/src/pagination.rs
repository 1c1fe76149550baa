//! Pagination: skip to an offset; stop when the client disconnects.

use snap_core::base::blocked::Blocked;
use snap_core::{base::observe::Observer, repo::past::PastError};

/// Yields the items of a list, and checks the observer at each item. After a cancellation, yields
/// [`PastError::Blocked`] in place of items.
pub fn until_cancelled<'o, T: 'o, E: Into<PastError>>(
    items: impl Iterator<Item = Result<T, E>> + 'o,
    observer: &'o dyn Observer,
) -> impl Iterator<Item = Result<T, PastError>> + 'o {
    let mut items = items.fuse();
    std::iter::from_fn(move || {
        let item = items.next()?;
        Some(if observer.cancelled() {
            Err(PastError::Blocked(Blocked::Interrupted))
        } else {
            item.map_err(Into::into)
        })
    })
}

/// Skips the next `count` items of a list, and stops at the first error. [`Iterator::skip`]
/// would skip errors, too, and so lose the reason why a list ends.
///
/// # Errors
/// The first error among the skipped items.
pub fn skip_ok<T, E>(
    items: &mut impl Iterator<Item = Result<T, E>>,
    count: usize,
) -> Result<(), E> {
    items.take(count).try_for_each(|item| item.map(drop))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use snap_core::store::StoreError;

    use super::*;

    /// An observer that is cancelled after a number of checks.
    struct Leaves(AtomicU32);

    impl Observer for Leaves {
        fn cancelled(&self) -> bool {
            self.0.fetch_sub(1, Ordering::Relaxed) == 0
        }
    }

    #[test]
    fn a_list_ends_when_the_client_disconnects() {
        let leaves = Leaves(AtomicU32::new(3));
        let list = until_cancelled((0..1000).map(Ok::<u32, StoreError>), &leaves);
        let seen: Vec<_> = list.take_while(Result::is_ok).collect();
        assert_eq!(seen.len(), 3);
        let leaves = Leaves(AtomicU32::new(3));
        let mut list = until_cancelled((0..1000).map(Ok::<u32, StoreError>), &leaves);
        assert!(matches!(skip_ok(&mut list, 10), Err(PastError::Blocked(_))));
    }

    #[test]
    fn skipping_entries_stops_at_an_error() {
        let list = || [Ok(1), Err("damaged"), Ok(3)].into_iter();
        assert_eq!(skip_ok(&mut list(), 1), Ok(()));
        assert_eq!(skip_ok(&mut list(), 2), Err("damaged"));
        assert_eq!(skip_ok(&mut list().take(1), 5), Ok(()));
    }
}
