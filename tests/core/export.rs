//! Exports of contents that no folder can have: invalid trees, and what a reproducible
//! commit omits. The tests of the command check archives with other tools.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::{io, sync::Arc};

use snap_core::{
    base::{
        id::{BlobId, ChunkListId, ContentId, TreeId},
        kind::ErrorKind,
        observe::{Observer, Silent},
        time::Time,
    },
    format::tree::{CAPABILITY, EntryKind, Metadata, Owner, Xattr},
    ops::export::{
        self, ArchiveFormat, ExportError, ExportOptions, ExportOutcome, MetadataLoss, PathPrefix,
    },
};
use snap_testkit::bytes::Corpus;

use crate::restore_fixture::{Snapshot, add_folder, content, file, plain};

const FORMATS: [ArchiveFormat; 3] = [ArchiveFormat::Tar, ArchiveFormat::TarZst, ArchiveFormat::Zip];

fn export(
    snapshot: &Snapshot,
    format: ArchiveFormat,
) -> Result<(Vec<u8>, ExportOutcome), ExportError> {
    let mut archive = Vec::new();
    let options = ExportOptions { format, ..ExportOptions::default() };
    let outcome = export::run(&snapshot.store, &snapshot.what(), &mut archive, &options, &Silent)?;
    Ok((archive, outcome))
}

/// Returns name, kind and time of each header of a tar archive with short names.
fn headers(archive: &[u8]) -> Vec<(String, u8, u64)> {
    let octal = |bytes: &[u8]| u64::from_str_radix(std::str::from_utf8(bytes).unwrap(), 8).unwrap();
    let mut found = Vec::new();
    let mut at = 0;
    while archive[at] != 0 {
        let header = &archive[at..at + 512];
        let name = header[..100].split(|byte| *byte == 0).next().unwrap();
        let name = String::from_utf8(name.to_vec()).unwrap();
        found.push((name, header[156], octal(&header[136..147])));
        at += 512 + (octal(&header[124..135]) as usize).next_multiple_of(512);
    }
    assert!(archive[at..].iter().all(|byte| *byte == 0) && archive.len() - at >= 1024);
    found
}

#[test]
fn files_without_a_valid_owner_are_exported_without_setuid() {
    let own = Some((1000, 1000));
    for (owner, is_kept) in [(None, false), (Some((u32::MAX, 0)), false), (own, true)] {
        for format in [ArchiveFormat::Tar, ArchiveFormat::Zip] {
            let snapshot = Snapshot::made(None, |writer| {
                let mut entry = file(writer, "tool", b"x");
                let owner = owner.map(|(uid, gid)| {
                    let (user, group) = Default::default();
                    Arc::new(Owner { uid, gid, user, group })
                });
                let capability = Xattr { name: CAPABILITY.into(), value: [1; 20].into() };
                entry.metadata =
                    Metadata { mode: 0o6755, owner, xattrs: vec![capability], ..entry.metadata };
                add_folder(writer, vec![entry]).0
            });
            let (archive, _) = export(&snapshot, format).unwrap();
            let has = |text: &[u8]| archive.windows(text.len()).any(|window| window == text);
            if format == ArchiveFormat::Tar {
                assert_eq!(has(CAPABILITY), is_kept, "{owner:?}");
                assert_eq!(
                    (has(b"0006755\0"), has(b"0000755\0")),
                    (is_kept, !is_kept),
                    "{owner:?}"
                );
            } else {
                let mode = |bits: u32| ((0o100_000 | bits) << 16).to_le_bytes();
                assert_eq!(
                    (has(&mode(0o6755)), has(&mode(0o755))),
                    (is_kept, !is_kept),
                    "{owner:?}"
                );
            }
        }
    }
}

