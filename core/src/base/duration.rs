//! Durations and ages as users write them: `90s`, `36h`, `1y5m7d`.
//!
//! | unit | duration              | age      |
//! |------|-----------------------|----------|
//! | `y`  |                       | years    |
//! | `m`  | minutes, on request   | months   |
//! | `w`  | 7 × 24 hours          | 7 days   |
//! | `d`  | 24 hours              | days     |
//! | `h`  | hours                 | hours    |
//! | `s`  | seconds               |          |
//!
//! An age of a retention policy has the units of restic, where `m` means months. Elsewhere `m` could
//! be read as either, so a duration has minutes only where months make no sense.

use std::{str::FromStr, time::Duration};

use crate::base::time::Time;

/// The rule for ages, as text after "must be" or "expected".
pub const AGE_RULE: &str =
    "an age such as 12h, 30d, 8w, 12m (months) or 1y5m7d; minutes and seconds are too short";

/// The rule for durations without minutes.
pub const DURATION_RULE: &str = "a time such as 36h, 7d or 2w; `m` could be minutes or months: \
                                 write 2h for 120 minutes, or 60d for 2 months";

/// The rule for durations with minutes.
pub const MINUTES_RULE: &str = "a time such as 90s, 10m, 1h30m, 30d or 2w";

/// An age in units of the calendar. Months differ in length, and so do days if the clock changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Age {
    /// Months; a year has 12.
    pub months: u32,
    /// Days; a week has 7.
    pub days: u32,
    /// Hours.
    pub hours: u32,
}

impl FromStr for Age {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |unit, number: u64| match unit {
            'y' => (number.checked_mul(12), 0, 0),
            'm' => (Some(number), 0, 0),
            'w' => (Some(0), number.saturating_mul(7), 0),
            'd' => (Some(0), number, 0),
            _ => (Some(0), 0, number),
        };
        let mut age = Self::default();
        let add = |sum: &mut u32, more: u64| {
            *sum = sum.checked_add(u32::try_from(more).ok()?)?;
            Some(())
        };
        for (unit, count) in parts(text, "ymwdh").ok_or(AGE_RULE)? {
            let (months, days, hours) = number(unit, count);
            let added = months.and_then(|months| {
                add(&mut age.months, months)?;
                add(&mut age.days, days)?;
                add(&mut age.hours, hours)
            });
            added.ok_or(AGE_RULE)?;
        }
        Ok(age)
    }
}

impl Age {
    /// Returns the time that is this age before `time`, as restic computes it: first years, months
    /// and days of the local calendar, then hours. A day that the month lacks is counted from the
    /// start of that month: a month before 31 March is 3 March, or 2 March in a leap year.
    /// `offset_secs` returns the offset of the local time from UTC at a time.
    pub fn before(self, time: Time, offset_secs: &dyn Fn(Time) -> i64) -> Time {
        let offset = offset_secs(time);
        let local = Time { secs: time.secs.saturating_add(offset), ..time };
        let date = local.civil();
        let month = date.year * 12 + i64::from(date.month) - 1 - i64::from(self.months);
        let days = days_before_month(month.div_euclid(12), month.rem_euclid(12) + 1)
            + i64::from(date.day)
            - 1
            - i64::from(self.days);
        let local_secs = days.saturating_mul(86_400).saturating_add(local.secs.rem_euclid(86_400));
        // The offset may differ at that time.
        let near = Time { secs: local_secs.saturating_sub(offset), ..time };
        let secs = local_secs.saturating_sub(offset_secs(near));
        Time { secs: secs.saturating_sub(i64::from(self.hours) * 3600), ..time }
    }
}

/// Returns the days from 1970-01-01 to the first day of a month, which counts from 1.
fn days_before_month(year: i64, month: i64) -> i64 {
    // Howard Hinnant's algorithm `days_from_civil`, the inverse of that of `Time::civil`.
    let (year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * from_march + 2) / 5;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Parses a duration without minutes, such as `36h` or `2w`.
///
/// # Errors
/// The rule that the text breaks: [`DURATION_RULE`].
pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    length(text, "wdhs").ok_or(DURATION_RULE)
}

/// Parses a duration that may have minutes, such as `10m` or `1h30m`.
///
/// # Errors
/// The rule that the text breaks: [`MINUTES_RULE`].
pub fn parse_duration_with_minutes(text: &str) -> Result<Duration, &'static str> {
    length(text, "wdhms").ok_or(MINUTES_RULE)
}

fn length(text: &str, units: &str) -> Option<Duration> {
    let mut secs = 0_u64;
    for (unit, count) in parts(text, units)? {
        let unit_secs = match unit {
            'w' => 7 * 86_400,
            'd' => 86_400,
            'h' => 3600,
            'm' => 60,
            _ => 1,
        };
        secs = secs.checked_add(count.checked_mul(unit_secs)?)?;
    }
    Some(Duration::from_secs(secs))
}

