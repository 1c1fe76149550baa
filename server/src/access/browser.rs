//! Protection against requests that a page of another site makes through a user's browser.
//!
//! A server without tokens serves every client that reaches it, also a browser on this machine that
//! shows a page of another site. Such a page can send any request. It can embed a response as a
//! script or an image, and learn from that. With a host name that resolves to the attacker's server
//! first and to this machine later (DNS rebinding), it can also read responses. So a server without
//! tokens must refuse such requests.
//!
//! With tokens such requests are harmless: the page has no token. The cookie with the token allows
//! only reads, and a browser sends that cookie from another site only when the user follows a link.
//!
//! Data that was pushed is never served as a script or stylesheet, on any server.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Method, Uri, header};

use crate::{
    problem::{Code, HttpProblem},
    settings::is_host,
};

/// Header in which a browser says from which site a request comes.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Header in which a browser says how it makes a request: `navigate` when a user follows a
/// link.
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Header in which a browser says what it will use the response for.
const DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Values of `Sec-Fetch-Dest` for which a browser executes the response or applies it as a style.
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

/// Path of the scripts and stylesheets of our own pages.
const OURS: &str = "/assets/";

fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Refuses a request whose response a browser would run as a script, style or worker. Returns
/// `None` if the request is allowed. Only the assets of our own pages may run.
pub(super) fn runs(path: &str, headers: &HeaderMap) -> Option<HttpProblem> {
    let runs = header_text(headers, &DEST).is_some_and(|dest| RUNS.contains(&dest));
    let why = "stored data cannot be loaded as a script, stylesheet or worker";
    (runs && !path.starts_with(OURS)).then(|| HttpProblem::new(Code::Forbidden, why))
}

/// Refuses a request with several `Host` headers or an invalid host; returns `None` if the header
/// is valid or missing. A proxy in front of this server may have read another host from such a
/// request.
pub(super) fn malformed_host(headers: &HeaderMap) -> Option<HttpProblem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?;
    let why = match (host.to_str(), hosts.next()) {
        (_, Some(_)) => "the request has more than one `Host` header",
        (Ok(host), None) if host.is_empty() || is_host(host) => return None,
        _ => "the `Host` header is not a valid host",
    };
    Some(HttpProblem::new(Code::Invalid, why))
}

/// Returns the refusal of a request that a page of another site may have made; `None`
/// otherwise.
pub(super) fn foreign(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<HttpProblem> {
    let header_text = |name: &HeaderName| header_text(headers, name);
    let host = uri.authority().map(|authority| authority.as_str()).or(header_text(&header::HOST));
    // Programs may omit the host; browsers always send it.
    let host = host?;
    if !is_here(host) {
        let why = format!(
            "a server without tokens accepts only `localhost` and IP addresses as `Host`, not `{}`",
            host.escape_default()
        );
        return Some(HttpProblem::new(Code::Forbidden, why));
    }
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_own = |origin: &str| origin.split_once("://").is_some_and(|(_, own)| own == host);
    let is_other = header_text(&SITE).is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let why = match reads {
        // A page of another site may link to this server, but may not embed anything from it.
        true if is_other && header_text(&MODE) != Some("navigate") => {
            "cross-origin requests are rejected"
        }
        false if is_other || header_text(&header::ORIGIN).is_some_and(|origin| !is_own(origin)) => {
            "cross-origin requests that change data are rejected"
        }
        _ => return None,
    };
    Some(HttpProblem::new(Code::Forbidden, why))
}

/// Returns true if a host is an IP address or a name of this machine. DNS rebinding needs
/// another name, one that the attacker controls.
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
    fn only_local_host_names_are_accepted() {
        for host in ["localhost", "LOCALHOST:7627", "a.localhost:1", "127.0.0.1:7627", "[::1]:80"] {
            assert!(is_here(host), "{host}");
        }
        for host in ["evil.example:7627", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert!(!is_here(host), "{host}");
        }
    }

    #[test]
    fn a_request_has_one_well_formed_host_header() {
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
    fn cross_site_requests_cannot_change_data() {
        let of = |method: &Method, header_text: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "127.0.0.1:7627".parse().unwrap());
            for (name, value) in header_text {
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
            assert_eq!(
                of(&Method::GET, &[("origin", origin)]),
                None,
                "the page cannot read the response"
            );
        }
        assert_eq!(of(&Method::DELETE, &[("sec-fetch-site", "cross-site")]), refused);
        assert_eq!(of(&Method::GET, &[("host", "evil.example")]), refused);
    }

    #[test]
    fn cross_site_requests_cannot_embed_resources() {
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
    fn pushed_files_are_not_served_as_scripts() {
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
