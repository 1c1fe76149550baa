//! Which keys of an issuer count, and when it is asked again.
//!
//! They are fetched when they are first needed, and count for [`FRESH`]. Then
//! the issuer is asked again; while it cannot be, they go on to count up to
//! [`LONGEST`]. A token that names a key that is not known is a reason to ask,
//! too, but no more than [`BURST`] times at once and then every [`EVERY`],
//! whoever makes names up. Those whose key is known wait for none of that; those
//! whose key may be newer are told when it is asked again.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;

use super::{published::Published, source::Source};

use crate::causes::causes;

/// How long keys count without the issuer being asked again.
const FRESH: Duration = Duration::from_secs(3600);

/// How long they count while it cannot be asked.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How often it is asked at once.
const BURST: u32 = 5;

/// How often it is asked after that.
const EVERY: Duration = Duration::from_secs(12);

/// How long those who come with a good token wait for newer keys.
const SHORT: Duration = Duration::from_secs(2);

/// The issuer cannot be asked now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Away {
    /// In how many seconds it is asked again.
    pub(crate) retry_secs: u64,
}

/// Keys of an issuer. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    source: Source,
    state: Mutex<State>,
    /// One at a time asks.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    published: Option<Arc<Published>>,
    /// When the last question was answered, or given up.
    answered: Option<Instant>,
    is_failing: bool,
    /// When the last question would have been asked, were they all [`EVERY`]
    /// apart.
    spent: Instant,
}

impl Keys {
    pub(super) fn new(issuer: &str) -> Self {
        let state =
            State { published: None, answered: None, is_failing: false, spent: Instant::now() };
        let (source, state) = (Source::new(issuer), Mutex::new(state));
        Self { inner: Arc::new(Inner { source, state, asking: tokio::sync::Mutex::default() }) }
    }

    /// The keys of this moment.
    ///
    /// # Errors
    /// [`Away`] when there are none, or too old ones.
    pub(super) async fn now(&self) -> Result<Arc<Published>, Away> {
        let (known, is_failing) = self.known();
        match known {
            Some(known) if known.age() < FRESH => return Ok(known),
            // It is known to be away: nobody need wait for that again.
            Some(known) if is_failing => {
                if self.inner.asking.try_lock().is_ok() && self.state().wait().is_zero() {
                    self.ask();
                }
                return Ok(known);
            }
            Some(_) => drop(tokio::time::timeout(SHORT, self.ask()).await),
            None => drop(self.ask().await),
        }
        self.known().0.ok_or_else(|| self.away())
    }

    /// Keys that are newer than those, if there are any.
    ///
    /// # Errors
    /// [`Away`] when that cannot be told: the issuer did not answer, or was asked
    /// too often by now.
    pub(super) async fn after(&self, known: &Arc<Published>) -> Result<Arc<Published>, Away> {
        let began = Instant::now();
        drop(self.ask().await);
        let (newer, is_failing) = self.known();
        match newer {
            Some(newer) if !Arc::ptr_eq(&newer, known) => Ok(newer),
            _ if is_failing || !self.state().is_answered(began) => Err(self.away()),
            _ => Ok(Arc::clone(known)),
        }
    }

    /// Asks in a task of its own, which goes on when nobody waits for it any more;
    /// not if somebody else does so meanwhile, or it was too often.
    fn ask(&self) -> JoinHandle<()> {
        let (keys, began) = (self.clone(), Instant::now());
        tokio::spawn(async move {
            let _one = keys.inner.asking.lock().await;
            if !keys.state().may_ask(began) {
                return;
            }
            let fetched = keys.inner.source.fetch().await;
            let mut state = keys.state();
            state.answered = Some(Instant::now());
            state.is_failing = fetched.is_err();
            match fetched {
                Ok(published) => {
                    if published.is_empty() {
                        tracing::warn!("the issuer publishes no key that can be used");
                    }
                    state.published = Some(Arc::new(published));
                }
                Err(error) => tracing::error!(
                    error = %causes(&error),
                    "the keys of the issuer cannot be had"
                ),
            }
        })
    }

    /// What counts, and whether the issuer was away when it was last asked.
    fn known(&self) -> (Option<Arc<Published>>, bool) {
        let state = self.state();
        (state.published.clone().filter(|known| known.age() < LONGEST), state.is_failing)
    }

