//! How an operation tells its caller what it is doing.
//!
//! One trait, passed down; no globals. Core never prints.

use std::path::Path;

use crate::base::id::{CommitId, PackId};

/// A part of an operation, for progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Rebuilding the index from packs; counts packs.
    Index,
    /// Reading the files to be committed, or proving them unchanged; counts
    /// bytes. The total is that of the commit before, so it may be exceeded.
    Commit,
    /// Merging small packs; counts bytes.
    Compact,
    /// Copying packs into a bundle or out of it; counts bytes.
    Bundle,
    /// Comparing a target folder with a snapshot; counts files.
    Compare,
    /// Writing files; counts bytes.
    Restore,
    /// Writing an archive for other tools; counts bytes of contents.
    Export,
    /// Checking that everything referred to is there; counts trees.
    Structure,
    /// Reading and hashing packs; counts bytes.
    Data,
    /// Going through history; counts commits.
    History,
    /// Sending packs elsewhere; counts bytes.
    Send,
    /// Fetching packs from elsewhere; counts bytes.
    Receive,
}

/// Something worth telling that does not end the operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note<'a> {
    /// A file or folder could not be read and is left out.
    Skipped {
        /// What was left out.
        path: &'a Path,
        /// Why.
        error: &'a (dyn std::error::Error + 'static),
    },
    /// A file changed while it was read, twice; what was read last is kept.
    Changing {
        /// The file.
        path: &'a Path,
    },
    /// The extended attributes (and ACLs) of an entry could not be read; it is
    /// kept without them.
    AttributesUnread {
        /// The entry.
        path: &'a Path,
        /// Why.
        error: &'a (dyn std::error::Error + 'static),
    },
    /// The index was missing or damaged for so many packs and was rebuilt.
    Reindexed {
        /// How many packs were read.
        packs: usize,
        /// Whether an index was there and unusable.
        damaged: bool,
    },
    /// The footer of a pack cannot be read, so nothing in it is found.
    PackUnreadable {
        /// Why.
        error: &'a (dyn std::error::Error + 'static),
    },
    /// The service of a remote does not keep to the conditions of writes, so refs
    /// there are claimed before they move.
    ConditionsIgnored {
        /// Where.
        location: &'a str,
    },
    /// A pack is not whole, so that nothing in it counts as stored.
    PackCut {
        /// What is wrong.
        error: &'a (dyn std::error::Error + 'static),
    },
    /// Packs that earlier commits relied on are gone, so that all files are read
    /// again.
    PacksLost {
        /// How many.
        packs: usize,
        /// One of them.
        first: PackId,
    },
    /// The commit before is dated later than the present: the clock is wrong
    /// now, or it was wrong then.
    ParentInFuture {
        /// By how many seconds.
        ahead_secs: i64,
    },
    /// Another command uses the files of the project; it is waited for.
    FilesBusy {
        /// The project folder.
        project: &'a Path,
    },
    /// The store does not know what the project's files come from, so the tip
    /// of the branch counts.
    BaseLost {
        /// The tip.
        tip: &'a CommitId,
    },
    /// The last commit of a branch was made of files that this one is not
    /// made of.
    SourcesLeft {
        /// The branch.
        branch: &'a str,
        /// Where those files are.
        sources: &'a str,
    },
    /// A pipe, socket or device could not be made on restore.
    NotMade {
        /// What it would have been, such as "fifo".
        noun: &'static str,
        /// Its path in the target.
        path: &'a Path,
        /// Why.
        error: &'a (dyn std::error::Error + 'static),
    },
    /// An attribute could not be applied on restore; told once for each kind.
    NotApplied {
        /// Such as "owner" or "extended attribute".
        what: &'static str,
        /// The first entry it happened to.
        path: &'a Path,
        /// Why.
        error: &'a (dyn std::error::Error + 'static),
    },
    /// A restore leaves something that the snapshot lacks where it is.
    Kept {
        /// Its path in the target.
        path: &'a Path,
        /// Why, such as "it is a store".
        why: &'a str,
    },
    /// A restore could not remove something that the snapshot lacks.
    NotRemoved {
        /// Its path in the target.
        path: &'a Path,
        /// Why.
        error: &'a (dyn std::error::Error + 'static),
    },
    /// There are too many files to tell which were renamed.
    RenamesGivenUp {
        /// How many there may be.
        limit: usize,
    },
    /// Somebody else is moving a ref elsewhere, or died while doing so.
    ClaimHeld {
        /// Which ref.
        name: &'a str,
        /// Where.
        location: &'a str,
        /// For how long they are waited for at most.
        patience_secs: u64,
    },
    /// Tidying up after a finished commit failed; nothing is lost.
    TidyFailed {
        /// Why.
        error: &'a (dyn std::error::Error + 'static),
    },
}

/// Receives what an operation has to tell. All methods may be called from
/// several threads at once.
pub trait Observer: Sync {
    /// A phase begins; `total` is in the phase's unit, when it is known.
    fn phase(&self, phase: Phase, total: Option<u64>) {
        let _ = (phase, total);
    }

    /// So many more of the phase's unit are done, and so many more files.
    fn advance(&self, units: u64, files: u64) {
        let _ = (units, files);
    }

    /// Something worth telling happened.
    fn note(&self, note: Note<'_>) {
        let _ = note;
    }

    /// Whether the user asked to stop.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Observes nothing and never cancels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}
