//! Plans the requests for a list of ranges, and their order.
//!
//! The planner sorts ranges by key and offset. It merges ranges that overlap, touch or have a small
//! gap into one request, and splits a request that exceeds the limit. No byte is in two requests.
//! The module does no I/O.

use std::{ops::Range, sync::Arc};

use super::link::LEAST_GAP_BYTES;

/// A range that a job needs. The order of a list is the order of need: the caller needs the first
/// range first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededRange {
    /// Key of the object.
    pub key: Arc<str>,
    /// Byte range in the object.
    pub range: Range<u64>,
}

/// The limits of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanLimits {
    /// Maximum gap that a request reads.
    pub gap_bytes: u64,
    /// Maximum length of a request.
    pub request_bytes: u64,
    /// Maximum number of bytes that the caller needs between two ranges of one request. The
    /// response stays in memory in the meantime.
    pub window_bytes: u64,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedRequest {
    pub key: Arc<str>,
    pub range: Range<u64>,
    /// Positions of the ranges that this request contains bytes of.
    pub pieces: Vec<u32>,
}

impl PlannedRequest {
    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The requests for a list of ranges.
#[derive(Debug)]
pub(super) struct RequestPlan {
    pub wanted: Vec<NeededRange>,
    /// Sorted by key and offset; disjoint.
    pub requests: Vec<PlannedRequest>,
    /// For each range, the indices in `requests` of the requests that contain it.
    pub parts: Vec<Range<u32>>,
    /// Indices in `requests`, in the order in which requests start.
    pub order: Vec<u32>,
}

/// Overlapping ranges, merged.
#[derive(Debug)]
struct MergedRange<'a> {
    key: &'a Arc<str>,
    range: Range<u64>,
    /// Number of bytes that the caller needs before the first and before the last of its ranges.
    needed_at: (u64, u64),
}

impl RequestPlan {
    pub(super) fn new(wanted: Vec<NeededRange>, rules: &PlanLimits) -> Self {
        let spans = spans(&wanted);
        let needed_bytes = spans.iter().map(|span| length(&span.range)).sum();
        let mut requests = requests(&spans, needed_bytes, rules);
        drop(spans);
        let parts = assign(&wanted, &mut requests);
        let mut order: Vec<u32> = (0..requests.len() as u32).collect();
        // The request with the range that the caller needs first starts first.
        order.sort_by_key(|at| requests[*at as usize].pieces.iter().min().copied());
        Self { wanted, requests, parts, order }
    }

    /// Returns the indices of the requests that contain a range.
    pub(super) fn parts_of(&self, position: usize) -> impl Iterator<Item = usize> + use<> {
        let parts = self.parts.get(position).cloned().unwrap_or_default();
        parts.map(|part| part as usize)
    }

    /// Returns the total bytes of the requests that contain a range.
    pub(super) fn bytes_of(&self, position: usize) -> u64 {
        self.parts_of(position).map(|part| self.requests[part].bytes()).sum()
    }
}

pub(super) fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

fn spans(wanted: &[NeededRange]) -> Vec<MergedRange<'_>> {
    let mut needed = 0_u64;
    let mut sorted: Vec<(&NeededRange, u64)> = Vec::with_capacity(wanted.len());
    for one in wanted.iter().filter(|one| !one.range.is_empty()) {
        sorted.push((one, needed));
        needed = needed.saturating_add(length(&one.range));
    }
    let place = |one: &NeededRange| (one.range.start, one.range.end);
    sorted.sort_by(|(a, _), (b, _)| (&a.key, place(a)).cmp(&(&b.key, place(b))));
    let mut spans: Vec<MergedRange<'_>> = Vec::with_capacity(sorted.len());
    for (one, at) in sorted {
        match spans.last_mut() {
            Some(last) if *last.key == one.key && one.range.start < last.range.end => {
                last.range.end = last.range.end.max(one.range.end);
                last.needed_at = (last.needed_at.0.min(at), last.needed_at.1.max(at));
            }
            _ => spans.push(MergedRange {
                key: &one.key,
                range: one.range.clone(),
                needed_at: (at, at),
            }),
        }
    }
    spans
}

