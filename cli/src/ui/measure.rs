//! Parses times, sizes and rates of the command line. The settings have the same parsers.

use std::time::Duration;

use snap_core::base::{
    duration::{self, Age},
    number,
};

/// Parses an age of a retention policy, such as `30d` or `1y5m7d`.
pub(crate) fn age(text: &str) -> Result<Age, String> {
    text.parse().map_err(expected)
}

/// Parses a time such as `36h`, `7d` or `2w`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    duration::parse_duration(text).map_err(expected)
}

/// Parses a time such as `90s`, `10m` or `1h30m`.
pub(crate) fn short_time(text: &str) -> Result<Duration, String> {
    duration::parse_duration_with_minutes(text).map_err(expected)
}

/// Parses a size such as `4096`, `10MB` or `1.5 GiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    number::parse_size(text).map_err(expected)
}

/// Parses a rate such as `500K`, `2M` or `1.5MiB/s`.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    number::parse_rate(text).map_err(expected)
}

fn expected(rule: &str) -> String {
    format!("expected {rule}")
}
