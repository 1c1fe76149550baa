//! Bodies as they come: no longer than they may be, and not for ever.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::memory::{Memory, Whole};
use crate::problem::{Code, Problem};

/// A body stands still when less than this comes in the time for that, unless it
/// ends: one byte now and then is no body.
const LEAST_BYTES: u64 = 16 << 10;

/// For so long, and up to so many bytes, a body is read of which nobody wants
/// more, so that whoever sends it comes to read why.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: u64 = 32 << 20;

/// Nor for longer after the last of them.
const LINGER_PAUSE: Duration = Duration::from_secs(1);

/// How much of a body is taken.
#[derive(Clone, Copy, Debug)]
pub struct Accept {
    /// How long it may be.
    pub most_bytes: u64,
    /// How long it may stand still.
    pub stall: Duration,
    /// Whether it is read on for a while when it is refused: not where whoever
    /// sends it waits to be told whether to.
    pub lingers: bool,
}

/// A body as it comes.
pub(super) struct Coming {
    body: Body,
    left: u64,
    stall: Duration,
    /// When it will have stood still, and what must come before that.
    until: Instant,
    awaited: u64,
}

impl Coming {
    pub(super) fn new(body: Body, accept: Accept) -> Self {
        let (left, stall, awaited) = (accept.most_bytes, accept.stall, LEAST_BYTES);
        Self { body, left, stall, until: Instant::now() + stall, awaited }
    }

    /// Its next piece.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, Problem>> {
        let invalid = |why| Some(Err(Problem::new(Code::Invalid, why)));
        loop {
            let bytes = match tokio::time::timeout_at(self.until, self.body.frame()).await {
                Err(_) => return invalid("the body stood still"),
                Ok(None) => return None,
                Ok(Some(Err(_))) => return invalid("the body broke off"),
                Ok(Some(Ok(frame))) => frame.into_data(),
            };
            let Ok(bytes) = bytes else { continue };
            let length = bytes.len() as u64;
            if length > self.left {
                return Some(Err(Problem::new(Code::TooLarge, "the body is too long")));
            }
            self.left -= length;
            self.awaited = self.awaited.saturating_sub(length);
            if self.awaited == 0 {
                self.go_on();
            }
            return Some(Ok(bytes));
        }
    }

    /// Reads on for a while, as long as something comes: a sender that pauses may
    /// wait for the answer.
    pub(super) async fn linger(mut self) {
        self.left = LINGER_BYTES;
        self.go_on();
        let read = async {
            while let Ok(Some(Ok(_))) = tokio::time::timeout(LINGER_PAUSE, self.next()).await {}
        };
        let _ = tokio::time::timeout(LINGER, read).await;
    }

    /// What was waited for has come, or nobody took it meanwhile.
    pub(super) fn go_on(&mut self) {
        (self.until, self.awaited) = (Instant::now() + self.stall, LEAST_BYTES);
    }
}

pub(super) fn is_too_long(piece: &Result<Bytes, Problem>) -> bool {
    piece.as_ref().is_err_and(|problem| problem.code == Code::TooLarge)
}

/// Reads a body for a while that is refused, unless whoever sends it waits to be
/// told whether to.
pub async fn linger(headers: &HeaderMap, body: Body) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let accept = Accept { most_bytes: LINGER_BYTES, stall: LINGER, lingers: true };
    Coming::new(body, accept).linger().await;
}

/// Reads a body whole. No thread waits for it.
///
/// # Errors
/// As [`receive`](super::receive); [`Code::Unavailable`] when so much is held already
/// that there is no [`Memory`] for it.
pub async fn whole(body: Body, accept: Accept) -> Result<Whole, Problem> {
    let (mut coming, mut all) = (Coming::new(body, accept), BytesMut::new());
    let mut memory = Memory::default();
    while let Some(piece) = coming.next().await {
        let taken = match piece {
            Ok(piece) => memory.grow(all.len() + piece.len()).await.map(|()| piece),
            Err(problem) => Err(problem),
        };
        match taken {
            Ok(piece) => all.extend_from_slice(&piece),
            Err(problem) => {
                if matches!(problem.code, Code::TooLarge | Code::Unavailable) {
                    coming.linger().await;
                }
                return Err(problem);
            }
        }
    }
    Ok(Whole::new(all.freeze(), memory))
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
    async fn whoever_pauses_is_told_at_once_why_a_body_is_refused() {
        for (every, longest) in [(Duration::from_secs(60), 1), (LINGER_PAUSE / 2, 5)] {
            let (began, headers) = (Instant::now(), HeaderMap::new());
            linger(&headers, slow(1000, 1000, every)).await;
            assert_eq!(began.elapsed().as_secs(), longest, "{every:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_now_and_then_is_no_body() {
        let accept = Accept { most_bytes: 1 << 20, stall: Duration::from_secs(60), lingers: true };
        let every = Duration::from_secs(50);
        let error = whole(slow(10, 1, every), accept).await.unwrap_err();
        assert!(error.detail.contains("stood still"), "{error}");
        let least = LEAST_BYTES as usize;
        assert_eq!(whole(slow(10, least, every), accept).await.unwrap().len(), 10 * least);
        // Its end may come before that.
        assert_eq!(whole(slow(1, 3, every / 3), accept).await.unwrap()[..], [7; 3]);
    }
}
