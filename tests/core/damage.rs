//! Damage anywhere in a store: no wrong data is returned, the damage is reported,
//! everything else stays readable, and nothing panics or hangs.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use snap_core::{
    base::{
        id::{BlobId, ObjectId},
        kind::ErrorKind,
        observe::{Note, Observer, Silent},
    },
    disk::Disk,
    format::{pack::ObjectKind, ref_text::RefText},
    ops::{
        commit::{self, CommitSource},
        tidy, verify,
    },
    repo::{Repo, RepoError},
    store::{PackFile, StoreError},
};
use snap_testkit::bytes::Corpus;

use crate::scratch::{Scratch, check, on_branch, open, options, refs};

/// A store with two packs, their paths and their objects, and an index.
struct Victim {
    scratch: Scratch,
    packs: Vec<(PathBuf, Vec<(ObjectId, ObjectKind)>)>,
}

impl Victim {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.write("text", Corpus::Text.make(2_000));
        scratch.write("noise", Corpus::Random.make(300));
        scratch.write("empty", "");
        scratch.commit();
        fs_err::remove_file(scratch.source().join("text")).unwrap();
        scratch.write("other", Corpus::Random.make_seeded(200, 1));
        scratch.commit();
        let repo = scratch.repo();
        let mut packs: Vec<_> = repo
            .store()
            .packs()
            .into_iter()
            .map(|id| {
                let path = repo.store().pack_path(&id);
                let objects = PackFile::open(&path, id).unwrap().objects().unwrap();
                (path, objects.iter().map(|object| (object.id, object.kind)).collect())
            })
            .collect();
        packs.sort_by_key(|(path, _)| fs_err::metadata(path).unwrap().modified().unwrap());
        assert_eq!(packs.len(), 2);
        Self { scratch, packs }
    }

    fn store(&self) -> PathBuf {
        self.scratch.store()
    }

    /// Asserts that every object of the second pack, which is undamaged, can be read.
    #[track_caller]
    fn assert_other_pack_reads(&self, repo: &Repo, told: &str) {
        for (id, kind) in &self.packs[1].1 {
            let read = repo.store().object(id, *kind);
            assert!(read.is_ok(), "{told}: an undamaged object cannot be read: {read:?}");
        }
    }

    /// Reads the objects of the first pack and returns the errors.
    fn errors(&self, repo: &Repo) -> Vec<StoreError> {
        let read = |(id, kind): &(ObjectId, ObjectKind)| repo.store().object(id, *kind).err();
        self.packs[0].1.iter().filter_map(read).collect()
    }
}

fn drop_index(store: &Path) {
    segments(store).iter().for_each(|segment| fs_err::remove_file(segment).unwrap());
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Returns true if an error or one of its causes contains the first digits of the pack.
fn names(error: &dyn std::error::Error, pack: &str) -> bool {
    let mut next = Some(error);
    std::iter::from_fn(|| {
        let error = next?;
        next = error.source();
        Some(error.to_string())
    })
    .any(|text| text.contains(&pack[..12]))
}

#[test]
fn a_flipped_bit_in_a_pack_is_detected_and_the_pack_named() {
    let victim = Victim::new();
    let (path, _) = &victim.packs[0];
    let whole = fs_err::read(path).unwrap();
    let store = victim.store();
    assert_eq!(victim.errors(&open(&store)).len(), 0);
    let index = victim.scratch.path("index");
    crate::scratch::copy(&store.join("index"), &index);
    let mut unreadable = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs_err::write(path, &bytes).unwrap();
        let told = format!("byte {at} of {}", whole.len());

        // With the old index: every read returns the right bytes, or an error that
        // names the pack.
        drop_index(&store);
        crate::scratch::copy(&index, &store.join("index"));
        let repo = open(&store);
        for error in victim.errors(&repo) {
            assert!(
                matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unsupported),
                "{told}: {error}"
            );
            assert!(names(&error, name(path)), "{told}: {error}");
        }
        victim.assert_other_pack_reads(&repo, &told);

        // Without an index: the footer is read, too, so the damage must be found.
        drop_index(&store);
        let repo = open(&store);
        let noticed = repo.store().unreadable_packs();
        unreadable += noticed.len();
        assert!(noticed.iter().all(|error| names(error, name(path))), "{told}");
        let errors = victim.errors(&repo);
        let named = errors.iter().any(|error| names(error, name(path)));
        assert!(named || !noticed.is_empty(), "{told} was not found");
        victim.assert_other_pack_reads(&repo, &told);

        let all = verify::VerifyOptions { data: verify::Data::All };
        let problems = verify::run(&repo, &all, &Silent).unwrap().problems;
        assert!(problems.iter().any(|problem| names(problem, name(path))), "{told}: {problems:?}");
    }
    assert!(unreadable > 100, "header and footer");
    fs_err::write(path, &whole).unwrap();
    drop_index(&store);
    assert_eq!(check(&open(&store)), Ok(2), "healed");
}

