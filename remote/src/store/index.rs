//! The index elsewhere: files of outlines, read once, and merged as they grow
//! in number.
//!
//! Each push writes one file. Where seven that are no larger than it are
//! there, the file that it writes holds theirs, too: so of each class of sizes,
//! eight times as large as the one below, there are at most seven. A file of a
//! MiB or more is left alone, and no push writes one much larger than
//! `FILE_BYTES`. That is one page of a listing for a store of any size, and
//! what a client has read it reads again at most once for each class.
//!
//! What a file of which all is in a larger one holds is known twice: whoever
//! *lists* both removes the smaller one, with their next push. A merged file is
//! thus seen by somebody before anything goes. Two who merge at once lose
//! nothing: a file goes only while a strictly larger set that contains it was
//! listed, which itself goes only for a larger one still, so there is always
//! one that holds what any of them held. Names are hashes of the contents, and
//! packs in a file are sorted, so the same set has one name.
//!
//! What it costs: a push that merges writes up to eight times as many bytes of
//! outlines (about 50 B for each object there is in them), and the push after
//! it makes one more request, which removes many files at once where the
//! service can do that.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use snap_core::{
    base::id::PackId,
    format::outline::{self, Outline},
};

use super::{INDEX, RemoteError, RemoteStore};
use crate::service::{Listed, What, When};

/// Files of a class, the new one included, that become one.
const FAN: usize = 8;

/// Files below this are of the first class.
const FIRST_CLASS_BYTES: u64 = 32 << 10;

/// Files of so many bytes are not merged any more.
const DONE_BYTES: u64 = 1 << 20;

/// About so many bytes are in a file at most, unless one pack's are more.
const FILE_BYTES: u64 = 4 << 20;

/// How often a listing is made anew when a file in it is gone.
const LISTINGS: u32 = 5;

/// The first pause before that; it doubles.
const PAUSE: Duration = Duration::from_millis(100);

/// Files to be written, and what they make superfluous.
#[derive(Debug, Default)]
pub(crate) struct Publication {
    /// Name, bytes and outlines of each.
    pub(crate) files: Vec<(String, Vec<u8>, Vec<Outline>)>,
}

impl RemoteStore {
    /// Reads what is new in its index.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] when an outline is not what its name says,
    /// [`RemoteError::Vanished`] when one is listed again and again and not
    /// there.
    pub async fn refresh(&mut self) -> Result<(), RemoteError> {
        let listed = self.client.list(INDEX).await?;
        self.take_in_listed(listed).await
    }

    /// Reads what is new in a listing.
    pub(crate) async fn take_in_listed(&mut self, listed: Vec<Listed>) -> Result<(), RemoteError> {
        let (mut listed, mut pause) = (names(listed), PAUSE);
        for number in 1.. {
            let gone = self.read_new(&listed).await?;
            if gone.is_none() && self.are_covered(&listed).await? {
                break;
            }
            if number >= LISTINGS {
                let key = format!("{INDEX}{}", gone.unwrap_or_default());
                return Err(RemoteError::Vanished { key, location: self.location.clone() });
            }
            if gone.is_none() {
                self.mirror.reset()?;
                continue;
            }
            // Merged into another one since it was listed.
            if number > 1 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            listed = names(self.client.list(INDEX).await?);
        }
        if !listed.is_empty() {
            self.mirror.remember_seen();
        }
        let known = self.mirror.outlines();
        let gone: Vec<String> =
            known.keys().filter(|name| !listed.contains_key(*name)).cloned().collect();
        self.mirror.forget(&gone)?;
        self.listed = listed;
        Ok(())
    }

    /// Files of its index when it was last listed.
    pub(crate) fn index_files(&self) -> usize {
        self.listed.len()
    }

    /// Whether all packs that are known here are told of there. Where that is
    /// not so, somebody has emptied the place.
    async fn are_covered(&self, listed: &BTreeMap<String, u64>) -> Result<bool, RemoteError> {
        let known = self.mirror.outlines();
        let (here, gone): (Vec<_>, Vec<_>) =
            known.iter().partition(|(name, _)| listed.contains_key(*name));
        let mut covered: BTreeSet<PackId> =
            here.into_iter().flat_map(|(_, packs)| packs).copied().collect();
        for (name, packs) in gone {
            // What was merged away is told of by another file.
            if packs.is_subset(&covered) {
                continue;
            }
            // A listing may be an old one.
            if self.client.length(&format!("{INDEX}{name}")).await?.is_none() {
                return Ok(false);
            }
            covered.extend(packs);
        }
        Ok(true)
    }

