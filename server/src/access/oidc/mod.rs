//! Tokens that an OpenID Connect issuer signs: JWTs, verified with the keys that the issuer
//! publishes. The settings map claims to rights, so no account on this server is needed.
//!
//! | module | what |
//! |---|---|
//! | `source` | fetches the keys of the issuer |
//! | `published` | the keys of one fetch, and the tokens verified with them |
//! | `keys` | caches the keys, and decides when they are fetched again |
//! | `claims` | derives rights and a name from the claims of a token |

mod claims;
mod keys;
mod published;
mod signature;
mod source;

use jsonwebtoken::{
    Algorithm, Validation,
    dangerous::{insecure_decode, insecure_decode_claims},
    decode,
    errors::{Error, ErrorKind},
};
use serde::Deserialize;
use serde_json::{Map, Value};
use snap_core::base::time::Time;

pub(super) use self::keys::KeysUnavailable;
use self::{
    keys::KeyCache,
    published::{IssuerKey, KeyLookup},
};
use super::principal::Principal;
use crate::{causes::causes, clock::Clock, settings::Oidc};

/// Longest JWT that is checked, in bytes.
const LONGEST: usize = 16 << 10;

/// How far the clocks of issuer and server may differ, in seconds.
const LEEWAY_SECS: u64 = 60;

/// Verifies the tokens of an issuer.
#[derive(Debug)]
pub(super) struct Issuer {
    chosen: Oidc,
    keys: KeyCache,
    clock: Clock,
}

/// Unverified claims of a token.
#[derive(Deserialize)]
struct TokenHeader {
    iss: String,
}

#[derive(Deserialize)]
struct Expires {
    exp: f64,
}

/// Returns true if a text has the form of a JWT: three parts with dots between them.
pub(super) fn is_jwt(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= LONGEST
        && text.split('.').filter(|part| !part.is_empty()).count() >= 2
        && text.split('.').count() == 3
        && text.bytes().all(plain)
}

/// Returns the `exp` claim of a JWT, in seconds since 1970. The signature is **not** checked.
pub(super) fn expires(token: &str) -> Option<i64> {
    insecure_decode_claims::<Expires>(token).ok().map(|claims| claims.exp as i64)
}

impl Issuer {
    pub(super) fn new(chosen: Oidc, clock: Clock) -> Self {
        signature::install();
        let keys = KeyCache::new(&chosen.issuer, clock.clone());
        Self { chosen, keys, clock }
    }

    /// Identifies the client that has this token; `None` if the token is not valid.
    ///
    /// # Errors
    /// [`KeysUnavailable`] when the issuer's keys cannot be fetched now.
    pub(super) async fn who(&self, token: &str) -> Result<Option<Principal>, KeysUnavailable> {
        // A token that can never be valid must not cause a fetch.
        let Some((key_id, algorithm)) = self.unverified(token) else { return Ok(None) };
        let (hash, now) = (blake3::hash(token.as_bytes()), Time::now().secs);
        let began = self.clock.now();
        let mut published = self.keys.current().await?;
        if let Some(who) = published.remembered(&hash, now) {
            return Ok(Some(who));
        }
        let mut found = published.find(key_id.as_deref(), algorithm);
        // The key may be newer than the cached ones, unless they were fetched just now.
        if matches!(found, KeyLookup::Unknown) && published.fetched() < began {
            published = self.keys.refresh_after(&published).await?;
            found = published.find(key_id.as_deref(), algorithm);
        }
        let claims = match found {
            KeyLookup::Key(key) => self.claims(token, key),
            KeyLookup::Unknown | KeyLookup::Unfit => Err(ErrorKind::InvalidKeyFormat.into()),
        };
        let claims = match claims {
            Ok(claims) => claims,
            Err(why) => {
                refused(&why);
                return Ok(None);
            }
        };
        let who = Principal::new(
            &claims::name(&claims, &self.chosen.name_claim),
            claims::grants(&claims, &self.chosen.scopes),
        );
        if let Some(expires) = expires(token) {
            published.remember(hash, who.clone(), expires, now);
        }
        Ok(Some(who))
    }

    /// Returns the key and the algorithm that a token names; `None` if it cannot be a token of this
    /// issuer. The result is unverified and only selects the key.
    fn unverified(&self, token: &str) -> Option<(Option<String>, Algorithm)> {
        let unverified = insecure_decode::<TokenHeader>(token).and_then(|unverified| {
            // `crit` names extensions that a verifier must understand. None are supported.
            let is_odd = unverified.header.crit.is_some();
            match unverified.claims.iss == self.chosen.issuer && !is_odd {
                true => Ok((unverified.header.kid, unverified.header.alg)),
                false => Err(ErrorKind::InvalidIssuer.into()),
            }
        });
        unverified.inspect_err(refused).ok()
    }

    /// Verifies that the issuer signed the token with this key, that the token is meant for this
    /// server, and that it is valid now. Returns its claims.
    fn claims(&self, token: &str, key: &IssuerKey) -> Result<Map<String, Value>, Error> {
        let mut validation = Validation::new(key.algorithm);
        validation.leeway = LEEWAY_SECS;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.set_issuer(&[&self.chosen.issuer]);
        validation.set_audience(&[&self.chosen.audience]);
        decode(token, &key.key, &validation).map(|data| data.claims)
    }
}

fn refused(why: &Error) {
    tracing::debug!(error = %causes(why), "a JWT was rejected");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jwt_is_recognised_by_its_form() {
        for text in ["e30.e30.c2ln", "a-_.b.c", "e30.e30."] {
            assert!(is_jwt(text), "{text}");
        }
        let long = format!("{}.b.c", "a".repeat(LONGEST));
        for text in ["", "..", "snap_0123", "a.b", "a.b.c.d", "a b.c.d", "a.b.c\n", &long] {
            assert!(!is_jwt(text), "{text}");
        }
    }
}
