//! Checks the frames of SFTP before the client library reads them.
//!
//! A frame is its length in four bytes, and that many bytes. The library allocates as much as a
//! length claims, and subtracts the length of a header from it. Text that is not SFTP, such as a
//! line printed by the profile of a shell, would make it allocate gigabytes or panic.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

/// Maximum length of a frame. OpenSSH sends and accepts 256 KiB; other servers list whole folders
/// in one frame.
const LONGEST: u32 = 4 << 20;

/// Minimum lengths of frames: the first frame has a type and a version, every other frame at least
/// a type, an id and a number.
const SHORTEST: (u32, u32) = (5, 9);

/// A reader that passes bytes through until an invalid frame begins.
#[derive(Debug)]
pub(super) struct CheckedFrames<R> {
    inner: R,
    header: [u8; 4],
    header_length: usize,
    /// Number of bytes of the current frame that have not arrived.
    left: u32,
    is_first: bool,
    /// Set when invalid bytes arrived.
    is_garbled: Arc<AtomicBool>,
}

impl<R> CheckedFrames<R> {
    pub(super) fn new(inner: R, is_garbled: Arc<AtomicBool>) -> Self {
        Self { inner, header: [0; 4], header_length: 0, left: 0, is_first: true, is_garbled }
    }

    /// Returns true if these bytes continue valid frames.
    fn check(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.left > 0 {
                let taken = bytes.len().min(self.left as usize);
                self.left -= taken as u32;
                bytes = &bytes[taken..];
                continue;
            }
            self.header[self.header_length] = bytes[0];
            self.header_length += 1;
            bytes = &bytes[1..];
            if self.header_length == self.header.len() {
                let length = u32::from_be_bytes(self.header);
                let shortest = if self.is_first { SHORTEST.0 } else { SHORTEST.1 };
                if !(shortest..=LONGEST).contains(&length) {
                    return false;
                }
                (self.header_length, self.left, self.is_first) = (0, length, false);
            }
        }
        true
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for CheckedFrames<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        if !this.check(&buffer.filled()[before..]) {
            this.is_garbled.store(true, Relaxed);
            buffer.set_filled(before);
            let error = io::Error::new(io::ErrorKind::InvalidData, "not an SFTP frame");
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if the bytes pass. Checks that the result does not depend on how they are cut.
    fn passes(bytes: &[u8]) -> bool {
        let mut found = Vec::new();
        for cut in 1..=bytes.len() {
            let mut frames = CheckedFrames::new(io::empty(), Arc::default());
            found.push(bytes.chunks(cut).all(|piece| frames.check(piece)));
        }
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
        found[0]
    }

    #[test]
    fn only_well_formed_sftp_frames_are_accepted() {
        let version = [0, 0, 0, 5, 2, 0, 0, 0, 3];
        let status = [0, 0, 0, 9, 101, 0, 0, 0, 7, 0, 0, 0, 0];
        assert!(passes(&version));
        assert!(passes(&[&version[..], &status, &status].concat()));
        assert!(!passes(b"Welcome to the NAS"), "a line of a shell's profile");
        let short = [0, 0, 0, 4, 101, 0, 0, 0];
        assert!(!passes(&[&version[..], &short].concat()), "too short for an id");
        assert!(
            !passes(&[&version[..], &version].concat()),
            "only the first frame may be that short"
        );
        assert!(!passes(&[&version[..], &[0xff; 8]].concat()));
    }
}
