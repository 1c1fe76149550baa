//! Which change of a ref can be taken back, and which can be made again.
//!
//! An undo is a change like any other: the ref moves from where it stands to
//! where it stood before, and its log gets a line whose reason is `undo: ` and
//! the reason of what was taken back; that of a redo starts with `redo: `. So
//! the logs tell all there is to know. They are read from the oldest line on:
//!
//! | line                                    | what can be undone | redone       |
//! |-----------------------------------------|--------------------|--------------|
//! | a change                                | it, first          | nothing      |
//! | `undo: …`, back from where the first led | less that one     | it, first    |
//! | `redo: …`, as the first was made        | it, first          | less that one |
//!
//! Each ref has its own two lists. Without a name, an undo takes the newest of
//! all refs, by the time of the change itself, so repeated undos go further
//! back and never to and fro. A redo without a name takes the change that was
//! undone last, unless some ref has changed since; with a name, unless that
//! one has.
//!
//! A line about a change that did not happen (a crash came in between) is known
//! by the next one, which starts where it started. Where a line starts
//! elsewhere for another reason, what is before it cannot be undone.

use crate::{
    base::{id::CommitId, kind::ErrorKind, time::Time},
    repo::{
        ref_log::{Line, Target},
        ref_name::Pointer,
        refs::{RefError, Refs},
    },
    store::StoreError,
};

const UNDO: &str = "undo";
const REDO: &str = "redo";

/// Whether a change is taken back or made again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Taken back.
    #[default]
    Undo,
    /// Made again, after it was taken back.
    Redo,
}

impl Direction {
    /// The word for messages, JSON and logs.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Undo => UNDO,
            Self::Redo => REDO,
        }
    }
}

/// What an undo is going to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What moves.
    pub pointer: Pointer,
    /// Where it stands.
    pub from: Target,
    /// Where it is going to stand.
    pub to: Target,
    /// The change that is taken back or made again.
    pub change: Line,
    /// Which of the two.
    pub direction: Direction,
}

impl Plan {
    /// The reason for the log.
    pub fn reason(&self) -> String {
        format!("{}: {}", self.direction.verb(), self.change.reason)
    }
}

/// Why nothing can be undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// No change is left.
    #[error("there is nothing to {}{}", direction.verb(), of(pointer.as_ref()))]
    Nothing {
        /// What was to be done.
        direction: Direction,
        /// To what, if it was named.
        pointer: Option<Pointer>,
    },
    /// What was undone cannot be redone: something else was done since.
    #[error("there is nothing to redo: {} has changed since the last undo", pointer.shown())]
    Since {
        /// What changed.
        pointer: Pointer,
    },
    /// The log does not lead to where it stands.
    #[error("the log of {} does not tell how it came to where it stands", pointer.shown())]
    Log {
        /// Whose.
        pointer: Pointer,
    },
    /// Where it stood cannot be read any more.
    #[error("cannot read commit {id:.12}, where {} stood", pointer.shown())]
    Commit {
        /// What was to be moved.
        pointer: Pointer,
        /// Where it stood.
        id: CommitId,
        /// Why not.
        source: Box<StoreError>,
    },
    /// The ref cannot be read or moved.
    #[error(transparent)]
    Ref(#[from] RefError),
}

fn of(pointer: Option<&Pointer>) -> String {
    pointer.map(|pointer| format!(" of {}", pointer.shown())).unwrap_or_default()
}

impl UndoError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Nothing { .. } | Self::Since { .. } => ErrorKind::NotFound,
            Self::Log { .. } => ErrorKind::Damaged,
            Self::Commit { source, .. } => source.kind(),
            Self::Ref(error) => error.kind(),
        }
    }
}

