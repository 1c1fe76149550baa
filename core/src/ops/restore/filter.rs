//! Which entries a restore is about: include and exclude patterns.
//!
//! Patterns are those of ignore files, over paths relative to what is
//! restored. An excluded folder is not entered. Whatever is in an included
//! folder is included; a folder that is not may still hold something that is.

use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::{
    local::pattern::as_git_reads,
    ops::restore::{Options, RestoreError},
};

/// What the patterns say about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// It is restored.
    Wanted,
    /// It is not, but what is in it may be.
    Unwanted,
    /// Neither it nor what is in it.
    Excluded,
}

/// The patterns of one restore.
#[derive(Debug)]
pub(super) struct Filter {
    include: Option<Gitignore>,
    exclude: Option<Gitignore>,
}

impl Filter {
    pub(super) fn new(options: &Options<'_>) -> Result<Self, RestoreError> {
        Ok(Self { include: build(&options.include)?, exclude: build(&options.exclude)? })
    }

    /// Whether everything is wanted, so that no paths need be made.
    pub(super) fn is_open(&self) -> bool {
        self.include.is_none() && self.exclude.is_none()
    }

    /// Whether the top folder itself is wanted.
    pub(super) fn wants_top(&self) -> bool {
        self.include.is_none()
    }

    /// What becomes of the entry at `path`, in a folder that is wanted or not.
    pub(super) fn choose(&self, path: &Path, is_folder: bool, folder_wanted: bool) -> Choice {
        let hits = |set: &Gitignore| set.matched(path, is_folder).is_ignore();
        if self.exclude.as_ref().is_some_and(hits) {
            Choice::Excluded
        } else if folder_wanted || self.include.as_ref().is_none_or(hits) {
            Choice::Wanted
        } else {
            Choice::Unwanted
        }
    }
}

fn build(patterns: &[String]) -> Result<Option<Gitignore>, RestoreError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut builder = GitignoreBuilder::new("");
    for pattern in patterns {
        let broken = |source| RestoreError::Pattern { pattern: pattern.clone(), source };
        builder.add_line(None, &as_git_reads(pattern)).map_err(broken)?;
    }
    let broken = |source| RestoreError::Pattern { pattern: patterns.join(", "), source };
    builder.build().map(Some).map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let owned = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect();
        let options =
            Options { include: owned(include), exclude: owned(exclude), ..Options::default() };
        Filter::new(&options).unwrap()
    }

    #[test]
    fn what_is_in_an_included_folder_is_included() {
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
    fn a_pattern_that_makes_no_sense_is_named() {
        let options = Options { include: vec!["[z-a]".to_owned()], ..Options::default() };
        let error = Filter::new(&options).unwrap_err();
        assert!(error.to_string().contains("`[z-a]`"), "{error}");
    }
}
