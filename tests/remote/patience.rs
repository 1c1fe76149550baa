//! Waiting: under rate limits, during silence, and until a stop request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use opendal::{Operator, services};
use parking_lot::Mutex;
use snap_core::base::observe::{Note, Observer};
use snap_nettest::{Fault, Kind, Proxy, Rule, S3Options, S3Server};
use snap_remote::{
    bucket::{
        Bucket, CancellationToken, ConditionalWrites, FailureReason, ListDepth, ServiceError,
        client::{Client, RequestPolicy, TransferLimits},
        memory::MemoryBucket,
        opendal::OpendalBucket,
        transport::Transport,
    },
    peer::{RefMove, RemoteError, claims::LEASE},
};
use snap_testkit::wait::PATIENCE;
use tokio::time::{Instant, sleep};

use crate::place::{Place, Wrapped, branch, bucket, hasty, swap};

const NONE: ConditionalWrites = ConditionalWrites { absent: false, unchanged: false };

fn virtual_time() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Returns a stop flag, and the variable that sets it.
fn stop() -> (CancellationToken, Arc<AtomicBool>) {
    let asked = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&asked);
    (CancellationToken::from_fn(move || told.load(SeqCst)), asked)
}

async fn ask_after(asked: Arc<AtomicBool>, seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
    asked.store(true, SeqCst);
}

#[tokio::test]
async fn a_stalled_response_body_times_out() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    server.put("x", vec![7; 100_000]);
    let service = |silence: Duration| {
        let builder = services::S3::default()
            .bucket(server.bucket())
            .region(S3Server::REGION)
            .endpoint(&proxy.endpoint())
            .access_key_id(server.access_key())
            .secret_access_key(server.secret_key())
            .disable_config_load();
        let transport = Transport::new(Arc::default()).unwrap().with_silence_timeout(silence);
        OpendalBucket::over_http(Operator::new(builder).unwrap(), transport, &proxy.endpoint())
    };
    let quick = service(Duration::from_millis(200));
    proxy.add(Rule::new(Fault::StallBody).kind(Kind::Get).times(2));
    // Without the timeout for silence, the test would hang.
    let (whole, range) = (quick.get("x", 100_000).await, quick.get_range("x", 10..90_000).await);
    for error in [whole.unwrap_err(), range.unwrap_err()] {
        assert_eq!(error.reason, FailureReason::Temporary, "{error}");
    }
    // A body that comes is read, however slow the machine is.
    let patient = service(PATIENCE);
    assert_eq!(patient.get("x", 100_000).await.unwrap().bytes.len(), 100_000);
}

#[tokio::test]
async fn the_rate_limit_applies_within_each_attempt() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let limited = |limits| {
        let service = bucket(&proxy.endpoint(), &server, &Arc::default());
        Client::new(service, RequestPolicy { limits, ..hasty() }, Arc::default())
    };
    let client = limited(TransferLimits { upload: Some(400_000), download: None });
    proxy.add(Rule::new(Fault::status(500)).kind(Kind::Put).times(1));
    let began = Instant::now();
    client.put("objects/x", vec![7; 100_000]).await.unwrap();
    // All pieces but the last have waited for the rate limit, twice.
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
    assert_eq!(server.get("some/prefix/objects/x").unwrap(), vec![7; 100_000]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs_err::write(&path, vec![8; 200_000]).unwrap();
    let began = Instant::now();
    let progress = snap_remote::bucket::UploadProgress::default();
    client.put_file("objects/y", &path, 200_000, &progress).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());

    server.put("some/prefix/z", vec![9; 1_000_000]);
    let client = limited(TransferLimits { upload: None, download: Some(2_000_000) });
    let began = Instant::now();
    assert_eq!(client.get("z", 1_000_000).await.unwrap().bytes, vec![9; 1_000_000]);
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
}

/// Returns a service that is busy, and asks for a pause of a minute.
fn busy() -> Arc<dyn Bucket> {
    let memory = Arc::new(MemoryBucket::named("busy"));
    Wrapped::failing_with(memory, |operation, key| {
        let error = ServiceError::new(operation, key, FailureReason::Busy, String::new());
        ServiceError { retry_after: Some(Duration::from_secs(60)), ..error }
    })
}

