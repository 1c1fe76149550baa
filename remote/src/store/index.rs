//! The index elsewhere: files of outlines, read once, and merged as they grow
//! in number.
//!
//! Each push writes one file. Where seven that are no larger than it are
//! there, the file that it writes holds theirs, too: so of each class of sizes,
//! eight times as large as the one below, there are at most seven. A file of a
//! MiB or more is left alone, and no push writes one much larger than
//! `FILE_BYTES`. That is one page of a listing for a store of any size. What a
//! client has read it reads again at most once for each class above the first:
//! files of that one, which are below 32 KiB, are read again with each merge
//! until together they are as long.
//!
//! What a file of which all is in a larger one holds is known twice: whoever
//! *lists* both removes the smaller one, with their next push. A merged file is
//! thus seen by somebody before anything goes. Two who merge at once lose
//! nothing: a file goes only while a strictly larger set that contains it was
//! listed, which itself goes only for a larger one still, so there is always
//! one that holds what any of them held. Names are hashes of the contents, and
//! packs in a file are sorted, so the same set has one name.
//!
//! What all goes with one push counts all at once, since what refers to what in
//! which pack is not known: where it is too much for one file, it goes in
//! several *parts*, which count once the file of their *group* is there. Groups
//! and their parts are not merged.
//!
//! What it costs: a push that merges writes up to eight times as many bytes of
//! outlines (about 50 B for each object there is in them), and the push after
//! it makes one more request, which removes many files at once where the
//! service can do that.

mod read;

use std::collections::{BTreeMap, BTreeSet};

use snap_core::{
    base::id::PackId,
    format::outline::{self, Name, Outline},
    store::Store,
};

use super::{INDEX, RemoteError, RemoteStore};
use crate::service::When;

/// Files of a class, the new one included, that become one.
const FAN: usize = 8;

/// Files below this are of the first class.
const FIRST_CLASS_BYTES: u64 = 32 << 10;

/// Files of so many bytes are not merged any more.
const DONE_BYTES: u64 = 1 << 20;

/// About so many bytes are in a file at most, unless one pack's are more.
pub(super) const FILE_BYTES: u64 = 4 << 20;

/// What names of parts of a group end with.
const PART: &str = ".part";

/// What names of the files of groups end with.
const GROUP: &str = ".group";

/// Parts that are written at once, each of which is held in memory.
const PARTS_AT_ONCE: usize = 4;

/// A pack, and the store that knows its outline.
pub(crate) type Told<'s> = (&'s Store, PackId);

/// Files of outlines to be written. Several of them are a group.
#[derive(Debug, Default)]
pub(crate) struct Publication<'s> {
    files: Vec<Vec<Told<'s>>>,
}

impl Publication<'_> {
    /// Objects that are written.
    pub(crate) fn objects(&self) -> usize {
        match self.files.len() {
            several @ 2.. => several + 1,
            one => one,
        }
    }
}

