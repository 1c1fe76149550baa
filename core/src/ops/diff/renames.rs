//! Pairs removed files with added files of the same content.
//!
//! Changes are buffered from the first one that may be half of a rename. Above
//! [`limits::RENAME_CANDIDATES`] candidates or [`limits::RENAME_BYTES`] of buffered changes, the
//! pairing ends: the buffered changes and all later ones are output as they are.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;

use crate::{
    base::{
        id::ContentId,
        limits,
        observe::{Note, Observer},
    },
    ops::diff::{Change, ChangeSide, ComparedKind, DiffError, OnChange, RenameDetection},
};

/// Maximum number of removed files of the same content that are searched for the same name.
const ALIKE: usize = 64;

/// Buffers changes that may be halves of renames.
pub(super) struct Pairing<'a> {
    /// The buffered changes; `None` if renames are not detected, or no longer.
    held: Option<Vec<Change>>,
    candidates: usize,
    bytes: usize,
    observer: &'a dyn Observer,
    emit: OnChange<'a>,
}

/// A function that takes the path of a file. Returns the id of the file's content, and true if the
/// file has holes. Returns `None` if the file cannot be read.
pub(super) type ContentIdentifier<'a> = &'a (dyn Fn(&[u8]) -> Option<(ContentId, bool)> + Sync);

impl<'a> Pairing<'a> {
    pub(super) fn new(
        renames: RenameDetection,
        observer: &'a dyn Observer,
        emit: OnChange<'a>,
    ) -> Self {
        let held = (renames == RenameDetection::Find).then(Vec::new);
        Self { held, candidates: 0, bytes: 0, observer, emit }
    }

    pub(super) fn push(&mut self, change: Change) -> Result<(), DiffError> {
        let Some(held) = &mut self.held else { return (self.emit)(change) };
        let is_candidate = lone_file(&change).is_some();
        if held.is_empty() && !is_candidate {
            return (self.emit)(change);
        }
        self.candidates += usize::from(is_candidate);
        self.bytes += change.weight();
        held.push(change);
        if self.candidates > limits::RENAME_CANDIDATES || self.bytes > limits::RENAME_BYTES {
            self.observer.note(Note::RenameDetectionSkipped { limit: limits::RENAME_CANDIDATES });
            let held = self.held.take().unwrap_or_default();
            held.into_iter().try_for_each(&mut *self.emit)?;
        }
        Ok(())
    }

    /// Pairs the buffered changes and outputs them.
    pub(super) fn finish(mut self, identify: ContentIdentifier<'_>) -> Result<(), DiffError> {
        let mut held = self.held.take().unwrap_or_default();
        let pairs = if self.candidates > 1 { pair(&mut held, identify) } else { HashMap::new() };
        let mut taken: HashMap<usize, (Vec<u8>, Option<ChangeSide>)> = HashMap::new();
        let gone: HashSet<usize> = pairs.values().copied().collect();
        for &at in &gone {
            taken.insert(at, (held[at].path.clone(), held[at].old.take()));
        }
        for (at, mut change) in held.into_iter().enumerate() {
            if gone.contains(&at) {
                continue;
            }
            if let Some((path, old)) = pairs.get(&at).and_then(|from| taken.remove(from)) {
                (change.old_path, change.old) = (Some(path), old);
            }
            (self.emit)(change)?;
        }
        Ok(())
    }
}

/// Returns size and content of a file that exists on one side only. Returns `None` for an
/// empty file, since all empty files have the same content, and for an ignored file, which
/// still exists.
fn lone_file(change: &Change) -> Option<(u64, Option<ContentId>)> {
    if change.is_ignored {
        return None;
    }
    let item = match (&change.old, &change.new) {
        (Some(item), None) | (None, Some(item)) => item,
        _ => return None,
    };
    match item.what {
        ComparedKind::File { size, id } if size > 0 => Some((size, id)),
        _ => None,
    }
}

/// Maps the index of each added file to the index of the removed file that it is paired
/// with.
fn pair(held: &mut [Change], identify: ContentIdentifier<'_>) -> HashMap<usize, usize> {
    let mut gone: HashMap<ContentId, Vec<usize>> = HashMap::new();
    let mut sizes = HashSet::new();
    for (at, change) in held.iter().enumerate().rev() {
        if let (None, Some((size, Some(id)))) = (&change.new, lone_file(change)) {
            gone.entry(id).or_default().push(at);
            sizes.insert(size);
        }
    }
    if gone.is_empty() {
        return HashMap::new();
    }
    // Added files are read only if a removed file has the same size.
    held.par_iter_mut().for_each(|change| {
        if let (None, Some((size, None))) = (&change.old, lone_file(change))
            && sizes.contains(&size)
            && let Some(ChangeSide { what: ComparedKind::File { id, .. }, metadata }) =
                &mut change.new
            && let Some((content, sparse)) = identify(&change.path)
        {
            *id = Some(content);
            metadata.sparse = sparse && metadata.mtime.is_some();
        }
    });
    let mut pairs = HashMap::new();
    for (at, change) in held.iter().enumerate() {
        let (None, Some((_, Some(id)))) = (&change.old, lone_file(change)) else { continue };
        let Some(of_content) = gone.get_mut(&id) else { continue };
        // Prefer a file with the same name. Otherwise take the first one in order, which
        // is the last in this list, since the list was filled in reverse.
        let near = of_content.len().saturating_sub(ALIKE);
        let same_name = |from: &usize| name(&held[*from].path) == name(&change.path);
        let place = of_content[near..].iter().rposition(same_name).map(|place| near + place);
        if let Some(place) = place.or(of_content.len().checked_sub(1)) {
            pairs.insert(at, of_content.remove(place));
        }
    }
    pairs
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}
