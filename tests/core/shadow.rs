//! Objects that must not be relied on: the next commit stores lost or damaged objects
//! again, and no commit is acknowledged without them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Once,
};

use snap_core::{
    base::{
        id::{BlobId, CommitId, ContentId, ObjectId, PackId},
        observe::{Observer, Silent},
    },
    disk::{DiskStep, FaultDecision, FaultInjector},
    format::{
        pack::{ObjectKind, PackedObject},
        shadow::{Reason, ShadowedPart},
    },
    ops::{
        commit::{self, CommitOutcome, CommitSource},
        tidy,
        verify::{self, Data},
    },
    repo::Repo,
    store::{CacheTrust, PackFile},
};
use snap_testkit::bytes::Corpus;

use crate::{
    crafted::{Crafted, chunked, mib},
    scratch::{Scratch, commit, content_id, on_branch, open, open_gated, options},
};

/// A store with two packs. The first has small and chunked files, chunk lists and
/// trees; the second has the tip.
pub(crate) struct Victim {
    pub(crate) scratch: Scratch,
    pub(crate) tip: CommitId,
    pub(crate) first: PackId,
    pub(crate) path: PathBuf,
    pub(crate) whole: Vec<u8>,
}

impl Victim {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new();
        scratch.write("sub/small", Corpus::Text.make(3_000));
        scratch.write("sub/below/empty", "");
        scratch.write("sub/large", Corpus::Random.make(4 << 20));
        scratch.write("other/noise", Corpus::Random.make_seeded(500, 1));
        scratch.commit();
        let repo = scratch.repo();
        let [first] = repo.store().packs()[..] else { panic!("one pack") };
        let path = repo.store().pack_path(&first);
        scratch.write("new", "the tip is elsewhere");
        let tip = scratch.settle().id.unwrap();
        let whole = fs_err::read(&path).unwrap();
        Self { scratch, tip, first, path, whole }
    }

    /// Makes the same store, but with the tree of the large folder in another pack than
    /// its files.
    pub(crate) fn with_tree_elsewhere() -> Self {
        let victim = Self::new();
        victim.scratch.write("sub/more", "a later file");
        let tip = victim.scratch.settle().id.unwrap();
        Self { tip, ..victim }
    }

    pub(crate) fn repo(&self) -> Repo {
        self.scratch.repo()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.scratch.store()
    }

    pub(crate) fn verify(&self, data: Data) -> verify::VerifyOutcome {
        verify::run(&self.repo(), &verify::VerifyOptions { data }, &Silent).unwrap()
    }

    /// Commits unchanged files: the tree is the same, and all of it is stored
    /// afterwards.
    #[track_caller]
    pub(crate) fn commit_again(&self, told: &str) -> CommitOutcome {
        let again = self.scratch.commit();
        assert_eq!((again.created, again.id), (false, Some(self.tip)), "{told}");
        again
    }

    /// Asserts that everything that the tip needs is stored in packs other than the
    /// first.
    #[track_caller]
    pub(crate) fn assert_needs_no_first_pack(&self, told: &str) {
        let bytes = fs_err::read(&self.path).ok();
        let _ = fs_err::remove_file(&self.path);
        assert_restores(&self.scratch, self.tip, told);
        if let Some(bytes) = bytes {
            fs_err::write(&self.path, bytes).unwrap();
        }
    }
}

#[track_caller]
pub(crate) fn assert_restores(scratch: &Scratch, id: CommitId, told: &str) {
    let restored =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scratch.assert_restores(id)));
    assert!(restored.is_ok(), "{told}");
}

fn drop_index(store: &Path) {
    fs_err::remove_dir_all(store.join("index")).unwrap();
}

/// Returns the offset of each frame of a pack.
fn frame_starts(path: &Path, id: PackId) -> Vec<usize> {
    let pack = PackFile::open(path, id).unwrap();
    pack.frames().iter().map(|frame| frame.offset as usize).collect()
}

