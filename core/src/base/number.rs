//! Sizes and counts as people read and write them. Sizes are in powers of 1,024 when printed.

use std::fmt;

use bytesize::ByteSize;

/// The rule for sizes, as text after "must be" or "expected".
pub const SIZE_RULE: &str = "a size such as 4096, 10MB or 1.5GiB";

/// The rule for rates.
pub const RATE_RULE: &str = "bytes per second, more than 0, such as 500K, 2M or 1.5MiB";

/// Displays a number of bytes, such as `1.2 MiB`.
#[derive(Clone, Copy, Debug)]
pub struct ByteCount(
    /// Number of bytes.
    pub u64,
);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut size = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1,023.95 KiB or more would be rounded to 1024.0, so go on to the next unit.
        while size >= 1023.95 && unit + 1 < UNITS.len() {
            size /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{size:.1} {}", UNITS[unit]))
    }
}

/// Parses a size such as `4096`, `10MB` or `1.5 GiB`.
///
/// # Errors
/// The rule that the text breaks: [`SIZE_RULE`].
pub fn parse_size(text: &str) -> Result<u64, &'static str> {
    text.parse::<ByteSize>().map(|size| size.as_u64()).map_err(|_| SIZE_RULE)
}

/// Parses a rate such as `500K`, `2M` or `1.5MiB/s`.
///
/// # Errors
/// The rule that the text breaks: [`RATE_RULE`].
pub fn parse_rate(text: &str) -> Result<u64, &'static str> {
    let size = text.trim().strip_suffix("/s").unwrap_or(text);
    parse_size(size).ok().filter(|rate| *rate > 0).ok_or(RATE_RULE)
}

/// Formats a number with its noun in the right form: `1 file`, `1,204 files`, `2
/// entries`, `3 branches`.
pub fn count(number: u64, noun: &str) -> String {
    let shown = grouped(number);
    let stem = noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (number, stem) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{shown} {stem}ies"),
        _ if noun.ends_with("ch") => format!("{shown} {noun}es"),
        _ => format!("{shown} {noun}s"),
    }
}

/// Formats a number with a comma between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_formatted_with_units() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(ByteCount(bytes).to_string(), shown);
        }
        assert_eq!(format!("{:>8}|{:<5}|", ByteCount(1536), ByteCount(7)), " 1.5 KiB|7 B  |");
        assert_eq!(count(1, "file"), "1 file");
        assert_eq!(count(1_234_567, "entry"), "1,234,567 entries");
        assert_eq!((count(2, "day"), count(2, "branch")), ("2 days".into(), "2 branches".into()));
        assert_eq!(grouped(999), "999");
    }

    #[test]
    fn sizes_and_rates_are_read_as_they_are_written() {
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        assert_eq!(parse_size("10k"), Ok(10_000));
        assert_eq!(parse_size(&ByteCount(1536).to_string()), Ok(1536));
        assert_eq!(parse_size("5Q"), Err(SIZE_RULE));
        assert_eq!(parse_rate("500K"), Ok(500_000));
        assert_eq!(parse_rate("1.5MiB/s"), Ok(3 << 19));
        assert_eq!(parse_rate("0"), Err(RATE_RULE));
        assert_eq!(parse_rate("fast"), Err(RATE_RULE));
    }
}
