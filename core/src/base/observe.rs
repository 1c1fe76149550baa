//! The observer: how an operation reports progress, notes and cancellation.
//!
//! Callers pass one trait object down; there are no globals. Core never prints.

use std::{path::Path, time::Duration};

use crate::base::{
    blocked::Blocked,
    id::{CommitId, PackId},
};

/// A phase of an operation, for progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Index packs; counts packs.
    Index,
    /// Read the files to commit, or prove them unchanged; counts bytes. The total is the size of
    /// the previous commit, so a commit may exceed it. A first commit reports its total later.
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
    /// Mark what refs reach; counts trees.
    Mark,
    /// Check the existence of all referenced objects; counts trees.
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
    /// A file changed during both attempts to read it. The commit keeps the version that it read
    /// last.
    Changing { path: &'a Path },
    /// The extended attributes (and ACLs) of an entry could not be read. The commit stores the
    /// entry without them.
    AttributesUnread { path: &'a Path, error: &'a (dyn std::error::Error + 'static) },
    /// The index was missing or damaged, and was rebuilt.
    Reindexed { packs: usize, damaged: bool },
    /// The footer of a pack cannot be read, so the objects in it cannot be found.
    PackUnreadable { error: &'a (dyn std::error::Error + 'static) },
    /// The service of a remote ignores conditional writes. A client claims a ref there before it
    /// updates the ref.
    ConditionsIgnored { location: &'a str },
    /// A pack of a remote is lost or damaged. The fetched commits do not need the pack.
    UnneededPackUnread { error: &'a (dyn std::error::Error + 'static) },
    /// A pack is incomplete, so none of its objects counts as stored.
    PackTruncated { error: &'a (dyn std::error::Error + 'static) },
    /// Packs that earlier commits relied on are gone; `first` is one of them. The commit reads all
    /// files again.
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
    /// The store does not know which commit the project's files come from, and uses the tip of the
    /// branch.
    BaseUnknown { tip: &'a CommitId },
    /// A file below `refs/`, here or at a remote, has a name that no ref can have. It was skipped; a
    /// collection keeps the commit that it names, except what a rewrite removed.
    MisnamedRef { path: &'a str, location: Option<&'a str>, commit: Option<&'a CommitId> },
    /// The file of a branch was missing, and was rebuilt from the branch's log.
    BranchRecreated { branch: &'a str, at: &'a CommitId },
    /// The source folders of the branch's last commit differ from those of the new commit.
    SourcesDiffer { branch: &'a str, sources: &'a str },
    /// A restore could not create or replace an entry; `noun` is its kind, such as "fifo".
    NotCreated { noun: &'static str, path: &'a Path, error: &'a (dyn std::error::Error + 'static) },
    /// A restore could not apply an attribute, such as "owner". The restore reports each kind of
    /// attribute once, with the first affected entry.
    NotApplied { what: &'static str, path: &'a Path, error: &'a (dyn std::error::Error + 'static) },
    /// A restore keeps something that the snapshot does not contain.
    Kept { path: &'a Path, why: &'a str },
    /// A restore could not remove something that the snapshot does not contain.
    NotRemoved { path: &'a Path, error: &'a (dyn std::error::Error + 'static) },
    /// There are too many files to detect renames.
    RenameDetectionSkipped { limit: usize },
    /// Another process is updating a ref of a remote, or was killed during an update.
    RefClaimedElsewhere { name: &'a str, location: &'a str, patience_secs: u64 },
    /// The cleanup after a finished commit failed. No data is lost.
    TidyFailed { error: &'a (dyn std::error::Error + 'static) },
}

/// Receives the reports of an operation. Several threads may call the methods at once.
pub trait Observer: Sync {
    /// Reports that a phase begins. `total` is in the unit of the phase, or `None` if unknown.
    fn phase(&self, phase: Phase, total: Option<u64>) {
        let _ = (phase, total);
    }

    /// Returns the time until the observer shows progress, or `None` if it never does. An
    /// operation may then determine an unknown total.
    fn shows_progress_after(&self) -> Option<Duration> {
        None
    }

    /// Reports the total of the current phase, which was unknown when the phase began.
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

    /// Fails if the user asked to stop.
    ///
    /// # Errors
    /// [`Blocked::Interrupted`].
    fn check(&self) -> Result<(), Blocked> {
        if self.cancelled() { Err(Blocked::Interrupted) } else { Ok(()) }
    }
}

/// An observer that ignores all reports and never cancels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}