#[test]
fn an_unchanged_commit_stores_a_lost_pack_again() {
    for verified in [false, true] {
        let victim = Victim::new();
        fs_err::remove_file(&victim.path).unwrap();
        if verified {
            assert!(!victim.verify(Data::None).problems.is_empty());
        } else {
            let reliance = victim.repo().store().cache_trust();
            assert_eq!(reliance, CacheTrust::Lost { packs: 1, first: victim.first });
        }
        let again = victim.commit_again("lost");
        assert!(again.bytes_read > 4 << 20, "all files are read");
        assert!(again.added.objects > 10 && again.added.packs > 0, "{:?}", again.added);
        assert_eq!(again.stored_again, again.added.objects);
        assert_restores(&victim.scratch, victim.tip, "after the loss");
        drop_index(&victim.store());
        assert_restores(&victim.scratch, victim.tip, "without an index");
        assert_eq!(victim.scratch.settle().added.objects, 0);
        assert_eq!(victim.repo().store().cache_trust(), CacheTrust::Holds);
    }
}

/// Commits the same files when another commit has read the first of them and not yet
/// stored it.
struct Rival<'s>(&'s Scratch, Once);

impl Observer for Rival<'_> {
    fn advance(&self, _: u64, _: u64) {
        self.1.call_once(|| assert!(self.0.commit().created));
    }
}

#[test]
fn objects_of_a_concurrent_commit_are_not_reported_lost() {
    let scratch = Scratch::new();
    scratch.write("file", Corpus::Text.make(3_000));
    let source = CommitSource::Folder(scratch.source());
    let late =
        commit::run(&scratch.repo(), source, &options(), &Rival(&scratch, Once::new())).unwrap();
    assert!(!late.created && late.added.objects > 0, "{late:?}");
    assert_eq!(late.stored_again, 0);
}

/// Restores a file while another content is read at its path.
struct PutsBack {
    from: PathBuf,
    to: PathBuf,
}

impl Observer for PutsBack {
    fn advance(&self, _: u64, _: u64) {
        let _ = fs_err::rename(&self.from, &self.to);
    }
}

#[test]
fn objects_of_a_replaced_file_are_not_reported_lost() {
    let scratch = Scratch::new();
    scratch.write("file", Corpus::Text.make(3 << 20));
    scratch.settle();
    let (file, aside) = (scratch.source().join("file"), scratch.source().with_file_name("aside"));
    fs_err::rename(&file, &aside).unwrap();
    scratch.write("file", Corpus::Random.make(48 << 20));
    let source = CommitSource::Folder(scratch.source());
    let observer = PutsBack { from: aside, to: file };
    let again = commit::run(&scratch.repo(), source, &options(), &observer).unwrap();
    assert!(!again.created && again.added.objects > 0, "{again:?}");
    assert_eq!(again.stored_again, 0);
}

#[test]
fn a_lost_pack_is_detected_without_a_stat_cache() {
    let victim = Victim::new();
    fs_err::remove_file(&victim.path).unwrap();
    fs_err::remove_dir_all(victim.store().join("cache")).unwrap();
    victim.commit_again("lost");
    assert_restores(&victim.scratch, victim.tip, "after the loss");
}

#[test]
fn any_pack_damage_is_shadowed_and_stored_again() {
    type Damage = fn(&mut Vec<u8>, &[usize], usize);
    let damages: [(&str, Damage); 9] = [
        ("header", |bytes, _, _| bytes[3] ^= 4),
        ("first frame", |bytes, frames, _| bytes[frames[0] + 1] ^= 4),
        ("last frame", |bytes, frames, _| bytes[frames[frames.len() - 1] + 1] ^= 4),
        ("footer", |bytes, _, end| bytes[end - 100] ^= 4),
        ("trailer", |bytes, _, end| bytes[end - 3] ^= 4),
        ("cut short", |bytes, _, end| bytes.truncate(end - 1)),
        ("cut in the middle", |bytes, _, end| bytes.truncate(end / 2)),
        ("empty", |bytes, _, _| bytes.clear()),
        ("zeros of the same length", |bytes, _, _| bytes.fill(0)),
    ];
    for (told, damage) in damages {
        let victim = Victim::new();
        let mut bytes = victim.whole.clone();
        damage(&mut bytes, &frame_starts(&victim.path, victim.first), victim.whole.len());
        fs_err::write(&victim.path, bytes).unwrap();
        let found = victim.verify(Data::All);
        assert!(!found.problems.is_empty(), "{told}");
        assert_eq!(found.shadowed.packs, 1, "{told}");
        assert!(found.shadowed.failed.is_none(), "{told}");
        victim.commit_again(told);
        victim.assert_needs_no_first_pack(told);
    }
}

