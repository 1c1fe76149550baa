//! Walking the tree beside the target: what is there, what is to be done.
//!
//! The names in an existing folder are listed once, sorted, and merged with
//! the entries of the tree as they come, so a name that is not there costs no
//! system call. In a folder that this run has made nothing is looked at.

mod act;
mod extras;
mod folders;

use std::{
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use rayon::prelude::*;
use rustix::fs::{FileType, Stat};

use crate::{
    base::id::TreeId,
    format::tree::{Entry, Kind},
    local::{
        contain::{Cursor, Folder, FolderPath, Listing},
        store_folder::is_store,
        write::Inherited,
    },
    ops::restore::{
        Change, Existing, Extras, Loss, Mode, RestoreError, What,
        compare::{Verdict, compare},
        filter::Choice,
        guard::Guard,
        job::Job,
        links::Leaders,
        plan::{Around, Plan, Planner},
        tally::Count,
        visit::folders::{make, make_accessible},
        walk::{Step, Walk},
        window::{self, Window, is_out_of_reach},
    },
};

/// What a visit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// It compares, counts and tells, and plans what is removed.
    Compare,
    /// It plans what is removed.
    Plan,
    /// It writes what is missing or differs.
    Write,
}

/// How far a file that is there is believed to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Its content is hashed.
    Hash,
    /// It was, by an earlier visit; kind and size are enough.
    Compared,
    /// Its kind is enough.
    Kind,
}

/// Entries that are there and are compared by several threads from here on.
const COMPARED_ALONE: usize = 8;

/// Visits everything that is to be restored, and plans what is removed.
pub(super) fn plan(
    job: &Job<'_>,
    what: &What,
    intent: Intent,
    trust: Trust,
) -> Result<Plan, RestoreError> {
    let deletes = job.options.extras == Extras::Delete;
    let protection = job.options.protection.filter(|_| deletes);
    let guard = protection.map(|protection| Guard::new(job.store, protection)).transpose()?;
    let mut visit = Visit::new(job, what, intent, trust, None);
    visit.planner.guard = guard;
    let plan = visit.run()?;
    job.check()?;
    // What could not be read might have said that an entry belongs there.
    Ok(if job.tally.is_damaged() { Plan::default() } else { plan })
}

