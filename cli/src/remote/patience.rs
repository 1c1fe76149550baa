//! Says what is waited for: a command that is silent for minutes looks as if it
//! had died.

use std::{
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use snap_remote::service::waits::Waiting;

use super::Network;
use crate::ui::Voice;

/// How long nothing is said.
const SILENT: Duration = Duration::from_secs(2);

/// When it is said for how long it may go on.
const LONG: Duration = Duration::from_secs(10);

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What was said of what is waited for.
#[derive(Debug)]
struct Said {
    /// Since when nothing has moved.
    quiet_since: Instant,
    moved: u64,
    /// Whether it was said what is waited for, and for how long.
    what: bool,
    how_long: bool,
}

/// Says with `voice` what `network` waits for, as long as there is one.
pub(crate) fn tell(network: &Arc<Network>, voice: Voice) {
    if network.is_told() {
        return;
    }
    let network = Arc::downgrade(network);
    // A thread that cannot be had is no loss but this.
    let _ =
        thread::Builder::new().name("patience".to_owned()).spawn(move || look(&network, &voice));
}

fn look(network: &Weak<Network>, voice: &Voice) {
    let quiet_since = Instant::now();
    let mut said = Said { quiet_since, moved: 0, what: false, how_long: false };
    while let Some(network) = network.upgrade() {
        let waiting = network.traffic().waits().oldest();
        let moved = network.traffic().moving();
        if let Some(message) = said.next(waiting, moved, Instant::now()) {
            network.aside(|| voice.say(&message));
        }
        drop(network);
        thread::sleep(LOOK);
    }
}

impl Said {
    /// What there is to say now.
    fn next(&mut self, waiting: Option<Waiting>, moved: u64, now: Instant) -> Option<String> {
        let Some(waiting) = waiting else {
            *self = Self { quiet_since: now, moved, what: false, how_long: false };
            return None;
        };
        if moved != self.moved {
            (self.moved, self.quiet_since) = (moved, now);
        }
        let age = now.saturating_duration_since(waiting.since);
        let quiet = now.saturating_duration_since(self.quiet_since).min(age);
        // Bytes that go again and again are no progress.
        let waited = if waiting.failed > 0 { age } else { quiet };
        if waited < SILENT {
            return None;
        }
        let Waiting { operation, key, location, .. } = &waiting;
        let place = if location.is_empty() { "the remote" } else { location };
        if !self.what {
            self.what = true;
            let why = match (waiting.is_busy, key.as_str()) {
                (true, _) => "it asks to come again later".to_owned(),
                (false, "") => format!("no answer yet to `{operation}`"),
                (false, key) => format!("no answer yet to `{operation} {key}`"),
            };
            return Some(format!("Waiting for {place}: {why}"));
        }
        if waited >= LONG && !self.how_long {
            self.how_long = true;
            let left = waiting.until.saturating_duration_since(now).as_secs().max(1);
            return Some(format!("Still waiting for {place}, for {left} s more at most"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(since: Instant, failed: u32, is_busy: bool) -> Option<Waiting> {
        let until = since + Duration::from_secs(185);
        let (key, location) = ("refs/heads/main".to_owned(), "s3://bucket/a".to_owned());
        Some(Waiting { operation: "read", key, location, since, until, failed, is_busy })
    }

    fn said(at: Instant) -> Said {
        Said { quiet_since: at, moved: 0, what: false, how_long: false }
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
        assert_eq!(second, "Still waiting for s3://bucket/a, for 175 s more at most");
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
        assert!(told.ends_with("it asks to come again later"), "{told}");
    }
}
