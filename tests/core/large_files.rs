//! Large files: each operation that compares a file with a chunk list, and lists of many parts.

use std::{ops::Range, os::unix::fs::FileExt, path::Path};

use snap_core::{
    base::{
        id::{BlobId, ChunkListId, CommitId, ContentId, TreeId},
        limits,
        observe::Silent,
    },
    disk::Disk,
    format::{
        chunk_list::{ChunkList, ZERO_CHUNK},
        pack::ObjectKind,
        tree::{Entry, EntryKind},
    },
    ops::{
        diff::{
            self, ComparedFiles, ComparedFolder, DiffOptions, DiffOutcome, New, RenameDetection,
        },
        repair::{self, RepairOptions, RepairOutcome, RepairRun},
        restore::{self, Existing, RestoreOptions, RestoreSource},
        verify::{self, Data},
    },
    repo::{
        Config, Repo,
        path::{ResolvedPath, resolve_path},
    },
    store::{Descend, FileContent, ObjectWriter, Store},
};
use snap_testkit::{bytes::Corpus, wait::until};

use crate::{
    crafted::{
        Body, Claim, Crafted, blob, chunk_list, chunked, leaf, list_part, mib, pack_of, piece, tree,
    },
    elsewhere::{Elsewhere, reaching, stub},
    scratch::{Scratch, assert_restores, commit, content_id, on_branch, open, options, temporary},
};

const MIB: usize = 1 << 20;

/// Returns noise, long zeros, and noise again.
fn content() -> Vec<u8> {
    let mut content = Corpus::Random.make_seeded(3 * MIB + 17, 1);
    content.resize(20 * MIB, 0);
    content.extend(Corpus::Random.make_seeded(2 * MIB, 2));
    content
}

/// Contents that differ from another one at a place where a comparison may end too early.
fn variations(content: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let flipped = |at: usize| {
        let mut other = content.to_vec();
        other[at] ^= 1;
        other
    };
    vec![
        ("the first byte", flipped(0)),
        ("a byte of the zeros", flipped(10 * MIB)),
        ("the last byte", flipped(content.len() - 1)),
        ("a byte more", [content, b"x"].concat()),
        ("a zero more", [content, &[0]].concat()),
        ("a byte less", content[..content.len() - 1].to_vec()),
        ("a swapped chunk", [&content[3 * MIB..], &content[..3 * MIB]].concat()),
    ]
}

/// Returns true if a file has a hole.
fn has_hole(path: &Path) -> bool {
    let file = fs_err::File::open(path).unwrap();
    rustix::fs::seek(file.file(), rustix::fs::SeekFrom::Hole(0)).unwrap()
        < file.metadata().unwrap().len()
}

/// Overwrites a file in place. Its long zeros become a hole, or its holes zeros.
fn overwrite(path: &Path, content: &[u8], is_sparse: bool) {
    let file =
        fs_err::OpenOptions::new().write(true).create(true).truncate(true).open(path).unwrap();
    file.set_len(content.len() as u64).unwrap();
    for (at, block) in content.chunks(64 << 10).enumerate() {
        if !is_sparse || block.iter().any(|byte| *byte != 0) {
            file.file().write_all_at(block, (at * (64 << 10)) as u64).unwrap();
        }
    }
    drop(file);
    assert_eq!(has_hole(path), is_sparse);
}

fn status(repo: &Repo, tree: TreeId, folder: &Path) -> DiffOutcome {
    let (ignore, scope) = Default::default();
    let files = ComparedFiles::Folder(folder.to_owned());
    let new = New::Folder(ComparedFolder { files, ignore, scope, reproducible: false });
    let options = DiffOptions { renames: RenameDetection::Ignore, ..DiffOptions::default() };
    diff::run(repo.store(), Some(tree), &new, &options, &Silent, &mut |_| Ok(())).unwrap()
}

