//! Detects sequential reads of a content and decides how far to read ahead.

use std::{collections::VecDeque, ops::Range};

/// Maximum number of tracked sequences, such as columns of a table.
const RUNS: usize = 16;

/// A sequence of adjacent reads.
#[derive(Debug)]
struct SequentialRun {
    start: u64,
    end: u64,
}

/// The sequences that were read most recently.
#[derive(Debug, Default)]
pub(super) struct AccessPattern {
    /// Most recent first.
    runs: VecDeque<SequentialRun>,
}

impl AccessPattern {
    /// Records a read and returns the number of bytes to read ahead after it.
    ///
    /// The result is the length of the sequence so far, clamped to `block_bytes..=most`, or 0 if
    /// the read continues no sequence. A read continues a sequence if it starts less than a block
    /// from the end of the sequence.
    pub(super) fn note(&mut self, range: &Range<u64>, block_bytes: u64, most: u64) -> u64 {
        let follows = |run: &SequentialRun| range.start.abs_diff(run.end) < block_bytes;
        let Some(at) = self.runs.iter().position(follows) else {
            self.runs.truncate(RUNS - 1);
            self.runs.push_front(SequentialRun { start: range.start, end: range.end });
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
    fn read_ahead_grows_with_the_length_of_the_sequence() {
        let mut pattern = AccessPattern::default();
        let ahead: Vec<u64> =
            (0..6).map(|n| pattern.note(&(n * 10..n * 10 + 10), 10, 45)).collect();
        assert_eq!(ahead, [0, 20, 30, 40, 45, 45]);
    }

    #[test]
    fn scattered_reads_cause_no_read_ahead() {
        let mut pattern = AccessPattern::default();
        for n in 0..100_u64 {
            let start = (n * 7919) % 100_000 * 1000;
            assert_eq!(pattern.note(&(start..start + 10), 10, 1000), 0);
        }
    }

    #[test]
    fn two_interleaved_sequences_are_recognised() {
        let mut pattern = AccessPattern::default();
        for n in 0..5 {
            let near = pattern.note(&(n * 10..n * 10 + 10), 10, 1000);
            let far = pattern.note(&(5000 + n * 10..5010 + n * 10), 10, 1000);
            assert_eq!(near, far);
            assert_eq!(near > 0, n > 0);
        }
    }
}
