//! Tests of tokens from an OpenID Connect issuer: valid ones, invalid ones, and an
//! issuer that is unavailable or misbehaves.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use jsonwebtoken::Algorithm;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use snap_core::base::time::Time;
use snap_server::{
    access::principal::Right,
    settings::{LogSettings, Mapping, Oidc, ServerSettings},
};

use crate::{
    issuer::{ABOUT, Issuer, Mode, Signer, base64, message, sign_with_secret},
    login::{cookie, hidden, send},
    place::{Place, Serving, refused},
    tokens::{WRONG_TOKEN_DELAY, status, token},
};

/// Returns the settings of these tests for an issuer.
pub(crate) fn settings(issuer: &str) -> ServerSettings {
    let mapping = |claim: &str, value: &str, scope, repository: Option<&str>| Mapping {
        claim: claim.into(),
        value: value.into(),
        scope,
        repositories: repository.map(|name| vec![name.into()]),
    };
    let scopes = vec![
        mapping("repository", "team/project", Right::Append, Some("default")),
        mapping("groups", "ops", Right::Write, None),
        mapping("repository", "team/other", Right::Read, Some("other")),
    ];
    let (issuer, audience) = (issuer.to_owned(), "snap".to_owned());
    let oidc = Oidc { issuer, audience, name_claim: "sub".into(), scopes };
    // The proxy setting lets each request name its address, so that failed requests do
    // not delay each other.
    let proxies = vec!["127.0.0.1".parse().unwrap()];
    ServerSettings { oidc: Some(oidc), proxies, ..ServerSettings::default() }
}

/// Adds a token and a unique address to a request.
fn with(request: RequestBuilder, token: &str) -> RequestBuilder {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let address = format!("198.18.{}.{}", next / 256 % 256, next % 256);
    request.header("x-forwarded-for", address).bearer_auth(token)
}

async fn read(serving: &Serving, token: &str) -> u16 {
    status(with(serving.get("refs"), token)).await
}

/// Like [`read`], with a wrong token: the clock passes the delay of the response.
async fn read_wrong(serving: &Serving, token: &str) -> u16 {
    tokio::join!(read(serving, token), serving.pass(WRONG_TOKEN_DELAY)).0
}

