//! Authentication and authorization.
//!
//! | module | what |
//! |---|---|
//! | [`principal`] | the client of a request, and its rights |
//! | [`tokens`] | the token file: creates, lists and revokes tokens; only hashes are stored |
//! | `oidc` | tokens that an OpenID Connect issuer signs |
//! | [`login_backoff`] | backs off after wrong tokens |
//! | [`rate_limits`] | rate limits |
//! | [`guard`] | the middleware for access control |
//! | `browser` | protection against requests of other sites' pages |
//! | [`cookie`] | the cookies that a browser keeps |
//!
//! A server without a token file and without an issuer is open to every client that reaches
//! it. It listens on its own machine only, unless the settings open it explicitly. A server
//! that has had tokens never becomes open again while it runs, even if the file is removed.

mod browser;
pub mod cookie;
pub mod guard;
pub mod login_backoff;
mod oidc;
pub mod principal;
pub mod rate_limits;
pub mod tokens;

pub(crate) use self::login_backoff::network;

use std::{
    net::IpAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, header};
use parking_lot::Mutex;
use snap_core::base::time::Time;

use self::{
    login_backoff::LoginBackoff,
    oidc::{Issuer, KeysUnavailable},
    principal::Principal,
    rate_limits::RateLimits,
    tokens::{Tokens, TokensError},
};
use crate::{
    causes::causes,
    clock::Clock,
    hub::is_name as is_repository,
    problem::{Code, HttpProblem},
    settings::ServerSettings,
};

/// How often the token file is checked for changes.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Longest time that a request waits for that check before it uses the tokens as last read.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

/// Access control of a server.
#[derive(Debug)]
pub struct AccessControl {
    file: Option<PathBuf>,
    proxies: Vec<IpAddr>,
    known: Mutex<TokenFileState>,
    /// Serializes the checks of the file. A check holds it to the end, even if its request stops
    /// waiting.
    looking: Arc<tokio::sync::Mutex<()>>,
    issuer: Option<Issuer>,
    login_backoff: LoginBackoff,
    pace: RateLimits,
    /// True if `/metrics` can be read without a token.
    metrics_are_public: bool,
    /// True if the settings explicitly open the server to every client.
    is_open: bool,
    has_tls: bool,
    clock: Clock,
}

/// The token file as last read.
#[derive(Debug)]
struct TokenFileState {
    tokens: Arc<Tokens>,
    /// True if clients need a token.
    is_guarded: bool,
    stamp: Option<Stamp>,
    /// When the file was last checked.
    looked: Instant,
}

/// Device, inode, length, and modification time (seconds, nanoseconds) of the file.
type Stamp = (u64, u64, u64, i64, i64);

/// Returns the path of the token file: the one in the settings, or else the one in the served
/// folder `home`.
pub fn file_of(home: Option<&Path>, settings: &ServerSettings) -> Option<PathBuf> {
    let own = || home.map(|home| home.join(tokens::FILE));
    settings.tokens.clone().or_else(own)
}

impl AccessControl {
    /// Reads the token file of the settings or of the served folder `home`. If reading fails, no
    /// client has any right.
    pub fn new(home: Option<&Path>, settings: &ServerSettings, clock: Clock) -> Self {
        let file = file_of(home, settings);
        // If the settings name a token file, clients need a token even before the file exists.
        let is_guarded = settings.tokens.is_some() || settings.oidc.is_some();
        let (tokens, looked) = (Arc::default(), clock.now());
        let access = Self {
            file,
            proxies: settings.proxies.clone(),
            known: Mutex::new(TokenFileState { tokens, is_guarded, stamp: None, looked }),
            looking: Arc::default(),
            issuer: settings.oidc.clone().map(|oidc| Issuer::new(oidc, clock.clone())),
            login_backoff: LoginBackoff::new(clock.clone()),
            pace: RateLimits::new(&settings.limits, clock.clone()),
            metrics_are_public: settings.metrics_without_token,
            is_open: settings.without_tokens_anyone_may_read_and_write,
            has_tls: settings.tls.is_some(),
            clock,
        };
        access.reload_if_changed();
        access
    }

    /// Reads the token file again if it has changed and the last check is not recent. If
    /// that takes too long, the tokens stay as they were.
    pub async fn reload_if_due(self: &Arc<Self>) {
        if !self.is_due() {
            return;
        }
        let look = async {
            let turn = Arc::clone(&self.looking).lock_owned().await;
            // Another task may have checked meanwhile.
            if self.is_due() {
                let access = Arc::clone(self);
                let look = move || {
                    access.reload_if_changed();
                    drop(turn);
                };
                let _ = tokio::task::spawn_blocking(look).await;
            }
        };
        let _ = self.clock.timeout(LOOK_PATIENCE, look).await;
    }

