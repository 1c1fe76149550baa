//! Remote stores, in a bucket or on another server, that this server caches and serves.
//!
//! Each remote store has a local store, whose packs are stubs ([`snap_core::store`]) until parts of
//! them are read. So the rest of the server sees an ordinary store. The local store is a cache and
//! may be lost at any time: the server sends data upstream before it reports success to the client.
//!
//! | module | what |
//! |---|---|
//! | [`health`] | whether the upstream answers |
//! | `shared_queries` | queries that callers share, and whether their answers are current |
//! | [`cache`] | the cache folder, and its eviction |
//! | `names` | the names of the repositories upstream |
//! | [`repository`] | one store upstream |

pub mod cache;
pub mod health;
mod names;
pub mod repository;
mod shared_queries;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use snap_core::repo::{
    config::{Config, ConfigError},
    ref_name::RefName,
};
use snap_remote::{
    bucket::client::RequestPolicy,
    location::{Location, Scheme},
    peer::{
        CONDITIONS, CONFIG, ConditionProofs, NewStore, Place, RemoteError, RemoteStore,
        StoreLookup,
        open::{OpenError, Opening, RemoteCredentials},
    },
    remote_packs::PrefetchBudget,
};
use tokio::runtime::Handle;

use self::{
    cache::CacheFolder,
    health::{UpstreamHealth, problem},
    names::NameList,
};
use crate::{
    clock::Clock,
    problem::{Code, HttpProblem},
    settings::ServerLimits,
};

/// Location of an upstream, and how to reach it.
#[derive(Clone, Debug)]
pub struct UpstreamAddress {
    /// A store, or a place that has several stores below it.
    pub location: Location,
    /// Options of the location.
    pub options: BTreeMap<String, String>,
    /// Credentials for the location.
    pub secrets: RemoteCredentials,
}

impl UpstreamAddress {
    /// Returns a text that identifies this upstream.
    pub fn key(&self) -> String {
        let options = ["endpoint", "account"].map(|name| self.options.get(name));
        let options = options.map(|value| value.map_or("", String::as_str));
        format!("{} {}", self.location, options.join(" "))
    }

    /// Returns the location of a repository.
    fn at(&self, name: &str) -> Location {
        let mut location = self.location.clone();
        if !name.is_empty() {
            let separator = if location.path.is_empty() { "" } else { "/" };
            location.path = format!("{}{separator}{name}", location.path);
        }
        location
    }
}

/// Opens the place of the repository `name`; the location itself if the name is empty.
fn open<T>(
    origin: &UpstreamAddress,
    name: &str,
    runtime: &Handle,
    condition_proofs: ConditionProofs,
    open: impl FnOnce(&Opening<'_>) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let _inside = runtime.enter();
    let UpstreamAddress { options, secrets, .. } = origin;
    // Fewer and shorter attempts than the default, because the clients of this server
    // retry, too.
    let policy = RequestPolicy {
        attempts: 4,
        pause: Duration::from_millis(100),
        longest_pause: Duration::from_secs(3),
        timeout: Duration::from_secs(15),
        busy: Duration::from_secs(15),
        ..RequestPolicy::default()
    };
    let (location, traffic) = (origin.at(name), Arc::default());
    let opening = Opening::new(&location, options, secrets, &traffic);
    open(&Opening { policy, condition_proofs: Some(condition_proofs), ..opening })
}

/// The kind of an upstream: one store, or a folder of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamLayout {
    /// One store.
    Store,
    /// Several stores, each named by its path.
    Folder,
}

/// The stores of an upstream.
#[derive(Debug)]
pub struct Upstream {
    origin: UpstreamAddress,
    runtime: Handle,
    contact: Arc<UpstreamHealth>,
    cache: Arc<CacheFolder>,
    form: Mutex<Option<UpstreamLayout>>,
    /// Proofs that the buckets upstream honour conditional writes.
    condition_proofs: ConditionProofs,
    /// The location itself.
    root: Place,
    names: NameList,
    /// Longest time that a reading request waits for the upstream.
    patience: Duration,
    /// Memory budget for data that is being fetched, shared by all stores.
    memory: Arc<PrefetchBudget>,
    clock: Clock,
}

