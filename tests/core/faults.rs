//! Each step that changes a store fails once, writes only a part, finds the disk full,
//! or is the last one. Afterwards no acknowledged commit is lost, all listed commits
//! can be read, and the next commit succeeds.

use std::{
    cell::Cell,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use snap_core::{
    base::{id::CommitId, kind::ErrorKind, observe::Silent, time::Time},
    disk::{Disk, DiskStep, FaultDecision, FaultInjector},
    ops::{
        commit::{self, CommitSource},
        tidy,
    },
    repo::{Config, Head, RefLogMessage, RefName, Repo},
};
use snap_testkit::bytes::Corpus;

use crate::{
    bundle::{history, packed, taken},
    elsewhere,
    scratch::{Scratch, check, copy, on_branch, open, open_gated, options, refs, temporary},
};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Nothing,
    /// One step fails.
    Once,
    /// One write stops half-way. Any other step just fails.
    Short,
    /// From one step on, the disk is full.
    Full,
    /// From one step on, no step is executed.
    Crash,
}

pub(crate) const PLANS: [Plan; 4] = [Plan::Once, Plan::Short, Plan::Full, Plan::Crash];

#[derive(Debug)]
pub(crate) struct Fault {
    plan: Plan,
    at: usize,
    count: AtomicUsize,
    pub(crate) steps: Mutex<Vec<DiskStep>>,
}

impl Fault {
    pub(crate) fn new(plan: Plan, at: usize) -> Arc<Self> {
        Arc::new(Self { plan, at, count: AtomicUsize::new(0), steps: Mutex::default() })
    }
}

impl FaultInjector for Fault {
    fn decide(&self, step: DiskStep, _: &Path) -> FaultDecision {
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        self.steps.lock().push(step);
        let grows = matches!(step, DiskStep::Create | DiskStep::Write { .. });
        let fails = match self.plan {
            Plan::Nothing => false,
            Plan::Once | Plan::Short => number == self.at,
            Plan::Full => number >= self.at && grows,
            Plan::Crash => number >= self.at,
        };
        if !fails {
            return FaultDecision::Go;
        }
        let errno = if self.plan == Plan::Full { 28 } else { 5 };
        let error = io::Error::from_raw_os_error(errno);
        match step {
            DiskStep::Write { bytes } if number == self.at && self.plan != Plan::Once => {
                FaultDecision::Short(bytes / 2, error)
            }
            _ => FaultDecision::Fail(error),
        }
    }
}

/// Changes a store while its steps fail.
type Act<'a> = &'a dyn Fn(&Repo) -> Result<(), String>;

/// Runs `act` on copies of the store, with each step failing in each way.
#[track_caller]
fn fail_each_step(scratch: &Scratch, act: Act<'_>, at: &dyn Fn(usize) -> bool) {
    let before = refs(&scratch.repo());
    let commits = check(&scratch.repo()).unwrap();
    let whole = run(scratch, act, Plan::Nothing, 0);
    assert_eq!(whole.result, Ok(()));
    assert!(whole.steps.len() > 4, "{:?}", whole.steps);
    let mut failures = 0;
    for number in (0..whole.steps.len()).filter(|number| at(*number)) {
        for plan in PLANS {
            let run = run(scratch, act, plan, number);
            let told = format!("{plan:?} at step {number}, {:?}", whole.steps[number]);
            failures += usize::from(run.result.is_err());
            if run.result.is_ok() {
                assert_eq!(run.refs, whole.refs, "{told}: an acknowledged commit is missing");
            }
            for (name, id) in &run.refs {
                let known = before.contains(&(name.clone(), *id))
                    || whole.refs.contains(&(name.clone(), *id));
                assert!(known, "{told}: {name} is at {id:?}");
            }
            let lost = before.iter().find(|(name, _)| {
                whole.refs.iter().any(|(have, _)| have == name)
                    && !run.refs.iter().any(|(have, _)| have == name)
            });
            assert_eq!(lost, None, "{told}");
            assert!(
                run.commits.as_ref().is_ok_and(|have| *have >= commits),
                "{told}: {:?}",
                run.commits
            );
            assert_eq!(run.next, Ok(()), "{told}");
        }
    }
    assert!(failures > 0, "no injected fault made a step fail");
}

struct Run {
    result: Result<(), String>,
    steps: Vec<DiskStep>,
    refs: Vec<(String, CommitId)>,
    commits: Result<usize, String>,
    next: Result<(), String>,
}

