//! Whether what is told of a store is as it is upstream.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::contact::Away;

/// Since when it may not be.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When it last was.
    last: Option<Instant>,
    is_stale: bool,
}

impl Fresh {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody is told how it stands: as upstream says, or not.
    pub(super) fn tell(&self, is_fresh: bool) {
        let mut state = self.state();
        state.is_stale = !is_fresh;
        if is_fresh {
            state.last = Some(Instant::now());
        }
    }

    /// How old what is told may be.
    pub(super) fn away(&self) -> Option<Away> {
        let state = self.state();
        let age_secs = state.last.map(|last| last.elapsed().as_secs());
        state.is_stale.then_some(Away { age_secs })
    }
}
