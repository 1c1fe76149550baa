//! Walks the tree and the target side by side, and decides what to do for each entry.
//!
//! The names in an existing folder are listed once, sorted, and merged with the tree's
//! entries. A missing name therefore costs no system call. Folders that this run created
//! are not listed.

mod act;
mod extras;
mod folders;

use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use rayon::prelude::*;
use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};

use crate::{
    base::{id::TreeId, observe::Note},
    format::tree::{Entry, EntryKind, Metadata},
    local::{
        contain::{FolderCache, FolderNames, FolderPath, OpenFolder},
        store_folder::is_store,
        write::{Inherited, sweep},
    },
    ops::restore::{
        ContentLoss, Existing, Extras, Mode, RestoreAction, RestoreError, RestoreSource,
        compare::{AttributePolicy, ComparedState},
        filter::Choice,
        guard::Guard,
        job::RestoreJob,
        links::{FirstNameFailure, FirstNames},
        plan::{self, PlannedFolder, RemovalPlan, RemovalPlanner},
        visit::folders::make_accessible,
        walk::{RestoreStep, RestoreWalk},
        window::WriteWindow,
    },
};

/// The purpose of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VisitMode {
    /// Compares, counts and reports, and plans removals.
    Compare,
    /// Plans removals.
    Plan,
    /// Writes entries that are missing or differ.
    Write,
}

/// How an existing file is compared with the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileProof {
    /// By hashing its content.
    Hash,
    /// By its kind and size: an earlier visit has hashed it.
    Compared,
    /// By its kind alone.
    Kind,
    /// By its kind and, as with `Hash`, its content, but not by its attributes.
    Content,
}

/// Number of existing entries from which the thread pool compares them. Fewer are compared by the
/// visiting thread alone.
const MIN_PARALLEL_COMPARES: usize = 8;

