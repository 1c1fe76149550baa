//! Why settings are not usable, and where each value comes from.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::base::kind::ErrorKind;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    BuiltIn,
    /// The system's file.
    System {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// The user's file.
    User {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// The store's file.
    Store {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// A variable of the environment.
    Variable(String),
    /// An option of the command line.
    Option(&'static str),
    /// An argument of `snap config`; it has no place to be named.
    Argument,
}

impl Origin {
    /// Name of the layer.
    pub fn layer(&self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::System { .. } => "system",
            Self::User { .. } => "user",
            Self::Store { .. } => "store",
            Self::Variable(_) => "variable",
            Self::Option(_) | Self::Argument => "option",
        }
    }

    /// File and line.
    pub fn file(&self) -> Option<(&Path, usize)> {
        match self {
            Self::System { path, line }
            | Self::User { path, line }
            | Self::Store { path, line } => Some((path, *line)),
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::System { path, line }
            | Self::User { path, line }
            | Self::Store { path, line } => {
                write!(f, "{}:{line}", path.display())
            }
            Self::Variable(name) => f.write_str(name),
            Self::Option(name) => f.write_str(name),
            Self::Argument => f.write_str("argument"),
        }
    }
}

/// An origin in front of a message.
fn at(origin: &Origin) -> String {
    if *origin == Origin::Argument { String::new() } else { format!("{origin}: ") }
}

/// Why settings are not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not TOML.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// The file is far too long to be one of settings.
    #[error("{} has more than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What is allowed.
        limit: u64,
    },
    /// No such setting.
    #[error("{origin}: `{key}` is not a setting")]
    Unknown {
        /// Where it stands.
        origin: Box<Origin>,
        /// Its name.
        key: String,
        /// Settings of a name like it.
        close: Vec<String>,
    },
    /// No such setting, asked for by name.
    #[error("`{key}` is not a setting")]
    UnknownKey {
        /// What was asked for.
        key: String,
        /// Settings of a name like it.
        close: Vec<String>,
    },
    /// A value of the wrong type, or out of range.
    #[error("{}`{key}` is {found}, but must be {rule}", at(origin))]
    Value {
        /// Where it stands.
        origin: Box<Origin>,
        /// Such as `chunk.min`.
        key: String,
        /// Its value.
        found: String,
        /// What is allowed.
        rule: String,
    },
    /// A setting that may not stand there.
    #[error("{}`{key}` has no place here: {rule}", at(origin))]
    Misplaced {
        /// Where it stands.
        origin: Box<Origin>,
        /// Its name.
        key: String,
        /// Where it belongs.
        rule: &'static str,
    },
    /// The store's file says no version.
    #[error("{}: `version` is missing", path.display())]
    NoVersion {
        /// The file.
        path: PathBuf,
    },
    /// The version of a store was to be set.
    #[error("`version` says how a store is written, and cannot be set")]
    FixedVersion,
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
    /// A setting that is to be changed stands where it cannot be.
    #[error("{}: `{key}` stands where it cannot be changed", path.display())]
    Awkward {
        /// The file.
        path: PathBuf,
        /// Its name.
        key: String,
    },
}

impl ConfigError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            // What this snap cannot read, a later one may.
            Self::Newer { .. } | Self::NoVersion { .. } | Self::Awkward { .. } => {
                ErrorKind::Unsupported
            }
            _ => ErrorKind::Invalid,
        }
    }
}
