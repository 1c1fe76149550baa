//! What there is to choose, each with its default, and the file that says it.
//!
//! ```toml
//! listen = "127.0.0.1:7627"
//! # upstream = "s3://bucket/prefix"
//! # cache = "/var/cache/snap"
//! cache_bytes = 10737418240
//! without_tokens_anyone_may_read_and_write = false
//! proxies = []
//! metrics_without_token = false
//! # public_url = "https://snap.example.org"
//! # tokens = "/etc/snap/tokens.toml"
//!
//! [limits]
//! stop_secs = 10
//! header_secs = 20
//! stall_secs = 60
//! upload_bytes = 1073741824
//! bundle_bytes = 68719476736
//! content_bytes = 17592186044416
//! missing_ids = 1000000
//! archive_bytes = 268435456
//! refs = 100000
//! cache_bytes = 67108864
//! upstream_secs = 5
//! upstream_bytes = 268435456
//! open_repositories = 128
//! connections = 10000
//! address_connections = 1000
//! requests_per_sec = 0
//! uploads = 0
//! upload_bytes_per_sec = 0
//! unfinished_uploads = 256
//! unfinished_bytes = 17179869184
//!
//! # [tls]
//! # cert = "/etc/snap/cert.pem"
//! # key = "/etc/snap/key.pem"
//!
//! # [oidc]
//! # issuer = "https://token.actions.githubusercontent.com"
//! # audience = "https://snap.example.org"
//! # name_claim = "sub"
//! # [[oidc.scopes]]
//! # claim = "repository"
//! # value = "team/project"
//! # scope = "append"
//! # repositories = ["team/project"]
//!
//! [log]
//! format = "text"
//! level = "info"
//! # audit = "/var/log/snap/audit.jsonl"
//!
//! [quota]
//! # default_bytes = 1000000000000
//!
//! [quota.repositories]
//! # "team/project" = 1000000000
//! ```
//!
//! A key that is not known is an error: a limit with a typing error in its name
//! would limit nothing.

mod log;
pub(crate) mod oidc;
mod quota;
mod variables;

use std::{
    iter,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use snap_core::base::{io::PathError, limits};
use toml_edit::{DocumentMut, TomlError};

pub use self::{
    log::{Format, Level, Log},
    oidc::{Mapping, Oidc, OidcError},
    quota::Quota,
};
use crate::tls::Tls;

/// Port unless told otherwise.
pub const PORT: u16 = 7627;

/// Bytes of packs that are kept of an upstream, unless told otherwise.
pub const CACHE_BYTES: u64 = 10 << 30;

/// Repositories that stay open though nothing is done with them, unless told
/// otherwise.
pub const OPEN_REPOSITORIES: usize = 128;

/// Longest file of settings.
const FILE_BYTES: u64 = 1 << 20;

/// What there is to choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// What lies behind the server, in place of a folder: a location, or the
    /// name of a remote.
    pub upstream: Option<String>,
    /// Folder for what is kept of that.
    pub cache: Option<PathBuf>,
    /// About how many bytes of packs are kept.
    pub cache_bytes: u64,
    /// File of tokens, in place of the one in what is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<PathBuf>,
    /// Whether a server without tokens may listen on other addresses than those
    /// of its own machine.
    pub without_tokens_anyone_may_read_and_write: bool,
    /// Addresses of proxies that say in `X-Forwarded-For` for whom they ask.
    pub proxies: Vec<IpAddr>,
    /// Whether `/metrics` may be read without a token.
    pub metrics_without_token: bool,
    /// How others reach the server, as pages show it in commands: `https://host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// Certificate and key; without them the server speaks plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// An issuer whose tokens count, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<Oidc>,
    /// What is logged.
    pub log: Log,
    /// How much repositories may hold.
    pub quota: Quota,
    /// How much there may be of what.
    pub limits: Limits,
}

