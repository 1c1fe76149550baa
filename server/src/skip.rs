//! Pages of lists: what comes before one, and when nobody waits for it any more.

use snap_core::{base::observe::Observer, repo::past::PastError};

/// The items of a list until nobody waits for them any more, which is looked at
/// with each: then it is [`PastError::Interrupted`] in place of them.
pub fn while_awaited<'o, T: 'o, E: Into<PastError>>(
    items: impl Iterator<Item = Result<T, E>> + 'o,
    observer: &'o dyn Observer,
) -> impl Iterator<Item = Result<T, PastError>> + 'o {
    let mut items = items.fuse();
    std::iter::from_fn(move || {
        let item = items.next()?;
        Some(if observer.cancelled() {
            Err(PastError::Interrupted)
        } else {
            item.map_err(Into::into)
        })
    })
}

/// Passes over the next `count` items of a list. [`Iterator::skip`] passes over
/// errors, too, and with them over the reason why a list ends.
///
/// # Errors
/// The first one among them.
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

    /// Leaves after it was looked for so often.
    struct Leaves(AtomicU32);

    impl Observer for Leaves {
        fn cancelled(&self) -> bool {
            self.0.fetch_sub(1, Ordering::Relaxed) == 0
        }
    }

    #[test]
    fn a_list_ends_when_nobody_waits_for_it() {
        let leaves = Leaves(AtomicU32::new(3));
        let list = while_awaited((0..1000).map(Ok::<u32, StoreError>), &leaves);
        let seen: Vec<_> = list.take_while(Result::is_ok).collect();
        assert_eq!(seen.len(), 3);
        let leaves = Leaves(AtomicU32::new(3));
        let mut list = while_awaited((0..1000).map(Ok::<u32, StoreError>), &leaves);
        assert!(matches!(skip_ok(&mut list, 10), Err(PastError::Interrupted)));
    }

    #[test]
    fn an_error_is_not_passed_over() {
        let list = || [Ok(1), Err("damaged"), Ok(3)].into_iter();
        assert_eq!(skip_ok(&mut list(), 1), Ok(()));
        assert_eq!(skip_ok(&mut list(), 2), Err("damaged"));
        assert_eq!(skip_ok(&mut list().take(1), 5), Ok(()));
    }
}
