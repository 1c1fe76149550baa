//! Points in time, and the only place that reads the clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::base::number::count;

/// A day and a time of that day in UTC. All dates are in the Gregorian calendar, even those before
/// its introduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// Year. The year before 1 is 0.
    pub year: i64,
    /// Month, from 1.
    pub month: u8,
    /// Day of the month, from 1.
    pub day: u8,
    /// Hour, from 0.
    pub hour: u8,
    /// Minute, from 0.
    pub minute: u8,
    /// Second, from 0. Leap seconds are not counted.
    pub second: u8,
}

/// A point in time with nanosecond precision. Before 1970, `secs` is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01T00:00:00Z, rounded down.
    pub secs: i64,
    /// Additional nanoseconds, less than 1,000,000,000.
    pub nanos: u32,
}

/// Returns the time since the system was started. On Linux and Android, includes the time in
/// suspend.
pub fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(clock);
    let (secs, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(secs.unwrap_or_default(), nanos.unwrap_or_default())
}

/// Converts a time of the system; a time before 1970 becomes 1970.
impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self {
                secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nanos: since.subsec_nanos(),
            },
            Err(_) => Self::default(),
        }
    }
}

impl Time {
    /// Returns the current time of the system clock.
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Returns the nanoseconds since 1970, unless they do not fit in an `i64` (before
    /// 1678, after 2261).
    pub fn as_nanos(self) -> Option<i64> {
        self.secs.checked_mul(1_000_000_000)?.checked_add(i64::from(self.nanos))
    }

    /// Formats the time for ref logs: seconds since 1970, a point and nine digits.
    pub fn decimal(self) -> String {
        format!("{}.{:09}", self.secs, self.nanos)
    }

    /// Parses the output of [`Time::decimal`].
    pub fn parse_decimal(text: &str) -> Option<Self> {
        let (secs, nanos) = text.split_once('.')?;
        let nanos = Some(nanos).filter(|nanos| nanos.len() == 9)?.parse().ok()?;
        let time = Self { secs: secs.parse().ok()?, nanos };
        Some(time).filter(|time| time.nanos < 1_000_000_000)
    }

    /// Returns the date and time in UTC.
    pub fn civil(self) -> Civil {
        let (days, secs) = (self.secs.div_euclid(86_400), self.secs.rem_euclid(86_400));
        // Howard Hinnant's algorithm `civil_from_days`: eras of 400 years that begin in
        // March, so that the leap day is the last day of a year.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let small = |number: i64| u8::try_from(number).unwrap_or_default();
        Civil {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: small(month),
            day: small(day_of_year - (153 * from_march + 2) / 5 + 1),
            hour: small(secs / 3600),
            minute: small(secs / 60 % 60),
            second: small(secs % 60),
        }
    }

    /// Formats the time as RFC 3339 in UTC, with as many decimals as needed. RFC 3339
    /// allows only the years 0 to 9999. The years -9999 to -1 get a sign and six
    /// digits, as in ISO 8601; other years are written as `@secs.nanos`.
    pub fn rfc3339(self) -> String {
        let Civil { year, month, day, hour, minute, second } = self.civil();
        let year = match year {
            0..=9999 => format!("{year:04}"),
            -9999..0 => format!("-{:06}", -year),
            _ => return format!("@{}.{:09}", self.secs, self.nanos),
        };
        let nanos = match self.nanos {
            0 => String::new(),
            nanos => format!(".{}", format!("{nanos:09}").trim_end_matches('0')),
        };
        format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{nanos}Z")
    }

    /// Returns the age of this time at `now` in words, such as `2 hours ago`.
    pub fn ago(self, now: Self) -> String {
        const UNITS: [(i64, &str); 6] = [
            (365 * 86_400, "year"),
            (30 * 86_400, "month"),
            (7 * 86_400, "week"),
            (86_400, "day"),
            (3600, "hour"),
            (60, "minute"),
        ];
        let secs = now.secs.saturating_sub(self.secs);
        if secs < 0 {
            return "in the future".to_owned();
        }
        match UNITS.iter().find(|(length, _)| secs >= *length) {
            Some((length, unit)) => {
                let number = u64::try_from(secs / length).unwrap_or_default();
                format!("{} ago", count(number, unit))
            }
            None => "just now".to_owned(),
        }
    }

    /// Returns this time plus one nanosecond.
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
    fn nanoseconds_carry_and_can_be_negative() {
        assert_eq!(Time { secs: 1, nanos: 999_999_999 }.successor(), Time { secs: 2, nanos: 0 });
        assert_eq!(Time { secs: -1, nanos: 500_000_000 }.as_nanos(), Some(-500_000_000));
        assert_eq!(Time { secs: i64::MAX, nanos: 0 }.as_nanos(), None);
    }

    #[test]
    fn times_are_converted_to_calendar_dates() {
        for (secs, nanos, told) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (-1, 500_000_000, "1969-12-31T23:59:59.5Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.000000001Z"),
            (1_795_305_600, 0, "2026-11-22T00:00:00Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00Z"),
            (253_402_300_799, 0, "9999-12-31T23:59:59Z"),
            (-62_167_219_201, 0, "-000001-12-31T23:59:59Z"),
            (-377_705_116_800, 0, "-009999-01-01T00:00:00Z"),
            (-377_705_116_801, 0, "@-377705116801.000000000"),
            (253_402_300_800, 0, "@253402300800.000000000"),
            (i64::MIN, 0, "@-9223372036854775808.000000000"),
            (i64::MAX, 0, "@9223372036854775807.000000000"),
        ] {
            assert_eq!(Time { secs, nanos }.rfc3339(), told);
        }
        let first = Time { secs: -62_167_219_200, nanos: 0 }.civil();
        assert_eq!((first.year, first.month, first.day), (0, 1, 1));
    }

    #[test]
    fn ages_are_formatted_in_the_largest_unit_that_fits() {
        let now = Time { secs: 1_000_000_000, nanos: 0 };
        let of = |secs: i64| Time { secs: now.secs - secs, nanos: 0 }.ago(now);
        assert_eq!(of(-5), "in the future");
        assert_eq!(of(59), "just now");
        assert_eq!(of(60), "1 minute ago");
        assert_eq!(of(7300), "2 hours ago");
        assert_eq!(of(86_400 * 13), "1 week ago");
        assert_eq!(of(86_400 * 800), "2 years ago");
    }
}
