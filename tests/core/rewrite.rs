//! `rewrite`: paths go from history, and a garbage collection deletes what only they had.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use snap_core::{
    base::{
        id::{BlobId, CommitId, ObjectId},
        kind::ErrorKind,
        observe::{Observer, Silent},
    },
    disk::Disk,
    format::tree::Entry,
    ops::{
        commit::{self, CommitError, CommitSource},
        forget::{self, LastForget},
        gc::{self, GcOptions},
        list, log,
        removal_error::RemovalError,
        rewrite::{self, LastRewrite, RewriteOptions, RewriteOutcome},
        verify,
    },
    repo::{Config, Pointer, RefError, RefName, Repo, ref_name::RefKind},
    store::PackFile,
};
use snap_testkit::leftovers::files_with;

use crate::{
    faults::{Fault, PLANS},
    gc::{
        ALL, collect, commit as commit_to, delete_branch, files, has, interleave, message, noise,
    },
    scratch::{Scratch, check, copy, on_branch, open, open_gated, options},
};

/// The bytes that must go. The file is compressed, so they are in no file as they are.
const SECRET: &[u8] = b"hunter2-and-some-more-letters";

/// A collection that keeps all that it may keep.
const CAREFUL: GcOptions = GcOptions {
    undo: Duration::from_secs(9_000_000),
    undo_of_forget: Duration::from_secs(9_000_000),
    grace: Duration::from_secs(9_000_000),
    ..ALL
};

fn secret_file(n: u64) -> Vec<u8> {
    let mut text = format!("this is version {n} of the file\n").repeat(20).into_bytes();
    text.extend(SECRET);
    text
}

/// Four commits on `main`. The second and the third have the file `conf/secret`, in two versions, and
/// a large folder that only they have. The tag `old` is at the second commit.
fn with_secret() -> (Scratch, Vec<CommitId>) {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let mut ids = Vec::new();
    for n in 0..4 {
        scratch.write("own", format!("version {n}"));
        scratch.write("conf/public", format!("settings {n}"));
        let _ = fs_err::remove_file(scratch.source().join("conf/secret"));
        let _ = fs_err::remove_dir_all(scratch.source().join("keys"));
        if n == 1 || n == 2 {
            scratch.write("conf/secret", secret_file(n));
            scratch.write("keys/large", noise(n, 3 << 20));
        }
        ids.push(commit_to(&repo, &scratch.source(), "main"));
    }
    repo.refs().update(&tag("old"), None, Some(ids[1]), &message("tag")).unwrap();
    (scratch, ids)
}

fn tag(name: &str) -> RefName {
    RefName::tag(name).unwrap()
}

fn branch(name: &str) -> RefName {
    RefName::branch(name).unwrap()
}

fn without(patterns: &[&str]) -> RewriteOptions {
    let patterns = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
    RewriteOptions { patterns, ..RewriteOptions::default() }
}

fn try_rewrite(repo: &Repo, options: &RewriteOptions) -> Result<RewriteOutcome, RemovalError> {
    rewrite::run(repo, options, &message("rewrite: without it"), &Silent)
}

/// Removes the secret and the keys.
fn purge(repo: &Repo) -> RewriteOutcome {
    try_rewrite(repo, &without(&["conf/secret", "keys/"])).unwrap()
}

fn undo(repo: &Repo) -> bool {
    LastRewrite::read(repo).unwrap().unwrap().undo(repo, &message("undo: rewrite")).unwrap()
}

/// Returns the commits of a ref, oldest first.
fn history(repo: &Repo, name: &RefName) -> Vec<CommitId> {
    let tip = repo.refs().read(name).unwrap().unwrap();
    let steps = log::run(repo.store(), &[tip], &log::LogOptions::default()).unwrap();
    let mut ids: Vec<_> = steps.map(|step| step.unwrap().id).collect();
    ids.reverse();
    ids
}