/// How much there may be of what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How long what is under way may take when the server stops.
    pub stop_secs: u64,
    /// How long the head of a request may take to come.
    pub header_secs: u64,
    /// How long a body may stand still.
    pub stall_secs: u64,
    /// Longest pack that is taken.
    pub upload_bytes: u64,
    /// Longest bundle that is taken.
    pub bundle_bytes: u64,
    /// Bytes of contents that are read to check one push.
    pub content_bytes: u64,
    /// Ids in one question for what is missing.
    pub missing_ids: usize,
    /// Disk for the directory of one zip archive that is sent, in bytes.
    pub archive_bytes: u64,
    /// Branches and tags of each repository.
    pub refs: usize,
    /// Memory for files that were read lately, in bytes.
    pub cache_bytes: usize,
    /// How long who reads waits for an upstream before what is here is served.
    pub upstream_secs: u64,
    /// Memory for what comes of packs of an upstream, in bytes.
    pub upstream_bytes: u64,
    /// Repositories that stay open though nothing is done with them.
    pub open_repositories: usize,
    /// Connections at a time.
    pub connections: usize,
    /// Connections at a time of one address, of IPv6 of one /64; 0 is no limit.
    /// It is none for `proxies`.
    pub address_connections: usize,
    /// Requests a second for each token, or address where there is none; 0 is no
    /// limit.
    pub requests_per_sec: u32,
    /// Uploads at a time for each of them; 0 is no limit.
    pub uploads: usize,
    /// Bytes a second that each of them may send; 0 is no limit.
    pub upload_bytes_per_sec: u64,
    /// Packs and bundles that have come in part, in each repository; 0 is none.
    pub unfinished_uploads: usize,
    /// Their bytes, once they are whole.
    pub unfinished_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        Self {
            listen,
            upstream: None,
            cache: None,
            cache_bytes: CACHE_BYTES,
            tokens: None,
            without_tokens_anyone_may_read_and_write: false,
            proxies: Vec::new(),
            metrics_without_token: false,
            public_url: None,
            tls: None,
            oidc: None,
            log: Log::default(),
            quota: Quota::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stop_secs: 10,
            header_secs: 20,
            stall_secs: 60,
            upload_bytes: limits::PACK_BYTES,
            bundle_bytes: 64 << 30,
            content_bytes: 16 << 40,
            missing_ids: 1_000_000,
            archive_bytes: 256 << 20,
            refs: 100_000,
            cache_bytes: 64 << 20,
            upstream_secs: 5,
            upstream_bytes: 256 << 20,
            open_repositories: OPEN_REPOSITORIES,
            connections: 10_000,
            address_connections: 1_000,
            requests_per_sec: 0,
            uploads: 0,
            upload_bytes_per_sec: 0,
            unfinished_uploads: 256,
            unfinished_bytes: 16 << 30,
        }
    }
}

impl Limits {
    /// How long a body may stand still.
    pub fn stall(&self) -> Duration {
        Duration::from_secs(self.stall_secs)
    }
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The file is too long to be one.
    #[error("{} is too long for a file of settings", path.display())]
    TooLong {
        /// Which.
        path: PathBuf,
    },
    /// It is no TOML, or has a key or a value that is not known.
    #[error("{}: {why}", path.display())]
    Invalid {
        /// Which.
        path: PathBuf,
        /// What and where.
        why: String,
    },
    /// A value cannot be.
    #[error("{place}`{key}` {why}")]
    Value {
        /// The file, if there is one; a variable may have said it, too.
        place: String,
        /// Of which key.
        key: &'static str,
        /// Why not.
        why: &'static str,
    },
    /// What is said of the issuer of tokens cannot be.
    #[error("{place}{wrong}")]
    Oidc {
        /// The file, if there is one; a variable may have said it, too.
        place: String,
        /// Which key, and why.
        wrong: OidcError,
    },
    /// There is no setting of that name.
    #[error("`{name}` is no setting of the server")]
    Variable {
        /// Which variable.
        name: String,
    },
    /// Variables say what cannot be.
    #[error("variables {}*: {why}", variables::PREFIX)]
    Variables {
        /// What, and of which key.
        why: String,
    },
}

