//! Pairing files that are gone with new ones of the same content.
//!
//! Changes are held back from the first that may be half of a rename. When
//! there are more than [`limits::RENAME_CANDIDATES`], or they take more than
//! [`limits::RENAME_BYTES`], they are handed out as they are, and so is all
//! that follows.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;

use crate::{
    base::{
        id::BlobId,
        limits,
        observe::{Note, Observer},
    },
    ops::diff::{Change, DiffError, Each, Item, Renames, What},
};

/// Of files with one content so many are looked at for one of the same name.
const ALIKE: usize = 64;

/// Changes that may be halves of renames.
pub(super) struct Pairing<'a> {
    /// `None` when renames are not looked for, or no longer.
    held: Option<Vec<Change>>,
    candidates: usize,
    bytes: usize,
    observer: &'a dyn Observer,
    emit: Each<'a>,
}

/// Finds out the content of a file of the user's and whether it has holes;
/// `None` if it cannot.
pub(super) type Identify<'a> = &'a (dyn Fn(&[u8]) -> Option<(BlobId, bool)> + Sync);

impl<'a> Pairing<'a> {
    pub(super) fn new(renames: Renames, observer: &'a dyn Observer, emit: Each<'a>) -> Self {
        let held = (renames == Renames::Find).then(Vec::new);
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
            self.observer.note(Note::RenamesGivenUp { limit: limits::RENAME_CANDIDATES });
            let held = self.held.take().unwrap_or_default();
            held.into_iter().try_for_each(&mut *self.emit)?;
        }
        Ok(())
    }

    /// Pairs what is held, and hands it out.
    pub(super) fn finish(mut self, identify: Identify<'_>) -> Result<(), DiffError> {
        let mut held = self.held.take().unwrap_or_default();
        let pairs = if self.candidates > 1 { pair(&mut held, identify) } else { HashMap::new() };
        let mut taken: HashMap<usize, (Vec<u8>, Option<Item>)> = HashMap::new();
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

/// Size and content of a file that is there on one side only; not of an empty
/// one, which is like any other.
fn lone_file(change: &Change) -> Option<(u64, Option<BlobId>)> {
    let item = match (&change.old, &change.new) {
        (Some(item), None) | (None, Some(item)) => item,
        _ => return None,
    };
    match item.what {
        What::File { size, id } if size > 0 => Some((size, id)),
        _ => None,
    }
}

/// From the number of a new file to that of one that is gone.
fn pair(held: &mut [Change], identify: Identify<'_>) -> HashMap<usize, usize> {
    let mut gone: HashMap<BlobId, Vec<usize>> = HashMap::new();
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
    held.par_iter_mut().for_each(|change| {
        if let (None, Some((size, None))) = (&change.old, lone_file(change))
            && sizes.contains(&size)
            && let Some(Item { what: What::File { id, .. }, metadata }) = &mut change.new
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
        // The same name first, else the one that comes first, which is last.
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
