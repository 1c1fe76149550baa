//! Times: how long ago, and the exact time in UTC. The script of the page converts
//! exact times to the time zone of the browser.

use maud::{Markup, html};
use snap_core::base::time::{Civil, Time};

/// Renders a time relative to now, with the exact time as its title.
pub(super) fn ago(time: Time) -> Markup {
    html! { time datetime=(datetime(time)) title=(exact(time)) { (time.ago(Time::now())) } }
}

/// Renders the exact time.
pub(super) fn exactly(time: Time) -> Markup {
    html! { time datetime=(datetime(time)) .exact { (exact(time)) } }
}

/// Formats a time for programs (RFC 3339, without fractions of a second).
fn datetime(time: Time) -> String {
    Time { nanos: 0, ..time }.rfc3339()
}

fn exact(time: Time) -> String {
    let Civil { hour, minute, second, .. } = time.civil();
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", day(time))
}

/// Formats the day, such as `2026-11-21`.
pub(super) fn day(time: Time) -> String {
    let Civil { year, month, day, .. } = time.civil();
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        let time = Time { secs: 951_827_696, nanos: 5 };
        assert_eq!(datetime(time), "2000-02-29T12:34:56Z");
        assert_eq!(exact(time), "2000-02-29 12:34:56 UTC");
        // No time in a commit makes the formatting overflow.
        for secs in [i64::MIN, i64::MAX] {
            assert!(exact(Time { secs, nanos: 0 }).ends_with(" UTC"));
        }
    }
}
