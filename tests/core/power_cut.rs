//! A simulated power cut before each step that changes a store.
//!
//! The content of a file survives as of its last sync, and the names in a folder as of
//! its last sync. Later changes are all lost, or the names survive without the
//! contents, or each survives by chance: file systems do all of these. `tests/cli`
//! tests the same on a real file system.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::OsString,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use snap_core::{
    base::{id::CommitId, observe::Silent, time::Time},
    disk::{Disk, DiskStep, FaultDecision, FaultInjector},
    ops::{
        commit::{self, CommitSource},
        tidy,
    },
    repo::{RefLogMessage, RefName, Repo},
};
use snap_testkit::{bytes::Corpus, rng::Rng};

use crate::{
    bundle, elsewhere,
    scratch::{Scratch, check, on_branch, open_gated, options, refs, temporary},
};

/// The fate of changes that were not synced.
#[derive(Clone, Copy, Debug)]
enum Unsynced {
    Lost,
    NamesStay,
    ByChance,
}

const WAYS: [Unsynced; 4] =
    [Unsynced::Lost, Unsynced::NamesStay, Unsynced::ByChance, Unsynced::ByChance];

#[derive(Debug)]
struct Recorder {
    root: PathBuf,
    cuts: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<(DiskStep, PathBuf)>,
    /// Durable contents by inode.
    contents: HashMap<u64, Vec<u8>>,
    /// Durable names of folders by inode.
    names: HashMap<u64, BTreeMap<OsString, u64>>,
    folders: BTreeSet<u64>,
    made: Vec<(String, PathBuf)>,
    steps: usize,
}

impl FaultInjector for Recorder {
    fn decide(&self, step: DiskStep, path: &Path) -> FaultDecision {
        let mut state = self.state.lock();
        state.settle();
        self.cut(&mut state, &format!("before {step:?} of {}", path.display()));
        state.last = Some((step, path.to_owned()));
        FaultDecision::Go
    }
}

impl State {
    /// Records what the last step made durable.
    fn settle(&mut self) {
        match self.last.take() {
            Some((DiskStep::Sync, path)) => {
                let inode = fs_err::metadata(&path).unwrap().ino();
                self.contents.insert(inode, fs_err::read(&path).unwrap());
            }
            Some((DiskStep::SyncFolder, path)) => self.sync_folder(&path),
            _ => {}
        }
    }

    fn sync_folder(&mut self, path: &Path) {
        let names = listing(path, &mut self.folders);
        let inode = fs_err::metadata(path).unwrap().ino();
        self.folders.insert(inode);
        self.names.insert(inode, names);
    }

    fn sync_all(&mut self, root: &Path) {
        for entry in walkdir::WalkDir::new(root) {
            let entry = entry.unwrap();
            if entry.file_type().is_dir() {
                self.sync_folder(entry.path());
            } else {
                let inode = entry.metadata().unwrap().ino();
                self.contents.insert(inode, fs_err::read(entry.path()).unwrap());
            }
        }
    }
}

fn listing(path: &Path, folders: &mut BTreeSet<u64>) -> BTreeMap<OsString, u64> {
    let entries = fs_err::read_dir(path).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let stat = fs_err::symlink_metadata(entry.path()).unwrap();
        if stat.is_dir() {
            folders.insert(stat.ino());
        }
        (entry.file_name(), stat.ino())
    });
    entries.collect()
}

impl Recorder {
    fn new(root: &Path, cuts: &Path) -> Arc<Self> {
        let mut state = State::default();
        state.sync_all(root);
        let (root, cuts) = (root.to_owned(), cuts.to_owned());
        Arc::new(Self { root, cuts, state: Mutex::new(state) })
    }

    /// Writes the state after a power cut at this point, in each variant.
    fn cut(&self, state: &mut State, told: &str) {
        state.steps += 1;
        let mut now = HashMap::new();
        for entry in walkdir::WalkDir::new(&self.root) {
            let entry = entry.unwrap();
            now.insert(entry.metadata().unwrap().ino(), entry.path().to_owned());
        }
        let root = fs_err::metadata(&self.root).unwrap().ino();
        for (number, way) in WAYS.into_iter().enumerate() {
            let dir = self.cuts.join(format!("{}-{number}", state.steps));
            let mut rng = Rng::new((state.steps * WAYS.len() + number) as u64);
            write_cut(state, &now, root, &dir, &mut |is_name| match way {
                Unsynced::Lost => false,
                Unsynced::NamesStay => is_name,
                Unsynced::ByChance => rng.below(2) == 0,
            });
            state.made.push((format!("{told}, unsynced {way:?}"), dir));
        }
    }

