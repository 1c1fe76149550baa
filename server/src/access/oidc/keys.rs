//! The cached keys of an issuer, and when they are fetched again.
//!
//! Keys are fetched when they are first needed, and are fresh for [`FRESH`]. After that
//! they are fetched again; while the issuer does not answer, the old keys stay in use, up
//! to [`LONGEST`]. A token that names an unknown key also causes a fetch. Since a client
//! can invent such names, these fetches are rate limited: [`BURST`] at once, then one every
//! [`EVERY`]. Tokens of known keys do not wait for them. If the limit forbids a fetch, the
//! client learns when to retry.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;

use super::{published::Published, source::KeySource};

use crate::causes::causes;

/// How long keys are used before they are fetched again.
const FRESH: Duration = Duration::from_secs(3600);

/// How long keys are used while the issuer does not answer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How many fetches are allowed at once.
const BURST: u32 = 5;

/// How often a fetch is allowed after that.
const EVERY: Duration = Duration::from_secs(12);

/// How long a request waits for newer keys while older ones can be used.
const SHORT: Duration = Duration::from_secs(2);

/// The issuer does not answer, or the rate limit forbids a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeysUnavailable {
    /// After how many seconds a fetch is allowed.
    pub(crate) retry_secs: u64,
}

/// The keys of an issuer. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct KeyCache {
    inner: Arc<KeyCacheInner>,
}

#[derive(Debug)]
struct KeyCacheInner {
    source: KeySource,
    state: Mutex<KeyCacheState>,
    /// Held during a fetch: there is one at a time.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct KeyCacheState {
    published: Option<Arc<Published>>,
    /// When the last fetch ended, with keys or without.
    answered: Option<Instant>,
    /// True if the last fetch failed.
    is_failing: bool,
    /// The state of the rate limit (GCRA): the time until which past fetches use up a rate
    /// of one every [`EVERY`]. It may lie at most `BURST - 1` intervals ahead for another
    /// fetch.
    rate_limited_until: Instant,
}

impl KeyCache {
    pub(super) fn new(issuer: &str) -> Self {
        let state = KeyCacheState {
            published: None,
            answered: None,
            is_failing: false,
            rate_limited_until: Instant::now(),
        };
        let (source, state) = (KeySource::new(issuer), Mutex::new(state));
        Self {
            inner: Arc::new(KeyCacheInner { source, state, asking: tokio::sync::Mutex::default() }),
        }
    }

    /// Returns the keys to use now.
    ///
    /// # Errors
    /// [`KeysUnavailable`] when there are none, or only keys older than [`LONGEST`].
    pub(super) async fn current(&self) -> Result<Arc<Published>, KeysUnavailable> {
        let (known, is_failing) = self.known();
        match known {
            Some(known) if known.age() < FRESH => return Ok(known),
            // The issuer is known not to answer: fetch in the background, and do not wait.
            Some(known) if is_failing => {
                if self.inner.asking.try_lock().is_ok() && self.state().wait().is_zero() {
                    self.fetch_in_background();
                }
                return Ok(known);
            }
            Some(_) => drop(tokio::time::timeout(SHORT, self.fetch_in_background()).await),
            None => drop(self.fetch_in_background().await),
        }
        self.known().0.ok_or_else(|| self.away())
    }

    /// Returns keys that are newer than `known`, if there are any.
    ///
    /// # Errors
    /// [`KeysUnavailable`] when that is unknown: the issuer did not answer, or the rate limit forbids
    /// a fetch.
    pub(super) async fn refresh_after(
        &self,
        known: &Arc<Published>,
    ) -> Result<Arc<Published>, KeysUnavailable> {
        let began = Instant::now();
        drop(self.fetch_in_background().await);
        let (newer, is_failing) = self.known();
        match newer {
            Some(newer) if !Arc::ptr_eq(&newer, known) => Ok(newer),
            _ if is_failing || !self.state().is_answered(began) => Err(self.away()),
            _ => Ok(Arc::clone(known)),
        }
    }

    /// Fetches the keys in a task of its own, which continues if the caller stops waiting.
    /// Does nothing if another fetch ended after this call began, or if the rate limit
    /// forbids it.
    fn fetch_in_background(&self) -> JoinHandle<()> {
        let (keys, began) = (self.clone(), Instant::now());
        tokio::spawn(async move {
            let _one = keys.inner.asking.lock().await;
            if !keys.state().try_take(began) {
                return;
            }
            let fetched = keys.inner.source.fetch().await;
            let mut state = keys.state();
            state.answered = Some(Instant::now());
            state.is_failing = fetched.is_err();
            match fetched {
                Ok(published) => {
                    if published.is_empty() {
                        tracing::warn!("the issuer publishes no supported key");
                    }
                    state.published = Some(Arc::new(published));
                }
                Err(error) => tracing::error!(
                    error = %causes(&error),
                    "cannot fetch the keys of the issuer"
                ),
            }
        })
    }

    /// Returns the keys that may still be used, and whether the last fetch failed.
    fn known(&self) -> (Option<Arc<Published>>, bool) {
        let state = self.state();
        (state.published.clone().filter(|known| known.age() < LONGEST), state.is_failing)
    }

    fn away(&self) -> KeysUnavailable {
        KeysUnavailable { retry_secs: self.state().wait().as_secs() + 1 }
    }

