//! Requests that are made until they succeed or it makes no sense to go on.
//!
//! A request waits until fewer are under way than the service seems to bear,
//! and until the byte limits allow it. One that fails for a while is made
//! again after a pause that doubles, with a random part of it left out so that
//! many clients do not come back together, or after the pause that the service
//! asked for. Whoever wants nothing more does not wait to the end of a pause.
//! Whether a write whose reply was lost has happened is not known: objects are
//! named by their content, so writing them again does no harm, and whoever swaps
//! a ref has to look (see `refs`).

mod listing;
mod parts;
mod resumed;

use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Mutex, Semaphore},
    time::sleep,
};

use super::{
    Conditions, Object, Progress, Service, ServiceError, Stop, Version, What, When, check_hash,
    gauge::{Gauge, Turn},
    shielded,
    throttle::Pace,
    traffic::Traffic,
    transport::asking_first,
    unread,
    upload::{Held, read_part},
};

/// Largest file that goes up in one request where a service takes parts, too:
/// a push of a few MiB is then one request, not five.
pub const WHOLE_BYTES: u64 = 48 << 20;

/// Length of a part of a larger one.
pub const PART_BYTES: u64 = 16 << 20;

/// Bytes of files that are held while they go up, in pages.
const HELD_PAGES: u64 = (96 << 20) / PAGE_BYTES;

/// Unit in which those are counted.
const PAGE_BYTES: u64 = 64 << 10;

/// Uploads in parts under way at once. Each holds a part while it waits for
/// room for the next, so together they must leave room for one more.
const UPLOADS: usize = 2;

/// How long clearing up may take once it was asked to stop; what then stays of
/// an upload is for the rules of the bucket to remove.
const CLEARING: Duration = Duration::from_secs(5);

/// How long one attempt may take at a store on this machine.
const LOCAL_PATIENCE: Duration = Duration::from_secs(24 * 3600);

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
    /// How long a service is asked again that says when to come again, however
    /// often it says so.
    pub busy: Duration,
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
            busy: Duration::from_secs(300),
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
    pace: Arc<Pace>,
    stop: Stop,
    traffic: Arc<Traffic>,
    /// For messages.
    location: Arc<str>,
    held: Arc<Semaphore>,
    uploads: Arc<Semaphore>,
}

impl Client {
    /// Asks `service`, counting retries in `traffic`.
    pub fn new(service: Arc<dyn Service>, policy: Policy, traffic: Arc<Traffic>) -> Self {
        let gauge = Arc::new(Gauge::new(policy.requests.min(service.at_once())));
        let pace = Arc::new(Pace::new(policy.limits));
        // All that are under way share the limit, and wait for each other.
        let shared = pace.rate().map_or(u64::MAX, |rate| rate / policy.requests.max(1) as u64);
        let policy = Policy { least_rate: policy.least_rate.min(shared), ..policy };
        Self {
            service,
            policy: Arc::new(policy),
            gauge,
            pace,
            stop: Stop::default(),
            traffic,
            location: "".into(),
            held: Arc::new(Semaphore::new(HELD_PAGES as usize)),
            uploads: Arc::new(Semaphore::new(UPLOADS)),
        }
    }

    /// The same, which names `location` in its errors.
    #[must_use]
    pub fn at(self, location: &str) -> Self {
        Self { location: location.into(), ..self }
    }