fn run(scratch: &Scratch, act: Act<'_>, plan: Plan, at: usize) -> Run {
    let dir = temporary();
    let store = dir.path().join("store");
    copy(&scratch.store(), &store);
    let fault = Fault::new(plan, at);
    let result = act(&open_gated(&store, Arc::clone(&fault) as Arc<dyn FaultInjector>));
    let steps = std::mem::take(&mut *fault.steps.lock());

    let repo = open(&store);
    let (refs, commits) = (refs(&repo), check(&repo));
    let source = dir.path().join("next");
    fs_err::create_dir(&source).unwrap();
    fs_err::write(source.join("next"), "what comes next").unwrap();
    let next = commit::run(&repo, CommitSource::Folder(source), &on_branch("next"), &Silent);
    let next = next.map_err(|error| error.to_string()).and_then(|_| check(&open(&store)).map(drop));
    Run { result, steps, refs, commits, next }
}

fn commit_source(scratch: &Scratch) -> impl Fn(&Repo) -> Result<(), String> {
    let source = scratch.source();
    move |repo| {
        let done = commit::run(repo, CommitSource::Folder(source.clone()), &options(), &Silent);
        done.map(drop).map_err(|error| error.to_string())
    }
}

fn every(_: usize) -> bool {
    true
}

#[test]
fn a_first_commit_survives_a_fault_at_each_step() {
    let scratch = Scratch::new();
    scratch.write("a", "content of a");
    scratch.write("folder/b", Corpus::Text.make(10_000));
    fail_each_step(&scratch, &commit_source(&scratch), &every);
}

#[test]
fn a_later_commit_survives_a_fault_at_each_step() {
    let scratch = Scratch::new();
    scratch.write("kept", Corpus::Text.make(10_000));
    for n in 0..5 {
        scratch.write(&format!("folder/{n}"), format!("content of {n}"));
        scratch.commit();
    }
    scratch.write("kept", Corpus::Text.make(11_000));
    scratch.write("fresh", "fresh");
    fail_each_step(&scratch, &commit_source(&scratch), &every);
}

#[test]
fn a_commit_of_several_packs_survives_faults() {
    let scratch = Scratch::new();
    scratch.write("before", "before");
    scratch.commit();
    for n in 0..67 {
        scratch.write(&format!("{n:02}"), Corpus::Random.make_seeded(1 << 20, n));
    }
    let whole = run(&scratch, &commit_source(&scratch), Plan::Nothing, 0);
    let syncs = whole.steps.iter().filter(|step| matches!(step, DiskStep::Sync)).count();
    assert!(syncs >= 4, "two packs, a log and a ref are synced, not {syncs}");
    // Fail the steps around the end of the first pack, and a sample of the others.
    let sync = whole.steps.iter().position(|step| matches!(step, DiskStep::Sync)).unwrap();
    let chosen = |number: usize| number.abs_diff(sync) <= 1 || number % 23 == 5;
    fail_each_step(&scratch, &commit_source(&scratch), &chosen);
}

