//! `/login` stores a token in a cookie that scripts cannot read and that browsers send only to this
//! server. `/logout` deletes the cookie.
//!
//! Each form has a CSRF token. That of `/logout` is derived from the token of the client. That of
//! `/login` is derived from a cookie that the server sets together with the form. Other sites can
//! neither read that cookie nor make a browser send it. Over TLS they cannot set it either.

use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use maud::{Markup, html};

use super::{
    Pages,
    layout::{FrameContext, PageLayout},
    page_request::query,
};
use crate::{
    access::{self, cookie::Cookie, is_ours},
    body::read_whole,
    problem::{Code, HttpProblem},
};

/// Lifetime of a login form, in seconds.
const FORM_SECS: i64 = 3600;

/// Header that makes a browser delete what it has stored for this server.
const CLEAR: HeaderName = HeaderName::from_static("clear-site-data");

/// Maximum size of a form, in bytes.
const FORM_BYTES: u64 = 32 << 10;

/// Maximum length of a token, in bytes. Browsers silently drop a cookie of more than 4096 bytes.
const TOKEN_BYTES: usize = 3900;

/// The user who is logged in.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    /// Name of the user's token.
    pub(super) name: String,
    /// CSRF token that forms must contain.
    pub(super) form: String,
}

/// The fields of a form.
struct FormFields(Vec<(Vec<u8>, Vec<u8>)>);

impl FormFields {
    async fn read(pages: &Pages, body: Body) -> Result<Self, HttpProblem> {
        let text = read_whole(body, pages.server().accept(FORM_BYTES)).await?;
        Ok(Self(query(&String::from_utf8_lossy(&text))))
    }

    fn text(&self, name: &str) -> String {
        let found = self.0.iter().find(|(key, _)| key == name.as_bytes());
        found.map_or_else(String::new, |(_, value)| String::from_utf8_lossy(value).into_owned())
    }
}

/// `GET /login`.
pub(super) async fn show(State(pages): State<Pages>, request: Request) -> Response {
    let access = pages.server().access();
    let is_encrypted = access.is_encrypted(request.headers(), request.extensions());
    match access.is_guarded() {
        true => form(request.headers(), is_encrypted, "/", None),
        false => go("/"),
    }
}

/// `POST /login`.
pub(super) async fn enter(
    State(pages): State<Pages>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let (parts, body) = request.into_parts();
    let fields = FormFields::read(&pages, body).await?;
    let (token, to) = (fields.text("token").trim().to_owned(), fields.text("to"));
    let access = pages.server().access();
    if !access.is_guarded() {
        return Ok(go("/"));
    }
    let is_encrypted = access.is_encrypted(&parts.headers, &parts.extensions);
    let rejected = |why| Ok(form(&parts.headers, is_encrypted, &to, Some(why)));
    let own = Cookie::Form.of(&parts.headers, is_encrypted);
    if !own.is_some_and(|own| is_ours(own, &fields.text("form"))) {
        return rejected("The form has expired, or cookies are disabled. Try again.");
    }
    let address = access.address(&parts.headers, &parts.extensions);
    match access.identify(&token, address).await {
        Ok(who) if !who.has_grants() => {
            rejected("This token is valid but grants no permission on this server.")
        }
        Ok(_) if token.len() > TOKEN_BYTES => {
            rejected("This token is too long for a browser cookie.")
        }
        Ok(_) if is_plain(&token) => {
            let mut response = go(&to);
            let lasts_secs = access.lasts_secs(&token);
            set(&mut response, Cookie::Token.set(&token, is_encrypted, lasts_secs));
            Ok(response)
        }
        Err(problem) if problem.code != Code::Unauthorized => Err(problem),
        _ => rejected("This token is invalid or has expired."),
    }
}

/// `POST /logout`.
pub(super) async fn leave(
    State(pages): State<Pages>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let (parts, body) = request.into_parts();
    let fields = FormFields::read(&pages, body).await?;
    let is_encrypted = pages.server().access().is_encrypted(&parts.headers, &parts.extensions);
    let mut response = go("/");
    // Without the cookie the browser is not logged in, or another site sent the
    // request. Such a request must not delete the cookie.
    let Some(own) = Cookie::Token.of(&parts.headers, is_encrypted) else { return Ok(response) };
    if !is_ours(own, &fields.text("form")) {
        return Err(HttpProblem::new(Code::Invalid, "the form does not belong to this session"));
    }
    take_back(&mut response, is_encrypted);
    // Browsers honour this header over TLS, and on localhost.
    let gone = HeaderValue::from_static("\"cache\", \"cookies\", \"storage\"");
    response.headers_mut().insert(CLEAR, gone);
    Ok(response)
}

/// Builds a login form for a browser whose cookie is no longer valid. Deletes the
/// cookie.
pub(super) fn expired_login(headers: &HeaderMap, is_encrypted: bool, to: &str) -> Response {
    let mut response = form(headers, is_encrypted, to, None);
    if Cookie::Token.of(headers, is_encrypted).is_some() {
        take_back(&mut response, is_encrypted);
    }
    response
}

/// Builds the login form and sets the cookie that it belongs to.
fn form(headers: &HeaderMap, is_encrypted: bool, to: &str, wrong: Option<&str>) -> Response {
    let own = Cookie::Form.of(headers, is_encrypted);
    let own = own.filter(|own| own.len() == 32 && is_plain(own));
    let own = own.map_or_else(fresh, |own| Some(own.to_owned()));
    let Some(own) = own else { return HttpProblem::new(Code::Unavailable, "").into_response() };
    let page = page(&access::csrf(&own), to, wrong);
    let mut response = (StatusCode::UNAUTHORIZED, page).into_response();
    set(&mut response, Cookie::Form.set(&own, is_encrypted, Some(FORM_SECS)));
    let kept = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    response
}

fn page(form: &str, to: &str, wrong: Option<&str>) -> Markup {
    PageLayout::plain("Log in").page(
        FrameContext::default(),
        html! {
            section.login {
                h1 { "Log in" }
                p.quiet { "A token is needed to see the repositories of this server." }
                @if let Some(wrong) = wrong { p.wrong role="alert" { (wrong) } }
                form method="post" action="/login" {
                    input type="hidden" name="form" value=(form);
                    input type="hidden" name="to" value=(to);
                    label for="token" { "Token" }
                    input.field #token type="password" name="token" required autofocus
                        autocomplete="current-password" spellcheck="false";
                    button.button.main type="submit" { "Log in" }
                }
            }
        },
    )
}

/// Returns 32 random hexadecimal digits, or `None` if the system provides none.
fn fresh() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Deletes the cookie with the token.
fn take_back(response: &mut Response, is_encrypted: bool) {
    set(response, Cookie::Token.set("", is_encrypted, Some(0)));
}

fn set(response: &mut Response, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Redirects to `to` if it is a path of this server, or else to `/`.
fn go(to: &str) -> Response {
    let is_here = to.starts_with('/') && !to.starts_with("//") && is_plain(to);
    let to = HeaderValue::from_str(if is_here { to } else { "/" });
    let to = to.unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

/// Returns true if the text can be used unescaped in a cookie or a URL.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\";,\\".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_redirects_only_to_local_paths() {
        let to = |path: &str| go(path).headers()[header::LOCATION].to_str().unwrap().to_owned();
        assert_eq!(to("/r/a%2Fb?rev=main&page=2"), "/r/a%2Fb?rev=main&page=2");
        for path in ["", "https://example.org", "//example.org", "/\\example.org", "/a\r\nb: c"] {
            assert_eq!(to(path), "/", "{path}");
        }
    }
}
