//! Repair: damaged or lost objects are recovered from all sources that have them, and
//! nothing else changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Instant,
};

use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::{Note, Observer, Phase, Silent},
    },
    disk::{Disk, FaultInjector},
    format::{
        pack::{ObjectKind, checksum},
        tree::EntryKind,
    },
    ops::{
        cat,
        repair::{
            self, RepairOptions, RepairOutcome, RepairRun, RepairSource, Repaired, RepairedFrom,
            SourceKind,
        },
        verify::{self, Data},
    },
    repo::{
        Config, Repo,
        path::{ResolvedPath, resolve_path},
    },
    store::{BundleStore, ObjectWriter, PackFile, Store},
};
use snap_testkit::{bytes::Corpus, rng::Rng, wait::PATIENCE};

use crate::{
    bundle::packed,
    faults::{Fault, PLANS, Plan},
    scratch::{Scratch, assert_restores, commit, copy, open, open_gated, options, refs, temporary},
    shadow::Victim,
};

/// Repairs a store from other stores.
fn repair_from(repo: &Repo, others: &[&Store], data: Data, run: RepairRun) -> RepairOutcome {
    let dir = temporary();
    let sources: Vec<RepairSource<'_>> = others
        .iter()
        .enumerate()
        .map(|(number, store)| RepairSource::new(format!("{number}"), store, SourceKind::Store))
        .collect();
    let options = RepairOptions { data, run, scratch: dir.path() };
    repair::run(repo, &|| &sources, &|_| None, &options, &Silent).unwrap()
}

fn repair(repo: &Repo, others: &[&Store]) -> RepairOutcome {
    repair_from(repo, others, Data::All, RepairRun::Real)
}

/// Returns true if the store is whole after a repair.
fn is_whole(outcome: &RepairOutcome) -> bool {
    outcome.lost.is_empty() && outcome.left.problems.is_empty()
}

/// A copy of a store.
struct Twin {
    dir: tempfile::TempDir,
}

