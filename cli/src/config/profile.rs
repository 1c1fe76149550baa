//! Profiles: named sets of options for repeated commits.

use std::{collections::BTreeMap, path::PathBuf};

use snap_core::repo::config::key::{KeyPath, Value};

use crate::{
    config::Settings,
    report::{CliError, SensitiveSetting},
};

/// The settings of one profile.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// Paths to commit, as they were written.
    pub(crate) paths: Vec<String>,
    /// Exclude patterns, in addition to those of `commit.exclude`.
    pub(crate) exclude: Vec<String>,
    /// Patterns that ignore case, in addition to those of `commit.iexclude`.
    pub(crate) iexclude: Vec<String>,
    /// Markers, in addition to those of `commit.exclude_if_present`.
    pub(crate) exclude_if_present: Vec<String>,
    /// Overrides `commit.exclude_caches`.
    pub(crate) exclude_caches: Option<bool>,
    /// Overrides `commit.gitignore`.
    pub(crate) gitignore: Option<bool>,
    /// True if folders on other file systems are not entered.
    pub(crate) one_file_system: bool,
    /// Labels of the commit.
    pub(crate) labels: BTreeMap<String, String>,
    /// Branch to commit onto.
    pub(crate) branch: Option<String>,
    /// Message of the commit.
    pub(crate) message: Option<String>,
    /// Store to commit to, as it was written.
    pub(crate) store: Option<String>,
}

impl Settings {
    /// Returns the profile of this name, if it exists. If a part of it is in the store's file, the
    /// user must trust that file, because a profile decides which files are read.
    pub(crate) fn find_profile(&self, name: &str) -> Result<Option<Profile>, CliError> {
        if !self.merged.profiles().contains_key(name) {
            return Ok(None);
        }
        let key = |part: &str| KeyPath::new(["profile", name, part]);
        let section = KeyPath::new(["profile", name]);
        let mut labels = BTreeMap::new();
        for (path, value) in self.merged.all() {
            if !path.is_in(&section) {
                continue;
            }
            if let Some((_, origin)) = &value {
                self.check_trust(origin, || SensitiveSetting::Profile(name.to_owned()))?;
            }
            if let ([_, _, part, label], Some((Value::Text(text), _))) = (path.parts(), value)
                && part == "labels"
            {
                labels.insert(label.clone(), text);
            }
        }
        Ok(Some(Profile {
            paths: self.merged.list(&key("paths")),
            exclude: self.merged.list(&key("exclude")),
            iexclude: self.merged.list(&key("iexclude")),
            exclude_if_present: self.merged.list(&key("exclude_if_present")),
            exclude_caches: self.merged.flag(&key("exclude_caches")),
            gitignore: self.merged.flag(&key("gitignore")),
            one_file_system: self.merged.flag(&key("one_file_system")).unwrap_or(false),
            labels,
            branch: self.merged.text(&key("branch")),
            message: self.merged.text(&key("message")),
            store: self.merged.text(&key("store")),
        }))
    }

    /// Returns the profile of this name.
    pub(crate) fn profile(&self, name: &str) -> Result<Profile, CliError> {
        self.find_profile(name)?.ok_or_else(|| {
            let known = self.merged.profiles().into_keys().map(str::to_owned).collect();
            CliError::NoProfile { name: name.to_owned(), known }
        })
    }

    /// Replaces `~` at the start of a path by the home folder.
    pub(crate) fn expand(&self, text: &str) -> Result<PathBuf, CliError> {
        let Some(rest) = text.strip_prefix('~') else { return Ok(PathBuf::from(text)) };
        let no_home = || CliError::NoHome { path: text.to_owned() };
        match (rest.strip_prefix('/'), rest.is_empty()) {
            (Some(below), _) => Ok(self.home.as_ref().ok_or_else(no_home)?.join(below)),
            (None, true) => self.home.clone().ok_or_else(no_home),
            (None, false) => Err(CliError::OtherHome { path: text.to_owned() }),
        }
    }
}
