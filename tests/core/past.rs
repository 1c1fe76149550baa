//! Walks through history: the results of `find`, `path_log` and `stats` are compared
//! with a plain walk over every commit.

use std::collections::{BTreeMap, BTreeSet};

use snap_core::{
    base::{
        id::{CommitId, TreeId},
        kind::ErrorKind,
        observe::Silent,
        time::Time,
    },
    format::{
        commit::Commit,
        tree::{Entry, EntryKind, Totals},
    },
    ops::{
        find::{self, Case, FindOptions, FoundPath, KindFilter},
        list::{self, ListDepth},
        log,
        path_log::{self, FollowRenames},
        stats,
    },
    repo::{PastError, Repo, path::resolve_path},
    store::ObjectWriter,
};
use snap_testkit::rng::Rng;

use crate::{
    crafted::{Body, Crafted, blob, leaf, tree},
    scratch::{START, Scratch},
};

/// Adds a commit of an existing tree.
fn commit(repo: &Repo, tree: TreeId, parents: &[CommitId], at: i64) -> CommitId {
    let mut totals = Totals::default();
    let mut count = |_: &[u8], entry: &Entry| {
        totals.count(&entry.kind);
        Ok(())
    };
    list::run(repo.store(), tree, b"", ListDepth::All, &Silent, &mut count).unwrap();
    let commit = Commit {
        tree,
        parents: parents.to_vec(),
        time: Time { secs: START.secs + at, nanos: 0 },
        author: "Ann".into(),
        host: "box".into(),
        message: format!("number {at}"),
        labels: BTreeMap::new(),
        root: None,
        totals,
        selection: Default::default(),
    };
    let bytes = commit.encode();
    let id = CommitId::of(&bytes);
    let writer = ObjectWriter::new(repo.store(), 3, 1).unwrap();
    writer.add_commit(id, &bytes).unwrap();
    writer.finish().unwrap();
    id
}

fn tree_of(repo: &Repo, id: CommitId) -> TreeId {
    repo.store().commit(&id).unwrap().tree
}

/// Makes trees that differ in some places, from a few names and contents.
fn some_trees(scratch: &Scratch, rng: &mut Rng, count: usize) -> Vec<TreeId> {
    let names = ["a", "b.rs", "c.rs", "d/x.rs", "d/y", "d/e/x.rs", "f/x.rs", "f/g/h/b.rs", "f/a"];
    let repo = scratch.repo();
    (0..count)
        .map(|_| {
            for _ in 0..rng.below(4) {
                let path = scratch.source().join(names[rng.below(names.len() as u64) as usize]);
                if rng.below(3) > 0 {
                    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
                    fs_err::write(&path, format!("{}", rng.below(3))).unwrap();
                } else if path.exists() {
                    fs_err::remove_file(&path).unwrap();
                }
            }
            tree_of(&repo, scratch.commit().id.unwrap())
        })
        .collect()
}

/// Returns all commits that are reachable from `starts`.
fn reached(repo: &Repo, starts: &[CommitId]) -> BTreeMap<CommitId, Commit> {
    let mut found = BTreeMap::new();
    let mut waiting = starts.to_vec();
    while let Some(id) = waiting.pop() {
        let commit = repo.store().commit(&id).unwrap();
        waiting.extend(&commit.parents);
        found.insert(id, commit);
    }
    found
}

type Lives = BTreeMap<(String, String), BTreeSet<CommitId>>;

fn shown(kind: &EntryKind) -> String {
    match kind {
        EntryKind::Folder { .. } => "folder".to_owned(),
        kind => format!("{kind:?}"),
    }
}

/// Returns, for each version of each path that `wanted` accepts, the commits that have
/// it.
fn lives(repo: &Repo, starts: &[CommitId], wanted: &dyn Fn(&str, &EntryKind) -> bool) -> Lives {
    let mut lives = Lives::new();
    for (id, commit) in reached(repo, starts) {
        let mut each = |path: &[u8], entry: &Entry| {
            let path = String::from_utf8(path.to_vec()).unwrap();
            if wanted(&path, &entry.kind) {
                lives.entry((path, shown(&entry.kind))).or_default().insert(id);
            }
            Ok(())
        };
        list::run(repo.store(), commit.tree, b"", ListDepth::All, &Silent, &mut each).unwrap();
    }
    lives
}

