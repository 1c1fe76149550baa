//! Parses durations as users write them: `10m`, `36h`, `30d`.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// Parses a duration such as `90s`, `10m`, `1h30m`, `30d` or `2w`.
pub(crate) fn parse(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "expected a time such as 90s, 10m, 1h30m, 30d or 2w";
    let span: Span = text.trim().parse().map_err(|_| EXPECTED)?;
    // A day counts as 24 hours. Months and years have no fixed length and are refused.
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| EXPECTED)?;
    Duration::try_from(length).map_err(|_| EXPECTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_of_a_fixed_length() {
        let secs = |text: &str| parse(text).map(|length| length.as_secs());
        assert_eq!(secs("90s"), Ok(90));
        assert_eq!(secs("10m"), Ok(600));
        assert_eq!(secs("1h30m"), Ok(5400));
        assert_eq!(secs("30d"), Ok(30 * 86_400));
        assert_eq!(secs("2w"), Ok(14 * 86_400));
        for text in ["", "30", "1mo", "1y", "-3d", "3d ago", "soon"] {
            assert!(secs(text).is_err(), "{text}");
        }
    }
}
