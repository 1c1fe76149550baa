//! Formats an error with all its causes, for one field of the log.

use std::{error::Error, fmt, iter};

/// Formats `error` and each of its causes, the outermost first: `a: b: c`.
///
/// A log formatter that takes an error as a value may print only the outermost message, without the
/// causes.
pub fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl fmt::Display + 'e {
    fmt::from_fn(move |f| {
        let all = iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
        let mut last = String::new();
        for (at, error) in all.enumerate() {
            let text = error.to_string();
            // A transparent error has the same message as its cause.
            if at > 0 && text == last {
                continue;
            }
            write!(f, "{}{text}", if at > 0 { ": " } else { "" })?;
            last = text;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use snap_core::{base::io::PathError, store::StoreError};

    use super::*;

    #[test]
    fn the_message_includes_every_cause() {
        let source = io::Error::from(io::ErrorKind::TimedOut);
        let error = PathError { action: "read", path: "x".into(), source };
        let shown = causes(&StoreError::Io(error)).to_string();
        assert!(shown.contains("`x`") || shown.contains('x'), "{shown}");
        assert!(shown.ends_with("timed out"), "{shown}");
    }
}