    fn away(&self) -> Away {
        Away { retry_secs: self.state().wait().as_secs() + 1 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How long until it may be asked.
    fn wait(&self) -> Duration {
        let saved = EVERY * (BURST - 1);
        self.spent.saturating_duration_since(Instant::now() + saved)
    }

    /// Whether a question was answered, or given up, after that.
    fn is_answered(&self, began: Instant) -> bool {
        self.answered.is_some_and(|at| at >= began)
    }

    /// Notes a question for those who need newer keys than there were then.
    fn may_ask(&mut self, began: Instant) -> bool {
        let may = !self.is_answered(began) && self.wait().is_zero();
        if may {
            self.spent = self.spent.max(Instant::now()) + EVERY;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::{Json, Router, extract::State as Shared, routing::get};
    use serde_json::{Value, json};

    use super::*;

    /// An issuer without keys, which counts how often it is asked for them.
    #[derive(Clone, Default)]
    struct Issuer {
        base: String,
        asked: Arc<AtomicUsize>,
        stalls: bool,
    }

    async fn about(Shared(issuer): Shared<Issuer>) -> Json<Value> {
        let base = &issuer.base;
        Json(json!({"issuer": base, "jwks_uri": format!("{base}/keys")}))
    }

    async fn keys(Shared(issuer): Shared<Issuer>) -> Json<Value> {
        issuer.asked.fetch_add(1, Ordering::Relaxed);
        if issuer.stalls {
            std::future::pending::<()>().await;
        }
        Json(json!({"keys": []}))
    }

    impl Issuer {
        async fn start(stalls: bool) -> Self {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let base = format!("http://{}", listener.local_addr().unwrap());
            let issuer = Self { base, stalls, ..Self::default() };
            let router = Router::new()
                .route("/.well-known/openid-configuration", get(about))
                .route("/keys", get(keys))
                .with_state(issuer.clone());
            tokio::spawn(axum::serve(listener, router).into_future());
            issuer
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::Relaxed)
        }
    }

    fn with(keys: &Keys, age: Duration) -> Arc<Published> {
        let published = Arc::new(Published::new(Vec::new()).aged(age));
        keys.state().published = Some(Arc::clone(&published));
        published
    }

    #[tokio::test]
    async fn keys_are_fetched_once_and_again_when_they_are_old() {
        let issuer = Issuer::start(false).await;
        let keys = Keys::new(&issuer.base);
        let all = futures::future::join_all((0..20).map(|_| keys.now())).await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(issuer.asked(), 1);
        with(&keys, FRESH - Duration::from_secs(10));
        keys.now().await.unwrap();
        assert_eq!(issuer.asked(), 1);
        let old = with(&keys, FRESH);
        assert!(!Arc::ptr_eq(&keys.now().await.unwrap(), &old), "newer ones come in time");
        assert_eq!(issuer.asked(), 2);
    }

    #[tokio::test]
    async fn names_that_are_made_up_do_not_have_it_asked_for_ever() {
        let issuer = Issuer::start(false).await;
        let keys = Keys::new(&issuer.base);
        let mut known = keys.now().await.unwrap();
        for asked in 1..50 {
            let newer = keys.after(&known).await;
            // Whoever comes when it was asked too often may be right all the same.
            assert_eq!(newer.is_ok(), asked < BURST as usize, "{asked}");
            match newer {
                Ok(newer) => known = newer,
                Err(away) => assert!((1..=13).contains(&away.retry_secs), "{away:?}"),
            }
        }
        assert_eq!(issuer.asked(), BURST as usize);
        // After a while it may be asked again.
        let mut state = keys.state();
        state.spent -= EVERY;
        assert!(state.wait().is_zero() && state.may_ask(Instant::now()));
        assert!(!state.may_ask(Instant::now()));
        assert!(state.wait() <= EVERY);
    }

    #[tokio::test]
    async fn old_keys_count_while_the_issuer_is_away_but_not_for_ever() {
        // Nobody listens there.
        let keys = Keys::new("http://127.0.0.1:1");
        assert!(keys.now().await.is_err());
        let old = with(&keys, LONGEST - Duration::from_secs(10));
        for _ in 0..20 {
            assert!(Arc::ptr_eq(&keys.now().await.unwrap(), &old));
        }
        assert!(keys.after(&old).await.is_err(), "whether there are newer ones cannot be told");
        with(&keys, LONGEST);
        let away = keys.now().await.unwrap_err();
        assert!((1..=EVERY.as_secs() + 1).contains(&away.retry_secs), "{away:?}");
    }

    #[tokio::test]
    async fn an_issuer_that_stalls_holds_up_none_whose_keys_are_known() {
        let issuer = Issuer::start(true).await;
        let keys = Keys::new(&issuer.base);
        with(&keys, FRESH);
        let since = Instant::now();
        keys.now().await.unwrap();
        assert!(since.elapsed() < SHORT + Duration::from_secs(3), "{:?}", since.elapsed());
        // Somebody who made up a name waits to the end, others meanwhile do not.
        let known = with(&keys, Duration::ZERO);
        let waits = tokio::spawn({
            let (keys, known) = (keys.clone(), Arc::clone(&known));
            async move { keys.after(&known).await }
        });
        for _ in 0..100 {
            assert!(Arc::ptr_eq(&keys.now().await.unwrap(), &known));
        }
        assert!(waits.await.unwrap().is_err());
        assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
        assert_eq!(issuer.asked(), 1, "one question at a time, for all who wait");
    }
}
