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
//! file invalid; the error names the file and the line. The version of a store is checked first,
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
    base::limits,
    chunk::Params,
    codec::DEFAULT_LEVEL,
    repo::config::{
        key::Value,
        layer::{Layer, Whose},
    },
};

/// Name of the settings file in a store.
pub const FILE: &str = "config.toml";

/// The newest known store version, which new stores get. In version 1, refs have one line in a
/// local store and two in a remote one ([`ref_text`](crate::format::ref_text)). The first write of
/// a ref upgrades such a store to version 2.
pub const VERSION: u32 = 2;

/// The oldest supported store version.
const OLDEST_VERSION: u32 = 1;

/// Minimum of `chunk.min`. With smaller chunks, the chunk lists take more space than deduplication
/// saves.
const CHUNK_MIN_BYTES: u64 = 4 << 10;

/// The settings of one store that core needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Store version.
    pub version: u32,
    /// Chunk sizes for large files.
    pub chunk: Chunk,
    /// Compression of frames.
    pub compression: Compression,
    /// Defaults of `commit`.
    pub commit: CommitDefaults,
    /// True if `pull` also updates the files of the project.
    pub pull_update: bool,
    /// Number of threads of a commit or a restore. `None`: as many as the processor suggests.
    pub jobs: Option<usize>,
}

/// Sizes of chunks in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Minimum chunk size; the last chunk of a file may be smaller.
    pub min: u64,
    /// Average chunk size; a power of two.
    pub average: u64,
    /// Maximum chunk size.
    pub max: u64,
}

/// Compression of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// zstd level, 1 to 19.
    pub level: i32,
}

/// Defaults for the options of `commit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitDefaults {
    /// The author.
    pub author: Option<String>,
    /// The name of the machine.
    pub host: Option<String>,
    /// Patterns that are always excluded, in gitignore syntax.
    pub exclude: Vec<String>,
    /// Further patterns, which ignore case.
    pub iexclude: Vec<String>,
    /// Markers of folders whose contents are excluded, each as `FILE` or `FILE:HEADER`.
    pub exclude_if_present: Vec<String>,
    /// Excludes folders that contain a `CACHEDIR.TAG`.
    pub exclude_caches: bool,
    /// Respects `.gitignore` files too.
    pub gitignore: bool,
}

impl Default for Chunk {
    fn default() -> Self {
        let params = Params::DEFAULT;
        let bytes = |size: usize| size as u64;
        Self {
            min: bytes(params.min()),
            average: bytes(params.average()),
            max: bytes(params.max()),
        }
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self { level: DEFAULT_LEVEL }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            version: VERSION,
            chunk: Chunk::default(),
            compression: Compression::default(),
            commit: CommitDefaults::default(),
            pull_update: false,
            jobs: None,
        }
    }
}

/// A broken rule: the setting, its value, and the text of the rule.
type Broken = (&'static str, u64, &'static str);

impl Config {
    /// Parses the text of a store's file at `path`. The path is only used in errors.
    ///
    /// # Errors
    /// [`ConfigError`] names the file, the line and the setting.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        SettingLayers::default().with_store(Layer::parse(text, path, Whose::Store)?).config()
    }

    /// Returns the first broken rule.
    fn check(&self) -> Option<Broken> {
        let Chunk { min, average, max } = self.chunk;
        let largest = limits::CHUNK_BYTES as u64;
        let rules: [(bool, Broken); 4] = [
            (
                (OLDEST_VERSION..=VERSION).contains(&self.version),
                ("version", self.version.into(), "1 or 2"),
            ),
            (
                average.is_power_of_two() && average <= largest,
                ("chunk.average", average, "a power of two, at most 8 MiB"),
            ),
            (
                (CHUNK_MIN_BYTES..average).contains(&min),
                ("chunk.min", min, "at least 4096 and less than `chunk.average`"),
            ),
            (
                max > average && max <= largest,
                ("chunk.max", max, "more than `chunk.average` and at most 8388608"),
            ),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map(|(_, broken)| broken)
    }

    /// Returns the text of a new store's settings file, of the newest version, with a comment for
    /// each setting. The version and the chunk sizes are always written. Other settings with
    /// default values are commented out, so that the user's file can override them.
    pub fn to_text(&self) -> String {
        let built_in = Self::default();
        let line = |key: &str, value: Value, is_built_in: bool| {
            let comment = if is_built_in { "# " } else { "" };
            format!("{comment}{key} = {value}")
        };
        let optional = |key: &str, value: &Option<String>| {
            let text = Value::Text(value.clone().unwrap_or_default());
            line(key, text, value.is_none())
        };
        let flag = |key: &str, value: bool| line(key, Value::Flag(value), !value);
        let level = self.compression.level;
        let list =
            |key: &str, list: &[String]| line(key, Value::List(list.to_vec()), list.is_empty());
        format!(
            include_str!("template.txt"),
            version = VERSION,
            min = self.chunk.min,
            average = self.chunk.average,
            max = self.chunk.max,
            level = line("level", Value::Number(level.into()), level == built_in.compression.level),
            author = optional("author", &self.commit.author),
            host = optional("host", &self.commit.host),
            exclude = list("exclude", &self.commit.exclude),
            iexclude = list("iexclude", &self.commit.iexclude),
            exclude_if_present = list("exclude_if_present", &self.commit.exclude_if_present),
            exclude_caches = flag("exclude_caches", self.commit.exclude_caches),
            gitignore = flag("gitignore", self.commit.gitignore),
        )
    }
}

#[cfg(test)]
mod tests;