#[test]
fn only_objects_of_the_damaged_frame_are_shadowed() {
    let first = Victim::new();
    for number in 0..frame_starts(&first.path, first.first).len() {
        let told = format!("frame {number}");
        let victim = Victim::new();
        let start = frame_starts(&victim.path, victim.first)[number];
        let mut bytes = victim.whole.clone();
        bytes[start + 2] ^= 1;
        fs_err::write(&victim.path, bytes).unwrap();
        let found = victim.verify(Data::Sample(1.0));
        assert_eq!(found.shadowed.packs, 1, "{told}: {:?}", found.problems);
        let repo = victim.repo();
        let pack = PackFile::open(&victim.path, victim.first).unwrap();
        let mut rest = pack.objects().unwrap();
        for (other, frame) in pack.frames().iter().enumerate() {
            for object in rest.drain(..frame.objects as usize) {
                let stored = repo.store().is_stored(&object.id).unwrap();
                assert_eq!(stored, other != number, "{told}, {:?}", object.kind);
                assert!(
                    repo.store().locate(&object.id).unwrap().is_some(),
                    "readers can still find the object"
                );
            }
        }
        let again = victim.commit_again(&told);
        assert!(again.added.objects > 0, "{told}");
        assert_restores(&victim.scratch, victim.tip, &told);
    }
}

#[test]
fn a_pack_with_other_bytes_of_equal_length_is_not_trusted() {
    let victim = Victim::new();
    // A pack of the same layout with other contents.
    let other = Scratch::new();
    other.write("sub/small", Corpus::Text.make_seeded(3_000, 9));
    other.write("sub/below/empty", "");
    other.write("sub/large", Corpus::Random.make_seeded(4 << 20, 9));
    other.write("other/noise", Corpus::Random.make_seeded(500, 7));
    other.commit();
    let repo = other.repo();
    let bytes = fs_err::read(repo.store().pack_path(&repo.store().packs()[0])).unwrap();
    fs_err::write(&victim.path, bytes).unwrap();
    assert!(!victim.verify(Data::All).problems.is_empty());
    victim.commit_again("other bytes");
    victim.assert_needs_no_first_pack("other bytes");
}

#[test]
fn a_restored_pack_is_trusted_after_verification() {
    let victim = Victim::new();
    let mut bytes = victim.whole.clone();
    bytes[100] ^= 1;
    fs_err::write(&victim.path, &bytes).unwrap();
    victim.verify(Data::All);
    assert!(victim.store().join("shadow").exists());
    // The pack is still damaged: the check of the structure reads all of a shadowed
    // pack.
    let again = victim.verify(Data::None);
    assert_eq!((again.shadowed.packs, again.shadowed.withdrawn), (0, 0));
    assert!(!again.problems.is_empty() && victim.repo().store().is_damaged(&victim.first));
    fs_err::write(&victim.path, &victim.whole).unwrap();
    assert!(victim.repo().store().is_damaged(&victim.first), "the repaired pack was not read yet");
    let healed = victim.verify(Data::None);
    assert_eq!((healed.problems.len(), healed.shadowed.withdrawn), (0, 1));
    assert!(!victim.repo().store().is_damaged(&victim.first));
    assert!(!victim.store().join("shadow").exists());
    assert_eq!(victim.commit_again("put back").added.objects, 0);
}

