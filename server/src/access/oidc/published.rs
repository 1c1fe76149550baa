//! The keys that an issuer published at one time, each with its algorithm, and the tokens
//! that were verified with them.

use std::{collections::HashMap, time::Instant};

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse},
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::access::principal::Principal;

/// Maximum number of keys that are taken from a response.
const MOST: usize = 64;

/// Maximum number of verified tokens that are remembered, so that they are not verified again.
const REMEMBERED: usize = 1024;

/// Allowed lengths of an RSA modulus in bytes: shorter ones are not safe, longer ones are
/// slow.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=512;

/// A key and its algorithm.
#[derive(Clone, Debug)]
pub(super) struct IssuerKey {
    id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// The keys that an issuer published at one time.
#[derive(Debug)]
pub(super) struct Published {
    keys: Vec<IssuerKey>,
    fetched: Instant,
    /// Clients and expiry times (seconds since 1970) of verified tokens, by the hash of the token.
    good: Mutex<HashMap<blake3::Hash, (Principal, i64)>>,
}

/// The result of a lookup of the key that a token names.
#[derive(Debug)]
pub(super) enum KeyLookup<'p> {
    Key(&'p IssuerKey),
    /// No known key matches; the issuer may have newer keys.
    Unknown,
    /// The token names no single key, or a key for another algorithm.
    Unfit,
}

impl Published {
    /// Keeps the first [`MOST`] usable keys.
    pub(super) fn new(keys: Vec<Value>, fetched: Instant) -> Self {
        let keys = keys.into_iter().filter_map(usable).take(MOST).collect();
        Self { keys, fetched, good: Mutex::default() }
    }

    /// Returns when the keys were fetched.
    pub(super) fn fetched(&self) -> Instant {
        self.fetched
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Finds the key of that id for that algorithm. If the token names no id, exactly one
    /// key must have that algorithm.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> KeyLookup<'_> {
        let fits = |key: &&IssuerKey| key.algorithm == algorithm;
        let mut named = self.keys.iter().filter(|key| id.is_none() || key.id.as_deref() == id);
        let is_known = id.is_some() && named.clone().next().is_some();
        let mut fitting = named.by_ref().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => KeyLookup::Key(key),
            (None, _) if !is_known => KeyLookup::Unknown,
            _ => KeyLookup::Unfit,
        }
    }

    /// Returns the client of a token that was verified before, unless the token has
    /// expired.
    pub(super) fn remembered(&self, token: &blake3::Hash, now: i64) -> Option<Principal> {
        let good = self.good.lock();
        good.get(token).filter(|(_, expires)| now < *expires).map(|(who, _)| who.clone())
    }

    /// Remembers a verified token until it expires, or until newer keys are fetched.
    pub(super) fn remember(&self, token: blake3::Hash, who: Principal, expires: i64, now: i64) {
        let mut good = self.good.lock();
        if good.len() >= REMEMBERED {
            good.retain(|_, (_, expires)| now < *expires);
        }
        // None has expired. Forgetting all is simple, and costs one more verification of
        // each.
        if good.len() >= REMEMBERED {
            good.clear();
        }
        good.insert(token, (who, expires));
    }
}

/// Returns a key if it can verify signatures and is of a safe kind. The algorithm comes from the
/// key, never from a token.
fn usable(value: Value) -> Option<IssuerKey> {
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
    Some(IssuerKey { id: jwk.common.key_id, algorithm, key })
}

/// Returns true if a key has the right length for its algorithm. Only such a key may reach the code
/// that verifies signatures.
fn has_length(key: &DecodingKey, algorithm: Algorithm) -> bool {
    match (key.kind(), algorithm) {
        (DecodingKeyKind::RsaModulusExponent { n, .. }, _) => {
            let zeros = n.iter().take_while(|byte| **byte == 0).count();
            RSA_BYTES.contains(&(n.len() - zeros))
        }
        // An uncompressed point: a marker byte and both coordinates.
        (DecodingKeyKind::SecretOrDer(bytes), Algorithm::ES256) => bytes.len() == 1 + 2 * 32,
        (DecodingKeyKind::SecretOrDer(bytes), Algorithm::ES384) => bytes.len() == 1 + 2 * 48,
        (DecodingKeyKind::SecretOrDer(bytes), Algorithm::EdDSA) => bytes.len() == 32,
        _ => false,
    }
}

/// Returns the algorithm of a key: the one that it names, or the first one of its kind.
/// Returns `None` if the named algorithm does not fit the kind.
fn algorithm(kind: &AlgorithmParameters, named: Option<KeyAlgorithm>) -> Option<Algorithm> {
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
        // A symmetric key that is published is not secret.
        _ => &[],
    };
    let Some(named) = named else { return all.first().copied() };
    all.iter().copied().find(|algorithm| KeyAlgorithm::from(*algorithm) == named)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A key with an odd modulus of `bytes` bytes.
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
    fn the_algorithm_of_a_key_follows_from_its_type() {
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
    fn unsafe_and_unsuitable_keys_are_skipped() {
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
    fn a_token_matches_exactly_one_key() {
        let keys = vec![
            rsa(256, json!({"kid": "a"})),
            rsa(256, json!({"kid": "b"})),
            rsa(256, json!({"kid": "c", "alg": "PS256"})),
            json!(17),
        ];
        let published = Published::new(keys, Instant::now());
        let find = |id, algorithm| match published.find(id, algorithm) {
            KeyLookup::Key(key) => key.id.as_deref().unwrap(),
            KeyLookup::Unknown => "unknown",
            KeyLookup::Unfit => "unfit",
        };
        assert_eq!(find(Some("b"), Algorithm::RS256), "b");
        assert_eq!(find(Some("b"), Algorithm::HS256), "unfit");
        assert_eq!(find(Some("b"), Algorithm::PS256), "unfit");
        assert_eq!(find(Some("d"), Algorithm::RS256), "unknown");
        assert_eq!(find(None, Algorithm::PS256), "c");
        assert_eq!(find(None, Algorithm::RS256), "unfit", "two keys fit");
        assert_eq!(find(None, Algorithm::ES256), "unknown");
        let many = (0..1000).map(|number| rsa(256, json!({"kid": number.to_string()})));
        assert_eq!(Published::new(many.collect(), Instant::now()).keys.len(), MOST);
    }

    #[test]
    fn remembered_tokens_are_bounded_and_expire() {
        let published = Published::new(Vec::new(), Instant::now());
        let (hash, who) =
            (|n: usize| blake3::hash(&(n as u64).to_le_bytes()), Principal::anonymous());
        for number in 0..REMEMBERED {
            published.remember(hash(number), who.clone(), 50 + number as i64 % 2, 0);
        }
        assert!(published.remembered(&hash(0), 49).is_some());
        assert!(published.remembered(&hash(0), 50).is_none());
        assert!(published.remembered(&hash(1), 50).is_some());
        published.remember(hash(REMEMBERED), who.clone(), 99, 50);
        assert_eq!(
            published.good.lock().len(),
            REMEMBERED / 2 + 1,
            "expired tokens are dropped first"
        );
        for number in 0..5 * REMEMBERED {
            published.remember(hash(number), who.clone(), 99, 50);
            assert!(published.good.lock().len() <= REMEMBERED);
        }
    }
}
