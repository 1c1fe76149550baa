//! Pulls into a store that has deleted objects: the remote store still has them.

use std::{io::Read as _, sync::Arc, time::Duration};

use snap_core::{
    base::{id::CommitId, observe::Silent, time::Time},
    disk::scratch::unique_name,
    local::cut::identify_source,
    ops::{
        forget,
        gc::{self, GcOptions},
        rewrite::{self, RewriteOptions},
        verify::{self, Data, VerifyOptions},
    },
    repo::{RefError, RefLogMessage, Repo},
};
use snap_remote::{
    bucket::{Bucket, memory::MemoryBucket},
    peer::RemoteError,
    transfer::discard_received,
};
use snap_testkit::{leftovers::files_with, rng::Rng};

use crate::place::{Place, branch};

pub(crate) const MESSAGE: RefLogMessage<'_> =
    RefLogMessage { time: Time { secs: 1_800_000_000, nanos: 0 }, who: "ada", reason: "test" };

const LARGE: usize = 3 << 20;

fn noise(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; LARGE];
    rng.fill(&mut bytes);
    bytes
}

/// Deletes everything that no ref reaches.
pub(crate) fn collect(repo: &Repo) {
    let options = GcOptions {
        dry_run: false,
        undo: Duration::ZERO,
        undo_of_forget: Duration::ZERO,
        grace: Duration::ZERO,
        max_rewritten_bytes: None,
        present: Time { secs: 4_000_000_000, nanos: 0 },
    };
    gc::run(repo, &options, &Silent).unwrap();
}

fn verified(place: &Place) {
    let options = VerifyOptions { data: Data::All };
    let found = verify::run(&place.repo, &options, &Silent).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
}

fn has(place: &Place, content: &[u8]) -> bool {
    let (id, _) = identify_source(&mut content.take(u64::MAX), &|| false).unwrap();
    !place.repo.store().places(&id.object()).unwrap().is_empty()
}

/// A bucket with three commits on `main`, each with a content of its own, and another on `side`; the
/// store that pushed them, and a clone.
struct Setting {
    service: Arc<dyn Bucket>,
    ours: Place,
    theirs: Place,
    commits: Vec<CommitId>,
    contents: Vec<Vec<u8>>,
}

impl Setting {
    fn new(name: &str) -> Self {
        let service: Arc<dyn Bucket> = Arc::new(MemoryBucket::named(name));
        let (ours, theirs) = (Place::new(), Place::new());
        let mut rng = Rng::new(7);
        let contents: Vec<Vec<u8>> = (0..4).map(|_| noise(&mut rng)).collect();
        let mut commits = Vec::new();
        for (n, content) in contents[..3].iter().enumerate() {
            ours.write("common", format!("version {n}"));
            commits.push(ours.change("own", content));
            ours.push(&mut ours.remote(service.clone(), "remote"), commits[n]).unwrap();
        }
        let mut pulled = theirs.remote(service.clone(), "remote");
        assert_eq!(theirs.pull(&mut pulled, &branch("main")).unwrap(), commits[2]);
        let side = theirs.change("side", &contents[3]);
        let refs = vec![theirs.update("side", side)];
        theirs.push_all(&mut pulled, refs).unwrap().all_moved().unwrap();
        theirs.repo.refs().update(&branch("main"), Some(side), Some(commits[2]), &MESSAGE).unwrap();
        fs_err::remove_file(theirs.folder.path().join("files/side")).unwrap();
        Self { service, ours, theirs, commits, contents }
    }

    /// Pushes another commit from the clone, and pulls it.
    fn pull_another(&self) -> Result<CommitId, RemoteError> {
        self.theirs.write("own", &self.contents[2]);
        let new = self.theirs.change("common", "another version");
        let mut pushing = self.theirs.remote(self.service.clone(), "remote");
        self.theirs.push(&mut pushing, new).unwrap();
        self.ours.pull(&mut self.ours.remote(self.service.clone(), "remote"), &branch("main"))
    }
}

#[test]
fn a_store_that_was_collected_pulls_only_what_the_commit_needs() {
    let setting = Setting::new("pull_needed");
    // The store has begun an epoch once it has deleted something.
    let undone = setting.ours.change("own", b"undone");
    let refs = setting.ours.repo.refs();
    refs.update(&branch("main"), Some(undone), Some(setting.commits[2]), &MESSAGE).unwrap();
    collect(&setting.ours.repo);
    setting.pull_another().unwrap();
    assert!(!has(&setting.ours, &setting.contents[3]), "it is only in the branch `side`");
    verified(&setting.ours);
    // A pull of that branch takes it.
    let mut pulling = setting.ours.remote(setting.service.clone(), "remote");
    setting.ours.pull(&mut pulling, &branch("side")).unwrap();
    assert!(has(&setting.ours, &setting.contents[3]));
    verified(&setting.ours);
}

#[test]
fn a_pull_does_not_bring_forgotten_commits_back() {
    let setting = Setting::new("pull_forgotten");
    let old = setting.commits[..2].iter().copied().collect();
    assert_eq!(forget::run(&setting.ours.repo, &old, &MESSAGE, &Silent).unwrap(), 2);
    collect(&setting.ours.repo);
    assert!(!has(&setting.ours, &setting.contents[0]));
    setting.pull_another().unwrap();
    let store = setting.ours.repo.store();
    for (id, content) in setting.commits[..2].iter().zip(&setting.contents) {
        assert!(store.is_forgotten(id).unwrap() && !has(&setting.ours, content));
    }
    verified(&setting.ours);
}

#[test]
fn what_killed_pulls_received_can_be_discarded() {
    let setting = Setting::new("pull_discard");
    let store = setting.ours.repo.store();
    let cache = store.dir().join("cache");
    let spare = unique_name("receiving");
    for name in ["receiving", &spare, "receiving-of-the-user"] {
        fs_err::create_dir_all(cache.join(name).join("objects")).unwrap();
        fs_err::write(cache.join(name).join("objects/pack"), b"received").unwrap();
    }
    let left = || files_with(&cache, b"received").len();
    // A running pull holds a lock.
    let lock = fs_err::File::create(cache.join("receiving/lock")).unwrap();
    lock.file().lock().unwrap();
    discard_received(store).unwrap();
    assert_eq!(left(), 2);
    drop(lock);
    discard_received(store).unwrap();
    assert_eq!(left(), 1);
    discard_received(store).unwrap();
}

#[test]
fn a_pull_of_a_replaced_commit_receives_nothing() {
    let setting = Setting::new("pull_replaced");
    let options = RewriteOptions { patterns: vec!["own".to_owned()], ..Default::default() };
    rewrite::run(&setting.ours.repo, &options, &MESSAGE, &Silent).unwrap();
    collect(&setting.ours.repo);
    let start = &setting.contents[0][..64];
    assert!(files_with(setting.ours.repo.dir(), start).is_empty());
    // The remote still has the old commits, and another one on top of them.
    for _ in 0..2 {
        let refused = setting.pull_another().unwrap_err();
        let is_replaced = matches!(&refused, RemoteError::Ref(error)
            if matches!(**error, RefError::Replaced { .. }));
        assert!(is_replaced, "{refused}");
        assert!(files_with(setting.ours.repo.dir(), start).is_empty());
    }
    verified(&setting.ours);
}
