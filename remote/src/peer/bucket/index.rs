//! The index of a remote store: files with the outlines of packs. Clients read each file once,
//! and pushes merge files as they grow in number.
//!
//! Each push writes one file. If there are seven files of the same size class or smaller, the new
//! file includes them as well. A size class is eight times as large as the one below, so each class
//! has at most seven files. A push does not merge a file of 1 MiB or more, and does not write one
//! much larger than `FILE_BYTES`. So the index of any practical store fits one page of a listing. A
//! client reads the same outlines again at most once for each class above the first. Within the
//! first class, below 32 KiB, it reads them again with each merge.
//!
//! If all packs of a file are in a larger one as well, a client that *lists* both removes the
//! smaller one with its next push. So a client has seen a merged file before it removes anything.
//! Two concurrent merges lose nothing: a client removes a file only if a listing has a strict
//! superset, which in turn goes only for a still larger file. So one file always lists the packs of
//! a removed one. Names are hashes of the contents, and the packs in a file are sorted, so a set of
//! packs has one name.
//!
//! The packs of one push become visible all at once, because any pack may refer to any other. If
//! their outlines are too long for one file, the push writes several *parts*, which count once the
//! file of their *group* exists. No push merges groups and parts.
//!
//! After a garbage collection, an index file counts only if it has the epoch that the client knows, or
//! if the table names it. A push merges only files that count, and leaves out packs that are going.
//! It removes a file only if the larger one counts and is not of an earlier epoch: a collector may be
//! about to replace the larger file by the smaller one.
//!
//! The cost: a push that merges writes up to eight times as many bytes of outlines (about 50 B
//! for each object). The next push makes one more request, which removes many files at once if
//! the service can do that.

use std::collections::BTreeMap;

use snap_core::{
    base::id::PackId,
    format::outline::{self, Name, PackOutline},
};

use super::BucketStore;
use crate::peer::{INDEX, PackIn, RemoteError, gc_view::IndexedFile, known::Known};

/// Number of files of a class, including the new one, that a push merges into one.
pub(crate) const FAN: usize = 8;

/// Files below this length are in the first class.
const FIRST_CLASS_BYTES: u64 = 32 << 10;

/// Minimum length of a file that no push merges any more.
pub(crate) const DONE_BYTES: u64 = 1 << 20;

/// Approximate limit of a file, unless the outline of a single pack is longer.
pub(crate) const FILE_BYTES: u64 = 4 << 20;

/// Suffix of the names of parts of a group.
pub(crate) const PART: &str = ".part";

/// Suffix of the names of group files.
pub(crate) const GROUP: &str = ".group";

/// Number of parts to write concurrently. Each is in memory.
const PARTS_AT_ONCE: usize = 4;

/// Index files to write. Several files form a group.
#[derive(Debug, Default)]
pub(super) struct IndexUpdate<'a> {
    epoch: u64,
    files: Vec<Vec<PackIn<'a>>>,
}

/// The index of a bucket, and what this process knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketIndex<'a> {
    pub(super) store: &'a BucketStore,
    pub(super) known: &'a Known,
}

impl<'a> BucketIndex<'a> {
    /// Publishes sent packs. Returns the name of the index file or group; `None` without packs.
    ///
    /// # Errors
    /// [`RemoteError`]; either all packs or none are visible then.
    pub(super) async fn publish(
        self,
        packs: Vec<PackIn<'_>>,
    ) -> Result<Option<String>, RemoteError> {
        self.write_update(self.update(packs)?).await
    }

