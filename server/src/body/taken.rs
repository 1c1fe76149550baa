//! Long answers, as they are taken. Over HTTP/2 somebody may take nothing of an
//! answer while the connection is as lively as can be, and nobody asks for more
//! of the answer then: so a task looks after it. One that nobody takes goes, with
//! all it holds, and the connection goes with it, as does the piece that waits
//! there.

use std::{
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures::Stream;
use tokio::{task::AbortHandle, time::Instant};
use tracing::Instrument;

use super::{
    answer::PIECE_BYTES,
    line::{Line, Sending},
};

/// What is no longer than this is not looked after.
pub(crate) const SHORT_BYTES: u64 = 64 << 10;

/// Of pieces that are longer than [`PIECE_BYTES`] copies of this length are handed
/// on, so that a connection holds no more than that.
const COPY_BYTES: usize = 64 << 10;

/// What there is left of an answer.
#[derive(Debug)]
struct Left {
    /// `None` once nobody took it.
    body: Option<BodyDataStream>,
    /// Of a long piece.
    rest: Bytes,
    /// Since when a piece is with the connection; `None` while the next one is
    /// awaited.
    handed: Option<Instant>,
}

/// An answer that is looked after.
struct LookedAfter {
    left: Arc<Mutex<Left>>,
    looks: AbortHandle,
    _sending: Option<Sending>,
}

/// Gives up on a body of which nothing is taken for `stall`, and on the connection
/// that it is for.
pub(crate) fn look_after(body: Body, line: Option<Arc<Line>>, stall: Duration) -> Body {
    let body = Some(body.into_data_stream());
    let left = Arc::new(Mutex::new(Left { body, rest: Bytes::new(), handed: None }));
    let look = look(Arc::downgrade(&left), line.clone(), stall);
    let looks = tokio::spawn(look.instrument(tracing::Span::current())).abort_handle();
    Body::from_stream(LookedAfter { left, looks, _sending: line.map(Line::sends) })
}

async fn look(left: Weak<Mutex<Left>>, line: Option<Arc<Line>>, stall: Duration) {
    loop {
        let now = Instant::now();
        let Some(left) = left.upgrade() else { return };
        let until = lock(&left).handed.unwrap_or(now) + stall;
        if until <= now {
            tracing::debug!("nobody takes an answer");
            let gone = {
                let mut left = lock(&left);
                (left.body.take(), mem::take(&mut left.rest))
            };
            drop(gone);
            if let Some(line) = line {
                line.end();
            }
            return;
        }
        drop(left);
        tokio::time::sleep_until(until).await;
    }
}

fn lock(left: &Mutex<Left>) -> MutexGuard<'_, Left> {
    left.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Left {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        self.handed = None;
        let Some(body) = &mut self.body else {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        };
        if self.rest.is_empty() {
            match ready!(Pin::new(body).poll_next(context)) {
                Some(Ok(piece)) if piece.len() > PIECE_BYTES => self.rest = piece,
                Some(Ok(piece)) => {
                    self.handed = Some(Instant::now());
                    return Poll::Ready(Some(Ok(piece)));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                None => return Poll::Ready(None),
            }
        }
        let some = self.rest.len().min(COPY_BYTES);
        let piece = Bytes::copy_from_slice(&self.rest[..some]);
        self.rest = self.rest.slice(some..);
        if self.rest.is_empty() {
            // Also of what it was a part of.
            self.rest = Bytes::new();
        }
        self.handed = Some(Instant::now());
        Poll::Ready(Some(Ok(piece)))
    }
}

impl Stream for LookedAfter {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        lock(&self.left).poll(context)
    }
}

impl Drop for LookedAfter {
    fn drop(&mut self) {
        self.looks.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, task::Waker};

    use futures::StreamExt;

    use super::*;
    use crate::body::line::Lines;

    const STALL: Duration = Duration::from_secs(60);

    /// A body that can be seen to be gone.
    fn body(pieces: usize, bytes: usize) -> (Body, Weak<()>) {
        let (held, every) = (Arc::new(()), STALL * 2);
        let gone = Arc::downgrade(&held);
        let pieces = futures::stream::unfold((0, held), move |(number, held)| async move {
            tokio::time::sleep(every).await;
            (number < pieces).then(|| (Ok::<_, io::Error>(vec![7; bytes]), (number + 1, held)))
        });
        (Body::from_stream(pieces), gone)
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_takes_goes_and_its_connection_with_it() {
        let address: SocketAddr = "192.0.2.1:1".parse().unwrap();
        for proxies in [vec![], vec![address.ip()]] {
            let is_shared = !proxies.is_empty();
            let lines = Arc::new(Lines::new(proxies));
            let open = lines.open(address);
            let (body, gone) = body(3, 1 << 20);
            let mut answer = look_after(body, lines.of(address), STALL).into_data_stream();
            // That it takes its time is not the reader's fault.
            assert_eq!(answer.next().await.unwrap().unwrap().len(), COPY_BYTES);
            assert!(open.is_sending(Waker::noop()));
            tokio::time::sleep(STALL - Duration::from_secs(1)).await;
            assert!(gone.upgrade().is_some() && !open.is_ended(Waker::noop()));
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(gone.upgrade().is_none(), "nobody asked, and it is gone");
            assert_eq!(open.is_ended(Waker::noop()), !is_shared);
            assert!(answer.next().await.unwrap().is_err(), "a part is not the whole");
            drop(answer);
            assert!(!open.is_sending(Waker::noop()));
            drop(open);
            assert!(lines.of(address).is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_slowly_comes_whole() {
        for bytes in [1, PIECE_BYTES, PIECE_BYTES + 1, 1 << 20] {
            let (body, gone) = body(2, bytes);
            let mut answer = look_after(body, None, STALL).into_data_stream();
            let mut all = 0;
            while let Some(piece) = answer.next().await {
                let piece = piece.unwrap();
                assert!(piece.len() <= PIECE_BYTES);
                all += piece.len();
                tokio::time::sleep(STALL - Duration::from_secs(1)).await;
            }
            assert_eq!(all, 2 * bytes);
            drop(answer);
            assert!(gone.upgrade().is_none());
        }
    }
}
