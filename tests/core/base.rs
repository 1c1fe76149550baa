//! The base of a project's files, and commits of some paths on top of the previous
//! commit.

use std::path::PathBuf;

use snap_core::{
    base::{id::CommitId, name::EntryName, observe::Silent},
    disk::{Disk, DiskStep, FaultDecision, FaultInjector},
    local::ignore,
    ops::{
        commit::{
            self, BehindPolicy, CommitError, CommitOutcome, CommitSource, NamedPath, OtherPaths,
        },
        gc,
        rewrite::{self, RewriteOptions},
        verify::{self, Data, VerifyOptions},
    },
    repo::{Config, RefLogMessage, RefName, Repo},
};

use crate::{
    crafted::Crafted,
    faults::{Fault, Plan},
    gc::ALL,
    past::expanding,
    scratch::{START, open, open_gated, options, temporary},
};

/// A project with its store.
struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let project = Self { dir: temporary() };
        Repo::init(&project.path(".snap"), &Disk::default(), &Config::default()).unwrap();
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, content).unwrap();
    }

    fn repo(&self) -> Repo {
        open(&self.path(".snap"))
    }

    /// Returns the commits that the files come from, if they are known.
    fn commits(&self) -> Option<Vec<CommitId>> {
        Some(self.repo().base().unwrap()?.commits)
    }

    fn commit(&self) -> Result<CommitOutcome, CommitError> {
        let options = commit::CommitOptions { unseen: BehindPolicy::Refuse, ..options() };
        commit::run(&self.repo(), CommitSource::Folder(self.path("")), &options, &Silent)
    }

    fn update(&self, name: &str) -> Result<CommitOutcome, CommitError> {
        self.update_with(name, options())
    }

    fn update_with(
        &self,
        name: &str,
        options: commit::CommitOptions,
    ) -> Result<CommitOutcome, CommitError> {
        let inside = name.split('/').map(|name| EntryName::new(name.as_bytes()).unwrap()).collect();
        let source = CommitSource::Paths(vec![NamedPath { path: self.path(name), inside }]);
        let unnamed = OtherPaths::Keep(self.path(""));
        let options = commit::CommitOptions { unnamed, unseen: BehindPolicy::Refuse, ..options };
        commit::run(&self.repo(), source, &options, &Silent)
    }

    /// Updates the branch as a pull does.
    fn pull(&self, to: CommitId) {
        let repo = self.repo();
        let main = RefName::branch("main").unwrap();
        let change = RefLogMessage { time: START, who: "Ann", reason: "pull: elsewhere" };
        let old = repo.refs().read(&main).unwrap();
        repo.refs().update(&main, old, Some(to), &change).unwrap();
    }

    /// Makes a commit that seems to come from another store: no log of this store
    /// contains it.
    fn foreign(&self) -> CommitId {
        let tip = self.repo().refs().head_commit().unwrap().unwrap();
        self.write("foreign", "1");
        let made = self.commit().unwrap().id.unwrap();
        fs_err::remove_file(self.path("foreign")).unwrap();
        fs_err::remove_dir_all(self.path(".snap/logs")).unwrap();
        self.pull(tip);
        self.repo().set_committed_base(tip).unwrap();
        made
    }
}

fn tree(project: &Project) -> snap_core::base::id::TreeId {
    let repo = project.repo();
    let tip = repo.refs().head_commit().unwrap().unwrap();
    repo.store().commit(&tip).unwrap().tree
}

#[test]
fn a_commit_behind_a_pull_is_refused_until_the_base_is_set() {
    let project = Project::new();
    project.write("a", "1");
    project.commit().unwrap();
    let foreign = project.foreign();
    project.pull(foreign);
    project.write("a", "2");
    let Err(CommitError::Behind(behind)) = project.commit() else { panic!("not refused") };
    assert_eq!(behind.commits.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [foreign]);
    assert_eq!(behind.paths, [b"foreign".to_vec()]);
    project.write("foreign", "mine");
    assert!(matches!(project.update("foreign"), Err(CommitError::Behind(_))));
    fs_err::remove_file(project.path("foreign")).unwrap();
    project.repo().set_committed_base(foreign).unwrap();
    let made = project.commit().unwrap().id.unwrap();
    assert_eq!(project.commits(), Some(vec![made]));
}

#[test]
fn only_a_stream_can_be_committed_behind_a_pull() {
    let project = Project::new();
    project.write("a", "1");
    let first = project.commit().unwrap().id.unwrap();
    let foreign = project.foreign();
    project.pull(foreign);
    let name = EntryName::new(b"b.sql").unwrap();
    let source = CommitSource::Stream { name, reader: Box::new(&b"select 1"[..]) };
    let unnamed = OtherPaths::Keep(project.path(""));
    let with = commit::CommitOptions { unnamed, unseen: BehindPolicy::Refuse, ..options() };
    commit::run(&project.repo(), source, &with, &Silent).unwrap();
    assert_eq!(project.commits(), Some(vec![first]));
    let Err(CommitError::Behind(behind)) = project.commit() else { panic!("not refused") };
    assert_eq!(behind.commits.len(), 1, "the stream was committed here");
}

