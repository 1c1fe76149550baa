//! An OpenID Connect issuer inside the tests, with signing keys for tokens. It counts
//! requests and can be made to misbehave.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Redirect, Response},
};
use jsonwebtoken::Algorithm;
use parking_lot::Mutex;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use ring::{
    hmac,
    rand::SystemRandom,
    rsa::PublicKeyComponents,
    signature::{
        self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        Ed25519KeyPair, RsaEncoding, RsaKeyPair,
    },
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// The path of the discovery document.
pub(crate) const ABOUT: &str = "/.well-known/openid-configuration";

/// How an issuer answers.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    Well,
    /// Every request fails.
    Fails,
    /// This path never answers.
    Stalls(&'static str),
    /// The response of this path never ends.
    Endless(&'static str),
    /// This path answers with malformed JSON.
    Garbled(&'static str),
    /// This path redirects to another one.
    Moved(&'static str),
    /// The discovery document is this value.
    Says(Value),
}

#[derive(Debug)]
struct Shared {
    base: String,
    keys: Mutex<Vec<Value>>,
    mode: Mutex<Mode>,
    asked: AtomicUsize,
}

/// An issuer that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Issuer {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Issuer {
    /// Starts an issuer with these keys on a free port.
    pub(crate) fn start(keys: &[&Signer]) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let mode = Mutex::new(Mode::Well);
        let shared = Shared { base, keys: Mutex::default(), mode, asked: AtomicUsize::new(0) };
        let shared = Arc::new(shared);
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
        let issuer = Self { shared, runtime: Some(runtime) };
        issuer.publish(keys);
        issuer
    }

    pub(crate) fn base(&self) -> &str {
        &self.shared.base
    }

    /// Replaces the published keys.
    pub(crate) fn publish(&self, keys: &[&Signer]) {
        *self.shared.keys.lock() = keys.iter().map(|key| key.jwk.clone()).collect();
    }

    pub(crate) fn behave(&self, mode: Mode) {
        *self.shared.mode.lock() = mode;
    }

    /// Returns how often the keys were fetched. Each time takes two requests.
    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst).div_ceil(2)
    }

    /// Returns valid claims with some changed. A claim that is `null` is left out.
    pub(crate) fn claims(&self, changed: Value) -> Value {
        let now = snap_core::base::time::Time::now().secs;
        let mut claims = json!({
            "iss": self.base(), "aud": "snap", "sub": "ci", "iat": now, "nbf": now - 5,
            "exp": now + 600, "repository": "team/project",
        });
        let all = claims.as_object_mut().unwrap();
        all.extend(changed.as_object().unwrap().clone());
        all.retain(|_, value| !value.is_null());
        claims
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    shared.asked.fetch_add(1, Ordering::SeqCst);
    let mode = shared.mode.lock().clone();
    let path = request.uri().path();
    match mode {
        Mode::Fails => return http::StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Mode::Stalls(at) if at == path => std::future::pending::<()>().await,
        Mode::Endless(at) if at == path => {
            let spaces = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 8192]));
            return Body::from_stream(spaces).into_response();
        }
        Mode::Garbled(at) if at == path => return "{\"keys\": [".into_response(),
        Mode::Moved(at) if at == path => return Redirect::temporary("/moved").into_response(),
        _ => {}
    }
    let text = match (path, mode) {
        (ABOUT, Mode::Says(what)) => what,
        (ABOUT, _) | ("/moved", Mode::Moved(ABOUT)) => {
            json!({"issuer": shared.base, "jwks_uri": format!("{}/keys", shared.base)})
        }
        ("/keys" | "/moved", _) => json!({"keys": *shared.keys.lock()}),
        _ => return http::StatusCode::NOT_FOUND.into_response(),
    };
    axum::Json(text).into_response()
}