    /// Returns the index files that make packs part of the store: their outlines, merged with the
    /// outlines of small files.
    fn update(self, new: Vec<PackIn<'a>>) -> Result<IndexUpdate<'a>, RemoteError> {
        let (mut files, bytes) = split(new, self.known.index_file_bytes)?;
        if let [only] = &mut files[..] {
            let known = self.known.mirror.outlines();
            let small: Vec<(&String, u64)> = self
                .known
                .listed
                .iter()
                .filter(|(name, _)| known.contains_key(*name) && !name.ends_with(GROUP))
                .filter(|(name, _)| self.known.mirror.counts(name))
                .map(|(name, bytes)| (name, *bytes))
                .collect();
            // Do not merge a file with an outline that is damaged in the mirror.
            let store = self.known.mirror.store();
            let is_readable =
                |id: &&PackId| store.outline(id).is_ok_and(|outline| outline.tables().is_ok());
            let gc = self.known.mirror.gc();
            let stays = |id: &&PackId| !gc.as_ref().is_some_and(|gc| gc.table.going.contains(id));
            for name in to_merge(&small, bytes) {
                let packs = || known[&name].iter().filter(stays);
                if packs().all(|id| is_readable(&id)) {
                    only.extend(packs().map(|id| (store, *id)));
                }
            }
            tidy(only);
        }
        Ok(IndexUpdate { epoch: self.known.mirror.epoch(), files })
    }

    /// Returns the files to write in place of an index file that listed these packs. They keep the
    /// epoch of the file, so they count only if it did by its epoch.
    pub(super) fn update_again(
        self,
        mut packs: Vec<PackIn<'a>>,
        name: &str,
        epoch: u64,
    ) -> Result<IndexUpdate<'a>, RemoteError> {
        if name.ends_with(GROUP) {
            return Ok(IndexUpdate { epoch, files: split(packs, self.known.index_file_bytes)?.0 });
        }
        // Write a single file, so that its hash and thus its name are the same again.
        tidy(&mut packs);
        Ok(IndexUpdate { epoch, files: vec![packs] })
    }

    /// Writes the files, which publishes their packs. Returns the name of the file or group; `None`
    /// without files.
    ///
    /// # Errors
    /// [`RemoteError`]; either all packs or none are visible then.
    pub(super) async fn write_update(
        self,
        publication: IndexUpdate<'_>,
    ) -> Result<Option<String>, RemoteError> {
        let written = self.write_files(&publication).await?;
        self.known.mirror.forget_sending();
        Ok(written)
    }

    async fn write_files(
        self,
        publication: &IndexUpdate<'_>,
    ) -> Result<Option<String>, RemoteError> {
        let epoch = publication.epoch;
        Ok(match &publication.files[..] {
            [] => None,
            [only] => {
                let outlines = outlines(only)?;
                let name = self.write_file(outline::encode(epoch, &outlines), "").await?;
                self.known.mirror.add(&name, epoch, [Ok::<_, RemoteError>(outlines)])?;
                Some(name)
            }
            parts => {
                let mut names = Vec::with_capacity(parts.len());
                for some in parts.chunks(PARTS_AT_ONCE) {
                    let write = async |part: &Vec<PackIn<'_>>| {
                        self.write_file(outline::encode(epoch, &outlines(part)?), PART).await
                    };
                    let written = futures::future::join_all(some.iter().map(write)).await;
                    for name in written {
                        let name = name?;
                        names.extend(name.trim_end_matches(PART).parse::<Name>());
                    }
                }
                let name = self.write_file(outline::encode_group(epoch, &names), GROUP).await?;
                self.known.mirror.add(&name, epoch, parts.iter().map(|part| outlines(part)))?;
                Some(name)
            }
        })
    }

    /// Writes index files with these packs under the epoch that this client knows. Returns their
    /// names. They count one by one, so nothing in a pack may need a pack that does not count yet.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(crate) async fn write_merged(
        self,
        packs: Vec<PackIn<'_>>,
    ) -> Result<Vec<String>, RemoteError> {
        let (mut files, _) = split(packs, self.known.index_file_bytes)?;
        if files.is_empty() {
            files.push(Vec::new());
        }
        let mut names = Vec::with_capacity(files.len());
        for file in files {
            let update = IndexUpdate { epoch: self.known.mirror.epoch(), files: vec![file] };
            names.extend(self.write_files(&update).await?);
        }
        Ok(names)
    }

    /// Removes listed index files that neither the garbage collection names nor have its epoch.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn remove_old(self) -> Result<(), RemoteError> {
        let epoch = self.known.mirror.epoch();
        let old = self.known.listed_files().into_iter();
        let old = old.filter(|(name, file)| file.epoch < epoch && !self.known.mirror.counts(name));
        let names: Vec<String> = old.map(|(name, _)| name).collect();
        let keys: Vec<String> = names.iter().map(|name| format!("{INDEX}{name}")).collect();
        self.store.remove_all(&keys).await?;
        Ok(self.known.mirror.forget(&names)?)
    }

    /// Writes an index file and returns its name.
    async fn write_file(self, bytes: Vec<u8>, ending: &str) -> Result<String, RemoteError> {
        let name = format!("{}{ending}", name_of(&bytes));
        self.store.client.put(&format!("{INDEX}{name}"), bytes).await?;
        Ok(name)
    }

    /// Returns the keys of files whose packs are all in a larger listed file.
    fn superfluous(self) -> Vec<String> {
        if self.known.lists_newer_epoch() {
            return Vec::new();
        }
        let listed = self.known.listed_files();
        let mut by_pack: BTreeMap<PackId, Vec<&IndexedFile>> = BTreeMap::new();
        for (_, file) in listed.iter().filter(|(name, _)| self.known.mirror.counts(name)) {
            file.packs.iter().for_each(|id| by_pack.entry(*id).or_default().push(file));
        }
        let is_in_another = |file: &IndexedFile| {
            let first = file.packs.first().and_then(|id| by_pack.get(id));
            let mut others = first.into_iter().flatten();
            others.any(|other| {
                other.epoch >= file.epoch
                    && other.packs.len() > file.packs.len()
                    && file.packs.is_subset(&other.packs)
            })
        };
        // Keep a group: without its file, its parts would remain as garbage.
        let small =
            listed.iter().filter(|(name, file)| !name.ends_with(GROUP) && is_in_another(file));
        small.map(|(name, _)| format!("{INDEX}{name}")).collect()
    }

    pub(super) async fn remove_superfluous(self) -> Result<(), RemoteError> {
        let keys = self.superfluous();
        if keys.is_empty() {
            return Ok(());
        }
        // A collector that has begun an epoch meanwhile may count on the smaller files. Before the
        // first collection, a removal too many costs only that clients send some packs again.
        if self.known.mirror.gc().is_some()
            && self.store.epoch(self.known).check_present_epoch().await.is_err()
        {
            return Ok(());
        }
        self.store.client.delete(&keys).await?;
        let names: Vec<String> =
            keys.iter().filter_map(|key| key.strip_prefix(INDEX)).map(str::to_owned).collect();
        Ok(self.known.mirror.forget(&names)?)
    }
}