impl Twin {
    fn of(store: &Path) -> Self {
        let dir = temporary();
        copy(store, &dir.path().join("store"));
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn repo(&self) -> Repo {
        open(&self.path())
    }
}

/// Makes a store with all objects of another one, in packs with other names.
fn repacked(store: &Store) -> (tempfile::TempDir, Store) {
    let dir = temporary();
    let path = dir.path().join("repacked");
    Store::create(&path, &Disk::default()).unwrap();
    let other = Store::open(&path, Disk::default(), &Silent).unwrap();
    let writer = ObjectWriter::new(&other, 1, 1).unwrap();
    for pack in store.packs() {
        for object in store.open_pack(&pack).unwrap().objects().unwrap() {
            let bytes = store.object(&object.id, object.kind).unwrap();
            match object.kind {
                ObjectKind::Blob => drop(writer.add_chunks(&bytes, &[bytes.len()]).unwrap()),
                kind => writer.add_metadata(kind, object.id, &bytes).unwrap(),
            }
        }
    }
    writer.finish().unwrap();
    (dir, other)
}

#[track_caller]
fn assert_clean(repo: &Repo, told: &str) {
    let found = verify::run(repo, &verify::VerifyOptions { data: Data::All }, &Silent).unwrap();
    assert!(found.problems.is_empty(), "{told}: {:?}", found.problems);
}

/// Returns the permission bits of all packs of a store.
fn modes(store: &Path) -> BTreeSet<u32> {
    let entries = fs_err::read_dir(store.join("objects")).unwrap();
    entries.map(|entry| entry.unwrap().metadata().unwrap().permissions().mode()).collect()
}

#[track_caller]
fn assert_repaired(victim: &Victim, outcome: &RepairOutcome, told: &str) {
    assert_eq!(modes(&victim.store()).len(), 1, "{told}: {:?}", modes(&victim.store()));
    assert!(is_whole(outcome), "{told}: {outcome:?}");
    assert_clean(&victim.repo(), told);
    victim.scratch.assert_restores(victim.tip);
}

fn quarantine(store: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs_err::read_dir(store.join("quarantine")) else { return Vec::new() };
    entries.map(|entry| fs_err::read(entry.unwrap().path()).unwrap()).collect()
}

/// A way to damage a pack. Its arguments are the bytes, the offsets of the frames and
/// the length.
type Damage = fn(&mut Vec<u8>, &[usize], usize);

const DAMAGES: [(&str, Damage); 8] = [
    ("header", |bytes, _, _| bytes[3] ^= 4),
    ("first frame", |bytes, frames, _| bytes[frames[0] + 1] ^= 4),
    ("last frame", |bytes, frames, _| bytes[frames[frames.len() - 1] + 1] ^= 4),
    ("footer", |bytes, _, end| bytes[end - 100] ^= 4),
    ("trailer", |bytes, _, end| bytes[end - 3] ^= 4),
    ("cut in the middle", |bytes, _, end| bytes.truncate(end / 2)),
    ("empty", |bytes, _, _| bytes.clear()),
    ("zeros of the same length", |bytes, _, _| bytes.fill(0)),
];

fn frame_starts(path: &Path, id: PackId) -> Vec<usize> {
    let pack = PackFile::open(path, id).unwrap();
    pack.frames().iter().map(|frame| frame.offset as usize).collect()
}

fn damage(victim: &Victim, damage: Damage) -> Vec<u8> {
    let mut bytes = victim.whole.clone();
    damage(&mut bytes, &frame_starts(&victim.path, victim.first), victim.whole.len());
    fs_err::write(&victim.path, &bytes).unwrap();
    bytes
}

#[test]
fn a_damaged_pack_with_other_copies_goes_to_quarantine() {
    let victim = Victim::new();
    let twin = Twin::of(&victim.store());
    let damaged = damage(&victim, DAMAGES[1].1);
    victim.verify(Data::All);
    // The commit stores again what the tip needs. The first commit itself is only in
    // the damaged pack.
    victim.commit_again("damaged");
    let outcome = repair(&victim.repo(), &[]);
    assert_repaired(&victim, &outcome, "no source");
    assert_eq!(outcome.quarantined, [victim.first]);
    assert_eq!(quarantine(&victim.store()), [damaged]);
    assert!(!victim.path.exists());
    drop(twin);
}

#[test]
fn a_damaged_pack_is_repaired_from_the_same_pack_of_a_source() {
    for (told, how) in DAMAGES {
        let victim = Victim::new();
        let twin = Twin::of(&victim.store());
        let damaged = damage(&victim, how);
        let outcome = repair(&victim.repo(), &[twin.repo().store()]);
        assert_repaired(&victim, &outcome, told);
        let from = vec![match told {
            // All frames are here. Only the tables came from the source.
            "header" | "footer" | "trailer" => RepairedFrom::Here,
            _ => RepairedFrom::Source("0".to_owned()),
        }];
        assert_eq!(outcome.repaired, [Repaired::Pack { id: victim.first, from }], "{told}");
        assert_eq!(fs_err::read(&victim.path).unwrap(), victim.whole, "{told}");
        assert_eq!(quarantine(&victim.store()), [damaged], "{told}");
        assert!(!victim.store().join("shadow").exists(), "{told}");
    }
}

/// A server keeps packs open as long as it runs.
#[test]
fn an_open_store_reads_packs_repaired_by_another_process() {
    for is_listed_again in [false, true] {
        let told = format!("listed again: {is_listed_again}");
        let victim = Victim::new();
        let twin = Twin::of(&victim.store());
        let pack = PackFile::open(&victim.path, victim.first).unwrap();
        let objects = pack.objects().unwrap();
        let (first, last) = (&objects[0], &objects[objects.len() - 1]);
        let server = victim.repo();
        let store = server.store();
        // Opens the pack, and caches only its last frame.
        store.object(&last.id, last.kind).unwrap();
        damage(&victim, DAMAGES[1].1);
        store.object(&first.id, first.kind).unwrap_err();
        repair(&victim.repo(), &[twin.repo().store()]);
        match is_listed_again {
            false => drop(store.object(&first.id, first.kind).expect(&told)),
            true => {
                store.refresh().unwrap();
                let place = store.locate(&first.id).unwrap().unwrap();
                assert_eq!(store.pack_id(place.pack), Some(victim.first));
                store.pack(place.pack).unwrap().stored(&pack.frames()[0]).expect(&told);
            }
        }
    }
}

#[test]
fn a_lost_pack_is_repaired_under_its_id() {
    let victim = Victim::new();
    let twin = Twin::of(&victim.store());
    fs_err::remove_file(&victim.path).unwrap();
    let outcome = repair(&victim.repo(), &[twin.repo().store()]);
    assert_repaired(&victim, &outcome, "lost");
    let from = vec![RepairedFrom::Source("0".to_owned())];
    assert_eq!(outcome.repaired, [Repaired::Pack { id: victim.first, from }]);
    assert_eq!(fs_err::read(&victim.path).unwrap(), victim.whole);
}

#[test]
fn a_pack_is_assembled_from_local_and_source_frames() {
    let victim = Victim::new();
    let twin = Twin::of(&victim.store());
    let frames = frame_starts(&victim.path, victim.first);
    assert!(frames.len() > 2);
    damage(&victim, |bytes, frames, _| bytes[frames[0] + 1] ^= 4);
    // In the source, all frames except the first are damaged.
    let there = twin.repo().store().pack_path(&victim.first);
    let mut bytes = victim.whole.clone();
    frames[1..].iter().for_each(|at| bytes[at + 1] ^= 4);
    fs_err::write(&there, bytes).unwrap();
    let outcome = repair(&victim.repo(), &[twin.repo().store()]);
    assert_repaired(&victim, &outcome, "both damaged");
    assert_eq!(fs_err::read(&victim.path).unwrap(), victim.whole);
}

#[test]
fn objects_in_other_packs_of_a_source_are_stored_again() {
    for lost in [false, true] {
        let victim = Victim::new();
        let (_dir, other) = repacked(victim.repo().store());
        match lost {
            true => fs_err::remove_file(&victim.path).unwrap(),
            false => drop(damage(&victim, DAMAGES[6].1)),
        }
        let outcome = repair(&victim.repo(), &[&other]);
        assert_repaired(&victim, &outcome, "repacked");
        let is_object = |repaired: &Repaired| matches!(repaired, Repaired::Object { from: RepairedFrom::Source(name), .. } if name == "0");
        assert!(outcome.repaired.iter().all(is_object), "{:?}", outcome.repaired);
        let kinds: BTreeSet<ObjectKind> = outcome
            .repaired
            .iter()
            .filter_map(|repaired| match repaired {
                Repaired::Object { kind, .. } => Some(*kind),
                _ => None,
            })
            .collect();
        assert_eq!(kinds.len(), 4, "blobs, lists, trees and a commit: {kinds:?}");
        assert_eq!(outcome.quarantined.len(), usize::from(!lost));
    }
}

/// Makes a project with its store.
fn project() -> (tempfile::TempDir, Repo, CommitId) {
    let dir = temporary();
    let root = dir.path().join("project");
    fs_err::create_dir_all(root.join("sub")).unwrap();
    fs_err::write(root.join("sub/small"), Corpus::Text.make(3_000)).unwrap();
    fs_err::write(root.join("large"), Corpus::Random.make(12 << 20)).unwrap();
    fs_err::write(root.join("changed"), Corpus::Random.make_seeded(12 << 20, 7)).unwrap();
    let store = root.join(".snap");
    Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
    let id = commit(&open(&store), &root, &options()).id.unwrap();
    (dir, open(&store), id)
}

/// Flips a bit in each data frame of the only pack.
fn lose_contents(repo: &Repo) {
    let [id] = repo.store().packs()[..] else { panic!("one pack") };
    let path = repo.store().pack_path(&id);
    let pack = PackFile::open(&path, id).unwrap();
    let mut bytes = fs_err::read(&path).unwrap();
    let mut objects = pack.objects().unwrap().into_iter();
    for frame in pack.frames() {
        let blobs = objects.by_ref().take(frame.objects as usize).collect::<Vec<_>>();
        if blobs.iter().all(|object| object.kind == ObjectKind::Blob) {
            bytes[frame.offset as usize + 1] ^= 4;
        }
    }
    fs_err::write(&path, bytes).unwrap();
}

#[test]
fn lost_chunks_are_repaired_from_project_files() {
    let (_dir, repo, id) = project();
    lose_contents(&repo);
    let path = repo.project().unwrap().join("changed");
    let mut changed = fs_err::read(&path).unwrap();
    changed[11 << 20] ^= 1;
    fs_err::write(&path, &changed).unwrap();
    let repo = open(repo.dir());
    let outcome = repair(&repo, &[]);
    // The changed chunk is lost. The chunk list that names it is not.
    let kinds: Vec<ObjectKind> = outcome.lost.iter().map(|lost| lost.kind).collect();
    assert_eq!(kinds, [ObjectKind::Blob], "{outcome:?}");
    assert!(!is_whole(&outcome));
    let touched: BTreeSet<&[u8]> =
        outcome.left.touched.paths.iter().map(|path| &*path.path).collect();
    assert_eq!(touched, [&b"changed"[..]].into());
    let from: Vec<&RepairedFrom> = outcome
        .repaired
        .iter()
        .filter_map(|repaired| match repaired {
            Repaired::Object { from, .. } => Some(from),
            _ => None,
        })
        .collect();
    let file = |name: &str| RepairedFrom::File(name.into());
    for name in ["sub/small", "large", "changed"] {
        assert!(from.contains(&&file(name)), "{name}: {from:?}");
    }
    // The original file provides the rest.
    changed[11 << 20] ^= 1;
    fs_err::write(&path, &changed).unwrap();
    let repo = open(repo.dir());
    let outcome = repair(&repo, &[]);
    assert!(is_whole(&outcome), "{outcome:?}");
    assert_clean(&open(repo.dir()), "files");
    let tree = repo.store().commit(&id).unwrap().tree;
    for name in ["sub/small", "large", "changed"] {
        let found = resolve_path(repo.store(), tree, name.as_bytes()).unwrap();
        let ResolvedPath::Entry(entry) = found else { panic!("{name}") };
        let EntryKind::File { id, .. } = entry.kind else { panic!("{name}") };
        let mut content = Vec::new();
        cat::run(repo.store(), &id, None, &mut content, &Silent).unwrap();
        assert_eq!(content, fs_err::read(repo.project().unwrap().join(name)).unwrap(), "{name}");
    }
}

#[test]
fn a_lost_chunk_list_is_rebuilt_from_the_project_file() {
    let (dir, repo, _) = project();
    // Another snapshot of the same files, whose pack lacks the chunk list.
    let [id] = repo.store().packs()[..] else { panic!("one pack") };
    let path = repo.store().pack_path(&id);
    let (_repacked, other) = repacked(repo.store());
    fs_err::remove_file(&path).unwrap();
    let keep = |id: &ObjectId, kind: ObjectKind| {
        matches!(kind, ObjectKind::Tree | ObjectKind::Commit).then(|| (*id, kind))
    };
    let structure: BTreeMap<ObjectId, ObjectKind> = other
        .packs()
        .iter()
        .flat_map(|pack| other.open_pack(pack).unwrap().objects().unwrap())
        .filter_map(|object| keep(&object.id, object.kind))
        .collect();
    let repo = open(repo.dir());
    let writer = ObjectWriter::new(repo.store(), 1, 1).unwrap();
    for (id, kind) in structure {
        let bytes = other.object(&id, kind).unwrap();
        writer.add_metadata(kind, id, &bytes).unwrap();
    }
    writer.finish().unwrap();
    let repo = open(repo.dir());
    let outcome = repair(&repo, &[]);
    assert!(is_whole(&outcome), "{outcome:?}");
    let is_list = |repaired: &&Repaired| {
        matches!(repaired, Repaired::Object { kind: ObjectKind::ChunkList, .. })
    };
    assert_eq!(outcome.repaired.iter().filter(is_list).count(), 2, "{:?}", outcome.repaired);
    assert_clean(&open(repo.dir()), "lists");
    drop(dir);
}

#[test]
fn lost_objects_are_repaired_from_a_bundle() {
    let victim = Victim::new();
    let bundle = packed(victim.repo().store(), victim.tip, &[]);
    let dir = temporary();
    let file = dir.path().join("all.snap");
    fs_err::write(&file, bundle).unwrap();
    fs_err::remove_file(&victim.path).unwrap();
    let bundle = BundleStore::open_incomplete(&file, dir.path(), &Silent).unwrap();
    let source = [RepairSource::new("all.snap".to_owned(), bundle.store(), SourceKind::Bundle)];
    let options = RepairOptions { data: Data::None, run: RepairRun::Real, scratch: dir.path() };
    let outcome = repair::run(&victim.repo(), &|| &source, &|_| None, &options, &Silent).unwrap();
    assert_repaired(&victim, &outcome, "bundle");
    assert!(outcome.repaired.len() > 10);
}

#[test]
fn readable_objects_of_a_damaged_pack_are_salvaged() {
    let victim = Victim::new();
    let whole = Twin::of(&victim.store());
    damage(&victim, DAMAGES[1].1);
    let outcome = repair(&victim.repo(), &[]);
    assert!(!outcome.lost.is_empty() && !is_whole(&outcome));
    assert!(
        matches!(outcome.repaired[..], [Repaired::Salvaged { pack, .. }] if pack == victim.first),
        "{:?}",
        outcome.repaired
    );
    assert!(victim.path.exists(), "a pack stays while something in it is lost");
    // Each object is either readable or reported as lost.
    let (all, store) = (whole.repo(), victim.repo());
    let lost: BTreeSet<ObjectId> = outcome.lost.iter().map(|lost| lost.id).collect();
    for object in all.store().open_pack(&victim.first).unwrap().objects().unwrap() {
        let is_there = store.store().is_stored(&object.id).unwrap();
        assert_ne!(is_there, lost.contains(&object.id), "{object:?}");
    }
    // A second repair changes nothing. With the other copy, everything is recovered.
    let again = repair(&victim.repo(), &[]);
    assert_eq!((again.repaired.len(), again.lost), (0, outcome.lost));
    let outcome = repair(&victim.repo(), &[whole.repo().store()]);
    assert_repaired(&victim, &outcome, "with a copy");
}

/// Returns the content of every file of a store, except derived files.
fn files(store: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = walkdir::WalkDir::new(store).into_iter().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().is_file());
    files.map(|entry| (entry.path().to_owned(), fs_err::read(entry.path()).unwrap())).collect()
}

