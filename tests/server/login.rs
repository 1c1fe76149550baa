//! Tests of logging in to the pages and out.

use reqwest::{
    RequestBuilder, Response,
    header::{COOKIE, LOCATION, SET_COOKIE},
};
use snap_server::access::principal::Right;

use crate::{
    page::ask,
    place::{Place, Serving},
    tokens::{WRONG_TOKEN_DELAY, token},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_behind_a_tls_proxy_has_the_host_prefix() {
    let place = Place::new();
    let secret = token(&place, "ada", Right::Read, None);
    let proxies = vec!["127.0.0.1".parse().unwrap()];
    let settings = snap_server::settings::ServerSettings { proxies, ..Default::default() };
    let serving = Serving::start(&place, settings);
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let client = client.build().unwrap();
    let at = |path: &str| format!("{}{path}", serving.origin());
    for (scheme, prefix) in [("http", ""), ("https", "__Host-")] {
        let ask = |request: RequestBuilder| {
            request.header("accept", "text/html").header("x-forwarded-proto", scheme)
        };
        let asked = ask(client.get(serving.origin())).send().await.unwrap();
        let (whole, own) = cookie(&asked, &format!("{prefix}snap_form")).unwrap();
        assert_eq!(whole.contains("; Secure"), scheme == "https", "{whole}");
        let form = hidden(&asked.text().await.unwrap(), "form");
        let enter = |own: &str| ask(client.post(at("/login"))).header(COOKIE, own);
        let entered = send(enter(&own), &[("form", &form), ("token", &secret)]).await;
        let (whole, token) = cookie(&entered, &format!("{prefix}snap_token")).unwrap();
        assert_eq!(whole.contains("; Secure"), scheme == "https", "{whole}");
        let get = |own: &str| ask(client.get(at("/r/default"))).header(COOKIE, own);
        let home = get(&token).send().await.unwrap().text().await.unwrap();
        assert!(home.contains(&format!("{scheme}://127.0.0.1:")), "{home}");
        // Over TLS a cookie without the `__Host-` prefix, which others could set, is
        // ignored.
        let planted = own.trim_start_matches("__Host-");
        let entered = send(enter(planted), &[("form", &form), ("token", &secret)]).await;
        let planted = token.trim_start_matches("__Host-");
        let shown = get(planted).send().await.unwrap();
        let wanted = if scheme == "https" { (401, 401) } else { (303, 200) };
        assert_eq!((entered.status().as_u16(), shown.status().as_u16()), wanted, "{scheme}");
    }
}

/// Returns a cookie that a response sets: the whole header, and the name and value.
pub(crate) fn cookie(response: &Response, name: &str) -> Option<(String, String)> {
    let all = response.headers().get_all(SET_COOKIE).into_iter();
    let mut texts = all.map(|value| value.to_str().unwrap().to_owned());
    let text = texts.find(|text| text.starts_with(&format!("{name}=")))?;
    let pair = text.split(';').next().unwrap().to_owned();
    Some((text, pair))
}

/// Returns the value of a hidden form field.
pub(crate) fn hidden(page: &str, name: &str) -> String {
    let field = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&field).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

pub(crate) async fn send(request: RequestBuilder, fields: &[(&str, &str)]) -> Response {
    let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    request.header("accept", "text/html").body(body.join("&")).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_stores_the_token_in_a_cookie_for_pages_only() {
    let place = Place::new();
    place.change("a", "a confidential content");
    let secret = token(&place, "ada", Right::Read, None);
    let serving = Serving::of(&place);
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let client = client.build().unwrap();
    let at = |path: &str| format!("{}{path}", serving.origin());
    for path in ["/", "/r/default", "/r/default/c/main/a", "/r/none"] {
        let refused = ask(&serving, path).await;
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.text.contains("<h1>Log in</h1>"), "{path}: {}", refused.text);
        assert!(!refused.text.contains("a confidential content"), "{path}");
        assert_eq!(hidden(&refused.text, "to"), path);
    }
    let asked = client.get(at("/r/default")).header("accept", "text/html").send().await.unwrap();
    let (whole, own) = cookie(&asked, "snap_form").unwrap();
    assert!(whole.contains("HttpOnly") && whole.contains("SameSite=Strict"), "{whole}");
    let form = hidden(&asked.text().await.unwrap(), "form");
    let enter = |own: &str| client.post(at("/login")).header(COOKIE, own);
    // Without the matching cookie the form is refused.
    for own in ["a=b", "snap_form=00000000000000000000000000000000"] {
        let refused = send(enter(own), &[("form", &form), ("token", &secret)]).await;
        assert_eq!(refused.status(), 401);
        assert!(cookie(&refused, "snap_token").is_none());
    }
    let fields = [("form", form.as_str()), ("token", "snap_wrong")];
    let wrong = serving.passing(WRONG_TOKEN_DELAY, send(enter(&own), &fields)).await;
    assert_eq!((wrong.status().as_u16(), cookie(&wrong, "snap_token")), (401, None));
    assert!(wrong.text().await.unwrap().contains("This token is invalid or has expired"));
    let fields = [("form", form.as_str()), ("token", &secret), ("to", "%2Fr%2Fdefault")];
    let entered = send(enter(&own), &fields).await;
    assert_eq!(
        (entered.status().as_u16(), &entered.headers()[LOCATION]),
        (303, &"/r/default".parse().unwrap())
    );
    let (whole, token) = cookie(&entered, "snap_token").unwrap();
    assert!(whole.contains("HttpOnly; SameSite=Lax") && whole.contains("Path=/"), "{whole}");
    assert!(!whole.contains("Secure"), "the browser would not send the cookie back: {whole}");
    let get = client.get(at("/r/default")).header("accept", "text/html").header(COOKIE, &token);
    let shown = get.send().await.unwrap();
    assert_eq!(shown.status(), 200);
    let shown = shown.text().await.unwrap();
    assert!(shown.contains("<span>ada</span>") && !shown.contains(&secret), "{shown}");
    // Responses to a cookie must not stay in the browser's cache after logging out.
    for path in ["/r/default", "/", "/v1/repos/default/commits/main/files/a", "/v1/repos"] {
        let answer = client.get(at(path)).header(COOKIE, &token).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(answer.headers()["cache-control"], "private, no-store", "{path}");
    }
    let program = client.get(at("/v1/repos/default/refs")).bearer_auth(&secret);
    let program = program.send().await.unwrap();
    assert_eq!(program.headers()["cache-control"], "private, no-cache");
    // Another site cannot log a person out. A cross-site request comes without the
    // cookie, and a form from another browser has the wrong value.
    let without = client.post(at("/logout"));
    let refused = send(without, &[("form", &form)]).await;
    assert_eq!((refused.status().as_u16(), cookie(&refused, "snap_token")), (303, None));
    let leave = || client.post(at("/logout")).header(COOKIE, &token);
    let refused = send(leave(), &[("form", &form)]).await;
    assert_eq!((refused.status().as_u16(), cookie(&refused, "snap_token")), (400, None));
    let left = send(leave(), &[("form", &hidden(&shown, "form"))]).await;
    assert_eq!(left.status(), 303);
    assert!(left.headers()["clear-site-data"].to_str().unwrap().contains("\"cache\""));
    assert!(cookie(&left, "snap_token").unwrap().0.contains("Max-Age=0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_only_repositories_that_the_token_can_read() {
    let show = crate::showcase::make();
    let file = show.path().join(snap_server::access::tokens::FILE);
    let wanted = snap_server::access::tokens::NewToken {
        name: "ada".into(),
        scope: Right::Read,
        repositories: Some(vec!["team/website".into()]),
        made: 0,
        expires: None,
    };
    let secret = snap_server::access::tokens::add(&file, wanted).unwrap().reveal().to_owned();
    let serving = Serving::over(show.path());
    let get = async |path: &str| {
        let request = serving.client.get(format!("{}{path}", serving.origin()));
        let request = request.header("accept", "text/html");
        let answer = request.header(COOKIE, format!("snap_token={secret}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (status, home) = get("/").await;
    assert_eq!(status, 200);
    assert!(home.contains("team/website") && !home.contains("datasets"), "{home}");
    assert_eq!(get("/r/team%2Fwebsite").await.0, 200);
    let (hidden, missing) = (get("/r/datasets%2Fbirds").await, get("/r/datasets%2Fnothing").await);
    assert_eq!((hidden.0, missing.0), (404, 404));
    assert_eq!(
        hidden.1.replace("birds", "nothing"),
        missing.1,
        "the response reveals that the repository exists"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tokens_has_no_login_page() {
    let place = Place::new();
    let serving = Serving::of(&place);
    let home = ask(&serving, "/").await;
    assert_eq!(home.status, 200);
    assert!(!home.text.contains("/login") && !home.text.contains("Log"), "{}", home.text);
    assert_eq!(
        ask(&serving, "/login").await.text,
        home.text,
        "`/login` redirects to the home page"
    );
}
