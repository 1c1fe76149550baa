//! Locations of stores, as users write them: parsed, checked, and free of secrets.
//!
//! | form | service |
//! |---|---|
//! | `s3://bucket/prefix` | S3, and compatible services |
//! | `gs://bucket/prefix` | Google Cloud Storage |
//! | `azblob://container/prefix` | Azure Blob Storage |
//! | `webdav://host/path`, `webdavs://host/path` | WebDAV, without and with TLS |
//! | `sftp://user@host/path` | SFTP, through `ssh` |
//! | `http://host/path`, `https://host/path` | a snap server and one of its repositories |
//! | `file:///path` | a folder |
//! | `memory://name` | memory of this process, for tests |

use std::{collections::BTreeMap, fmt, path::Path, str::FromStr};

/// Maximum length of a location in bytes. A longer text is a mistake, and error messages print it.
const LOCATION_BYTES: usize = 2048;

/// Option with the URL of a service.
pub const ENDPOINT: &str = "endpoint";

/// Option of services whose protocol has conditional writes that some implementations
/// ignore.
const CONDITIONAL_WRITES: (&str, &str) = (
    "conditional-writes",
    "false: the service ignores conditional writes; use claims on refs instead",
);

/// A service, named by the part of a location before `://`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// `s3`
    S3,
    /// `gs`
    Gcs,
    /// `azblob`
    Azblob,
    /// `webdav`
    Webdav,
    /// `webdavs`
    Webdavs,
    /// `sftp`
    Sftp,
    /// `http`
    Http,
    /// `https`
    Https,
    /// `file`
    File,
    /// `memory`
    Memory,
}

impl Scheme {
    /// All schemes and their names.
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::S3, "s3"),
        (Self::Gcs, "gs"),
        (Self::Azblob, "azblob"),
        (Self::Webdav, "webdav"),
        (Self::Webdavs, "webdavs"),
        (Self::Sftp, "sftp"),
        (Self::Http, "http"),
        (Self::Https, "https"),
        (Self::File, "file"),
        (Self::Memory, "memory"),
    ];

    /// Returns true for buckets, whose services charge requests and bytes.
    pub fn is_bucket(self) -> bool {
        matches!(self, Self::S3 | Self::Gcs | Self::Azblob)
    }

    /// Returns the name of the scheme, without `://`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(scheme, _)| *scheme == self).map_or("", |(_, name)| name)
    }

    /// Returns the options of the scheme, each with its description.
    pub fn options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::S3 => &[
                (ENDPOINT, "URL of the service; default: AWS"),
                ("region", "region of the bucket"),
                ("profile", "profile in the AWS files"),
                ("path-style", "true: bucket in the path, false: bucket in the host name"),
                ("storage-class", "storage class of written objects"),
                ("anonymous", "true: send unsigned requests"),
                CONDITIONAL_WRITES,
                ("checksums", "false: send no CRC32C with writes"),
            ],
            Self::Gcs => &[
                (ENDPOINT, "URL of the service"),
                ("credential-path", "file of the key of a service account"),
                ("anonymous", "true: send unsigned requests"),
                CONDITIONAL_WRITES,
            ],
            Self::Azblob => &[
                ("account", "storage account"),
                (ENDPOINT, "URL of the service"),
                CONDITIONAL_WRITES,
            ],
            Self::Webdav | Self::Webdavs => &[("username", "user name")],
            Self::Sftp => &[
                ("key", "file of the private key"),
                ("known-hosts", "strict, accept or add: what `ssh` does with unknown hosts"),
            ],
            Self::Http | Self::Https | Self::File | Self::Memory => &[],
        }
    }
}

/// The location of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The service.
    pub scheme: Scheme,
    /// The bucket, the container, or the host with its port (for `sftp` also the user).
    /// Empty for a folder.
    pub authority: String,
    /// The folder inside the service, without `/` at either end. For `file` the whole path.
    pub path: String,
}