#[test]
fn committing_a_path_onto_an_expanding_tree_is_fast() {
    let project = Project::new();
    project.write("a", "1");
    let first = project.commit().unwrap().id.unwrap();
    let crafted = Crafted::empty();
    let foreign = expanding(&crafted, 60, &[b"x", b"y"], b"one");
    let foreign = crafted.commit_after(foreign, vec![first]);
    for pack in fs_err::read_dir(crafted.store().join("objects")).unwrap() {
        let pack = pack.unwrap();
        fs_err::copy(pack.path(), project.path(".snap/objects").join(pack.file_name())).unwrap();
    }
    project.pull(foreign);
    project.write("new", "1");
    let made = project.update("new").unwrap();
    assert!(made.created);
    // A file of others above a named path is still found.
    project.repo().set_committed_base(first).unwrap();
    fs_err::remove_dir_all(project.path(".snap/logs")).unwrap();
    project.write("x/x/new", "1");
    assert!(matches!(project.update("x/x"), Err(CommitError::Behind(_))));
}

/// A gate that records all steps.
#[derive(Debug, Default)]
struct Steps(parking_lot::Mutex<Vec<(DiskStep, PathBuf)>>);

impl FaultInjector for Steps {
    fn decide(&self, step: DiskStep, path: &std::path::Path) -> FaultDecision {
        self.0.lock().push((step, path.to_owned()));
        FaultDecision::Go
    }
}

/// A commit or a restore that is slow between its look at a commit and the base.
#[test]
fn the_base_never_names_a_commit_that_a_rewrite_replaced_meanwhile() {
    let project = Project::new();
    project.write("kept", "1");
    project.write("secret", "hunter2");
    let first = project.commit().unwrap().id.unwrap();
    project.write("kept", "2");
    let second = project.commit().unwrap().id.unwrap();
    let options = RewriteOptions { patterns: vec!["secret".to_owned()], ..Default::default() };
    let change = RefLogMessage { time: START, who: "Ann", reason: "rewrite: without secret" };
    rewrite::run(&project.repo(), &options, &change, &Silent).unwrap();
    let new_second = project.repo().refs().head_commit().unwrap().unwrap();
    let new_first = project.repo().store().commit(&new_second).unwrap().parents[0];
    gc::run(&project.repo(), &ALL, &Silent).unwrap();
    project.repo().set_committed_base(second).unwrap();
    assert_eq!(project.commits(), Some(vec![new_second]));
    project.repo().start_restored_base(first).unwrap();
    project.repo().set_restored_base(first).unwrap();
    assert_eq!(project.commits(), Some(vec![new_first]));
    let found = verify::run(&project.repo(), &VerifyOptions { data: Data::All }, &Silent).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    // An undone commit may stay the base, and a collection keeps it.
    let repo = project.repo();
    fs_err::remove_file(project.path("secret")).unwrap();
    project.write("kept", "3");
    let undone = project.commit().unwrap().id.unwrap();
    repo.refs()
        .update(&RefName::branch("main").unwrap(), Some(undone), Some(new_second), &change)
        .unwrap();
    gc::run(&repo, &ALL, &Silent).unwrap();
    project.repo().set_committed_base(undone).unwrap();
    assert_eq!(project.commits(), Some(vec![undone]));
}

/// A new ref at the commit of the base, killed between its log and its file.
#[test]
fn a_ref_that_was_never_written_is_not_missing() {
    let name = RefName::branch("new").unwrap();
    for reason in ["unpack: x.snap", "undo: branch: delete", "push", "pull: ../p", "branch: new"] {
        for at in 0.. {
            let project = Project::new();
            project.write("a", "1");
            let id = project.commit().unwrap().id.unwrap();
            let fault = Fault::new(Plan::Crash, at);
            let repo = open_gated(&project.path(".snap"), std::sync::Arc::clone(&fault) as _);
            let change = RefLogMessage { time: START, who: "Ann", reason };
            let _ = repo.refs().update(&name, None, Some(id), &change);
            assert!(project.repo().lost_refs().unwrap().is_empty(), "{reason}, step {at}");
            if fault.steps.lock().len() <= at {
                // The change is complete, so the file is missed.
                fs_err::remove_file(project.path(".snap/refs/heads/new")).unwrap();
                assert_eq!(project.repo().lost_refs().unwrap(), [(name.clone(), id)], "{reason}");
                break;
            }
        }
    }
}