/// A private key.
enum PrivateKey {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A key that signs tokens.
pub(crate) struct Signer {
    pub(crate) algorithm: Algorithm,
    key: PrivateKey,
    /// The public key as JWK.
    pub(crate) jwk: Value,
    /// The public key as PEM. Empty for RSA.
    pub(crate) pem: String,
}

impl Signer {
    /// Creates a new key. An RSA key is always the one from the fixtures.
    pub(crate) fn new(algorithm: Algorithm, id: &str) -> Self {
        let (kind, signing, curve) = match algorithm {
            Algorithm::ES256 => {
                (&PKCS_ECDSA_P256_SHA256, Some(&ECDSA_P256_SHA256_FIXED_SIGNING), "P-256")
            }
            Algorithm::ES384 => {
                (&PKCS_ECDSA_P384_SHA384, Some(&ECDSA_P384_SHA384_FIXED_SIGNING), "P-384")
            }
            Algorithm::EdDSA => (&PKCS_ED25519, None, "Ed25519"),
            _ => return Self::rsa(algorithm, id),
        };
        let pair = KeyPair::generate_for(kind).unwrap();
        let (private, public) = (pair.serialize_der(), pair.public_key_raw());
        let (key, mut jwk) = match signing {
            Some(signing) => {
                let key = EcdsaKeyPair::from_pkcs8(signing, &private, &SystemRandom::new());
                // The first byte says that both coordinates follow.
                let (x, y) = public[1..].split_at(public.len() / 2);
                let jwk = json!({"kty": "EC", "crv": curve, "x": base64(x), "y": base64(y)});
                (PrivateKey::Ecdsa(key.unwrap()), jwk)
            }
            None => {
                let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&private).unwrap();
                let jwk = json!({"kty": "OKP", "crv": curve, "x": base64(public)});
                (PrivateKey::Ed25519(key), jwk)
            }
        };
        name(&mut jwk, algorithm, id);
        Self { algorithm, key, jwk, pem: pair.public_key_pem() }
    }

    fn rsa(algorithm: Algorithm, id: &str) -> Self {
        let pem = include_str!("../../fixtures/keys/rsa-2048.pem");
        let pair = KeyPair::from_pem(pem).unwrap();
        let key = RsaKeyPair::from_pkcs8(&pair.serialize_der()).unwrap();
        let PublicKeyComponents { n, e } = PublicKeyComponents::<Vec<u8>>::from(key.public());
        let mut jwk = json!({"kty": "RSA", "n": base64(&n), "e": base64(&e)});
        name(&mut jwk, algorithm, id);
        Self { algorithm, key: PrivateKey::Rsa(key), jwk, pem: String::new() }
    }

    /// Returns the header of its tokens.
    pub(crate) fn header(&self) -> Value {
        json!({"alg": self.algorithm, "typ": "JWT", "kid": self.jwk["kid"]})
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_as(&self.header(), claims)
    }

    /// Signs the claims under any header.
    pub(crate) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = match &self.key {
            PrivateKey::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                let how = rsa_encoding(self.algorithm);
                key.sign(how, &SystemRandom::new(), message.as_bytes(), &mut signature).unwrap();
                signature
            }
            PrivateKey::Ecdsa(key) => {
                key.sign(&SystemRandom::new(), message.as_bytes()).unwrap().as_ref().to_vec()
            }
            PrivateKey::Ed25519(key) => key.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", base64(&signature))
    }
}

/// Completes a JWK.
fn name(jwk: &mut Value, algorithm: Algorithm, id: &str) {
    jwk["alg"] = json!(algorithm);
    jwk["kid"] = id.into();
    jwk["use"] = "sig".into();
}

fn rsa_encoding(algorithm: Algorithm) -> &'static dyn RsaEncoding {
    match algorithm {
        Algorithm::RS256 => &signature::RSA_PKCS1_SHA256,
        Algorithm::RS384 => &signature::RSA_PKCS1_SHA384,
        Algorithm::RS512 => &signature::RSA_PKCS1_SHA512,
        Algorithm::PS256 => &signature::RSA_PSS_SHA256,
        Algorithm::PS384 => &signature::RSA_PSS_SHA384,
        Algorithm::PS512 => &signature::RSA_PSS_SHA512,
        other => panic!("{other:?} is not an RSA algorithm"),
    }
}

/// Signs a message with a shared secret, as a forger would.
pub(crate) fn sign_with_secret(algorithm: Algorithm, secret: &[u8], message: &str) -> String {
    let how = match algorithm {
        Algorithm::HS256 => hmac::HMAC_SHA256,
        Algorithm::HS384 => hmac::HMAC_SHA384,
        Algorithm::HS512 => hmac::HMAC_SHA512,
        other => panic!("{other:?} uses no secret"),
    };
    let signature = hmac::sign(&hmac::Key::new(how, secret), message.as_bytes());
    format!("{message}.{}", base64(signature.as_ref()))
}

/// Returns the signed part of a token: header and claims.
pub(crate) fn message(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| base64(value.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

/// Encodes as unpadded URL-safe Base64, as JWTs do.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let group = |piece: &[u8]| {
        let mut bits = [0; 4];
        bits[1..=piece.len()].copy_from_slice(piece);
        let bits = u32::from_be_bytes(bits);
        let digit = move |at: u32| char::from(DIGITS[(bits >> (18 - 6 * at)) as usize & 63]);
        (0..=piece.len() as u32).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}
