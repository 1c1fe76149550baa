//! Streams that Ctrl-C interrupts, even while they wait for input or for a reader of the output.

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

/// Longest delay until Ctrl-C is noticed.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Interval of checks whether a pipe has a reader.
const PAUSE: Duration = Duration::from_millis(20);

/// The error of a stream that Ctrl-C interrupted.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

impl Interrupted {
    /// Returns true if this is the cause of an I/O error.
    pub(crate) fn is_why(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// A reader or writer that fails after the user pressed Ctrl-C.
#[derive(Debug)]
pub(crate) struct Stream<F> {
    file: F,
    stop: Arc<AtomicBool>,
}

impl<F: AsFd> Stream<F> {
    /// Wraps an open file; Ctrl-C sets `stop`.
    pub(crate) fn new(file: F, stop: Arc<AtomicBool>) -> Self {
        Self { file, stop }
    }

    /// Waits until `flags` are ready, then calls `attempt`.
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
                // On any other condition, the attempt itself returns the error.
                Ok(_) | Err(_) => match attempt(&self.file) {
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    other => return Ok(other?),
                },
            }
        }
    }
}

impl Stream<File> {
    /// Opens a file or pipe for reading. Does not wait for a writer to open the other end of a
    /// pipe.
    pub(crate) fn open(path: &Path, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let file = options().read(true).open(path)?;
        if file.metadata()?.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        Ok(Self::new(file, stop))
    }

    /// Opens an existing file, pipe or device for writing. Waits until a pipe has a reader.
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

/// Returns options that never block in `open`. The caller adds the path to an error.
fn options() -> OpenOptions {
    let mut options = File::options();
    options.custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0));
    options
}

/// Returns true if the error means that a pipe has no reader.
fn is_unread(error: &io::Error, path: &Path) -> bool {
    error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
        && fs_err::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo())
}

fn check(stop: &AtomicBool) -> io::Result<()> {
    match stop.load(Ordering::Relaxed) {
        // Does not use the kind `Interrupted`, because readers retry after it.
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
