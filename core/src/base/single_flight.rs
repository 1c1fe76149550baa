//! Single flight: threads that want the same work at the same time run it once.
//!
//! The first thread that joins a key leads a flight. The other threads follow the flight and wait
//! for its value. The leader holds a guard, so a panic of the leader also ends the flight, without
//! a value. The table forgets a key as soon as no thread holds a guard or a handle of that key.

use std::{collections::HashMap, hash::Hash, sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};

/// Runs work once for all threads that want the work at the same time. Clones share the flights.
///
/// A flight ends with a value of type `V`, or without one. While a flight is in progress, its
/// leader and its followers share a state of type `S`.
#[derive(Debug)]
pub struct SingleFlight<K, V, S = ()> {
    table: Arc<FlightTable<K, V, S>>,
}

#[derive(Debug)]
struct FlightTable<K, V, S> {
    keys: Mutex<HashMap<K, FlightSeries<V, S>>>,
    flight_ended: Condvar,
}

/// The flights of one key, one after the other.
#[derive(Debug)]
struct FlightSeries<V, S> {
    /// Number of flights that began.
    begun: u64,
    /// Number of flights that ended: `begun`, or one less while a flight is in progress.
    ended: u64,
    /// The value of the last flight that ended with a value, and the number of that flight.
    value: Option<(u64, V)>,
    /// The state of the flight in progress.
    state: Option<S>,
    /// Number of guards and handles.
    members: usize,
}

/// Role of a thread in a flight.
#[derive(Debug)]
pub enum Flight<K: Eq + Hash, V, S = ()> {
    /// The thread does the work.
    Leader(LeaderGuard<K, V, S>),
    /// Another thread does the work, or has done it.
    Follower(FollowerHandle<K, V, S>),
}

/// A flight in progress. It ends on drop.
#[derive(Debug)]
pub struct LeaderGuard<K: Eq + Hash, V, S = ()> {
    member: Member<K, V, S>,
    value: Option<V>,
}

/// Waits for a flight that another thread leads.
#[derive(Debug)]
pub struct FollowerHandle<K: Eq + Hash, V, S = ()> {
    member: Member<K, V, S>,
}

/// Keeps the flights of a key in the table.
#[derive(Debug)]
struct Member<K: Eq + Hash, V, S> {
    flights: SingleFlight<K, V, S>,
    key: K,
    /// Number of the flight in its series, from 1.
    number: u64,
}

impl<K: Clone + Eq + Hash, V, S: Clone> SingleFlight<K, V, S> {
    /// Leads a flight with a new state, or follows the flight in progress. Also returns the state.
    pub fn join_with_state(&self, key: K, new_state: impl FnOnce() -> S) -> (Flight<K, V, S>, S) {
        let mut keys = self.table.keys.lock();
        let series = keys.entry(key.clone()).or_default();
        // Call `new_state` before the series changes, since it may panic.
        let state = series.state.get_or_insert_with(new_state).clone();
        series.members += 1;
        let is_leader = !series.is_in_progress();
        series.begun += u64::from(is_leader);
        let member = Member { flights: self.clone(), key, number: series.begun };
        (member.into_flight(is_leader), state)
    }
}

impl<K: Clone + Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// Leads a flight, or follows the flight in progress.
    pub fn join(&self, key: K) -> Flight<K, V> {
        self.join_with_state(key, || ()).0
    }

    /// Like [`join`](Self::join), but never follows a flight that began before the call: first
    /// waits until that flight ends. Gives up and returns `None` if `next_wait` does; see
    /// [`FollowerHandle::wait`].
    pub fn join_next(
        &self,
        key: K,
        next_wait: impl FnMut() -> Option<Duration>,
    ) -> Option<Flight<K, V>> {
        match self.join(key) {
            Flight::Follower(earlier) => earlier.follow_next(next_wait),
            leader => Some(leader),
        }
    }

    /// Leads a flight. First waits until no other thread leads a flight of this key.
    pub fn lead(&self, key: K) -> LeaderGuard<K, V> {
        loop {
            match self.join(key.clone()) {
                Flight::Leader(leader) => return leader,
                Flight::Follower(other) => other.wait(|| Some(Duration::MAX)),
            };
        }
    }
}

impl<K: Eq + Hash, V, S> SingleFlight<K, V, S> {
    /// Returns true if a flight of this key is in progress.
    pub fn is_in_progress(&self, key: &K) -> bool {
        self.table.keys.lock().get(key).is_some_and(FlightSeries::is_in_progress)
    }

    /// Returns the number of flights in progress.
    pub fn in_progress_count(&self) -> usize {
        let keys = self.table.keys.lock();
        keys.values().filter(|series| series.is_in_progress()).count()
    }

    /// Returns the number of leaders and followers of a key.
    pub fn member_count(&self, key: &K) -> usize {
        self.table.keys.lock().get(key).map_or(0, |series| series.members)
    }
}

impl<K, V, S> Clone for SingleFlight<K, V, S> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table) }
    }
}