impl RemoteStore {
    /// What is to be written so that packs become part of the store: their
    /// outlines, and those of small files that are merged with them.
    pub(crate) fn publication<'s>(
        &'s self,
        new: Vec<Told<'s>>,
    ) -> Result<Publication<'s>, RemoteError> {
        let (mut files, bytes) = split(new, self.index_file_bytes)?;
        if let [only] = &mut files[..]
            && !self.client.keeps_index()
        {
            let known = self.mirror.outlines();
            let small: Vec<(&String, u64)> = self
                .listed
                .iter()
                .filter(|(name, _)| known.contains_key(*name) && !name.ends_with(GROUP))
                .map(|(name, bytes)| (name, *bytes))
                .collect();
            for name in to_merge(&small, bytes) {
                only.extend(known[&name].iter().map(|id| (self.mirror.store(), *id)));
            }
            tidy(only);
        }
        Ok(Publication { files })
    }

    /// Whether a file of the index stands for several.
    pub(super) fn is_group(&self, name: &str) -> bool {
        name.ends_with(GROUP)
    }

    /// What is to be written in place of a damaged file that told of these packs.
    pub(super) fn publication_again<'s>(
        &'s self,
        mut packs: Vec<Told<'s>>,
        name: &str,
    ) -> Result<Publication<'s>, RemoteError> {
        if self.is_group(name) {
            return Ok(Publication { files: split(packs, self.index_file_bytes)?.0 });
        }
        // One file, which thus has its name again.
        tidy(&mut packs);
        Ok(Publication { files: vec![packs] })
    }

    /// Makes packs count that have been sent, of which `store` has the outlines.
    ///
    /// # Errors
    /// [`RemoteError`]; they count all together then, or none does.
    pub async fn publish(&self, store: &Store, packs: &[PackId]) -> Result<(), RemoteError> {
        let told = packs.iter().map(|id| (store, *id)).collect();
        self.write_publication(self.publication(told)?).await?;
        // What cannot be removed is there for the next one.
        let _ = self.remove_superfluous().await;
        Ok(())
    }

    /// Writes them; from then on their packs count.
    ///
    /// # Errors
    /// [`RemoteError`]; what was written then counts all together, or not.
    pub(crate) async fn write_publication(
        &self,
        publication: Publication<'_>,
    ) -> Result<(), RemoteError> {
        match &publication.files[..] {
            [] => {}
            [only] => {
                let outlines = outlines(only)?;
                let name = self.write_file(outline::encode(&outlines), "").await?;
                self.mirror.add(&name, [Ok::<_, RemoteError>(outlines)])?;
            }
            parts => {
                let mut names = Vec::with_capacity(parts.len());
                for some in parts.chunks(PARTS_AT_ONCE) {
                    let write = async |part: &Vec<Told<'_>>| {
                        self.write_file(outline::encode(&outlines(part)?), PART).await
                    };
                    let written = futures::future::join_all(some.iter().map(write)).await;
                    for name in written {
                        let name = name?;
                        names.extend(name.trim_end_matches(PART).parse::<Name>());
                    }
                }
                let name = self.write_file(outline::encode_group(&names), GROUP).await?;
                self.mirror.add(&name, parts.iter().map(|part| outlines(part)))?;
            }
        }
        self.mirror.forget_sending();
        Ok(())
    }

    /// Writes a file of the index, and says its name.
    async fn write_file(&self, bytes: Vec<u8>, ending: &str) -> Result<String, RemoteError> {
        let name = format!("{}{ending}", name_of(&bytes));
        self.client.write(&format!("{INDEX}{name}"), bytes.into(), When::Always).await?;
        Ok(name)
    }

    /// Keys of files of which a larger one, listed with them, holds all.
    pub(crate) fn superfluous(&self) -> Vec<String> {
        if self.client.keeps_index() {
            return Vec::new();
        }
        let known = self.mirror.outlines();
        let listed: Vec<(&String, &BTreeSet<PackId>)> =
            known.iter().filter(|(name, _)| self.listed.contains_key(*name)).collect();
        let mut by_pack: BTreeMap<PackId, Vec<&BTreeSet<PackId>>> = BTreeMap::new();
        for (_, packs) in &listed {
            packs.iter().for_each(|id| by_pack.entry(*id).or_default().push(packs));
        }
        let is_in_another = |packs: &BTreeSet<PackId>| {
            let first = packs.first().and_then(|id| by_pack.get(id));
            let mut others = first.into_iter().flatten();
            others.any(|other| other.len() > packs.len() && packs.is_subset(other))
        };
        // The parts of a group would be left without it.
        let small =
            listed.iter().filter(|(name, packs)| !name.ends_with(GROUP) && is_in_another(packs));
        small.map(|(name, _)| format!("{INDEX}{name}")).collect()
    }

    /// Removes files that are superfluous.
    pub(crate) async fn remove_superfluous(&self) -> Result<(), RemoteError> {
        let keys = self.superfluous();
        if keys.is_empty() {
            return Ok(());
        }
        self.client.remove_many(&keys).await?;
        let names: Vec<String> =
            keys.iter().filter_map(|key| key.strip_prefix(INDEX)).map(str::to_owned).collect();
        Ok(self.mirror.forget(&names)?)
    }
}

fn name_of(bytes: &[u8]) -> String {
    PackId::from_bytes(*blake3::hash(bytes).as_bytes()).to_string()
}

/// Packs sorted, each once.
fn tidy(packs: &mut Vec<Told<'_>>) {
    packs.sort_unstable_by_key(|(_, id)| *id);
    packs.dedup_by_key(|(_, id)| *id);
}