impl Settings {
    /// What a file says, and variables in its place; what neither says has its
    /// default. Variables that are not the server's are passed over.
    ///
    /// # Errors
    /// [`SettingsError`] names the key, and the line or the variable.
    pub fn read(
        file: Option<&Path>,
        variables: &[(String, String)],
    ) -> Result<Self, SettingsError> {
        let text = file.map(read_file).transpose()?.unwrap_or_default();
        let invalid = |why: String| SettingsError::Invalid {
            path: file.unwrap_or(Path::new("")).to_owned(),
            why: why.trim_end().to_owned(),
        };
        let mut read: Self =
            toml_edit::de::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        let mut ours = variables.iter().filter(|(name, _)| name.starts_with(variables::PREFIX));
        if let Some(first) = ours.next() {
            let mut document: DocumentMut =
                text.parse().map_err(|error: TomlError| invalid(error.to_string()))?;
            for (name, value) in iter::once(first).chain(ours) {
                variables::put(&mut document, name, value)?;
            }
            // As text once more, so that errors say what they are about.
            read = toml_edit::de::from_str(&document.to_string()).map_err(|error| {
                SettingsError::Variables { why: error.to_string().trim_end().to_owned() }
            })?;
        }
        let place = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
        read.check(place)?;
        Ok(read)
    }

    /// Checks what the form alone does not say.
    fn check(&self, place: String) -> Result<(), SettingsError> {
        let limits = &self.limits;
        for (key, value) in [
            ("limits.connections", limits.connections as u64),
            ("limits.header_secs", limits.header_secs),
            ("limits.stall_secs", limits.stall_secs),
            ("limits.open_repositories", limits.open_repositories as u64),
        ] {
            if value == 0 {
                return Err(SettingsError::Value { place, key, why: "must be at least 1" });
            }
        }
        if self.public_url.as_deref().is_some_and(|url| !is_public(url)) {
            let why = "must be http:// or https:// with a host, and no query";
            return Err(SettingsError::Value { place, key: "public_url", why });
        }
        let checked = self.oidc.as_ref().map_or(Ok(()), Oidc::check);
        checked.map_err(|wrong| SettingsError::Oidc { place, wrong })
    }
}

/// Whether a text can stand in a command as the address of a server.
fn is_public(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-~%/".contains(c);
        is_host(host) && path.chars().all(is_plain)
    })
}

