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
//! | `fresh` | whether what is told is as it is there |
//! | [`cache`] | the folder of all that, and how long it may become |
//! | `names` | of the stores there |
//! | [`behind`] | one store elsewhere |

pub mod behind;
pub mod cache;
pub mod contact;
mod flights;
mod fresh;
mod names;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use snap_core::{base::limits, repo::ref_name::RefName};
use snap_remote::{
    distant::Budget,
    location::{Location, Scheme},
    service::{
        Object,
        client::{Client, Policy},
        keys::CONFIG,
        open::{self, OpenError, Secrets},
        traffic::Traffic,
    },
    store::{Found, RemoteError, RemoteStore},
};
use tokio::runtime::Handle;

use self::{
    cache::Cache,
    contact::{Contact, problem},
    names::Names,
};
use crate::{
    problem::{Code, Problem},
    settings::Limits,
};

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

    /// Where a repository is.
    fn at(&self, name: &str) -> Location {
        let mut location = self.location.clone();
        if !name.is_empty() {
            let separator = if location.path.is_empty() { "" } else { "/" };
            location.path = format!("{}{separator}{name}", location.path);
        }
        location
    }
}

fn client((origin, name): (&Origin, &str), runtime: &Handle) -> Result<Client, OpenError> {
    let _inside = runtime.enter();
    let traffic: Arc<Traffic> = Arc::default();
    let location = origin.at(name);
    let Origin { options, secrets, .. } = origin;
    let service = open::open(&location, options, secrets, &traffic)?;
    // Whoever sent something tries again, too.
    let policy = Policy {
        attempts: 4,
        pause: Duration::from_millis(100),
        longest_pause: Duration::from_secs(3),
        timeout: Duration::from_secs(15),
        busy: Duration::from_secs(15),
        ..Policy::default()
    };
    Ok(Client::new(service, policy, traffic).at(&location.to_string()))
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
    contact: Arc<Contact>,
    cache: Arc<Cache>,
    form: Mutex<Option<Form>>,
    /// Asks at the location itself.
    root: Client,
    names: Names,
    /// How long somebody who reads waits for it.
    patience: Duration,
    /// For what comes of packs there, of whichever store.
    memory: Arc<Budget>,
}

impl Upstream {
    /// The upstream at `origin`, asked in `runtime`. Nothing is asked yet.
    ///
    /// # Errors
    /// [`OpenError`] when an option is wrong.
    pub fn new(
        origin: Origin,
        cache: Cache,
        limits: &Limits,
        runtime: Handle,
    ) -> Result<Self, OpenError> {
        let form = match (origin.location.scheme, origin.location.path.is_empty()) {
            (Scheme::Http | Scheme::Https, true) => Some(Form::Folder),
            (Scheme::Http | Scheme::Https, false) => Some(Form::Store),
            _ => None,
        };
        let root = client((&origin, ""), &runtime)?;
        Ok(Self {
            origin,
            runtime,
            contact: Arc::default(),
            cache: Arc::new(cache),
            form: Mutex::new(form),
            root,
            names: Names::default(),
            patience: Duration::from_secs(limits.upstream_secs),
            memory: Budget::new(limits.upstream_bytes),
        })
    }

    /// Memory for what comes of packs there, shared by all stores.
    pub fn memory(&self) -> &Arc<Budget> {
        &self.memory
    }

    /// Whether it answers.
    pub fn contact(&self) -> &Arc<Contact> {
        &self.contact
    }

    /// What is kept of it here.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    fn client(&self, name: &str) -> Result<Client, Problem> {
        client((&self.origin, self.below(name)), &self.runtime).map_err(|error| {
            tracing::error!(%error, "cannot use the upstream");
            Problem::new(Code::Unavailable, "the upstream cannot be used")
        })
    }

    /// The settings of a repository there, which are asked for alone: of one that
    /// is not there nothing is kept.
    fn config(&self, name: &str) -> Result<Option<Object>, Problem> {
        self.ask(self.client(name)?.find(CONFIG, limits::CONFIG_BYTES))
    }

    fn remote(&self, name: &str, mirror: &str) -> Result<RemoteStore, Problem> {
        let client = self.client(name)?;
        let cache = self.cache.of(name).join(mirror);
        let location = self.origin.at(self.below(name)).to_string();
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

    /// Whether it answers now, and lets this server in.
    pub fn answers(&self) -> bool {
        self.ask(self.root.find(CONFIG, limits::CONFIG_BYTES)).is_ok()
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
        let (form, is_asked) = match self.ask(self.root.find(CONFIG, limits::CONFIG_BYTES)) {
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

    /// Makes a repository there.
    ///
    /// # Errors
    /// [`Code::Conflict`] when there is one, [`Code::Unavailable`].
    pub fn create(&self, name: &str, config: &str) -> Result<(), Problem> {
        self.form()?;
        if self.config(name)?.is_some() {
            return Err(Problem::new(Code::Conflict, format!("there is already `{name}`")));
        }
        self.names.forget();
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

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;

    /// What lies in `there` below a folder, before it a cache there.
    pub(crate) fn in_folder(folder: &Path, runtime: &Handle) -> Upstream {
        let there = folder.join("there");
        fs_err::create_dir(&there).unwrap();
        let origin = Origin {
            location: format!("file://{}", there.display()).parse().unwrap(),
            options: BTreeMap::new(),
            secrets: Secrets::default(),
        };
        let cache = Cache::open(&folder.join("cache"), &origin.key(), 1 << 30).unwrap();
        let limits = Limits { upstream_secs: 60, ..Limits::default() };
        Upstream::new(origin, cache, &limits, runtime.clone()).unwrap()
    }
}
