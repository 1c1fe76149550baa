//! What comes before a page of a list.

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
    use super::*;

    #[test]
    fn an_error_is_not_passed_over() {
        let list = || [Ok(1), Err("damaged"), Ok(3)].into_iter();
        assert_eq!(skip_ok(&mut list(), 1), Ok(()));
        assert_eq!(skip_ok(&mut list(), 2), Err("damaged"));
        assert_eq!(skip_ok(&mut list().take(1), 5), Ok(()));
    }
}