/// Returns the paths of a commit.
fn paths(repo: &Repo, id: &CommitId) -> Vec<String> {
    let tree = repo.store().commit(id).unwrap().tree;
    let mut found = Vec::new();
    let mut add = |path: &[u8], _: &Entry| {
        found.push(String::from_utf8_lossy(path).into_owned());
        Ok(())
    };
    list::run(repo.store(), tree, b"", list::ListDepth::All, &Silent, &mut add).unwrap();
    found
}

#[test]
fn a_secret_is_gone_from_every_commit_and_from_the_disk() {
    let (scratch, ids) = with_secret();
    let repo = scratch.repo();
    assert!(!files_with(&scratch.store(), SECRET).is_empty(), "the search finds it before");
    let outcome = purge(&repo);
    assert_eq!((outcome.commits, outcome.removed.len(), outcome.refs.len()), (3, 2, 2));
    assert!(outcome.remaining.is_empty() && outcome.purged_bytes > 6 << 20, "{outcome:?}");
    let new = history(&repo, &branch("main"));
    assert_eq!((new.len(), new[0]), (4, ids[0]));
    assert_eq!(history(&repo, &tag("old")), new[..2]);
    for (old, new) in ids.iter().zip(&new) {
        let (old, kept) = (repo.store().commit(old).unwrap(), repo.store().commit(new).unwrap());
        assert_eq!((old.time, &old.author, &old.message), (kept.time, &kept.author, &kept.message));
        assert_eq!(paths(&repo, new), ["conf", "conf/public", "own"]);
        assert_eq!(kept.totals.files, 2);
    }
    // Not even the time for an undo, or young packs, keep what was purged.
    let collected = gc::run(&repo, &CAREFUL, &Silent).unwrap();
    assert_eq!(
        (collected.purged_objects, collected.left_purged_objects),
        (outcome.purged_objects, 0)
    );
    assert_eq!(files_with(&scratch.store(), SECRET), Vec::<std::path::PathBuf>::new());
    let large = noise(1, 3 << 20);
    assert_eq!(
        files_with(&scratch.store(), &large[1 << 20..][..64]),
        Vec::<std::path::PathBuf>::new()
    );
    assert_eq!(check(&scratch.repo()), Ok(4));
    assert!(ids[1..].iter().all(|id| !has(scratch.repo().store(), &id.object())));
    // A second rewrite finds nothing.
    let again = try_rewrite(&scratch.repo(), &without(&["conf/secret"])).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::NotFound, "{again}");
    assert_eq!(collect(&scratch.repo()).dead_objects, 0);
}

#[test]
fn the_same_rewrite_of_the_same_history_makes_the_same_commits() {
    let (scratch, _) = with_secret();
    let other = scratch.path("other");
    copy(&scratch.store(), &other);
    let (one, two) = (purge(&scratch.repo()), purge(&open(&other)));
    assert_eq!(one.refs, two.refs);
}

#[test]
fn a_dry_run_changes_nothing() {
    let (scratch, ids) = with_secret();
    let repo = scratch.repo();
    let packs = repo.store().packs();
    let options = RewriteOptions { dry_run: true, ..without(&["keys"]) };
    let planned = try_rewrite(&repo, &options).unwrap();
    assert_eq!((scratch.repo().store().packs(), history(&repo, &branch("main"))), (packs, ids));
    let done = try_rewrite(&repo, &without(&["keys"])).unwrap();
    assert_eq!(
        (planned.refs, planned.removed, planned.commits),
        (done.refs, done.removed, done.commits)
    );
}

#[test]
fn an_undo_brings_everything_back_until_a_collection() {
    let (scratch, ids) = with_secret();
    let repo = scratch.repo();
    purge(&repo);
    assert!(undo(&repo));
    assert_eq!(history(&repo, &branch("main")), ids);
    assert_eq!(history(&repo, &tag("old")), ids[..2]);
    assert!(LastRewrite::read(&repo).unwrap().is_none());
    collect(&repo);
    assert_eq!(check(&scratch.repo()), Ok(4));
    purge(&repo);
    gc::run(&repo, &CAREFUL, &Silent).unwrap();
    let last = LastRewrite::read(&repo).unwrap().unwrap();
    assert!(last.is_final && !last.undo(&repo, &message("undo: rewrite")).unwrap());
    assert_eq!(check(&scratch.repo()), Ok(4));
}