#[test]
fn a_pack_that_is_cut_short_or_too_long_is_found() {
    let victim = Victim::new();
    let (path, _) = &victim.packs[0];
    let whole = fs_err::read(path).unwrap();
    let store = victim.store();
    let longer = [&whole[..], b"x"].concat();
    let shorter = (0..whole.len()).map(|len| whole[..len].to_vec());
    for bytes in shorter.chain([longer]) {
        fs_err::write(path, &bytes).unwrap();
        let told = format!("{} bytes of {}", bytes.len(), whole.len());
        for _ in 0..2 {
            let repo = open(&store);
            let errors = victim.errors(&repo);
            assert!(!errors.is_empty(), "{told}");
            let noticed = repo.store().unreadable_packs();
            let named = errors.iter().any(|error| names(error, name(path)));
            assert!(named || noticed.iter().any(|error| names(error, name(path))), "{told}");
            victim.assert_other_pack_reads(&repo, &told);
            drop_index(&store);
        }
    }
}

#[test]
fn swapped_packs_are_reported_and_give_no_wrong_object() {
    let victim = Victim::new();
    let [(one, _), (two, _)] = &victim.packs[..] else { panic!() };
    let (first, second) = (fs_err::read(one).unwrap(), fs_err::read(two).unwrap());
    fs_err::write(one, second).unwrap();
    fs_err::write(two, first).unwrap();
    for _ in 0..2 {
        let repo = open(&victim.store());
        let all = verify::VerifyOptions { data: verify::Data::All };
        let problems = verify::run(&repo, &all, &Silent).unwrap().problems;
        for pack in [one, two] {
            assert!(problems.iter().any(|problem| names(problem, name(pack))), "{problems:?}");
        }
        for (id, kind) in victim.packs.iter().flat_map(|(_, objects)| objects) {
            if let Err(error) = repo.store().object(id, *kind) {
                assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
                assert!(names(&error, name(one)) || names(&error, name(two)), "{error}");
            }
        }
        drop_index(&victim.store());
    }
}

#[test]
fn a_deleted_pack_loses_only_its_own_objects() {
    let victim = Victim::new();
    let (path, objects) = &victim.packs[0];
    fs_err::remove_file(path).unwrap();
    for _ in 0..2 {
        let repo = open(&victim.store());
        let errors = victim.errors(&repo);
        assert_eq!(errors.len(), objects.len());
        assert!(
            errors.iter().all(|error| matches!(error, StoreError::Missing { .. })),
            "{errors:?}"
        );
        victim.assert_other_pack_reads(&repo, "one pack is gone");
        drop_index(&victim.store());
    }
}

#[test]
fn storing_the_same_bytes_again_replaces_a_damaged_pack() {
    let scratch = Scratch::new();
    scratch.write("file", Corpus::Text.make(5_000));
    let id = scratch.commit().id.unwrap();
    let repo = scratch.repo();
    let path = repo.store().pack_path(&repo.store().packs()[0]);
    let mut bytes = fs_err::read(&path).unwrap();
    let at = bytes.len() - 20;
    bytes[at] ^= 1;
    fs_err::write(&path, &bytes).unwrap();
    drop_index(&scratch.store());
    fs_err::remove_dir_all(scratch.store().join("cache")).unwrap();
    fs_err::create_dir(scratch.store().join("cache")).unwrap();

    // No object is found, so all are stored again, in a pack of the same name.
    let again = crate::scratch::commit(&scratch.repo(), &scratch.source(), &on_branch("again"));
    assert_eq!(again.id, Some(id));
    assert_eq!(scratch.repo().store().packs().len(), 1);
    assert_eq!(check(&scratch.repo()), Ok(1));
    drop_index(&scratch.store());
    assert_eq!(check(&scratch.repo()), Ok(1));
}

/// Damages the bytes of a file.
type Damage = Box<dyn Fn(&mut Vec<u8>)>;

fn segments(store: &Path) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(store.join("index")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "idx")).collect()
}

