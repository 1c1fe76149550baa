//! Response bodies: written by a thread, or held whole in memory.

use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
    os::unix::fs::FileExt,
    sync::{Arc, OnceLock},
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
    PIECES,
    client_key::ClientKey,
    memory::{MemoryReservation, SHORT_BYTES, kept},
    resources::BodyResources,
};
use crate::problem::{Code, HttpProblem};

/// Longest piece of a response, in bytes.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// Returns a body that a thread writes. The connection is aborted if `work` fails, so that the
/// client does not take a part for the whole, or if the client takes no piece within the stall
/// timeout of `resources`.
///
/// # Errors
/// [`Code::Unavailable`](crate::problem::Code::Unavailable) when too many bodies are being
/// written.
pub async fn stream_from_thread(
    resources: &Arc<BodyResources>,
    work: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Result<Body, HttpProblem> {
    // The permit is released when the thread and the body are both done.
    let turn = Arc::new(resources.waiting_threads.take(1).await?);
    let (to, pieces) = mpsc::channel(PIECES);
    let (runtime, ended) = (Handle::current(), Arc::new(OnceLock::new()));
    let (outcome, of_thread) = (Arc::clone(&ended), Arc::clone(&turn));
    let (span, client) = (tracing::Span::current(), ClientKey::current());
    let (of_work, resources) = (span.clone(), Arc::clone(resources));
    let write = move || {
        let _turn = of_thread;
        let mut out = PieceWriter { to, piece: BytesMut::new(), runtime, resources };
        let work = || work(&mut out).and_then(|()| out.flush());
        match of_work.in_scope(|| client.sync_scope(work)) {
            Ok(()) => drop(ended.set(Ok(()))),
            Err(error) => {
                of_work.in_scope(|| tracing::debug!(%error, "a response was cut off"));
                let _ = ended.set(Err(error.kind()));
            }
        }
    };
    let written = tokio::task::spawn_blocking(write);
    let report = async {
        if let Err(error) = written.await {
            tracing::error!(%error, "a server thread panicked while it sent a response");
        }
    };
    tokio::spawn(report.instrument(span));
    let next = move |left: Option<(mpsc::Receiver<Bytes>, _)>| {
        let outcome = Arc::clone(&outcome);
        async move {
            let (mut pieces, turn) = left?;
            match pieces.recv().await {
                Some(piece) => Some((Ok(piece), Some((pieces, turn)))),
                None => match outcome.get() {
                    Some(Ok(())) => None,
                    // The metrics count damage, so the kind of this error must reach them.
                    Some(Err(io::ErrorKind::InvalidData)) => {
                        Some((Err(io::Error::from(io::ErrorKind::InvalidData)), None))
                    }
                    // The thread failed, timed out, or panicked.
                    _ => Some((Err(io::Error::from(io::ErrorKind::BrokenPipe)), None)),
                },
            }
        }
    };
    Ok(Body::from_stream(futures::stream::unfold(Some((pieces, turn)), next).fuse()))
}

/// Like [`stream_from_thread`], but waits for the first piece or the end of a short body. A failure
/// before that becomes an error response instead of a truncated body.
///
/// # Errors
/// Errors of [`stream_from_thread`]; [`Code::Damaged`] when `work` failed with
/// [`InvalidData`](io::ErrorKind::InvalidData), [`Code::Unavailable`] when it failed
/// otherwise.
pub async fn stream_after_first_piece(
    resources: &Arc<BodyResources>,
    work: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Result<Body, HttpProblem> {
    let failed = Arc::new(OnceLock::new());
    let failure = Arc::clone(&failed);
    let body = stream_from_thread(resources, move |out| {
        let done = work(out);
        if let Err(error) = &done {
            let _ = failure.set(match error.kind() {
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
            return Err(HttpProblem::new(code, ""));
        }
    };
    let first = futures::stream::once(async { Ok(first) });
    Ok(Body::from_stream(first.chain(rest)))
}

/// Returns an empty body of unknown length, for the response to a `HEAD` request whose `GET` has a
/// body of [`stream_from_thread`].
pub fn unsized_body() -> Body {
    Body::from_stream(futures::stream::empty::<io::Result<Bytes>>())
}

/// Returns a body that is held whole, and extends `memory` to its length. Short bytes are copied,
/// so that they do not keep a longer buffer alive.
///
/// # Errors
/// Errors of [`MemoryReservation::hold`].
pub async fn whole_body(bytes: Bytes, mut memory: MemoryReservation) -> Result<Body, HttpProblem> {
    let is_copied = bytes.len() <= PIECE_BYTES;
    let bytes = if is_copied { Bytes::copy_from_slice(&bytes) } else { bytes };
    if bytes.len() <= SHORT_BYTES {
        return Ok(Body::from(bytes));
    }
    memory.hold(bytes.len()).await?;
    Ok(kept(Full::new(bytes), memory))
}

/// Writes a range of a file to `out`.
///
/// # Errors
/// Errors of `out`; errors of reading the file, also if it ends before the range does.
pub fn copy_range(file: &File, range: Range<u64>, out: &mut dyn Write) -> io::Result<()> {
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

/// Collects what a thread writes into pieces, and passes them to the body.
struct PieceWriter {
    to: mpsc::Sender<Bytes>,
    piece: BytesMut,
    runtime: Handle,
    /// Holds the stall timeout, after which a client that takes no piece counts as gone.
    resources: Arc<BodyResources>,
}

impl PieceWriter {
    /// Passes on the current piece. Blocks while too many pieces wait (backpressure).
    fn send_piece(&mut self) -> io::Result<()> {
        let piece = self.piece.split().freeze();
        match self.to.try_send(piece) {
            Ok(()) => Ok(()),
            // The body was dropped, because the client has disconnected.
            Err(TrySendError::Closed(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(TrySendError::Full(piece)) => {
                let BodyResources { stall, clock, .. } = &*self.resources;
                let sent = self.runtime.block_on(clock.timeout(*stall, self.to.send(piece)));
                match sent {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(_)) | Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
                }
            }
        }
    }
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..some]);
        if self.piece.len() == PIECE_BYTES {
            self.send_piece()?;
        }
        Ok(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.send_piece() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;

    use super::*;
    use crate::clock::Clock;

    const STALL: Duration = Duration::from_secs(60);

    fn resources() -> Arc<BodyResources> {
        BodyResources::new(STALL, Clock::manual())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_truncated_response_ends_with_an_error() {
        let resources = resources();
        let good = stream_from_thread(&resources, |out| out.write_all(&[7; 3 * PIECE_BYTES]));
        let good = good.await.unwrap();
        assert_eq!(good.collect().await.unwrap().to_bytes().len(), 3 * PIECE_BYTES);
        let failed = stream_from_thread(&resources, |out| {
            out.write_all(&[7; PIECE_BYTES])?;
            Err(io::ErrorKind::InvalidData.into())
        });
        assert!(failed.await.unwrap().collect().await.is_err());
        let panicked = stream_from_thread(&resources, |_| panic!("the body cannot be completed"));
        assert!(panicked.await.unwrap().collect().await.is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_response_that_fails_at_its_start_is_an_error() {
        let resources = resources();
        let work = |bytes: usize, kind: Option<io::ErrorKind>| {
            stream_after_first_piece(&resources, move |out| {
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
    async fn a_whole_body_has_its_length_and_holds_no_more_memory() {
        for bytes in [3, PIECE_BYTES, PIECE_BYTES + 1] {
            let frame = Bytes::from(vec![7; 2 * PIECE_BYTES]);
            let memory = MemoryReservation::new(&resources());
            let body = whole_body(frame.slice(..bytes), memory).await.unwrap();
            assert_eq!(axum::body::HttpBody::size_hint(&body).exact(), Some(bytes as u64));
            assert_eq!(frame.is_unique(), bytes <= PIECE_BYTES);
            assert_eq!(body.collect().await.unwrap().to_bytes().len(), bytes);
        }
    }

    #[tokio::test]
    async fn a_response_that_the_client_does_not_read_times_out() {
        let (told, tell) = tokio::sync::oneshot::channel();
        let clock = Clock::manual();
        let resources = BodyResources::new(STALL, clock.clone());
        let body = stream_from_thread(&resources, |out| {
            let all = out.write_all(&vec![7; 2 * PIECES * PIECE_BYTES]);
            let _ = told.send(all.map_err(|error| error.kind()));
            Ok(())
        });
        let body = body.await.unwrap();
        clock.until_sleeping(|left| left == [STALL]).await;
        clock.advance(STALL);
        assert_eq!(tell.await.unwrap(), Err(io::ErrorKind::BrokenPipe));
        drop(body);
    }
}