#[test]
fn a_branch_that_is_not_named_keeps_the_path_and_is_listed() {
    let (scratch, ids) = with_secret();
    let repo = scratch.repo();
    let options = RewriteOptions { names: vec![branch("main")], ..without(&["conf/secret"]) };
    let outcome = try_rewrite(&repo, &options).unwrap();
    assert_eq!((outcome.refs.len(), outcome.remaining), (1, vec![tag("old")]));
    gc::run(&repo, &CAREFUL, &Silent).unwrap();
    // The tag keeps what it reaches, and only that.
    assert!(has(repo.store(), &BlobId::of(&secret_file(1)).object()));
    assert!(!has(repo.store(), &BlobId::of(&secret_file(2)).object()));
    assert_eq!(history(&repo, &tag("old")), ids[..2]);
    assert_eq!(check(&scratch.repo()), Ok(5));
    let unknown = RewriteOptions { names: vec![branch("none")], ..without(&["own"]) };
    let error = try_rewrite(&repo, &unknown).unwrap_err();
    assert!(matches!(error, RemovalError::Ref(RefError::Unknown { .. })), "{error}");
}

/// Asks to stop once `main` has moved.
struct StopsAfterMove<'r>(&'r Repo, Option<CommitId>);

impl Observer for StopsAfterMove<'_> {
    fn cancelled(&self) -> bool {
        self.0.refs().read(&branch("main")).unwrap() != self.1
    }
}

#[test]
fn a_commit_refuses_a_purged_content_unless_the_user_allows_it() {
    let (scratch, _) = with_secret();
    let repo = scratch.repo();
    // The files are those of the third commit, as the stat cache has them.
    scratch.write("conf/secret", secret_file(2));
    commit_to(&repo, &scratch.source(), "main");
    purge(&repo);
    let source = scratch.source();
    let attempt = |allow: &[&str]| {
        let allow = allow.iter().map(|path| path.as_bytes().to_vec()).collect();
        let options = commit::CommitOptions { allow, ..on_branch("main") };
        let observer = StopsAfterMove(&repo, repo.refs().read(&branch("main")).unwrap());
        commit::run(&repo, CommitSource::Folder(source.clone()), &options, &observer)
    };
    for collected in [false, true] {
        if collected {
            gc::run(&repo, &CAREFUL, &Silent).unwrap();
        }
        let error = attempt(&["con"]).unwrap_err();
        assert!(matches!(&error, CommitError::Purged { path } if path == "conf/secret"), "{error}");
        assert_eq!(history(&repo, &branch("main")).len(), 5);
    }
    // An attempt leaves nothing for longer than the next collection.
    gc::run(&repo, &CAREFUL, &Silent).unwrap();
    assert!(files_with(&scratch.store(), SECRET).is_empty());
    let id = attempt(&["conf"]).unwrap().id.unwrap();
    gc::run(&repo, &CAREFUL, &Silent).unwrap();
    assert!(paths(&repo, &id).contains(&"conf/secret".to_owned()));
    assert_eq!(check(&scratch.repo()), Ok(6));
    // From now on, it is a content like any other.
    scratch.write("copy", secret_file(2));
    attempt(&[]).unwrap();
}

