//! A service in the memory of this process, for tests.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::{
    ConditionalWrites, FailureReason, ListedObject, ObjectVersion, Service, ServiceError,
    StoredObject, WriteCondition, too_long,
    traffic::{RequestKind, Traffic},
};

type SharedObjects = Arc<Mutex<BTreeMap<String, Bytes>>>;

/// The objects of each `memory://` location.
static NAMED: LazyLock<Mutex<HashMap<String, SharedObjects>>> = LazyLock::new(Mutex::default);

/// Objects in memory.
#[derive(Debug)]
pub struct MemoryService {
    objects: SharedObjects,
    /// The conditions that the service honours.
    honoured: ConditionalWrites,
    /// The conditions that the service reports.
    reported: ConditionalWrites,
    traffic: Arc<Traffic>,
}

impl MemoryService {
    /// Returns the service of this name. All services of one name share their objects.
    pub fn named(name: &str, traffic: Arc<Traffic>) -> Self {
        let mut named = NAMED.lock();
        let objects = Arc::clone(named.entry(name.to_owned()).or_default());
        let all = ConditionalWrites { absent: true, unchanged: true };
        Self { objects, honoured: all, reported: all, traffic }
    }

    /// Limits the conditions that the service honours and reports.
    #[must_use]
    pub fn with_conditions(self, conditions: ConditionalWrites) -> Self {
        Self { honoured: conditions, reported: conditions, ..self }
    }

    /// Makes the service report no conditions, although it honours them.
    #[must_use]
    pub fn claimed(self) -> Self {
        Self { reported: ConditionalWrites::NONE, ..self }
    }

    fn write_now(
        &self,
        key: &str,
        bytes: Bytes,
        when: &WriteCondition,
    ) -> Result<ObjectVersion, ServiceError> {
        let mut objects = self.objects.lock();
        let now = objects.get(key).map(version_of);
        let (holds, can) = match when {
            WriteCondition::Always => (true, true),
            WriteCondition::Absent => (now.is_none(), self.honoured.absent),
            WriteCondition::Unchanged(version) => {
                (now.as_ref() == Some(version), self.honoured.unchanged)
            }
        };
        if !can {
            return Err(error_of("write", key, FailureReason::Unsupported, "conditional writes"));
        }
        if !holds {
            return Err(error_of("write", key, FailureReason::Conflict, ""));
        }
        self.traffic.sent(bytes.len() as u64);
        let version = version_of(&bytes);
        objects.insert(key.to_owned(), bytes);
        Ok(version)
    }
}

impl Service for MemoryService {
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>> {
        Box::pin(async move {
            self.traffic.request(RequestKind::Get);
            let Some(bytes) = self.objects.lock().get(key).cloned() else {
                return Err(error_of("read", key, FailureReason::NotFound, ""));
            };
            let version = Some(version_of(&bytes));
            if range.end > bytes.len() as u64 {
                return Err(error_of("read", key, FailureReason::Short, ""));
            }
            self.traffic.received(range.end - range.start);
            let bytes = bytes.slice(range.start as usize..range.end as usize);
            Ok(StoredObject { bytes, version })
        })
    }

    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>> {
        Box::pin(async move {
            let length = self.objects.lock().get(key).map_or(0, |bytes| bytes.len() as u64);
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
        when: WriteCondition,
    ) -> BoxFuture<'a, Result<Option<ObjectVersion>, ServiceError>> {
        Box::pin(async move {
            self.traffic.request(RequestKind::Put);
            self.write_now(key, bytes, &when).map(Some)
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, ServiceError>> {
        Box::pin(async move {
            self.traffic.request(RequestKind::List);
            let objects = self.objects.lock();
            let listed = objects.iter().filter(|(key, _)| key.starts_with(prefix));
            let listed = listed
                .map(|(key, bytes)| (key.clone(), bytes.len() as u64))
                .map(|(key, bytes)| ListedObject { key, bytes, modified_secs: None });
            Ok(listed.collect())
        })
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>> {
        Box::pin(async move {
            self.traffic.request(RequestKind::Head);
            Ok(self.objects.lock().get(key).map(|bytes| bytes.len() as u64))
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            self.traffic.request(RequestKind::Delete);
            self.objects.lock().remove(key);
            Ok(())
        })
    }

    fn conditions(&self) -> ConditionalWrites {
        self.reported
    }

    fn takes_conditions(&self) -> ConditionalWrites {
        self.honoured
    }
}

fn version_of(bytes: &Bytes) -> ObjectVersion {
    ObjectVersion { etag: Some(blake3::hash(bytes).to_hex().to_string()), generation: None }
}

fn error_of(
    operation: &'static str,
    key: &str,
    what: FailureReason,
    message: &str,
) -> ServiceError {
    ServiceError::new(operation, key, what, message.to_owned())
}