#[derive(Debug)]
struct Refusing;

impl FaultInjector for Refusing {
    fn decide(&self, _: snap_core::disk::DiskStep, _: &Path) -> snap_core::disk::FaultDecision {
        snap_core::disk::FaultDecision::Fail(std::io::Error::other("a dry run"))
    }
}

#[test]
fn a_dry_run_of_a_repair_reports_the_same_and_writes_nothing() {
    for (told, how) in DAMAGES {
        let victim = Victim::new();
        let twin = Twin::of(&victim.store());
        damage(&victim, how);
        let before = files(&victim.store());
        let repo = open_gated(&victim.store(), Arc::new(Refusing));
        let plan = repair_from(&repo, &[twin.repo().store()], Data::All, RepairRun::Dry);
        assert!(plan.lost.is_empty(), "{told}: {plan:?}");
        assert_eq!(plan.repaired.len(), 1, "{told}: {plan:?}");
        let lost = repair_from(&repo, &[], Data::All, RepairRun::Dry);
        // If the object table is damaged, the index still has the objects.
        assert_eq!(lost.lost.is_empty(), told == "footer", "{told}");
        assert_eq!(files(&victim.store()), before, "{told}");
        assert_repaired(&victim, &repair(&victim.repo(), &[twin.repo().store()]), told);
    }
}

