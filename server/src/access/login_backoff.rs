//! Backs off after failed logins. The response to a wrong token is delayed, and the delay
//! grows with each wrong token from the same address. A right token is never delayed.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    clock::Clock,
    problem::{Code, HttpProblem},
};

/// Delay of the response to the first wrong token. Each further wrong token doubles it.
const FIRST: Duration = Duration::from_millis(100);

/// Longest delay that one more wrong token adds.
const LONGEST: Duration = Duration::from_secs(5);

/// Longest delay of a response. The server refuses a wrong token at once if it would wait longer.
const MAX_DELAY: Duration = Duration::from_secs(20);

/// After this long without a wrong token, an address starts anew.
const RESET_AFTER: Duration = Duration::from_secs(300);

/// Maximum number of tracked addresses.
const ADDRESSES: usize = 4096;

/// The wrong tokens that came from each address.
#[derive(Debug, Default)]
pub struct LoginBackoff {
    failures: Mutex<HashMap<IpAddr, Failures>>,
    clock: Clock,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// When the response to the last wrong token is due.
    answered: Instant,
}

impl LoginBackoff {
    pub(super) fn new(clock: Clock) -> Self {
        Self { failures: Mutex::default(), clock }
    }

    /// Waits for the current delay of this address, and returns the refusal of a wrong token.
    pub(super) async fn delay_refusal(&self, address: IpAddr) -> HttpProblem {
        let wait = self.note(address, self.clock.now());
        if wait > MAX_DELAY {
            return HttpProblem::slow_down(wait.as_secs() + 1, "too many invalid tokens");
        }
        self.clock.sleep(wait).await;
        HttpProblem::new(Code::Unauthorized, "the token is invalid or has expired")
    }

    /// Counts a wrong token, and returns how long its response must wait.
    fn note(&self, address: IpAddr, now: Instant) -> Duration {
        let address = network(address);
        let mut failures = self.failures.lock();
        if failures.len() >= ADDRESSES && !failures.contains_key(&address) {
            failures.retain(|_, known| now.saturating_duration_since(known.answered) < RESET_AFTER);
            let oldest = failures.iter().min_by_key(|(_, known)| known.answered);
            if let Some(oldest) = oldest.map(|(address, _)| *address)
                && failures.len() >= ADDRESSES
            {
                failures.remove(&oldest);
            }
        }
        let known = failures.entry(address).or_insert(Failures { count: 0, answered: now });
        if now.saturating_duration_since(known.answered) >= RESET_AFTER {
            *known = Failures { count: 0, answered: now };
        }
        let delay = FIRST.saturating_mul(1 << known.count.min(10)).min(LONGEST);
        // The delays add up, so that parallel guesses gain nothing.
        let answered = known.answered.max(now) + delay;
        if answered - now <= MAX_DELAY {
            *known = Failures { count: known.count.saturating_add(1), answered };
        }
        answered - now
    }
}

/// Returns an IPv4 address unchanged, and the /64 network of an IPv6 address: one customer usually
/// has a whole /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_logins_of_an_address_back_off_separately() {
        let patience = LoginBackoff::default();
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let now = Instant::now();
        assert_eq!(patience.note(one, now), FIRST);
        assert_eq!(patience.note(one, now), FIRST * 3, "the delays add up");
        assert_eq!(patience.note(other, now), FIRST);
        while patience.note(one, now) <= MAX_DELAY {}
        let sent_away = patience.note(one, now);
        assert_eq!(patience.note(one, now), sent_away, "the delay has a limit");
        assert!(sent_away <= MAX_DELAY + LONGEST);
        let later = now + MAX_DELAY + RESET_AFTER;
        assert_eq!(patience.note(one, later), FIRST);
    }

    #[test]
    fn the_number_of_remembered_addresses_is_bounded() {
        let patience = LoginBackoff::default();
        let now = Instant::now();
        for number in 0..ADDRESSES as u32 + 100 {
            patience.note(IpAddr::V4(number.into()), now);
        }
        assert_eq!(patience.failures.lock().len(), ADDRESSES);
        // One customer has 2^64 addresses of IPv6.
        let wait = patience.note("2001:db8::1".parse().unwrap(), now);
        assert!(patience.note("2001:db8::2".parse().unwrap(), now) > wait);
    }
}
