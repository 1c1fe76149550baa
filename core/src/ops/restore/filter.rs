//! Selects the entries of a restore with include and exclude patterns, and with an exact set of
//! paths.
//!
//! Patterns use the syntax of ignore files and match paths relative to the restored tree. An
//! excluded folder is not entered. Everything in an included folder is included. A folder that is
//! not included may still contain included entries.

use std::{os::unix::ffi::OsStrExt, path::Path};

use rustix::fs::Stat;

use crate::{
    base::name::EntryName,
    local::{
        contain::FolderPath,
        pattern::{PatternSet, Verdict, excerpt},
        wildmatch::Letters,
    },
    ops::restore::{ExactPaths, RestoreError, RestoreOptions},
};

/// The decision of the patterns on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The entry is restored.
    Wanted,
    /// The entry is not restored, but entries in it may be.
    Unwanted,
    /// Neither the entry nor anything in it is restored.
    Excluded,
}

/// The patterns and the exact paths of one restore.
#[derive(Debug)]
pub(super) struct Filter<'a> {
    include: Option<PatternSet>,
    exclude: Option<PatternSet>,
    only: Option<&'a ExactPaths>,
}

impl<'a> Filter<'a> {
    pub(super) fn new(options: &RestoreOptions<'a>) -> Result<Self, RestoreError> {
        let (include, exclude) = (build(&options.include)?, build(&options.exclude)?);
        Ok(Self { include, exclude, only: options.only })
    }

    /// Returns true if the root folder itself is restored.
    pub(super) fn wants_top(&self) -> bool {
        self.include.is_none() && self.only.is_none_or(ExactPaths::has_top)
    }

    /// Returns true if a set of exact paths limits the restore. Folders above a restored entry then
    /// keep their attributes. With patterns, these folders get the attributes of the snapshot.
    pub(super) fn is_exact(&self) -> bool {
        self.only.is_some()
    }

    /// Returns true if an existing entry may be replaced: it is as the caller saw it.
    pub(super) fn is_as_seen(&self, path: &Path, stat: Option<&Stat>) -> bool {
        self.only.is_none_or(|only| only.is_as_seen(path, stat))
    }

    /// As [`Filter::choose`], for the entry `name` of `folder`. Builds no path if there is nothing
    /// to match.
    pub(super) fn choose_entry(
        &self,
        folder: &FolderPath,
        name: &EntryName,
        is_folder: bool,
        folder_wanted: bool,
    ) -> Choice {
        if self.include.is_none() && self.exclude.is_none() && self.only.is_none() {
            return Choice::Wanted;
        }
        self.choose(&folder.join(name), is_folder, folder_wanted)
    }

    /// Returns the decision on the entry at `path`. `folder_wanted` is true if its folder
    /// is restored.
    fn choose(&self, path: &Path, is_folder: bool, folder_wanted: bool) -> Choice {
        let bytes = path.as_os_str().as_bytes();
        let hits = |set: &PatternSet| set.matched(bytes, is_folder) == Some(Verdict::Excluded);
        if self.exclude.as_ref().is_some_and(hits) {
            Choice::Excluded
        } else if let Some(only) = self.only {
            only.choose(path)
        } else if folder_wanted || self.include.as_ref().is_none_or(hits) {
            Choice::Wanted
        } else {
            Choice::Unwanted
        }
    }
}

fn build(patterns: &[String]) -> Result<Option<PatternSet>, RestoreError> {
    let mut set = PatternSet::default();
    for pattern in patterns {
        let broken = |source| RestoreError::Pattern { pattern: excerpt(pattern), source };
        set.add(pattern, Letters::Exact).map_err(broken)?;
    }
    Ok(Some(set).filter(|_| !patterns.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter<'static> {
        let owned = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect();
        let options = RestoreOptions {
            include: owned(include),
            exclude: owned(exclude),
            ..RestoreOptions::default()
        };
        Filter::new(&options).unwrap()
    }

    #[test]
    fn an_included_folder_includes_its_entries() {
        let filter = filter(&["src/", "*.md"], &["*.o"]);
        assert!(!filter.wants_top());
        for (path, is_folder, inside, choice) in [
            ("src", true, false, Choice::Wanted),
            ("src", false, false, Choice::Unwanted),
            ("src/a.c", false, true, Choice::Wanted),
            ("src/a.o", false, true, Choice::Excluded),
            ("docs", true, false, Choice::Unwanted),
            ("docs/a.md", false, false, Choice::Wanted),
        ] {
            assert_eq!(filter.choose(Path::new(path), is_folder, inside), choice, "{path}");
        }
    }

    #[test]
    fn an_error_names_the_invalid_pattern() {
        let options =
            RestoreOptions { include: vec!["[z".to_owned()], ..RestoreOptions::default() };
        let error = Filter::new(&options).unwrap_err();
        assert!(error.to_string().contains("`[z`"), "{error}");
    }
}
