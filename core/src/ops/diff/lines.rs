//! Compares two contents line by line.

use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
    time::Instant,
};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_deadline};

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
    old: Lines<'c>,
    new: Lines<'c>,
    /// The changes, in order. The lines between two changes are equal.
    changes: Vec<Change>,
}

/// The lines of a text. A line is found by where it ends, in 4 bytes: a text may have millions of
/// lines.
#[derive(Debug)]
struct Lines<'c> {
    text: &'c [u8],
    /// The end of each line, with its line end.
    ends: Vec<u32>,
}

/// Lines of the old text that are replaced by lines of the new one. One of the ranges may be empty.
#[derive(Clone, Debug)]
struct Change {
    old: Range<u32>,
    new: Range<u32>,
}

/// A group of changed lines with the lines around them.
#[derive(Debug)]
pub struct Hunk {
    /// Lines of the old text, counted from 0.
    pub old: Range<usize>,
    /// Lines of the new text, counted from 0.
    pub new: Range<usize>,
    /// Positions of its changes.
    changes: Range<usize>,
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
        let deadline = Instant::now() + limits::DIFF_FILE_TIME;
        Self::Text(TextDiff::compare((old, new), deadline, limits::DIFF_WINDOW_LINES))
    }
}

/// Returns true if the first 8 KiB of a content contain a NUL.
pub fn is_binary(content: &[u8]) -> bool {
    content[..content.len().min(LOOKED_AT_BYTES)].contains(&0)
}

impl<'c> TextDiff<'c> {
    /// Compares two texts. If the comparison passes `deadline`, the edit script is still correct,
    /// but may not be the shortest. `window` is [`limits::DIFF_WINDOW_LINES`].
    fn compare((old, new): (&'c [u8], &'c [u8]), deadline: Instant, window: usize) -> Self {
        let (old, new) = (Lines::of(old), Lines::of(new));
        // Common lines at both ends are split off first: only the middle needs the algorithm.
        let shorter = old.len().min(new.len());
        let start = (0..shorter).take_while(|at| old.get(*at) == new.get(*at)).count();
        let at_end = |back: &usize| old.get(old.len() - 1 - back) == new.get(new.len() - 1 - back);
        let end = (0..shorter - start).take_while(at_end).count();
        let (old_rest, new_rest) = (start..old.len() - end, start..new.len() - end);
        let script = EditScript { old: &old, new: &new, deadline, window, changes: Vec::new() };
        let changes = script.run(old_rest, new_rest);
        Self { old, new, changes }
    }

    /// Returns the number of added lines and of removed lines.
    pub fn counts(&self) -> (u64, u64) {
        self.changes.iter().fold((0, 0), |(new, old), change| {
            (new + change.new.len() as u64, old + change.old.len() as u64)
        })
    }

    /// Groups the changes into hunks, each with `context` lines before and after it.
    /// Hunks that touch are merged.
    pub fn hunks(&self, context: usize) -> Vec<Hunk> {
        let mut hunks: Vec<Hunk> = Vec::new();
        let mut equal_from = 0;
        for (at, change) in self.changes.iter().enumerate() {
            let (old, new) = (indexes(&change.old), indexes(&change.new));
            let gap = old.start - equal_from;
            equal_from = old.end;
            match hunks.last_mut() {
                Some(last) if gap <= context.saturating_mul(2) => {
                    (last.old.end, last.new.end, last.changes.end) = (old.end, new.end, at + 1);
                }
                last => {
                    if let Some(last) = last {
                        last.add_after(gap.min(context));
                    }
                    let before = gap.min(context);
                    let (old, new) = (old.start - before..old.end, new.start - before..new.end);
                    hunks.push(Hunk { old, new, changes: at..at + 1 });
                }
            }
        }
        if let Some(last) = hunks.last_mut() {
            last.add_after((self.old.len() - equal_from).min(context));
        }
        hunks
    }

