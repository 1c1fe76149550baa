//! The token file: `tokens.toml` in the served folder. It holds only a hash of each token, so a
//! reader of the file cannot use the tokens.
//!
//! ```toml
//! version = 1
//!
//! [[token]]
//! name = "ci"
//! hash = "5f0c…"                  # BLAKE3 of the whole token
//! scope = "append"
//! repositories = ["team/project"] # all, if absent
//! made = 1790000000               # seconds since 1970
//! expires = 1800000000
//! ```

use std::{
    fmt,
    fs::Permissions,
    os::unix::fs::{MetadataExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use snap_core::{
    base::{io::PathError, kind::ErrorKind},
    disk::{Disk, scratch::unique_name},
};

use super::principal::{Grant, Principal, Right};
use crate::hub;

/// Name of the token file.
pub const FILE: &str = hub::TOKENS;

/// Prefix of each token, by which people and secret scanners recognize it.
pub const PREFIX: &str = "snap_";

/// Version of the file format.
const VERSION: u32 = 1;

/// Random bytes in a token.
const SECRET_BYTES: usize = 32;

/// Longest text that is checked as a token, in bytes.
const LONGEST: usize = 256;

/// Longest name of a token, in bytes.
const NAME_BYTES: usize = 64;

/// Longest token file, in bytes.
const FILE_BYTES: u64 = 4 << 20;

/// Mode of the file: only its owner may read and write it.
const MODE: u32 = 0o600;

/// A token, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    pub name: String,
    /// BLAKE3 of the whole token, in hexadecimal.
    hash: String,
    /// What the token allows.
    pub scope: Right,
    /// Repositories in which the token is valid; `None` means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repositories: Option<Vec<String>>,
    /// When the token was created, in seconds since 1970.
    pub made: i64,
    /// When the token expires, in seconds since 1970; `None` means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
}

/// The parameters of a token to create.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub name: String,
    /// What the token allows.
    pub scope: Right,
    /// Repositories in which the token is valid; `None` means all.
    pub repositories: Option<Vec<String>>,
    /// Time of creation, in seconds since 1970.
    pub made: i64,
    /// When the token expires, in seconds since 1970; `None` means never.
    pub expires: Option<i64>,
}

/// The text of a token. Its `Debug` form does not show it.
pub struct Secret(String);

impl Secret {
    /// Returns the text, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// All tokens of a server.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    all: Vec<ParsedToken>,
}

/// A token of the file, with what is derived from it.
#[derive(Clone, Debug)]
struct ParsedToken {
    hash: blake3::Hash,
    token: Token,
    /// The client that has the token. It is built once and cloned for each request.
    who: Principal,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileToml {
    version: u32,
    #[serde(default, rename = "token")]
    tokens: Vec<Token>,
}

/// Why a token cannot be created, listed or revoked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The file is not a token file, or has an unsupported version.
    #[error("{} is not a valid token file: {why}", path.display())]
    Invalid {
        path: PathBuf,
        /// The description of the error.
        why: String,
    },
    /// The name is not valid for a token.
    #[error("`{name}` is not a valid token name")]
    Name {
        /// The rejected name.
        name: String,
    },
    /// The name is not valid for a repository.
    #[error("`{name}` is not a valid repository name")]
    Repository {
        /// The rejected name.
        name: String,
    },
    /// A token of that name exists.
    #[error("token `{name}` already exists")]
    Taken {
        /// Name of the existing token.
        name: String,
    },
    /// There is no token of that name.
    #[error("token `{name}` does not exist")]
    NoToken {
        /// The name that no token has.
        name: String,
    },
    /// The operating system gives no random bytes.
    #[error("cannot get random bytes from the system: {why}")]
    Random {
        /// The message of the operating system.
        why: String,
    },
}

impl TokensError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io(error) => error.kind(),
            Self::Invalid { .. } | Self::Name { .. } | Self::Repository { .. } => {
                ErrorKind::Invalid
            }
            Self::Taken { .. } => ErrorKind::Exists,
            Self::NoToken { .. } => ErrorKind::NotFound,
            Self::Random { .. } => ErrorKind::Unavailable,
        }
    }
}

impl Token {
    /// Returns true if the token has not expired at that time.
    pub fn is_valid(&self, now_secs: i64) -> bool {
        self.expires.is_none_or(|expires| now_secs < expires)
    }

    /// Returns the client that has the token.
    fn who(&self) -> Principal {
        let repositories = self.repositories.clone().map(|names| names.into_iter().collect());
        Principal::new(&self.name, vec![Grant { right: self.scope, repositories }])
    }
}

