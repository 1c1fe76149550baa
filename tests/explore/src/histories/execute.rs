//! Runs the steps of a history, and checks each.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Child, Command},
};

use fs_err as fs;
use rustix::process::{Signal, kill_process};

use crate::{
    histories::{
        held,
        mark::{Contents, Pending, is_complete, mark, refs},
        model::{Files, Model, Value, is_over, matched},
        operation::{Call, Op, PEER, PLACES, Place, REMOTES, filling},
    },
    sandbox::{Ran, Sandbox},
    search::{Failure, Fault},
    sequences::{files, model::Id},
    steps::{Stop, await_halt, pid, stop_at},
};

/// The beginning of 2030, at which the clock starts. All packs are older than `gc.grace` then, so that
/// only refs keep what a collection must not delete.
const YEAR_2030_SECS: i64 = 1_893_456_000;

const HOUR_SECS: i64 = 3600;

/// A history that is being executed.
struct Execution {
    sandbox: Sandbox,
    model: Model,
    contents: Contents,
    pending: Pending,
    /// Number of operations and commands so far.
    step: u64,
    /// Number of commits, for their messages.
    commits: u64,
    /// True while a command is halted.
    is_held: bool,
}

/// A command that runs.
struct Started {
    call: Call,
    child: Child,
    secs: i64,
    /// The message of a commit.
    message: Option<String>,
    /// The refs of the store before, and of the remote that it changes.
    before: [BTreeMap<String, Id>; 2],
    /// The contents in the files of the remote before.
    inside: BTreeSet<u64>,
}

/// Runs a history.
pub(crate) fn run(program: &Path, jobs: Option<u32>, ops: &[Op]) -> Result<(), Failure> {
    let mut execution = Execution {
        sandbox: Sandbox::new(program, jobs, YEAR_2030_SECS).unwrap(),
        model: Model::default(),
        contents: Contents::new(),
        pending: Pending::default(),
        step: 0,
        commits: 0,
        is_held: false,
    };
    fs::create_dir(execution.folder("a")).unwrap();
    for (number, op) in ops.iter().enumerate() {
        execution.step += 1;
        execution.run_op(op).map_err(|fault| (number, fault))?;
    }
    execution.conclude().map_err(|fault| (ops.len().saturating_sub(1), fault))
}

impl Execution {
    fn folder(&self, name: &str) -> PathBuf {
        self.sandbox.path().join(name)
    }