fn search(
    repo: &Repo,
    starts: &[CommitId],
    options: &FindOptions<'_>,
) -> (Vec<FoundPath>, find::FindOutcome) {
    let mut all = Vec::new();
    let mut each = |found: &FoundPath| {
        all.push(found.clone());
        Ok::<_, PastError>(())
    };
    let outcome = find::run(repo.store(), starts, options, &Silent, &mut each).unwrap();
    (all, outcome)
}

/// Converts the results of a search to the form of [`lives`], by walking each range.
fn lives_found(repo: &Repo, found: &[FoundPath]) -> Lives {
    let mut lives = Lives::new();
    for FoundPath { path, versions } in found {
        let path = String::from_utf8(path.clone()).unwrap();
        for version in versions {
            let mut commits = BTreeSet::new();
            for range in &version.ranges {
                let mut id = range.last.id;
                for number in 1..=range.commits {
                    assert!(commits.insert(id), "twice in {path}");
                    let commit = repo.store().commit(&id).unwrap();
                    if number == range.commits {
                        assert_eq!((id, commit.time), (range.first.id, range.first.time));
                    } else {
                        id = commit.parents[0];
                    }
                }
            }
            assert_eq!(version.commits(), commits.len() as u64);
            let before = lives.insert((path.clone(), shown(&version.kind)), commits);
            assert!(before.is_none(), "a version of {path} is listed twice");
        }
    }
    lives
}

