//! What a command has under way with services elsewhere, counted for all of
//! them together.

use std::{
    future::Future,
    ops::Range,
    path::Path,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use indicatif::ProgressBar;
use snap_remote::service::{
    Conditions, Listed, Object, Resume, Service, ServiceError, Standings, Upload, Version, When,
    traffic::Traffic,
};

type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, ServiceError>> + Send + 'a>>;

/// Counters of one command.
#[derive(Debug)]
pub(crate) struct Network {
    traffic: Arc<Traffic>,
    in_flight: AtomicU64,
    stop: Arc<AtomicBool>,
    /// What is drawn while requests are under way.
    bar: Mutex<Option<ProgressBar>>,
    /// Whether somebody says what is waited for.
    is_told: AtomicBool,
}

impl Network {
    /// Nothing was asked yet; `stop` is set by Ctrl-C.
    pub(crate) fn new(stop: Arc<AtomicBool>) -> Self {
        let (traffic, in_flight) = (Arc::default(), AtomicU64::new(0));
        Self { traffic, in_flight, stop, bar: Mutex::default(), is_told: AtomicBool::new(false) }
    }

    /// Whether somebody says already what is waited for; whoever asks does so from now
    /// on.
    pub(super) fn is_told(&self) -> bool {
        self.is_told.swap(true, Ordering::Relaxed)
    }

    /// This is drawn from now on.
    pub(crate) fn draws(&self, bar: &ProgressBar) {
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    }

    /// Prints something without tearing what is drawn.
    pub(super) fn aside(&self, print: impl FnOnce()) {
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match bar.filter(|bar| !bar.is_finished() && !bar.is_hidden()) {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// What was counted so far.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Requests that are under way.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether the user asked to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A service whose requests are counted while they are under way.
#[derive(Debug)]
pub(super) struct Watched {
    inner: Arc<dyn Service>,
    network: Arc<Network>,
}

/// One request that is under way.
struct Flight<'a>(&'a AtomicU64);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watched {
    pub(super) fn new(inner: Arc<dyn Service>, network: Arc<Network>) -> Self {
        Self { inner, network }
    }

    fn watch<'a, T: Send + 'a>(&'a self, work: Reply<'a, T>) -> Reply<'a, T> {
        Box::pin(async move {
            self.network.in_flight.fetch_add(1, Ordering::Relaxed);
            let _flight = Flight(&self.network.in_flight);
            work.await
        })
    }
}

impl Service for Watched {
    fn read<'a>(&'a self, key: &'a str, range: Range<u64>) -> Reply<'a, Object> {
        self.watch(self.inner.read(key, range))
    }

    fn read_whole<'a>(&'a self, key: &'a str, most: u64) -> Reply<'a, Object> {
        self.watch(self.inner.read_whole(key, most))
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes, when: When) -> Reply<'a, Option<Version>> {
        self.watch(self.inner.write(key, bytes, when))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Reply<'a, Vec<Listed>> {
        self.watch(self.inner.list(prefix))
    }

    fn length<'a>(&'a self, key: &'a str) -> Reply<'a, Option<u64>> {
        self.watch(self.inner.length(key))
    }

    fn remove<'a>(&'a self, key: &'a str) -> Reply<'a, ()> {
        self.watch(self.inner.remove(key))
    }

    fn conditions(&self) -> Conditions {
        self.inner.conditions()
    }

    fn takes_conditions(&self) -> Conditions {
        self.inner.takes_conditions()
    }

    fn must_prove_conditions(&self) -> bool {
        self.inner.must_prove_conditions()
    }

    fn keeps_index(&self) -> bool {
        self.inner.keeps_index()
    }

    fn standings(&self) -> Reply<'_, Option<Standings>> {
        self.watch(self.inner.standings())
    }

    fn keeps_names_apart(&self) -> bool {
        self.inner.keeps_names_apart()
    }

    fn has_folders(&self) -> bool {
        self.inner.has_folders()
    }

    fn local_store(&self) -> Option<&Path> {
        self.inner.local_store()
    }

    fn begin_push(&self) -> Reply<'_, ()> {
        self.watch(self.inner.begin_push())
    }

    fn is_made_first(&self) -> bool {
        self.inner.is_made_first()
    }

    fn keeps_pace(&self) -> bool {
        self.inner.keeps_pace()
    }

    fn at_once(&self) -> usize {
        self.inner.at_once()
    }

    fn removed_at_once(&self) -> usize {
        self.inner.removed_at_once()
    }

    fn write_file<'a>(&'a self, key: &'a str, path: &'a Path, length: u64) -> Reply<'a, ()> {
        self.watch(self.inner.write_file(key, path, length))
    }

    fn upload(&self, key: &str) -> Option<Box<dyn Upload>> {
        self.inner.upload(key)
    }

    fn resuming(&self, key: &str, length: u64) -> Option<&dyn Resume> {
        self.inner.resuming(key, length)
    }

    fn peek<'a>(&'a self, prefix: &'a str, most: usize) -> Reply<'a, Vec<String>> {
        self.watch(self.inner.peek(prefix, most))
    }

    fn stores(&self, levels: usize) -> Reply<'_, Vec<String>> {
        self.watch(self.inner.stores(levels))
    }

    fn remove_many<'a>(&'a self, keys: &'a [String]) -> Reply<'a, ()> {
        self.watch(self.inner.remove_many(keys))
    }
}
