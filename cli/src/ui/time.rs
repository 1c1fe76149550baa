//! Parses and formats times for users: in local time. JSON has [RFC 3339 in UTC](Time::rfc3339).

use jiff::{
    Timestamp, ToSpan,
    civil::{Date, DateTime},
    fmt::strtime,
    tz::TimeZone,
};
use snap_core::base::time::Time;

/// Formats a time as local time, such as `2026-11-21 09:05:07 +01:00`.
pub(crate) fn local(time: Time) -> String {
    let shown = timestamp(time).and_then(|stamp| {
        strtime::format("%Y-%m-%d %H:%M:%S %:z", &stamp.to_zoned(TimeZone::system())).ok()
    });
    shown.unwrap_or_else(|| format!("{} s", time.secs))
}

/// Returns the offset of the local time from UTC at a time.
pub(crate) fn offset_secs(time: Time) -> i64 {
    timestamp(time).map_or(0, |stamp| TimeZone::system().to_offset(stamp).seconds().into())
}

/// The moment that a date without a time means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Day {
    /// The first moment of the day.
    Start,
    /// The last moment of the day.
    End,
}

/// Parses a date, a time or a word; a date means the end of that day.
pub(crate) fn parse(text: &str, now: Time) -> Option<Time> {
    parse_for(Day::End, text, now)
}

/// Parses a date, a time or a word; `now` is the present.
///
/// | text                                     | meaning                     |
/// |------------------------------------------|-----------------------------|
/// | `2026-11-01`                             | start or end of that day    |
/// | `2026-11-01T10:00`, `2026-11-01 10:00:05`| local time                  |
/// | `2026-11-01T10:00:00Z`, `…+01:00`        | that moment                 |
/// | `today`, `yesterday`                     | start or end of that day    |
/// | `now`                                    | the present                 |
pub(crate) fn parse_for(day: Day, text: &str, now: Time) -> Option<Time> {
    let of = |date: Date| match day {
        Day::Start => start_of(date),
        Day::End => end_of(date),
    };
    let today = || Some(timestamp(now)?.to_zoned(TimeZone::system()).date());
    match text {
        "now" => return Some(now),
        "today" => return of(today()?),
        "yesterday" => return of(today()?.yesterday().ok()?),
        _ => {}
    }
    if let Some(time) = parse_exact(text) {
        return Some(time);
    }
    match text.len() {
        10 => of(text.parse::<Date>().ok()?),
        _ => {
            let local = text.parse::<DateTime>().ok()?;
            Some(time(local.to_zoned(TimeZone::system()).ok()?.timestamp()))
        }
    }
}

/// Parses RFC 3339 with an offset, which does not depend on the time zone.
pub(crate) fn parse_exact(text: &str) -> Option<Time> {
    text.parse::<Timestamp>().ok().map(time)
}

fn start_of(day: Date) -> Option<Time> {
    Some(time(day.to_zoned(TimeZone::system()).ok()?.timestamp()))
}

/// Returns the last nanosecond of a day.
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
        parse(text, now).map(Time::rfc3339)
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
    fn times_in_json_are_those_that_jiff_prints() {
        for secs in (-377_705_000_000..253_402_200_000).step_by(1_234_567_891) {
            let time = Time { secs, nanos: secs.unsigned_abs() as u32 % 1_000_000_000 };
            assert_eq!(timestamp(time).unwrap().to_string(), time.rfc3339());
        }
    }

    #[test]
    fn a_day_ends_a_nanosecond_before_the_next() {
        let day = utc("2026-11-01").unwrap();
        assert!(day.ends_with(".999999999Z"), "{day}");
        assert!(utc("yesterday").unwrap() < utc("today").unwrap());
        let now = parse_exact("2026-11-21T12:00:00Z").unwrap();
        let moment = |day, text| parse_for(day, text, now).unwrap();
        let (start, end) = (moment(Day::Start, "today"), moment(Day::End, "yesterday"));
        assert_eq!((start.secs - end.secs, start.nanos), (1, 0));
        assert!(start <= now && now <= moment(Day::End, "today"));
    }
}