#[test]
fn a_search_finds_the_same_as_a_scan_of_every_commit() {
    for seed in 0..30 {
        let (scratch, mut rng) = (Scratch::new(), Rng::new(seed));
        let trees = some_trees(&scratch, &mut rng, 8);
        let repo = scratch.repo();
        // Any graph: roots, lines, forks and merges.
        let mut commits: Vec<CommitId> = Vec::new();
        for at in 0..20 {
            let mut parents = BTreeSet::new();
            for _ in 0..[0, 1, 1, 1, 1, 2, 3][rng.below(7) as usize].min(commits.len()) {
                let back = 1 + rng.below(commits.len().min(5) as u64) as usize;
                parents.insert(commits[commits.len() - back]);
            }
            let parents: Vec<CommitId> = parents.into_iter().collect();
            let tree = trees[rng.below(trees.len() as u64) as usize];
            commits.push(commit(&repo, tree, &parents, at));
        }
        let starts = &commits[commits.len() - 3..];
        let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
        let file = |kind: &EntryKind| matches!(kind, EntryKind::File { .. });
        let folder = |kind: &EntryKind| matches!(kind, EntryKind::Folder { .. });
        #[expect(clippy::type_complexity, reason = "a table of cases")]
        let cases: [(&str, Option<KindFilter>, &dyn Fn(&str, &EntryKind) -> bool); 9] = [
            ("*.rs", None, &|path, _| path.ends_with(".rs")),
            ("x.rs", None, &|path, _| name(path) == "x.rs"),
            ("**", None, &|_, _| true),
            ("d/**", None, &|path, _| path.starts_with("d/")),
            ("**/[ab]*", Some(KindFilter::File), &|path, kind| {
                file(kind) && name(path).starts_with(['a', 'b'])
            }),
            ("*/", None, &|path, kind| folder(kind) && !path.is_empty()),
            ("f/**/b.rs", None, &|path, _| path.starts_with("f/") && name(path) == "b.rs"),
            ("?/?", None, &|path, _| path.len() == 3),
            ("nothing", None, &|_, _| false),
        ];
        for (pattern, wanted, takes) in cases {
            let options = FindOptions { wanted, ..FindOptions::new(pattern.as_bytes()) };
            let (found, outcome) = search(&repo, starts, &options);
            // The results do not depend on the memory limit.
            for limit_bytes in [0, 2_000, 6_000, 20_000] {
                let (again, counted) =
                    search(&repo, starts, &FindOptions { limit_bytes, ..options });
                assert_eq!(again, found, "{pattern}, {limit_bytes} bytes, seed {seed}");
                assert_eq!((counted.commits, counted.paths), (outcome.commits, outcome.paths));
            }
            let paths: Vec<&Vec<u8>> = found.iter().map(|found| &found.path).collect();
            let parts =
                |path: &Vec<u8>| path.split(|b| *b == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
            assert!(paths.is_sorted_by_key(|path| parts(path)), "{pattern}");
            let expected = lives(&repo, starts, takes);
            assert_eq!(lives_found(&repo, &found), expected, "{pattern}, seed {seed}");
            assert_eq!(outcome.commits as usize, reached(&repo, starts).len());
        }
    }
}

/// Makes a line of commits. `change` changes the source before each.
fn line(scratch: &Scratch, commits: usize, change: impl Fn(usize)) -> CommitId {
    let mut last = None;
    for number in 0..commits {
        change(number);
        last = scratch.commit().id;
    }
    last.unwrap()
}

#[test]
fn a_tree_shared_by_many_commits_is_read_once() {
    let scratch = Scratch::new();
    for folder in 0..20 {
        (0..5).for_each(|file| scratch.write(&format!("d{folder}/f{file}"), "x"));
    }
    let tip = line(&scratch, 30, |number| scratch.write("d0/changing", format!("{number}")));
    let repo = scratch.repo();
    for pattern in ["f*", "nothing", "d3/f1", "**"] {
        let (_, outcome) = search(&repo, &[tip], &FindOptions::new(pattern.as_bytes()));
        // Two trees for each commit, the root and one folder, and the other folders
        // once.
        assert!(outcome.trees <= 30 * 2 + 20, "{pattern}: {} trees", outcome.trees);
    }
    let (_, outcome) = search(&repo, &[tip], &FindOptions::new(b"d3/f1"));
    assert!(outcome.trees <= 31, "{} trees", outcome.trees);
}

#[test]
fn only_the_changed_leaves_of_a_large_folder_are_read() {
    let scratch = Scratch::new();
    let count = 9_000;
    (0..count).for_each(|file| scratch.write(&format!("large/f{file:05}"), ""));
    let tip = line(&scratch, 6, |number| match number {
        0 => {}
        3 => fs_err::remove_file(scratch.source().join("large/f04000")).unwrap(),
        4 => (0..300).for_each(|n| scratch.write(&format!("large/f02000-{n}"), "")),
        number => scratch.write(&format!("large/f{:05}", number * 7), "new"),
    });
    let repo = scratch.repo();
    let (found, outcome) = search(&repo, &[tip], &FindOptions::new(b"f0*"));
    let takes = |path: &str, _: &EntryKind| path.contains("/f0");
    assert_eq!(lives_found(&repo, &found), lives(&repo, &[tip], &takes));
    let (_, first) = search(
        &repo,
        &[reached(&repo, &[tip]).into_iter().find(|(_, c)| c.parents.is_empty()).unwrap().0],
        &FindOptions::new(b"f0*"),
    );
    // For each further commit: a root, a node and one leaf, or two leaves where a split
    // point moved.
    assert!(first.trees > 4, "the folder is split: {}", first.trees);
    assert!(outcome.trees <= first.trees + 5 * 4, "{} after {}", outcome.trees, first.trees);

    let all = stats::StatsOptions { commits: 9, files: 3 };
    let outcome = stats::run(repo.store(), &[tip], &all, &Silent).unwrap();
    let changed: Vec<u64> =
        outcome.commits.iter().map(|commit| commit.added.changed_files).collect();
    assert_eq!(changed, [1, 300, 0, 1, 1, count]);
}

#[test]
fn names_that_are_not_utf_8_are_found() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs_err::write(scratch.source().join(name), "x").unwrap();
    let tip = scratch.commit().id.unwrap();
    let repo = scratch.repo();
    for pattern in [&b"caf\xe9"[..], b"caf?", b"c*", b"*\xe9"] {
        let (found, _) = search(&repo, &[tip], &FindOptions::new(pattern));
        assert_eq!(found[0].path, b"caf\xe9", "{pattern:?}");
    }
    let options = FindOptions { case: Case::Ignored, ..FindOptions::new(b"CAF\xe9") };
    assert_eq!(search(&repo, &[tip], &options).0.len(), 1);
    let steps = steps(&repo, &[tip], &[b"caf\xe9"], FollowRenames::Ignore);
    assert_eq!(steps.unwrap().len(), 1);
}

fn steps(
    repo: &Repo,
    starts: &[CommitId],
    paths: &[&[u8]],
    renames: FollowRenames,
) -> Result<Vec<path_log::PathChange>, PastError> {
    let options = log::LogOptions::default();
    path_log::run(repo.store(), starts, paths, &options, renames, &Silent)?.collect()
}

