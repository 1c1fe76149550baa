//! What a browser may do with a page, and refusals as pages.
//!
//! A page loads its own stylesheet, script and pictures and nothing else; there
//! are no scripts or styles within pages, so none that came in with a name or a
//! content can run. The same holds for whatever of the protocol a browser shows.

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use maud::{Markup, html};

use super::{
    login,
    shell::{Around, Shell},
};
use crate::{
    access::{Access, cookie::Cookie},
    problem::{Code, Problem},
    upstream::contact::Away,
};

/// What pages may load and do.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What a browser may do with anything else that it shows by itself.
const BYTES: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// Who may load what is answered.
const RESOURCES: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// What is kept of an answer that says for itself nothing of that: whoever keeps
/// it asks each time, and it is for nobody else.
const KEPT: &str = "private, no-cache";

/// The same of what a browser was given on account of its cookie: whoever has
/// the browser after that person logged out finds nothing of it.
const NOT_KEPT: &str = "private, no-store";

/// What pages of other sites may take what is here for: nothing.
const USED: &str = "same-origin";

/// Adds what is said about each page; a refusal becomes one for those who want
/// pages.
pub(crate) async fn guard<A: Future<Output = Response>>(
    access: &Access,
    request: Request,
    next: impl FnOnce(Request) -> A,
) -> Response {
    let path = request.uri().path();
    let is_secret = access.is_secret(request.headers(), request.extensions());
    let is_logged_in = access.is_guarded()
        && !path.starts_with("/assets/")
        && Cookie::Token.of(request.headers(), is_secret).is_some();
    let response = dressed(access, request, is_secret, next).await;
    if is_logged_in { not_kept(response) } else { response }
}

/// Takes back whatever an answer says of being kept.
fn not_kept(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(NOT_KEPT));
    response
}

async fn dressed<A: Future<Output = Response>>(
    access: &Access,
    request: Request,
    is_secret: bool,
    next: impl FnOnce(Request) -> A,
) -> Response {
    let path = request.uri().path();
    let is_file = path.starts_with("/v1/") && path.contains("/files/");
    if !wants_page(path, request.headers()) {
        return guarded(next(request).await, is_file);
    }
    let headers = request.headers().clone();
    let wanted = request.uri().path_and_query().map_or("/", |wanted| wanted.as_str()).to_owned();
    let response = next(request).await;
    let Some(problem) = response.extensions().get::<Problem>().cloned() else {
        return guarded(response, is_file);
    };
    let page = match problem.code {
        Code::Unauthorized => login::again((&headers, is_secret), &wanted),
        _ => {
            let away = response.extensions().get::<Away>().copied();
            let may_enter = access.is_guarded();
            refusal(&problem, Around { viewer: None, away }, may_enter).into_response()
        }
    };
    guarded(shown(response, page), is_file)
}

/// A refusal with a page in place of what it says to programs. All else that it
/// says stays: when to come again, and whether what lies behind is away.
fn shown(refusal: Response, page: Response) -> Response {
    let (mut head, _) = refusal.into_parts();
    let (page, body) = page.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.remove(header::CONTENT_TYPE);
    head.headers.extend(page.headers);
    Response::from_parts(head, body)
}

fn guarded(mut response: Response, is_file: bool) -> Response {
    let headers = response.headers_mut();
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_page = kind.is_some_and(|kind| kind.starts_with("text/html"));
    let mut say = |name, value| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    say(header::CACHE_CONTROL, KEPT);
    say(header::CONTENT_SECURITY_POLICY, if is_page { POLICY } else { BYTES });
    say(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    say(header::REFERRER_POLICY, "same-origin");
    say(RESOURCES, USED);
    if is_file {
        // One that was kept as a picture is no script either.
        say(header::VARY, "Sec-Fetch-Dest");
    }
    response
}

/// Whether whoever asks is a person with a browser.
fn wants_page(path: &str, headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let accepts = accepts.is_some_and(|value| value.contains("text/html"));
    let is_page = path == "/" || path.starts_with("/r/");
    is_page || (accepts && !path.starts_with("/assets/"))
}

/// A refusal as a page; somebody who `may_enter` with another token is told where.
fn refusal(problem: &Problem, around: Around<'_>, may_enter: bool) -> Markup {
    let status = problem.code.status();
    let (title, advice) = match problem.code {
        Code::NoRepository => ("There is no such repository", "A push to its name makes it."),
        _ if status == StatusCode::NOT_FOUND => {
            ("There is nothing here", "It may be in another commit, or was never there.")
        }
        Code::Invalid => ("That makes no sense", "Look at the address once more."),
        Code::Damaged => (
            "The store is damaged",
            "Whoever runs this server can find out where with snap verify.",
        ),
        _ if status.is_client_error() => ("That is not to be had", ""),
        _ => ("That did not work", "It may go well another time."),
    };
    Shell::plain(title).page(around, html! {
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
