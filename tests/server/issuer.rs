//! An OpenID Connect issuer inside the tests, with signing keys for tokens. It counts
//! requests and can be made to misbehave.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Redirect, Response},
};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, crypto, jwk::Jwk};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
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
        *self.shared.keys.lock().unwrap() = keys.iter().map(|key| key.jwk.clone()).collect();
    }

    pub(crate) fn behave(&self, mode: Mode) {
        *self.shared.mode.lock().unwrap() = mode;
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
    let mode = shared.mode.lock().unwrap().clone();
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
        ("/keys" | "/moved", _) => json!({"keys": *shared.keys.lock().unwrap()}),
        _ => return http::StatusCode::NOT_FOUND.into_response(),
    };
    axum::Json(text).into_response()
}

/// A key that signs tokens.
pub(crate) struct Signer {
    pub(crate) algorithm: Algorithm,
    pub(crate) key: EncodingKey,
    /// The public key as JWK.
    pub(crate) jwk: Value,
    /// The public key as PEM. Empty for RSA.
    pub(crate) pem: String,
}

impl Signer {
    /// Creates a new key. An RSA key is always the one from the fixtures.
    pub(crate) fn new(algorithm: Algorithm, id: &str) -> Self {
        let made = match algorithm {
            Algorithm::ES256 => Some(&PKCS_ECDSA_P256_SHA256),
            Algorithm::ES384 => Some(&PKCS_ECDSA_P384_SHA384),
            Algorithm::EdDSA => Some(&PKCS_ED25519),
            _ => None,
        };
        let made = made.map(|kind| KeyPair::generate_for(kind).unwrap());
        let pem = made.as_ref().map(KeyPair::serialize_pem).unwrap_or_default();
        let key = match algorithm {
            Algorithm::ES256 | Algorithm::ES384 => EncodingKey::from_ec_pem(pem.as_bytes()),
            Algorithm::EdDSA => EncodingKey::from_ed_pem(pem.as_bytes()),
            _ => EncodingKey::from_rsa_pem(include_bytes!("../../fixtures/keys/rsa-2048.pem")),
        };
        let key = key.unwrap();
        let jwk = match &made {
            Some(pair) if algorithm == Algorithm::EdDSA => {
                let public = DecodingKey::from_ed_der(pair.public_key_raw());
                Jwk::from_decoding_key(&public, Some(algorithm)).unwrap()
            }
            _ => Jwk::from_encoding_key(&key, algorithm).unwrap(),
        };
        let pem = made.as_ref().map(KeyPair::public_key_pem).unwrap_or_default();
        let mut jwk = serde_json::to_value(jwk).unwrap();
        jwk["kid"] = id.into();
        jwk["use"] = "sig".into();
        Self { algorithm, key, jwk, pem }
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
        let signature = crypto::sign(message.as_bytes(), &self.key, self.algorithm).unwrap();
        format!("{message}.{signature}")
    }
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
