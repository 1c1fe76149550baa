//! Reading the index elsewhere: what is new in it, once.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use snap_core::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        limits,
    },
    disk::scratch::Scratch,
    format::{
        outline::{self, Name},
        wire::FormatError,
    },
};

use super::{GROUP, PART, file_bytes, name_of};
use crate::{
    service::{Listed, ServiceError, What},
    store::{INDEX, RemoteError, RemoteStore},
};

/// How often a listing is made anew when a file in it is gone.
const LISTINGS: u32 = 5;

/// The first pause before that; it doubles.
const PAUSE: Duration = Duration::from_millis(100);

/// Objects that are remembered of each pack that no file tells of any more.
const UNTOLD_OBJECTS: usize = 100;

/// Files that are read at once, each of which is held in memory.
const FILES_AT_ONCE: usize = 12;

impl RemoteStore {
    /// Reads what is new in its index.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] when an outline is not what its name says,
    /// [`RemoteError::Vanished`] when one is listed again and again and not
    /// there; [`RemoteError::Emptied`] for one that is [kept](Self::kept).
    pub async fn refresh(&mut self) -> Result<(), RemoteError> {
        let listed = self.client.list(INDEX).await?;
        self.take_in_listed(listed).await
    }

    /// The same, which passes over files of the index that are damaged or cannot
    /// be found, and returns an error for each. With `all`, files that are known
    /// are read again as well.
    ///
    /// # Errors
    /// As [`RemoteStore::refresh`].
    pub(crate) async fn refresh_around_damage(
        &mut self,
        all: bool,
    ) -> Result<Vec<RemoteError>, RemoteError> {
        self.damaged_index = Some(BTreeMap::new());
        let refreshed = self.refresh().await;
        let mut damaged = self.damaged_index.take().unwrap_or_default();
        let mut vanished = None;
        match refreshed {
            Err(error @ RemoteError::Vanished { .. }) => vanished = Some(error),
            other => other?,
        }
        self.check_known(all, &mut damaged).await?;
        let names: Vec<String> = damaged.keys().cloned().collect();
        self.mirror.note_damaged_index(&names)?;
        Ok(vanished.into_iter().chain(damaged.into_values()).collect())
    }

    /// Checks files of the index that are known here: with `all` each byte, else their lengths.
    async fn check_known(
        &self,
        all: bool,
        damaged: &mut BTreeMap<String, RemoteError>,
    ) -> Result<(), RemoteError> {
        let outlines = self.mirror.outlines();
        let mut to_read = Vec::new();
        for (name, bytes) in &self.listed {
            let Some(packs) = outlines.get(name) else { continue };
            if all {
                to_read.push((name.clone(), limits::REMOTE_INDEX_BYTES));
                continue;
            }
            if name.ends_with(GROUP) {
                continue;
            }
            let told: Vec<_> = packs.iter().map(|id| (self.mirror.store(), *id)).collect();
            let expected = file_bytes(&told)?;
            // Not every listing says how long things are.
            let found = match bytes {
                0 => self.client.length(&format!("{INDEX}{name}")).await?.unwrap_or(expected),
                bytes => *bytes,
            };
            if found != expected {
                let (key, location) = (format!("{INDEX}{name}"), self.location.clone());
                let why = format!("it has {found} B, not {expected}");
                damaged.insert(name.clone(), RemoteError::Damaged { key, location, why });
            }
        }
        let mut files = self.files(to_read);
        while let Some((name, read)) = files.next().await {
            let error = match read {
                Ok(bytes) => self.check(&name, &bytes, |_| Ok(())).err(),
                Err(error) if matches!(error.what, What::NotFound | What::TooLong) => {
                    Some(error.into())
                }
                Err(error) => return Err(error.into()),
            };
            damaged.extend(error.map(|error| (name, error)));
        }
        Ok(())
    }

    /// Passes over a file of the index that is damaged, where that is wanted.
    fn pass_over<T>(
        &mut self,
        name: &str,
        result: Result<T, RemoteError>,
    ) -> Result<Option<T>, RemoteError> {
        match (result, &mut self.damaged_index) {
            (Err(error @ RemoteError::Damaged { .. }), Some(damaged)) => {
                // The listing may be made anew, and the file be read again.
                damaged.entry(name.to_owned()).or_insert(error);
                Ok(None)
            }
            (result, _) => result.map(Some),
        }
    }

