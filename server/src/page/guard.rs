//! What a browser may do with a page, and refusals as pages.
//!
//! A page loads its own stylesheet, script and pictures and nothing else; there
//! are no scripts or styles within pages, so none that came in with a name or a
//! content can run. The same holds for whatever of the protocol a browser shows.

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use maud::{Markup, html};

use super::{
    login,
    shell::{Around, Shell},
};
use crate::problem::{Code, Problem};

/// What pages may load and do.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What a browser may do with anything else that it shows by itself.
const BYTES: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// Adds what is said about each page; a refusal becomes one for those who want
/// pages.
pub(super) async fn guard(request: Request, next: Next) -> Response {
    if !wants_page(request.uri().path(), request.headers()) {
        return guarded(next.run(request).await);
    }
    let headers = request.headers().clone();
    let wanted = request.uri().path_and_query().map_or("/", |wanted| wanted.as_str()).to_owned();
    let response = next.run(request).await;
    let Some(problem) = response.extensions().get::<Problem>() else { return guarded(response) };
    guarded(match problem.code {
        Code::Unauthorized => login::again(&headers, &wanted),
        _ => (response.status(), refusal(problem)).into_response(),
    })
}

fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_page = kind.is_some_and(|kind| kind.starts_with("text/html"));
    let mut say = |name, value| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    if is_page {
        say(header::CACHE_CONTROL, "private, no-cache");
    }
    say(header::CONTENT_SECURITY_POLICY, if is_page { POLICY } else { BYTES });
    say(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    say(header::REFERRER_POLICY, "same-origin");
    response
}

/// Whether whoever asks is a person with a browser.
fn wants_page(path: &str, headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let accepts = accepts.is_some_and(|value| value.contains("text/html"));
    let is_page = path == "/" || path.starts_with("/r/");
    is_page || (accepts && !path.starts_with("/assets/"))
}

/// A refusal as a page.
fn refusal(problem: &Problem) -> Markup {
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
    Shell::plain(title).page(Around::default(), html! {
        section.empty {
            p.status { (status.as_u16()) }
            h1 { (title) }
            @if !problem.detail.is_empty() { p { (super::show::text(problem.detail.as_bytes())) } }
            p.quiet { (advice) }
            p { a.button href="/" { "All repositories" } }
        }
    })
}
