//! Tests of the HTTP API with hand-made requests.

use reqwest::{RequestBuilder, StatusCode};
use snap_core::{base::id::BlobId, store::Epoch};
use snap_remote::wire::headers::{EpochTag, SNAP_EPOCH};
use snap_server::settings::{ServerLimits, ServerSettings};

use crate::place::{Place, Serving, json, refused};

#[tokio::test(flavor = "multi_thread")]
async fn packs_are_published_once_they_are_complete() {
    let (here, there) = (Place::new(), Place::new());
    let first = here.change("a", "first");
    let serving = Serving::of(&there);
    let packs = here.repo.store().packs();
    let (name, outlines) = here.outlines(&packs);
    // Without its packs an index file is refused.
    refused(serving.put(&format!("index/{name}"), outlines), 422, "rejected").await;
    let set = |commit: &str| {
        let body = format!("{{\"commit\": \"{commit}\"}}");
        serving.put("refs/heads/main", body).header("if-none-match", "*")
    };
    let (tree, file) = (here.repo.store().commit(&first).unwrap().tree, BlobId::of(b"first"));
    refused(set(&first.to_string()), 422, "rejected").await;
    let path = format!("packs/{}", packs[0]);
    let sent = serving.put(&path, here.pack_bytes(&packs[0])).send().await.unwrap();
    assert_eq!(sent.status(), StatusCode::CREATED);
    // The staged pack is listed for the client that uploads it, but cannot be read.
    let listed = json(serving.get("packs"), StatusCode::OK).await;
    assert_eq!(listed["packs"][0]["name"], packs[0].to_string());
    refused(serving.get(&path), 404, "not-found").await;
    refused(set(&first.to_string()), 422, "rejected").await;
    assert_eq!(serving.send(&here, &packs).await.status(), StatusCode::CREATED);
    assert_eq!(serving.send(&here, &packs).await.status(), StatusCode::OK, "once more");
    // A ref cannot point at an object that is not a commit.
    for id in [tree.to_string(), file.to_string()] {
        refused(set(&id), 422, "rejected").await;
    }
    assert_eq!(set(&first.to_string()).send().await.unwrap().status(), StatusCode::CREATED);
    let read = serving.get("refs/heads/main").send().await.unwrap();
    assert!(tag_of(&read).starts_with(&format!("\"{first}-0-")), "{}", tag_of(&read));
    let index = json(serving.get("index"), StatusCode::OK).await;
    assert_eq!(index["files"][0]["name"], name);
    let all = serving.get(&path).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(all, here.pack_bytes(&packs[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_supports_range_requests() {
    let place = Place::new();
    place.change("a", "content");
    let serving = Serving::of(&place);
    let id = place.repo.store().packs()[0];
    let bytes = place.pack_bytes(&id);
    let part = |range: &str| serving.get(&format!("packs/{id}")).header("range", range.to_owned());
    let response = part("bytes=4-9").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
    let told = format!("bytes 4-9/{}", bytes.len());
    assert_eq!(response.headers()["content-range"], told.as_str());
    assert_eq!(response.bytes().await.unwrap(), bytes[4..10]);
    let tail = part("bytes=-8").send().await.unwrap().bytes().await.unwrap();
    assert_eq!(tail, bytes[bytes.len() - 8..]);
    refused(part("bytes=99999999-"), 416, "range").await;
    let head = serving.client.head(format!("{}/packs/{id}", serving.base)).send().await.unwrap();
    assert_eq!(head.headers()["content-length"], bytes.len().to_string().as_str());
}

/// Returns the status, `Content-Range`, and the length of the body.
async fn told(request: RequestBuilder) -> (u16, Option<String>, usize) {
    let answer = request.send().await.unwrap();
    let range = answer.headers().get("content-range");
    let range = range.map(|range| range.to_str().unwrap().to_owned());
    (answer.status().as_u16(), range, answer.bytes().await.unwrap().len())
}

#[tokio::test(flavor = "multi_thread")]
async fn range_and_conditional_requests_work_on_all_resources() {
    let place = Place::new();
    let commit = place.change("a", "content");
    let serving = Serving::of(&place);
    let (pack, blob) = (place.repo.store().packs()[0], BlobId::of(b"content"));
    for path in [
        format!("packs/{pack}"),
        format!("objects/{blob}"),
        format!("commits/{commit}/bundle"),
        format!("commits/{commit}/files/a"),
    ] {
        let get = || serving.get(&path);
        let all = get().send().await.unwrap();
        let (tag, kind) = (all.headers()["etag"].clone(), all.headers().get("snap-kind").cloned());
        assert_eq!(all.headers()["accept-ranges"], "bytes", "{path}");
        let length = all.bytes().await.unwrap().len();
        let (of, whole) = (format!("bytes 1-2/{length}"), (200, None, length));
        let part = || get().header("range", "bytes=1-2");
        assert_eq!(told(part()).await, (206, Some(of.clone()), 2), "{path}");
        assert_eq!(told(part().header("if-range", &tag)).await, (206, Some(of), 2), "{path}");
        assert_eq!(told(part().header("if-range", "\"other\"")).await, whole, "{path}");
        let (status, range, _) = told(get().header("range", "bytes=99999999-")).await;
        assert_eq!((status, range), (416, Some(format!("bytes */{length}"))), "{path}");
        assert_eq!(told(part().header("if-none-match", "\"other\"")).await.0, 206, "{path}");
        for known in [get(), part(), get().header("range", "bytes=99999999-")] {
            let known = known.header("if-none-match", &tag).send().await.unwrap();
            assert_eq!((known.status().as_u16(), &known.headers()["etag"]), (304, &tag), "{path}");
            assert!(known.bytes().await.unwrap().is_empty());
        }
        // `Range` applies to `GET` only.
        let head = || serving.client.head(format!("{}/{path}", serving.base));
        for range in ["bytes=1-2", "bytes=99999999-"] {
            let answer = head().header("range", range).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "{path}: {range}");
            let said = answer.headers()["content-length"].to_str().unwrap().parse();
            assert_eq!(said, Ok(length), "{path}");
            let told = (&answer.headers()["etag"], answer.headers().get("snap-kind"));
            assert_eq!(told, (&tag, kind.as_ref()), "{path}");
            assert!(answer.headers().get("content-range").is_none(), "{path}");
        }
        assert_eq!(told(head().header("if-none-match", &tag)).await, (304, None, 0), "{path}");
    }
}

fn tag_of(answer: &reqwest::Response) -> String {
    answer.headers()["etag"].to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ref_of_a_newer_version_is_served_and_not_moved() {
    let place = Place::new();
    let first = place.change("a", "first");
    let second = place.change("a", "second");
    let file = place.store().join("refs/heads/main");
    let newer = format!("{second}\n{}\n7\n", "0".repeat(32));
    fs_err::write(&file, &newer).unwrap();
    let serving = Serving::of(&place);
    let read = serving.get("refs/heads/main").send().await.unwrap();
    assert!(tag_of(&read).starts_with(&format!("\"{second}-7-")), "{}", tag_of(&read));
    let to = serving.put("refs/heads/main", format!("{{\"commit\": \"{first}\"}}"));
    let problem = refused(to.header("if-match", "*"), 422, "rejected").await;
    assert!(problem["detail"].as_str().unwrap().contains("a newer version"), "{problem}");
    assert_eq!(fs_err::read_to_string(&file).unwrap(), newer);
}

#[tokio::test(flavor = "multi_thread")]
async fn if_match_accepts_a_list_of_etags_for_a_ref() {
    let place = Place::new();
    let first = place.change("a", "first");
    let second = place.change("a", "second");
    let serving = Serving::of(&place);
    let to = |commit| serving.put("refs/heads/main", format!("{{\"commit\": \"{commit}\"}}"));
    let tag = |commit| format!("\"{commit}\"");
    let stands = format!("is at {second}");
    // None of these matches. A weak ETag never matches in `If-Match`.
    for tags in
        ["\"what\"".to_owned(), format!("{}, \"what\"", tag(first)), format!("W/{}", tag(second))]
    {
        let problem = refused(to(first).header("if-match", &tags), 412, "conflict").await;
        assert!(problem["detail"].as_str().unwrap().ends_with(&stands), "{tags}: {problem}");
    }
    for nonsense in
        [second.to_string(), format!("*, {}", tag(second)), format!("{} x", tag(second))]
    {
        refused(to(first).header("if-match", nonsense), 400, "invalid").await;
    }
    refused(to(first).header("if-none-match", tag(first)), 400, "invalid").await;
    let one_of = to(first).header("if-match", format!("\"what\" ,{}", tag(second)));
    assert_eq!(one_of.send().await.unwrap().status(), StatusCode::OK);
    let lines = to(second).header("if-match", "\"what\"").header("if-match", tag(first));
    assert_eq!(lines.send().await.unwrap().status(), StatusCode::OK);
    let anywhere = to(first).header("if-match", "*").send().await.unwrap();
    assert_eq!(anywhere.status(), StatusCode::OK);
    let full = tag_of(&anywhere);
    assert!(full.starts_with(&format!("\"{first}-0-")), "{full}");
    // The ref moved away and back. Its commit is the same, but its nonce has changed.
    for (to_one, from) in [(second, &full), (first, &tag(second))] {
        let moved = to(to_one).header("if-match", from).send().await.unwrap();
        assert_eq!(moved.status(), StatusCode::OK);
    }
    refused(to(second).header("if-match", &full), 412, "conflict").await;
    refused(to(second).header("if-match", format!("{full}, \"what\"")), 412, "conflict").await;
    let other_epoch = full.replacen("-0-", "-1-", 1);
    refused(to(second).header("if-match", other_epoch), 412, "conflict").await;
    let known = serving.get("refs/heads/main").header("if-none-match", &full);
    assert_eq!(known.send().await.unwrap().status(), StatusCode::OK, "the nonce has changed");
    let gone = || {
        let delete = serving.client.delete(format!("{}/refs/heads/main", serving.base));
        delete.header("if-match", "*")
    };
    assert_eq!(gone().send().await.unwrap().status(), StatusCode::NO_CONTENT);
    let problem = refused(gone(), 412, "conflict").await;
    assert!(problem["detail"].as_str().unwrap().ends_with("does not exist"), "{problem}");
    refused(to(first).header("if-match", "*"), 412, "conflict").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_reports_its_limits() {
    let place = Place::new();
    let limits = ServerLimits {
        upload_bytes: 1,
        bundle_bytes: 2,
        missing_ids: 3,
        ..ServerLimits::default()
    };
    let serving = Serving::start(&place, ServerSettings { limits, ..ServerSettings::default() });
    let server = serving.client.get(format!("{}/v1", serving.origin()));
    let told = json(server, StatusCode::OK).await;
    let limits = serde_json::json!({ "pack_bytes": 1, "bundle_bytes": 2, "missing_ids": 3 });
    assert_eq!(told["limits"], limits);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ref_moves_only_under_a_matching_condition() {
    let place = Place::new();
    let first = place.change("a", "first");
    let second = place.change("a", "second");
    let serving = Serving::of(&place);
    let body = |commit| format!("{{\"commit\": \"{commit}\"}}");
    let to = |commit| serving.put("refs/heads/main", body(commit));
    let tag = |commit| format!("\"{commit}\"");
    refused(to(first), 428, "no-condition").await;
    refused(to(first).header("if-match", tag(first)), 412, "conflict").await;
    refused(to(first).header("if-none-match", "*"), 412, "conflict").await;
    refused(to(first).header("if-match", "\"what\""), 412, "conflict").await;
    let moved = to(first).header("if-match", tag(second)).send().await.unwrap();
    assert_eq!(moved.status(), StatusCode::OK);
    let blind = serving.client.delete(format!("{}/refs/heads/none", serving.base));
    refused(blind.header("if-none-match", "*"), 428, "no-condition").await;
    let gone = || serving.client.delete(format!("{}/refs/heads/main", serving.base));
    refused(gone().header("if-match", tag(second)), 412, "conflict").await;
    assert_eq!(gone().header("if-match", tag(first)).send().await.unwrap().status(), 204);
    refused(serving.get("refs/heads/main"), 404, "not-found").await;
    for name in ["refs/heads/..", "refs/remotes/origin/main", "refs/heads/a%2F..%2Fb", "refs/x"] {
        let refusal = serving.get(name).send().await.unwrap();
        assert!(refusal.status().is_client_error(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_served_and_missing_ones_listed() {
    let place = Place::new();
    place.change("a", "content");
    let serving = Serving::of(&place);
    let there = BlobId::of(b"content");
    let missing = BlobId::of(b"something else");
    let read = serving.get(&format!("objects/{there}")).send().await.unwrap();
    assert_eq!(read.headers()["snap-kind"], "blob");
    assert_eq!(read.bytes().await.unwrap(), &b"content"[..]);
    refused(serving.get(&format!("objects/{missing}")), 404, "not-found").await;
    refused(serving.get("objects/zz"), 400, "invalid").await;
    let ask = || serving.client.post(format!("{}/missing", serving.base));
    let ids = [there.as_bytes().as_slice(), missing.as_bytes().as_slice()].concat();
    let answer = ask().body(ids.clone()).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(answer, missing.as_bytes().as_slice());
    refused(ask().body(ids[..40].to_vec()), 400, "invalid").await;
    let question = format!("{{\"ids\": [\"{there}\", \"{missing}\"]}}");
    let question = ask().header("content-type", "application/json").body(question);
    let answer = json(question, StatusCode::OK).await;
    assert_eq!(answer["missing"], serde_json::json!([missing.to_string()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_refs_get_304() {
    let place = Place::new();
    place.change("a", "first");
    let serving = Serving::of(&place);
    for path in ["refs", "refs/heads/main"] {
        let ask = async |tag: Option<String>| {
            let tags = tag.into_iter();
            let asked = tags.fold(serving.get(path), |get, tag| get.header("if-none-match", tag));
            let answer = asked.send().await.unwrap();
            let tag = answer.headers()["etag"].to_str().unwrap().to_owned();
            (answer.status().as_u16(), tag, answer.bytes().await.unwrap().len())
        };
        let (status, tag, bytes) = ask(None).await;
        assert!(status == 200 && bytes > 0, "{path}");
        assert_eq!(ask(Some(tag.clone())).await, (304, tag.clone(), 0), "{path}");
        place.change("a", format!("other, for {path}"));
        let (status, moved, _) = ask(Some(tag.clone())).await;
        assert!(status == 200 && moved != tag, "{path}");
    }
    // The ETag of the list covers `HEAD` as well.
    let tag = serving.get("refs").send().await.unwrap().headers()["etag"].clone();
    let head = place.store().join("HEAD");
    let text = fs_err::read_to_string(&head).unwrap();
    fs_err::write(&head, text.replace("main", "other")).unwrap();
    let asked = serving.get("refs").header("if-none-match", tag).send().await.unwrap();
    assert_eq!(asked.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_response_names_the_epoch_of_the_store() {
    let place = Place::new();
    let commit = place.change("a", "content");
    let serving = Serving::of(&place);
    let named = async |request: RequestBuilder| {
        let answer = request.send().await.unwrap();
        let epoch = answer.headers().get(SNAP_EPOCH);
        epoch.map(|epoch| epoch.to_str().unwrap().to_owned())
    };
    let first = EpochTag::of(&Epoch::read(&place.store()).unwrap()).unwrap().to_string();
    assert!(first.starts_with("0-"), "{first}");
    let of_server = |path: &str| serving.client.get(format!("{}{path}", serving.origin()));
    for (request, epoch) in [
        (serving.get("config"), Some(&first)),
        (serving.get("refs/heads/none"), Some(&first)),
        (serving.get(&format!("commits/{commit}/files/a")), Some(&first)),
        (serving.put("packs/5f", "what"), Some(&first)),
        (of_server("/v1"), None),
        (of_server("/v1/repos"), None),
        (of_server("/v1/repos/none/refs"), None),
    ] {
        assert_eq!(named(request).await.as_ref(), epoch);
    }
    // The server accepts each epoch that a server can have sent.
    for epoch in [first.clone(), format!("7-{}", "5f".repeat(16))] {
        let known = serving.get("refs").header(SNAP_EPOCH, epoch).send().await.unwrap();
        assert_eq!(known.status(), StatusCode::OK);
    }
    for (method, path) in [("GET", "config"), ("PUT", "packs/5f"), ("POST", "bundles")] {
        for wrong in ["", "7", "0-5f", "\"0\"", &first.to_uppercase().replace('-', "--")] {
            let method = method.parse().unwrap();
            let request = serving.client.request(method, format!("{}/{path}", serving.base));
            let problem = refused(request.header(SNAP_EPOCH, wrong), 400, "invalid").await;
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("`snap-epoch`"), "{path} {wrong}: {detail}");
        }
        let twice = serving.get(path).header(SNAP_EPOCH, &first).header(SNAP_EPOCH, &first);
        refused(twice, 400, "invalid").await;
    }
}