    /// The same, which gives up when `stop` is asked for, whatever it waits for.
    #[must_use]
    pub fn until(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// What was counted so far.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Which conditions the service keeps to.
    pub fn conditions(&self) -> Conditions {
        self.service.conditions()
    }

    /// Which conditions can go along with a write, whether or not the service keeps to them.
    pub fn takes_conditions(&self) -> Conditions {
        self.service.takes_conditions()
    }

    /// Whether it may claim to keep to conditions and not do so.
    pub fn must_prove_conditions(&self) -> bool {
        self.service.must_prove_conditions()
    }

    /// Whether the service keeps refs apart of which one would be a folder of the other.
    pub fn keeps_names_apart(&self) -> bool {
        self.service.keeps_names_apart()
    }

    /// Whether no object can be called like the folder of another one.
    pub fn has_folders(&self) -> bool {
        self.service.has_folders()
    }

    /// Whether a store must be made before anything else is written to it.
    pub fn is_made_first(&self) -> bool {
        self.service.is_made_first()
    }

    /// Reads a range of an object.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn read(&self, key: &str, range: Range<u64>) -> Result<Object, ServiceError> {
        let bytes = range.end.saturating_sub(range.start);
        let object =
            self.attempts("read", key, bytes, || self.service.read(key, range.clone())).await?;
        self.pace_down(object.bytes.len() as u64).await;
        Ok(object)
    }

    /// Reads all of an object, which may have `most` bytes.
    ///
    /// # Errors
    /// [`What::TooLong`], or another [`ServiceError`] of the last attempt.
    pub async fn read_whole(&self, key: &str, most: u64) -> Result<Object, ServiceError> {
        let read = || self.service.read_whole(key, most);
        let object = self.attempts("read", key, most, read).await?;
        self.pace_down(object.bytes.len() as u64).await;
        Ok(object)
    }

    /// Reads all of an object that need not be there, and may have `most` bytes.
    ///
    /// # Errors
    /// As [`Client::read_whole`].
    pub async fn find(&self, key: &str, most: u64) -> Result<Option<Object>, ServiceError> {
        match self.read_whole(key, most).await {
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
        self.pace_up(length).await;
        let write = || self.service.write(key, bytes.clone(), when.clone());
        self.attempts("write", key, length, write).await
    }

    /// Writes an object. Each attempt without a definite answer is counted in `open`: the
    /// service may carry it out later.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn write_counted(
        &self,
        key: &str,
        (bytes, when): (Bytes, When),
        open: &AtomicUsize,
    ) -> Result<Option<Version>, ServiceError> {
        let length = bytes.len() as u64;
        self.pace_up(length).await;
        let write = || async {
            // An attempt that is given up stays counted.
            open.fetch_add(1, Ordering::SeqCst);
            let written = self.service.write(key, bytes.clone(), when.clone()).await;
            if written.as_ref().err().is_none_or(|error| error.what.is_settled()) {
                open.fetch_sub(1, Ordering::SeqCst);
            }
            written
        };
        self.attempts("write", key, length, write).await
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

    /// Removes what must not stay behind, even when it was asked to stop: then
    /// it is tried once, and not for long.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn clear_away(&self, key: &str) -> Result<(), ServiceError> {
        self.clear(("remove", key), || self.service.remove(key)).await
    }

