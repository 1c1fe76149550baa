//! Tests of the index that clients read: files that clients upload, and damaged packs.

use std::collections::BTreeSet;

use reqwest::StatusCode;
use snap_core::base::id::PackId;

use crate::{
    place::{Place, Serving, json, named, refused},
    tokens::status,
};

/// Returns the names of the index files on disk, and of those that the server lists.
async fn files(place: &Place, serving: &Serving) -> (BTreeSet<String>, BTreeSet<String>) {
    let told = json(serving.get("index"), StatusCode::OK).await;
    let told = told["files"].as_array().unwrap().iter();
    let told = told.map(|file| file["name"].as_str().unwrap().to_owned()).collect();
    let kept = fs_err::read_dir(place.store().join("cache/outlines")).unwrap().flatten();
    (kept.map(|entry| entry.file_name().into_string().unwrap()).collect(), told)
}

/// Creates a place with three commits, each in its own pack, and the packs in that
/// order.
fn three() -> (Place, Vec<PackId>) {
    let place = Place::new();
    let mut packs: Vec<PackId> = Vec::new();
    for name in ["a", "b", "c"] {
        place.change(name, name);
        let new = place.repo.store().packs().into_iter().find(|id| !packs.contains(id));
        packs.extend(new);
    }
    assert_eq!((packs.len(), place.repo.store().packs().len()), (3, 3));
    (place, packs)
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_known_packs_again_changes_no_index_file() {
    let ((here, packs), there) = (three(), Place::new());
    let serving = Serving::of(&there);
    for id in &packs {
        assert_eq!(serving.send(&here, &[*id]).await.status(), 201);
    }
    let before = files(&there, &serving).await;
    assert_eq!((before.0.len(), &before.0), (3, &before.1));
    // Outline files that repeat a pack, or that are not sorted.
    let outline = |id| here.repo.store().outline(id).unwrap();
    let mut two = [outline(&packs[0]), outline(&packs[1])];
    two.sort_unstable_by_key(|outline| std::cmp::Reverse(outline.id));
    let often = |times: usize| vec![outline(&packs[0]); times];
    for outlines in [&two[..], &often(2), &often(3)] {
        let (name, bytes) = named(outlines);
        refused(serving.put(&format!("index/{name}"), bytes.clone()), 422, "rejected").await;
        refused(serving.put(&format!("index/{name}.part"), bytes), 422, "rejected").await;
    }
    // Files that list published packs in other combinations are accepted but not kept,
    // and so is an empty file.
    for some in [&packs[..2], &packs[1..], &[packs[0], packs[2]], &packs[..], &[]] {
        let (name, bytes) = here.outlines(some);
        assert_eq!(status(serving.put(&format!("index/{name}"), bytes)).await, 200);
    }
    assert_eq!(files(&there, &serving).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_pack_listed_with_known_ones_is_listed_once() {
    let ((here, packs), there) = (three(), Place::new());
    let serving = Serving::of(&there);
    assert_eq!(serving.send(&here, &packs[..2]).await.status(), 201);
    assert_eq!(serving.send(&here, &packs[1..]).await.status(), 201);
    let wanted = [&packs[..2], &packs[2..]].map(|packs| here.outlines(packs).0).into();
    let (kept, told) = files(&there, &serving).await;
    assert_eq!((&kept, &told), (&wanted, &wanted));
    // A server that restarts finds the same files.
    let again = Serving::of(&there);
    assert_eq!(files(&there, &again).await, (kept, told));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_pack_does_not_block_the_others() {
    let (here, bad, there) = (Place::new(), Place::new(), Place::new());
    here.change("a", "good");
    bad.change("a", "bad");
    let [good, bad_id] = [&here, &bad].map(|place| place.repo.store().packs()[0]);
    let mut bytes = bad.pack_bytes(&bad_id);
    let end = bytes.len();
    bytes[end - 16..].fill(0xff);
    fs_err::write(there.store().join("objects").join(bad_id.to_string()), bytes).unwrap();
    let serving = Serving::of(&there);
    let none = json(serving.get("index"), StatusCode::OK).await;
    assert_eq!(none["files"].as_array().unwrap().len(), 0);
    assert_eq!(serving.send(&here, &[good]).await.status(), 201);
    let wanted = [here.outlines(&[good]).0].into();
    assert_eq!(files(&there, &serving).await.1, wanted);
    assert_eq!(files(&there, &serving).await.1, wanted);
    // Once the pack is repaired, it is listed as well.
    let path = there.store().join("objects").join(bad_id.to_string());
    fs_err::remove_file(&path).unwrap();
    fs_err::write(&path, bad.pack_bytes(&bad_id)).unwrap();
    assert_eq!(files(&there, &serving).await.1.len(), 2);
}
