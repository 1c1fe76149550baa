//! Files with long holes: a commit does not read them, and stores the same as of zeros.

use std::{
    ffi::OsStr,
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
};

use snap_core::{
    base::id::ContentId,
    format::pack::ObjectKind,
    local::{cut::identify, read::open_file, scan::FileStat},
};
use snap_testkit::bytes::Corpus;

use crate::scratch::{Scratch, commit, content_id, options};

/// Writes the same content to a file with holes and to one without.
fn write_both(sparse: &Path, dense: &Path, size: u64, data: &[(u64, usize)]) {
    let file = fs_err::File::create(sparse).unwrap();
    file.file().set_len(size).unwrap();
    let mut whole = vec![0; size as usize];
    for (offset, bytes) in data {
        let noise = Corpus::Random.make_seeded(*bytes, *offset);
        file.file().write_all_at(&noise, *offset).unwrap();
        whole[*offset as usize..][..*bytes].copy_from_slice(&noise);
    }
    fs_err::write(dense, whole).unwrap();
}

#[test]
fn a_file_with_holes_is_stored_like_one_with_zeros() {
    const MIB: u64 = 1 << 20;
    let shapes: [(u64, &[(u64, usize)]); 5] = [
        (64 * MIB, &[]),
        (64 * MIB + 4097, &[(0, 1), (64 * MIB + 4090, 7)]),
        (70 * MIB, &[(13 * MIB + 5, 3_000_000), (60 * MIB, 100)]),
        (50 * MIB, &[(0, 20 * MIB as usize + 3)]),
        (90 * MIB, &[(30 * MIB - 1, 1), (30 * MIB + 4096, 1), (89 * MIB, MIB as usize)]),
    ];
    // File systems in memory do not report holes reliably, so this one is on a disk.
    let files = tempfile::tempdir().unwrap();
    for (number, (size, data)) in shapes.into_iter().enumerate() {
        let [sparse, dense] = ["sparse", "dense"].map(|kind| files.path().join(kind));
        fs_err::create_dir_all(&sparse).unwrap();
        fs_err::create_dir_all(&dense).unwrap();
        write_both(&sparse.join("file"), &dense.join("file"), size, data);
        let id = content_id(&fs_err::read(dense.join("file")).unwrap());
        assert!(matches!(id, ContentId::Chunked(_)), "shape {number}");
        let list = |folder: &Path| {
            let scratch = Scratch::new();
            commit(&scratch.repo(), folder, &options());
            let open = fs_err::File::open(folder).unwrap();
            let (fd, name) = (open.file().as_fd(), OsStr::new("file"));
            let stat = FileStat::of_name(fd, name).unwrap();
            let file = open_file(fd, name, &stat).unwrap();
            assert_eq!(identify(&file, &stat, &|| false).unwrap(), (id, size), "shape {number}");
            scratch.repo().store().object(&id.object(), ObjectKind::ChunkList).unwrap()
        };
        assert!(list(&sparse) == list(&dense), "shape {number}");
    }
}
