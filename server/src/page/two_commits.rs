//! A repository for tests.

use snap_core::{
    base::{id::CommitId, observe::Silent},
    disk::Disk,
    ops::commit::{self, Options, Source},
    repo::{Config, Repo},
};
use tempfile::TempDir;

use super::ask::Named;
use crate::repository::Repository;

/// One with two commits of a file `a`, which goes with the folder; the older one
/// comes first.
pub(super) fn two_commits() -> (TempDir, Repository, [Named; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let (store, files) = (folder.path().join("store"), folder.path().join("files"));
    Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
    let repo = Repo::open(&store, Disk::default(), &Silent).unwrap();
    fs_err::create_dir(&files).unwrap();
    let made = ["one", "two"].map(|text| -> CommitId {
        fs_err::write(files.join("a"), text).unwrap();
        let source = Source::Folder(files.clone());
        commit::run(&repo, source, &Options::default(), &Silent).unwrap().id.unwrap()
    });
    let named = made.map(|id| {
        let commit = repo.store().commit(&id).unwrap();
        Named { rev: id.to_string(), id, commit }
    });
    (folder, Repository::open("default", &store).unwrap(), named)
}
