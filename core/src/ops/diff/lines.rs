//! Compares two contents line by line.

use std::{ops::Range, time::Instant};

use similar::{Algorithm, DiffOp, DiffTag, algorithms::IdentifyDistinct, capture_diff_deadline};

use crate::{base::limits, ops::diff::SideContent};

/// Number of leading bytes in which a NUL makes a content binary. git has the same rule with 8,000
/// bytes.
const LOOKED_AT_BYTES: usize = 8 << 10;

/// The result of comparing two contents.
#[derive(Debug)]
pub enum LineDiff<'c> {
    /// At least one content is binary.
    Binary,
    /// At least one content is too large to be compared line by line.
    TooLarge,
    /// Both contents are text.
    Text(TextDiff<'c>),
}

/// Two texts and the edit script from the old one to the new one.
#[derive(Debug)]
pub struct TextDiff<'c> {
    old: Vec<&'c [u8]>,
    new: Vec<&'c [u8]>,
    ops: Vec<DiffOp>,
}

/// A group of changed lines with the lines around them.
#[derive(Debug)]
pub struct Hunk {
    /// Lines of the old text, counted from 0.
    pub old: Range<usize>,
    /// Lines of the new text, counted from 0.
    pub new: Range<usize>,
    ops: Vec<DiffOp>,
}

/// The side on which a line exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The line is on both sides.
    Both,
    /// The line was removed.
    Old,
    /// The line was added.
    New,
}

impl<'c> LineDiff<'c> {
    /// Compares two contents. A side that does not exist counts as an empty text. After
    /// [`limits::DIFF_FILE_TIME`], lines that are not compared yet count as replaced.
    pub fn compare(old: &'c SideContent, new: &'c SideContent) -> Self {
        let bytes = |content: &'c SideContent| match content {
            SideContent::Bytes(bytes) => Some(bytes.as_slice()),
            SideContent::None => Some(&[][..]),
            SideContent::TooLarge => None,
        };
        let (Some(old), Some(new)) = (bytes(old), bytes(new)) else { return Self::TooLarge };
        if is_binary(old) || is_binary(new) {
            return Self::Binary;
        }
        Self::Text(TextDiff::compare(old, new, Instant::now() + limits::DIFF_FILE_TIME))
    }
}

/// Returns true if the first 8 KiB of a content contain a NUL.
pub fn is_binary(content: &[u8]) -> bool {
    content[..content.len().min(LOOKED_AT_BYTES)].contains(&0)
}

impl<'c> TextDiff<'c> {
    /// Compares two texts. If the comparison passes `deadline`, the edit script is still correct,
    /// but may not be the shortest.
    fn compare(old: &'c [u8], new: &'c [u8], deadline: Instant) -> Self {
        let split = |text: &'c [u8]| text.split_inclusive(|b| *b == b'\n').collect::<Vec<_>>();
        let (old, new) = (split(old), split(new));
        // Common lines at both ends are split off first: only the middle needs the algorithm.
        let alike = |(a, b): &(&&[u8], &&[u8])| a == b;
        let start = old.iter().zip(&new).take_while(alike).count();
        let (rest_old, rest_new) = (&old[start..], &new[start..]);
        let end = rest_old.iter().rev().zip(rest_new.iter().rev()).take_while(alike).count();
        let middle = |lines: &[&'c [u8]]| start..lines.len() - end;
        // Each distinct line becomes a number, so that each line is hashed only once.
        let lines = IdentifyDistinct::<u32>::new(&old[..], middle(&old), &new[..], middle(&new));
        // The crate uses heuristics to bound the cost of each step of Myers' algorithm.
        // Many steps still take minutes if long files have few distinct lines.
        let ops = capture_diff_deadline(
            Algorithm::Myers,
            lines.old_lookup(),
            lines.old_range(),
            lines.new_lookup(),
            lines.new_range(),
            Some(deadline),
        );
        let whole = |at: usize, from: usize, len: usize| {
            (len > 0).then_some(DiffOp::Equal { old_index: at, new_index: from, len })
        };
        let tail = whole(old.len() - end, new.len() - end, end);
        let ops = whole(0, 0, start).into_iter().chain(ops).chain(tail).collect();
        Self { old, new, ops }
    }

    /// Returns the number of added lines and of removed lines.
    pub fn counts(&self) -> (u64, u64) {
        let changed = self.ops.iter().filter(|op| op.tag() != DiffTag::Equal);
        changed.fold((0, 0), |(new, old), op| {
            (new + op.new_range().len() as u64, old + op.old_range().len() as u64)
        })
    }

    /// Groups the changes into hunks, each with `context` lines before and after it.
    /// Hunks that touch are merged.
    pub fn hunks(&self, context: usize) -> Vec<Hunk> {
        if self.ops.iter().all(|op| op.tag() == DiffTag::Equal) {
            return Vec::new();
        }
        let groups = similar::group_diff_ops(joined(&self.ops), context);
        let hunk = |ops: Vec<DiffOp>| {
            let (first, last) = (ops.first()?, ops.last()?);
            let old = first.old_range().start..last.old_range().end;
            let new = first.new_range().start..last.new_range().end;
            Some(Hunk { old, new, ops })
        };
        groups.into_iter().filter_map(hunk).collect()
    }

    /// Returns the lines of a hunk with their line ends. Removed lines come before added
    /// ones.
    pub fn lines<'t>(&'t self, hunk: &'t Hunk) -> impl Iterator<Item = (Sign, &'c [u8])> {
        hunk.ops.iter().flat_map(move |op| {
            let equal = op.tag() == DiffTag::Equal;
            let (old, new) = if equal { (Sign::Both, 0..0) } else { (Sign::Old, op.new_range()) };
            let of_old = self.old[op.old_range()].iter().map(move |line| (old, *line));
            of_old.chain(self.new[new].iter().map(|line| (Sign::New, *line)))
        })
    }
}