#[test]
fn a_pack_with_a_damaged_object_table_is_read_by_the_index() {
    let victim = Victim::new();
    let pack = PackFile::open(&victim.path, victim.first).unwrap();
    let objects = pack.objects().unwrap().len();
    // Damage the kind of the last object, just before the trailer.
    damage(&victim, |bytes, _, end| bytes[end - 49] ^= 1);
    assert!(PackFile::open(&victim.path, victim.first).is_ok());
    let outcome = repair(&victim.repo(), &[]);
    assert_repaired(&victim, &outcome, "no source");
    assert_eq!(outcome.repaired.len(), objects, "{:?}", outcome.repaired);
    assert_eq!(outcome.quarantined, [victim.first]);
}

#[test]
fn a_repair_changes_no_ref() {
    let victim = Victim::new();
    let twin = Twin::of(&victim.store());
    fs_err::remove_file(&victim.path).unwrap();
    let before = refs(&victim.repo());
    repair(&victim.repo(), &[twin.repo().store()]);
    assert_eq!(refs(&victim.repo()), before);
}

#[test]
fn a_repair_that_fails_at_any_step_can_be_repeated() {
    for in_other_packs in [false, true] {
        let victim = Victim::new();
        let (_dir, other) = repacked(victim.repo().store());
        let twin = Twin::of(&victim.store());
        let there = twin.repo();
        let others = if in_other_packs { [&other] } else { [there.store()] };
        damage(&victim, DAMAGES[1].1);
        let try_repair = |store: &Path, fault: &Arc<Fault>| {
            let repo = open_gated(store, Arc::clone(fault) as Arc<dyn FaultInjector>);
            let dir = temporary();
            let source = [RepairSource::new("other".to_owned(), others[0], SourceKind::Store)];
            let options =
                RepairOptions { data: Data::All, run: RepairRun::Real, scratch: dir.path() };
            repair::run(&repo, &|| &source, &|_| None, &options, &Silent)
        };
        let fault = Fault::new(Plan::Nothing, 0);
        assert!(try_repair(&Twin::of(&victim.store()).path(), &fault).is_ok());
        let steps = fault.steps.lock().len();
        assert!(steps > 20);
        for at in (0..steps).filter(|at| at % 9 == 0 || steps - at < 16) {
            for plan in PLANS {
                let told = format!("{plan:?} at {at} of {steps}");
                let copy = Twin::of(&victim.store());
                let before = readable(&copy.repo());
                let result = try_repair(&copy.path(), &Fault::new(plan, at));
                let after = readable(&copy.repo());
                assert!(before.is_subset(&after), "{told}: something is lost, {result:?}");
                let outcome = repair(&copy.repo(), &others);
                assert!(is_whole(&outcome), "{told}: {outcome:?}");
                assert_clean(&copy.repo(), &told);
            }
        }
    }
}

