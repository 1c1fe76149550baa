//! Environment variables. This is the only module that reads them.
//!
//! [`VARIABLES`] describes each; the manual uses it too.
//!
//! An empty variable counts as unset, except for those that name a settings file: an empty one
//! means that there is no such file.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The description of each variable.
pub(crate) const VARIABLES: &[(&str, &str)] = &[
    ("SNAP_STORE", "store folder, unless --store is given"),
    (
        "SNAP_CEILING_DIRECTORIES",
        "colon-separated folders; the search for a store in parent folders stops before them",
    ),
    ("SNAP_TRUST", "colon-separated trusted stores or projects; see `snap config trust --help`"),
    ("SNAP_CONFIG", "the user's settings file; empty: none"),
    (
        "SNAP_CONFIG_SYSTEM",
        "the system's settings file, instead of /etc/snap/config.toml; empty: none",
    ),
    ("SNAP_AUTHOR", "author of commits, unless --author is given"),
    ("SNAP_HOST", "name of the machine, unless --host is given"),
    (
        "SNAP_REMOTE_USER, SNAP_REMOTE_SECRET, SNAP_REMOTE_SESSION",
        "name, secret and session token for the remote that the command uses",
    ),
    (
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE and others",
        "credentials for `s3` remotes, as in other tools; the files in ~/.aws are read, too",
    ),
    (
        "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION",
        "endpoint and region of `s3` remotes without these options",
    ),
    ("GOOGLE_APPLICATION_CREDENTIALS", "file with the credentials for `gs` remotes"),
    ("AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY", "account and key for `azblob` remotes"),
    ("SNAP_SECTION_NAME", "a setting; SNAP_COMPRESSION_LEVEL sets `compression.level`"),
    (
        "SNAP_SERVE_KEY",
        "a setting of `snap serve`; SNAP_SERVE_LIMITS_STOP_SECS sets \
                        `limits.stop_secs`",
    ),
    (
        "SNAP_PAGER, PAGER",
        "pager for long output: SNAP_PAGER overrides the setting `ui.pager`, which overrides \
         PAGER; default: `less`; `cat` disables the pager",
    ),
    ("SNAP_TIME", "the current time, in RFC 3339; for tests and imports"),
    ("SNAP_HOOK", "set for hooks; a commit made by a hook runs no hooks"),
    ("XDG_CONFIG_HOME, HOME", "folder of the user's settings, and the folder for `~`"),
    ("XDG_STATE_HOME", "folder of the record of trusted stores; default: `.local/state` in HOME"),
    ("SUDO_UID", "user whose stores are also trusted by root"),
    ("XDG_CACHE_HOME", "folder of the caches of remotes; default: `.cache` in HOME"),
    ("USER, LOGNAME", "author of commits, if no other is set"),
    ("LESS", "options of `less`; default: FRX"),
    (
        "NO_COLOR, CLICOLOR, CLICOLOR_FORCE, TERM",
        "whether to use colours, see https://bixense.com/clicolors",
    ),
    ("TMPDIR", "folder for temporary files"),
    ("TZ", "time zone of displayed and entered times"),
];