    /// Reads what is new in a listing.
    pub(crate) async fn take_in_listed(&mut self, listed: Vec<Listed>) -> Result<(), RemoteError> {
        let (mut listed, mut pause) = (names(listed), PAUSE);
        let mut untold = Vec::new();
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
                if self.is_kept {
                    self.must_be_there().await?;
                }
                untold.extend(self.untold_objects(&listed)?);
                // A store that is gone may be on a disk that is not mounted now.
                let was_seen = self.mirror.was_seen();
                self.mirror.reset()?;
                if was_seen {
                    self.mirror.remember_seen();
                }
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
            if self.lacks_any(&untold)? {
                // A file of the index is lost, and what it told of with it.
                self.mirror.remember_damage();
            }
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

    /// Some objects of each pack that is known here and told of by no file that is
    /// listed.
    fn untold_objects(&self, listed: &BTreeMap<String, u64>) -> Result<Vec<ObjectId>, RemoteError> {
        let known = self.mirror.outlines();
        let (here, gone): (Vec<_>, Vec<_>) =
            known.iter().partition(|(name, _)| listed.contains_key(*name));
        let told: BTreeSet<&PackId> = here.into_iter().flat_map(|(_, packs)| packs).collect();
        let gone: BTreeSet<&PackId> = gone.into_iter().flat_map(|(_, packs)| packs).collect();
        let mut objects = Vec::new();
        for id in gone.difference(&told) {
            let pack = self.mirror.store().open_pack(id)?;
            objects.extend(pack.objects()?.iter().take(UNTOLD_OBJECTS).map(|object| object.id));
        }
        Ok(objects)
    }

    fn lacks_any(&self, objects: &[ObjectId]) -> Result<bool, RemoteError> {
        for id in objects {
            if !self.mirror.has(id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the files that are not known; names one that is not there.
    async fn read_new(
        &mut self,
        listed: &BTreeMap<String, u64>,
    ) -> Result<Option<String>, RemoteError> {
        let mut new = Vec::new();
        for (name, bytes) in listed {
            if self.mirror.knows(name) || self.passed_over.contains(name) {
                continue;
            }
            if *bytes > limits::REMOTE_INDEX_BYTES {
                let (key, location) = (format!("{INDEX}{name}"), self.location.clone());
                let why = format!("it cannot be as long as {bytes} B");
                self.pass_over::<()>(name, Err(RemoteError::Damaged { key, location, why }))?;
                continue;
            }
            // Not every listing says how long things are.
            let most = if *bytes > 0 { *bytes } else { limits::REMOTE_INDEX_BYTES };
            new.push((name.clone(), most));
        }
        let mut files = self.files(new);
        let mut gone = None;
        while let Some((name, read)) = files.next().await {
            match read {
                Ok(bytes) if name.ends_with(GROUP) => {
                    let taken = self.take_in_group(&name, &bytes).await;
                    gone = self.pass_over(&name, taken)?.flatten().or(gone);
                }
                Ok(bytes) => {
                    let outlines = self.check(&name, &bytes, outline::decode);
                    let Some(outlines) = self.pass_over(&name, outlines)? else { continue };
                    self.mirror.add(&name, [Ok::<_, RemoteError>(outlines)])?;
                }
                Err(error) if error.what == What::NotFound => gone = Some(name),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(gone)
    }

    /// Reads files of the index that may be so long, several at a time, in
    /// whatever order.
    fn files(
        &self,
        names: Vec<(String, u64)>,
    ) -> impl Stream<Item = (String, Result<Bytes, ServiceError>)> + use<> {
        let client = self.client.clone();
        let reads = stream::iter(names).map(move |(name, most)| {
            let client = client.clone();
            // While one is taken in, others come.
            let read = tokio::spawn(async move {
                let read = client.read_whole(&format!("{INDEX}{name}"), most).await;
                (name, read.map(|object| object.bytes))
            });
            async move { read.await.expect("reading does not panic") }
        });
        reads.buffer_unordered(FILES_AT_ONCE)
    }

    /// Reads the parts of a group, which count together only: they wait in
    /// files until all are here. Names one that is not there.
    async fn take_in_group(
        &self,
        group: &str,
        bytes: &[u8],
    ) -> Result<Option<String>, RemoteError> {
        let parts = self.check(group, bytes, outline::decode_group)?;
        let scratch = Scratch::create(&self.mirror.store().dir().join("tmp"))?;
        let path = |name: &Name| -> PathBuf { scratch.path().join(name.to_string()) };
        let names = parts.iter().map(|name| (format!("{name}{PART}"), limits::REMOTE_INDEX_BYTES));
        let mut files = self.files(names.collect());
        while let Some((name, read)) = files.next().await {
            match read {
                Ok(bytes) => {
                    // Checked when it is taken in.
                    let path = scratch.path().join(name.trim_end_matches(PART));
                    fs_err::write(&path, &bytes).map_err(PathError::when("write", &path))?;
                }
                Err(error) if error.what == What::NotFound => return Ok(Some(name)),
                Err(error) => return Err(error.into()),
            }
        }
        let outlines = parts.iter().map(|name| {
            let path = path(name);
            let bytes = fs_err::read(&path).map_err(PathError::when("read", &path))?;
            self.check(&format!("{name}{PART}"), &bytes, outline::decode)
        });
        self.mirror.add(group, outlines)?;
        Ok(None)
    }

    /// What a file of the index says, which must have the name of its bytes.
    pub(in crate::store) fn check<T>(
        &self,
        name: &str,
        bytes: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, RemoteError> {
        let damaged = |why: String| RemoteError::Damaged {
            key: format!("{INDEX}{name}"),
            location: self.location.clone(),
            why,
        };
        if name_of(bytes) != name.split('.').next().unwrap_or_default() {
            return Err(damaged("its bytes do not hash to its name".to_owned()));
        }
        decode(bytes).map_err(|error| match error {
            FormatError::Newer { .. } => RemoteError::Newer {
                key: format!("{INDEX}{name}"),
                location: self.location.clone(),
            },
            error => damaged(error.to_string()),
        })
    }
}

/// Names and lengths of what was listed, without what is no file of outlines
/// and no group of them.
fn names(listed: Vec<Listed>) -> BTreeMap<String, u64> {
    let named = listed.into_iter().filter_map(|object| {
        let name = object.key.strip_prefix(INDEX)?;
        name.strip_suffix(GROUP).unwrap_or(name).parse::<Name>().ok()?;
        Some((name.to_owned(), object.bytes))
    });
    named.collect()
}
