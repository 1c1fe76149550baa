//! Streams that give way to Ctrl-C while nothing comes, or nobody is there to
//! take what goes.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
    io::Errno,
};

/// How long Ctrl-C may go unnoticed.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How long to wait before looking again whether somebody reads a pipe.
const PAUSE: Duration = Duration::from_millis(20);

/// Ctrl-C while a stream was waited for.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

impl Interrupted {
    /// Whether this is why a stream failed.
    pub(crate) fn is_why(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// Reads or writes, and fails once the user asked to stop.
#[derive(Debug)]
pub(crate) struct Stream<F> {
    file: F,
    stop: Arc<AtomicBool>,
}

impl<F: AsFd> Stream<F> {
    /// Takes what is open; `stop` is set by Ctrl-C.
    pub(crate) fn new(file: F, stop: Arc<AtomicBool>) -> Self {
        Self { file, stop }
    }

    /// Waits until `flags` hold, then tries.
    fn when<T>(
        &self,
        flags: PollFlags,
        mut attempt: impl FnMut(&F) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        loop {
            check(&self.stop)?;
            let mut fds = [PollFd::new(&self.file, flags)];
            match poll(&mut fds, Some(&WAIT)) {
                Ok(0) | Err(Errno::INTR) => {}
                // Whatever else is the matter with it, trying will tell.
                Ok(_) | Err(_) => match attempt(&self.file) {
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    other => return Ok(other?),
                },
            }
        }
    }
}

impl Stream<File> {
    /// Opens a file or pipe to read from; nobody need have opened the other
    /// end of a pipe yet.
    pub(crate) fn open(path: &Path, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let file = options().read(true).open(path)?;
        if file.metadata()?.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        Ok(Self::new(file, stop))
    }

    /// Opens something that is there to write to it; waits for a pipe to be
    /// read.
    pub(crate) fn create(path: &Path, stop: Arc<AtomicBool>) -> io::Result<Self> {
        loop {
            check(&stop)?;
            match options().write(true).open(path) {
                Err(error) if is_unread(&error, path) => thread::sleep(PAUSE),
                file => return Ok(Self::new(file?, stop)),
            }
        }
    }
}

/// Opening never waits. What failed and where is said by whoever opens.
fn options() -> OpenOptions {
    let mut options = File::options();
    options.custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0));
    options
}

/// Whether nobody has opened a pipe to read from it.
fn is_unread(error: &io::Error, path: &Path) -> bool {
    error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
        && fs_err::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo())
}

fn check(stop: &AtomicBool) -> io::Result<()> {
    match stop.load(Ordering::Relaxed) {
        // Not the kind `Interrupted`, which readers take for a reason to go on.
        true => Err(io::Error::other(Interrupted)),
        false => Ok(()),
    }
}

impl<F: AsFd> Read for Stream<F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.when(PollFlags::IN, |file| rustix::io::read(file, &mut *bytes))
    }
}

impl<F: AsFd> Write for Stream<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.when(PollFlags::OUT, |file| rustix::io::write(file, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