#[test]
fn the_log_of_a_path_lists_the_commits_that_changed_it() {
    for seed in 0..10 {
        let (scratch, mut rng) = (Scratch::new(), Rng::new(seed));
        let trees = some_trees(&scratch, &mut rng, 6);
        let repo = scratch.repo();
        let mut tip = None;
        for at in 0..20 {
            let tree = trees[rng.below(trees.len() as u64) as usize];
            tip = Some(commit(&repo, tree, tip.as_slice(), at));
        }
        let commits = reached(&repo, tip.as_slice());
        for path in ["a", "b.rs", "d", "d/x.rs", "f/g/h", "f/g/h/b.rs"] {
            let there = |id: &CommitId| {
                resolve_path(repo.store(), commits[id].tree, path.as_bytes()).ok().map(|found| {
                    match found {
                        snap_core::repo::path::ResolvedPath::Entry(entry) => {
                            format!("{:?}", entry.kind)
                        }
                        snap_core::repo::path::ResolvedPath::Root(_) => String::new(),
                    }
                })
            };
            let changed = |id: &&CommitId| match commits[*id].parents.first() {
                Some(parent) => there(id) != there(parent),
                None => there(id).is_some(),
            };
            let mut expected: Vec<&CommitId> = commits.keys().filter(changed).collect();
            expected.sort_by_key(|id| std::cmp::Reverse(commits[id].time));
            match steps(&repo, tip.as_slice(), &[path.as_bytes()], FollowRenames::Ignore) {
                Ok(steps) => {
                    let found: Vec<&CommitId> = steps.iter().map(|step| &step.id).collect();
                    assert_eq!(found, expected, "{path}, seed {seed}");
                }
                Err(error) => {
                    assert!(matches!(error, PastError::NoSuchPath { .. }), "{error}");
                    assert!(commits.keys().all(|id| there(id).is_none()), "{path}, seed {seed}");
                }
            }
        }
    }
}

#[test]
fn a_merge_that_keeps_the_version_of_a_parent_is_not_listed() {
    let scratch = Scratch::new();
    let tree = |content: &str, other: &str| {
        scratch.write("file", content);
        scratch.write("other", other);
        let id = scratch.commit().id.unwrap();
        tree_of(&scratch.repo(), id)
    };
    let [base, ours, theirs, both] =
        [("1", "1"), ("1", "2"), ("2", "1"), ("3", "3")].map(|(a, b)| tree(a, b));
    let repo = scratch.repo();
    let base = commit(&repo, base, &[], 1);
    let side = commit(&repo, ours, &[base], 2);
    let main = commit(&repo, theirs, &[base], 3);
    let ids =
        |steps: Vec<path_log::PathChange>| steps.iter().map(|step| step.id).collect::<Vec<_>>();
    let log = |tip| ids(steps(&repo, &[tip], &[b"file"], FollowRenames::Ignore).unwrap());

    // The merge has the version of one parent: only that parent is followed.
    let merge = commit(&repo, theirs, &[side, main], 4);
    assert_eq!(log(merge), [main, base]);
    // The merge has the version of no parent: it is listed, and all parents are
    // followed.
    let merge = commit(&repo, both, &[side, main], 5);
    assert_eq!(log(merge), [merge, main, base]);

    let first = log::LogOptions {
        parents: snap_core::repo::history::Parents::First,
        ..log::LogOptions::default()
    };
    let merge = commit(&repo, theirs, &[side, main], 6);
    let renames = FollowRenames::Ignore;
    let log = path_log::run(repo.store(), &[merge], &[b"file"], &first, renames, &Silent).unwrap();
    assert_eq!(ids(log.map(Result::unwrap).collect()), [merge, base]);
}

