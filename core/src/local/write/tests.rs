//! Tests of writing files atomically.

use std::os::unix::fs::{MetadataExt, symlink};

use super::*;
use crate::local::{
    attributes::FileCapability,
    contain::{FolderPath, TargetRoot},
};

fn name(text: &str) -> EntryName {
    EntryName::new(text.as_bytes()).unwrap()
}

fn spec(name: &EntryName) -> FileSpec<'_> {
    FileSpec {
        name,
        attributes: Attributes {
            owner: None,
            mode: Some(0o644),
            mtime: Some(Time { secs: 1_000_000_000, nanos: 123_456_789 }),
            xattrs: &[],
            capability: FileCapability::Apply,
            extra: Extra::Keep,
        },
        sparse: false,
        inherited: None,
        placement: Placement::New,
    }
}

fn with_folder(test: impl FnOnce(&std::path::Path, &OpenFolder)) {
    let dir = tempfile::tempdir().unwrap();
    let root = TargetRoot::open(dir.path()).unwrap();
    test(dir.path(), &root.folder(&FolderPath::top()).unwrap());
}

fn write(spec: &FileSpec<'_>, folder: &OpenFolder, bytes: &[u8]) -> io::Result<Renamed> {
    let mut draft = spec.start(folder)?;
    draft.write(bytes)?;
    spec.finish(draft, &mut no_refusal())
}

fn no_refusal() -> impl FnMut(&'static str, io::Error) {
    |what, error| panic!("{what}: {error}")
}

#[test]
fn a_file_appears_complete_with_its_attributes() {
    with_folder(|dir, folder| {
        let inherited = Inherited::probe(folder).unwrap();
        assert_eq!(fs_err::read_dir(dir).unwrap().count(), 0, "the probe is gone");
        for (text, mode, inherited) in [
            ("a", 0o644, inherited),
            ("b", 0o4755, inherited),
            ("c", 0o777, None),
            ("d", 0, inherited),
        ] {
            let name = name(text);
            let mut spec = FileSpec { inherited, ..spec(&name) };
            spec.attributes.mode = Some(mode);
            assert_eq!(write(&spec, folder, b"content").unwrap(), Renamed::Done);
            let meta = fs_err::metadata(dir.join(text)).unwrap();
            assert_eq!(meta.mode() & 0o7777, u32::from(mode), "{text}");
            assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000_000, 123_456_789));
        }
        assert_eq!(fs_err::read_dir(dir).unwrap().count(), 4);
    });
}

#[test]
fn an_existing_name_is_replaced_only_on_request() {
    with_folder(|dir, folder| {
        fs_err::write(dir.join("secret"), "mine").unwrap();
        symlink("secret", dir.join("f")).unwrap();
        let f = name("f");
        let new = spec(&f);
        assert_eq!(write(&new, folder, b"x").unwrap(), Renamed::Taken);
        let replacing = FileSpec { placement: Placement::Replace, ..new };
        assert_eq!(write(&replacing, folder, b"x").unwrap(), Renamed::Done);
        assert!(fs_err::symlink_metadata(dir.join("f")).unwrap().is_file());
        assert_eq!(fs_err::read(dir.join("secret")).unwrap(), b"mine");
        folder.make_folder(&name("d"), 0o700).unwrap();
        let d = name("d");
        let onto_folder = FileSpec { name: &d, ..replacing };
        assert!(write(&onto_folder, folder, b"x").is_err());
        assert_eq!(fs_err::read_dir(dir).unwrap().count(), 3, "no draft remains");
    });
}

#[test]
fn zeros_become_holes_for_any_write_size() {
    with_folder(|dir, folder| {
        let mut content = vec![0; 1 << 20];
        content[4096..4100].copy_from_slice(b"data");
        content[300_000..300_500].fill(7);
        for cut in [1 << 20, 4096, 1000, 65_537] {
            let f = name("f");
            let sparse = FileSpec { sparse: true, placement: Placement::Replace, ..spec(&f) };
            let mut draft = sparse.start(folder).unwrap();
            content.chunks(cut).for_each(|piece| draft.write(piece).unwrap());
            sparse.finish(draft, &mut no_refusal()).unwrap();
            assert_eq!(fs_err::read(dir.join("f")).unwrap(), content);
            let blocks = fs_err::metadata(dir.join("f")).unwrap().blocks();
            assert!(blocks * 512 <= 16 << 10, "{cut}: {blocks} blocks");
        }
    });
}

#[test]
fn a_dropped_draft_is_removed() {
    with_folder(|dir, folder| {
        let f = name("f");
        let mut draft = spec(&f).start(folder).unwrap();
        draft.write(b"half").unwrap();
        assert_eq!(fs_err::read_dir(dir).unwrap().count(), 1);
        drop(draft);
        assert_eq!(fs_err::read_dir(dir).unwrap().count(), 0);
    });
}

#[test]
fn a_cleared_draft_starts_from_scratch() {
    with_folder(|dir, folder| {
        let f = name("f");
        let mut draft = spec(&f).start(folder).unwrap();
        draft.write(b"a wrong start").unwrap();
        draft.clear().unwrap();
        draft.write(b"right").unwrap();
        spec(&f).finish(draft, &mut no_refusal()).unwrap();
        assert_eq!(fs_err::read(dir.join("f")).unwrap(), b"right");
    });
}

#[test]
fn only_drafts_of_a_killed_run_are_swept() {
    with_folder(|dir, folder| {
        let left = temporary_name();
        let mut other = left.as_bytes().to_vec();
        let last = other.last_mut().unwrap();
        *last = if *last == b'0' { b'1' } else { b'0' };
        let other = EntryName::new(&other).unwrap();
        for name in [&left, &other, &name(".snap-tmp-short"), &name(".snap-tmp-0123456789abcdef")] {
            fs_err::write(dir.join(name.as_os_str()), "x").unwrap();
        }
        let f = name("f");
        let held = spec(&f).start(folder).unwrap();
        sweep(folder, &folder.list().unwrap(), Time { secs: 0, nanos: 0 }).unwrap();
        assert_eq!(fs_err::read_dir(dir).unwrap().count(), 5, "no file is older than 1970");
        sweep(folder, &folder.list().unwrap(), Time { secs: i64::MAX, nanos: 0 }).unwrap();
        assert!(!dir.join(left.as_os_str()).exists());
        assert_eq!(
            fs_err::read_dir(dir).unwrap().count(),
            4,
            "one draft is locked, three files are the user's"
        );
        drop(held);
    });
    assert!(is_temporary(temporary_name().as_bytes()));
    assert!(is_temporary(scratch::unique_name(scratch::PART_PREFIX).as_bytes()));
    assert!(!is_temporary(scratch::unique_name("pack").as_bytes()));
    assert!(!is_temporary(b".snap-part-1234-18f2a3b400000000-0"), "a name of an earlier version");
}

#[test]
fn a_full_disk_leaves_no_draft() {
    // A limit on file size would fail a write in the middle, like a full disk, but it applies to
    // the whole process. So this test gives a draft a descriptor of /dev/full.
    with_folder(|dir, folder| {
        let f = name("f");
        let mut draft = spec(&f).start(folder).unwrap();
        draft.file = File::from(
            rustix::fs::open("/dev/full", rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty())
                .unwrap(),
        );
        let error = draft.write(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        drop(draft);
        assert_eq!(fs_err::read_dir(dir).unwrap().count(), 0);
    });
}