/// Finds what an undo or redo of `wanted`, or of what changed last, would do.
/// Changes nothing.
///
/// **Not** checked: that the commit is still there.
///
/// # Errors
/// [`UndoError`] says why there is nothing to be done.
pub fn plan(
    refs: &Refs,
    wanted: Option<&Pointer>,
    direction: Direction,
) -> Result<Plan, UndoError> {
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

/// What a log tells about one ref.
#[derive(Debug)]
struct Past {
    pointer: Pointer,
    /// Changes that can be undone, the first to be last.
    made: Vec<Line>,
    /// Those that were undone, with the time of that, the first to be last.
    undone: Vec<(Time, Line)>,
    /// Where the log says it stands.
    stands: Option<Target>,
    /// Whether the log tells everything from the beginning.
    is_whole: bool,
    /// Time of the last change that was neither undo nor redo.
    changed: Option<Time>,
    /// Where the last line started, and what it did.
    last: Option<(Target, Did)>,
    /// Where it does stand.
    target: Result<Target, RefError>,
}

/// What a line did to the lists.
#[derive(Debug)]
enum Did {
    Change { forgot: Vec<(Time, Line)>, before: Option<Time> },
    Undo,
    Redo { undone: Time },
}

impl Past {
    fn read(refs: &Refs, pointer: &Pointer) -> Result<Self, RefError> {
        let mut past = Self {
            pointer: pointer.clone(),
            made: Vec::new(),
            undone: Vec::new(),
            stands: None,
            is_whole: true,
            changed: None,
            last: None,
            target: refs.target(pointer),
        };
        refs.log_of(pointer)?.into_iter().for_each(|line| past.add(line));
        if let (Ok(target), false) = (past.target.as_ref().map(Target::clone), past.is_right()) {
            past.forget_last(&target);
        }
        Ok(past)
    }

    /// Whether the log leads to where it stands.
    fn is_right(&self) -> bool {
        match (&self.stands, &self.target) {
            (Some(stands), Ok(target)) => stands == target,
            _ => true,
        }
    }

    fn add(&mut self, line: Line) {
        if line.old == line.new {
            return;
        }
        let follows = match &self.stands {
            Some(stands) => *stands == line.old || self.forget_last(&line.old),
            None => line.old == Target::Nothing || self.pointer == Pointer::Head,
        };
        if !follows {
            self.made.clear();
            self.undone.clear();
            self.is_whole = false;
        }
        let (old, new) = (line.old.clone(), line.new.clone());
        let did = self.sort_in(line);
        self.last = Some((old, did));
        self.stands = Some(new);
    }

    fn sort_in(&mut self, line: Line) -> Did {
        let is = |word: &str| {
            line.reason
                .strip_prefix(word)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
        };
        let takes_back =
            |change: &mut Line| is(UNDO) && change.old == line.new && change.new == line.old;
        if let Some(change) = self.made.pop_if(takes_back) {
            self.undone.push((line.time, change));
            return Did::Undo;
        }
        let makes_again = |(_, change): &mut (Time, Line)| {
            is(REDO) && change.old == line.old && change.new == line.new
        };
        if let Some((undone, change)) = self.undone.pop_if(makes_again) {
            self.made.push(change);
            return Did::Redo { undone };
        }
        let before = self.changed.replace(line.time);
        self.made.push(line);
        Did::Change { forgot: std::mem::take(&mut self.undone), before }
    }

    /// Takes the last line for one about a change that did not happen, if it
    /// started at `from`.
    fn forget_last(&mut self, from: &Target) -> bool {
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
        self.stands = Some(start);
        true
    }

    /// Time that decides whether its turn comes before that of another ref.
    fn first(&self, direction: Direction) -> Option<Time> {
        match direction {
            Direction::Undo => self.made.last().map(|change| change.time),
            Direction::Redo => self.undone.last().map(|(time, _)| *time),
        }
    }

    fn plan(mut self, direction: Direction) -> Result<Option<Plan>, UndoError> {
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
        Ok(Some(Plan { pointer: self.pointer, from, to, change, direction }))
    }
}

#[cfg(test)]
mod tests;