#[test]
fn a_damaged_pack_stored_again_with_equal_bytes_is_trusted() {
    let scratch = Scratch::new();
    scratch.write("file", Corpus::Text.make(5_000));
    let id = scratch.commit().id.unwrap();
    let pack = scratch.repo().store().packs()[0];
    let path = scratch.repo().store().pack_path(&pack);
    let whole = fs_err::read(&path).unwrap();
    let mut bytes = whole.clone();
    bytes[20] ^= 1;
    fs_err::write(&path, &bytes).unwrap();
    let all = verify::VerifyOptions { data: Data::All };
    assert!(!verify::run(&scratch.repo(), &all, &Silent).unwrap().problems.is_empty());
    let again = scratch.commit();
    assert_eq!((again.id, again.created), (Some(id), false));
    assert_eq!(fs_err::read(&path).unwrap(), whole, "the same pack was made again");
    assert!(!scratch.repo().store().is_shadowed(&pack));
    assert!(verify::run(&scratch.repo(), &all, &Silent).unwrap().problems.is_empty());
    assert_eq!(scratch.commit().added.objects, 0);
}

#[test]
fn an_undamaged_copy_is_preferred_to_a_shadowed_one() {
    let victim = Victim::new();
    let mut bytes = victim.whole.clone();
    bytes[frame_starts(&victim.path, victim.first)[0] + 1] ^= 1;
    fs_err::write(&victim.path, bytes).unwrap();
    victim.verify(Data::All);
    victim.commit_again("damaged");
    for _ in 0..2 {
        let repo = victim.repo();
        let small = BlobId::of(&Corpus::Text.make(3_000)).object();
        let place = repo.store().locate(&small).unwrap().unwrap();
        assert_ne!(repo.store().pack_id(place.pack), Some(victim.first));
        // The damage is still there, but affects no reachable object.
        let found = victim.verify(Data::All);
        assert!(!found.problems.is_empty());
        let touched: Vec<_> = found.touched.paths.iter().map(|path| path.commit).collect();
        assert!(!touched.contains(&victim.tip), "{:?}", found.touched);
        drop_index(&victim.store());
    }
}

#[test]
fn other_copies_are_tried_if_one_cannot_be_read() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 5] = [
        ("first frame", |bytes| bytes[20] ^= 4),
        ("trailer", |bytes| *bytes.last_mut().unwrap() ^= 4),
        ("cut short", |bytes| bytes.truncate(bytes.len() - 1)),
        ("empty", |bytes| bytes.clear()),
        ("zeros", |bytes| bytes.fill(0)),
    ];
    for (told, damage) in damages {
        let victim = Victim::new();
        // The frames stay readable. Only the object table is damaged.
        let mut bytes = victim.whole.clone();
        let end = bytes.len();
        bytes[end - 100] ^= 4;
        fs_err::write(&victim.path, bytes).unwrap();
        let before = victim.repo().store().packs();
        assert_eq!(victim.verify(Data::All).shadowed.packs, 1, "{told}");
        victim.commit_again(told);
        // The damage of the objects that were stored again is not known yet.
        let repo = victim.repo();
        for pack in repo.store().packs().iter().filter(|pack| !before.contains(pack)) {
            let path = repo.store().pack_path(pack);
            let mut bytes = fs_err::read(&path).unwrap();
            damage(&mut bytes);
            fs_err::write(&path, bytes).unwrap();
        }
        drop(repo);
        assert_restores(&victim.scratch, victim.tip, told);
    }
}

#[test]
fn merging_skips_shadowed_packs() {
    let scratch = Scratch::new();
    let mut first = None;
    for n in 0..12 {
        scratch.write("file", format!("{n}"));
        scratch.commit();
        first = first.or(scratch.repo().store().packs().first().copied());
    }
    let first = first.unwrap();
    let repo = scratch.repo();
    let path = repo.store().pack_path(&first);
    let mut bytes = fs_err::read(&path).unwrap();
    bytes[16] ^= 1;
    fs_err::write(&path, bytes).unwrap();
    // A merge finds the damage and shadows it.
    let error = tidy::run(&repo, &Silent).unwrap_err();
    assert_eq!(error.damaged_pack(), Some(first), "{error}");
    let repo = scratch.repo();
    assert!(repo.store().is_damaged(&first));
    assert!(repo.store().packs().len() < 12 && repo.store().packs().contains(&first));
    let packs = repo.store().packs();
    tidy::run(&repo, &Silent).unwrap();
    assert_eq!(scratch.repo().store().packs(), packs);
}

