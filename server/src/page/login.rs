//! `/login` and `/logout`: a token becomes a cookie that no script can read and
//! that is sent to nobody else.
//!
//! Both take a form that must be ours. That of `/logout` holds what only
//! whoever has the token can know. Where nobody is logged in yet, the form
//! belongs to a cookie that was set with it; other sites can neither read nor
//! send that one.

use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use maud::{Markup, html};

use super::{
    Pages,
    ask::query,
    shell::{Around, Shell},
};
use crate::{
    access::{self, COOKIE, from_cookie, is_ours},
    body::{Accept, whole},
    problem::{Code, Problem},
};

/// Cookie that a form to log in belongs to.
const FORM: &str = "snap_form";

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
        let text = whole(body, Accept { most_bytes: FORM_BYTES, stall }).await?;
        Ok(Self(query(&String::from_utf8_lossy(&text))))
    }

    fn text(&self, name: &str) -> String {
        let found = self.0.iter().find(|(key, _)| key == name.as_bytes());
        found.map_or_else(String::new, |(_, value)| String::from_utf8_lossy(value).into_owned())
    }
}

/// `GET /login`.
pub(super) async fn show(State(pages): State<Pages>, request: Request) -> Response {
    match pages.server().access().is_guarded() {
        true => form(request.headers(), "/", None),
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
    let own = access::cookie(&parts.headers, FORM);
    if !own.is_some_and(|own| is_ours(own, &said.text("form"))) {
        let why = "That form was too old, or cookies are off. Please try again.";
        return Ok(form(&parts.headers, &to, Some(why)));
    }
    let address = access.address(&parts.headers, &parts.extensions);
    let not_so = |why| Ok(form(&parts.headers, &to, Some(why)));
    match access.identify(&token, address).await {
        Ok(who) if !who.is_known() => not_so("That token holds, but gives no right here."),
        Ok(_) if token.len() > TOKEN_BYTES => not_so("That token is too long for a browser."),
        Ok(_) if is_plain(&token) => {
            let mut response = go(&to);
            let is_secret = access.is_secret(&parts.headers, &parts.extensions);
            let secure = if is_secret { "; Secure" } else { "" };
            let lasts = access.lasts_secs(&token).map(|secs| format!("; Max-Age={secs}"));
            set(&mut response, &token, &format!("{secure}{}", lasts.unwrap_or_default()));
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
    let (Parts { headers, .. }, body) = request.into_parts();
    let said = Said::read(&pages, body).await?;
    let is_ours = from_cookie(&headers).is_none_or(|own| is_ours(own, &said.text("form")));
    if !is_ours {
        return Err(Problem::new(Code::Invalid, "that form is not of this page"));
    }
    let mut response = go("/");
    take_back(&mut response);
    Ok(response)
}

/// The form for whoever is not logged in any more: what the browser still sends
/// does not hold.
pub(super) fn again(headers: &HeaderMap, to: &str) -> Response {
    let mut response = form(headers, to, None);
    if from_cookie(headers).is_some() {
        take_back(&mut response);
    }
    response
}

/// The form to log in, and the cookie that it belongs to.
pub(super) fn form(headers: &HeaderMap, to: &str, wrong: Option<&str>) -> Response {
    let own = access::cookie(headers, FORM).filter(|own| own.len() == 32 && is_plain(own));
    let own = own.map_or_else(fresh, |own| Some(own.to_owned()));
    let Some(own) = own else { return Problem::new(Code::Unavailable, "").into_response() };
    let page = page(&access::csrf(&own), to, wrong);
    let mut response = (StatusCode::UNAUTHORIZED, page).into_response();
    let text = format!("{FORM}={own}; Path=/; HttpOnly; SameSite=Strict; Max-Age=3600");
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
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
fn take_back(response: &mut Response) {
    set(response, "", "; Max-Age=0");
}

/// Sets the cookie with the token. It comes with links from elsewhere, too:
/// nothing changes by following one.
fn set(response: &mut Response, token: &str, more: &str) {
    let text = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Lax{more}");
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().append(header::SET_COOKIE, value);
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
