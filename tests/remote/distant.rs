//! Blocking reads of remote packs: which requests are sent, how much is held, and that no thread
//! waits for ever.

use std::{
    future::ready,
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use snap_core::{
    base::{id::PackId, kind::ErrorKind},
    store::RemoteFrames,
};
use snap_remote::{
    bucket::{
        Attempt, Body, Bucket, BucketFacts, ConditionalWrites, FailureReason, ListDepth,
        ListedObject, ObjectVersion, ServiceError, StoredObject,
        client::{Client, RequestPolicy},
        traffic::Traffic,
    },
    peer::RemoteStore,
    ranges::{FetchRange, JobOptions, LinkEstimate, NeededRange, RangePlanner},
    remote_packs::{BlockingContext, PrefetchBudget, RemotePacks},
};
use snap_testkit::wait::until;
use tokio::{runtime::Runtime, sync::Semaphore, time::Instant};

use super::ranges::{broken, bytes_at};

/// Objects whose bytes are computed from their positions.
#[derive(Debug, Default)]
struct Endless {
    latency: Duration,
    /// A request is answered once it has a permit.
    held: Option<Semaphore>,
    /// While set, no request is answered.
    silent: AtomicBool,
    fails: AtomicU64,
    requests: Mutex<Vec<Range<u64>>>,
    under_way: AtomicU64,
    /// Bytes sent in answers.
    answered: AtomicU64,
}

static FACTS: BucketFacts = BucketFacts::new(ConditionalWrites::NONE);

impl Bucket for Endless {
    fn facts(&self) -> &BucketFacts {
        &FACTS
    }

    fn get_range<'a>(&'a self, key: &'a str, range: Range<u64>) -> Attempt<'a, Bytes> {
        Box::pin(async move {
            self.requests.lock().push(range.clone());
            self.under_way.fetch_add(1, Ordering::Relaxed);
            if self.silent.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(self.latency).await;
            if let Some(held) = &self.held {
                held.acquire().await.unwrap().forget();
            }
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            let fails = |left: u64| left.checked_sub(1);
            if self.fails.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails).is_ok() {
                return Err(ServiceError { reason: FailureReason::Denied, ..broken(key) });
            }
            self.answered.fetch_add(range.end - range.start, Ordering::Relaxed);
            Ok(bytes_at("", &range))
        })
    }

    fn get<'a>(&'a self, key: &'a str, _: u64) -> Attempt<'a, StoredObject> {
        Box::pin(ready(Err(broken(key))))
    }

    fn put<'a>(&'a self, _: &'a str, _: Body) -> Attempt<'a, Option<ObjectVersion>> {
        Box::pin(ready(Ok(None)))
    }

    fn list<'a>(&'a self, _: &'a str, _: ListDepth) -> Attempt<'a, Vec<ListedObject>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn head<'a>(&'a self, _: &'a str) -> Attempt<'a, Option<u64>> {
        Box::pin(ready(Ok(None)))
    }

    fn delete<'a>(&'a self, _: &'a [String]) -> Attempt<'a, ()> {
        Box::pin(ready(Ok(())))
    }
}

struct Here {
    runtime: Runtime,
    service: Arc<Endless>,
    packs: RemotePacks,
    remote: RemoteStore,
    stopped: Arc<AtomicBool>,
    _cache: tempfile::TempDir,
}

fn here(service: Endless) -> Here {
    let runtime = Runtime::new().unwrap();
    let service = Arc::new(service);
    let client = Client::new(Arc::clone(&service) as _, RequestPolicy::default(), Arc::default());
    let cache = tempfile::tempdir().unwrap();
    let remote = RemoteStore::new(client, "test://endless".to_owned(), cache.path()).unwrap();
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stopped);
    let stop = Arc::new(move || flag.load(Ordering::Relaxed));
    let packs =
        RemotePacks::new(&remote, BlockingContext { runtime: runtime.handle().clone(), stop });
    Here { runtime, service, packs, remote, stopped, _cache: cache }
}

fn pack() -> PackId {
    PackId::from_bytes([5; 32])
}

const FRAME: u64 = 1 << 20;

fn frame(number: u64) -> Range<u64> {
    number * FRAME..(number + 1) * FRAME
}

fn announced(count: u64) -> Vec<(PackId, Range<u64>)> {
    (0..count).map(|number| (pack(), frame(number))).collect()
}

#[test]
fn prefetched_bytes_are_fetched_once_for_all_threads() {
    let here = here(Endless::default());
    here.packs.prefetch(&announced(120));
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= 120 {
                        return;
                    }
                    let bytes = here.packs.read(pack(), frame(number)).unwrap();
                    assert!(bytes == bytes_at("", &frame(number)));
                }
            });
        }
    });
    let mut requests = here.service.requests.lock().clone();
    requests.sort_by_key(|range| range.start);
    assert!(requests.windows(2).all(|pair| pair[0].end <= pair[1].start), "{requests:?}");
    assert!(requests.len() <= 30, "{}", requests.len());
}

/// Returns true if a thread waits. `thread` is its folder in `/proc`.
fn waits(thread: &Path) -> bool {
    let stat = fs_err::read_to_string(Path::new("/proc").join(thread).join("stat")).unwrap();
    // The state follows the name, which is in parentheses.
    stat.rsplit_once(") ").unwrap().1.starts_with('S')
}

