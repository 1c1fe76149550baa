//! Tokens that an OpenID Connect issuer signs: JWTs, checked against keys that
//! the issuer publishes. Their claims say what they are for, as the settings map
//! them; nobody but the issuer need know of this server.
//!
//! | module | what |
//! |---|---|
//! | `source` | where the issuer publishes its keys, and how it is asked |
//! | `published` | what it published at one time, and the tokens that held since |
//! | `keys` | which of that counts, and when it is asked again |
//! | `claims` | what the claims of a token are good for |

mod claims;
mod keys;
mod published;
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

pub(super) use self::keys::Away;
use self::{
    keys::Keys,
    published::{Found, Key},
};
use super::who::Who;
use crate::{causes::causes, settings::Oidc};

/// Longest JWT that is looked at, in bytes.
const LONGEST: usize = 16 << 10;

/// How far clocks may be apart.
const LEEWAY_SECS: u64 = 60;

/// Checks tokens of an issuer.
#[derive(Debug)]
pub(super) struct Issuer {
    chosen: Oidc,
    keys: Keys,
}

/// What a token says before anything of it is believed.
#[derive(Deserialize)]
struct Said {
    iss: String,
}

#[derive(Deserialize)]
struct Expires {
    exp: f64,
}

/// Whether a text has the form of a JWT: three parts with dots between them.
pub(super) fn is_jwt(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= LONGEST
        && text.split('.').filter(|part| !part.is_empty()).count() >= 2
        && text.split('.').count() == 3
        && text.bytes().all(plain)
}

/// When a JWT says that it expires, in seconds since 1970; it is not checked.
pub(super) fn expires(token: &str) -> Option<i64> {
    insecure_decode_claims::<Expires>(token).ok().map(|claims| claims.exp as i64)
}

impl Issuer {
    pub(super) fn new(chosen: Oidc) -> Self {
        let keys = Keys::new(&chosen.issuer);
        Self { chosen, keys }
    }

    /// Whoever has this token; `None` if it does not hold.
    ///
    /// # Errors
    /// [`Away`] when that cannot be told, because the issuer cannot be asked now.
    pub(super) async fn who(&self, token: &str) -> Result<Option<Who>, Away> {
        // What can never hold is no reason to ask anybody.
        let Some((key_id, algorithm)) = self.said(token) else { return Ok(None) };
        let (hash, now) = (blake3::hash(token.as_bytes()), Time::now().secs);
        let began = std::time::Instant::now();
        let mut published = self.keys.now().await?;
        if let Some(who) = published.remembered(&hash, now) {
            return Ok(Some(who));
        }
        let mut found = published.find(key_id.as_deref(), algorithm);
        if matches!(found, Found::Unknown) && published.fetched() < began {
            published = self.keys.after(&published).await?;
            found = published.find(key_id.as_deref(), algorithm);
        }
        let claims = match found {
            Found::Key(key) => self.claims(token, key),
            Found::Unknown | Found::Unfit => Err(ErrorKind::InvalidKeyFormat.into()),
        };
        let claims = match claims {
            Ok(claims) => claims,
            Err(why) => {
                refused(&why);
                return Ok(None);
            }
        };
        let who = Who::new(
            &claims::name(&claims, &self.chosen.name_claim),
            claims::grants(&claims, &self.chosen.scopes),
        );
        if let Some(expires) = expires(token) {
            published.remember(hash, who.clone(), expires, now);
        }
        Ok(Some(who))
    }

    /// Which key a token says it is signed with, and how; `None` if it cannot be
    /// one of this issuer. Of this only the choice among keys depends.
    fn said(&self, token: &str) -> Option<(Option<String>, Algorithm)> {
        let said = insecure_decode::<Said>(token).and_then(|said| {
            // What must be understood is not.
            let is_odd = said.header.crit.is_some();
            match said.claims.iss == self.chosen.issuer && !is_odd {
                true => Ok((said.header.kid, said.header.alg)),
                false => Err(ErrorKind::InvalidIssuer.into()),
            }
        });
        said.inspect_err(refused).ok()
    }

    /// What a token says, if it is signed by the issuer with that key, for us, and
    /// holds now.
    fn claims(&self, token: &str, key: &Key) -> Result<Map<String, Value>, Error> {
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
    tracing::debug!(error = %causes(why), "a JWT does not hold");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jwt_is_known_by_its_form() {
        for text in ["e30.e30.c2ln", "a-_.b.c", "e30.e30."] {
            assert!(is_jwt(text), "{text}");
        }
        let long = format!("{}.b.c", "a".repeat(LONGEST));
        for text in ["", "..", "snap_0123", "a.b", "a.b.c.d", "a b.c.d", "a.b.c\n", &long] {
            assert!(!is_jwt(text), "{text}");
        }
    }
}