#[test]
fn a_damaged_index_is_rebuilt_and_never_answers_wrongly() {
    let victim = Victim::new();
    let store = victim.store();
    let mut damages: Vec<Damage> = Vec::new();
    for at in (0..64).chain((64..9_000).step_by(13)) {
        damages.push(Box::new(move |bytes| {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (at % 8);
            }
        }));
    }
    for len in [0, 1, 47, 48, 4095, 4096, 4097, 8191, 8192, 8200, 8201] {
        damages.push(Box::new(move |bytes| bytes.truncate(len)));
    }
    damages.push(Box::new(|bytes| bytes.push(0)));
    damages.push(Box::new(|bytes| bytes.fill(0)));
    let mut made_again = 0;
    for (number, damage) in damages.iter().enumerate() {
        for segment in segments(&store) {
            let mut bytes = fs_err::read(&segment).unwrap();
            damage(&mut bytes);
            // Write a new file: the old one may be mapped into memory.
            fs_err::remove_file(&segment).unwrap();
            fs_err::write(&segment, bytes).unwrap();
        }
        let repo = open(&store);
        assert_eq!(victim.errors(&repo).len(), 0, "damage {number}");
        victim.assert_other_pack_reads(&repo, "the index was damaged");
        let notes = Notes::default();
        repo.store().report_repairs(&notes);
        made_again += notes.0.lock().len();
        assert_eq!(check(&repo), Ok(2), "damage {number}");
        assert_eq!(check(&open(&store)), Ok(2), "damage {number}, opened again");
    }
    assert!(made_again > 50, "only {made_again} damaged blocks were noticed");
}

#[test]
fn prefixes_are_looked_up_in_a_damaged_index_as_well() {
    let victim = Victim::new();
    for segment in segments(&victim.store()) {
        let mut bytes = fs_err::read(&segment).unwrap();
        bytes[4096 + 100] ^= 1;
        fs_err::write(&segment, bytes).unwrap();
    }
    let found = open(&victim.store()).store().ids_between(&[0; 32], &[255; 32], 1000).unwrap();
    let mut all: Vec<_> = victim.packs.iter().flat_map(|(_, objects)| objects.clone()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(found, all);
}

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn note(&self, note: Note<'_>) {
        self.0.lock().push(format!("{note:?}"));
    }
}

#[test]
fn a_damaged_stat_cache_is_not_trusted() {
    let scratch = Scratch::new();
    for n in 0..60 {
        scratch.write(&format!("folder/{n}"), format!("content {n}"));
    }
    scratch.settle();
    // One commit of settled files makes one table of files and one of folders.
    fs_err::remove_dir_all(scratch.store().join("cache")).unwrap();
    let first = scratch.commit().id;
    // The lists of packs have their own tests.
    let tables = || {
        let entries = fs_err::read_dir(scratch.store().join("cache")).unwrap();
        entries.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name != "packs" && name != "proven"
        })
    };
    let kept: Vec<(PathBuf, Vec<u8>)> = tables()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs_err::read(path).unwrap()))
        .collect();
    assert_eq!(kept.len(), 2);
    assert_eq!(scratch.commit().bytes_read, 0, "the cache works");
    for at in (0..64).chain((64..9_300).step_by(31)).chain([usize::MAX]) {
        for (path, bytes) in &kept {
            let mut bytes = bytes.clone();
            match bytes.get_mut(at) {
                Some(byte) => *byte ^= 1 << (at % 8),
                None => bytes.truncate(if at == usize::MAX { 0 } else { 5_000 }),
            }
            let _ = fs_err::remove_file(path);
            fs_err::write(path, bytes).unwrap();
        }
        let notes = Notes::default();
        let repo = scratch.repo();
        let again =
            commit::run(&repo, CommitSource::Folder(scratch.source()), &options(), &notes).unwrap();
        assert_eq!((again.created, again.id), (false, first), "byte {at}");
    }
    // Damage that only a merge finds is repaired at some time.
    for round in 0..12 {
        scratch.write(&format!("folder/more {round}"), format!("{round}"));
        if round == 4 {
            for entry in tables() {
                let path = entry.unwrap().path();
                let mut bytes = fs_err::read(&path).unwrap();
                bytes[4096 + 3000] ^= 1;
                fs_err::remove_file(&path).unwrap();
                fs_err::write(&path, bytes).unwrap();
            }
        }
        let notes = Notes::default();
        let repo = scratch.repo();
        commit::run(&repo, CommitSource::Folder(scratch.source()), &options(), &notes).unwrap();
        let notes = notes.0.into_inner();
        assert!(round <= 5 || notes.is_empty(), "round {round}: {notes:?}");
        scratch.settle();
    }
    assert_eq!(check(&scratch.repo()), Ok(13));
}