#[test]
fn cancellation_ends_retry_pauses_and_rate_limiting() {
    virtual_time().block_on(async {
        let (stop, asked) = stop();
        let client = Client::new(busy(), hasty(), Arc::default()).with_cancellation(stop.clone());
        let began = Instant::now();
        let (read, ()) =
            futures::join!(client.get("x", 1_000_000), ask_after(Arc::clone(&asked), 1));
        assert_eq!(read.unwrap_err().reason, FailureReason::Stopped);
        assert!(began.elapsed() < Duration::from_secs(2));

        asked.store(false, SeqCst);
        let memory = Arc::new(MemoryBucket::named("limited"));
        let policy = RequestPolicy {
            limits: TransferLimits { upload: Some(10), download: None },
            ..hasty()
        };
        let client = Client::new(memory, policy, Arc::default()).with_cancellation(stop);
        client.put("x", vec![7; 1000]).await.unwrap();
        let began = Instant::now();
        let write = client.put("x", vec![8; 10]);
        let (written, ()) = futures::join!(write, ask_after(Arc::clone(&asked), 1));
        assert_eq!(written.unwrap_err().reason, FailureReason::Stopped);
        assert!(began.elapsed() < Duration::from_secs(2));
        // A cleanup is done even after a stop request.
        client.delete_leftover("x").await.unwrap();
        asked.store(false, SeqCst);
        assert_eq!(client.head("x").await.unwrap(), None);
    });
}

/// Records the names of refs whose claims are waited for.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Observer for Told {
    fn note(&self, note: Note<'_>) {
        if let Note::RefClaimedElsewhere { name, location, .. } = note {
            self.0.lock().push(format!("{name} at {location}"));
        }
    }
}

#[test]
fn waiting_for_a_claim_is_reported_and_can_be_cancelled() {
    let memory = Arc::new(MemoryBucket::named("stopped_claim").with_conditions(NONE));
    let place = Place::new();
    let (stop, asked) = stop();
    let remote = place.remote_until(memory.clone(), "remote", stop);
    virtual_time().block_on(async {
        let theirs = "claims/heads/main/0123";
        memory.put(theirs, "\n".into()).await.unwrap();
        let slot = remote.place().slot(&branch("main")).await.unwrap();
        let told = Told::default();
        let began = Instant::now();
        let name = branch("main");
        let swap = remote.swap(RefMove { name: &name, expected: &slot, new: None }, &told);
        let (swapped, ()) = futures::join!(swap, ask_after(asked, 20));
        let RemoteError::Service(error) = swapped.unwrap_err() else { panic!("not stopped") };
        assert_eq!(error.reason, FailureReason::Stopped);
        assert!(began.elapsed() < LEASE);
        assert_eq!(*told.0.lock(), ["main at test://place"]);
        let left = memory.list("claims/", ListDepth::All).await.unwrap();
        assert_eq!(left.iter().map(|claim| &*claim.key).collect::<Vec<_>>(), [theirs]);
    });
}

#[test]
fn a_started_ref_write_completes_despite_cancellation() {
    let memory = Arc::new(MemoryBucket::named("begun").with_conditions(NONE));
    let place = Place::new();
    let (stop, asked) = stop();
    let service = Wrapped::new(memory.clone(), |_, operation, key| {
        let slow = operation == "write" && key.starts_with("refs/");
        Box::pin(async move {
            if slow {
                sleep(Duration::from_secs(10)).await;
            }
            false
        })
    });
    let remote = place.remote_until(service, "remote", stop);
    virtual_time().block_on(async {
        let name = branch("main");
        let slot = remote.place().slot(&name).await.unwrap();
        let new = snap_core::base::id::CommitId::of(b"new");
        let swap = swap(&remote, &name, &slot, Some(new));
        let (swapped, ()) = futures::join!(swap, ask_after(asked, 5));
        swapped.unwrap();
        assert_eq!(memory.list("claims/", ListDepth::All).await.unwrap(), []);
    });
}

#[test]
fn retries_with_retry_after_end_after_minutes() {
    for (secs, goes_well) in [(200, true), (100_000, false)] {
        virtual_time().block_on(async {
            let memory = Arc::new(MemoryBucket::named(&format!("busy_{secs}")));
            memory.put("x", "y".into()).await.unwrap();
            let began = Instant::now();
            let failing = Wrapped::new(memory, move |_, _, _| {
                Box::pin(async move { began.elapsed() < Duration::from_secs(secs) })
            });
            let mut failing = Arc::into_inner(failing).unwrap();
            failing.error = |operation, key| {
                let error = ServiceError::new(operation, key, FailureReason::Busy, String::new());
                ServiceError { retry_after: Some(Duration::from_secs(1)), ..error }
            };
            let client = Client::new(Arc::new(failing), hasty(), Arc::default());
            let read = client.get("x", 10).await;
            assert_eq!(read.is_ok(), goes_well, "{secs}");
            let took = began.elapsed();
            let most = Duration::from_secs(310);
            assert!(took >= Duration::from_secs(200) && took < most, "{took:?}");
        });
    }
}
