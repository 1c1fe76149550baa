//! Sends packs, and reads back those that replace damaged ones.

use std::{cmp::Reverse, collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use snap_core::{
    base::{
        blocked::Blocked,
        id::PackId,
        io::PathError,
        observe::{Observer, Phase},
    },
    ops::select::{Gather, SelectedPacks},
    store::{PackStream, Store, StoreError, pack_stream::hash_file},
};
use tokio::{runtime::Handle, task::JoinSet};

use super::{PushRun, choose::uploaded_packs};
use crate::{
    bucket::{FailureReason, ServiceError, UploadProgress},
    peer::{NewStore, OBJECTS, PackToSend, RESENT_BYTES, RemoteError, RemoteStore, SentPack},
    remote_packs::{BlockingContext, RemotePacks},
    transfer::fetch_frames::PackFetcher,
    unlisted_packs::UnlistedPacks,
};

/// Interval at which a push polls the stop flag of the user.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct PackUpload {
    pub(super) id: PackId,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl PackUpload {
    /// Returns true if `arrived` has the pack with the right length.
    pub(super) fn is_in(&self, arrived: &HashMap<PackId, u64>) -> bool {
        arrived.get(&self.id) == Some(&self.bytes)
    }
}

pub(super) fn packs(selection: &SelectedPacks<'_>) -> Result<Vec<PackUpload>, PathError> {
    packs_at(selection.paths())
}

pub(super) fn packs_at(
    paths: impl IntoIterator<Item = (PackId, PathBuf)>,
) -> Result<Vec<PackUpload>, PathError> {
    let pack = |(id, path): (PackId, PathBuf)| {
        let meta = fs_err::metadata(&path).map_err(PathError::when("stat", &path))?;
        Ok(PackUpload { id, path, bytes: meta.len() })
    };
    paths.into_iter().map(pack).collect()
}

/// Lengths from which on a pack is full that replaces a part of a larger one after an interruption.
/// With its last frame, it has up to 4 MiB more. A line that breaks after each 40 MiB passes at least
/// three packs of 8 to 12 MiB in between, so it wastes at most a quarter of what is sent. The second
/// length is for a line on which the first packs do not arrive.
const SMALLER_BYTES: [u64; 2] = [8 << 20, 4 << 20];

/// Maximum number of attempts to send packs that must not be replaced by smaller ones.
const ATTEMPTS: usize = 6;

/// Converts the error of an upload. If the service refused the bytes of the pack, reads the local
/// pack, to distinguish local damage from damage in transit.
async fn upload_error(pack: &PackUpload, error: ServiceError) -> RemoteError {
    if !matches!(error.reason, FailureReason::Damaged | FailureReason::Refused) {
        return error.into();
    }
    let (id, path) = (pack.id, pack.path.clone());
    let read = move || hash_file(&path);
    match tokio::task::spawn_blocking(read).await {
        Ok(Ok(actual)) if actual != id => StoreError::PackHash { pack: id, actual }.into(),
        _ => error.into(),
    }
}

/// The packs that were sent.
#[derive(Debug, Default)]
pub(crate) struct SentPacks {
    /// Number of packs sent.
    pub(crate) packs: u64,
    /// Bytes sent.
    pub(crate) bytes: u64,
    /// Number of packs that had been sent before.
    pub(crate) resumed: u64,
    /// The sent packs that the store keeps without looking at them.
    pub(crate) unchecked: Vec<PackId>,
}

impl SentPacks {
    fn add(&mut self, other: Self) {
        self.packs += other.packs;
        self.bytes += other.bytes;
        self.resumed += other.resumed;
        self.unchecked.extend(other.unchecked);
    }
}

/// A connection broke in the middle of a pack of more than [`RESENT_BYTES`].
pub(super) struct Interruption {
    error: RemoteError,
    /// The packs that were not sent.
    unsent: Vec<PackUpload>,
}

/// Running uploads. Dropping the value cancels them.
pub(super) struct PackUploads {
    tasks: JoinSet<(PackUpload, Result<SentPack, RemoteError>)>,
    progress: Arc<UploadProgress>,
    resumed: u64,
}

impl PackUploads {
    /// Starts to upload the packs that have not arrived. The client limits the concurrency.
    pub(super) fn begin(
        remote: &RemoteStore,
        packs: Vec<PackUpload>,
        arrived: &HashMap<PackId, u64>,
        runtime: &Handle,
    ) -> Self {
        let mut sending = Self { tasks: JoinSet::new(), progress: Arc::default(), resumed: 0 };
        remote.mirror().remember_sending();
        for pack in packs {
            if pack.is_in(arrived) {
                sending.resumed += 1;
                continue;
            }
            let (peer, progress) =
                (Arc::clone(remote.place().peer()), Arc::clone(&sending.progress));
            let send = async move {
                let file = PackToSend { id: pack.id, path: &pack.path, bytes: pack.bytes };
                let sent = match peer.send(file, &progress).await {
                    Ok(sent) => Ok(sent),
                    Err(error) => Err(upload_error(&pack, error).await),
                };
                (pack, sent)
            };
            sending.tasks.spawn_on(send, runtime);
        }
        sending
    }

    /// Waits for all uploads. After an error, stops the other uploads at their next part and waits
    /// for them.
    pub(super) async fn finish(
        mut self,
        observer: &dyn Observer,
    ) -> Result<(SentPacks, Option<Interruption>), RemoteError> {
        let mut sent = SentPacks { resumed: self.resumed, ..SentPacks::default() };
        let (mut reported, mut unsent) = (0, Vec::new());
        let (mut failed, mut interrupted) = (None, None);
        loop {
            let done = tokio::time::timeout(LOOK, self.tasks.join_next()).await;
            let now = self.progress.bytes();
            observer.advance(now - reported, 0);
            reported = now;
            match done {
                Ok(None) => break,
                Ok(Some(done)) => match done.expect("an upload does not panic") {
                    (pack, Ok(checked)) => {
                        sent.packs += 1;
                        sent.bytes += pack.bytes;
                        let is_unchecked = checked == SentPack::Unchecked;
                        sent.unchecked.extend(is_unchecked.then_some(pack.id));
                    }
                    // The other uploads stop because of the first error.
                    (pack, Err(RemoteError::Service(error)))
                        if error.reason == FailureReason::Stopped
                            && (failed.is_some() || interrupted.is_some()) =>
                    {
                        unsent.push(pack);
                    }
                    (pack, Err(RemoteError::Service(error)))
                        if error.interrupted_at.is_some() && pack.bytes > RESENT_BYTES =>
                    {
                        unsent.push(pack);
                        interrupted = interrupted.or(Some(error));
                    }
                    (_, Err(error)) => failed = failed.or(Some(error)),
                },
                Err(_) if observer.cancelled() && failed.is_none() => {
                    failed = Some(RemoteError::Blocked(Blocked::Interrupted));
                }
                Err(_) => {}
            }
            if failed.is_some() || interrupted.is_some() {
                self.progress.stop();
            }
        }
        let interrupted =
            interrupted.map(|error| Interruption { error: RemoteError::Service(error), unsent });
        failed.map_or(Ok((sent, interrupted)), Err)
    }
}

impl PushRun<'_> {
    /// Sends the selected packs, and creates the store first or meanwhile if there is none.
    pub(super) fn send(
        &self,
        remote: &RemoteStore,
        new: Option<&NewStore>,
        selection: &mut SelectedPacks<'_>,
        arrived: &HashMap<PackId, u64>,
    ) -> Result<SentPacks, RemoteError> {
        let packs = packs(selection)?;
        let left = packs.iter().filter(|pack| !pack.is_in(arrived));
        self.observer.phase(Phase::Send, Some(left.map(|pack| pack.bytes).sum()));
        let (now, later) = match remote.mirror().was_interrupted() {
            true => (Vec::new(), packs),
            false => (packs, Vec::new()),
        };
        let send = async {
            PackUploads::begin(remote, now, arrived, self.runtime).finish(self.observer).await
        };
        let sent = self.runtime.block_on(async {
            match new {
                Some(new) => remote.create_with(new, send).await,
                None => send.await,
            }
        });
        let sent = sent.and_then(|(mut sent, interrupted)| {
            let unsent = interrupted.map_or(later, |interruption| interruption.unsent);
            if !unsent.is_empty() {
                self.send_smaller(remote, selection, unsent, &mut sent)?;
            }
            Ok(sent)
        });
        if let Err(RemoteError::Store(error)) = &sent {
            // The local pack does not hash to its name, so mark it as damaged.
            let _ = self.repo.store().shadow_damage(error);
        }
        sent
    }

    /// Sends packs one at a time, large ones as several of about [`SMALLER_BYTES`]. If the connection
    /// breaks, goes on as long as at least one pack has arrived since it broke before.
    fn send_smaller(
        &self,
        remote: &RemoteStore,
        selection: &mut SelectedPacks<'_>,
        mut unsent: Vec<PackUpload>,
        sent: &mut SentPacks,
    ) -> Result<(), RemoteError> {
        let Self { runtime, observer, .. } = *self;
        remote.mirror().remember_interruption();
        // The reply to a whole pack may be lost, and an earlier push may have sent smaller packs.
        let arrived = runtime.block_on(uploaded_packs(remote))?;
        unsent.sort_unstable_by_key(|pack| Reverse(pack.id));
        // The packs, each with the index of the next size in `SMALLER_BYTES`.
        let mut waiting: Vec<_> = unsent.into_iter().map(|pack| (pack, 0)).collect();
        let (mut sizes, mut has_arrived) = (1, true);
        while let Some((pack, next)) = waiting.pop() {
            observer.check()?;
            let mut smaller = SMALLER_BYTES[..sizes].iter().enumerate().skip(next);
            // Splitting in this order gives the same packs in each push. Twice the length has room
            // for the last frame, metadata and the footer.
            let smaller = smaller.find(|(_, size)| pack.bytes > 2 * **size);
            if let Some((at, size)) = smaller.filter(|_| !pack.is_in(&arrived)) {
                let split = |gather: Gather<'_>| selection.split(&pack.id, *size, gather, observer);
                let smaller = packs_at(self.gathering(remote, split)?)?;
                waiting.extend(smaller.into_iter().rev().map(|pack| (pack, at + 1)));
                continue;
            }
            let id = pack.id;
            let sending = PackUploads::begin(remote, vec![pack], &arrived, runtime);
            let (one, interrupted) = runtime.block_on(sending.finish(observer))?;
            sent.add(one);
            match interrupted {
                None => {
                    has_arrived = true;
                    selection.free(&id)?;
                }
                Some(Interruption { error, unsent }) => {
                    if !has_arrived {
                        sizes += 1;
                    }
                    if sizes > SMALLER_BYTES.len() {
                        return Err(error);
                    }
                    has_arrived = false;
                    waiting.extend(unsent.into_iter().map(|pack| (pack, next)));
                }
            }
        }
        Ok(())
    }
}

