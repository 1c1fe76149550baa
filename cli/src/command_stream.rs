//! The output of a command as the stream of a commit.
//!
//! The command starts when the commit reads the first byte. The stream ends only if the command
//! succeeded; otherwise the last read fails, so that nothing is committed.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    child::{self, ChildEnd, ChildProcess},
    stream::{Interrupted, Stream},
    ui::text,
};

/// Why the output of a command is not committed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandStreamError {
    /// The command cannot be started.
    #[error("cannot start `{program}`")]
    Start { program: String, source: io::Error },
    /// The command failed.
    #[error("`{program}` failed: {how}")]
    Failed { program: String, how: String },
}

/// A stream of the output of a command.
pub(crate) struct CommandStream {
    /// The name of the program for messages. The arguments may contain a password.
    program: String,
    state: State,
    stop: Arc<AtomicBool>,
}

enum State {
    Ready(Command),
    /// The pipe comes first, so that it is closed before the command gets a signal.
    Running(Stream<ChildStdout>, ChildProcess),
    Ended,
}

impl CommandStream {
    /// Makes a stream of the command with these arguments. Its stdin is empty; its stderr is that
    /// of snap.
    pub(crate) fn new(program: &Path, arguments: &[PathBuf], stop: Arc<AtomicBool>) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let program = text::line(program.as_os_str().as_encoded_bytes());
        Self { program, state: State::Ready(command), stop }
    }

    fn start(&self, command: &mut Command) -> io::Result<State> {
        let mut process = ChildProcess::start(command).map_err(|source| {
            let program = self.program.clone();
            io::Error::other(CommandStreamError::Start { program, source })
        })?;
        let pipe = process.take_stdout().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(State::Running(Stream::new(pipe, self.stop.clone()), process))
    }
}

impl Read for CommandStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let State::Ready(_) = self.state
            && let State::Ready(mut command) = std::mem::replace(&mut self.state, State::Ended)
        {
            self.state = self.start(&mut command)?;
        }
        let State::Running(output, process) = &mut self.state else { return Ok(0) };
        let count = output.read(bytes)?;
        if count > 0 || bytes.is_empty() {
            return Ok(count);
        }
        let end = process.wait(&|| self.stop.load(Ordering::Relaxed))?;
        self.state = State::Ended;
        match end {
            ChildEnd::Interrupted => Err(io::Error::other(Interrupted)),
            ChildEnd::Exited(status) => match child::failure(status) {
                None => Ok(0),
                Some(how) => {
                    let program = self.program.clone();
                    Err(io::Error::other(CommandStreamError::Failed { program, how }))
                }
            },
        }
    }
}
