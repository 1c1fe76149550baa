//! The packs that the stat cache relies on.
//!
//! The stat cache stands for content that was stored: a known folder for
//! everything below it. `cache/packs` names the whole packs that existed when
//! the cache was saved, with their lengths, and the checksum of the shadow table
//! of that moment. When one of these packs is gone, or other objects are
//! shadowed, the cache must not be believed. Merging packs writes the new names
//! into the file before the old packs go.
//!
//! A commit asks the file system for the length of each pack. One that has
//! another length than in the list is damaged; of one that is not in the list
//! header, trailer and frame table are read. So a pack that was cut short is
//! found before anything relies on it.
//!
//! The file is text, derived, and not synced: a line `shadow` with the
//! checksum in hexadecimal, a line with name and length in bytes for each pack,
//! in ascending order, and a line `sum` with the XXH3-64 of the lines before.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{
    base::{id::PackId, io::PathError, limits},
    disk::{regular::read_at_most, scratch::unique_name},
    format::{pack::checksum, wire::FormatError},
    store::{
        Store, StoreError,
        catalog::Catalog,
        compact,
        pack_reader::Home,
        shadow::{ShadowVersion, damage},
    },
};

/// Name of the file in `cache/`.
const FILE: &str = "packs";

/// Length recorded for a damaged pack. No file has it, so every commit examines
/// the pack again.
const UNCERTAIN: u64 = 0;

/// Whether the stat cache may be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reliance {
    /// All packs that it relies on are there, and nothing in them was shadowed
    /// since.
    Holds,
    /// It was not saved together with a list of packs, or objects were shadowed
    /// since.
    Unknown,
    /// Packs that it relies on are gone.
    Lost {
        /// How many.
        packs: usize,
        /// One of them.
        first: PackId,
    },
}

/// The packs of one moment, and how long they are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReliedPacks {
    shadows: u64,
    packs: BTreeMap<PackId, u64>,
}

impl ReliedPacks {
    /// Those of a catalog. Lengths that `known` does not have come from the file
    /// system; a pack without one is left out.
    fn of(catalog: &Catalog, known: Option<&Self>) -> Self {
        let packs = catalog.numbers.keys().filter_map(|id| {
            let slot = catalog.slot(id).filter(|slot| slot.home == Home::Whole)?;
            let noted = known.and_then(|known| known.packs.get(id)).copied();
            let noted = noted.filter(|bytes| *bytes != UNCERTAIN);
            let length = || fs_err::metadata(&slot.path).ok().map(|meta| meta.len());
            Some((*id, noted.or_else(length)?))
        });
        Self { shadows: catalog.shadows.version().checksum, packs: packs.collect() }
    }

    fn encode(&self) -> String {
        let mut text = format!("shadow {:016x}\n", self.shadows);
        for (id, bytes) in &self.packs {
            text.push_str(&format!("{id} {bytes}\n"));
        }
        let sum = checksum(text.as_bytes());
        text.push_str(&format!("sum {sum:016x}\n"));
        text
    }

    /// `None` when the text is not one that was written whole.
    fn decode(text: &str) -> Option<Self> {
        let (lines, sum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let lines = &text[..=lines.len()];
        let sum = u64::from_str_radix(sum.strip_prefix("sum ")?, 16).ok()?;
        if checksum(lines.as_bytes()) != sum {
            return None;
        }
        let mut lines = lines.lines();
        let shadows = u64::from_str_radix(lines.next()?.strip_prefix("shadow ")?, 16).ok()?;
        let pack = |line: &str| {
            let (id, bytes) = line.split_once(' ')?;
            Some((id.parse().ok()?, bytes.parse().ok()?))
        };
        let packs = lines.map(pack).collect::<Option<_>>()?;
        Some(Self { shadows, packs })
    }
}

impl Store {
    fn relied_path(&self) -> PathBuf {
        self.dir().join("cache").join(FILE)
    }

    fn read_relied(&self) -> Option<ReliedPacks> {
        let bytes = read_at_most(&self.relied_path(), limits::RELIED_BYTES).ok()?;
        ReliedPacks::decode(std::str::from_utf8(&bytes).ok()?)
    }

    /// Shadows packs that are not whole, as far as their lengths, headers,
    /// trailers and frame tables show it: durably, or with `is_dry` for this open
    /// store only. Returns what was found. When the table cannot be written, all
    /// are shadowed for this open store all the same.
    pub fn shadow_cut_packs(&self, is_dry: bool) -> Vec<StoreError> {
        let catalog = self.catalog();
        let (now, noted) = (ReliedPacks::of(&catalog, None), self.read_relied());
        let is_noted = |id: &PackId, bytes: &u64| {
            noted.as_ref().is_some_and(|noted| noted.packs.get(id) == Some(bytes))
        };
        let mut found = Vec::new();
        for (id, bytes) in now.packs.iter().filter(|(id, bytes)| !is_noted(id, bytes)) {
            let slot = catalog.slot(id).filter(|slot| slot.span.is_none());
            let before = noted.as_ref().and_then(|noted| noted.packs.get(id));
            let error = match (before, slot.map(|slot| slot.open(None))) {
                (_, Some(Err(error))) => error,
                // Even a sound one: the name of a pack is the hash of its bytes.
                (Some(before), _) if *before != UNCERTAIN => {
                    let source = FormatError::Invalid { what: "length", at: *bytes as usize };
                    StoreError::Format { pack: *id, source }
                }
                _ => continue,
            };
            let is_news = damage(&error).is_some() && !catalog.shadows.is_damaged(id);
            if is_dry {
                self.shadow_in_memory(&error);
            } else {
                let _ = self.shadow_damage(&error);
            }
            if is_news {
                found.push(error);
            }
        }
        found
    }

