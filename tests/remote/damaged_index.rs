//! Damaged and lost index files of a remote store: `verify` finds them, a push rewrites them.

use std::sync::Arc;

use snap_core::{
    base::{id::CommitId, observe::Silent},
    format::pack::ObjectKind,
    ops::{
        repair::{RepairRun, RepairSource, SourceKind},
        verify::{Data, VerifyOptions},
    },
};
use snap_remote::{
    bucket::{Bucket, ListDepth, memory::MemoryBucket},
    peer::{self, RemoteStore},
    remote_packs::BlockingContext,
    repair,
    transfer::push,
    verify::{self, RemoteVerifyOutcome, SeenRefs},
};

use crate::place::{Place, complete};

/// Cache of the client that pushed first.
const CACHE: &str = "remote";

/// An index file length with which several packs make a group.
const SMALL: u64 = 1;

/// An index file length with which they make one file.
const LARGE: u64 = 4 << 20;

/// A remote store with commits that were pushed together, each in its own pack.
struct There {
    here: Place,
    service: Arc<dyn Bucket>,
    last: CommitId,
    /// The approximate length of new index files.
    file_bytes: u64,
}

impl There {
    /// Creates a store whose index is a group.
    fn grouped(name: &str) -> Self {
        let there = Self::new(name, SMALL);
        assert_eq!((there.keys(".group").len(), there.keys(".part").len()), (1, 3));
        there
    }

    /// Creates a store whose index is one file.
    fn plain(name: &str) -> Self {
        let there = Self::new(name, LARGE);
        assert_eq!(there.keys("").len(), 1);
        there
    }

    fn new(name: &str, file_bytes: u64) -> Self {
        let service: Arc<dyn Bucket> = Arc::new(MemoryBucket::named(name));
        let here = Place::new();
        let commits = ["one", "two", "three"].map(|text| here.change(text, text));
        let there = Self { here, service, last: commits[2], file_bytes };
        assert_eq!(there.push(CACHE).packs, 3);
        there
    }

    fn remote(&self, cache: &str) -> RemoteStore {
        let remote = self.here.remote(Arc::clone(&self.service), cache);
        remote.with_index_files_of(self.file_bytes)
    }

    fn push(&self, cache: &str) -> push::PushOutcome {
        self.here.push(&mut self.remote(cache), self.last).unwrap()
    }

    fn verify(&self, cache: &str, data: Data) -> RemoteVerifyOutcome {
        let waiting = BlockingContext::without_stop(self.here.runtime.handle());
        verify::run(
            self.remote(cache),
            &VerifyOptions { data },
            SeenRefs::default(),
            &waiting,
            &Silent,
        )
        .unwrap()
    }

    /// Verifies, and expects only damaged index files, one for each text.
    fn finds(&self, cache: &str, data: Data, texts: &[&str]) {
        let found = self.verify(cache, data);
        assert!(found.found.problems.is_empty(), "{found:?}");
        let said: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), texts.len(), "{said:?}");
        for text in texts {
            assert!(said.iter().any(|said| said.contains(text)), "{text}: {said:?}");
        }
    }

    /// Returns the keys of index files with this suffix.
    fn keys(&self, ending: &str) -> Vec<String> {
        let listed =
            self.here.runtime.block_on(self.service.list("index/", ListDepth::All)).unwrap();
        listed.into_iter().map(|object| object.key).filter(|key| key.ends_with(ending)).collect()
    }

    /// Flips a bit. Returns the previous bytes.
    fn flip(&self, key: &str) -> Vec<u8> {
        let read = self.here.runtime.block_on(self.service.get(key, 1 << 20)).unwrap();
        let mut bytes = read.bytes.to_vec();
        bytes[20] ^= 1;
        self.write(key, bytes);
        read.bytes.to_vec()
    }

    fn write(&self, key: &str, bytes: Vec<u8>) {
        let write = self.service.put(key, bytes.into());
        self.here.runtime.block_on(write).unwrap();
    }

    fn remove(&self, key: &str) {
        self.here.runtime.block_on(self.service.delete(&[key.to_owned()])).unwrap();
    }

    /// Checks that a push repairs this index file without uploading a pack.
    fn is_mended_by_a_push(&self, key: &str) {
        let pushed = self.push(CACHE);
        assert_eq!((pushed.packs, &*pushed.mended), (0, &[key.to_owned()][..]));
        self.is_whole();
    }

    fn is_whole(&self) {
        assert_eq!(complete(Arc::clone(&self.service), "main"), Some(self.last));
        for cache in [CACHE, "another"] {
            self.finds(cache, Data::All, &[]);
        }
        assert!(self.push(CACHE).mended.is_empty());
    }
}