/// Splits a text into units and their numbers. Each unit occurs at most once. Returns `None` for
/// other texts, and for one without a number.
fn parts(text: &str, units: &str) -> Option<Vec<(char, u64)>> {
    let mut found: Vec<(char, u64)> = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let at = rest.find(|c: char| !c.is_ascii_digit())?;
        let (digits, after) = rest.split_at(at);
        let unit = after.chars().next().filter(|unit| units.contains(*unit))?;
        if found.iter().any(|(other, _)| *other == unit) {
            return None;
        }
        found.push((unit, digits.parse().ok()?));
        rest = &after[unit.len_utf8()..];
    }
    Some(found).filter(|found| !found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_of_a_fixed_length() {
        let secs = |text| parse_duration_with_minutes(text).map(|length| length.as_secs());
        assert_eq!(secs("90s"), Ok(90));
        assert_eq!(secs("10m"), Ok(600));
        assert_eq!(secs("1h30m"), Ok(5400));
        assert_eq!(secs("30d"), Ok(30 * 86_400));
        assert_eq!(secs("2w"), Ok(14 * 86_400));
        let too_long = format!("{}w", u64::MAX);
        let bad = ["", "30", "1mo", "1y", "-3d", "3d ago", "soon", "d", "1d1d", "1.5h", "٣d"];
        for text in bad.into_iter().chain([&*too_long]) {
            assert_eq!(secs(text), Err(MINUTES_RULE), "{text}");
        }
        assert_eq!(parse_duration("1h1s"), Ok(Duration::from_secs(3601)));
        assert_eq!(parse_duration("10m"), Err(DURATION_RULE));
    }

    #[test]
    fn ages_have_the_units_of_restic_and_weeks() {
        let age = |months, days, hours| Ok(Age { months, days, hours });
        assert_eq!("1y5m7d".parse(), age(17, 7, 0));
        assert_eq!("2w3d37h".parse(), age(0, 17, 37));
        assert_eq!(" 6m ".parse(), age(6, 0, 0));
        assert_eq!("0d".parse(), age(0, 0, 0));
        for text in ["", "90s", "6mo", "1h30", "30min", "4294967296d", "400000000y", "-1d"] {
            assert_eq!(text.parse::<Age>(), Err(AGE_RULE), "{text}");
        }
    }

    #[test]
    fn an_age_is_subtracted_in_the_local_calendar() {
        // 2026-03-31T12:00:00Z, and the same moments that Go's `AddDate` returns.
        let march = Time { secs: 1_774_958_400, nanos: 5 };
        let before = |text: &str| text.parse::<Age>().unwrap().before(march, &|_| 0).rfc3339();
        assert_eq!(before("1m"), "2026-03-03T12:00:00.000000005Z");
        assert_eq!(before("2m"), "2026-01-31T12:00:00.000000005Z");
        assert_eq!(before("2y1m"), "2024-03-02T12:00:00.000000005Z");
        assert_eq!(before("4m31d13h"), "2025-10-30T23:00:00.000000005Z");
        assert_eq!(before("1y"), "2025-03-31T12:00:00.000000005Z");
        let most = Age { months: u32::MAX, days: u32::MAX, hours: u32::MAX };
        assert!(most.before(march, &|_| 0).secs < -11_000_000_000_000_000);
        assert!(most.before(Time { secs: i64::MIN, nanos: 0 }, &|_| -86_400).secs < 0);
    }

    #[test]
    fn an_age_follows_the_clock_across_summer_time() {
        // The clock went forward by an hour at this moment: 2026-03-29T01:00:00Z.
        let offset = |time: Time| if time.secs < 1_774_746_000 { 3600 } else { 7200 };
        let noon = Time { secs: 1_774_864_800, nanos: 0 };
        let before = |text: &str| text.parse::<Age>().unwrap().before(noon, &offset).rfc3339();
        assert_eq!(noon.rfc3339(), "2026-03-30T10:00:00Z");
        assert_eq!(before("2d"), "2026-03-28T11:00:00Z");
        assert_eq!(before("48h"), "2026-03-28T10:00:00Z");
        assert_eq!(before("1m"), "2026-03-02T11:00:00Z", "29 February does not exist");
    }

    #[test]
    fn months_begin_where_the_calendar_says() {
        for (year, month) in [(1970, 1), (2000, 2), (2000, 3), (2100, 3), (-1, 12), (0, 1)] {
            let secs = days_before_month(year, month) * 86_400;
            let date = Time { secs, nanos: 0 }.civil();
            assert_eq!((date.year, i64::from(date.month), date.day), (year, month, 1));
        }
    }
}
