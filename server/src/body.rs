//! Bodies between connections, which are async, and threads, which work on
//! stores. A few pieces wait between the two, never a whole body.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http_body_util::BodyExt;
use snap_core::base::observe::Observer;
use tokio::{
    runtime::Handle,
    sync::mpsc::{self, error::TrySendError},
};

use crate::problem::{Code, Problem};

/// Pieces that may wait.
const PIECES: usize = 8;

/// About how long a piece is that goes out.
const PIECE_BYTES: usize = 256 << 10;

/// Whoever takes no piece of what it asked for in so long is taken for gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pieces of a body that comes in, for a thread.
#[derive(Debug)]
pub struct Pieces {
    pieces: mpsc::Receiver<Result<Bytes, Problem>>,
}

impl Iterator for Pieces {
    type Item = Result<Bytes, Problem>;

    /// Waits for the next one; the last is an error if the body broke off.
    fn next(&mut self) -> Option<Self::Item> {
        self.pieces.blocking_recv()
    }
}

/// How much of a body is taken.
#[derive(Clone, Copy, Debug)]
pub struct Accept {
    /// How long it may be.
    pub most_bytes: u64,
    /// How long it may stand still.
    pub stall: Duration,
}

/// Hands a body to a thread that does `work` with it.
///
/// # Errors
/// Those of `work`; in its pieces [`Code::TooLarge`], and [`Code::Invalid`] when
/// the body broke off or stood still.
pub async fn receive<T: Send + 'static>(
    mut body: Body,
    accept: Accept,
    work: impl FnOnce(Pieces) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let (to, pieces) = mpsc::channel(PIECES);
    let span = tracing::Span::current();
    let working = tokio::task::spawn_blocking(move || span.in_scope(|| work(Pieces { pieces })));
    let feed = async move {
        let mut left = accept.most_bytes;
        loop {
            let piece = match tokio::time::timeout(accept.stall, body.frame()).await {
                Err(_) => Err(Problem::new(Code::Invalid, "the body stood still")),
                Ok(None) => break,
                Ok(Some(Err(_))) => Err(Problem::new(Code::Invalid, "the body broke off")),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Err(_) => continue,
                    Ok(bytes) if bytes.len() as u64 > left => {
                        Err(Problem::new(Code::TooLarge, "the body is too long"))
                    }
                    Ok(bytes) => {
                        left -= bytes.len() as u64;
                        Ok(bytes)
                    }
                },
            };
            let is_last = piece.is_err();
            // Whoever works on it may have seen enough.
            if to.send(piece).await.is_err() || is_last {
                break;
            }
        }
    };
    let ((), done) = tokio::join!(feed, working);
    done.unwrap_or_else(|_| Err(Problem::new(Code::Unavailable, "")))
}

/// Reads a short body whole.
///
/// # Errors
/// As [`receive`].
pub async fn whole(body: Body, accept: Accept) -> Result<Bytes, Problem> {
    receive(body, accept, |pieces| {
        let mut all = BytesMut::new();
        for piece in pieces {
            all.extend_from_slice(&piece?);
        }
        Ok(all.freeze())
    })
    .await
}

/// Does `work` in a thread.
///
/// # Errors
/// Those of `work`.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    // So that what is logged there says of which request it is.
    let span = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(work)).await;
    done.unwrap_or_else(|_| Err(Problem::new(Code::Unavailable, "")))
}

/// Sees whether anybody still waits.
#[derive(Debug, Default)]
struct Watch {
    left: AtomicBool,
}

impl Observer for Watch {
    fn cancelled(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// Tells the watch when whoever waits goes away.
struct Waiting(Arc<Watch>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.left.store(true, Ordering::Relaxed);
    }
}

/// Does `work` in a thread, and has it end when nobody waits for it any more.
///
/// # Errors
/// Those of `work`.
pub async fn watched<T: Send + 'static>(
    work: impl FnOnce(&dyn Observer) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let waiting = Waiting(Arc::default());
    let watch = Arc::clone(&waiting.0);
    blocking(move || work(&*watch)).await
}

/// A body that a thread writes. When `work` fails the connection is broken off,
/// so that nobody takes a part for the whole.
pub fn send(work: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Body {
    let (to, pieces) = mpsc::channel(PIECES);
    let (runtime, whole) = (Handle::current(), Arc::new(AtomicBool::new(false)));
    let is_whole = Arc::clone(&whole);
    tokio::task::spawn_blocking(move || {
        let mut out = Out { to, piece: BytesMut::new(), runtime };
        if work(&mut out).and_then(|()| out.flush()).is_ok() {
            whole.store(true, Ordering::Release);
        }
    });
    let next = move |pieces: Option<mpsc::Receiver<Bytes>>| {
        let is_whole = Arc::clone(&is_whole);
        async move {
            let mut pieces = pieces?;
            match pieces.recv().await {
                Some(piece) => Some((Ok(piece), Some(pieces))),
                None if is_whole.load(Ordering::Acquire) => None,
                // The thread failed, lost its patience, or is no more.
                None => Some((Err(io::Error::from(io::ErrorKind::BrokenPipe)), None)),
            }
        }
    };
    Body::from_stream(futures::stream::unfold(Some(pieces), next).fuse())
}

struct Out {
    to: mpsc::Sender<Bytes>,
    piece: BytesMut,
    runtime: Handle,
}

impl Out {
    fn pass_on(&mut self) -> io::Result<()> {
        let piece = self.piece.split().freeze();
        match self.to.try_send(piece) {
            Ok(()) => Ok(()),
            // Nobody listens any more.
            Err(TrySendError::Closed(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(TrySendError::Full(piece)) => {
                let sent = self.runtime.block_on(self.to.send_timeout(piece, PATIENCE));
                sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
            }
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.pass_on()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.pass_on() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_part_is_not_taken_for_the_whole() {
        let good = send(|out| out.write_all(&[7; 3 * PIECE_BYTES]));
        assert_eq!(good.collect().await.unwrap().to_bytes().len(), 3 * PIECE_BYTES);
        let failed = send(|out| {
            out.write_all(&[7; PIECE_BYTES])?;
            Err(io::ErrorKind::InvalidData.into())
        });
        assert!(failed.collect().await.is_err());
        let panicked = send(|_| panic!("in the midst of it"));
        assert!(panicked.collect().await.is_err());
    }
}
