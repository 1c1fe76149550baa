//! Child processes that run for the user: hooks, and commands whose output is committed.
//!
//! If there is a terminal, the child shares it with snap, so that it can ask for a password and
//! receives Ctrl-C directly. Otherwise it runs in its own process group, so that a signal of snap
//! also reaches the children of a shell.

use std::{
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, ChildStdout, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Interval of the checks whether a child has ended.
const POLL: Duration = Duration::from_millis(20);

/// Time that a child gets to end before a stronger signal is sent.
const GRACE: Duration = Duration::from_secs(5);

/// The receiver of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignalTarget {
    /// The child only; the terminal sends Ctrl-C to it and its children.
    Process,
    /// The child and its children.
    Group,
}

/// A running child.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    child: Child,
    target: SignalTarget,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    /// By itself.
    Exited(ExitStatus),
    /// After the user had pressed Ctrl-C.
    Interrupted,
}

impl ChildProcess {
    /// Starts a child.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let target = match fs_err::File::open("/dev/tty").is_ok() {
            true => SignalTarget::Process,
            false => SignalTarget::Group,
        };
        if target == SignalTarget::Group {
            command.process_group(0);
        }
        Ok(Self { child: command.spawn()?, target })
    }

    /// Takes the pipe from the child's stdout, if there is one.
    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits until the child ends, and forwards Ctrl-C, which `cancelled` reports.
    pub(crate) fn wait(&mut self, cancelled: &dyn Fn() -> bool) -> io::Result<ChildEnd> {
        let signals = match self.target {
            SignalTarget::Process => &[(GRACE, Signal::TERM)][..],
            SignalTarget::Group => &[(Duration::ZERO, Signal::INT), (GRACE, Signal::TERM)],
        };
        self.signal_until_ended(signals, cancelled)
    }

    /// Ends the child: asks it to end, and kills it if it does not.
    fn end(&mut self) {
        let signals = [(Duration::ZERO, Signal::TERM), (GRACE, Signal::KILL)];
        // If the child cannot be waited for, the system reaps it when snap ends.
        let _ = self.signal_until_ended(&signals, &|| true);
    }

    /// Waits until the child ends. After `cancelled`, sends each signal when its time has passed.
    fn signal_until_ended(
        &mut self,
        signals: &[(Duration, Signal)],
        cancelled: &dyn Fn() -> bool,
    ) -> io::Result<ChildEnd> {
        let mut pause = Duration::from_millis(1);
        let mut since: Option<Instant> = None;
        let mut sent = 0;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(match since.is_some() || cancelled() {
                    true => ChildEnd::Interrupted,
                    false => ChildEnd::Exited(status),
                });
            }
            if cancelled() {
                let waited = since.get_or_insert_with(Instant::now).elapsed();
                if let Some((_, signal)) = signals.get(sent).filter(|(after, _)| waited >= *after) {
                    self.send(*signal);
                    sent += 1;
                }
            }
            thread::sleep(pause);
            pause = (pause * 2).min(POLL);
        }
    }

    fn send(&self, signal: Signal) {
        let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return };
        // If the child has just ended, it needs no signal.
        let _ = match self.target {
            SignalTarget::Process => kill_process(id, signal),
            SignalTarget::Group => kill_process_group(id, signal),
        };
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.end();
        }
    }
}

/// Describes a failure for a message. Returns `None` if the child succeeded.
pub(crate) fn failure(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit code {code}")),
        (None, Some(signal)) => Some(format!("killed by signal {signal}")),
        (None, None) => Some(status.to_string()),
    }
}
