//! Whether whoever asked wants it no more.

use std::{fmt, future::Future, future::pending, sync::Arc, time::Duration};

/// How soon that is noticed.
const POLL: Duration = Duration::from_millis(50);

tokio::task_local! {
    static SHIELDED: ();
}

/// Something that can be asked whether to go on; by default that is so for ever.
#[derive(Clone, Default)]
pub struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.is_asked()).finish()
    }
}

impl Stop {
    /// To be asked for as soon as `asked` says so.
    pub fn when(asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(asked)))
    }

    /// Whether it was asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|asked| asked())
    }

    /// What `work` comes to; `None` when it was given up.
    pub(super) async fn or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        if self.0.is_none() || SHIELDED.try_with(|()| ()).is_ok() {
            return Some(work.await);
        }
        tokio::select! {
            biased;
            () = self.asked() => None,
            done = work => Some(done),
        }
    }

    async fn asked(&self) {
        if self.0.is_none() {
            return pending().await;
        }
        while !self.is_asked() {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Does `work` to its end, whoever asks to stop meanwhile.
pub(crate) async fn shielded<T>(work: impl Future<Output = T>) -> T {
    SHIELDED.scope((), work).await
}
