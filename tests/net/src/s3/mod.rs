//! An S3 server in memory, with access to its state for tests.
//!
//! The protocol, including signatures (SigV4), is that of the `s3s` crate. The [`state`] is ours,
//! because conditional writes must be atomic. A test can read, change and damage objects past the
//! protocol. The server can also misbehave as real ones do: stale listings, lost objects, refused
//! requests, no space.
//!
//! Not supported: versions, copies, tags, ACLs, virtual-hosted buckets.

mod handler;
mod listing;
mod object;
mod state;

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};

use self::{
    handler::Handler,
    object::Object,
    state::{Bucket, Shared},
};
use crate::serve::Serving;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// The bucket that exists from the start.
    pub bucket: String,
    /// The accepted access key.
    pub access_key: String,
    /// The secret of that key.
    pub secret_key: String,
    /// Most entries on a page of a listing, whatever the client requests.
    pub page_entries: usize,
    /// Minimum length of a part of an upload, except for the last part.
    pub part_bytes_min: u64,
    /// The server ignores the header `Range`, and sends whole objects.
    pub ignores_ranges: bool,
}

impl Default for S3Options {
    fn default() -> Self {
        Self {
            bucket: "bucket".to_owned(),
            access_key: "SNAPTESTACCESSKEY".to_owned(),
            secret_key: "snap-test-secret-key".to_owned(),
            page_entries: 1_000,
            part_bytes_min: 5 << 20,
            ignores_ranges: false,
        }
    }
}

/// The requests that the server refuses with 403 for every client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Denied {
    /// Nothing.
    #[default]
    Nothing,
    /// Every request that writes or removes.
    Writes,
    /// Every request.
    Everything,
}

/// How the server treats conditional writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conditions {
    /// It honours the conditions.
    #[default]
    Kept,
    /// It ignores the conditions.
    Ignored,
    /// It answers a conditional write with 501.
    Refused,
}

/// An S3 server on its own port, stopped on drop.
#[derive(Debug)]
pub struct S3Server {
    serving: Serving,
    shared: Shared,
    options: S3Options,
}

impl S3Server {
    /// Region for signatures. Other regions are accepted as well.
    pub const REGION: &str = "us-east-1";

    /// Starts a server with one empty bucket.
    ///
    /// # Panics
    /// If a port or thread is not available.
    pub fn start(options: S3Options) -> Self {
        let shared = Shared::default();
        {
            let mut state = shared.lock();
            state.part_bytes_min = options.part_bytes_min;
            state.buckets.insert(options.bucket.clone(), Bucket::default());
        }
        let mut service = S3ServiceBuilder::new(Handler::new(shared.clone(), &options));
        service.set_auth(SimpleAuth::from_single(&*options.access_key, &*options.secret_key));
        let service = service.build();
        let serving = Serving::start(move |stream| {
            let service = service.clone();
            async move {
                // An error here means that the client has gone.
                let _gone =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            }
        });
        Self { serving, shared, options }
    }

    /// `http://127.0.0.1:PORT`, to be used with path-style requests.
    pub fn endpoint(&self) -> String {
        self.serving.endpoint()
    }

    /// Returns the access key.
    pub fn access_key(&self) -> &str {
        &self.options.access_key
    }

    /// Returns the secret key.
    pub fn secret_key(&self) -> &str {
        &self.options.secret_key
    }

    /// Returns the bucket that the functions below use.
    pub fn bucket(&self) -> &str {
        &self.options.bucket
    }

    /// Returns the AWS variables for a child process that reaches this server at `endpoint`,
    /// which is its own or that of a proxy. They hide the settings of the user who runs the test.
    pub fn environment(&self, endpoint: &str) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", self.options.access_key.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.options.secret_key.clone()),
            ("AWS_REGION", Self::REGION.to_owned()),
            ("AWS_ENDPOINT_URL", endpoint.to_owned()),
            ("AWS_CONFIG_FILE", "/dev/null".to_owned()),
            ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]
    }

    /// Returns all keys except for forgotten ones.
    pub fn keys(&self) -> Vec<String> {
        self.with(|bucket| {
            bucket.objects.keys().filter(|key| bucket.find(key).is_some()).cloned().collect()
        })
    }

    /// Returns the bytes of an object.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        self.with(|bucket| bucket.find(key).map(Object::bytes))
    }

    /// Writes an object unconditionally.
    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        let object = Object::new(bytes.into());
        self.with(|bucket| bucket.insert(key.to_owned(), object));
    }

    /// Removes an object; returns true if it existed.
    pub fn remove(&self, key: &str) -> bool {
        self.with(|bucket| bucket.objects.remove(key).is_some())
    }

    /// Changes the bytes of an object but not its ETag or time, as a disk failure does.
    ///
    /// # Panics
    /// If the object does not exist.
    pub fn damage(&self, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
        self.with(|bucket| {
            let object = bucket.find(key).expect("the object to damage exists");
            let mut bytes = object.bytes().to_vec();
            change(&mut bytes);
            let damaged = object.damaged(bytes.into());
            bucket.objects.insert(key.to_owned(), damaged);
        });
    }

    /// Flips one bit in the middle of an object.
    ///
    /// # Panics
    /// If the object does not exist or is empty.
    pub fn corrupt(&self, key: &str) {
        self.damage(key, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        });
    }

    /// Keeps an object in listings but answers that it does not exist, until it is written again.
    pub fn forget(&self, key: &str) {
        self.with(|bucket| bucket.forgotten.insert(key.to_owned()));
    }

    /// If `frozen`, listings show the current state for ever.
    pub fn freeze_listings(&self, frozen: bool) {
        self.with(|bucket| bucket.stale = frozen.then(|| bucket.objects.clone()));
    }

    /// Refuses these requests with 403 from now on.
    pub fn deny(&self, denied: Denied) {
        self.shared.lock().denied = denied;
    }

    /// Sets the treatment of conditional writes.
    pub fn set_conditions(&self, conditions: Conditions) {
        self.shared.lock().conditions = conditions;
    }

    /// Refuses with 507 a write that would exceed this many stored bytes, including the parts of
    /// unfinished uploads.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.lock().capacity_bytes = bytes;
    }

    /// Returns the keys of multipart uploads that are neither completed nor aborted.
    pub fn unfinished_uploads(&self) -> Vec<String> {
        self.with(|bucket| bucket.uploads.values().map(|upload| upload.key.clone()).collect())
    }

    /// Returns all objects of the bucket, for comparison or a later [`Self::load`].
    pub fn dump(&self) -> BTreeMap<String, Bytes> {
        self.with(|bucket| {
            let found = bucket.objects.iter().filter(|(key, _)| bucket.find(key).is_some());
            found.map(|(key, object)| (key.clone(), object.bytes())).collect()
        })
    }

    /// Replaces the content of the bucket. Unfinished uploads and misbehaviour end.
    pub fn load(&self, objects: BTreeMap<String, Bytes>) {
        let objects = objects.into_iter().map(|(key, bytes)| (key, Object::new(bytes))).collect();
        self.with(|bucket| *bucket = Bucket { objects, ..Bucket::default() });
    }

    fn with<T>(&self, act: impl FnOnce(&mut Bucket) -> T) -> T {
        let mut state = self.shared.lock();
        act(state.buckets.get_mut(&self.options.bucket).expect("the bucket is never removed"))
    }
}
