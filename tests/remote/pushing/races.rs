//! Concurrent clients: one wins, the others get an error, nothing is lost.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use snap_core::{base::id::CommitId, format::gc_state::GcState};
use snap_nettest::{Fault, Kind, Proxy, Rule, S3Options, S3Server};
use snap_remote::{
    bucket::{
        Attempt, Body, Bucket, BucketFacts, ConditionalWrites, FailureReason, ListDepth,
        ListedObject, ObjectVersion, ServiceError, StoredObject, memory::MemoryBucket,
    },
    peer::{CONDITIONS, ConditionProofs, NewStore, RemoteError, claims::LEASE},
    transfer::push,
};
use tokio::time::{Instant, sleep};

use crate::place::{Draw, Place, Wrapped, branch, bucket, complete, swap};

/// Runs `count` clients that push to their own branches and to a shared one.
fn clients_push(count: usize, rounds: usize) {
    let server = S3Server::start(S3Options::default());
    let service = || bucket(&server.endpoint(), &server, &Arc::default());
    let acknowledged: Mutex<HashMap<String, CommitId>> = Mutex::default();
    // The moves of the shared branch: the old and the new commit.
    let moves: Mutex<Vec<(Option<CommitId>, CommitId)>> = Mutex::default();
    std::thread::scope(|scope| {
        for who in 0..count {
            let (acknowledged, moves, service) = (&acknowledged, &moves, &service);
            scope.spawn(move || {
                let place = Place::new();
                let mut remote = place.remote(service(), "remote");
                for number in 0..rounds {
                    let commit = place.change("a", format!("{who} {number}"));
                    let own = format!("own/{who}");
                    let mut refs = vec![place.update(&own, commit), place.update("all", commit)];
                    refs[1].moves = push::AllowedMove::Force;
                    let outcome = place.push_all(&mut remote, refs).unwrap();
                    let [mine, shared] = &outcome.refs[..] else { panic!("two refs") };
                    mine.result.as_ref().unwrap();
                    acknowledged.lock().insert(own, commit);
                    match &shared.result {
                        Ok(()) => moves.lock().push((shared.before, shared.after)),
                        Err(RemoteError::Held { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    for (name, commit) in acknowledged.into_inner() {
        assert_eq!(complete(service(), &name), Some(commit), "{name}");
    }
    // The moves of the shared branch form one chain, from nothing to its current commit. So no
    // client moved it from a commit that another client had moved it from.
    let mut next: HashMap<Option<CommitId>, CommitId> = HashMap::new();
    for (before, after) in moves.into_inner() {
        assert!(next.insert(before, after).is_none(), "two clients moved the ref from {before:?}");
    }
    let mut at = None;
    while let Some(after) = next.remove(&at) {
        at = Some(after);
    }
    assert!(next.is_empty() && at.is_some(), "{next:?}");
    assert_eq!(complete(service(), "all"), at);
}

#[test]
fn two_clients_push_concurrently() {
    clients_push(2, 10);
}

#[test]
fn eight_clients_push_concurrently() {
    clients_push(8, 4);
}

#[test]
fn a_push_that_loses_a_race_reports_the_current_ref() {
    let memory = || Arc::new(MemoryBucket::named("loses"));
    let (here, there) = (Place::new(), Place::new());
    let base = here.change("a", "base");
    here.push(&mut here.remote(memory(), "remote"), base).unwrap();
    there.pull(&mut there.remote(memory(), "remote"), &branch("main")).unwrap();
    let (ours, theirs) = (here.change("a", "ours"), there.change("b", "theirs"));
    // The other client moves the ref after this one has read it, and before this one writes it.
    let race = Mutex::new(Some(there));
    let race = Arc::new(race);
    let service = Wrapped::new(memory(), move |_, operation, key| {
        let moves = operation == "write" && key.starts_with("refs/");
        let race = Arc::clone(&race);
        Box::pin(async move {
            if moves {
                let raced = tokio::task::spawn_blocking(move || {
                    let Some(there) = race.lock().take() else { return };
                    there.push(&mut there.remote(memory(), "remote"), theirs).unwrap();
                });
                raced.await.unwrap();
            }
            false
        })
    });
    let error = here.push(&mut here.remote(service, "remote"), ours).unwrap_err();
    assert!(matches!(error, RemoteError::Behind { theirs: at, .. } if at == theirs), "{error}");
    assert!(error.to_string().contains(&theirs.to_string()[..12]), "{error}");
    assert_eq!(complete(memory(), "main"), Some(theirs));
}

const NONE: ConditionalWrites = ConditionalWrites { absent: false, unchanged: false };

/// Returns a service without conditions. Each call is delayed before and after it takes effect,
/// by times drawn from a seed.
fn slow(name: &str, seed: u64) -> Arc<dyn Bucket> {
    slowed(MemoryBucket::named(name).with_conditions(NONE), seed)
}

/// As [`slow`], for any in-memory service.
fn slowed(memory: MemoryBucket, seed: u64) -> Arc<dyn Bucket> {
    let memory: Arc<dyn Bucket> = Arc::new(memory);
    let draw = Mutex::new(Draw(seed));
    let outer = Mutex::new(Draw(!seed));
    let inner = Wrapped::new(memory, move |_, _, _| {
        let pause = draw.lock().below(200);
        Box::pin(async move {
            sleep(Duration::from_millis(pause)).await;
            false
        })
    });
    Wrapped::new(inner, move |_, _, _| {
        let pause = outer.lock().below(200);
        Box::pin(async move {
            sleep(Duration::from_millis(pause)).await;
            false
        })
    })
}

fn virtual_time() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

fn made_up(number: u64) -> CommitId {
    CommitId::of(&number.to_be_bytes())
}

/// The old and the new commit of a move.
type Move = (Option<CommitId>, CommitId);

/// Runs clients that move one ref, each with its own service and after a pause. Returns the
/// acknowledged moves and the others.
async fn moves(
    service: impl Fn(u64) -> Arc<dyn Bucket>,
    seed: u64,
    (clients, longest_pause_ms): (u64, u64),
) -> (Vec<Move>, Vec<Move>) {
    let tasks = (0..clients).map(|who| {
        let service = service(who);
        let place = Place::new();
        let remote = place.remote(service, "remote");
        let task = async move {
            let (mut moved, mut raced) = (Vec::new(), Vec::new());
            let mut draw = Draw(seed * 100 + who);
            for number in 0..3 {
                sleep(Duration::from_millis(draw.below(longest_pause_ms))).await;
                let new = made_up(seed * 1_000 + who * 10 + number);
                let slot = remote.place().slot(&branch("main")).await.unwrap();
                match swap(&remote, &branch("main"), &slot, Some(new)).await {
                    Ok(()) => moved.push((slot.commit, new)),
                    Err(RemoteError::Raced { .. }) => raced.push((slot.commit, new)),
                    Err(error) => panic!("{error}"),
                }
            }
            (moved, raced)
        };
        // Returned, because a runtime must not be dropped inside another one.
        (task, place)
    });
    let (tasks, places): (Vec<_>, Vec<_>) = tasks.unzip();
    let moved = futures::future::join_all(tasks).await;
    tokio::task::spawn_blocking(move || drop(places)).await.unwrap();
    let (moved, raced): (Vec<_>, Vec<_>) = moved.into_iter().unzip();
    (moved.concat(), raced.concat())
}

/// Returns the last commit of moves that form one chain from nothing: no client moved the ref
/// from a commit that another client had moved it from. A raced move may be between two of them: a
/// client with a claim reads the ref again, and reports a race if another client has moved it since.
fn end_of_chain(moved: &[Move], raced: &[Move], seed: u64) -> Option<CommitId> {
    let mut next = HashMap::new();
    for (before, after) in moved {
        assert!(next.insert(*before, *after).is_none(), "seed {seed}: {moved:?}");
    }
    let mut at = None;
    loop {
        let unseen =
            raced.iter().find(|(before, after)| *before == at && next.contains_key(&Some(*after)));
        match next.remove(&at).or(unseen.map(|(_, after)| *after)) {
            Some(after) => at = Some(after),
            None => break,
        }
    }
    assert!(next.is_empty() && at.is_some(), "seed {seed}: {moved:?}");
    at
}

#[test]
fn mixed_claims_and_conditional_writes_lose_no_ref_move() {
    let mut all = 0;
    for seed in 0..40 {
        let name = format!("mixed_{seed}");
        let (key, state) = ("gc/state", GcState::first().encode());
        let memory = MemoryBucket::named(&name);
        virtual_time().block_on(memory.put(key, state.into())).unwrap();
        let service = |who| {
            let memory = MemoryBucket::named(&name);
            slowed(if who % 2 == 0 { memory } else { memory.claimed() }, seed * 100 + who)
        };
        let (moved, raced) = virtual_time().block_on(moves(service, seed, (2 + seed % 4, 3_000)));
        let at = end_of_chain(&moved, &raced, seed);
        let place = Place::new();
        let memory = Arc::new(MemoryBucket::named(&name));
        let remote = place.remote(memory, "remote");
        let stands = place.runtime.block_on(remote.place().slot(&branch("main"))).unwrap();
        assert_eq!(stands.commit, at, "seed {seed}: an acknowledged move is lost");
        all += moved.len();
    }
    assert!(all > 100, "only {all} moves succeeded");
}

#[test]
fn one_failed_trial_does_not_disable_conditional_writes() {
    let server = S3Server::start(S3Options::default());
    for (number, fault) in [Fault::error(501, ""), Fault::error(400, "Odd"), Fault::status(200)]
        .into_iter()
        .enumerate()
    {
        let proxy = Proxy::start(&server.endpoint());
        let place = Place::new();
        let service = bucket(&proxy.endpoint(), &server, &Arc::default());
        let unproven = service.facts().unproven_bucket.clone().unwrap();
        let mut remote = place.remote(service, "r");
        // The settings exist already, so the next write of them is the test of conditions.
        let new = NewStore { config: place.repo.config().to_text(), head: branch("main") };
        place.runtime.block_on(remote.create(&new)).unwrap();
        proxy.add(Rule::new(fault).kind(Kind::Put).path("config.toml").times(1));
        let commit = place.change("a", format!("{number}"));
        let name = format!("own/{number}");
        let pushed = place.push_all(&mut remote, vec![place.update(&name, commit)]).unwrap();
        pushed.all_moved().unwrap();
        let proofs = ConditionProofs::at(remote.mirror().store().dir().join(CONDITIONS));
        assert_eq!(proofs.get(&unproven), Some(true), "{number}");
        let claims = proxy.requests().iter().filter(|seen| seen.path.contains("claims")).count();
        assert_eq!(claims, 0, "{number}");
    }
}

#[test]
fn claims_prevent_lost_ref_moves_without_conditional_writes() {
    let mut all = 0;
    for seed in 0..40 {
        let name = format!("claims_{seed}");
        let runtime = virtual_time();
        let service = |who| slow(&name, seed * 100 + who);
        let (moved, _) = runtime.block_on(moves(service, seed, (2 + seed % 4, 1)));
        let at = end_of_chain(&moved, &[], seed);
        all += moved.len();
        let place = Place::new();
        let memory = Arc::new(MemoryBucket::named(&name).with_conditions(NONE));
        let remote = place.remote(memory.clone(), "remote");
        let stands = place.runtime.block_on(remote.place().slot(&branch("main"))).unwrap();
        assert_eq!(stands.commit, at, "seed {seed}");
        assert_eq!(place.runtime.block_on(memory.list("claims/", ListDepth::All)).unwrap(), []);
    }
    assert!(all > 100, "only {all} moves succeeded");
}

#[test]
fn the_claim_of_a_dead_client_expires_and_is_removed() {
    let memory = Arc::new(MemoryBucket::named("dead_claim").with_conditions(NONE));
    let place = Place::new();
    let remote = place.remote(memory.clone(), "remote");
    let runtime = virtual_time();
    runtime.block_on(async {
        let claim = "claims/heads/main/0123";
        memory.put(claim, "\n".into()).await.unwrap();
        let began = Instant::now();
        let slot = remote.place().slot(&branch("main")).await.unwrap();
        swap(&remote, &branch("main"), &slot, Some(made_up(1))).await.unwrap();
        assert!(began.elapsed() >= LEASE && began.elapsed() < LEASE * 2);
        assert_eq!(memory.list("claims/", ListDepth::All).await.unwrap(), []);
        // The next client does not have to wait.
        let again = Instant::now();
        let slot = remote.place().slot(&branch("main")).await.unwrap();
        swap(&remote, &branch("main"), &slot, Some(made_up(2))).await.unwrap();
        assert_eq!(again.elapsed(), Duration::ZERO);
    });
}

/// In-memory service without conditions. Its first write of a ref has no answer, and is carried
/// out after a delay.
#[derive(Debug)]
struct Late {
    memory: Arc<MemoryBucket>,
    by: Duration,
    is_first: AtomicBool,
}

impl Bucket for Late {
    fn facts(&self) -> &BucketFacts {
        self.memory.facts()
    }

    fn get<'a>(&'a self, key: &'a str, most: u64) -> Attempt<'a, StoredObject> {
        self.memory.get(key, most)
    }

    fn get_range<'a>(&'a self, key: &'a str, range: Range<u64>) -> Attempt<'a, Bytes> {
        self.memory.get_range(key, range)
    }

    fn put<'a>(&'a self, key: &'a str, body: Body) -> Attempt<'a, Option<ObjectVersion>> {
        if !key.starts_with("refs/") || !self.is_first.swap(false, SeqCst) {
            return self.memory.put(key, body);
        }
        let (memory, by, late) = (Arc::clone(&self.memory), self.by, key.to_owned());
        tokio::spawn(async move {
            sleep(by).await;
            memory.put(&late, body).await.unwrap();
        });
        let lost = "the connection was closed".to_owned();
        let error = ServiceError::new("write", key, FailureReason::Temporary, lost);
        Box::pin(async move { Err(error) })
    }

    fn list<'a>(&'a self, prefix: &'a str, depth: ListDepth) -> Attempt<'a, Vec<ListedObject>> {
        self.memory.list(prefix, depth)
    }

    fn head<'a>(&'a self, key: &'a str) -> Attempt<'a, Option<u64>> {
        self.memory.head(key)
    }

    fn delete<'a>(&'a self, keys: &'a [String]) -> Attempt<'a, ()> {
        self.memory.delete(keys)
    }
}

#[test]
fn a_delayed_write_overwrites_no_later_ref_move() {
    for by in [1, 10, 50] {
        let name = format!("late_{by}");
        let memory = Arc::new(MemoryBucket::named(&name).with_conditions(NONE));
        let by = Duration::from_secs(by);
        let late = Late { memory: Arc::clone(&memory), by, is_first: AtomicBool::new(true) };
        let place = Place::new();
        let (first, second) = (place.remote(Arc::new(late), "a"), place.remote(memory, "b"));
        virtual_time().block_on(async {
            let main = branch("main");
            let slot = first.place().slot(&main).await.unwrap();
            // The write is retried, and the retry succeeds.
            swap(&first, &main, &slot, Some(made_up(1))).await.unwrap();
            let slot = second.place().slot(&main).await.unwrap();
            assert_eq!(slot.commit, Some(made_up(1)));
            swap(&second, &main, &slot, Some(made_up(2))).await.unwrap();
            sleep(Duration::from_secs(120)).await;
            let stands = second.place().slot(&main).await.unwrap();
            assert_eq!(stands.commit, Some(made_up(2)), "the acknowledged move was lost");
        });
    }
}

#[test]
fn a_ref_write_is_refused_after_its_claim_expired() {
    let memory = Arc::new(MemoryBucket::named("held_up").with_conditions(NONE));
    let place = Place::new();
    // A delay before the write, within the timeout of each request; and one in the write itself.
    for (at, seconds) in [("list read", 20), ("write", 45)] {
        let service = Wrapped::new(memory.clone(), move |number, operation, key| {
            let held = number > 0 && at.contains(operation);
            let held = held && (at != "write" || key.starts_with("refs/"));
            Box::pin(async move {
                if held {
                    sleep(Duration::from_secs(seconds)).await;
                }
                false
            })
        });
        let remote = place.remote(service, "remote");
        let error = virtual_time().block_on(async {
            let slot = remote.place().slot(&branch("main")).await.unwrap();
            swap(&remote, &branch("main"), &slot, Some(made_up(1))).await.unwrap_err()
        });
        let RemoteError::Service(error) = error else { panic!("{at}: {error}") };
        assert_eq!(error.reason, FailureReason::Temporary, "{at}: {error}");
        let stands = place.runtime.block_on(remote.place().slot(&branch("main"))).unwrap();
        assert_eq!(stands.commit, None, "{at}");
    }
}

#[test]
fn a_service_that_ignores_conditions_loses_no_push() {
    one_of_two_pushes_wins(snap_nettest::Conditions::Ignored);
}

#[test]
fn a_service_that_refuses_conditions_loses_no_push() {
    one_of_two_pushes_wins(snap_nettest::Conditions::Refused);
}

fn one_of_two_pushes_wins(conditions: snap_nettest::Conditions) {
    let server = S3Server::start(S3Options::default());
    server.set_conditions(conditions);
    let service = || bucket(&server.endpoint(), &server, &Arc::default());
    let (here, there) = (Place::new(), Place::new());
    let base = here.change("a", "base");
    here.push(&mut here.remote(service(), "remote"), base).unwrap();
    there.pull(&mut there.remote(service(), "remote"), &branch("main")).unwrap();
    let commits = [here.change("a", "ours"), there.change("b", "theirs")];
    let results = std::thread::scope(|scope| {
        let places = [&here, &there].into_iter().zip(commits);
        let pushes = places.map(|(place, commit)| {
            scope.spawn(move || place.push(&mut place.remote(service(), "remote"), commit).is_ok())
        });
        let pushes: Vec<_> = pushes.collect();
        pushes.into_iter().map(|push| push.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(results.iter().filter(|done| **done).count(), 1, "{results:?}");
    let winner = commits[usize::from(results[1])];
    assert_eq!(complete(service(), "main"), Some(winner));
}

/// A bucket accepts both names. Each push sees the refs that existed before its own write.
#[test]
fn of_two_conflicting_ref_names_only_one_is_created() {
    let service = || -> Arc<dyn Bucket> { Arc::new(MemoryBucket::named("beside")) };
    let (here, there) = (Place::new(), Place::new());
    let first = here.change("a", "first");
    here.push(&mut here.remote(service(), "remote"), first).unwrap();
    // Between the listing and the write of the ref.
    let other = Mutex::new(Some(move || {
        let theirs = there.change("b", "theirs");
        let refs = vec![there.update("x/y", theirs)];
        there.push_all(&mut there.remote(service(), "remote"), refs).unwrap().all_moved().unwrap();
        theirs
    }));
    let pushed = Arc::new(Mutex::new(None));
    let told = Arc::clone(&pushed);
    let wrapped = Wrapped::new(service(), move |_, operation, key| {
        let is_it = operation == "write" && key == "refs/heads/x";
        let other = is_it.then(|| other.lock().take()).flatten();
        let told = Arc::clone(&told);
        Box::pin(async move {
            if let Some(push) = other {
                let theirs = tokio::task::spawn_blocking(push).await.unwrap();
                *told.lock() = Some(theirs);
            }
            false
        })
    });
    let mut remote = here.remote(wrapped, "remote");
    let pushed_here = here.push_all(&mut remote, vec![here.update("x", first)]).unwrap();
    let error = pushed_here.all_moved().unwrap_err();
    assert!(error.to_string().contains("`heads/x` conflicts with `heads/x/y`"), "{error}");
    let standing =
        |name: &str| here.runtime.block_on(remote.place().read_ref(&branch(name))).unwrap();
    assert_eq!(standing("x"), None, "the losing push undid its ref");
    let theirs = pushed.lock().take();
    assert_eq!(standing("x/y"), theirs);
}