    /// Returns the lines of a hunk with their line ends. Removed lines come before added
    /// ones.
    pub fn lines<'t>(&'t self, hunk: &'t Hunk) -> impl Iterator<Item = (Sign, &'c [u8])> {
        let changes = &self.changes[hunk.changes.clone()];
        let starts = changes.iter().map(|change| indexes(&change.old).start);
        let froms = std::iter::once(hunk.old.start)
            .chain(changes.iter().map(|change| indexes(&change.old).end));
        let equal = froms.zip(starts.chain([hunk.old.end])).map(|(from, to)| from..to);
        let none = [None];
        let each = equal.zip(changes.iter().map(Some).chain(none));
        each.flat_map(move |(equal, change)| {
            let (old, new) = match change {
                Some(change) => (indexes(&change.old), indexes(&change.new)),
                None => (0..0, 0..0),
            };
            let both = equal.map(|at| (Sign::Both, self.old.get(at)));
            let removed = old.map(|at| (Sign::Old, self.old.get(at)));
            both.chain(removed).chain(new.map(|at| (Sign::New, self.new.get(at))))
        })
    }
}

fn indexes(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl Hunk {
    fn add_after(&mut self, lines: usize) {
        self.old.end += lines;
        self.new.end += lines;
    }
}

impl<'c> Lines<'c> {
    fn of(text: &'c [u8]) -> Self {
        let mut ends = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            at += line.len();
            // A longer text is not compared.
            ends.push(u32::try_from(at).unwrap_or(u32::MAX));
        }
        ends.shrink_to_fit();
        Self { text, ends }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a line with its line end.
    fn get(&self, at: usize) -> &'c [u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.text[start..self.ends[at] as usize]
    }
}

/// Computes the changes between two texts, in windows of lines. The memory for a window does not
/// depend on the length of the texts.
struct EditScript<'l, 'c> {
    old: &'l Lines<'c>,
    new: &'l Lines<'c>,
    deadline: Instant,
    /// Number of lines that are compared at once.
    window: usize,
    changes: Vec<Change>,
}

impl EditScript<'_, '_> {
    /// Compares these lines of the two texts.
    fn run(mut self, old: Range<usize>, new: Range<usize>) -> Vec<Change> {
        let most = match old.len() + new.len() > 4 * self.window {
            true => self.window,
            false => usize::MAX,
        };
        let (mut old_at, mut new_at) = (old.start, new.start);
        while old_at < old.end && new_at < new.end {
            let old_window = old_at..old.end.min(old_at.saturating_add(most));
            let new_window = new_at..new.end.min(new_at.saturating_add(most));
            let is_last = old_window.end == old.end && new_window.end == new.end;
            let ops = self.compare_window(&old_window, &new_window);
            // After the last equal lines, the next window may find equal ones further on.
            let last_equal = ops.iter().rposition(|op| op.tag() == DiffTag::Equal);
            let kept = match (is_last, last_equal) {
                (false, Some(last)) => &ops[..=last],
                _ => &ops[..],
            };
            for op in kept {
                if op.tag() != DiffTag::Equal {
                    self.add(shifted(op.old_range(), old_at), shifted(op.new_range(), new_at));
                }
            }
            let Some(end) = kept.last() else { break };
            let (of_old, of_new) = (end.old_range().end, end.new_range().end);
            (old_at, new_at) = (old_at + of_old, new_at + of_new);
        }
        self.add(old_at..old.end, new_at..new.end);
        self.changes
    }

    fn compare_window(&self, old: &Range<usize>, new: &Range<usize>) -> Vec<DiffOp> {
        // Each distinct line becomes a number, so that each line is hashed only once.
        let mut numbers = LineNumbers::default();
        let old: Vec<u32> = old.clone().map(|at| numbers.of(self.old.get(at))).collect();
        let new: Vec<u32> = new.clone().map(|at| numbers.of(self.new.get(at))).collect();
        drop(numbers);
        // The crate uses heuristics to bound the cost of each step of Myers' algorithm.
        // Many steps still take minutes if long files have few distinct lines.
        let (olds, news) = (0..old.len(), 0..new.len());
        let deadline = Some(self.deadline);
        capture_diff_deadline(Algorithm::Myers, &old[..], olds, &new[..], news, deadline)
    }

