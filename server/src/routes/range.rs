//! `Range: bytes=…` with one range, as RFC 9110 has it.

use std::ops::Range;

use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};

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
        let mut lines = headers.get_all(header::RANGE).iter();
        // Several lines are several ranges.
        let (Some(line), None) = (lines.next(), lines.next()) else { return Ok(Self::All) };
        let spec = line.to_str().ok().and_then(|text| text.strip_prefix("bytes="));
        let Some(spec) = spec else { return Ok(Self::All) };
        let Some((first, last)) = spec.trim().split_once('-') else { return Ok(Self::All) };
        let range = match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(length),
            (Ok(first), Err(_)) if last.is_empty() => first..length,
            (Err(_), Ok(last)) if first.is_empty() => length.saturating_sub(last)..length,
            _ => return Ok(Self::All),
        };
        if range.start >= range.end {
            return Err(Problem::no_such_bytes(length));
        }
        Ok(Self::Part(range))
    }

    /// The bytes.
    pub(super) fn range(&self, length: u64) -> Range<u64> {
        match self {
            Self::All => 0..length,
            Self::Part(range) => range.clone(),
        }
    }

    /// Says in an answer which bytes of something of `length` bytes it has, and
    /// that others could be asked for. A part makes it a `206`.
    pub(super) fn tell(&self, response: &mut Response, length: u64) -> Result<(), Problem> {
        let range = self.range(length);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if *self != Self::All {
            let told = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            let told = HeaderValue::from_str(&told).map_err(|_| Problem::new(Code::Range, ""))?;
            headers.insert(header::CONTENT_RANGE, told);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        Ok(())
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
        let mut twice = HeaderMap::new();
        twice.append(header::RANGE, "bytes=2-5".parse().unwrap());
        twice.append(header::RANGE, "bytes=7-8".parse().unwrap());
        assert_eq!(Wanted::of(&twice, 10).unwrap(), Wanted::All);
    }

    #[test]
    fn an_answer_says_which_bytes_it_has() {
        for (wanted, status, bytes, part) in [
            (Wanted::All, 200, "10", None),
            (Wanted::Part(2..6), 206, "4", Some("bytes 2-5/10")),
            (Wanted::Part(0..10), 206, "10", Some("bytes 0-9/10")),
        ] {
            let mut response = Response::default();
            wanted.tell(&mut response, 10).unwrap();
            let told = |name: header::HeaderName| {
                response.headers().get(name).map(|value| value.to_str().unwrap())
            };
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(told(header::CONTENT_LENGTH), Some(bytes));
            assert_eq!(told(header::CONTENT_RANGE), part);
            assert_eq!(told(header::ACCEPT_RANGES), Some("bytes"));
        }
    }
}