    /// Ends the recording with a power cut after the last step.
    fn finish(&self) -> Vec<(String, PathBuf)> {
        let mut state = self.state.lock();
        state.settle();
        self.cut(&mut state, "at the end");
        std::mem::take(&mut state.made)
    }
}

/// Writes the folder with this inode as it is after the power cut. `keep` returns true
/// if an unsynced change survives: of a name (`true`) or a content (`false`).
fn write_cut(
    state: &mut State,
    now: &HashMap<u64, PathBuf>,
    inode: u64,
    to: &Path,
    keep: &mut dyn FnMut(bool) -> bool,
) {
    fs_err::create_dir(to).unwrap();
    let durable = state.names.get(&inode).cloned().unwrap_or_default();
    let present = now.get(&inode).filter(|path| path.is_dir());
    let present = present.map(|path| listing(path, &mut state.folders)).unwrap_or_default();
    let all: BTreeSet<&OsString> = durable.keys().chain(present.keys()).collect();
    for name in all {
        let (old, new) = (durable.get(name), present.get(name));
        let chosen = if old == new || !keep(true) { old } else { new };
        let Some(&chosen) = chosen else { continue };
        let to = to.join(name);
        if state.folders.contains(&chosen) {
            write_cut(state, now, chosen, &to, keep);
            continue;
        }
        let durable = state.contents.get(&chosen).cloned().unwrap_or_default();
        let present = now.get(&chosen).map(|path| fs_err::read(path).unwrap());
        let content = match present {
            Some(present) if present != durable && keep(false) => present,
            _ => durable,
        };
        fs_err::write(to, content).unwrap();
    }
}

/// Runs `act` with a power cut before each of its steps.
#[track_caller]
fn cut_each_step(scratch: &Scratch, act: &dyn Fn(&Repo) -> Result<(), String>) {
    let before = refs(&scratch.repo());
    let commits = check(&scratch.repo()).unwrap();
    let cuts = temporary();
    let recorder = Recorder::new(&scratch.store(), cuts.path());
    let repo = open_gated(&scratch.store(), Arc::clone(&recorder) as Arc<dyn FaultInjector>);
    act(&repo).unwrap();
    let made = recorder.finish();
    let after = refs(&scratch.repo());
    assert!(made.len() > 4 * WAYS.len());
    let last = made.len() - WAYS.len();
    for (number, (told, dir)) in made.iter().enumerate() {
        let (refs, have) = after_power(dir).unwrap_or_else(|error| panic!("{told}: {error}"));
        if number >= last {
            assert_eq!(refs, after, "{told}: an acknowledged commit is missing");
        }
        for (name, id) in &before {
            let stands = refs.iter().find(|(have, _)| have == name).map(|(_, id)| *id);
            let new = after.iter().find(|(have, _)| have == name).map(|(_, id)| *id);
            assert!(stands == Some(*id) || stands == new, "{told}: {name} is at {stands:?}");
        }
        assert!(have >= commits, "{told}");
    }
}

/// Opens a store after a power cut, reads all of it, and commits to it.
fn after_power(dir: &Path) -> Result<(Vec<(String, CommitId)>, usize), String> {
    let open = || Repo::open(dir, Disk::default(), &Silent).map_err(|error| format!("{error:?}"));
    let repo = open()?;
    let found = (refs(&repo), check(&repo)?);
    let source = temporary();
    fs_err::write(source.path().join("next"), "next").unwrap();
    let next = CommitSource::Folder(source.path().to_owned());
    commit::run(&repo, next, &on_branch("next"), &Silent).map_err(|error| format!("{error:?}"))?;
    check(&open()?)?;
    Ok(found)
}

fn commit_source(scratch: &Scratch) -> impl Fn(&Repo) -> Result<(), String> {
    let source = scratch.source();
    move |repo| {
        let done = commit::run(repo, CommitSource::Folder(source.clone()), &options(), &Silent);
        done.map(drop).map_err(|error| error.to_string())
    }
}

#[test]
fn a_commit_survives_a_power_cut_at_each_step() {
    let scratch = Scratch::new();
    scratch.write("kept", Corpus::Text.make(10_000));
    for n in 0..4 {
        cut_each_step(&scratch, &commit_source(&scratch));
        scratch.write(&format!("folder/{n}"), format!("content of {n}"));
    }
}

