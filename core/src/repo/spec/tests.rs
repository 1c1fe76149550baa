//! Tests of revisions, paths and history on a real store.

use super::*;
use crate::{
    base::{
        id::{BlobId, ChunkListId, TreeId},
        kind::ErrorKind,
        name::EntryName,
        observe::Silent,
    },
    disk::Disk,
    format::{
        tree::{Entry, EntryKind, Metadata, Totals, split::FolderEncoder},
        wire::FormatError,
    },
    ops::{cat, list, log},
    repo::{
        config::Config,
        path::{ResolvedPath, resolve_path},
        refs::{Head, RefLogMessage},
    },
    store::ObjectWriter,
};

struct Fixture {
    _dir: tempfile::TempDir,
    repo: Repo,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join(".snap");
        Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
        let repo = Repo::open(&store, Disk::default(), &Silent).unwrap();
        Self { _dir: dir, repo }
    }

    fn commit(&self, tree: TreeId, parents: &[CommitId], secs: i64) -> CommitId {
        let commit = Commit {
            tree,
            parents: parents.to_vec(),
            time: Time { secs, nanos: 0 },
            author: "ann".into(),
            host: "box".into(),
            message: format!("at {secs}\nmore"),
            labels: Default::default(),
            root: None,
            totals: Totals::default(),
            selection: Default::default(),
        };
        let bytes = commit.encode();
        let id = CommitId::of(&bytes);
        let writer = ObjectWriter::new(self.repo.store(), 3, 1).unwrap();
        writer.add_commit(id, &bytes).unwrap();
        writer.finish().unwrap();
        self.repo.store().refresh().unwrap();
        id
    }

    fn point(&self, name: &RefName, id: CommitId) {
        let change = RefLogMessage { time: Time::default(), who: "ann", reason: "test" };
        let old = self.repo.refs().read(name).unwrap();
        self.repo.refs().update(name, old, Some(id), &change).unwrap();
    }

    fn folder(&self, entries: Vec<Entry>) -> TreeId {
        let writer = ObjectWriter::new(self.repo.store(), 3, 1).unwrap();
        let mut nodes = Vec::new();
        let mut put = |id, bytes| {
            nodes.push((id, bytes));
            Ok::<_, FormatError>(())
        };
        let mut encoder = FolderEncoder::new();
        for entry in entries {
            encoder.push(entry, &Totals::default(), &mut put).unwrap();
        }
        let folder = encoder.finish(&mut put).unwrap();
        for (id, bytes) in nodes {
            writer.add_tree(id, &bytes).unwrap();
        }
        writer.add_blob(0, BlobId::of(b"x"), b"x").unwrap();
        writer.finish().unwrap();
        self.repo.store().refresh().unwrap();
        folder.id
    }

    fn find(&self, rev: &str) -> Result<CommitId, SpecError> {
        let date = |text: &str| Some(Time { secs: text.replace(':', "").parse().ok()?, nanos: 0 });
        Revisions::new(&self.repo, &date).commit(rev)
    }

    fn split(&self, spec: &str) -> (String, Option<String>) {
        let date = |text: &str| Some(Time { secs: text.replace(':', "").parse().ok()?, nanos: 0 });
        let (rev, path) = split_path(spec.as_bytes(), &date);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(rev), path.map(text))
    }
}

fn entry(name: &str, kind: EntryKind) -> Entry {
    let name = EntryName::new(name.as_bytes()).unwrap();
    Entry { name, kind, metadata: Metadata { mode: 0o644, ..Metadata::default() } }
}

fn file(name: &str) -> Entry {
    entry(name, EntryKind::File { size: 1, id: BlobId::of(b"x").into() })
}

fn main() -> RefName {
    RefName::branch("main").unwrap()
}

/// Builds the history `1 ← 2 ← 4 (main)` with `1 ← 3 ← 4`, and the tag `v1` at 2.
fn diamond() -> (Fixture, [CommitId; 4]) {
    let fixture = Fixture::new();
    let tree = fixture.folder(Vec::new());
    let one = fixture.commit(tree, &[], 10);
    let two = fixture.commit(tree, &[one], 20);
    let three = fixture.commit(tree, &[one], 30);
    let four = fixture.commit(tree, &[two, three], 40);
    fixture.point(&main(), four);
    fixture.point(&RefName::tag("v1").unwrap(), two);
    (fixture, [one, two, three, four])
}

