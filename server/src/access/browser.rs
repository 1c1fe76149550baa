//! What any web page can make the browser of whoever looks at it ask, and what a
//! server that lets in whoever reaches it must therefore refuse.
//!
//! A page elsewhere may send what it likes to an address on this machine, can
//! take what is there for a script or a picture of its own, and learn of it by
//! that; and a name that leads here today and there tomorrow (DNS rebinding)
//! lets it read the answers. With tokens none of that is of use: a page does not
//! have one, and the cookie that has is good for reading alone, and comes with
//! nothing from elsewhere but a link that is followed.
//!
//! What somebody pushed is no script or stylesheet for any page, ours included.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Method, Uri, header};

use crate::{
    problem::{Code, Problem},
    settings::is_host,
};

/// From where a browser says that it asks.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// How a browser asks: `navigate` is somebody who follows a link.
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// What a browser is going to take the answer for.
const DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// What runs in a page, or changes how it looks.
const RUNS: [&str; 8] = [
    "script",
    "style",
    "worker",
    "sharedworker",
    "serviceworker",
    "audioworklet",
    "paintworklet",
    "xslt",
];

/// Where what runs in our own pages is.
const OURS: &str = "/assets/";

fn said<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Why a request is refused of which the answer would run in a page, if it is:
/// but for what belongs to the page nothing does.
pub(super) fn runs(path: &str, headers: &HeaderMap) -> Option<Problem> {
    let runs = said(headers, &DEST).is_some_and(|dest| RUNS.contains(&dest));
    let why = "this is no script, stylesheet or worker for a page";
    (runs && !path.starts_with(OURS)).then(|| Problem::new(Code::Forbidden, why))
}

/// Why a request is refused that does not say, once and as a host, whom it is for, if
/// it is: what stands before this server may have read another name in it.
pub(super) fn malformed_host(headers: &HeaderMap) -> Option<Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?;
    let why = match (host.to_str(), hosts.next()) {
        (_, Some(_)) => "there is more than one `Host`",
        (Ok(host), None) if host.is_empty() || is_host(host) => return None,
        _ => "`Host` is not a host",
    };
    Some(Problem::new(Code::Invalid, why))
}

/// Why a request is refused that a page elsewhere may have made, if it is.
pub(super) fn foreign(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Problem> {
    let said = |name: &HeaderName| said(headers, name);
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
    let is_other = said(&SITE).is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let why = match reads {
        // A link may lead here, but no page elsewhere takes what is here for its own.
        true if is_other && said(&MODE) != Some("navigate") => {
            "a page of another site may read nothing here"
        }
        false if is_other || said(&header::ORIGIN).is_some_and(|origin| !is_own(origin)) => {
            "a page of another site may change nothing here"
        }
        _ => return None,
    };
    Some(Problem::new(Code::Forbidden, why))
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
    use http::HeaderValue;

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
    fn a_request_names_one_host() {
        let of = |hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, HeaderValue::from_bytes(host.as_bytes()).unwrap());
            }
            malformed_host(&headers).map(|problem| problem.code)
        };
        for good in ["localhost", "[::1]", "[::1]:80", "10.0.0.1:1", "a.example.", ""] {
            assert_eq!(of(&[good]), None, "{good}");
        }
        assert_eq!(of(&[]), None, "a program");
        for bad in ["[::1].evil", "[::1]evil:80", "a@b", "a#b", "a:b", "a b", "\u{e4}"] {
            assert_eq!(of(&[bad]), Some(Code::Invalid), "{bad}");
        }
        assert_eq!(of(&["localhost", "localhost"]), Some(Code::Invalid));
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

    #[test]
    fn pages_of_other_sites_take_nothing_for_their_own() {
        let of = |site: &'static str, mode: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "127.0.0.1:7627".parse().unwrap());
            headers.insert(SITE, HeaderValue::from_static(site));
            headers.insert(MODE, HeaderValue::from_static(mode));
            foreign(&Method::GET, &Uri::from_static("/v1"), &headers).is_some()
        };
        for site in ["cross-site", "same-site", "what"] {
            assert!(of(site, "no-cors") && of(site, "cors") && of(site, ""), "{site}");
            assert!(!of(site, "navigate"), "{site}: a link may lead here");
        }
        assert!(!of("same-origin", "no-cors") && !of("none", "navigate"));
    }

    #[test]
    fn nothing_that_was_pushed_is_a_script() {
        let of = |path: &str, dest: &'static str| {
            let headers = HeaderMap::from_iter([(DEST, HeaderValue::from_static(dest))]);
            runs(path, &headers).is_some()
        };
        for dest in RUNS {
            assert!(of("/v1/repos/a/commits/main/files/a.js", dest), "{dest}");
            assert!(!of("/assets/script.js", dest), "{dest}");
        }
        for dest in ["image", "document", "empty"] {
            assert!(!of("/v1/repos/a/commits/main/files/a.js", dest), "{dest}");
        }
    }
}
