//! Times for people: how long ago, and exactly when, in UTC. A script shows the
//! exact time in the zone of whoever looks.

use maud::{Markup, html};
use snap_core::base::number::count;
use snap_core::base::time::{Civil, Time};

/// A time, relative to the present, with the exact one beside it.
pub(super) fn ago(time: Time) -> Markup {
    let now = Time::now();
    html! { time datetime=(datetime(time)) title=(exact(time)) { (relative(time, now)) } }
}

/// A time, exactly.
pub(super) fn exactly(time: Time) -> Markup {
    html! { time datetime=(datetime(time)) .exact { (exact(time)) } }
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

/// To the second, as programs read it.
fn datetime(time: Time) -> String {
    Time { nanos: 0, ..time }.rfc3339()
}

fn exact(time: Time) -> String {
    let Civil { hour, minute, second, .. } = time.civil();
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", day(time))
}

/// The day, such as `2026-11-21`.
pub(super) fn day(time: Time) -> String {
    let Civil { year, month, day, .. } = time.civil();
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_what_they_say() {
        let time = Time { secs: 951_827_696, nanos: 5 };
        assert_eq!(datetime(time), "2000-02-29T12:34:56Z");
        assert_eq!(exact(time), "2000-02-29 12:34:56 UTC");
        // Nothing in a commit makes it overflow.
        for secs in [i64::MIN, i64::MAX] {
            assert!(exact(Time { secs, nanos: 0 }).ends_with(" UTC"));
        }
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
