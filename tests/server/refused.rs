//! Tests of malicious uploads. The server refuses them and keeps nothing of them.

use std::time::Duration;

use snap_core::{
    base::{
        id::{BlobId, PackId},
        limits,
    },
    format::{
        outline,
        pack::{self, Codec, Frame, HEADER_BYTES, ObjectClass, ObjectKind, PackedObject},
    },
};
use snap_server::{
    access::principal::Right,
    settings::{ServerLimits, ServerSettings},
};
use snap_testkit::alone::{alone, peak_bytes};

use crate::place::{Place, Serving, refused};

/// Returns true if nothing is staged.
fn is_clean(place: &Place) -> bool {
    fs_err::read_dir(place.staged()).map_or(true, |mut entries| entries.next().is_none())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_pack_is_refused_and_leaves_no_file() {
    let (here, there) = (Place::new(), Place::new());
    here.change("a", "content");
    let serving = Serving::of(&there);
    let id = here.repo.store().packs()[0];
    let bytes = here.pack_bytes(&id);
    let put = |id: PackId, bytes: Vec<u8>| serving.put(&format!("packs/{id}"), bytes);
    for at in [0, bytes.len() / 2, bytes.len() - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        refused(put(id, flipped.clone()), 422, "rejected").await;
        // Under the hash of the damaged bytes, the check of the contents finds the
        // damage.
        let name = PackId::from_bytes(*blake3::hash(&flipped).as_bytes());
        refused(put(name, flipped), 422, "rejected").await;
    }
    for end in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        refused(put(id, bytes[..end].to_vec()), 422, "rejected").await;
    }
    refused(put(id, [&bytes[..], b"x"].concat()), 422, "rejected").await;
    refused(serving.put("packs/what", bytes.clone()), 400, "invalid").await;
    refused(serving.put("packs/..%2F..%2Fconfig.toml", bytes), 400, "invalid").await;
    assert!(is_clean(&there));
    assert!(there.repo.store().packs().is_empty());
}

/// Builds a zstd frame that expands to this many zeros. It declares its size or not.
fn bomb(bytes: usize, says_so: bool) -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    let mut made = vec![0x28, 0xb5, 0x2f, 0xfd];
    match says_so {
        true => {
            made.push(0xe0);
            made.extend((bytes as u64).to_le_bytes());
        }
        // A window of 1 MiB.
        false => made.extend([0x00, 0x50]),
    }
    for start in (0..bytes).step_by(BLOCK) {
        let length = BLOCK.min(bytes - start);
        let is_last = u32::from(start + length == bytes);
        // An RLE block: one byte, repeated `length` times.
        made.extend(&((length as u32) << 3 | 1 << 1 | is_last).to_le_bytes()[..3]);
        made.push(0);
    }
    made
}

/// Builds a pack with one frame and one blob of zeros. `raw_bytes` is the declared
/// length.
fn pack_of(stored: &[u8], raw_bytes: u32) -> (PackId, Vec<u8>) {
    let frame = Frame {
        offset: HEADER_BYTES as u64,
        stored_bytes: stored.len() as u32,
        raw_bytes,
        objects: 1,
        codec: Codec::Zstd,
        class: ObjectClass::Data,
        checksum: pack::checksum(stored),
    };
    let zeros = vec![0; (raw_bytes as usize).min(limits::FRAME_RAW_BYTES)];
    let object =
        PackedObject { id: BlobId::of(&zeros).object(), kind: ObjectKind::Blob, bytes: raw_bytes };
    let mut bytes = pack::encode_header().to_vec();
    bytes.extend_from_slice(stored);
    bytes.extend_from_slice(&pack::encode_footer(&[frame], &[object], HEADER_BYTES as u64));
    (PackId::from_bytes(*blake3::hash(&bytes).as_bytes()), bytes)
}

