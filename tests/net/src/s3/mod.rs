//! An S3 server in memory, with what a test needs to look behind it.
//!
//! The protocol is that of the `s3s` crate, signatures (SigV4) included; what
//! it stands on is ours ([`state`]), because conditional writes must be atomic.
//! Objects can be read, changed and damaged past the protocol, and the server
//! can lie in the ways in which real ones do: stale listings, forgotten
//! objects, refusals, no space.
//!
//! Not there: versions, copies, tags, ACLs, virtual-hosted buckets.

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

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// Bucket that is there from the start.
    pub bucket: String,
    /// Access key that is let in.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// Most entries on a page of a listing, whatever the client asks for.
    pub page_entries: usize,
    /// Least length of a part of an upload that is not its last.
    pub part_bytes_min: u64,
}

impl Default for S3Options {
    fn default() -> Self {
        Self {
            bucket: "bucket".to_owned(),
            access_key: "SNAPTESTACCESSKEY".to_owned(),
            secret_key: "snap-test-secret-key".to_owned(),
            page_entries: 1_000,
            part_bytes_min: 5 << 20,
        }
    }
}

/// What a server refuses with 403, whoever asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Denied {
    /// Nothing.
    #[default]
    Nothing,
    /// Whatever writes or removes.
    Writes,
    /// Everything.
    Everything,
}

/// What becomes of the conditions of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conditions {
    /// They are kept.
    #[default]
    Kept,
    /// No notice is taken of them.
    Ignored,
    /// A write with one is answered with 501.
    Refused,
}

/// An S3 server on a port of its own, stopped when it is dropped.
#[derive(Debug)]
pub struct S3Server {
    serving: Serving,
    shared: Shared,
    options: S3Options,
}

impl S3Server {
    /// Region to name in signatures; any other is taken, too.
    pub const REGION: &str = "us-east-1";

    /// Starts a server with one empty bucket.
    ///
    /// # Panics
    /// When there is no port or thread to be had.
    pub fn start(options: S3Options) -> Self {
        let shared = Shared::default();
        {
            let mut state = shared.lock();
            state.part_bytes_min = options.part_bytes_min;
            state.buckets.insert(options.bucket.clone(), Bucket::default());
        }
        let mut service = S3ServiceBuilder::new(Handler::new(shared.clone(), options.page_entries));
        service.set_auth(SimpleAuth::from_single(&*options.access_key, &*options.secret_key));
        let service = service.build();
        let serving = Serving::start(move |stream| {
            let service = service.clone();
            async move {
                // An error here is a client that went away.
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

    /// The access key.
    pub fn access_key(&self) -> &str {
        &self.options.access_key
    }

    /// Its secret.
    pub fn secret_key(&self) -> &str {
        &self.options.secret_key
    }

    /// The bucket that all functions below are about.
    pub fn bucket(&self) -> &str {
        &self.options.bucket
    }

    /// The usual AWS variables for a child process that shall reach this
    /// server at `endpoint`, which is its own or a proxy's. Settings of the
    /// user who runs the test are kept away.
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

    /// All keys, forgotten ones left out.
    pub fn keys(&self) -> Vec<String> {
        self.with(|bucket| {
            bucket.objects.keys().filter(|key| bucket.find(key).is_some()).cloned().collect()
        })
    }

    /// The bytes of an object.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        self.with(|bucket| bucket.find(key).map(Object::bytes))
    }

    /// Writes an object, whatever is there.
    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        let object = Object::new(bytes.into());
        self.with(|bucket| bucket.insert(key.to_owned(), object));
    }

    /// Removes an object; says whether there was one.
    pub fn remove(&self, key: &str) -> bool {
        self.with(|bucket| bucket.objects.remove(key).is_some())
    }

    /// Changes an object's bytes but not its ETag or time, as a disk may.
    ///
    /// # Panics
    /// When there is no such object.
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
    /// When there is no such object, or nothing in it.
    pub fn corrupt(&self, key: &str) {
        self.damage(key, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        });
    }

    /// Lists an object further on, but does not find it, until it is written
    /// again.
    pub fn forget(&self, key: &str) {
        self.with(|bucket| bucket.forgotten.insert(key.to_owned()));
    }

    /// Whether listings show for ever what was there at this moment.
    pub fn freeze_listings(&self, frozen: bool) {
        self.with(|bucket| bucket.stale = frozen.then(|| bucket.objects.clone()));
    }

    /// Refuses with 403 from now on.
    pub fn deny(&self, denied: Denied) {
        self.shared.lock().denied = denied;
    }

    /// Does that with conditions from now on.
    pub fn set_conditions(&self, conditions: Conditions) {
        self.shared.lock().conditions = conditions;
    }

    /// Refuses with 507 what would make more than so many bytes of all that is
    /// stored; parts of unfinished uploads count.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.lock().capacity_bytes = bytes;
    }

    /// Keys of uploads in parts that are neither complete nor aborted.
    pub fn unfinished_uploads(&self) -> Vec<String> {
        self.with(|bucket| bucket.uploads.values().map(|upload| upload.key.clone()).collect())
    }

    /// Everything in the bucket, to compare it or to come back to it.
    pub fn dump(&self) -> BTreeMap<String, Bytes> {
        self.with(|bucket| {
            let found = bucket.objects.iter().filter(|(key, _)| bucket.find(key).is_some());
            found.map(|(key, object)| (key.clone(), object.bytes())).collect()
        })
    }

    /// Makes the bucket hold just this; unfinished uploads and lies end.
    pub fn load(&self, objects: BTreeMap<String, Bytes>) {
        let objects = objects.into_iter().map(|(key, bytes)| (key, Object::new(bytes))).collect();
        self.with(|bucket| *bucket = Bucket { objects, ..Bucket::default() });
    }

    fn with<T>(&self, act: impl FnOnce(&mut Bucket) -> T) -> T {
        let mut state = self.shared.lock();
        act(state.buckets.get_mut(&self.options.bucket).expect("the bucket is never removed"))
    }
}
