//! Tracks whether snap or a pager owns the terminal.

use std::{
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use signal_hook::SigId;

/// The owner of the terminal. While a pager owns it, nothing is drawn, messages are held back, and
/// Ctrl-C belongs to the pager.
#[derive(Debug, Default)]
pub(super) struct Screen {
    taken: AtomicBool,
    held: Mutex<String>,
    second: Mutex<Option<SigId>>,
}

impl Screen {
    /// Makes a screen; `second` is the action of a second Ctrl-C.
    pub(super) fn new(second: SigId) -> Self {
        Self { second: Mutex::new(Some(second)), ..Self::default() }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Gives the terminal to a pager.
    pub(super) fn take(&self) {
        self.taken.store(true, Ordering::Relaxed);
        // If a second Ctrl-C ended this process now, the pager would have nothing to read, and the
        // shell would lose its terminal.
        if let Some(second) = self.second.lock().take() {
            signal_hook::low_level::unregister(second);
        }
    }

    /// Takes the terminal back, and prints the messages that were held back.
    pub(super) fn give_back(&self) {
        self.taken.store(false, Ordering::Relaxed);
        let held = std::mem::take(&mut *self.held.lock());
        if !held.is_empty() {
            self.say(&held);
        }
    }

    /// Prints a message on stderr, now or after the pager.
    pub(super) fn say(&self, text: &str) {
        if self.is_taken() {
            self.held.lock().push_str(text);
        } else {
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
    }
}
