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
//! A crash may leave a log line about a change that did not happen. The next line then has the same
//! old value, which identifies the false line. At any other mismatch between the old value of a
//! line and the new value of the line before, undo stops.

use std::mem;

use crate::{
    base::{id::CommitId, kind::Kind, time::Time},
    repo::{
        open::Repo,
        ref_log::{RefLogEntry, RefValue},
        ref_name::Pointer,
        refs::{RefError, RefLogMessage, Refs},
    },
    store::StoreError,
};

const UNDO: &str = "undo";
const REDO: &str = "redo";

/// Whether to undo or to redo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Takes a change back.
    #[default]
    Undo,
    /// Makes an undone change again.
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

/// The move of a ref that an undo or a redo will make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoPlan {
    /// The ref that moves.
    pub pointer: Pointer,
    /// Its current value.
    pub from: RefValue,
    /// Its new value.
    pub to: RefValue,
    /// The change to take back or to make again.
    pub change: RefLogEntry,
    /// When the change was undone; `None` for an undo.
    pub undone: Option<Time>,
    pub direction: Direction,
}

impl UndoPlan {
    /// Returns the reason for the log.
    pub fn reason(&self) -> String {
        format!("{}: {}", self.direction.verb(), self.change.reason)
    }

    /// Moves the ref by compare-and-swap, durably and with a line in its log. The reason in
    /// `change` must be [`UndoPlan::reason`].
    ///
    /// # Errors
    /// [`RefError`] if the ref has moved since the plan was made, or cannot be written.
    pub fn run(&self, refs: &Refs, change: &RefLogMessage<'_>) -> Result<(), RefError> {
        debug_assert_eq!(change.reason, self.reason());
        refs.retarget(&self.pointer, &self.from, &self.to, change)
    }
}

