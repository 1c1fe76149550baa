//! Bodies that pass the proxy: counted, and slowed to the rate of the link.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Inner;

/// Length of the pieces in which a slow link sends a body.
const PIECE_BYTES: usize = 16 << 10;

/// The type of every body in the proxy.
pub(super) type AnyBody = BoxBody<Bytes, BodyError>;

/// Why a body ended early.
pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Returns a body with these bytes.
pub(super) fn whole(bytes: Bytes) -> AnyBody {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// Returns a body that comes from the network.
pub(super) fn incoming(body: Incoming) -> AnyBody {
    body.map_err(Into::into).boxed()
}

/// One direction of the link that all connections share.
#[derive(Debug)]
pub(super) struct Line {
    /// The rate, and the time at which the link is free again.
    state: Mutex<(Option<u64>, Instant)>,
}

impl Line {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new((None, Instant::now())) }
    }

    /// Sets the rate in bytes a second, or no limit.
    pub(super) fn set_rate(&self, bytes_a_second: Option<u64>) {
        self.state.lock().0 = bytes_a_second;
    }

    fn is_limited(&self) -> bool {
        self.state.lock().0.is_some()
    }

    /// Reserves time for `bytes`. Returns the time at which they have passed.
    fn reserve(&self, bytes: usize) -> Instant {
        let mut state = self.state.lock();
        let (rate, free) = *state;
        let begin = free.max(Instant::now());
        let Some(rate) = rate else { return begin };
        let end = begin + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        state.1 = end;
        end
    }
}

/// The direction of a body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// A body that is counted as it passes, and delayed by a slow link.
pub(super) struct Metered {
    body: AnyBody,
    inner: Arc<Inner>,
    way: Way,
    /// The piece that waits for the link, and its timer.
    held: Option<(Bytes, Pin<Box<Sleep>>)>,
    /// The bytes that follow that piece.
    rest: Bytes,
    /// Kept until the body ends or is dropped.
    _guard: Option<InFlight>,
}

impl Metered {
    pub(super) fn body(
        body: AnyBody,
        inner: Arc<Inner>,
        way: Way,
        guard: Option<InFlight>,
    ) -> AnyBody {
        let metered = Self { body, inner, way, held: None, rest: Bytes::new(), _guard: guard };
        metered.boxed()
    }

    fn line(&self) -> &Line {
        match self.way {
            Way::Up => &self.inner.up,
            Way::Down => &self.inner.down,
        }
    }

    /// Counts data that passes. It is lost if the line breaks now.
    fn pass(&self, data: Bytes) -> Result<Frame<Bytes>, BodyError> {
        match self.inner.count_bytes(self.way, data.len()) {
            true => Err("the line broke".into()),
            false => Ok(Frame::data(data)),
        }
    }

    /// Passes data on, or delays its first piece.
    fn take(&mut self, mut data: Bytes) -> Option<Bytes> {
        if !self.line().is_limited() {
            return Some(data);
        }
        let piece = data.split_to(data.len().min(PIECE_BYTES));
        self.rest = data;
        let through = self.line().reserve(piece.len());
        self.held = Some((piece, Box::pin(sleep_until(through))));
        None
    }
}

impl Body for Metered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if let Some((_, sleep)) = &mut this.held {
                ready!(sleep.as_mut().poll(cx));
            }
            if let Some((piece, _)) = this.held.take() {
                return Poll::Ready(Some(this.pass(piece)));
            }
            let data = if this.rest.is_empty() {
                match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => data,
                        Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                    },
                    end => return Poll::Ready(end),
                }
            } else {
                std::mem::take(&mut this.rest)
            };
            if let Some(data) = this.take(data) {
                return Poll::Ready(Some(this.pass(data)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.as_ref().map_or(0, |(piece, _)| piece.len()) + self.rest.len();
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + held as u64);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + held as u64);
        }
        hint
    }
}

/// Counts a request as in flight until it is dropped.
pub(super) struct InFlight(Arc<Inner>);

impl InFlight {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        inner.tally(|tally| {
            tally.in_flight += 1;
            tally.counts.in_flight_max = tally.counts.in_flight_max.max(tally.in_flight);
        });
        Self(Arc::clone(inner))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.tally(|tally| tally.in_flight -= 1);
    }
}

/// A body that sends its first half, and then fails or stalls.
pub(super) struct Half {
    half: Option<Bytes>,
    announced: u64,
    /// Called once the half was sent.
    then: Option<Box<dyn FnOnce() + Send + Sync>>,
    /// If true an error follows, otherwise nothing.
    fails: bool,
}

impl Half {
    pub(super) fn body(bytes: &Bytes, then: impl FnOnce() + Send + Sync + 'static) -> AnyBody {
        let half = bytes.slice(..bytes.len() / 2);
        let announced = bytes.len() as u64;
        Self { half: Some(half), announced, then: Some(Box::new(then)), fails: false }.boxed()
    }

    /// Creates a body that fails after the half.
    pub(super) fn cut(bytes: &Bytes) -> AnyBody {
        let half = bytes.slice(..bytes.len() / 2);
        let announced = bytes.len() as u64;
        Self { half: Some(half), announced, then: Some(Box::new(|| {})), fails: true }.boxed()
    }
}

impl Body for Half {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(half) = this.half.take().filter(|half| !half.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(half))));
        }
        if let Some(then) = this.then.take() {
            // Returning `Pending` flushes what was sent before.
            then();
            cx.waker().wake_by_ref();
        } else if this.fails {
            return Poll::Ready(Some(Err("the line was cut".into())));
        }
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.announced)
    }
}

/// A body that fails after a number of bytes, if it is longer.
pub(super) struct Limited {
    body: AnyBody,
    left: u64,
    cut: Arc<AtomicBool>,
    is_flushed: bool,
}

impl Limited {
    /// Creates the body. It sets `cut` when it fails.
    pub(super) fn body(body: AnyBody, left: u64, cut: Arc<AtomicBool>) -> AnyBody {
        Self { body, left, cut, is_flushed: false }.boxed()
    }
}

impl Body for Limited {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.cut.load(Ordering::SeqCst) {
            if !std::mem::replace(&mut this.is_flushed, true) {
                // Returning `Pending` flushes what was sent before.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            return Poll::Ready(Some(Err("the line was cut".into())));
        }
        let Some(Ok(frame)) = ready!(Pin::new(&mut this.body).poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        let Ok(mut data) = frame.into_data() else { return Poll::Ready(None) };
        if data.len() as u64 <= this.left {
            this.left -= data.len() as u64;
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        this.cut.store(true, Ordering::SeqCst);
        data.truncate(this.left as usize);
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