    /// Adds a change, or extends the last one if it ends there.
    fn add(&mut self, old: Range<usize>, new: Range<usize>) {
        if old.is_empty() && new.is_empty() {
            return;
        }
        let line = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let of = |range: &Range<usize>| line(range.start)..line(range.end);
        let (old, new) = (of(&old), of(&new));
        match self.changes.last_mut() {
            Some(last) if last.old.end == old.start && last.new.end == new.start => {
                (last.old.end, last.new.end) = (old.end, new.end);
            }
            _ => self.changes.push(Change { old, new }),
        }
    }
}

fn shifted(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// Numbers of distinct lines. A slot takes 4 bytes, where a map would take 32.
#[derive(Default)]
struct LineNumbers<'c> {
    /// The distinct lines by their numbers.
    lines: Vec<&'c [u8]>,
    /// Numbers plus 1 at the places that the hashes of the lines choose; 0 for a free slot. The
    /// length is a power of two, and at least twice the number of lines.
    slots: Vec<u32>,
    hashes: RandomState,
}

impl<'c> LineNumbers<'c> {
    /// Returns the number of a line.
    fn of(&mut self, line: &'c [u8]) -> u32 {
        if self.lines.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let slot = self.slot(line);
        if self.slots[slot] == 0 {
            self.lines.push(line);
            self.slots[slot] = self.lines.len() as u32;
        }
        self.slots[slot] - 1
    }

    /// Returns the slot of a line, or the free slot for it.
    fn slot(&self, line: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.hashes.hash_one(line) as usize & mask;
        while self.slots[slot] != 0 && self.lines[self.slots[slot] as usize - 1] != line {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![0; (self.slots.len() * 4).max(1024)];
        for (number, line) in (1..).zip(&self.lines) {
            let slot = self.slot(line);
            self.slots[slot] = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let text =
            TextDiff::compare((old.as_bytes(), new.as_bytes()), Instant::now(), usize::MAX / 4);
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

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn hunks_contain_both_texts_whatever_the_window_and_the_context(
            old in "([abc]\n){0,40}d?",
            new in "([abc]\n){0,40}d?",
            window in 1_usize..30,
            context in 0_usize..5,
        ) {
            let far = Instant::now() + limits::DIFF_FILE_TIME;
            let text = TextDiff::compare((old.as_bytes(), new.as_bytes()), far, window);
            let (old, new) = (Lines::of(old.as_bytes()), Lines::of(new.as_bytes()));
            let (mut old_at, mut new_at) = (0, 0);
            for hunk in text.hunks(context) {
                // The lines before a hunk are equal.
                prop_assert_eq!(hunk.old.start - old_at, hunk.new.start - new_at);
                while old_at < hunk.old.start {
                    prop_assert_eq!(old.get(old_at), new.get(new_at));
                    (old_at, new_at) = (old_at + 1, new_at + 1);
                }
                for (sign, line) in text.lines(&hunk) {
                    if sign != Sign::New {
                        prop_assert_eq!(old.get(old_at), line);
                        old_at += 1;
                    }
                    if sign != Sign::Old {
                        prop_assert_eq!(new.get(new_at), line);
                        new_at += 1;
                    }
                }
                prop_assert_eq!((old_at, new_at), (hunk.old.end, hunk.new.end));
            }
            prop_assert_eq!(old.len() - old_at, new.len() - new_at);
            let tails = (old_at..old.len()).zip(new_at..new.len());
            prop_assert!(tails.into_iter().all(|(one, other)| old.get(one) == new.get(other)));
        }
    }

    #[test]
    fn a_text_of_millions_of_lines_takes_little_memory() {
        let digits: Vec<u8> =
            (0..100_000_u32).flat_map(|n| [b'0' + (n % 10) as u8, b'\n']).collect();
        let lines = Lines::of(&digits);
        assert_eq!((lines.len(), lines.ends.capacity()), (100_000, 100_000));
        let mut numbers = LineNumbers::default();
        (0..lines.len()).for_each(|at| assert_eq!(numbers.of(lines.get(at)) as usize, at % 10));
        assert_eq!((numbers.lines.len(), numbers.slots.len()), (10, 1024));
    }
}