#[test]
fn concurrent_reads_of_a_range_share_one_request() {
    let here = here(Endless { held: Some(Semaphore::new(0)), ..Endless::default() });
    let threads = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                threads.lock().push(fs_err::read_link("/proc/thread-self").unwrap());
                here.packs.read(pack(), frame(3)).unwrap()
            });
        }
        until("all threads wait", || {
            let threads = threads.lock();
            threads.len() == 8 && threads.iter().all(|thread| waits(thread))
        });
        here.service.held.as_ref().unwrap().add_permits(1);
    });
    assert_eq!(here.service.requests.lock().len(), 1);
}

#[test]
fn prefetched_bytes_stay_within_the_budget() {
    let here = here(Endless::default());
    here.packs.prefetch(&announced(150));
    // The first range has arrived once all requests within the limit were sent.
    here.packs.read(pack(), frame(0)).unwrap();
    let asked = || -> u64 {
        here.service.requests.lock().iter().map(|range| range.end - range.start).sum()
    };
    assert!(asked() <= 64 << 20, "{}", asked());
    // A range that was announced last is still available to a thread that waits for it.
    let bytes = here.packs.read(pack(), frame(149)).unwrap();
    assert!(bytes == bytes_at("", &frame(149)));
    for number in 1..149 {
        let bytes = here.packs.read(pack(), frame(number)).unwrap();
        assert!(bytes == bytes_at("", &frame(number)));
        assert!(asked() <= (number + 66) << 20);
    }
    assert_eq!(asked(), 150 << 20);
}

#[test]
fn stores_with_a_shared_budget_stay_within_it() {
    const ROOM: u64 = 16 << 20;
    let here = here(Endless::default());
    let budget = PrefetchBudget::new(ROOM);
    let waiting = BlockingContext::without_stop(here.runtime.handle());
    let packs: Vec<RemotePacks> = (0..12)
        .map(|_| RemotePacks::with_shared_budget(&here.remote, waiting.clone(), &budget))
        .collect();
    for packs in &packs {
        packs.prefetch(&announced(40));
        assert!(budget.held_bytes() <= ROOM, "{}", budget.held_bytes());
    }
    for number in 0..30 {
        for packs in &packs {
            let bytes = packs.read(pack(), frame(number)).unwrap();
            assert!(bytes == bytes_at("", &frame(number)));
            // The budget may be exceeded by the range that a thread waited for.
            assert!(budget.held_bytes() <= ROOM + FRAME, "{}", budget.held_bytes());
        }
    }
    drop(packs);
    // The last ranges may be arriving just now.
    until("no range is held", || budget.held_bytes() == 0);
}

#[test]
fn only_the_failed_range_is_requested_again() {
    let here = here(Endless { fails: AtomicU64::new(1), ..Endless::default() });
    let error = here.packs.read(pack(), frame(0)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&pack().to_string()) && text.contains("test://endless"), "{text}");
    assert_eq!(here.packs.read(pack(), frame(0)).unwrap().len() as u64, FRAME);
    assert_eq!(here.service.requests.lock().len(), 2);
}

#[test]
fn waiting_reads_end_on_cancellation() {
    let here = here(Endless { silent: AtomicBool::new(true), ..Endless::default() });
    here.packs.prefetch(&announced(4));
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..6)
            .map(|number| {
                scope.spawn({
                    let packs = &here.packs;
                    move || packs.read(pack(), frame(number)).unwrap_err().kind
                })
            })
            .collect();
        here.stopped.store(true, Ordering::Relaxed);
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), ErrorKind::Interrupted);
        }
    });
}

#[test]
fn waiting_reads_fail_when_the_runtime_ends() {
    let Here { runtime, packs, .. } =
        here(Endless { silent: AtomicBool::new(true), ..Endless::default() });
    thread::scope(|scope| {
        let waiting = scope.spawn(|| packs.read(pack(), frame(0)));
        runtime.shutdown_background();
        assert_eq!(waiting.join().unwrap().unwrap_err().kind, ErrorKind::Unavailable);
    });
}

#[tokio::test(start_paused = true)]
async fn scattered_ranges_take_four_round_trips_with_a_real_client() {
    let latency = Duration::from_millis(100);
    let service = Arc::new(Endless { latency, ..Endless::default() });
    let traffic: Arc<Traffic> = Arc::default();
    let client = Client::new(Arc::clone(&service) as _, RequestPolicy::default(), traffic);
    let fetch: Arc<dyn FetchRange> = Arc::new(client);
    let planner = RangePlanner::new(fetch, Arc::<LinkEstimate>::default(), JobOptions::default());
    let wanted = |number: u64| NeededRange {
        key: "a".into(),
        range: number * (2 << 20)..number * (2 << 20) + 10_000,
    };
    let begin = Instant::now();
    let all = planner.start((0..500).map(wanted).collect()).all().await.unwrap();
    assert_eq!(all.len(), 500);
    assert!(begin.elapsed() <= 4 * latency, "{:?}", begin.elapsed());
    assert!(service.answered.load(Ordering::Relaxed) <= 500 * 15_000);
}
