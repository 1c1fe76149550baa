//! A hook before each step of a durable write, with which tests can inject failures.

use std::{io, path::Path};

/// A step that changes a file or a folder of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskStep {
    /// A file or folder is created.
    Create,
    /// Bytes are written to a file.
    Write {
        /// Number of bytes.
        bytes: usize,
    },
    /// A file's data is synced.
    Sync,
    /// A file is renamed.
    Rename,
    /// The names in a folder are synced.
    SyncFolder,
    /// A file is removed.
    Remove,
}

/// A gate's decision about a step.
#[derive(Debug)]
pub enum FaultDecision {
    /// Take the step.
    Go,
    /// Do not take the step, and fail with this error.
    Fail(io::Error),
    /// Write only the given number of bytes, then fail with the error. Applies to
    /// writes only.
    Short(usize, io::Error),
}

/// Decides about each step before it is taken.
pub trait FaultInjector: Send + Sync + std::fmt::Debug {
    /// Decides about `step` on `path`.
    fn decide(&self, step: DiskStep, path: &Path) -> FaultDecision;
}

/// The gate that allows every step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoFaults;

impl FaultInjector for NoFaults {
    fn decide(&self, _: DiskStep, _: &Path) -> FaultDecision {
        FaultDecision::Go
    }
}
