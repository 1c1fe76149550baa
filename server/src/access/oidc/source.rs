//! Fetches the keys of an issuer, with a timeout and a limit on the length, and without
//! following redirects.

use std::time::Duration;

use reqwest::{Client, StatusCode, Url, redirect::Policy};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::published::Published;
use crate::{
    causes::causes,
    clock::Clock,
    settings::oidc::{is_here, is_safe},
};

/// Timeout of a fetch.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest response that is read, in bytes.
const REPLY_BYTES: usize = 256 << 10;

/// Longest part of a response that is logged, in characters.
const SHOWN_CHARS: usize = 200;

/// Where an issuer publishes its keys, and the client to fetch them.
#[derive(Debug)]
pub(super) struct KeySource {
    issuer: String,
    /// `None` if TLS cannot be set up.
    client: Option<Client>,
    clock: Clock,
}

/// Why the keys could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("cannot set up TLS")]
    NoClient,
    #[error("the issuer did not answer within {} s", PATIENCE.as_secs())]
    TooSlow,
    #[error("cannot send a request to the issuer")]
    Http(#[source] reqwest::Error),
    #[error("{url} is not a valid URL")]
    Url { url: String },
    #[error("{url} returned status {status}")]
    Status { url: Url, status: StatusCode },
    #[error("the response of {url} exceeds {REPLY_BYTES} bytes")]
    TooLong { url: Url },
    #[error("the response of {url} is not valid")]
    Json { url: Url, source: serde_json::Error },
    #[error("the discovery document names another issuer: {issuer:?}")]
    OtherIssuer { issuer: String },
    #[error("the keys are at {url}, which is not protected by HTTPS")]
    NotSafe { url: Url },
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

impl KeySource {
    pub(super) fn new(issuer: &str, clock: Clock) -> Self {
        // An error means that a default provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The keys are trusted because of the URL that they come from, so no redirects.
        let mut builder = Client::builder().redirect(Policy::none());
        if Url::parse(issuer).is_ok_and(|url| is_here(&url)) {
            builder = builder.no_proxy();
        }
        let client = builder.build();
        if let Err(error) = &client {
            tracing::error!(error = %causes(error), "cannot create the HTTP client for the issuer");
        }
        Self { issuer: issuer.to_owned(), client: client.ok(), clock }
    }

    /// Fetches the keys that are published now.
    pub(super) async fn fetch(&self) -> Result<Published, SourceError> {
        let fetched = self.clock.timeout(PATIENCE, self.fetch_slowly()).await;
        fetched.unwrap_or(Err(SourceError::TooSlow))
    }

    async fn fetch_slowly(&self) -> Result<Published, SourceError> {
        let issuer = self.issuer.trim_end_matches('/');
        let about = parse(&format!("{issuer}/.well-known/openid-configuration"))?;
        let found: Discovery = self.get(about.clone()).await?;
        if found.issuer != self.issuer {
            return Err(SourceError::OtherIssuer { issuer: short(&found.issuer) });
        }
        let keys = parse(&found.jwks_uri)?;
        if !may_be_at(&keys, &about) {
            return Err(SourceError::NotSafe { url: keys });
        }
        let set: KeySet = self.get(keys).await?;
        Ok(Published::new(set.keys, self.clock.now()))
    }

    async fn get<T: DeserializeOwned>(&self, url: Url) -> Result<T, SourceError> {
        let client = self.client.as_ref().ok_or(SourceError::NoClient)?;
        let mut response = client.get(url.clone()).send().await.map_err(SourceError::Http)?;
        let status = response.status();
        if !status.is_success() {
            return Err(SourceError::Status { url, status });
        }
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(SourceError::Http)? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > REPLY_BYTES {
                return Err(SourceError::TooLong { url });
            }
        }
        serde_json::from_slice(&bytes).map_err(|source| SourceError::Json { url, source })
    }
}

/// Returns true if an attacker on the network cannot replace the keys: they come over
/// HTTPS, or over HTTP from this machine if the issuer itself does.
fn may_be_at(keys: &Url, about: &Url) -> bool {
    is_safe(keys) && (!is_here(keys) || is_here(about))
}

fn parse(url: &str) -> Result<Url, SourceError> {
    let parsed = Url::parse(url).ok().filter(|_| url.len() <= SHOWN_CHARS * 10);
    parsed.ok_or_else(|| SourceError::Url { url: short(url) })
}

fn short(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_fetched_over_a_weaker_scheme() {
        let may = |keys, about| may_be_at(&parse(keys).unwrap(), &parse(about).unwrap());
        let (there, here) = ("https://a.example", "http://127.0.0.1:1");
        assert!(may("https://keys.example/x", there) && may("https://keys.example/x", here));
        assert!(may("http://127.0.0.1:2/x", here) && !may("http://127.0.0.1:2/x", there));
        for keys in ["http://a.example/x", "file:///x", "ftp://a.example/x", "data:,x"] {
            assert!(!may(keys, there) && !may(keys, here), "{keys}");
        }
        assert!(parse("/x").is_err() && parse(&format!("{there}/{}", "x".repeat(9999))).is_err());
    }
}
