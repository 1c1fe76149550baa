//! Stops the binary at a counted step.
//!
//! A step is a change of a file, as the binary's fault injector sees it: a file is created, written,
//! synced, renamed or removed, or an attribute is set. Builds with debug assertions count the steps
//! from 1; `cli/src/step_counter.rs` is the other half of this.

use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::program::{folder, stderr};

/// Runs a command that must succeed, and returns its steps in order, one line each.
///
/// # Panics
/// If the command fails, or the binary does not count.
#[track_caller]
pub fn count(command: &mut Command) -> Vec<String> {
    let place = folder();
    let log = place.path().join("steps");
    let output = command.env("SNAP_TEST_STEP_LOG", &log).output().unwrap();
    command.env_remove("SNAP_TEST_STEP_LOG");
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    let text = fs_err::read_to_string(log).unwrap_or_default();
    assert!(!text.is_empty(), "{command:?} counts no steps: is it a release build?");
    text.lines().map(str::to_owned).collect()
}

/// Returns true if these steps of a commit replace packs by one merged pack.
pub fn merge_packs(steps: &[String]) -> bool {
    steps.iter().any(|step| step.starts_with("Remove") && step.contains("/objects/"))
}

/// What happens to a process at a step, before it takes the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `kill -9`
    Kill,
    /// Ctrl-C
    Interrupt,
    /// It halts until a signal continues it or ends it.
    Halt,
}

/// Makes a command stop at the step with this number.
pub fn stop_at(command: &mut Command, step: u64, stop: Stop) -> &mut Command {
    let signal = match stop {
        Stop::Kill => "KILL",
        Stop::Interrupt => "INT",
        Stop::Halt => "STOP",
    };
    command.env("SNAP_TEST_STOP_AT", step.to_string()).env("SNAP_TEST_STOP_BY", signal)
}

/// Returns true if a process ended by `kill -9`, false if it succeeded before its step.
///
/// # Panics
/// If it ended in another way.
#[track_caller]
pub fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(0), _) => false,
        (None, Some(9)) => true,
        _ => panic!("neither killed nor successful: {status}"),
    }
}

/// Waits until a process has halted; returns false if it has ended instead.
///
/// # Panics
/// If the process is no child of this one.
pub fn await_halt(child: &Child) -> bool {
    let id = WaitId::Pid(pid(child));
    // The child stays waitable, so that `Child` can still reap it.
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(id, options).unwrap().unwrap().stopped()
}

/// Returns the id of a process.
///
/// # Panics
/// Never: a child has an id.
pub fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

/// Returns at most `most` of the numbers 1 to `count`, evenly spread, with the first and the last.
pub fn spread(count: usize, most: usize) -> impl Iterator<Item = u64> {
    let taken = count.min(most);
    (0..taken).map(move |number| match taken {
        1 => 1,
        _ => (1 + number * (count - 1) / (taken - 1)) as u64,
    })
}
