//! The chart of a store's growth: an SVG with three areas, cumulated over the commits, oldest
//! first. The areas show the bytes of changed files, the bytes that were new after deduplication,
//! and the bytes stored after compression.

use std::fmt::Write;

use maud::{Markup, html};
use snap_core::base::number::{ByteCount, count};
use snap_core::{base::time::Time, ops::stats::StatsOutcome};

use super::moment;

/// The size of the drawing in SVG units. The page stretches it.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 300.0;

/// Maximum number of points. More cannot be told apart at this width.
const POINTS: usize = 400;

/// Maximum number of grid lines above the base line.
const LINES: u64 = 5;

/// Sums over all commits up to one commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Point {
    time: Time,
    changed: u64,
    fresh: u64,
    kept: u64,
}

/// Draws `points`, the sums over `commits` commits.
pub(super) fn view(points: &[Point], commits: u64) -> Markup {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return html! {} };
    let step = step(last.changed.max(last.fresh).max(last.kept));
    let lines = last.changed.max(last.fresh).max(last.kept).div_ceil(step).max(1);
    let top = step.saturating_mul(lines);
    let description = format!(
        "After {}: {} of changed files, {} after deduplication, {} stored",
        count(commits, "commit"),
        ByteCount(last.changed),
        ByteCount(last.fresh),
        ByteCount(last.kept),
    );
    html! {
        section.sheet aria-labelledby="growth" {
            div.toolbar { h2 #growth { "From the first commit to the last" } }
            div.chart {
                // The labels are text beside the SVG, so that they keep their size.
                ul.scale aria-hidden="true" {
                    @for line in (0..=lines).rev() { li { (round(line.saturating_mul(step))) } }
                }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(description)
                    preserveAspectRatio="none" {
                    @for line in 0..=lines {
                        @let y = HEIGHT - HEIGHT * line as f64 / lines as f64;
                        line class=(if line == 0 { "base" } else { "grid" }) x1="0" x2=(WIDTH) y1=(y) y2=(y) {}
                    }
                    path.full d=(area(points, top, |point| point.changed)) {}
                    path.fresh d=(area(points, top, |point| point.fresh)) {}
                    path.kept d=(area(points, top, |point| point.kept)) {}
                }
                p.dates { span { (moment::day(first.time)) } span { (moment::day(last.time)) } }
            }
            p.legend {
                span.full { "Changed files, " (ByteCount(last.changed)) }
                span.fresh { "New after deduplication, " (ByteCount(last.fresh)) }
                span.kept { "Stored, compressed, " (ByteCount(last.kept)) }
            }
        }
    }
}

/// Returns the cumulated sums, oldest first. Leaves out points if there are too many.
pub(super) fn points(outcome: &StatsOutcome) -> Vec<Point> {
    let mut sum = Point::default();
    let mut points: Vec<Point> = Vec::with_capacity(outcome.commits.len() + 1);
    for commit in outcome.commits.iter().rev() {
        let added = &commit.added;
        sum.time = commit.time;
        sum.changed = sum.changed.saturating_add(added.changed_bytes);
        sum.fresh = sum.fresh.saturating_add(added.data.raw_bytes);
        sum.kept += added.data.stored_bytes() + added.meta.stored_bytes();
        points.push(sum);
    }
    let every = points.len().div_ceil(POINTS).max(1);
    let last = points.last().copied();
    let mut some: Vec<Point> = points.into_iter().step_by(every).collect();
    some.extend(last.filter(|last| some.last() != Some(last)));
    // An area needs two points.
    if let [only] = some[..] {
        some.push(only);
    }
    some
}

/// Returns the distance of two grid lines in bytes: 1, 2 or 5 times a power of ten, times a binary
/// unit.
fn step(top: u64) -> u64 {
    let units = (0..7).map(|power| 1u64 << (10 * power));
    let steps =
        units.flat_map(|unit| [1, 2, 5, 10, 20, 50, 100, 200, 500].map(|n| unit.saturating_mul(n)));
    let mut fits = steps.filter(|step| top.div_ceil(*step) <= LINES);
    fits.next().unwrap_or(1 << 60)
}

/// Formats a size without `.0`.
fn round(bytes: u64) -> String {
    ByteCount(bytes).to_string().replace(".0 ", " ")
}

/// Returns the area below the curve as SVG path commands.
fn area(points: &[Point], top: u64, height: fn(&Point) -> u64) -> String {
    let last = (points.len() - 1).max(1) as f64;
    let mut path = format!("M0 {HEIGHT}");
    for (at, point) in points.iter().enumerate() {
        let x = WIDTH * at as f64 / last;
        let y = HEIGHT - HEIGHT * height(point) as f64 / top as f64;
        // Writing to a string does not fail.
        let _ = write!(path, "L{x:.1} {y:.1}");
    }
    let _ = write!(path, "L{WIDTH} {HEIGHT}Z");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_lines_are_at_round_numbers() {
        for (top, shown) in [
            (0, "1 B"),
            (5, "1 B"),
            (900, "200 B"),
            (6 << 20, "2 MiB"),
            (700 << 30, "200 GiB"),
            (u64::MAX / 2, "2 EiB"),
        ] {
            assert_eq!(round(step(top)), shown, "{top}");
        }
    }

    #[test]
    fn a_chart_area_stays_within_its_axes() {
        let at = |changed| Point { changed, ..Point::default() };
        let path = area(&[at(0), at(50), at(100)], 100, |point| point.changed);
        assert_eq!(path, "M0 300L0.0 300.0L480.0 150.0L960.0 0.0L960 300Z");
    }

    #[test]
    fn saturated_sums_are_drawn() {
        let points = [Point::default(), Point { changed: u64::MAX, ..Point::default() }];
        let html = view(&points, 2).into_string();
        assert!(html.contains("<li>16 EiB</li>"), "{html}");
    }
}
