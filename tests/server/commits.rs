//! Tests of commits, trees, archives and history.

use std::os::unix::ffi::OsStrExt;

use reqwest::StatusCode;
use serde_json::Value;
use snap_core::base::id::BlobId;

use crate::place::{Place, Serving, json, refused};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_and_its_tree_are_served_as_json() {
    let place = Place::new();
    let files = place.folder.path().join("files");
    fs_err::create_dir(files.join("sub")).unwrap();
    fs_err::os::unix::fs::symlink("sub/a", files.join("link")).unwrap();
    fs_err::write(files.join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
    let id = place.change("sub/a", "content");
    let serving = Serving::of(&place);
    let commit = json(serving.get(&format!("commits/{id}")), StatusCode::OK).await;
    assert_eq!(commit["id"], id.to_string());
    assert_eq!((&commit["author"], &commit["files"]), (&"ada".into(), &2.into()));
    let tree = json(serving.get("commits/main/tree"), StatusCode::OK).await;
    let entries = tree["entries"].as_array().unwrap().clone();
    let paths: Vec<&str> = entries.iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["link", "sub", "sub/a", "\u{fffd}"]);
    assert_eq!((&entries[0]["kind"], &entries[0]["target"]), (&"symlink".into(), &"sub/a".into()));
    assert_eq!(entries[2]["id"], BlobId::of(b"content").to_string());
    assert_eq!((&entries[2]["size"], &entries[3]["path_hex"]), (&7.into(), &"ff".into()));
    let shallow = json(serving.get("commits/main/tree?recursive=false"), StatusCode::OK).await;
    assert_eq!(shallow["entries"].as_array().unwrap().len(), 3);
    for path in ["sub", "sub/a"] {
        let below = json(serving.get(&format!("commits/main/tree/{path}")), StatusCode::OK).await;
        assert_eq!(below["entries"].as_array().unwrap().len(), 1);
        assert_eq!(below["entries"][0]["path"], "sub/a");
    }
    refused(serving.get("commits/main/tree/none"), 404, "not-found").await;
    refused(serving.get("commits/main/tree?recursive=7"), 400, "invalid").await;
    let tree = serving.get(&format!("commits/{id}/tree")).send().await.unwrap();
    let tag = tree.headers()["etag"].clone();
    let known = serving.get("commits/main/tree").header("if-none-match", tag).send().await.unwrap();
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(known.headers()["snap-commit"], id.to_string().as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_of_unknown_length_have_no_content_length() {
    let place = Place::new();
    let id = place.change("a", "content");
    let serving = Serving::of(&place);
    for what in ["tree", "archive.tar", "archive.tar.zst", "archive.zip"] {
        let url = format!("{}/commits/{id}/{what}", serving.base);
        let told = serving.client.head(&url).send().await.unwrap();
        assert_eq!(told.status(), StatusCode::OK, "{what}");
        assert!(!told.headers().contains_key("content-length"), "{what}: {:?}", told.headers());
        let tag = told.headers()["etag"].clone();
        let known = serving.client.get(&url).header("if-none-match", tag).send().await.unwrap();
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED, "{what}");
        assert!(!known.headers().contains_key("content-length"), "{what}: {:?}", known.headers());
    }
    // The size of a file is known, so its `HEAD` response has a length.
    let told = serving.client.head(format!("{}/commits/{id}/files/a", serving.base));
    assert_eq!(told.send().await.unwrap().headers()["content-length"], "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_are_reproducible() {
    let place = Place::new();
    fs_err::create_dir(place.folder.path().join("files/sub")).unwrap();
    place.change("top", "not in the folder");
    let id = place.change("sub/a", "content");
    let serving = Serving::of(&place);
    let get = async |what: &str| {
        let answer = serving.get(&format!("commits/{id}/{what}")).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{what}");
        let headers = answer.headers().clone();
        (headers, answer.bytes().await.unwrap())
    };
    for (ending, kind) in
        [("tar", "application/x-tar"), ("tar.zst", "application/zstd"), ("zip", "application/zip")]
    {
        let (headers, bytes) = get(&format!("archive.{ending}")).await;
        assert_eq!(headers["content-type"], kind);
        let name = format!("attachment; filename=\"{id:.12}.{ending}\"");
        assert_eq!(headers["content-disposition"], name.as_str());
        let (again, same) = get(&format!("archive.{ending}")).await;
        assert_eq!((&bytes, &headers["etag"]), (&same, &again["etag"]));
        let known = serving.get(&format!("commits/{id}/archive.{ending}"));
        let known = known.header("if-none-match", headers["etag"].clone()).send().await.unwrap();
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        let (part, bytes) = get(&format!("archive.{ending}?path=sub")).await;
        assert_ne!(part["etag"], headers["etag"]);
        let name = format!("attachment; filename=\"sub.{ending}\"");
        assert_eq!(part["content-disposition"], name.as_str());
        if ending == "tar.zst" {
            assert_eq!(bytes[..4], [0x28, 0xb5, 0x2f, 0xfd]);
            continue;
        }
        let has = |name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
        assert!(!has(b"top") && has(b"a"), "{ending}");
    }
    refused(serving.get(&format!("commits/{id}/archive.tar?path=none")), 404, "not-found").await;
    refused(serving.get(&format!("commits/{id}/archive.rar")), 404, "no-route").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_contains_no_symlink_named_snap() {
    let place = Place::new();
    let sub = place.folder.path().join("files/sub");
    fs_err::create_dir(&sub).unwrap();
    fs_err::os::unix::fs::symlink("../nowhere/.snap", sub.join(".snap")).unwrap();
    let id = place.change("sub/a", "content");
    let serving = Serving::of(&place);
    for what in ["archive.tar", "archive.zip", "archive.tar?path=sub", "archive.tar?path=sub/.snap"]
    {
        let answer = serving.get(&format!("commits/{id}/{what}")).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{what}");
        let bytes = answer.bytes().await.unwrap();
        assert!(!bytes.windows(5).any(|window| window == b".snap"), "{what}");
    }
}

/// Fetches all pages of a list, with three entries each.
async fn pages(serving: &Serving, path: &str, list: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    for _ in 0..100 {
        let page = json(serving.get(&format!("{path}&limit=3{cursor}")), StatusCode::OK).await;
        let some = page[list].as_array().unwrap();
        assert!((1..=3).contains(&some.len()));
        all.extend_from_slice(some);
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
    panic!("the pages have no end");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_list_join_without_gaps() {
    let place = Place::new();
    let ids: Vec<_> = (0..7).map(|n| place.change(&format!("f{n}"), n.to_string())).collect();
    let serving = Serving::of(&place);
    let log = pages(&serving, "log?ref=main", "commits").await;
    let told: Vec<&str> = log.iter().map(|commit| commit["id"].as_str().unwrap()).collect();
    let newest_first: Vec<String> = ids.iter().rev().map(ToString::to_string).collect();
    assert_eq!(told, newest_first);
    let of_path = pages(&serving, "log?path=f3", "commits").await;
    assert_eq!((of_path.len(), &of_path[0]["id"]), (1, &ids[3].to_string().into()));
    let changes = pages(&serving, &format!("diff?from={}&to=main", ids[0]), "changes").await;
    let paths: Vec<&str> = changes.iter().map(|change| change["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["f1", "f2", "f3", "f4", "f5", "f6"]);
    assert!(changes.iter().all(|change| change["status"] == "added" && change["old"].is_null()));
    let parent = json(serving.get("diff?to=main"), StatusCode::OK).await;
    assert_eq!(parent["changes"].as_array().unwrap().len(), 1);
    let found = pages(&serving, "find?pattern=f*", "found").await;
    assert_eq!(found.len(), 7);
    assert_eq!(found[2]["versions"][0]["ranges"][0]["first"]["id"], ids[2].to_string());
    let stats = json(serving.get("stats?limit=2"), StatusCode::OK).await;
    assert_eq!(
        (&stats["store"]["commits"], &stats["commits"][0]["changed_files"]),
        (&7.into(), &1.into())
    );
    for (path, status, code) in [
        ("log?limit=0", 400, "invalid"),
        ("log?limit=100000", 400, "invalid"),
        ("log?cursor=x", 400, "invalid"),
        ("log?ref=none", 404, "not-found"),
        ("log?path=none", 404, "not-found"),
        ("log?what=1", 400, "invalid"),
        ("diff", 400, "invalid"),
        ("diff?to=none", 404, "not-found"),
        ("find?pattern=[", 400, "invalid"),
        ("find", 400, "invalid"),
        ("stats?ref=none", 404, "not-found"),
    ] {
        refused(serving.get(path), status, code).await;
    }
    let first = format!("diff?to={}", ids[0]);
    refused(serving.get(&first), 400, "invalid").await;
}