/// Why a text is not a valid location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The text has no `://`.
    #[error("`{text}` is not a URL")]
    NoScheme {
        /// The text as given.
        text: String,
    },
    /// The scheme is unknown.
    #[error("`{scheme}` is not a supported remote scheme")]
    Scheme {
        /// The part before `://`.
        scheme: String,
    },
    /// The text has a scheme, but breaks another rule, for example a missing bucket or
    /// host.
    #[error("`{location}` {problem}")]
    Form {
        /// The text as given, without a password.
        location: String,
        /// The rule that it breaks.
        problem: &'static str,
    },
    /// A part of the text may be a password or a key.
    #[error("`{location}` {problem}")]
    ContainsSecret {
        /// The text as given, without that part.
        location: String,
        /// The part.
        problem: &'static str,
    },
    /// The scheme does not have this option.
    #[error("`{scheme}` remotes have no option `{option}`")]
    Option {
        /// The scheme's name.
        scheme: &'static str,
        /// The unknown option.
        option: String,
    },
    /// The option is a secret, and other users may be able to read settings.
    #[error("option `{option}` is a secret, which settings must not contain")]
    Secret {
        /// The option.
        option: String,
    },
    /// The URL in an option has more than a scheme, a host and a path, for example a
    /// password or a signature.
    #[error("option `{option}` contains {what}, which others could read")]
    Revealing {
        /// The option with the URL.
        option: String,
        /// The part that may be a secret.
        what: &'static str,
    },
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(LocationError::NoScheme { text: text.to_owned() });
        };
        let found = Scheme::ALL.iter().find(|(_, name)| scheme.eq_ignore_ascii_case(name));
        let Some((scheme, _)) = found else {
            return Err(LocationError::Scheme { scheme: scheme.to_owned() });
        };
        let (authority, path) = match (scheme, rest.split_once('/')) {
            (Scheme::File, _) => ("", rest),
            (_, Some((authority, path))) => (authority, path),
            (_, None) => (rest, ""),
        };
        let location = Self {
            scheme: *scheme,
            authority: authority.to_owned(),
            path: match scheme {
                Scheme::File => path.to_owned(),
                _ => path.trim_matches('/').to_owned(),
            },
        };
        let form = |problem| {
            let location = location.without_secrets().to_string();
            Err(LocationError::Form { location, problem })
        };
        let secret = |problem| {
            let location = location.without_secrets().to_string();
            Err(LocationError::ContainsSecret { location, problem })
        };
        if text.len() > LOCATION_BYTES {
            return form("is too long");
        }
        // A folder may have any name, so `?` and `#` are allowed in `file` locations.
        let is_query = *scheme != Scheme::File && text.contains(['?', '#']);
        if text.chars().any(char::is_control) || is_query {
            return form(
                "contains `?`, `#` or a control character; options are passed with `--option`",
            );
        }
        if authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
            return secret("contains a password, which others could read");
        }
        if *scheme != Scheme::Sftp && authority.contains('@') {
            return secret("contains a user name, which may be a key or a password");
        }
        if let Some(problem) = unsafe_for_ssh(authority) {
            return form(problem);
        }
        if !has_plain_port(authority) {
            return secret("has a port that is not a number, or contains a password");
        }
        match scheme {
            Scheme::File if !location.path.starts_with('/') => form("needs a full path: file:///…"),
            Scheme::File | Scheme::Memory => Ok(location),
            Scheme::S3 | Scheme::Gcs | Scheme::Azblob if authority.is_empty() => {
                form("has no bucket")
            }
            _ if authority.is_empty() => form("has no host"),
            _ if location.path.split('/').any(|part| part == "..") => form("contains `..`"),
            _ => Ok(location),
        }
    }
}

impl Location {
    /// Returns the location of the folder at `path`, which need not exist.
    ///
    /// # Errors
    /// [`LocationError::Form`] if the path has characters that a location cannot have.
    pub fn of_folder(path: &Path) -> Result<Self, LocationError> {
        let form = |problem| LocationError::Form { location: path.display().to_string(), problem };
        let absolute =
            std::path::absolute(path).map_err(|_| form("is not the path of a folder"))?;
        // If only the parent of the folder exists, resolve links and `..` in the parent.
        let above = |path: &Path| {
            let above = path.parent().and_then(|above| fs_err::canonicalize(above).ok())?;
            Some(above.join(path.file_name()?))
        };
        let real = fs_err::canonicalize(&absolute).ok().or_else(|| above(&absolute));
        let path = real.unwrap_or(absolute);
        let text = path.to_str().ok_or_else(|| form("is not valid UTF-8"))?;
        format!("{}://{text}", Scheme::File.name()).parse()
    }

    /// Returns true if `text` is the path of a folder: it starts with `/`, `./`, `../` or `~`. Any
    /// other text may be the name of a remote or of a branch.
    pub fn is_path(text: &str) -> bool {
        let begins = |start: &str| text == start.trim_end_matches('/') || text.starts_with(start);
        text.starts_with(['/', '~']) || begins("./") || begins("../")
    }

