//! Where a store lies: what a user writes, checked, and never a secret in it.
//!
//! | form | service |
//! |---|---|
//! | `s3://bucket/prefix` | S3, and whatever speaks it |
//! | `gs://bucket/prefix` | Google Cloud Storage |
//! | `azblob://container/prefix` | Azure Blob Storage |
//! | `webdav://host/path`, `webdavs://host/path` | WebDAV, without and with TLS |
//! | `sftp://user@host/path` | SFTP, through `ssh` |
//! | `http://host/path`, `https://host/path` | a snap server, and a repository of it |
//! | `file:///path` | a folder |
//! | `memory://name` | memory of this process, for tests |

use std::{collections::BTreeMap, fmt, path::Path, str::FromStr};

/// Longest location: nobody types more, and it stands in errors.
const LOCATION_BYTES: usize = 2048;

/// Option of services that declare conditions to which not all who speak their
/// protocol keep.
const CONDITIONAL_WRITES: (&str, &str) =
    ("conditional-writes", "false: the service does not keep to conditions, so claim refs");

/// A service, by the first part of a location.
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
    /// All of them, with their names.
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

    /// Its name, without `://`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(scheme, _)| *scheme == self).map_or("", |(_, name)| name)
    }

    /// Options that it takes, and what each is.
    pub fn options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::S3 => &[
                ("endpoint", "URL of the service; AWS unless told"),
                ("region", "region of the bucket"),
                ("profile", "profile in the AWS files"),
                ("path-style", "true: the bucket in the path, false: in the host name"),
                ("storage-class", "storage class of what is written"),
                ("anonymous", "true: do not sign"),
                CONDITIONAL_WRITES,
                ("checksums", "false: send no CRC32C along with what is written"),
            ],
            Self::Gcs => &[
                ("endpoint", "URL of the service"),
                ("credential-path", "file with the key of a service account"),
                ("anonymous", "true: do not sign"),
                CONDITIONAL_WRITES,
            ],
            Self::Azblob => &[
                ("account", "storage account"),
                ("endpoint", "URL of the service"),
                CONDITIONAL_WRITES,
            ],
            Self::Webdav | Self::Webdavs => &[("username", "who asks")],
            Self::Sftp => &[
                ("key", "private key, a file"),
                ("known-hosts", "strict, accept or add: what about hosts that ssh does not know"),
            ],
            Self::Http | Self::Https | Self::File | Self::Memory => &[],
        }
    }
}

/// A place for a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The service.
    pub scheme: Scheme,
    /// Bucket, container or host with its port, and with its user for `sftp`; empty
    /// for a folder.
    pub authority: String,
    /// Folder in it, without `/` at either end; of `file`, the whole path.
    pub path: String,
}

/// Why something is no location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// No `://` in it.
    #[error("`{text}` is no location: it has no `://`")]
    NoScheme {
        /// What was given.
        text: String,
    },
    /// Not a scheme that is known.
    #[error("there is no kind of remote `{scheme}`")]
    Scheme {
        /// Which.
        scheme: String,
    },
    /// No bucket or host where there must be one, or one where there must not.
    #[error("`{location}` {problem}")]
    Form {
        /// What was given, without a password.
        location: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// An option that the scheme does not have.
    #[error("`{scheme}` remotes have no option `{option}`")]
    Option {
        /// The scheme's name.
        scheme: &'static str,
        /// Which.
        option: String,
    },
    /// A secret where everybody could read it.
    #[error("`{option}` is a secret and not kept in settings")]
    Secret {
        /// Which.
        option: String,
    },
    /// The URL of a service that has more than a scheme, a host and a path in
    /// it: a name and a password, or a signature.
    #[error("`{option}` has {what} in it, for everybody to read")]
    Revealing {
        /// Which option.
        option: String,
        /// What is in it.
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
        if text.len() > LOCATION_BYTES {
            return form("is too long");
        }
        if text.chars().any(char::is_control) || text.contains(['?', '#']) {
            return form("has characters that do not belong there; options go behind `--option`");
        }
        if authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
            return form("has a password in it, for everybody to read");
        }
        if *scheme != Scheme::Sftp && authority.contains('@') {
            return form("has a name before its host, which may be a key or a password");
        }
        if let Some(problem) = unsafe_for_ssh(authority) {
            return form(problem);
        }
        if !has_plain_port(authority) {
            return form("has a port that is no number, or a password in it");
        }
        match scheme {
            Scheme::File if !location.path.starts_with('/') => form("needs a full path: file:///…"),
            Scheme::File | Scheme::Memory => Ok(location),
            Scheme::S3 | Scheme::Gcs | Scheme::Azblob if authority.is_empty() => {
                form("names no bucket")
            }
            _ if authority.is_empty() => form("names no host"),
            _ if location.path.split('/').any(|part| part == "..") => form("has a part `..`"),
            _ => Ok(location),
        }
    }
}