/// Returns the objects that can be read.
fn readable(repo: &Repo) -> BTreeSet<ObjectId> {
    let store = repo.store();
    let mut all = BTreeSet::new();
    for pack in store.packs() {
        let objects = store.open_pack(&pack).and_then(|pack| pack.objects()).unwrap_or_default();
        all.extend(objects.iter().filter(|o| store.object(&o.id, o.kind).is_ok()).map(|o| o.id));
    }
    all
}

/// Removes, truncates or changes packs at random. Returns what was done.
fn damage_at_random(store: &Path, rng: &mut Rng, most: usize) -> Vec<String> {
    let mut packs: Vec<PathBuf> = fs_err::read_dir(store.join("objects"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    packs.sort();
    let mut done = Vec::new();
    for _ in 0..1 + rng.index(most) {
        let path = &packs[rng.index(packs.len())];
        let Ok(mut bytes) = fs_err::read(path) else { continue };
        if bytes.is_empty() {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap().split_at(8).0.to_owned();
        match rng.below(4) {
            0 => {
                fs_err::remove_file(path).unwrap();
                done.push(format!("{name} removed"));
                continue;
            }
            1 => {
                bytes.truncate(rng.index(bytes.len()));
                done.push(format!("{name} cut to {}", bytes.len()));
            }
            _ => {
                let at = rng.index(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
                done.push(format!("{name} flipped at {at}"));
            }
        }
        fs_err::write(path, bytes).unwrap();
    }
    done
}

/// Makes a small random history. Returns its commits with their contents.
fn history_at_random(rng: &mut Rng) -> (Scratch, Vec<(CommitId, tempfile::TempDir)>) {
    let scratch = Scratch::new();
    let mut commits = Vec::new();
    for number in 0..2 + rng.below(4) {
        for _ in 0..1 + rng.below(4) {
            let name = format!("{}/{}", rng.below(3), rng.below(6));
            let length = [0, 300, 40_000, 3 << 20][rng.index(4)];
            let corpus = if rng.below(2) == 0 { Corpus::Text } else { Corpus::Random };
            scratch.write(&name, corpus.make_seeded(length, rng.next_u64()));
        }
        scratch.write("always", format!("commit {number}"));
        let id = scratch.commit().id.unwrap();
        let held = temporary();
        let repo = scratch.repo();
        assert_restores(&repo, id, &scratch.source(), &held.path().join("files"));
        commits.push((id, held));
    }
    (scratch, commits)
}

/// Returns the objects that two copies together have. An object counts if one copy has
/// the bytes of its frame, and the location of the frame is known. The location comes
/// from a footer of either copy, or from the frame table and the index of the copy
/// itself.
fn reachable_in(original: &Store, copies: [&Path; 2]) -> BTreeSet<ObjectId> {
    let mut found = BTreeSet::new();
    for id in original.packs() {
        let pack = original.open_pack(&id).unwrap();
        let paths = copies.map(|copy| copy.join("objects").join(id.to_string()));
        let opens = paths.each_ref().map(|path| PackFile::open(path, id).is_ok());
        let tells = paths
            .each_ref()
            .map(|path| PackFile::open(path, id).and_then(|pack| pack.objects()).is_ok());
        let mut objects = pack.objects().unwrap().into_iter();
        for frame in pack.frames() {
            let own: Vec<_> = objects.by_ref().take(frame.objects as usize).collect();
            let is_right = |path: &PathBuf| {
                let bytes = fs_err::read(path).unwrap_or_default();
                let range = frame.range();
                bytes
                    .get(range.start as usize..range.end as usize)
                    .is_some_and(|bytes| checksum(bytes) == frame.checksum)
            };
            let here = (opens[0] || tells[1]) && is_right(&paths[0]);
            if here || opens[1] && is_right(&paths[1]) {
                found.extend(own.iter().map(|object| object.id));
            }
        }
    }
    found
}

#[test]
fn a_pack_is_kept_beside_any_number_of_older_copies() {
    let scratch = Scratch::new();
    scratch.write("file", "content");
    scratch.commit();
    let repo = scratch.repo();
    let id = repo.store().packs()[0];
    let kept = |number: usize| match number {
        1 => scratch.store().join(format!("quarantine/{id}")),
        number => scratch.store().join(format!("quarantine/{id}.{number}")),
    };
    fs_err::create_dir_all(scratch.store().join("quarantine")).unwrap();
    (1..=1000).for_each(|number| fs_err::write(kept(number), "older").unwrap());
    assert!(repo.store().keep_in_quarantine(&id).unwrap());
    let pack = fs_err::read(repo.store().pack_path(&id)).unwrap();
    assert_eq!(fs_err::read(kept(1001)).unwrap(), pack);
}

/// Returns all objects that the refs reach, according to an undamaged copy.
fn reached(repo: &Repo) -> BTreeSet<ObjectId> {
    let tips: Vec<CommitId> = refs(repo).into_iter().map(|(_, id)| id).collect();
    let mut met = BTreeSet::new();
    let mut enter = |id: &ObjectId, _: &snap_core::store::ObjectLocation| Ok(met.insert(*id));
    snap_core::ops::reach::visit(repo.store(), &tips, &mut enter, &Silent).unwrap();
    met
}

#[test]
fn random_damage_is_repaired_from_a_copy_or_reported() {
    let seeds: std::ops::Range<u64> = match std::env::var("SNAP_REPAIR_SEED") {
        Ok(seed) => seed.parse().map(|seed| seed..seed + 1).unwrap(),
        // Set the variable for longer runs by hand.
        Err(_) => 0..std::env::var("SNAP_REPAIR_SEEDS").map_or(24, |seeds| seeds.parse().unwrap()),
    };
    let mut lost_both = 0;
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let (scratch, commits) = history_at_random(&mut rng);
        let original = Twin::of(&scratch.store());
        let source = Twin::of(&scratch.store());
        let done = damage_at_random(&scratch.store(), &mut rng, 4);
        let there = match seed % 2 {
            0 => Vec::new(),
            _ => damage_at_random(&source.path(), &mut rng, 4),
        };
        let told = format!("seed {seed}: here {done:?}, there {there:?}");
        let original = original.repo();
        let known = reachable_in(original.store(), [&scratch.store(), &source.path()]);
        let lost: BTreeSet<ObjectId> = reached(&original).difference(&known).copied().collect();
        let outcome = repair(&scratch.repo(), &[source.repo().store()]);
        let stays: BTreeSet<ObjectId> = outcome.lost.iter().map(|lost| lost.id).collect();
        lost_both += usize::from(!lost.is_empty());
        // Lost objects below a lost tree are not known.
        let extra: Vec<_> = stays.difference(&lost).collect();
        assert!(extra.is_empty(), "{told}: {extra:?} {:?}", outcome.lost);
        assert_eq!(stays.is_empty(), lost.is_empty(), "{told}");
        assert_eq!(is_whole(&outcome), lost.is_empty(), "{told}: {outcome:?}");
        let repo = scratch.repo();
        for id in reached(&original).difference(&lost) {
            let kind = original.store().locate(id).unwrap().unwrap().kind;
            let is_there = repo.store().locate_unshadowed(id).unwrap().is_some();
            assert!(is_there || hangs_below(&original, &stays, id), "{told}: {kind:?} {id:?}");
        }
        if lost.is_empty() {
            assert_clean(&repo, &told);
            for (id, held) in &commits {
                let target = temporary();
                let files = held.path().join("files");
                assert_restores(&repo, *id, &files, &target.path().join("restored"));
            }
        }
    }
    assert!(lost_both > 2 || std::env::var("SNAP_REPAIR_SEED").is_ok(), "{lost_both}");
}

/// Returns true if an object is reachable only through lost objects.
fn hangs_below(repo: &Repo, lost: &BTreeSet<ObjectId>, id: &ObjectId) -> bool {
    let tips: Vec<CommitId> = refs(repo).into_iter().map(|(_, id)| id).collect();
    let mut met = BTreeSet::new();
    let mut enter = |id: &ObjectId, _: &snap_core::store::ObjectLocation| {
        Ok(met.insert(*id) && !lost.contains(id))
    };
    snap_core::ops::reach::visit(repo.store(), &tips, &mut enter, &Silent).unwrap();
    !met.contains(id)
}

#[test]
fn an_undamaged_store_requests_no_source() {
    let victim = Victim::new();
    let dir = temporary();
    let before = files(&victim.store().join("objects"));
    let options = RepairOptions { data: Data::All, run: RepairRun::Real, scratch: dir.path() };
    let nobody = || -> &[RepairSource<'_>] { panic!("a source was requested") };
    let outcome = repair::run(&victim.repo(), &nobody, &|_| None, &options, &Silent).unwrap();
    assert!(is_whole(&outcome) && outcome.repaired.is_empty());
    assert_eq!(files(&victim.store().join("objects")), before);
}

#[test]
fn a_pipe_in_place_of_a_lost_pack_does_not_block() {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        let victim = Victim::new();
        let twin = Twin::of(&victim.store());
        fs_err::remove_file(&victim.path).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &victim.path, fifo, 0o600.into(), 0).unwrap();
        let outcome = repair(&victim.repo(), &[twin.repo().store()]);
        assert_repaired(&victim, &outcome, "a pipe");
        assert_eq!(fs_err::read(&victim.path).unwrap(), victim.whole);
        done.send(()).unwrap();
    });
    wait.recv_timeout(PATIENCE).unwrap();
}

/// Restores the right bytes of a pack after the search for damage.
struct PutsBack<'v>(&'v Victim);

