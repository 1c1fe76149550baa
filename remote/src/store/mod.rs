//! A store elsewhere: what lies under which key, and what is known of it here.
//!
//! | key | what |
//! |---|---|
//! | `config.toml` | version and settings, as in a local store |
//! | `objects/…` | packs, named by their hash |
//! | `index/…` | [outlines](snap_core::format::outline) of packs, named by their hash |
//! | `refs/heads/…`, `refs/tags/…` | a commit id, and who wrote it ([`refs`]) |
//! | `HEAD` | `ref: refs/heads/NAME`: the branch that a clone begins with |
//!
//! A pack counts once an outline of it is in `index/`, and an outline is
//! written after its packs and all that they refer to. So whatever the index
//! knows is complete, and what an interrupted push left is only waiting to be
//! used. What was read of `index/` is kept in a [`Mirror`] and never read again.

mod error;
pub mod heads;
pub mod mirror;
pub mod refs;

use std::path::Path;

use bytes::Bytes;
use snap_core::{
    base::id::PackId,
    format::outline::{self, Outline},
    repo::{Config, RefName},
};

pub use error::RemoteError;
pub use mirror::Mirror;

use crate::service::{What, When, client::Client};

/// Key of the settings.
pub const CONFIG: &str = "config.toml";

/// What keys of packs begin with.
pub const OBJECTS: &str = "objects/";

/// What keys of outlines begin with.
pub const INDEX: &str = "index/";

/// Key of the name of the default branch. Whoever makes the store writes it;
/// without it that is the branch that `HEAD` names in a new store.
pub const HEAD: &str = "HEAD";

/// A store elsewhere, and what is known of it here.
#[derive(Debug)]
pub struct RemoteStore {
    client: Client,
    /// For messages; has no secrets.
    location: String,
    mirror: Mirror,
}

/// What was found when a remote store was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A store.
    Store,
    /// Nothing at all.
    Nothing,
}

impl RemoteStore {
    /// The store at `location`, reached by `client`; what is known of it is
    /// kept in `cache`. Asks nothing yet.
    ///
    /// # Errors
    /// [`RemoteError`] when `cache` cannot be used.
    pub fn new(client: Client, location: String, cache: &Path) -> Result<Self, RemoteError> {
        let client = client.at(&location);
        Ok(Self { client, location, mirror: Mirror::open(cache)? })
    }

    /// How it is asked.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where it is.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// How it is asked, where it is, and what is known of its packs.
    pub fn into_parts(self) -> (Client, String, Mirror) {
        (self.client, self.location, self.mirror)
    }

    /// What is known of its packs.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Looks whether there is a store of a version that is known. One that was
    /// seen before is not asked again.
    ///
    /// # Errors
    /// [`RemoteError::NotAStore`], [`RemoteError::Config`].
    pub async fn look(&self) -> Result<Found, RemoteError> {
        if self.mirror.was_seen() {
            return Ok(Found::Store);
        }
        let Some(object) = self.client.find(CONFIG).await? else {
            return Ok(Found::Nothing);
        };
        let text = std::str::from_utf8(&object.bytes).unwrap_or("");
        let read = Config::parse(text, Path::new(CONFIG));
        read.map_err(|source| RemoteError::Config {
            location: self.location.clone(),
            source: Box::new(source),
        })?;
        self.mirror.remember_seen();
        Ok(Found::Store)
    }

    /// Makes a store where there is nothing, with `branch` as the one that a
    /// clone begins with. Somebody may be faster.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub async fn create(&self, config: &str, branch: &RefName) -> Result<(), RemoteError> {
        let when = match self.client.conditions().absent {
            true => When::Absent,
            false => When::Always,
        };
        let (config, head) = (Bytes::from(config.to_owned()), format!("ref: {branch}\n"));
        let (config, head) = futures::join!(
            self.client.write(CONFIG, config, when.clone()),
            self.client.write(HEAD, head.into(), when),
        );
        for written in [config, head] {
            match written {
                Err(error) if error.what != What::Conflict => return Err(error.into()),
                _ => {}
            }
        }
        self.mirror.remember_seen();
        Ok(())
    }

    /// Reads what is new in its index.
    ///
    /// # Errors
    /// [`RemoteError`] when an outline is not what its name says.
    pub async fn refresh(&self) -> Result<(), RemoteError> {
        let listed = self.client.list(INDEX).await?;
        let names: Vec<&str> =
            listed.iter().filter_map(|object| object.key.strip_prefix(INDEX)).collect();
        let new: Vec<String> = names
            .iter()
            .filter(|name| !self.mirror.knows(name))
            .map(|name| (*name).to_owned())
            .collect();
        let reads = new.into_iter().map(|name| {
            let client = self.client.clone();
            let read = tokio::spawn(async move {
                let read = client.read(&format!("{INDEX}{name}"), None).await;
                (name, read)
            });
            async move { read.await.expect("reading does not panic") }
        });
        for (name, read) in futures::future::join_all(reads).await {
            match read {
                Ok(object) => self.take_in(&name, &object.bytes)?,
                // Merged into another one since it was listed.
                Err(error) if error.what == What::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn take_in(&self, name: &str, bytes: &[u8]) -> Result<(), RemoteError> {
        let damaged = |why: String| RemoteError::Damaged {
            key: format!("{INDEX}{name}"),
            location: self.location.clone(),
            why,
        };
        if PackId::from_bytes(*blake3::hash(bytes).as_bytes()).to_string() != name {
            return Err(damaged("its bytes do not hash to its name".to_owned()));
        }
        let outlines = outline::decode(bytes).map_err(|error| damaged(error.to_string()))?;
        self.mirror.add(name, &outlines)?;
        Ok(())
    }

    /// Makes packs part of the store that were uploaded before.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn publish(&self, outlines: &[Outline]) -> Result<(), RemoteError> {
        let bytes = outline::encode(outlines);
        let name = PackId::from_bytes(*blake3::hash(&bytes).as_bytes()).to_string();
        let key = format!("{INDEX}{name}");
        self.client.write(&key, bytes.into(), When::Always).await?;
        self.mirror.add(&name, outlines)?;
        self.mirror.forget_sending();
        Ok(())
    }
}