fn tree_of(repo: &Repo, id: CommitId) -> TreeId {
    repo.store().commit(&id).unwrap().tree
}

/// Returns the content of a file of a commit.
fn file_at(repo: &Repo, id: CommitId, path: &str) -> FileContent {
    match resolve_path(repo.store(), tree_of(repo, id), path.as_bytes()).unwrap() {
        ResolvedPath::Entry(Entry { kind: EntryKind::File { size, id }, .. }) => {
            FileContent { id, bytes: size }
        }
        found => panic!("{found:?}"),
    }
}

/// Compares a file in the source of a store with the newest commit, in each way.
#[track_caller]
fn assert_compared(scratch: &Scratch, first: CommitId, told: &str, content: &[u8], is_same: bool) {
    let repo = scratch.repo();
    let found = status(&repo, tree_of(&repo, first), &scratch.source());
    assert_eq!(
        (found.modified, found.changes()),
        (u64::from(!is_same), u64::from(!is_same)),
        "{told}"
    );

    let made =
        commit(&repo, &scratch.source(), &on_branch(&format!("b{}", repo.store().packs().len())));
    let stored = file_at(&repo, made.id.unwrap(), "file");
    assert_eq!(
        stored,
        FileContent { id: content_id(content), bytes: content.len() as u64 },
        "{told}"
    );
    assert_eq!(stored == file_at(&repo, first, "file"), is_same, "{told}");

    // A restore over the file writes it only if it differs.
    let what = RestoreSource::Folder { tree: tree_of(&repo, first), root: None };
    let options = RestoreOptions { existing: Existing::Overwrite, ..RestoreOptions::default() };
    let target = scratch.path("target");
    fs_err::create_dir_all(&target).unwrap();
    overwrite(&target.join("file"), content, has_hole(&scratch.source().join("file")));
    let outcome = restore::run(repo.store(), &what, &target, &options, &Silent).unwrap();
    assert_eq!(
        (outcome.files_kept, outcome.files_written),
        (u64::from(is_same), u64::from(!is_same)),
        "{told}"
    );
    assert!(
        content_id(&fs_err::read(target.join("file")).unwrap()) == file_at(&repo, first, "file").id
    );
    fs_err::remove_dir_all(&target).unwrap();
}

#[test]
fn a_changed_large_file_differs_wherever_the_change_is() {
    for is_sparse in [false, true] {
        let scratch = Scratch::new();
        let (path, content) = (scratch.source().join("file"), content());
        overwrite(&path, &content, is_sparse);
        let first = scratch.commit().id.unwrap();
        for (told, other) in variations(&content) {
            overwrite(&path, &other, is_sparse);
            assert_compared(&scratch, first, told, &other, false);
        }
    }
}

#[test]
fn holes_and_zeros_are_the_same_content() {
    for is_sparse in [false, true] {
        let scratch = Scratch::new();
        let (path, content) = (scratch.source().join("file"), content());
        overwrite(&path, &content, is_sparse);
        let first = scratch.commit().id.unwrap();
        for now_sparse in [is_sparse, !is_sparse] {
            let told = format!("sparse: {is_sparse}, then {now_sparse}");
            overwrite(&path, &content, now_sparse);
            assert_compared(&scratch, first, &told, &content, true);
        }
    }
}

/// A file that was renamed is compared with its likely content. It is stored again if it was changed in
/// place, too.
#[test]
fn a_renamed_large_file_is_compared_with_its_likely_content() {
    let content = content();
    let same_length = |(_, other): &(&str, Vec<u8>)| other.len() == content.len();
    let others = variations(&content).into_iter().filter(same_length);
    for (told, other) in others.chain([("nothing", content.clone())]) {
        let scratch = Scratch::new();
        let [old, new] = ["file", "renamed"].map(|name| scratch.source().join(name));
        fs_err::write(&old, &content).unwrap();
        let first = scratch.settle().id.unwrap();
        let mtime = fs_err::metadata(&old).unwrap().modified().unwrap();
        fs_err::rename(&old, &new).unwrap();
        let file = fs_err::OpenOptions::new().write(true).open(&new).unwrap();
        file.file().write_all_at(&other, 0).unwrap();
        file.file().set_modified(mtime).unwrap();
        drop(file);
        let made = scratch.commit();
        let id = file_at(&scratch.repo(), made.id.unwrap(), "renamed").id;
        assert_eq!(id, content_id(&other), "{told}");
        assert_eq!(id == file_at(&scratch.repo(), first, "file").id, other == content, "{told}");
        scratch.assert_restores(made.id.unwrap());
    }
}

