//! How much at a time: for each token, or for each address where there are no
//! tokens. Requests that are too many are refused, bytes that are too many wait.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};

use super::{patience::network, who::Who};
use crate::{problem::Problem, settings::Limits};

/// Those that are known at a time.
const KNOWN: usize = 4096;

/// Bytes that wait are let through in so many pieces a second.
const PIECES_PER_SEC: u64 = 4;

/// How much each may do at a time.
#[derive(Debug)]
pub struct Pace {
    requests_per_sec: u32,
    uploads: usize,
    bytes_per_sec: u64,
    known: Mutex<HashMap<Key, Arc<State>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Token(String),
    Address(IpAddr),
}

/// What one of them has done lately.
#[derive(Debug)]
struct State {
    requests: Mutex<Bucket>,
    uploads: AtomicUsize,
    /// When the next byte may come in.
    next_byte: Mutex<Instant>,
}

/// Requests that may be made at once, which grow back.
#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// Something is being sent. Over when this is dropped.
#[derive(Debug)]
pub(super) struct Upload {
    state: Arc<State>,
    bytes_per_sec: u64,
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.state.uploads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pace {
    /// What `limits` say; nought is no limit.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            requests_per_sec: limits.requests_per_sec,
            uploads: limits.uploads,
            bytes_per_sec: limits.upload_bytes_per_sec,
            known: Mutex::default(),
        }
    }

    fn state(&self, who: &Who, address: IpAddr) -> Arc<State> {
        let key = match who.name() {
            Some(name) => Key::Token(name.to_owned()),
            None => Key::Address(network(address)),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN && !known.contains_key(&key) {
            let idle = known.iter().filter(|(_, state)| Arc::strong_count(state) == 1);
            let last = |state: &State| lock(&state.requests).at;
            let oldest = idle.min_by_key(|(_, state)| last(state)).map(|(key, _)| key.clone());
            oldest.map(|key| known.remove(&key));
        }
        let burst = f64::from(self.requests_per_sec);
        let new = || {
            let (now, uploads) = (Instant::now(), AtomicUsize::new(0));
            let requests = Mutex::new(Bucket { left: burst, at: now });
            Arc::new(State { requests, uploads, next_byte: Mutex::new(now) })
        };
        Arc::clone(known.entry(key).or_insert_with(new))
    }

    /// Notes a request.
    ///
    /// # Errors
    /// [`Code::SlowDown`](crate::problem::Code::SlowDown) when there were too many.
    pub(super) fn request(&self, who: &Who, address: IpAddr) -> Result<(), Problem> {
        if self.requests_per_sec == 0 {
            return Ok(());
        }
        let rate = f64::from(self.requests_per_sec);
        let state = self.state(who, address);
        match lock(&state.requests).take(rate, Instant::now()) {
            true => Ok(()),
            false => Err(Problem::slow_down(1, format!("at most {rate} requests a second"))),
        }
    }

    /// Begins to take something in.
    ///
    /// # Errors
    /// [`Code::SlowDown`](crate::problem::Code::SlowDown) when so much is on its way
    /// already.
    pub(super) fn upload(&self, who: &Who, address: IpAddr) -> Result<Option<Upload>, Problem> {
        if self.uploads == 0 && self.bytes_per_sec == 0 {
            return Ok(None);
        }
        let state = self.state(who, address);
        let others = state.uploads.fetch_add(1, Ordering::Relaxed);
        let upload = Upload { state, bytes_per_sec: self.bytes_per_sec };
        if self.uploads > 0 && others >= self.uploads {
            return Err(Problem::slow_down(1, format!("at most {} uploads at once", self.uploads)));
        }
        Ok(Some(upload))
    }
}

impl Upload {
    /// A body that comes no faster than it may.
    pub(super) fn paced(&self, body: Body) -> Body {
        if self.bytes_per_sec == 0 {
            return body;
        }
        let (state, rate) = (Arc::clone(&self.state), self.bytes_per_sec);
        let most = usize::try_from(rate / PIECES_PER_SEC).unwrap_or(usize::MAX).max(1);
        let begin = (body.into_data_stream(), Bytes::new(), state);
        Body::from_stream(stream::unfold(begin, move |(mut body, mut rest, state)| async move {
            while rest.is_empty() {
                match body.next().await? {
                    Ok(bytes) => rest = bytes,
                    Err(error) => return Some((Err(error), (body, Bytes::new(), state))),
                }
            }
            let piece = rest.split_to(rest.len().min(most));
            let wait = state.turn(piece.len(), rate);
            tokio::time::sleep(wait).await;
            Some((Ok(piece), (body, rest, state)))
        }))
    }
}

impl State {
    /// How long so many bytes wait, after those that came before.
    fn turn(&self, bytes: usize, rate: u64) -> Duration {
        let now = Instant::now();
        let mut next = lock(&self.next_byte);
        let begins = (*next).max(now);
        *next = begins + Duration::from_secs_f64(bytes as f64 / rate as f64);
        begins - now
    }
}

impl Bucket {
    fn take(&mut self, rate: f64, now: Instant) -> bool {
        let grown = now.saturating_duration_since(self.at).as_secs_f64() * rate;
        (self.left, self.at) = ((self.left + grown).min(rate), now);
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_grow_back() {
        let now = Instant::now();
        let mut bucket = Bucket { left: 2.0, at: now };
        assert!(bucket.take(2.0, now) && bucket.take(2.0, now) && !bucket.take(2.0, now));
        let later = now + Duration::from_millis(600);
        assert!(bucket.take(2.0, later) && !bucket.take(2.0, later));
        let much_later = now + Duration::from_secs(100);
        assert!(bucket.take(2.0, much_later) && bucket.take(2.0, much_later));
        assert!(!bucket.take(2.0, much_later), "no more than a second's worth");
    }

    #[test]
    fn uploads_end_and_those_who_are_known_are_few() {
        let limits = Limits { uploads: 1, requests_per_sec: 1, ..Limits::default() };
        let pace = Pace::new(&limits);
        let address = "192.0.2.1".parse().unwrap();
        let who = Who::anybody();
        let one = pace.upload(&who, address).unwrap();
        assert!(pace.upload(&who, address).is_err());
        assert!(pace.upload(&who, "192.0.2.2".parse().unwrap()).is_ok());
        drop(one);
        assert!(pace.upload(&who, address).is_ok());
        for number in 0..KNOWN as u32 + 10 {
            pace.request(&who, IpAddr::V4(number.into())).unwrap();
        }
        assert_eq!(pace.known.lock().unwrap().len(), KNOWN);
    }
}
