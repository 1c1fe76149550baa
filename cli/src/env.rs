//! Environment variables: the only place that reads them.
//!
//! | variable               | meaning                                         |
//! |------------------------|-------------------------------------------------|
//! | `SNAP_STORE`           | store folder, unless `--store` says another     |
//! | `SNAP_CONFIG`          | the user's file of settings; empty: there is none |
//! | `SNAP_AUTHOR`          | who commits, unless `--author` says another     |
//! | `SNAP_HOST`            | name of the machine, unless `--host` says another |
//! | `SNAP_SECTION_NAME`    | the setting `section.name`, such as `SNAP_COMPRESSION_LEVEL` |
//! | `SNAP_TIME`            | the present, RFC 3339; for tests and imports     |
//! | `SNAP_HOOK`            | set for hooks: a commit that one makes runs none |
//! | `XDG_CONFIG_HOME`, `HOME` | where the user's file is, and `~`             |
//! | `USER`, `LOGNAME`      | who commits where nothing else says so          |
//! | `NO_COLOR`, `CLICOLOR`, `CLICOLOR_FORCE`, `TERM` | colours, see <https://bixense.com/clicolors>; read by `anstream` |
//! | `TMPDIR`               | folder for what need not survive a command      |
//! | `TZ`                   | time zone; read by `jiff`                       |
//!
//! A variable that is empty counts as not set, but for `SNAP_CONFIG`.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// What the environment says.
#[derive(Debug, Default)]
pub(crate) struct Env {
    /// `SNAP_STORE`
    pub(crate) store: Option<PathBuf>,
    /// `SNAP_CONFIG`, also when it is empty
    pub(crate) config: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`, else `.config` in the home folder
    pub(crate) config_home: Option<PathBuf>,
    /// `HOME`
    pub(crate) home: Option<PathBuf>,
    /// `SNAP_TIME`
    pub(crate) time: Option<String>,
    /// `TMPDIR`, else the system's
    pub(crate) temp: PathBuf,
    /// `USER`, else `LOGNAME`
    pub(crate) user: Option<String>,
    /// Whether `SNAP_HOOK` is set
    pub(crate) in_hook: bool,
    /// Every variable that starts with `SNAP_`, sorted
    pub(crate) snap: Vec<(String, OsString)>,
}

impl Env {
    /// Reads all of them.
    pub(crate) fn read() -> Self {
        // What is not absolute is to be ignored, says the XDG specification.
        let folder = |name| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = folder("HOME");
        let below_home = || home.as_deref().map(|home: &Path| home.join(".config"));
        Self {
            store: var("SNAP_STORE").map(PathBuf::from),
            config: env::var_os("SNAP_CONFIG").map(PathBuf::from),
            config_home: folder("XDG_CONFIG_HOME").or_else(below_home),
            time: text("SNAP_TIME"),
            temp: env::temp_dir(),
            user: text("USER").or_else(|| text("LOGNAME")),
            in_hook: var("SNAP_HOOK").is_some(),
            snap: all("SNAP_"),
            home,
        }
    }
}

fn var(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn text(name: &str) -> Option<String> {
    var(name).map(|value| value.to_string_lossy().into_owned())
}

/// Variables whose name starts with `prefix`, sorted.
fn all(prefix: &str) -> Vec<(String, OsString)> {
    let ours = |(name, value): (OsString, OsString)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(prefix))?;
        (!value.is_empty()).then_some((name, value))
    };
    let mut found: Vec<_> = env::vars_os().filter_map(ours).collect();
    found.sort();
    found
}