#[test]
fn merging_packs_survives_a_fault_at_each_step() {
    let scratch = Scratch::new();
    for n in 0..9 {
        scratch.write(&format!("{n}"), format!("content of {n}"));
        scratch.commit();
    }
    let (is_first, skips) = (Cell::new(true), Cell::new(0));
    let act = |repo: &Repo| match tidy::run(repo, &Silent) {
        Ok(outcome) => {
            // Without a fault everything is merged. Where the list of trusted packs can be
            // neither written nor removed, nothing is.
            let is_skipped = !is_first.get() && outcome.merged == 0;
            assert!(is_skipped || outcome.merged >= 8, "{outcome:?}");
            is_first.set(false);
            skips.set(skips.get() + usize::from(is_skipped));
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    };
    fail_each_step(&scratch, &act, &every);
    // Any other fault is an error, or everything is merged all the same.
    assert_eq!(skips.get(), 3);
}

#[test]
fn unpacking_survives_a_fault_at_each_step() {
    let (from, commits) = history();
    // In one store all objects are new and packs are moved. In the other store some
    // objects exist and frames are copied.
    let bundle = packed(from.repo().store(), commits[2], &[]);
    let act = |repo: &Repo| {
        let outcome = taken(repo.store(), &bundle);
        let commit = outcome.map_err(|error| error.to_string())?.commit;
        let (name, old) = (RefName::branch("unpacked").unwrap(), None);
        let change = RefLogMessage { time: Time { secs: 1, nanos: 0 }, who: "Ann", reason: "test" };
        let moved = repo.refs().update(&name, old, Some(commit), &change);
        moved.map_err(|error| error.to_string())
    };
    let to = Scratch::new();
    fail_each_step(&to, &act, &every);
    to.write("large", Corpus::Random.make(3 << 20));
    to.commit();
    fail_each_step(&to, &act, &every);
}

#[test]
fn filling_partial_packs_survives_a_fault_at_each_step() {
    let (from, commits) = history();
    let to = Scratch::new();
    to.write("own", "own");
    to.commit();
    fail_each_step(&to, &|repo| elsewhere::pull(&from, commits[2], repo), &every);
}

#[test]
fn moving_refs_survives_a_fault_at_each_step() {
    let scratch = Scratch::new();
    scratch.write("a", "a");
    let first = scratch.commit().id.unwrap();
    let (main, deep, tag) = (
        RefName::branch("main").unwrap(),
        RefName::branch("deep/er/branch").unwrap(),
        RefName::tag("v1").unwrap(),
    );
    let old = RefName::branch("old").unwrap();
    let change = RefLogMessage { time: Time { secs: 1, nanos: 0 }, who: "Ann", reason: "test" };
    scratch.repo().refs().update(&old, None, Some(first), &change).unwrap();
    let act = |repo: &Repo| {
        let refs = repo.refs();
        refs.update(&deep, None, Some(first), &change)?;
        refs.update(&tag, None, Some(first), &change)?;
        refs.set_head(&Head::Branch(main.clone()), &Head::Branch(deep.clone()), &change)?;
        refs.update(&old, Some(first), None, &change)
    };
    let act = |repo: &Repo| act(repo).map_err(|error: snap_core::repo::RefError| error.to_string());
    fail_each_step(&scratch, &act, &every);
}

#[test]
fn a_failed_init_can_be_repeated() {
    let make = |dir: &Path, plan, at| {
        let fault = Fault::new(plan, at);
        let disk = Disk::with_fault_injector(Arc::clone(&fault) as Arc<dyn FaultInjector>);
        let made = Repo::init(dir, &disk, &Config::default());
        (made.map_err(|error| error.to_string()), fault.steps.lock().len())
    };
    let dir = temporary();
    let (made, steps) = make(&dir.path().join("whole"), Plan::Nothing, 0);
    assert_eq!(made, Ok(()));
    for number in 0..steps {
        for plan in PLANS {
            let store = dir.path().join(format!("{plan:?}-{number}"));
            let made = make(&store, plan, number).0;
            if made.is_err() && Repo::open(&store, Disk::default(), &Silent).is_err() {
                Repo::init(&store, &Disk::default(), &Config::default())
                    .unwrap_or_else(|error| panic!("{plan:?} at step {number}: {error}"));
            }
            let repo = open(&store);
            let source = dir.path().join("source");
            fs_err::create_dir_all(&source).unwrap();
            commit::run(&repo, CommitSource::Folder(source), &options(), &Silent).unwrap();
            assert_eq!(check(&open(&store)), Ok(1));
        }
    }
}

/// A file system that cannot sync folders.
#[derive(Debug)]
struct NoFolderSync(i32);

impl FaultInjector for NoFolderSync {
    fn decide(&self, step: DiskStep, _: &Path) -> FaultDecision {
        match step {
            DiskStep::SyncFolder => FaultDecision::Fail(io::Error::from_raw_os_error(self.0)),
            _ => FaultDecision::Go,
        }
    }
}

#[test]
fn a_file_system_without_folder_sync_is_supported() {
    let (from, commits) = history();
    let bundle = packed(from.repo().store(), commits[2], &[]);
    // EINVAL, EOPNOTSUPP; EIO means a failing disk.
    for (errno, is_fine) in [(22, true), (95, true), (5, false)] {
        let scratch = Scratch::new();
        scratch.write("file", "content");
        let repo = open_gated(&scratch.store(), Arc::new(NoFolderSync(errno)));
        let source = CommitSource::Folder(scratch.source());
        let committed = commit::run(&repo, source, &options(), &Silent);
        assert_eq!(committed.is_ok(), is_fine, "{errno}");
        assert_eq!(taken(repo.store(), &bundle).is_ok(), is_fine, "{errno}");
        if is_fine {
            scratch.assert_restores(committed.unwrap().id.unwrap());
        } else {
            assert_ne!(committed.unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
