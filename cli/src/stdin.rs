//! stdin that gives way to Ctrl-C while nothing comes.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long Ctrl-C may go unnoticed.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Reads stdin, and fails once the user asked to stop.
#[derive(Debug)]
pub(crate) struct Stdin {
    stdin: io::Stdin,
    stop: Arc<AtomicBool>,
}

impl Stdin {
    /// Takes stdin; `stop` is set by Ctrl-C.
    pub(crate) fn new(stop: Arc<AtomicBool>) -> Self {
        Self { stdin: io::stdin(), stop }
    }
}

impl Read for Stdin {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                // Not `Interrupted`, which readers take for a reason to go on.
                return Err(io::Error::other("interrupted"));
            }
            let mut fds = [PollFd::new(&self.stdin, PollFlags::IN)];
            match poll(&mut fds, Some(&WAIT)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // Whatever else is the matter with it, reading will tell.
                Ok(_) | Err(_) => return rustix::io::read(&self.stdin, bytes).map_err(Into::into),
            }
        }
    }
}
