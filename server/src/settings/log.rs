//! Settings for logs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings for logs: the format, the level, and the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// Format of a line.
    pub format: LogFormat,
    /// Which lines are logged.
    pub level: LogLevel,
    /// File of the audit log, to which JSON lines are appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<PathBuf>,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object for each line.
    Json,
}

/// Which lines are logged. Each level includes the lines of the levels before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Failures of this server.
    Error,
    /// Unusual conditions.
    Warn,
    /// Each request.
    #[default]
    Info,
    /// Why requests were refused.
    Debug,
}