    async fn clear<F>(
        &self,
        (operation, key): (&'static str, &str),
        mut attempt: impl FnMut() -> F,
    ) -> Result<(), ServiceError>
    where
        F: Future<Output = Result<(), ServiceError>>,
    {
        match self.attempts(operation, key, 0, &mut attempt).await {
            Err(error) if error.what == What::Stopped => {
                let cleared = tokio::time::timeout(CLEARING, attempt()).await;
                cleared.unwrap_or(Err(error)).map_err(|error| self.placed(error))
            }
            done => done,
        }
    }

    /// Waits for so long.
    ///
    /// # Errors
    /// [`What::Stopped`].
    pub async fn pause(&self, pause: Duration) -> Result<(), ServiceError> {
        self.stop.or(sleep(pause)).await.ok_or_else(|| self.stopped("wait", ""))
    }

    /// Does `work` to its end, and only then notices that it was asked to stop.
    pub async fn unhindered<T>(&self, work: impl Future<Output = T>) -> T {
        shielded(work).await
    }

    /// Removes objects, as far as they are there.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt; some may then be removed.
    pub async fn remove_many(&self, keys: &[String]) -> Result<(), ServiceError> {
        let first = keys.first().map_or("", String::as_str);
        self.attempts("remove", first, 0, || self.service.remove_many(keys)).await
    }

    /// Objects that [`Client::remove_many`] removes in one request.
    pub fn removed_at_once(&self) -> usize {
        self.service.removed_at_once()
    }

    /// Whether a file of that length may go on where it broke off.
    pub fn may_resume(&self, key: &str, length: u64) -> bool {
        self.service.resuming(key, length).is_some()
    }

    /// Whether a file of that length goes up in parts.
    pub fn takes_parts(&self, key: &str, length: u64) -> bool {
        length > WHOLE_BYTES && self.service.upload(key).is_some()
    }

    /// Writes a file as an object, whatever is there: one of more than
    /// [`WHOLE_BYTES`] in parts, or as a stream where the service knows none. Where
    /// what came of a file stays, it goes on there when it broke off. Never is more
    /// than a small number of parts held, whatever goes up at once. What a failed
    /// upload in parts left is removed.
    ///
    /// The bytes of a pack are hashed as they are read to be sent, or by a snap server.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt; [`What::Damaged`] when a pack does not hash
    /// to its name, [`What::Stopped`] when `progress` was asked to.
    pub async fn write_file(
        &self,
        key: &str,
        (path, length): (&Path, u64),
        progress: &Progress,
    ) -> Result<(), ServiceError> {
        if let Some(resume) = self.service.resuming(key, length)
            && self.write_resumed((resume, key), (path, length), progress).await?
        {
            return Ok(());
        }
        if length <= WHOLE_BYTES {
            let bytes = self.hold(key, path, 0..length).await?;
            // These very bytes go.
            check_hash(key, blake3::hash(&bytes)).map_err(|error| self.placed(error))?;
            self.check_going(key, progress)?;
            self.write(key, bytes, When::Always).await?;
            progress.advance(length);
            return Ok(());
        }
        let _turn = self.uploads.acquire().await.expect("never closed");
        self.check_going(key, progress)?;
        let Some(upload) = self.service.upload(key) else {
            self.pace_up(length).await;
            let write = || self.service.write_file(key, path, length);
            self.attempts("write", key, length, write).await?;
            progress.advance(length);
            return Ok(());
        };
        let upload = Mutex::new(upload);
        let parts = self.write_parts((key, &upload), (path, length), progress);
        let result = self.stop.or(parts).await.unwrap_or_else(|| Err(self.stopped("write", key)));
        if result.is_err() {
            let abort = || async { upload.lock().await.abort().await };
            let _ = self.clear(("write", key), abort).await;
        }
        result
    }

    /// Reads a part of a file once there is room for it.
    async fn hold(&self, key: &str, path: &Path, range: Range<u64>) -> Result<Bytes, ServiceError> {
        let pages = (range.end - range.start).div_ceil(PAGE_BYTES) as u32;
        let room = Arc::clone(&self.held).acquire_many_owned(pages).await.expect("never closed");
        let read = read_part(path, range).await;
        let bytes = read.map_err(|error| self.placed(unread(key, &error)))?;
        Ok(Bytes::from_owner(Held(bytes, room)))
    }

    fn check_going(&self, key: &str, progress: &Progress) -> Result<(), ServiceError> {
        match progress.is_stopped() {
            true => Err(self.stopped("write", key)),
            false => Ok(()),
        }
    }

    /// Waits until so many bytes may go, where the service does not see to it.
    async fn pace_up(&self, bytes: u64) {
        if !self.service.keeps_pace() {
            // Whether it was given up is seen right after.
            let _ = self.stop.or(self.pace.up.take(bytes)).await;
        }
    }

    /// As [`Self::pace_up`], for what has come.
    async fn pace_down(&self, bytes: u64) {
        if !self.service.keeps_pace() {
            let _ = self.stop.or(self.pace.down.take(bytes)).await;
        }
    }

    fn stopped(&self, operation: &'static str, key: &str) -> ServiceError {
        self.placed(ServiceError::new(operation, key, What::Stopped, String::new()))
    }

    fn placed(&self, error: ServiceError) -> ServiceError {
        ServiceError { location: self.location.to_string(), ..error }
    }

    async fn attempts<T, F>(
        &self,
        operation: &'static str,
        key: &str,
        bytes: u64,
        attempt: impl FnMut() -> F,
    ) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        self.persist(self.policy.attempts, (operation, key), bytes, attempt).await
    }

