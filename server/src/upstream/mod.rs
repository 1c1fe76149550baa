//! Stores elsewhere, in a bucket or at another server, that are served from here.
//!
//! Of each there is a store here whose packs are stubs ([`snap_core::store`])
//! until something of them is read, so that the rest of the server sees a store
//! like any other. All of it is a cache, and may be lost at any time: what is
//! sent goes upstream before anybody is told that it went well.
//!
//! | module | what |
//! |---|---|
//! | [`contact`] | whether the upstream answers |
//! | `flights` | what many ask at once is asked once |
//! | [`cache`] | the folder of all that, and how long it may become |
//! | [`behind`] | one store elsewhere |

pub mod behind;
pub mod cache;
pub mod contact;
mod flights;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use snap_core::{base::limits, repo::ref_name::RefName};
use snap_remote::{
    location::{Location, Scheme},
    service::{
        client::{Client, Policy},
        keys::CONFIG,
        open::{self, OpenError, Secrets},
        snap_server::ONLY,
        traffic::Traffic,
    },
    store::{Found, RemoteError, RemoteStore},
};
use tokio::runtime::Handle;

use self::{
    cache::Cache,
    contact::{Contact, problem},
};
use crate::problem::{Code, Problem};

/// Levels of folders in which stores are looked for.
const LEVELS: usize = 4;

/// Where an upstream is, and how it is asked.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Where: a store, or what has several below it.
    pub location: Location,
    /// Options of the location.
    pub options: BTreeMap<String, String>,
    /// Its keys.
    pub secrets: Secrets,
}

impl Origin {
    /// Stands for it, and for no other.
    pub fn key(&self) -> String {
        let options = ["endpoint", "account"].map(|name| self.options.get(name));
        let options = options.map(|value| value.map_or("", String::as_str));
        format!("{} {}", self.location, options.join(" "))
    }
}

/// What lies upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One store.
    Store,
    /// Several, each named by its path.
    Folder,
}

/// The stores of an upstream.
#[derive(Debug)]
pub struct Upstream {
    origin: Origin,
    runtime: Handle,
    traffic: Arc<Traffic>,
    contact: Arc<Contact>,
    cache: Arc<Cache>,
    form: Mutex<Option<Form>>,
    /// How long somebody who reads waits for it.
    patience: Duration,
}

impl Upstream {
    /// The upstream at `origin`, asked in `runtime`. Nothing is asked yet.
    ///
    /// # Errors
    /// [`OpenError`] when an option is wrong.
    pub fn new(
        origin: Origin,
        cache: Cache,
        patience: Duration,
        runtime: Handle,
    ) -> Result<Self, OpenError> {
        let form = match (origin.location.scheme, origin.location.path.is_empty()) {
            (Scheme::Http | Scheme::Https, true) => Some(Form::Folder),
            (Scheme::Http | Scheme::Https, false) => Some(Form::Store),
            _ => None,
        };
        let upstream = Self {
            origin,
            runtime,
            traffic: Arc::default(),
            contact: Arc::default(),
            cache: Arc::new(cache),
            form: Mutex::new(form),
            patience,
        };
        upstream.client("").map(|_| upstream)
    }

    /// Whether it answers.
    pub fn contact(&self) -> &Arc<Contact> {
        &self.contact
    }

    /// What is kept of it here.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// What was asked of it.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    fn location(&self, name: &str) -> Location {
        let mut location = self.origin.location.clone();
        if !name.is_empty() {
            let separator = if location.path.is_empty() { "" } else { "/" };
            location.path = format!("{}{separator}{name}", location.path);
        }
        location
    }

    fn client(&self, name: &str) -> Result<Client, OpenError> {
        let _inside = self.runtime.enter();
        let location = self.location(name);
        let Origin { options, secrets, .. } = &self.origin;
        let service = open::open(&location, options, secrets, &self.traffic)?;
        // Whoever sent something tries again, too.
        let policy = Policy {
            attempts: 4,
            pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(3),
            timeout: Duration::from_secs(15),
            ..Policy::default()
        };
        Ok(Client::new(service, policy, Arc::clone(&self.traffic)).at(&location.to_string()))
    }

    fn remote(&self, name: &str, mirror: &str) -> Result<RemoteStore, Problem> {
        let wrong = |error: OpenError| {
            tracing::error!(%error, "cannot use the upstream");
            Problem::new(Code::Unavailable, "the upstream cannot be used")
        };
        let client = self.client(self.below(name)).map_err(wrong)?;
        let cache = self.cache.of(name).join(mirror);
        let location = self.location(self.below(name)).to_string();
        RemoteStore::new(client, location, &cache).map(RemoteStore::kept).map_err(problem)
    }

    /// Path of a repository below the location.
    fn below<'n>(&self, name: &'n str) -> &'n str {
        match *self.form.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Form::Store) => "",
            _ => name,
        }
    }

    /// Waits for a request, or until it has taken too long for somebody who
    /// reads; takes note of whether there was an answer.
    fn ask<T, E: Into<RemoteError>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Problem> {
        if self.contact.is_given_up() {
            return Err(contact::away());
        }
        let asked = async { tokio::time::timeout(self.patience, request).await };
        match self.runtime.block_on(asked) {
            Ok(Ok(answer)) => {
                self.contact.reached();
                Ok(answer)
            }
            Ok(Err(error)) => Err(self.contact.failed(error.into())),
            Err(_) => Err(self.contact.timed_out()),
        }
    }

    /// What lies there: as it says, else as it said before.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when it does not answer and never did.
    pub fn form(&self) -> Result<Form, Problem> {
        let known = || self.form.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(form) = *known() {
            return Ok(form);
        }
        let client = self.client("").map_err(|_| contact::away())?;
        let (form, is_asked) = match self.ask(client.find(CONFIG, limits::CONFIG_BYTES)) {
            Ok(Some(_)) => (Form::Store, true),
            Ok(None) => (Form::Folder, true),
            Err(problem) => (self.cache.form().ok_or(problem)?, false),
        };
        if is_asked {
            self.cache.remember_form(form);
            *known() = Some(form);
        }
        Ok(form)
    }

    /// Names of the repositories there; where it does not answer, of those that
    /// are known here.
    pub fn names(&self) -> Vec<String> {
        match self.form() {
            Ok(Form::Store) => return vec![ONLY.to_owned()],
            Ok(Form::Folder) => {}
            Err(_) => return self.cache.names(),
        }
        let Ok(client) = self.client("") else { return self.cache.names() };
        self.ask(client.stores(LEVELS)).unwrap_or_else(|_| self.cache.names())
    }

    /// Makes a repository there.
    ///
    /// # Errors
    /// [`Code::Conflict`] when there is one, [`Code::Unavailable`].
    pub fn create(&self, name: &str, config: &str) -> Result<(), Problem> {
        self.form()?;
        let remote = self.remote(name, "mirror")?;
        let there = Problem::new(Code::Conflict, format!("there is already `{name}`"));
        let found = self.ask(remote.survey())?;
        if found == Found::Store {
            return Err(there);
        }
        let first = RefName::branch("main").map_err(|_| there)?;
        self.ask(remote.create(config, &first))
    }
}