#[test]
fn each_form_of_revision_resolves_to_its_commit() {
    let (fixture, [one, two, three, four]) = diamond();
    let whole = three.to_string();
    for (rev, id) in [
        ("HEAD", four),
        ("latest", four),
        ("main", four),
        ("heads/main", four),
        ("refs/heads/main", four),
        ("v1", two),
        ("tags/v1", two),
        (&whole, three),
        (&whole[..8], three),
        (&whole[..8].to_uppercase(), three),
        ("HEAD~", two),
        ("HEAD^", two),
        ("HEAD^2", three),
        ("HEAD^0", four),
        ("HEAD~0", four),
        ("main~2", one),
        ("main^2~1", one),
        ("main^2^", one),
        ("latest@40", four),
        ("latest@35", three),
        ("latest@29", two),
        ("main@3:5", three),
        ("v1@1000", two),
        ("latest@35~1", one),
        ("main^@99", two),
    ] {
        assert_eq!(fixture.find(rev).unwrap(), id, "{rev}");
    }
}

#[test]
fn an_unknown_revision_is_an_error() {
    let (fixture, [.., four]) = diamond();
    for (rev, message) in [
        ("mian", "`mian` is not a commit, branch or tag"),
        ("", "`` is not a commit, branch or tag"),
        ("tags/main", "`tags/main` is not a commit, branch or tag"),
        ("abc~1", "`abc` is not a commit, branch or tag"),
        ("main~9999999999999999999999", "is not a commit, branch or tag"),
        ("v1~2", "has no parent 1"),
        ("main^3", &format!("commit {four:.12} has no parent 3")),
        ("main@5", "`main@5` has no commit on or before that date"),
        ("main@soon", "`soon` is not a date"),
        (&"0".repeat(64), "is not a commit, branch or tag"),
    ] {
        let error = fixture.find(rev).unwrap_err().to_string();
        assert!(error.contains(message), "{rev}: {error}");
    }
    match fixture.find("mian").unwrap_err() {
        SpecError::Unknown { close, .. } => assert_eq!(close, ["main"]),
        other => panic!("{other}"),
    }
    let empty = Fixture::new();
    assert!(matches!(empty.find("latest~3"), Err(SpecError::Unborn { .. })));
}