    async fn persist<T, F>(
        &self,
        tries: u32,
        (operation, key): (&'static str, &str),
        bytes: u64,
        attempt: impl FnMut() -> F,
    ) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        let work = self.insist(tries, (operation, key), bytes, attempt);
        self.stop.or(work).await.unwrap_or_else(|| Err(self.stopped(operation, key)))
    }

    async fn insist<T, F>(
        &self,
        tries: u32,
        (operation, key): (&'static str, &str),
        bytes: u64,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        // A store on this machine answers once it has done its work, which may be to check
        // all that was sent.
        let is_here = self.service.local_store().is_some();
        let patience = match is_here {
            true => LOCAL_PATIENCE,
            false => self.policy.timeout + transfer_time(bytes, self.policy.least_rate),
        };
        let mut pause = self.policy.pause;
        let left = |pause: Duration, tries: u32| {
            let pauses = (0..tries)
                .map(|n| (pause * 2_u32.saturating_pow(n)).min(self.policy.longest_pause));
            patience * (tries + 1) + pauses.sum::<Duration>()
        };
        let all = left(pause, tries.saturating_sub(1));
        let waits = self.traffic.waits();
        let wait = (!is_here).then(|| waits.begin((operation, key), &self.location, all));
        let mut number = 0;
        let mut busy = Busy::new(self.policy.busy);
        loop {
            let turn = self.gauge.turn().await;
            let attempt = asking_first(busy.is_refused(), attempt());
            let attempt = Pace::during(Some(Arc::clone(&self.pace)), attempt);
            let outcome = tokio::time::timeout(patience, attempt).await;
            let result = outcome.unwrap_or_else(|_| Err(silence(operation, key, patience)));
            let error = match result {
                Ok(done) => {
                    turn.went_well();
                    return Ok(done);
                }
                Err(error) => error,
            };
            tell(turn, error.what);
            // Whoever is told when to come again does so, for as long as that makes sense.
            // A caller that allows one try decides for itself whether to come again.
            let is_busy = tries > 1 && busy.asks_again(&error);
            number += u32::from(!is_busy);
            if !error.what.is_temporary() || number >= tries {
                return Err(self.placed(error));
            }
            self.traffic.retry();
            let rest = left(pause, tries - number - 1);
            if let Some(wait) = &wait {
                wait.failed(if is_busy { busy.left() + patience } else { rest }, is_busy);
            }
            sleep(error.retry_after.unwrap_or_else(|| jittered(pause))).await;
            if !is_busy {
                pause = (pause * 2).min(self.policy.longest_pause);
            }
        }
    }
}

/// How long a service is asked again that says when.
pub(super) struct Busy {
    patience: Duration,
    since: Option<tokio::time::Instant>,
}

impl Busy {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, since: None }
    }

    /// Whether a request that failed so is made again for that alone.
    pub(super) fn asks_again(&mut self, error: &ServiceError) -> bool {
        let Some(wait) = error.retry_after.filter(|_| error.what.is_temporary()) else {
            return false;
        };
        self.since.get_or_insert_with(tokio::time::Instant::now);
        wait <= self.left()
    }

    /// For how long yet.
    pub(super) fn left(&self) -> Duration {
        let waited = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        self.patience.saturating_sub(waited)
    }

    /// Whether it has said so.
    pub(super) fn is_refused(&self) -> bool {
        self.since.is_some()
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
    let message = format!("no answer in {} s", patience.as_secs());
    ServiceError::new(operation, key, What::Temporary, message)
}

/// Half of `pause`, and a random part of the other half.
pub(crate) fn jittered(pause: Duration) -> Duration {
    // Keys of a new state differ each time.
    let random = RandomState::new().hash_one(std::process::id()) % 1024;
    pause / 2 + pause.mul_f64(random as f64 / 2048.0)
}
