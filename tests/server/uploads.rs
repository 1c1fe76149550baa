//! Tests of resumable uploads of packs and bundles.

use std::time::Duration;

use futures::{StreamExt, stream};
use reqwest::{Body, RequestBuilder, Response};
use snap_core::base::id::{CommitId, PackId};
use snap_server::settings::{Quota, ServerLimits, ServerSettings};

use crate::{
    place::{Place, Serving, eventually, random, refused},
    upstream::{Bucket, create},
    upstream_steps::bundle_of,
};

/// A pack, or a bundle with its hash as the id.
struct Pack {
    id: PackId,
    bytes: Vec<u8>,
    goes_to: &'static str,
}

/// Creates a pack with random bytes.
fn pack(seed: u8, bytes: usize) -> (Place, Pack) {
    let place = Place::new();
    place.change("a", random(seed, bytes));
    let id = place.repo.store().packs()[0];
    let bytes = place.pack_bytes(&id);
    (place, Pack { id, bytes, goes_to: "uploads" })
}

/// Creates a bundle of a commit with random bytes.
async fn bundle(seed: u8, bytes: usize) -> (CommitId, Pack) {
    let place = Place::new();
    let commit = place.change("a", random(seed, bytes));
    let bytes = bundle_of(&place, commit).await;
    let id = PackId::from_bytes(*blake3::hash(&bytes).as_bytes());
    (commit, Pack { id, bytes, goes_to: "bundles" })
}

impl Pack {
    fn url(&self, serving: &Serving) -> String {
        format!("{}/{}/{}", serving.base, self.goes_to, self.id)
    }

    fn patch(&self, serving: &Serving, offset: usize, length: usize) -> RequestBuilder {
        let patch = serving.client.patch(self.url(serving));
        patch.header("upload-offset", offset).header("upload-length", length)
    }

    /// Sends the bytes between two offsets.
    fn part(&self, serving: &Serving, from: usize, to: usize) -> RequestBuilder {
        self.patch(serving, from, self.bytes.len()).body(self.bytes[from..to].to_vec())
    }

    /// Sends the bytes between two offsets and then hangs.
    fn stuck(&self, serving: &Serving, from: usize, to: usize) -> RequestBuilder {
        let some = self.bytes[from..to].to_vec();
        let never = stream::once(async { std::io::Result::Ok(some) }).chain(stream::pending());
        self.patch(serving, from, self.bytes.len()).body(Body::wrap_stream(never))
    }

    async fn head(&self, serving: &Serving) -> Response {
        serving.client.head(self.url(serving)).send().await.unwrap()
    }

    async fn waits_at(&self, serving: &Serving, offset: usize) {
        told(&self.head(serving).await, 204, offset, self.bytes.len());
    }

    /// Sends the bytes between two offsets, once the request before has ended.
    async fn unlocked_part(&self, serving: &Serving, from: usize, to: usize) -> Response {
        let send = async || {
            let answer = self.part(serving, from, to).send().await.unwrap();
            (answer.status() != 423).then_some(answer)
        };
        eventually("a request that has ended blocks others", send).await
    }

    /// Waits until the server has this many bytes.
    async fn comes_to(&self, serving: &Serving, offset: usize) {
        let is_there = async || {
            // While bytes still arrive, the server looks again every 10 ms.
            let there = serving.passing(Duration::from_millis(10), self.head(serving)).await;
            let there = there.headers().get("upload-offset")?.to_str().unwrap().to_owned();
            (there == offset.to_string()).then_some(())
        };
        eventually("the offset is not reached", is_there).await;
    }
}

/// Checks the status and the headers of a response.
fn told(answer: &Response, status: u16, offset: usize, length: usize) {
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(answer.status().as_u16(), status);
    assert_eq!(header("upload-offset"), offset.to_string());
    assert_eq!(header("upload-length"), length.to_string());
    assert_eq!(header("upload-complete"), if status == 204 { "?0" } else { "?1" });
    assert_eq!(header("cache-control"), "no-store");
}

