//! Walking the tree beside the target: what is there, what is to be done.
//!
//! The names in an existing folder are listed once, sorted, and merged with
//! the entries of the tree as they come, so a name that is not there costs no
//! system call. In a folder that this run has made nothing is looked at.

mod act;
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
    base::name::EntryName,
    format::tree::{Entry, Kind},
    local::{
        contain::{Cursor, Folder, FolderPath, Listing},
        write::{Inherited, is_temporary},
    },
    ops::restore::{
        Change, Existing, Extras, RestoreError, What,
        compare::{Verdict, compare},
        filter::Choice,
        job::Job,
        links::Leaders,
        tally::Count,
        visit::folders::{make, make_accessible},
        walk::{Step, Walk},
        window::{self, Window, is_out_of_reach},
    },
};

/// Whether the visit writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// It compares, counts and tells.
    Compare,
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
}

/// Entries that are there and are compared by several threads from here on.
const COMPARED_ALONE: usize = 8;

/// Visits everything that is to be restored.
pub(super) fn run(
    job: &Job<'_>,
    what: &What,
    intent: Intent,
    trust: Trust,
) -> Result<(), RestoreError> {
    if intent == Intent::Compare {
        Visit::new(job, what, intent, trust, None).run()?;
        return job.check();
    }
    thread::scope(|scope| {
        let (sender, windows) = sync_channel(1);
        let walker = scope.spawn(move || Visit::new(job, what, intent, trust, Some(sender)).run());
        for window in windows {
            job.pool.install(|| window::write(job, window));
        }
        match walker.join() {
            Ok(Ok(())) => {}
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
    InTheWay,
    /// A folder that this run has made, or in a dry run would have.
    Made,
    /// A folder, and how far its names have been merged.
    There { listing: Listing, next: usize },
}

/// What the walk knows about a folder before it is entered.
struct Found {
    state: State,
    wanted: bool,
}

struct Level {
    folder: Arc<FolderPath>,
    state: State,
    wanted: bool,
    inherited: Option<Inherited>,
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
}

impl<'j, 'a> Visit<'j, 'a> {
    fn new(
        job: &'j Job<'a>,
        what: &What,
        intent: Intent,
        trust: Trust,
        sender: Option<SyncSender<Window>>,
    ) -> Self {
        let top = Found { state: State::Made, wanted: job.filter.wants_top() };
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
        }
    }

    fn run(mut self) -> Result<(), RestoreError> {
        while let Some(step) = self.walk.next()? {
            if self.job.is_halted() {
                return Ok(()); // The caller finds out why.
            }
            match step {
                Step::Enter(folder, found) => self.enter(folder, found)?,
                Step::Entries(entries) => self.entries(entries)?,
                Step::Leave(_) => self.leave(),
                Step::Broken(_, error) if is_out_of_reach(&error) => return Err(error.into()),
                Step::Broken(id, error) => {
                    let path = self.level().folder.to_path();
                    self.job.tally.damaged(path, id.object(), error);
                }
            }
        }
        self.flush();
        Ok(())
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
        let Found { mut state, wanted } = found;
        let there = matches!(state, State::There { .. }) || (is_top && !job.is_empty());
        if there {
            state = self.look_into(&folder)?;
        }
        let inherited = if is_top { job.inherited() } else { None };
        self.levels.push(Level { folder, state, wanted, inherited });
        if wanted && !is_top { self.ensure() } else { Ok(()) }
    }

    /// Lists a folder that is there.
    fn look_into(&mut self, at: &Arc<FolderPath>) -> Result<State, RestoreError> {
        let job = self.job;
        let Some(cursor) = &mut self.cursor else { return Ok(State::Made) };
        let folder = cursor.folder(at)?;
        if job.is_store(folder) {
            job.tally.add(Count::Skipped, 1);
            job.skip_store(&at.to_path());
            self.walk.skip();
            return Ok(State::There { listing: Listing::default(), next: 0 });
        }
        let listing = match folder.list() {
            Err(_) if self.intent == Intent::Write && make_accessible(cursor, at) => {
                cursor.folder(at)?.list()
            }
            listing => listing,
        };
        let listing = listing.map_err(|e| job.error("read folder", at, None, e))?;
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
            let (above, below) = self.levels.split_at_mut(index);
            let (Some(parent), Some(level)) = (above.last(), below.first_mut()) else { continue };
            let Some((_, name)) = level.folder.parent() else { continue };
            let in_the_way = matches!(level.state, State::InTheWay);
            let change = if in_the_way { Change::Replace } else { Change::Create };
            if self.intent == Intent::Compare {
                if in_the_way && self.job.options.existing == Existing::Stop {
                    self.job.tally.differs(level.folder.to_path());
                }
            } else if let Some(cursor) = &mut self.cursor {
                level.inherited = make(self.job, cursor, parent, name, in_the_way)?;
            }
            self.job.changed(&parent.folder, name, change);
            self.job.tally.add(Count::Folders, 1);
            level.state = State::Made;
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.extras_before(None);
        self.levels.pop();
    }

    /// Tells of names in the present folder that the tree lacks, up to `end`.
    fn extras_before(&mut self, end: Option<&EntryName>) {
        let (job, tells) = (self.job, self.intent == Intent::Compare);
        let is_top = self.levels.len() == 1;
        let Some(level) = self.levels.last_mut() else { return };
        let State::There { listing, next } = &mut level.state else { return };
        while let Some((name, kind)) = listing.get(*next) {
            if end.is_some_and(|end| name >= end.as_bytes()) {
                return;
            }
            *next += 1;
            let goes = tells
                && job.options.extras == Extras::Delete
                && !(is_top && self.single)
                && !Job::is_reserved(&level.folder, name)
                && !is_temporary(name);
            let Some(name) = EntryName::new(name).ok().filter(|_| goes) else { continue };
            let is_folder = kind == FileType::Directory;
            let open = job.filter.is_open();
            let choose = || job.filter.choose(&level.folder.join(&name), is_folder, level.wanted);
            if open || choose() == Choice::Wanted {
                job.tally.add(Count::Removed, 1);
                job.changed(&level.folder, &name, Change::Remove);
            }
        }
    }

    /// What is there under the names of some entries.
    fn look_at(&mut self, entries: &[Entry]) -> Result<Vec<Option<Stat>>, RestoreError> {
        let mut stats = Vec::with_capacity(entries.len());
        for entry in entries {
            self.extras_before(Some(&entry.name));
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
        let choices: Vec<Choice> = entries.iter().map(|entry| self.choose(entry)).collect();
        let verdicts = self.verdicts(&entries, &stats, &choices)?;
        let mut folders = Vec::new();
        let all = entries.into_iter().zip(stats).zip(choices).zip(verdicts);
        for (((entry, stat), choice), verdict) in all {
            if self.job.is_halted() {
                return Ok(());
            }
            if matches!(entry.kind, Kind::Folder { .. }) {
                if choice != Choice::Excluded {
                    let wanted = choice == Choice::Wanted;
                    folders.push((entry, Found { state: state_of(stat.as_ref()), wanted }));
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

    fn choose(&self, entry: &Entry) -> Choice {
        let level = self.level();
        if Job::is_reserved(&level.folder, entry.name.as_bytes()) {
            if self.intent == Intent::Write {
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
    match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        None => State::Missing,
        Some(FileType::Directory) => State::There { listing: Listing::default(), next: 0 },
        Some(_) => State::InTheWay,
    }
}
