//! Tests of bundles: downloads, ranges, bundles without known objects, and uploads.

use reqwest::StatusCode;
use serde_json::json;
use snap_core::{base::observe::Silent, format::bundle::BundleHead, ops::bundle::pack};

use crate::place::{Place, Serving, refused};

fn noise(seed: u32, words: u32) -> Vec<u8> {
    (0..words).flat_map(|n| (n ^ seed).wrapping_mul(0x9E37_79B9).to_le_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_equals_that_of_the_cli_and_supports_ranges() {
    let place = Place::new();
    place.change("a", noise(1, 100_000));
    let id = place.change("b", "second");
    let serving = Serving::of(&place);
    let path = format!("commits/{id}/bundle");
    let options = pack::PackOptions { since: Vec::new(), scratch: place.folder.path(), level: 1 };
    let mut wanted = Vec::new();
    pack::run(place.repo.store(), id, &options, &mut wanted, &Silent).unwrap();
    let all = serving.get(&path).send().await.unwrap();
    let tag = all.headers()["etag"].clone();
    assert_eq!(all.headers()["content-length"], wanted.len().to_string().as_str());
    assert_eq!(all.headers()["content-type"], "application/vnd.snap.bundle");
    assert_eq!(all.bytes().await.unwrap(), wanted);
    let end = wanted.len();
    // Ranges across the head, the length of a pack, the pack, and the end.
    for (from, to) in [(0, 9), (5, 200), (90, end - 9), (end - 12, end - 1), (end - 1, end - 1)] {
        let part = serving.get(&path).header("range", format!("bytes={from}-{to}"));
        let part = part.header("if-range", tag.clone()).send().await.unwrap();
        assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(part.bytes().await.unwrap(), wanted[from..=to], "{from}-{to}");
    }
    let known = serving.get(&path).header("if-none-match", tag).send().await.unwrap();
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    let head = serving.client.head(format!("{}/{path}", serving.base)).send().await.unwrap();
    assert_eq!(head.headers()["content-length"], end.to_string().as_str());
    refused(serving.get("commits/none/bundle"), 404, "not-found").await;
    refused(serving.get(&path).header("range", "bytes=99999999-"), 416, "range").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_between_servers_has_only_new_objects() {
    let (here, there) = (Place::new(), Place::new());
    let first = here.change("a", noise(1, 20_000));
    let second = here.change("b", noise(2, 20_000));
    let (from, to) = (Serving::of(&here), Serving::of(&there));
    let get = async |body: serde_json::Value| {
        let path = format!("{}/commits/{second}/bundle", from.base);
        let answer = from.client.post(path).body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        answer.bytes().await.unwrap()
    };
    let put = async |bytes: &[u8]| {
        let path = format!("{}/bundles", to.base);
        to.client.post(path).body(bytes.to_vec()).send().await.unwrap()
    };
    let new = get(json!({ "have": [first.to_string(), "0".repeat(64)] })).await;
    assert!(new.len() < 110_000, "{} bytes for 80,000 new bytes", new.len());
    let head = snap_core::store::BundleReader::new(&new[..]).unwrap().1;
    assert!(
        matches!(head, BundleHead { commit, prerequisites, .. } if commit == second && prerequisites == [first])
    );
    assert_eq!(put(&new).await.status(), 422, "the prerequisite is missing");
    let whole = get(json!({})).await;
    assert!(whole.len() > 150_000);
    for at in [9, 60, whole.len() / 2, whole.len() - 1] {
        let mut flipped = whole.to_vec();
        flipped[at] ^= 1;
        assert_eq!(put(&flipped).await.status(), 422, "byte {at}");
    }
    for end in [0, 7, whole.len() / 2, whole.len() - 1] {
        assert_eq!(put(&whole[..end]).await.status(), 422, "cut at {end}");
    }
    assert!(there.repo.store().packs().is_empty());
    let taken = put(&whole).await;
    assert_eq!(taken.status(), StatusCode::CREATED);
    let told: serde_json::Value = serde_json::from_slice(&taken.bytes().await.unwrap()).unwrap();
    assert_eq!((&told["commit"], &told["new_commits"]), (&second.to_string().into(), &2.into()));
    assert_eq!(put(&whole).await.status(), StatusCode::OK, "once more");
    assert_eq!(put(&new).await.status(), StatusCode::OK, "the prerequisite exists now");
    let file = to.get(&format!("commits/{second}/files/b")).send().await.unwrap();
    assert_eq!(file.bytes().await.unwrap(), noise(2, 20_000));
    refused(to.get("refs/heads/main"), 404, "not-found").await;
    // Objects that the client has are left out as well.
    let blob = snap_core::base::id::BlobId::of(&noise(2, 20_000));
    let less =
        get(json!({ "have": [first.to_string()], "have_objects": [blob.to_string()] })).await;
    assert!(less.len() < 10_000, "{}", less.len());
    let path = format!("{}/commits/{second}/bundle", from.base);
    refused(from.client.post(&path).body("{\"have\": [\"x\"]}"), 400, "invalid").await;
    refused(from.client.post(&path).body("{\"want\": []}"), 400, "invalid").await;
}
