//! Settings for an OpenID Connect issuer, and the rights that its tokens give.

use std::net::IpAddr;

use reqwest::Url;
use serde::{Deserialize, Serialize};

use snap_remote::wire::right::Right;

/// An OpenID Connect issuer, and the rights that its tokens give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oidc {
    /// URL of the issuer, exactly as in the claim `iss`.
    pub issuer: String,
    /// Value that the claim `aud` must be, or must contain as a list.
    pub audience: String,
    /// Claim that names a client in logs.
    #[serde(default = "subject")]
    pub name_claim: String,
    /// The rights that claims give. The rights of all mappings that match are added up.
    #[serde(default)]
    pub scopes: Vec<Mapping>,
}

/// The right that a claim gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Name of the claim, or a JSON pointer to a nested claim, which begins with `/`.
    pub claim: String,
    /// Value that the claim must be, or must contain as a list. `scope` and `scp` are lists of
    /// words.
    pub value: String,
    /// The right that the claim gives.
    pub scope: Right,
    /// The repositories in which the claim gives the right; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repositories: Option<Vec<String>>,
}

fn subject() -> String {
    "sub".to_owned()
}

/// An invalid setting of the issuer.
#[derive(Debug, thiserror::Error)]
#[error("`oidc.{key}` {why}")]
pub struct OidcError {
    key: String,
    why: &'static str,
}

impl Oidc {
    /// Checks constraints that the types do not express.
    ///
    /// # Errors
    /// [`OidcError`]; it names the key.
    pub fn check(&self) -> Result<(), OidcError> {
        let wrong = |key: &str, why| Err(OidcError { key: key.to_owned(), why });
        let Ok(issuer) = Url::parse(&self.issuer) else { return wrong("issuer", "is not a URL") };
        if !is_safe(&issuer) {
            return wrong("issuer", "must begin with https://, or http:// on this machine");
        }
        let has_more = issuer.query().or(issuer.fragment()).or(issuer.password()).is_some();
        if has_more || !issuer.username().is_empty() {
            return wrong("issuer", "must be a URL without user, query and fragment");
        }
        if self.audience.is_empty() {
            return wrong("audience", "must not be empty");
        }
        if self.name_claim.is_empty() {
            return wrong("name_claim", "must not be empty");
        }
        if self.scopes.is_empty() {
            return wrong("scopes", "must map at least one claim to a scope");
        }
        for (at, mapping) in self.scopes.iter().enumerate() {
            let wrong = |key: &str, why| wrong(&format!("scopes[{at}].{key}"), why);
            let repositories = mapping.repositories.as_deref();
            match mapping {
                Mapping { claim, .. } if claim.is_empty() => {
                    return wrong("claim", "must not be empty");
                }
                Mapping { value, .. } if value.is_empty() => {
                    return wrong("value", "must not be empty");
                }
                _ if repositories.is_some_and(<[String]>::is_empty) => {
                    return wrong(
                        "repositories",
                        "must not be empty; leave it out for all repositories",
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns true if an attacker on the network cannot change data from this URL: it is HTTPS, or
/// HTTP on this machine.
pub(crate) fn is_safe(url: &Url) -> bool {
    url.scheme() == "https" && url.has_host() || is_here(url)
}

/// Returns true if a URL is plain HTTP on this machine.
pub(crate) fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback = || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "http" && (host == "localhost" || is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Oidc {
        let mapping = Mapping {
            claim: "repository".into(),
            value: "team/project".into(),
            scope: Right::Append,
            repositories: None,
        };
        Oidc {
            issuer: "https://issuer.example/path".into(),
            audience: "snap".into(),
            name_claim: subject(),
            scopes: vec![mapping],
        }
    }

    #[test]
    fn an_issuer_has_an_https_or_loopback_url() {
        for issuer in
            ["https://a.example", "http://127.0.0.1:1/x", "http://[::1]", "http://localhost"]
        {
            Oidc { issuer: issuer.into(), ..good() }.check().unwrap();
        }
        for issuer in [
            "",
            "issuer.example",
            "http://a.example",
            "http://127.0.0.1.a.example",
            "http://10.0.0.1",
            "ftp://a.example",
            "https://a.example?x",
            "https://a.example#x",
            "https://ada@a.example",
            "https://ada:x@a.example",
        ] {
            let error = Oidc { issuer: issuer.into(), ..good() }.check().unwrap_err();
            assert!(error.to_string().starts_with("`oidc.issuer` "), "{issuer}: {error}");
        }
    }

    #[test]
    fn empty_oidc_settings_are_named() {
        let mapping = |change: fn(&mut Mapping)| {
            let mut oidc = good();
            change(&mut oidc.scopes[0]);
            oidc
        };
        for (oidc, key) in [
            (Oidc { audience: String::new(), ..good() }, "audience"),
            (Oidc { name_claim: String::new(), ..good() }, "name_claim"),
            (Oidc { scopes: Vec::new(), ..good() }, "scopes"),
            (mapping(|mapping| mapping.claim.clear()), "scopes[0].claim"),
            (mapping(|mapping| mapping.value.clear()), "scopes[0].value"),
            (mapping(|mapping| mapping.repositories = Some(Vec::new())), "scopes[0].repositories"),
        ] {
            let error = oidc.check().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`oidc.{key}` must ")), "{error}");
        }
    }
}
