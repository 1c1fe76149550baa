//! Runs the operations of a sequence and compares the results with the model.

use std::{
    path::{Path, PathBuf},
    rc::Rc,
    thread,
    time::Duration,
};

use crate::{
    sandbox::Ran,
    search::{Failure, Fault},
    sequences::{
        check::{Before, Fresh, adopt_tips, check_store},
        files::{self, Filling, Kind, Tree, differences},
        model::{
            Commit, Damage, Id, Model, Rules, grafted, is_store_link, nameable, prefixes, selected,
        },
        operation::{CommitArgs, MountKind, Op, Place},
        stored::Reader,
        world::World,
    },
    steps::{Stop, stop_at},
};
use fs_err as fs;

/// Longer than the period in which snap does not trust the times of a file.
const SETTLE: Duration = Duration::from_millis(25);

/// Maximum difference between the time of a commit and the clock of the test.
const DAY_SECS: i64 = 86_400;

/// A sequence that is being executed.
pub(crate) struct Execution {
    /// The folders.
    pub(crate) world: World,
    /// The expected state.
    pub(crate) model: Model,
    /// The working folders with a mount on `m`.
    pub(crate) mounted: Vec<(Place, MountKind)>,
    /// True if this process may mount.
    pub(crate) may_mount: bool,
    /// True if the program asks before it removes files that no commit contains.
    pub(crate) asks: bool,
}

/// What all sequences of a run have in common.
#[derive(Clone, Copy)]
pub(crate) struct Options<'p> {
    pub(crate) program: &'p Path,
    /// Threads of each commit and restore.
    pub(crate) jobs: Option<u32>,
    /// See [`Execution`].
    pub(crate) may_mount: bool,
    pub(crate) asks: bool,
}

/// Runs a sequence. An error has the number of the failing step.
pub(crate) fn run(options: Options<'_>, ops: &[Op]) -> Result<(), Failure> {
    let world = World::new(options.program, options.jobs).unwrap();
    let (model, Options { may_mount, asks, .. }) = (Model::default(), options);
    let mut execution = Execution { world, model, mounted: Vec::new(), may_mount, asks };
    for (number, op) in ops.iter().enumerate() {
        execution.step(op).map_err(|fault| (number, fault))?;
    }
    Ok(())
}

/// How a run of `commit` ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It exits normally.
    Exit,
    /// It is killed at this step.
    Kill(u64),
}

impl Execution {
    fn step(&mut self, op: &Op) -> Result<(), Fault> {
        let place = op.place();
        if let Some(place) = place
            && place != Place::Project
            && !matches!(op, Op::Clone(_))
            && !self.world.folder(place).is_dir()
        {
            return Ok(());
        }
        match op {
            Op::File(place, op) => {
                // An operation that the present files do not allow does nothing.
                let _ = self.change_file(*place, op);
                Ok(())
            }
            Op::Settle => {
                thread::sleep(SETTLE);
                Ok(())
            }
            Op::Mount(place, kind) => {
                self.mount(*place, *kind);
                Ok(())
            }
            Op::Commit(place, args) => self.commit(*place, args, End::Exit),
            Op::Kill(place, step) => self.commit(*place, &CommitArgs::default(), End::Kill(*step)),
            Op::Burst(place, number) => (0..6).try_for_each(|at| {
                let name = if *place == Place::Partial { "d/n" } else { "n" };
                let filling = Filling { number: number + at, large: false };
                let _ = files::write(&self.world.folder(*place).join(name), filling);
                self.commit(*place, &CommitArgs::default(), End::Exit)
            }),
            Op::Restore(place, args) => self.restore(*place, args),
            Op::Switch(place, branch) => self.switch(*place, branch),
            Op::Undo(place, redo) => self.undo(*place, *redo),
            Op::Forge(place, number) => self.forge(*place, *number),
            Op::Damage(place, which, kind) => {
                self.damage(*place, *which, *kind);
                Ok(())
            }
            Op::Drop(place, name) => {
                let _ = fs::remove_dir_all(self.world.store(*place).join(name));
                Ok(())
            }
            Op::Verify(place, data) => self.verify(*place, *data),
            Op::Repair(place, data) => self.repair(*place, *data),
            Op::LoseFile(place, file) => self.lose_file(*place, *file),
            Op::Status(place) => self.status(*place),
            Op::Clone(place) => self.clone_remote(*place),
            Op::Push(place) => self.push(*place),
            Op::Pull(place) => self.pull(*place),
        }
    }

