//! Uploads of packs.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use snap_core::{
    base::{
        blocked::Blocked,
        id::PackId,
        io::PathError,
        observe::{Observer, Phase},
    },
    ops::select::SelectedPacks,
    store::{StoreError, pack_stream::hash_file},
};
use tokio::{runtime::Handle, task::JoinSet};

use super::first_requests::UnpublishedPacks;
use crate::{
    service::{FailureReason, ServiceError, UploadProgress},
    store::{OBJECTS, RemoteError, RemoteStore},
};

/// Interval at which a push polls the stop flag of the user.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct PackUpload {
    pub(super) id: PackId,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl PackUpload {
    pub(super) fn key(&self) -> String {
        format!("{OBJECTS}{}", self.id)
    }

    /// Returns true if `arrived` has the pack with the right length.
    pub(super) fn is_in(&self, arrived: &HashMap<String, u64>) -> bool {
        arrived.get(&self.id.to_string()) == Some(&self.bytes)
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

/// Running uploads. Dropping the value cancels them.
pub(super) struct PackUploads {
    tasks: JoinSet<Result<u64, RemoteError>>,
    progress: Arc<UploadProgress>,
    total: u64,
    /// Number of packs that had been uploaded before.
    pub(super) resumed: u64,
}

impl PackUploads {
    /// Starts to upload the packs that have not arrived. The client limits the concurrency.
    pub(super) fn begin(
        remote: &RemoteStore,
        packs: Vec<PackUpload>,
        arrived: &HashMap<String, u64>,
        runtime: &Handle,
    ) -> Self {
        let progress = match UnpublishedPacks::of(remote.mirror()) {
            UnpublishedPacks::Maybe => UploadProgress::resuming(),
            UnpublishedPacks::None => UploadProgress::default(),
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
            let (client, progress) = (remote.client().clone(), Arc::clone(&sending.progress));
            let send = async move {
                match client.write_file(&pack.key(), &pack.path, pack.bytes, &progress).await {
                    Ok(()) => Ok(pack.bytes),
                    Err(error) => Err(upload_error(pack, error).await),
                }
            };
            sending.tasks.spawn_on(send, runtime);
        }
        sending
    }

    /// Waits for all uploads. Returns the number of packs and of bytes sent. After an error, stops
    /// the other uploads at their next part and waits for them.
    pub(super) async fn finish(
        mut self,
        observer: &dyn Observer,
    ) -> Result<(u64, u64), RemoteError> {
        observer.phase(Phase::Send, Some(self.total));
        let (mut packs, mut bytes, mut reported) = (0, 0, 0);
        let mut failed = None;
        loop {
            let done = tokio::time::timeout(LOOK, self.tasks.join_next()).await;
            let now = self.progress.bytes();
            observer.advance(now - reported, 0);
            reported = now;
            match done {
                Ok(None) => break,
                Ok(Some(done)) => match done.expect("an upload does not panic") {
                    Ok(sent) => (packs, bytes) = (packs + 1, bytes + sent),
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
        failed.map_or(Ok((packs, bytes.saturating_sub(self.progress.skipped_bytes()))), Err)
    }
}
