//! Walking the tree beside the target: what is there, what is to be done.
//!
//! The names in an existing folder are listed once, sorted, and merged with
//! the entries of the tree as they come, so a name that is not there costs no
//! system call. In a folder that this run has made nothing is looked at.

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
    base::{io::PathError, name::EntryName},
    format::tree::{Entry, Kind},
    local::{
        attributes::{Attributes, Extra, Target, apply},
        contain::{Cursor, Folder, FolderPath, Listing},
        write::{Inherited, Placement, is_temporary},
    },
    ops::restore::{
        Change, Existing, Extras, RestoreError, What,
        compare::{Verdict, compare, repair},
        filter::Choice,
        job::{Job, identity},
        links::{Leader, Leaders, LinkTask, write_other},
        remove::{remove, stayed},
        tally::Count,
        walk::{Step, Walk},
        window::{self, FileTask, Window},
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
        let walker =
            scope.spawn(move || Visit::new(job, what, intent, trust, Some(sender)).run());
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

    /// Does, or tells, what one entry that is no folder needs.
    fn act(
        &mut self,
        entry: Entry,
        stat: Option<Stat>,
        verdict: Verdict,
    ) -> Result<(), RestoreError> {
        let is_again = entry.metadata.link.and_then(|link| self.leaders.get(&link));
        if let Some(leader) = is_again.filter(|leader| leader.kind == entry.kind) {
            let leader = Arc::clone(leader);
            return self.act_link(entry, stat, verdict, leader);
        }
        if let Some(link) = entry.metadata.link {
            let right = matches!(verdict, Verdict::Same | Verdict::Attributes);
            let there = stat.as_ref().filter(|_| right).map(identity);
            let folder = Arc::clone(&self.level().folder);
            let (kind, name) = (entry.kind.clone(), entry.name.clone());
            self.leaders.insert(link, Arc::new(Leader { kind, folder, name, there }));
        }
        self.tell(&entry, verdict);
        match (self.intent, verdict) {
            (Intent::Compare, _) => self.count(&entry, verdict),
            (Intent::Write, Verdict::Same | Verdict::Attributes) => {
                self.count(&entry, verdict);
                if let (Verdict::Attributes, Some(stat)) = (verdict, stat) {
                    self.repair(&entry, &stat)?;
                }
            }
            (Intent::Write, Verdict::Absent | Verdict::Differs) => {
                if verdict == Verdict::Absent || self.clear_way(&entry, stat.as_ref())? {
                    self.write(entry, verdict == Verdict::Differs)?;
                }
            }
        }
        Ok(())
    }

    /// Does, or tells, what a further name of a file needs.
    fn act_link(
        &mut self,
        entry: Entry,
        stat: Option<Stat>,
        verdict: Verdict,
        leader: Arc<Leader>,
    ) -> Result<(), RestoreError> {
        let is_one = stat.as_ref().map(identity).is_some_and(|id| leader.there == Some(id));
        let verdict = match verdict {
            Verdict::Absent | Verdict::Differs => verdict,
            _ if is_one => Verdict::Same,
            _ => Verdict::Attributes,
        };
        self.tell(&entry, verdict);
        if verdict == Verdict::Same {
            self.count(&entry, verdict);
            return Ok(());
        }
        if self.intent == Intent::Compare {
            self.job.tally.add(Count::Links, 1);
            return Ok(());
        }
        let Some(link) = entry.metadata.link else { return Ok(()) };
        if verdict == Verdict::Absent || self.clear_way(&entry, stat.as_ref())? {
            let folder = Arc::clone(&self.level().folder);
            let replaces = verdict != Verdict::Absent;
            let task = LinkTask { leader, link, folder, name: entry.name, replaces };
            self.window.links.push(task);
        }
        Ok(())
    }

    /// Tells the caller of a change, or counts a conflict.
    fn tell(&self, entry: &Entry, verdict: Verdict) {
        let folder = &self.level().folder;
        let change = match verdict {
            Verdict::Same => return,
            Verdict::Absent => Change::Create,
            Verdict::Attributes => Change::Repair,
            Verdict::Differs => Change::Replace,
        };
        let stops = self.intent == Intent::Compare && self.job.options.existing == Existing::Stop;
        if change == Change::Replace && stops {
            self.job.tally.differs(folder.join(&entry.name));
        } else {
            self.job.changed(folder, &entry.name, change);
        }
    }

    /// Counts what is right, and in a dry run what would be written.
    fn count(&self, entry: &Entry, verdict: Verdict) {
        let tally = &self.job.tally;
        let size = match entry.kind {
            Kind::File { size, .. } => Some(size),
            _ => None,
        };
        match (verdict, size) {
            (Verdict::Same | Verdict::Attributes, Some(_)) => tally.add(Count::FilesKept, 1),
            (Verdict::Same | Verdict::Attributes, None) => tally.add(Count::OthersKept, 1),
            (_, Some(size)) => {
                tally.add(Count::FilesWritten, 1);
                tally.add(Count::BytesWritten, size);
            }
            (_, None) if matches!(entry.kind, Kind::Symlink { .. }) => tally.add(Count::Symlinks, 1),
            (_, None) => tally.add(Count::Others, 1),
        }
        if verdict == Verdict::Attributes {
            tally.add(Count::Repaired, 1);
        }
        let units = if self.intent == Intent::Compare { 1 } else { size.unwrap_or(0) };
        self.job.observer.advance(units, 1);
    }

    fn repair(&mut self, entry: &Entry, stat: &Stat) -> Result<(), RestoreError> {
        let at = Arc::clone(&self.level().folder);
        if let Some(cursor) = &mut self.cursor {
            repair(self.job, cursor.folder(&at)?, &at, entry, stat);
        }
        Ok(())
    }

    /// Removes a folder that stands where `entry` belongs. Says whether there
    /// is none any more; others are replaced in one step and need not go.
    fn clear_way(&mut self, entry: &Entry, stat: Option<&Stat>) -> Result<bool, RestoreError> {
        let is_folder =
            stat.is_some_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory);
        let level = self.levels.last().expect("a folder was entered");
        let Some(cursor) = self.cursor.as_mut().filter(|_| is_folder) else { return Ok(true) };
        let cleared = if self.job.options.extras == Extras::Delete {
            remove(self.job, cursor, &level.folder, &entry.name, level.wanted)?
        } else {
            match cursor.folder(&level.folder)?.remove_folder(&entry.name) {
                Ok(()) => true,
                Err(error) if stayed(&error) => false,
                Err(error) => {
                    let name = Some(&entry.name);
                    return Err(self.job.error("remove folder", &level.folder, name, error).into());
                }
            }
        };
        if !cleared {
            self.job.tally.blocked(level.folder.join(&entry.name));
            self.job.link_failed(entry.metadata.link);
        }
        Ok(cleared)
    }

    fn write(&mut self, entry: Entry, replaces: bool) -> Result<(), RestoreError> {
        let level = self.levels.last().expect("a folder was entered");
        let (at, inherited) = (Arc::clone(&level.folder), level.inherited);
        if let Kind::File { size, id } = entry.kind {
            let placement = if replaces { Placement::Replace } else { Placement::New };
            let Entry { name, metadata, .. } = entry;
            self.window.bytes += size;
            self.window.files.push(FileTask {
                folder: at,
                name,
                id,
                size,
                metadata,
                inherited,
                placement,
            });
        } else if let Some(cursor) = &mut self.cursor {
            write_other(self.job, cursor.folder(&at)?, &at, &entry, inherited, replaces)?;
            self.job.observer.advance(0, 1);
        }
        Ok(())
    }
}