    /// Returns true if the folder has a store that is completely created.
    pub(crate) fn has_store(&self, place: Place) -> bool {
        self.world.has_store(place)
    }

    /// Returns what is mounted on `m` of a folder.
    pub(crate) fn mounted_on(&self, place: Place) -> Option<MountKind> {
        self.mounted.iter().find(|(mounted, _)| *mounted == place).map(|(_, kind)| *kind)
    }

    /// Returns the rules of a folder's `.snapignore`; for a partial clone that did not fetch it,
    /// the rules of the tip's.
    pub(crate) fn rules(&mut self, place: Place) -> Rules {
        let text = fs::read_to_string(self.world.folder(place).join(".snapignore"));
        let is_partial = self.world.store(place).join("scope").exists();
        match (text, self.model.store(place).tip().cloned()) {
            (Ok(text), _) => Rules::parse(&text),
            (Err(_), Some(tip)) if is_partial => Rules::of(&self.model.commits[&tip].tree),
            _ => Rules::default(),
        }
    }

    fn commit(&mut self, place: Place, args: &CommitArgs, end: End) -> Result<(), Fault> {
        let before = Before::read(&self.world);
        let files = before.of(place);
        let mut rules = self.rules(place);
        rules.tmp |= args.exclude;
        let behind = args.one_file_system && self.mounted_on(place) == Some(MountKind::Memory);
        let disk = selected(files, rules, behind);
        // The first commit goes to the current branch, which is `main`.
        let may_branch = place != Place::Partial && self.model.store(place).tip().is_some();
        let current = self.model.store(place).branch();
        let branch = if args.side && may_branch { "side" } else { &current };
        let tip_before = self.model.store(place).tips.get(branch).cloned();
        let parent = tip_before.as_ref().map(|tip| self.model.commits[tip].tree.clone());
        let parent = parent.unwrap_or_default();
        let paths = if args.side || tip_before.is_none() {
            Vec::new()
        } else {
            nameable(&args.paths, files, &parent, rules, behind)
        };
        if !args.paths.is_empty() && paths.is_empty() {
            return Ok(());
        }
        // After an undone clone, the base determines the files outside the scope.
        if place == Place::Partial && tip_before.is_none() {
            return Ok(());
        }
        let own: Vec<&str> = match place {
            Place::Partial if paths.is_empty() => vec!["d"],
            _ => paths.iter().map(String::as_str).collect(),
        };
        let expected = if own.is_empty() { disk } else { grafted(&parent, &disk, &own) };
        let foreign = self.model.foreign(place, branch);
        let Some(cwd) = self.cwd(place, args.within, files) else { return Ok(()) };
        let through_link = args.within.is_some_and(|within| {
            let own = format!("{within}/.snap");
            files.get(&own).is_some_and(|node| is_store_link(&own, node))
        });

        let options = CommitArgs { side: args.side && may_branch, ..args.clone() };
        let mut command = self.world.command(&cwd);
        command.args(options.options()).args(&paths);
        if let Some(year) = args.year {
            command.env("SNAP_TIME", format!("{year}-01-01T00:00:00Z"));
        }
        if let End::Kill(step) = end {
            stop_at(&mut command, step, Stop::Kill);
        }
        let ran: Ran = match args.within {
            None => command.output().unwrap().into(),
            Some(_) => {
                let run = || command.output().unwrap().into();
                let (ran, [theirs, now]): (Ran, _) = self.world.beside_victim(run);
                if theirs != now {
                    let detail = [vec![ran.told()], differences(&theirs, &now)].concat();
                    return Err(Fault::new("a commit changes another store", detail.join("\n")));
                }
                ran
            }
        };
        before.check_unchanged(&self.world, None)?;
        if through_link && ran.code != Some(1) {
            return Err(Fault::new("a store is found through a link", ran.told()));
        }
        if args.dry_run {
            return self.check_tip(place, branch, tip_before.as_ref(), "a dry run moves a branch");
        }
        let printed = ran.id();
        let id = match (end, ran.code) {
            (End::Kill(_), None) => match self.tip_after_kill(place)? {
                None => return printed.map_or(Ok(()), |id| Err(lost_ref(&id))),
                Some(tip) if Some(&tip) == tip_before.as_ref() && printed.is_none() => {
                    return check_store(&self.world, &mut self.model, place, None);
                }
                Some(tip) => tip,
            },
            (_, Some(0)) => match printed {
                Some(id) => id,
                None => return Err(Fault::new("a commit succeeds without an id", ran.told())),
            },
            _ => {
                let is_hurt = self.model.store(place).damage == Damage::Hidden
                    || (self.model.store(place).damage > Damage::None && !own.is_empty())
                    || self.is_history_lost(place);
                let is_behind = !foreign.is_empty() || self.model.is_restored_away(place, branch);
                let is_refused = is_behind && !args.onto_tip && ran.code == Some(1);
                if !is_hurt && !is_refused && !through_link {
                    return Err(Fault::new("a commit fails without a reason", ran.told()));
                }
                return self.check_tip(
                    place,
                    branch,
                    tip_before.as_ref(),
                    "a failed commit moves a branch",
                );
            }
        };
        let is_new = Some(&id) != tip_before.as_ref();
        // Files that equal the tip's contain everything in its history.
        let equals_tip = args.paths.is_empty() && expected == *parent;
        let takes_back = match args.paths.is_empty() {
            true => !equals_tip,
            false => foreign.iter().any(|id| self.model.changes(id, &own)),
        };
        if is_new && !foreign.is_empty() && !args.onto_tip && takes_back {
            let reverted: Vec<_> = foreign.iter().map(|id| format!("{id:.12}")).collect();
            let detail = format!("{id:.12} follows {}, which the files lack", reverted.join(", "));
            return Err(Fault::new("a commit reverts what was pulled", detail));
        }
        if !own.is_empty()
            && let Some(tip) = &tip_before
        {
            // Files that are kept were excluded by the rules of that commit.
            rules = rules.or(self.model.commits[tip].rules);
        }
        let time_secs = self.acknowledge(place, branch, &id, expected, rules);
        if is_new {
            self.model.committed(place, &id, !args.paths.is_empty());
        }
        let is_dated = |secs: i64| (secs - args.clock_secs()).abs() < DAY_SECS;
        if is_new && !time_secs.is_none_or(is_dated) {
            let detail = format!("{id:.12} was made at {time_secs:?}");
            return Err(Fault::new("a commit has another time than the clock", detail));
        }
        // Files that this commit excludes may be old ones.
        let contains_tip = equals_tip && !args.exclude && !args.one_file_system;
        if (args.onto_tip || contains_tip)
            && args.paths.is_empty()
            && let Some(tip) = &tip_before
        {
            let seen = self.model.ancestors(tip);
            let store = self.model.store(place);
            store.seen.extend(seen.iter().cloned());
            if let Some(contained) = &mut store.contained {
                contained.extend(seen);
            }
        }
        let fresh = Fresh { id: &id, paths: own };
        check_store(&self.world, &mut self.model, place, Some(&fresh))?;
        let is_plain = *args == CommitArgs::default() && end == End::Exit;
        if is_plain && place != Place::Partial && self.model.store(place).damage == Damage::None {
            self.check_clean(place)?;
        }
        Ok(())
    }