impl ParsedToken {
    fn new(hash: blake3::Hash, token: Token) -> Self {
        Self { hash, who: token.who(), token }
    }
}

impl Tokens {
    /// Reads the token file; `None` if it does not exist.
    ///
    /// # Errors
    /// [`TokensError::Invalid`], which names the line of a TOML error; [`TokensError::Io`].
    pub fn read(path: &Path) -> Result<Option<Self>, TokensError> {
        let meta = match fs_err::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            meta => meta.map_err(PathError::when("read", path))?,
        };
        let invalid = |why: String| TokensError::Invalid { path: path.to_owned(), why };
        if meta.len() > FILE_BYTES {
            return Err(invalid(format!(
                "{} bytes exceed the limit of {FILE_BYTES} bytes",
                meta.len()
            )));
        }
        let text = fs_err::read_to_string(path).map_err(PathError::when("read", path))?;
        let file: FileToml = toml_edit::de::from_str(&text)
            .map_err(|error| invalid(error.to_string().trim_end().to_owned()))?;
        if file.version != VERSION {
            return Err(invalid(format!("version {} is not supported", file.version)));
        }
        let mut all = Vec::new();
        for token in file.tokens {
            let hash = blake3::Hash::from_hex(&token.hash).map_err(|_| {
                invalid(format!("the hash of token `{}` is not 64 hexadecimal digits", token.name))
            })?;
            if !is_name(&token.name) {
                return Err(invalid(format!("`{}` is not a valid token name", token.name)));
            }
            all.push(ParsedToken::new(hash, token));
        }
        Ok(Some(Self { all }))
    }

    /// Lists all tokens, including expired ones.
    pub fn list(&self) -> impl Iterator<Item = &Token> {
        self.all.iter().map(|known| &known.token)
    }

    /// Returns the client whose token is `secret`, unless the token has expired. Compares with all
    /// tokens, each in constant time.
    pub(super) fn find(&self, secret: &str, now_secs: i64) -> Option<Principal> {
        if secret.len() > LONGEST {
            return None;
        }
        let hash = blake3::hash(secret.as_bytes());
        let mut found = None;
        for known in &self.all {
            if known.hash == hash {
                found = Some(known);
            }
        }
        found.filter(|known| known.token.is_valid(now_secs)).map(|known| known.who.clone())
    }

    /// Replaces the file atomically and durably.
    fn write(&self, path: &Path) -> Result<(), TokensError> {
        let tokens = self.list().cloned().collect();
        let text = toml_edit::ser::to_string_pretty(&FileToml { version: VERSION, tokens })
            .map_err(|why| TokensError::Invalid { path: path.to_owned(), why: why.to_string() })?;
        let disk = Disk::default();
        let folder = folder_of(path);
        let temporary = folder.join(format!(".{}", unique_name("tokens")));
        let mut file = disk.create(&temporary)?;
        let mode = file.file().set_permissions(Permissions::from_mode(MODE));
        mode.map_err(PathError::when("change the mode of", &temporary))?;
        // The server must be able to read the file even if another user runs this command. So the
        // new file gets the owner of the old one, or else of the folder. The group cannot read it.
        let before = fs_err::metadata(path).or_else(|_| fs_err::metadata(folder));
        let before = before.map_err(PathError::when("read", path))?;
        let now = file.file().metadata().map_err(PathError::when("read", &temporary))?;
        if before.uid() != now.uid() {
            fchown(file.file(), Some(before.uid()), Some(before.gid()))
                .map_err(PathError::when("change the owner of", &temporary))?;
        }
        file.write(text.as_bytes())?;
        file.sync()?;
        disk.replace(&temporary, path)?;
        file.keep();
        Ok(disk.sync_folder(folder)?)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Locks the folder of the file, so that other processes do not change the file meanwhile.
fn locked(path: &Path) -> Result<std::fs::File, PathError> {
    let folder = folder_of(path);
    let open = fs_err::File::open(folder).map_err(PathError::when("open", folder))?;
    let (file, _) = open.into_parts();
    file.lock().map_err(PathError::when("lock", folder))?;
    Ok(file)
}

/// Creates a token and stores its hash.
///
/// # Errors
/// [`TokensError::Taken`] when a token of that name exists, expired or not;
/// [`TokensError::Name`] and [`TokensError::Repository`] for invalid names.
pub fn add(path: &Path, wanted: NewToken) -> Result<Secret, TokensError> {
    if !is_name(&wanted.name) {
        return Err(TokensError::Name { name: wanted.name });
    }
    let mut named = wanted.repositories.iter().flatten();
    if let Some(name) = named.find(|name| !hub::is_name(name)) {
        return Err(TokensError::Repository { name: name.clone() });
    }
    let _locked = locked(path)?;
    let mut tokens = Tokens::read(path)?.unwrap_or_default();
    if tokens.list().any(|token| token.name == wanted.name) {
        return Err(TokensError::Taken { name: wanted.name });
    }
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|why| TokensError::Random { why: why.to_string() })?;
    let secret = format!("{PREFIX}{}", blake3::Hash::from_bytes(bytes).to_hex());
    let hash = blake3::hash(secret.as_bytes());
    let NewToken { name, scope, repositories, made, expires } = wanted;
    let token = Token { name, hash: hash.to_hex().to_string(), scope, repositories, made, expires };
    tokens.all.push(ParsedToken::new(hash, token));
    tokens.write(path)?;
    Ok(Secret(secret))
}

