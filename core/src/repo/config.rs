//! `config.toml` of a store: format version, cutting, compression, defaults.
//!
//! The file is read whole on every start and refused whole: an unknown key or
//! a value out of range is an error that names the file, the line and the key.
//! A store of a newer version is refused before anything else is looked at,
//! because its other keys may be unknown for good reason.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    base::{kind::ErrorKind, limits},
    chunk::Params,
    codec::DEFAULT_LEVEL,
};

/// Name of the file in a store.
pub const FILE: &str = "config.toml";

/// Newest store version known.
pub const VERSION: u32 = 1;

/// Smallest size a chunk may be configured to. Below it the chunk lists
/// outgrow what they save.
const CHUNK_MIN_BYTES: u64 = 4 << 10;

/// Settings of one store.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Store version; always [`VERSION`].
    pub version: u32,
    /// How large files are cut.
    #[serde(default)]
    pub chunk: Chunk,
    /// How frames are compressed.
    #[serde(default)]
    pub compression: Compression,
    /// Defaults of `commit`.
    #[serde(default)]
    pub commit: CommitDefaults,
}

/// Sizes of chunks in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Chunk {
    /// No chunk but the last of a file is smaller.
    pub min: u64,
    /// What chunks come to on average; a power of two.
    pub average: u64,
    /// No chunk is larger.
    pub max: u64,
}

/// How frames are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Compression {
    /// zstd level, 1 to 19.
    pub level: i32,
}

/// What `commit` takes where nothing else says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommitDefaults {
    /// Who commits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Name of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
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
        }
    }
}

/// Why a configuration is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not TOML, an unknown key, or a value of the wrong type.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What the parser says; names the key.
        message: String,
    },
    /// A value is out of range.
    #[error("{}: `{key}` is {found}, but must be {rule}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Such as `chunk.min`.
        key: &'static str,
        /// Its value.
        found: String,
        /// What is allowed.
        rule: &'static str,
    },
    /// The store was made by a newer version.
    #[error("{} says store version {found}; this snap reads up to {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest one known.
        known: u32,
    },
    /// A value of the wrong type for a setting.
    #[error("`{key}`: {message}")]
    Type {
        /// The setting.
        key: String,
        /// What the parser says.
        message: String,
    },
    /// No such key.
    #[error("`{key}` is not a setting")]
    UnknownKey {
        /// What was asked for.
        key: String,
    },
}

impl ConfigError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            // What this snap cannot read, a later one may.
            Self::Newer { .. } | Self::Syntax { .. } => ErrorKind::Unsupported,
            _ => ErrorKind::Invalid,
        }
    }
}

