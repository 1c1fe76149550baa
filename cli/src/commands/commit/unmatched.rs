//! Finds exclude patterns that can match nothing, because they are written as paths on disk.
//!
//! Patterns are relative to the snapshot. With the source `/home`, the pattern `/home/u` means
//! `/home/home/u`: if there is no `/home/home`, it excludes nothing.

use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt, path::Path};

use snap_core::{base::name::EntryName, ops::commit::CommitSource, repo::path::components};

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
    patterns: &[String],
    cx: &Context,
) -> Result<(), CliError> {
    let (sources, has_name) = sources(source)?;
    for pattern in patterns {
        let Some((source, rest)) = meant(pattern, &sources, &*has_name) else { continue };
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

/// Returns true if the top of the snapshot may have an entry of this name.
type HasName<'s> = Box<dyn Fn(&[u8]) -> bool + 's>;

fn sources<'s>(source: &'s CommitSource<'_>) -> Result<(Vec<Source>, HasName<'s>), CliError> {
    let names = |path: &Path| -> Result<Vec<Vec<u8>>, CliError> {
        let absolute = source_name(path)?;
        Ok(components(&absolute).map(<[u8]>::to_vec).collect())
    };
    Ok(match source {
        CommitSource::Folder(path) | CommitSource::Partial(path, _) => {
            let has_name = |name: &[u8]| {
                let found = path.join(OsStr::from_bytes(name)).symlink_metadata();
                !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
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
            let has_name = |name: &[u8]| {
                named.iter().any(|path| path.inside.first().map(EntryName::as_bytes) == Some(name))
            };
            (sources, Box::new(has_name))
        }
        CommitSource::Stream { .. } => (Vec::new(), Box::new(|_| true)),
    })
}

/// Returns the source in which a pattern is a path on disk, and the rest of the pattern below it.
/// Returns `None` if the pattern may match something as it stands.
fn meant<'s>(
    pattern: &str,
    sources: &'s [Source],
    has_name: &dyn Fn(&[u8]) -> bool,
) -> Option<(&'s Source, Vec<Vec<u8>>)> {
    let names: Vec<&[u8]> = components(pattern.strip_prefix('/')?.as_bytes()).collect();
    let is_literal = |name: &[u8]| !name.iter().any(|byte| b"*?[]{}!\\".contains(byte));
    let first = names.first()?;
    if !is_literal(first) || has_name(first) {
        return None;
    }
    let is_in = |source: &&Source| {
        !source.on_disk.is_empty()
            && names.len() >= source.on_disk.len()
            && source.on_disk.iter().zip(&names).all(|(name, other)| name == other)
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
        let tops = |name: &[u8]| name == b"data" || name == b"u";
        let rest = |pattern| meant(pattern, &sources, &tops).map(|(_, rest)| rest.join(&b'/'));
        assert_eq!(rest("/home/u/cache/"), Some(b"u/cache".to_vec()));
        assert_eq!(rest("/home/*/cache"), Some(b"*/cache".to_vec()));
        assert_eq!(rest("/home"), Some(Vec::new()));
        assert_eq!(rest("/srv/data/x"), Some(b"x".to_vec()));
        for other in
            ["/u/home", "/data", "home/u", "/srv", "/h*me/u", "!/home/u", "/build", "/", ""]
        {
            assert_eq!(rest(other), None, "{other}");
        }
        let all = |_: &[u8]| true;
        assert!(meant("/home/u", &sources, &all).is_none(), "the source has such an entry");
    }
}