/// Returns for each span whether a request reads the gap before it. Accepts gaps up to
/// [`LEAST_GAP_BYTES`], then the smallest others, until half as many bytes are wasted as needed.
fn gaps_to_read(spans: &[MergedRange<'_>], needed_bytes: u64, rules: &PlanLimits) -> Vec<bool> {
    let mut worth = vec![false; spans.len()];
    let mut gaps: Vec<(u64, usize)> = Vec::new();
    for (at, pair) in spans.windows(2).enumerate() {
        let gap = pair[1].range.start.saturating_sub(pair[0].range.end);
        if pair[0].key == pair[1].key && gap <= rules.gap_bytes {
            gaps.push((gap, at + 1));
        }
    }
    gaps.sort_unstable();
    let mut wasted = 0_u64;
    for (gap, at) in gaps {
        wasted += gap;
        worth[at] = gap <= LEAST_GAP_BYTES || wasted <= needed_bytes / 2;
    }
    worth
}

fn requests(
    spans: &[MergedRange<'_>],
    needed_bytes: u64,
    rules: &PlanLimits,
) -> Vec<PlannedRequest> {
    let worth = gaps_to_read(spans, needed_bytes, rules);
    let mut requests: Vec<PlannedRequest> = Vec::new();
    let mut open: Option<MergedRange<'_>> = None;
    for (span, worth) in spans.iter().zip(worth) {
        if let Some(group) = open.as_mut().filter(|_| worth) {
            let first = group.needed_at.0.min(span.needed_at.0);
            let last = group.needed_at.1.max(span.needed_at.1);
            let fits = span.range.end - group.range.start <= rules.request_bytes;
            if fits && last - first <= rules.window_bytes {
                group.range.end = span.range.end;
                group.needed_at = (first, last);
                continue;
            }
        }
        let next =
            MergedRange { key: span.key, range: span.range.clone(), needed_at: span.needed_at };
        if let Some(group) = open.replace(next) {
            split(&group, rules.request_bytes, &mut requests);
        }
    }
    if let Some(group) = open {
        split(&group, rules.request_bytes, &mut requests);
    }
    requests
}

/// Splits a span into the fewest requests within the limit, of equal length.
fn split(span: &MergedRange<'_>, request_bytes: u64, requests: &mut Vec<PlannedRequest>) {
    let bytes = length(&span.range);
    let count = bytes.div_ceil(request_bytes.max(1)).max(1);
    let each = bytes.div_ceil(count);
    let mut start = span.range.start;
    while start < span.range.end {
        let end = start.saturating_add(each).min(span.range.end);
        requests.push(PlannedRequest {
            key: Arc::clone(span.key),
            range: start..end,
            pieces: Vec::new(),
        });
        start = end;
    }
}

fn assign(wanted: &[NeededRange], requests: &mut [PlannedRequest]) -> Vec<Range<u32>> {
    let mut parts = Vec::with_capacity(wanted.len());
    for (position, one) in wanted.iter().enumerate() {
        if one.range.is_empty() {
            parts.push(0..0);
            continue;
        }
        let before = |request: &PlannedRequest| {
            (&request.key, request.range.end) <= (&one.key, one.range.start)
        };
        // Requests are sorted and disjoint, so the requests that contain a range are adjacent.
        let first = requests.partition_point(before);
        let mut end = first;
        while let Some(request) = requests.get_mut(end)
            && request.key == one.key
            && request.range.start < one.range.end
        {
            request.pieces.push(position as u32);
            end += 1;
        }
        parts.push(first as u32..end as u32);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: PlanLimits =
        PlanLimits { gap_bytes: 64 << 10, request_bytes: 1 << 20, window_bytes: 1 << 30 };

    fn plan(ranges: &[(&str, Range<u64>)], rules: &PlanLimits) -> RequestPlan {
        let wanted = ranges
            .iter()
            .map(|(key, range)| NeededRange { key: (*key).into(), range: range.clone() });
        RequestPlan::new(wanted.collect(), rules)
    }

    fn ranges(plan: &RequestPlan) -> Vec<Range<u64>> {
        plan.requests.iter().map(|request| request.range.clone()).collect()
    }

    #[test]
    fn adjacent_ranges_are_merged_within_an_object() {
        let plan =
            plan(&[("b", 50..60), ("a", 20..30), ("a", 0..10), ("a", 5..12), ("a", 7..7)], &RULES);
        assert_eq!(ranges(&plan), [0..30, 50..60]);
        assert_eq!(plan.requests[0].pieces, [1, 2, 3]);
        assert_eq!(plan.order, [1, 0]);
        assert_eq!(plan.parts, [1..2, 0..1, 0..1, 0..1, 0..0]);
    }

    #[test]
    fn a_large_gap_is_not_read() {
        let far = 10 + RULES.gap_bytes;
        assert_eq!(ranges(&plan(&[("a", 0..10), ("a", far + 1..far + 9)], &RULES)).len(), 2);
    }

    #[test]
    fn unneeded_bytes_are_at_most_half_of_the_needed_ones() {
        let gap = 40_u64 << 10;
        let each = 32_u64 << 10;
        let list: Vec<_> =
            (0..10).map(|n| ("a", n * (each + gap)..n * (each + gap) + each)).collect();
        let plan = plan(&list, &RULES);
        let fetched: u64 = plan.requests.iter().map(PlannedRequest::bytes).sum();
        assert_eq!(plan.requests.len(), 6);
        assert!(fetched <= 10 * each * 3 / 2);
    }

    #[test]
    fn a_long_range_is_split_into_requests_of_equal_length() {
        let plan = plan(&[("a", 100..100 + (5 << 19))], &RULES);
        assert_eq!(plan.requests.len(), 3);
        assert_eq!(plan.parts[0], 0..3);
        assert!(plan.requests.iter().all(|request| request.bytes().abs_diff((5 << 19) / 3) <= 2));
    }

    #[test]
    fn ranges_far_apart_in_order_are_not_merged() {
        let near = PlanLimits { window_bytes: 100, ..RULES };
        assert_eq!(ranges(&plan(&[("a", 0..10), ("b", 0..200), ("a", 10..20)], &near)).len(), 3);
        assert_eq!(ranges(&plan(&[("a", 0..10), ("b", 0..50), ("a", 10..20)], &near)).len(), 2);
    }

    #[test]
    fn ranges_near_the_maximum_offset_are_planned() {
        let plan = plan(&[("a", u64::MAX - 10..u64::MAX), ("a", 0..u64::MAX >> 30)], &RULES);
        assert_eq!(plan.parts[0].len(), 1);
    }
}
