//! A bucket in the memory of this process, for tests.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{
    Attempt, Body, Bucket, BucketFacts, ConditionalWrites, FailureReason, ListDepth, ListedObject,
    ObjectVersion, ServiceError, StoredObject, WriteCondition, check_hash, no_conditions, too_long,
};

type SharedObjects = Arc<Mutex<BTreeMap<String, Bytes>>>;

/// The objects of each `memory://` location.
static NAMED: LazyLock<Mutex<HashMap<String, SharedObjects>>> = LazyLock::new(Mutex::default);

/// Objects in memory.
#[derive(Debug)]
pub struct MemoryBucket {
    objects: SharedObjects,
    facts: BucketFacts,
}

impl MemoryBucket {
    /// Returns the bucket of this name. All buckets of one name share their objects.
    pub fn named(name: &str) -> Self {
        let objects = Arc::clone(NAMED.lock().entry(name.to_owned()).or_default());
        Self { objects, facts: BucketFacts::new(ConditionalWrites::ALL) }
    }

    /// Limits the conditions that the bucket honours and reports.
    #[must_use]
    pub fn with_conditions(self, conditions: ConditionalWrites) -> Self {
        Self { facts: BucketFacts::new(conditions), ..self }
    }

    /// Makes the bucket report no conditions, although it honours them.
    #[must_use]
    pub fn claimed(self) -> Self {
        let conditions = ConditionalWrites::NONE;
        Self { facts: BucketFacts { conditions, ..self.facts }, ..self }
    }

    fn write_now(
        &self,
        key: &str,
        bytes: Bytes,
        when: &WriteCondition,
    ) -> Result<ObjectVersion, ServiceError> {
        let mut objects = self.objects.lock();
        let now = objects.get(key).map(version_of);
        let honoured = self.facts.takes_conditions;
        let (holds, can) = match when {
            WriteCondition::Always => (true, true),
            WriteCondition::Absent => (now.is_none(), honoured.absent),
            WriteCondition::Unchanged(version) => {
                (now.as_ref() == Some(version), honoured.unchanged)
            }
        };
        if !can {
            return Err(no_conditions(key));
        }
        if !holds {
            return Err(error_of("write", key, FailureReason::Conflict));
        }
        let version = version_of(&bytes);
        objects.insert(key.to_owned(), bytes);
        Ok(version)
    }
}

impl Bucket for MemoryBucket {
    fn facts(&self) -> &BucketFacts {
        &self.facts
    }

    fn get<'a>(&'a self, key: &'a str, most: u64) -> Attempt<'a, StoredObject> {
        Box::pin(async move {
            match self.objects.lock().get(key).cloned() {
                None => Err(error_of("read", key, FailureReason::NotFound)),
                Some(bytes) if bytes.len() as u64 > most => Err(too_long(key, most)),
                Some(bytes) => Ok(StoredObject { version: Some(version_of(&bytes)), bytes }),
            }
        })
    }

    fn get_range<'a>(&'a self, key: &'a str, range: Range<u64>) -> Attempt<'a, Bytes> {
        Box::pin(async move {
            let bytes = self.get(key, u64::MAX).await?.bytes;
            match range.end > bytes.len() as u64 {
                true => Err(error_of("read", key, FailureReason::Short)),
                false => Ok(bytes.slice(range.start as usize..range.end as usize)),
            }
        })
    }

    fn put<'a>(&'a self, key: &'a str, body: Body) -> Attempt<'a, Option<ObjectVersion>> {
        Box::pin(async move {
            let bytes = body.read(key, 0..body.length()).await?;
            if let Body::File(..) = body {
                check_hash(key, blake3::hash(&bytes))?;
            }
            self.write_now(key, bytes, &WriteCondition::Always).map(Some)
        })
    }

    fn put_if<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> Attempt<'a, Option<ObjectVersion>> {
        Box::pin(async move { self.write_now(key, bytes, &when).map(Some) })
    }

    fn delete<'a>(&'a self, keys: &'a [String]) -> Attempt<'a, ()> {
        Box::pin(async move {
            let mut objects = self.objects.lock();
            keys.iter().for_each(|key| drop(objects.remove(key)));
            Ok(())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, depth: ListDepth) -> Attempt<'a, Vec<ListedObject>> {
        Box::pin(async move {
            let objects = self.objects.lock();
            let inside = objects.iter().filter_map(|(key, bytes)| {
                let name = key.strip_prefix(prefix)?;
                let folder = name.find('/').filter(|_| depth != ListDepth::All);
                let key = key[..folder.map_or(key.len(), |at| prefix.len() + at + 1)].to_owned();
                Some(ListedObject { key, bytes: bytes.len() as u64, modified_secs: None })
            });
            let mut listed: Vec<_> = inside.collect();
            if let ListDepth::Level(most) = depth {
                listed.dedup_by(|one, other| one.key == other.key);
                listed.truncate(most);
            }
            Ok(listed)
        })
    }

    fn head<'a>(&'a self, key: &'a str) -> Attempt<'a, Option<u64>> {
        Box::pin(async move { Ok(self.objects.lock().get(key).map(|bytes| bytes.len() as u64)) })
    }
}

fn version_of(bytes: &Bytes) -> ObjectVersion {
    ObjectVersion { etag: Some(blake3::hash(bytes).to_hex().to_string()), generation: None }
}

fn error_of(operation: &'static str, key: &str, what: FailureReason) -> ServiceError {
    ServiceError::new(operation, key, what, String::new())
}
