//! Services that OpenDAL reaches. Nothing outside of this module knows it.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use opendal::{Error, ErrorKind, Metadata, OperationContext, Operator, options};

use super::{
    Conditions, Listed, Object, Service, ServiceError, Version, What, When,
    traffic::{Kind, Traffic},
    transport::{Reply, Transport},
};

/// A service behind an operator.
#[derive(Debug)]
pub struct Bucket {
    operator: Operator,
    /// Requests are counted here when they are none of HTTP.
    traffic: Option<Arc<Traffic>>,
}

impl Bucket {
    /// A service that speaks HTTP, over `transport`.
    pub fn over_http(operator: Operator, transport: Transport) -> Self {
        let context = OperationContext::new().with_http_transport(transport.into());
        Self { operator: operator.with_context(context), traffic: None }
    }

    /// A service of another kind, whose operations are counted in `traffic`.
    pub fn plain(operator: Operator, traffic: Arc<Traffic>) -> Self {
        Self { operator, traffic: Some(traffic) }
    }

    fn count(&self, kind: Kind, sent: usize, received: usize) {
        if let Some(traffic) = &self.traffic {
            traffic.request(kind);
            traffic.sent(sent as u64);
            traffic.received(received as u64);
        }
    }

    async fn read_now(
        &self,
        key: &str,
        range: Option<Range<u64>>,
    ) -> Result<Object, opendal::Error> {
        let reader = self.operator.reader_options(key, options::ReaderOptions::default()).await?;
        let buffer = match &range {
            Some(range) => reader.read(range.clone()).await?,
            None => reader.read(..).await?,
        };
        let version = reader.metadata().and_then(version_of);
        let bytes = buffer.to_bytes();
        self.count(Kind::Get, 0, bytes.len());
        Ok(Object { bytes, version })
    }
}

impl Service for Bucket {
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'a, Result<Object, ServiceError>> {
        Box::pin(async move {
            let wanted = range.as_ref().map(|range| range.end - range.start);
            let (result, reply) = Reply::of(self.read_now(key, range)).await;
            let object = result.map_err(|error| told("read", key, &error, reply))?;
            match wanted {
                Some(wanted) if object.bytes.len() as u64 != wanted => Err(ServiceError {
                    operation: "read",
                    key: key.to_owned(),
                    what: What::Short,
                    message: format!("it ends {} B early", wanted - object.bytes.len() as u64),
                    retry_after: None,
                }),
                _ => Ok(object),
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
            let mut options = options::WriteOptions::default();
            match when {
                When::Always => {}
                When::Absent => options.if_not_exists = true,
                When::Unchanged(version) => options.if_not_changed = Some(metadata_of(&version)),
            }
            self.count(Kind::Put, bytes.len(), 0);
            let write = self.operator.write_options(key, bytes, options);
            let (result, reply) = Reply::of(write).await;
            let metadata = result.map_err(|error| told("write", key, &error, reply))?;
            Ok(version_of(&metadata))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, ServiceError>> {
        Box::pin(async move {
            let options = options::ListOptions { recursive: true, ..Default::default() };
            let (result, reply) = Reply::of(self.operator.list_options(prefix, options)).await;
            self.count(Kind::List, 0, 0);
            let entries = match result {
                Ok(entries) => entries,
                // Folders that are not there hold nothing.
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(told("list", prefix, &error, reply)),
            };
            let listed = entries.into_iter().filter(|entry| entry.metadata().mode().is_file());
            Ok(listed
                .map(|entry| Listed {
                    key: entry.path().to_owned(),
                    bytes: entry.metadata().content_length(),
                })
                .collect())
        })
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>> {
        Box::pin(async move {
            self.count(Kind::Head, 0, 0);
            let (result, reply) = Reply::of(self.operator.stat(key)).await;
            match result {
                Ok(metadata) => Ok(Some(metadata.content_length())),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(told("stat", key, &error, reply)),
            }
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            self.count(Kind::Delete, 0, 0);
            let (result, reply) = Reply::of(self.operator.delete(key)).await;
            result.map_err(|error| told("remove", key, &error, reply))
        })
    }

    fn conditions(&self) -> Conditions {
        let can = self.operator.info().capability();
        let unchanged = can.write_with_if_match || can.write_with_if_version_match;
        Conditions { absent: can.write_with_if_not_exists, unchanged }
    }
}

fn version_of(metadata: &Metadata) -> Option<Version> {
    let (etag, generation) = (metadata.etag(), metadata.version());
    let version =
        Version { etag: etag.map(str::to_owned), generation: generation.map(str::to_owned) };
    (etag.is_some() || generation.is_some()).then_some(version)
}

fn metadata_of(version: &Version) -> Metadata {
    let mut builder = opendal::MetadataBuilder::unknown();
    if let Some(etag) = &version.etag {
        builder.etag(etag.as_str());
    }
    if let Some(generation) = &version.generation {
        builder.version(generation.as_str());
    }
    builder.build()
}

/// Codes with which S3 and those like it refuse, and what they mean.
const CODES: [(&str, What); 12] = [
    ("RequestTimeTooSkewed", What::Clock),
    ("ExpiredToken", What::Expired),
    ("TokenRefreshRequired", What::Expired),
    ("InvalidAccessKeyId", What::Unauthenticated),
    ("SignatureDoesNotMatch", What::Unauthenticated),
    ("InvalidToken", What::Unauthenticated),
    ("AuthorizationHeaderMalformed", What::Unauthenticated),
    ("NoSuchBucket", What::NoBucket),
    ("QuotaExceeded", What::Full),
    ("InsufficientStorage", What::Full),
    ("SlowDown", What::Busy),
    ("AccessDenied", What::Denied),
];

fn told(operation: &'static str, key: &str, error: &Error, reply: Reply) -> ServiceError {
    let text = error.to_string();
    let code = CODES.iter().find(|(code, _)| text.contains(code)).map(|(_, what)| *what);
    let by_status = match reply.status {
        Some(401) => Some(What::Unauthenticated),
        Some(413 | 507) => Some(What::Full),
        Some(429 | 503) => Some(What::Busy),
        Some(500 | 502 | 504 | 408) => Some(What::Temporary),
        None if reply.asked => Some(What::Unreachable),
        _ => None,
    };
    let by_kind = || match error.kind() {
        ErrorKind::NotFound => What::NotFound,
        ErrorKind::ConditionNotMatch | ErrorKind::AlreadyExists => What::Conflict,
        ErrorKind::PermissionDenied => What::Denied,
        ErrorKind::RateLimited => What::Busy,
        ErrorKind::RangeNotSatisfied => What::Short,
        // A whole answer, of a range that reaches beyond the end.
        ErrorKind::Unexpected if !error.is_temporary() && text.contains("too little data") => {
            What::Short
        }
        ErrorKind::Unsupported => What::Unsupported,
        _ if error.is_temporary() => What::Temporary,
        _ => What::Other,
    };
    ServiceError {
        operation,
        key: key.to_owned(),
        what: code.or(by_status).unwrap_or_else(by_kind),
        message: plain(&text),
        retry_after: reply.retry_after,
    }
}

/// What is said at the end of OpenDAL's text, without the parts for developers.
fn plain(text: &str) -> String {
    let after = text.split_once(" => ").map_or(text, |(_, after)| after);
    after.trim().chars().filter(|char| !char.is_control()).take(300).collect()
}