    /// Reads files that are not known; names one that is not there.
    async fn read_new(
        &mut self,
        listed: &BTreeMap<String, u64>,
    ) -> Result<Option<String>, RemoteError> {
        let new: Vec<&String> = listed.keys().filter(|name| !self.mirror.knows(name)).collect();
        let reads = new.into_iter().map(|name| {
            let (client, name) = (self.client.clone(), name.clone());
            let read = tokio::spawn(async move {
                let read = client.read(&format!("{INDEX}{name}"), None).await;
                (name, read)
            });
            async move { read.await.expect("reading does not panic") }
        });
        let mut gone = None;
        for (name, read) in futures::future::join_all(reads).await {
            match read {
                Ok(object) => self.take_in(&name, &object.bytes)?,
                Err(error) if error.what == What::NotFound => gone = Some(name),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(gone)
    }

    fn take_in(&mut self, name: &str, bytes: &[u8]) -> Result<(), RemoteError> {
        let damaged = |why: String| RemoteError::Damaged {
            key: format!("{INDEX}{name}"),
            location: self.location.clone(),
            why,
        };
        if name_of(bytes) != name {
            return Err(damaged("its bytes do not hash to its name".to_owned()));
        }
        let outlines = outline::decode(bytes).map_err(|error| damaged(error.to_string()))?;
        self.mirror.add(name, &outlines)?;
        Ok(())
    }

    /// What is to be written so that packs become part of the store: their
    /// outlines, and those of small files that are merged with them.
    pub(crate) fn publication(&self, new: Vec<Outline>) -> Result<Publication, RemoteError> {
        let mut files = split(new);
        let known = self.mirror.outlines();
        if let Some(last) = files.last_mut() {
            let small: Vec<(&String, u64)> = self
                .listed
                .iter()
                .filter(|(name, _)| known.contains_key(*name))
                .map(|(name, bytes)| (name, *bytes))
                .collect();
            for name in to_merge(&small, outline::encode(last).len() as u64) {
                for id in &known[&name] {
                    last.push(self.mirror.store().outline(id)?);
                }
            }
            tidy(last);
        }
        let file = |outlines: Vec<Outline>| {
            let bytes = outline::encode(&outlines);
            (name_of(&bytes), bytes, outlines)
        };
        Ok(Publication { files: files.into_iter().map(file).collect() })
    }

    /// Makes packs part of the store that were uploaded before.
    ///
    /// # Errors
    /// [`RemoteError`]; some may then be part of it.
    pub async fn publish(&mut self, outlines: &[Outline]) -> Result<(), RemoteError> {
        let publication = self.publication(outlines.to_vec())?;
        self.write_publication(publication).await
    }

    pub(crate) async fn write_publication(
        &mut self,
        Publication { files }: Publication,
    ) -> Result<(), RemoteError> {
        let writes = files.into_iter().map(|(name, bytes, outlines)| {
            let client = self.client.clone();
            async move {
                let key = format!("{INDEX}{name}");
                client.write(&key, bytes.into(), When::Always).await.map(|_| (name, outlines))
            }
        });
        for written in futures::future::join_all(writes).await {
            let (name, outlines) = written?;
            self.mirror.add(&name, &outlines)?;
        }
        self.mirror.forget_sending();
        Ok(())
    }

    /// Keys of files of which a larger one, listed with them, holds all.
    pub(crate) fn superfluous(&self) -> Vec<String> {
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
        let small = listed.iter().filter(|(_, packs)| is_in_another(packs));
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

/// Names and lengths of what was listed, without what is no file of outlines.
fn names(listed: Vec<Listed>) -> BTreeMap<String, u64> {
    let named = listed.into_iter().filter_map(|object| {
        let name = object.key.strip_prefix(INDEX)?;
        name.parse::<PackId>().ok()?;
        Some((name.to_owned(), object.bytes))
    });
    named.collect()
}

fn name_of(bytes: &[u8]) -> String {
    PackId::from_bytes(*blake3::hash(bytes).as_bytes()).to_string()
}

/// Outlines sorted, each once.
fn tidy(outlines: &mut Vec<Outline>) {
    outlines.sort_unstable_by_key(|outline| outline.id);
    outlines.dedup_by_key(|outline| outline.id);
}

/// Outlines of one push, in files that are not too large; the smallest last.
fn split(mut outlines: Vec<Outline>) -> Vec<Vec<Outline>> {
    tidy(&mut outlines);
    let mut files: Vec<(u64, Vec<Outline>)> = Vec::new();
    for outline in outlines {
        let bytes = (outline.head.len() + outline.tail.len()) as u64;
        match files.last_mut() {
            Some((total, file)) if *total + bytes <= FILE_BYTES => {
                *total += bytes;
                file.push(outline);
            }
            _ => files.push((bytes, vec![outline])),
        }
    }
    files.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    files.into_iter().map(|(_, file)| file).collect()
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
            // time; beyond it, once for each class.
            assert!(written <= 9 * 5_000 * bytes, "{bytes}: {written}");
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