    /// Whether the stat cache may be believed.
    pub fn reliance(&self) -> Reliance {
        let Some(relied) = self.read_relied() else { return Reliance::Unknown };
        let catalog = self.catalog();
        if catalog.shadows.version().is_unsaved {
            return Reliance::Unknown;
        }
        let now = ReliedPacks::of(&catalog, Some(&relied));
        let mut lost = relied.packs.keys().filter(|id| !now.packs.contains_key(id));
        match lost.next() {
            Some(first) => Reliance::Lost { packs: 1 + lost.count(), first: *first },
            None if relied.shadows != now.shadows => Reliance::Unknown,
            None => Reliance::Holds,
        }
    }

    /// Notes the packs that the stat cache relies on from now on, for the caller
    /// to save the cache then. `opened` is the version of the shadow table when the
    /// cache was opened.
    ///
    /// Returns false when the cache must be cleared instead: objects were shadowed or
    /// packs went meanwhile, or the file cannot be written. Files that were read
    /// before an object was shadowed may have relied on it.
    pub fn rely_on_packs(&self, opened: ShadowVersion) -> bool {
        let (before, catalog) = (self.read_relied(), self.catalog());
        if opened.is_unsaved || catalog.shadows.version() != opened {
            self.distrust_stat_cache();
            return false;
        }
        let mut relied = ReliedPacks::of(&catalog, before.as_ref());
        for (id, bytes) in &mut relied.packs {
            if catalog.shadows.is_damaged(id) {
                *bytes = UNCERTAIN;
            }
        }
        if before.as_ref() == Some(&relied) {
            return true;
        }
        // The cache that was read relies on those of before.
        let covers =
            before.is_none_or(|before| before.packs.keys().all(|id| relied.packs.contains_key(id)));
        // Nobody merges packs between the look and the note.
        let held = compact::open_lock(self).is_ok_and(|lock| {
            lock.try_lock_shared().is_ok()
                && covers
                && self.are_named(&relied.packs)
                && self.write_relied(&relied).is_ok()
        });
        if !held {
            self.distrust_stat_cache();
        }
        held
    }

    /// Whether all of these packs have their names in `objects/`.
    fn are_named(&self, packs: &BTreeMap<PackId, u64>) -> bool {
        let Ok(entries) = fs_err::read_dir(&self.layout().objects) else { return false };
        let name = |entry: std::io::Result<fs_err::DirEntry>| {
            entry.ok()?.file_name().to_str()?.parse::<PackId>().ok()
        };
        let named = entries.filter_map(name).filter(|id| packs.contains_key(id)).count();
        named == packs.len()
    }

    /// Invalidates the stat cache: the next commit reads all files again.
    pub fn distrust_stat_cache(&self) {
        let _ = self.disk().remove(&self.relied_path());
    }

    fn write_relied(&self, relied: &ReliedPacks) -> Result<(), PathError> {
        let (layout, path) = (self.layout(), self.relied_path());
        self.disk().create_folders(&layout.dir.join("cache"))?;
        let temporary = layout.tmp.join(unique_name(FILE));
        let mut file = self.disk().create(&temporary)?;
        file.write(relied.encode().as_bytes())?;
        self.disk().replace(&temporary, &path)?;
        file.keep();
        Ok(())
    }

    /// Notes that packs were merged, before the old ones go. The caller has
    /// locked `compact.lock`.
    pub(super) fn note_merged(&self, old: &[PackId], new: &[PackId]) {
        let Some(mut relied) = self.read_relied() else { return };
        let before = relied.packs.len();
        relied.packs.retain(|id, _| !old.contains(id));
        if relied.packs.len() == before {
            return;
        }
        let length = |id: &PackId| {
            let path = self.layout().path(Home::Whole, id);
            Some((*id, fs_err::metadata(path).ok()?.len()))
        };
        let lengths: Option<Vec<_>> = new.iter().map(length).collect();
        let is_noted = lengths.is_some_and(|lengths| {
            relied.packs.extend(lengths);
            self.write_relied(&relied).is_ok()
        });
        if !is_noted {
            self.distrust_stat_cache();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_packs_comes_back_and_only_whole() {
        let packs = (0..3).map(|n| (PackId::from_bytes([n; 32]), u64::from(n) << 40)).collect();
        for relied in
            [ReliedPacks { shadows: 7, packs }, ReliedPacks { shadows: 0, packs: BTreeMap::new() }]
        {
            let text = relied.encode();
            assert_eq!(ReliedPacks::decode(&text), Some(relied));
            for at in 0..text.len() {
                assert_eq!(ReliedPacks::decode(&text[..at]), None, "cut at {at}");
            }
            let other = text.replacen('0', "1", 1);
            assert_eq!(ReliedPacks::decode(&other), None);
        }
    }
}
