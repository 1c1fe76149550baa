//! What a push asks before anything else, all of it at once.

use std::collections::HashMap;

use futures::future::join_all;
use snap_core::{base::id::PackId, repo::ref_name::RefName};

use crate::{
    service::Listed,
    store::{Found, INDEX, Mirror, OBJECTS, REFS, RemoteError, RemoteStore, Settings, refs::Slot},
};

/// Refs that are read one by one. Of more it is listed first which there are.
pub(super) const FEW_REFS: usize = 4;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Only where the refs stand: all the rest is there, and a server sees to it.
    Refs,
    /// That, and what there is in the index: nothing has to go, as far as is known.
    RefsAndIndex,
    /// That, and the settings.
    All,
    /// Where the refs stand, and whether there is a store at all.
    Survey,
}

impl Question {
    /// Whether the settings are read, which a server sees to itself.
    pub(super) fn reads_settings(self, remote: &RemoteStore) -> bool {
        self == Self::All && !remote.client().keeps_index()
    }
}

/// Whether packs may be there that no outline tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leftovers {
    /// A push was interrupted.
    Maybe,
    /// None of ours.
    None,
}

impl Leftovers {
    /// As the mirror remembers it.
    pub(super) fn of(mirror: &Mirror) -> Self {
        match mirror.may_have_sent() {
            true => Self::Maybe,
            false => Self::None,
        }
    }
}

/// What was answered.
pub(super) struct Answers {
    /// Of each ref.
    pub(super) slots: Vec<Slot>,
    /// Whether there is a store.
    pub(super) found: Result<Found, RemoteError>,
    /// Its settings, if they were asked for.
    pub(super) settings: Option<Settings>,
    /// The index, if it was asked for.
    pub(super) listed: Option<Vec<Listed>>,
    /// Lengths of packs that are there, whether or not they count yet; empty
    /// unless some may have been sent in vain.
    pub(super) arrived: HashMap<String, u64>,
}

pub(super) async fn ask(
    remote: &RemoteStore,
    names: &[&RefName],
    (question, leftovers): (Question, Leftovers),
) -> Result<Answers, RemoteError> {
    let found = async {
        match question {
            Question::Survey => remote.survey().await,
            Question::Refs | Question::RefsAndIndex | Question::All => Ok(Found::Store),
        }
    };
    let listed = async {
        match question {
            Question::RefsAndIndex | Question::All => remote.client().list(INDEX).await.map(Some),
            Question::Refs | Question::Survey => Ok(None),
        }
    };
    let settings = async {
        match question.reads_settings(remote) {
            true => remote.settings().await.map(Some),
            false => Ok(None),
        }
    };
    let arrived = async {
        match leftovers {
            Leftovers::Maybe => arrived(remote).await,
            Leftovers::None => Ok(HashMap::new()),
        }
    };
    let (found, listed, settings, arrived, slots) =
        futures::join!(found, listed, settings, arrived, slots(remote, names));
    let (listed, settings) = (listed?, settings?);
    Ok(Answers { found, listed, settings, arrived: arrived?, slots: slots? })
}

async fn slots(remote: &RemoteStore, names: &[&RefName]) -> Result<Vec<Slot>, RemoteError> {
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
            false => Ok(Slot::default()),
        }
    });
    join_all(reads).await.into_iter().collect()
}

async fn arrived(remote: &RemoteStore) -> Result<HashMap<String, u64>, RemoteError> {
    let listed = remote.client().list(OBJECTS).await?;
    let named = listed.into_iter().filter_map(|object| {
        let name = object.key.strip_prefix(OBJECTS)?.to_owned();
        let id = name.parse::<PackId>().ok()?;
        // One that is damaged goes again.
        (!remote.mirror().store().is_shadowed(&id)).then_some((name, object.bytes))
    });
    Ok(named.collect())
}
