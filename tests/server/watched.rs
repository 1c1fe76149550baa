//! Tests of monitoring and limits: request ids, metrics, the audit log, rate limits,
//! quotas.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use futures::{StreamExt, stream};
use reqwest::{Body, RequestBuilder, StatusCode};
use serde_json::Value;
use snap_core::base::id::{BlobId, PackId};
use snap_server::{
    access::principal::Right,
    settings::{LogSettings, Quota, ServerLimits, ServerSettings},
};

use crate::{
    place::{Place, Serving, eventually, json, refused, within_guard},
    tokens::{status, token},
    upstream::{pack, relay},
};

/// Fetches the metrics until they fit. A response is counted only after its last byte
/// is sent.
pub(crate) async fn metrics(
    serving: &Serving,
    secret: &str,
    fits: impl Fn(&str) -> bool,
) -> String {
    let asked = async || {
        let asked = serving.client.get(format!("{}/metrics", serving.origin()));
        // A refused connection has no response.
        let text = asked.bearer_auth(secret).send().await.ok()?.text().await.unwrap();
        fits(&text).then_some(text)
    };
    eventually("the metrics do not fit", asked).await
}

/// Returns the value of a metric with its labels.
pub(crate) fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_response_has_a_request_id() {
    let place = Place::new();
    let serving = Serving::of(&place);
    let said = serving.get("refs").header("x-request-id", "mine-1").send().await.unwrap();
    assert_eq!(said.headers()["x-request-id"], "mine-1");
    let made = serving.get("refs").header("x-request-id", "a b\"").send().await.unwrap();
    assert_eq!(made.headers()["x-request-id"].len(), 16);
    assert!(made.headers().contains_key("content-length"));
    let lost = serving.client.get(format!("{}/nothing", serving.origin())).send().await.unwrap();
    assert_eq!(lost.headers()["x-request-id"].len(), 16);
    // Input that is not HTTP gets a bare `400`, without an id.
    let mut stream = TcpStream::connect(serving.origin().trim_start_matches("http://")).unwrap();
    stream.write_all(b"what\r\n\r\n").unwrap();
    let mut bare = String::new();
    stream.read_to_string(&mut bare).unwrap();
    assert!(bare.starts_with("HTTP/1.1 400 ") && bare.ends_with("\r\n\r\n"), "{bare}");
    assert!(!bare.to_ascii_lowercase().contains("x-request-id"), "{bare}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_requests_and_bytes() {
    let place = Place::new();
    let commit = place.change("a", "content");
    let read = token(&place, "ada", Right::Read, Some("default"));
    let all = token(&place, "prometheus", Right::Read, None);
    let serving = Serving::of(&place);
    let pack = place.repo.store().packs()[0];
    for _ in 0..3 {
        let got = serving.get(&format!("packs/{pack}")).bearer_auth(&read).send().await.unwrap();
        assert_eq!(got.bytes().await.unwrap().len(), place.pack_bytes(&pack).len());
    }
    for _ in 0..3 {
        let file = serving.get(&format!("commits/{commit}/files/a")).bearer_auth(&read);
        assert_eq!(status(file).await, 200);
    }
    let asked = || serving.client.get(format!("{}/metrics", serving.origin()));
    refused(asked(), 401, "unauthorized").await;
    refused(asked().bearer_auth(&read), 403, "forbidden").await;
    let missing = serving.client.post(format!("{}/missing", serving.base)).bearer_auth(&read);
    assert_eq!(status(missing.body(vec![0; 64])).await, 200);
    let counted =
        "snap_requests_total{method=\"GET\",route=\"/v1/repos/*/packs/*\",status=\"200\"} 3";
    let bytes = place.pack_bytes(&pack).len();
    let lines = [
        counted,
        "snap_cache_lookups_total{cache=\"files\",outcome=\"hit\"} 2",
        "snap_cache_lookups_total{cache=\"files\",outcome=\"miss\"} 1",
        "snap_requests_in_flight 1",
        "snap_uploads_in_flight 0",
        "snap_received_bytes_total 64",
        "snap_refused_connections_total 0",
        "snap_store_packs{repository=\"default\"} 1",
        &format!("snap_store_bytes{{repository=\"default\"}} {bytes}"),
        "snap_request_seconds_bucket{le=\"0.001\",route=\"/metrics\"}",
        "# EOF",
    ];
    // A request is counted a little after its response has arrived.
    metrics(&serving, &all, |text| {
        let sent = number(text, "snap_sent_bytes_total").unwrap();
        let is_sent = sent >= 3 * (bytes + "content".len()) as u64;
        is_sent && lines.iter().all(|line| text.contains(line))
    })
    .await;
    let origin = serving.origin();
    let ready = serving.client.get(format!("{origin}/ready")).send().await.unwrap();
    assert_eq!(ready.status(), 200);
    let left = fs_err::read_dir(place.store()).unwrap();
    assert!(!left.flatten().any(|entry| entry.file_name().to_string_lossy().contains("ready")));
    fs_err::rename(place.store(), place.folder.path().join("away")).unwrap();
    // The server remembers for a second that it was ready.
    assert_eq!(status(serving.client.get(format!("{origin}/ready"))).await, 200);
    serving.clock.advance(Duration::from_secs(1));
    refused(serving.client.get(format!("{origin}/ready")), 503, "unavailable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_uploads_in_progress() {
    let place = Place::new();
    let serving = Serving::of(&place);
    let (begun, never) = (futures::stream::iter([Ok("SNAP")]), futures::stream::pending());
    let body =
        reqwest::Body::wrap_stream(begun.chain(never).map(|piece: std::io::Result<_>| piece));
    let put = serving.put(&format!("packs/{}", "5f".repeat(32)), body);
    let coming = tokio::spawn(put.send());
    let under_way = |text: &str| number(text, "snap_uploads_in_flight");
    let text = metrics(&serving, "", |text| under_way(text) == Some(1)).await;
    assert!(number(&text, "snap_requests_in_flight") >= Some(2), "{text}");
    coming.abort();
    metrics(&serving, "", |text| under_way(text) == Some(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_connections_are_counted() {
    let place = Place::new();
    let limits = ServerLimits { connections: 1, ..ServerLimits::default() };
    let serving = Serving::start(&place, ServerSettings { limits, ..ServerSettings::default() });
    let refused = |text: &str| number(text, "snap_refused_connections_total");
    metrics(&serving, "", |text| refused(text) == Some(0)).await;
    // The client keeps the only allowed connection open.
    let address = serving.origin().trim_start_matches("http://").to_owned();
    let mut other = TcpStream::connect(address).unwrap();
    assert_eq!(other.read(&mut [0; 9]).unwrap_or_default(), 0, "the connection was not closed");
    metrics(&serving, "", |text| refused(text) > Some(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_cache_lookups_of_a_relay() {
    let (place, folder) = (Place::new(), tempfile::tempdir().unwrap());
    let commit = place.change("a", "content");
    let server = Serving::of(&place);
    let relayed = relay(server.origin(), folder.path());
    let looked = |text: &str, cache: &str| {
        ["hit", "miss"].map(|outcome| {
            let labels = format!("{{cache=\"{cache}\",outcome=\"{outcome}\"}}");
            number(text, &format!("snap_cache_lookups_total{labels}")).unwrap_or_default()
        })
    };
    // Each request for an object reads its frame again.
    let blob = format!("objects/{}", BlobId::of(b"content"));
    assert_eq!(status(relayed.get("commits/main/files/a")).await, 200);
    let first = looked(&metrics(&relayed, "", |_| true).await, "frames");
    assert!(first[1] > 0, "{first:?}");
    assert_eq!(status(relayed.get(&blob)).await, 200);
    let text = metrics(&relayed, "", |_| true).await;
    let second = looked(&text, "frames");
    assert!(second[0] > first[0] && second[1] == first[1], "{first:?} {second:?}");
    assert_eq!(looked(&text, "packs"), [0, 0]);
    for id in place.repo.store().packs() {
        for _ in 0..3 {
            assert_eq!(pack(&relayed, &id).await, place.pack_bytes(&id));
        }
    }
    let text = metrics(&relayed, "", |_| true).await;
    assert_eq!(looked(&text, "packs"), [2, 1], "of {commit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_names_the_client_of_each_write() {
    let (here, there) = (Place::new(), Place::new());
    let first = here.change("a", "first");
    let write = token(&there, "ada", Right::Write, None);
    let read = token(&there, "bob", Right::Read, None);
    let audit = there.folder.path().join("audit.jsonl");
    let log = LogSettings { audit: Some(audit.clone()), ..LogSettings::default() };
    let serving = Serving::start(&there, ServerSettings { log, ..ServerSettings::default() });
    let pack = here.repo.store().packs()[0];
    let send = |secret: &str| {
        serving.put(&format!("packs/{pack}"), here.pack_bytes(&pack)).bearer_auth(secret)
    };
    refused(send(&read), 403, "forbidden").await;
    assert_eq!(send(&write).send().await.unwrap().status(), 201);
    let (name, outlines) = here.outlines(&[pack]);
    let publish = serving.put(&format!("index/{name}"), outlines).bearer_auth(&write);
    assert_eq!(publish.send().await.unwrap().status(), 201);
    let body = format!("{{\"commit\": \"{first}\"}}");
    // A ref name with a line break must not forge a log line.
    let odd = serving.put("refs/heads/a%0A%7B%22who%22:1%7D", body.clone()).bearer_auth(&write);
    assert_eq!(odd.header("if-none-match", "*").send().await.unwrap().status(), 400);
    let set = serving.put("refs/heads/main", body).header("if-none-match", "*");
    let set = set.header("x-request-id", "push-7").bearer_auth(&write).send().await.unwrap();
    assert_eq!(set.status(), 201);
    json(serving.get("refs").bearer_auth(&read), StatusCode::OK).await;
    let text = fs_err::read_to_string(&audit).unwrap();
    assert!(!text.contains(&write) && !text.contains(&read), "the log contains a token");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap().to_owned();
            (text("who"), text("what"), line["status"].as_u64().unwrap())
        })
        .collect();
    let line = |who: &str, what: &str, status| (who.to_owned(), what.to_owned(), status);
    let wanted = [
        line("bob", "pack", 403),
        line("ada", "pack", 201),
        line("ada", "index", 201),
        line("ada", "ref", 400),
        line("ada", "ref", 201),
    ];
    assert_eq!(seen, wanted);
    let last = lines.last().unwrap();
    assert_eq!((&last["request"], &last["name"]), (&"push-7".into(), &"heads/main".into()));
    assert_eq!((&last["old"], &last["new"]), (&Value::Null, &first.to_string().into()));
    assert_eq!(last["address"], "127.0.0.1");
    // With `If-Match: *` the log names the commit that the ref was at.
    let gone = serving.client.delete(format!("{}/refs/heads/main", serving.base));
    let gone = gone.header("if-match", "*").bearer_auth(&write);
    assert_eq!(status(gone).await, 204);
    let text = fs_err::read_to_string(&audit).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&last["old"], &last["new"]), (&first.to_string().into(), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_uploads_above_the_rate_wait_or_are_refused() {
    let (here, there) = (Place::new(), Place::new());
    here.change("a", noise(40_000));
    let limits = ServerLimits {
        requests_per_sec: 5,
        upload_bytes_per_sec: 20_000,
        ..ServerLimits::default()
    };
    let serving = Serving::start(&there, ServerSettings { limits, ..ServerSettings::default() });
    let pack = here.repo.store().packs()[0];
    let began = serving.clock.now();
    let bytes = here.pack_bytes(&pack);
    let length = bytes.len();
    assert!(length > 40_000);
    let sent = serving.put(&format!("packs/{pack}"), bytes).send();
    // The bytes pass in pieces of at most a quarter of what may come in a second.
    let quarter = Duration::from_millis(250);
    let sent = serving.passing(quarter, sent).await.unwrap();
    assert_eq!(sent.status(), 201, "the upload was refused");
    let took = serving.clock.elapsed(began);
    let all = Duration::from_secs_f64(length as f64 / 20_000.0);
    // The times of the pieces are rounded.
    let rounding = Duration::from_micros(1);
    assert!(took + rounding >= all - quarter && took < all, "{took:?}");
    let asked = futures::future::join_all((0..20).map(|_| serving.get("refs").send())).await;
    let refused: Vec<_> =
        asked.into_iter().map(Result::unwrap).filter(|answer| answer.status() == 429).collect();
    assert_eq!(refused.len(), 15);
    assert_eq!(refused[0].headers()["retry-after"], "1");
    let health = serving.client.get(format!("{}/health", serving.origin()));
    assert_eq!(health.send().await.unwrap().status(), 200, "the rate limit applies to `/health`");
}

/// Returns bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

/// Two clients with different tokens and the same address, and a server with these
/// limits.
struct Two {
    here: Place,
    there: Place,
    serving: Serving,
    pack: PackId,
    ada: String,
    bob: String,
}

impl Two {
    fn new(limits: impl FnOnce(usize) -> ServerLimits) -> Self {
        let (here, there) = (Place::new(), Place::new());
        here.change("a", "content");
        let pack = here.repo.store().packs()[0];
        let [ada, bob] = ["ada", "bob"].map(|name| token(&there, name, Right::Append, None));
        let limits = limits(here.pack_bytes(&pack).len());
        let serving =
            Serving::start(&there, ServerSettings { limits, ..ServerSettings::default() });
        Self { here, there, serving, pack, ada, bob }
    }

    fn send(&self, secret: &str, body: impl Into<Body>) -> RequestBuilder {
        self.serving.put(&format!("packs/{}", self.pack), body).bearer_auth(secret)
    }

    /// Sends requests that have a body but are not uploads.
    async fn ask(&self, secret: &str) {
        let post = |path: &str, body: Vec<u8>| {
            let post = self.serving.client.post(format!("{}/{path}", self.serving.base));
            status(post.bearer_auth(secret).body(body))
        };
        assert_eq!(post("missing", vec![0; 32]).await, 200);
        assert_eq!(post("commits/main/bundle", b"{}".to_vec()).await, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_token_has_its_own_request_rate() {
    let two = Two::new(|_| ServerLimits { requests_per_sec: 1, ..ServerLimits::default() });
    let ask = |secret: &str| status(two.serving.get("refs").bearer_auth(secret));
    let asked = futures::future::join_all((0..20).map(|_| ask(&two.ada))).await;
    assert_eq!(asked.iter().filter(|status| **status == 429).count(), 19, "{asked:?}");
    assert_eq!(ask(&two.bob).await, 200);
    two.serving.clock.advance(Duration::from_secs(1));
    assert_eq!(ask(&two.ada).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_token_has_its_own_upload_limit() {
    let two = Two::new(|_| ServerLimits { uploads: 1, ..ServerLimits::default() });
    let bytes = two.here.pack_bytes(&two.pack);
    let first = stream::iter([Ok::<_, std::io::Error>(bytes[..8].to_vec())]);
    let body = Body::wrap_stream(first.chain(stream::pending()));
    let coming = tokio::spawn(two.send(&two.ada, body).send());
    let has_come = async || {
        let staged = fs_err::read_dir(two.there.staged());
        staged.is_ok_and(|all| all.count() > 0).then_some(())
    };
    eventually("nothing comes", has_come).await;
    refused(two.send(&two.ada, "x"), 429, "slow-down").await;
    two.ask(&two.ada).await;
    assert_eq!(status(two.send(&two.bob, bytes)).await, 201);
    assert!(!coming.is_finished());
    coming.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_token_has_its_own_upload_rate() {
    // The rate allows one pack every quarter of a second.
    let rate = |bytes: usize| ServerLimits {
        upload_bytes_per_sec: 4 * bytes as u64,
        ..ServerLimits::default()
    };
    let two = Two::new(rate);
    let bytes = two.here.pack_bytes(&two.pack);
    let wrong = || tokio::spawn(two.send(&two.ada, vec![0; bytes.len()]).send());
    let many: Vec<_> = (0..60).map(|_| wrong()).collect();
    // The clock stands still, so the first pack passes, and the others of this token wait.
    let first = within_guard(futures::future::select_all(many), "no pack passes");
    let (first, _, rest) = first.await;
    assert_eq!(first.unwrap().unwrap().status(), 422);
    // If all tokens shared one queue, this upload would wait for all others.
    assert_eq!(status(two.send(&two.bob, bytes.clone())).await, 201);
    two.ask(&two.ada).await;
    assert!(rest.iter().all(|one| !one.is_finished()));
    rest.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_above_the_quota_are_refused() {
    let (here, there) = (Place::new(), Place::new());
    here.change("a", noise(40_000));
    let pack = here.repo.store().packs()[0];
    let bytes = here.pack_bytes(&pack);
    let quota = |most: u64| Quota {
        default_bytes: Some(1),
        repositories: [("default".to_owned(), most)].into(),
    };
    let start = |most| {
        Serving::start(&there, ServerSettings { quota: quota(most), ..ServerSettings::default() })
    };
    let path = format!("packs/{pack}");
    let serving = start(bytes.len() as u64 - 1);
    refused(serving.put(&path, bytes.clone()), 507, "full").await;
    // Without `Content-Length` the server notices on the way.
    let pieces: Vec<std::io::Result<Vec<u8>>> =
        bytes.chunks(1000).map(|piece| Ok(piece.to_vec())).collect();
    let stream = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
    let problem = refused(serving.put(&path, stream), 507, "full").await;
    assert!(
        problem["detail"].as_str().unwrap().contains("the upload exceeds the quota of `default`"),
        "{problem}"
    );
    let serving = start(bytes.len() as u64);
    assert_eq!(serving.put(&path, bytes).send().await.unwrap().status(), 201);
    here.change("b", noise(10_000));
    let other = here.repo.store().packs().into_iter().find(|id| *id != pack).unwrap();
    refused(serving.put(&format!("packs/{other}"), here.pack_bytes(&other)), 507, "full").await;
    // The quota also holds for objects and index files.
    let blob = noise(1000);
    let id = blake3::hash(&blob).to_hex();
    let object = serving.put(&format!("objects/{id}"), blob).header("snap-kind", "blob");
    refused(object, 507, "full").await;
    let (name, outlines) = here.outlines(&[other]);
    refused(serving.put(&format!("index/{name}.part"), outlines), 507, "full").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_and_logs_count_towards_the_quota_and_refs_are_limited() {
    const QUOTA: u64 = 200_000;
    let place = Place::new();
    let id = place.change("a", "first");
    let quota = Quota { default_bytes: Some(QUOTA), ..Quota::default() };
    let serving = Serving::start(&place, ServerSettings { quota, ..ServerSettings::default() });
    let body = format!("{{\"commit\": \"{id}\"}}");
    let part = "x".repeat(190);
    let tag = |serving: &Serving, number: u32| {
        let name = format!("refs/tags/{number}-{part}");
        serving.put(&name, body.clone()).header("if-none-match", "*")
    };
    let mut made = 0;
    let refused_at = loop {
        let answer = tag(&serving, made).send().await.unwrap();
        match answer.status().as_u16() {
            201 => made += 1,
            status => break status,
        }
        assert!(made < 400, "400 tags with long names fit into {QUOTA} bytes");
    };
    assert_eq!(refused_at, 507);
    assert!(made > 50, "{made}");
    let used = place.repo.refs().bytes().unwrap();
    assert!(used < QUOTA, "{used}");
    // The number of refs is limited as well.
    let limits = ServerLimits { refs: made as usize, ..ServerLimits::default() };
    let serving = Serving::start(&place, ServerSettings { limits, ..ServerSettings::default() });
    let told = refused(tag(&serving, 1000), 507, "full").await;
    assert!(told["detail"].as_str().unwrap().contains("`limits.refs`"), "{told}");
}