/// Uploads packs of `store` unchanged, replaces objects of the same names, and publishes the packs.
/// Moves no ref. Returns the number of bytes sent. Blocks; must not be called on a thread of the
/// runtime.
///
/// # Errors
/// [`RemoteError`]; either all packs or none are visible then.
pub fn send_packs(
    remote: &mut RemoteStore,
    store: &Store,
    packs: &[PackId],
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<u64, RemoteError> {
    runtime.block_on(remote.begin())?;
    // Skip damaged index files. Their packs are unknown, so a new file cannot list them.
    runtime.block_on(remote.refresh_around_damage(false))?;
    let sent = upload(remote, store, packs, runtime, observer)?;
    verify_replaced(remote, &sent.unchecked, runtime, observer)?;
    let published = packs.iter().map(|id| (store, *id)).collect();
    runtime.block_on(remote.place().peer().publish(remote.known(), published))?;
    remote.mirror().clear_damage(&sent.unchecked)?;
    Ok(sent.bytes)
}

/// Uploads packs of `store` unchanged. No index file lists them yet.
pub(crate) fn upload(
    remote: &RemoteStore,
    store: &Store,
    packs: &[PackId],
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<SentPacks, RemoteError> {
    let (mut sent, nothing) = (SentPacks::default(), HashMap::new());
    let mut packs = packs_at(packs.iter().map(|id| (*id, store.pack_path(id))))?;
    observer.phase(Phase::Send, Some(packs.iter().map(|pack| pack.bytes).sum()));
    for attempt in 1.. {
        let sending = PackUploads::begin(remote, packs, &nothing, runtime);
        let (some, interrupted) = runtime.block_on(sending.finish(observer))?;
        sent.add(some);
        match interrupted {
            None => break,
            Some(Interruption { error, .. }) if attempt == ATTEMPTS => return Err(error),
            Some(Interruption { unsent, .. }) => packs = unsent,
        }
    }
    Ok(sent)
}

/// Lists packs again that only a damaged index file lists, before the push removes that file.
/// Returns the key of the new file.
pub(super) fn relist(
    remote: &RemoteStore,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<Option<String>, RemoteError> {
    if !remote.has_unknown_damaged_index() {
        return Ok(None);
    }
    let waiting = BlockingContext::without_stop(runtime);
    let unlisted = UnlistedPacks::find(remote, &[], &waiting, observer)?;
    match unlisted.len() {
        0 => Ok(None),
        _ => runtime.block_on(unlisted.list(remote)),
    }
}

/// Reads back sent packs that replace a damaged pack of the same name, and checks their hashes. A
/// service may keep the old pack and report success: an SFTP server without `posix-rename`, a share
/// that refuses to rename over a file, a proxy. The length of the old pack may be right.
///
/// # Errors
/// [`RemoteError::Damaged`] if the old pack still exists; it then stays shadowed.
pub(super) fn verify_replaced(
    remote: &RemoteStore,
    packs: &[PackId],
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<(), RemoteError> {
    let mirror = remote.mirror().store();
    if !packs.iter().any(|id| mirror.is_shadowed(id)) {
        return Ok(());
    }
    let source = RemotePacks::new(remote, BlockingContext::without_stop(runtime));
    for id in packs.iter().filter(|id| mirror.is_shadowed(id)) {
        let pack = mirror.open_pack(id)?;
        let stream = PackStream::of_remote(&pack, &source, observer);
        let mut sink = |bytes: &[u8]| {
            observer.advance(bytes.len() as u64, 0);
            Ok(())
        };
        let read = stream.hash(&pack.objects()?, &|_, _| Ok(()), &mut sink);
        let actual = read.map_err(|error| PackFetcher::of(remote).damaged(error))?;
        if actual.ok_or(Blocked::Interrupted)? != *id {
            let (key, location) = (format!("{OBJECTS}{id}"), remote.place().location().to_owned());
            let why =
                "the service kept the damaged pack, although it reported that it was replaced";
            return Err(RemoteError::Damaged { key, location, why: why.into() });
        }
    }
    Ok(())
}