impl Config {
    /// Parses the text of the file at `path`, which is only named in errors.
    ///
    /// # Errors
    /// [`ConfigError`] names file, line and key.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let syntax = |error: &toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            let before = text.get(..start).unwrap_or(text);
            ConfigError::Syntax {
                path: path.to_owned(),
                line: before.matches('\n').count() + 1,
                message: error.message().replace('\n', ", "),
            }
        };
        let table: toml::Table = text.parse().map_err(|error| syntax(&error))?;
        if let Some(found) = table.get("version").and_then(toml::Value::as_integer)
            && found > i64::from(VERSION)
        {
            return Err(ConfigError::Newer { path: path.to_owned(), found, known: VERSION });
        }
        let config: Self = toml::from_str(text).map_err(|error| syntax(&error))?;
        config.check(path)?;
        Ok(config)
    }

    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let Chunk { min, average, max } = self.chunk;
        let largest = limits::CHUNK_BYTES as u64;
        let level = self.compression.level;
        let rules = [
            (self.version == VERSION, "version", u64::from(self.version).to_string(), "1"),
            (
                average.is_power_of_two() && average <= largest,
                "chunk.average",
                average.to_string(),
                "a power of two, at most 8 MiB",
            ),
            (
                (CHUNK_MIN_BYTES..average).contains(&min),
                "chunk.min",
                min.to_string(),
                "at least 4096 and less than `chunk.average`",
            ),
            (
                max > average && max <= largest,
                "chunk.max",
                max.to_string(),
                "more than `chunk.average` and at most 8388608",
            ),
            ((1..=19).contains(&level), "compression.level", level.to_string(), "from 1 to 19"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, key, found, rule)) => {
                Err(ConfigError::Value { path: path.to_owned(), key, found, rule })
            }
        }
    }

    /// The file's text, with comments that say what each setting is.
    pub fn to_text(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let optional = |key: &str, value: &Option<String>| match value {
            Some(value) => format!("{key} = {}", quoted(value)),
            None => format!("# {key} = \"\""),
        };
        let exclude: Vec<String> = self.commit.exclude.iter().map(|p| quoted(p)).collect();
        format!(
            include_str!("config_template.txt"),
            version = self.version,
            min = self.chunk.min,
            average = self.chunk.average,
            max = self.chunk.max,
            level = self.compression.level,
            author = optional("author", &self.commit.author),
            host = optional("host", &self.commit.host),
            exclude = exclude.join(", "),
            exclude_caches = self.commit.exclude_caches,
            gitignore = self.commit.gitignore,
        )
    }

    /// All settings with their values, in the order of the file; one without
    /// a value is `None`.
    pub fn entries(&self) -> Vec<(&'static str, Option<toml::Value>)> {
        use toml::Value;
        // Checked values are far below the largest number TOML can hold.
        let number = |value: u64| Value::Integer(value.try_into().unwrap_or(i64::MAX));
        let text = |value: &Option<String>| value.as_deref().map(Value::from);
        vec![
            ("version", Some(number(self.version.into()))),
            ("chunk.min", Some(number(self.chunk.min))),
            ("chunk.average", Some(number(self.chunk.average))),
            ("chunk.max", Some(number(self.chunk.max))),
            ("compression.level", Some(Value::Integer(self.compression.level.into()))),
            ("commit.author", text(&self.commit.author)),
            ("commit.host", text(&self.commit.host)),
            ("commit.exclude", Some(Value::from(self.commit.exclude.clone()))),
            ("commit.exclude_caches", Some(Value::from(self.commit.exclude_caches))),
            ("commit.gitignore", Some(Value::from(self.commit.gitignore))),
        ]
    }

    /// This configuration with one setting changed; `value` is TOML, or else
    /// taken as a text.
    ///
    /// # Errors
    /// [`ConfigError`] when there is no such key or the value does not fit.
    pub fn with(&self, key: &str, value: &str, path: &Path) -> Result<Self, ConfigError> {
        let name = key;
        let unknown = || ConfigError::UnknownKey { key: name.to_owned() };
        if !self.entries().iter().any(|(known, _)| *known == key) {
            return Err(unknown());
        }
        let parsed = format!("value = {value}").parse::<toml::Table>().ok();
        let parsed = parsed.and_then(|mut table| table.remove("value"));
        let value = parsed.unwrap_or_else(|| toml::Value::from(value));
        let mut table = toml::Table::try_from(self).map_err(|_| unknown())?;
        match key.split_once('.') {
            None => {
                table.insert(key.to_owned(), value);
            }
            Some((section, key)) => {
                let section = table.get_mut(section).and_then(toml::Value::as_table_mut);
                section.ok_or_else(unknown)?.insert(key.to_owned(), value);
            }
        }
        let shown = table.to_string();
        Self::parse(&shown, path).map_err(|error| match error {
            // The line of a table that never was a file would mislead.
            ConfigError::Syntax { message, .. } => {
                ConfigError::Type { key: name.to_owned(), message }
            }
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new(FILE))
    }

    #[test]
    fn the_written_default_reads_back() {
        let config = Config::default();
        assert_eq!(parse(&config.to_text()).unwrap(), config);
        assert_eq!(parse("version = 1").unwrap(), config);
    }

    #[test]
    fn every_setting_survives_writing() {
        let mut config = Config::default();
        for (key, value) in [
            ("chunk.min", "65536"),
            ("compression.level", "7"),
            ("commit.author", "Ann \"A\" O'Neil"),
            ("commit.exclude", r#"["*.o", "/tmp"]"#),
            ("commit.gitignore", "true"),
        ] {
            config = config.with(key, value, Path::new(FILE)).unwrap();
        }
        assert_eq!(config.commit.exclude, ["*.o", "/tmp"]);
        assert_eq!(parse(&config.to_text()).unwrap(), config);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, message) in [
            ("version = 1\nchunks = 3", "config.toml:2: unknown field `chunks`"),
            ("version = 1\n[chunk]\nmin = 'x'", "config.toml:3: invalid type: string"),
            (
                "version = 1\n[chunk]\nmin = 1",
                "config.toml: `chunk.min` is 1, but must be at least",
            ),
            ("version = 1\n[chunk]\naverage = 1000000", "`chunk.average` is 1000000"),
            ("version = 1\n[compression]\nlevel = 20", "`compression.level` is 20"),
            ("version = 2\nnews = 1", "says store version 2; this snap reads up to 1"),
            ("", "missing field `version`"),
            ("version = 0", "`version` is 0"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text:?}: {error}");
        }
        assert_eq!(parse("version = 9").unwrap_err().kind(), ErrorKind::Unsupported);
        let unknown = Config::default().with("chunk.size", "1", Path::new(FILE)).unwrap_err();
        assert_eq!(unknown.to_string(), "`chunk.size` is not a setting");
    }
}