/// A partial store may have the tree, but not the chunk list. Then the file is cut.
#[test]
fn a_file_is_compared_without_its_chunk_list_and_without_a_fetch() {
    let from = Scratch::new();
    let (path, content) = (from.source().join("file"), content());
    fs_err::write(&path, &content).unwrap();
    let first = from.commit().id.unwrap();
    let source = from.repo();
    let root = tree_of(&source, first);
    let scratch = Scratch::new();
    stub(source.store(), &scratch.repo(), first);
    let elsewhere = Elsewhere::of(source.store());
    let repo = scratch.repo();
    let writer = ObjectWriter::new(repo.store(), 3, 1).unwrap();
    for (id, kind) in [(root.object(), ObjectKind::Tree), (first.object(), ObjectKind::Commit)] {
        writer.add_metadata(kind, id, &source.store().object(&id, kind).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    let repo = reaching(&scratch, &elsewhere);
    let others = variations(&content).into_iter().map(|(told, other)| (told, other, 1));
    for (told, other, modified) in others.chain([("nothing", content.clone(), 0)]) {
        fs_err::write(&path, &other).unwrap();
        let found = status(&repo, root, &from.source());
        assert_eq!((found.modified, found.changes()), (modified, modified), "{told}");
    }
    assert_eq!(elsewhere.take(), []);
}

/// The stat cache records that a file differs from a content, and from no other one.
#[test]
fn a_second_status_reads_no_large_file() {
    let scratch = Scratch::new();
    let path = scratch.source().join("file");
    let contents = [1, 2].map(|seed| Corpus::Random.make_seeded(17 * MIB, seed));
    let commits = contents.each_ref().map(|content| {
        fs_err::write(&path, content).unwrap();
        scratch.commit().id.unwrap()
    });
    let repo = scratch.repo();
    let [first, second] = commits.map(|id| tree_of(&repo, id));
    let mut changed = contents[1].clone();
    changed[16 * MIB] ^= 1;
    for (content, differs) in [(&changed, true), (&contents[1], false), (&changed, true)] {
        fs_err::write(&path, content).unwrap();
        let found = status(&repo, second, &scratch.source());
        assert_eq!((found.modified, found.bytes_read), (u64::from(differs), 17 << 20));
        // The stat cache does not keep a file that has just changed.
        until("a status reads no file", || {
            let again = status(&repo, second, &scratch.source());
            assert_eq!(again.modified, u64::from(differs));
            again.bytes_read == 0
        });
        // It says nothing about another content.
        let found = status(&repo, first, &scratch.source());
        assert_eq!(found.modified, 1);
    }
    // A commit knows that the file is modified, and not yet its content.
    let made = commit(&repo, &scratch.source(), &options());
    assert_eq!(file_at(&repo, made.id.unwrap(), "file").id, content_id(&changed));
    assert_restores(&repo, made.id.unwrap(), &scratch.source(), &scratch.path("restored"));
}

/// Length of a hole with one chunk more than a short list can name.
const LONG_BYTES: u64 = (limits::CHUNK_LIST_ENTRIES as u64 + 3) * limits::CHUNK_BYTES as u64;

/// Makes a file of mostly hole with a list of two parts.
fn make_long(path: &Path) {
    let file = fs_err::File::create(path).unwrap();
    file.set_len(LONG_BYTES).unwrap();
    for at in [5 << 20, LONG_BYTES - 7] {
        file.file().write_all_at(b"text", at).unwrap();
    }
}

/// Returns the objects that a file of a commit consists of.
fn objects_of(store: &Store, list: &ChunkListId) -> Vec<Claim> {
    let read = |id, kind| (id, kind, store.object(&id, kind).unwrap());
    let list = read(list.object(), ObjectKind::ChunkList);
    let ChunkList::Parts(parts) = ChunkList::decode(&list.2).unwrap() else { panic!("no parts") };
    assert_eq!(parts.len(), 2);
    parts.iter().map(|part| read(part.id.object(), ObjectKind::ListPart)).chain([list]).collect()
}

#[test]
fn a_file_with_a_list_of_several_parts_is_committed_compared_and_restored() {
    let scratch = Scratch::new();
    let path = scratch.source().join("file");
    make_long(&path);
    let first = scratch.commit().id.unwrap();
    let repo = scratch.repo();
    let stored = file_at(&repo, first, "file");
    assert_eq!(stored.bytes, LONG_BYTES);
    let ContentId::Chunked(list) = stored.id else { panic!("it is large") };
    let mut zeros = 0;
    let walked =
        repo.store().for_each_named::<snap_core::store::StoreError>(&list, &mut |id, _| {
            zeros += usize::from(id == ZERO_CHUNK.id.object());
            Ok(Descend::Enter)
        });
    walked.unwrap();
    assert!(zeros > limits::CHUNK_LIST_ENTRIES - 3, "{zeros}");
    objects_of(repo.store(), &list);
    let tree = tree_of(&repo, first);
    assert_eq!(status(&repo, tree, &scratch.source()).changes(), 0);

    let target = scratch.path("target");
    let what = RestoreSource::Folder { tree, root: None };
    let options = RestoreOptions::default();
    let outcome = restore::run(repo.store(), &what, &target, &options, &Silent).unwrap();
    assert_eq!(outcome.files_written, 1);
    let restored = fs_err::File::open(target.join("file")).unwrap();
    assert_eq!(restored.metadata().unwrap().len(), LONG_BYTES);
    let read = |range: Range<u64>| {
        let mut bytes = vec![7; (range.end - range.start) as usize];
        restored.file().read_exact_at(&mut bytes, range.start).unwrap();
        bytes
    };
    assert_eq!(read(LONG_BYTES - 8..LONG_BYTES), *b"\0text\0\0\0");
    assert_eq!(read((5 << 20) - 1..(5 << 20) + 5), *b"\0text\0");
    assert_eq!(status(&repo, tree, &target).changes(), 0);
    let all = verify::VerifyOptions { data: Data::All };
    assert_eq!(verify::run(&repo, &all, &Silent).unwrap().problems.len(), 0);

    let file = fs_err::OpenOptions::new().write(true).open(&path).unwrap();
    file.file().write_all_at(b"x", LONG_BYTES - 1).unwrap();
    drop(file);
    assert_eq!(status(&repo, tree, &scratch.source()).modified, 1);
}

fn repair_project(repo: &Repo) -> RepairOutcome {
    let dir = temporary();
    let options = RepairOptions { data: Data::All, run: RepairRun::Real, scratch: dir.path() };
    repair::run(repo, &|| &[], &|_| None, &options, &Silent).unwrap()
}

/// Makes a project of one long and one large file, with a store that lacks some objects, or has other
/// bytes under their ids. `change` gets the kind and the number of each object among those of its kind.
fn project_with(
    change: &dyn Fn(ObjectKind, usize, &mut Vec<u8>) -> bool,
) -> (tempfile::TempDir, Repo) {
    let dir = temporary();
    let root = dir.path().join("project");
    fs_err::create_dir_all(&root).unwrap();
    make_long(&root.join("long"));
    fs_err::write(root.join("large"), Corpus::Random.make(5 * MIB)).unwrap();
    let store = root.join(".snap");
    Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
    commit(&open(&store), &root, &options());
    let repo = open(&store);
    let [pack] = repo.store().packs()[..] else { panic!("one pack") };
    let mut numbers = std::collections::BTreeMap::<ObjectKind, usize>::new();
    let mut claims = Vec::new();
    for object in repo.store().open_pack(&pack).unwrap().objects().unwrap() {
        let number = numbers.entry(object.kind).or_default();
        let mut bytes = repo.store().object(&object.id, object.kind).unwrap();
        if change(object.kind, *number, &mut bytes) {
            claims.push((object.id, object.kind, bytes));
        }
        *number += 1;
    }
    let path = repo.store().pack_path(&pack);
    fs_err::remove_file(path).unwrap();
    let bytes = pack_of(&claims);
    let name = snap_core::base::id::PackId::from_bytes(*blake3::hash(&bytes).as_bytes());
    fs_err::write(store.join("objects").join(name.to_string()), bytes).unwrap();
    fs_err::remove_dir_all(store.join("index")).unwrap();
    fs_err::remove_dir_all(store.join("cache")).unwrap();
    (dir, open(&store))
}

#[test]
fn lost_and_forged_lists_and_parts_are_repaired_from_the_project_file() {
    type Change = fn(ObjectKind, usize, &mut Vec<u8>) -> bool;
    let changes: [(&str, Change); 8] = [
        ("a lost chunk", |kind, number, _| (kind, number) != (ObjectKind::Blob, 1)),
        ("lost chunks", |kind, _, _| kind != ObjectKind::Blob),
        ("a lost part", |kind, number, _| (kind, number) != (ObjectKind::ListPart, 0)),
        ("lost parts", |kind, _, _| kind != ObjectKind::ListPart),
        ("lost lists", |kind, _, _| kind != ObjectKind::ChunkList),
        ("lost lists and parts", |kind, _, _| {
            !matches!(kind, ObjectKind::ChunkList | ObjectKind::ListPart)
        }),
        ("forged lists and parts", |kind, _, bytes| {
            if matches!(kind, ObjectKind::ChunkList | ObjectKind::ListPart) {
                bytes[9] ^= 1;
            }
            true
        }),
        ("nothing but trees and commits", |kind, _, _| {
            matches!(kind, ObjectKind::Tree | ObjectKind::Commit)
        }),
    ];
    for (told, change) in changes {
        let (_dir, repo) = project_with(&change);
        let all = verify::VerifyOptions { data: Data::All };
        let found = verify::run(&repo, &all, &Silent).unwrap();
        assert!(!found.problems.is_empty(), "{told}");
        let outcome = repair_project(&open(repo.dir()));
        assert!(outcome.lost.is_empty(), "{told}: {outcome:?}");
        assert!(outcome.left.problems.is_empty(), "{told}: {:?}", outcome.left.problems);
        let found = verify::run(&open(repo.dir()), &all, &Silent).unwrap();
        assert_eq!(found.problems.len(), 0, "{told}: {:?}", found.problems);
    }
}

#[test]
fn verify_names_forged_lists_and_parts_and_the_next_commit_stores_them_again() {
    let forge = |kind: ObjectKind, _: usize, bytes: &mut Vec<u8>| {
        if matches!(kind, ObjectKind::ChunkList | ObjectKind::ListPart) {
            bytes[9] ^= 1;
        }
        true
    };
    for verifies in [true, false] {
        let (dir, repo) = project_with(&forge);
        let root = dir.path().join("project");
        if verifies {
            let all = verify::VerifyOptions { data: Data::All };
            let found = verify::run(&repo, &all, &Silent).unwrap();
            let paths: Vec<&[u8]> = found.touched.paths.iter().map(|path| &*path.path).collect();
            assert_eq!(paths, [&b"large"[..], b"long"]);
            assert_eq!(found.shadowed.packs, 1, "{:?}", found.problems);
        }
        let made = commit(&open(repo.dir()), &root, &on_branch("again"));
        // Two lists and two parts. The commit is the same.
        assert_eq!(made.added.objects, 4, "{verifies}: {:?}", made.added);
        let repo = open(repo.dir());
        let all = verify::VerifyOptions { data: Data::All };
        let found = verify::run(&repo, &all, &Silent).unwrap();
        assert!(found.touched.paths.is_empty(), "{verifies}");
        let list = file_at(&repo, made.id.unwrap(), "long").id;
        let ContentId::Chunked(list) = list else { panic!("it is large") };
        objects_of(repo.store(), &list);
    }
}

/// Two lists that share a part: a chunk that is missing in it makes both contents wrong.
#[test]
fn all_contents_with_a_damaged_part_are_reported() {
    let chunk = piece(&mib(1));
    let (shared, shared_claim) = list_part(&vec![chunk; limits::CHUNK_LIST_ENTRIES]);
    let (not_full, not_full_claim) = list_part(&vec![ZERO_CHUNK; limits::CHUNK_LIST_ENTRIES - 1]);
    let zeros = blob(&vec![0; limits::CHUNK_BYTES]);
    for (told, first, objects, problems) in [
        ("a missing chunk", shared, vec![shared_claim.clone()], 1),
        ("a missing part", shared, vec![blob(&mib(1))], 1),
        ("a part that is not full", not_full, vec![not_full_claim.clone()], 1),
    ] {
        let mut claims = [objects, vec![zeros.clone()]].concat();
        let mut entries: Vec<(&[u8], Body)> = Vec::new();
        for (name, last) in [(b"a", vec![ZERO_CHUNK]), (b"b", vec![ZERO_CHUNK; 2])] {
            let (last, last_claim) = list_part(&last);
            let list = ChunkList::Parts(vec![first, last]);
            let (id, claim) = chunk_list(&list);
            claims.extend([last_claim, claim]);
            entries.push((name, Body::Chunked(id, list.total_bytes())));
        }
        // A sound content is not reported.
        let (id, sound) = chunked(&[&mib(2), &mib(3)]);
        claims.extend(sound);
        entries.push((b"c", Body::Chunked(id, 2 << 20)));
        let (root, claim) = tree(leaf(&entries));
        claims.push(claim);
        let crafted = Crafted::of(&claims);
        crafted.commit(root);
        let all = verify::VerifyOptions { data: Data::All };
        let found = verify::run(&crafted.repo(), &all, &Silent).unwrap();
        let paths: Vec<&[u8]> = found.touched.paths.iter().map(|path| &*path.path).collect();
        assert_eq!(paths, [b"a", b"b"], "{told}");
        assert_eq!(found.problems.len(), problems, "{told}: {:?}", found.problems);
    }
}

#[test]
fn a_content_around_the_limits_has_the_same_id_in_every_way() {
    let noise = Corpus::Random.make_seeded(5 * MIB, 3);
    for length in [0, 1, MIB - 1, MIB, MIB + 1, 4 * MIB, 4 * MIB + 1] {
        for zeros in [false, true] {
            let content = if zeros { vec![0; length] } else { noise[..length].to_vec() };
            let scratch = Scratch::new();
            scratch.write("file", &content);
            let made = scratch.commit().id.unwrap();
            let stored = file_at(&scratch.repo(), made, "file");
            assert_eq!(stored.id, content_id(&content), "{length} {zeros}");
            // Zeros up to the length of a chunk are one blob, and so is any content of 1 MiB.
            let is_blob = length <= if zeros { 4 * MIB } else { MIB };
            assert_eq!(!stored.id.is_chunked(), is_blob, "{length} {zeros}");
            if is_blob {
                assert_eq!(stored.id, BlobId::of(&content).into());
            }
            scratch.assert_restores(made);
        }
    }
}