fn state_of(stat: Option<&Stat>) -> State {
    match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        None => State::Missing,
        Some(FileType::Directory) => State::There { listing: Listing::default(), next: 0 },
        Some(_) => State::InTheWay,
    }
}

/// Makes a folder. Nobody else may enter it until it is finished.
fn make(
    job: &Job<'_>,
    cursor: &mut Cursor<'_>,
    parent: &Level,
    name: &EntryName,
    in_the_way: bool,
) -> Result<Option<Inherited>, PathError> {
    let failed = |action, error| job.error(action, &parent.folder, Some(name), error);
    let folder = cursor.folder(&parent.folder)?;
    if in_the_way {
        folder.remove(name).map_err(|e| failed("remove", e))?;
    }
    folder.make_folder(name, 0o700).map_err(|e| failed("create folder", e))?;
    if parent.inherited.is_some() {
        return Ok(parent.inherited);
    }
    // The folder above was there before and says nothing about new files.
    let made = folder.folder(name).and_then(|folder| Inherited::probe(&folder));
    made.map_err(|e| failed("open folder", e))
}

/// Gives the owner all rights on a folder that is there and lacks them, until
/// it gets its own mode at the end. Says whether it did.
fn make_accessible(cursor: &mut Cursor<'_>, at: &Arc<FolderPath>) -> bool {
    let Some((parent, name)) = at.parent() else { return false };
    let Ok(parent) = cursor.folder(parent) else { return false };
    let Ok(Some(stat)) = parent.stat(name) else { return false };
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o700 == 0o700 {
        return false;
    }
    let mode = u16::try_from(stat.st_mode & 0o7777 | 0o700).ok();
    let attributes =
        Attributes { owner: None, mode, mtime: None, xattrs: &[], extra: Extra::Keep };
    let mut done = true;
    apply(Target::Entry(parent, name), &attributes, &mut |_, _| done = false);
    done
}
