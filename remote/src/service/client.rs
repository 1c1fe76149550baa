//! Requests that are made until they succeed or it makes no sense to go on.
//!
//! A request waits until fewer are under way than the service seems to bear,
//! and until the byte limits allow it. One that fails for a while is made
//! again after a pause that doubles, with a random part of it left out so that
//! many clients do not come back together, or after the pause that the service
//! asked for. Whether a write whose reply was lost has happened is not known:
//! objects are named by their content, so writing them again does no harm, and
//! whoever swaps a ref has to look (see `refs`).

use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::time::sleep;

use super::{
    Conditions, Listed, Object, Service, ServiceError, Version, What, When,
    gauge::{Gauge, Turn},
    throttle::Throttle,
    traffic::Traffic,
};

/// How requests are made.
#[derive(Clone, Debug)]
pub struct Policy {
    /// How often a request is made, the first time included.
    pub attempts: u32,
    /// The first pause.
    pub pause: Duration,
    /// The longest one, unless the service asks for more.
    pub longest_pause: Duration,
    /// How long one attempt may take, besides the time its bytes need.
    pub timeout: Duration,
    /// The least rate that a body is expected to move at, in bytes a second.
    pub least_rate: u64,
    /// Requests under way at most: as many as a plan of ranges may want, so
    /// that 500 scattered ones take three round trips.
    pub requests: usize,
    /// Bytes a second at most, out and in.
    pub limits: (Option<u64>, Option<u64>),
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: 6,
            pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(20),
            timeout: Duration::from_secs(30),
            least_rate: 64 << 10,
            requests: 192,
            limits: (None, None),
        }
    }
}

/// A service, and how it is asked.
#[derive(Clone, Debug)]
pub struct Client {
    service: Arc<dyn Service>,
    policy: Arc<Policy>,
    gauge: Arc<Gauge>,
    upload: Arc<Throttle>,
    download: Arc<Throttle>,
    traffic: Arc<Traffic>,
}

impl Client {
    /// Asks `service`, counting retries in `traffic`.
    pub fn new(service: Arc<dyn Service>, policy: Policy, traffic: Arc<Traffic>) -> Self {
        let gauge = Arc::new(Gauge::new(policy.requests));
        let (upload, download) = policy.limits;
        let (upload, download) = (Arc::new(Throttle::new(upload)), Throttle::new(download).into());
        Self { service, policy: Arc::new(policy), gauge, upload, download, traffic }
    }

    /// What was counted so far.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Which conditions the service keeps to.
    pub fn conditions(&self) -> Conditions {
        self.service.conditions()
    }

    /// Reads an object, or a range of it.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Object, ServiceError> {
        let bytes = range.as_ref().map_or(0, |range| range.end.saturating_sub(range.start));
        self.download.take(bytes).await;
        let object =
            self.attempts("read", key, bytes, || self.service.read(key, range.clone())).await?;
        if range.is_none() {
            self.download.take(object.bytes.len() as u64).await;
        }
        Ok(object)
    }

    /// Reads an object that need not be there.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn find(&self, key: &str) -> Result<Option<Object>, ServiceError> {
        match self.read(key, None).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.what == What::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes an object. After a lost reply, [`What::Conflict`] may mean that
    /// an attempt before had gone well.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn write(
        &self,
        key: &str,
        bytes: Bytes,
        when: When,
    ) -> Result<Option<Version>, ServiceError> {
        let length = bytes.len() as u64;
        self.upload.take(length).await;
        let write = || self.service.write(key, bytes.clone(), when.clone());
        self.attempts("write", key, length, write).await
    }

    /// Lists all objects whose keys begin with `prefix`.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, ServiceError> {
        self.attempts("list", prefix, 0, || self.service.list(prefix)).await
    }

    /// Length of an object, if there is one.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn length(&self, key: &str) -> Result<Option<u64>, ServiceError> {
        self.attempts("stat", key, 0, || self.service.length(key)).await
    }

    /// Removes an object, if there is one.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn remove(&self, key: &str) -> Result<(), ServiceError> {
        self.attempts("remove", key, 0, || self.service.remove(key)).await
    }

    async fn attempts<T, F>(
        &self,
        operation: &'static str,
        key: &str,
        bytes: u64,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        let patience = self.policy.timeout + transfer_time(bytes, self.policy.least_rate);
        let mut pause = self.policy.pause;
        for number in 1.. {
            let turn = self.gauge.turn().await;
            let outcome = tokio::time::timeout(patience, attempt()).await;
            let result = outcome.unwrap_or_else(|_| Err(silence(operation, key, patience)));
            let error = match result {
                Ok(done) => {
                    turn.went_well();
                    return Ok(done);
                }
                Err(error) => error,
            };
            tell(turn, error.what);
            if !error.what.is_temporary() || number >= self.policy.attempts {
                return Err(error);
            }
            self.traffic.retry();
            let wait = error.retry_after.unwrap_or_else(|| jittered(pause));
            sleep(wait).await;
            pause = (pause * 2).min(self.policy.longest_pause);
        }
        unreachable!("the loop above ends with a return")
    }
}

fn tell(turn: Turn, what: What) {
    if what == What::Busy {
        turn.was_too_many();
    }
}

fn transfer_time(bytes: u64, rate: u64) -> Duration {
    Duration::from_secs(bytes / rate.max(1))
}

fn silence(operation: &'static str, key: &str, patience: Duration) -> ServiceError {
    ServiceError {
        operation,
        key: key.to_owned(),
        what: What::Temporary,
        message: format!("no answer in {} s", patience.as_secs()),
        retry_after: None,
    }
}

/// Half of `pause`, and a random part of the other half.
fn jittered(pause: Duration) -> Duration {
    // Keys of a new state differ each time.
    let random = RandomState::new().hash_one(std::process::id()) % 1024;
    pause / 2 + pause.mul_f64(random as f64 / 2048.0)
}
