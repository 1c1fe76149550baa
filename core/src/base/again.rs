//! Repeats work that other processes have overtaken.
//!
//! A process reads the refs, the epoch and the packs of a store one after the other, and another
//! process may change them in between. Then an object seems to be missing, although nothing is lost.
//! So all operations follow one rule: *an object counts as missing only if the state that led to it
//! has not changed since*.

/// Runs `attempt` until no other process overtakes it, at most `most` times.
///
/// An attempt returns `None` if it found out itself that it was overtaken. After an error,
/// `look_again` reads the state again, and returns true if another attempt may succeed. Returns
/// `None` if even the last attempt was overtaken.
///
/// # Errors
/// The error of an attempt after which `look_again` returned false, or of the last attempt; errors
/// of `look_again`.
pub fn until_settled<S, T, E>(
    state: &mut S,
    most: usize,
    mut attempt: impl FnMut(&mut S) -> Result<Option<T>, E>,
    mut look_again: impl FnMut(&mut S, &E) -> Result<bool, E>,
) -> Result<Option<T>, E> {
    let mut last = None;
    for _ in 0..most {
        match attempt(state) {
            Ok(Some(done)) => return Ok(Some(done)),
            Ok(None) => last = None,
            Err(error) if look_again(state, &error)? => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    last.map_or(Ok(None), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs attempts with these results. Returns the result and the number of attempts.
    fn run(
        results: &[Result<Option<u8>, &'static str>],
        passes: bool,
    ) -> (Result<Option<u8>, &'static str>, usize) {
        let mut count = 0;
        let attempt = |count: &mut usize| {
            *count += 1;
            results[*count - 1]
        };
        let result = until_settled(&mut count, results.len(), attempt, |_, _| Ok(passes));
        (result, count)
    }

    #[test]
    fn an_attempt_is_repeated_only_while_it_was_overtaken() {
        assert_eq!(run(&[Ok(None), Err("gone"), Ok(Some(7)), Ok(None)], true), (Ok(Some(7)), 3));
        assert_eq!(run(&[Ok(None), Err("gone"), Ok(Some(7))], false), (Err("gone"), 2));
        assert_eq!(run(&[Ok(None), Err("gone")], true), (Err("gone"), 2));
        assert_eq!(run(&[Err("gone"), Ok(None)], true), (Ok(None), 2));
    }
}