    /// Returns the location without any part that may be a password or a key, for error
    /// messages.
    fn without_secrets(&self) -> Self {
        let (user, host) = match self.authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, self.authority.as_str()),
        };
        let first = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
        let is_plain = has_plain_port(host);
        let shown = if is_plain { host.to_owned() } else { first(host) };
        let authority = match user {
            Some(user) if self.scheme == Scheme::Sftp => format!("{}@{shown}", first(user)),
            // Show only the user of an `sftp` location; any other user may be a key.
            Some(_) | None => shown,
        };
        // If the port is malformed, the path may be the end of a password that contains a slash.
        let path = if is_plain { self.path.as_str() } else { "" };
        let path = match self.scheme {
            Scheme::File => path,
            _ => path.split(['?', '#']).next().unwrap_or_default(),
        };
        let path = path.to_owned();
        Self { authority, path, ..self.clone() }
    }

    /// Checks the options that the user gave for this location.
    ///
    /// # Errors
    /// [`LocationError::Option`], [`LocationError::Secret`],
    /// [`LocationError::Revealing`].
    pub fn check(&self, options: &BTreeMap<String, String>) -> Result<(), LocationError> {
        for (option, value) in options {
            let words = option.to_ascii_lowercase();
            let is_path = words.ends_with("-path");
            let is_secret = ["secret", "password", "token", "access-key", "account-key", "sas"];
            if !is_path && is_secret.iter().any(|part| words.contains(part)) {
                return Err(LocationError::Secret { option: option.clone() });
            }
            if !self.scheme.options().iter().any(|(name, _)| name == option) {
                let scheme = self.scheme.name();
                return Err(LocationError::Option { scheme, option: option.clone() });
            }
            if option == ENDPOINT {
                check_endpoint(value)?;
            }
        }
        Ok(())
    }
}

/// Checks that the URL of a service contains nothing that may be a secret.
///
/// # Errors
/// [`LocationError::Revealing`].
pub fn check_endpoint(url: &str) -> Result<(), LocationError> {
    match leaked_secret(url) {
        Some(what) => Err(LocationError::Revealing { option: ENDPOINT.to_owned(), what }),
        None => Ok(()),
    }
}

/// Returns the name of the part of a service URL that may be a secret, if there is one.
fn leaked_secret(url: &str) -> Option<&'static str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    if rest.contains(['?', '#']) {
        return Some("a query");
    }
    // Search the path as well, because a password may contain a slash.
    rest.contains('@').then_some("a user or a password")
}

/// Returns the problem with an unsafe authority: `ssh` would not read it as a user and a host, or
/// the shell that runs a `ProxyCommand` would interpret it.
///
/// The rules are those of OpenSSH 9.6 for names on its command line. They apply to each
/// scheme, since no host or bucket needs such a name.
fn unsafe_for_ssh(authority: &str) -> Option<&'static str> {
    let (user, host) = match authority.split_once('@') {
        Some((user, host)) => (user, host),
        None => ("", authority),
    };
    // `ssh` gets an address in brackets without the brackets.
    let bare = host.trim_start_matches('[');
    if user.starts_with('-') || bare.starts_with('-') {
        return Some(
            "has a user or host that begins with `-`, which `ssh` would take for an option",
        );
    }
    let is_unsafe = |c: char| c.is_whitespace() || "'`\"$;&<>|(){}".contains(c);
    if user.contains(is_unsafe) || host.contains(is_unsafe) || host.contains(['@', '\\']) {
        return Some("has a user or host with a character that a shell would interpret");
    }
    None
}

