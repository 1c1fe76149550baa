//! Bodies between connections, which are async, and threads, which work on
//! stores. A few pieces wait between the two, never a whole body.
//!
//! | module | what |
//! |---|---|
//! | `coming` | bodies as they come: not too long, and not for ever |
//! | `answer` | bodies that go out |
//! | [`mod@line`] | connections, as answers see them |
//! | `taken` | long answers, as they are taken |
//! | `sharer` | for whom something is done |
//! | `fair` | what there is little of, in shares |
//! | `memory` | memory for what is held whole |

mod answer;
mod coming;
mod fair;
pub mod line;
mod memory;
mod sharer;
mod taken;

pub use self::{
    answer::{copy, keep, send, send_begun, unsaid},
    coming::{Accept, linger, whole},
    memory::{Memory, Whole},
    sharer::Sharer,
};
pub(crate) use self::{
    memory::hold_answer,
    taken::{SHORT_BYTES, look_after},
};

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use snap_core::base::observe::Observer;
use tokio::sync::mpsc::{self, error::TrySendError};

use self::{
    coming::{Coming, is_too_long},
    fair::Fair,
};
use crate::problem::{Code, Problem};

/// Pieces that may wait.
const PIECES: usize = 8;

/// Threads for all that does not run on the connections' own.
pub const THREADS: usize = 512;

/// Those of them that may wait for slow clients, and how many may wait for those
/// of one. The rest is for work that ends by itself, so that slow clients keep
/// nobody from that.
const WAITING: usize = THREADS * 3 / 4;
const WAITING_EACH: usize = WAITING / 4;

static TURNS: Fair = Fair::new(WAITING, WAITING_EACH);

/// Archives that are made at once, and those of one client. Making one holds up to
/// 45 MiB: two batches of entries, the frames that they lie in, and the pieces that
/// wait for the client. One that zstd compresses counts twice, for zstd's buffers.
/// So all of them together stay within the 256 MiB that the server promises.
const ARCHIVES: usize = 5;
const ARCHIVES_EACH: usize = 4;

pub(crate) static MAKING_ARCHIVES: Fair = Fair::new(ARCHIVES, ARCHIVES_EACH);

/// Pieces of a body that comes in, for a thread.
#[derive(Debug)]
pub struct Pieces {
    pieces: mpsc::Receiver<Result<Bytes, Problem>>,
    watch: Arc<Watch>,
}

impl Pieces {
    /// All of a body.
    ///
    /// # Errors
    /// What was wrong with it; [`Code::Unavailable`] when so much is held already
    /// that there is no [`Memory`] for it.
    pub fn gather(self) -> Result<Whole, Problem> {
        let (mut all, mut memory) = (BytesMut::new(), Memory::default());
        for piece in self {
            let piece = piece?;
            memory.grow_in_thread(all.len() + piece.len())?;
            all.extend_from_slice(&piece);
        }
        Ok(Whole::new(all.freeze(), memory))
    }

    /// Sees whether its sender has left.
    pub fn observer(&self) -> Arc<Watch> {
        Arc::clone(&self.watch)
    }
}

impl Iterator for Pieces {
    type Item = Result<Bytes, Problem>;

    /// Waits for the next one; the last is an error if the body broke off.
    fn next(&mut self) -> Option<Self::Item> {
        self.pieces.blocking_recv()
    }
}

/// Hands a body to a thread that does `work` with it.
///
/// # Errors
/// Those of `work`; in its pieces [`Code::TooLarge`], and [`Code::Invalid`] when
/// the body broke off or stood still. [`Code::Unavailable`] when too many come
/// already.
pub async fn receive<T: Send + 'static>(
    body: Body,
    accept: Accept,
    work: impl FnOnce(Pieces) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let turn = match TURNS.take(1).await {
        Ok(turn) => turn,
        Err(problem) => {
            if accept.lingers {
                Coming::new(body, accept).linger().await;
            }
            return Err(problem);
        }
    };
    let (to, pieces) = mpsc::channel(PIECES);
    let waiting = Waiting::default();
    let watch = waiting.watch();
    let working = blocking(move || {
        // The thread has it, and may go on when nobody waits any more.
        let _turn = turn;
        work(Pieces { pieces, watch })
    });
    let feed = async move {
        let mut coming = Coming::new(body, accept);
        while let Some(piece) = coming.next().await {
            let is_last = piece.is_err();
            let is_too_long = is_too_long(&piece);
            let sent = match to.try_send(piece) {
                Ok(()) => Ok(()),
                Err(TrySendError::Closed(_)) => Err(()),
                Err(TrySendError::Full(piece)) => {
                    let sent = to.send(piece).await.map_err(|_| ());
                    // It was the thread that was waited for.
                    coming.go_on();
                    sent
                }
            };
            // Whoever works on it may have seen enough.
            if sent.is_err() || is_too_long {
                coming.linger().await;
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

/// Does `work` in a thread.
///
/// # Errors
/// Those of `work`.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    // So that what is logged there says of which request it is.
    let (span, sharer) = (tracing::Span::current(), Sharer::of_this());
    let work = move || span.in_scope(|| sharer.has_done(work));
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        tracing::error!(%error, "the work for a request broke off");
        Err(Problem::new(Code::Unavailable, ""))
    })
}

/// Sees whether anybody still waits.
#[derive(Debug, Default)]
pub struct Watch {
    left: AtomicBool,
}

impl Observer for Watch {
    fn cancelled(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// Tells the watch when whoever waits goes away.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Arc<Watch>);

impl Waiting {
    pub(crate) fn watch(&self) -> Arc<Watch> {
        Arc::clone(&self.0)
    }
}

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
    let waiting = Waiting::default();
    let watch = waiting.watch();
    blocking(move || work(&*watch)).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thread_sees_that_its_sender_has_left_and_has_its_turn_until_it_ends() {
        let sharer = Sharer::new("who leaves");
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
        let (told, tell) = tokio::sync::oneshot::channel();
        let accept = Accept { most_bytes: 1 << 20, stall: Duration::from_secs(60), lingers: true };
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
        let request = tokio::spawn(sharer.asks(working));
        begins.await.unwrap();
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        // The thread works on, and has its turn until it is done.
        let all = sharer.asks(async { TURNS.take(WAITING_EACH as u32).await });
        assert!(tokio::time::timeout(Duration::from_millis(50), all).await.is_err());
        go_on.send(()).unwrap();
        assert_eq!(tell.await.unwrap(), (false, 0, true));
        let all = sharer.asks(async { TURNS.take(WAITING_EACH as u32).await });
        assert!(all.await.is_ok());
    }
}