    /// Returns the folder of the store of a place or a remote.
    fn store(&self, name: &str) -> PathBuf {
        let folder = self.folder(name);
        if REMOTES.contains(&name) { folder } else { folder.join(".snap") }
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.folder(if name == PEER { "a" } else { name }).display())
    }

    fn run_op(&mut self, op: &Op) -> Result<(), Fault> {
        match op {
            Op::Write(place, path, number) => {
                // A place that does not exist yet has no files.
                if self.folder(place).is_dir() {
                    files::write(&self.folder(place).join(path), filling(*number)).unwrap();
                }
                Ok(())
            }
            Op::Remove(place, path) => {
                let _ = fs::remove_file(self.folder(place).join(path));
                Ok(())
            }
            Op::Wait(hours) => {
                self.sandbox.wait(hours * HOUR_SECS);
                Ok(())
            }
            Op::Run(call) => {
                let Some(mut command) = self.command(call) else { return Ok(()) };
                let started = self.start(call, &mut command);
                self.end(started, false, |child| child.wait_with_output().unwrap().into())
            }
            Op::Hold { call, step, beside, kill } => self.hold(call, *step, beside, *kill),
        }
    }

    fn hold(&mut self, call: &Call, step: u64, beside: &[Call], kill: bool) -> Result<(), Fault> {
        let Some(mut command) = self.command(call) else { return Ok(()) };
        let held = self.start(call, stop_at(&mut command, step, Stop::Halt));
        self.is_held = await_halt(&held.child);
        let ran = self.run_beside(&held, beside);
        let was_killed = self.is_held && (kill || ran.is_err());
        if self.is_held {
            let signal = if was_killed { Signal::KILL } else { Signal::CONT };
            kill_process(pid(&held.child), signal).unwrap();
        }
        self.is_held = false;
        let ended = self.end(held, true, |child| child.wait_with_output().unwrap().into());
        match ended {
            Err(fault) if was_killed && fault.kind == KILLED => ran,
            ended => ran.and(ended),
        }
    }

    /// Runs commands while another one is halted. If one of them waits for it, it continues.
    fn run_beside(&mut self, held: &Started, beside: &[Call]) -> Result<(), Fault> {
        // It may have moved refs before it halted.
        for name in [Some(held.call.place), held.call.remote()].into_iter().flatten() {
            self.mark(name)?;
        }
        for other in beside {
            let Some(mut command) = self.command(other) else { continue };
            let started = self.start(other, &mut command);
            let (was_held, mut is_held) = (self.is_held, self.is_held);
            let go_on = || {
                kill_process(pid(&held.child), Signal::CONT).unwrap();
                is_held = false;
            };
            let wait = |child: Child| match was_held {
                true => held::finish(child, &held.child, go_on).into(),
                false => child.wait_with_output().unwrap().into(),
            };
            let ended = self.end(started, was_held, wait);
            self.is_held = is_held;
            ended?;
            if let (Some(message), true) = (&held.message, other.place == held.call.place) {
                self.note_pending(held.call.place, message.clone());
            }
        }
        Ok(())
    }

    /// Makes the command of a call; `None` if its place does not exist.
    fn command(&mut self, call: &Call) -> Option<Command> {
        let folder = self.folder(call.place);
        if call.is("clone") {
            let can = !folder.exists() && self.folder("origin").exists();
            let mut command = self.sandbox.command(self.sandbox.path());
            command.args(&call.words).arg(self.url("origin")).arg(call.place);
            return can.then_some(command);
        }
        if !folder.is_dir() {
            return None;
        }
        let mut command = self.sandbox.command(&folder);
        command.args(&call.words);
        if call.words.starts_with(&["remote".to_owned(), "add".to_owned()]) {
            command.arg(self.url(call.words.last()?));
        }
        Some(command)
    }

    fn start(&mut self, call: &Call, command: &mut Command) -> Started {
        self.step += 1;
        let message = call.is("commit").then(|| {
            self.commits += 1;
            format!("commit {}", self.commits)
        });
        if let Some(message) = &message {
            command.args(["-m", message]);
            self.note_pending(call.place, message.clone());
        }
        if let Some(pattern) = call.excludes() {
            let purge = self.model.purge(pattern, self.step);
            self.model.patterns.insert(pattern.to_owned());
            self.model.store(call.place).purges.push(purge);
        }
        let secs = self.sandbox.secs() - 1;
        self.lapse(call, secs);
        let remote = call.remote().map(|name| self.store(name));
        let inside = remote.as_deref().map(Contents::inside).unwrap_or_default();
        let before =
            [refs(&self.store(call.place)), remote.as_deref().map(refs).unwrap_or_default()];
        let child = command.spawn().unwrap();
        Started { call: call.clone(), child, secs, message, before, inside }
    }

    /// Removes what a collection may delete from the commits that must stay.
    fn lapse(&mut self, call: &Call, secs: i64) {
        let Some(name) = call.collects() else { return };
        if !self.model.stores.contains_key(name) {
            return;
        }
        // Another command may have moved refs since the last mark.
        let (refs, step) = (refs(&self.store(name)), self.step);
        self.model.store(name).moved(&refs, step, secs);
        let is_remote = name != call.place;
        let by = self.model.stores[call.place].forgotten.iter();
        let by = by.filter(|(_, since)| call.has("--now") || is_over(**since, secs));
        let mut going: BTreeSet<Id> = by.map(|(id, _)| id.clone()).collect();
        if is_remote {
            going.retain(|_| call.has("--forgotten"));
            let store = self.model.store(name);
            let tips: BTreeSet<Id> = store.tips().into_iter().cloned().collect();
            store.dismissed.extend(going.difference(&tips).cloned());
            going = store.dismissed.clone();
        }
        let store = &self.model.stores[name];
        let kept = self.model.kept(store, |id| going.contains(id), is_remote, secs);
        let store = self.model.store(name);
        store.going.extend(store.whole.difference(&kept).cloned());
        store.whole = kept;
    }

    /// Notes the files of a place as those of a commit.
    fn note_pending(&mut self, place: Place, message: String) {
        let Some(mut files) = self.on_disk(place) else { return };
        if place == "partial" {
            let head = fs::read_to_string(self.store(place).join("HEAD")).unwrap_or_default();
            let branch = head.trim().trim_start_matches("ref: ");
            let tip = self.model.store(place).at(branch).cloned();
            let tip = tip.and_then(|tip| self.model.commits.get(&tip));
            let others = tip.into_iter().flat_map(|commit| commit.files.clone());
            files.extend(others.filter(|(path, _)| !path.starts_with("d/")));
        }
        self.pending.entry(message).or_default().push(files);
    }

    fn on_disk(&self, place: Place) -> Option<Files> {
        let mut tree = files::observe(&self.folder(place)).unwrap();
        // A killed restore leaves drafts, which no commit takes.
        tree.retain(|path, _| !path.rsplit('/').next().unwrap_or(path).starts_with(".snap-tmp-"));
        self.contents.files(&tree)
    }

    /// Waits for the end of a command, and checks it and what it changed.
    fn end(
        &mut self,
        started: Started,
        is_beside: bool,
        wait: impl FnOnce(Child) -> Ran,
    ) -> Result<(), Fault> {
        let Started { call, child, secs, message, before, inside } = started;
        let ran = wait(child);
        if let (Some(message), true) = (&message, is_beside) {
            // It may have waited for a command that has changed the files.
            self.note_pending(call.place, message.clone());
        }
        let told = || format!("{call}\n{}", ran.told());
        self.lapse(&call, secs);
        if let Some(id) = ran.id().filter(|_| call.is("unpack") && ran.code == Some(0)) {
            let store = self.model.store(call.place);
            let (name, until_secs) = (String::new(), Some(secs));
            let value = Value { name, id, since_step: self.step, until_secs };
            store.values.push(value);
        }
        for name in [Some(call.place), call.remote()].into_iter().flatten() {
            self.mark(name)?;
        }
        if let Some(name) = call.collects() {
            self.model.store(name).going.clear();
        }
        if call.is("push") && call.has(PEER) {
            // A push into a project records the time of the system, which is long before the clock of
            // the test. So what its refs had before may go at once.
            for value in &mut self.model.store("a").values {
                value.until_secs =
                    value.until_secs.map(|until| if until < secs { until } else { 0 });
            }
        }
        match ran.code {
            None => return Err(Fault::new(KILLED, told())),
            Some(4) => return Err(Fault::new("a command reports damage", told())),
            Some(0..=3) => {}
            Some(_) => return Err(Fault::new("a command fails in an unexpected way", told())),
        }
        if call.excludes().is_some() {
            self.note_removed(&call, &before[0]);
        }
        if let (Some(message), Some(0), false) = (message, ran.code, is_beside || self.is_held) {
            self.check_commit(&call, &ran, &message)?;
        }
        if call.collects().is_some() && ran.code == Some(0) && !is_beside && !self.is_held {
            self.check_removed(&call)?;
        }
        if let (Some(remote), true) =
            (call.remote(), call.is("push") && !is_beside && !self.is_held)
        {
            let dir = self.store(remote);
            let new: Vec<u64> = Contents::inside(&dir).difference(&inside).copied().collect();
            if refs(&dir) == before[1] && !new.is_empty() {
                let detail = format!("{}\n{remote} got the contents {new:?}", told());
                return Err(Fault::new("a push that moves nothing sends contents", detail));
            }
        }
        if call.is("gc") && !self.is_held {
            self.verify(call.place, "verify")?;
        }
        Ok(())
    }

    fn mark(&mut self, name: &'static str) -> Result<(), Fault> {
        let (dir, now) = (self.store(name), (self.step, self.sandbox.secs()));
        mark(&mut self.model, (name, &dir), &self.contents, &self.pending, now)
    }

    /// Checks that an acknowledged commit has the files of its folder.
    fn check_commit(&mut self, call: &Call, ran: &Ran, message: &str) -> Result<(), Fault> {
        let id =
            ran.id().ok_or_else(|| Fault::new("a commit succeeds without an id", ran.told()))?;
        let files = self.pending[message].last();
        match self.model.commits.get(&id) {
            Some(commit) if Some(&commit.files) == files => Ok(()),
            found => {
                let detail = format!("{call}: {found:?}, not {files:?}");
                Err(Fault::new("an acknowledged commit has other files than its folder", detail))
            }
        }
    }

    /// Notes which contents a rewrite has removed: those that the moved refs reached before.
    fn note_removed(&mut self, call: &Call, before: &BTreeMap<String, Id>) {
        let after = refs(&self.store(call.place));
        let moved = before.iter().filter(|(name, id)| after.get(*name).is_some_and(|to| to != *id));
        let moved: Vec<&Id> = moved.map(|(_, id)| id).collect();
        let pattern = call.excludes().expect("a rewrite").to_owned();
        let reached = self.model.reach(moved);
        let commits = reached.iter().filter_map(|id| self.model.commits.get(id));
        let removed = commits.flat_map(|commit| matched(&commit.files, &pattern)).collect();
        if let Some(purge) = self.model.store(call.place).purges.last_mut() {
            purge.removed = removed;
        }
    }

    /// Checks that a collection which succeeds has deleted what rewrites removed.
    fn check_removed(&mut self, call: &Call) -> Result<(), Fault> {
        let name = call.collects().expect("a collection");
        let is_remote = name != call.place;
        if is_remote && !call.has("--now") {
            return Ok(());
        }
        let inside = Contents::inside(&self.store(name));
        let (by, store) = (&self.model.stores[call.place], &self.model.stores[name]);
        for purge in &by.purges {
            let is_reached = |content: &u64| match is_remote {
                true => self.model.has(&self.model.owned(store), *content),
                false => self.model.reaches_since(store, *content, purge.step),
            };
            // What a ref here has reached again is not removed any more.
            let mut left = purge.removed.iter().filter(|content| {
                inside.contains(*content)
                    && !is_reached(content)
                    && !self.model.reaches_since(by, **content, purge.step)
            });
            if let Some(content) = left.next() {
                let detail = format!("{call}: content {content} is in the files of {name}");
                return Err(Fault::new("a removed content stays", detail));
            }
        }
        Ok(())
    }

    /// Runs a verification, which must find no damage.
    fn verify(&self, place: Place, line: &str) -> Result<(), Fault> {
        if !is_complete(&self.store(place)) {
            return Ok(());
        }
        let words = line.split_whitespace();
        let ran: Ran =
            self.sandbox.command(&self.folder(place)).args(words).output().unwrap().into();
        match ran.code {
            Some(0) => Ok(()),
            Some(1 | 3) if line != "verify" => Ok(()),
            Some(4) if line != "verify" && self.has_moved_back(place) => Ok(()),
            _ => {
                let detail = format!("(cd {place} && snap {line}): {}\n{}", ran.told(), ran.stdout);
                Err(Fault::new("a verification finds damage", detail))
            }
        }
    }

    /// Returns true if others moved a branch of `origin` back to an ancestor. Then the remote may be an
    /// older copy, which a verification reports.
    fn has_moved_back(&self, place: Place) -> bool {
        let refs = refs(&self.store("origin"));
        let present = self.model.stores[place].present();
        let branches = present.filter_map(|value| {
            Some((value.name.strip_prefix("refs/remotes/origin/")?, &value.id))
        });
        let mut moved = branches.filter_map(|(branch, seen)| {
            let now = refs.get(&format!("refs/heads/{branch}"))?;
            Some(now != seen && self.model.reach([seen]).contains(now))
        });
        moved.any(|is_back| is_back)
    }

    /// Checks all stores after the last step: also that the remotes can be cloned.
    fn conclude(&mut self) -> Result<(), Fault> {
        for place in PLACES {
            self.mark(place)?;
            self.verify(place, "verify")?;
        }
        for place in PLACES {
            self.verify(place, "verify origin")?;
        }
        for (remote, copy) in REMOTES.into_iter().zip(["copy", "other-copy"]) {
            self.mark(remote)?;
            let has_branch =
                refs(&self.store(remote)).keys().any(|name| name.starts_with("refs/heads/"));
            if !has_branch {
                continue;
            }
            let mut command = self.sandbox.command(self.sandbox.path());
            command.args(["clone", "--no-restore", &self.url(remote), copy]);
            let ran: Ran = command.output().unwrap().into();
            if !matches!(ran.code, Some(0 | 3)) {
                return Err(Fault::new(
                    "a remote cannot be cloned",
                    format!("{remote}: {}", ran.told()),
                ));
            }
            self.mark(copy)?;
            self.verify(copy, "verify")?;
        }
        Ok(())
    }
}

/// The kind of fault of a command that a signal ended.
const KILLED: &str = "a command is killed";