    fn is_due(&self) -> bool {
        self.file.is_some() && self.clock.elapsed(self.known.lock().looked) >= LOOK_EVERY
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns true if clients need a token.
    pub fn is_guarded(&self) -> bool {
        self.current().1
    }

    /// Identifies the client by its token. The response to a wrong token is delayed, and
    /// the delay grows with each wrong token from the same address. Other requests are not
    /// delayed.
    ///
    /// # Errors
    /// [`Code::Unauthorized`] for a wrong token, [`Code::SlowDown`] after too many of them,
    /// [`Code::Unavailable`] when the keys of the token's issuer cannot be fetched.
    pub async fn identify(&self, secret: &str, address: IpAddr) -> Result<Principal, HttpProblem> {
        let (tokens, is_guarded) = self.current();
        if !is_guarded {
            return Ok(Principal::unrestricted());
        }
        let issuer = self.issuer.as_ref().filter(|_| oidc::is_jwt(secret));
        let found = match issuer {
            Some(issuer) => issuer.who(secret).await.map_err(away)?,
            None => tokens.find(secret, Time::now().secs),
        };
        match found {
            Some(who) => Ok(who),
            None => Err(self.login_backoff.delay_refusal(address).await),
        }
    }

    /// Returns the remaining lifetime of an [identified](Self::identify) JWT, in seconds; `None`
    /// for other tokens.
    pub fn lasts_secs(&self, secret: &str) -> Option<i64> {
        let is_ours = self.issuer.is_some() && oidc::is_jwt(secret);
        let expires = is_ours.then(|| oidc::expires(secret)).flatten()?;
        Some(expires.saturating_sub(Time::now().secs).max(0))
    }

    /// Returns the tokens as last read, and whether clients need one.
    fn current(&self) -> (Arc<Tokens>, bool) {
        let known = self.known.lock();
        (Arc::clone(&known.tokens), known.is_guarded)
    }

    /// Reads the token file if it has changed. May block.
    fn reload_if_changed(&self) {
        let (Some(file), began) = (&self.file, self.clock.now()) else { return };
        let stamp = fs_err::metadata(file)
            .ok()
            .map(|meta| (meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()));
        let is_read = self.known.lock().stamp == stamp;
        let read = if is_read { None } else { Some(Tokens::read(file)) };
        let mut known = self.known.lock();
        known.looked = began;
        let read = match read {
            None => return,
            Some(Ok(read)) => read,
            // The tokens as last read stay valid; at the start there are none.
            Some(Err(error)) => {
                known.is_guarded = true;
                // An I/O error may pass while the file stays the same: read it again next
                // time.
                if matches!(error, TokensError::Invalid { .. }) {
                    known.stamp = stamp;
                }
                let error = causes(&error);
                tracing::error!(%error, "cannot reload the token file, the old tokens stay valid");
                return;
            }
        };
        known.stamp = stamp;
        known.is_guarded |= read.is_some();
        known.tokens = Arc::new(read.unwrap_or_default());
    }
}

fn away(KeysUnavailable { retry_secs }: KeysUnavailable) -> HttpProblem {
    let why = "cannot fetch the keys of the token's issuer";
    HttpProblem { retry_after_secs: Some(retry_secs), ..HttpProblem::new(Code::Unavailable, why) }
}

/// Creates the refusal of a client without any right.
pub fn no_rights(who: &Principal) -> HttpProblem {
    match who.name() {
        None => HttpProblem::new(Code::Unauthorized, "a token is required"),
        Some(_) => {
            let why = "the token is valid but grants no permission on this server";
            HttpProblem::new(Code::Forbidden, why)
        }
    }
}

/// Checks that the token file can be read and that all mappings name valid repositories. Returns
/// true if clients need a token.
///
/// # Errors
/// [`TokensError`], also for a mapping that names an invalid repository.
pub fn check(home: Option<&Path>, settings: &ServerSettings) -> Result<bool, TokensError> {
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

/// Returns the token in the `Authorization: Bearer …` header of a request, as programs send
/// it.
pub fn from_header(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, secret) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

/// Derives the CSRF token for forms of the client whose token is `secret`. Other clients cannot
/// derive it, and it does not reveal `secret`. A browser sends its cookies with requests of any
/// page, so a handler that changes something on account of a cookie must check the CSRF token, too.
///
/// The result depends on `secret` alone, so a form of one server is valid at another server of the
/// same upstream. A server key would add nothing: only the owner of a token can derive its CSRF
/// token. Any client can request a CSRF token for the login form, but it is valid only together
/// with its [cookie](cookie::Cookie::Form).
pub fn csrf(secret: &str) -> String {
    blake3::Hasher::new_derive_key("snap server 2026-11-22 a form is ours")
        .update(secret.as_bytes())
        .finalize()
        .to_hex()
        .to_string()
}

/// Returns true if a form has the right CSRF token. Compares in constant time.
pub fn is_ours(secret: &str, form_value: &str) -> bool {
    blake3::hash(csrf(secret).as_bytes()) == blake3::hash(form_value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_the_bearer_header_only() {
        let mut headers = HeaderMap::new();
        assert_eq!(from_header(&headers), None);
        headers.insert(header::AUTHORIZATION, "bearer  abc".parse().unwrap());
        assert_eq!(from_header(&headers), Some("abc"));
        headers.insert(header::AUTHORIZATION, "Basic abc".parse().unwrap());
        assert_eq!(from_header(&headers), None);
    }

    #[test]
    fn a_form_is_valid_only_for_its_token() {
        assert!(is_ours("one", &csrf("one")));
        assert!(!is_ours("one", &csrf("two")));
        assert!(!is_ours("one", ""));
    }
}
