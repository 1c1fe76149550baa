//! Settings: `config.toml` of a store and of a user, and the merged values.
//!
//! | module       | purpose                                              |
//! |--------------|------------------------------------------------------|
//! | [`key`]      | the table of all settings                            |
//! | [`layer`]    | parses the text of one file into values with lines   |
//! | [`settings`] | merges layers: system < user < store < variables < options |
//! | [`edit`]     | changes one setting and keeps the comments           |
//! | [`mod@file`] | reads and writes files, with owner and mode          |
//! | [`error`]    | errors, with their file and line                     |
//!
//! Each start of snap reads the files whole. One unknown setting or invalid value makes the whole
//! file invalid; the error names the file and the line. Snap checks the version of a store first,
//! because a newer store may have settings that are unknown here.

pub mod edit;
pub mod error;
pub mod file;
pub mod key;
pub mod layer;
pub mod settings;

use std::path::Path;

pub use self::{error::ConfigError, file::ConfigFile, settings::SettingLayers};
use crate::{
    codec::DEFAULT_LEVEL,
    repo::config::{
        key::Value,
        layer::{ConfigOwner, Layer},
    },
};

/// Name of the settings file in a store.
pub const FILE: &str = "config.toml";

/// The version of stores. Versions 1 to 4 are from before the first release.
pub const VERSION: u32 = 5;

/// The settings of one store that core needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// zstd level, 1 to 19.
    pub compression_level: i32,
    pub commit: CommitDefaults,
    /// True if `pull` also updates the files of the project.
    pub pull_update: bool,
    /// Number of threads of a commit or a restore; `None` for the default, by the number of cores.
    pub jobs: Option<usize>,
}

/// Defaults for the options of `commit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitDefaults {
    pub author: Option<String>,
    /// The name of the machine.
    pub host: Option<String>,
    /// Patterns that are always excluded, in gitignore syntax.
    pub exclude: Vec<String>,
    /// Further patterns, which ignore case.
    pub iexclude: Vec<String>,
    /// Markers of folders with excluded contents, each as `FILE` or `FILE:HEADER`.
    pub exclude_if_present: Vec<String>,
    /// Excludes folders that contain a `CACHEDIR.TAG`.
    pub exclude_caches: bool,
    /// Respects `.gitignore` files too.
    pub gitignore: bool,
    /// Saves a `.git` at the top of the project.
    pub git: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            compression_level: DEFAULT_LEVEL,
            commit: CommitDefaults::default(),
            pull_update: false,
            jobs: None,
        }
    }
}

impl Config {
    /// Parses the text of a store's file at `path`, which only errors use.
    ///
    /// # Errors
    /// [`ConfigError`] names the file, the line and the setting.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        SettingLayers::default().with_store(Layer::parse(text, path, ConfigOwner::Store)?).config()
    }

    /// Returns the text of a new store's settings file, with a comment for each setting. The text
    /// always sets the version. It comments out other
    /// settings with default values, so that the user's file can override them.
    pub fn to_text(&self) -> String {
        let level = self.compression_level;
        let line = |key: &str, value: Value, is_built_in: bool| {
            let comment = if is_built_in { "# " } else { "" };
            format!("{comment}{key} = {value}")
        };
        let optional = |key: &str, value: &Option<String>| {
            let text = Value::Text(value.clone().unwrap_or_default());
            line(key, text, value.is_none())
        };
        let flag = |key: &str, value: bool| line(key, Value::Flag(value), !value);
        let list =
            |key: &str, list: &[String]| line(key, Value::List(list.to_vec()), list.is_empty());
        format!(
            include_str!("template.txt"),
            version = VERSION,
            level = line("level", Value::Number(level.into()), level == DEFAULT_LEVEL),
            author = optional("author", &self.commit.author),
            host = optional("host", &self.commit.host),
            exclude = list("exclude", &self.commit.exclude),
            iexclude = list("iexclude", &self.commit.iexclude),
            exclude_if_present = list("exclude_if_present", &self.commit.exclude_if_present),
            exclude_caches = flag("exclude_caches", self.commit.exclude_caches),
            gitignore = flag("gitignore", self.commit.gitignore),
            git = flag("git", self.commit.git),
        )
    }
}

#[cfg(test)]
mod tests;
