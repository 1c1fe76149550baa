//! Sizes for people, in powers of 1,024.

use std::fmt;

use bytesize::ByteSize;

/// Shows a number of bytes, such as `1.2 MiB`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&ByteSize(self.0).display().iec().to_string())
    }
}

/// Parses a size such as `4096`, `10MB` or `1.5 GiB`.
pub(crate) fn parse(text: &str) -> Result<u64, &'static str> {
    let size =
        text.parse::<ByteSize>().map_err(|_| "expected a size such as 4096, 10MB or 1.5GiB")?;
    Ok(size.as_u64())
}

/// Shows a number with its noun: `1 file`, `1,204 files`, `2 entries`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let number_shown = grouped(number);
    let stem = noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (number, stem) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{number_shown} {stem}ies"),
        (_, None) => format!("{number_shown} {noun}s"),
    }
}

/// A number with its thousands divided.
pub(crate) fn grouped(number: u64) -> String {
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
    fn sizes_and_counts_read_well() {
        assert_eq!(Size(0).to_string(), "0 B");
        assert_eq!(Size(1536).to_string(), "1.5 KiB");
        assert_eq!(parse("1MiB"), Ok(1 << 20));
        assert_eq!(parse("10k"), Ok(10_000));
        assert!(parse("much").is_err());
        assert_eq!(count(1, "file"), "1 file");
        assert_eq!(count(1_234_567, "file"), "1,234,567 files");
        assert_eq!(count(2, "entry"), "2 entries");
        assert_eq!(count(2, "day"), "2 days");
        assert_eq!(grouped(999), "999");
    }
}
