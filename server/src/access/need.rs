//! What a request needs: the one table of it. What is not in it and changes
//! something needs the right to write.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use super::who::Right;

/// What a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need<'a> {
    /// Nothing: whether the server is there, and what it is.
    Nothing,
    /// Somebody who has any right: an answer shows them only what is theirs.
    Somebody,
    /// A right in a repository.
    In(Right, Cow<'a, str>),
    /// The right to read everything.
    ReadAll,
    /// It is for people with a browser: whoever answers shows only what they may
    /// see, and what there is to do needs a token of the form.
    Page,
}

/// What a request needs.
pub fn need<'a>(method: &Method, path: &'a str) -> Need<'a> {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    match path {
        // Who logs in says so in a form.
        "/health" | "/ready" | "/login" | "/logout" => return Need::Nothing,
        "/v1" | "/v1/openapi.json" if reads => return Need::Nothing,
        "/metrics" => return Need::ReadAll,
        _ => {}
    }
    if path.starts_with("/assets/") {
        return Need::Nothing;
    }
    if let Some(page) = path.strip_prefix("/r/") {
        let name = page.split('/').next().unwrap_or_default();
        return Need::In(Right::Read, percent_decode_str(name).decode_utf8_lossy());
    }
    let Some(inside) = path.strip_prefix("/v1/repos/") else {
        let is_protocol = path == "/v1" || path.starts_with("/v1/");
        return if is_protocol { Need::Somebody } else { Need::Page };
    };
    let (name, rest) = inside.split_once('/').unwrap_or((inside, ""));
    let right = if reads { Right::Read } else { to_change(method, rest) };
    Need::In(right, percent_decode_str(name).decode_utf8_lossy())
}

/// What it takes to do something in a repository but to read.
fn to_change(method: &Method, rest: &str) -> Right {
    let mut parts = rest.split('/');
    let resource = parts.next().unwrap_or_default();
    match (method, resource) {
        // Questions that are too long for a path.
        (&Method::POST, "missing") => Right::Read,
        (&Method::POST, "commits") if parts.nth(1) == Some("bundle") => Right::Read,
        (&Method::PUT, "") => Right::Admin,
        (&Method::DELETE, "uploads" | "bundles") => Right::Append,
        (&Method::DELETE, _) => Right::Write,
        // What is sent is named by its hash, so nothing can be replaced.
        (_, "packs" | "objects" | "index" | "uploads" | "bundles") => Right::Append,
        // Whether it only goes forward is seen where it is moved: `routes::refs`.
        (&Method::PUT, "refs") => Right::Append,
        _ => Right::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_need() {
        let within = |right, name: &'static str| Need::In(right, name.into());
        let (get, put, post) = (Method::GET, Method::PUT, Method::POST);
        for (method, path, needs) in [
            (&get, "/health", Need::Nothing),
            (&get, "/v1", Need::Nothing),
            (&post, "/v1", Need::Somebody),
            (&get, "/v1/repos", Need::Somebody),
            (&get, "/v1/other", Need::Somebody),
            (&get, "/metrics", Need::ReadAll),
            (&get, "/", Need::Page),
            (&get, "/assets/style.css", Need::Nothing),
            (&post, "/login", Need::Nothing),
            (&get, "/r/team%2Fa/c/main", within(Right::Read, "team/a")),
            (&get, "/v1/repos/a/refs", within(Right::Read, "a")),
            (&get, "/v1/repos/team%2Fa/packs", within(Right::Read, "team/a")),
            (&get, "/v1/repos/", within(Right::Read, "")),
            (&put, "/v1/repos/a", within(Right::Admin, "a")),
            (&put, "/v1/repos/a/", within(Right::Admin, "a")),
            (&put, "/v1/repos/a/packs/x", within(Right::Append, "a")),
            (&put, "/v1/repos/a/index/x", within(Right::Append, "a")),
            (&Method::HEAD, "/v1/repos/a/uploads/x", within(Right::Read, "a")),
            (&Method::PATCH, "/v1/repos/a/uploads/x", within(Right::Append, "a")),
            (&Method::DELETE, "/v1/repos/a/uploads/x", within(Right::Append, "a")),
            (&Method::PATCH, "/v1/repos/a/bundles/x", within(Right::Append, "a")),
            (&Method::DELETE, "/v1/repos/a/bundles/x", within(Right::Append, "a")),
            (&put, "/v1/repos/a/refs/heads/x", within(Right::Append, "a")),
            (&post, "/v1/repos/a/missing", within(Right::Read, "a")),
            (&post, "/v1/repos/a/bundles", within(Right::Append, "a")),
            (&post, "/v1/repos/a/commits/5f/bundle", within(Right::Read, "a")),
            (&post, "/v1/repos/a/commits/5f/other", within(Right::Write, "a")),
            (&post, "/v1/repos/a/other", within(Right::Write, "a")),
            (&put, "/v1/repos/a/config", within(Right::Write, "a")),
            (&Method::DELETE, "/v1/repos/a/refs/heads/x", within(Right::Write, "a")),
            (&Method::DELETE, "/v1/repos/a/packs/x", within(Right::Write, "a")),
        ] {
            assert_eq!(need(method, path), needs, "{method} {path}");
        }
    }
}
