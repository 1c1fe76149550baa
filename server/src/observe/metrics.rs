//! What is counted, for Prometheus: `GET /metrics`.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64},
    },
    time::{Duration, Instant},
};

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

use crate::hub::Hub;

/// How old the sizes of stores may be.
const SIZES_FOR: Duration = Duration::from_secs(30);

/// Repositories whose size is told.
const REPOSITORIES: usize = 1000;

/// What is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    /// Bytes of bodies that came in.
    pub(super) received: Counter,
    /// Bytes of bodies that went out.
    pub(super) sent: Counter,
    /// Requests that are being answered.
    pub(super) in_flight: Gauge<i64, AtomicI64>,
    /// Those of them that send packs.
    pub(super) uploads: Gauge<i64, AtomicI64>,
    refused: Counter,
    cache: Family<CacheLabels, Counter>,
    packs: Family<StoreLabels, Gauge<u64, AtomicU64>>,
    bytes: Family<StoreLabels, Gauge<u64, AtomicU64>>,
    measured: Mutex<Option<Instant>>,
}

/// Whether something was where it was looked for first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It was.
    Hit,
    /// It had to be read, or fetched.
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

/// Bounds from 1 ms to about a minute.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("snap"),
            requests: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            received: Counter::default(),
            sent: Counter::default(),
            in_flight: Gauge::default(),
            uploads: Gauge::default(),
            refused: Counter::default(),
            cache: Family::default(),
            packs: Family::default(),
            bytes: Family::default(),
            measured: Mutex::new(None),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let all = &mut self.registry;
        all.register("requests", "Requests that were answered", self.requests.clone());
        let help = "How long an answer took, its body included";
        all.register_with_unit("request", help, Unit::Seconds, self.seconds.clone());
        let help = "Bytes of bodies that came in";
        all.register_with_unit("received", help, Unit::Bytes, self.received.clone());
        let help = "Bytes of bodies that went out";
        all.register_with_unit("sent", help, Unit::Bytes, self.sent.clone());
        let help = "Requests that are being answered";
        all.register("requests_in_flight", help, self.in_flight.clone());
        all.register(
            "uploads_in_flight",
            "Packs and bundles that are coming in",
            self.uploads.clone(),
        );
        let help = "Connections that were too many";
        all.register("refused_connections", help, self.refused.clone());
        all.register("cache_lookups", "What was looked for in caches", self.cache.clone());
        all.register("store_packs", "Packs of a repository", self.packs.clone());
        let help = "Bytes of the packs of a repository";
        all.register_with_unit("store", help, Unit::Bytes, self.bytes.clone());
    }

    /// Counts a connection that was one too many.
    pub fn refused_connection(&self) {
        self.refused.inc();
    }

    /// Counts what was looked for in a cache.
    pub fn looked_up(&self, cache: &'static str, found: Lookup) {
        let outcome = match found {
            Lookup::Hit => "hit",
            Lookup::Miss => "miss",
        };
        self.cache.get_or_create(&CacheLabels { cache, outcome }).inc();
    }

    /// Counts a request that was answered whole.
    pub(super) fn answered(&self, method: &http::Method, route: &str, status: u16, took: Duration) {
        // Whoever asks may invent methods.
        let known = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"];
        let method = known.into_iter().find(|known| *known == method.as_str());
        let method = method.unwrap_or("other").to_owned();
        let route = route.to_owned();
        let labels = RequestLabels { method, route: route.clone(), status };
        self.requests.get_or_create(&labels).inc();
        self.seconds.get_or_create(&RouteLabels { route }).observe(took.as_secs_f64());
    }

    /// All of it as text. Looks at the sizes of stores, if that was some time
    /// ago; may block.
    ///
    /// # Errors
    /// None that can happen: text is written to memory.
    pub fn text(&self, hub: &Hub) -> Result<String, fmt::Error> {
        self.measure(|| sizes(hub));
        let mut text = String::new();
        // Nobody changes the sizes meanwhile.
        let _measured = self.measured();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn measured(&self) -> MutexGuard<'_, Option<Instant>> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of how large the stores are, unless somebody has done so lately
    /// or does it now. Nobody else waits while one looks.
    fn measure(&self, look: impl FnOnce() -> Vec<Size>) {
        {
            let mut measured = self.measured();
            if measured.is_some_and(|at| at.elapsed() < SIZES_FOR) {
                return;
            }
            *measured = Some(Instant::now());
        }
        let sizes = look();
        let mut measured = self.measured();
        *measured = Some(Instant::now());
        self.packs.clear();
        self.bytes.clear();
        for Size { repository, packs, bytes } in sizes {
            let labels = StoreLabels { repository };
            self.packs.get_or_create(&labels).set(packs);
            self.bytes.get_or_create(&labels).set(bytes);
        }
    }
}

/// How large a store is.
struct Size {
    repository: String,
    packs: u64,
    bytes: u64,
}

/// How large they are, as far as it is known here: of those that are open nothing
/// is asked upstream.
fn sizes(hub: &Hub) -> Vec<Size> {
    let size = |repository: String| {
        let there = hub.glance_open(&repository).map_or_else(|| hub.glance(&repository), Ok);
        let packs = there.and_then(|there| there.packs()).ok()?;
        let bytes = packs.iter().map(|(_, bytes)| bytes).sum();
        Some(Size { repository, packs: packs.len() as u64, bytes })
    };
    hub.names().into_iter().take(REPOSITORIES).filter_map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_while_stores_are_measured() {
        let metrics = Metrics::default();
        let size = |packs| vec![Size { repository: "a".into(), packs, bytes: 7 }];
        metrics.measure(|| {
            assert!(metrics.measured.try_lock().is_ok());
            // Somebody else asks meanwhile.
            metrics.measure(|| size(1));
            size(2)
        });
        let labels = StoreLabels { repository: "a".to_owned() };
        assert_eq!(metrics.packs.get_or_create(&labels).get(), 2);
        assert_eq!(metrics.bytes.get_or_create(&labels).get(), 7);
    }
}
