//! The requests of a command that are in progress, counted for all remotes together.

use std::{
    future::Future,
    ops::Range,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use snap_remote::service::{
    ConditionalWrites, ListedObject, ListedRefs, MultipartUpload, ObjectVersion, PartialClone,
    ResumableUpload, Service, ServiceError, StoredObject, UploadNote, WriteCondition,
    traffic::Traffic,
};

type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, ServiceError>> + Send + 'a>>;

/// The counters of one command.
#[derive(Debug)]
pub(crate) struct Network {
    traffic: Arc<Traffic>,
    in_flight: AtomicU64,
    stop: Arc<AtomicBool>,
    /// The progress bar shown while requests are in progress.
    bar: Mutex<Option<ProgressBar>>,
    /// True if a thread already reports what the command waits for.
    claim_wait_reporter: AtomicBool,
}

impl Network {
    /// Starts with zero requests; Ctrl-C sets `stop`.
    pub(crate) fn new(stop: Arc<AtomicBool>) -> Self {
        let (traffic, in_flight) = (Arc::default(), AtomicU64::new(0));
        Self {
            traffic,
            in_flight,
            stop,
            bar: Mutex::default(),
            claim_wait_reporter: AtomicBool::new(false),
        }
    }

    /// Returns true if a thread already reports what the command waits for. The caller becomes that
    /// thread otherwise, so later calls return true.
    pub(super) fn claim_wait_reporter(&self) -> bool {
        self.claim_wait_reporter.swap(true, Ordering::Relaxed)
    }

    /// Sets the bar that is drawn from now on.
    pub(crate) fn draws(&self, bar: &ProgressBar) {
        *self.bar.lock() = Some(bar.clone());
    }

    /// Prints something without breaking the bar.
    pub(super) fn aside(&self, print: impl FnOnce()) {
        let bar = self.bar.lock().clone();
        match bar.filter(|bar| !bar.is_finished() && !bar.is_hidden()) {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Returns the counters.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Returns the number of requests in progress.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Returns true if the user requested to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A service that counts its requests while they are in progress.
#[derive(Debug)]
pub(super) struct CountingService {
    inner: Arc<dyn Service>,
    network: Arc<Network>,
}

/// One request in progress.
struct InFlightGuard<'a>(&'a AtomicU64);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CountingService {
    pub(super) fn new(inner: Arc<dyn Service>, network: Arc<Network>) -> Self {
        Self { inner, network }
    }

    fn watch<'a, T: Send + 'a>(&'a self, work: Reply<'a, T>) -> Reply<'a, T> {
        Box::pin(async move {
            self.network.in_flight.fetch_add(1, Ordering::Relaxed);
            let _flight = InFlightGuard(&self.network.in_flight);
            work.await
        })
    }
}

impl Service for CountingService {
    fn read<'a>(&'a self, key: &'a str, range: Range<u64>) -> Reply<'a, StoredObject> {
        self.watch(self.inner.read(key, range))
    }

    fn read_whole<'a>(&'a self, key: &'a str, most: u64) -> Reply<'a, StoredObject> {
        self.watch(self.inner.read_whole(key, most))
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> Reply<'a, Option<ObjectVersion>> {
        self.watch(self.inner.write(key, bytes, when))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Reply<'a, Vec<ListedObject>> {
        self.watch(self.inner.list(prefix))
    }

    fn length<'a>(&'a self, key: &'a str) -> Reply<'a, Option<u64>> {
        self.watch(self.inner.length(key))
    }

    fn remove<'a>(&'a self, key: &'a str) -> Reply<'a, ()> {
        self.watch(self.inner.remove(key))
    }

    fn conditions(&self) -> ConditionalWrites {
        self.inner.conditions()
    }

    fn takes_conditions(&self) -> ConditionalWrites {
        self.inner.takes_conditions()
    }

    fn must_prove_conditions(&self) -> bool {
        self.inner.must_prove_conditions()
    }

    fn maintains_index(&self) -> bool {
        self.inner.maintains_index()
    }

    fn was_collected(&self) -> bool {
        self.inner.was_collected()
    }

    fn list_refs(&self) -> Reply<'_, Option<ListedRefs>> {
        self.watch(self.inner.list_refs())
    }

    fn refuses_conflicting_refs(&self) -> bool {
        self.inner.refuses_conflicting_refs()
    }

    fn has_folders(&self) -> bool {
        self.inner.has_folders()
    }

    fn local_store(&self) -> Option<&Path> {
        self.inner.local_store()
    }

    fn identity(&self) -> String {
        self.inner.identity()
    }

    fn partial_clone(&self) -> Reply<'_, Option<PartialClone>> {
        self.inner.partial_clone()
    }

    fn begin_push(&self) -> Reply<'_, ()> {
        self.watch(self.inner.begin_push())
    }

    fn must_create_store_first(&self) -> bool {
        self.inner.must_create_store_first()
    }

    fn applies_rate_limits(&self) -> bool {
        self.inner.applies_rate_limits()
    }

    fn max_concurrency(&self) -> usize {
        self.inner.max_concurrency()
    }

    fn max_removals_per_request(&self) -> usize {
        self.inner.max_removals_per_request()
    }

    fn write_file<'a>(&'a self, key: &'a str, path: &'a Path, length: u64) -> Reply<'a, ()> {
        self.watch(self.inner.write_file(key, path, length))
    }

    fn upload(&self, key: &str, note: Arc<UploadNote>) -> Option<Box<dyn MultipartUpload>> {
        self.inner.upload(key, note)
    }

    fn abort_upload<'a>(&'a self, key: &'a str, id: &'a str) -> Reply<'a, ()> {
        self.watch(self.inner.abort_upload(key, id))
    }

    fn resumable_upload(&self, key: &str, length: u64) -> Option<&dyn ResumableUpload> {
        self.inner.resumable_upload(key, length)
    }

    fn list_some<'a>(&'a self, prefix: &'a str, most: usize) -> Reply<'a, Vec<String>> {
        self.watch(self.inner.list_some(prefix, most))
    }

    fn stores(&self, levels: usize) -> Reply<'_, Vec<String>> {
        self.watch(self.inner.stores(levels))
    }

    fn remove_many<'a>(&'a self, keys: &'a [String]) -> Reply<'a, ()> {
        self.watch(self.inner.remove_many(keys))
    }
}
