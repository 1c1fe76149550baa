//! A hook before each step that changes a file, with which tests can inject failures.
//!
//! A test of the library gives an injector to a [`Disk`](super::Disk). A test of the whole program
//! cannot reach its disks, so the program installs one injector for the process,
//! [`install_fault_injector`], if the test's environment says so. Only builds with debug assertions
//! have that injector; the released binary has neither the function nor the variable.

#[cfg(debug_assertions)]
use std::sync::{Arc, OnceLock};
use std::{io, path::Path};

/// A step that changes a file or a folder of a store, or of the target of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskStep {
    /// A file or folder is created.
    Create,
    /// Bytes are written to a file.
    Write { bytes: usize },
    /// A file's data is synced.
    Sync,
    /// A file is renamed.
    Rename,
    /// The names in a folder are synced.
    SyncFolder,
    /// A file is removed.
    Remove,
    /// The owner, mode, time or an extended attribute of a restored entry is set.
    SetAttribute,
}

/// Decision of a [`FaultInjector`] about a step.
#[derive(Debug)]
pub enum FaultDecision {
    /// The caller takes the step.
    Go,
    /// The caller does not take the step, and fails with this error.
    Fail(io::Error),
    /// The caller writes only this many bytes, then fails with the error. For writes only.
    Short(usize, io::Error),
}

/// Decides about each step before it is taken.
pub trait FaultInjector: Send + Sync + std::fmt::Debug {
    /// Decides about `step` on `path`.
    fn decide(&self, step: DiskStep, path: &Path) -> FaultDecision;
}

/// The default injector of a disk. It forwards to the injector of the process, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessInjector;

/// The injector of the process, set by [`install_fault_injector`].
#[cfg(debug_assertions)]
static OF_PROCESS: OnceLock<Arc<dyn FaultInjector>> = OnceLock::new();

/// Installs the injector that decides about each step of this process: of restores, and of disks
/// without an injector of their own. Only the first call has an effect.
#[cfg(debug_assertions)]
pub fn install_fault_injector(injector: Arc<dyn FaultInjector>) {
    let _ = OF_PROCESS.set(injector);
}

impl FaultInjector for ProcessInjector {
    #[cfg(debug_assertions)]
    fn decide(&self, step: DiskStep, path: &Path) -> FaultDecision {
        OF_PROCESS.get().map_or(FaultDecision::Go, |injector| injector.decide(step, path))
    }

    #[cfg(not(debug_assertions))]
    fn decide(&self, _: DiskStep, _: &Path) -> FaultDecision {
        FaultDecision::Go
    }
}

/// Asks the injector of the process about a step of a restore.
///
/// # Errors
/// The injected error.
pub(crate) fn take_step(step: DiskStep, path: impl AsRef<Path>) -> io::Result<()> {
    match ProcessInjector.decide(step, path.as_ref()) {
        FaultDecision::Go => Ok(()),
        FaultDecision::Fail(error) | FaultDecision::Short(_, error) => Err(error),
    }
}