#[test]
fn a_wrong_size_or_id_in_a_tree_is_reported_as_damage() {
    type Lie = fn(ContentId, u64) -> (ContentId, u64);
    let lies: [Lie; 6] = [
        |id, size| (id, size + 1),
        |id, _| (id, if id.is_chunked() { (1 << 20) + 1 } else { 0 }),
        |id, _| (id, if id.is_chunked() { 5 << 20 } else { 4 << 20 }),
        |_, size| (BlobId::of(b"not there").into(), size),
        |_, _| (ContentId::Chunked(ChunkListId::of(b"not there")), 3 << 20),
        // The id is right, but names an object of the other kind.
        |id, _| match id {
            ContentId::Blob(id) => {
                (ContentId::Chunked(ChunkListId::from_object(id.object())), 3 << 20)
            }
            ContentId::Chunked(id) => (BlobId::from_object(id.object()).into(), 3 << 20),
        },
    ];
    for bytes in [b"small".to_vec(), Corpus::Random.make(3 << 20)] {
        for lie in lies {
            let snapshot = Snapshot::made(None, |writer| {
                let EntryKind::File { id, size } = content(writer, &bytes) else { panic!() };
                let (id, size) = lie(id, size);
                let lying = plain("lying", EntryKind::File { size, id });
                add_folder(writer, vec![file(writer, "good", b"good"), lying]).0
            });
            for format in FORMATS {
                let error = export(&snapshot, format).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
                assert_eq!(error.to_string(), "cannot export `lying`");
            }
        }
    }
}

#[test]
fn a_tree_as_content_or_a_missing_folder_is_damage() {
    let snapshot = Snapshot::made(None, |writer| {
        let (folder, _) = add_folder(writer, Vec::new());
        let id = BlobId::from_bytes(*folder.as_bytes());
        add_folder(writer, vec![plain("lying", EntryKind::File { size: 5, id: id.into() })]).0
    });
    assert_eq!(export(&snapshot, ArchiveFormat::Tar).unwrap_err().kind(), ErrorKind::Damaged);
    let missing = plain("missing", EntryKind::Folder { id: TreeId::of(b"not there") });
    let error = export(&Snapshot::of_entries(vec![missing]), ArchiveFormat::Zip).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert_eq!(error.to_string(), "cannot list `missing`");
}

#[test]
fn hard_links_are_exported_only_between_identical_files() {
    let snapshot = Snapshot::made(None, |writer| {
        let linked = |called: &str, bytes: &[u8]| {
            let mut entry = file(writer, called, bytes);
            entry.metadata.link = Some(7);
            entry
        };
        let mut private = linked("d", b"one");
        private.metadata.mode = 0o600;
        let entries = vec![linked("a", b"one"), linked("b", b"two"), linked("c", b"one"), private];
        add_folder(writer, entries).0
    });
    let (archive, outcome) = export(&snapshot, ArchiveFormat::Tar).unwrap();
    let kinds: Vec<u8> = headers(&archive).iter().map(|(_, kind, _)| *kind).collect();
    assert_eq!(kinds, b"0010");
    assert_eq!((outcome.files, outcome.bytes), (4, 9));
    assert_eq!(outcome.archive_bytes, archive.len() as u64);
}

#[test]
fn missing_times_and_the_prefix_come_from_the_options() {
    let snapshot = Snapshot::made(None, |writer| {
        let mut dated = file(writer, "dated", b"");
        dated.metadata.mtime = Some(Time { secs: 5, nanos: 0 });
        add_folder(writer, vec![dated, file(writer, "plain", b"")]).0
    });
    let options = ExportOptions {
        mtime: Time { secs: 9, nanos: 0 },
        prefix: PathPrefix::new(b"a/b").unwrap(),
        ..ExportOptions::default()
    };
    let mut archive = Vec::new();
    export::run(&snapshot.store, &snapshot.what(), &mut archive, &options, &Silent).unwrap();
    let wanted = [("a/b/", b'5', 9), ("a/b/dated", b'0', 5), ("a/b/plain", b'0', 9)];
    let wanted = wanted.map(|(name, kind, time)| (name.to_owned(), kind, time));
    assert_eq!(headers(&archive), wanted);
}

#[test]
fn many_small_files_with_few_contents_are_exported_in_order() {
    // The files need more than one batch, and their contents are spread over the
    // frames.
    let contents: Vec<Vec<u8>> =
        (0..97).map(|seed| Corpus::Text.make_seeded(1_000 + 50 * seed, seed as u64)).collect();
    let name = |number: usize| format!("file-{number:05}");
    let snapshot = Snapshot::made(None, |writer| {
        let entries = (0..9_000).map(|number| {
            let bytes = &contents[number * 31 % contents.len()];
            let kind = match number < contents.len() {
                true => content(writer, bytes),
                false => EntryKind::File { size: bytes.len() as u64, id: BlobId::of(bytes).into() },
            };
            plain(name(number), kind)
        });
        add_folder(writer, entries.collect()).0
    });
    let (archive, outcome) = export(&snapshot, ArchiveFormat::Tar).unwrap();
    assert_eq!(outcome.files, 9_000);
    let mut at = 0;
    for number in 0..9_000 {
        let bytes = &contents[number * 31 % contents.len()];
        assert!(archive[at..].starts_with(name(number).as_bytes()), "{number}");
        assert!(archive[at + 512..].starts_with(bytes), "{number}");
        at += 512 + bytes.len().next_multiple_of(512);
    }
}

