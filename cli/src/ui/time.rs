//! Times as people write and read them: local on a terminal and in text,
//! RFC 3339 in UTC in JSON.

use jiff::{
    Timestamp, ToSpan,
    civil::{Date, DateTime},
    fmt::strtime,
    tz::TimeZone,
};
use snap_core::base::time::Time;

/// Local time, such as `2026-11-21 09:05:07 +01:00`.
pub(crate) fn local(time: Time) -> String {
    let shown = timestamp(time).and_then(|stamp| {
        strtime::format("%Y-%m-%d %H:%M:%S %:z", &stamp.to_zoned(TimeZone::system())).ok()
    });
    shown.unwrap_or_else(|| format!("{} s", time.secs))
}

/// RFC 3339 in UTC, with as many decimals as there are.
pub(crate) fn rfc3339(time: Time) -> String {
    timestamp(time).map_or_else(|| format!("@{}.{:09}", time.secs, time.nanos), |t| t.to_string())
}

/// Parses a date, a time or a word; `now` is the present.
///
/// | text                                     | meaning                     |
/// |------------------------------------------|-----------------------------|
/// | `2026-11-01`                             | the end of that day         |
/// | `2026-11-01T10:00`, `2026-11-01 10:00:05`| local time                  |
/// | `2026-11-01T10:00:00Z`, `…+01:00`        | that moment                 |
/// | `today`, `yesterday`                     | the end of that day         |
/// | `now`                                    | the present                 |
pub(crate) fn parse(text: &str, now: Time) -> Option<Time> {
    let today = || Some(timestamp(now)?.to_zoned(TimeZone::system()).date());
    match text {
        "now" => return Some(now),
        "today" => return end_of(today()?),
        "yesterday" => return end_of(today()?.yesterday().ok()?),
        _ => {}
    }
    if let Some(time) = parse_exact(text) {
        return Some(time);
    }
    match text.len() {
        10 => end_of(text.parse::<Date>().ok()?),
        _ => {
            let local = text.parse::<DateTime>().ok()?;
            Some(time(local.to_zoned(TimeZone::system()).ok()?.timestamp()))
        }
    }
}

/// Parses RFC 3339 with an offset: one moment, whatever the time zone.
pub(crate) fn parse_exact(text: &str) -> Option<Time> {
    text.parse::<Timestamp>().ok().map(time)
}

/// The last nanosecond of a day.
fn end_of(day: Date) -> Option<Time> {
    let next = day.tomorrow().ok()?.to_zoned(TimeZone::system()).ok()?;
    Some(time(next.timestamp().checked_sub(1.nanosecond()).ok()?))
}

fn timestamp(time: Time) -> Option<Timestamp> {
    let whole = Timestamp::from_second(time.secs).ok()?;
    whole.checked_add(i64::from(time.nanos).nanoseconds()).ok()
}

fn time(stamp: Timestamp) -> Time {
    let nanos = stamp.as_nanosecond();
    let (secs, rest) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
    Time { secs: i64::try_from(secs).unwrap_or(0), nanos: u32::try_from(rest).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> Option<String> {
        let now = parse_exact("2026-11-21T12:00:00Z").unwrap();
        parse(text, now).map(rfc3339)
    }

    #[test]
    fn exact_times_are_what_they_say() {
        assert_eq!(utc("2026-11-01T10:00:00+01:00").unwrap(), "2026-11-01T09:00:00Z");
        assert_eq!(utc("1969-12-31T23:59:59.5Z").unwrap(), "1969-12-31T23:59:59.5Z");
        assert_eq!(utc("now").unwrap(), "2026-11-21T12:00:00Z");
        for bad in ["", "soon", "2026-13-01", "2026-11-01T", "2026-11-01T25:00", "11"] {
            assert_eq!(utc(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_day_ends_a_nanosecond_before_the_next() {
        let day = utc("2026-11-01").unwrap();
        assert!(day.ends_with(".999999999Z"), "{day}");
        assert!(utc("yesterday").unwrap() < utc("today").unwrap());
    }
}
