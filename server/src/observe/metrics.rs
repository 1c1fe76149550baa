//! Metrics for Prometheus: `GET /metrics`.

use std::{
    collections::HashMap,
    fmt,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::{clock::Clock, hub::Hub, upstream::cache::CacheCounters};

/// How long measured sizes of stores are used.
const SIZES_FOR: Duration = Duration::from_secs(30);

/// How long a repository counts as damaged after damage was last found in it.
const DAMAGED_FOR: Duration = Duration::from_secs(3600);

/// Maximum number of repositories that have metrics of their own.
const REPOSITORIES: usize = 1000;

/// The metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    /// Bytes of request bodies.
    pub(super) received: Counter,
    /// Bytes of response bodies.
    pub(super) sent: Counter,
    /// Requests in progress.
    pub(super) in_flight: Gauge<i64, AtomicI64>,
    /// Requests in progress that upload packs or bundles.
    pub(super) uploads: Gauge<i64, AtomicI64>,
    refused: Counter,
    damage: Family<StoreLabels, Counter>,
    /// When damage was last found, by name of the repository.
    damaged: Mutex<HashMap<String, Instant>>,
    cache: Family<CacheLabels, Counter>,
    packs: Family<StoreLabels, Gauge<u64, AtomicU64>>,
    bytes: Family<StoreLabels, Gauge<u64, AtomicU64>>,
    measured: Mutex<MeasuredSizes>,
    clock: Clock,
}

/// The sizes of the stores, and when they were measured.
#[derive(Debug, Default)]
struct MeasuredSizes {
    at: Option<Instant>,
    sizes: Sizes,
}

type Sizes = HashMap<String, MeasuredSize>;

/// The outcome of a lookup in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The cache has the value.
    Hit,
    /// The value is not in the cache and must be read or fetched.
    Miss,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CacheLabels {
    cache: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StoreLabels {
    repository: String,
}

/// Creates a histogram with bounds from 1 ms to about a minute.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

impl Metrics {
    /// Creates metrics without values.
    pub fn new(clock: Clock) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("snap"),
            requests: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            received: Counter::default(),
            sent: Counter::default(),
            in_flight: Gauge::default(),
            uploads: Gauge::default(),
            refused: Counter::default(),
            damage: Family::default(),
            damaged: Mutex::default(),
            cache: Family::default(),
            packs: Family::default(),
            bytes: Family::default(),
            measured: Mutex::default(),
            clock,
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let all = &mut self.registry;
        all.register("requests", "Requests answered", self.requests.clone());
        let help = "Duration of requests, including the response body";
        all.register_with_unit("request", help, Unit::Seconds, self.seconds.clone());
        let help = "Bytes of request bodies received";
        all.register_with_unit("received", help, Unit::Bytes, self.received.clone());
        let help = "Bytes of response bodies sent";
        all.register_with_unit("sent", help, Unit::Bytes, self.sent.clone());
        let help = "Requests in progress";
        all.register("requests_in_flight", help, self.in_flight.clone());
        all.register(
            "uploads_in_flight",
            "Uploads of packs and bundles in progress",
            self.uploads.clone(),
        );
        let help = "Connections refused because of a limit";
        all.register("refused_connections", help, self.refused.clone());
        let help = "Reads that failed because of damage, by repository";
        all.register("damage_met", help, self.damage.clone());
        all.register("cache_lookups", "Cache lookups", self.cache.clone());
        all.register("store_packs", "Packs of a repository", self.packs.clone());
        let help = "Bytes of the packs of a repository";
        all.register_with_unit("store", help, Unit::Bytes, self.bytes.clone());
    }

    /// Counts a connection that was refused because of a limit.
    pub fn refused_connection(&self) {
        self.refused.inc();
    }

    /// Counts damage that was found in a repository.
    pub fn damaged(&self, repository: &str) {
        let mut damaged = self.damaged.lock();
        // Limits the number of labels.
        if damaged.len() < REPOSITORIES || damaged.contains_key(repository) {
            damaged.insert(repository.to_owned(), self.clock.now());
            let labels = StoreLabels { repository: repository.to_owned() };
            self.damage.get_or_create(&labels).inc();
        }
    }

    /// Returns the number of repositories in which damage was found within the last hour.
    pub fn damaged_count(&self) -> usize {
        let damaged = self.damaged.lock();
        damaged.values().filter(|at| self.clock.elapsed(**at) < DAMAGED_FOR).count()
    }

    /// Counts a lookup in a cache.
    pub fn count_lookup(&self, cache: &'static str, found: Lookup) {
        let outcome = match found {
            Lookup::Hit => "hit",
            Lookup::Miss => "miss",
        };
        self.cache.get_or_create(&CacheLabels { cache, outcome }).inc();
    }

    /// Copies the counters of a cache of an upstream.
    fn copy_counters(&self, cache: &'static str, lookups: &CacheCounters) {
        for (outcome, count) in [("hit", lookups.found()), ("miss", lookups.missed())] {
            let counter = self.cache.get_or_create(&CacheLabels { cache, outcome });
            // Another request may have copied newer values: a counter never decreases.
            counter.inner().fetch_max(count, Ordering::Relaxed);
        }
    }

    /// Counts a request whose response has ended, complete or not.
    pub(super) fn answered(&self, method: &http::Method, route: &str, status: u16, took: Duration) {
        // Clients can invent methods, and labels must stay few.
        let known = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"];
        let method = known.into_iter().find(|known| *known == method.as_str());
        let method = method.unwrap_or("other").to_owned();
        let route = route.to_owned();
        let labels = RequestLabels { method, route: route.clone(), status };
        self.requests.get_or_create(&labels).inc();
        self.seconds.get_or_create(&RouteLabels { route }).observe(took.as_secs_f64());
    }

    /// Returns all metrics as text. Measures the stores first, unless their sizes are recent. May
    /// block.
    ///
    /// # Errors
    /// Never in practice: text is written to memory.
    pub fn text(&self, hub: &Hub) -> Result<String, fmt::Error> {
        self.measure(|before| sizes(hub, before));
        if let Some(upstream) = hub.upstream() {
            let cache = upstream.cache();
            self.copy_counters("packs", cache.packs());
            self.copy_counters("frames", cache.frames());
        }
        let mut text = String::new();
        // The lock keeps other requests from changing the sizes meanwhile.
        let _measured = self.measured.lock();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Measures the stores, unless their sizes are recent or another thread is measuring. The lock
    /// is not held while `look` runs, so that other threads do not wait.
    fn measure(&self, look: impl FnOnce(Sizes) -> Sizes) {
        let before = {
            let mut measured = self.measured.lock();
            if measured.at.is_some_and(|at| self.clock.elapsed(at) < SIZES_FOR) {
                return;
            }
            // Set before the measurement, so that other threads do not start one.
            measured.at = Some(self.clock.now());
            std::mem::take(&mut measured.sizes)
        };
        let sizes = look(before);
        let mut measured = self.measured.lock();
        self.packs.clear();
        self.bytes.clear();
        for (repository, MeasuredSize { packs, bytes }) in &sizes {
            let labels = StoreLabels { repository: repository.clone() };
            self.packs.get_or_create(&labels).set(*packs);
            self.bytes.get_or_create(&labels).set(*bytes);
        }
        *measured = MeasuredSizes { at: Some(self.clock.now()), sizes };
    }
}

/// The size of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MeasuredSize {
    packs: u64,
    bytes: u64,
}