/// Moves the clock on by a little, so that what comes now is newer than what came before.
fn a_little_later(serving: &Serving) {
    serving.clock.advance(Duration::from_millis(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oidc_token_grants_the_rights_of_its_mapped_claims() {
    let (here, there) = (Place::new(), Place::new());
    let (first, second) = (here.change("a", "first"), here.change("a", "second"));
    let signer = Signer::new(Algorithm::ES256, "k1");
    let issuer = Issuer::start(&[&signer]);
    let serving = Serving::start(&there, settings(issuer.base()));
    assert_eq!(issuer.asked(), 0, "no request needed the keys yet");
    assert_eq!(status(serving.get("refs")).await, 401);
    let append = signer.sign(&issuer.claims(json!({})));
    let write = json!({"repository": null, "groups": ["dev", "ops"], "aud": ["else", "snap"]});
    let write = signer.sign(&issuer.claims(write));
    let packs = here.repo.store().packs();
    for id in &packs {
        let sent = serving.put(&format!("packs/{id}"), here.pack_bytes(id));
        assert_eq!(status(with(sent, &append)).await, 201);
    }
    let (name, outlines) = here.outlines(&packs);
    let publish = serving.put(&format!("index/{name}"), outlines);
    assert_eq!(status(with(publish, &append)).await, 201);
    let body = |commit| format!("{{\"commit\": \"{commit}\"}}");
    let new = serving.put("refs/heads/main", body(first)).header("if-none-match", "*");
    assert_eq!(status(with(new, &append)).await, 201);
    let moved = |from, to| {
        let tag = format!("\"{from}\"");
        serving.put("refs/heads/main", body(to)).header("if-match", tag)
    };
    // A branch can move forward, but not back.
    assert_eq!(status(with(moved(first, second), &append)).await, 200);
    refused(with(moved(second, first), &append), 403, "append-only").await;
    assert_eq!(status(with(moved(second, first), &write)).await, 200);
    let log = fs_err::read_to_string(there.store().join("logs/refs/heads/main.log")).unwrap();
    assert!(log.contains("oidc:ci"), "{log}");
    // A token for another repository gets `404`. A token without any rights gets an
    // explanation.
    let other = signer.sign(&issuer.claims(json!({"repository": "team/other"})));
    refused(with(serving.get("refs"), &other), 404, "no-repository").await;
    let none = signer.sign(&issuer.claims(json!({"repository": "team/none"})));
    for path in ["refs", "packs", "nothing"] {
        let problem = refused(with(serving.get(path), &none), 403, "forbidden").await;
        assert!(problem["detail"].as_str().unwrap().contains("the token is valid"), "{problem}");
    }
    for _ in 0..50 {
        assert_eq!(read(&serving, &append).await, 200);
    }
    assert_eq!(issuer.asked(), 1, "the keys are cached");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_type_verifies_signatures() {
    let place = Place::new();
    for algorithm in [
        Algorithm::RS256,
        Algorithm::RS384,
        Algorithm::RS512,
        Algorithm::PS256,
        Algorithm::PS384,
        Algorithm::PS512,
        Algorithm::ES256,
        Algorithm::ES384,
        Algorithm::EdDSA,
    ] {
        let signer = Signer::new(algorithm, "k1");
        let issuer = Issuer::start(&[&signer]);
        let serving = Serving::start(&place, settings(issuer.base()));
        let good = signer.sign(&issuer.claims(json!({})));
        assert_eq!(read(&serving, &good).await, 200, "{algorithm:?}");
        let (message, signature) = good.rsplit_once('.').unwrap();
        let turned: String = signature.chars().rev().collect();
        let wrong = format!("{message}.{turned}");
        assert_eq!(read_wrong(&serving, &wrong).await, 401, "{algorithm:?}");
    }
    // A key without `alg` is used with the default algorithm of its type.
    let mut signer = Signer::new(Algorithm::RS256, "k1");
    signer.jwk.as_object_mut().unwrap().remove("alg");
    let issuer = Issuer::start(&[&signer]);
    let serving = Serving::start(&place, settings(issuer.base()));
    let good = signer.sign(&issuer.claims(json!({})));
    assert_eq!(read(&serving, &good).await, 200);
    signer.algorithm = Algorithm::PS256;
    assert_eq!(read_wrong(&serving, &signer.sign(&issuer.claims(json!({})))).await, 401);
}

/// Returns tokens whose claims are invalid.
fn wrong_claims(issuer: &Issuer, signer: &Signer) -> Vec<(&'static str, String)> {
    let now = Time::now().secs;
    let base = issuer.base();
    let all = [
        ("another issuer", json!({"iss": "https://evil.example"})),
        ("nearly the issuer", json!({"iss": format!("{base}/")})),
        ("several issuers", json!({"iss": [base, "https://evil.example"]})),
        ("no issuer", json!({"iss": null})),
        ("another audience", json!({"aud": "else"})),
        ("other audiences", json!({"aud": ["else", "snap2"]})),
        ("no audience", json!({"aud": null})),
        ("an odd audience", json!({"aud": {"snap": "snap"}})),
        ("expired", json!({"exp": now - 120})),
        ("expired long ago", json!({"exp": 0})),
        ("no end", json!({"exp": null})),
        ("an end that is a text", json!({"exp": format!("{}", now + 600)})),
        ("an end before time", json!({"exp": -5})),
        ("an end that is out of range", json!({"exp": 1e300})),
        ("not yet", json!({"nbf": now + 120})),
        ("a start that is a text", json!({"nbf": "now"})),
    ];
    let sign = |(what, changed)| (what, signer.sign(&issuer.claims(changed)));
    all.into_iter().map(sign).collect()
}

/// Returns tokens with valid claims whose signatures are invalid.
fn wrong_signatures(issuer: &Issuer, signer: &Signer) -> Vec<(&'static str, String)> {
    let claims = issuer.claims(json!({}));
    let good = signer.sign(&claims);
    let (_, signature) = good.rsplit_once('.').unwrap();
    let admin = issuer.claims(json!({"groups": "ops"}));
    let header = |changed: Value| {
        let mut header = signer.header();
        let all = header.as_object_mut().unwrap();
        all.extend(changed.as_object().unwrap().clone());
        all.retain(|_, value| !value.is_null());
        header
    };
    let none = |alg: &str| message(&header(json!({"alg": alg})), &claims);
    // Public values must not be accepted as HMAC secrets.
    let secret = |algorithm: Algorithm, secret: &[u8]| {
        let message = message(&header(json!({"alg": algorithm})), &claims);
        sign_with_secret(algorithm, secret, &message)
    };
    let other = Signer::new(Algorithm::ES256, "k1");
    let brought = header(json!({"jwk": other.jwk, "jku": "http://127.0.0.1:1/keys"}));
    vec![
        ("other claims", format!("{}.{signature}", message(&signer.header(), &admin))),
        ("another key with the same name", other.sign(&claims)),
        ("a key inside the token", other.sign_as(&brought, &claims)),
        ("no algorithm", format!("{}.", none("none"))),
        ("no algorithm, signed", format!("{}.{signature}", none("None"))),
        ("no signature", format!("{}.", message(&signer.header(), &claims))),
        ("a public key as secret", secret(Algorithm::HS256, signer.jwk.to_string().as_bytes())),
        (
            "its digits as secret",
            secret(Algorithm::HS512, signer.jwk["x"].as_str().unwrap().as_bytes()),
        ),
        ("its PEM as secret", secret(Algorithm::HS384, signer.pem.as_bytes())),
        ("another algorithm", signer.sign_as(&header(json!({"alg": "ES384"})), &claims)),
        (
            "an unknown critical extension",
            signer.sign_as(&header(json!({"crit": ["x"], "x": 1})), &claims),
        ),
        ("no name of the key", signer.sign_as(&header(json!({"kid": null})), &claims)),
        ("no JSON", format!("{}.{}.{signature}", base64(b"{"), base64(b"{"))),
        ("no object", format!("{}.{}.{signature}", base64(b"[]"), base64(b"7"))),
        ("no text", "...".to_owned()),
        ("two parts", good.rsplit_once('.').unwrap().0.to_owned()),
        ("four parts", format!("{good}.x")),
        ("too long", signer.sign(&issuer.claims(json!({"x": "x".repeat(16 << 10)})))),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_with_wrong_claims_or_signatures_are_refused() {
    let place = Place::new();
    let signer = Signer::new(Algorithm::ES256, "k1");
    // With two keys a token must name its key.
    let issuer = Issuer::start(&[&signer, &Signer::new(Algorithm::ES256, "k2")]);
    let serving = Serving::start(&place, settings(issuer.base()));
    let good = signer.sign(&issuer.claims(json!({})));
    assert_eq!(read(&serving, &good).await, 200);
    let mut wrong = wrong_claims(&issuer, &signer);
    wrong.extend(wrong_signatures(&issuer, &signer));
    for (what, token) in wrong {
        a_little_later(&serving);
        // Moves the clock until the response comes: it is delayed.
        assert_eq!(read_wrong(&serving, &token).await, 401, "{what}");
    }
    assert_eq!(read(&serving, &good).await, 200);
    assert_eq!(issuer.asked(), 1, "an invalid token caused a fetch");
    // The server tolerates a small clock skew.
    let now = Time::now().secs;
    let early = signer.sign(&issuer.claims(json!({"nbf": now + 20, "exp": now - 20})));
    assert_eq!(read(&serving, &early).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_key_names_cause_few_fetches_and_block_no_client() {
    let place = Place::new();
    let signer = Signer::new(Algorithm::ES256, "k1");
    let issuer = Issuer::start(&[&signer]);
    let serving = Serving::start(&place, settings(issuer.base()));
    let fresh = |number: u32| signer.sign(&issuer.claims(json!({"jti": number})));
    assert_eq!(read(&serving, &fresh(0)).await, 200);
    for number in 0..30 {
        let mut header = signer.header();
        header["kid"] = format!("made-up-{number}").into();
        let wrong = signer.sign_as(&header, &issuer.claims(json!({})));
        a_little_later(&serving);
        // `401`: the key does not exist. `503`: the issuer cannot be asked again yet.
        let (told, wanted) = match number < 4 {
            true => (read_wrong(&serving, &wrong).await, 401),
            false => (read(&serving, &wrong).await, 503),
        };
        assert_eq!(told, wanted, "{number}");
        assert_eq!(read(&serving, &fresh(number)).await, 200);
    }
    assert_eq!(issuer.asked(), 5);
    // Many simultaneous requests.
    let wrong = |number: u32| {
        let mut header = signer.header();
        header["kid"] = format!("also-{number}").into();
        let token = signer.sign_as(&header, &issuer.claims(json!({"jti": number})));
        with(serving.get("refs"), &token).send()
    };
    let all = futures::future::join_all((0..100).map(wrong)).await;
    assert!(all.iter().all(|answer| answer.as_ref().unwrap().status() == 503));
    // A valid token with a new key does not count as a failed login.
    let new = Signer::new(Algorithm::ES256, "k2");
    issuer.publish(&[&signer, &new]);
    let right = new.sign(&issuer.claims(json!({})));
    let answer = with(serving.get("refs"), &right).send().await.unwrap();
    assert!(is_away(answer).await);
    assert_eq!(issuer.asked(), 5);
    serving.clock.advance(ISSUER_RATE);
    assert_eq!(read(&serving, &right).await, 200);
    assert_eq!(issuer.asked(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_is_used_at_once_and_a_removed_one_is_refused() {
    let place = Place::new();
    let [old, new] = ["k1", "k2"].map(|id| Signer::new(Algorithm::ES256, id));
    let issuer = Issuer::start(&[&old]);
    let serving = Serving::start(&place, settings(issuer.base()));
    let before = old.sign(&issuer.claims(json!({})));
    assert_eq!(read(&serving, &before).await, 200);
    issuer.publish(&[&old, &new]);
    a_little_later(&serving);
    let after = new.sign(&issuer.claims(json!({})));
    assert_eq!(read(&serving, &after).await, 200);
    assert_eq!(read(&serving, &before).await, 200);
    assert_eq!(issuer.asked(), 2);
    let third = Signer::new(Algorithm::EdDSA, "k3");
    issuer.publish(&[&third]);
    a_little_later(&serving);
    assert_eq!(read(&serving, &third.sign(&issuer.claims(json!({})))).await, 200);
    assert_eq!(issuer.asked(), 3);
    // Although the token was accepted before.
    assert_eq!(read_wrong(&serving, &after).await, 401);
}

/// How often the issuer is asked when it was asked often.
const ISSUER_RATE: Duration = Duration::from_secs(12);

/// Returns true if the response says that the issuer is unavailable.
async fn is_away(answer: Response) -> bool {
    let wait = answer.headers().get("retry-after").cloned();
    let wait: Option<u64> = wait.and_then(|value| value.to_str().ok()?.parse().ok());
    answer.status() == 503 && wait.is_some_and(|secs| (1..=60).contains(&secs))
}

#[tokio::test(flavor = "multi_thread")]
async fn file_tokens_work_and_oidc_tokens_get_503_during_an_outage() {
    let place = Place::new();
    let secret = token(&place, "ada", Right::Read, None);
    let signer = Signer::new(Algorithm::ES256, "k1");
    let issuer = Issuer::start(&[&signer]);
    issuer.behave(Mode::Fails);
    let serving = Serving::start(&place, settings(issuer.base()));
    let good = signer.sign(&issuer.claims(json!({})));
    // All from one address: an unavailable issuer does not count as a failed login.
    for _ in 0..20 {
        let answer = serving.get("refs").bearer_auth(&good).send().await.unwrap();
        assert!(is_away(answer).await);
        assert_eq!(status(serving.get("refs").bearer_auth(&secret)).await, 200);
    }
    let problem = refused(with(serving.get("refs"), &good), 503, "unavailable").await;
    assert!(problem["detail"].as_str().unwrap().contains("issuer"), "{problem}");
    assert_eq!(issuer.asked(), 1, "nobody waits, and the issuer is not asked by each");
    issuer.behave(Mode::Well);
    serving.clock.advance(ISSUER_RATE);
    assert_eq!(read(&serving, &good).await, 200, "the keys are fetched again");
    assert_eq!(issuer.asked(), 2);
    assert_eq!(read_wrong(&serving, &good.replace('.', "A.")).await, 401);
}

/// How long the server waits for the issuer.
const ISSUER_PATIENCE: Duration = Duration::from_secs(5);

fn says(issuer: &str, keys: &str) -> Mode {
    Mode::Says(json!({"issuer": issuer, "jwks_uri": keys}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_or_stalled_issuer_counts_as_unavailable() {
    let place = Place::new();
    let secret = token(&place, "ada", Right::Read, None);
    let signer = Signer::new(Algorithm::ES256, "k1");
    let modes: [fn(&str) -> Mode; 15] = [
        |_| Mode::Fails,
        |_| Mode::Endless(ABOUT),
        |_| Mode::Endless("/keys"),
        |_| Mode::Garbled(ABOUT),
        |_| Mode::Garbled("/keys"),
        |_| Mode::Moved(ABOUT),
        |_| Mode::Moved("/keys"),
        |_| Mode::Stalls(ABOUT),
        |_| Mode::Stalls("/keys"),
        |base| says("https://evil.example", &format!("{base}/keys")),
        |base| says(&format!("{base}/"), &format!("{base}/keys")),
        |base| says(base, "http://192.0.2.1/keys"),
        |base| says(base, "file:///etc/passwd"),
        |base| says(base, "/keys"),
        |_| Mode::Says(json!([])),
    ];
    let tries = modes.iter().map(async |mode| {
        let issuer = Issuer::start(&[&signer]);
        let mode = mode(issuer.base());
        issuer.behave(mode.clone());
        let serving = Serving::start(&place, settings(issuer.base()));
        let good = signer.sign(&issuer.claims(json!({})));
        let asked = with(serving.get("refs"), &good).send();
        let time = async {
            if matches!(mode, Mode::Stalls(_)) {
                serving.pass(ISSUER_PATIENCE).await;
            }
        };
        let (answer, others, ()) = futures::join!(asked, read(&serving, &secret), time);
        assert!(is_away(answer.unwrap()).await, "{mode:?}");
        assert_eq!(others, 200, "{mode:?}");
        issuer.behave(Mode::Well);
        a_little_later(&serving);
        assert_eq!(read(&serving, &good).await, 200, "{mode:?}: the issuer works again");
    });
    futures::future::join_all(tries).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_names_take_one_line_in_the_audit_log() {
    let place = Place::new();
    let signer = Signer::new(Algorithm::ES256, "k1");
    let issuer = Issuer::start(&[&signer]);
    let audit = place.folder.path().join("audit.jsonl");
    let log = LogSettings { audit: Some(audit.clone()), ..LogSettings::default() };
    let serving = Serving::start(&place, ServerSettings { log, ..settings(issuer.base()) });
    let names =
        ["repo:team/project:ref:refs/heads/main", "ci\n{\"who\":\"root\"}", "ada\u{202e}\t\0"];
    for name in names {
        let token = signer.sign(&issuer.claims(json!({"sub": name})));
        let put = serving.put("packs/what", "nothing");
        refused(with(put, &token), 400, "invalid").await;
        let unsigned = signer.sign(&issuer.claims(json!({"sub": name, "exp": 0})));
        let refused = status(with(serving.put("packs/what", ""), &unsigned));
        assert_eq!(tokio::join!(refused, serving.pass(WRONG_TOKEN_DELAY)).0, 401);
    }
    let text = fs_err::read_to_string(&audit).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2 * names.len());
    let who: Vec<_> = lines.iter().step_by(2).map(|line| line["who"].as_str().unwrap()).collect();
    assert_eq!(who[0], "oidc:repo:team/project:ref:refs/heads/main");
    assert!(who[1].starts_with("oidc:ci___who_:_root__~"), "{who:?}");
    assert!(who[2].starts_with("oidc:ada___~") && who[2].is_ascii(), "{who:?}");
    // Nothing of a token without a valid signature is logged, not even the name.
    assert!(lines.iter().skip(1).step_by(2).all(|line| line["who"].is_null()));
    assert!(!text.contains("eyJ"), "the log contains a token");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oidc_token_logs_in_to_pages_until_it_expires() {
    let place = Place::new();
    place.change("a", "content");
    let signer = Signer::new(Algorithm::ES256, "k1");
    let issuer = Issuer::start(&[&signer]);
    let serving = Serving::start(&place, settings(issuer.base()));
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let client = client.build().unwrap();
    let at = |path: &str| format!("{}{path}", serving.origin());
    let asked = client.get(at("/")).header("accept", "text/html").send().await.unwrap();
    assert_eq!(asked.status(), 401);
    let (_, own) = cookie(&asked, "snap_form").unwrap();
    let form = hidden(&asked.text().await.unwrap(), "form");
    let enter = async |changed: Value| {
        let token = signer.sign(&issuer.claims(changed));
        let request = client.post(at("/login")).header("cookie", &own);
        send(request, &[("form", &form), ("token", &token)]).await
    };
    let before = Time::now().secs;
    let entered = enter(json!({"sub": "ada@example.org"})).await;
    let took_secs = Time::now().secs - before;
    assert_eq!(entered.status(), 303);
    let (whole, kept) = cookie(&entered, "snap_token").unwrap();
    let (_, age) = whole.split_once("; Max-Age=").unwrap();
    assert!((600 - took_secs..=600).contains(&age.parse::<i64>().unwrap()), "{whole}");
    let shown = client.get(at("/r/default")).header("cookie", &kept).send().await.unwrap();
    assert_eq!(shown.status(), 200);
    assert!(shown.text().await.unwrap().contains("<span>oidc:ada@example.org</span>"));
    for (changed, why) in [
        (
            json!({"repository": "none"}),
            "This token is valid but grants no permission on this server.",
        ),
        (json!({"more": "x".repeat(5_000)}), "This token is too long for a browser cookie."),
        (json!({"exp": 0}), "This token is invalid or has expired."),
    ] {
        let refused = serving.passing(WRONG_TOKEN_DELAY, enter(changed)).await;
        assert_eq!((refused.status().as_u16(), cookie(&refused, "snap_token")), (401, None));
        let text = refused.text().await.unwrap();
        assert!(text.contains(why), "{why}: {text}");
    }
}
