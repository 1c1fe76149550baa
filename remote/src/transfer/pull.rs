//! Pull: what is missing here comes, is checked, and becomes part of the
//! store all at once.

use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::{Observer, Phase},
    },
    ops::reach::{self, ReachError},
    repo::ref_name::RefName,
    store::{Added, BundleError, Incoming, Marks, Place, Store, StoreError},
};
use tokio::{runtime::Handle, task::JoinSet};

use crate::{
    service::ServiceError,
    store::{Found, OBJECTS, RemoteError, RemoteStore},
};

/// Bytes of packs that are held while they come down.
const BYTES_AT_ONCE: u64 = 96 << 20;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Where the ref stands there.
    pub commit: CommitId,
    /// What was added to the store.
    pub added: Added,
    /// Bytes of packs that came.
    pub received_bytes: u64,
}

/// Brings what the ref `name` elsewhere stands for into `store`. No ref here
/// is moved.
///
/// # Errors
/// [`RemoteError`]; nothing has then been added.
pub fn run(
    store: &Store,
    remote: &mut RemoteStore,
    (name, level): (&RefName, i32),
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<Outcome, RemoteError> {
    let location = remote.location().to_owned();
    let standing = runtime.block_on(async {
        let (found, standing) = futures::join!(remote.look(), remote.standing(name));
        match found? {
            Found::Nothing => Err(RemoteError::NoStore { location: location.clone() }),
            Found::Store => {
                remote.refresh().await?;
                standing
            }
        }
    })?;
    let commit = match standing {
        Some(standing) => standing.commit,
        None => return Err(RemoteError::NoRef { name: Box::new(name.clone()), location }),
    };
    let mut incoming = Incoming::new(store, observer)?;
    let wanted = wanted(store, remote.mirror().store())?;
    let received_bytes = runtime.block_on(receive(remote, &mut incoming, wanted, observer))?;
    check_complete(&incoming, commit, observer).map_err(|source| match source {
        ReachError::Interrupted => RemoteError::Interrupted,
        source => RemoteError::Incomplete { location, source: Box::new(source) },
    })?;
    observer.phase(Phase::Data, None);
    incoming.check_lists(observer)?;
    if observer.cancelled() {
        return Err(RemoteError::Interrupted);
    }
    let added = incoming.adopt(level)?;
    Ok(Outcome { commit, added, received_bytes })
}

/// Packs elsewhere that have anything that is not here, with their lengths.
fn wanted(store: &Store, mirror: &Store) -> Result<Vec<(PackId, u64)>, StoreError> {
    let mut wanted = Vec::new();
    for id in mirror.packs() {
        let pack = mirror.open_pack(&id)?;
        for object in pack.objects()? {
            if store.locate(&object.id)?.is_none() {
                wanted.push((id, pack.file_bytes()));
                break;
            }
        }
    }
    Ok(wanted)
}

/// Fetches packs, many at a time, and checks each as it comes.
async fn receive(
    remote: &RemoteStore,
    incoming: &mut Incoming<'_>,
    wanted: Vec<(PackId, u64)>,
    observer: &dyn Observer,
) -> Result<u64, RemoteError> {
    observer.phase(Phase::Receive, Some(wanted.iter().map(|(_, bytes)| bytes).sum()));
    let mut tasks: JoinSet<Result<(PackId, u64, bytes::Bytes), ServiceError>> = JoinSet::new();
    let (mut held, mut received) = (0, 0);
    let mut wanted = wanted.into_iter().peekable();
    loop {
        while let Some((id, bytes)) =
            wanted.next_if(|(_, bytes)| tasks.is_empty() || held + bytes <= BYTES_AT_ONCE)
        {
            held += bytes;
            let client = remote.client().clone();
            tasks.spawn(async move {
                let object = client.read(&format!("{OBJECTS}{id}"), Some(0..bytes)).await?;
                Ok((id, bytes, object.bytes))
            });
        }
        let Some(done) = tasks.join_next().await else { return Ok(received) };
        let (id, length, bytes) = done.expect("fetching does not panic")?;
        let key = || format!("{OBJECTS}{id}");
        let damaged = |source: BundleError| RemoteError::Pack {
            key: key(),
            location: remote.location().to_owned(),
            source: Box::new(source),
        };
        let actual = incoming.receive(|take| take(&bytes)).map_err(damaged)?;
        drop(bytes);
        if actual != id {
            return Err(damaged(StoreError::PackHash { pack: id, actual }.into()));
        }
        match incoming.check(id, observer) {
            Ok(()) => {}
            Err(error) => return Err(damaged(error)),
        }
        held -= length;
        received += length;
        observer.advance(length, 0);
        if observer.cancelled() {
            return Err(RemoteError::Interrupted);
        }
    }
}

/// Walks all that the commit refers to, here and in what came.
fn check_complete(
    incoming: &Incoming<'_>,
    commit: CommitId,
    observer: &dyn Observer,
) -> Result<(), ReachError> {
    observer.phase(Phase::Structure, None);
    let (ours, theirs) = (Marks::new(incoming.own()), Marks::new(incoming.target()));
    let mut enter = |id: &ObjectId, _: &Place| match incoming.own().locate(id)?.is_some() {
        true => ours.mark(id),
        false => theirs.mark(id),
    };
    reach::visit(incoming, &[commit], &mut enter, observer)
}
