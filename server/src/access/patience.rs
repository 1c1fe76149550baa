//! Those who come with wrong tokens wait, each address by itself, the longer the
//! more often it happened. A right token never waits, wherever it comes from.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::problem::{Code, Problem};

/// How long the first wrong token waits; each further one twice as long.
const FIRST: Duration = Duration::from_millis(100);

/// No answer is later than the one before by more than this.
const LONGEST: Duration = Duration::from_secs(5);

/// Whoever would wait for longer is sent away at once.
const QUEUE: Duration = Duration::from_secs(20);

/// After so long without a wrong token all is forgiven.
const FORGIVEN: Duration = Duration::from_secs(300);

/// Addresses that are remembered.
const ADDRESSES: usize = 4096;

/// Who came with wrong tokens.
#[derive(Debug, Default)]
pub struct Patience {
    failures: Mutex<HashMap<IpAddr, Failures>>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// When the last of them is answered.
    answered: Instant,
}

impl Patience {
    /// Waits as is due after a wrong token from that address, and says so.
    pub(super) async fn failed(&self, address: IpAddr) -> Problem {
        let wait = self.note(address, Instant::now());
        if wait > QUEUE {
            return Problem::slow_down(wait.as_secs() + 1, "too many wrong tokens");
        }
        tokio::time::sleep(wait).await;
        Problem::new(Code::Unauthorized, "this token does not hold here")
    }

    /// Notes a wrong token; how long its answer is to wait.
    fn note(&self, address: IpAddr, now: Instant) -> Duration {
        let address = network(address);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= ADDRESSES && !failures.contains_key(&address) {
            failures.retain(|_, known| now.saturating_duration_since(known.answered) < FORGIVEN);
            let oldest = failures.iter().min_by_key(|(_, known)| known.answered);
            if let Some(oldest) = oldest.map(|(address, _)| *address)
                && failures.len() >= ADDRESSES
            {
                failures.remove(&oldest);
            }
        }
        let known = failures.entry(address).or_insert(Failures { count: 0, answered: now });
        if now.saturating_duration_since(known.answered) >= FORGIVEN {
            *known = Failures { count: 0, answered: now };
        }
        let delay = FIRST.saturating_mul(1 << known.count.min(10)).min(LONGEST);
        // Those who ask many times at once wait one after the other.
        let answered = known.answered.max(now) + delay;
        if answered - now <= QUEUE {
            *known = Failures { count: known.count.saturating_add(1), answered };
        }
        answered - now
    }
}

/// An address, or the network that one customer has of the newer kind.
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
    fn each_wrong_token_waits_longer_and_other_addresses_do_not() {
        let patience = Patience::default();
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let now = Instant::now();
        assert_eq!(patience.note(one, now), FIRST);
        assert_eq!(patience.note(one, now), FIRST * 3, "one after the other");
        assert_eq!(patience.note(other, now), FIRST);
        while patience.note(one, now) <= QUEUE {}
        let sent_away = patience.note(one, now);
        assert_eq!(patience.note(one, now), sent_away, "it does not grow without end");
        assert!(sent_away <= QUEUE + LONGEST);
        let later = now + QUEUE + FORGIVEN;
        assert_eq!(patience.note(one, later), FIRST);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let patience = Patience::default();
        let now = Instant::now();
        for number in 0..ADDRESSES as u32 + 100 {
            patience.note(IpAddr::V4(number.into()), now);
        }
        assert_eq!(patience.failures.lock().unwrap().len(), ADDRESSES);
        // A customer has 2^64 addresses of the newer kind.
        let wait = patience.note("2001:db8::1".parse().unwrap(), now);
        assert!(patience.note("2001:db8::2".parse().unwrap(), now) > wait);
    }
}