impl Observer for PutsBack<'_> {
    fn phase(&self, phase: Phase, _: Option<u64>) {
        if phase == Phase::Receive {
            fs_err::write(&self.0.path, &self.0.whole).unwrap();
        }
    }
}

#[test]
fn a_pack_that_becomes_readable_again_is_trusted_again() {
    for run in [RepairRun::Dry, RepairRun::Real] {
        let victim = Victim::new();
        damage(&victim, DAMAGES[1].1);
        let dir = temporary();
        let options = RepairOptions { data: Data::All, run, scratch: dir.path() };
        let outcome =
            repair::run(&victim.repo(), &|| &[], &|_| None, &options, &PutsBack(&victim)).unwrap();
        assert_eq!(outcome.lost, [], "{run:?}");
        if run == RepairRun::Real {
            assert_repaired(&victim, &outcome, "put back");
            assert!(!victim.store().join("shadow").exists());
            assert_eq!(quarantine(&victim.store()), Vec::<Vec<u8>>::new());
        }
    }
}

/// Cancels after it was notified of the wait.
struct Impatient {
    is_told: AtomicBool,
    start: Instant,
}

impl Observer for Impatient {
    fn note(&self, note: Note<'_>) {
        if matches!(note, Note::PacksHeld { .. }) {
            self.is_told.store(true, Ordering::Relaxed);
        }
    }

    fn cancelled(&self) -> bool {
        self.is_told.load(Ordering::Relaxed) || self.start.elapsed() > PATIENCE
    }
}

#[test]
fn waiting_for_pinned_packs_is_reported() {
    let victim = Victim::new();
    damage(&victim, DAMAGES[1].1);
    victim.verify(Data::All);
    victim.commit_again("damaged");
    let repo = victim.repo();
    let other = victim.repo();
    let hold = other.store().pin_packs().unwrap();
    let observer = Impatient { is_told: AtomicBool::new(false), start: Instant::now() };
    let damaged = [victim.first];
    let moved = repo.store().move_to_quarantine(&damaged, &|_| Ok(true), &observer).unwrap();
    assert!(observer.is_told.into_inner());
    assert_eq!(moved, Some(Vec::new()));
    drop(hold);
    let moved = repo.store().move_to_quarantine(&damaged, &|_| Ok(true), &Silent).unwrap();
    assert_eq!(moved, Some(damaged.to_vec()));
}
