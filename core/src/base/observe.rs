//! The observer: how an operation reports progress, notes and cancellation.
//!
//! One trait that is passed down, no globals. Core never prints.

use std::{path::Path, time::Duration};

use crate::base::id::{CommitId, PackId};

/// A phase of an operation, for progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Index packs; counts packs.
    Index,
    /// Read the files to commit, or prove them unchanged; counts bytes. The total is
    /// taken from the previous commit, so it may be exceeded. For a first commit, the
    /// total follows later.
    Commit,
    /// Merge small packs; counts bytes.
    Compact,
    /// Copy packs into or out of a bundle; counts bytes.
    Bundle,
    /// Compare a target folder with a snapshot; counts files.
    Compare,
    /// Write files; counts bytes.
    Restore,
    /// Write an archive for other tools; counts bytes of contents.
    Export,
    /// Check that all referenced objects exist; counts trees.
    Structure,
    /// Read and hash packs; counts bytes.
    Data,
    /// Walk through history; counts commits.
    History,
    /// Upload packs; counts bytes.
    Send,
    /// Fetch packs; counts bytes.
    Receive,
}

/// An event that the user should know about and that does not end the operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note<'a> {
    /// A file or folder could not be read and was skipped.
    Skipped { path: &'a Path, error: &'a (dyn std::error::Error + 'static) },
    /// A file changed during both attempts to read it. The last version read is kept.
    Changing { path: &'a Path },
    /// The extended attributes (and ACLs) of an entry could not be read. It is stored
    /// without them.
    AttributesUnread { path: &'a Path, error: &'a (dyn std::error::Error + 'static) },
    /// The index was missing or damaged, and was rebuilt.
    Reindexed { packs: usize, damaged: bool },
    /// The footer of a pack cannot be read, so the objects in it cannot be found.
    PackUnreadable { error: &'a (dyn std::error::Error + 'static) },
    /// The service of a remote ignores conditional writes. Refs there are claimed
    /// before they are updated.
    ConditionsIgnored { location: &'a str },
    /// A pack of a remote is lost or damaged. Nothing that was fetched needs it.
    UnneededPackUnread { error: &'a (dyn std::error::Error + 'static) },
    /// A received chunk list is not that of its content. Nothing relies on it.
    WrongChunkList { error: &'a (dyn std::error::Error + 'static) },
    /// A pack is incomplete, so nothing in it counts as stored.
    PackTruncated { error: &'a (dyn std::error::Error + 'static) },
    /// Packs that earlier commits relied on are gone; `first` is one of them. All files are read
    /// again.
    PacksLost { packs: usize, first: PackId },
    /// The parent commit is dated in the future: the clock is or was wrong.
    ParentInFuture { ahead_secs: i64 },
    /// The command waits for another command that uses the project's files.
    FilesBusy { project: &'a Path },
    /// Other commands hold the packs of a store in place. The command waits for them
    /// before it moves damaged packs to `quarantine/`.
    PacksHeld { store: &'a Path },
    /// Other commands held packs in place for too long. Damaged packs were not moved to
    /// `quarantine/`.
    QuarantineDelayed { store: &'a Path },
    /// The store does not know which commit the project's files come from. The tip of
    /// the branch is used instead.
    BaseUnknown { tip: &'a CommitId },
    /// The file of a branch was missing, and was rebuilt from the branch's log.
    BranchRecreated { branch: &'a str, at: &'a CommitId },
    /// The last commit of the branch was made from other source folders than this one.
    SourcesDiffer { branch: &'a str, sources: &'a str },
    /// A restore could not create or replace an entry; `noun` is its kind, such as "fifo".
    NotCreated { noun: &'static str, path: &'a Path, error: &'a (dyn std::error::Error + 'static) },
    /// A restore could not apply an attribute. Reported once for each kind of attribute (such as
    /// "owner"), with the first entry that was affected.
    NotApplied { what: &'static str, path: &'a Path, error: &'a (dyn std::error::Error + 'static) },
    /// A restore keeps something that the snapshot does not contain.
    Kept { path: &'a Path, why: &'a str },
    /// A restore could not remove something that the snapshot does not contain.
    NotRemoved { path: &'a Path, error: &'a (dyn std::error::Error + 'static) },
    /// There are too many files to detect renames.
    RenameDetectionSkipped { limit: usize },
    /// Another process is updating a ref of a remote, or was killed during an update.
    RefClaimedElsewhere { name: &'a str, location: &'a str, patience_secs: u64 },
    /// Tidying up after a finished commit failed. No data is lost.
    TidyFailed { error: &'a (dyn std::error::Error + 'static) },
}

/// Receives the reports of an operation. All methods may be called from several threads
/// at once.
pub trait Observer: Sync {
    /// Reports that a phase begins. `total` is in the unit of the phase, if it is
    /// known.
    fn phase(&self, phase: Phase, total: Option<u64>) {
        let _ = (phase, total);
    }

    /// Returns the time until the observer shows progress, or `None` if it never does. An
    /// operation may then determine an unknown total.
    fn shows_progress_after(&self) -> Option<Duration> {
        None
    }

    /// Reports the total of the current phase, which was not known when it began.
    fn total(&self, total: u64) {
        let _ = total;
    }

    /// Reports that `units` more units of the phase and `files` more files are done.
    fn advance(&self, units: u64, files: u64) {
        let _ = (units, files);
    }

    /// Reports an event that does not end the operation.
    fn note(&self, note: Note<'_>) {
        let _ = note;
    }

    /// Returns true if the user asked to stop.
    fn cancelled(&self) -> bool {
        false
    }
}

// An inherent method: a generic method of the trait would rule out `dyn Observer`.
impl dyn Observer + '_ {
    /// Returns `interrupted` as an error if the user asked to stop.
    ///
    /// # Errors
    /// `interrupted`.
    pub fn check<E>(&self, interrupted: E) -> Result<(), E> {
        if self.cancelled() { Err(interrupted) } else { Ok(()) }
    }
}

/// An observer that ignores all reports and never cancels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}
