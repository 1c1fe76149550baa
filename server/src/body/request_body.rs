//! Request bodies, with limits on their length and on the time without progress.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt;

use super::{
    memory::{MemoryReservation, WholeBody},
    resources::BodyResources,
};
use crate::{
    clock::Clock,
    problem::{Code, HttpProblem},
};

/// Bytes that must arrive within each timeout, unless the body ends. So a client cannot keep a body
/// alive with a byte now and then.
const LEAST_BYTES: u64 = 16 << 10;

/// For how long, and up to how many bytes, the server reads and discards the body of a refused
/// request. Then the client can send it all and read the response.
const DRAIN: Duration = Duration::from_secs(5);
const DRAIN_BYTES: u64 = 32 << 20;

/// The server stops discarding a refused body when nothing arrives for this long.
const DRAIN_PAUSE: Duration = Duration::from_secs(1);

/// Limits on a request body.
#[derive(Clone, Debug)]
pub struct BodyLimits {
    /// Longest accepted body, in bytes.
    pub most_bytes: u64,
    /// Resources that all bodies of the server share.
    pub resources: Arc<BodyResources>,
    /// True if the server discards a refused body for a while. False if the request has an `Expect`
    /// header: then its client waits before it sends the body.
    pub drain_on_refusal: bool,
}

/// A request body that is being received.
pub(super) struct IncomingBody {
    body: Body,
    left: u64,
    stall: Duration,
    clock: Clock,
    /// When the body times out, and how many bytes must arrive before that.
    until: Instant,
    awaited: u64,
}

impl IncomingBody {
    pub(super) fn new(body: Body, accept: &BodyLimits) -> Self {
        let BodyResources { stall, clock, .. } = &*accept.resources;
        Self::timed(body, accept.most_bytes, *stall, clock)
    }

    /// Creates a body of at most `left` bytes. It times out after `stall` without progress.
    fn timed(body: Body, left: u64, stall: Duration, clock: &Clock) -> Self {
        let (until, clock) = (clock.after(stall), clock.clone());
        Self { body, left, stall, clock, until, awaited: LEAST_BYTES }
    }

    /// Returns the next piece.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, HttpProblem>> {
        let invalid = |why| Some(Err(HttpProblem::new(Code::Invalid, why)));
        loop {
            let bytes = match self.clock.timeout_at(self.until, self.body.frame()).await {
                Err(_) => return invalid("the request body stalled"),
                Ok(None) => return None,
                Ok(Some(Err(_))) => return invalid("the request body was cut off"),
                Ok(Some(Ok(frame))) => frame.into_data(),
            };
            let Ok(bytes) = bytes else { continue };
            let length = bytes.len() as u64;
            if length > self.left {
                return Some(Err(HttpProblem::new(Code::TooLarge, "the request body is too long")));
            }
            self.left -= length;
            self.awaited = self.awaited.saturating_sub(length);
            if self.awaited == 0 {
                self.restart_timeout();
            }
            return Some(Ok(bytes));
        }
    }

    /// Reads and discards the body for at most [`DRAIN`], as long as bytes arrive. A client that
    /// pauses may be waiting for the response.
    pub(super) async fn drain(mut self) {
        self.left = DRAIN_BYTES;
        self.restart_timeout();
        let clock = self.clock.clone();
        let read =
            async { while let Ok(Some(Ok(_))) = clock.timeout(DRAIN_PAUSE, self.next()).await {} };
        let _ = clock.timeout(DRAIN, read).await;
    }

    /// Restarts the timeout: enough bytes arrived, or the server itself was slow to take them.
    pub(super) fn restart_timeout(&mut self) {
        (self.until, self.awaited) = (self.clock.after(self.stall), LEAST_BYTES);
    }
}

pub(super) fn is_too_long(piece: &Result<Bytes, HttpProblem>) -> bool {
    piece.as_ref().is_err_and(|problem| problem.code == Code::TooLarge)
}

/// Discards the body of a refused request for a while, unless the request has an `Expect` header:
/// then its client waits before it sends the body.
pub async fn drain(clock: &Clock, headers: &HeaderMap, body: Body) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    IncomingBody::timed(body, DRAIN_BYTES, DRAIN, clock).drain().await;
}

/// Receives a whole body. Blocks no thread while it waits.
///
/// # Errors
/// As [`receive`](super::receive); [`Code::Unavailable`] when too much [`MemoryReservation`] is in
/// use.
pub async fn read_whole(body: Body, accept: BodyLimits) -> Result<WholeBody, HttpProblem> {
    let (mut coming, mut all) = (IncomingBody::new(body, &accept), BytesMut::new());
    let mut memory = MemoryReservation::new(&accept.resources);
    while let Some(piece) = coming.next().await {
        let taken = match piece {
            Ok(piece) => memory.grow(all.len() + piece.len()).await.map(|()| piece),
            Err(problem) => Err(problem),
        };
        match taken {
            Ok(piece) => all.extend_from_slice(&piece),
            Err(problem) => {
                if matches!(problem.code, Code::TooLarge | Code::Unavailable) {
                    coming.drain().await;
                }
                return Err(problem);
            }
        }
    }
    Ok(WholeBody::new(all.freeze(), memory))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn slow(pieces: usize, bytes: usize, every: Duration) -> Body {
        let pieces = futures::stream::unfold(0, move |number| async move {
            tokio::time::sleep(every).await;
            (number < pieces).then(|| (Ok::<_, io::Error>(vec![7; bytes]), number + 1))
        });
        Body::from_stream(pieces)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_body_is_drained_only_briefly() {
        for (every, longest) in [(Duration::from_secs(60), 1), (DRAIN_PAUSE / 2, 5)] {
            let (clock, headers) = (Clock::default(), HeaderMap::new());
            let began = clock.now();
            drain(&clock, &headers, slow(1000, 1000, every)).await;
            assert_eq!(clock.elapsed(began).as_secs(), longest, "{every:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickling_body_times_out() {
        let resources = BodyResources::new(Duration::from_secs(60), Clock::default());
        let accept = BodyLimits { most_bytes: 1 << 20, resources, drain_on_refusal: true };
        let read = |body| read_whole(body, accept.clone());
        let every = Duration::from_secs(50);
        let error = read(slow(10, 1, every)).await.unwrap_err();
        assert!(error.detail.contains("stalled"), "{error}");
        let least = LEAST_BYTES as usize;
        assert_eq!(read(slow(10, least, every)).await.unwrap().len(), 10 * least);
        // The last part of a body may be shorter than `LEAST_BYTES`.
        assert_eq!(read(slow(1, 3, every / 3)).await.unwrap()[..], [7; 3]);
    }
}