#[test]
fn a_renamed_file_and_a_renamed_folder_are_followed() {
    let scratch = Scratch::new();
    scratch.write("old/deep/file", "content");
    scratch.write("old/other", "more");
    let first = scratch.commit().id.unwrap();
    fs_err::rename(scratch.source().join("old"), scratch.source().join("new")).unwrap();
    let second = scratch.commit().id.unwrap();
    let moved = scratch.source().join("renamed");
    fs_err::rename(scratch.source().join("new/deep/file"), moved).unwrap();
    scratch.write("new/deep/file2", "");
    let third = scratch.commit().id.unwrap();
    let repo = scratch.repo();
    let log = |path: &str, renames| {
        let steps = steps(&repo, &[third], &[path.as_bytes()], renames).unwrap();
        let text = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
        let from = |step: &path_log::PathChange| step.moved.iter().map(|m| text(&m.from)).collect();
        steps.iter().map(|step| (step.id, from(step))).collect::<Vec<(CommitId, Vec<String>)>>()
    };
    let none = Vec::new;
    assert_eq!(log("renamed", FollowRenames::Ignore), [(third, none())]);
    assert_eq!(
        log("renamed", FollowRenames::Follow),
        [
            (third, vec!["new/deep/file".to_owned()]),
            (second, vec!["old/deep/file".to_owned()]),
            (first, none())
        ]
    );
    assert_eq!(
        log("new/other", FollowRenames::Follow),
        [(second, vec!["old/other".to_owned()]), (first, none())]
    );
    // It is empty, so no earlier file counts as its origin.
    assert_eq!(log("new/deep/file2", FollowRenames::Follow), [(third, none())]);
}

#[test]
fn each_child_of_a_commit_may_follow_another_name() {
    let scratch = Scratch::new();
    let tree = |files: &[(&str, &str)]| {
        for name in ["old", "new", "other"] {
            let _ = fs_err::remove_file(scratch.source().join(name));
        }
        files.iter().for_each(|(name, content)| scratch.write(name, content));
        tree_of(&scratch.repo(), scratch.commit().id.unwrap())
    };
    let [first, rewritten, kept, both] = [
        &[("old", "x")][..],
        &[("new", "y")],
        &[("old", "x"), ("other", "z")],
        &[("new", "x"), ("other", "z")],
    ]
    .map(tree);
    let repo = scratch.repo();
    let first = commit(&repo, first, &[], 1);
    for (at_rewrite, at_other) in [(2, 3), (3, 2)] {
        let rewrite = commit(&repo, rewritten, &[first], at_rewrite);
        let other = commit(&repo, kept, &[first], at_other);
        let merge = commit(&repo, both, &[rewrite, other], 4);
        let steps = steps(&repo, &[merge], &[b"new"], FollowRenames::Follow).unwrap();
        let ids: Vec<CommitId> = steps.iter().map(|step| step.id).collect();
        assert_eq!(ids, [merge, rewrite, first]);
    }
}

#[test]
fn the_sizes_added_by_commits_sum_to_the_stored_size() {
    let scratch = Scratch::new();
    let mut rng = Rng::new(7);
    let mut noise = |bytes: usize| (0..bytes).map(|_| rng.below(256) as u8).collect::<Vec<u8>>();
    let large = noise(5 << 20);
    scratch.write("large", &large);
    scratch.write("text", "again and again ".repeat(1000));
    scratch.write("copy/text", "again and again ".repeat(1000));
    scratch.commit();
    scratch.write("small", noise(1000));
    scratch.write("large", [&large[..], b"tail"].concat());
    scratch.commit();
    fs_err::rename(scratch.source().join("copy"), scratch.source().join("moved")).unwrap();
    let tip = scratch.commit().id.unwrap();
    let repo = scratch.repo();

    let options = stats::StatsOptions { commits: 2, files: 2 };
    let outcome = stats::run(repo.store(), &[tip], &options, &Silent).unwrap();
    let store = &outcome.store;
    let all = &outcome.added;
    assert_eq!(all.data.stored_bytes(), store.data.stored_bytes);
    assert_eq!(all.meta.stored_bytes(), store.meta.stored_bytes);
    assert_eq!(
        (all.data.raw_bytes, all.meta.raw_bytes),
        (store.data.raw_bytes, store.meta.raw_bytes)
    );
    assert_eq!(all.data.objects, store.blobs.objects);
    let meta = store.trees.objects + store.commits.objects + store.chunk_lists.objects;
    assert_eq!((all.meta.objects, store.commits.objects), (meta, 3));

    let large = large.len() as u64;
    assert_eq!(all.changed_bytes, large + 2 * 16_000 + 1000 + large + 4 + 16_000);
    assert_eq!((outcome.commit_count, outcome.commits.len()), (3, 2));
    let [newest, second] = &outcome.commits[..] else { panic!("two commits") };
    assert_eq!(newest.id, tip);
    assert_eq!((newest.added.changed_files, newest.added.changed_bytes), (1, 16_000));
    assert_eq!(newest.added.data.objects, 0);
    // Only the last chunk of the large file is new.
    assert!(second.added.data.raw_bytes < 1000 + (8 << 20), "{:?}", second.added);
    assert!(second.added.data.raw_bytes < second.added.changed_bytes);
    let files: Vec<(u64, &[u8])> =
        outcome.files.iter().map(|file| (file.bytes, &file.path[..])).collect();
    assert_eq!(files, [(large + 4, &b"large"[..]), (large, b"large")]);
}

