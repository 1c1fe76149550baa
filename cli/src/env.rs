//! Environment variables: the only place that reads them.
//!
//! | variable               | meaning                                         |
//! |------------------------|-------------------------------------------------|
//! | `SNAP_STORE`           | store folder, unless `--store` says another     |
//! | `SNAP_AUTHOR`          | who commits, unless `--author` says another     |
//! | `SNAP_HOST`            | name of the machine, unless `--host` says another |
//! | `SNAP_TIME`            | the present, RFC 3339; for tests and imports     |
//! | `USER`, `LOGNAME`      | who commits where nothing else says so          |
//! | `NO_COLOR`, `CLICOLOR`, `CLICOLOR_FORCE`, `TERM` | colours, see <https://bixense.com/clicolors>; read by `anstream` |
//! | `TMPDIR`               | folder for the index of a large bundle that is read in place |
//! | `TZ`                   | time zone; read by `jiff`                       |
//!
//! A variable that is empty counts as not set.

use std::{env, ffi::OsString, path::PathBuf};

/// What the environment says.
#[derive(Debug, Default)]
pub(crate) struct Env {
    /// `SNAP_STORE`
    pub(crate) store: Option<PathBuf>,
    /// `SNAP_AUTHOR`
    pub(crate) author: Option<String>,
    /// `SNAP_HOST`
    pub(crate) host: Option<String>,
    /// `SNAP_TIME`
    pub(crate) time: Option<String>,
    /// `TMPDIR`, else the system's
    pub(crate) temp: PathBuf,
    /// `USER`, else `LOGNAME`
    pub(crate) user: Option<String>,
}

impl Env {
    /// Reads all of them.
    pub(crate) fn read() -> Self {
        Self {
            store: var("SNAP_STORE").map(PathBuf::from),
            author: text("SNAP_AUTHOR"),
            host: text("SNAP_HOST"),
            time: text("SNAP_TIME"),
            temp: env::temp_dir(),
            user: text("USER").or_else(|| text("LOGNAME")),
        }
    }
}

fn var(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn text(name: &str) -> Option<String> {
    var(name).map(|value| value.to_string_lossy().into_owned())
}