/// Length of the file that tells of these packs.
fn file_bytes(packs: &[Told<'_>]) -> Result<u64, RemoteError> {
    Ok(outline::encode(&outlines(packs)?).len() as u64)
}

fn outlines(packs: &[Told<'_>]) -> Result<Vec<Outline>, RemoteError> {
    Ok(packs.iter().map(|(store, id)| store.outline(id)).collect::<Result<_, _>>()?)
}

/// Packs of one push, by the files that shall tell of them, none of which is
/// much longer than `most`; and the length of the last one.
fn split(mut packs: Vec<Told<'_>>, most: u64) -> Result<(Vec<Vec<Told<'_>>>, u64), RemoteError> {
    tidy(&mut packs);
    let mut files: Vec<Vec<Told<'_>>> = Vec::new();
    let mut total = 0;
    for pack in packs {
        let bytes = pack.0.outline(&pack.1)?.file_share();
        match files.last_mut() {
            Some(file) if total + bytes <= most => {
                total += bytes;
                file.push(pack);
            }
            _ => {
                total = bytes;
                files.push(vec![pack]);
            }
        }
    }
    Ok((files, total))
}

fn class(bytes: u64) -> u32 {
    let mut class = 0;
    let mut limit = FIRST_CLASS_BYTES;
    while bytes >= limit {
        (class, limit) = (class + 1, limit * FAN as u64);
    }
    class
}

/// Which files a new one of `bytes` shall hold.
fn to_merge(files: &[(&String, u64)], bytes: u64) -> Vec<String> {
    let (mut chosen, mut total) = (Vec::new(), bytes);
    let mut rest: Vec<&(&String, u64)> =
        files.iter().filter(|(_, bytes)| *bytes < DONE_BYTES).collect();
    rest.sort_unstable_by_key(|(name, bytes)| (*bytes, *name));
    while total < DONE_BYTES {
        let peers = rest.partition_point(|(_, bytes)| class(*bytes) <= class(total));
        if peers + 1 < FAN {
            break;
        }
        for (name, bytes) in rest.drain(..peers) {
            chosen.push((*name).clone());
            total += bytes;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is there after so many pushes of files of those lengths.
    fn after(pushes: impl Iterator<Item = u64>) -> (Vec<u64>, u64) {
        let (mut files, mut written): (BTreeMap<String, u64>, u64) = (BTreeMap::new(), 0);
        for (number, bytes) in pushes.enumerate() {
            let listed: Vec<(&String, u64)> = files.iter().map(|(name, b)| (name, *b)).collect();
            let merged = to_merge(&listed, bytes);
            let total = bytes + merged.iter().map(|name| files[name]).sum::<u64>();
            files.retain(|name, _| !merged.contains(name));
            files.insert(format!("{number}"), total);
            written += total;
        }
        (files.into_values().collect(), written)
    }

    #[test]
    fn files_are_few_and_written_few_times() {
        for bytes in [500, 5_000, 40_000, 300_000] {
            let (files, written) = after(std::iter::repeat_n(bytes, 5_000));
            let done = files.iter().filter(|bytes| **bytes >= DONE_BYTES).count();
            assert!(files.len() - done <= 3 * FAN, "{bytes}: {}", files.len());
            assert!(done as u64 <= 5_000 * bytes / DONE_BYTES, "{bytes}: {done}");
            // Up to the length of the first class a file is written again each
            // time: of 500 B nine times before it is that long. Beyond it, once
            // for each class.
            let most = if bytes == 500 { 9 } else { 5 };
            assert!(written <= most * 5_000 * bytes, "{bytes}: {written}");
            assert!(files.iter().all(|bytes| *bytes < 4 * FILE_BYTES));
        }
    }

    #[test]
    fn large_files_are_left_alone() {
        let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let large: Vec<_> = names.iter().map(|name| (name, DONE_BYTES)).collect();
        assert_eq!(to_merge(&large, 100), Vec::<String>::new());
        assert_eq!(to_merge(&large, 2 * DONE_BYTES), Vec::<String>::new());
        let small: Vec<_> = names[..7].iter().map(|name| (name, 100)).collect();
        assert_eq!(to_merge(&small, 100).len(), 7);
        assert_eq!(to_merge(&small[..6], 100).len(), 0);
    }
}
