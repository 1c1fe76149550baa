//! The settings of a server, their defaults, and the file that sets them.
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
//! An unknown key is an error, because a limit with a typing error in its name would limit
//! nothing.

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
    log::{LogFormat, LogLevel, LogSettings},
    oidc::{Mapping, Oidc, OidcError},
    quota::Quota,
};
use crate::tls::Tls;

/// Default port.
pub const PORT: u16 = 7627;

/// Default limit for cached packs of an upstream, in bytes.
pub const CACHE_BYTES: u64 = 10 << 30;

/// Default number of open repositories above which idle ones are closed.
pub const OPEN_REPOSITORIES: usize = 128;

/// Maximum length of a settings file, in bytes.
const FILE_BYTES: u64 = 1 << 20;

/// The settings of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSettings {
    /// Address to listen at.
    pub listen: SocketAddr,
    /// Upstream to serve instead of a folder: a location, or the name of a remote.
    pub upstream: Option<String>,
    /// Folder for the cache of the upstream.
    pub cache: Option<PathBuf>,
    /// Approximate limit for cached packs, in bytes.
    pub cache_bytes: u64,
    /// Token file, instead of the one in the served folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<PathBuf>,
    /// True if a server without tokens may listen at other addresses than loopback.
    pub without_tokens_anyone_may_read_and_write: bool,
    /// Addresses of trusted proxies, which name their client in `X-Forwarded-For`.
    pub proxies: Vec<IpAddr>,
    /// True if `/metrics` can be read without a token.
    pub metrics_without_token: bool,
    /// URL by which clients reach the server, for commands that pages show: `https://host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// Certificate and key; without them the server speaks plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// An OpenID Connect issuer whose tokens are accepted, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<Oidc>,
    /// Settings for logs.
    pub log: LogSettings,
    /// Storage quotas of repositories.
    pub quota: Quota,
    /// Limits on time, memory, disk and requests.
    pub limits: ServerLimits,
}

/// Limits on time, memory, disk and requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerLimits {
    /// Longest time that requests in progress may take once the server stops, in seconds.
    pub stop_secs: u64,
    /// Timeout for the head of a request, and for a TLS handshake, in seconds.
    pub header_secs: u64,
    /// Timeout for a body that makes no progress, in seconds.
    pub stall_secs: u64,
    /// Longest pack that is accepted, in bytes.
    pub upload_bytes: u64,
    /// Longest bundle that is accepted, in bytes.
    pub bundle_bytes: u64,
    /// Maximum number of bytes of contents that are read to verify one push.
    pub content_bytes: u64,
    /// Maximum number of ids in one query for missing objects.
    pub missing_ids: usize,
    /// Disk space for the central directory of one zip archive, in bytes.
    pub archive_bytes: u64,
    /// Maximum number of branches and tags in each repository.
    pub refs: usize,
    /// Memory for the cache of recently read files, in bytes.
    pub cache_bytes: usize,
    /// Longest time that a reading request waits for the upstream before it gets cached data, in
    /// seconds.
    pub upstream_secs: u64,
    /// Memory for data that is being fetched from an upstream, in bytes.
    pub upstream_bytes: u64,
    /// Number of open repositories above which idle ones are closed.
    pub open_repositories: usize,
    /// Concurrent connections.
    pub connections: usize,
    /// Concurrent connections of one address, or of one /64 of IPv6; 0 means no limit.
    /// Connections of `proxies` are not limited.
    pub address_connections: usize,
    /// Requests per second of each token, or of each address without a token; 0 means no
    /// limit.
    pub requests_per_sec: u32,
    /// Concurrent uploads of each token, or of each address without a token; 0 means no limit.
    pub uploads: usize,
    /// Bytes per second that each token, or each address without a token, may send; 0 means no
    /// limit.
    pub upload_bytes_per_sec: u64,
}

impl Default for ServerSettings {
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
            log: LogSettings::default(),
            quota: Quota::default(),
            limits: ServerLimits::default(),
        }
    }
}

impl Default for ServerLimits {
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
        }
    }
}