#[test]
fn merging_packs_keeps_the_stat_cache_trusted() {
    let scratch = Scratch::new();
    for n in 0..9 {
        scratch.write(&format!("{n}"), format!("{n}"));
        scratch.commit();
    }
    scratch.settle();
    let repo = scratch.repo();
    let outcome = tidy::run(&repo, &Silent).unwrap();
    assert!(outcome.merged >= 8, "{outcome:?}");
    assert_eq!(scratch.repo().store().cache_trust(), CacheTrust::Holds);
    assert_eq!(scratch.commit().bytes_read, 0);
}

#[test]
fn a_damaged_shadow_table_distrusts_all_packs_until_verify() {
    let victim = Victim::new();
    let table = victim.store().join("shadow");
    fs_err::write(&table, "SNAPSHAD, followed by invalid data").unwrap();
    assert!(victim.repo().store().shadows().is_unknown);
    let repo = victim.repo();
    assert!(repo.store().packs().iter().all(|pack| repo.store().is_shadowed(pack)));
    let again = victim.commit_again("unknown shadows");
    assert!(again.added.objects > 10, "all is stored again: {:?}", again.added);
    let found = victim.verify(Data::None);
    assert_eq!(found.problems.len(), 0, "{:?}", found.problems);
    assert!(found.shadowed.withdrawn >= 2);
    assert!(!table.exists());
}

#[test]
fn a_shadow_table_of_another_version_is_refused() {
    let victim = Victim::new();
    for version in [1, 3] {
        let mut bytes = [b"SNAPSHAD".as_slice(), &[version, 0]].concat();
        bytes.extend(snap_core::format::pack::checksum(&bytes).to_le_bytes());
        fs_err::write(victim.store().join("shadow"), bytes).unwrap();
        let disk = snap_core::disk::Disk::default();
        let error = Repo::open(&victim.store(), disk, &Silent).unwrap_err();
        assert_eq!(error.kind(), snap_core::base::kind::ErrorKind::Unsupported, "{error}");
    }
}

/// A gate that refuses every step.
#[derive(Debug)]
struct Refusing;

