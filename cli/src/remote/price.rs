//! Computes the cost of requests and bytes from the settings `price.*`.

use std::fmt;

use snap_remote::bucket::traffic::{RequestKind, TrafficCounts};

use crate::{config::Prices, context::Context, report::CliError, ui::text};

/// The number of requests that a price is for.
const REQUESTS: u128 = 1_000;

/// The number of bytes that a price is for.
const BYTES: u128 = 1_000_000_000;

/// Decimal places that are shown.
const DIGITS: usize = 6;

/// An amount of money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The amount in millionths, rounded up.
    millionths: u64,
    currency: String,
}

impl Cost {
    /// Returns true if nothing has to be paid.
    pub(crate) fn is_free(&self) -> bool {
        self.millionths == 0
    }

    /// Computes the cost of `counts`. Deleting is free.
    fn of(counts: &TrafficCounts, prices: &Prices) -> Self {
        let requests = |kinds: &[RequestKind]| {
            kinds.iter().map(|kind| u128::from(counts.by_kind[*kind as usize])).sum::<u128>()
        };
        let parts = [
            (
                requests(&[RequestKind::Put, RequestKind::List, RequestKind::Post]),
                prices.writes,
                REQUESTS,
            ),
            (requests(&[RequestKind::Get, RequestKind::Head]), prices.reads, REQUESTS),
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
}

impl Context {
    /// Computes the cost of the requests so far. Only buckets have a price.
    pub(crate) fn cost(&self) -> Result<Cost, CliError> {
        let counts = match self.network().has_bucket() {
            true => self.network().traffic().counts(),
            false => TrafficCounts::default(),
        };
        Ok(Cost::of(&counts, &self.settings_here()?.0.prices()))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may come from the settings of an untrusted store.
        let currency = text::line(self.currency.as_bytes());
        write!(f, "{:.DIGITS$} {currency}", self.millionths as f64 / 1e6)
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
        let mut counts =
            TrafficCounts { bytes_received: 1_000_000_000, ..TrafficCounts::default() };
        counts.by_kind[RequestKind::Put as usize] = 2_000;
        counts.by_kind[RequestKind::Get as usize] = 1_000;
        counts.by_kind[RequestKind::Delete as usize] = 1_000_000;
        assert_eq!(Cost::of(&counts, &prices).to_string(), "0.100400 USD");
        counts = TrafficCounts::default();
        counts.by_kind[RequestKind::Head as usize] = 1;
        assert_eq!(Cost::of(&counts, &prices).millionths, 1);
        let currency = "\u{1b}]0;title\u{7}\u{202e}".to_owned();
        let shown = Cost::of(&counts, &Prices { currency, ..prices }).to_string();
        assert!(!shown.chars().any(|c| c.is_control() || c == '\u{202e}'), "{shown:?}");
    }
}