/// A folder whose contents other paths have: its tree is purged, and its contents are not.
#[test]
fn an_undo_of_a_commit_with_a_tree_that_was_made_anew_is_possible() {
    for (is_collected_first, is_collected_with_it) in
        [(true, true), (true, false), (false, true), (false, false)]
    {
        let scratch = Scratch::new();
        let repo = scratch.repo();
        let collect_if = |is_wanted: bool| {
            if is_wanted {
                gc::run(&repo, &CAREFUL, &Silent).unwrap();
            }
        };
        scratch.write("own", "shared");
        scratch.write("keys/copy", "shared");
        commit_to(&repo, &scratch.source(), "main");
        purge(&repo);
        collect_if(is_collected_first);
        // The same folder comes back.
        scratch.write("more", "more");
        let again = commit_to(&repo, &scratch.source(), "side");
        collect_if(is_collected_with_it);
        delete_branch(&repo, "side");
        collect_if(true);
        repo.refs().update(&branch("side"), None, Some(again), &message("undo: branch")).unwrap();
        assert_eq!(paths(&repo, &again), ["keys", "keys/copy", "more", "own"]);
        assert_eq!(check(&repo), Ok(2));
    }
}

#[test]
fn no_ref_moves_to_a_replaced_commit_or_its_descendant() {
    let (scratch, ids) = with_secret();
    let repo = scratch.repo();
    // Another user's commit on top of the old history, which a fetch brings here.
    scratch.write("own", "another user");
    let theirs = commit_to(&repo, &scratch.source(), "main");
    let tracking = RefName::new(RefKind::Remote, "origin/main").unwrap();
    repo.refs().update(&branch("main"), Some(theirs), Some(ids[3]), &message("back")).unwrap();
    repo.refs().update(&tracking, None, Some(theirs), &message("fetch")).unwrap();
    let outcome = purge(&repo);
    assert_eq!(outcome.tracking, std::slice::from_ref(&tracking));
    for id in [ids[1], ids[3], theirs] {
        let error = repo.refs().update(&tag("t"), None, Some(id), &message("tag")).unwrap_err();
        assert!(matches!(error, RefError::Replaced { .. }), "{error}");
        let name = RefName::new(RefKind::Remote, "origin/new").unwrap();
        repo.refs().update(&name, None, Some(id), &message("fetch")).unwrap_err();
    }
    // A collection drops the remote-tracking ref: it would keep what was purged.
    let collected = gc::run(&repo, &CAREFUL, &Silent).unwrap();
    assert_eq!((collected.dropped_refs, collected.left_purged_objects), (1, 0));
    assert_eq!(repo.refs().read(&tracking).unwrap(), None);
    assert!(files_with(&scratch.store(), SECRET).is_empty());
    assert_eq!(check(&scratch.repo()), Ok(4));
}

/// The files come from a commit that was undone, and that has the secret.
#[test]
fn the_base_of_the_files_moves_with_the_refs() {
    let scratch = Scratch::new();
    let store = scratch.source().join(".snap");
    Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
    let repo = Repo::open(&store, Disk::default(), &Silent).unwrap();
    let commit_all = |name: &str, text: &str| {
        scratch.write(name, text);
        let options = commit::CommitOptions { author: "a".to_owned(), ..Default::default() };
        commit::run(&repo, CommitSource::Folder(scratch.source()), &options, &Silent).unwrap().id
    };
    scratch.write("conf/secret", secret_file(1));
    let first = commit_all("own", "first").unwrap();
    fs_err::remove_file(scratch.source().join("conf/secret")).unwrap();
    let second = commit_all("own", "second");
    repo.refs().update(&branch("main"), second, Some(first), &message("undo: commit")).unwrap();
    purge(&repo);
    gc::run(&repo, &CAREFUL, &Silent).unwrap();
    assert_eq!(check(&repo), Ok(1));
    let found = verify::run(&repo, &verify::VerifyOptions::default(), &Silent).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    assert!(files_with(&store, SECRET).is_empty());
    // The files go on from there.
    commit_all("own", "third").unwrap();
    assert_eq!(history(&repo, &branch("main")).len(), 2);
}

#[test]
fn a_branch_that_was_not_rewritten_gets_new_commits() {
    let (scratch, ids) = with_secret();
    let repo = scratch.repo();
    repo.refs().update(&branch("side"), None, Some(ids[3]), &message("branch")).unwrap();
    let options = RewriteOptions { names: vec![branch("main")], ..without(&["conf/secret"]) };
    try_rewrite(&repo, &options).unwrap();
    scratch.write("own", "later");
    commit_to(&repo, &scratch.source(), "side");
    commit_to(&repo, &scratch.source(), "main");
    assert_eq!(history(&repo, &branch("side")).len(), 5);
    assert_eq!(check(&repo), Ok(9));
}