async fn send_bombs() {
    const HUGE: usize = 1 << 30;
    let frame = limits::FRAME_RAW_BYTES;
    let (honest, there) = (Place::new(), Place::new());
    let (serving, other) = (Serving::of(&there), Serving::of(&honest));
    let put = |serving: &Serving, (id, bytes): (PackId, Vec<u8>)| {
        assert!(bytes.len() < 64 << 10);
        serving.put(&format!("packs/{id}"), bytes)
    };
    // The largest allowed frame, with a true declaration.
    for says_so in [false, true] {
        let sent = put(&other, pack_of(&bomb(frame, says_so), frame as u32)).send().await.unwrap();
        assert_eq!(sent.status(), 201);
    }
    let before = peak_bytes();
    for says_so in [false, true] {
        let stored = bomb(HUGE, says_so);
        // The declared length is false, or exceeds the limit for a frame.
        for raw_bytes in [0, 1000, frame, frame + 1, HUGE, u32::MAX as usize] {
            let bomb = pack_of(&stored, raw_bytes as u32);
            refused(put(&serving, bomb), 422, "rejected").await;
        }
    }
    let grown = peak_bytes() - before;
    assert!(grown < 96 << 20, "{grown} bytes");
    assert!(is_clean(&there));
    assert!(there.repo.store().packs().is_empty());
    let left = fs_err::read_dir(there.store().join("tmp")).unwrap().flatten();
    let left: Vec<_> = left.flat_map(|folder| fs_err::read_dir(folder.path()).unwrap()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn decompression_bombs_take_no_memory_and_leave_no_file() {
    alone("refused::decompression_bombs_take_no_memory_and_leave_no_file", || {
        tokio::runtime::Runtime::new().unwrap().block_on(send_bombs());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_pushes_are_not_published() {
    let (here, there) = (Place::new(), Place::new());
    here.change("a", "first");
    let before = here.repo.store().packs();
    let second = here.change("b", "second");
    let packs = here.repo.store().packs();
    let new: Vec<PackId> = packs.iter().filter(|id| !before.contains(id)).copied().collect();
    let serving = Serving::of(&there);
    let refusal = serving.send(&here, &new).await;
    assert_eq!(refusal.status(), 422, "its parent is missing");
    assert!(there.repo.store().packs().is_empty());
    let body = format!("{{\"commit\": \"{second}\"}}");
    let set = || serving.put("refs/heads/main", body.clone()).header("if-none-match", "*");
    refused(set(), 422, "rejected").await;
    // After the upload of all packs the ref can be set.
    assert_eq!(serving.send(&here, &packs).await.status(), 201);
    assert_eq!(set().send().await.unwrap().status(), 201);
    assert!(is_clean(&there), "published packs are no longer staged");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_above_the_limits_are_refused() {
    let (here, there) = (Place::new(), Place::new());
    here.change("a", vec![7; 100_000]);
    let limits = ServerLimits { upload_bytes: 100, missing_ids: 2, ..ServerLimits::default() };
    let serving = Serving::start(&there, ServerSettings { limits, ..ServerSettings::default() });
    let id = here.repo.store().packs()[0];
    let path = format!("packs/{id}");
    refused(serving.put(&path, here.pack_bytes(&id)), 413, "too-large").await;
    // Without `Content-Length` the server notices on the way.
    let pieces =
        here.pack_bytes(&id).chunks(50).map(|piece| Ok(piece.to_vec())).collect::<Vec<_>>();
    let stream =
        reqwest::Body::wrap_stream(futures::stream::iter::<Vec<std::io::Result<_>>>(pieces));
    refused(serving.put(&path, stream), 413, "too-large").await;
    let ask = serving.client.post(format!("{}/missing", serving.base)).body(vec![0; 96]);
    refused(ask, 413, "too-large").await;
    let long = serving.put("refs/heads/main", vec![b' '; 20_000]).header("if-none-match", "*");
    refused(long, 413, "too-large").await;
    assert!(is_clean(&there));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_are_refused() {
    let place = Place::new();
    let serving = Serving::of(&place);
    let origin = serving.base.trim_end_matches("/v1/repos/default").to_owned();
    let get = |path: &str| serving.client.get(format!("{origin}/{path}"));
    refused(get("v2"), 404, "no-route").await;
    refused(get("v1/repos/default/refs/heads/%ff"), 400, "invalid").await;
    refused(get("v1/repos/%ff/packs"), 400, "invalid").await;
    refused(get("v1/repos/other/refs"), 404, "no-repository").await;
    refused(get("v1/repos/..%2F..%2Fetc/refs"), 404, "no-repository").await;
    refused(get("v1/repos/default/index/..%2F..%2FHEAD"), 404, "not-found").await;
    refused(serving.client.post(format!("{origin}/v1/repos")), 405, "no-method").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflicting_ref_name_is_refused_with_an_explanation() {
    let place = Place::new();
    let commit = place.change("a", "content");
    let serving = Serving::of(&place);
    let set = |name: &str| {
        let put =
            serving.put(&format!("refs/heads/{name}"), format!("{{\"commit\": \"{commit}\"}}"));
        put.header("if-none-match", "*")
    };
    for name in ["a", "x/y"] {
        assert_eq!(set(name).send().await.unwrap().status(), 201);
    }
    // A conflict would be wrong here: a client that compares and swaps would retry for
    // ever.
    for (name, other) in [("a/b", "a"), ("a/b/c", "a"), ("x", "x/y")] {
        let problem = refused(set(name), 422, "name-conflict").await;
        assert_eq!(problem["detail"], format!("`heads/{name}` conflicts with `heads/{other}`"));
    }
}

/// Makes two commits with a pack each. Returns the packs, the second commit's last, and
/// that commit.
fn two_packs(place: &Place) -> (Vec<PackId>, snap_core::base::id::CommitId) {
    place.change("a", "first");
    let mut packs = place.repo.store().packs();
    let second = place.change("b", "second");
    let new = place.repo.store().packs().into_iter().find(|id| !packs.contains(id)).unwrap();
    packs.push(new);
    (packs, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ref_is_not_set_to_an_incomplete_commit() {
    let (here, there) = (Place::new(), Place::new());
    let (packs, second) = two_packs(&here);
    there.steal(&here, &packs[1]);
    let serving = Serving::of(&there);
    let body = format!("{{\"commit\": \"{second}\"}}");
    let set = || serving.put("refs/heads/main", body.clone()).header("if-none-match", "*");
    refused(set(), 422, "rejected").await;
    there.steal(&here, &packs[0]);
    assert_eq!(set().send().await.unwrap().status(), 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_publication_is_resumed_on_start() {
    let (here, there) = (Place::new(), Place::new());
    let (packs, second) = two_packs(&here);
    let serving = Serving::of(&there);
    for id in &packs {
        let sent = serving.put(&format!("packs/{id}"), here.pack_bytes(id)).send().await.unwrap();
        assert_eq!(sent.status(), 201);
    }
    serving.stop().await;
    // The server was killed after it had published one of the two packs.
    let journal = there.staged().join("publishing");
    fs_err::write(&journal, format!("{}\n{}\n", packs[0], packs[1])).unwrap();
    there.steal(&here, &packs[1]);
    let serving = Serving::of(&there);
    let mut there_now = there_packs(&serving).await;
    there_now.sort();
    let mut all: Vec<String> = packs.iter().map(PackId::to_string).collect();
    all.sort();
    assert_eq!(there_now, all);
    assert!(is_clean(&there), "{:?}", fs_err::read_dir(there.staged()).unwrap().next());
    let body = format!("{{\"commit\": \"{second}\"}}");
    let set = serving.put("refs/heads/main", body).header("if-none-match", "*");
    assert_eq!(set.send().await.unwrap().status(), 201);
}

async fn there_packs(serving: &Serving) -> Vec<String> {
    let listed = crate::place::json(serving.get("packs"), reqwest::StatusCode::OK).await;
    let packs = listed["packs"].as_array().unwrap().iter();
    packs.map(|pack| pack["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn staged_packs_of_another_server_are_verified_again() {
    let (here, there) = (Place::new(), Place::new());
    here.change("a", "content ".repeat(1000));
    let id = here.repo.store().packs()[0];
    let put = async |serving: &Serving| {
        let sent = serving.put(&format!("packs/{id}"), here.pack_bytes(&id)).send().await.unwrap();
        sent.status().as_u16()
    };
    let serving = Serving::of(&there);
    assert_eq!([put(&serving).await, put(&serving).await], [201, 200]);
    serving.stop().await;
    assert_eq!(put(&Serving::of(&there)).await, 200, "the staged pack is unchanged");
    // After a power cut the file has its name, but not all of its bytes.
    let staged = there.staged().join(id.to_string());
    let mut bytes = fs_err::read(&staged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0);
    fs_err::write(&staged, bytes).unwrap();
    let serving = Serving::of(&there);
    assert!(there_packs(&serving).await.is_empty());
    assert_eq!(put(&serving).await, 201);
    assert_eq!(serving.send(&here, &[id]).await.status(), 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_listed_in_several_parts_is_published_once() {
    let (here, there) = (Place::new(), Place::new());
    let (packs, _) = two_packs(&here);
    let serving = Serving::of(&there);
    for id in &packs {
        let sent = serving.put(&format!("packs/{id}"), here.pack_bytes(id)).send().await.unwrap();
        assert_eq!(sent.status(), 201);
    }
    let mut parts = Vec::new();
    for part in [&packs[..1], &packs[..]] {
        let (name, bytes) = here.outlines(part);
        let sent = serving.put(&format!("index/{name}.part"), bytes).send().await.unwrap();
        assert_eq!(sent.status(), 201);
        parts.push(name.parse().unwrap());
    }
    parts.push(parts[0]);
    let group = outline::encode_group(0, &parts);
    let name = blake3::hash(&group).to_hex();
    let told = serving.put(&format!("index/{name}.group"), group).send().await.unwrap();
    assert_eq!(told.status(), 201);
    for id in &packs {
        assert_eq!(there.pack_bytes(id), here.pack_bytes(id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_refused_body_receives_the_reason() {
    let there = Place::new();
    let secret = crate::tokens::token(&there, "ada", Right::Read, None);
    let all = crate::tokens::token(&there, "root", Right::Admin, None);
    let limits = ServerLimits { upload_bytes: 1000, ..ServerLimits::default() };
    let serving = Serving::start(&there, ServerSettings { limits, ..ServerSettings::default() });
    // More than the buffers between client and server hold.
    let (body, name) = (vec![7; 12 << 20], "5f".repeat(32));
    for number in 0..5 {
        let put = |secret: &str| {
            serving.put(&format!("packs/{name}"), body.clone()).bearer_auth(secret.to_owned())
        };
        // Each wrong token is answered later than the one before.
        let delay = serving.pass(Duration::from_millis(100 << number));
        tokio::join!(refused(put("snap_wrong"), 401, "unauthorized"), delay);
        refused(put(&secret), 403, "forbidden").await;
        refused(put(&all), 413, "too-large").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_refs_with_invisible_control_characters_are_refused() {
    let place = Place::new();
    let commit = place.change("a", "first");
    let serving = Serving::of(&place);
    let hidden = "\u{202e}nigol";
    let moved = format!("{{\"commit\": \"{commit}\"}}");
    for kind in ["heads", "tags"] {
        let put = serving.put(&format!("refs/{kind}/{hidden}"), moved.clone());
        refused(put.header("if-none-match", "*"), 400, "invalid").await;
    }
    // An existing ref with such a name can be read and deleted.
    let name = snap_core::repo::ref_name::RefName::branch(hidden).unwrap();
    fs_err::copy(place.store().join("refs/heads/main"), name.file(&place.store())).unwrap();
    let path = format!("refs/heads/{hidden}");
    let read = serving.get(&path).send().await.unwrap();
    assert_eq!(read.status(), 200);
    let tag = read.headers()["etag"].clone();
    let gone = serving.client.delete(format!("{}/{path}", serving.base)).header("if-match", tag);
    assert_eq!(gone.send().await.unwrap().status(), 204);
}
