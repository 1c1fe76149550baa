//! The cached keys of an issuer, and when they are fetched again.
//!
//! Keys are fetched when they are first needed, and are fresh for [`FRESH`]. After that
//! they are fetched again; while the issuer does not answer, the old keys stay in use, up
//! to [`LONGEST`]. A token that names an unknown key also causes a fetch. Since a client
//! can invent such names, these fetches are rate limited: [`BURST`] at once, then one every
//! [`EVERY`]. Tokens of known keys do not wait for them. If the limit forbids a fetch, the
//! client learns when to retry.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::{published::Published, source::KeySource};

use crate::{causes::causes, clock::Clock};

/// How long keys are used before they are fetched again.
const FRESH: Duration = Duration::from_secs(3600);

/// How long keys are used while the issuer does not answer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Number of fetches that are allowed in a burst.
const BURST: u32 = 5;

/// Interval between fetches after a burst.
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
    /// Held during a fetch, so that only one runs at a time.
    asking: tokio::sync::Mutex<()>,
    clock: Clock,
}

#[derive(Debug)]
struct KeyCacheState {
    published: Option<Arc<Published>>,
    /// When the last fetch ended, with keys or without.
    answered: Option<Instant>,
    /// True if the last fetch failed.
    is_failing: bool,
    /// State of the rate limit (GCRA): the time up to which past fetches use up the rate of one
    /// fetch every [`EVERY`]. A fetch is allowed while this time lies at most `BURST - 1` intervals
    /// ahead.
    rate_limited_until: Instant,
}

impl KeyCache {
    pub(super) fn new(issuer: &str, clock: Clock) -> Self {
        let state = KeyCacheState {
            published: None,
            answered: None,
            is_failing: false,
            rate_limited_until: clock.now(),
        };
        let (source, state) = (KeySource::new(issuer, clock.clone()), Mutex::new(state));
        let asking = tokio::sync::Mutex::default();
        Self { inner: Arc::new(KeyCacheInner { source, state, asking, clock }) }
    }

    /// Returns the keys to use now.
    ///
    /// # Errors
    /// [`KeysUnavailable`] when there are none, or only keys older than [`LONGEST`].
    pub(super) async fn current(&self) -> Result<Arc<Published>, KeysUnavailable> {
        let (known, is_failing) = self.known();
        match known {
            Some(known) if self.age(&known) < FRESH => return Ok(known),
            // The last fetch failed: fetch in the background, and do not wait.
            Some(known) if is_failing => {
                if self.inner.asking.try_lock().is_ok() && self.wait().is_zero() {
                    self.fetch_in_background();
                }
                return Ok(known);
            }
            Some(_) => drop(self.inner.clock.timeout(SHORT, self.fetch_in_background()).await),
            None => drop(self.fetch_in_background().await),
        }
        self.known().0.ok_or_else(|| self.away())
    }

    /// Returns keys that are newer than `known`, if there are any.
    ///
    /// # Errors
    /// [`KeysUnavailable`] if the issuer does not answer or the rate limit forbids a fetch, so
    /// newer keys may exist.
    pub(super) async fn refresh_after(
        &self,
        known: &Arc<Published>,
    ) -> Result<Arc<Published>, KeysUnavailable> {
        let began = self.inner.clock.now();
        drop(self.fetch_in_background().await);
        let (newer, is_failing) = self.known();
        match newer {
            Some(newer) if !Arc::ptr_eq(&newer, known) => Ok(newer),
            _ if is_failing || !self.inner.state.lock().is_answered(began) => Err(self.away()),
            _ => Ok(Arc::clone(known)),
        }
    }