/// An observer that cancels from the start.
struct Stopped;

impl Observer for Stopped {
    fn cancelled(&self) -> bool {
        true
    }
}

/// A writer that accepts only this number of bytes.
struct Full(usize);

impl io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_export_ends_when_cancelled_or_when_the_output_fails() {
    let snapshot = Snapshot::made(None, |writer| {
        let large = content(writer, &Corpus::Random.make(6 << 20));
        let files = (0..5_000).map(|number| file(writer, format!("{number:04}"), b"some text"));
        let entries: Vec<_> = files.chain([plain("large", large)]).collect();
        add_folder(writer, entries).0
    });
    let what = snapshot.what();
    for format in FORMATS {
        let options = ExportOptions { format, ..ExportOptions::default() };
        let mut sink = Vec::new();
        let stopped = export::run(&snapshot.store, &what, &mut sink, &options, &Stopped);
        assert!(matches!(stopped, Err(ExportError::Interrupted)));
        for room in [0, 100, 300_000, 3 << 20] {
            let full = export::run(&snapshot.store, &what, &mut Full(room), &options, &Silent);
            assert!(matches!(full, Err(ExportError::Output(_))), "{format:?}, {room}");
        }
    }
}

#[test]
fn a_path_too_long_for_zip_is_refused() {
    let snapshot = Snapshot::made(None, |writer| {
        let mut entries = vec![file(writer, "bottom", b"")];
        for _ in 0..300 {
            let (id, _) = add_folder(writer, entries);
            entries = vec![plain("d".repeat(250), EntryKind::Folder { id })];
        }
        add_folder(writer, entries).0
    });
    assert!(export(&snapshot, ArchiveFormat::Tar).is_ok());
    let error = export(&snapshot, ArchiveFormat::Zip).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_file_that_is_one_hole_takes_one_sparse_map() {
    let snapshot = Snapshot::made(None, |writer| {
        let mut entry = plain("hole", content(writer, &vec![0; 40 << 20]));
        entry.metadata = Metadata { sparse: true, mode: 0o644, ..Metadata::default() };
        add_folder(writer, vec![entry]).0
    });
    let (archive, outcome) = export(&snapshot, ArchiveFormat::Tar).unwrap();
    assert_eq!(outcome.bytes, 40 << 20);
    assert_eq!(archive.len(), 10_240);
    let kinds: Vec<u8> = headers(&archive).iter().map(|(_, kind, _)| *kind).collect();
    assert_eq!(kinds, b"x0");
}

/// Returns name and Unix mode of each entry in the directory of a zip archive.
fn zip_entries(archive: &[u8]) -> Vec<(String, u32)> {
    let number = |at: usize, bytes: usize| {
        let field = archive[at..at + bytes].iter().rev();
        field.fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let end = archive.len() - 22;
    let mut at = number(end + 16, 4);
    let mut found = Vec::new();
    while archive[at..].starts_with(b"PK\x01\x02") {
        let (name, extra) = (number(at + 28, 2), number(at + 30, 2));
        let bytes = archive[at + 46..at + 46 + name].to_vec();
        found.push((String::from_utf8(bytes).unwrap(), number(at + 40, 2) as u32));
        at += 46 + name + extra;
    }
    assert_eq!(found.len(), number(end + 10, 2));
    found
}

#[test]
fn names_special_on_windows_are_escaped_in_zip_archives() {
    let snapshot = Snapshot::made(None, |writer| {
        let (inside, below) = add_folder(writer, vec![file(writer, "x:stream", b"1")]);
        let mut names = ["..\\..\\evil.txt", "C%3A%5Cx", "C:\\x", "CON.txt", "end.", "plain"];
        names.sort_unstable();
        let mut entries: Vec<_> = names.iter().map(|name| file(writer, name, b"2")).collect();
        let folder = plain("a:b", EntryKind::Folder { id: inside });
        let at = entries.partition_point(|entry| entry.name < folder.name);
        entries.insert(at, folder);
        let _ = below;
        add_folder(writer, entries).0
    });
    let told = parking_lot::Mutex::new(Vec::new());
    let on_loss = |path: &std::path::Path, loss: export::MetadataLoss| {
        told.lock().push((path.to_str().unwrap().to_owned(), loss));
    };
    let mut archive = Vec::new();
    let options = ExportOptions {
        format: ArchiveFormat::Zip,
        on_loss: Some(&on_loss),
        ..ExportOptions::default()
    };
    let outcome =
        export::run(&snapshot.store, &snapshot.what(), &mut archive, &options, &Silent).unwrap();
    let names: Vec<String> = zip_entries(&archive).into_iter().map(|(name, _)| name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    let wanted = [
        "%43ON.txt",
        "..%5C..%5Cevil.txt",
        "C%253A%255Cx",
        "C%3A%5Cx",
        "a%3Ab/",
        "a%3Ab/x%3Astream",
        "end%2E",
        "plain",
    ];
    assert_eq!(sorted, wanted);
    assert_eq!(outcome.lost[&export::MetadataLoss::Name], 7);
    let told = told.into_inner();
    assert_eq!(told.len(), 7);
    assert!(told.contains(&("a:b/x:stream".to_owned(), export::MetadataLoss::Name)), "{told:?}");
    // Tar keeps names unchanged.
    let (archive, outcome) = export(&snapshot, ArchiveFormat::Tar).unwrap();
    assert!(headers(&archive).iter().any(|(name, ..)| name == "C:\\x"));
    assert!(outcome.lost.is_empty());
}

#[test]
fn a_zip_archive_grants_no_more_access_than_the_acl() {
    use snap_core::format::{acl, tree::Xattr};
    let snapshot = Snapshot::made(None, |writer| {
        let mut listed = file(writer, "listed", b"secret of one user");
        // user::rw- user:1000:rw- group::--- mask::rw- other::---
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, may, number) in [(1, 6, u32::MAX), (2, 6, 1000), (4, 0, u32::MAX), (16, 6, 0)] {
            value.extend([tag, 0, may, 0]);
            value.extend(u32::to_le_bytes(number));
        }
        value.extend([32, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        listed.metadata.mode = 0o660;
        listed.metadata.xattrs = vec![Xattr { name: acl::ACCESS.into(), value: value.into() }];
        add_folder(writer, vec![listed]).0
    });
    let (archive, outcome) = export(&snapshot, ArchiveFormat::Zip).unwrap();
    assert_eq!(zip_entries(&archive), [("listed".to_owned(), 0o100_600)]);
    assert_eq!(outcome.lost[&export::MetadataLoss::Attributes], 1);
}

#[test]
fn stores_and_symlinks_named_snap_are_not_exported() {
    let snapshot = Snapshot::made(None, |writer| {
        let link = || plain(".snap", EntryKind::Symlink { target: b"../x/.snap"[..].into() });
        let store = vec![file(writer, "config.toml", b""), file(writer, "lock", b"evil")];
        let store = plain(".snap", EntryKind::Folder { id: add_folder(writer, store).0 });
        let notes = add_folder(writer, vec![file(writer, "notes", b"mine")]).0;
        let plain_folder = plain(".snap", EntryKind::Folder { id: notes });
        let folder = |writer, name: &str, entry| {
            let after = file(writer, ".snap-after", b"kept");
            let id = add_folder(writer, vec![entry, after]).0;
            plain(name, EntryKind::Folder { id })
        };
        let entries = vec![
            link(),
            folder(writer, "a", link()),
            folder(writer, "b", store),
            folder(writer, "c", plain_folder),
        ];
        add_folder(writer, entries).0
    });
    for format in FORMATS {
        let (archive, outcome) = export(&snapshot, format).unwrap();
        assert_eq!(outcome.lost, [(MetadataLoss::Store, 3)].into(), "{format:?}");
        assert_eq!((outcome.entries, outcome.files), (8, 4), "{format:?}");
        if format == ArchiveFormat::Tar {
            let names: Vec<_> = headers(&archive).into_iter().map(|(name, ..)| name).collect();
            let kept =
                ["a/", "a/.snap-after", "b/", "b/.snap-after", "c/", "c/.snap/", "c/.snap/notes"];
            assert_eq!(names, [&kept[..], &["c/.snap-after"]].concat());
        }
    }
}
