//! Comparing two contents line by line.

use std::{collections::HashMap, ops::Range};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices};

use crate::ops::diff::Content;

/// A NUL in so many first bytes makes a content binary, as it does for git.
const LOOKED_AT_BYTES: usize = 8 << 10;

/// How two contents differ.
#[derive(Debug)]
pub enum Lines<'c> {
    /// At least one is no text.
    Binary,
    /// At least one is too large to be compared line by line.
    TooLarge,
    /// Both are text.
    Text(Text<'c>),
}

/// Two texts and what leads from one to the other.
#[derive(Debug)]
pub struct Text<'c> {
    old: Vec<&'c [u8]>,
    new: Vec<&'c [u8]>,
    ops: Vec<DiffOp>,
}

/// Lines around one or more changes.
#[derive(Debug)]
pub struct Hunk {
    /// Which lines of the old text, from 0.
    pub old: Range<usize>,
    /// Which lines of the new text, from 0.
    pub new: Range<usize>,
    ops: Vec<DiffOp>,
}

/// On which side a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// On both.
    Both,
    /// It is gone.
    Old,
    /// It is new.
    New,
}

impl<'c> Lines<'c> {
    /// Compares two contents; what is not there is an empty text.
    pub fn compare(old: &'c Content, new: &'c Content) -> Self {
        let bytes = |content: &'c Content| match content {
            Content::Bytes(bytes) => Some(bytes.as_slice()),
            Content::None => Some(&[][..]),
            Content::TooLarge => None,
        };
        let (Some(old), Some(new)) = (bytes(old), bytes(new)) else { return Self::TooLarge };
        if is_binary(old) || is_binary(new) {
            return Self::Binary;
        }
        Self::Text(Text::compare(old, new))
    }
}

/// Whether a content, or the first 8 KiB of one, is no text: it has a NUL there.
pub fn is_binary(content: &[u8]) -> bool {
    content[..content.len().min(LOOKED_AT_BYTES)].contains(&0)
}

impl<'c> Text<'c> {
    fn compare(old: &'c [u8], new: &'c [u8]) -> Self {
        let split = |text: &'c [u8]| text.split_inclusive(|b| *b == b'\n').collect::<Vec<_>>();
        let (old, new) = (split(old), split(new));
        let alike = |(a, b): &(&&[u8], &&[u8])| a == b;
        let start = old.iter().zip(&new).take_while(alike).count();
        let (rest_old, rest_new) = (&old[start..], &new[start..]);
        let end = rest_old.iter().rev().zip(rest_new.iter().rev()).take_while(alike).count();
        let middle = |lines: &[&'c [u8]]| start..lines.len() - end;
        // Numbers in place of lines, so that each is hashed once.
        let mut numbers: HashMap<&[u8], u32> = HashMap::new();
        let mut number = |line: &&'c [u8]| {
            let next = numbers.len() as u32;
            *numbers.entry(line).or_insert(next)
        };
        let a: Vec<u32> = old[middle(&old)].iter().map(&mut number).collect();
        let b: Vec<u32> = new[middle(&new)].iter().map(&mut number).collect();
        // Myers in its bounded form: it settles for more lines than necessary
        // where the fewest would take too long.
        let mut ops = capture_diff_slices(Algorithm::Myers, &a, &b);
        for op in &mut ops {
            *op = moved(*op, start);
        }
        let whole = |at: usize, from: usize, len: usize| {
            (len > 0).then_some(DiffOp::Equal { old_index: at, new_index: from, len })
        };
        let tail = whole(old.len() - end, new.len() - end, end);
        let ops = whole(0, 0, start).into_iter().chain(ops).chain(tail).collect();
        Self { old, new, ops }
    }

    /// How many lines are new, and how many are gone.
    pub fn counts(&self) -> (u64, u64) {
        let changed = self.ops.iter().filter(|op| op.tag() != DiffTag::Equal);
        changed.fold((0, 0), |(new, old), op| {
            (new + op.new_range().len() as u64, old + op.old_range().len() as u64)
        })
    }

    /// The changes, each with `context` lines before and after it; those that
    /// touch are one.
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

    /// The lines of a hunk, with their ends; those that are gone before those
    /// that are new.
    pub fn lines<'t>(&'t self, hunk: &'t Hunk) -> impl Iterator<Item = (Sign, &'c [u8])> {
        hunk.ops.iter().flat_map(move |op| {
            let equal = op.tag() == DiffTag::Equal;
            let (old, new) = match equal {
                true => (Sign::Both, 0..0),
                false => (Sign::Old, op.new_range()),
            };
            let of_old = self.old[op.old_range()].iter().map(move |line| (old, *line));
            of_old.chain(self.new[new].iter().map(|line| (Sign::New, *line)))
        })
    }
}

/// The same, so many lines further down.
fn moved(op: DiffOp, by: usize) -> DiffOp {
    match op {
        DiffOp::Equal { old_index, new_index, len } => {
            DiffOp::Equal { old_index: old_index + by, new_index: new_index + by, len }
        }
        DiffOp::Delete { old_index, old_len, new_index } => {
            DiffOp::Delete { old_index: old_index + by, old_len, new_index: new_index + by }
        }
        DiffOp::Insert { old_index, new_index, new_len } => {
            DiffOp::Insert { old_index: old_index + by, new_index: new_index + by, new_len }
        }
        DiffOp::Replace { old_index, old_len, new_index, new_len } => DiffOp::Replace {
            old_index: old_index + by,
            old_len,
            new_index: new_index + by,
            new_len,
        },
    }
}

/// Makes one of equal stretches that touch, so that context is counted over
/// both.
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

    fn text(bytes: &[u8]) -> Content {
        Content::Bytes(bytes.to_vec())
    }

    fn shown(old: &str, new: &str, context: usize) -> Vec<String> {
        let (old, new) = (text(old.as_bytes()), text(new.as_bytes()));
        let Lines::Text(text) = Lines::compare(&old, &new) else { panic!("no text") };
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
    fn hunks_hold_changes_with_what_is_around_them() {
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
        let compare =
            |bytes: &[u8]| matches!(Lines::compare(&text(bytes), &Content::None), Lines::Binary);
        assert!(compare(b"a\0"));
        assert!(!compare(&far));
        assert!(!compare(b"\xff\xfe"));
        assert!(matches!(Lines::compare(&Content::TooLarge, &Content::None), Lines::TooLarge));
    }

    #[test]
    fn contents_without_a_common_line_are_compared_in_no_time() {
        let lines =
            |from: u32| (from..from + 100_000).map(|n| format!("{n}\n")).collect::<String>();
        let (old, new) = (text(lines(0).as_bytes()), text(lines(1_000_000).as_bytes()));
        let Lines::Text(text) = Lines::compare(&old, &new) else { panic!("no text") };
        assert_eq!(text.counts(), (100_000, 100_000));
    }
}