    /// Returns the folder in which a commit runs. Returns `None` if `within` is no folder of the
    /// project or a link called `.snap` is in another folder: the commit would leave it out while
    /// the other project is there.
    fn cwd(&self, place: Place, within: Option<&str>, files: &Tree) -> Option<PathBuf> {
        let folder = self.world.folder(place);
        let Some(within) = within else { return Some(folder) };
        let own = format!("{within}/.snap");
        let is_plain = |prefix: &str| {
            files.get(prefix).is_some_and(|node| node.kind == Kind::Folder)
                && !files.contains_key(&format!("{prefix}/.snap/HEAD"))
        };
        let is_fit = self.has_store(place)
            && self.mounted_on(place).is_none()
            && prefixes(within).all(is_plain)
            && !files.iter().any(|(path, node)| is_store_link(path, node) && *path != own);
        is_fit.then(|| folder.join(within))
    }

    fn switch(&mut self, place: Place, branch: &str) -> Result<(), Fault> {
        if !self.model.store(place).tips.contains_key(branch) {
            return Ok(());
        }
        let before = Before::read(&self.world);
        let ran = self.world.run(&self.world.folder(place), ["branch", "--switch", branch]);
        before.check_unchanged(&self.world, None)?;
        if ran.code != Some(0) {
            return Err(Fault::new("a switch fails without a reason", ran.told()));
        }
        adopt_tips(&self.world, &mut self.model, place)
    }

