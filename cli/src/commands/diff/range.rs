//! Ranges of commits as in git: `A..B`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use crate::report::CliError;

/// Replaces a first argument `A..B` by two revisions.
pub(super) fn expand(args: &[OsString]) -> Result<Vec<OsString>, CliError> {
    let [first, rest @ ..] = args else { return Ok(Vec::new()) };
    let is_file = Path::new(first).symlink_metadata().is_ok();
    Ok(match split(first)?.filter(|_| !is_file) {
        Some((old, new)) => [&[old, new], rest].concat(),
        None => args.to_vec(),
    })
}

/// Splits `A..B` into two revisions; an empty one is `HEAD`. Returns `None` for other texts, such
/// as paths and `REV:PATH`. The names of branches and tags contain no `..`.
///
/// # Errors
/// [`CliError::Usage`] for `A...B`.
pub(crate) fn split(text: &OsStr) -> Result<Option<(OsString, OsString)>, CliError> {
    let bytes = text.as_bytes();
    let dots = bytes.windows(2).position(|two| two == b"..");
    let parts = dots.map(|at| (&bytes[..at], &bytes[at + 2..]));
    let is_path = |(old, new): &(&[u8], &[u8])| {
        old.contains(&b':') || old.ends_with(b"/") || new.starts_with(b"/")
    };
    let is_range = |parts: &(&[u8], &[u8])| *parts != (b"", b"") && !is_path(parts);
    let Some((old, new)) = parts.filter(is_range) else { return Ok(None) };
    if new.starts_with(b".") {
        return Err(CliError::Usage("A...B is not supported; use A..B"));
    }
    let rev = |text: &[u8]| match text {
        b"" => OsString::from("HEAD"),
        text => OsStr::from_bytes(text).to_owned(),
    };
    Ok(Some((rev(old), rev(new))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(args: &str) -> Option<String> {
        let args: Vec<OsString> = args.split(' ').map(OsString::from).collect();
        let expanded = expand(&args).ok()?;
        Some(expanded.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn a_range_becomes_two_revisions() {
        assert_eq!(expanded("v1..main src").as_deref(), Some("v1 main src"));
        assert_eq!(expanded("v1..").as_deref(), Some("v1 HEAD"));
        assert_eq!(expanded("..origin/main").as_deref(), Some("HEAD origin/main"));
        assert_eq!(expanded("v1...main"), None);
    }

    #[test]
    fn a_path_is_no_range() {
        for args in ["..", "../x", "a/../b", "v1:a..b", "v1 a..b", "v1"] {
            assert_eq!(expanded(args).as_deref(), Some(args));
        }
    }
}