impl ServerLimits {
    /// Returns the timeout for a body that makes no progress.
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
    /// The file is too long for a settings file.
    #[error("settings file {} is too long", path.display())]
    TooLong {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is not TOML, or has an unknown key or an invalid value.
    #[error("{}: {why}", path.display())]
    Invalid {
        path: PathBuf,
        /// The description of the error, with its place in the file.
        why: String,
    },
    /// A value is out of range or malformed.
    #[error("{place}`{key}` {why}")]
    Value {
        /// The file, if there is one. The value may come from an environment variable, too.
        place: String,
        key: &'static str,
        why: &'static str,
    },
    /// The settings of the token issuer are invalid.
    #[error("{place}{wrong}")]
    Oidc {
        /// The file, if there is one. The value may come from an environment variable, too.
        place: String,
        /// The key, and what is wrong with its value.
        wrong: OidcError,
    },
    /// An environment variable names no setting.
    #[error("`{name}` is not a known setting of the server")]
    Variable {
        /// Name of the variable.
        name: String,
    },
    /// The values of environment variables are invalid.
    #[error("variables {}*: {why}", variables::PREFIX)]
    Variables {
        /// The description of the error, with the key.
        why: String,
    },
}

impl ServerSettings {
    /// Reads the settings from a file and from environment variables, which override the
    /// file. Other settings have their defaults. Variables without the server's prefix are
    /// ignored.
    ///
    /// # Errors
    /// [`SettingsError`]; it names the key, and the line or the variable.
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
            // Parse the text again, so that an error quotes the wrong value.
            read = toml_edit::de::from_str(&document.to_string()).map_err(|error| {
                SettingsError::Variables { why: error.to_string().trim_end().to_owned() }
            })?;
        }
        let place = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
        read.check(place)?;
        Ok(read)
    }

    /// Checks constraints that the types do not express.
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

/// Returns true if pages can show a URL in a command as the address of the server.
fn is_public(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-~%/".contains(c);
        is_host(host) && path.chars().all(is_plain)
    })
}

/// Returns true if a text is a host, with or without a port: letters, digits, `.`, `_` and
/// `-`, or an IPv6 address in brackets. Such a text cannot inject anything into a shell
/// command.
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

    fn read(text: &str) -> Result<ServerSettings, SettingsError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.toml");
        fs_err::write(&path, text).unwrap();
        ServerSettings::read(Some(&path), &[])
    }

    #[test]
    fn unset_settings_have_their_defaults() {
        assert_eq!(read("").unwrap(), ServerSettings::default());
        let some = read("[limits]\nstop_secs = 3\n").unwrap();
        assert_eq!(some.limits, ServerLimits { stop_secs: 3, ..ServerLimits::default() });
    }

    /// Returns the settings files in a page of the manual: the blocks of TOML that contain the
    /// comment `# serve.toml`.
    fn shown(page: &str) -> Vec<String> {
        let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        blocks.filter(|block| block.contains("# serve.toml")).map(str::to_owned).collect()
    }

    #[test]
    fn settings_shown_in_the_manuals_are_valid() {
        let deploy = shown(include_str!("../../docs/deploy.md"));
        let server = shown(include_str!("../../docs/server.md"));
        assert_eq!((deploy.len(), server.len()), (3, 1), "{deploy:?} {server:?}");
        for text in deploy.iter().chain(&server) {
            assert_ne!(read(text).unwrap(), ServerSettings::default(), "{text}");
        }
        let bucket = deploy.iter().find(|text| text.contains("upstream")).unwrap();
        let bucket = read(&format!("{bucket}{}", deploy[0])).unwrap();
        assert!(bucket.cache.is_some() && bucket.tokens.is_some() && bucket.tls.is_some());
    }

    #[test]
    fn hosts_contain_no_shell_characters() {
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
    fn invalid_settings_are_named() {
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
    fn environment_variables_override_the_file() {
        let given = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("serve.toml");
            fs_err::write(&path, "[limits]\nstop_secs = 3\nheader_secs = 4\n").unwrap();
            ServerSettings::read(Some(&path), &pairs.collect::<Vec<_>>())
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
        assert_eq!((read.log.format, read.proxies.len()), (LogFormat::Json, 1));
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