#[test]
fn a_damaged_group_is_rewritten_under_its_name() {
    let there = There::grouped("damaged_group");
    let key = there.keys(".group").remove(0);
    there.flip(&key);
    there.finds(CACHE, Data::All, &[&key]);
    there.is_mended_by_a_push(&key);
    assert_eq!(there.keys(".group"), [key]);
}

#[test]
fn a_damaged_group_can_be_replaced_by_other_index_files() {
    let mut there = There::grouped("damaged_group_replaced");
    let key = there.keys(".group").remove(0);
    there.flip(&key);
    there.file_bytes = LARGE;
    there.finds(CACHE, Data::All, &[&key]);
    there.is_mended_by_a_push(&key);
    assert_eq!(there.keys(".group"), [""; 0]);
}

#[test]
fn a_damaged_group_part_is_detected_by_verify_and_rewritten() {
    let there = There::grouped("damaged_part");
    let (group, part) = (there.keys(".group").remove(0), there.keys(".part").remove(1));
    there.flip(&part);
    there.finds(CACHE, Data::None, &[]);
    there.finds(CACHE, Data::All, &[&part]);
    // The damage stays known until the part is read again and found intact.
    there.finds(CACHE, Data::None, &[&part]);
    there.is_mended_by_a_push(&group);
}

#[test]
fn a_lost_group_part_is_detected_by_listing_and_rewritten() {
    let there = There::grouped("lost_part");
    let group = there.keys(".group").remove(0);
    for data in [Data::None, Data::All] {
        let part = there.keys(".part").remove(1);
        there.remove(&part);
        there.finds(CACHE, data, &[&part]);
        there.is_mended_by_a_push(&group);
        assert_eq!(there.keys(".part").len(), 3);
    }
}

#[test]
fn a_group_with_a_lost_part_is_removed_after_relisting() {
    let there = There::grouped("lost_part_unknown");
    let part = there.keys(".part").remove(1);
    there.remove(&part);
    let damaged = there.verify("fresh", Data::None);
    let said = damaged.problems[0].to_string();
    assert!(damaged.problems.len() == 1 && said.contains(&part), "{said}");
    let group = there.keys(".group").remove(0);
    let pushed = there.push("fresh");
    assert_eq!((pushed.packs, pushed.mended), (3, vec![group]));
    there.is_whole();
}

#[test]
fn a_group_repaired_by_another_client_is_not_removed() {
    let there = There::grouped("mended_meanwhile");
    let key = there.keys(".group").remove(0);
    there.flip(&key);
    assert!(!there.verify("fresh", Data::None).problems.is_empty());
    there.finds(CACHE, Data::All, &[&key]);
    there.is_mended_by_a_push(&key);
    there.push("fresh");
    assert!(there.keys(".group").contains(&key));
    there.is_whole();
}

#[test]
fn index_damage_is_remembered_until_a_push_repairs_it() {
    let there = There::plain("stays_known");
    let key = there.keys("").remove(0);
    let right = there.flip(&key);
    there.finds(CACHE, Data::None, &[]);
    there.finds(CACHE, Data::All, &[&key]);
    there.finds(CACHE, Data::None, &[&key]);
    there.write(&key, right);
    there.finds(CACHE, Data::None, &[]);
    assert!(there.push(CACHE).mended.is_empty(), "the index file is intact again");
    there.flip(&key);
    there.finds(CACHE, Data::All, &[&key]);
    there.finds(CACHE, Data::None, &[&key]);
    there.is_mended_by_a_push(&key);
}

#[test]
fn a_repair_also_repairs_the_index() {
    let there = There::plain("repaired");
    let key = there.keys("").remove(0);
    there.flip(&key);
    let store = there.here.repo.store();
    there.remove(&format!("objects/{}", store.packs()[0]));
    let source = [RepairSource::new("here".to_owned(), store, SourceKind::Store)];
    let options = repair::RemoteRepairOptions {
        data: Data::All,
        run: RepairRun::Real,
        level: 3,
        scratch: there.here.folder.path(),
        seen: SeenRefs::default(),
    };
    let open = || Ok(there.remote(CACHE));
    let waiting = BlockingContext::without_stop(there.here.runtime.handle());
    let repaired = repair::run(&open, &|| &source, &options, &waiting, &Silent).unwrap();
    assert!(repaired.left.is_intact(), "{repaired:?}");
    assert_eq!((repaired.repaired.len(), &*repaired.repaired_keys), (1, &[key][..]));
    there.is_whole();
}