/// Returns the sizes of the stores, as far as known. With an upstream, an open repository
/// is measured without asking the upstream, and a closed one keeps the size that it had
/// before.
fn sizes(hub: &Hub, mut before: Sizes) -> Sizes {
    let is_behind = hub.upstream().is_some();
    let mut size = |name: &String| {
        let there = match (hub.get_open_for_scan(name), before.remove(name)) {
            (Some(open), _) => open,
            (None, Some(known)) if is_behind => return Some(known),
            (None, _) => hub.get_for_scan(name).ok()?,
        };
        let packs = there.packs().list().ok()?;
        Some(MeasuredSize {
            packs: packs.len() as u64,
            bytes: packs.iter().map(|pack| pack.bytes).sum(),
        })
    };
    let names = hub.names().into_iter().take(REPOSITORIES);
    names.filter_map(|name| size(&name).map(|size| (name, size))).collect()
}

#[cfg(test)]
mod tests {
    use snap_core::repo::Config;

    use super::*;
    use crate::upstream::tests::in_folder;

    #[test]
    fn measuring_stores_blocks_no_other_request() {
        let metrics = Metrics::new(Clock::manual());
        let size = |packs| Sizes::from([("a".to_owned(), MeasuredSize { packs, bytes: 7 })]);
        metrics.measure(|before| {
            assert!(before.is_empty() && metrics.measured.try_lock().is_some());
            // Another request comes meanwhile.
            metrics.measure(|_| size(1));
            size(2)
        });
        let labels = StoreLabels { repository: "a".to_owned() };
        assert_eq!(metrics.packs.get_or_create(&labels).get(), 2);
        assert_eq!(metrics.bytes.get_or_create(&labels).get(), 7);
        metrics.measured.lock().at = None;
        metrics.measure(|before| {
            assert_eq!(before, size(2));
            before
        });
        assert_eq!(metrics.packs.get_or_create(&labels).get(), 2);
    }

    #[test]
    fn closed_repositories_are_not_reopened_for_metrics() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let hub = Hub::for_upstream(in_folder(folder.path(), runtime.handle()));
        hub.create("a", &Config::default().to_text()).unwrap();
        let known = |packs| Sizes::from([("a".to_owned(), MeasuredSize { packs, bytes: 7 })]);
        assert_eq!(sizes(&hub, known(3)), known(3));
        assert_eq!(hub.open_count(), 0);
        let empty = Sizes::from([("a".to_owned(), MeasuredSize { packs: 0, bytes: 0 })]);
        assert_eq!(sizes(&hub, Sizes::new()), empty, "a repository of unknown size is opened");
        assert_eq!((hub.open_count(), sizes(&hub, known(3))), (1, empty));
    }
}
