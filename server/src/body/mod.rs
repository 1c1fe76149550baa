//! Request and response bodies. Connections are async; blocking threads read and write stores.
//! Between the two, a few pieces of a body are buffered, never a whole body.
//!
//! | module | what |
//! |---|---|
//! | `request_body` | request bodies, with limits on length and time |
//! | `response_body` | response bodies |
//! | [`mod@connection_table`] | connections, as response bodies see them |
//! | `stall_timeout` | timeouts of long responses |
//! | `client_key` | the client that work is done for |
//! | `fair_semaphore` | a fair semaphore with a quota for each client |
//! | `memory` | a memory budget for bodies that are held whole |
//! | `resources` | what the bodies of one server share |

mod client_key;
pub mod connection_table;
mod fair_semaphore;
mod memory;
mod request_body;
mod resources;
mod response_body;
mod stall_timeout;

pub use self::{
    client_key::ClientKey,
    memory::{MemoryReservation, WholeBody},
    request_body::{BodyLimits, drain, read_whole},
    resources::BodyResources,
    response_body::{
        copy_range, stream_after_first_piece, stream_from_thread, unsized_body, whole_body,
    },
};
pub(crate) use self::{
    memory::hold_answer,
    stall_timeout::{UNWATCHED_BYTES, with_stall_timeout},
};

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use snap_core::base::observe::Observer;
use tokio::sync::mpsc::{self, error::TrySendError};

use self::request_body::{IncomingBody, is_too_long};
use crate::problem::{Code, HttpProblem};

/// Number of pieces that are buffered between a connection and a thread.
const PIECES: usize = 8;

/// Maximum number of blocking threads in the runtime.
pub const THREADS: usize = 512;

/// The pieces of a request body, for a thread.
#[derive(Debug)]
pub struct BodyPieces {
    pieces: mpsc::Receiver<Result<Bytes, HttpProblem>>,
    watch: Arc<DisconnectObserver>,
    resources: Arc<BodyResources>,
}

impl BodyPieces {
    /// Returns an empty reservation for data that is made of the body.
    pub fn memory(&self) -> MemoryReservation {
        MemoryReservation::new(&self.resources)
    }

    /// Collects the whole body.
    ///
    /// # Errors
    /// Errors of the body; [`Code::Unavailable`] and [`Code::TooLarge`] of the
    /// [`MemoryReservation`].
    pub fn gather(self) -> Result<WholeBody, HttpProblem> {
        let (mut all, mut memory) = (BytesMut::new(), self.memory());
        for piece in self {
            let piece = piece?;
            memory.grow_in_thread(all.len() + piece.len())?;
            all.extend_from_slice(&piece);
        }
        Ok(WholeBody::new(all.freeze(), memory))
    }

    /// Returns an observer that is cancelled when the client disconnects.
    pub fn observer(&self) -> Arc<DisconnectObserver> {
        Arc::clone(&self.watch)
    }
}

impl Iterator for BodyPieces {
    type Item = Result<Bytes, HttpProblem>;

    /// Waits for the next piece. If the body was cut off, the last piece is an error.
    fn next(&mut self) -> Option<Self::Item> {
        self.pieces.blocking_recv()
    }
}

