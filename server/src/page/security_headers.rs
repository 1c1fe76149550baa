//! The security headers of all responses, and error pages for browsers.
//!
//! A page may load its own stylesheet, script and images, and nothing else. The policy forbids
//! inline scripts and styles, so that none can be smuggled in with a name or a content. Responses
//! of the HTTP API have a stricter policy, in case a browser shows them.

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use maud::{Markup, html};

use super::{
    layout::{FrameContext, PageLayout},
    login,
};
use crate::{
    access::{AccessControl, cookie::Cookie},
    problem::{Code, HttpProblem},
    upstream::health::UpstreamOutage,
};

/// The Content-Security-Policy of pages.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The Content-Security-Policy of all other responses.
const API_POLICY: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// The header that says which sites may load a response.
const RESOURCES: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The default Cache-Control: only the browser may keep the response, and must
/// revalidate it each time.
const REVALIDATE: &str = "private, no-cache";

/// The Cache-Control of a response to a logged-in browser. After a logout, the next user of the
/// browser must not find the response in the cache.
const NO_STORE: &str = "private, no-store";

/// The Cross-Origin-Resource-Policy: pages of other sites may not load anything from this server.
const USED: &str = "same-origin";

/// Middleware that adds the security headers, and for browsers replaces a problem response by a
/// page.
pub(crate) async fn guard<A: Future<Output = Response>>(
    access: &AccessControl,
    request: Request,
    next: impl FnOnce(Request) -> A,
) -> Response {
    let path = request.uri().path();
    let is_encrypted = access.is_encrypted(request.headers(), request.extensions());
    let is_logged_in = access.is_guarded()
        && !path.starts_with("/assets/")
        && Cookie::Token.of(request.headers(), is_encrypted).is_some();
    let response = with_error_page(access, request, is_encrypted, next).await;
    if is_logged_in { not_kept(response) } else { response }
}

/// Forbids caching of the response, whatever its own `Cache-Control` says.
fn not_kept(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(NO_STORE));
    response
}

async fn with_error_page<A: Future<Output = Response>>(
    access: &AccessControl,
    request: Request,
    is_encrypted: bool,
    next: impl FnOnce(Request) -> A,
) -> Response {
    let path = request.uri().path();
    let is_file = path.starts_with("/v1/") && path.contains("/files/");
    if !wants_page(path, request.headers()) {
        return with_headers(next(request).await, is_file);
    }
    let headers = request.headers().clone();
    let wanted = request.uri().path_and_query().map_or("/", |wanted| wanted.as_str()).to_owned();
    let response = next(request).await;
    let Some(problem) = response.extensions().get::<HttpProblem>().cloned() else {
        return with_headers(response, is_file);
    };
    let page = match problem.code {
        Code::Unauthorized => login::expired_login(&headers, is_encrypted, &wanted),
        _ => {
            let away = response.extensions().get::<UpstreamOutage>().copied();
            let may_enter = access.is_guarded();
            refusal(&problem, FrameContext { viewer: None, away }, may_enter).into_response()
        }
    };
    with_headers(replace_body(response, page), is_file)
}

/// Replaces the body of a problem response by a page. Keeps the other headers, such as
/// `Retry-After` and `snap-upstream`.
fn replace_body(refusal: Response, page: Response) -> Response {
    let (mut head, _) = refusal.into_parts();
    let (page, body) = page.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.remove(header::CONTENT_TYPE);
    head.headers.extend(page.headers);
    Response::from_parts(head, body)
}

fn with_headers(mut response: Response, is_file: bool) -> Response {
    let headers = response.headers_mut();
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_page = kind.is_some_and(|kind| kind.starts_with("text/html"));
    let mut say = |name, value| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    say(header::CACHE_CONTROL, REVALIDATE);
    say(header::CONTENT_SECURITY_POLICY, if is_page { POLICY } else { API_POLICY });
    say(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    say(header::REFERRER_POLICY, "same-origin");
    say(RESOURCES, USED);
    if is_file {
        // A file that was cached as an image must not be reused as a script.
        say(header::VARY, "Sec-Fetch-Dest");
    }
    response
}

/// Returns true if the client expects a page: at the URL of a page, or if it accepts HTML.
fn wants_page(path: &str, headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let accepts = accepts.is_some_and(|value| value.contains("text/html"));
    let is_page = path == "/" || path.starts_with("/r/");
    is_page || (accepts && !path.starts_with("/assets/"))
}

/// Renders the error page. If `may_enter`, it links to the login form.
fn refusal(problem: &HttpProblem, around: FrameContext<'_>, may_enter: bool) -> Markup {
    let status = problem.code.status();
    let (title, advice) = match problem.code {
        Code::NoRepository => ("Repository not found", "A push to this name creates it."),
        _ if status == StatusCode::NOT_FOUND => {
            ("Not found", "It may be in another commit, or may never have existed.")
        }
        Code::Invalid => ("Bad request", "Check the address."),
        Code::Damaged => (
            "The store is damaged",
            "An administrator of this server can locate the damage with snap verify.",
        ),
        _ if status.is_client_error() => ("Request refused", ""),
        _ => ("The server cannot answer now", "Try again later."),
    };
    PageLayout::plain(title).page(around, html! {
        section.empty {
            p.status { (status.as_u16()) }
            h1 { (title) }
            @if !problem.detail.is_empty() { p { (super::show::text(problem.detail.as_bytes())) } }
            p.quiet { (advice) }
            div.actions {
                a.button href="/" { "All repositories" }
                @if may_enter { a.button href="/login" { "Log in" } }
            }
        }
    })
}