#[test]
fn patterns_without_a_match_and_commits_that_go_are_reported() {
    let (scratch, ids) = with_secret();
    let repo = scratch.repo();
    scratch.write("own", "undone");
    let undone = commit_to(&repo, &scratch.source(), "main");
    repo.refs()
        .update(&branch("main"), Some(undone), Some(ids[3]), &message("undo: commit"))
        .unwrap();
    let patterns = ["conf/secret", "/keys", "keys/large", "typo", "conf/typo"];
    let outcome = try_rewrite(&repo, &without(&patterns)).unwrap();
    assert_eq!(outcome.unmatched, ["typo", "conf/typo"]);
    assert_eq!(outcome.discarded, [undone].into());
}

#[test]
fn a_killed_undo_is_finished_by_an_undo_or_taken_back_by_a_rewrite() {
    let (scratch, ids) = with_secret();
    purge(&scratch.repo());
    for at in 0.. {
        let store = scratch.path(&format!("killed{at}"));
        let fault = Fault::new(crate::faults::Plan::Crash, at);
        for goes_on in [true, false] {
            let _ = fs_err::remove_dir_all(&store);
            copy(&scratch.store(), &store);
            let fault = if goes_on {
                Arc::clone(&fault)
            } else {
                Fault::new(crate::faults::Plan::Crash, at)
            };
            let repo = open_gated(&store, fault as _);
            let last = LastRewrite::read(&repo).unwrap().unwrap();
            let _ = last.undo(&repo, &message("undo: rewrite"));
            drop(repo);
            let repo = open(&store);
            if goes_on {
                if LastRewrite::read(&repo).unwrap().is_some() {
                    assert!(undo(&repo), "at {at}");
                }
                assert_eq!(history(&repo, &branch("main")), ids, "at {at}");
                assert_eq!(history(&repo, &tag("old")), ids[..2], "at {at}");
                assert!(LastRewrite::read(&repo).unwrap().is_none(), "at {at}");
            } else {
                let again = try_rewrite(&repo, &without(&["conf/secret", "keys/"]));
                if let Err(error) = again {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "at {at}: {error}");
                }
                gc::run(&repo, &CAREFUL, &Silent).unwrap();
                assert!(files_with(&store, SECRET).is_empty(), "at {at}");
            }
            assert_eq!(check(&open(&store)), Ok(4), "at {at}");
        }
        fs_err::remove_dir_all(&store).unwrap();
        if fault.steps.lock().len() <= at {
            break;
        }
    }
}

/// A forgotten commit has the secret, and leads to an older commit that has it, too.
#[test]
fn forgotten_commits_keep_nothing_of_what_was_purged() {
    for collected in [false, true] {
        let (scratch, ids) = with_secret();
        let repo = scratch.repo();
        repo.refs().update(&tag("old"), Some(ids[1]), None, &message("tag: delete")).unwrap();
        let old = [ids[2]].into();
        assert_eq!(forget::run(&repo, &old, &message("forget"), &Silent).unwrap(), 1);
        if collected {
            collect(&repo);
        }
        purge(&repo);
        gc::run(&repo, &CAREFUL, &Silent).unwrap();
        assert!(files_with(&scratch.store(), SECRET).is_empty(), "{collected}");
        let new = history(&scratch.repo(), &branch("main"));
        assert_eq!((new.len(), new[0]), (4, ids[0]));
        assert!(scratch.repo().store().is_forgotten(&new[2]).unwrap());
        assert_eq!(check(&scratch.repo()), Ok(3));
    }
}