impl RestoreJob<'_> {
    /// Visits all entries and plans removals.
    pub(super) fn plan_removals(
        &self,
        what: &RestoreSource,
        mode: VisitMode,
        proof: FileProof,
    ) -> Result<RemovalPlan, RestoreError> {
        let deletes = self.options.extras == Extras::Delete;
        let protection = self.options.protection.filter(|_| deletes);
        let guard = protection.map(|protection| Guard::new(self.store, protection)).transpose()?;
        let mut visit = FolderVisit::new(self, what, mode, proof, None);
        visit.planner.guard = guard;
        let plan = visit.run()?;
        self.check()?;
        // An unreadable tree may contain entries that would otherwise count as extras, so
        // remove nothing.
        Ok(match self.tally.is_damaged() {
            true => RemovalPlan { replaced: plan.replaced, ..RemovalPlan::default() },
            false => plan,
        })
    }

    /// Writes all entries.
    pub(super) fn write_entries(
        &self,
        what: &RestoreSource,
        proof: FileProof,
    ) -> Result<(), RestoreError> {
        let mode = VisitMode::Write;
        thread::scope(|scope| {
            // One window is written, one waits in the channel, and one is collected.
            let (sender, windows) = sync_channel(1);
            let walker =
                scope.spawn(move || FolderVisit::new(self, what, mode, proof, Some(sender)).run());
            for window in windows {
                self.pool.install(|| self.write_window(window));
            }
            match walker.join() {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => self.fail(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        self.check()
    }
}

/// The existing entry in the place of a folder of the tree.
enum FolderState {
    /// No entry.
    Missing,
    /// An entry that is not a folder.
    InTheWay(Stat),
    /// A folder that this run created or, in a dry run, would create.
    Made,
    /// A folder that cannot be created or used. Everything in it is left out.
    Refused,
    /// An existing folder, and the position up to which its names were merged.
    There { listing: FolderNames, next: usize },
}

/// The state of a folder that the walk has found and not entered yet.
struct FolderTag {
    state: FolderState,
    wanted: bool,
    tree: Option<TreeId>,
}

struct VisitLevel {
    folder: Arc<FolderPath>,
    state: FolderState,
    wanted: bool,
    inherited: Option<Inherited>,
    /// Set if extras in the folder are planned to be removed.
    around: Option<PlannedFolder>,
    /// True if the folder lies behind a mount point, so that nothing in it is removed.
    is_mounted: bool,
    /// True once the planner has reported that the folder's extras stay.
    is_kept: bool,
    /// True if a dry run has found the folder writable.
    is_writable: bool,
    /// The policy for attributes of entries in the folder.
    policy: AttributePolicy,
    /// True if something in the folder is restored.
    is_used: bool,
}

struct FolderVisit<'j, 'a> {
    job: &'j RestoreJob<'a>,
    mode: VisitMode,
    proof: FileProof,
    single: bool,
    walk: RestoreWalk<'j, FolderTag>,
    levels: Vec<VisitLevel>,
    cursor: Option<FolderCache<'j>>,
    first_names: FirstNames,
    window: WriteWindow,
    sender: Option<SyncSender<WriteWindow>>,
    planner: RemovalPlanner<'j, 'a>,
}

impl<'j, 'a> FolderVisit<'j, 'a> {
    fn new(
        job: &'j RestoreJob<'a>,
        what: &RestoreSource,
        mode: VisitMode,
        proof: FileProof,
        sender: Option<SyncSender<WriteWindow>>,
    ) -> Self {
        let tree = match what {
            RestoreSource::Folder { tree, .. } => Some(*tree),
            RestoreSource::Entry(_) => None,
        };
        let top = FolderTag { state: FolderState::Made, wanted: job.filter.wants_top(), tree };
        Self {
            job,
            mode,
            proof,
            single: matches!(what, RestoreSource::Entry(_)),
            walk: RestoreWalk::new(job.store, what, top),
            levels: Vec::new(),
            cursor: job.folder_cache(),
            first_names: FirstNames::default(),
            window: WriteWindow { is_first: true, ..WriteWindow::default() },
            sender,
            planner: RemovalPlanner::new(job, None),
        }
    }

    fn run(mut self) -> Result<RemovalPlan, RestoreError> {
        while let Some(step) = self.walk.next() {
            if self.job.is_halted() {
                return Ok(RemovalPlan::default()); // The caller finds out why.
            }
            match step {
                RestoreStep::Enter(folder, found) => self.enter(folder, found)?,
                RestoreStep::Entries(entries) => self.entries(entries)?,
                RestoreStep::Leave(metadata) => self.leave(metadata.as_ref())?,
                RestoreStep::Broken(_, error) if error.is_transport() => {
                    return Err(error.into());
                }
                RestoreStep::Broken(id, error) => {
                    let path = self.level().folder.to_path();
                    self.job.tally.damaged(path, id.object(), error);
                }
            }
        }
        self.flush();
        Ok(self.planner.plan)
    }

    /// Returns true if this visit reports notes, because no later visit repeats them.
    fn is_reporting(&self) -> bool {
        self.mode == VisitMode::Write || self.job.options.mode == Mode::DryRun
    }

    fn level(&self) -> &VisitLevel {
        self.levels.last().expect("the walk enters a folder before its entries")
    }

    /// Sends the window to the writing thread.
    fn flush(&mut self) {
        let window = std::mem::take(&mut self.window);
        self.job.store.prefetch_contents(&mut window.files.iter().map(|task| task.id));
        if let Some(sender) = self.sender.as_ref().filter(|_| !window.is_empty()) {
            // Sending fails only if the writer panicked, which `write_entries` then propagates.
            let _ = sender.send(window);
        }
    }

    fn enter(&mut self, folder: Arc<FolderPath>, found: FolderTag) -> Result<(), RestoreError> {
        let job = self.job;
        let is_top = folder.depth() == 0;
        let FolderTag { mut state, wanted, tree } = found;
        let there = matches!(state, FolderState::There { .. }) || (is_top && !job.is_empty());
        if there {
            state = match self.look_into(&folder) {
                Err(error) if !is_top => self.refuse_folder(&folder, error)?,
                state => state?,
            };
        }
        let inherited = if is_top { job.inherited() } else { None };
        let mut level = VisitLevel {
            folder,
            state,
            wanted,
            inherited,
            around: None,
            is_mounted: false,
            is_kept: false,
            is_writable: false,
            policy: AttributePolicy::of(job),
            is_used: wanted,
        };
        if matches!(level.state, FolderState::There { .. }) {
            match self.look_at_folder(&mut level) {
                Err(error) if !is_top => {
                    level.state = self.refuse_folder(&level.folder, error)?;
                }
                looked => looked?,
            }
        }
        self.guard_enter(&level.folder, tree, &level.state)?;
        self.levels.push(level);
        if wanted && !is_top && !self.ensure()? {
            self.walk.skip();
        }
        Ok(())
    }

    /// Determines the mount of an existing folder, and whether a killed restore left it.
    fn look_at_folder(&mut self, level: &mut VisitLevel) -> Result<(), RestoreError> {
        if self.mode != VisitMode::Write {
            self.find_mount(level)?;
        }
        self.find_unfinished(level)
    }

    /// Reports a folder that cannot be created or used, and leaves out everything in it.
    ///
    /// # Errors
    /// The error if the whole target is concerned.
    fn refuse_folder(
        &mut self,
        at: &FolderPath,
        error: RestoreError,
    ) -> Result<FolderState, RestoreError> {
        self.refuse(&at.to_path(), "folder", error)?;
        self.walk.skip();
        Ok(FolderState::Refused)
    }

    /// Reports an entry that cannot be restored, if this visit reports notes.
    ///
    /// # Errors
    /// The error if the whole target is concerned.
    fn refuse(
        &self,
        path: &Path,
        noun: &'static str,
        error: RestoreError,
    ) -> Result<(), RestoreError> {
        match &error {
            RestoreError::Io(of) if !self.is_reporting() && self.job.is_of_one_path(&of.source) => {
                Ok(())
            }
            _ => self.job.refuse(path, noun, error),
        }
    }

    /// Lists an existing folder.
    fn look_into(&mut self, at: &Arc<FolderPath>) -> Result<FolderState, RestoreError> {
        let (job, is_reporting) = (self.job, self.is_reporting());
        let Some(cursor) = &mut self.cursor else { return Ok(FolderState::Made) };
        let folder = cursor.folder(at)?;
        let mut skip = || {
            if is_reporting {
                job.skip(&at.to_path(), &RestoreJob::store_in_place());
            }
            self.walk.skip();
            FolderState::There { listing: FolderNames::default(), next: 0 }
        };
        if job.is_store(folder) {
            return Ok(skip());
        }
        let listing = match folder.list() {
            // Without `--overwrite`, a folder keeps the mode that its owner gave it.
            Err(_)
                if self.mode == VisitMode::Write
                    && AttributePolicy::of(job) == AttributePolicy::Replace
                    && make_accessible(cursor, at) =>
            {
                cursor.folder(at)?.list()
            }
            listing => listing,
        };
        let listing = match listing {
            // `VisitMode::Write` makes the folder accessible later, if possible.
            Err(_) if self.mode == VisitMode::Plan => {
                if job.options.extras == Extras::Delete {
                    self.planner.keep(at.to_path(), plan::UNREADABLE);
                }
                FolderNames::default()
            }
            listing => listing.map_err(|e| job.error("read folder", at, None, e))?,
        };
        if is_store(at.parent().map_or(&[], |(_, name)| name.as_bytes()), &listing) {
            job.stores.lock().insert(at.to_path());
            return Ok(skip());
        }
        if self.mode == VisitMode::Write {
            let _ = sweep(cursor.folder(at)?, &listing, job.started);
        }
        Ok(FolderState::There { listing, next: 0 })
    }

    /// Creates the present folder and the missing folders above it. Returns false if one
    /// of them is refused.
    fn ensure(&mut self) -> Result<bool, RestoreError> {
        if self.levels.iter().any(|level| matches!(level.state, FolderState::Refused)) {
            return Ok(false);
        }
        let is_there = |level: &VisitLevel| {
            matches!(level.state, FolderState::Made | FolderState::There { .. })
        };
        let missing = self.levels.iter().rposition(is_there).map_or(0, |index| index + 1);
        for index in missing..self.levels.len() {
            self.check_writable(index.saturating_sub(1))?;
            let (above, below) = self.levels.split_at_mut(index);
            let (Some(parent), Some(level)) = (above.last(), below.first_mut()) else { continue };
            let Some((_, name)) = level.folder.parent() else { continue };
            let in_the_way = matches!(level.state, FolderState::InTheWay(_));
            if self.mode == VisitMode::Plan {
                if let FolderState::InTheWay(stat) = &level.state
                    && self.job.asks_about_edits()
                {
                    self.planner.replaces(&parent.folder, name, stat);
                }
                level.state = FolderState::Made;
                continue;
            }
            let change = if in_the_way { RestoreAction::Replace } else { RestoreAction::Create };
            if self.mode == VisitMode::Compare {
                if in_the_way && self.job.options.existing == Existing::Stop {
                    self.job.tally.differs(level.folder.to_path());
                }
            } else if let Some(cursor) = &mut self.cursor {
                let made =
                    self.job.make_folder(cursor, parent, name, in_the_way).map_err(Into::into);
                match made {
                    Ok(inherited) => level.inherited = inherited,
                    Err(error) => {
                        level.state = FolderState::Refused;
                        let path = level.folder.to_path();
                        self.refuse(&path, "folder", error)?;
                        return Ok(false);
                    }
                }
            }
            let stat = match (&level.state, self.job.options.mode) {
                (FolderState::InTheWay(stat), Mode::DryRun) => Some(stat),
                _ => None,
            };
            match stat {
                Some(stat) => self.planner.replaces(&parent.folder, name, stat),
                None => self.job.changed(&parent.folder, name, change, ContentLoss::Nothing),
            }
            self.job.tally.count(|outcome| outcome.folders += 1);
            level.state = FolderState::Made;
        }
        Ok(true)
    }

    fn leave(&mut self, metadata: Option<&Metadata>) -> Result<(), RestoreError> {
        self.extras_before(None)?;
        self.planner.guard.iter_mut().for_each(Guard::leave);
        let Some(level) = self.levels.pop() else { return Ok(()) };
        if let Some(parent) = self.levels.last_mut() {
            parent.is_used |= level.is_used;
        }
        // The last pass of a real run reports folders.
        let is_dry = self.mode == VisitMode::Compare && self.is_reporting();
        match metadata.filter(|_| level.is_used && is_dry) {
            Some(metadata) => match self.report_folder(&level, metadata) {
                Err(error) => self.refuse(&level.folder.to_path(), "folder", error),
                reported => reported,
            },
            None => Ok(()),
        }
    }

    /// Returns the stat of the existing entries with the names of `entries`. Reports entries
    /// without a stat, such as a mount point whose server is gone.
    fn look_at(&mut self, entries: &[Entry]) -> Result<Vec<ExistingEntry>, RestoreError> {
        let mut stats = Vec::with_capacity(entries.len());
        for entry in entries {
            self.extras_before(Some(&entry.name))?;
            let Some(level) = self.levels.last_mut() else { break };
            let FolderState::There { listing, next } = &mut level.state else { break };
            let hit = listing.get(*next).is_some_and(|(name, _)| name == entry.name.as_bytes());
            let mut found = ExistingEntry { stat: None, is_refused: false };
            if let Some(cursor) = self.cursor.as_mut().filter(|_| hit) {
                *next += 1;
                let at = Arc::clone(&level.folder);
                match cursor.folder(&at)?.stat(&entry.name) {
                    Ok(stat) => found.stat = stat,
                    Err(error) => {
                        let error = self.job.error("look at", &at, Some(&entry.name), error);
                        self.refuse(&at.join(&entry.name), entry.kind.noun(), error.into())?;
                        found.is_refused = true;
                    }
                }
            }
            stats.push(found);
        }
        stats.resize(entries.len(), ExistingEntry { stat: None, is_refused: false });
        Ok(stats)
    }

    fn entries(&mut self, entries: Vec<Entry>) -> Result<(), RestoreError> {
        let found = self.look_at(&entries)?;
        let mut choices = Vec::with_capacity(entries.len());
        for (entry, found) in entries.iter().zip(&found) {
            choices.push(match found.is_refused {
                true => Choice::Excluded,
                false => self.choose(entry, found.stat.is_some()),
            });
        }
        let stats: Vec<Option<Stat>> = found.into_iter().map(|found| found.stat).collect();
        let verdicts = self.verdicts(&entries, &stats, &choices)?;
        let mut folders = Vec::new();
        let all = entries.into_iter().zip(stats).zip(choices).zip(verdicts);
        for (((entry, stat), choice), verdict) in all {
            if self.job.is_halted() {
                return Ok(());
            }
            if let EntryKind::Folder { id } = entry.kind {
                if choice != Choice::Excluded {
                    let wanted = choice == Choice::Wanted;
                    let (state, tree) = (state_of(stat.as_ref()), Some(id));
                    folders.push((entry, FolderTag { state, wanted, tree }));
                }
            } else if choice == Choice::Wanted {
                self.levels.last_mut().expect("a folder was entered").is_used = true;
                if !self.ensure()? {
                    continue;
                }
                let (name, noun, link) =
                    (entry.name.clone(), entry.kind.noun(), entry.metadata.link);
                if let Err(error) = self.act(entry, stat, verdict) {
                    self.refuse(&self.level().folder.join(&name), noun, error)?;
                    self.job.first_name_failed(link, FirstNameFailure::Refused(Errno::PERM));
                }
                if self.window.is_full() {
                    self.flush();
                }
            }
        }
        let trees = &mut folders.iter().filter_map(|(entry, _)| Entry::folder(entry));
        self.job.store.prefetch_objects(trees);
        self.walk.descend(folders)
    }

    fn choose(&mut self, entry: &Entry, is_there: bool) -> Choice {
        let at = Arc::clone(&self.level().folder);
        let is_folder = matches!(entry.kind, EntryKind::Folder { .. });
        let filter = &self.job.filter;
        let choice = filter.choose_entry(&at, &entry.name, is_folder, self.level().wanted);
        if choice == Choice::Excluded {
            return choice;
        }
        if at.depth() == 0 && self.job.keeps_git(&entry.name) {
            if self.is_reporting() && is_there {
                let why = "it belongs to git";
                self.job.observer.note(Note::Kept { path: &at.join(&entry.name), why });
            }
            return Choice::Excluded;
        }
        let cursor = &mut self.cursor;
        let reserved =
            self.job.reserves(entry, || cursor.as_mut().and_then(|c| c.folder(&at).ok()));
        let Some(error) = reserved else { return choice };
        // A folder that is not wanted may hold wanted entries.
        if self.is_reporting() && (is_folder || choice == Choice::Wanted) {
            self.job.skip(&at.join(&entry.name), &error);
        }
        Choice::Excluded
    }

    fn verdicts(
        &mut self,
        entries: &[Entry],
        stats: &[Option<Stat>],
        choices: &[Choice],
    ) -> Result<Vec<ComparedState>, RestoreError> {
        let present = stats.iter().flatten().count();
        let (job, level) = (self.job, self.levels.last().expect("a folder was entered"));
        let Some(cursor) = self.cursor.as_mut().filter(|_| present > 0) else {
            return Ok(vec![ComparedState::Absent; entries.len()]);
        };
        let folder: &OpenFolder = cursor.folder(&level.folder)?;
        let one = |((entry, stat), choice): ((&Entry, &Option<Stat>), &Choice)| match stat {
            Some(stat) if *choice == Choice::Wanted && !job.is_halted() => {
                job.compare(folder, entry, stat, self.proof, level.policy)
            }
            _ => ComparedState::Absent,
        };
        if present < MIN_PARALLEL_COMPARES {
            return Ok(entries.iter().zip(stats).zip(choices).map(one).collect());
        }
        Ok(job.pool.install(|| entries.par_iter().zip(stats).zip(choices).map(one).collect()))
    }
}

/// The existing entry with the name of an entry of the snapshot.
#[derive(Clone, Copy)]
struct ExistingEntry {
    stat: Option<Stat>,
    /// True if its stat cannot be read.
    is_refused: bool,
}

fn state_of(stat: Option<&Stat>) -> FolderState {
    match stat.map(|stat| (FileType::from_raw_mode(stat.st_mode), stat)) {
        None => FolderState::Missing,
        Some((FileType::Directory, _)) => {
            FolderState::There { listing: FolderNames::default(), next: 0 }
        }
        Some((_, stat)) => FolderState::InTheWay(*stat),
    }
}