    /// Fetches the keys in a task of its own, which continues if the caller stops waiting.
    /// Does nothing if another fetch ended after this call began, or if the rate limit
    /// forbids it.
    fn fetch_in_background(&self) -> JoinHandle<()> {
        let (keys, began) = (self.clone(), self.inner.clock.now());
        tokio::spawn(async move {
            let _one = keys.inner.asking.lock().await;
            if !keys.inner.state.lock().try_take(began, keys.inner.clock.now()) {
                return;
            }
            let fetched = keys.inner.source.fetch().await;
            let mut state = keys.inner.state.lock();
            state.answered = Some(keys.inner.clock.now());
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
        let state = self.inner.state.lock();
        (state.published.clone().filter(|known| self.age(known) < LONGEST), state.is_failing)
    }

    fn away(&self) -> KeysUnavailable {
        KeysUnavailable { retry_secs: self.wait().as_secs() + 1 }
    }

    fn age(&self, published: &Published) -> Duration {
        self.inner.clock.elapsed(published.fetched())
    }

    /// Returns how long to wait until a fetch is allowed.
    fn wait(&self) -> Duration {
        self.inner.state.lock().wait(self.inner.clock.now())
    }
}

impl KeyCacheState {
    /// Returns how long to wait until a fetch is allowed.
    fn wait(&self, now: Instant) -> Duration {
        let saved = EVERY * (BURST - 1);
        self.rate_limited_until.saturating_duration_since(now + saved)
    }

    /// Returns true if a fetch, successful or not, has ended since `began`.
    fn is_answered(&self, began: Instant) -> bool {
        self.answered.is_some_and(|at| at >= began)
    }

    /// Counts a fetch for a caller that needs keys newer than `began`. Returns false if a fetch has
    /// ended since `began`, or if the rate limit forbids another.
    fn try_take(&mut self, began: Instant, now: Instant) -> bool {
        let may = !self.is_answered(began) && self.wait(now).is_zero();
        if may {
            self.rate_limited_until = self.rate_limited_until.max(now) + EVERY;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        Json, Router,
        extract::State as Shared,
        response::{IntoResponse, Response},
        routing::get,
    };
    use serde_json::{Value, json};
    use tokio::sync::watch;

    use super::*;

    /// How an issuer answers when it is asked for its keys.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Answer {
        NoKeys,
        HangUp,
        Never,
    }

    /// An issuer that counts the fetches.
    #[derive(Clone)]
    struct CountingIssuer {
        base: String,
        asked: watch::Sender<usize>,
        answer: Answer,
    }

    async fn about(Shared(issuer): Shared<CountingIssuer>) -> Json<Value> {
        let base = &issuer.base;
        Json(json!({"issuer": base, "jwks_uri": format!("{base}/keys")}))
    }

    async fn keys(Shared(issuer): Shared<CountingIssuer>) -> Response {
        issuer.asked.send_modify(|asked| *asked += 1);
        match issuer.answer {
            Answer::NoKeys => Json(json!({"keys": []})).into_response(),
            Answer::HangUp | Answer::Never => std::future::pending().await,
        }
    }

    impl CountingIssuer {
        async fn start(answer: Answer) -> Self {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let base = format!("http://{}", listener.local_addr().unwrap());
            let issuer = Self { base, answer, asked: watch::Sender::default() };
            if answer == Answer::HangUp {
                tokio::spawn(async move {
                    while let Ok(connection) = listener.accept().await {
                        drop(connection);
                    }
                });
                return issuer;
            }
            let router = Router::new()
                .route("/.well-known/openid-configuration", get(about))
                .route("/keys", get(keys))
                .with_state(issuer.clone());
            tokio::spawn(axum::serve(listener, router).into_future());
            issuer
        }

        fn asked(&self) -> usize {
            *self.asked.borrow()
        }
    }

    /// Sets keys that were fetched just now.
    fn with(keys: &KeyCache) -> Arc<Published> {
        let published = Arc::new(Published::new(Vec::new(), keys.inner.clock.now()));
        keys.inner.state.lock().published = Some(Arc::clone(&published));
        published
    }

    #[tokio::test]
    async fn keys_are_fetched_once_and_again_after_they_expire() {
        let (issuer, clock) = (CountingIssuer::start(Answer::NoKeys).await, Clock::manual());
        let keys = KeyCache::new(&issuer.base, clock.clone());
        let all = futures::future::join_all((0..20).map(|_| keys.current())).await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(issuer.asked(), 1);
        clock.advance(FRESH - Duration::from_secs(10));
        let old = keys.current().await.unwrap();
        assert_eq!(issuer.asked(), 1);
        clock.advance(Duration::from_secs(10));
        assert!(!Arc::ptr_eq(&keys.current().await.unwrap(), &old), "old keys are replaced");
        assert_eq!(issuer.asked(), 2);
    }

    #[tokio::test]
    async fn unknown_key_names_fetch_keys_at_a_limited_rate() {
        let (issuer, clock) = (CountingIssuer::start(Answer::NoKeys).await, Clock::manual());
        let keys = KeyCache::new(&issuer.base, clock.clone());
        let mut known = keys.current().await.unwrap();
        for asked in 1..50 {
            clock.advance(Duration::from_millis(1));
            let newer = keys.refresh_after(&known).await;
            // Above the rate limit nothing is fetched: newer keys may exist, so the token may be
            // valid.
            assert_eq!(newer.is_ok(), asked < BURST as usize, "{asked}");
            match newer {
                Ok(newer) => known = newer,
                Err(away) => assert_eq!(away.retry_secs, EVERY.as_secs()),
            }
        }
        assert_eq!(issuer.asked(), BURST as usize);
        // After a while another fetch is allowed.
        clock.advance(EVERY);
        known = keys.refresh_after(&known).await.unwrap();
        assert_eq!(issuer.asked(), BURST as usize + 1);
        clock.advance(Duration::from_millis(1));
        assert!(keys.refresh_after(&known).await.is_err());
        assert!(!keys.wait().is_zero() && keys.wait() <= EVERY);
    }

    #[tokio::test]
    async fn cached_keys_stay_valid_for_a_time_during_an_outage() {
        let (issuer, clock) = (CountingIssuer::start(Answer::HangUp).await, Clock::manual());
        let keys = KeyCache::new(&issuer.base, clock.clone());
        assert!(keys.current().await.is_err());
        let old = with(&keys);
        clock.advance(LONGEST - Duration::from_secs(10));
        for _ in 0..20 {
            assert!(Arc::ptr_eq(&keys.current().await.unwrap(), &old));
        }
        assert!(
            keys.refresh_after(&old).await.is_err(),
            "it is unknown whether there are newer keys"
        );
        clock.advance(Duration::from_secs(10));
        let away = keys.current().await.unwrap_err();
        assert!((1..=EVERY.as_secs() + 1).contains(&away.retry_secs), "{away:?}");
    }

    #[tokio::test]
    async fn a_stalled_issuer_does_not_block_cached_keys() {
        let (issuer, clock) = (CountingIssuer::start(Answer::Never).await, Clock::manual());
        let keys = KeyCache::new(&issuer.base, clock.clone());
        let known = with(&keys);
        clock.advance(FRESH);
        let (current, ()) = tokio::join!(keys.current(), async {
            let mut asked = issuer.asked.subscribe();
            asked.wait_for(|asked| *asked == 1).await.unwrap();
            clock.until_sleeping(|left| left.contains(&SHORT)).await;
            clock.advance(SHORT);
        });
        assert!(Arc::ptr_eq(&current.unwrap(), &known));
        // A client that invents a key name waits to the end; others meanwhile do not.
        let known = with(&keys);
        let waits = tokio::spawn({
            let (keys, known) = (keys.clone(), Arc::clone(&known));
            async move { keys.refresh_after(&known).await }
        });
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert!(Arc::ptr_eq(&keys.current().await.unwrap(), &known));
        }
        assert!(!waits.is_finished());
        // The fetch ends after its timeout.
        clock.advance(FRESH);
        assert!(waits.await.unwrap().is_err());
        assert_eq!(issuer.asked(), 1, "all waiting callers share one fetch");
    }
}
