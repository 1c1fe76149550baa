//! Parses rates, in bytes a second.

use crate::ui::size;

/// Parses a rate such as `500K`, `2M`, `1.5MiB/s`.
pub(crate) fn parse(text: &str) -> Result<u64, &'static str> {
    let number = text.trim().strip_suffix("/s").unwrap_or(text);
    match size::parse(number) {
        Ok(0) => Err("expected more than 0; omit it for no limit"),
        Ok(rate) => Ok(rate),
        Err(_) => Err("expected bytes per second, such as 500K, 2M or 1.5MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_sizes_for_each_second() {
        assert_eq!(parse("500K"), Ok(500_000));
        assert_eq!(parse("2M"), Ok(2_000_000));
        assert_eq!(parse("1.5MiB/s"), Ok(3 << 19));
        assert!(parse("0").is_err() && parse("fast").is_err());
    }
}
