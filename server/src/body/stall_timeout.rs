//! Timeouts of long responses. Over HTTP/2, a client may stop reading one response while it uses
//! the connection for others. Then the connection no longer polls the body of that response, so a
//! background task watches the body. If the client takes nothing for too long, the task drops the
//! body with all that it holds. It also closes the connection, which may still hold a piece of the
//! body.

use std::{
    io, mem,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tracing::Instrument;

use super::{
    connection_table::{ConnectionState, ResponseGuard},
    response_body::PIECE_BYTES,
};
use crate::clock::Clock;

/// Responses up to this length are not watched.
pub(crate) const UNWATCHED_BYTES: u64 = 64 << 10;

/// A piece longer than [`PIECE_BYTES`] is passed on in copies of this length, so that a connection
/// does not keep the long buffer alive.
const COPY_BYTES: usize = 64 << 10;

/// The rest of a response.
#[derive(Debug)]
struct RemainingBody {
    /// `None` after the client timed out.
    body: Option<BodyDataStream>,
    /// The rest of a long piece.
    rest: Bytes,
    /// When the connection got its last piece; `None` while it waits for the next one.
    handed: Option<Instant>,
    clock: Clock,
}

/// A response body that a background task watches for stalls.
struct WatchedBody {
    left: Arc<Mutex<RemainingBody>>,
    looks: AbortHandle,
    _sending: Option<ResponseGuard>,
}

/// Watches a body. If the client takes nothing of it for `stall`, drops the body and closes its
/// connection.
pub(crate) fn with_stall_timeout(
    body: Body,
    line: Option<Arc<ConnectionState>>,
    stall: Duration,
    clock: &Clock,
) -> Body {
    let body = Some(body.into_data_stream());
    let left = Arc::new(Mutex::new(RemainingBody {
        body,
        rest: Bytes::new(),
        handed: None,
        clock: clock.clone(),
    }));
    let look = watch_for_stall(Arc::downgrade(&left), line.clone(), stall, clock.clone());
    let looks = tokio::spawn(look.instrument(tracing::Span::current())).abort_handle();
    Body::from_stream(WatchedBody {
        left,
        looks,
        _sending: line.map(ConnectionState::begin_response),
    })
}

/// Waits until the client has taken no piece for `stall`; then drops the body and closes its
/// connection. Ends when the body is dropped, which the task does not keep alive.
async fn watch_for_stall(
    left: Weak<Mutex<RemainingBody>>,
    line: Option<Arc<ConnectionState>>,
    stall: Duration,
    clock: Clock,
) {
    loop {
        let now = clock.now();
        let Some(left) = left.upgrade() else { return };
        let until = left.lock().handed.unwrap_or(now) + stall;
        if until <= now {
            tracing::debug!("the client does not receive a response, its connection is closed");
            let gone = {
                let mut left = left.lock();
                (left.body.take(), mem::take(&mut left.rest))
            };
            drop(gone);
            if let Some(line) = line {
                line.end();
            }
            return;
        }
        drop(left);
        clock.sleep_until(until).await;
    }
}

impl RemainingBody {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        // The connection wants more, so it has taken the previous piece.
        self.handed = None;
        let Some(body) = &mut self.body else {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        };
        if self.rest.is_empty() {
            match ready!(Pin::new(body).poll_next(context)) {
                Some(Ok(piece)) if piece.len() > PIECE_BYTES => self.rest = piece,
                Some(Ok(piece)) => {
                    self.handed = Some(self.clock.now());
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
            // Also drop the buffer that contains the piece.
            self.rest = Bytes::new();
        }
        self.handed = Some(self.clock.now());
        Poll::Ready(Some(Ok(piece)))
    }
}

impl Stream for WatchedBody {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.left.lock().poll(context)
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.looks.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, task::Waker};

    use futures::StreamExt;

    use super::*;
    use crate::body::connection_table::ConnectionTable;

    const STALL: Duration = Duration::from_secs(60);

    /// A body, and a reference that shows when it was dropped.
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
    async fn an_unread_response_and_its_connection_are_closed() {
        let address: SocketAddr = "192.0.2.1:1".parse().unwrap();
        for proxies in [vec![], vec![address.ip()]] {
            let is_shared = !proxies.is_empty();
            let lines = Arc::new(ConnectionTable::new(proxies));
            let open = lines.open(address);
            let (body, gone) = body(3, 1 << 20);
            let mut answer = with_stall_timeout(body, lines.of(address), STALL, &Clock::default())
                .into_data_stream();
            // The body is slow here, not the client.
            assert_eq!(answer.next().await.unwrap().unwrap().len(), COPY_BYTES);
            assert!(open.is_sending(Waker::noop()));
            tokio::time::sleep(STALL - Duration::from_secs(1)).await;
            assert!(gone.upgrade().is_some() && !open.is_ended(Waker::noop()));
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(gone.upgrade().is_none(), "the stalled body is dropped");
            assert_eq!(open.is_ended(Waker::noop()), !is_shared);
            assert!(
                answer.next().await.unwrap().is_err(),
                "a truncated response ends with an error"
            );
            drop(answer);
            assert!(!open.is_sending(Waker::noop()));
            drop(open);
            assert!(lines.of(address).is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slowly_read_response_completes() {
        for bytes in [1, PIECE_BYTES, PIECE_BYTES + 1, 1 << 20] {
            let (body, gone) = body(2, bytes);
            let mut answer =
                with_stall_timeout(body, None, STALL, &Clock::default()).into_data_stream();
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
