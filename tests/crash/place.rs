//! The binary under test.

use std::{path::Path, process::Command};

use snap_explore::program::Program;
pub(crate) use snap_explore::program::{
    Listed, age_left_over, await_id, drafts, fails, folder, kill, left_over, names, printed_id,
    stderr, well,
};

/// The binary that Cargo built for these tests.
pub(crate) const SNAP: Program<'_> = Program(env!("CARGO_BIN_EXE_snap"));

/// See [`Program::snap`].
pub(crate) fn snap(store: &Path) -> Command {
    SNAP.snap(store)
}

/// See [`Program::bare`].
pub(crate) fn bare() -> Command {
    SNAP.bare()
}

/// See [`Program::log`].
#[track_caller]
pub(crate) fn log(store: &Path, branch: &str) -> Vec<Listed> {
    SNAP.log(store, branch)
}

/// See [`Program::restores`].
#[track_caller]
pub(crate) fn restores(store: &Path, commit: &Listed) {
    SNAP.restores(store, commit);
}

/// Copies a folder with everything in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    well(Command::new("cp").arg("-a").arg(from).arg(to));
}