#[test]
fn damaged_refs_head_and_settings_are_named() {
    let scratch = Scratch::new();
    scratch.write("file", "content");
    let id = scratch.commit().id.unwrap();
    let main = scratch.store().join("refs/heads/main");
    let long = "f".repeat(5_000);
    for bad in ["", "\n", "0123", "not a commit", &long, "ref: refs/heads/main\n"] {
        fs_err::write(&main, bad).unwrap();
        let repo = scratch.repo();
        let error = commit::run(&repo, CommitSource::Folder(scratch.source()), &options(), &Silent)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{bad:?}: {error}");
        assert!(error.to_string().contains("refs/heads/main"), "{error}");
        assert_eq!(fs_err::read_to_string(&main).unwrap(), bad, "the damaged file was changed");
    }
    fs_err::write(&main, [0xff, 0xfe]).unwrap();
    assert!(scratch.repo().refs().list(snap_core::repo::ref_name::RefKind::Branch).is_err());
    fs_err::write(&main, RefText::new(Some(id)).encode()).unwrap();

    let head = scratch.store().join("HEAD");
    let whole = fs_err::read(&head).unwrap();
    for bad in
        ["", "ref: ", "ref: refs/tags/x", "ref: refs/heads/../../x", "ref: refs/heads/", &long]
    {
        fs_err::write(&head, bad).unwrap();
        let error = Repo::open(&scratch.store(), Disk::default(), &Silent).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{bad:?}: {error}");
        assert!(error.to_string().contains("HEAD"), "{error}");
    }
    fs_err::write(&head, whole).unwrap();

    let config = scratch.store().join("config.toml");
    let whole = fs_err::read_to_string(&config).unwrap();
    let [newer, older] = [6, 4].map(|n| whole.replace("version = 5", &format!("version = {n}")));
    assert!(newer != whole && older != whole);
    for (text, kind) in [
        ("", None),
        ("version = ", None),
        (&whole.replace("[commit]", "[commits]"), None),
        (&whole.replace("# author = \"\"", "author = 7"), None),
        (&format!("{whole}\n[chunk]\naverage = 1048576\n"), None),
        (&whole.replace("# level = 3", "level = -7"), None),
        (&newer, Some(ErrorKind::Unsupported)),
        (&older, Some(ErrorKind::Unsupported)),
        (&whole[..whole.len() / 2], None),
    ] {
        fs_err::write(&config, text).unwrap();
        match Repo::open(&scratch.store(), Disk::default(), &Silent) {
            Err(error) => {
                assert!(error.to_string().contains("config.toml"), "{error}");
                assert!(kind.is_none_or(|kind| kind == error.kind()), "{error}");
            }
            Ok(_) => assert!(text.len() == whole.len() / 2, "accepted: {text:?}"),
        }
    }
    fs_err::remove_file(&config).unwrap();
    let gone = Repo::open(&scratch.store(), Disk::default(), &Silent);
    assert!(matches!(gone, Err(RepoError::SettingsLost { .. })));
    fs_err::write(&config, whole).unwrap();
    assert_eq!(check(&scratch.repo()), Ok(1));
    assert_eq!(refs(&scratch.repo()).len(), 1);
}

#[test]
fn a_damaged_pack_does_not_block_merging_of_others() {
    let scratch = Scratch::new();
    for n in 0..20 {
        scratch.write("file", format!("{n}"));
        scratch.commit();
        if n == 3 {
            let repo = scratch.repo();
            let place = repo.store().locate(&BlobId::of(b"2").object()).unwrap().unwrap();
            let path = repo.store().pack_path(&repo.store().pack_id(place.pack).unwrap());
            let mut bytes = fs_err::read(&path).unwrap();
            bytes[16] ^= 1;
            fs_err::write(&path, bytes).unwrap();
        }
    }
    let _ = tidy::run(&scratch.repo(), &Silent);
    let _ = tidy::run(&scratch.repo(), &Silent);
    let packs = scratch.repo().store().packs().len();
    assert!(packs <= 10, "{packs} packs, because one of them is damaged");
}

#[test]
fn a_store_with_stray_files_in_objects_opens() {
    let scratch = Scratch::new();
    scratch.write("file", "content");
    scratch.commit();
    let objects = scratch.store().join("objects");
    fs_err::write(objects.join("README"), "not a pack").unwrap();
    fs_err::write(objects.join("ab".repeat(32)), "not a pack either").unwrap();
    fs_err::write(objects.join("cd".repeat(32)), "").unwrap();
    fs_err::create_dir(objects.join("ef".repeat(32))).unwrap();
    fs_err::os::unix::fs::symlink(".", objects.join("0123".repeat(16))).unwrap();
    let fifo = objects.join("4567".repeat(16));
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let repo = scratch.repo();
    assert_eq!(check(&repo), Ok(1));
    assert_eq!(repo.store().unreadable_packs().len(), 2);
    scratch.write("file", "other");
    assert!(scratch.commit().created);
}