/// Repairs from `sources` with a cache that knows nothing of the damaged index files.
fn repair_from(
    there: &There,
    cache: &str,
    (sources, run): (&[RepairSource<'_>], RepairRun),
) -> repair::RemoteRepairOutcome {
    let options = repair::RemoteRepairOptions {
        data: Data::None,
        run,
        level: 3,
        scratch: there.here.folder.path(),
        seen: SeenRefs::default(),
    };
    let open = || Ok(there.remote(cache));
    let waiting = BlockingContext::without_stop(there.here.runtime.handle());
    repair::run(&open, &|| sources, &options, &waiting, &Silent).unwrap()
}

/// Returns the length of each pack.
fn packs(there: &There) -> Vec<(String, u64)> {
    let listed =
        there.here.runtime.block_on(there.service.list("objects/", ListDepth::All)).unwrap();
    listed.into_iter().map(|object| (object.key, object.bytes)).collect()
}

#[test]
fn a_repair_relists_packs_of_an_unknown_index_file() {
    for (name, damage) in [("flipped_unknown", true), ("lost_unknown", false)] {
        let there = There::plain(name);
        let (key, before) = (there.keys("").remove(0), packs(&there));
        match damage {
            true => drop(there.flip(&key)),
            false => there.remove(&key),
        }
        let dry = repair_from(&there, "dry", (&[], RepairRun::Dry));
        assert!(dry.lost.is_empty(), "{dry:?}");
        assert_eq!(there.keys("").len(), usize::from(damage));
        let repaired = repair_from(&there, "fresh", (&[], RepairRun::Real));
        assert!(repaired.left.is_intact(), "{repaired:?}");
        assert_eq!((repaired.sent_bytes, &*repaired.repaired_keys), (0, &[key][..]));
        assert_eq!(packs(&there), before);
        there.is_whole();
    }
}

/// Pushes another branch from a store that has nothing of the others, after it has found the
/// damaged index file.
fn push_of_another_user(there: &There, cache: &str) -> Vec<String> {
    there.verify(cache, Data::None);
    let other = Place::new();
    let commit = other.change("other", "other");
    let mut remote = there.remote(cache);
    let pushed = other.push_all(&mut remote, vec![other.update("other", commit)]).unwrap();
    assert_eq!(complete(Arc::clone(&there.service), "other"), Some(commit));
    pushed.mended
}

#[test]
fn a_push_that_removes_an_index_file_relists_its_packs() {
    let there = There::plain("relisted_by_push");
    let key = there.keys("").remove(0);
    there.flip(&key);
    let mended = push_of_another_user(&there, "fresh");
    assert!(mended.contains(&key), "{mended:?}");
    there.is_whole();
}

#[test]
fn packs_that_refer_to_a_lost_pack_are_relisted_by_repair() {
    let there = There::plain("relisted_in_part");
    let store = there.here.repo.store();
    let first = store.packs().into_iter().find(|id| {
        let objects = store.open_pack(id).unwrap().objects().unwrap();
        let parents = objects.iter().filter(|object| object.kind == ObjectKind::Commit);
        let mut parents = parents
            .map(|object| store.commit(&CommitId::from_object(object.id)).unwrap().parents.len());
        parents.next() == Some(0)
    });
    there.remove(&format!("objects/{}", first.unwrap()));
    there.flip(&there.keys("").remove(0));
    push_of_another_user(&there, "fresh");
    // The index lists only what is complete: the pack of the other user.
    assert_eq!(fresh_packs(&there, "after_push"), 1);
    let repaired = repair_from(&there, "fresh", (&[], RepairRun::Real));
    assert!(!repaired.lost.is_empty() && !repaired.left.is_intact(), "{repaired:?}");
    assert_eq!(fresh_packs(&there, "after_repair"), 3);
    let source = [RepairSource::new("here".to_owned(), store, SourceKind::Store)];
    let repaired = repair_from(&there, "fresh", (&source, RepairRun::Real));
    assert!(repaired.left.is_intact(), "{repaired:?}");
    there.is_whole();
}

/// Returns the number of packs that the index lists.
fn fresh_packs(there: &There, cache: &str) -> usize {
    let mut remote = there.remote(cache);
    there.here.runtime.block_on(remote.refresh()).unwrap();
    remote.mirror().store().packs().len()
}

#[test]
fn copying_a_mirror_copies_its_index_damage() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    let mirror = peer::Mirror::open(&from).unwrap();
    mirror.note_damaged_index(&["name".to_owned()]).unwrap();
    peer::Mirror::copy_damage(&from, &to).unwrap();
    assert_eq!(peer::Mirror::open(&to).unwrap().damaged_index(), ["name"]);
}
