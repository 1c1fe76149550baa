//! Whose the terminal is: ours, or a pager's.

use std::{
    io::{self, Write},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use signal_hook::SigId;

/// Whose the terminal is. While a pager has it, nothing is drawn, talk is kept
/// for later, and Ctrl-C is the pager's.
#[derive(Debug, Default)]
pub(super) struct Screen {
    taken: AtomicBool,
    held: Mutex<String>,
    second: Mutex<Option<SigId>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Screen {
    /// `second` is what a second Ctrl-C does.
    pub(super) fn new(second: SigId) -> Self {
        Self { second: Mutex::new(Some(second)), ..Self::default() }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// A pager has it from now on.
    pub(super) fn take(&self) {
        self.taken.store(true, Ordering::Relaxed);
        // To end now would leave the pager without anything to read, and the
        // shell without a terminal.
        if let Some(second) = lock(&self.second).take() {
            signal_hook::low_level::unregister(second);
        }
    }

    /// The pager is gone; what was kept is said.
    pub(super) fn give_back(&self) {
        self.taken.store(false, Ordering::Relaxed);
        let held = std::mem::take(&mut *lock(&self.held));
        if !held.is_empty() {
            self.say(&held);
        }
    }

    /// Says something on stderr, now or later.
    pub(super) fn say(&self, text: &str) {
        if self.is_taken() {
            lock(&self.held).push_str(text);
        } else {
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
    }
}