#[test]
fn an_ambiguous_prefix_lists_its_candidates() {
    let fixture = Fixture::new();
    let tree = fixture.folder(Vec::new());
    let writer = ObjectWriter::new(fixture.repo.store(), 3, 1).unwrap();
    let mut seen = std::collections::HashMap::new();
    let mut twins = None;
    for secs in 0..3000 {
        let commit = Commit {
            tree,
            parents: Vec::new(),
            time: Time { secs, nanos: 0 },
            author: String::new(),
            host: String::new(),
            message: "m\nmore".into(),
            labels: Default::default(),
            root: None,
            totals: Totals::default(),
            selection: Default::default(),
        };
        let bytes = commit.encode();
        let id = CommitId::of(&bytes);
        writer.add_commit(id, &bytes).unwrap();
        if let Some(other) = seen.insert(id.to_string()[..4].to_owned(), id) {
            twins = Some((other, id));
        }
    }
    writer.finish().unwrap();
    fixture.repo.store().refresh().unwrap();
    let (old, new) = twins.unwrap();
    match fixture.find(&new.to_string()[..4]).unwrap_err() {
        SpecError::Ambiguous { candidates, .. } => {
            assert_eq!(candidates[0].id, new);
            assert!(candidates.iter().any(|candidate| candidate.id == old));
            assert_eq!(candidates[0].message, "m");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn dates_and_paths_in_revisions_can_contain_colons() {
    let fixture = Fixture::new();
    let split = |spec| fixture.split(spec);
    let path = |rev: &str, path: &str| (rev.to_owned(), Some(path.to_owned()));
    assert_eq!(split("main"), ("main".into(), None));
    assert_eq!(split("main:a:b"), path("main", "a:b"));
    assert_eq!(split("main:"), path("main", ""));
    assert_eq!(split("main:a@b"), path("main", "a@b"));
    assert_eq!(split("main@10:30"), ("main@10:30".into(), None));
    assert_eq!(split("main@10:30~2"), ("main@10:30~2".into(), None));
    assert_eq!(split("main@10:30:a"), path("main@10:30", "a"));
    assert_eq!(split("main@10:a:b"), path("main@10", "a:b"));
    assert_eq!(split("a@b:c"), path("a@b", "c"));
}

#[test]
fn history_lists_each_commit_once_newest_first() {
    let (fixture, [one, two, three, four]) = diamond();
    let list = |options: &log::LogOptions| -> Vec<CommitId> {
        let log = log::run(fixture.repo.store(), &[four, two], options).unwrap();
        log.map(|step| step.unwrap().id).collect()
    };
    assert_eq!(list(&log::LogOptions::default()), [four, three, two, one]);
    let first = log::LogOptions { parents: Parents::First, ..Default::default() };
    assert_eq!(list(&first), [four, two, one]);
    let some = log::LogOptions {
        limit: std::num::NonZeroU64::new(1),
        filter: log::CommitFilter {
            since: Some(Time { secs: 20, nanos: 0 }),
            until: Some(Time { secs: 35, nanos: 0 }),
            ..Default::default()
        },
        ..Default::default()
    };
    assert_eq!(list(&some), [three]);
}

#[test]
fn paths_are_found_in_split_folders() {
    let fixture = Fixture::new();
    let names: Vec<String> = (0..40_000).map(|i| format!("{i:05}")).collect();
    let large = fixture.folder(names.iter().map(|name| file(name)).collect());
    let link = entry("link", EntryKind::Symlink { target: (*b"large").into() });
    let root =
        fixture.folder(vec![file("a"), entry("large", EntryKind::Folder { id: large }), link]);
    let store = fixture.repo.store();
    let find = |path: &str| resolve_path(store, root, path.as_bytes());

    assert_eq!(find("").unwrap(), ResolvedPath::Root(root));
    assert_eq!(find("/./").unwrap(), ResolvedPath::Root(root));
    assert_eq!(find("large/").unwrap().tree(), Some(large));
    for name in ["00000", "01023", "20000", "39999"] {
        assert_eq!(find(&format!("large/{name}")).unwrap(), ResolvedPath::Entry(file(name)));
    }
    for (path, message) in [
        ("b", "`b` does not exist in the snapshot"),
        ("large/40000", "`large/40000` does not exist"),
        ("large/!", "`large/!` does not exist"),
        ("a/b", "`a` is a file, not a folder"),
        ("link/00000", "`link` is a symlink, not a folder"),
        ("large/../a", "contains `..`"),
    ] {
        let error = find(path).unwrap_err().to_string();
        assert!(error.contains(message), "{path}: {error}");
    }

    let mut paths = Vec::new();
    let mut each = |path: &[u8], _: &Entry| {
        paths.push(String::from_utf8(path.to_vec()).unwrap());
        Ok(())
    };
    list::run(store, root, b"", list::ListDepth::All, &Silent, &mut each).unwrap();
    assert_eq!(paths.len(), 40_003);
    assert_eq!((&*paths[0], &*paths[1], &*paths[2]), ("a", "large", "large/00000"));
    assert_eq!((&*paths[40_001], &*paths[40_002]), ("large/39999", "link"));
    let mut entries = 0;
    list::run(store, large, b"large", list::ListDepth::Folder, &Silent, &mut |path, _| {
        assert!(path.starts_with(b"large/"));
        entries += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(entries, 40_000);
}

#[test]
fn a_tree_nested_too_deep_is_refused() {
    let fixture = Fixture::new();
    let mut tree = fixture.folder(Vec::new());
    let writer = ObjectWriter::new(fixture.repo.store(), 3, 1).unwrap();
    for _ in 0..crate::base::limits::DEPTH + 10 {
        let mut put = |id, bytes: Vec<u8>| writer.add_tree(id, &bytes);
        let mut encoder = FolderEncoder::new();
        encoder
            .push(entry("d", EntryKind::Folder { id: tree }), &Totals::default(), &mut put)
            .unwrap();
        tree = encoder.finish(&mut put).unwrap().id;
    }
    writer.finish().unwrap();
    fixture.repo.store().refresh().unwrap();
    let mut each = |_: &[u8], _: &Entry| Ok(());
    let error =
        list::run(fixture.repo.store(), tree, b"", list::ListDepth::All, &Silent, &mut each);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Damaged);
}

#[test]
fn printed_content_is_verified_against_its_id() {
    use crate::format::chunk_list::{ListBuilder, ListObject};
    let fixture = Fixture::new();
    let store = fixture.repo.store();
    let writer = ObjectWriter::new(store, 3, 1).unwrap();
    let halves: [Vec<u8>; 2] = [1, 2].map(|byte| vec![byte; 1 << 20]);
    let content = halves.concat();
    let mut list = ListBuilder::default();
    for chunk in writer.add_chunks(&content, &[1 << 20, 2 << 20]).unwrap() {
        list.push(chunk).unwrap();
    }
    let (whole, objects) = list.finish().unwrap();
    objects.iter().for_each(|object| writer.add_list_object(object).unwrap());
    let [ListObject { bytes, .. }] = &objects[..] else { panic!("{objects:?}") };
    let lie = ChunkListId::of(b"another list");
    writer.add_metadata(ObjectKind::ChunkList, lie.object(), bytes).unwrap();
    writer.finish().unwrap();
    store.refresh().unwrap();

    let mut out = Vec::new();
    assert_eq!(
        cat::run(store, &whole, None, &mut out, &Silent).unwrap().bytes,
        content.len() as u64
    );
    assert!(out == content);
    let error = cat::run(store, &ContentId::Chunked(lie), None, &mut out, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    let missing = cat::run(store, &BlobId::of(b"?").into(), None, &mut out, &Silent).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);

    let resolved = Revisions::new(&fixture.repo, &|_| None).content(&whole.to_string()[..10]);
    assert_eq!(resolved.unwrap(), Some(whole));
}

#[test]
fn a_detached_head_is_a_commit() {
    let (fixture, [one, ..]) = diamond();
    let change = RefLogMessage { time: Time::default(), who: "ann", reason: "test" };
    let (old, new) = (Head::Branch(main()), Head::Detached(one));
    fixture.repo.refs().set_head(&old, &new, &change).unwrap();
    assert_eq!(fixture.find("latest").unwrap(), one);
}

#[test]
fn suffixes_are_removed_from_the_right() {
    let mut suffixes = Vec::new();
    let mut text = "main@2026-11-01~2^3^";
    while let Some(rest) = peel(text, &mut suffixes) {
        text = rest;
    }
    assert_eq!(text, "main");
    assert!(matches!(
        suffixes.as_slice(),
        [Suffix::Parent(1), Suffix::Parent(3), Suffix::Back(2), Suffix::Date("2026-11-01")]
    ));
    assert!(peel("main~99999999999999999999999", &mut Vec::new()).is_none());
}

#[test]
fn branches_precede_remote_branches_and_tags() {
    let full = |text| names(text).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(full("v1"), ["refs/heads/v1", "refs/remotes/v1", "refs/tags/v1"]);
    assert_eq!(full("tags/v1"), ["refs/tags/v1"]);
    assert_eq!(full("refs/heads/a/b"), ["refs/heads/a/b"]);
    assert!(full("HEAD").is_empty());
}

#[test]
fn base_texts_are_listed_in_lookup_order() {
    let date = |text: &str| (text == "2026-11-01 10:00").then_some(Time::default());
    let bases = |spec| base_texts(spec, &date);
    assert_eq!(bases(b"main~2^:some/path"), ["main~2^", "main~2", "main"]);
    assert_eq!(bases(b"a@2026-11-01 10:00:path"), ["a", "a@2026-11-01 10:00"]);
    assert_eq!(bases(b"a@other"), ["a@other", "a"]);
    assert_eq!(bases(b"v1.0"), ["v1.0"]);
    assert!(bases(b"\xff:x").is_empty());
}

#[test]
fn a_remote_branch_precedes_a_tag_with_a_report() {
    let (fixture, [one, two, three, four]) = diamond();
    let tracking = RefName::remote("origin", "main").unwrap();
    fixture.point(&tracking, two);
    fixture.point(&RefName::tag("origin/main").unwrap(), one);
    fixture.point(&RefName::tag("origin/v1").unwrap(), three);
    let find = |rev: &str| {
        let reported = std::cell::RefCell::new(Vec::new());
        let report = |used: &RefName, other: &OtherMeaning| {
            let other = match other {
                OtherMeaning::Ref(name) => name.to_string(),
                OtherMeaning::Commit(id) => id.to_string(),
            };
            reported.borrow_mut().push(format!("{used} {other}"));
        };
        let revisions = Revisions::new(&fixture.repo, &|_| None).on_ambiguous(&report);
        let id = revisions.commit(rev).unwrap();
        (id, reported.into_inner())
    };
    let both = "refs/remotes/origin/main refs/tags/origin/main".to_owned();
    assert_eq!(find("origin/main"), (two, vec![both.clone()]));
    assert_eq!(find("origin/main~"), (one, vec![both]));
    for (rev, id) in
        [("tags/origin/main", one), ("remotes/origin/main", two), ("origin/v1", three), ("v1", two)]
    {
        assert_eq!(find(rev), (id, Vec::new()), "{rev}");
    }
    // A branch of this store comes first.
    fixture.point(&RefName::branch("origin/main").unwrap(), four);
    let both = "refs/heads/origin/main refs/remotes/origin/main".to_owned();
    assert_eq!(find("origin/main"), (four, vec![both]));
}

#[test]
fn a_tag_hides_no_date_and_hides_an_id_with_a_report() {
    let (fixture, [one, _, _, four]) = diamond();
    let prefix = &four.to_string()[..8];
    fixture.point(&RefName::tag(prefix).unwrap(), one);
    fixture.point(&RefName::tag("main@now").unwrap(), one);
    fixture.point(&RefName::tag("gone@now").unwrap(), one);
    let reported = std::cell::RefCell::new(Vec::new());
    let report = |used: &RefName, other: &OtherMeaning| {
        reported.borrow_mut().push((used.clone(), other.clone()));
    };
    let date = |text: &str| (text == "now").then_some(Time { secs: i64::MAX, nanos: 0 });
    let revisions = Revisions::new(&fixture.repo, &date).on_ambiguous(&report);
    assert_eq!(revisions.commit("main@now").unwrap(), four);
    assert_eq!(revisions.commit("tags/main@now").unwrap(), one);
    assert_eq!(revisions.commit("gone@now").unwrap(), one, "there is no `gone`");
    assert_eq!(revisions.commit("main@now@now").unwrap(), four);
    assert_eq!(revisions.commit("gone@now@now").unwrap(), one);
    assert_eq!(reported.borrow().len(), 0);
    assert_eq!(revisions.commit(prefix).unwrap(), one);
    let tag = RefName::tag(prefix).unwrap();
    assert_eq!(reported.into_inner(), [(tag, OtherMeaning::Commit(four))]);
}

#[test]
fn each_date_of_a_revision_is_parsed_at_most_twice() {
    let (fixture, [.., four]) = diamond();
    let parsed = std::cell::Cell::new(0);
    let date = |text: &str| {
        parsed.set(parsed.get() + 1);
        (text == "now").then_some(Time { secs: i64::MAX, nanos: 0 })
    };
    let revisions = Revisions::new(&fixture.repo, &date);
    let dates = "@now".repeat(1000);
    assert_eq!(revisions.commit(&format!("main{dates}")).unwrap(), four);
    assert!(parsed.get() <= 2000, "parsed {} times", parsed.get());
    parsed.set(0);
    assert!(revisions.commit(&format!("nothing{dates}")).is_err());
    assert!(parsed.get() <= 2000, "parsed {} times", parsed.get());
}
