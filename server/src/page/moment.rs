//! Times for people: how long ago, and exactly when, in UTC. A script shows the
//! exact time in the zone of whoever looks.

use maud::{Markup, html};
use snap_core::base::time::Time;

use super::number::count;

/// A time, relative to the present, with the exact one beside it.
pub(super) fn ago(time: Time) -> Markup {
    let now = Time::now();
    html! { time datetime=(rfc3339(time)) title=(exact(time)) { (relative(time, now)) } }
}

/// A time, exactly.
pub(super) fn exactly(time: Time) -> Markup {
    html! { time datetime=(rfc3339(time)) .exact { (exact(time)) } }
}

/// How long before `now` a time was, in words, such as `2 hours ago`.
fn relative(time: Time, now: Time) -> String {
    const UNITS: [(i64, &str); 6] = [
        (365 * 86_400, "year"),
        (30 * 86_400, "month"),
        (7 * 86_400, "week"),
        (86_400, "day"),
        (3600, "hour"),
        (60, "minute"),
    ];
    let secs = now.secs.saturating_sub(time.secs);
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

/// RFC 3339 in UTC, to the second.
pub(super) fn rfc3339(time: Time) -> String {
    let ((year, month, day), (hour, minute, second)) = parts(time);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn exact(time: Time) -> String {
    let ((year, month, day), (hour, minute, second)) = parts(time);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The day, such as `2026-11-21`.
pub(super) fn day(time: Time) -> String {
    let ((year, month, day), _) = parts(time);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month, day; hour, minute, second. Of the proleptic Gregorian calendar;
/// the days of an era of 400 years are counted from 1 March.
fn parts(time: Time) -> ((i64, i64, i64), (i64, i64, i64)) {
    let (days, secs) = (time.secs.div_euclid(86_400), time.secs.rem_euclid(86_400));
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    ((year, month, day), (secs / 3600, secs / 60 % 60, secs % 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_what_they_say() {
        let of = |secs| rfc3339(Time { secs, nanos: 5 });
        assert_eq!(of(0), "1970-01-01T00:00:00Z");
        assert_eq!(of(-1), "1969-12-31T23:59:59Z");
        assert_eq!(of(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(of(4_107_542_400), "2100-03-01T00:00:00Z");
        // Nothing in a commit makes it overflow.
        assert!(of(i64::MAX).ends_with('Z') && of(i64::MIN).ends_with('Z'));
    }

    #[test]
    fn ages_are_told_in_the_largest_unit_that_fits() {
        let now = Time { secs: 1_000_000_000, nanos: 0 };
        let of = |secs: i64| relative(Time { secs: now.secs - secs, nanos: 0 }, now);
        assert_eq!(of(-5), "in the future");
        assert_eq!(of(59), "just now");
        assert_eq!(of(7300), "2 hours ago");
        assert_eq!(of(86_400 * 800), "2 years ago");
    }
}