#[test]
fn merging_packs_survives_a_power_cut_at_each_step() {
    let scratch = Scratch::new();
    for n in 0..9 {
        scratch.write(&format!("{n}"), format!("content of {n}"));
        scratch.commit();
    }
    cut_each_step(&scratch, &|repo| {
        let outcome = tidy::run(repo, &Silent).map_err(|error| error.to_string())?;
        assert!(outcome.merged >= 8);
        Ok(())
    });
}

#[test]
fn completing_packs_survives_a_power_cut_at_each_step() {
    let (from, commits) = bundle::history();
    let to = Scratch::new();
    to.write("own", "own");
    to.commit();
    cut_each_step(&to, &|repo| elsewhere::pull(&from, commits[2], repo));
}

#[test]
fn an_acknowledged_stub_survives_a_power_cut() {
    let (from, commits) = bundle::history();
    let (scratch, cuts) = (Scratch::new(), temporary());
    let recorder = Recorder::new(&scratch.store(), cuts.path());
    let repo = open_gated(&scratch.store(), Arc::clone(&recorder) as Arc<dyn FaultInjector>);
    elsewhere::stub(from.repo().store(), &repo, commits[2]);
    let made = recorder.finish();
    let packs = from.repo().store().packs();
    for (number, (told, dir)) in made.iter().enumerate() {
        let repo = Repo::open(dir, Disk::default(), &Silent).unwrap();
        assert_eq!(repo.store().unreadable_packs().len(), 0, "{told}");
        if number >= made.len() - WAYS.len() {
            assert_eq!(repo.store().partial_packs(), packs, "{told}");
        }
        // The commit of a ref is known, although it lies elsewhere.
        for (name, id) in refs(&repo) {
            assert!(repo.store().locate(&id.object()).unwrap().is_some(), "{told}: {name}");
        }
    }
}

#[test]
fn refs_survive_a_power_cut_at_each_step() {
    let scratch = Scratch::new();
    scratch.write("a", "a");
    let id = scratch.commit().id.unwrap();
    let change = RefLogMessage { time: Time { secs: 1, nanos: 0 }, who: "Ann", reason: "test" };
    cut_each_step(&scratch, &|repo| {
        let refs = repo.refs();
        let names = [RefName::branch("a/b/c").unwrap(), RefName::tag("v1").unwrap()];
        let made = names.iter().try_for_each(|name| refs.update(name, None, Some(id), &change));
        made.map_err(|error| error.to_string())
    });
}

#[test]
fn creating_refs_together_survives_power_cuts() {
    let scratch = Scratch::new();
    scratch.write("a", "a");
    let id = scratch.commit().id.unwrap();
    let change = RefLogMessage { time: Time { secs: 1, nanos: 0 }, who: "Ann", reason: "test" };
    let branches = ["x", "a/b/c", "a/b/d"].map(|name| RefName::branch(name).unwrap());
    let tags = ["v1", "v2"].map(|name| RefName::tag(name).unwrap());
    let refs: Vec<_> = branches.into_iter().chain(tags).map(|name| (name, id)).collect();
    cut_each_step(&scratch, &|repo| {
        repo.refs().create_all(&refs, &change).map_err(|error| error.to_string())
    });
}

#[test]
fn the_simulated_power_cut_loses_unsynced_writes() {
    let dir = temporary();
    let (root, cuts) = (dir.path().join("root"), temporary());
    fs_err::create_dir(&root).unwrap();
    let recorder = Recorder::new(&root, cuts.path());
    let disk = Disk::with_fault_injector(Arc::clone(&recorder) as Arc<dyn FaultInjector>);
    let mut file = disk.create(&root.join("t")).unwrap();
    file.write(b"content").unwrap();
    disk.replace(&root.join("t"), &root.join("unsynced content")).unwrap();
    let mut file = disk.create(&root.join("u")).unwrap();
    file.write(b"content").unwrap();
    file.sync().unwrap();
    disk.sync_folder(&root).unwrap();
    disk.replace(&root.join("u"), &root.join("unsynced name")).unwrap();
    let made = recorder.finish();
    let [lost, stays, ..] = &made[made.len() - WAYS.len()..] else { panic!() };
    let read = |dir: &Path, name: &str| fs_err::read(dir.join(name)).ok();
    assert_eq!(read(&lost.1, "unsynced content"), Some(Vec::new()));
    assert_eq!(read(&lost.1, "unsynced name"), None);
    assert_eq!(read(&lost.1, "u"), Some(b"content".to_vec()));
    assert_eq!(read(&stays.1, "unsynced content"), Some(Vec::new()));
    assert_eq!(read(&stays.1, "unsynced name"), Some(b"content".to_vec()));
}