fn staged(place: &Place) -> Vec<String> {
    let entries = fs_err::read_dir(place.store().join("tmp/staged")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn listed(serving: &Serving) -> usize {
    let all = crate::place::json(serving.get("packs"), reqwest::StatusCode::OK).await;
    all["packs"].as_array().unwrap().len()
}

fn limited(limits: ServerLimits) -> ServerSettings {
    ServerSettings { limits, ..ServerSettings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_uploaded_in_parts_is_published_when_complete() {
    let ((here, pack), there) = (pack(1, 300_000), Place::new());
    let (serving, all) = (Serving::of(&there), pack.bytes.len());
    assert_eq!(pack.head(&serving).await.status(), 404);
    told(&pack.part(&serving, 0, 100_000).send().await.unwrap(), 204, 100_000, all);
    pack.waits_at(&serving, 100_000).await;
    assert_eq!(listed(&serving).await, 0);
    refused(serving.get(&format!("packs/{}", pack.id)), 404, "not-found").await;
    told(&pack.part(&serving, 100_000, all - 1).send().await.unwrap(), 204, all - 1, all);
    told(&pack.part(&serving, all - 1, all).send().await.unwrap(), 201, all, all);
    told(&pack.head(&serving).await, 200, all, all);
    assert_eq!(listed(&serving).await, 1);
    told(&pack.part(&serving, 0, all).send().await.unwrap(), 200, all, all);
    let (name, bytes) = here.outlines(&[pack.id]);
    let counts = serving.put(&format!("index/{name}"), bytes).send().await.unwrap();
    assert_eq!(counts.status(), 201);
    told(&pack.head(&serving).await, 200, all, all);
    assert!(staged(&there).is_empty());
    assert_eq!(serving.get(&format!("packs/{}", pack.id)).send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_uploaded_in_parts_is_unpacked_when_complete() {
    let ((commit, bundle), there) = (bundle(31, 300_000).await, Place::new());
    let (serving, all) = (Serving::of(&there), bundle.bytes.len());
    assert_eq!(bundle.head(&serving).await.status(), 404);
    told(&bundle.part(&serving, 0, 100_000).send().await.unwrap(), 204, 100_000, all);
    let broken = tokio::spawn(bundle.stuck(&serving, 100_000, 200_000).send());
    bundle.comes_to(&serving, 200_000).await;
    broken.abort();
    refused(serving.get(&format!("commits/{commit}")), 404, "not-found").await;
    let answer = bundle.unlocked_part(&serving, 200_000, all).await;
    told(&answer, 201, all, all);
    let taken: serde_json::Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(taken["commit"], commit.to_string());
    assert_eq!(taken["new_commits"], 1);
    assert_eq!(serving.get(&format!("commits/{commit}")).send().await.unwrap().status(), 200);
    assert!(staged(&there).is_empty());
    // No upload is left. Uploading the bundle once more adds nothing.
    assert_eq!(bundle.head(&serving).await.status(), 404);
    told(&bundle.part(&serving, 0, all).send().await.unwrap(), 200, all, all);
    assert!(staged(&there).is_empty());
    bundle.part(&serving, 0, 1000).send().await.unwrap();
    let delete = serving.client.delete(bundle.url(&serving)).send().await.unwrap();
    assert_eq!((delete.status().as_u16(), staged(&there).len()), (204, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_upload_is_kept_while_the_bucket_is_unavailable() {
    let ((commit, bundle), bucket) = (bundle(32, 300_000).await, Bucket::new());
    let (serving, all) = (bucket.replica("one"), bundle.bytes.len());
    create(&serving).await;
    told(&bundle.part(&serving, 0, 100_000).send().await.unwrap(), 204, 100_000, all);
    bucket.go_away();
    refused(bundle.part(&serving, 100_000, all), 503, "unavailable").await;
    bundle.waits_at(&serving, all).await;
    bucket.come_back();
    let taken = bundle.part(&serving, all, all).send().await.unwrap();
    assert!(taken.status().is_success(), "{}", taken.status());
    let other = bucket.replica("two");
    assert_eq!(other.get(&format!("commits/{commit}")).send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_at_the_wrong_offset_gets_the_right_offset() {
    let ((_here, pack), there) = (pack(2, 300_000), Place::new());
    let (serving, all) = (Serving::of(&there), pack.bytes.len());
    let offset = |answer: &Response| answer.headers()["upload-offset"].to_str().unwrap().to_owned();
    let beyond = pack.part(&serving, 7, 9).send().await.unwrap();
    assert_eq!((beyond.status().as_u16(), offset(&beyond).as_str()), (409, "0"));
    pack.part(&serving, 0, 1000).send().await.unwrap();
    for from in [0, 999, 1001, all] {
        let answer = pack.part(&serving, from, all).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), offset(&answer).as_str()), (409, "1000"), "{from}");
        refused(pack.part(&serving, from, all), 409, "offset").await;
    }
    pack.waits_at(&serving, 1000).await;
    told(&pack.part(&serving, 1000, all).send().await.unwrap(), 201, all, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_with_inconsistent_headers_is_refused() {
    let ((_here, pack), there) = (pack(3, 300_000), Place::new());
    let (serving, all) = (Serving::of(&there), pack.bytes.len());
    let url = pack.url(&serving);
    refused(serving.client.patch(&url).body("x"), 400, "invalid").await;
    for (offset, length) in
        [("-1", "9"), ("0", "9x"), ("0", ""), ("0", "1e3"), ("0", "9007199254740992")]
    {
        let patch = serving.client.patch(&url).header("upload-offset", offset);
        refused(patch.header("upload-length", length).body("x"), 400, "invalid").await;
    }
    refused(pack.patch(&serving, all + 1, all).body("x"), 416, "range").await;
    let twice = pack.patch(&serving, 0, all).header("upload-offset", "1").body("x");
    refused(twice, 400, "invalid").await;
    refused(serving.client.patch(format!("{url}x")), 400, "invalid").await;
    // The declared length cannot change.
    pack.part(&serving, 0, 1000).send().await.unwrap();
    for length in [all - 1, all + 1] {
        let patch = pack.patch(&serving, 1000, length).body(pack.bytes[1000..1010].to_vec());
        refused(patch, 409, "offset").await;
    }
    // A body longer than the rest is refused. If `Content-Length` says so, the part is
    // kept, otherwise it is removed.
    let long = [&pack.bytes[1000..], b"x"].concat();
    refused(pack.patch(&serving, 1000, all).body(long.clone()), 413, "too-large").await;
    pack.waits_at(&serving, 1000).await;
    let pieces: Vec<_> = long.chunks(50_000).map(|piece| Ok(piece.to_vec())).collect();
    let unsaid = Body::wrap_stream(stream::iter::<Vec<std::io::Result<_>>>(pieces));
    refused(pack.patch(&serving, 1000, all).body(unsaid), 413, "too-large").await;
    assert_eq!(pack.head(&serving).await.status(), 404);
    assert!(staged(&there).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_pack_upload_leaves_no_file() {
    leaves_nothing_unless_it_is_right(pack(4, 300_000).1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_bundle_upload_leaves_no_file() {
    leaves_nothing_unless_it_is_right(bundle(4, 300_000).await.1).await;
}

async fn leaves_nothing_unless_it_is_right(pack: Pack) {
    let (there, goes_to) = (Place::new(), pack.goes_to);
    let (serving, all) = (Serving::of(&there), pack.bytes.len());
    // Damage is found both in the first and in the last request.
    for (at, parts) in [(5, 1), (5, 2), (all - 1, 2), (all / 2, 1)] {
        let mut bytes = pack.bytes.clone();
        bytes[at] ^= 1;
        // Under the hash of the damaged bytes, the check of the contents finds the
        // damage.
        let named = PackId::from_bytes(*blake3::hash(&bytes).as_bytes());
        for id in [pack.id, named] {
            let wrong = Pack { id, bytes: bytes.clone(), goes_to };
            let middle = if parts == 2 { 1000 } else { 0 };
            if parts == 2 {
                told(&wrong.part(&serving, 0, middle).send().await.unwrap(), 204, middle, all);
            }
            refused(wrong.part(&serving, middle, all), 422, "rejected").await;
            assert_eq!(wrong.head(&serving).await.status(), 404);
        }
    }
    assert!(staged(&there).is_empty());
    told(&pack.part(&serving, 0, all).send().await.unwrap(), 201, all, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_upload_starts_again() {
    let ((_here, pack), there) = (pack(5, 100_000), Place::new());
    let serving = Serving::of(&there);
    let delete = || serving.client.delete(pack.url(&serving));
    refused(delete(), 404, "not-found").await;
    pack.part(&serving, 0, 1000).send().await.unwrap();
    assert_eq!(delete().send().await.unwrap().status(), 204);
    assert_eq!(pack.head(&serving).await.status(), 404);
    assert!(staged(&there).is_empty());
    // A complete upload cannot be deleted.
    pack.part(&serving, 0, pack.bytes.len()).send().await.unwrap();
    refused(delete(), 404, "not-found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_has_one_writer_until_it_stalls() {
    let ((_here, pack), there) = (pack(6, 300_000), Place::new());
    let (serving, all) = (Serving::of(&there), pack.bytes.len());
    let stuck = tokio::spawn(pack.stuck(&serving, 0, 1000).send());
    pack.comes_to(&serving, 1000).await;
    let second = pack.part(&serving, 1000, all).send().await.unwrap();
    assert_eq!(
        (second.status().as_u16(), &second.headers()["retry-after"]),
        (423, &"2".parse().unwrap())
    );
    refused(pack.part(&serving, 1000, all), 423, "locked").await;
    refused(serving.client.delete(pack.url(&serving)), 423, "locked").await;
    refused(pack.part(&serving, 0, all), 423, "locked").await;
    serving.clock.advance(Duration::from_millis(4800));
    refused(pack.part(&serving, 1000, all), 423, "locked").await;
    serving.clock.advance(Duration::from_millis(200));
    refused(pack.part(&serving, 0, all), 409, "offset").await;
    told(&pack.part(&serving, 1000, 2000).send().await.unwrap(), 204, 2000, all);
    stuck.abort();
    told(&pack.part(&serving, 2000, all).send().await.unwrap(), 201, all, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_upload_keeps_its_received_bytes() {
    let ((_here, pack), there) = (pack(7, 300_000), Place::new());
    let (serving, all) = (Serving::of(&there), pack.bytes.len());
    let broken = tokio::spawn(pack.stuck(&serving, 0, 70_000).send());
    pack.comes_to(&serving, 70_000).await;
    broken.abort();
    told(&pack.unlocked_part(&serving, 70_000, all).await, 201, all, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_of_the_store_resumes_an_upload() {
    let ((_here, pack), there) = (pack(8, 300_000), Place::new());
    let (first, all) = (Serving::of(&there), pack.bytes.len());
    pack.part(&first, 0, 1000).send().await.unwrap();
    first.stop().await;
    let (second, third) = (Serving::of(&there), Serving::of(&there));
    pack.waits_at(&second, 1000).await;
    let stuck = tokio::spawn(pack.stuck(&second, 1000, 2000).send());
    pack.comes_to(&third, 2000).await;
    refused(pack.part(&third, 2000, all), 423, "locked").await;
    stuck.abort();
    told(&pack.unlocked_part(&third, 2000, all).await, 201, all, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_uploads_are_limited_and_the_oldest_removed() {
    let (there, packs) = (Place::new(), [11, 12, 13].map(|seed| pack(seed, 50_000).1));
    let limits = ServerLimits { unfinished_uploads: 2, ..ServerLimits::default() };
    let serving = Serving::start(&there, limited(limits));
    for pack in &packs[..2] {
        pack.part(&serving, 0, 1000).send().await.unwrap();
    }
    refused(packs[2].part(&serving, 0, 1000), 429, "slow-down").await;
    aged(&there, &packs[1], Duration::from_secs(90));
    told(&packs[2].part(&serving, 0, 1000).send().await.unwrap(), 204, 1000, packs[2].bytes.len());
    assert_eq!(packs[1].head(&serving).await.status(), 404, "the oldest upload was removed");
    packs[0].waits_at(&serving, 1000).await;
    // The limit counts the declared lengths, not the bytes received.
    let other = Place::new();
    let bytes = packs[0].bytes.len() as u64 + 10;
    let limits = ServerLimits { unfinished_bytes: bytes, ..ServerLimits::default() };
    let serving = Serving::start(&other, limited(limits));
    packs[0].part(&serving, 0, 10).send().await.unwrap();
    refused(packs[1].part(&serving, 0, 10), 429, "slow-down").await;
    let all = packs[0].bytes.len();
    told(&packs[0].part(&serving, 10, all).send().await.unwrap(), 201, all, all);
    told(&packs[1].part(&serving, 0, 10).send().await.unwrap(), 204, 10, packs[1].bytes.len());
    refused(packs[2].patch(&serving, 0, bytes as usize + 1).body("x"), 413, "too-large").await;
}

fn aged(place: &Place, pack: &Pack, age: Duration) {
    let name = format!("{}.{}", pack.id, pack.bytes.len());
    let file =
        fs_err::File::options().write(true).open(place.store().join("tmp/staged").join(name));
    file.unwrap().file().set_modified(std::time::SystemTime::now() - age).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_uploads_are_removed_after_a_day() {
    let (there, packs) = (Place::new(), [21, 22].map(|seed| pack(seed, 50_000).1));
    let serving = Serving::of(&there);
    packs[0].part(&serving, 0, 1000).send().await.unwrap();
    aged(&there, &packs[0], Duration::from_secs(23 * 3600));
    packs[1].part(&serving, 0, 1000).send().await.unwrap();
    packs[0].waits_at(&serving, 1000).await;
    aged(&there, &packs[0], Duration::from_secs(25 * 3600));
    packs[1].part(&serving, 1000, 2000).send().await.unwrap();
    assert_eq!(packs[0].head(&serving).await.status(), 404);
    assert_eq!(staged(&there).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_above_the_limits_is_refused_at_its_first_part() {
    let ((_here, pack), there) = (pack(9, 100_000), Place::new());
    let limits = ServerLimits { upload_bytes: 1000, ..ServerLimits::default() };
    let serving = Serving::start(&there, limited(limits));
    refused(pack.part(&serving, 0, 10), 413, "too-large").await;
    let quota = Quota { default_bytes: Some(pack.bytes.len() as u64 - 1), ..Quota::default() };
    let serving = Serving::start(&there, ServerSettings { quota, ..ServerSettings::default() });
    refused(pack.part(&serving, 0, 10), 507, "full").await;
    assert!(staged(&there).is_empty());
    let limits = ServerLimits { unfinished_uploads: 0, ..ServerLimits::default() };
    let serving = Serving::start(&there, limited(limits));
    refused(pack.part(&serving, 0, 10), 429, "slow-down").await;
    let told = serving.client.get(format!("{}/v1", serving.origin()));
    let told = crate::place::json(told, reqwest::StatusCode::OK).await;
    assert_eq!(told["capabilities"], serde_json::json!([]));
}