impl<K, V, S> Default for SingleFlight<K, V, S> {
    fn default() -> Self {
        let (keys, flight_ended) = (Mutex::new(HashMap::new()), Condvar::new());
        Self { table: Arc::new(FlightTable { keys, flight_ended }) }
    }
}

impl<V, S> FlightSeries<V, S> {
    fn is_in_progress(&self) -> bool {
        self.begun > self.ended
    }
}

impl<V, S> Default for FlightSeries<V, S> {
    fn default() -> Self {
        Self { begun: 0, ended: 0, value: None, state: None, members: 0 }
    }
}

impl<K: Clone + Eq + Hash, V, S> LeaderGuard<K, V, S> {
    /// Ends the flight with a value for its followers.
    pub fn finish(mut self, value: V) {
        self.value = Some(value);
    }

    /// Returns a handle of this flight. For a thread that passes the guard to another thread.
    pub fn follow(&self) -> FollowerHandle<K, V, S> {
        let Member { flights, key, number } = &self.member;
        self.member.series(&mut flights.table.keys.lock()).members += 1;
        let member = Member { flights: flights.clone(), key: key.clone(), number: *number };
        FollowerHandle { member }
    }
}

impl<K: Eq + Hash, V, S> Drop for LeaderGuard<K, V, S> {
    fn drop(&mut self) {
        let table = &self.member.flights.table;
        let mut keys = table.keys.lock();
        let series = self.member.series(&mut keys);
        series.ended = series.begun;
        if let Some(value) = self.value.take() {
            series.value = Some((series.ended, value));
        }
        series.state = None;
        table.flight_ended.notify_all();
    }
}

impl<K: Eq + Hash, V: Clone, S> FollowerHandle<K, V, S> {
    /// Waits until the flight ends. Returns its value or the value of a later flight, or `None` if
    /// no such flight has a value.
    ///
    /// Before each wait, `wait` calls `next_wait` for the time until the next call. If `next_wait`
    /// returns `None`, `wait` gives up and returns `None`. The call holds the lock of the table, so
    /// `next_wait` must not join a flight.
    pub fn wait(&self, next_wait: impl FnMut() -> Option<Duration>) -> Option<V> {
        let number = self.member.number;
        self.at_end(next_wait, |series| {
            let value = series.value.as_ref().filter(|(of, _)| *of >= number);
            value.map(|(_, value)| value.clone())
        })?
    }

    /// Waits until the flight ends, and calls `act` on its series without releasing the lock. Gives
    /// up and returns `None` if `next_wait` does.
    fn at_end<T>(
        &self,
        mut next_wait: impl FnMut() -> Option<Duration>,
        act: impl FnOnce(&mut FlightSeries<V, S>) -> T,
    ) -> Option<T> {
        let table = &self.member.flights.table;
        let mut keys = table.keys.lock();
        loop {
            let series = self.member.series(&mut keys);
            if series.ended >= self.member.number {
                return Some(act(series));
            }
            table.flight_ended.wait_for(&mut keys, next_wait()?);
        }
    }
}

impl<K: Eq + Hash, V: Clone> FollowerHandle<K, V> {
    /// Waits until the flight ends. Then leads the next flight, or follows the next flight if it
    /// has begun.
    fn follow_next(mut self, next_wait: impl FnMut() -> Option<Duration>) -> Option<Flight<K, V>> {
        let number = self.member.number + 1;
        let is_leader = self.at_end(next_wait, |series| {
            let is_leader = series.begun < number;
            series.begun = series.begun.max(number);
            is_leader
        })?;
        self.member.number = number;
        Some(self.member.into_flight(is_leader))
    }
}

impl<K: Eq + Hash, V, S> Member<K, V, S> {
    fn into_flight(self, is_leader: bool) -> Flight<K, V, S> {
        match is_leader {
            true => Flight::Leader(LeaderGuard { member: self, value: None }),
            false => Flight::Follower(FollowerHandle { member: self }),
        }
    }

    /// Returns the flights of this member's key.
    fn series<'t>(
        &self,
        keys: &'t mut HashMap<K, FlightSeries<V, S>>,
    ) -> &'t mut FlightSeries<V, S> {
        keys.get_mut(&self.key).expect("a series is kept as long as it has members")
    }
}

impl<K: Eq + Hash, V, S> Drop for Member<K, V, S> {
    fn drop(&mut self) {
        let mut keys = self.flights.table.keys.lock();
        let series = self.series(&mut keys);
        series.members -= 1;
        if series.members == 0 {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        thread::{self, Scope, ScopedJoinHandle},
    };

    use super::*;

    type Flights = SingleFlight<&'static str, u32>;

    fn lead(flights: &Flights) -> LeaderGuard<&'static str, u32> {
        match flights.join("a") {
            Flight::Leader(leader) => leader,
            Flight::Follower(_) => panic!("another flight is in progress"),
        }
    }