impl FaultInjector for Refusing {
    fn decide(&self, _: DiskStep, _: &Path) -> FaultDecision {
        FaultDecision::Fail(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

#[test]
fn verify_of_a_read_only_store_reports_unshadowed_damage() {
    let victim = Victim::new();
    let mut bytes = victim.whole.clone();
    bytes[100] ^= 1;
    fs_err::write(&victim.path, bytes).unwrap();
    let repo = open_gated(&victim.store(), std::sync::Arc::new(Refusing));
    let all = verify::VerifyOptions { data: Data::All };
    let found = verify::run(&repo, &all, &Silent).unwrap();
    assert!(found.shadowed.failed.is_some());
    assert!(!victim.store().join("shadow").exists());
    assert!(!victim.repo().store().is_damaged(&victim.first));
}

#[test]
fn dead_objects_are_stored_again_and_stay_shadowed() {
    let victim = Victim::new();
    let small = BlobId::of(&Corpus::Text.make(3_000)).object();
    let repo = victim.repo();
    let first = victim.first;
    // A garbage collection finds an object dead together with everything that refers to it.
    let objects = repo.store().open_pack(&first).unwrap().objects().unwrap();
    let is_dead = |object: &&PackedObject| object.id == small || object.kind != ObjectKind::Blob;
    let dead: BTreeSet<ObjectId> = objects.iter().filter(is_dead).map(|object| object.id).collect();
    let part = ShadowedPart::Objects(dead.clone());
    repo.store().change_shadows(&|table| table.add(first, Reason::Dead, part.clone())).unwrap();
    let again = victim.commit_again("dead");
    // All but the first commit and its root, which the tip does not need.
    assert_eq!(again.added.objects, dead.len() as u64 - 2);
    assert_eq!(victim.verify(Data::All).shadowed.withdrawn, 0);
    let repo = open(&victim.store());
    assert!(repo.store().is_shadowed(&first) && !repo.store().is_damaged(&first));
    let place = repo.store().locate_unshadowed(&small).unwrap().unwrap();
    assert_ne!(repo.store().pack_id(place.pack), Some(first));
}

#[test]
fn a_commit_that_finds_damage_stores_the_objects_again() {
    let victim = Victim::new();
    // The trees of the first commit are in its last frame.
    let start = *frame_starts(&victim.path, victim.first).last().unwrap();
    let mut bytes = victim.whole.clone();
    bytes[start + 2] ^= 1;
    fs_err::write(&victim.path, bytes).unwrap();
    victim.scratch.write("other/more", "a folder whose tree before is read");
    let made = victim.scratch.commit();
    assert!(made.created);
    assert!(victim.repo().store().is_damaged(&victim.first));
    // The commit found the damage while other folders were already done, so the next
    // one stores all of it.
    commit(&victim.repo(), &victim.scratch.source(), &options());
    assert_restores(&victim.scratch, made.id.unwrap(), "damage found during the commit");
}

#[test]
fn a_commit_that_finds_damage_drops_stat_cache_entries() {
    let victim = Victim::with_tree_elsewhere();
    let start = *frame_starts(&victim.path, victim.first).last().unwrap();
    let mut bytes = victim.whole.clone();
    bytes[start + 2] ^= 1;
    fs_err::write(&victim.path, bytes).unwrap();
    // The tree of this folder is damaged; the tree of the large folder is not.
    victim.scratch.write("other/more", "a folder whose tree before is read");
    victim.scratch.commit();
    assert!(victim.repo().store().is_damaged(&victim.first));
    let tip = commit(&victim.repo(), &victim.scratch.source(), &options()).id.unwrap();
    fs_err::remove_file(&victim.path).unwrap();
    assert_restores(&victim.scratch, tip, "nothing relies on the damaged pack");
}

#[test]
fn only_a_forged_chunk_list_stays_shadowed_in_a_sound_pack() {
    let (whole, pieces) = (Corpus::Random.make(4 << 20), [mib(1), mib(2)]);
    let ContentId::Chunked(list) = content_id(&whole) else { panic!("it is large") };
    let (other, mut forged) = chunked(&[&pieces[0], &pieces[1]]);
    assert_ne!(other, list);
    forged.last_mut().unwrap().0 = list.object();
    let forged = Crafted::of(&forged);
    let victim = Victim::new();
    let [pack] = forged.repo().store().packs()[..] else { panic!("one pack") };
    for (store, pack, is_sound) in
        [(victim.store(), victim.first, true), (forged.store(), pack, false)]
    {
        let ids = ShadowedPart::Objects([list.object()].into());
        let repo = open(&store);
        repo.store()
            .change_shadows(&|table| table.add(pack, Reason::Damaged, ids.clone()))
            .unwrap();
        let found =
            verify::run(&open(&store), &verify::VerifyOptions { data: Data::None }, &Silent);
        assert_eq!(found.unwrap().shadowed.withdrawn, u64::from(is_sound));
        assert_eq!(open(&store).store().is_damaged(&pack), !is_sound);
    }
}

#[test]
fn a_chunk_list_without_its_chunks_is_no_stat_cache_hit() {
    let victim = Victim::new();
    let large = victim.scratch.source().join("sub/large");
    let away = victim.scratch.path("away");
    fs_err::rename(&large, &away).unwrap();
    // The chunks are lost, the list is not. No commit needs the chunks now.
    let repo = victim.repo();
    let list = content_id(&fs_err::read(&away).unwrap());
    let bytes = repo.store().object(&list.object(), ObjectKind::ChunkList);
    let writer = snap_core::store::ObjectWriter::new(repo.store(), 3, 1).unwrap();
    fs_err::remove_file(&victim.path).unwrap();
    repo.store().refresh().unwrap();
    writer.add_metadata(ObjectKind::ChunkList, list.object(), &bytes.unwrap()).unwrap();
    writer.finish().unwrap();
    let writer = snap_core::store::ObjectWriter::new(repo.store(), 3, 1).unwrap();
    assert!(writer.contains(&list.object()).unwrap());
    assert!(!writer.contains_content(&list).unwrap());
    drop(writer);
    commit(&victim.repo(), &victim.scratch.source(), &on_branch("without"));
    fs_err::rename(&away, &large).unwrap();
    let with = commit(&victim.repo(), &victim.scratch.source(), &on_branch("with"));
    assert_restores(&victim.scratch, with.id.unwrap(), "the file is back");
}