/// Whether a text is a host, with a port or without: letters, digits, `.`, `_`
/// and `-`, or an address of IPv6 in brackets. Nothing of it means anything in a
/// shell.
pub(crate) fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_named = |host: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !host.is_empty() && !host.starts_with('-') && host.chars().all(is_plain)
    };
    let is_good = match inner {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => is_named(host),
    };
    is_good && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn read_file(path: &Path) -> Result<String, SettingsError> {
    let meta = fs_err::metadata(path).map_err(PathError::when("read", path))?;
    if meta.len() > FILE_BYTES {
        return Err(SettingsError::TooLong { path: path.to_owned() });
    }
    Ok(fs_err::read_to_string(path).map_err(PathError::when("read", path))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, SettingsError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.toml");
        fs_err::write(&path, text).unwrap();
        Settings::read(Some(&path), &[])
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        assert_eq!(read("").unwrap(), Settings::default());
        let some = read("[limits]\nstop_secs = 3\n").unwrap();
        assert_eq!(some.limits, Limits { stop_secs: 3, ..Limits::default() });
    }

    /// What a page shows of a file of settings: what it says so of just before, or
    /// what says so itself.
    fn shown(page: &str) -> Vec<String> {
        let (mut found, mut before, mut block) = (Vec::new(), "", String::new());
        for line in page.lines().chain(["end"]) {
            match line.strip_prefix("    ") {
                Some(text) => block.extend([text, "\n"]),
                None if line.is_empty() => block.push('\n'),
                None => {
                    let is_one = before.contains("serve.toml") || block.contains("# serve.toml");
                    if is_one && !block.trim().is_empty() {
                        found.push(block.clone());
                    }
                    (before, block) = (line, String::new());
                }
            }
        }
        found
    }

    #[test]
    fn what_the_manuals_show_is_read() {
        let deploy = shown(include_str!("../../docs/deploy.md"));
        let server = shown(include_str!("../../docs/server.md"));
        assert_eq!((deploy.len(), server.len()), (3, 1), "{deploy:?} {server:?}");
        for text in deploy.iter().chain(&server) {
            assert_ne!(read(text).unwrap(), Settings::default(), "{text}");
        }
        let bucket = deploy.iter().find(|text| text.contains("upstream")).unwrap();
        let bucket = read(&format!("{bucket}{}", deploy[0])).unwrap();
        assert!(bucket.cache.is_some() && bucket.tokens.is_some() && bucket.tls.is_some());
    }

    #[test]
    fn a_host_means_nothing_in_a_shell() {
        for host in ["localhost", "a.example:80", "[::1]", "[::1]:7627", "10.0.0.1:1"] {
            assert!(is_host(host), "{host}");
            assert!(is_public(&format!("https://{host}/snap/")), "{host}");
        }
        for host in ["", "a b", "$(id)", "a;b", "a:b", "::1", "-x", "a/b", "[x]", "a\n", "a:99999"]
        {
            assert!(!is_host(host), "{host}");
        }
        for url in ["a.example", "ftp://a.example", "https://", "https://a/?x", "https://a/;b"] {
            assert!(!is_public(url), "{url}");
        }
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (text, named) in [
            ("lisen = \"127.0.0.1:1\"", "lisen"),
            ("[limits]\nstop = 3", "stop"),
            ("listen = \"here\"", "socket address"),
            ("[limits", "limits"),
            ("public_url = \"a.example\"", "`public_url`"),
            ("[oidc]\nissuer = \"https://a.example\"", "audience"),
            ("[oidc]\nissuer = \"https://a.example\"\naudience = \"\"", "`oidc.audience`"),
            ("[oidc]\nissuer = \"http://a.example\"\naudience = \"a\"", "`oidc.issuer`"),
            ("[oidc]\nissuer = \"https://a.example\"\naudience = \"a\"", "`oidc.scopes`"),
            ("[oidc]\naudiences = \"a\"", "audiences"),
            ("[[oidc.scopes]]\nclaim = \"a\"\nrole = \"b\"", "role"),
            ("[[oidc.scopes]]\nclaim = \"a\"\nvalue = \"b\"\nscope = \"all\"", "all"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
            assert!(error.contains("serve.toml"), "{error}");
        }
    }

    #[test]
    fn variables_win_over_the_file() {
        let given = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("serve.toml");
            fs_err::write(&path, "[limits]\nstop_secs = 3\nheader_secs = 4\n").unwrap();
            Settings::read(Some(&path), &pairs.collect::<Vec<_>>())
        };
        let read = given(&[
            ("SNAP_SERVE_LIMITS_STOP_SECS", "5"),
            ("SNAP_SERVE_LISTEN", "0.0.0.0:1"),
            ("SNAP_SERVE_LOG_FORMAT", "json"),
            ("SNAP_SERVE_PROXIES", "[\"192.0.2.1\"]"),
            ("SNAP_SERVE_QUOTA_REPOSITORIES", "{ \"team/a\" = 7 }"),
            ("SNAP_OTHER", "x"),
        ]);
        let read = read.unwrap();
        assert_eq!((read.limits.stop_secs, read.limits.header_secs), (5, 4));
        assert_eq!(read.listen.to_string(), "0.0.0.0:1");
        assert_eq!((read.log.format, read.proxies.len()), (Format::Json, 1));
        assert_eq!(read.quota.repositories["team/a"], 7);
        for (name, value, named) in [
            ("SNAP_SERVE_LIMITS_STOP", "5", "`SNAP_SERVE_LIMITS_STOP`"),
            ("SNAP_SERVE_LIMITS_STOP_SECS", "soon", "stop_secs"),
            ("SNAP_SERVE_LIMITS_CONNECTIONS", "0", "`limits.connections`"),
        ] {
            let error = given(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
