//! `/login` and `/logout`: a token becomes a cookie that no script can read and
//! that is sent to nobody else.
//!
//! Both take a form that must be ours. That of `/logout` holds what only
//! whoever has the token can know. Where nobody is logged in yet, the form
//! belongs to a cookie that was set with it; other sites can neither read nor
//! send that one, and under TLS not plant it either.

use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use maud::{Markup, html};

use super::{
    Pages,
    ask::query,
    shell::{Around, Shell},
};
use crate::{
    access::{self, cookie::Cookie, is_ours},
    body::{Accept, whole},
    problem::{Code, Problem},
};

/// How long a form to log in is good for.
const FORM_SECS: i64 = 3600;

/// What a browser is to forget of this server.
const CLEAR: HeaderName = HeaderName::from_static("clear-site-data");

/// Longest form.
const FORM_BYTES: u64 = 32 << 10;

/// Longest token that is kept: browsers drop a cookie of more than 4096 bytes
/// and say nothing.
const TOKEN_BYTES: usize = 3900;

/// Whoever is logged in.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    /// Name of the token.
    pub(super) name: String,
    /// What forms must say.
    pub(super) form: String,
}

/// What a form says.
struct Said(Vec<(Vec<u8>, Vec<u8>)>);

impl Said {
    async fn read(pages: &Pages, body: Body) -> Result<Self, Problem> {
        let stall = pages.server().settings().limits.stall();
        let text = whole(body, Accept { most_bytes: FORM_BYTES, stall, lingers: true }).await?;
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
    let is_secret = access.is_secret(request.headers(), request.extensions());
    match access.is_guarded() {
        true => form((request.headers(), is_secret), "/", None),
        false => go("/"),
    }
}

/// `POST /login`.
pub(super) async fn enter(
    State(pages): State<Pages>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let said = Said::read(&pages, body).await?;
    let (token, to) = (said.text("token").trim().to_owned(), said.text("to"));
    let access = pages.server().access();
    if !access.is_guarded() {
        return Ok(go("/"));
    }
    let is_secret = access.is_secret(&parts.headers, &parts.extensions);
    let not_so = |why| Ok(form((&parts.headers, is_secret), &to, Some(why)));
    let own = Cookie::Form.of(&parts.headers, is_secret);
    if !own.is_some_and(|own| is_ours(own, &said.text("form"))) {
        return not_so("That form was too old, or cookies are off. Please try again.");
    }
    let address = access.address(&parts.headers, &parts.extensions);
    match access.identify(&token, address).await {
        Ok(who) if !who.is_known() => not_so("That token holds, but gives no right here."),
        Ok(_) if token.len() > TOKEN_BYTES => not_so("That token is too long for a browser."),
        Ok(_) if is_plain(&token) => {
            let mut response = go(&to);
            let lasts_secs = access.lasts_secs(&token);
            set(&mut response, Cookie::Token.set(&token, is_secret, lasts_secs));
            Ok(response)
        }
        Err(problem) if problem.code != Code::Unauthorized => Err(problem),
        _ => not_so("No token is like that."),
    }
}

/// `POST /logout`.
pub(super) async fn leave(
    State(pages): State<Pages>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let said = Said::read(&pages, body).await?;
    let is_secret = pages.server().access().is_secret(&parts.headers, &parts.extensions);
    let mut response = go("/");
    // Whoever has no cookie is not logged in. One that another site has ask comes
    // without it, and what that is answered must not take it back.
    let Some(own) = Cookie::Token.of(&parts.headers, is_secret) else { return Ok(response) };
    if !is_ours(own, &said.text("form")) {
        return Err(Problem::new(Code::Invalid, "that form is not of this page"));
    }
    take_back(&mut response, is_secret);
    // Browsers heed it over TLS, and on the machine itself.
    let gone = HeaderValue::from_static("\"cache\", \"cookies\", \"storage\"");
    response.headers_mut().insert(CLEAR, gone);
    Ok(response)
}

/// The form for whoever is not logged in any more: what the browser still sends
/// does not hold.
pub(super) fn again((headers, is_secret): (&HeaderMap, bool), to: &str) -> Response {
    let mut response = form((headers, is_secret), to, None);
    if Cookie::Token.of(headers, is_secret).is_some() {
        take_back(&mut response, is_secret);
    }
    response
}

/// The form to log in, and the cookie that it belongs to.
fn form((headers, is_secret): (&HeaderMap, bool), to: &str, wrong: Option<&str>) -> Response {
    let own = Cookie::Form.of(headers, is_secret);
    let own = own.filter(|own| own.len() == 32 && is_plain(own));
    let own = own.map_or_else(fresh, |own| Some(own.to_owned()));
    let Some(own) = own else { return Problem::new(Code::Unavailable, "").into_response() };
    let page = page(&access::csrf(&own), to, wrong);
    let mut response = (StatusCode::UNAUTHORIZED, page).into_response();
    set(&mut response, Cookie::Form.set(&own, is_secret, Some(FORM_SECS)));
    let kept = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    response
}

fn page(form: &str, to: &str, wrong: Option<&str>) -> Markup {
    Shell::plain("Log in").page(
        Around::default(),
        html! {
            section.login {
                h1 { "Log in" }
                p.quiet { "This server shows its repositories to those who have a token." }
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

/// Random hexadecimal digits; `None` if the system has none.
fn fresh() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Takes back the cookie with the token.
fn take_back(response: &mut Response, is_secret: bool) {
    set(response, Cookie::Token.set("", is_secret, Some(0)));
}

fn set(response: &mut Response, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Sends a browser on, to a path of this server.
fn go(to: &str) -> Response {
    let is_here = to.starts_with('/') && !to.starts_with("//") && is_plain(to);
    let to = HeaderValue::from_str(if is_here { to } else { "/" });
    let to = to.unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

/// Whether a text may stand in a cookie or an address as it is.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\";,\\".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere() {
        let to = |path: &str| go(path).headers()[header::LOCATION].to_str().unwrap().to_owned();
        assert_eq!(to("/r/a%2Fb?rev=main&page=2"), "/r/a%2Fb?rev=main&page=2");
        for path in ["", "https://example.org", "//example.org", "/\\example.org", "/a\r\nb: c"] {
            assert_eq!(to(path), "/", "{path}");
        }
    }
}
