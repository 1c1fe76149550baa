//! Sizes for people, in powers of 1,024.

use bytesize::ByteSize;

pub(crate) use snap_core::base::number::{ByteCount, count, grouped};

/// Parses a size such as `4096`, `10MB` or `1.5 GiB`.
pub(crate) fn parse(text: &str) -> Result<u64, &'static str> {
    let size =
        text.parse::<ByteSize>().map_err(|_| "expected a size such as 4096, 10MB or 1.5GiB")?;
    Ok(size.as_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        assert_eq!(parse("1MiB"), Ok(1 << 20));
        assert_eq!(parse("10k"), Ok(10_000));
        assert_eq!(parse(&ByteCount(1536).to_string()), Ok(1536));
        assert!(parse("much").is_err());
    }
}