pub(crate) fn name_of(bytes: &[u8]) -> String {
    PackId::from_bytes(*blake3::hash(bytes).as_bytes()).to_string()
}

/// Sorts packs and removes duplicates.
fn tidy(packs: &mut Vec<PackIn<'_>>) {
    packs.sort_unstable_by_key(|(_, id)| *id);
    packs.dedup_by_key(|(_, id)| *id);
}

/// Returns the length of the index file that lists these packs.
pub(crate) fn file_bytes(epoch: u64, packs: &[PackIn<'_>]) -> Result<u64, RemoteError> {
    Ok(outline::encode(epoch, &outlines(packs)?).len() as u64)
}

pub(crate) fn outlines(packs: &[PackIn<'_>]) -> Result<Vec<PackOutline>, RemoteError> {
    Ok(packs.iter().map(|(store, id)| store.outline(id)).collect::<Result<_, _>>()?)
}

/// Splits the packs of one push into index files not much longer than `most`. Also returns the
/// length of the last file.
pub(crate) fn split(
    mut packs: Vec<PackIn<'_>>,
    most: u64,
) -> Result<(Vec<Vec<PackIn<'_>>>, u64), RemoteError> {
    tidy(&mut packs);
    let mut files: Vec<Vec<PackIn<'_>>> = Vec::new();
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

/// Returns the files that a new file of `bytes` should include.
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

    /// Returns the lengths of the files after pushes of these lengths, and the bytes written.
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
    fn merging_keeps_index_files_few_at_little_rewriting() {
        for bytes in [500, 5_000, 40_000, 300_000] {
            let (files, written) = after(std::iter::repeat_n(bytes, 5_000));
            let done = files.iter().filter(|bytes| **bytes >= DONE_BYTES).count();
            assert!(files.len() - done <= 3 * FAN, "{bytes}: {}", files.len());
            assert!(done as u64 <= 5_000 * bytes / DONE_BYTES, "{bytes}: {done}");
            // Within the first class, each merge rewrites a file: files of 500 B nine times. Above
            // it, one merge for each class does.
            let most = if bytes == 500 { 9 } else { 5 };
            assert!(written <= most * 5_000 * bytes, "{bytes}: {written}");
            assert!(files.iter().all(|bytes| *bytes < 4 * FILE_BYTES));
        }
    }

    #[test]
    fn large_index_files_are_not_merged() {
        let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let large: Vec<_> = names.iter().map(|name| (name, DONE_BYTES)).collect();
        assert_eq!(to_merge(&large, 100), Vec::<String>::new());
        assert_eq!(to_merge(&large, 2 * DONE_BYTES), Vec::<String>::new());
        let small: Vec<_> = names[..7].iter().map(|name| (name, 100)).collect();
        assert_eq!(to_merge(&small, 100).len(), 7);
        assert_eq!(to_merge(&small[..6], 100).len(), 0);
    }
}
