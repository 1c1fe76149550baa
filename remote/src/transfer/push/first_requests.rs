//! The first requests of a push, all sent concurrently.

use std::collections::HashMap;

use futures::future::join_all;
use snap_core::{base::id::PackId, repo::ref_name::RefName};

use crate::{
    service::ListedObject,
    store::{
        INDEX, Mirror, OBJECTS, REFS, RemoteError, RemoteStore, SettingsState, StoreLookup,
        refs::RefSlot,
    },
};

/// Maximum number of refs to read one by one. For more, a push lists the refs first.
pub(super) const FEW_REFS: usize = 4;

/// The set of first requests of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstRequests {
    /// The refs only: the push knows the rest, and a server maintains the index.
    Refs,
    /// The refs and the listing of the index: as far as the mirror knows, there is nothing to
    /// upload.
    RefsAndIndex,
    /// The refs, the listing of the index, and the settings.
    All,
    /// The refs, and a check whether there is a store.
    RefsAndStore,
}

impl FirstRequests {
    /// Returns true if the push reads the settings.
    pub(super) fn reads_settings(self) -> bool {
        self == Self::All
    }
}

/// Possible uploaded packs of an interrupted push that no index file lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnpublishedPacks {
    /// A push from here may have left such packs.
    Maybe,
    /// No push from here left such packs.
    None,
}

impl UnpublishedPacks {
    /// Returns the record of the mirror.
    pub(super) fn of(mirror: &Mirror) -> Self {
        match mirror.may_have_sent() {
            true => Self::Maybe,
            false => Self::None,
        }
    }
}

/// The responses to the first requests.
pub(super) struct FirstAnswers {
    /// The content of each ref, in the order of the names.
    pub(super) slots: Vec<RefSlot>,
    /// The result of the check for a store.
    pub(super) found: Result<StoreLookup, RemoteError>,
    /// The state of the settings, if requested.
    pub(super) settings: Option<SettingsState>,
    /// The listing of the index, if requested.
    pub(super) listed: Option<Vec<ListedObject>>,
    /// Lengths of the uploaded packs, published or not. Empty if no interrupted push can have left
    /// packs.
    pub(super) uploaded: HashMap<String, u64>,
}

pub(super) async fn send_first_requests(
    remote: &RemoteStore,
    names: &[&RefName],
    question: FirstRequests,
    leftovers: UnpublishedPacks,
) -> Result<FirstAnswers, RemoteError> {
    let found = async {
        match question {
            FirstRequests::RefsAndStore => remote.inspect_location().await,
            FirstRequests::Refs | FirstRequests::RefsAndIndex | FirstRequests::All => {
                Ok(StoreLookup::Store)
            }
        }
    };
    let listed = async {
        match question {
            FirstRequests::RefsAndIndex | FirstRequests::All => {
                remote.client().list(INDEX).await.map(Some)
            }
            FirstRequests::Refs | FirstRequests::RefsAndStore => Ok(None),
        }
    };
    let settings = async {
        match question.reads_settings() {
            true => remote.settings().await.map(Some),
            false => Ok(None),
        }
    };
    let arrived = async {
        match leftovers {
            UnpublishedPacks::Maybe => uploaded_packs(remote).await,
            UnpublishedPacks::None => Ok(HashMap::new()),
        }
    };
    let (found, listed, settings, arrived, slots) =
        futures::join!(found, listed, settings, arrived, slots(remote, names));
    let (listed, settings) = (listed?, settings?);
    Ok(FirstAnswers { found, listed, settings, uploaded: arrived?, slots: slots? })
}

async fn slots(remote: &RemoteStore, names: &[&RefName]) -> Result<Vec<RefSlot>, RemoteError> {
    let there = match names.len() > FEW_REFS {
        true => Some(remote.client().list(REFS).await?),
        false => None,
    };
    let is_there = |name: &RefName| {
        let key = format!("{REFS}{}/{}", name.kind().folder(), name.short());
        there.as_ref().is_none_or(|there| there.iter().any(|object| object.key == key))
    };
    let reads = names.iter().map(|name| async {
        match is_there(name) {
            true => remote.any_slot(name).await,
            false => Ok(RefSlot::default()),
        }
    });
    join_all(reads).await.into_iter().collect()
}

async fn uploaded_packs(remote: &RemoteStore) -> Result<HashMap<String, u64>, RemoteError> {
    let listed = remote.client().list(OBJECTS).await?;
    let named = listed.into_iter().filter_map(|object| {
        let name = object.key.strip_prefix(OBJECTS)?.to_owned();
        let id = name.parse::<PackId>().ok()?;
        // Leave out a damaged pack, so that the push uploads it again.
        (!remote.mirror().store().is_shadowed(&id)).then_some((name, object.bytes))
    });
    Ok(named.collect())
}
