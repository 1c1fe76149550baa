//! Tests of a relay whose own disk is full.

use std::path::Path;

use reqwest::StatusCode;
use snap_core::base::id::PackId;
use snap_testkit::mounts::{in_own_mounts, mount_memory};

use crate::{
    place::{Place, Serving, random},
    upstream::{pack, relay, set, stands},
};

const MIB: usize = 1 << 20;

/// Returns the packs with large contents.
fn long_packs(place: &Place) -> Vec<PackId> {
    let mut packs = place.repo.store().packs();
    packs.retain(|id| place.pack_bytes(id).len() > 4 * MIB);
    packs
}

/// Returns the largest pack.
fn longest(place: &Place) -> PackId {
    let length = |id: &PackId| place.pack_bytes(id).len();
    place.repo.store().packs().into_iter().max_by_key(length).unwrap()
}

/// Fills the disk up to `spare` bytes.
fn fill(disk: &Path, spare: usize) {
    let stat = rustix::fs::statvfs(disk).unwrap();
    let free = (stat.f_bavail * stat.f_frsize) as usize;
    fs_err::write(disk.join("filler"), random(9, free.saturating_sub(spare))).unwrap();
}

#[test]
fn a_relay_with_a_full_disk_evicts_or_serves_uncached() {
    let test = "upstream_full::a_relay_with_a_full_disk_evicts_or_serves_uncached";
    in_own_mounts(test, || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(fills_the_disk());
    });
}

async fn fills_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    mount_memory(&disk, 16 << 10);
    let there = Place::new();
    let server = Serving::of(&there);
    for number in 0..6 {
        let _ = fs_err::remove_file(there.folder.path().join("files/a"));
        there.change("a", random(number, 5 * MIB));
    }
    let packs = long_packs(&there);
    assert!(packs.len() > 3, "{packs:?}");
    let head = there.change("b", "b");
    let serving = relay(server.origin(), &disk);
    assert_eq!(stands(&serving, "main").await, Some(head));
    // The disk has room for three of them.
    for id in packs.iter().chain(&packs) {
        assert_eq!(pack(&serving, id).await, there.pack_bytes(id));
    }
    // Now only eviction from the cache can make room.
    fill(&disk, 0);
    let head = there.change("b", "c");
    assert_eq!(stands(&serving, "main").await, Some(head));
    for id in packs.iter().chain(&packs) {
        assert_eq!(pack(&serving, id).await, there.pack_bytes(id));
    }
    serving.stop().await;
    fill_up(&disk);
    let serving = relay(server.origin(), &disk);
    assert_eq!(stands(&serving, "main").await, Some(head));
    for id in &packs {
        assert_eq!(pack(&serving, id).await, there.pack_bytes(id));
    }

    // An upload needs room on this disk, and the refusal says so.
    let own = Place::new();
    own.change("c", random(77, 6 * MIB));
    let id = longest(&own);
    fill_up(&disk);
    let mut refusals = 0;
    for _ in 0..4 {
        let sent = serving.put(&format!("packs/{id}"), own.pack_bytes(&id)).send().await.unwrap();
        let (status, said) = (sent.status(), sent.text().await.unwrap());
        assert!(status.is_server_error(), "{status} {said}");
        assert!(said.contains("disk of this server"), "{said}");
        refusals += usize::from(status == StatusCode::INSUFFICIENT_STORAGE);
    }
    assert!(refusals > 0, "no request was refused");
    let _ = fs_err::remove_file(disk.join("filler"));
    let _ = fs_err::remove_file(disk.join("filler2"));
    let mut statuses = Vec::new();
    while statuses.last() != Some(&StatusCode::CREATED) && statuses.len() < 5 {
        let sent = serving.put(&format!("packs/{id}"), own.pack_bytes(&id)).send().await.unwrap();
        statuses.push(sent.status());
        serving.asks_again();
    }
    assert_eq!(statuses.last(), Some(&StatusCode::CREATED), "{statuses:?}");
    let moved = set(&serving, "other", None, head).send().await.unwrap();
    assert_eq!(moved.status(), StatusCode::CREATED);
}

/// Fills the rest of the disk.
fn fill_up(disk: &Path) {
    let stat = rustix::fs::statvfs(disk).unwrap();
    let free = (stat.f_bavail * stat.f_frsize) as usize;
    let path = disk.join("filler2");
    let before = fs_err::read(&path).unwrap_or_default().len();
    let _ = fs_err::write(&path, random(8, before + free));
}
