//! Settings: `config.toml` of a store and of a user, and what they amount to.
//!
//! | module       | what                                                 |
//! |--------------|------------------------------------------------------|
//! | [`key`]      | every setting there is                               |
//! | [`layer`]    | the text of one file → values with their lines       |
//! | [`settings`] | layers, merged: system < user < store < variables < options |
//! | [`edit`]     | changing one setting, the comments stay              |
//! | [`mod@file`] | reading and writing, with owner and mode             |
//! | [`error`]    | what is wrong, and where                             |
//!
//! A file is read whole on every start and refused whole: an unknown setting
//! or a value that does not fit is an error that names the file and the line.
//! A store of a newer version is refused before anything else is looked at,
//! because its other settings may be unknown for good reason.

pub mod edit;
pub mod error;
pub mod file;
pub mod key;
pub mod layer;
pub mod settings;

use std::path::Path;

pub use self::{error::ConfigError, file::ConfigFile, settings::Settings};
use crate::{
    base::limits,
    chunk::Params,
    codec::DEFAULT_LEVEL,
    repo::config::{
        key::Value,
        layer::{Layer, Whose},
    },
};

/// Name of the file in a store.
pub const FILE: &str = "config.toml";

/// Newest store version known, in which new stores are written. In version 1 refs
/// have one line in a local store and two in a remote one
/// ([`ref_text`](crate::format::ref_text)); the first write of a ref makes such a
/// store one of version 2.
pub const VERSION: u32 = 2;

/// Oldest store version that is read.
const OLDEST_VERSION: u32 = 1;

/// Smallest size a chunk may be configured to. Below it the chunk lists
/// outgrow what they save.
const CHUNK_MIN_BYTES: u64 = 4 << 10;

/// Settings of one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Store version.
    pub version: u32,
    /// How large files are cut.
    pub chunk: Chunk,
    /// How frames are compressed.
    pub compression: Compression,
    /// Defaults of `commit`.
    pub commit: CommitDefaults,
    /// Number of threads of a commit or a restore. `None`: as many as the processor suggests.
    pub jobs: Option<usize>,
}

/// Sizes of chunks in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// No chunk but the last of a file is smaller.
    pub min: u64,
    /// What chunks come to on average; a power of two.
    pub average: u64,
    /// No chunk is larger.
    pub max: u64,
}

/// How frames are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// zstd level, 1 to 19.
    pub level: i32,
}

/// What `commit` takes where nothing else says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitDefaults {
    /// Who commits.
    pub author: Option<String>,
    /// Name of the machine.
    pub host: Option<String>,
    /// Patterns that are always excluded, in gitignore syntax.
    pub exclude: Vec<String>,
    /// Leave out folders with a `CACHEDIR.TAG`.
    pub exclude_caches: bool,
    /// Honour `.gitignore` files, too.
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
            jobs: None,
        }
    }
}

/// A rule that is broken: the setting, its value, and what it must be.
type Broken = (&'static str, u64, &'static str);

impl Config {
    /// Parses the text of a store's file at `path`, which is only named in
    /// errors.
    ///
    /// # Errors
    /// [`ConfigError`] names file, line and setting.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Settings::default().with_store(Layer::parse(text, path, Whose::Store)?).config()
    }

    /// The first rule that is broken.
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

    /// The text of a new store's file, of the newest version, with comments that say what each
    /// setting is. How the store is written is said in any case; what is as
    /// built in stands there as a comment, so that the user's file may say
    /// otherwise.
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
        let exclude = &self.commit.exclude;
        format!(
            include_str!("template.txt"),
            version = VERSION,
            min = self.chunk.min,
            average = self.chunk.average,
            max = self.chunk.max,
            level = line("level", Value::Number(level.into()), level == built_in.compression.level),
            author = optional("author", &self.commit.author),
            host = optional("host", &self.commit.host),
            exclude = line("exclude", Value::List(exclude.clone()), exclude.is_empty()),
            exclude_caches = flag("exclude_caches", self.commit.exclude_caches),
            gitignore = flag("gitignore", self.commit.gitignore),
        )
    }
}

#[cfg(test)]
mod tests;