/// Passes a request body to `work`, which runs in a blocking thread.
///
/// # Errors
/// Errors of `work`; [`Code::Unavailable`] when too many bodies are being received. The pieces may
/// contain [`Code::TooLarge`], and [`Code::Invalid`] when the body was cut off or timed out.
pub async fn receive<T: Send + 'static>(
    body: Body,
    accept: BodyLimits,
    work: impl FnOnce(BodyPieces) -> Result<T, HttpProblem> + Send + 'static,
) -> Result<T, HttpProblem> {
    let turn = match accept.resources.waiting_threads.take(1).await {
        Ok(turn) => turn,
        Err(problem) => {
            if accept.drain_on_refusal {
                IncomingBody::new(body, &accept).drain().await;
            }
            return Err(problem);
        }
    };
    let (to, pieces) = mpsc::channel(PIECES);
    let waiting = ClientWaiting::default();
    let (watch, resources) = (waiting.watch(), Arc::clone(&accept.resources));
    let working = blocking(move || {
        // The thread keeps the permit: it may run on after the client has disconnected.
        let _turn = turn;
        work(BodyPieces { pieces, watch, resources })
    });
    let feed = async move {
        let mut coming = IncomingBody::new(body, &accept);
        while let Some(piece) = coming.next().await {
            let is_last = piece.is_err();
            let is_too_long = is_too_long(&piece);
            let sent = match to.try_send(piece) {
                Ok(()) => Ok(()),
                Err(TrySendError::Closed(_)) => Err(()),
                Err(TrySendError::Full(piece)) => {
                    let sent = to.send(piece).await.map_err(|_| ());
                    // The thread was slow, not the client.
                    coming.restart_timeout();
                    sent
                }
            };
            // The thread may have ended before it read the whole body.
            if sent.is_err() || is_too_long {
                coming.drain().await;
                break;
            }
            if is_last {
                break;
            }
        }
    };
    let ((), done) = tokio::join!(feed, working);
    done
}

/// Runs `work` in a blocking thread.
///
/// # Errors
/// Errors of `work`.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HttpProblem> + Send + 'static,
) -> Result<T, HttpProblem> {
    // The span makes log lines of the thread name their request.
    let (span, client) = (tracing::Span::current(), ClientKey::current());
    let work = move || span.in_scope(|| client.sync_scope(work));
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        tracing::error!(%error, "a server thread panicked while it handled a request");
        Err(HttpProblem::new(Code::Unavailable, ""))
    })
}

/// An observer that is cancelled when the client disconnects.
#[derive(Debug, Default)]
pub struct DisconnectObserver {
    left: AtomicBool,
}

impl Observer for DisconnectObserver {
    fn cancelled(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// Lives as long as the client waits. On drop it cancels the [`DisconnectObserver`].
#[derive(Debug, Default)]
pub(crate) struct ClientWaiting(Arc<DisconnectObserver>);

impl ClientWaiting {
    pub(crate) fn watch(&self) -> Arc<DisconnectObserver> {
        Arc::clone(&self.0)
    }
}

impl Drop for ClientWaiting {
    fn drop(&mut self) {
        self.0.left.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` in a blocking thread, and cancels it when the client disconnects.
///
/// # Errors
/// Errors of `work`.
pub async fn blocking_until_disconnect<T: Send + 'static>(
    work: impl FnOnce(&dyn Observer) -> Result<T, HttpProblem> + Send + 'static,
) -> Result<T, HttpProblem> {
    let waiting = ClientWaiting::default();
    let watch = waiting.watch();
    blocking(move || work(&*watch)).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{body::resources::MAX_WAITING_PER_CLIENT, clock::Clock};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thread_keeps_its_permit_after_its_client_disconnects() {
        let sharer = ClientKey::new("who leaves");
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
        let (told, tell) = tokio::sync::oneshot::channel();
        let clock = Clock::manual();
        let resources = BodyResources::new(Duration::from_secs(60), clock.clone());
        let permits = Arc::clone(&resources.waiting_threads);
        let accept = BodyLimits { most_bytes: 1 << 20, resources, drain_on_refusal: true };
        let never = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let working = receive(never, accept, move |pieces| {
            let watch = pieces.observer();
            let before = watch.cancelled();
            let _ = begun.send(());
            let ended = pieces.count();
            let _ = goes_on.recv();
            let _ = told.send((before, ended, watch.cancelled()));
            Ok(())
        });
        let request = tokio::spawn(sharer.scope(working));
        begins.await.unwrap();
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        // The thread runs on, and keeps its permit until it ends.
        let all = || sharer.scope(async { permits.take(MAX_WAITING_PER_CLIENT as u32).await });
        let (refused, ()) = tokio::join!(all(), async {
            clock.until_sleeping(|left| !left.is_empty()).await;
            clock.advance(Duration::from_secs(60));
        });
        assert!(refused.is_err());
        go_on.send(()).unwrap();
        assert_eq!(tell.await.unwrap(), (false, 0, true));
        assert!(all().await.is_ok());
    }
}
