//! Memory for bodies that are held whole, of all requests together. What is
//! short is not counted: a connection has only so many requests at a time.

use std::{mem, ops::Deref};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::runtime::Handle;

use super::fair::{Fair, Taken};
use crate::problem::{Code, Problem};

/// Counted in this.
const UNIT_BYTES: usize = 1 << 10;

/// All there is, and what one may have of it.
const MOST_BYTES: usize = 256 << 20;
const EACH_BYTES: usize = MOST_BYTES / 2;

static HELD: Fair = Fair::new(MOST_BYTES / UNIT_BYTES, EACH_BYTES / UNIT_BYTES);

/// Up to here it is not counted.
pub(super) const SHORT_BYTES: usize = 64 << 10;

/// What grows does so in steps.
const STEP_BYTES: usize = 1 << 20;

/// Memory that is held; free when this is dropped.
#[derive(Debug, Default)]
pub struct Memory {
    taken: Vec<(usize, Taken)>,
    bytes: usize,
}

impl Memory {
    /// Holds so many bytes in all.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when they are not to be had soon,
    /// [`Code::TooLarge`] when they never are.
    pub async fn hold(&mut self, bytes: usize) -> Result<(), Problem> {
        if bytes <= self.bytes.max(SHORT_BYTES) {
            return Ok(());
        }
        let units = (bytes - self.bytes).div_ceil(UNIT_BYTES);
        if self.bytes / UNIT_BYTES + units > HELD.each() {
            let why = format!("at most {EACH_BYTES} bytes are held at a time");
            return Err(Problem::new(Code::TooLarge, why));
        }
        // A share is 2^17 of them.
        let taken = HELD.take(units as u32).await?;
        self.taken.push((units * UNIT_BYTES, taken));
        self.bytes += units * UNIT_BYTES;
        Ok(())
    }

    /// The same for what has become so long and may become longer.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub async fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        match bytes <= self.bytes.max(SHORT_BYTES) {
            true => Ok(()),
            false => self.hold(bytes.next_multiple_of(STEP_BYTES)).await,
        }
    }

    /// The same in a thread.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub fn grow_in_thread(&mut self, bytes: usize) -> Result<(), Problem> {
        match bytes <= self.bytes.max(SHORT_BYTES) {
            true => Ok(()),
            false => Handle::current().block_on(self.grow(bytes)),
        }
    }

    /// Gives back what is beyond so many bytes, as far as it was taken in one.
    pub fn shrink(&mut self, bytes: usize) {
        while self.bytes > bytes
            && let Some((last, taken)) = self.taken.last_mut()
        {
            let free = (self.bytes - bytes).min(*last) / UNIT_BYTES * UNIT_BYTES;
            if free == 0 {
                return;
            }
            taken.give_back(free / UNIT_BYTES);
            (*last, self.bytes) = (*last - free, self.bytes - free);
            if *last == 0 {
                self.taken.pop();
            }
        }
    }
}

/// Memory that making an answer takes, at most: what was found, and the text of it.
const MAKING_BYTES: usize = 32 << 20;

/// Counts the memory of an answer that is made as a whole: while it is made, and as
/// far as it is longer than [`SHORT_BYTES`] until it was taken. An answer of unknown
/// length comes in pieces, which are counted where they are made.
pub(crate) async fn hold_answer(request: Request, next: Next) -> Response {
    let mut memory = Memory::default();
    if let Err(problem) = memory.hold(MAKING_BYTES).await {
        return problem.into_response();
    }
    let (head, body) = next.run(request).await.into_parts();
    let Some(bytes) = body.size_hint().exact() else { return Response::from_parts(head, body) };
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    memory.shrink(if bytes <= SHORT_BYTES { 0 } else { bytes });
    Response::from_parts(head, kept(body, memory))
}

/// A body that has its memory until it is over.
pub(super) fn kept<B>(body: B, memory: Memory) -> Body
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    Body::new(body.map_err(move |error| {
        let _held = &memory;
        error
    }))
}

/// A body that is held whole.
#[derive(Debug)]
pub struct Whole {
    bytes: Bytes,
    memory: Memory,
}

impl Whole {
    pub(super) fn new(bytes: Bytes, memory: Memory) -> Self {
        Self { bytes, memory }
    }

    /// Lets go of the bytes, and hands on the memory.
    pub fn into_memory(mut self) -> Memory {
        mem::take(&mut self.memory)
    }
}

impl Deref for Whole {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::sharer::Sharer;

    #[tokio::test(start_paused = true)]
    async fn no_more_is_held_than_there_is() {
        let hold = |name: &'static str, bytes| {
            Sharer::new(name).asks(async move {
                let mut memory = Memory::default();
                memory.grow(bytes).await.map(|()| memory)
            })
        };
        assert_eq!(hold("one", EACH_BYTES + 1).await.unwrap_err().code, Code::TooLarge);
        let mut one = hold("one", 96 << 20).await.unwrap();
        assert_eq!(hold("one", 80 << 20).await.unwrap_err().code, Code::Unavailable);
        let short = hold("one", SHORT_BYTES).await.unwrap();
        assert_eq!(short.bytes, 0);
        let _other = hold("other", 80 << 20).await.unwrap();
        assert_eq!(hold("third", 100 << 20).await.unwrap_err().code, Code::Unavailable);
        one.shrink(0);
        assert!(hold("third", 100 << 20).await.is_ok());
        Sharer::new("one").asks(one.grow(1 << 20)).await.unwrap();
        Sharer::new("one").asks(one.grow((1 << 20) + 1)).await.unwrap();
        one.shrink(1 << 20);
        assert_eq!(one.bytes, 1 << 20);
    }
}
