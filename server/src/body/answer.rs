//! Bodies that go out: what a thread writes, and what is held whole.

use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
    os::unix::fs::FileExt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http_body_util::Full;
use tokio::{
    runtime::Handle,
    sync::mpsc::{self, error::TrySendError},
};
use tracing::Instrument;

use super::{
    PIECES, TURNS,
    memory::{Memory, SHORT_BYTES, kept},
    sharer::Sharer,
};
use crate::problem::{Code, Problem};

/// How long a piece is that goes out, at most.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// A body that a thread writes. When `work` fails the connection is broken off,
/// so that nobody takes a part for the whole; so it is when nobody takes a piece
/// for `stall`.
///
/// # Errors
/// [`Code::Unavailable`](crate::problem::Code::Unavailable) when too many are
/// written already.
pub async fn send(
    stall: Duration,
    work: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Result<Body, Problem> {
    // It is over when the thread is and the pieces are, whichever comes last.
    let turn = Arc::new(TURNS.take(1).await?);
    let (to, pieces) = mpsc::channel(PIECES);
    let (runtime, ended) = (Handle::current(), Arc::new(OnceLock::new()));
    let (outcome, of_thread) = (Arc::clone(&ended), Arc::clone(&turn));
    let (span, sharer) = (tracing::Span::current(), Sharer::of_this());
    let of_work = span.clone();
    let write = move || {
        let _turn = of_thread;
        let mut out = Out { to, piece: BytesMut::new(), runtime, stall };
        let work = || work(&mut out).and_then(|()| out.flush());
        match of_work.in_scope(|| sharer.has_done(work)) {
            Ok(()) => drop(ended.set(Ok(()))),
            Err(error) => {
                of_work.in_scope(|| tracing::debug!(%error, "an answer broke off"));
                let _ = ended.set(Err(error.kind()));
            }
        }
    };
    let written = tokio::task::spawn_blocking(write);
    let told = async {
        if let Err(error) = written.await {
            tracing::error!(%error, "the work for an answer broke off");
        }
    };
    tokio::spawn(told.instrument(span));
    let next = move |left: Option<(mpsc::Receiver<Bytes>, _)>| {
        let outcome = Arc::clone(&outcome);
        async move {
            let (mut pieces, turn) = left?;
            match pieces.recv().await {
                Some(piece) => Some((Ok(piece), Some((pieces, turn)))),
                None => match outcome.get() {
                    Some(Ok(())) => None,
                    // What is damaged is counted by those who watch the server.
                    Some(Err(io::ErrorKind::InvalidData)) => {
                        Some((Err(io::Error::from(io::ErrorKind::InvalidData)), None))
                    }
                    // The thread failed, lost its patience, or is no more.
                    _ => Some((Err(io::Error::from(io::ErrorKind::BrokenPipe)), None)),
                },
            }
        }
    };
    Ok(Body::from_stream(futures::stream::unfold(Some((pieces, turn)), next).fuse()))
}

/// The same, of which the beginning is waited for, or the end where it is short.
/// What fails before that is a refusal in place of a body that breaks off.
///
/// # Errors
/// Those of [`send`]; [`Code::Damaged`] when `work` failed with
/// [`InvalidData`](io::ErrorKind::InvalidData), [`Code::Unavailable`] when it
/// failed otherwise.
pub async fn send_begun(
    stall: Duration,
    work: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Result<Body, Problem> {
    let failed = Arc::new(OnceLock::new());
    let told = Arc::clone(&failed);
    let body = send(stall, move |out| {
        let done = work(out);
        if let Err(error) = &done {
            let _ = told.set(match error.kind() {
                io::ErrorKind::InvalidData => Code::Damaged,
                _ => Code::Unavailable,
            });
        }
        done
    });
    let mut rest = body.await?.into_data_stream();
    let first = match rest.next().await {
        None => return Ok(Body::empty()),
        Some(Ok(first)) => first,
        Some(Err(_)) => {
            let code = failed.get().copied().unwrap_or(Code::Unavailable);
            return Err(Problem::new(code, ""));
        }
    };
    let first = futures::stream::once(async { Ok(first) });
    Ok(Body::from_stream(first.chain(rest)))
}

/// In place of a body that [is written](send) and not asked for: how long it would
/// be is not known.
pub fn unsaid() -> Body {
    Body::from_stream(futures::stream::empty::<io::Result<Bytes>>())
}

/// A body that is held whole, in `memory` or more. What is short is copied out of
/// what it may be a part of.
///
/// # Errors
/// Those of [`Memory::hold`].
pub async fn keep(bytes: Bytes, mut memory: Memory) -> Result<Body, Problem> {
    let is_copied = bytes.len() <= PIECE_BYTES;
    let bytes = if is_copied { Bytes::copy_from_slice(&bytes) } else { bytes };
    if bytes.len() <= SHORT_BYTES {
        return Ok(Body::from(bytes));
    }
    memory.hold(bytes.len()).await?;
    Ok(kept(Full::new(bytes), memory))
}

/// Writes a range of a file.
///
/// # Errors
/// Those of `out`, and when the file cannot be read or ends before.
pub fn copy(file: &File, range: Range<u64>, out: &mut dyn Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES.min((range.end - range.start) as usize)];
    let mut at = range.start;
    while at < range.end {
        let some = piece.len().min((range.end - at) as usize);
        file.read_exact_at(&mut piece[..some], at)?;
        out.write_all(&piece[..some])?;
        at += some as u64;
    }
    Ok(())
}

struct Out {
    to: mpsc::Sender<Bytes>,
    piece: BytesMut,
    runtime: Handle,
    /// Whoever takes no piece in so long is taken for gone.
    stall: Duration,
}

impl Out {
    fn pass_on(&mut self) -> io::Result<()> {
        let piece = self.piece.split().freeze();
        match self.to.try_send(piece) {
            Ok(()) => Ok(()),
            // Nobody listens any more.
            Err(TrySendError::Closed(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(TrySendError::Full(piece)) => {
                let sent = self.runtime.block_on(self.to.send_timeout(piece, self.stall));
                sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
            }
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..some]);
        if self.piece.len() == PIECE_BYTES {
            self.pass_on()?;
        }
        Ok(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.pass_on() }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const STALL: Duration = Duration::from_secs(60);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_part_is_not_taken_for_the_whole() {
        let good = send(STALL, |out| out.write_all(&[7; 3 * PIECE_BYTES])).await.unwrap();
        assert_eq!(good.collect().await.unwrap().to_bytes().len(), 3 * PIECE_BYTES);
        let failed = send(STALL, |out| {
            out.write_all(&[7; PIECE_BYTES])?;
            Err(io::ErrorKind::InvalidData.into())
        });
        assert!(failed.await.unwrap().collect().await.is_err());
        let panicked = send(STALL, |_| panic!("in the midst of it")).await.unwrap();
        assert!(panicked.collect().await.is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_fails_at_its_beginning_is_refused() {
        let work = |bytes: usize, kind: Option<io::ErrorKind>| {
            send_begun(STALL, move |out| {
                out.write_all(&vec![7; bytes])?;
                kind.map_or(Ok(()), |kind| Err(kind.into()))
            })
        };
        let damaged = work(309, Some(io::ErrorKind::InvalidData)).await;
        assert_eq!(damaged.unwrap_err().code, Code::Damaged);
        let other = work(0, Some(io::ErrorKind::Other)).await;
        assert_eq!(other.unwrap_err().code, Code::Unavailable);
        for bytes in [0, 309, 3 * PIECE_BYTES + 1] {
            let good = work(bytes, None).await.unwrap();
            assert_eq!(good.collect().await.unwrap().to_bytes().len(), bytes);
        }
        let late = work(3 * PIECE_BYTES, Some(io::ErrorKind::InvalidData)).await.unwrap();
        assert!(late.collect().await.is_err());
    }

    #[tokio::test]
    async fn what_is_held_has_its_length_and_no_more_than_that() {
        for bytes in [3, PIECE_BYTES, PIECE_BYTES + 1] {
            let frame = Bytes::from(vec![7; 2 * PIECE_BYTES]);
            let body = keep(frame.slice(..bytes), Memory::default()).await.unwrap();
            assert_eq!(axum::body::HttpBody::size_hint(&body).exact(), Some(bytes as u64));
            assert_eq!(frame.is_unique(), bytes <= PIECE_BYTES);
            assert_eq!(body.collect().await.unwrap().to_bytes().len(), bytes);
        }
    }

    #[tokio::test]
    async fn who_takes_nothing_is_given_up_after_the_time_for_that() {
        let (told, tell) = tokio::sync::oneshot::channel();
        let body = send(Duration::from_millis(10), |out| {
            let all = out.write_all(&vec![7; 2 * PIECES * PIECE_BYTES]);
            let _ = told.send(all.map_err(|error| error.kind()));
            Ok(())
        });
        let body = body.await.unwrap();
        assert_eq!(tell.await.unwrap(), Err(io::ErrorKind::BrokenPipe));
        drop(body);
    }
}
