//! What an issuer published at one time: its keys, each with what it is for; and
//! which tokens were found good with them.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse},
};
use serde_json::Value;

use crate::access::who::Who;

/// Keys that are taken from an answer.
const MOST: usize = 64;

/// Tokens that were found good and are not looked at again.
const REMEMBERED: usize = 1024;

/// Lengths of an RSA modulus in bytes: shorter ones are not safe, longer ones
/// take long.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=512;

/// A key, and what it is for.
#[derive(Clone, Debug)]
pub(super) struct Key {
    id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// What an issuer published at one time.
#[derive(Debug)]
pub(super) struct Published {
    keys: Vec<Key>,
    fetched: Instant,
    /// By hash of the token, with when each expires.
    good: Mutex<HashMap<blake3::Hash, (Who, i64)>>,
}

/// Which key a token means.
#[derive(Debug)]
pub(super) enum Found<'p> {
    /// This one.
    Key(&'p Key),
    /// One that is not there, or not yet.
    Unknown,
    /// It does not say which, or one that is for something else.
    Unfit,
}

impl Published {
    /// Takes the keys that can be used.
    pub(super) fn new(keys: Vec<Value>) -> Self {
        let keys = keys.into_iter().filter_map(usable).take(MOST).collect();
        Self { keys, fetched: Instant::now(), good: Mutex::default() }
    }

    /// When.
    pub(super) fn fetched(&self) -> Instant {
        self.fetched
    }

    pub(super) fn age(&self) -> Duration {
        self.fetched.elapsed()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key of that name for that algorithm. Where a token names none there
    /// must be just one.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Found<'_> {
        let fits = |key: &&Key| key.algorithm == algorithm;
        let mut named = self.keys.iter().filter(|key| id.is_none() || key.id.as_deref() == id);
        let is_known = id.is_some() && named.clone().next().is_some();
        let mut fitting = named.by_ref().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Found::Key(key),
            (None, _) if !is_known => Found::Unknown,
            _ => Found::Unfit,
        }
    }

    /// Whoever has a token that was found good.
    pub(super) fn remembered(&self, token: &blake3::Hash, now: i64) -> Option<Who> {
        let good = self.good();
        good.get(token).filter(|(_, expires)| now < *expires).map(|(who, _)| who.clone())
    }

    /// Remembers a good token until it expires, or until there are newer keys.
    pub(super) fn remember(&self, token: blake3::Hash, who: Who, expires: i64, now: i64) {
        let mut good = self.good();
        if good.len() >= REMEMBERED {
            good.retain(|_, (_, expires)| now < *expires);
        }
        if good.len() >= REMEMBERED {
            good.clear();
        }
        good.insert(token, (who, expires));
    }

    fn good(&self) -> MutexGuard<'_, HashMap<blake3::Hash, (Who, i64)>> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As if it had been published earlier.
    #[cfg(test)]
    pub(super) fn aged(mut self, by: Duration) -> Self {
        self.fetched = self.fetched.checked_sub(by).unwrap();
        self
    }
}

/// A key that tokens are signed with, of a kind that is safe. What it is for
/// follows from the key, never from what a token says.
fn usable(value: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    if jwk.common.public_key_use.as_ref().is_some_and(|what| *what != PublicKeyUse::Signature) {
        return None;
    }
    if jwk.common.key_operations.as_ref().is_some_and(|all| !all.contains(&KeyOperations::Verify)) {
        return None;
    }
    let algorithm = algorithm(&jwk.algorithm, jwk.common.key_algorithm)?;
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    has_length(&key, algorithm).then_some(())?;
    Some(Key { id: jwk.common.key_id, algorithm, key })
}

/// Whether a key is as long as its kind is. A shorter one is not safe, nor is it
/// to hand one to what checks signatures.
fn has_length(key: &DecodingKey, algorithm: Algorithm) -> bool {
    match (key.kind(), algorithm) {
        (DecodingKeyKind::RsaModulusExponent { n, .. }, _) => {
            let zeros = n.iter().take_while(|byte| **byte == 0).count();
            RSA_BYTES.contains(&(n.len() - zeros))
        }
        // Both coordinates, and what says that they are whole.
        (DecodingKeyKind::SecretOrDer(bytes), Algorithm::ES256) => bytes.len() == 1 + 2 * 32,
        (DecodingKeyKind::SecretOrDer(bytes), Algorithm::ES384) => bytes.len() == 1 + 2 * 48,
        (DecodingKeyKind::SecretOrDer(bytes), Algorithm::EdDSA) => bytes.len() == 32,
        _ => false,
    }
}