    fn state(&self) -> MutexGuard<'_, KeyCacheState> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyCacheState {
    /// Returns how long to wait until a fetch is allowed.
    fn wait(&self) -> Duration {
        let saved = EVERY * (BURST - 1);
        self.rate_limited_until.saturating_duration_since(Instant::now() + saved)
    }

    /// Returns true if a fetch has ended since then, with keys or without.
    fn is_answered(&self, began: Instant) -> bool {
        self.answered.is_some_and(|at| at >= began)
    }

    /// Counts a fetch, for a caller that needs newer keys than at `began`. Returns false if
    /// one has ended since, or if the rate limit forbids it.
    fn try_take(&mut self, began: Instant) -> bool {
        let may = !self.is_answered(began) && self.wait().is_zero();
        if may {
            self.rate_limited_until = self.rate_limited_until.max(Instant::now()) + EVERY;
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

    /// An issuer without keys, which counts the fetches.
    #[derive(Clone, Default)]
    struct CountingIssuer {
        base: String,
        asked: Arc<AtomicUsize>,
        stalls: bool,
    }

    async fn about(Shared(issuer): Shared<CountingIssuer>) -> Json<Value> {
        let base = &issuer.base;
        Json(json!({"issuer": base, "jwks_uri": format!("{base}/keys")}))
    }

    async fn keys(Shared(issuer): Shared<CountingIssuer>) -> Json<Value> {
        issuer.asked.fetch_add(1, Ordering::Relaxed);
        if issuer.stalls {
            std::future::pending::<()>().await;
        }
        Json(json!({"keys": []}))
    }

    impl CountingIssuer {
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

    fn with(keys: &KeyCache, age: Duration) -> Arc<Published> {
        let published = Arc::new(Published::new(Vec::new()).aged(age));
        keys.state().published = Some(Arc::clone(&published));
        published
    }

    #[tokio::test]
    async fn keys_are_fetched_once_and_again_when_they_are_old() {
        let issuer = CountingIssuer::start(false).await;
        let keys = KeyCache::new(&issuer.base);
        let all = futures::future::join_all((0..20).map(|_| keys.current())).await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(issuer.asked(), 1);
        with(&keys, FRESH - Duration::from_secs(10));
        keys.current().await.unwrap();
        assert_eq!(issuer.asked(), 1);
        let old = with(&keys, FRESH);
        assert!(!Arc::ptr_eq(&keys.current().await.unwrap(), &old), "old keys are replaced");
        assert_eq!(issuer.asked(), 2);
    }

    #[tokio::test]
    async fn names_that_are_made_up_do_not_have_it_asked_for_ever() {
        let issuer = CountingIssuer::start(false).await;
        let keys = KeyCache::new(&issuer.base);
        let mut known = keys.current().await.unwrap();
        for asked in 1..50 {
            let newer = keys.refresh_after(&known).await;
            // Above the rate limit no newer keys are fetched, so the token may be valid.
            assert_eq!(newer.is_ok(), asked < BURST as usize, "{asked}");
            match newer {
                Ok(newer) => known = newer,
                Err(away) => assert!((1..=13).contains(&away.retry_secs), "{away:?}"),
            }
        }
        assert_eq!(issuer.asked(), BURST as usize);
        // After a while another fetch is allowed.
        let mut state = keys.state();
        state.rate_limited_until -= EVERY;
        assert!(state.wait().is_zero() && state.try_take(Instant::now()));
        assert!(!state.try_take(Instant::now()));
        assert!(state.wait() <= EVERY);
    }

    #[tokio::test]
    async fn old_keys_count_while_the_issuer_is_away_but_not_for_ever() {
        // Nothing listens there.
        let keys = KeyCache::new("http://127.0.0.1:1");
        assert!(keys.current().await.is_err());
        let old = with(&keys, LONGEST - Duration::from_secs(10));
        for _ in 0..20 {
            assert!(Arc::ptr_eq(&keys.current().await.unwrap(), &old));
        }
        assert!(
            keys.refresh_after(&old).await.is_err(),
            "it is unknown whether there are newer keys"
        );
        with(&keys, LONGEST);
        let away = keys.current().await.unwrap_err();
        assert!((1..=EVERY.as_secs() + 1).contains(&away.retry_secs), "{away:?}");
    }

    #[tokio::test]
    async fn an_issuer_that_stalls_holds_up_none_whose_keys_are_known() {
        let issuer = CountingIssuer::start(true).await;
        let keys = KeyCache::new(&issuer.base);
        with(&keys, FRESH);
        let since = Instant::now();
        keys.current().await.unwrap();
        assert!(since.elapsed() < SHORT + Duration::from_secs(3), "{:?}", since.elapsed());
        // A client that invents a key name waits to the end; others meanwhile do not.
        let known = with(&keys, Duration::ZERO);
        let waits = tokio::spawn({
            let (keys, known) = (keys.clone(), Arc::clone(&known));
            async move { keys.refresh_after(&known).await }
        });
        for _ in 0..100 {
            assert!(Arc::ptr_eq(&keys.current().await.unwrap(), &known));
        }
        assert!(waits.await.unwrap().is_err());
        assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
        assert_eq!(issuer.asked(), 1, "all waiting callers share one fetch");
    }
}
