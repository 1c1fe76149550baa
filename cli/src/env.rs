//! Environment variables: the only place that reads them.
//!
//! [`VARIABLES`] says what each means, for the manual, too.
//!
//! A variable that is empty counts as not set, except those that name a file of
//! settings: an empty one says that there is none.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// What each variable means.
pub(crate) const VARIABLES: &[(&str, &str)] = &[
    ("SNAP_STORE", "store folder, unless --store says another"),
    (
        "SNAP_CEILING_DIRECTORIES",
        "folders, with colons between, in which and above which no store is looked for from below",
    ),
    (
        "SNAP_TRUST",
        "stores or projects that are trusted, with colons between; see `snap config trust --help`",
    ),
    ("SNAP_CONFIG", "the user's file of settings; empty: there is none"),
    (
        "SNAP_CONFIG_SYSTEM",
        "the system's file of settings, instead of /etc/snap/config.toml; empty: there is none",
    ),
    ("SNAP_AUTHOR", "who commits, unless --author says another"),
    ("SNAP_HOST", "name of the machine, unless --host says another"),
    (
        "SNAP_REMOTE_USER, SNAP_REMOTE_SECRET, SNAP_REMOTE_SESSION",
        "account, key or password, and token for a time, of the remote that is asked",
    ),
    (
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE and others",
        "keys for `s3` remotes, as other tools take them; their files in ~/.aws count, too",
    ),
    (
        "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION",
        "service and region of `s3` remotes that have no such option",
    ),
    ("GOOGLE_APPLICATION_CREDENTIALS", "file with the keys for `gs` remotes"),
    ("AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY", "account and key for `azblob` remotes"),
    ("SNAP_SECTION_NAME", "the setting `section.name`, such as SNAP_COMPRESSION_LEVEL"),
    ("SNAP_SERVE_KEY", "the setting `key` of `snap serve`, such as SNAP_SERVE_LIMITS_STOP_SECS"),
    (
        "SNAP_PAGER, PAGER",
        "pager for what is longer than the screen, the one before and the other after the \
         setting `ui.pager`; `less` if nothing is said, none if it is `cat`",
    ),
    ("SNAP_TIME", "the present, in RFC 3339; for tests and imports"),
    ("SNAP_HOOK", "set for hooks: a commit that one makes runs none"),
    ("XDG_CONFIG_HOME, HOME", "where the user's file is, and `~`"),
    ("XDG_STATE_HOME", "folder that records what is trusted; else `.local/state` in HOME"),
    ("SUDO_UID", "user whose stores root trusts, too"),
    ("XDG_CACHE_HOME", "where is kept what is known of remotes; else `.cache` in HOME"),
    ("USER, LOGNAME", "who commits where nothing else says so"),
    ("LESS", "options of `less`; FRX if not set"),
    (
        "NO_COLOR, CLICOLOR, CLICOLOR_FORCE, TERM",
        "whether to use colours, as https://bixense.com/clicolors says",
    ),
    ("TMPDIR", "folder for what need not survive a command"),
    ("TZ", "time zone of the times that are shown and read"),
];

/// What the environment says.
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
    /// What says how to reach remotes
    pub(crate) remote: RemoteEnv,
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
    /// `SNAP_PAGER`
    pub(crate) pager: Option<String>,
    /// `PAGER`
    pub(crate) usual_pager: Option<String>,
    /// Whether `LESS` is set.
    pub(crate) has_less: bool,
    /// Whether `TERM` says that the terminal can do nothing.
    pub(crate) is_dumb: bool,
}

/// What the environment says about remotes. Some of it is secret, so none of
/// it is shown.
#[derive(Clone, Default)]
pub(crate) struct RemoteEnv {
    /// `SNAP_REMOTE_USER`
    pub(crate) user: Option<String>,
    /// `SNAP_REMOTE_SECRET`
    pub(crate) secret: Option<String>,
    /// `SNAP_REMOTE_SESSION`
    pub(crate) session: Option<String>,
    /// `AWS_ENDPOINT_URL_S3`, else `AWS_ENDPOINT_URL`
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
            s3_endpoint: text("AWS_ENDPOINT_URL_S3").or_else(|| text("AWS_ENDPOINT_URL")),
            s3_region: text("AWS_REGION").or_else(|| text("AWS_DEFAULT_REGION")),
            azure_account: text("AZURE_STORAGE_ACCOUNT"),
            azure_key: text("AZURE_STORAGE_KEY"),
        }
    }
}

impl Env {
    /// Reads all of them.
    pub(crate) fn read() -> Self {
        // What is not absolute is to be ignored, says the XDG specification.
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
            has_less: var("LESS").is_some(),
            is_dumb: text("TERM").is_none_or(|term| term == "dumb"),
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
