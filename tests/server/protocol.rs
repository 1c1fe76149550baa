//! What the protocol says, done by hand.

use reqwest::StatusCode;
use snap_core::base::id::BlobId;

use crate::place::{Place, Serving, json, refused};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_counts_once_all_of_it_is_there() {
    let (here, there) = (Place::new(), Place::new());
    let first = here.change("a", "first");
    let serving = Serving::of(&there);
    let packs = here.repo.store().packs();
    let (name, outlines) = here.outlines(&packs);
    // Before the packs are there nothing can count.
    refused(serving.put(&format!("index/{name}"), outlines), 422, "rejected").await;
    let set = |commit: &str| {
        let body = format!("{{\"commit\": \"{commit}\"}}");
        serving.put("refs/heads/main", body).header("if-none-match", "*")
    };
    refused(set(&first.to_string()), 422, "rejected").await;
    let path = format!("packs/{}", packs[0]);
    let sent = serving.put(&path, here.pack_bytes(&packs[0])).send().await.unwrap();
    assert_eq!(sent.status(), StatusCode::CREATED);
    // It is there for those who go on sending, and for nobody else.
    let listed = json(serving.get("packs"), StatusCode::OK).await;
    assert_eq!(listed["packs"][0]["name"], packs[0].to_string());
    refused(serving.get(&path), 404, "not-found").await;
    refused(set(&first.to_string()), 422, "rejected").await;
    assert_eq!(serving.send(&here, &packs).await.status(), StatusCode::CREATED);
    assert_eq!(serving.send(&here, &packs).await.status(), StatusCode::OK, "once more");
    assert_eq!(set(&first.to_string()).send().await.unwrap().status(), StatusCode::CREATED);
    let read = serving.get("refs/heads/main").send().await.unwrap();
    assert_eq!(read.headers()["etag"], format!("\"{first}\"").as_str());
    let index = json(serving.get("index"), StatusCode::OK).await;
    assert_eq!(index["files"][0]["name"], name);
    let all = serving.get(&path).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(all, here.pack_bytes(&packs[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_is_read_in_parts() {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_ref_moves_from_where_it_stands_and_from_nowhere_else() {
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
async fn objects_are_read_and_missing_ones_are_told() {
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
async fn refs_that_have_not_moved_cost_little() {
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
    // Where `HEAD` leads is told with them.
    let tag = serving.get("refs").send().await.unwrap().headers()["etag"].clone();
    let head = place.store().join("HEAD");
    let text = fs_err::read_to_string(&head).unwrap();
    fs_err::write(&head, text.replace("main", "other")).unwrap();
    let asked = serving.get("refs").header("if-none-match", tag).send().await.unwrap();
    assert_eq!(asked.status(), StatusCode::OK);
}
