//! A content, such as a file of a snapshot, in units. A unit is fetched, decoded and cached as a
//! whole.

use std::{fmt::Debug, ops::Range, sync::Arc};

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::{
    FetchRange, JobOptions, LinkEstimate, NeededRange, RangePlanner, ReadError, plan::length,
};

/// Limit for the units in flight of one content, in KiB. Together with the cache, it bounds the
/// memory of an open content.
const ROOM_KIB: u32 = 96 << 10;

/// The units of a content, and how to fetch them.
#[derive(Debug)]
pub(crate) struct Content {
    fetch: Arc<dyn FetchRange>,
    link: Arc<LinkEstimate>,
    /// `None` if the responses are the bytes of the units.
    decoder: Option<Box<dyn UnitDecoder>>,
    pub(super) units: Vec<ContentUnit>,
    /// The parts in the order of the content.
    parts: Vec<ContentPart>,
    /// One permit is one KiB of [`ROOM_KIB`].
    room: Semaphore,
}

/// The bytes that one request fetches.
#[derive(Debug)]
pub(crate) struct ContentUnit {
    pub(crate) request: NeededRange,
    /// Length of the decoded unit.
    pub(crate) bytes: u64,
}

/// A part of a content, which is in one unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentPart {
    /// Offset in the content.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// Number of the unit.
    pub(crate) unit: usize,
    /// Offset in the decoded unit.
    pub(crate) offset: u64,
}

/// Decodes and checks the responses to the requests for units.
pub(crate) trait UnitDecoder: Debug + Send + Sync + 'static {
    /// Returns the decoded unit of this number. Blocks while it computes.
    ///
    /// # Errors
    /// [`ReadError::Content`] if the response is damaged.
    fn decode(&self, unit: usize, response: Bytes) -> Result<Bytes, ReadError>;
}

impl ContentPart {
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes
    }

    /// Returns the bytes of `range` that are in this part, as a range of the decoded unit.
    pub(super) fn overlap(&self, range: &Range<u64>) -> Range<usize> {
        let place =
            |at: u64| (at.clamp(self.start, self.end()) - self.start + self.offset) as usize;
        place(range.start)..place(range.end)
    }
}

impl ContentUnit {
    /// Returns the number of bytes that the unit takes in memory while it is decoded.
    pub(super) fn memory(&self) -> u64 {
        self.bytes.max(length(&self.request.range))
    }
}

impl Content {
    /// Creates a content of units and parts.
    pub(crate) fn new(
        fetch: Arc<dyn FetchRange>,
        link: Arc<LinkEstimate>,
        decoder: Option<Box<dyn UnitDecoder>>,
        units: Vec<ContentUnit>,
        parts: Vec<ContentPart>,
    ) -> Self {
        Self { fetch, link, decoder, units, parts, room: Semaphore::new(ROOM_KIB as usize) }
    }

    /// Returns the length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.last().map_or(0, ContentPart::end)
    }

    /// Returns the parts that overlap a range.
    pub(super) fn parts_of(&self, range: &Range<u64>) -> &[ContentPart] {
        let from = self.parts.partition_point(|part| part.end() <= range.start);
        let to = self.parts.partition_point(|part| part.start < range.end);
        self.parts.get(from..to).unwrap_or_default()
    }

    /// Fetches and decodes units. Returns the results in the order of `numbers`.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        numbers: &[usize],
        options: JobOptions,
    ) -> Vec<Result<Bytes, ReadError>> {
        let mut fetched = vec![Err(ReadError::Stopped); numbers.len()];
        let units: Vec<_> = numbers.iter().map(|number| &self.units[*number]).collect();
        let memory: u64 = units.iter().map(|unit| unit.memory()).sum();
        let permits = u32::try_from(memory >> 10).unwrap_or(ROOM_KIB).clamp(1, ROOM_KIB);
        let Ok(_permit) = self.room.acquire_many(permits).await else { return fetched };
        // The permits already limit the bytes.
        let options = JobOptions { budget_bytes: u64::MAX, ..options };
        let planner = RangePlanner::new(Arc::clone(&self.fetch), Arc::clone(&self.link), options);
        let mut job = planner.start(units.iter().map(|unit| unit.request.clone()).collect());
        while let Some(piece) = job.next().await {
            let number = numbers[piece.position];
            let mut decoded = self.decode(number, piece.bytes).await;
            if matches!(decoded, Err(ReadError::Content(_))) {
                // Retry once: a bit may have flipped in transit.
                let NeededRange { key, range } = &units[piece.position].request;
                let again = self.fetch.fetch(key, range.clone()).await;
                decoded = self.decode(number, again.map_err(ReadError::from)).await;
            }
            fetched[piece.position] = decoded;
        }
        fetched
    }

    /// Decodes a response, on a thread that may block if that takes long.
    async fn decode(
        self: &Arc<Self>,
        number: usize,
        response: Result<Bytes, ReadError>,
    ) -> Result<Bytes, ReadError> {
        let (content, response) = (Arc::clone(self), response?);
        let decode = move || match &content.decoder {
            Some(decoder) => decoder.decode(number, response).map(own),
            None => Ok(own(response)),
        };
        match &self.decoder {
            Some(_) => tokio::task::spawn_blocking(decode).await.unwrap_or(Err(ReadError::Stopped)),
            None => decode(),
        }
    }
}

/// Copies a slice of a longer response, which would stay in memory as long as the slice.
fn own(bytes: Bytes) -> Bytes {
    if bytes.is_unique() { bytes } else { Bytes::copy_from_slice(&bytes) }
}
