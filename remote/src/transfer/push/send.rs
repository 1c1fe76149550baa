//! Sends packs, and reads back those that replace damaged ones.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use snap_core::{
    base::{
        blocked::Blocked,
        id::PackId,
        io::PathError,
        observe::{Observer, Phase},
    },
    ops::select::SelectedPacks,
    store::{PackStream, Store, StoreError, pack_stream::hash_file},
};
use tokio::{runtime::Handle, task::JoinSet};

use super::PushRun;
use crate::{
    bucket::{FailureReason, ServiceError, UploadProgress},
    peer::{NewStore, OBJECTS, PackToSend, RemoteError, RemoteStore, SentPack},
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

/// Converts the error of an upload. If the service refused the bytes of the pack, reads the local
/// pack, to distinguish local damage from damage in transit.
async fn upload_error(pack: PackUpload, error: ServiceError) -> RemoteError {
    if !matches!(error.reason, FailureReason::Damaged | FailureReason::Refused) {
        return error.into();
    }
    let id = pack.id;
    let read = move || hash_file(&pack.path);
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

/// Running uploads. Dropping the value cancels them.
pub(super) struct PackUploads {
    tasks: JoinSet<Result<(PackId, u64, SentPack), RemoteError>>,
    progress: Arc<UploadProgress>,
    total: u64,
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
        let progress = match remote.mirror().may_have_sent() {
            true => UploadProgress::resuming(),
            false => UploadProgress::default(),
        };
        let progress = Arc::new(progress);
        let mut sending = Self { tasks: JoinSet::new(), progress, total: 0, resumed: 0 };
        remote.mirror().remember_sending();
        for pack in packs {
            if pack.is_in(arrived) {
                sending.resumed += 1;
                continue;
            }
            sending.total += pack.bytes;
            let (peer, progress) =
                (Arc::clone(remote.place().peer()), Arc::clone(&sending.progress));
            let send = async move {
                let file = PackToSend { id: pack.id, path: &pack.path, bytes: pack.bytes };
                match peer.send(file, &progress).await {
                    Ok(sent) => Ok((pack.id, pack.bytes, sent)),
                    Err(error) => Err(upload_error(pack, error).await),
                }
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
    ) -> Result<SentPacks, RemoteError> {
        observer.phase(Phase::Send, Some(self.total));
        let mut sent = SentPacks { resumed: self.resumed, ..SentPacks::default() };
        let (mut reported, mut failed) = (0, None);
        loop {
            let done = tokio::time::timeout(LOOK, self.tasks.join_next()).await;
            let now = self.progress.bytes();
            observer.advance(now - reported, 0);
            reported = now;
            match done {
                Ok(None) => break,
                Ok(Some(done)) => match done.expect("an upload does not panic") {
                    Ok((id, bytes, checked)) => {
                        sent.packs += 1;
                        sent.bytes += bytes;
                        sent.unchecked.extend((checked == SentPack::Unchecked).then_some(id));
                    }
                    // The other uploads stop because of the first error.
                    Err(RemoteError::Service(error))
                        if error.reason == FailureReason::Stopped && failed.is_some() => {}
                    Err(error) => failed = failed.or(Some(error)),
                },
                Err(_) if observer.cancelled() && failed.is_none() => {
                    failed = Some(RemoteError::Blocked(Blocked::Interrupted));
                }
                Err(_) => {}
            }
            if failed.is_some() {
                self.progress.stop();
            }
        }
        sent.bytes = sent.bytes.saturating_sub(self.progress.skipped_bytes());
        failed.map_or(Ok(sent), Err)
    }
}

impl PushRun<'_> {
    /// Sends packs, and creates the store first or meanwhile if there is none.
    pub(super) fn send(
        &self,
        remote: &RemoteStore,
        new: Option<&NewStore>,
        packs: Vec<PackUpload>,
        arrived: &HashMap<PackId, u64>,
    ) -> Result<SentPacks, RemoteError> {
        let send = async {
            PackUploads::begin(remote, packs, arrived, self.runtime).finish(self.observer).await
        };
        let sent = self.runtime.block_on(async {
            match new {
                Some(new) => remote.create_with(new, send).await,
                None => send.await,
            }
        });
        if let Err(RemoteError::Store(error)) = &sent {
            // The local pack does not hash to its name, so mark it as damaged.
            let _ = self.repo.store().shadow_damage(error);
        }
        sent
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
    let (paths, nothing) = (packs.iter().map(|id| (*id, store.pack_path(id))), HashMap::new());
    let sending = PackUploads::begin(remote, packs_at(paths)?, &nothing, runtime);
    runtime.block_on(sending.finish(observer))
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