    fn follow(flights: &Flights) -> FollowerHandle<&'static str, u32> {
        match flights.join("a") {
            Flight::Leader(_) => panic!("no flight is in progress"),
            Flight::Follower(follower) => follower,
        }
    }

    fn forever() -> Option<Duration> {
        Some(Duration::MAX)
    }

    /// Joins the next flight in a thread. Returns its value, and true if the thread led it.
    fn join_next<'scope>(
        scope: &'scope Scope<'scope, '_>,
        flights: &'scope Flights,
        value: u32,
    ) -> ScopedJoinHandle<'scope, (Option<u32>, bool)> {
        scope.spawn(move || match flights.join_next("a", forever).unwrap() {
            Flight::Leader(leader) => {
                leader.finish(value);
                (Some(value), true)
            }
            Flight::Follower(follower) => (follower.wait(forever), false),
        })
    }

    #[test]
    fn followers_get_the_value_of_the_leader() {
        let flights = Flights::default();
        let leader = lead(&flights);
        let (first, second) = (follow(&flights), leader.follow());
        assert!(matches!(flights.join("b"), Flight::Leader(_)), "another key is independent");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| first.wait(forever));
            leader.finish(7);
            assert_eq!(waiting.join().unwrap(), Some(7));
        });
        assert_eq!(second.wait(|| panic!("the flight has ended")), Some(7));
        assert_eq!(lead(&flights).member.number, 2, "the next flight is a new one");
    }

    #[test]
    fn a_follower_gets_no_value_of_an_earlier_flight() {
        let flights = Flights::default();
        let leader = lead(&flights);
        let first = follow(&flights);
        leader.finish(7);
        let leader = lead(&flights);
        let second = follow(&flights);
        drop(leader);
        assert_eq!(second.wait(forever), None);
        assert_eq!(first.wait(forever), Some(7), "the later flight ended without a value");
    }

    #[test]
    fn a_panic_while_a_state_is_made_leaves_no_flight_in_progress() {
        let flights = SingleFlight::<&str, u32, u32>::default();
        let join = || flights.join_with_state("a", || panic!("no state"));
        assert!(catch_unwind(AssertUnwindSafe(join)).is_err());
        assert!(!flights.is_in_progress(&"a"));
        assert!(matches!(flights.join_with_state("a", || 1), (Flight::Leader(_), 1)));
    }

    #[test]
    fn a_flight_ends_without_a_value_if_its_leader_panics() {
        let flights = Flights::default();
        let leader = lead(&flights);
        let follower = follow(&flights);
        let broken = catch_unwind(AssertUnwindSafe(move || {
            let _leader = leader;
            panic!("the work fails");
        }));
        assert!(broken.is_err());
        assert_eq!(follower.wait(forever), None);
    }

    #[test]
    fn a_follower_may_give_up() {
        let flights = Flights::default();
        let leader = lead(&flights);
        let mut waits = 0;
        let twice = || {
            waits += 1;
            (waits <= 2).then_some(Duration::ZERO)
        };
        assert_eq!(follow(&flights).wait(twice), None);
        assert_eq!(waits, 3);
        assert!(flights.join_next("a", || None).is_none());
        assert_eq!(flights.member_count(&"a"), 1);
        leader.finish(7);
    }

    #[test]
    fn threads_that_wait_for_the_next_flight_share_it() {
        let flights = Flights::default();
        let leader = lead(&flights);
        thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|value| join_next(scope, &flights, value)).collect();
            while flights.member_count(&"a") < 9 {
                thread::yield_now();
            }
            leader.finish(100);
            let all: Vec<_> = all.into_iter().map(|joined| joined.join().unwrap()).collect();
            assert_eq!(all.iter().filter(|(_, is_leader)| *is_leader).count(), 1);
            assert!(all.iter().all(|(value, _)| *value == all[0].0), "{all:?}");
        });
    }

    #[test]
    fn a_flight_has_one_state_as_long_as_it_is_in_progress() {
        let flights = SingleFlight::<u32, (), u32>::default();
        let (leader, state) = flights.join_with_state(0, || 1);
        let (follower, same) = flights.join_with_state(0, || panic!("there is a state"));
        assert_eq!((state, same), (1, 1));
        drop(leader);
        assert!(matches!(follower, Flight::Follower(_)));
        assert_eq!(flights.join_with_state(0, || 2).1, 2);
    }

    #[test]
    fn a_thread_that_wants_to_lead_waits_for_the_leader() {
        let (flights, leaders) = (Flights::default(), Mutex::new(Vec::new()));
        let leader = lead(&flights);
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let guard = flights.lead("a");
                leaders.lock().push("second");
                guard
            });
            while flights.member_count(&"a") < 2 {
                thread::yield_now();
            }
            leaders.lock().push("first");
            drop(leader);
            assert!(second.join().is_ok());
        });
        assert_eq!(leaders.into_inner(), ["first", "second"]);
    }

    #[test]
    fn a_key_is_forgotten_after_its_last_member() {
        let flights = Flights::default();
        let leader = lead(&flights);
        let follower = follow(&flights);
        assert!(flights.is_in_progress(&"a") && flights.in_progress_count() == 1);
        drop(leader);
        assert!(!flights.is_in_progress(&"a") && flights.in_progress_count() == 0);
        assert_eq!(flights.member_count(&"a"), 1);
        drop(follower);
        assert!(flights.table.keys.lock().is_empty());
    }
}
