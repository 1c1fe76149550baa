//! What is logged.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What is logged, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// How a line looks.
    pub format: Format,
    /// What is not left out.
    pub level: Level,
    /// File to which writes are appended, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<PathBuf>,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// An object a line.
    Json,
}

/// Which lines there are. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// What failed here.
    Error,
    /// What is odd.
    Warn,
    /// Each request.
    #[default]
    Info,
    /// Why requests were refused.
    Debug,
}