/// Writes everything that is to be restored.
pub(super) fn write(job: &Job<'_>, what: &What, trust: Trust) -> Result<(), RestoreError> {
    let intent = Intent::Write;
    thread::scope(|scope| {
        let (sender, windows) = sync_channel(1);
        let walker = scope.spawn(move || Visit::new(job, what, intent, trust, Some(sender)).run());
        for window in windows {
            job.pool.install(|| window::write(job, window));
        }
        match walker.join() {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => job.fail(error),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    job.check()
}

/// What there is in the place of a folder of the tree.
enum State {
    /// Nothing.
    Missing,
    /// Something that is no folder.
    InTheWay(Stat),
    /// A folder that this run has made, or in a dry run would have.
    Made,
    /// A folder, and how far its names have been merged.
    There { listing: Listing, next: usize },
}

/// What the walk knows about a folder before it is entered.
struct Found {
    state: State,
    wanted: bool,
    tree: Option<TreeId>,
}

struct Level {
    folder: Arc<FolderPath>,
    state: State,
    wanted: bool,
    inherited: Option<Inherited>,
    /// Where what the snapshot lacks is planned to be removed.
    around: Option<Around>,
    /// True if it lies behind a mount point, so that nothing in it is removed.
    is_mounted: bool,
    /// True once the planner has reported that its extras stay.
    is_kept: bool,
    /// True if a dry run knows that it can be written into.
    is_writable: bool,
}

struct Visit<'j, 'a> {
    job: &'j Job<'a>,
    intent: Intent,
    trust: Trust,
    single: bool,
    walk: Walk<'j, Found>,
    levels: Vec<Level>,
    cursor: Option<Cursor<'j>>,
    leaders: Leaders,
    window: Window,
    sender: Option<SyncSender<Window>>,
    planner: Planner<'j, 'a>,
}

impl<'j, 'a> Visit<'j, 'a> {
    fn new(
        job: &'j Job<'a>,
        what: &What,
        intent: Intent,
        trust: Trust,
        sender: Option<SyncSender<Window>>,
    ) -> Self {
        let tree = match what {
            What::Folder { tree, .. } => Some(*tree),
            What::Entry(_) => None,
        };
        let top = Found { state: State::Made, wanted: job.filter.wants_top(), tree };
        Self {
            job,
            intent,
            trust,
            single: matches!(what, What::Entry(_)),
            walk: Walk::new(job.store, what, top),
            levels: Vec::new(),
            cursor: window::cursor(job),
            leaders: Leaders::new(),
            window: Window { is_first: true, ..Window::default() },
            sender,
            planner: Planner::new(job, None),
        }
    }

    fn run(mut self) -> Result<Plan, RestoreError> {
        while let Some(step) = self.walk.next()? {
            if self.job.is_halted() {
                return Ok(Plan::default()); // The caller finds out why.
            }
            match step {
                Step::Enter(folder, found) => self.enter(folder, found)?,
                Step::Entries(entries) => self.entries(entries)?,
                Step::Leave(_) => self.leave()?,
                Step::Broken(_, error) if is_out_of_reach(&error) => return Err(error.into()),
                Step::Broken(id, error) => {
                    let path = self.level().folder.to_path();
                    self.job.tally.damaged(path, id.object(), error);
                }
            }
        }
        self.flush();
        Ok(self.planner.plan)
    }

    /// Returns whether this visit reports notes; a later visit would repeat them otherwise.
    fn tells(&self) -> bool {
        self.intent == Intent::Write || self.job.options.mode == Mode::DryRun
    }

    fn level(&self) -> &Level {
        self.levels.last().expect("the walk enters a folder before it tells of its entries")
    }

    /// Hands the window over to be written.
    fn flush(&mut self) {
        let window = std::mem::take(&mut self.window);
        self.job.store.will_need_contents(&mut window.files.iter().map(|task| task.id));
        if let Some(sender) = self.sender.as_ref().filter(|_| !window.is_empty()) {
            // Fails only when the writer panicked, and then `run` knows.
            let _ = sender.send(window);
        }
    }

    fn enter(&mut self, folder: Arc<FolderPath>, found: Found) -> Result<(), RestoreError> {
        let job = self.job;
        let is_top = folder.depth() == 0;
        let Found { mut state, wanted, tree } = found;
        let there = matches!(state, State::There { .. }) || (is_top && !job.is_empty());
        if there {
            state = self.look_into(&folder)?;
        }
        let inherited = if is_top { job.inherited() } else { None };
        let mut level = Level {
            folder,
            state,
            wanted,
            inherited,
            around: None,
            is_mounted: false,
            is_kept: false,
            is_writable: false,
        };
        if self.intent != Intent::Write && matches!(level.state, State::There { .. }) {
            self.find_mount(&mut level)?;
        }
        self.guard_enter(&level.folder, tree, &level.state)?;
        self.levels.push(level);
        if wanted && !is_top { self.ensure() } else { Ok(()) }
    }

    /// Lists a folder that is there.
    fn look_into(&mut self, at: &Arc<FolderPath>) -> Result<State, RestoreError> {
        let (job, tells) = (self.job, self.tells());
        let Some(cursor) = &mut self.cursor else { return Ok(State::Made) };
        let folder = cursor.folder(at)?;
        let mut skip = || {
            if tells {
                job.tally.add(Count::Skipped, 1);
                job.skip_store(&at.to_path());
            }
            self.walk.skip();
            State::There { listing: Listing::default(), next: 0 }
        };
        if job.is_store(folder) {
            return Ok(skip());
        }
        let listing = match folder.list() {
            Err(_) if self.intent == Intent::Write && make_accessible(cursor, at) => {
                cursor.folder(at)?.list()
            }
            listing => listing,
        };
        let listing = match listing {
            // The visit that writes makes it accessible, if it can.
            Err(_) if self.intent == Intent::Plan => {
                if job.options.extras == Extras::Delete {
                    self.planner.keep_unreadable(at);
                }
                Listing::default()
            }
            listing => listing.map_err(|e| job.error("read folder", at, None, e))?,
        };
        if is_store(at.parent().map_or(&[], |(_, name)| name.as_bytes()), &listing) {
            job.note_store(at.to_path());
            return Ok(skip());
        }
        if self.intent == Intent::Write {
            job.sweep(cursor.folder(at)?, &listing);
        }
        Ok(State::There { listing, next: 0 })
    }

    /// Makes the present folder and those above it that are still missing.
    fn ensure(&mut self) -> Result<(), RestoreError> {
        let is_there = |level: &Level| matches!(level.state, State::Made | State::There { .. });
        let missing = self.levels.iter().rposition(is_there).map_or(0, |index| index + 1);
        for index in missing..self.levels.len() {
            self.check_writable(index.saturating_sub(1))?;
            let (above, below) = self.levels.split_at_mut(index);
            let (Some(parent), Some(level)) = (above.last(), below.first_mut()) else { continue };
            let Some((_, name)) = level.folder.parent() else { continue };
            let in_the_way = matches!(level.state, State::InTheWay(_));
            if self.intent == Intent::Plan {
                level.state = State::Made;
                continue;
            }
            let change = if in_the_way { Change::Replace } else { Change::Create };
            if self.intent == Intent::Compare {
                if in_the_way && self.job.options.existing == Existing::Stop {
                    self.job.tally.differs(level.folder.to_path());
                }
            } else if let Some(cursor) = &mut self.cursor {
                level.inherited = make(self.job, cursor, parent, name, in_the_way)?;
            }
            let stat = match (&level.state, self.job.options.mode) {
                (State::InTheWay(stat), Mode::DryRun) => Some(stat),
                _ => None,
            };
            match stat {
                Some(stat) => self.planner.replaces(&parent.folder, name, stat),
                None => self.job.changed(&parent.folder, name, change, Loss::Nothing),
            }
            self.job.tally.add(Count::Folders, 1);
            level.state = State::Made;
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), RestoreError> {
        self.extras_before(None)?;
        self.levels.pop();
        self.planner.guard.iter_mut().for_each(Guard::leave);
        Ok(())
    }

    /// What is there under the names of some entries.
    fn look_at(&mut self, entries: &[Entry]) -> Result<Vec<Option<Stat>>, RestoreError> {
        let mut stats = Vec::with_capacity(entries.len());
        for entry in entries {
            self.extras_before(Some(&entry.name))?;
            let Some(level) = self.levels.last_mut() else { break };
            let State::There { listing, next } = &mut level.state else { break };
            let hit = listing.get(*next).is_some_and(|(name, _)| name == entry.name.as_bytes());
            let mut stat = None;
            if let Some(cursor) = self.cursor.as_mut().filter(|_| hit) {
                *next += 1;
                let failed = |e| self.job.error("look at", &level.folder, Some(&entry.name), e);
                stat = cursor.folder(&level.folder)?.stat(&entry.name).map_err(failed)?;
            }
            stats.push(stat);
        }
        stats.resize(entries.len(), None);
        Ok(stats)
    }

    fn entries(&mut self, entries: Vec<Entry>) -> Result<(), RestoreError> {
        let stats = self.look_at(&entries)?;
        let mut choices = Vec::with_capacity(entries.len());
        for entry in &entries {
            choices.push(self.choose(entry));
        }
        let verdicts = self.verdicts(&entries, &stats, &choices)?;
        let mut folders = Vec::new();
        let all = entries.into_iter().zip(stats).zip(choices).zip(verdicts);
        for (((entry, stat), choice), verdict) in all {
            if self.job.is_halted() {
                return Ok(());
            }
            if let Kind::Folder { id } = entry.kind {
                if choice != Choice::Excluded {
                    let wanted = choice == Choice::Wanted;
                    let (state, tree) = (state_of(stat.as_ref()), Some(id));
                    folders.push((entry, Found { state, wanted, tree }));
                }
            } else if choice == Choice::Wanted {
                self.ensure()?;
                self.act(entry, stat, verdict)?;
                if self.window.is_full() {
                    self.flush();
                }
            }
        }
        let trees = &mut folders.iter().filter_map(|(entry, _)| Entry::folder(entry));
        self.job.store.will_need_objects(trees);
        self.walk.descend(folders);
        Ok(())
    }

    fn choose(&mut self, entry: &Entry) -> Choice {
        let at = Arc::clone(&self.level().folder);
        let cursor = &mut self.cursor;
        let is_reserved =
            self.job.reserves(entry, || cursor.as_mut().and_then(|c| c.folder(&at).ok()));
        let level = self.level();
        if is_reserved {
            if self.tells() {
                self.job.tally.add(Count::Skipped, 1);
                self.job.skip_store(&level.folder.join(&entry.name));
            }
            return Choice::Excluded;
        }
        if self.job.filter.is_open() {
            return Choice::Wanted;
        }
        let is_folder = matches!(entry.kind, Kind::Folder { .. });
        self.job.filter.choose(&level.folder.join(&entry.name), is_folder, level.wanted)
    }

    fn verdicts(
        &mut self,
        entries: &[Entry],
        stats: &[Option<Stat>],
        choices: &[Choice],
    ) -> Result<Vec<Verdict>, RestoreError> {
        let present = stats.iter().flatten().count();
        let (job, trust) = (self.job, self.trust);
        let at = &self.levels.last().expect("a folder was entered").folder;
        let Some(cursor) = self.cursor.as_mut().filter(|_| present > 0) else {
            return Ok(vec![Verdict::Absent; entries.len()]);
        };
        let folder: &Folder = cursor.folder(at)?;
        let one = |((entry, stat), choice): ((&Entry, &Option<Stat>), &Choice)| match stat {
            Some(stat) if *choice == Choice::Wanted && !job.is_halted() => {
                compare(job, folder, entry, stat, trust)
            }
            _ => Verdict::Absent,
        };
        if present < COMPARED_ALONE {
            return Ok(entries.iter().zip(stats).zip(choices).map(one).collect());
        }
        Ok(job.pool.install(|| entries.par_iter().zip(stats).zip(choices).map(one).collect()))
    }
}

fn state_of(stat: Option<&Stat>) -> State {
    match stat.map(|stat| (FileType::from_raw_mode(stat.st_mode), stat)) {
        None => State::Missing,
        Some((FileType::Directory, _)) => State::There { listing: Listing::default(), next: 0 },
        Some((_, stat)) => State::InTheWay(*stat),
    }
}
