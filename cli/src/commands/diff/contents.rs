//! Reads both contents of many changes in batches.

use std::num::NonZero;

use snap_core::{
    base::{blocked::Blocked, observe::Observer},
    ops::{
        cat::CatError,
        diff::{Change, ChangeSide, ComparedKind, SideContent, SideReader},
    },
};

use crate::commands::diff::{record::LinesJson, stat};

/// Limits of a batch: number of changes, and approximate number of bytes.
const CHANGES: usize = 1024;
const BYTES: u64 = 32 << 20;

/// Minimum number of changes for each thread.
const SHARE: usize = 8;

/// A change with its contents, or with its line counts.
pub(crate) struct ContentRead {
    pub(crate) change: Change,
    pub(crate) contents: Result<(SideContent, SideContent), CatError>,
    pub(crate) lines: Option<LinesJson>,
}

/// Selects how much of the contents is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// The contents themselves.
    Contents,
    /// Only the numbers of added and removed lines.
    Counts,
}

/// Changes that are waiting to be read.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    changes: Vec<Change>,
    bytes: u64,
}

impl Batch {
    /// Adds a change. Returns true if the batch is full.
    pub(crate) fn push(&mut self, change: Change) -> bool {
        let sides = [&change.old, &change.new].into_iter().flatten();
        self.bytes += sides.map(|item| item.what.bytes()).sum::<u64>();
        self.changes.push(change);
        self.changes.len() >= CHANGES || self.bytes >= BYTES
    }

    /// Reads the added changes, in order.
    pub(crate) fn read(
        &mut self,
        reader: &SideReader<'_>,
        want: Want,
        observer: &dyn Observer,
    ) -> Vec<ContentRead> {
        let mut changes = std::mem::take(self).changes;
        reader.forget();
        reader.read_ahead(changes.iter());
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = cores.min(8).min(changes.len().div_ceil(SHARE)).max(1);
        let share = changes.len().div_ceil(threads).max(1);
        let one = |change| read(change, reader, want, observer);
        let first: Vec<Change> = changes.drain(..share.min(changes.len())).collect();
        std::thread::scope(|scope| {
            let mut helpers = Vec::new();
            while !changes.is_empty() {
                let part: Vec<Change> = changes.drain(..share.min(changes.len())).collect();
                helpers.push(scope.spawn(move || part.into_iter().map(one).collect::<Vec<_>>()));
            }
            let mut all: Vec<ContentRead> = first.into_iter().map(one).collect();
            for helper in helpers {
                match helper.join() {
                    Ok(part) => all.extend(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            all
        })
    }
}

fn read(
    change: Change,
    reader: &SideReader<'_>,
    want: Want,
    observer: &dyn Observer,
) -> ContentRead {
    if !has_lines(&change) {
        return ContentRead {
            change,
            contents: Ok((SideContent::None, SideContent::None)),
            lines: None,
        };
    }
    if observer.cancelled() {
        return ContentRead {
            change,
            contents: Err(CatError::Blocked(Blocked::Interrupted)),
            lines: None,
        };
    }
    let contents = reader.old(change.old.as_ref(), observer).and_then(|old| {
        let new = reader.new_side(&change.path, change.new.as_ref(), observer)?;
        Ok((old, new))
    });
    match (contents, want) {
        (Ok((old, new)), Want::Counts) => {
            let lines = Some(stat::count((&old, &new)));
            ContentRead { change, contents: Ok((SideContent::None, SideContent::None)), lines }
        }
        (contents, _) => ContentRead { change, contents, lines: None },
    }
}

/// Returns true if a change has contents that may be compared line by line.
fn has_lines(change: &Change) -> bool {
    let by_lines = |item: &ChangeSide| {
        matches!(item.what, ComparedKind::File { .. } | ComparedKind::Symlink { .. })
    };
    let one_sided = change.old.is_none() || change.new.is_none();
    let sides = [&change.old, &change.new];
    (one_sided || change.differences().content) && sides.into_iter().flatten().any(by_lines)
}
