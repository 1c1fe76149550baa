//! `Range: bytes=…` with a single range (RFC 9110).

use std::ops::Range;

use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::problem::{Code, HttpProblem};

/// The bytes of a resource that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// The whole resource, also for a request with several ranges or an unknown unit.
    All,
    /// A single range of the resource.
    Part(Range<u64>),
}

impl RequestedRange {
    /// Parses the `Range` of a request for a resource of `length` bytes.
    pub(super) fn of(headers: &HeaderMap, length: u64) -> Result<Self, HttpProblem> {
        let mut lines = headers.get_all(header::RANGE).iter();
        // Several header lines are several ranges.
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
            return Err(HttpProblem::no_such_bytes(length));
        }
        Ok(Self::Part(range))
    }

    /// Returns the requested range of a resource of `length` bytes.
    pub(super) fn range(&self, length: u64) -> Range<u64> {
        match self {
            Self::All => 0..length,
            Self::Part(range) => range.clone(),
        }
    }

    /// Sets the headers of a response for a resource of `length` bytes, and the status
    /// `206` if the response is a part of it.
    pub(super) fn set_headers(
        &self,
        response: &mut Response,
        length: u64,
    ) -> Result<(), HttpProblem> {
        let range = self.range(length);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if *self != Self::All {
            let content_range = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            let content_range = HeaderValue::from_str(&content_range)
                .map_err(|_| HttpProblem::new(Code::Range, ""))?;
            headers.insert(header::CONTENT_RANGE, content_range);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, length: u64) -> Option<RequestedRange> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, text.parse().unwrap());
        RequestedRange::of(&headers, length).ok()
    }

    #[test]
    fn range_headers_are_parsed_as_in_the_standard() {
        for (text, range) in [
            ("bytes=0-0", 0..1),
            ("bytes=2-5", 2..6),
            ("bytes=2-", 2..10),
            ("bytes=-3", 7..10),
            ("bytes=-30", 0..10),
            ("bytes=5-99", 5..10),
            ("bytes=0-18446744073709551615", 0..10),
        ] {
            assert_eq!(of(text, 10), Some(RequestedRange::Part(range)), "{text}");
        }
        for text in ["bytes=0-1,4-5", "lines=1-2", "bytes=5-2", "bytes=x-", "bytes=-", "bytes=5"] {
            assert_eq!(of(text, 10), Some(RequestedRange::All), "{text}");
        }
        for text in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
            assert_eq!(of(text, 10), None, "{text}");
        }
        assert_eq!(of("bytes=0-", 0), None);
        let mut twice = HeaderMap::new();
        twice.append(header::RANGE, "bytes=2-5".parse().unwrap());
        twice.append(header::RANGE, "bytes=7-8".parse().unwrap());
        assert_eq!(RequestedRange::of(&twice, 10).unwrap(), RequestedRange::All);
    }

    #[test]
    fn a_response_states_its_byte_range() {
        for (wanted, status, bytes, part) in [
            (RequestedRange::All, 200, "10", None),
            (RequestedRange::Part(2..6), 206, "4", Some("bytes 2-5/10")),
            (RequestedRange::Part(0..10), 206, "10", Some("bytes 0-9/10")),
        ] {
            let mut response = Response::default();
            wanted.set_headers(&mut response, 10).unwrap();
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
