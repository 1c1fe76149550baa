//! Times for people: how long ago, and exactly when, in UTC. A script shows the
//! exact time in the zone of whoever looks.

use maud::{Markup, html};
use snap_core::base::time::{Civil, Time};

/// A time, relative to the present, with the exact one beside it.
pub(super) fn ago(time: Time) -> Markup {
    html! { time datetime=(datetime(time)) title=(exact(time)) { (time.ago(Time::now())) } }
}

/// A time, exactly.
pub(super) fn exactly(time: Time) -> Markup {
    html! { time datetime=(datetime(time)) .exact { (exact(time)) } }
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
}