/// What a key is for: what it says if that fits its kind, else what is usual.
fn algorithm(kind: &AlgorithmParameters, said: Option<KeyAlgorithm>) -> Option<Algorithm> {
    let all: &[Algorithm] = match kind {
        AlgorithmParameters::RSA(_) => &[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            &[Algorithm::EdDSA]
        }
        // A secret that is published is none.
        _ => &[],
    };
    let Some(said) = said else { return all.first().copied() };
    all.iter().copied().find(|algorithm| KeyAlgorithm::from(*algorithm) == said)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A key with an odd modulus of so many bytes.
    fn rsa(bytes: usize, more: Value) -> Value {
        // Base64 of bytes that are all 0xff.
        let digits = format!("{}{}", "_".repeat(bytes / 3 * 4), ["", "_w", "__8"][bytes % 3]);
        let mut key = json!({"kty": "RSA", "n": digits, "e": "AQAB"});
        key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        key
    }

    fn is(value: Value) -> Option<Algorithm> {
        usable(value).map(|key| key.algorithm)
    }

    #[test]
    fn what_a_key_is_for_follows_from_its_kind() {
        let point = "A".repeat(43);
        assert_eq!(is(rsa(256, json!({}))), Some(Algorithm::RS256));
        assert_eq!(is(rsa(256, json!({"use": "sig", "alg": "RS512"}))), Some(Algorithm::RS512));
        assert_eq!(is(rsa(512, json!({"alg": "PS256"}))), Some(Algorithm::PS256));
        let ec = |curve: &str, digits| {
            let point = "A".repeat(digits);
            json!({"kty": "EC", "crv": curve, "x": point, "y": point})
        };
        assert_eq!(is(ec("P-256", 43)), Some(Algorithm::ES256));
        assert_eq!(is(ec("P-384", 64)), Some(Algorithm::ES384));
        let ed = json!({"kty": "OKP", "crv": "Ed25519", "x": point, "key_ops": ["verify"]});
        assert_eq!(is(ed), Some(Algorithm::EdDSA));
    }

    #[test]
    fn keys_that_are_not_safe_or_not_for_this_are_left_out() {
        let point = "A".repeat(43);
        for key in [
            json!(null),
            json!({"kty": "oct", "k": "c2VjcmV0"}),
            json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}),
            rsa(256, json!({"alg": "HS256"})),
            rsa(256, json!({"alg": "ES256"})),
            rsa(256, json!({"alg": "none"})),
            rsa(256, json!({"alg": "RSA-OAEP"})),
            rsa(256, json!({"use": "enc"})),
            rsa(256, json!({"key_ops": ["encrypt"]})),
            rsa(128, json!({})),
            rsa(1024, json!({})),
            json!({"kty": "RSA", "n": "not base64!", "e": "AQAB"}),
            json!({"kty": "EC", "crv": "P-256", "x": point, "y": point, "alg": "ES384"}),
            json!({"kty": "EC", "crv": "P-384", "x": point, "y": point}),
            json!({"kty": "EC", "crv": "P-521", "x": point, "y": point}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}),
            json!({"kty": "new", "x": point}),
        ] {
            assert_eq!(is(key.clone()), None, "{key}");
        }
    }

    #[test]
    fn a_token_means_one_key() {
        let published = Published::new(vec![
            rsa(256, json!({"kid": "a"})),
            rsa(256, json!({"kid": "b"})),
            rsa(256, json!({"kid": "c", "alg": "PS256"})),
            json!(17),
        ]);
        let find = |id, algorithm| match published.find(id, algorithm) {
            Found::Key(key) => key.id.as_deref().unwrap(),
            Found::Unknown => "unknown",
            Found::Unfit => "unfit",
        };
        assert_eq!(find(Some("b"), Algorithm::RS256), "b");
        assert_eq!(find(Some("b"), Algorithm::HS256), "unfit");
        assert_eq!(find(Some("b"), Algorithm::PS256), "unfit");
        assert_eq!(find(Some("d"), Algorithm::RS256), "unknown");
        assert_eq!(find(None, Algorithm::PS256), "c");
        assert_eq!(find(None, Algorithm::RS256), "unfit", "it could be either");
        assert_eq!(find(None, Algorithm::ES256), "unknown");
        let many = (0..1000).map(|number| rsa(256, json!({"kid": number.to_string()})));
        assert_eq!(Published::new(many.collect()).keys.len(), MOST);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_expires() {
        let published = Published::new(Vec::new());
        let (hash, who) = (|n: usize| blake3::hash(&(n as u64).to_le_bytes()), Who::nobody());
        for number in 0..REMEMBERED {
            published.remember(hash(number), who.clone(), 50 + number as i64 % 2, 0);
        }
        assert!(published.remembered(&hash(0), 49).is_some());
        assert!(published.remembered(&hash(0), 50).is_none());
        assert!(published.remembered(&hash(1), 50).is_some());
        published.remember(hash(REMEMBERED), who.clone(), 99, 50);
        assert_eq!(published.good().len(), REMEMBERED / 2 + 1, "what has expired goes first");
        for number in 0..5 * REMEMBERED {
            published.remember(hash(number), who.clone(), 99, 50);
            assert!(published.good().len() <= REMEMBERED);
        }
    }
}