/// Why an undo or a redo is not possible.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(NotFound)]
#[non_exhaustive]
pub enum UndoError {
    /// There is no change to undo or redo, in all refs or in the one that the caller named.
    #[error("nothing to {}{}", direction.verb(), of(pointer.as_ref()))]
    Nothing { direction: Direction, pointer: Option<Pointer> },
    /// The undone change cannot be redone, because a ref has changed since.
    #[error("nothing to redo: {} has changed since the last undo", pointer.shown())]
    ChangedSince { pointer: Pointer },
    /// The undone change cannot be redone, because commits were forgotten since.
    #[error("nothing to redo: `snap forget` has run since the last undo")]
    ForgottenSince,
    /// The last value in the log is not the current value of the ref.
    #[error("the log of {} does not record how it got its current value", pointer.shown())]
    #[kind(Damaged)]
    Log { pointer: Pointer },
    /// Garbage collection has deleted the commit to which the ref would move.
    #[error("cannot {} the last change of {}: `snap gc` has deleted commit {id:.12}", direction.verb(), pointer.shown())]
    Collected { direction: Direction, pointer: Pointer, id: CommitId },
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

/// Plans the undo or redo of a change of `wanted`, or of any ref if `wanted` is `None`. Checks that
/// the commit of the new value can be read. Changes no ref.
///
/// # Errors
/// [`UndoError`] says why no undo or redo is possible.
pub fn plan(
    repo: &Repo,
    wanted: Option<&Pointer>,
    direction: Direction,
) -> Result<UndoPlan, UndoError> {
    let plan = plan_refs(repo.refs(), wanted, direction)?;
    if let RefValue::Commit(id) = plan.to
        && let Err(source) = repo.store().commit(&id)
    {
        if matches!(source, StoreError::Missing { .. }) && repo.may_be_collected(&id)? {
            return Err(UndoError::Collected { direction, pointer: plan.pointer, id });
        }
        return Err(UndoError::Commit { pointer: plan.pointer, id, source: Box::new(source) });
    }
    Ok(plan)
}

/// Returns the ref that changed last, if that was after `time`. An undo or a redo does not count.
///
/// # Errors
/// [`UndoError::Ref`] if a log cannot be read.
pub fn changed_since(refs: &Refs, time: Time) -> Result<Option<Pointer>, UndoError> {
    let mut last = None;
    for pointer in refs.logged()? {
        let changed = RefHistory::read(refs, &pointer)?.changed;
        last = last.max(changed.filter(|changed| *changed > time).map(|time| (time, pointer)));
    }
    Ok(last.map(|(_, pointer)| pointer))
}

/// Plans an undo or redo without reading commits.
fn plan_refs(
    refs: &Refs,
    wanted: Option<&Pointer>,
    direction: Direction,
) -> Result<UndoPlan, UndoError> {
    match plan_unlocked(refs, wanted, direction) {
        // The value and the log also differ if another process moves the ref between the two reads.
        // The lock excludes such moves, so a difference is then damage.
        Err(error @ UndoError::Log { .. }) => match refs.lock() {
            Ok(_lock) => plan_unlocked(refs, wanted, direction),
            Err(locked @ RefError::Locked { .. }) => Err(locked.into()),
            // The store is read-only, so no other process moves refs.
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
        let history = RefHistory::read(refs, pointer)?;
        let nothing = || UndoError::Nothing { direction, pointer: Some(pointer.clone()) };
        return history.plan(direction)?.ok_or_else(nothing);
    }
    // The history whose change is the newest, and the ref that changed last.
    let mut first: Option<(Time, RefHistory)> = None;
    let mut changed: Option<(Time, Pointer)> = None;
    for pointer in refs.logged()? {
        let history = RefHistory::read(refs, &pointer)?;
        if history.changed > changed.as_ref().map(|(time, _)| *time) {
            changed = history.changed.map(|time| (time, pointer));
        }
        if let Some(time) = history.order_time(direction)
            && first.as_ref().is_none_or(|(other, _)| *other < time)
        {
            first = Some((time, history));
        }
    }
    let nothing = || UndoError::Nothing { direction, pointer: None };
    let (time, history) = first.ok_or_else(nothing)?;
    match changed {
        Some((changed, pointer)) if direction == Direction::Redo && changed > time => {
            Err(UndoError::ChangedSince { pointer })
        }
        _ => history.plan(direction)?.ok_or_else(nothing),
    }
}

/// The history of one ref, read from its log.
#[derive(Debug)]
struct RefHistory {
    pointer: Pointer,
    /// The next change to undo is last.
    undo_stack: Vec<RefLogEntry>,
    /// The undone changes, each with the time of its undo. The next one to redo is last.
    redo_stack: Vec<(Time, RefLogEntry)>,
    /// The value after the last line of the log.
    last_value: Option<RefValue>,
    /// True if the log is complete from the creation of the ref.
    is_whole: bool,
    /// Time of the last change that was neither undo nor redo.
    changed: Option<Time>,
    /// The value before the last line, and what that line did to the stacks.
    last: Option<(RefValue, LineEffect)>,
    /// The current value.
    target: Result<RefValue, RefError>,
}

/// The effect of a log line on the stacks, with the data to revert it.
#[derive(Debug)]
enum LineEffect {
    /// The line cleared the redo stack and replaced the time of the last change.
    Change { redo_stack: Vec<(Time, RefLogEntry)>, changed: Option<Time> },
    /// The line moved a change to the redo stack.
    Undo,
    /// The line moved a change back to the undo stack, which was undone at the time `undone`.
    Redo { undone: Time },
}

impl RefHistory {
    fn read(refs: &Refs, pointer: &Pointer) -> Result<Self, RefError> {
        let mut history = Self {
            pointer: pointer.clone(),
            undo_stack: Vec::new(),
            redo_stack: Vec::new(),
            last_value: None,
            is_whole: true,
            changed: None,
            last: None,
            target: refs.target(pointer),
        };
        refs.log_of(pointer)?.into_iter().for_each(|line| history.add(line));
        if let (Ok(target), false) =
            (history.target.as_ref().map(RefValue::clone), history.ends_at_target())
        {
            history.revert_last(&target);
        }
        Ok(history)
    }

    /// Returns true if the log ends at the current value of the ref.
    fn ends_at_target(&self) -> bool {
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
            Some(last_value) => *last_value == line.old || self.revert_last(&line.old),
            None => line.old == RefValue::Nothing || self.pointer == Pointer::Head,
        };
        if !follows {
            self.undo_stack.clear();
            self.redo_stack.clear();
            self.is_whole = false;
        }
        let (old, new) = (line.old.clone(), line.new.clone());
        let effect = self.apply(line);
        self.last = Some((old, effect));
        self.last_value = Some(new);
    }

    /// Applies a line to the stacks.
    fn apply(&mut self, line: RefLogEntry) -> LineEffect {
        let takes_back = |change: &mut RefLogEntry| {
            line.is_undo() && change.old == line.new && change.new == line.old
        };
        if let Some(change) = self.undo_stack.pop_if(takes_back) {
            self.redo_stack.push((line.time, change));
            return LineEffect::Undo;
        }
        let makes_again = |(_, change): &mut (Time, RefLogEntry)| {
            line.has_verb(REDO) && change.old == line.old && change.new == line.new
        };
        if let Some((undone, change)) = self.redo_stack.pop_if(makes_again) {
            self.undo_stack.push(change);
            return LineEffect::Redo { undone };
        }
        let changed = self.changed.replace(line.time);
        self.undo_stack.push(line);
        LineEffect::Change { redo_stack: mem::take(&mut self.redo_stack), changed }
    }

    /// Reverts the effect of the last line if it started at `from`: its change did not happen.
    fn revert_last(&mut self, from: &RefValue) -> bool {
        let Some((start, effect)) = self.last.take_if(|(start, _)| start == from) else {
            return false;
        };
        match effect {
            LineEffect::Change { redo_stack, changed } => {
                self.undo_stack.pop();
                (self.redo_stack, self.changed) = (redo_stack, changed);
            }
            LineEffect::Undo => {
                self.undo_stack.extend(self.redo_stack.pop().map(|(_, change)| change))
            }
            LineEffect::Redo { undone } => {
                self.redo_stack.extend(self.undo_stack.pop().map(|change| (undone, change)));
            }
        }
        self.last_value = Some(start);
        true
    }

    /// Returns the time by which to compare the refs: the ref with the newest time comes first.
    fn order_time(&self, direction: Direction) -> Option<Time> {
        match direction {
            Direction::Undo => self.undo_stack.last().map(|change| change.time),
            Direction::Redo => self.redo_stack.last().map(|(time, _)| *time),
        }
    }

    fn plan(mut self, direction: Direction) -> Result<Option<UndoPlan>, UndoError> {
        if !self.ends_at_target() {
            return Err(UndoError::Log { pointer: self.pointer });
        }
        let from = self.target?;
        let change = match direction {
            Direction::Undo => self.undo_stack.pop().map(|change| (None, change)),
            Direction::Redo => self.redo_stack.pop().map(|(time, change)| (Some(time), change)),
        };
        let Some((undone, change)) = change else {
            return match (direction, self.is_whole) {
                (Direction::Undo, false) => Err(UndoError::Log { pointer: self.pointer }),
                _ => Ok(None),
            };
        };
        let to = match direction {
            Direction::Undo => change.old.clone(),
            Direction::Redo => change.new.clone(),
        };
        Ok(Some(UndoPlan { pointer: self.pointer, from, to, change, undone, direction }))
    }
}

#[cfg(test)]
mod tests;