    /// Records an acknowledged commit. Returns the time of the commit, if it can be read.
    fn acknowledge(
        &mut self,
        place: Place,
        branch: &str,
        id: &Id,
        expected: Tree,
        rules: Rules,
    ) -> Option<i64> {
        let reader = Reader::open(&self.world.store(place)).ok();
        let read = reader.and_then(|reader| reader.parents_and_time(id));
        let (parents, time_secs) = read.map_or_else(Default::default, |(p, t)| (p, Some(t)));
        let commit = Commit { tree: Rc::new(expected), parents, by: place, rules };
        self.model.commits.entry(id.clone()).or_insert(commit);
        let store = self.model.store(place);
        store.hold(id);
        store.tips.insert(branch.to_owned(), id.clone());
        time_secs
    }

    /// Returns true if the program cannot read an ancestor of a new commit.
    fn is_history_lost(&mut self, place: Place) -> bool {
        let lost = &self.model.store(place).lost;
        lost.values().any(|paths| paths.contains(&None))
    }

    fn tip_after_kill(&mut self, place: Place) -> Result<Option<Id>, Fault> {
        if !self.has_store(place) {
            return Ok(None);
        }
        let told = |message| Fault::new("a store cannot be read", message);
        let reader = Reader::open(&self.world.store(place)).map_err(told)?;
        Ok(reader.tips().map_err(told)?.get(&self.model.store(place).branch()).cloned())
    }

    /// Fails if a branch is not at the expected commit; also checks the store.
    fn check_tip(
        &mut self,
        place: Place,
        branch: &str,
        expected: Option<&Id>,
        kind: &'static str,
    ) -> Result<(), Fault> {
        if !self.has_store(place) {
            return Ok(());
        }
        let told = |message| Fault::new("a store cannot be read", message);
        let reader = Reader::open(&self.world.store(place)).map_err(told)?;
        let found = reader.tips().map_err(told)?.get(branch).cloned();
        if found.as_ref() != expected {
            return Err(Fault::new(kind, format!("{branch} was at {expected:?}, is at {found:?}")));
        }
        check_store(&self.world, &mut self.model, place, None)
    }

    /// Checks that `status` shows no changes right after a commit of everything.
    fn check_clean(&mut self, place: Place) -> Result<(), Fault> {
        let ran = self.world.run(&self.world.folder(place), ["status", "-s"]);
        if ran.code != Some(0) || !ran.stdout.is_empty() {
            let detail = format!("{}\n{}", ran.told(), ran.stdout);
            return Err(Fault::new("status shows changes right after a commit", detail));
        }
        Ok(())
    }

    fn status(&mut self, place: Place) -> Result<(), Fault> {
        let before = Before::read(&self.world);
        self.world.run(&self.world.folder(place), ["status"]);
        before.check_unchanged(&self.world, None)?;
        check_store(&self.world, &mut self.model, place, None)
    }

    fn undo(&mut self, place: Place, redo: bool) -> Result<(), Fault> {
        if !self.has_store(place) {
            return Ok(());
        }
        let before = Before::read(&self.world);
        let args: &[&str] = if redo { &["undo", "--redo"] } else { &["undo"] };
        self.world.run(&self.world.folder(place), args);
        before.check_unchanged(&self.world, None)?;
        adopt_tips(&self.world, &mut self.model, place)?;
        check_store(&self.world, &mut self.model, place, None)
    }

    fn verify(&mut self, place: Place, data: bool) -> Result<(), Fault> {
        if !self.has_store(place) {
            return Ok(());
        }
        let before = Before::read(&self.world);
        let args: &[&str] = if data { &["verify", "--data"] } else { &["verify"] };
        let ran = self.world.run(&self.world.folder(place), args);
        before.check_unchanged(&self.world, None)?;
        let reachable = self.model.reachable(place);
        let store = self.model.store(place);
        let is_hurt = store.lost.keys().any(|id| reachable.contains(id));
        let sees = data || store.damage != Damage::Hidden;
        match ran.code {
            Some(0) if is_hurt && sees => {
                let lost = format!("{:?}", store.lost);
                return Err(Fault::new("verify does not find damage", lost));
            }
            Some(0) => {}
            Some(4) if store.damage == Damage::None && !store.forged.is_empty() => {}
            Some(4) if store.damage != Damage::None => {
                if data || store.damage == Damage::Lost {
                    store.damage = Damage::Known;
                }
            }
            _ => return Err(Fault::new("verify fails without a reason", ran.told())),
        }
        check_store(&self.world, &mut self.model, place, None)
    }
}

fn lost_ref(id: &Id) -> Fault {
    Fault::new("an acknowledged commit is lost", format!("{id:.12} was printed before the kill"))
}