#[test]
fn restored_files_are_synced_before_the_base_is_set() {
    let project = Project::new();
    project.write("a", "1");
    let id = project.commit().unwrap().id.unwrap();
    fs_err::write(project.path(".snap/base"), "-\n").unwrap();
    let steps = std::sync::Arc::new(Steps::default());
    let gate = std::sync::Arc::clone(&steps);
    let repo = crate::scratch::open_gated(&project.path(".snap"), gate);
    repo.set_restored_base(id).unwrap();
    let taken = steps.0.lock().clone();
    assert_eq!(taken[0], (DiskStep::Sync, repo.project().unwrap().to_owned()));
    repo.set_restored_base(id).unwrap();
    let again = steps.0.lock()[taken.len()..].to_vec();
    let lock = (DiskStep::Create, project.path(".snap/lock"));
    assert_eq!(again, [taken[0].clone(), lock], "not written again");
    assert_eq!(project.commits(), Some(vec![id]));
}

#[test]
fn an_unreadable_base_counts_as_unknown() {
    let project = Project::new();
    assert_eq!(project.commits(), Some(Vec::new()));
    project.write("a", "1");
    let id = project.commit().unwrap().id.unwrap();
    for (text, base) in [
        (format!("{id}\n{id}\n"), Some(vec![id, id])),
        (format!("{id}"), None),
        ("x\n".to_owned(), None),
        (String::new(), None),
        ("-".to_owned(), None),
    ] {
        fs_err::write(project.path(".snap/base"), text).unwrap();
        assert_eq!(project.commits(), base);
    }
    fs_err::remove_file(project.path(".snap/base")).unwrap();
    assert_eq!(project.commits(), None);
}

#[test]
fn concurrent_commits_of_paths_keep_all_changes() {
    let project = Project::new();
    for at in 0..6 {
        project.write(&format!("folder/{at}"), "before");
    }
    project.commit().unwrap();
    for at in 0..6 {
        project.write(&format!("folder/{at}"), &format!("after {at}"));
    }
    std::thread::scope(|scope| {
        for at in 0..6 {
            let project = &project;
            scope.spawn(move || project.update(&format!("folder/{at}")).unwrap());
        }
    });
    let partly = tree(&project);
    let whole = commit::CommitOptions { unseen: BehindPolicy::Refuse, ..options() };
    let source = CommitSource::Folder(project.path(""));
    let made = commit::run(&project.repo(), source, &whole, &Silent).unwrap();
    assert_eq!(tree(&project), partly, "{made:?}");
    assert_eq!(made.files.modified, 0);
}

#[test]
fn an_updated_commit_keeps_the_rules_and_totals_of_the_rest() {
    let project = Project::new();
    for path in ["a", "src/x", "src/y.o", "src/deep/z", "other/w"] {
        project.write(path, path);
    }
    let rules = |pattern: &str| ignore::Options {
        patterns: vec![pattern.to_owned()],
        ..ignore::Options::default()
    };
    let first =
        commit::CommitOptions { ignore: rules("*.o"), unseen: BehindPolicy::Refuse, ..options() };
    let source = CommitSource::Folder(project.path(""));
    commit::run(&project.repo(), source, &first, &Silent).unwrap();
    project.write("src/deep/z", "longer than before");
    let with = commit::CommitOptions { ignore: rules("*.tmp"), ..options() };
    let made = project.update_with("src/deep", with).unwrap();
    let repo = project.repo();
    let commit = repo.store().commit(&made.id.unwrap()).unwrap();
    assert_eq!(commit.selection.rules, [rules("*.o"), rules("*.tmp")]);
    let totals = commit.totals;
    assert_eq!((totals.files, totals.folders, totals.bytes), (4, 3, 1 + 5 + 18 + 7));
    assert_eq!(*repo.store().tree(&commit.tree).unwrap().totals(), totals);
    assert!(commit.root.is_some());
}

#[test]
fn scope_paths_round_trip_and_the_root_clears_the_scope() {
    let project = Project::new();
    let repo = project.repo();
    assert_eq!(repo.scope().unwrap(), None);
    let name = |name: &[u8]| EntryName::new(name).unwrap();
    repo.set_scope(&[b"/docs/caf\xe9/".to_vec(), b"a\nb".to_vec()]).unwrap();
    let scope = vec![vec![name(b"docs"), name(b"caf\xe9")], vec![name(b"a\nb")]];
    assert_eq!(repo.scope().unwrap(), Some(scope));
    // A path inside another listed path adds nothing.
    repo.set_scope(&[b"a/b".to_vec(), b"a".to_vec(), b"a/".to_vec()]).unwrap();
    assert_eq!(repo.scope().unwrap(), Some(vec![vec![name(b"a")]]));
    fs_err::write(project.path(".snap/scope"), "docs/../x\0").unwrap();
    assert_eq!(repo.scope().unwrap(), Some(vec![vec![name(b"a")]]), "of the copy");
    fs_err::write(project.path(".snap/logs/scope"), "docs/../x\0").unwrap();
    assert!(repo.scope().is_err());
    repo.set_scope(&[b"/".to_vec()]).unwrap();
    assert_eq!(repo.scope().unwrap(), None);
}
