//! A test repository.

use snap_core::{
    base::{id::CommitId, observe::Silent},
    disk::Disk,
    ops::commit::{self, CommitOptions, CommitSource},
    repo::{Config, Repo},
};
use tempfile::TempDir;

use super::page_request::NamedCommit;
use crate::{
    clock::Clock,
    repository::{Repository, RepositoryResources},
};

/// Creates a repository with two commits of a file `a`, the older one first. Dropping the returned
/// folder deletes the repository.
pub(super) fn two_commits() -> (TempDir, Repository, [NamedCommit; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let (store, files) = (folder.path().join("store"), folder.path().join("files"));
    Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
    let repo = Repo::open(&store, Disk::default(), &Silent).unwrap();
    fs_err::create_dir(&files).unwrap();
    let made = ["one", "two"].map(|text| -> CommitId {
        fs_err::write(files.join("a"), text).unwrap();
        let source = CommitSource::Folder(files.clone());
        commit::run(&repo, source, &CommitOptions::default(), &Silent).unwrap().id.unwrap()
    });
    let named = made.map(|id| {
        let commit = repo.store().commit(&id).unwrap();
        NamedCommit { rev: id.to_string(), id, commit }
    });
    let shared = RepositoryResources::new(Clock::manual());
    (folder, Repository::open("default", &store, &shared).unwrap(), named)
}