#[test]
fn the_quarantine_keeps_nothing_of_what_was_purged() {
    let (scratch, _) = with_secret();
    let repo = scratch.repo();
    let quarantine = scratch.store().join("quarantine");
    fs_err::create_dir(&quarantine).unwrap();
    let packs = repo.store().packs();
    for id in &packs {
        let bytes = fs_err::read(repo.store().pack_path(id)).unwrap();
        fs_err::write(quarantine.join(id.to_string()), &bytes).unwrap();
        // The contents of this file are unknown.
        fs_err::write(quarantine.join(format!("{id}.2")), &bytes[..bytes.len() - 1]).unwrap();
    }
    fs_err::write(quarantine.join("README"), "not a pack").unwrap();
    let all = |folder: &Path| -> BTreeSet<ObjectId> {
        let packs = files(folder).into_iter().filter(|path| !path.ends_with("README"));
        let ids = |path: PathBuf| {
            let id = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
            PackFile::open(&path, id).unwrap().objects().unwrap()
        };
        packs.flat_map(ids).map(|object| object.id).collect()
    };
    let stored = all(&scratch.store().join("objects"));
    let purged: BTreeSet<ObjectId> = {
        purge(&repo);
        repo.store().rewrites().unwrap().purged().copied().collect()
    };
    let would = gc::run(&repo, &GcOptions { dry_run: true, ..CAREFUL }, &Silent).unwrap();
    assert!(would.purged_objects > purged.len() as u64, "{would:?}");
    let collected = gc::run(&repo, &CAREFUL, &Silent).unwrap();
    assert_eq!(collected.purged_objects, would.purged_objects);
    assert!(files_with(&scratch.store(), SECRET).is_empty());
    assert_eq!(all(&quarantine), &stored - &purged, "everything else was saved");
    assert_eq!(fs_err::read(quarantine.join("README")).unwrap(), b"not a pack");
    // The next collection leaves the quarantine alone.
    let before = files(&quarantine);
    gc::run(&repo, &CAREFUL, &Silent).unwrap();
    assert_eq!(files(&quarantine), before);
}