impl Upstream {
    /// Creates the upstream at `origin`, with requests that run in `runtime`, and with the clock of
    /// the cache. Sends no request yet.
    ///
    /// # Errors
    /// [`OpenError`] when an option is wrong.
    pub fn new(
        origin: UpstreamAddress,
        cache: CacheFolder,
        limits: &ServerLimits,
        runtime: Handle,
    ) -> Result<Self, OpenError> {
        let form = match (origin.location.scheme, origin.location.path.is_empty()) {
            (Scheme::Http | Scheme::Https, true) => Some(UpstreamLayout::Folder),
            (Scheme::Http | Scheme::Https, false) => Some(UpstreamLayout::Store),
            _ => None,
        };
        let condition_proofs = ConditionProofs::at(cache.root().join(CONDITIONS));
        let root =
            open(&origin, "", &runtime, condition_proofs.clone(), |opening| opening.place())?;
        let clock = cache.clock().clone();
        Ok(Self {
            origin,
            runtime,
            contact: Arc::new(UpstreamHealth::new(clock.clone())),
            cache: Arc::new(cache),
            form: Mutex::new(form),
            condition_proofs,
            root,
            names: NameList::new(clock.clone()),
            patience: Duration::from_secs(limits.upstream_secs),
            memory: PrefetchBudget::new(limits.upstream_bytes),
            clock,
        })
    }

    /// Returns the clock of the server.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the memory budget for data that is being fetched, shared by all stores.
    pub fn memory(&self) -> &Arc<PrefetchBudget> {
        &self.memory
    }

    /// Returns the health of the upstream: whether it answers.
    pub fn contact(&self) -> &Arc<UpstreamHealth> {
        &self.contact
    }

    /// Returns the cache folder.
    pub fn cache(&self) -> &Arc<CacheFolder> {
        &self.cache
    }

