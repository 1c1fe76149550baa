//! Tests of tokens: scopes, and attempts to exceed them.

use std::{path::Path, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use reqwest::{RequestBuilder, StatusCode};
use snap_core::base::id::{CommitId, PackId};
use snap_server::{
    access::{
        principal::Right,
        tokens::{self, FILE, NewToken},
    },
    settings::ServerSettings,
};

use crate::place::{Place, Serving, json, refused};

/// Creates a token for one repository, or for all.
pub(crate) fn token(place: &Place, name: &str, scope: Right, repositories: Option<&str>) -> String {
    token_in(&place.store(), name, scope, repositories)
}

/// Creates such a token for the store or the folder of stores at `path`.
pub(crate) fn token_in(path: &Path, name: &str, scope: Right, repository: Option<&str>) -> String {
    let repositories = repository.map(|name| vec![name.to_owned()]);
    let wanted = NewToken { name: name.into(), scope, repositories, made: 0, expires: None };
    tokens::add(&path.join(FILE), wanted).unwrap().reveal().to_owned()
}

pub(crate) async fn status(request: RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

/// After how many milliseconds simultaneous wrong tokens of one address are answered. A
/// further one would wait for longer than 20 s, and is refused at once.
const WRONG_TOKEN_MS: [u64; 8] = [100, 300, 700, 1500, 3100, 6300, 11_300, 16_300];

/// The delay of the response to the first wrong token from an address.
pub(crate) const WRONG_TOKEN_DELAY: Duration = Duration::from_millis(WRONG_TOKEN_MS[0]);

/// How often the server looks whether the token file has changed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long a request waits for the token file.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

/// Sends a request with a wrong token to a server with a manual clock, which passes the
/// delay of the response.
async fn status_after(serving: &Serving, delay_ms: u64, request: RequestBuilder) -> u16 {
    let delay = serving.pass(Duration::from_millis(delay_ms));
    tokio::join!(status(request), delay).0
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_token_see_only_the_server_info() {
    let place = Place::new();
    place.change("a", "content");
    let secret = token(&place, "ada", Right::Read, None);
    let serving = Serving::of(&place);
    let origin = serving.origin();
    let get = |path: &str| serving.client.get(format!("{origin}{path}"));
    let told = json(get("/v1"), StatusCode::OK).await;
    assert_eq!(told["authentication"], "bearer");
    assert_eq!(status(get("/health")).await, 200);
    for path in ["/v1/repos", "/v1/repos/default/refs", "/v1/repos/none/refs", "/v1/x"] {
        let response = get(path).send().await.unwrap();
        assert_eq!(response.status(), 401, "{path}");
        assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"snap\"");
        let wrong = refused(get(path).bearer_auth("snap_wrong"), 401, "unauthorized");
        serving.passing(Duration::from_secs(1), wrong).await;
    }
    let listed = json(get("/v1/repos").bearer_auth(&secret), StatusCode::OK).await;
    assert_eq!(listed["repositories"][0]["name"], "default");
    assert_eq!(status(serving.get("refs").bearer_auth(&secret)).await, 200);
    // A token without `Bearer`, or in the query, is ignored.
    assert_eq!(status(serving.get("refs").header("authorization", &secret)).await, 401);
    assert_eq!(status(serving.get(&format!("refs?token={secret}"))).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_grants_only_its_scope() {
    let (here, there) = (Place::new(), Place::new());
    let first = here.change("a", "first");
    let second = here.change("a", "second");
    let packs = here.repo.store().packs();
    let [read, append, write] = [Right::Read, Right::Append, Right::Write]
        .map(|right| token(&there, right.name(), right, Some("default")));
    let serving = Serving::of(&there);
    let body = |commit| format!("{{\"commit\": \"{commit}\"}}");
    let new = |name: &str, commit| {
        serving.put(&format!("refs/heads/{name}"), body(commit)).header("if-none-match", "*")
    };
    let moved = || {
        let tag = format!("\"{first}\"");
        serving.put("refs/heads/main", body(second)).header("if-match", tag)
    };
    let gone = || {
        let delete = serving.client.delete(format!("{}/refs/heads/main", serving.base));
        delete.header("if-match", format!("\"{second}\""))
    };
    let send = |id: &PackId| serving.put(&format!("packs/{id}"), here.pack_bytes(id));
    refused(send(&packs[0]).bearer_auth(&read), 403, "forbidden").await;
    for id in &packs {
        assert_eq!(status(send(id).bearer_auth(&append)).await, 201);
    }
    let (name, outlines) = here.outlines(&packs);
    let publish = || serving.put(&format!("index/{name}"), outlines.clone());
    refused(publish().bearer_auth(&read), 403, "forbidden").await;
    assert_eq!(status(publish().bearer_auth(&append)).await, 201);
    refused(new("main", first).bearer_auth(&read), 403, "forbidden").await;
    assert_eq!(status(new("main", first).bearer_auth(&append)).await, 201);
    // With `append`, creating a ref that exists is a conflict.
    refused(new("main", second).bearer_auth(&append), 412, "conflict").await;
    refused(moved().bearer_auth(&read), 403, "forbidden").await;
    let both = moved().header("if-none-match", "*").bearer_auth(&append);
    refused(both, 400, "invalid").await;
    // With `append`, a branch can move forward but not back.
    assert_eq!(status(moved().bearer_auth(&append)).await, 200);
    let back = |tag: String| serving.put("refs/heads/main", body(first)).header("if-match", tag);
    refused(back(format!("\"{second}\"")).bearer_auth(&append), 403, "append-only").await;
    refused(back("*".to_owned()).bearer_auth(&append), 403, "append-only").await;
    // Neither a missing commit nor a wrong old value is accepted.
    refused(back(format!("\"{first}\"")).bearer_auth(&append), 412, "conflict").await;
    let strange = serving.put("refs/heads/main", body(CommitId::of(b"x")));
    let strange = strange.header("if-match", format!("\"{second}\"")).bearer_auth(&append);
    refused(strange, 422, "rejected").await;
    assert_eq!(status(back(format!("\"{second}\"")).bearer_auth(&write)).await, 200);
    assert_eq!(status(moved().bearer_auth(&append)).await, 200);
    // With `append`, a tag cannot move.
    let tag = || serving.put("refs/tags/v1", body(first)).header("if-none-match", "*");
    assert_eq!(status(tag().bearer_auth(&append)).await, 201);
    let tag = || {
        let tag = serving.put("refs/tags/v1", body(second));
        tag.header("if-match", format!("\"{first}\""))
    };
    refused(tag().bearer_auth(&append), 403, "append-only").await;
    assert_eq!(status(tag().bearer_auth(&write)).await, 200);
    // The log of the ref names the token.
    let log = fs_err::read_to_string(there.store().join("logs/refs/heads/main.log")).unwrap();
    assert!(log.contains("append") && log.contains("write"), "{log}");
    refused(gone().bearer_auth(&append), 403, "forbidden").await;
    assert_eq!(status(gone().bearer_auth(&write)).await, 204);
    let ask = || serving.client.post(format!("{}/missing", serving.base)).body(vec![0; 32]);
    assert_eq!(status(ask().bearer_auth(&read)).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_without_read_permission_looks_absent() {
    let folder = tempfile::tempdir().unwrap();
    let secret = {
        let wanted = NewToken {
            name: "ada".into(),
            scope: Right::Write,
            repositories: Some(vec!["team/mine".into()]),
            made: 0,
            expires: None,
        };
        tokens::add(&folder.path().join(FILE), wanted).unwrap()
    };
    for name in ["team/mine", "team/yours"] {
        let store = folder.path().join(name);
        fs_err::create_dir_all(&store).unwrap();
        let config = snap_core::repo::Config::default();
        snap_core::repo::Repo::init(&store, &snap_core::disk::Disk::default(), &config).unwrap();
    }
    let serving = Serving::at(folder.path(), ServerSettings::default());
    let origin = serving.origin();
    let get = |path: &str| {
        serving.client.get(format!("{origin}/v1/repos{path}")).bearer_auth(secret.reveal())
    };
    let listed = json(get(""), StatusCode::OK).await;
    assert_eq!(listed["repositories"].as_array().unwrap().len(), 1);
    assert_eq!(status(get("/team%2Fmine/refs")).await, 200);
    let yours = refused(get("/team%2Fyours/refs"), 404, "no-repository").await;
    let nobodys = refused(get("/team%2Fother/refs"), 404, "no-repository").await;
    let same = |problem: serde_json::Value| problem["detail"].as_str().unwrap().len();
    assert_eq!(same(yours), same(nobodys), "the responses differ");
    // Another spelling of the name is not accepted either.
    for path in ["/team%2fyours/refs", "/team%252Fyours/refs"] {
        assert_eq!(status(get(path)).await, 404, "{path}");
    }
    // Only a token with `admin` can create a repository.
    let make = serving.client.put(format!("{origin}/v1/repos/team%2Fmine"));
    refused(make.bearer_auth(secret.reveal()), 403, "forbidden").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_admin_token_can_create_its_repository() {
    let folder = tempfile::tempdir().unwrap();
    let made = |(name, scope, of): (&str, Right, &str)| {
        let (name, repositories) = (name.to_owned(), Some(vec![of.to_owned()]));
        let wanted = NewToken { name, scope, repositories, made: 0, expires: None };
        tokens::add(&folder.path().join(FILE), wanted).unwrap().reveal().to_owned()
    };
    let [write, elsewhere, admin, above] = [
        ("ada", Right::Write, "team/new"),
        ("bob", Right::Admin, "team/other"),
        ("eve", Right::Admin, "team/new"),
        ("joe", Right::Admin, "team"),
    ]
    .map(made);
    let serving = Serving::over(folder.path());
    let config = snap_core::repo::Config::default().to_text();
    let put = |name: &str, secret: &str| {
        let put = serving.client.put(format!("{}/v1/repos/{name}", serving.origin()));
        put.bearer_auth(secret).body(config.clone())
    };
    refused(put("team%2Fnew", &write), 403, "forbidden").await;
    refused(put("team%2Fnew", &elsewhere), 404, "no-repository").await;
    assert!(!folder.path().join("team").exists());
    assert_eq!(status(put("team%2Fnew", &admin)).await, 201);
    refused(put("team%2Fnew", &admin), 412, "conflict").await;
    // The repository `team` cannot be created beside `team/new`, which lies below it.
    refused(put("team", &above), 422, "rejected").await;
    let all = serving.client.get(format!("{}/v1/repos", serving.origin())).bearer_auth(&write);
    let listed = json(all, StatusCode::OK).await;
    assert_eq!(listed["repositories"], serde_json::json!([{"name": "team/new"}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_can_be_added_and_revoked_at_run_time() {
    let place = Place::new();
    let serving = Serving::of(&place);
    let ask = |secret: &str| serving.get("refs").bearer_auth(secret);
    let looks_again = || serving.clock.advance(LOOK_EVERY);
    assert_eq!(status(serving.get("refs")).await, 200, "no token is needed");
    let secret = token(&place, "ada", Right::Read, None);
    looks_again();
    assert_eq!(status(serving.get("refs")).await, 401);
    assert_eq!(status(ask(&secret)).await, 200);
    let other = token(&place, "bob", Right::Read, None);
    looks_again();
    assert_eq!(status(ask(&other)).await, 200);
    tokens::revoke(&place.store().join(FILE), "ada").unwrap();
    looks_again();
    assert_eq!(status_after(&serving, WRONG_TOKEN_MS[0], ask(&secret)).await, 401);
    // A malformed token file changes nothing. A missing one makes all tokens invalid.
    fs_err::write(place.store().join(FILE), "version = 1\nwhat").unwrap();
    looks_again();
    assert_eq!(status(ask(&other)).await, 200);
    fs_err::remove_file(place.store().join(FILE)).unwrap();
    looks_again();
    let doubled = 2 * WRONG_TOKEN_MS[0];
    assert_eq!(status_after(&serving, doubled, ask(&other)).await, 401);
    assert_eq!(status(serving.get("refs")).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_grants_only_read_requests() {
    let place = Place::new();
    let secret = token(&place, "ada", Right::Admin, None);
    let serving = Serving::of(&place);
    let cookie = format!("other=1; snap_token={secret}");
    assert_eq!(status(serving.get("refs").header("cookie", &cookie)).await, 200);
    // A cross-site form can make a browser send this request.
    let ask = serving.client.post(format!("{}/missing", serving.base)).body(vec![0; 32]);
    refused(ask.header("cookie", &cookie), 401, "unauthorized").await;
    // An invalid cookie is ignored where no token is needed, and is not a failed login.
    for path in ["/health", "/v1", "/login", "/assets/style.css"] {
        let request = serving.client.get(format!("{}{path}", serving.origin()));
        let answer = request.header("cookie", "snap_token=snap_old").send().await.unwrap();
        assert_ne!(answer.status(), 429, "{path}");
    }
    let home = serving.client.get(serving.origin()).header("cookie", "snap_token=snap_old");
    let home = home.header("accept", "text/html").send();
    let home = serving.passing(WRONG_TOKEN_DELAY, home).await.unwrap();
    let set = home.headers().get_all("set-cookie").into_iter();
    let mut set = set.map(|value| value.to_str().unwrap());
    assert!(set.any(|text| text.starts_with("snap_token=;") && text.contains("Max-Age=0")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_cookie_does_not_block_the_login_page() {
    let place = Place::new();
    token(&place, "ada", Right::Read, None);
    let serving = Serving::of(&place);
    let get = |path: &str| {
        let get = serving.client.get(format!("{}{path}", serving.origin()));
        get.header("cookie", "snap_token=snap_old")
    };
    // Enough failed attempts to use up the time that the server lets a client wait.
    let waiting = WRONG_TOKEN_MS.map(|_| tokio::spawn(status(get("/r/default"))));
    serving.until_sleeping(Duration::from_millis(WRONG_TOKEN_MS[7])).await;
    let home = get("/").send().await.unwrap();
    assert_eq!(home.status(), 401);
    let mut set = home.headers().get_all("set-cookie").into_iter();
    assert!(set.any(|value| value.to_str().unwrap().starts_with("snap_token=;")));
    assert!(home.text().await.unwrap().contains("<h1>Log in</h1>"));
    // Other pages answer with `Retry-After` and a link to the login form.
    let page = get("/r/default").send().await.unwrap();
    assert_eq!(page.status(), 429);
    assert!(page.headers().contains_key("retry-after"));
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let page = page.text().await.unwrap();
    assert!(page.contains("href=\"/login\""), "{page}");
    assert!(waiting.iter().all(|request| !request.is_finished()));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_logins_are_delayed_and_valid_ones_are_not() {
    let place = Place::new();
    let secret = token(&place, "ada", Right::Read, None);
    let serving = Serving::of(&place);
    let guess = |number: u32| serving.get("refs").bearer_auth(format!("snap_{number:064}"));
    let right = || status(serving.get("refs").bearer_auth(&secret));
    let mut guesses: Vec<_> = (0..4).map(|number| tokio::spawn(status(guess(number)))).collect();
    // The delays add up: 0.1 + 0.2 + 0.4 + 0.8 s.
    for delay_ms in &WRONG_TOKEN_MS[..4] {
        serving.until_sleeping(Duration::from_millis(*delay_ms)).await;
    }
    assert_eq!(right().await, 200);
    serving.clock.advance(Duration::from_millis(WRONG_TOKEN_MS[3] - 1));
    serving.until_sleeping(Duration::from_millis(1)).await;
    assert_eq!(right().await, 200);
    serving.clock.advance(Duration::from_millis(1));
    for guess in guesses.drain(..) {
        assert_eq!(guess.await.unwrap(), 401);
    }
    // Of many simultaneous guesses, only some wait. The others are refused at once.
    let mut many: FuturesUnordered<_> =
        (0..40).map(|number| tokio::spawn(guess(number).send())).collect();
    for _ in 0..35 {
        let away = many.next().await.unwrap().unwrap().unwrap();
        assert_eq!(away.status(), 429);
        assert!(away.headers().contains_key("retry-after"));
    }
    // The last of the others waits for 1.6 + 3.2 + 5 + 5 + 5 s.
    serving.until_sleeping(Duration::from_millis(19_800)).await;
    assert_eq!(right().await, 200);
    serving.clock.advance(Duration::from_millis(19_800));
    while let Some(answer) = many.next().await {
        assert_eq!(answer.unwrap().unwrap().status(), 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_hide_repositories_without_permission() {
    let place = Place::new();
    place.change("a", "content");
    let secret = token(&place, "ada", Right::Read, Some("other"));
    let all = token(&place, "root", Right::Read, None);
    let serving = Serving::of(&place);
    let get = |path: &str| serving.client.get(format!("{}{path}", serving.origin()));
    let pages = ["/", "/r/default", "/r/default/c/main/a", "/r/default/refs", "/r/default/stats"];
    for path in pages {
        let response = get(path).send().await.unwrap();
        assert_eq!(response.status(), 401, "{path}");
        let text = response.bytes().await.unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("href=\"/r/default\""), "{path}");
        let mine = get(path).header("cookie", format!("snap_token={secret}"));
        let mine = mine.send().await.unwrap();
        assert_eq!(mine.status().as_u16(), if path == "/" { 200 } else { 404 }, "{path}");
        let text = mine.bytes().await.unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("href=\"/r/default\""), "{path}");
        let theirs = get(path).header("cookie", format!("snap_token={all}"));
        assert_eq!(status(theirs).await, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cross_site_requests_to_an_open_server_are_refused() {
    let place = Place::new();
    place.change("a", "content");
    let serving = Serving::of(&place);
    refused(serving.get("refs").header("host", "evil.example:7627"), 403, "forbidden").await;
    assert_eq!(status(serving.get("refs").header("host", "localhost:7627")).await, 200);
    let ask = || serving.client.post(format!("{}/missing", serving.base)).body(vec![0; 32]);
    refused(ask().header("origin", "https://evil.example"), 403, "forbidden").await;
    refused(ask().header("sec-fetch-site", "cross-site"), 403, "forbidden").await;
    assert_eq!(status(ask()).await, 200);
    // Other sites cannot embed a file as a script or an image.
    let get = |site: &str, mode: &str| {
        let get = serving.get("commits/HEAD/files/a");
        get.header("sec-fetch-site", site).header("sec-fetch-mode", mode)
    };
    for site in ["cross-site", "same-site"] {
        refused(get(site, "no-cors"), 403, "forbidden").await;
        assert_eq!(status(get(site, "navigate")).await, 200, "a link may lead here");
    }
    assert_eq!(status(get("same-origin", "no-cors")).await, 200);
    // With a token any `Host` is accepted.
    let secret = token(&place, "ada", Right::Read, None);
    serving.clock.advance(LOOK_EVERY);
    let named = serving.get("refs").header("host", "snap.example").bearer_auth(&secret);
    assert_eq!(status(named).await, 200);
}

#[tokio::test]
async fn a_blocking_token_file_does_not_block_requests() {
    let place = Place::new();
    place.change("a", "content");
    let secret = token(&place, "ada", Right::Read, None);
    let serving = Serving::of(&place);
    assert_eq!(status(serving.get("refs").bearer_auth(&secret)).await, 200);
    // Opening a FIFO for reading blocks until another process opens it for writing.
    let path = place.store().join(FILE);
    let text = fs_err::read_to_string(&path).unwrap();
    fs_err::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    serving.clock.advance(LOOK_EVERY);
    let (all_read, wait) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        wait.recv().unwrap();
        fs_err::write(&path, text).unwrap();
    });
    let reads = (0..8).map(|_| status(serving.get("refs").bearer_auth(&secret)));
    let time = serving.pass_all(8, LOOK_PATIENCE);
    let (read, ()) = tokio::join!(futures::future::join_all(reads), time);
    assert_eq!(read, [200; 8]);
    all_read.send(()).unwrap();
    tokio::task::spawn_blocking(move || writer.join().unwrap()).await.unwrap();
}
