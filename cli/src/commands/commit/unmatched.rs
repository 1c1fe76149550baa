//! Finds exclude patterns that can match nothing, because they are written as paths on disk.
//!
//! Patterns are relative to the snapshot. With the source `/home`, the pattern `/home/u` means
//! `/home/home/u`: if there is no `/home/home`, it excludes nothing.

use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt, path::Path};

use snap_core::{
    base::name::EntryName, local::ignore, ops::commit::CommitSource, repo::path::components,
};

use crate::{commands::commit::source_name, context::Context, report::CliError, ui::text};

/// A source of a commit.
struct Source {
    /// Its absolute path, as names.
    on_disk: Vec<Vec<u8>>,
    /// Its path in the snapshot, as names.
    inside: Vec<Vec<u8>>,
}

/// Warns about patterns that are absolute paths in a source, and cannot match anything there.
pub(crate) fn warn(
    source: &CommitSource<'_>,
    rules: &ignore::Options,
    cx: &Context,
) -> Result<(), CliError> {
    let (sources, has_name) = sources(source)?;
    let exact = rules.patterns.iter().map(|pattern| (pattern, Case::Exact));
    let ignored = rules.ignore_case_patterns.iter().map(|pattern| (pattern, Case::Ignored));
    for (pattern, case) in exact.chain(ignored) {
        let Some((source, rest)) = meant((pattern, case), &sources, &*has_name) else { continue };
        let written = text::line(pattern.as_bytes());
        let mut names = source.inside.clone();
        names.extend(rest);
        match names.is_empty() {
            true => cx.ui().warning(format_args!(
                "the pattern `{written}` excludes nothing: patterns are relative to the committed \
                 folder"
            )),
            false => {
                let better = text::line(&[&b"/"[..], &names.join(&b'/')].concat());
                cx.ui().warning(format_args!(
                    "the pattern `{written}` excludes nothing: patterns are relative to the top of \
                     the snapshot; write `{better}`"
                ));
            }
        }
    }
    Ok(())
}

/// Selects whether a pattern matches letters of the other case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Exact,
    /// ASCII letters match in either case.
    Ignored,
}

impl Case {
    fn are_equal(self, one: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Exact => one == other,
            Self::Ignored => one.eq_ignore_ascii_case(other),
        }
    }
}

/// Returns true if the top of the snapshot may have an entry of this name.
type HasName<'s> = Box<dyn Fn(&[u8], Case) -> bool + 's>;

fn sources<'s>(source: &'s CommitSource<'_>) -> Result<(Vec<Source>, HasName<'s>), CliError> {
    let names = |path: &Path| -> Result<Vec<Vec<u8>>, CliError> {
        let absolute = source_name(path)?;
        Ok(components(&absolute).map(<[u8]>::to_vec).collect())
    };
    Ok(match source {
        CommitSource::Folder(path) | CommitSource::Partial(path, _) => {
            let has_name = move |name: &[u8], case: Case| {
                let found = path.join(OsStr::from_bytes(name)).symlink_metadata();
                let is_similar = |entry: io::Result<fs_err::DirEntry>| {
                    entry.is_ok_and(|entry| case.are_equal(entry.file_name().as_bytes(), name))
                };
                !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
                    || case == Case::Ignored
                        && fs_err::read_dir(path).is_ok_and(|mut all| all.any(is_similar))
            };
            let source = Source { on_disk: names(path)?, inside: Vec::new() };
            (vec![source], Box::new(has_name))
        }
        CommitSource::Paths(named) => {
            let mut sources = Vec::new();
            for path in named {
                let inside = path.inside.iter().map(|name| name.as_bytes().to_vec()).collect();
                sources.push(Source { on_disk: names(&path.path)?, inside });
            }
            let has_name = |name: &[u8], case: Case| {
                let tops = named.iter().filter_map(|path| path.inside.first());
                tops.map(EntryName::as_bytes).any(|top| case.are_equal(top, name))
            };
            (sources, Box::new(has_name))
        }
        CommitSource::Stream { .. } | CommitSource::Stored(_) => {
            (Vec::new(), Box::new(|_, _| true))
        }
    })
}

/// Returns the source in which a pattern is a path on disk, and the rest of the pattern below it.
/// Returns `None` if the pattern may match something as it stands.
fn meant<'s>(
    (pattern, case): (&str, Case),
    sources: &'s [Source],
    has_name: &dyn Fn(&[u8], Case) -> bool,
) -> Option<(&'s Source, Vec<Vec<u8>>)> {
    let names: Vec<&[u8]> = components(pattern.strip_prefix('/')?.as_bytes()).collect();
    let is_literal = |name: &[u8]| !name.iter().any(|byte| b"*?[]{}!\\".contains(byte));
    let first = names.first()?;
    if !is_literal(first) || has_name(first, case) {
        return None;
    }
    let is_in = |source: &&Source| {
        !source.on_disk.is_empty()
            && names.len() >= source.on_disk.len()
            && source.on_disk.iter().zip(&names).all(|(name, other)| case.are_equal(name, other))
    };
    let source = sources.iter().find(is_in)?;
    let rest = names[source.on_disk.len()..].iter().map(|name| name.to_vec());
    Some((source, rest.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_patterns_that_are_paths_in_a_source_and_match_nothing_are_meant_otherwise() {
        let names = |path: &str| components(path.as_bytes()).map(<[u8]>::to_vec).collect();
        let source = |on_disk, inside| Source { on_disk: names(on_disk), inside: names(inside) };
        let sources = [source("/home", ""), source("/srv/data", "data")];
        let tops = |name: &[u8], case: Case| {
            [&b"data"[..], b"u"].iter().any(|top| case.are_equal(top, name))
        };
        let rest_of = |pattern, case| {
            meant((pattern, case), &sources, &tops).map(|(_, rest)| rest.join(&b'/'))
        };
        let rest = |pattern| rest_of(pattern, Case::Exact);
        assert_eq!(rest("/home/u/cache/"), Some(b"u/cache".to_vec()));
        assert_eq!(rest("/home/*/cache"), Some(b"*/cache".to_vec()));
        assert_eq!(rest("/home"), Some(Vec::new()));
        assert_eq!(rest("/srv/data/x"), Some(b"x".to_vec()));
        for other in
            ["/u/home", "/data", "home/u", "/srv", "/h*me/u", "!/home/u", "/build", "/", ""]
        {
            assert_eq!(rest(other), None, "{other}");
        }
        assert_eq!(rest("/HOME/u"), None);
        assert_eq!(rest_of("/HOME/u/Cache", Case::Ignored), Some(b"u/Cache".to_vec()));
        assert_eq!(rest_of("/DATA", Case::Ignored), None);
        let all = |_: &[u8], _| true;
        let found = meant(("/home/u", Case::Exact), &sources, &all);
        assert!(found.is_none(), "the source has such an entry");
    }
}