/// Merges adjacent runs of equal lines, so that context is counted across them.
fn joined(ops: &[DiffOp]) -> Vec<DiffOp> {
    let mut all: Vec<DiffOp> = Vec::with_capacity(ops.len());
    for op in ops {
        match (all.last_mut(), op) {
            (Some(DiffOp::Equal { len, .. }), DiffOp::Equal { len: more, .. }) => *len += more,
            _ => all.push(*op),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> SideContent {
        SideContent::Bytes(bytes.to_vec())
    }

    fn shown(old: &str, new: &str, context: usize) -> Vec<String> {
        let (old, new) = (text(old.as_bytes()), text(new.as_bytes()));
        let LineDiff::Text(text) = LineDiff::compare(&old, &new) else { panic!("no text") };
        let mut shown = Vec::new();
        for hunk in text.hunks(context) {
            shown.push(format!("@{:?}{:?}", hunk.old, hunk.new));
            shown.extend(text.lines(&hunk).map(|(sign, line)| {
                let sign = match sign {
                    Sign::Both => ' ',
                    Sign::Old => '-',
                    Sign::New => '+',
                };
                format!("{sign}{}", String::from_utf8_lossy(line).trim_end())
            }));
        }
        shown
    }

    #[test]
    fn hunks_hold_changes_with_context_lines() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\nthree\n4\n5\n6\n7\n8\n9\n10\n";
        assert_eq!(
            shown(old, new, 1),
            ["@1..41..4", " 2", "-3", "+three", " 4", "@8..98..10", " 9", "+10"]
        );
        assert_eq!(shown(old, new, 9).len(), 12);
        assert_eq!(shown(old, old, 3), Vec::<String>::new());
        assert_eq!(shown("", "a\nb", 3), ["@0..00..2", "+a", "+b"]);
        assert_eq!(shown("a\nb", "", 3), ["@0..20..0", "-a", "-b"]);
        assert_eq!(shown("a", "a\n", 3), ["@0..10..1", "-a", "+a"]);
    }

    #[test]
    fn a_nul_near_the_start_makes_a_content_binary() {
        let far = [&[b'x'; LOOKED_AT_BYTES][..], b"\0"].concat();
        let compare = |bytes: &[u8]| {
            matches!(LineDiff::compare(&text(bytes), &SideContent::None), LineDiff::Binary)
        };
        assert!(compare(b"a\0"));
        assert!(!compare(&far));
        assert!(!compare(b"\xff\xfe"));
        assert!(matches!(
            LineDiff::compare(&SideContent::TooLarge, &SideContent::None),
            LineDiff::TooLarge
        ));
    }

    #[test]
    fn contents_without_a_common_line_are_compared_quickly() {
        let lines =
            |from: u32| (from..from + 100_000).map(|n| format!("{n}\n")).collect::<String>();
        let (old, new) = (text(lines(0).as_bytes()), text(lines(1_000_000).as_bytes()));
        let LineDiff::Text(text) = LineDiff::compare(&old, &new) else { panic!("no text") };
        assert_eq!(text.counts(), (100_000, 100_000));
    }

    #[test]
    fn a_comparison_that_times_out_is_still_correct() {
        // A linear congruential generator: many repeated lines in another order.
        let lines = |mut seed: u64| {
            let mut next = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                format!("{}\n", seed >> 58)
            };
            (0..20_000).map(|_| next()).collect::<String>()
        };
        let (old, new) = (lines(1), lines(2));
        let (old, new) = (format!("first\n{old}last\n"), format!("first\n{new}last\n"));
        let text = TextDiff::compare(old.as_bytes(), new.as_bytes(), Instant::now());
        let hunks = text.hunks(usize::MAX / 4);
        let side = |of: Sign| {
            let lines = hunks.iter().flat_map(|hunk| text.lines(hunk));
            lines.filter(|(sign, _)| [of, Sign::Both].contains(sign)).fold(
                Vec::new(),
                |mut all, (_, line)| {
                    all.extend_from_slice(line);
                    all
                },
            )
        };
        assert!(side(Sign::Old) == old.as_bytes(), "the old text");
        assert!(side(Sign::New) == new.as_bytes(), "the new text");
        assert_eq!(text.counts(), (20_000, 20_000), "the time was over from the start");
    }
}
