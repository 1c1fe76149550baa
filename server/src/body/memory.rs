//! A memory budget for bodies that are held whole, shared by all requests. Short bodies are
//! not counted, because the number of requests on a connection limits them.

use std::{ops::Deref, sync::Arc};

use axum::{
    body::{Body, HttpBody},
    extract::{Extension, Request},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::runtime::Handle;

use super::{
    fair_semaphore::{FairPermit, FairSemaphore},
    resources::BodyResources,
};
use crate::problem::{Code, HttpProblem};

/// Number of bytes that one permit of the semaphore stands for.
const UNIT_BYTES: usize = 1 << 10;

/// The whole budget and the quota of one client, in bytes.
const MOST_BYTES: usize = 256 << 20;
const EACH_BYTES: usize = MOST_BYTES / 2;

/// The whole budget and the quota of one client, in permits of the semaphore.
pub(super) const MOST_UNITS: usize = MOST_BYTES / UNIT_BYTES;
pub(super) const EACH_UNITS: usize = EACH_BYTES / UNIT_BYTES;

/// Bodies up to this length, in bytes, are not counted.
pub(super) const SHORT_BYTES: usize = 64 << 10;

/// A body that grows reserves memory in steps of this size.
const STEP_BYTES: usize = 1 << 20;

/// Memory reserved from the budget; released on drop.
#[derive(Debug)]
pub struct MemoryReservation {
    budget: Arc<FairSemaphore>,
    /// Each permit, with the bytes that it stands for.
    taken: Vec<(usize, FairPermit)>,
    /// Sum of the reserved bytes.
    bytes: usize,
}

impl MemoryReservation {
    /// Returns a reservation that holds no memory yet.
    pub fn new(resources: &BodyResources) -> Self {
        Self { budget: Arc::clone(&resources.memory), taken: Vec::new(), bytes: 0 }
    }

    /// Extends the reservation to at least `bytes`. Short bodies reserve nothing.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the memory does not become free in time, [`Code::TooLarge`] when
    /// `bytes` exceeds the quota of a client.
    pub async fn hold(&mut self, bytes: usize) -> Result<(), HttpProblem> {
        if bytes <= self.bytes.max(SHORT_BYTES) {
            return Ok(());
        }
        let units = (bytes - self.bytes).div_ceil(UNIT_BYTES);
        if self.bytes / UNIT_BYTES + units > self.budget.each() {
            let why = format!(
                "the request needs more memory than the {EACH_BYTES} bytes that one client may use"
            );
            return Err(HttpProblem::new(Code::TooLarge, why));
        }
        // Fits into `u32`: the quota of a client is 2^17 units.
        let taken = self.budget.take(units as u32).await?;
        self.taken.push((units * UNIT_BYTES, taken));
        self.bytes += units * UNIT_BYTES;
        Ok(())
    }

    /// Like [`hold`](Self::hold), for a body of `bytes` that may grow: reserves in steps of 1 MiB.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub async fn grow(&mut self, bytes: usize) -> Result<(), HttpProblem> {
        match bytes <= self.bytes.max(SHORT_BYTES) {
            true => Ok(()),
            false => self.hold(bytes.next_multiple_of(STEP_BYTES)).await,
        }
    }

    /// Like [`grow`](Self::grow), for a blocking thread.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub fn grow_in_thread(&mut self, bytes: usize) -> Result<(), HttpProblem> {
        match bytes <= self.bytes.max(SHORT_BYTES) {
            true => Ok(()),
            false => Handle::current().block_on(self.grow(bytes)),
        }
    }

    /// Releases the memory above `bytes`, in whole units.
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

/// Limit of the memory for making one response: the data that is read, and the text made of it.
const MAKING_BYTES: usize = 32 << 20;

/// Middleware that counts the memory of a response that is made as a whole. It reserves memory
/// while the handler makes the response. A response longer than [`SHORT_BYTES`] keeps its part
/// until the client has received it. A response of unknown length comes in pieces, which are
/// counted where they are made.
pub(crate) async fn hold_answer(
    Extension(resources): Extension<Arc<BodyResources>>,
    request: Request,
    next: Next,
) -> Response {
    let mut memory = MemoryReservation::new(&resources);
    if let Err(problem) = memory.hold(MAKING_BYTES).await {
        return problem.into_response();
    }
    let (head, body) = next.run(request).await.into_parts();
    let Some(bytes) = body.size_hint().exact() else { return Response::from_parts(head, body) };
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    memory.shrink(if bytes <= SHORT_BYTES { 0 } else { bytes });
    Response::from_parts(head, kept(body, memory))
}

/// Returns a body that holds its memory until it is dropped.
pub(super) fn kept<B>(body: B, memory: MemoryReservation) -> Body
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
pub struct WholeBody {
    bytes: Bytes,
    memory: MemoryReservation,
}

impl WholeBody {
    pub(super) fn new(bytes: Bytes, memory: MemoryReservation) -> Self {
        Self { bytes, memory }
    }

    /// Drops the bytes, and returns the reservation.
    pub fn into_memory(self) -> MemoryReservation {
        self.memory
    }
}

impl Deref for WholeBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{body::client_key::ClientKey, clock::Clock};

    #[tokio::test(start_paused = true)]
    async fn memory_reservations_stay_within_the_limits() {
        let resources = BodyResources::new(Duration::from_secs(60), Clock::default());
        let hold = |name: &'static str, bytes| {
            let mut memory = MemoryReservation::new(&resources);
            ClientKey::new(name).scope(async move { memory.grow(bytes).await.map(|()| memory) })
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
        ClientKey::new("one").scope(one.grow(1 << 20)).await.unwrap();
        ClientKey::new("one").scope(one.grow((1 << 20) + 1)).await.unwrap();
        one.shrink(1 << 20);
        assert_eq!(one.bytes, 1 << 20);
    }
}
