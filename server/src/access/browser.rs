//! What any web page can make the browser of whoever looks at it ask, and what a
//! server that lets in whoever reaches it must therefore refuse.
//!
//! A page elsewhere may send what it likes to an address on this machine, and a
//! name that leads here today and there tomorrow (DNS rebinding) lets it read
//! the answers. With tokens none of that is of use: a page does not have one, and
//! the cookie that has is good for reading alone.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Method, Uri, header};

use crate::problem::{Code, Problem};

/// From where a browser says that it asks.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused that a page elsewhere may have made, if it is.
pub(super) fn foreign(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Problem> {
    let said = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = uri.authority().map(|authority| authority.as_str()).or(said(&header::HOST));
    // Programs may leave it out, browsers never do.
    let host = host?;
    if !is_here(host) {
        let why = format!(
            "without tokens this server answers to localhost and to addresses, not to `{}`",
            host.escape_default()
        );
        return Some(Problem::new(Code::Forbidden, why));
    }
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_own = |origin: &str| origin.split_once("://").is_some_and(|(_, own)| own == host);
    let by_other = said(&header::ORIGIN).is_some_and(|origin| !is_own(origin))
        || said(&SITE).is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let why = "a page of another site may change nothing here";
    (by_other && !reads).then(|| Problem::new(Code::Forbidden, why))
}

/// Whether nobody else can have a name lead here: it is an address, or this
/// machine.
fn is_here(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_may_lead_anywhere_are_not_answered_to() {
        for host in ["localhost", "LOCALHOST:7627", "a.localhost:1", "127.0.0.1:7627", "[::1]:80"] {
            assert!(is_here(host), "{host}");
        }
        for host in ["evil.example:7627", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert!(!is_here(host), "{host}");
        }
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let of = |method: &Method, said: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "127.0.0.1:7627".parse().unwrap());
            for (name, value) in said {
                let name: HeaderName = name.parse().unwrap();
                headers.insert(name, value.parse().unwrap());
            }
            foreign(method, &Uri::from_static("/v1"), &headers).map(|problem| problem.code)
        };
        let refused = Some(Code::Forbidden);
        assert_eq!(of(&Method::POST, &[]), None, "a program");
        assert_eq!(of(&Method::POST, &[("origin", "http://127.0.0.1:7627")]), None);
        assert_eq!(of(&Method::POST, &[("sec-fetch-site", "same-origin")]), None);
        for origin in ["http://evil.example", "null", "http://127.0.0.1:80"] {
            assert_eq!(of(&Method::POST, &[("origin", origin)]), refused, "{origin}");
            assert_eq!(of(&Method::GET, &[("origin", origin)]), None, "it cannot read that");
        }
        assert_eq!(of(&Method::DELETE, &[("sec-fetch-site", "cross-site")]), refused);
        assert_eq!(of(&Method::GET, &[("host", "evil.example")]), refused);
    }
}