/// The environment variables that snap uses.
#[derive(Debug, Default)]
pub(crate) struct Env {
    /// `SNAP_STORE`
    pub(crate) store: Option<PathBuf>,
    /// `SNAP_CEILING_DIRECTORIES`
    pub(crate) ceilings: Vec<PathBuf>,
    /// `SNAP_TRUST`
    pub(crate) trust: Vec<PathBuf>,
    /// `SNAP_CONFIG_SYSTEM`, also when it is empty
    pub(crate) system_config: Option<PathBuf>,
    /// `SUDO_UID`
    pub(crate) sudo_uid: Option<u32>,
    /// `SNAP_CONFIG`, also when it is empty
    pub(crate) config: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`, else `.config` in the home folder
    pub(crate) config_home: Option<PathBuf>,
    /// `XDG_STATE_HOME`, else `.local/state` in the home folder
    pub(crate) state_home: Option<PathBuf>,
    /// `XDG_CACHE_HOME`, else `.cache` in the home folder
    pub(crate) cache_home: Option<PathBuf>,
    /// Variables about remotes
    pub(crate) remote: RemoteEnv,
    /// `HOME`
    pub(crate) home: Option<PathBuf>,
    /// `SNAP_TIME`
    pub(crate) time: Option<String>,
    /// `TMPDIR`, else the system's
    pub(crate) temp: PathBuf,
    /// `USER`, else `LOGNAME`
    pub(crate) user: Option<String>,
    /// True if `SNAP_HOOK` is set
    pub(crate) in_hook: bool,
    /// Every variable that starts with `SNAP_`, sorted
    pub(crate) snap: Vec<(String, OsString)>,
    /// `SNAP_PAGER`
    pub(crate) pager: Option<String>,
    /// `PAGER`
    pub(crate) usual_pager: Option<String>,
    /// Delay of progress bars in milliseconds, for tests: `SNAP_TEST_PROGRESS_MILLIS`
    pub(crate) progress_millis: Option<u64>,
    /// True if `LESS` is set.
    pub(crate) has_less: bool,
    /// True if `TERM` is that of a terminal without control sequences.
    pub(crate) is_dumb: bool,
    /// The switches of tests
    #[cfg(debug_assertions)]
    pub(crate) steps: StepEnv,
}

/// Variables with which a test counts the steps of this process or ends it at one of them. The
/// released binary does not read them.
#[cfg(debug_assertions)]
#[derive(Debug, Default)]
pub(crate) struct StepEnv {
    /// `SNAP_TEST_STEP_LOG`: a file that gets one line for each step
    pub(crate) log: Option<PathBuf>,
    /// `SNAP_TEST_STOP_AT`: the number of a step, from 1
    pub(crate) stop_at: Option<u64>,
    /// `SNAP_TEST_STOP_BY`: the signal at that step: `KILL` (also if unset), `INT` or `STOP`
    pub(crate) stop_by: Option<String>,
}

#[cfg(debug_assertions)]
impl StepEnv {
    fn read() -> Self {
        Self {
            log: var("SNAP_TEST_STEP_LOG").map(PathBuf::from),
            stop_at: text("SNAP_TEST_STOP_AT").and_then(|number| number.parse().ok()),
            stop_by: text("SNAP_TEST_STOP_BY"),
        }
    }
}

/// Variables about remotes. Some are secret, so `Debug` shows none of them.
#[derive(Clone, Default)]
pub(crate) struct RemoteEnv {
    /// `SNAP_REMOTE_USER`
    pub(crate) user: Option<String>,
    /// `SNAP_REMOTE_SECRET`
    pub(crate) secret: Option<String>,
    /// `SNAP_REMOTE_SESSION`
    pub(crate) session: Option<String>,
    /// `AWS_ENDPOINT_URL_S3`, else `AWS_ENDPOINT_URL`, or the two other names that OpenDAL reads:
    /// the endpoint is part of the name of a cache
    pub(crate) s3_endpoint: Option<String>,
    /// `AWS_REGION`, else `AWS_DEFAULT_REGION`
    pub(crate) s3_region: Option<String>,
    /// `AZURE_STORAGE_ACCOUNT`
    pub(crate) azure_account: Option<String>,
    /// `AZURE_STORAGE_KEY`
    pub(crate) azure_key: Option<String>,
}

impl std::fmt::Debug for RemoteEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RemoteEnv")
    }
}

impl RemoteEnv {
    fn read() -> Self {
        Self {
            user: text("SNAP_REMOTE_USER"),
            secret: text("SNAP_REMOTE_SECRET"),
            session: text("SNAP_REMOTE_SESSION"),
            s3_endpoint: [
                "AWS_ENDPOINT_URL_S3",
                "AWS_ENDPOINT_URL",
                "AWS_ENDPOINT",
                "AWS_S3_ENDPOINT",
            ]
            .into_iter()
            .find_map(text),
            s3_region: text("AWS_REGION").or_else(|| text("AWS_DEFAULT_REGION")),
            azure_account: text("AZURE_STORAGE_ACCOUNT"),
            azure_key: text("AZURE_STORAGE_KEY"),
        }
    }
}

impl Env {
    /// Reads all variables.
    pub(crate) fn read() -> Self {
        // The XDG specification requires that relative paths are ignored.
        let folder = |name| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = folder("HOME");
        let below_home = |name| home.as_deref().map(|home: &Path| home.join(name));
        Self {
            store: var("SNAP_STORE").map(PathBuf::from),
            ceilings: var("SNAP_CEILING_DIRECTORIES").map(split).unwrap_or_default(),
            trust: var("SNAP_TRUST").map(split).unwrap_or_default(),
            system_config: env::var_os("SNAP_CONFIG_SYSTEM").map(PathBuf::from),
            sudo_uid: text("SUDO_UID").and_then(|uid| uid.parse().ok()),
            config: env::var_os("SNAP_CONFIG").map(PathBuf::from),
            config_home: folder("XDG_CONFIG_HOME").or_else(|| below_home(".config")),
            state_home: folder("XDG_STATE_HOME").or_else(|| below_home(".local/state")),
            cache_home: folder("XDG_CACHE_HOME").or_else(|| below_home(".cache")),
            remote: RemoteEnv::read(),
            time: text("SNAP_TIME"),
            temp: env::temp_dir(),
            user: text("USER").or_else(|| text("LOGNAME")),
            in_hook: var("SNAP_HOOK").is_some(),
            snap: all("SNAP_"),
            home,
            pager: text("SNAP_PAGER"),
            usual_pager: text("PAGER"),
            progress_millis: test_switch("SNAP_TEST_PROGRESS_MILLIS"),
            has_less: var("LESS").is_some(),
            is_dumb: text("TERM").is_none_or(|term| term == "dumb"),
            #[cfg(debug_assertions)]
            steps: StepEnv::read(),
        }
    }
}

fn var(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn split(paths: OsString) -> Vec<PathBuf> {
    env::split_paths(&paths).collect()
}

fn text(name: &str) -> Option<String> {
    var(name).map(|value| value.to_string_lossy().into_owned())
}

/// Reads a number that only tests set. The released binary ignores it.
fn test_switch(name: &str) -> Option<u64> {
    if cfg!(debug_assertions) { text(name).and_then(|text| text.parse().ok()) } else { None }
}

/// Returns the variables whose names start with `prefix`, sorted.
fn all(prefix: &str) -> Vec<(String, OsString)> {
    let ours = |(name, value): (OsString, OsString)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(prefix))?;
        (!value.is_empty()).then_some((name, value))
    };
    let mut found: Vec<_> = env::vars_os().filter_map(ours).collect();
    found.sort();
    found
}
