//! Reports what a command waits for, because a command that is silent for minutes looks dead.

use std::{
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use snap_remote::bucket::pending::PendingRequest;

use super::Network;
use crate::ui::StatusPrinter;

/// Time without progress before the first message.
const SILENT: Duration = Duration::from_secs(2);

/// Time without progress before the message about the timeout.
const LONG: Duration = Duration::from_secs(10);

/// Interval of the checks.
const LOOK: Duration = Duration::from_millis(100);

/// The messages that were printed about the present wait.
#[derive(Debug)]
struct WaitMessages {
    /// Time of the last progress.
    quiet_since: Instant,
    moved: u64,
    /// True for each message that was printed: the one about the cause, the one about the timeout.
    what: bool,
    how_long: bool,
}

/// Starts a thread that reports with `status_printer` what `network` waits for. It ends when `network` is
/// dropped.
pub(crate) fn spawn(network: &Arc<Network>, status_printer: StatusPrinter) {
    if network.claim_wait_reporter() {
        return;
    }
    let network = Arc::downgrade(network);
    // Without this thread, only the messages are missing.
    let _ = thread::Builder::new()
        .name("wait-messages".to_owned())
        .spawn(move || look(&network, &status_printer));
}

fn look(network: &Weak<Network>, status_printer: &StatusPrinter) {
    let quiet_since = Instant::now();
    let mut messages = WaitMessages { quiet_since, moved: 0, what: false, how_long: false };
    while let Some(network) = network.upgrade() {
        let waiting = network.traffic().pending().oldest();
        let moved = network.traffic().moving();
        if let Some(message) = messages.next(waiting, moved, Instant::now()) {
            network.aside(|| status_printer.say(&message));
        }
        drop(network);
        thread::sleep(LOOK);
    }
}

impl WaitMessages {
    /// Returns the next message, if one is due.
    fn next(
        &mut self,
        waiting: Option<PendingRequest>,
        moved: u64,
        now: Instant,
    ) -> Option<String> {
        let Some(waiting) = waiting else {
            *self = Self { quiet_since: now, moved, what: false, how_long: false };
            return None;
        };
        if moved != self.moved {
            (self.moved, self.quiet_since) = (moved, now);
        }
        let age = now.saturating_duration_since(waiting.since);
        let quiet = now.saturating_duration_since(self.quiet_since).min(age);
        // Bytes that are sent again after a failure are not progress.
        let waited = if waiting.failed > 0 { age } else { quiet };
        if waited < SILENT {
            return None;
        }
        let PendingRequest { operation, key, location, .. } = &waiting;
        let place = if location.is_empty() { "the remote" } else { location };
        if !self.what {
            self.what = true;
            let why = match (waiting.is_busy, key.as_str()) {
                (true, _) => "the server is busy; the request is retried later".to_owned(),
                (false, "") => format!("no answer yet to `{operation}`"),
                (false, key) => format!("no answer yet to `{operation} {key}`"),
            };
            return Some(format!("Waiting for {place}: {why}"));
        }
        if waited >= LONG && !self.how_long {
            self.how_long = true;
            let left = waiting.until.saturating_duration_since(now).as_secs().max(1);
            return Some(format!("Still waiting for {place}; timeout in {left} s"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(since: Instant, failed: u32, is_busy: bool) -> Option<PendingRequest> {
        let until = since + Duration::from_secs(185);
        let (key, location) = ("refs/heads/main".to_owned(), "s3://bucket/a".to_owned());
        Some(PendingRequest { operation: "read", key, location, since, until, failed, is_busy })
    }

    fn said(at: Instant) -> WaitMessages {
        WaitMessages { quiet_since: at, moved: 0, what: false, how_long: false }
    }

    #[test]
    fn it_is_said_after_two_seconds_and_again_after_ten() {
        let began = Instant::now();
        let mut said = said(began);
        let at = |secs| began + Duration::from_secs(secs);
        assert_eq!(said.next(waiting(began, 0, false), 0, at(1)), None);
        let first = said.next(waiting(began, 0, false), 0, at(2)).unwrap();
        assert_eq!(first, "Waiting for s3://bucket/a: no answer yet to `read refs/heads/main`");
        assert_eq!(said.next(waiting(began, 0, false), 0, at(9)), None, "once");
        let second = said.next(waiting(began, 0, false), 0, at(10)).unwrap();
        assert_eq!(second, "Still waiting for s3://bucket/a; timeout in 175 s");
        assert_eq!(said.next(waiting(began, 0, false), 0, at(100)), None);
    }

    #[test]
    fn nothing_is_said_while_bytes_move_but_of_what_is_made_again_and_again() {
        let began = Instant::now();
        let mut quiet = said(began);
        for second in 0..60 {
            let now = began + Duration::from_secs(second);
            assert_eq!(quiet.next(waiting(began, 0, false), second, now), None);
        }
        let mut busy = said(began);
        let now = began + Duration::from_secs(3);
        let told = busy.next(waiting(began, 3, true), 3, now).unwrap();
        assert!(told.ends_with("the server is busy; the request is retried later"), "{told}");
    }
}
