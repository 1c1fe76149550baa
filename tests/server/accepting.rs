//! Tests that checking an upload has limits, and that a temporary read error does not
//! count as damage.

use futures::{StreamExt, stream};
use reqwest::{Body, StatusCode};
use snap_server::settings::{Quota, ServerLimits, ServerSettings};

use crate::{
    place::{Place, Serving, json, random, refused},
    upstream_steps::bundle_of,
    watched::{metrics, number},
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
async fn concurrent_uploads_do_not_exceed_the_quota() {
    let there = Place::new();
    let length = 50_000u64;
    let used = snap_core::repo::refs::Refs::new(&there.store(), Default::default());
    let quota = used.bytes().unwrap() + 3 * length;
    let quota = Quota { default_bytes: Some(quota), ..Quota::default() };
    let serving = Serving::start(&there, ServerSettings { quota, ..ServerSettings::default() });
    let send = |number: usize| {
        let id = format!("{number:02x}").repeat(32);
        let begun = stream::once(async { std::io::Result::Ok(vec![7; 10]) });
        let body = Body::wrap_stream(begun.chain(stream::pending()));
        let put = serving.put(&format!("packs/{id}"), body).header("content-length", length);
        // Without it, a refusal waits for the body.
        let put = put.header("expect", "100-continue");
        tokio::spawn(put.send())
    };
    let sending: Vec<_> = (0..12).map(send).collect();
    let refusals = |text: &str| {
        let counts = text.lines().filter(|line| line.contains("status=\"507\""));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    let is_full =
        |text: &str| refusals(text) == 9 && number(text, "snap_uploads_in_flight") == Some(3);
    metrics(&serving, "", is_full).await;
    // Uploads that break off free their room.
    sending.into_iter().for_each(|send| send.abort());
    metrics(&serving, "", |text| number(text, "snap_uploads_in_flight") == Some(0)).await;
    assert_eq!(fs_err::read_dir(there.staged()).unwrap().count(), 0);
}
