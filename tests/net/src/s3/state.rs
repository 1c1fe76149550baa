//! The state of the server. Each change is atomic.
//!
//! One mutex protects the whole state (see [`Shared`]). A condition is checked under the same
//! lock as the write, so exactly one of several racing creators wins.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use http::StatusCode;
use parking_lot::{Mutex, MutexGuard};
use s3s::{
    S3Error, S3ErrorCode, S3Result,
    dto::{CompletedPart, ETagCondition},
    s3_error,
};

use super::{Conditions, Denied, object::Object};

/// The state, shared by the server and the test.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<State>>);

impl Shared {
    /// Locks the state.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// The whole state of the server.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) buckets: BTreeMap<String, Bucket>,
    /// The requests that are refused with 403.
    pub(super) denied: Denied,
    /// Most bytes in all objects and parts; a write beyond it gets 507.
    pub(super) capacity_bytes: Option<u64>,
    /// The treatment of conditional writes.
    pub(super) conditions: Conditions,
    /// Minimum length of a part, except for the last part.
    pub(super) part_bytes_min: u64,
    uploads_begun: u64,
}

/// One bucket.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub(super) objects: BTreeMap<String, Object>,
    /// If set, listings show these objects instead of `objects`.
    pub(super) stale: Option<BTreeMap<String, Object>>,
    /// Keys that are listed but not found.
    pub(super) forgotten: BTreeSet<String>,
    /// Unfinished multipart uploads, by id.
    pub(super) uploads: BTreeMap<String, Upload>,
}

/// A multipart upload.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) key: String,
    pub(super) parts: BTreeMap<i32, Object>,
}

/// The condition of a write.
#[derive(Debug, Default)]
pub(super) struct Condition {
    pub(super) matches: Option<ETagCondition>,
    pub(super) matches_not: Option<ETagCondition>,
}

impl Condition {
    fn is_one(&self) -> bool {
        self.matches.is_some() || self.matches_not.is_some()
    }

    /// Checks the condition against the existing object.
    fn check(&self, there: Option<&Object>) -> S3Result<()> {
        let is = |condition: &ETagCondition, object: &Object| match condition {
            ETagCondition::Any => true,
            ETagCondition::ETag(tag) => tag.strong_cmp(&object.tag()),
        };
        if let (Some(condition), Some(object)) = (&self.matches_not, there)
            && is(condition, object)
        {
            return Err(failed());
        }
        match (&self.matches, there) {
            (Some(_), None) => Err(s3_error!(NoSuchKey)),
            (Some(condition), Some(object)) if !is(condition, object) => Err(failed()),
            _ => Ok(()),
        }
    }
}

/// Returns the error for a condition that does not hold (412).
pub(super) fn failed() -> S3Error {
    s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold")
}

impl State {
    /// Returns a bucket for reading.
    pub(super) fn read(&self, bucket: &str) -> S3Result<&Bucket> {
        if self.denied == Denied::Everything {
            return Err(s3_error!(AccessDenied, "Access Denied"));
        }
        self.buckets.get(bucket).ok_or_else(|| s3_error!(NoSuchBucket))
    }

    /// Returns a bucket for writing `more` bytes.
    pub(super) fn write(&mut self, bucket: &str, more: u64) -> S3Result<&mut Bucket> {
        if self.denied != Denied::Nothing {
            return Err(s3_error!(AccessDenied, "Access Denied"));
        }
        if more > 0 && self.capacity_bytes.is_some_and(|bytes| self.bytes() + more > bytes) {
            let code = S3ErrorCode::Custom("InsufficientStorage".into());
            let mut full = S3Error::with_message(code, "There is no space left");
            full.set_status_code(StatusCode::INSUFFICIENT_STORAGE);
            return Err(full);
        }
        self.buckets.get_mut(bucket).ok_or_else(|| s3_error!(NoSuchBucket))
    }

    /// Returns the bytes of all objects and parts.
    fn bytes(&self) -> u64 {
        let in_parts = |upload: &Upload| upload.parts.values().map(Object::len).sum::<u64>();
        self.buckets
            .values()
            .map(|bucket| {
                bucket.objects.values().map(Object::len).sum::<u64>()
                    + bucket.uploads.values().map(in_parts).sum::<u64>()
            })
            .sum()
    }

