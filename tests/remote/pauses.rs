//! Pauses between attempts: as long as a service asks for, or until a stop request. In virtual
//! time.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use snap_remote::bucket::{
    Attempt, Body, Bucket, BucketFacts, CancellationToken, ConditionalWrites, FailureReason,
    ListDepth, ListedObject, MultipartUpload, ObjectVersion, ServiceError, StoredObject,
    UploadNote, UploadProgress,
    client::{Client, RequestPolicy, TransferLimits, WHOLE_BYTES},
};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// A service that is busy for some requests.
#[derive(Debug)]
struct Busy {
    /// Number of requests that are still refused.
    refused: Mutex<u32>,
    wait: Duration,
    aborted: Arc<AtomicBool>,
}

/// An upload whose parts never arrive.
struct Stuck(Arc<AtomicBool>);

impl MultipartUpload for Stuck {
    fn send_part(&mut self, _: Bytes) -> Attempt<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn finish(&mut self) -> Attempt<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn abort(&mut self) -> Attempt<'_, ()> {
        self.0.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Busy {
    fn reply<T: Send + 'static>(&self, value: T) -> Attempt<'_, T> {
        Box::pin(async move {
            sleep(SECOND).await;
            let mut refused = self.refused.lock();
            if *refused == 0 {
                return Ok(value);
            }
            *refused -= 1;
            let error = ServiceError::new("ask", "x", FailureReason::Busy, String::new());
            Err(ServiceError { retry_after: Some(self.wait), ..error })
        })
    }
}

/// Returns a stop flag that is set after `pause`.
fn stop_after(pause: Duration) -> CancellationToken {
    let end = Instant::now() + pause;
    CancellationToken::from_fn(move || Instant::now() >= end)
}

static FACTS: BucketFacts = BucketFacts::new(ConditionalWrites::ALL);

impl Bucket for Busy {
    fn facts(&self) -> &BucketFacts {
        &FACTS
    }

    fn get<'a>(&'a self, _: &'a str, _: u64) -> Attempt<'a, StoredObject> {
        self.reply(StoredObject { bytes: Bytes::new(), version: None })
    }

    fn get_range<'a>(&'a self, _: &'a str, range: Range<u64>) -> Attempt<'a, Bytes> {
        self.reply(vec![0; (range.end - range.start) as usize].into())
    }

    fn put<'a>(&'a self, _: &'a str, _: Body) -> Attempt<'a, Option<ObjectVersion>> {
        self.reply(None)
    }

    fn list<'a>(&'a self, _: &'a str, _: ListDepth) -> Attempt<'a, Vec<ListedObject>> {
        self.reply(Vec::new())
    }

    fn head<'a>(&'a self, _: &'a str) -> Attempt<'a, Option<u64>> {
        self.reply(None)
    }

    fn delete<'a>(&'a self, _: &'a [String]) -> Attempt<'a, ()> {
        self.reply(())
    }

    fn upload(&self, _: &str, _: Arc<UploadNote>) -> Option<Box<dyn MultipartUpload>> {
        Some(Box::new(Stuck(Arc::clone(&self.aborted))))
    }
}

fn client(refused: u32, wait: Duration, stop: Duration, policy: RequestPolicy) -> Client {
    let busy = Busy { refused: Mutex::new(refused), wait, aborted: Arc::default() };
    Client::new(Arc::new(busy), policy, Arc::default()).with_cancellation(stop_after(stop))
}

#[tokio::test(start_paused = true)]
async fn retry_after_delays_the_next_attempt() {
    let began = Instant::now();
    let client = client(2, SECOND * 40, SECOND * 1000, RequestPolicy::default());
    client.list("").await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 1 + 40 + 1 + 40 + 1);
}

#[tokio::test(start_paused = true)]
async fn cancellation_ends_a_retry_pause() {
    let began = Instant::now();
    let client = client(9, SECOND * 40, SECOND * 50, RequestPolicy::default());
    let error = client.put("x", Bytes::new()).await.unwrap_err();
    assert_eq!((error.reason, began.elapsed().as_secs()), (FailureReason::Stopped, 50));
}

#[tokio::test(start_paused = true)]
async fn cancellation_ends_a_rate_limit_delay() {
    let began = Instant::now();
    let limits = TransferLimits { upload: Some(10), download: Some(10) };
    let client =
        client(0, SECOND, SECOND * 50, RequestPolicy { limits, ..RequestPolicy::default() });
    let error = loop {
        if let Err(error) = client.get_range("x", 0..1000).await {
            break error;
        }
    };
    assert_eq!((error.reason, began.elapsed().as_secs()), (FailureReason::Stopped, 50));
}

#[tokio::test]
async fn cancellation_aborts_a_multipart_upload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    let length = WHOLE_BYTES + 1;
    fs_err::File::create(&path).unwrap().set_len(length).unwrap();
    let aborted = Arc::<AtomicBool>::default();
    let busy = Busy { refused: Mutex::default(), wait: SECOND, aborted: aborted.clone() };
    let client = Client::new(Arc::new(busy), RequestPolicy::default(), Arc::default());
    let client = client.with_cancellation(stop_after(SECOND / 2));
    let written = client.put_file("x", &path, length, &UploadProgress::default()).await;
    assert_eq!(written.unwrap_err().reason, FailureReason::Stopped);
    assert!(aborted.load(Ordering::Relaxed));
}