#[test]
fn a_missing_tree_is_named_with_its_commit() {
    let crafted = Crafted::empty();
    let missing = TreeId::of(b"missing");
    let (root, claim) = tree(leaf(&[(b"dir", Body::Folder(missing))]));
    crafted.add(&[claim]);
    let id = crafted.commit(root);
    let repo = crafted.repo();
    let mut each = |_: &FoundPath| Ok::<_, PastError>(());
    let options = stats::StatsOptions { commits: 1, files: 1 };
    let errors = [
        find::run(repo.store(), &[id], &FindOptions::new(b"x"), &Silent, &mut each).unwrap_err(),
        stats::run(repo.store(), &[id], &options, &Silent).unwrap_err(),
        steps(&repo, &[id], &[b"dir/x"], FollowRenames::Ignore).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.to_string(), format!("cannot read `dir` in commit {id:.12}"));
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    // A search for a path elsewhere does not need the missing tree.
    find::run(repo.store(), &[id], &FindOptions::new(b"other/x"), &Silent, &mut each).unwrap();
}

#[test]
fn an_exponentially_expanding_tree_is_searched_quickly() {
    let crafted = Crafted::empty();
    let content = blob(b"x");
    let file = Body::File(snap_core::base::id::BlobId::of(b"x"), 1);
    let (mut id, mut claim) = tree(leaf(&[(b"file", file)]));
    let mut claims = vec![content];
    for _ in 0..60 {
        let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
        claims.push(claim);
        (id, claim) = tree(leaf(&names.map(|name| (name, Body::Folder(id)))));
    }
    claims.push(claim);
    crafted.add(&claims);
    let tip = crafted.commit(id);
    let repo = crafted.repo();
    let (found, outcome) = search(&repo, &[tip], &FindOptions::new(b"nothing"));
    assert_eq!((found.len(), outcome.trees), (0, 61));
    let options = stats::StatsOptions { commits: 1, files: 1 };
    stats::run(repo.store(), &[tip], &options, &Silent).unwrap();
}

/// Makes a tree with `levels` nested folders. Each contains the next one under all of
/// `names`, and the innermost one has a file with this content.
pub(crate) fn expanding(
    crafted: &Crafted,
    levels: usize,
    names: &[&[u8]],
    content: &[u8],
) -> TreeId {
    let file = Body::File(snap_core::base::id::BlobId::of(content), content.len() as u64);
    let (mut id, claim) = tree(leaf(&[(b"file", file)]));
    let mut claims = vec![blob(content), claim];
    for _ in 0..levels {
        let entries: Vec<_> = names.iter().map(|name| (*name, Body::Folder(id))).collect();
        let (above, claim) = tree(leaf(&entries));
        claims.push(claim);
        id = above;
    }
    crafted.add(&claims);
    id
}

#[test]
fn changes_in_an_expanding_tree_are_counted_quickly() {
    let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    for (levels, files) in [(3, 64), (60, u64::MAX)] {
        let crafted = Crafted::empty();
        let first = crafted.commit(expanding(&crafted, levels, &names, b"one"));
        let tree = expanding(&crafted, levels, &names, b"two, longer");
        let second = crafted.commit_after(tree, vec![first]);
        let repo = crafted.repo();
        let options = stats::StatsOptions { commits: 2, files: 2 };
        let outcome = stats::run(repo.store(), &[second], &options, &Silent).unwrap();
        let added = &outcome.commits[0].added;
        assert_eq!(added.changed_files, files);
        assert_eq!(added.changed_bytes, files.saturating_mul(11));
        assert_eq!((added.data.objects, added.data.raw_bytes), (1, 11));
        assert_eq!(added.meta.objects, levels as u64 + 2);
        assert_eq!(outcome.files.len(), 2);
    }
}
