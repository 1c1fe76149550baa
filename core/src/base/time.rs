//! Points in time, and the one place that asks for the present one.

use std::time::{SystemTime, UNIX_EPOCH};

/// A point in time with nanoseconds; negative seconds lie before 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01T00:00:00Z, rounded down.
    pub secs: i64,
    /// Nanoseconds on top, below 1,000,000,000.
    pub nanos: u32,
}

impl Time {
    /// The present, as the system's clock has it.
    pub fn now() -> Self {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Self {
                secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nanos: since.subsec_nanos(),
            },
            Err(_) => Self::default(),
        }
    }

    /// Nanoseconds since 1970, unless they do not fit (before 1678, after 2261).
    pub fn as_nanos(self) -> Option<i64> {
        self.secs.checked_mul(1_000_000_000)?.checked_add(i64::from(self.nanos))
    }

    /// The next nanosecond.
    #[must_use]
    pub fn successor(self) -> Self {
        match self.nanos {
            999_999_999 => Self { secs: self.secs.saturating_add(1), nanos: 0 },
            nanos => Self { secs: self.secs, nanos: nanos + 1 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_carry_and_go_negative() {
        assert_eq!(Time { secs: 1, nanos: 999_999_999 }.successor(), Time { secs: 2, nanos: 0 });
        assert_eq!(Time { secs: -1, nanos: 500_000_000 }.as_nanos(), Some(-500_000_000));
        assert_eq!(Time { secs: i64::MAX, nanos: 0 }.as_nanos(), None);
    }
}