#[test]
fn a_quarantined_pack_of_a_newer_version_is_not_deleted() {
    let (scratch, _) = with_secret();
    let repo = scratch.repo();
    let id = repo.store().packs().into_iter().next().unwrap();
    let mut bytes = fs_err::read(repo.store().pack_path(&id)).unwrap();
    bytes[8] = 99;
    let quarantine = scratch.store().join("quarantine");
    fs_err::create_dir(&quarantine).unwrap();
    fs_err::write(quarantine.join(id.to_string()), &bytes).unwrap();
    purge(&repo);
    let error = gc::run(&repo, &CAREFUL, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(fs_err::read(quarantine.join(id.to_string())).unwrap(), bytes);
}

/// Other contents of a forgotten commit stay until the time for an undo is over, and a commit may
/// have them again.
#[test]
fn a_forgotten_commit_keeps_what_no_pattern_matches() {
    let (scratch, ids) = with_secret();
    let repo = scratch.repo();
    repo.refs().update(&tag("old"), Some(ids[1]), None, &message("tag: delete")).unwrap();
    forget::run(&repo, &[ids[2]].into(), &message("forget"), &Silent).unwrap();
    purge(&repo);
    gc::run(&repo, &CAREFUL, &Silent).unwrap();
    assert!(files_with(&scratch.store(), SECRET).is_empty());
    let new = history(&repo, &branch("main"));
    assert!(repo.store().is_forgotten(&new[2]).unwrap());
    let last = LastForget::read(&repo).unwrap().unwrap();
    assert_eq!((&last.forget.commits[..], last.deleted), (&new[2..3], None));
    assert!(last.undo(&repo, &message("undo: forget")).unwrap());
    assert_eq!(paths(&repo, &new[2]), ["conf", "conf/public", "own"]);
    assert_eq!(check(&scratch.repo()), Ok(4));
    scratch.write("own", "version 2");
    commit_to(&repo, &scratch.source(), "main");
}

#[test]
fn an_undo_of_a_rewrite_brings_forgotten_commits_back_as_they_were() {
    let (scratch, ids) = with_secret();
    let repo = scratch.repo();
    forget::run(&repo, &[ids[2]].into(), &message("forget"), &Silent).unwrap();
    let before = repo.store().forgotten();
    purge(&repo);
    assert_ne!(repo.store().forgotten(), before);
    assert!(undo(&repo));
    assert_eq!(repo.store().forgotten(), before);
    assert_eq!(history(&repo, &branch("main")), ids);
}

#[test]
fn other_paths_with_a_removed_content_are_listed() {
    let (scratch, _) = with_secret();
    let repo = scratch.repo();
    fs_err::create_dir(scratch.source().join("backup")).unwrap();
    scratch.write("backup/copy", secret_file(1));
    let with_copy = commit_to(&repo, &scratch.source(), "main");
    let outcome = purge(&repo);
    let tip = history(&repo, &branch("main"))[4];
    assert_ne!(tip, with_copy);
    let found: Vec<_> = outcome
        .elsewhere
        .affected
        .paths
        .iter()
        .map(|found| (found.commit, &found.path[..]))
        .collect();
    assert_eq!(found, [(tip, &b"backup/copy"[..])]);
    let collected = gc::run(&repo, &CAREFUL, &Silent).unwrap();
    assert_eq!(collected.remaining.refs, [Pointer::Ref(branch("main"))]);
    // A second rewrite removes it, and a collection has nothing to report then.
    let outcome = try_rewrite(&repo, &without(&["backup/"])).unwrap();
    assert!(outcome.elsewhere.is_empty());
    let collected = gc::run(&repo, &CAREFUL, &Silent).unwrap();
    assert!(collected.remaining.is_empty());
    assert!(files_with(&scratch.store(), SECRET).is_empty());
}

#[test]
fn a_rewrite_that_fails_at_any_step_loses_nothing_and_is_finished_by_the_next() {
    let (scratch, ids) = with_secret();
    for plan in PLANS {
        for at in 0.. {
            let store = scratch.path(&format!("{plan:?}{at}"));
            copy(&scratch.store(), &store);
            let fault = Fault::new(plan, at);
            let options = without(&["conf/secret", "keys"]);
            let result = try_rewrite(&open_gated(&store, Arc::clone(&fault) as _), &options);
            let repo = open(&store);
            assert!(check(&repo).is_ok(), "{plan:?} at {at}");
            match try_rewrite(&repo, &options) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "{plan:?} {at}: {error}")
                }
            }
            assert_eq!(paths(&repo, &history(&repo, &tag("old"))[1]).len(), 3, "{plan:?} at {at}");
            gc::run(&repo, &CAREFUL, &Silent).unwrap();
            assert!(files_with(&store, SECRET).is_empty(), "{plan:?} at {at}: {result:?}");
            assert_eq!(check(&open(&store)), Ok(4), "{plan:?} at {at}");
            fs_err::remove_dir_all(&store).unwrap();
            if fault.steps.lock().len() <= at {
                assert!(at > 10 && result.is_ok(), "{at} steps");
                break;
            }
        }
    }
    assert_eq!(history(&scratch.repo(), &branch("main")), ids);
}

#[test]
fn an_undo_after_a_killed_rewrite_brings_all_refs_back() {
    let (scratch, ids) = with_secret();
    for at in 0.. {
        let store = scratch.path(&format!("killed{at}"));
        copy(&scratch.store(), &store);
        let fault = Fault::new(crate::faults::Plan::Crash, at);
        let _ =
            try_rewrite(&open_gated(&store, Arc::clone(&fault) as _), &without(&["conf/secret"]));
        let repo = open(&store);
        // A collection does not make the undo impossible if it deletes nothing.
        let is_recorded = LastRewrite::read(&repo).unwrap().is_some();
        let is_moved =
            history(&repo, &branch("main")) != ids || history(&repo, &tag("old")) != ids[..2];
        if is_recorded && !is_moved {
            collect(&repo);
            commit_to(&repo, &scratch.source(), "side");
            delete_branch(&repo, "side");
        }
        if is_recorded {
            assert!(undo(&repo), "at {at}");
        }
        assert_eq!(history(&repo, &branch("main")), ids, "at {at}");
        assert_eq!(history(&repo, &tag("old")), ids[..2], "at {at}");
        collect(&repo);
        assert_eq!(check(&open(&store)), Ok(4), "at {at}");
        fs_err::remove_dir_all(&store).unwrap();
        if fault.steps.lock().len() <= at {
            break;
        }
    }
}

