//! What may happen to a step of a durable write; all is well by default.

use std::{io, path::Path};

/// A step that changes a file or a folder of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A file or folder is created.
    Create,
    /// So many bytes are written to a file.
    Write {
        /// How many.
        bytes: usize,
    },
    /// A file's data is synced.
    Sync,
    /// A file gets another name.
    Rename,
    /// A folder's names are synced.
    SyncFolder,
    /// A file is removed.
    Remove,
}

/// What a [`Gate`] lets happen.
#[derive(Debug)]
pub enum Verdict {
    /// The step is taken.
    Go,
    /// The step is not taken and fails like this.
    Fail(io::Error),
    /// Of a write, only so many bytes are written, then it fails.
    Short(usize, io::Error),
}

/// Decides over each step before it is taken.
pub trait Gate: Send + Sync + std::fmt::Debug {
    /// Decides over `step` on `path`.
    fn pass(&self, step: Step, path: &Path) -> Verdict;
}

/// Lets everything pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Open;

impl Gate for Open {
    fn pass(&self, _: Step, _: &Path) -> Verdict {
        Verdict::Go
    }
}