    fn open<T>(
        &self,
        name: &str,
        opening: impl FnOnce(&Opening<'_>) -> Result<T, OpenError>,
    ) -> Result<T, HttpProblem> {
        let proofs = self.condition_proofs.clone();
        open(&self.origin, self.below(name), &self.runtime, proofs, opening).map_err(|error| {
            match error {
                OpenError::Cache(error) => problem(error),
                error => {
                    tracing::error!(%error, "cannot use the upstream");
                    HttpProblem::new(Code::Unavailable, "the upstream cannot be used")
                }
            }
        })
    }

    /// Reads the settings of a repository upstream. Requests nothing else, so that nothing is
    /// cached for a repository that does not exist.
    fn config(&self, name: &str) -> Result<Option<Config>, HttpProblem> {
        let Some(bytes) = self.ask(self.place(name)?.config())? else { return Ok(None) };
        let text = String::from_utf8_lossy(&bytes);
        let config = Config::parse(&text, Path::new(CONFIG));
        config.map(Some).map_err(|why| HttpProblem::new(Code::Damaged, why.to_string()))
    }

    fn place(&self, name: &str) -> Result<Place, HttpProblem> {
        self.open(name, |opening| opening.place())
    }

    fn remote(&self, name: &str, mirror: &str) -> Result<RemoteStore, HttpProblem> {
        let cache = self.cache.of(name).join(mirror);
        self.open(name, |opening| opening.store(&cache)).map(RemoteStore::keep_mirror)
    }

    /// Returns the path of a repository below the location.
    fn below<'n>(&self, name: &'n str) -> &'n str {
        match *self.form.lock() {
            Some(UpstreamLayout::Store) => "",
            _ => name,
        }
    }

    /// Waits for a request, but no longer than a reading request may wait. Records whether
    /// the upstream answered.
    fn ask<T, E: Into<RemoteError>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, HttpProblem> {
        if self.contact.is_backing_off() {
            return Err(health::unavailable());
        }
        match self.runtime.block_on(self.clock.timeout(self.patience, request)) {
            Ok(Ok(answer)) => {
                self.contact.record_success();
                Ok(answer)
            }
            Ok(Err(error)) => Err(self.contact.failed(error.into())),
            Err(_) => Err(self.contact.timed_out()),
        }
    }

    /// Returns true if the upstream answers now, and gives this server access.
    pub fn answers(&self) -> bool {
        match self.ask(self.root.config()) {
            Ok(_) => true,
            // Damaged settings are an answer, too.
            Err(problem) => problem.code == Code::Damaged,
        }
    }

    /// Returns the layout of the upstream: as it answers now, or else as it last answered.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the upstream does not answer and never did.
    pub fn form(&self) -> Result<UpstreamLayout, HttpProblem> {
        let known = || self.form.lock();
        if let Some(form) = *known() {
            return Ok(form);
        }
        let (form, is_asked) = match self.ask(self.root.config()) {
            Ok(Some(config)) if are_settings(&config) => (UpstreamLayout::Store, true),
            // The object may be the web page of a proxy in between. Do not remember a layout
            // because of it.
            Ok(Some(_)) => {
                let why = "the object `config` upstream is not a valid settings file";
                let unknown = || HttpProblem::new(Code::Unavailable, why);
                (self.cache.form().ok_or_else(unknown)?, false)
            }
            Ok(None) => (UpstreamLayout::Folder, true),
            Err(problem) => (self.cache.form().ok_or(problem)?, false),
        };
        if is_asked {
            self.cache.remember_form(form);
            *known() = Some(form);
        }
        Ok(form)
    }

    /// Creates a repository upstream.
    ///
    /// # Errors
    /// [`Code::Conflict`] when it exists, [`Code::Unavailable`].
    pub fn create(&self, name: &str, config: &str) -> Result<(), HttpProblem> {
        self.form()?;
        if self.config(name)?.is_some() {
            return Err(HttpProblem::new(
                Code::Conflict,
                format!("repository `{name}` already exists"),
            ));
        }
        self.names.forget();
        let remote = self.remote(name, "mirror")?;
        let there = HttpProblem::new(Code::Conflict, format!("repository `{name}` already exists"));
        let found = self.ask(remote.inspect_location())?;
        if found == StoreLookup::Store {
            return Err(there);
        }
        let first = RefName::branch("main").map_err(|_| there)?;
        self.ask(remote.create(&NewStore { config: config.to_owned(), head: first }))
    }
}

/// Returns true if an object holds the settings of a store, even of a later version.
fn are_settings(bytes: &Bytes) -> bool {
    let parse = |text| Config::parse(text, Path::new(CONFIG));
    let parsed = std::str::from_utf8(bytes).map(parse);
    parsed.is_ok_and(|parsed| !matches!(parsed, Err(ConfigError::Syntax { .. })))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn an_html_page_is_not_parsed_as_settings() {
        let are = |text: &'static str| are_settings(&text.into());
        assert!(are("version = 2\n") && are("version = 99\nlater = true\n"));
        assert!(!are("<!doctype html><title>Welcome</title><p>Please log in."));
    }

    /// Creates an upstream in the folder `there` below `folder`, with its cache in `cache`.
    pub(crate) fn in_folder(folder: &Path, runtime: &Handle) -> Upstream {
        let there = folder.join("there");
        fs_err::create_dir(&there).unwrap();
        let origin = UpstreamAddress {
            location: format!("file://{}", there.display()).parse().unwrap(),
            options: BTreeMap::new(),
            secrets: RemoteCredentials::default(),
        };
        let cache = CacheFolder::open(&folder.join("cache"), &origin.key(), 1 << 30).unwrap();
        let limits = ServerLimits { upstream_secs: 60, ..ServerLimits::default() };
        Upstream::new(origin, cache, &limits, runtime.clone()).unwrap()
    }
}
