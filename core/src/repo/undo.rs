//! Finds the change of a ref that an undo takes back or a redo makes again.
//!
//! An undo is a normal change: it moves the ref to its value before the change that is undone. The
//! reason in its log line is `undo: ` and the reason of that change; the reason of a redo starts
//! with `redo: `. The logs therefore hold all the state. Reading a log from its oldest line builds
//! two stacks:
//!
//! | line                                        | undo stack     | redo stack     |
//! |---------------------------------------------|----------------|----------------|
//! | a change                                    | pushes it      | is cleared     |
//! | `undo: …` that reverts the top of the undo stack | pops it   | pushes it      |
//! | `redo: …` that repeats the top of the redo stack | pushes it | pops it        |
//!
//! Each ref has its own two stacks. An undo without a name takes the newest change of all refs, by
//! the time of the change itself; repeated undos therefore go further back instead of alternating.
//! A redo without a name takes the change that was undone last, unless any ref has changed since
//! then. A redo with a name fails only if that ref has changed.
//!
//! A crash may leave a log line about a change that did not happen. The next line then starts from
//! the same value, which identifies it. If the old value of a line is any other than the new value
//! of the line before, undo stops there.

use crate::{
    base::{id::CommitId, kind::ErrorKind, time::Time},
    repo::{
        ref_log::{RefLogEntry, RefValue},
        ref_name::Pointer,
        refs::{RefError, Refs},
    },
    store::StoreError,
};

const UNDO: &str = "undo";
const REDO: &str = "redo";

/// Selects between an undo and a redo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Takes a change back.
    #[default]
    Undo,
    /// Makes a change again that was taken back.
    Redo,
}

impl Direction {
    /// Returns the verb for messages, JSON and logs.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Undo => UNDO,
            Self::Redo => REDO,
        }
    }
}

impl RefLogEntry {
    /// Returns true if the line takes an earlier change back.
    pub fn is_undo(&self) -> bool {
        self.has_verb(UNDO)
    }

    fn has_verb(&self, verb: &str) -> bool {
        let rest = self.reason.strip_prefix(verb);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
    }
}

/// What an undo or a redo will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoPlan {
    /// The ref that moves.
    pub pointer: Pointer,
    /// Its current value.
    pub from: RefValue,
    /// Its new value.
    pub to: RefValue,
    /// The change that is taken back or made again.
    pub change: RefLogEntry,
    /// Selects between an undo and a redo.
    pub direction: Direction,
}

impl UndoPlan {
    /// Returns the reason for the log.
    pub fn reason(&self) -> String {
        format!("{}: {}", self.direction.verb(), self.change.reason)
    }
}

/// Why an undo or a redo is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// There is no change to undo or redo, in all refs or in the one that the caller named.
    #[error("nothing to {}{}", direction.verb(), of(pointer.as_ref()))]
    Nothing { direction: Direction, pointer: Option<Pointer> },
    /// The undone change cannot be redone, because a ref has changed since.
    #[error("nothing to redo: {} has changed since the last undo", pointer.shown())]
    Since { pointer: Pointer },
    /// The last value in the log is not the current value of the ref.
    #[error("the log of {} does not record how it got its current value", pointer.shown())]
    Log { pointer: Pointer },
    /// The earlier commit of the ref cannot be read.
    #[error("cannot read commit {id:.12}, the earlier value of {}", pointer.shown())]
    Commit { pointer: Pointer, id: CommitId, source: Box<StoreError> },
    /// The ref cannot be read or moved.
    #[error(transparent)]
    Ref(#[from] RefError),
}

fn of(pointer: Option<&Pointer>) -> String {
    pointer.map(|pointer| format!(" of {}", pointer.shown())).unwrap_or_default()
}

impl UndoError {
    /// Returns the kind of the error, from which a caller decides what to do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Nothing { .. } | Self::Since { .. } => ErrorKind::NotFound,
            Self::Log { .. } => ErrorKind::Damaged,
            Self::Commit { source, .. } => source.kind(),
            Self::Ref(error) => error.kind(),
        }
    }
}

/// Plans the undo or redo of `wanted`; without it, of the ref that changed last. Changes no ref.
///
/// **Not** checked: that the commit still exists.
///
/// # Errors
/// [`UndoError`] says why no undo or redo is possible.
pub fn plan(
    refs: &Refs,
    wanted: Option<&Pointer>,
    direction: Direction,
) -> Result<UndoPlan, UndoError> {
    match plan_unlocked(refs, wanted, direction) {
        // If other processes move the ref between the reads of its value and of its log, the two
        // differ as well. The lock excludes such moves, so a difference is then damage.
        Err(error @ UndoError::Log { .. }) => match refs.lock() {
            Ok(_lock) => plan_unlocked(refs, wanted, direction),
            Err(locked @ RefError::Locked { .. }) => Err(locked.into()),
            // A read-only store has no such processes.
            Err(_) => Err(error),
        },
        planned => planned,
    }
}

fn plan_unlocked(
    refs: &Refs,
    wanted: Option<&Pointer>,
    direction: Direction,
) -> Result<UndoPlan, UndoError> {
    if let Some(pointer) = wanted {
        let past = Past::read(refs, pointer)?;
        let nothing = || UndoError::Nothing { direction, pointer: Some(pointer.clone()) };
        return past.plan(direction)?.ok_or_else(nothing);
    }
    let mut first: Option<(Time, Past)> = None;
    let mut changed: Option<(Time, Pointer)> = None;
    for pointer in refs.logged()? {
        let past = Past::read(refs, &pointer)?;
        if past.changed > changed.as_ref().map(|(time, _)| *time) {
            changed = past.changed.map(|time| (time, pointer));
        }
        if let Some(time) = past.first(direction)
            && first.as_ref().is_none_or(|(other, _)| *other < time)
        {
            first = Some((time, past));
        }
    }
    let nothing = || UndoError::Nothing { direction, pointer: None };
    let (time, past) = first.ok_or_else(nothing)?;
    match changed {
        Some((changed, pointer)) if direction == Direction::Redo && changed > time => {
            Err(UndoError::Since { pointer })
        }
        _ => past.plan(direction)?.ok_or_else(nothing),
    }
}

