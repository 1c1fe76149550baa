//! Tests that checking an upload has limits, and that a temporary read error does not
//! count as damage.

use std::time::{Duration, SystemTime};

use reqwest::StatusCode;
use snap_core::base::id::PackId;
use snap_server::settings::{Quota, ServerLimits, ServerSettings};

use crate::{
    place::{Place, Serving, json, random, refused},
    upstream_steps::bundle_of,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_expands_too_much_is_refused() {
    let (here, there) = (Place::new(), Place::new());
    let commit = here.change("a", random(1, 6 << 20));
    let limits = ServerLimits { content_bytes: 5 << 20, ..ServerLimits::default() };
    let serving = Serving::start(&there, ServerSettings { limits, ..ServerSettings::default() });
    let bundle = bundle_of(&here, commit).await;
    let post = |serving: &Serving| {
        serving.client.post(format!("{}/bundles", serving.base)).body(bundle.clone())
    };
    let refusal = post(&serving).send().await.unwrap();
    assert_eq!(refusal.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let why = refusal.text().await.unwrap();
    assert!(why.contains("`limits.content_bytes`") && why.contains("too-large"), "{why}");
    assert!(there.repo.store().packs().is_empty());
    let serving = Serving::of(&there);
    assert_eq!(post(&serving).send().await.unwrap().status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_an_unreadable_staged_pack_is_retried() {
    let (here, there) = (Place::new(), Place::new());
    here.change("a", "first");
    here.change("b", "second");
    let packs = here.repo.store().packs();
    let serving = Serving::of(&there);
    for id in &packs {
        let sent = serving.put(&format!("packs/{id}"), here.pack_bytes(id)).send().await.unwrap();
        assert_eq!(sent.status(), StatusCode::CREATED);
    }
    serving.stop().await;
    // The server was killed before it had published either pack.
    let journal = there.staged().join("publishing");
    fs_err::write(&journal, format!("{}\n{}\n", packs[0], packs[1])).unwrap();
    // The file can be opened, but reading its first byte fails.
    let (staged, aside) = (there.staged().join(packs[0].to_string()), there.store().join("aside"));
    fs_err::rename(&staged, &aside).unwrap();
    fs_err::os::unix::fs::symlink("/proc/self/mem", &staged).unwrap();
    let serving = Serving::of(&there);
    refused(serving.get("packs"), 503, "unavailable").await;
    serving.stop().await;
    assert!(staged.is_symlink(), "the staged pack is kept");
    assert!(journal.exists(), "the journal is kept");
    fs_err::rename(&aside, &staged).unwrap();
    let serving = Serving::of(&there);
    let listed = json(serving.get("packs"), StatusCode::OK).await;
    assert_eq!(listed["packs"].as_array().unwrap().len(), 2);
    assert!(!journal.exists());
    assert_eq!(fs_err::read_dir(there.store().join("objects")).unwrap().count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_upload_does_not_use_up_the_quota() {
    let (here, there) = (Place::new(), Place::new());
    here.change("a", random(1, 50_000));
    let id = here.repo.store().packs()[0];
    let bytes = here.pack_bytes(&id);
    let quota = Quota { default_bytes: Some(bytes.len() as u64), ..Quota::default() };
    let serving = Serving::start(&there, ServerSettings { quota, ..ServerSettings::default() });
    let other = "5f".repeat(32);
    let begin = serving.client.patch(format!("{}/uploads/{other}", serving.base));
    let begin = begin.header("upload-offset", 0).header("upload-length", bytes.len());
    let begun = begin.body(vec![7; 10]).send().await.unwrap();
    assert_eq!(begun.status(), StatusCode::NO_CONTENT);
    let put = || serving.put(&format!("packs/{id}"), bytes.clone());
    refused(put(), 507, "full").await;
    let part = there.staged().join(format!("{other}.{}", bytes.len()));
    let part = fs_err::File::options().append(true).open(part).unwrap();
    part.file().set_modified(SystemTime::now() - Duration::from_secs(120)).unwrap();
    assert_eq!(put().send().await.unwrap().status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_upload_reserves_its_whole_length() {
    let (first, second, there) = (Place::new(), Place::new(), Place::new());
    first.change("a", random(1, 50_000));
    second.change("a", random(2, 50_000));
    let pack = |place: &Place| {
        let id = place.repo.store().packs()[0];
        (id, place.pack_bytes(&id))
    };
    let ((first, bytes), (second, others)) = (pack(&first), pack(&second));
    let most = (bytes.len() + others.len()) as u64;
    let start = |most: u64| {
        let quota = Quota { default_bytes: Some(most), ..Quota::default() };
        Serving::start(&there, ServerSettings { quota, ..ServerSettings::default() })
    };
    let part = |serving: &Serving, id: PackId, from: usize, bytes: &[u8], to: usize| {
        let patch = serving.client.patch(format!("{}/uploads/{id}", serving.base));
        let patch = patch.header("upload-offset", from).header("upload-length", bytes.len());
        patch.body(bytes[from..to].to_vec())
    };
    let serving = start(most - 1);
    let begun = part(&serving, first, 0, &bytes, 10).send().await.unwrap();
    assert_eq!(begun.status(), StatusCode::NO_CONTENT);
    refused(serving.put(&format!("packs/{second}"), others.clone()), 507, "full").await;
    refused(part(&serving, second, 0, &others, 10), 507, "full").await;
    // The quota does not count the upload itself twice.
    let on = part(&serving, first, 10, &bytes, 20).send().await.unwrap();
    assert_eq!(on.status(), StatusCode::NO_CONTENT);
    let serving = start(most);
    let sent = part(&serving, second, 0, &others, others.len()).send().await.unwrap();
    assert_eq!(sent.status(), StatusCode::CREATED);
    let end = part(&serving, first, 20, &bytes, bytes.len()).send().await.unwrap();
    assert_eq!(end.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_uploads_do_not_exceed_the_quota() {
    let there = Place::new();
    let length = 50_000u64;
    let used = snap_core::repo::refs::Refs::new(&there.store(), Default::default());
    let quota = used.bytes().unwrap() + 3 * length;
    let quota = Quota { default_bytes: Some(quota), ..Quota::default() };
    let serving = Serving::start(&there, ServerSettings { quota, ..ServerSettings::default() });
    let send = |number: usize| {
        let id = format!("{number:02x}").repeat(32);
        let patch = serving.client.patch(format!("{}/uploads/{id}", serving.base));
        let patch = patch.header("upload-offset", 0).header("upload-length", length);
        patch.body(vec![7; 10]).send()
    };
    let answers = futures::future::join_all((0..12).map(send)).await;
    let taken = answers.into_iter().filter(|answer| {
        let status = answer.as_ref().unwrap().status();
        assert!(matches!(status.as_u16(), 204 | 507), "{status}");
        status == StatusCode::NO_CONTENT
    });
    assert_eq!(taken.count(), 3);
    assert_eq!(fs_err::read_dir(there.staged()).unwrap().count(), 3);
}