/// Returns true if a port number follows the host, or nothing.
fn has_plain_port(authority: &str) -> bool {
    // An address such as `[::1]` contains colons.
    let host = authority.rsplit(['@', ']']).next().unwrap_or_default();
    host.split_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok())
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, authority, path) = (self.scheme.name(), &self.authority, &self.path);
        match self.scheme {
            Scheme::File => write!(f, "{scheme}://{path}"),
            _ if path.is_empty() => write!(f, "{scheme}://{authority}"),
            _ => write!(f, "{scheme}://{authority}/{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Location, LocationError> {
        text.parse()
    }

    #[test]
    fn locations_round_trip() {
        for text in [
            "s3://bucket",
            "s3://bucket/a/b",
            "gs://b/c",
            "azblob://container/x",
            "webdav://host:8080/dav",
            "webdavs://host",
            "sftp://ada@host:22/srv/snap",
            "sftp://ada@[::1]:22/srv/snap",
            "file:///srv/a b",
            "memory://x",
        ] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
        assert_eq!(parsed("S3://bucket//a/").unwrap().to_string(), "s3://bucket/a");
    }

    #[test]
    fn a_path_is_a_location() {
        let folder = tempfile::tempdir().unwrap();
        let real = fs_err::canonicalize(folder.path()).unwrap();
        let of = |path: &str| Location::of_folder(&folder.path().join(path)).unwrap().to_string();
        fs_err::create_dir(folder.path().join("a")).unwrap();
        assert_eq!(of("a"), format!("file://{}/a", real.display()));
        assert_eq!(of("a/../a"), of("a"));
        assert_eq!(of("a/../new"), format!("file://{}/new", real.display()));
        assert_eq!(of("a#b?c"), format!("file://{}/a#b?c", real.display()));
        for path in ["/srv", ".", "..", "./x", "../x"] {
            assert!(Location::is_path(path), "{path}");
        }
        for other in ["origin", "feature/x", "s3://b", "host:x", "", ".x"] {
            assert!(!Location::is_path(other), "{other}");
        }
    }

    #[test]
    fn malformed_locations_are_refused_without_secrets() {
        assert!(matches!(parsed("bucket"), Err(LocationError::NoScheme { .. })));
        assert!(matches!(parsed("ftp://x"), Err(LocationError::Scheme { .. })));
        for text in ["s3://", "sftp:///x", "file://x", "s3://b/../c", "s3://b?x=y", "s3://b/\n"] {
            assert!(matches!(parsed(text), Err(LocationError::Form { .. })), "{text}");
        }
        for text in ["https://geheim@host/x", "webdavs://geheim@h/x", "s3://geheim@bucket"] {
            let refused = parsed(text).unwrap_err().to_string();
            assert!(!refused.contains("geheim") && refused.contains("may be a key"), "{refused}");
        }
        let secret = parsed("sftp://ada:geheim@host/x").unwrap_err().to_string();
        assert!(!secret.contains("geheim") && secret.contains("ada@host"), "{secret}");
        for text in ["sftp://a:ge@heim@h/x", "sftp://a:ge/heim@h/x", "azblob://c/x?sig=geheim"] {
            let shown = parsed(text).unwrap_err().to_string();
            assert!(!shown.contains("heim"), "{shown}");
        }
    }

    #[test]
    fn hosts_and_users_cannot_inject_ssh_options() {
        for text in [
            "sftp://-oProxyCommand=touch%20x/srv",
            "sftp://-oProxyCommand=x:22/srv",
            "sftp://ada@-oProxyCommand=x/srv",
            "sftp://-lroot@host/srv",
            "sftp://[-oProxyCommand=x]/srv",
            "sftp://ada@[-oProxyCommand=x]:22/srv",
            "sftp://ada@[[-oProxyCommand=x]]/srv",
            "sftp://ada@eve@-oProxyCommand=x/srv",
            "sftp://host;touch x/srv",
            "sftp://$(touch x)/srv",
            "sftp://ada`x`@host/srv",
            "webdav://-host/srv",
        ] {
            assert!(matches!(parsed(text), Err(LocationError::Form { .. })), "{text}");
        }
        let refused = parsed("sftp://-oProxyCommand=x/srv").unwrap_err().to_string();
        assert!(refused.contains("sftp://-oProxyCommand=x/srv"), "{refused}");
        for text in ["sftp://DOMAIN\\ada@my-host_1.example/srv", "sftp://[fe80::1%eth0]:22/srv"] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn options_of_other_services_and_secrets_are_refused() {
        let check = |text: &str, option: &str| {
            parsed(text).unwrap().check(&[(option.to_owned(), "x".to_owned())].into())
        };
        assert_eq!(check("s3://b", "endpoint"), Ok(()));
        assert_eq!(check("gs://b", "credential-path"), Ok(()));
        assert!(matches!(check("s3://b", "endpoints"), Err(LocationError::Option { .. })));
        let endpoint = |url: &str| {
            parsed("s3://b").unwrap().check(&[("endpoint".to_owned(), url.to_owned())].into())
        };
        assert_eq!(endpoint("https://minio.example:9000/base"), Ok(()));
        for url in ["https://ada:geheim@h", "ada:ge/heim@h", "https://h/?sig=geheim", "h#geheim"] {
            let error = endpoint(url).unwrap_err();
            assert!(matches!(error, LocationError::Revealing { .. }), "{url}");
            assert!(!error.to_string().contains("heim"), "{error}");
        }
        for secret in ["secret-access-key", "access-key-id", "password", "Token"] {
            assert!(matches!(check("s3://b", secret), Err(LocationError::Secret { .. })));
        }
    }
}
