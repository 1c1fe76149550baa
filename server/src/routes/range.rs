//! `Range: bytes=…` with one range, as RFC 9110 has it.

use std::ops::Range;

use http::{HeaderMap, HeaderValue, header};

use crate::problem::{Code, Problem};

/// Which bytes of something are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of them. Several ranges, and units that nobody knows, are ignored.
    All,
    /// These.
    Part(Range<u64>),
}

impl Wanted {
    /// What a request wants of something of `length` bytes.
    pub(super) fn of(headers: &HeaderMap, length: u64) -> Result<Self, Problem> {
        let text = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
        let Some(spec) = text.and_then(|text| text.strip_prefix("bytes=")) else {
            return Ok(Self::All);
        };
        let Some((first, last)) = spec.trim().split_once('-') else { return Ok(Self::All) };
        let range = match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(length),
            (Ok(first), Err(_)) if last.is_empty() => first..length,
            (Err(_), Ok(last)) if first.is_empty() => length.saturating_sub(last)..length,
            _ => return Ok(Self::All),
        };
        if range.start >= range.end {
            return Err(Problem::new(Code::Range, format!("it has {length} bytes")));
        }
        Ok(Self::Part(range))
    }

    /// `Content-Range` of an answer with a part of `length` bytes; none where it
    /// has all of them.
    pub(super) fn content_range(&self, length: u64) -> Option<Result<HeaderValue, Problem>> {
        let Self::Part(range) = self else { return None };
        let told = format!("bytes {}-{}/{length}", range.start, range.end - 1);
        Some(HeaderValue::from_str(&told).map_err(|_| Problem::new(Code::Range, "")))
    }

    /// The bytes.
    pub(super) fn range(&self, length: u64) -> Range<u64> {
        match self {
            Self::All => 0..length,
            Self::Part(range) => range.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, length: u64) -> Option<Wanted> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, text.parse().unwrap());
        Wanted::of(&headers, length).ok()
    }

    #[test]
    fn ranges_are_those_of_the_standard() {
        for (text, range) in [
            ("bytes=0-0", 0..1),
            ("bytes=2-5", 2..6),
            ("bytes=2-", 2..10),
            ("bytes=-3", 7..10),
            ("bytes=-30", 0..10),
            ("bytes=5-99", 5..10),
            ("bytes=0-18446744073709551615", 0..10),
        ] {
            assert_eq!(of(text, 10), Some(Wanted::Part(range)), "{text}");
        }
        for text in ["bytes=0-1,4-5", "lines=1-2", "bytes=5-2", "bytes=x-", "bytes=-", "bytes=5"] {
            assert_eq!(of(text, 10), Some(Wanted::All), "{text}");
        }
        for text in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
            assert_eq!(of(text, 10), None, "{text}");
        }
        assert_eq!(of("bytes=0-", 0), None);
    }
}
