//! What is counted, for Prometheus: `GET /metrics`.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
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

use crate::{hub::Hub, upstream::cache::Lookups};

/// How old the sizes of stores may be.
const SIZES_FOR: Duration = Duration::from_secs(30);

/// For how long a repository counts as damaged after damage was met there.
const DAMAGED_FOR: Duration = Duration::from_secs(3600);

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
    damage: Family<StoreLabels, Counter>,
    /// When damage was last met, by repository.
    damaged: Mutex<HashMap<String, Instant>>,
    cache: Family<CacheLabels, Counter>,
    packs: Family<StoreLabels, Gauge<u64, AtomicU64>>,
    bytes: Family<StoreLabels, Gauge<u64, AtomicU64>>,
    measured: Mutex<Measured>,
}

/// How large the stores were when they were looked at, and when that was.
#[derive(Debug, Default)]
struct Measured {
    at: Option<Instant>,
    /// By the names of their repositories.
    sizes: Sizes,
}

type Sizes = HashMap<String, Size>;

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
            damage: Family::default(),
            damaged: Mutex::default(),
            cache: Family::default(),
            packs: Family::default(),
            bytes: Family::default(),
            measured: Mutex::default(),
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
        let help = "How often something of a repository could not be read because it is damaged";
        all.register("damage_met", help, self.damage.clone());
        all.register("cache_lookups", "What was looked for in caches", self.cache.clone());
        all.register("store_packs", "Packs of a repository", self.packs.clone());
        let help = "Bytes of the packs of a repository";
        all.register_with_unit("store", help, Unit::Bytes, self.bytes.clone());
    }

    /// Counts a connection that was one too many.
    pub fn refused_connection(&self) {
        self.refused.inc();
    }

    /// Takes note that something of a repository is damaged.
    pub fn damaged(&self, repository: &str) {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        // Only so many are told of.
        if damaged.len() < REPOSITORIES || damaged.contains_key(repository) {
            damaged.insert(repository.to_owned(), Instant::now());
            let labels = StoreLabels { repository: repository.to_owned() };
            self.damage.get_or_create(&labels).inc();
        }
    }

    /// Of how many repositories something was damaged when it was lately read.
    pub fn damaged_count(&self) -> usize {
        let damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        damaged.values().filter(|at| at.elapsed() < DAMAGED_FOR).count()
    }

    /// Counts what was looked for in a cache.
    pub fn looked_up(&self, cache: &'static str, found: Lookup) {
        let outcome = match found {
            Lookup::Hit => "hit",
            Lookup::Miss => "miss",
        };
        self.cache.get_or_create(&CacheLabels { cache, outcome }).inc();
    }

    /// Takes over what was counted of a cache of an upstream.
    fn looked_for(&self, cache: &'static str, lookups: &Lookups) {
        for (outcome, count) in [("hit", lookups.found()), ("miss", lookups.missed())] {
            let counter = self.cache.get_or_create(&CacheLabels { cache, outcome });
            // Somebody else may have asked a little later.
            counter.inner().fetch_max(count, Ordering::Relaxed);
        }
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
        self.measure(|before| sizes(hub, before));
        if let Some(upstream) = hub.upstream() {
            let cache = upstream.cache();
            self.looked_for("packs", cache.packs());
            self.looked_for("frames", cache.frames());
        }
        let mut text = String::new();
        // Nobody changes the sizes meanwhile.
        let _measured = self.measured();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of how large the stores are, unless somebody has done so lately
    /// or does it now. Nobody else waits while one looks.
    fn measure(&self, look: impl FnOnce(Sizes) -> Sizes) {
        let before = {
            let mut measured = self.measured();
            if measured.at.is_some_and(|at| at.elapsed() < SIZES_FOR) {
                return;
            }
            measured.at = Some(Instant::now());
            std::mem::take(&mut measured.sizes)
        };
        let sizes = look(before);
        let mut measured = self.measured();
        self.packs.clear();
        self.bytes.clear();
        for (repository, Size { packs, bytes }) in &sizes {
            let labels = StoreLabels { repository: repository.clone() };
            self.packs.get_or_create(&labels).set(*packs);
            self.bytes.get_or_create(&labels).set(*bytes);
        }
        *measured = Measured { at: Some(Instant::now()), sizes };
    }
}

/// How large a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    packs: u64,
    bytes: u64,
}

/// How large they are, as far as it is known here: upstream nothing is asked of
/// those that are open, nor of those that were looked at before they were closed.
fn sizes(hub: &Hub, mut before: Sizes) -> Sizes {
    let is_behind = hub.upstream().is_some();
    let mut size = |name: &String| {
        let there = match (hub.glance_open(name), before.remove(name)) {
            (Some(open), _) => open,
            (None, Some(known)) if is_behind => return Some(known),
            (None, _) => hub.glance(name).ok()?,
        };
        let packs = there.packs().ok()?;
        Some(Size { packs: packs.len() as u64, bytes: packs.iter().map(|(_, bytes)| bytes).sum() })
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
    fn nobody_waits_while_stores_are_measured() {
        let metrics = Metrics::default();
        let size = |packs| Sizes::from([("a".to_owned(), Size { packs, bytes: 7 })]);
        metrics.measure(|before| {
            assert!(before.is_empty() && metrics.measured.try_lock().is_ok());
            // Somebody else asks meanwhile.
            metrics.measure(|_| size(1));
            size(2)
        });
        let labels = StoreLabels { repository: "a".to_owned() };
        assert_eq!(metrics.packs.get_or_create(&labels).get(), 2);
        assert_eq!(metrics.bytes.get_or_create(&labels).get(), 7);
        metrics.measured().at = None;
        metrics.measure(|before| {
            assert_eq!(before, size(2));
            before
        });
        assert_eq!(metrics.packs.get_or_create(&labels).get(), 2);
    }

    #[test]
    fn what_is_closed_is_not_opened_to_be_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let hub = Hub::behind(in_folder(folder.path(), runtime.handle()));
        hub.create("a", &Config::default().to_text()).unwrap();
        let known = |packs| Sizes::from([("a".to_owned(), Size { packs, bytes: 7 })]);
        assert_eq!(sizes(&hub, known(3)), known(3));
        assert_eq!(hub.open_count(), 0);
        let empty = Sizes::from([("a".to_owned(), Size { packs: 0, bytes: 0 })]);
        assert_eq!(sizes(&hub, Sizes::new()), empty, "what was never seen is opened");
        assert_eq!((hub.open_count(), sizes(&hub, known(3))), (1, empty));
    }
}