#[test]
fn a_collection_after_a_rewrite_that_is_killed_is_finished_by_the_next() {
    let (scratch, _) = with_secret();
    purge(&scratch.repo());
    for at in 0.. {
        let store = scratch.path(&format!("killed{at}"));
        copy(&scratch.store(), &store);
        let fault = Fault::new(crate::faults::Plan::Crash, at);
        let _ = gc::run(&open_gated(&store, Arc::clone(&fault) as _), &CAREFUL, &Silent);
        let repo = open(&store);
        assert_eq!(check(&repo), Ok(4), "at {at}");
        gc::run(&repo, &CAREFUL, &Silent).unwrap();
        assert!(files_with(&store, SECRET).is_empty(), "at {at}");
        assert!(LastRewrite::read(&repo).unwrap().unwrap().is_final, "at {at}");
        assert_eq!(check(&open(&store)), Ok(4), "at {at}");
        fs_err::remove_dir_all(&store).unwrap();
        if fault.steps.lock().len() <= at {
            assert!(at > 10, "{at} steps");
            break;
        }
    }
}

#[test]
fn a_rewrite_and_a_collection_beside_each_other_at_any_step() {
    let (scratch, _) = with_secret();
    let rewrite_beside = |store: &Path, _: &Path| {
        purge(&open(store));
    };
    let collect_beside = |store: &Path, _: &Path| {
        collect(&open(store));
    };
    let is_gone = |repo: &Repo| {
        gc::run(repo, &CAREFUL, &Silent).unwrap();
        assert!(files_with(repo.dir(), SECRET).is_empty());
    };
    let rewrite_first = |repo: &Repo, _: &Path| {
        purge(repo);
        is_gone(repo);
    };
    assert!(interleave(&scratch, &rewrite_first, collect_beside) > 10);
    assert!(interleave(&scratch, &|repo, _| assert!(!collect(repo).is_busy), rewrite_beside) > 0);
}

#[test]
fn a_commit_and_a_rewrite_beside_each_other_at_any_step() {
    let (scratch, _) = with_secret();
    scratch.write("own", "later");
    let commit_beside = |store: &Path, source: &Path| {
        commit_to(&open(store), source, "main");
    };
    let rewrite_beside = |store: &Path, _: &Path| {
        purge(&open(store));
    };
    let is_clean = |repo: &Repo| {
        for id in history(repo, &branch("main")) {
            assert!(!paths(repo, &id).contains(&"conf/secret".to_owned()), "{id}");
        }
    };
    interleave(
        &scratch,
        &|repo, _| {
            purge(repo);
            is_clean(repo);
        },
        commit_beside,
    );
    let commit_first = |repo: &Repo, source: &Path| {
        commit_to(repo, source, "main");
    };
    interleave(&scratch, &commit_first, rewrite_beside);
}

#[test]
fn a_damaged_table_of_rewrites_is_an_error_and_loses_nothing() {
    let (scratch, _) = with_secret();
    purge(&scratch.repo());
    let table = scratch.store().join("rewrites");
    let mut bytes = fs_err::read(&table).unwrap();
    bytes[20] ^= 1;
    fs_err::write(&table, bytes).unwrap();
    let repo = scratch.repo();
    assert_eq!(gc::run(&repo, &CAREFUL, &Silent).unwrap_err().kind(), ErrorKind::Damaged);
    scratch.write("own", "later");
    let source = scratch.source();
    let error = commit::run(&repo, CommitSource::Folder(source), &options(), &Silent);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!(check(&repo), Ok(4));
}
