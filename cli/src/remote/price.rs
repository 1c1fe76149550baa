//! What requests and bytes cost, by the settings `price.*`.

use std::fmt;

use snap_remote::service::traffic::{Counts, Kind};

use crate::config::Prices;

/// Requests that a price is for.
const REQUESTS: u128 = 1_000;

/// Bytes that a price is for.
const BYTES: u128 = 1_000_000_000;

/// Digits behind the point that are shown.
const DIGITS: usize = 6;

/// A sum of money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// In millionths, rounded up.
    millionths: u64,
    currency: String,
}

impl Cost {
    /// What `counts` cost. To remove something costs nothing.
    pub(crate) fn of(counts: &Counts, prices: &Prices) -> Self {
        let requests = |kinds: &[Kind]| {
            kinds.iter().map(|kind| u128::from(counts.by_kind[*kind as usize])).sum::<u128>()
        };
        let parts = [
            (requests(&[Kind::Put, Kind::List, Kind::Post]), prices.writes, REQUESTS),
            (requests(&[Kind::Get, Kind::Head]), prices.reads, REQUESTS),
            (u128::from(counts.bytes_sent), prices.sent, BYTES),
            (u128::from(counts.bytes_received), prices.received, BYTES),
        ];
        let most = REQUESTS * BYTES;
        let sum: u128 = parts
            .into_iter()
            .map(|(count, price, unit)| count * u128::from(price) * (most / unit))
            .sum();
        let millionths = u64::try_from(sum.div_ceil(most)).unwrap_or(u64::MAX);
        Self { millionths, currency: prices.currency.clone() }
    }

    /// In units of the currency.
    pub(crate) fn amount(&self) -> f64 {
        self.millionths as f64 / 1e6
    }

    /// Such as `USD`.
    pub(crate) fn currency(&self) -> &str {
        &self.currency
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.DIGITS$} {}", self.amount(), self.currency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_bytes_add_up() {
        let prices = Prices {
            currency: "USD".to_owned(),
            writes: 5_000,
            reads: 400,
            sent: 0,
            received: 90_000,
        };
        let mut counts = Counts { bytes_received: 1_000_000_000, ..Counts::default() };
        counts.by_kind[Kind::Put as usize] = 2_000;
        counts.by_kind[Kind::Get as usize] = 1_000;
        counts.by_kind[Kind::Delete as usize] = 1_000_000;
        assert_eq!(Cost::of(&counts, &prices).to_string(), "0.100400 USD");
        counts = Counts::default();
        counts.by_kind[Kind::Head as usize] = 1;
        assert_eq!(Cost::of(&counts, &prices).millionths, 1);
    }
}
