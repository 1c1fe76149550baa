//! Packs on their way up.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use snap_core::{
    base::{
        id::PackId,
        io::PathError,
        observe::{Observer, Phase},
    },
    ops::{select::Selection, staged},
    store::StoreError,
};
use tokio::{runtime::Handle, task::JoinSet};

use super::ask::Leftovers;
use crate::{
    service::{Progress, ServiceError, What},
    store::{OBJECTS, RemoteError, RemoteStore},
};

/// How often it is looked whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(50);

/// A pack that is to go.
pub(super) struct Pack {
    pub(super) id: PackId,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl Pack {
    pub(super) fn key(&self) -> String {
        format!("{OBJECTS}{}", self.id)
    }

    /// Whether it is there, as far as that was asked.
    pub(super) fn is_in(&self, arrived: &HashMap<String, u64>) -> bool {
        arrived.get(&self.id.to_string()) == Some(&self.bytes)
    }
}

/// The packs of a selection.
pub(super) fn packs(selection: &Selection<'_>) -> Result<Vec<Pack>, PathError> {
    packs_at(selection.paths())
}

/// Packs that lie at these paths.
pub(super) fn packs_at(
    paths: impl IntoIterator<Item = (PackId, PathBuf)>,
) -> Result<Vec<Pack>, PathError> {
    let pack = |(id, path): (PackId, PathBuf)| {
        let meta = fs_err::metadata(&path).map_err(PathError::when("stat", &path))?;
        Ok(Pack { id, path, bytes: meta.len() })
    };
    paths.into_iter().map(pack).collect()
}

/// What hindered a pack from being sent. One that was refused for its bytes is read
/// again: it is damaged here, or was damaged on the way.
async fn hindered(pack: Pack, error: ServiceError) -> RemoteError {
    if !matches!(error.what, What::Damaged | What::Refused) {
        return error.into();
    }
    let id = pack.id;
    let read = move || staged::hash_of(&pack.path);
    match tokio::task::spawn_blocking(read).await {
        Ok(Ok(hash)) if hash.as_bytes() != id.as_bytes() => {
            let actual = PackId::from_bytes(*hash.as_bytes());
            StoreError::PackHash { pack: id, actual }.into()
        }
        _ => error.into(),
    }
}

/// Packs on their way. When this is dropped they are given up.
pub(super) struct Sending {
    tasks: JoinSet<Result<u64, RemoteError>>,
    progress: Arc<Progress>,
    total: u64,
    /// Packs that were there.
    pub(super) resumed: u64,
}

impl Sending {
    /// Sends those packs that have not arrived. How many go at a time is up to
    /// the client.
    pub(super) fn begin(
        remote: &RemoteStore,
        packs: Vec<Pack>,
        arrived: &HashMap<String, u64>,
        runtime: &Handle,
    ) -> Self {
        let progress = match Leftovers::of(remote.mirror()) {
            Leftovers::Maybe => Progress::going_on(),
            Leftovers::None => Progress::default(),
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
                let file = (&*pack.path, pack.bytes);
                match client.write_file(&pack.key(), file, &progress).await {
                    Ok(()) => Ok(pack.bytes),
                    Err(error) => Err(hindered(pack, error).await),
                }
            };
            sending.tasks.spawn_on(send, runtime);
        }
        sending
    }

    /// Waits until all have arrived; says how many and how many bytes. After
    /// an error those that are under way are given up in an orderly manner.
    pub(super) async fn finish(
        mut self,
        observer: &dyn Observer,
    ) -> Result<(u64, u64), RemoteError> {
        observer.phase(Phase::Send, Some(self.total));
        let (mut packs, mut bytes, mut told) = (0, 0, 0);
        let mut failed = None;
        loop {
            let done = tokio::time::timeout(LOOK, self.tasks.join_next()).await;
            let now = self.progress.bytes();
            observer.advance(now - told, 0);
            told = now;
            match done {
                Ok(None) => break,
                Ok(Some(done)) => match done.expect("sending does not panic") {
                    Ok(sent) => (packs, bytes) = (packs + 1, bytes + sent),
                    // Others stop because of the first.
                    Err(RemoteError::Service(error))
                        if error.what == What::Stopped && failed.is_some() => {}
                    Err(error) => failed = failed.or(Some(error)),
                },
                Err(_) if observer.cancelled() && failed.is_none() => {
                    failed = Some(RemoteError::Interrupted);
                }
                Err(_) => {}
            }
            if failed.is_some() {
                self.progress.stop();
            }
        }
        failed.map_or(Ok((packs, bytes.saturating_sub(self.progress.spared()))), Err)
    }
}
