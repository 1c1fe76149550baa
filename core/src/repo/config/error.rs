//! Errors in settings, and the origin of each value.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::{
    base::{io::PathError, kind::Kind},
    repo::config::layer::ConfigOwner,
};

/// The file that a setting belongs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementRule {
    UserFile,
    StoreFile,
}

impl fmt::Display for PlacementRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UserFile => "it belongs in the user's file",
            Self::StoreFile => "it belongs in a store's file",
        })
    }
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// The built-in default.
    BuiltIn,
    /// A settings file. Lines count from 1.
    File { owner: ConfigOwner, path: PathBuf, line: usize },
    /// The environment variable of this name.
    Variable(String),
    /// The command-line option of this name.
    Option(&'static str),
    /// An argument of `snap config`; errors do not name it.
    Argument,
}

impl SettingOrigin {
    /// Returns the name of the layer.
    pub fn layer(&self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::File { owner: ConfigOwner::System, .. } => "system",
            Self::File { owner: ConfigOwner::User, .. } => "user",
            Self::File { owner: ConfigOwner::Store, .. } => "store",
            Self::Variable(_) => "variable",
            Self::Option(_) | Self::Argument => "option",
        }
    }

    /// Returns true if the value comes from the store's file.
    pub fn is_of_store(&self) -> bool {
        matches!(self, Self::File { owner: ConfigOwner::Store, .. })
    }

    /// Returns the file and line of a value that comes from a file.
    pub fn file(&self) -> Option<(&Path, usize)> {
        if let Self::File { path, line, .. } = self { Some((path, *line)) } else { None }
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::File { path, line, .. } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Option(name) => f.write_str(name),
            Self::Argument => f.write_str("argument"),
        }
    }
}

/// Formats an origin as the prefix of a message.
fn at(origin: &SettingOrigin) -> String {
    if *origin == SettingOrigin::Argument { String::new() } else { format!("{origin}: ") }
}

/// Why settings are invalid or cannot be read.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(Invalid)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is not valid TOML.
    #[error("{}:{line}: {message}", path.display())]
    Syntax { path: PathBuf, line: usize, message: String },
    /// The file of a store is not valid TOML.
    #[error("{} is damaged: line {line}: {message}", path.display())]
    #[kind(Damaged)]
    Damaged { path: PathBuf, line: usize, message: String },
    /// The file has more bytes than a settings file may have.
    #[error("{} has more than {limit} bytes", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    /// A file or variable has an unknown setting; `close` are similar names.
    #[error("{origin}: `{key}` is not a setting")]
    Unknown { origin: Box<SettingOrigin>, key: String, close: Vec<String> },
    /// The user requested an unknown setting by name; `close` are similar names.
    #[error("`{key}` is not a setting")]
    UnknownKey { key: String, close: Vec<String> },
    /// A file, a variable or the user sets the size of chunks.
    #[error("{}`{key}` cannot be set: all stores cut large files in the same way", at(origin))]
    FixedChunks { origin: Box<SettingOrigin>, key: String },
    /// A value has the wrong type or breaks the rule for values of this setting.
    #[error("{}`{key}` is {found}, but must be {rule}", at(origin))]
    Value { origin: Box<SettingOrigin>, key: String, found: String, rule: String },
    /// A setting is in a file that it does not belong in.
    #[error("{}`{key}` is not allowed here: {rule}", at(origin))]
    Misplaced { origin: Box<SettingOrigin>, key: String, rule: PlacementRule },
    /// The store's file has no version.
    #[error("{}: `version` is missing", path.display())]
    #[kind(Unsupported)]
    NoVersion { path: PathBuf },
    /// The user tried to set the version of a store.
    #[error("`version` is the format version of the store and cannot be set")]
    FixedVersion,
    /// A newer version of snap created the store.
    #[error("{} has store version {found}; this snap reads up to {known}", path.display())]
    #[kind(Unsupported)]
    Newer { path: PathBuf, found: i64, known: u32 },
    /// A version of snap from before the first release created the store.
    #[error(
        "{} has store version {found}, from before the first release; this snap reads version \
         {known}",
        path.display()
    )]
    #[kind(Unsupported)]
    Older { path: PathBuf, found: i64, known: u32 },
    /// The syntax around a setting does not allow an edit, for example an inline table.
    #[error("{}: `{key}` is written in a form that cannot be edited", path.display())]
    #[kind(Unsupported)]
    NotEditable { path: PathBuf, key: String },
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] PathError),
}

impl ConfigError {
    /// Returns true if another version of snap created the store.
    pub fn is_of_version(&self) -> bool {
        matches!(self, Self::Newer { .. } | Self::Older { .. })
    }
}