impl Location {
    /// The folder at `path`, which need not exist.
    ///
    /// # Errors
    /// [`LocationError::Form`] when it has characters that no location has.
    pub fn of_folder(path: &Path) -> Result<Self, LocationError> {
        let form = |problem| LocationError::Form { location: path.display().to_string(), problem };
        let absolute = std::path::absolute(path).map_err(|_| form("names no folder"))?;
        // Of what is not there yet the folder above may be: `..` and links are
        // resolved as far as that goes.
        let above = |path: &Path| {
            let above = path.parent().and_then(|above| fs_err::canonicalize(above).ok())?;
            Some(above.join(path.file_name()?))
        };
        let real = fs_err::canonicalize(&absolute).ok().or_else(|| above(&absolute));
        let path = real.unwrap_or(absolute);
        let text = path.to_str().ok_or_else(|| form("is not UTF-8, as locations are"))?;
        format!("{}://{text}", Scheme::File.name()).parse()
    }

    /// Whether a text is the path of a folder: it says where it begins. Anything
    /// else may be the name of a remote or of a branch.
    pub fn is_path(text: &str) -> bool {
        let begins = |start: &str| text == start.trim_end_matches('/') || text.starts_with(start);
        text.starts_with('/') || begins("./") || begins("../")
    }

    /// What may be shown of it when it is wrong: without what may be a
    /// password or a key.
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
            // Only there is it never a key.
            Some(_) | None => shown,
        };
        // A part of the password, if that had a slash.
        let path = if is_plain { self.path.as_str() } else { "" };
        let path = path.split(['?', '#']).next().unwrap_or_default().to_owned();
        Self { authority, path, ..self.clone() }
    }

    /// Checks options that go with it.
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
            let revealed = if option == "endpoint" { revealed(value) } else { None };
            if let Some(what) = revealed {
                return Err(LocationError::Revealing { option: option.clone(), what });
            }
        }
        Ok(())
    }
}

/// What the URL of a service has in it that may be a secret.
fn revealed(url: &str) -> Option<&'static str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    if rest.contains(['?', '#']) {
        return Some("a query");
    }
    // Also in the path: a password may have a slash.
    rest.contains('@').then_some("a user or a password")
}

/// The problem with an authority that `ssh`, or a shell that `ssh` starts for a
/// `ProxyCommand`, reads as something else than a user and a host.
///
/// The rules are those of OpenSSH 9.6 for names on its command line. They hold
/// for each scheme, since no host or bucket needs such a name.
fn unsafe_for_ssh(authority: &str) -> Option<&'static str> {
    let (user, host) = match authority.split_once('@') {
        Some((user, host)) => (user, host),
        None => ("", authority),
    };
    // An address in brackets is passed on without them.
    let bare = host.trim_start_matches('[');
    if user.starts_with('-') || bare.starts_with('-') {
        return Some("has a user or a host that begins with `-`, which `ssh` takes for an option");
    }
    let is_unsafe = |c: char| c.is_whitespace() || "'`\"$;&<>|(){}".contains(c);
    if user.contains(is_unsafe) || host.contains(is_unsafe) || host.contains(['@', '\\']) {
        return Some("has a character in its user or host that a shell takes for a command");
    }
    None
}

/// Whether what follows the host is a port, or nothing.
fn has_plain_port(authority: &str) -> bool {
    // An address such as `[::1]` has colons of its own.
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
    fn what_is_written_comes_back() {
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
        assert!(Location::of_folder(Path::new("a#b")).is_err());
        for path in ["/srv", ".", "..", "./x", "../x"] {
            assert!(Location::is_path(path), "{path}");
        }
        for other in ["origin", "feature/x", "s3://b", "host:x", "", ".x"] {
            assert!(!Location::is_path(other), "{other}");
        }
    }

    #[test]
    fn what_is_none_is_said_so() {
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
    fn no_user_or_host_is_an_option_or_a_command_for_ssh() {
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
    fn options_are_those_of_the_service_and_no_secrets() {
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
