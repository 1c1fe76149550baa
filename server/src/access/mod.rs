//! Who may do what.
//!
//! | module | what |
//! |---|---|
//! | [`who`] | rights, and who has which of them where |
//! | [`tokens`] | the file of tokens: made, listed, revoked; only hashes are kept |
//! | `oidc` | tokens that an issuer elsewhere signs |
//! | [`need`] | what a request needs |
//! | [`patience`] | those who guess wait |
//! | [`pace`] | how much at a time |
//! | [`guard`] | what lets a request pass, or not |
//! | `browser` | what any web page can make a browser ask |
//! | [`cookie`] | what a browser keeps |
//!
//! A server without a file of tokens and without an issuer is open to whoever
//! reaches it, and listens on its own machine only. One that has had tokens never
//! becomes open again while it runs, whatever becomes of the file.

mod browser;
pub mod cookie;
pub mod guard;
pub mod need;
mod oidc;
pub mod pace;
pub mod patience;
pub mod tokens;
pub mod who;

pub(crate) use self::patience::network;

use std::{
    net::IpAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use http::{HeaderMap, header};
use snap_core::base::time::Time;

use self::{
    oidc::{Away, Issuer},
    pace::Pace,
    patience::Patience,
    tokens::{Tokens, TokensError},
    who::Who,
};
use crate::{
    causes::causes,
    hub::is_name as is_repository,
    problem::{Code, Problem},
    settings::Settings,
};

/// How often it is looked whether the file of tokens has changed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Nobody waits longer for that: what was so far holds on.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

/// Who may do what on a server.
#[derive(Debug)]
pub struct Access {
    file: Option<PathBuf>,
    proxies: Vec<IpAddr>,
    known: Mutex<Known>,
    /// One looks at the file at a time, however long that takes.
    looking: Arc<tokio::sync::Mutex<()>>,
    issuer: Option<Issuer>,
    patience: Patience,
    pace: Pace,
    is_watched_openly: bool,
    /// Whoever reaches it was let in in blunt words.
    is_open: bool,
    has_tls: bool,
}

/// What is known of the file.
#[derive(Debug)]
struct Known {
    tokens: Arc<Tokens>,
    is_guarded: bool,
    stamp: Option<Stamp>,
    looked: Instant,
}

/// What changes when a file does: device and inode, length, time.
type Stamp = (u64, u64, u64, i64, i64);

/// The file of tokens of what is served at `home`.
pub fn file_of(home: Option<&Path>, settings: &Settings) -> Option<PathBuf> {
    let own = || home.map(|home| home.join(tokens::FILE));
    settings.tokens.clone().or_else(own)
}

impl Access {
    /// Reads the tokens of what is served at `home`, a folder of the server's
    /// own if it has one. When they cannot be read nobody has any right.
    pub fn new(home: Option<&Path>, settings: &Settings) -> Self {
        let file = file_of(home, settings);
        // A file that was named counts even before it is there.
        let is_guarded = settings.tokens.is_some() || settings.oidc.is_some();
        let (tokens, looked) = (Arc::default(), Instant::now());
        let access = Self {
            file,
            proxies: settings.proxies.clone(),
            known: Mutex::new(Known { tokens, is_guarded, stamp: None, looked }),
            looking: Arc::default(),
            issuer: settings.oidc.clone().map(Issuer::new),
            patience: Patience::default(),
            pace: Pace::new(&settings.limits),
            is_watched_openly: settings.metrics_without_token,
            is_open: settings.without_tokens_anyone_may_read_and_write,
            has_tls: settings.tls.is_some(),
        };
        access.look();
        access
    }

    /// Sees to it that the tokens are those of this moment, or almost: reads the
    /// file if it has changed. Where that takes too long nothing has.
    pub async fn follow(self: &Arc<Self>) {
        if !self.is_due() {
            return;
        }
        let look = async {
            let turn = Arc::clone(&self.looking).lock_owned().await;
            // Somebody else may have looked meanwhile.
            if self.is_due() {
                let access = Arc::clone(self);
                let look = move || {
                    access.look();
                    drop(turn);
                };
                let _ = tokio::task::spawn_blocking(look).await;
            }
        };
        let _ = tokio::time::timeout(LOOK_PATIENCE, look).await;
    }

    fn is_due(&self) -> bool {
        self.file.is_some() && self.known().looked.elapsed() >= LOOK_EVERY
    }

    /// Whether those who ask must say who they are.
    pub fn is_guarded(&self) -> bool {
        self.current().1
    }

    /// Who has this token. Whoever has none that holds waits, the longer the
    /// more often that happened at this address; others do not.
    ///
    /// # Errors
    /// [`Code::Unauthorized`], or [`Code::SlowDown`] when there were too many wrong
    /// ones, or [`Code::Unavailable`] when the issuer of this one cannot be asked.
    pub async fn identify(&self, secret: &str, address: IpAddr) -> Result<Who, Problem> {
        let (tokens, is_guarded) = self.current();
        if !is_guarded {
            return Ok(Who::anybody());
        }
        let issuer = self.issuer.as_ref().filter(|_| oidc::is_jwt(secret));
        let found = match issuer {
            Some(issuer) => issuer.who(secret).await.map_err(away)?,
            None => tokens.find(secret, Time::now().secs),
        };
        match found {
            Some(who) => Ok(who),
            None => Err(self.patience.failed(address).await),
        }
    }

    /// For how many seconds more a token that was [identified](Self::identify)
    /// holds, if it says so itself.
    pub fn lasts_secs(&self, secret: &str) -> Option<i64> {
        let is_ours = self.issuer.is_some() && oidc::is_jwt(secret);
        let expires = is_ours.then(|| oidc::expires(secret)).flatten()?;
        Some(expires.saturating_sub(Time::now().secs).max(0))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tokens as they were when it was last looked, and whether one is needed.
    fn current(&self) -> (Arc<Tokens>, bool) {
        let known = self.known();
        (Arc::clone(&known.tokens), known.is_guarded)
    }

    /// Reads the file if it has changed. May block.
    fn look(&self) {
        let (Some(file), began) = (&self.file, Instant::now()) else { return };
        let stamp = fs_err::metadata(file)
            .ok()
            .map(|meta| (meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()));
        let is_read = self.known().stamp == stamp;
        let read = if is_read { None } else { Some(Tokens::read(file)) };
        let mut known = self.known();
        known.looked = began;
        let read = match read {
            None => return,
            Some(Ok(read)) => read,
            // What was so far holds on; at the start that is nobody.
            Some(Err(error)) => {
                known.is_guarded = true;
                // What kept the file from being read may pass.
                if matches!(error, TokensError::Invalid { .. }) {
                    known.stamp = stamp;
                }
                let error = causes(&error);
                tracing::error!(%error, "the tokens stay as they were");
                return;
            }
        };
        known.stamp = stamp;
        known.is_guarded |= read.is_some();
        known.tokens = Arc::new(read.unwrap_or_default());
    }
}

fn away(Away { retry_secs }: Away) -> Problem {
    let why = "the issuer of this token cannot be asked now";
    Problem { retry_after_secs: Some(retry_secs), ..Problem::new(Code::Unavailable, why) }
}

/// Why somebody without any right is refused.
pub fn stranger(who: &Who) -> Problem {
    match who.name() {
        None => Problem::new(Code::Unauthorized, "this needs a token"),
        Some(_) => {
            let why = "this token holds, but nothing that it says gives a right here";
            Problem::new(Code::Forbidden, why)
        }
    }
}

/// Checks that the tokens of what is served can be read, and tells whether
/// there are any, or an issuer of them.
///
/// # Errors
/// [`TokensError`], also where a mapping names what no repository can be called.
pub fn check(home: Option<&Path>, settings: &Settings) -> Result<bool, TokensError> {
    let mappings = settings.oidc.iter().flat_map(|oidc| &oidc.scopes);
    let mut named = mappings.flat_map(|mapping| mapping.repositories.iter().flatten());
    if let Some(name) = named.find(|name| !is_repository(name)) {
        return Err(TokensError::Repository { name: name.clone() });
    }
    let is_named = settings.tokens.is_some() || settings.oidc.is_some();
    match file_of(home, settings) {
        Some(file) => Ok(Tokens::read(&file)?.is_some() || is_named),
        None => Ok(is_named),
    }
}

/// The token that a request comes with, said by a program: `Authorization:
/// Bearer …`.
pub fn from_header(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, secret) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

/// What a form must say that was made for whoever has this token: nobody else
/// can know it, and it does not reveal the token. Browsers send cookies with
/// whatever any page makes them ask, so whoever changes something on account of
/// one must check this, too.
///
/// It follows from the secret alone, so that a form of one server counts at
/// another one before the same upstream. A key of the server's own would add
/// nothing: of a token nobody else knows what follows, and for a form to log in
/// anybody can ask; that one is as good as its [cookie](cookie::Cookie::Form).
pub fn csrf(secret: &str) -> String {
    blake3::Hasher::new_derive_key("snap server 2026-11-22 a form is ours")
        .update(secret.as_bytes())
        .finalize()
        .to_hex()
        .to_string()
}

/// Whether a form says what it must, told in constant time.
pub fn is_ours(secret: &str, said: &str) -> bool {
    blake3::hash(csrf(secret).as_bytes()) == blake3::hash(said.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_from_where_it_may_be() {
        let mut headers = HeaderMap::new();
        assert_eq!(from_header(&headers), None);
        headers.insert(header::AUTHORIZATION, "bearer  abc".parse().unwrap());
        assert_eq!(from_header(&headers), Some("abc"));
        headers.insert(header::AUTHORIZATION, "Basic abc".parse().unwrap());
        assert_eq!(from_header(&headers), None);
    }

    #[test]
    fn a_form_is_ours_only_for_its_token() {
        assert!(is_ours("one", &csrf("one")));
        assert!(!is_ours("one", &csrf("two")));
        assert!(!is_ours("one", ""));
    }
}
