//! Tests of downloads by commit and path, as browsers, `curl` and `wget -c` use them.

use std::os::unix::ffi::OsStrExt;

use reqwest::StatusCode;
use snap_core::{
    base::id::BlobId,
    chunk::{Cutter, Params},
};
use snap_server::settings::{ServerLimits, ServerSettings};
use snap_testkit::bytes::Corpus;

use crate::{
    place::{Place, Serving, refused},
    watched::metrics,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_by_commit_and_path() {
    let place = Place::new();
    let first = place.change("notes.txt", "first");
    let second = place.change("notes.txt", "second");
    let serving = Serving::of(&place);
    let get = |rev: &str| serving.get(&format!("commits/{rev}/files/notes.txt"));
    // Twice: the first response is read from the store, the second comes from the
    // cache.
    for _ in 0..2 {
        let answer = get(&first.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let headers = answer.headers().clone();
        let tag = format!("\"{}\"", BlobId::of(b"first"));
        assert_eq!(headers["etag"], tag.as_str());
        assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(headers["content-length"], "5");
        assert_eq!(headers["content-disposition"], "inline; filename=\"notes.txt\"");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["content-security-policy"], "sandbox; default-src 'none'");
        assert_eq!(headers["cache-control"], "private, max-age=31536000, immutable");
        assert_eq!(answer.bytes().await.unwrap(), "first");
        let known = get(&first.to_string()).header("if-none-match", tag).send().await.unwrap();
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    }
    for rev in ["main", "heads%2Fmain", &second.to_string()[..10]] {
        let answer = get(rev).send().await.unwrap();
        assert_eq!(answer.headers()["snap-commit"], second.to_string().as_str());
        assert_eq!(answer.headers()["cache-control"], "private, no-cache", "{rev}");
        assert_eq!(answer.bytes().await.unwrap(), "second");
    }
    let saved = serving.get(&format!("commits/{first}/files/notes.txt?download=1"));
    let saved = saved.send().await.unwrap();
    assert_eq!(saved.headers()["content-disposition"], "attachment; filename=\"notes.txt\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_are_no_file_are_refused() {
    let place = Place::new();
    fs_err::create_dir(place.folder.path().join("files/sub")).unwrap();
    let id = place.change("sub/a", "content");
    let serving = Serving::of(&place);
    let get = |path: &str| serving.get(&format!("commits/{path}"));
    refused(get(&format!("{id}/files/sub")), 404, "not-found").await;
    refused(get(&format!("{id}/files/sub/b")), 404, "not-found").await;
    refused(get(&format!("{id}/files/sub/a/b")), 404, "not-found").await;
    refused(get(&format!("{id}/files/sub%2F..%2Fsub%2Fa")), 400, "invalid").await;
    refused(get(&format!("{id}/files/sub/a?what=1")), 400, "invalid").await;
    refused(get(&format!("{id}/files/sub/a?download=2")), 400, "invalid").await;
    refused(get("none/files/sub/a"), 404, "not-found").await;
    refused(get(&format!("{}/files/sub/a", "0".repeat(64))), 404, "not-found").await;
    refused(get("main@/files/sub/a"), 400, "invalid").await;
    assert_eq!(get(&format!("{id}/files/sub%2Fa")).send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_small_and_large_files_are_served() {
    let place = Place::new();
    // Random-looking data, which is cut into different chunks.
    let large: Vec<u8> =
        (0..3_000_000_u32).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
    place.change("large", &large);
    let id = place.change("small", &large[..5000]);
    let serving = Serving::of(&place);
    for (name, content) in [("small", &large[..5000]), ("large", &large[..])] {
        let get = || serving.get(&format!("commits/{id}/files/{name}"));
        let all = get().send().await.unwrap();
        assert_eq!(all.headers()["content-length"], content.len().to_string().as_str());
        let tag = all.headers()["etag"].clone();
        assert_eq!(all.bytes().await.unwrap(), content);
        for (from, to) in
            [(0, 0), (17, 4711), (content.len() - 1, content.len() - 1), (1000, content.len() - 9)]
        {
            let part = get().header("range", format!("bytes={from}-{to}")).send().await.unwrap();
            assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
            let told = format!("bytes {from}-{to}/{}", content.len());
            assert_eq!(part.headers()["content-range"], told.as_str());
            assert_eq!(part.bytes().await.unwrap(), content[from..=to]);
        }
        refused(get().header("range", "bytes=999999999-"), 416, "range").await;
        let part = || get().header("range", "bytes=0-3");
        let same = part().header("if-range", tag).send().await.unwrap();
        assert_eq!(same.status(), StatusCode::PARTIAL_CONTENT);
        let other = part().header("if-range", "\"other\"").send().await.unwrap();
        assert_eq!(other.status(), StatusCode::OK, "all of another content");
        let head = serving.client.head(format!("{}/commits/{id}/files/{name}", serving.base));
        let head = head.send().await.unwrap();
        assert_eq!(head.headers()["content-length"], content.len().to_string().as_str());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_and_contents_are_saved_under_a_harmless_name() {
    let place = Place::new();
    place.change("page.html", "<script>alert(1)</script>");
    place.change("picture.svg", "<svg><script/></svg>");
    place.change("a\"\r\nx: y.txt", "text");
    let name = std::ffi::OsStr::from_bytes(b"\xff\xfe.txt");
    fs_err::write(place.folder.path().join("files").join(name), "bytes").unwrap();
    let id = place.change("other", "content");
    let serving = Serving::of(&place);
    let get = async |path: &str| {
        let path = format!("commits/{id}/files/{path}");
        serving.get(&path).send().await.unwrap()
    };
    for path in ["page.html", "picture.svg"] {
        let answer = get(path).await;
        let how = answer.headers()["content-disposition"].to_str().unwrap().to_owned();
        assert!(how.starts_with("attachment; "), "{how}");
        assert_eq!(answer.headers()["content-security-policy"], "sandbox; default-src 'none'");
    }
    let answer = get("a%22%0D%0Ax%3A%20y.txt").await;
    assert_eq!(
        answer.headers()["content-disposition"],
        "inline; filename=\"a___x: y.txt\"; filename*=UTF-8''a%22%0D%0Ax%3A%20y.txt"
    );
    assert!(answer.headers().get("x").is_none());
    // A name need not be UTF-8.
    assert_eq!(get("%ff%fe.txt").await.bytes().await.unwrap(), "bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_without_room_serves_the_same() {
    let place = Place::new();
    let id = place.change("a", "content");
    let limits = ServerLimits { cache_bytes: 0, ..ServerLimits::default() };
    let serving = Serving::start(&place, ServerSettings { limits, ..ServerSettings::default() });
    for _ in 0..2 {
        let answer = serving.get(&format!("commits/{id}/files/a")).send().await.unwrap();
        assert_eq!(answer.bytes().await.unwrap(), "content");
    }
}

/// Flips a bit in the frame of an object.
fn damage(place: &Place, id: BlobId) {
    let store = place.repo.store();
    let location = store.locate(&id.object()).unwrap().unwrap();
    let path = store.pack_path(&store.pack_id(location.pack).unwrap());
    let pack = store.pack(location.pack).unwrap();
    let mut bytes = fs_err::read(&path).unwrap();
    bytes[pack.frames()[location.frame as usize].offset as usize + 1] ^= 4;
    fs_err::write(path, bytes).unwrap();
}

/// Returns the chunk of a content with the byte at this position.
fn chunk_at(content: &[u8], position: usize) -> BlobId {
    let (mut cutter, mut begin) = (Cutter::new(Params::FORMAT), 0);
    while let Some(length) = cutter.next_cut(&content[begin..], true) {
        if position < begin + length {
            return BlobId::of(&content[begin..begin + length]);
        }
        begin += length;
    }
    panic!("the content ends before {position}");
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_in_a_file_fails_or_truncates_the_response() {
    let place = Place::new();
    place.change("small", "some text\n".repeat(20));
    let large = Corpus::Random.make(12 << 20);
    place.change("large", &large);
    damage(&place, BlobId::of("some text\n".repeat(20).as_bytes()));
    damage(&place, chunk_at(&large, 9 << 20));
    let serving = Serving::of(&place);
    let get = |path: &str| serving.client.get(format!("{}{path}", serving.origin())).send();
    let files = "/v1/repos/default/commits/main/files";
    assert_eq!(get(&format!("{files}/small")).await.unwrap().status(), 500);
    let large = get(&format!("{files}/large")).await.unwrap();
    assert_eq!(large.status(), 200);
    assert!(large.bytes().await.is_err(), "a truncated response ends with an error");
    let told = get("/ready").await.unwrap().text().await.unwrap();
    assert_eq!(told, "ready\n1 repository is damaged\n");
    // The response breaks off before the damage is counted.
    let counted = "snap_damage_met_total{repository=\"default\"} 2";
    metrics(&serving, "", |text| text.contains(counted)).await;
}
