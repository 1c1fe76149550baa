//! How a content is read: which reads follow each other, and how far ahead it
//! is worth to read.

use std::{collections::VecDeque, ops::Range};

/// Sequences that are followed at once: columns of a table, readers.
const RUNS: usize = 16;

/// Reads that followed each other.
#[derive(Debug)]
struct Run {
    start: u64,
    end: u64,
}

/// The sequences that were read last.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    /// Most recent first.
    runs: VecDeque<Run>,
}

impl Pattern {
    /// Takes note of a read and says how many bytes after it will be wanted:
    /// as many as were read in sequence up to it, from one block to `most`;
    /// none where it follows no other. Two reads follow each other when less
    /// than a block lies between.
    pub(super) fn note(&mut self, range: &Range<u64>, block_bytes: u64, most: u64) -> u64 {
        let follows = |run: &Run| range.start.abs_diff(run.end) < block_bytes;
        let Some(at) = self.runs.iter().position(follows) else {
            self.runs.truncate(RUNS - 1);
            self.runs.push_front(Run { start: range.start, end: range.end });
            return 0;
        };
        let Some(mut run) = self.runs.remove(at) else { return 0 };
        run.end = run.end.max(range.end);
        let ahead = run.end.saturating_sub(run.start).max(block_bytes).min(most);
        self.runs.push_front(run);
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_read_ahead_as_was_read_in_sequence() {
        let mut pattern = Pattern::default();
        let ahead: Vec<u64> =
            (0..6).map(|n| pattern.note(&(n * 10..n * 10 + 10), 10, 45)).collect();
        assert_eq!(ahead, [0, 20, 30, 40, 45, 45]);
    }

    #[test]
    fn scattered_reads_read_nothing_ahead() {
        let mut pattern = Pattern::default();
        for n in 0..100_u64 {
            let start = (n * 7919) % 100_000 * 1000;
            assert_eq!(pattern.note(&(start..start + 10), 10, 1000), 0);
        }
    }

    #[test]
    fn two_sequences_are_followed_at_once() {
        let mut pattern = Pattern::default();
        for n in 0..5 {
            let near = pattern.note(&(n * 10..n * 10 + 10), 10, 1000);
            let far = pattern.note(&(5000 + n * 10..5010 + n * 10), 10, 1000);
            assert_eq!(near, far);
            assert_eq!(near > 0, n > 0);
        }
    }
}