    /// Writes an object if the condition holds.
    pub(super) fn put(
        &mut self,
        bucket: &str,
        key: String,
        object: Object,
        condition: &Condition,
    ) -> S3Result<()> {
        let conditions = self.conditions;
        let bucket = self.write(bucket, object.len())?;
        match conditions {
            Conditions::Kept => condition.check(bucket.find(&key))?,
            Conditions::Refused if condition.is_one() => {
                return Err(s3_error!(NotImplemented, "A header you provided is not implemented"));
            }
            Conditions::Refused | Conditions::Ignored => {}
        }
        bucket.insert(key, object);
        Ok(())
    }

    /// Removes an object if the condition holds.
    pub(super) fn delete(
        &mut self,
        bucket: &str,
        key: &str,
        condition: &Condition,
    ) -> S3Result<()> {
        let bucket = self.write(bucket, 0)?;
        condition.check(bucket.find(key))?;
        bucket.objects.remove(key);
        bucket.forgotten.remove(key);
        Ok(())
    }

    /// Starts a multipart upload and returns its id.
    pub(super) fn begin(&mut self, bucket: &str, key: String) -> S3Result<String> {
        let id = format!("upload-{}", self.uploads_begun + 1);
        let upload = Upload { key, parts: BTreeMap::new() };
        self.write(bucket, 0)?.uploads.insert(id.clone(), upload);
        self.uploads_begun += 1;
        Ok(id)
    }

    /// Stores a part, and replaces an earlier one with the same number.
    pub(super) fn put_part(
        &mut self,
        bucket: &str,
        upload: (&str, &str),
        number: i32,
        part: Object,
    ) -> S3Result<()> {
        if !(1..=10_000).contains(&number) {
            return Err(s3_error!(InvalidArgument, "part numbers are 1 to 10000"));
        }
        let bucket = self.write(bucket, part.len())?;
        bucket.upload(upload)?.parts.insert(number, part);
        Ok(())
    }

    /// Completes a multipart upload if the condition holds. Otherwise the upload stays, as on S3.
    pub(super) fn complete(
        &mut self,
        bucket: &str,
        upload: (&str, &str),
        wanted: &[CompletedPart],
        condition: &Condition,
    ) -> S3Result<Object> {
        let part_bytes_min = self.part_bytes_min;
        let bucket = self.write(bucket, 0)?;
        let parts = chosen(&bucket.upload(upload)?.parts, wanted, part_bytes_min)?;
        let (key, id) = upload;
        condition.check(bucket.find(key))?;
        let object = Object::from_parts(&parts);
        bucket.uploads.remove(id);
        bucket.insert(key.to_owned(), object.clone());
        Ok(object)
    }
}

impl Bucket {
    /// Returns the object, unless it is forgotten.
    pub(super) fn find(&self, key: &str) -> Option<&Object> {
        self.objects.get(key).filter(|_| !self.forgotten.contains(key))
    }

    /// Writes an object unconditionally.
    pub(super) fn insert(&mut self, key: String, object: Object) {
        self.forgotten.remove(&key);
        self.objects.insert(key, object);
    }

    /// Returns the upload to `key` with this `id`.
    pub(super) fn upload(&mut self, (key, id): (&str, &str)) -> S3Result<&mut Upload> {
        self.uploads
            .get_mut(id)
            .filter(|upload| upload.key == key)
            .ok_or_else(|| s3_error!(NoSuchUpload))
    }
}

/// Returns the parts that a client selected, checked as S3 does.
fn chosen(
    parts: &BTreeMap<i32, Object>,
    wanted: &[CompletedPart],
    part_bytes_min: u64,
) -> S3Result<Vec<Object>> {
    let (mut found, mut before) = (Vec::new(), 0);
    for (index, want) in wanted.iter().enumerate() {
        let number = want.part_number.unwrap_or_default();
        let part = parts.get(&number).ok_or_else(|| s3_error!(InvalidPart))?;
        if want.e_tag.as_ref().is_some_and(|tag| !tag.strong_cmp(&part.tag())) {
            return Err(s3_error!(InvalidPart));
        }
        if number <= before {
            return Err(s3_error!(InvalidPartOrder));
        }
        if index + 1 < wanted.len() && part.len() < part_bytes_min {
            return Err(s3_error!(EntityTooSmall));
        }
        before = number;
        found.push(part.clone());
    }
    if found.is_empty() {
        return Err(s3_error!(MalformedXML, "an upload needs a part"));
    }
    Ok(found)
}