/// The history of one ref, read from its log.
#[derive(Debug)]
struct Past {
    pointer: Pointer,
    /// Undo stack: the next change to undo is last.
    made: Vec<RefLogEntry>,
    /// Redo stack, with the time of each undo: the next change to redo is last.
    undone: Vec<(Time, RefLogEntry)>,
    /// The value after the last line of the log.
    last_value: Option<RefValue>,
    /// True if the log is complete from the creation of the ref.
    is_whole: bool,
    /// Time of the last change that was neither undo nor redo.
    changed: Option<Time>,
    /// The value before the last line, and what that line did to the stacks.
    last: Option<(RefValue, Did)>,
    /// The current value of the ref.
    target: Result<RefValue, RefError>,
}

/// The effect of a log line on the stacks, with the data to revert it.
#[derive(Debug)]
enum Did {
    Change { forgot: Vec<(Time, RefLogEntry)>, before: Option<Time> },
    Undo,
    Redo { undone: Time },
}

impl Past {
    fn read(refs: &Refs, pointer: &Pointer) -> Result<Self, RefError> {
        let mut past = Self {
            pointer: pointer.clone(),
            made: Vec::new(),
            undone: Vec::new(),
            last_value: None,
            is_whole: true,
            changed: None,
            last: None,
            target: refs.target(pointer),
        };
        refs.log_of(pointer)?.into_iter().for_each(|line| past.add(line));
        if let (Ok(target), false) = (past.target.as_ref().map(RefValue::clone), past.is_right()) {
            past.forget_last(&target);
        }
        Ok(past)
    }

    /// Returns true if the log ends at the current value.
    fn is_right(&self) -> bool {
        match (&self.last_value, &self.target) {
            (Some(last_value), Ok(target)) => last_value == target,
            _ => true,
        }
    }

    fn add(&mut self, line: RefLogEntry) {
        if line.old == line.new {
            return;
        }
        // Either the line starts at the logged value, or the last line's change did not happen.
        let follows = match &self.last_value {
            Some(last_value) => *last_value == line.old || self.forget_last(&line.old),
            None => line.old == RefValue::Nothing || self.pointer == Pointer::Head,
        };
        if !follows {
            self.made.clear();
            self.undone.clear();
            self.is_whole = false;
        }
        let (old, new) = (line.old.clone(), line.new.clone());
        let did = self.sort_in(line);
        self.last = Some((old, did));
        self.last_value = Some(new);
    }

    fn sort_in(&mut self, line: RefLogEntry) -> Did {
        let takes_back = |change: &mut RefLogEntry| {
            line.is_undo() && change.old == line.new && change.new == line.old
        };
        if let Some(change) = self.made.pop_if(takes_back) {
            self.undone.push((line.time, change));
            return Did::Undo;
        }
        let makes_again = |(_, change): &mut (Time, RefLogEntry)| {
            line.has_verb(REDO) && change.old == line.old && change.new == line.new
        };
        if let Some((undone, change)) = self.undone.pop_if(makes_again) {
            self.made.push(change);
            return Did::Redo { undone };
        }
        let before = self.changed.replace(line.time);
        self.made.push(line);
        Did::Change { forgot: std::mem::take(&mut self.undone), before }
    }

    /// Reverts the effect of the last line if it started at `from`: its change did not happen.
    fn forget_last(&mut self, from: &RefValue) -> bool {
        let Some((start, did)) = self.last.take_if(|(start, _)| start == from) else {
            return false;
        };
        match did {
            Did::Change { forgot, before } => {
                self.made.pop();
                (self.undone, self.changed) = (forgot, before);
            }
            Did::Undo => self.made.extend(self.undone.pop().map(|(_, change)| change)),
            Did::Redo { undone } => {
                self.undone.extend(self.made.pop().map(|change| (undone, change)));
            }
        }
        self.last_value = Some(start);
        true
    }

    /// Returns the time by which the refs are compared: the ref with the newest one is undone or
    /// redone.
    fn first(&self, direction: Direction) -> Option<Time> {
        match direction {
            Direction::Undo => self.made.last().map(|change| change.time),
            Direction::Redo => self.undone.last().map(|(time, _)| *time),
        }
    }

    fn plan(mut self, direction: Direction) -> Result<Option<UndoPlan>, UndoError> {
        if !self.is_right() {
            return Err(UndoError::Log { pointer: self.pointer });
        }
        let from = self.target?;
        let change = match direction {
            Direction::Undo => self.made.pop(),
            Direction::Redo => self.undone.pop().map(|(_, change)| change),
        };
        let Some(change) = change else {
            return match (direction, self.is_whole) {
                (Direction::Undo, false) => Err(UndoError::Log { pointer: self.pointer }),
                _ => Ok(None),
            };
        };
        let to = match direction {
            Direction::Undo => change.old.clone(),
            Direction::Redo => change.new.clone(),
        };
        Ok(Some(UndoPlan { pointer: self.pointer, from, to, change, direction }))
    }
}

#[cfg(test)]
mod tests;
