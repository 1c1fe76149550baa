//! Rate limits for each token; clients without a token are limited by their network address. The
//! server refuses requests above the limit, and delays upload bytes above it.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use snap_remote::token_bucket::TokenBucket;

use super::{login_backoff::network, principal::Principal};
use crate::{clock::Clock, problem::HttpProblem, settings::ServerLimits};

/// Maximum number of tracked clients.
const KNOWN: usize = 4096;

/// Number of pieces per second in which delayed bytes are passed on.
const PIECES_PER_SEC: u64 = 4;

/// The rate limits, and what each client has used of them.
#[derive(Debug)]
pub struct RateLimits {
    requests_per_sec: u32,
    uploads: usize,
    bytes_per_sec: u64,
    known: Mutex<HashMap<ClientId, Arc<ClientUsage>>>,
    clock: Clock,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ClientId {
    Token(String),
    Address(IpAddr),
}

/// Requests and uploads that count against the limits of one client.
#[derive(Debug)]
struct ClientUsage {
    requests: Mutex<TokenBucket>,
    uploads: AtomicUsize,
    upload_bytes: Mutex<TokenBucket>,
}

/// An upload in progress, counted until it is dropped.
#[derive(Debug)]
pub(super) struct RateLimitedUpload {
    state: Arc<ClientUsage>,
    bytes_per_sec: u64,
    clock: Clock,
}

impl Drop for RateLimitedUpload {
    fn drop(&mut self) {
        self.state.uploads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RateLimits {
    /// Creates the rate limits in `limits`; 0 means no limit.
    pub(super) fn new(limits: &ServerLimits, clock: Clock) -> Self {
        Self {
            requests_per_sec: limits.requests_per_sec,
            uploads: limits.uploads,
            bytes_per_sec: limits.upload_bytes_per_sec,
            known: Mutex::default(),
            clock,
        }
    }

    fn state(&self, who: &Principal, address: IpAddr) -> Arc<ClientUsage> {
        let key = match who.name() {
            Some(name) => ClientId::Token(name.to_owned()),
            None => ClientId::Address(network(address)),
        };
        let mut known = self.known.lock();
        if known.len() >= KNOWN && !known.contains_key(&key) {
            // Evict the client that has been idle for the longest. A client with an upload in
            // progress is kept: its state is in use.
            let idle = known.iter().filter(|(_, state)| Arc::strong_count(state) == 1);
            let last = |state: &ClientUsage| state.requests.lock().full_at();
            let oldest = idle.min_by_key(|(_, state)| last(state)).map(|(key, _)| key.clone());
            oldest.map(|key| known.remove(&key));
        }
        let bucket = |per_sec| Mutex::new(TokenBucket::new(per_sec, self.clock.now()));
        let new = || {
            Arc::new(ClientUsage {
                requests: bucket(self.requests_per_sec.into()),
                uploads: AtomicUsize::new(0),
                upload_bytes: bucket(self.bytes_per_sec),
            })
        };
        Arc::clone(known.entry(key).or_insert_with(new))
    }

    /// Counts a request.
    ///
    /// # Errors
    /// [`Code::SlowDown`](crate::problem::Code::SlowDown) when the client exceeds its rate.
    pub(super) fn request(&self, who: &Principal, address: IpAddr) -> Result<(), HttpProblem> {
        if self.requests_per_sec == 0 {
            return Ok(());
        }
        let rate = self.requests_per_sec;
        let state = self.state(who, address);
        match state.requests.lock().try_take(self.clock.now()) {
            true => Ok(()),
            false => {
                Err(HttpProblem::slow_down(1, format!("the limit is {rate} requests per second")))
            }
        }
    }

    /// Counts an upload that begins; `None` if uploads are not limited.
    ///
    /// # Errors
    /// [`Code::SlowDown`](crate::problem::Code::SlowDown) when the client has too many
    /// uploads in progress.
    pub(super) fn upload(
        &self,
        who: &Principal,
        address: IpAddr,
    ) -> Result<Option<RateLimitedUpload>, HttpProblem> {
        if self.uploads == 0 && self.bytes_per_sec == 0 {
            return Ok(None);
        }
        let state = self.state(who, address);
        let others = state.uploads.fetch_add(1, Ordering::Relaxed);
        let (bytes_per_sec, clock) = (self.bytes_per_sec, self.clock.clone());
        let upload = RateLimitedUpload { state, bytes_per_sec, clock };
        if self.uploads > 0 && others >= self.uploads {
            return Err(HttpProblem::slow_down(
                1,
                format!("the limit is {} concurrent uploads", self.uploads),
            ));
        }
        Ok(Some(upload))
    }
}

impl RateLimitedUpload {
    /// Delays a body so that it does not exceed the rate limit.
    pub(super) fn paced(&self, body: Body) -> Body {
        if self.bytes_per_sec == 0 {
            return body;
        }
        let (state, rate) = (Arc::clone(&self.state), self.bytes_per_sec);
        let most = usize::try_from(rate / PIECES_PER_SEC).unwrap_or(usize::MAX).max(1);
        let begin = (body.into_data_stream(), Bytes::new(), (state, self.clock.clone()));
        Body::from_stream(stream::unfold(begin, move |(mut body, mut rest, usage)| async move {
            while rest.is_empty() {
                match body.next().await? {
                    Ok(bytes) => rest = bytes,
                    Err(error) => return Some((Err(error), (body, Bytes::new(), usage))),
                }
            }
            let piece = rest.split_to(rest.len().min(most));
            let (state, clock) = &usage;
            let start = state.upload_bytes.lock().reserve(piece.len() as u64, clock.now());
            clock.sleep_until(start).await;
            Some((Ok(piece), (body, rest, usage)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_permits_are_released_and_clients_are_bounded() {
        let limits = ServerLimits { uploads: 1, requests_per_sec: 1, ..ServerLimits::default() };
        let pace = RateLimits::new(&limits, Clock::manual());
        let address = "192.0.2.1".parse().unwrap();
        let who = Principal::unrestricted();
        let one = pace.upload(&who, address).unwrap();
        assert!(pace.upload(&who, address).is_err());
        assert!(pace.upload(&who, "192.0.2.2".parse().unwrap()).is_ok());
        drop(one);
        assert!(pace.upload(&who, address).is_ok());
        for number in 0..KNOWN as u32 + 10 {
            pace.request(&who, IpAddr::V4(number.into())).unwrap();
        }
        assert_eq!(pace.known.lock().len(), KNOWN);
    }
}