/// Removes a token from the file: it is no longer valid.
///
/// # Errors
/// [`TokensError::NoToken`] when there is no token of that name.
pub fn revoke(path: &Path, name: &str) -> Result<(), TokensError> {
    let missing = || TokensError::NoToken { name: name.to_owned() };
    let _locked = locked(path)?;
    let mut tokens = Tokens::read(path)?.ok_or_else(missing)?;
    let before = tokens.all.len();
    tokens.all.retain(|known| known.token.name != name);
    if tokens.all.len() == before {
        return Err(missing());
    }
    tokens.write(path)
}

/// Returns true if a name is valid for a token: it needs no quotes in logs.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    (1..=NAME_BYTES).contains(&name.len()) && !name.starts_with('-') && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str, expires: Option<i64>) -> NewToken {
        let repositories = Some(vec!["a".to_owned()]);
        NewToken { name: name.into(), scope: Right::Append, repositories, made: 1, expires }
    }

    #[test]
    fn a_token_is_valid_until_it_expires_or_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        assert!(Tokens::read(&path).unwrap().is_none());
        let secret = add(&path, wanted("ci", Some(100))).unwrap();
        let other = add(&path, wanted("other", None)).unwrap();
        assert_ne!(secret.reveal(), other.reveal());
        assert!(secret.reveal().starts_with(PREFIX) && secret.reveal().len() > 60);
        let text = fs_err::read_to_string(&path).unwrap();
        assert!(!text.contains(&secret.reveal()[PREFIX.len()..]), "{text}");
        let mode = fs_err::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        let tokens = Tokens::read(&path).unwrap().unwrap();
        let found = tokens.find(secret.reveal(), 99).unwrap();
        assert!(found.can(Right::Append, "a") && !found.can(Right::Read, "b"));
        assert!(tokens.find(secret.reveal(), 100).is_none(), "it has expired");
        assert!(tokens.find(other.reveal(), i64::MAX).is_some());
        for wrong in ["", "snap_", &secret.reveal()[1..], &"x".repeat(1 << 20)] {
            assert!(tokens.find(wrong, 0).is_none());
        }
        assert!(matches!(add(&path, wanted("ci", None)), Err(TokensError::Taken { .. })));
        revoke(&path, "ci").unwrap();
        assert!(matches!(revoke(&path, "ci"), Err(TokensError::NoToken { .. })));
        let tokens = Tokens::read(&path).unwrap().unwrap();
        assert!(tokens.find(secret.reveal(), 0).is_none());
        assert_eq!(tokens.list().count(), 1);
    }

    #[test]
    fn invalid_token_names_and_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        for name in ["", "a b", "-x", "a\nb", "ä", &"a".repeat(65)] {
            let refused = add(&path, wanted(name, None));
            assert!(matches!(refused, Err(TokensError::Name { .. })), "{name}");
        }
        for name in ["team/", "../a", "tokens.toml"] {
            let repositories = Some(vec!["a".to_owned(), name.to_owned()]);
            let refused = add(&path, NewToken { repositories, ..wanted("ci", None) });
            assert!(matches!(refused, Err(TokensError::Repository { .. })), "{name}");
        }
        for text in [
            "",
            "version = 2",
            "version = 1\nsecret = 1",
            "version = 1\n[[token]]\nname=\"a\"\nhash=\"zz\"\nscope=\"read\"\nmade=1\n",
        ] {
            fs_err::write(&path, text).unwrap();
            assert!(matches!(Tokens::read(&path), Err(TokensError::Invalid { .. })), "{text}");
        }
    }
}
