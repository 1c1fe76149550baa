//! A service in the memory of this process, for tests.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures::future::BoxFuture;

use super::{
    Conditions, Listed, Object, Service, ServiceError, Version, What, When, too_long,
    traffic::{Kind, Traffic},
};

type Objects = Arc<Mutex<BTreeMap<String, Bytes>>>;

/// What `memory://` locations name.
static NAMED: LazyLock<Mutex<HashMap<String, Objects>>> = LazyLock::new(Mutex::default);

/// Objects in memory.
#[derive(Debug)]
pub struct Memory {
    objects: Objects,
    /// Those that it keeps to.
    kept: Conditions,
    /// Those that a client may rely on.
    said: Conditions,
    traffic: Arc<Traffic>,
}

impl Memory {
    /// The objects of this name, which all who ask for it share.
    pub fn named(name: &str, traffic: Arc<Traffic>) -> Self {
        let mut named = lock(&NAMED);
        let objects = Arc::clone(named.entry(name.to_owned()).or_default());
        let all = Conditions { absent: true, unchanged: true };
        Self { objects, kept: all, said: all, traffic }
    }

    /// The same, which keeps only to some conditions, as some services do.
    #[must_use]
    pub fn with_conditions(self, conditions: Conditions) -> Self {
        Self { kept: conditions, said: conditions, ..self }
    }

    /// The same, for a client that is told not to rely on conditions.
    #[must_use]
    pub fn claimed(self) -> Self {
        Self { said: Conditions::NONE, ..self }
    }

    fn write_now(&self, key: &str, bytes: Bytes, when: &When) -> Result<Version, ServiceError> {
        let mut objects = lock(&self.objects);
        let now = objects.get(key).map(version_of);
        let (holds, can) = match when {
            When::Always => (true, true),
            When::Absent => (now.is_none(), self.kept.absent),
            When::Unchanged(version) => (now.as_ref() == Some(version), self.kept.unchanged),
        };
        if !can {
            return Err(told("write", key, What::Unsupported, "no such condition"));
        }
        if !holds {
            return Err(told("write", key, What::Conflict, ""));
        }
        self.traffic.sent(bytes.len() as u64);
        let version = version_of(&bytes);
        objects.insert(key.to_owned(), bytes);
        Ok(version)
    }
}

impl Service for Memory {
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Object, ServiceError>> {
        Box::pin(async move {
            self.traffic.request(Kind::Get);
            let Some(bytes) = lock(&self.objects).get(key).cloned() else {
                return Err(told("read", key, What::NotFound, ""));
            };
            let version = Some(version_of(&bytes));
            if range.end > bytes.len() as u64 {
                return Err(told("read", key, What::Short, ""));
            }
            self.traffic.received(range.end - range.start);
            let bytes = bytes.slice(range.start as usize..range.end as usize);
            Ok(Object { bytes, version })
        })
    }

    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<Object, ServiceError>> {
        Box::pin(async move {
            let length = lock(&self.objects).get(key).map_or(0, |bytes| bytes.len() as u64);
            match length > most {
                true => Err(too_long(key, most)),
                false => self.read(key, 0..length).await,
            }
        })
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: When,
    ) -> BoxFuture<'a, Result<Option<Version>, ServiceError>> {
        Box::pin(async move {
            self.traffic.request(Kind::Put);
            self.write_now(key, bytes, &when).map(Some)
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, ServiceError>> {
        Box::pin(async move {
            self.traffic.request(Kind::List);
            let objects = lock(&self.objects);
            let listed = objects.iter().filter(|(key, _)| key.starts_with(prefix));
            let listed =
                listed.map(|(key, bytes)| Listed { key: key.clone(), bytes: bytes.len() as u64 });
            Ok(listed.collect())
        })
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>> {
        Box::pin(async move {
            self.traffic.request(Kind::Head);
            Ok(lock(&self.objects).get(key).map(|bytes| bytes.len() as u64))
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            self.traffic.request(Kind::Delete);
            lock(&self.objects).remove(key);
            Ok(())
        })
    }

    fn conditions(&self) -> Conditions {
        self.said
    }

    fn takes_conditions(&self) -> Conditions {
        self.kept
    }

    fn must_prove_conditions(&self) -> bool {
        false
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn version_of(bytes: &Bytes) -> Version {
    Version { etag: Some(blake3::hash(bytes).to_hex().to_string()), generation: None }
}

fn told(operation: &'static str, key: &str, what: What, message: &str) -> ServiceError {
    ServiceError::new(operation, key, what, message.to_owned())
}
