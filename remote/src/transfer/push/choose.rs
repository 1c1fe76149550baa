//! Asks what the remote store has, decides which refs move, and selects the packs to send.

use std::{collections::HashMap, thread};

use futures::join;
use snap_core::{
    base::id::{CommitId, ObjectId, PackId},
    ops::select::{Gather, PeerHas, SelectedPacks},
    repo::ref_name::RefName,
};

use super::{PushRun, moves::RefDecision};
use crate::peer::{
    IndexListing, Look, RemoteError, RemoteStore, SettingsState, StoreLookup, slot::RefSlot,
};

/// The set of first requests of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstRequests {
    /// [`RemoteStore::look`]: as far as the mirror knows, there is nothing to upload.
    Look,
    /// The refs, the listing of the index, and the settings.
    All,
    /// The refs, and a check whether there is a store.
    RefsAndStore,
}

/// The answers to the first requests.
struct FirstAnswers {
    /// The content of each ref, in the order of the names.
    slots: Vec<RefSlot>,
    /// The result of the check for a store.
    found: Result<StoreLookup, RemoteError>,
    /// The state of the settings, if requested.
    settings: Option<SettingsState>,
    /// The listing of the index, if there is one.
    listing: Option<IndexListing>,
    /// Lengths of the uploaded packs, published or not. Empty if no interrupted push can have left
    /// packs.
    uploaded: HashMap<PackId, u64>,
}

/// Sends the first requests, all concurrently.
async fn send_first_requests(
    remote: &RemoteStore,
    names: &[&RefName],
    question: FirstRequests,
) -> Result<FirstAnswers, RemoteError> {
    let peer = remote.place().peer();
    let uploaded = async {
        match remote.mirror().may_have_sent() {
            true => uploaded_packs(remote).await,
            false => Ok(HashMap::new()),
        }
    };
    let asked = async {
        let (slots, found, settings, listing) = match question {
            FirstRequests::Look => {
                let Look { slots, listing } = remote.place().peer().look(names).await?;
                (slots, Ok(StoreLookup::Store), None, listing)
            }
            FirstRequests::All => {
                let (slots, settings, listing) =
                    join!(peer.slots(names), remote.settings(), peer.list_index());
                (slots?, Ok(StoreLookup::Store), Some(settings?), Some(listing?))
            }
            FirstRequests::RefsAndStore => {
                let (slots, found) = join!(peer.slots(names), remote.inspect_location());
                (slots?, found, None, None)
            }
        };
        Ok::<_, RemoteError>((slots, found, settings, listing))
    };
    let (asked, uploaded) = join!(asked, uploaded);
    let (slots, found, settings, listing) = asked?;
    Ok(FirstAnswers { slots, found, settings, listing, uploaded: uploaded? })
}

pub(super) async fn uploaded_packs(
    remote: &RemoteStore,
) -> Result<HashMap<PackId, u64>, RemoteError> {
    let mut packs = remote.place().peer().packs().await?.packs;
    // Leave out a damaged pack, so that the push uploads it again.
    packs.retain(|pack| !remote.mirror().store().is_shadowed(&pack.id));
    Ok(packs.into_iter().map(|pack| (pack.id, pack.bytes)).collect())
}

/// The evidence that the remote store is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompletenessProof {
    /// The index: every object that it lists is complete.
    Index,
    /// No evidence, so the push walks everything that the commits reach.
    None,
}

/// The state of a push before its first write.
pub(super) struct PreparedPush<'s> {
    pub(super) slots: Vec<RefSlot>,
    pub(super) found: StoreLookup,
    /// True if the settings are usable, or if the push will create the store.
    pub(super) has_settings: bool,
    /// `None` if no ref moves and the remote store counts as complete.
    pub(super) selection: Option<SelectedPacks<'s>>,
    /// Lengths of packs that the remote store already has, if the push has requested them.
    pub(super) uploaded: HashMap<PackId, u64>,
    pub(super) decisions: Vec<RefDecision>,
}

impl<'a> PushRun<'a> {
    pub(super) fn prepare(
        &self,
        remote: &mut RemoteStore,
    ) -> Result<PreparedPush<'a>, RemoteError> {
        let question = self.first_requests(remote)?;
        let was_damaged = remote.mirror().is_damaged();
        remote.pass_over_damaged_index();
        let known = remote.mirror().store().packs();
        let known_gc = remote.mirror().gc();
        let (answers, early) = self.ask(remote, question);
        let FirstAnswers { slots, found, listing, settings, mut uploaded } = answers?;
        let (mut found, mut has_settings) = match found {
            Err(error) if self.is_forced() && error.is_of_settings() => (StoreLookup::Store, false),
            found => (found?, true),
        };
        let is_anything = listing.as_ref().is_some_and(|listing| !listing.files.is_empty())
            || slots.iter().any(RefSlot::exists);
        if is_anything {
            has_settings &= self.settings(remote, settings)?;
        }
        let decisions = self.decide_refs(remote, &slots)?;
        let is_any_moved = decisions.iter().any(|decision| matches!(decision, RefDecision::Move));
        if is_any_moved && is_anything && listing.is_some() && question == FirstRequests::Look {
            let settings = self.runtime.block_on(remote.settings())?;
            has_settings &= self.settings(remote, Some(settings))?;
        }
        let has_listing = listing.is_some();
        match listing {
            Some(listing) => self.runtime.block_on(remote.take_in_listed(listing))?,
            None if (is_any_moved || question == FirstRequests::RefsAndStore)
                && found == StoreLookup::Store =>
            {
                self.runtime.block_on(remote.refresh())?;
            }
            None => {}
        }
        self.learn_epoch(remote, &slots, &decisions)?;
        let is_same_epoch = known_gc == remote.mirror().gc();
        if !is_same_epoch {
            // A collector may be deleting what was there before.
            uploaded.clear();
        }
        if is_any_moved && question != FirstRequests::RefsAndStore && remote.known().lists_nothing()
        {
            found = self.runtime.block_on(remote.inspect_location())?;
            if found == StoreLookup::Missing && !self.is_forced() {
                // Otherwise the next push would create a store at the empty location.
                remote.mirror().remember_seen();
                return Err(RemoteError::Emptied {
                    location: remote.place().location().to_owned(),
                });
            }
        }
        let is_partial = self.runtime.block_on(remote.place().peer().partial_clone())?.is_some();
        if found == StoreLookup::Missing {
            remote.forget()?;
        } else if (has_listing || question == FirstRequests::RefsAndStore) && !is_partial {
            self.check_tips(remote, &slots)?;
        }
        let mut prepared = PreparedPush {
            slots,
            found,
            has_settings: has_settings || found == StoreLookup::Missing,
            selection: None,
            uploaded,
            decisions,
        };
        // The push uploads known losses again, even if no ref moves. A store that is new to this
        // client is not known to be complete.
        let is_damaged = remote.mirror().is_damaged();
        let is_new_here = question == FirstRequests::RefsAndStore && found == StoreLookup::Store;
        let proof = match is_damaged || is_new_here {
            true => CompletenessProof::None,
            false => CompletenessProof::Index,
        };
        if is_any_moved || proof == CompletenessProof::None {
            let commits = self.commits(&prepared.decisions, proof);
            // The index of a partial clone proves nothing: objects that it needs lie elsewhere.
            let proof = if is_partial { CompletenessProof::None } else { proof };
            let all = commits.len() == prepared.decisions.len() && !is_partial;
            let same = all
                && is_same_epoch
                && is_damaged == was_damaged
                && known == remote.mirror().store().packs();
            // The early selection may have failed because the mirror was read again meanwhile.
            prepared.selection = match early.ok().flatten().filter(|_| same) {
                None => Some(self.select(remote, &commits, proof)?),
                early => early,
            };
        }
        Ok(prepared)
    }

    /// Reads the garbage collection state, unless the refs to move and the index files have the epoch
    /// that this client knows.
    fn learn_epoch(
        &self,
        remote: &mut RemoteStore,
        slots: &[RefSlot],
        decisions: &[RefDecision],
    ) -> Result<(), RemoteError> {
        let known = remote.mirror().epoch();
        let is_other = |(slot, decision): (&RefSlot, &RefDecision)| {
            matches!(decision, RefDecision::Move) && slot.exists() && slot.epoch() != known
        };
        let is_other =
            slots.iter().zip(decisions).any(is_other) || remote.known().lists_newer_epoch();
        if is_other
            && self.runtime.block_on(remote.place().peer().learn_epoch(remote.known()))?
            && !remote.known().knows_named_files()
        {
            self.runtime.block_on(remote.refresh())?;
        }
        remote.known().check_gc(remote.place().location())
    }

    /// Returns true if the settings are usable, false if the push will replace them.
    fn settings(
        &self,
        remote: &RemoteStore,
        settings: Option<SettingsState>,
    ) -> Result<bool, RemoteError> {
        match settings {
            None | Some(SettingsState::Usable) => Ok(true),
            Some(_) if self.is_forced() => Ok(false),
            Some(SettingsState::Damaged(error)) => Err(error),
            Some(SettingsState::Missing) => {
                Err(RemoteError::NoSettings { location: remote.place().location().to_owned() })
            }
        }
    }

    /// Checks that the index lists the commits of the remote refs. If a commit is missing, an index
    /// file is lost, which the mirror remembers as damage.
    fn check_tips(&self, remote: &mut RemoteStore, slots: &[RefSlot]) -> Result<(), RemoteError> {
        let store = self.repo.store();
        let is_lacking = |remote: &RemoteStore| {
            for commit in slots.iter().filter_map(|slot| slot.commit) {
                // This push cannot upload a commit again that is missing locally as well.
                let id = commit.object();
                if !remote.mirror().has(&id)? && store.is_stored(&id)? {
                    return Ok::<_, RemoteError>(true);
                }
            }
            Ok(false)
        };
        if is_lacking(remote)? {
            // The listing may be older than the refs.
            self.runtime.block_on(remote.refresh())?;
            if is_lacking(remote)? {
                remote.mirror().remember_damage();
            }
        }
        Ok(())
    }

    /// Returns the first requests that the push needs.
    fn first_requests(&self, remote: &RemoteStore) -> Result<FirstRequests, RemoteError> {
        if !remote.mirror().was_seen() {
            return Ok(FirstRequests::RefsAndStore);
        }
        if remote.mirror().is_damaged() {
            return Ok(FirstRequests::All);
        }
        let holdings = remote.mirror().holdings();
        for update in &self.options.refs {
            if holdings.of(&update.commit.object())? == PeerHas::Nothing {
                return Ok(FirstRequests::All);
            }
        }
        Ok(match self.is_forced() {
            true => FirstRequests::All,
            false => FirstRequests::Look,
        })
    }

    /// Sends the first requests. Meanwhile, selects the packs to upload if the remote store has not
    /// changed.
    fn ask(
        &self,
        remote: &RemoteStore,
        question: FirstRequests,
    ) -> (Result<FirstAnswers, RemoteError>, Result<Option<SelectedPacks<'a>>, RemoteError>) {
        let names: Vec<&RefName> = self.options.refs.iter().map(|update| &update.name).collect();
        thread::scope(|scope| {
            let ask = || self.runtime.block_on(send_first_requests(remote, &names, question));
            let asking = scope.spawn(ask);
            let early = match question {
                FirstRequests::Look => Ok(None),
                FirstRequests::All | FirstRequests::RefsAndStore => {
                    self.select_early(remote).map(Some)
                }
            };
            (asking.join().expect("sending the requests does not panic"), early)
        })
    }

    /// Selects packs for all refs, as if all of them moved.
    fn select_early(&self, remote: &RemoteStore) -> Result<SelectedPacks<'a>, RemoteError> {
        let commits: Vec<CommitId> = self.options.refs.iter().map(|update| update.commit).collect();
        let proof = match remote.mirror().is_damaged() {
            true => CompletenessProof::None,
            false => CompletenessProof::Index,
        };
        self.select(remote, &commits, proof)
    }

    fn select(
        &self,
        remote: &RemoteStore,
        commits: &[CommitId],
        proof: CompletenessProof,
    ) -> Result<SelectedPacks<'a>, RemoteError> {
        let store = self.repo.store();
        let holdings = match proof {
            CompletenessProof::Index => remote.mirror().holdings(),
            CompletenessProof::None => remote.mirror().unproven_holdings(),
        };
        let has = |id: &ObjectId| match holdings.of(id)? {
            // This push cannot upload an object again that is missing locally.
            PeerHas::Alone | PeerHas::Lost if !store.is_stored(id)? => Ok(PeerHas::All),
            holding => Ok(holding),
        };
        let make = |gather: Gather<'_>| {
            SelectedPacks::make(self.repo.store(), commits, &has, gather, self.observer)
        };
        Ok(self.gathering(remote, make)?)
    }

    /// Runs `work` with the parameters for copying objects.
    pub(super) fn gathering<T>(
        &self,
        remote: &RemoteStore,
        work: impl FnOnce(Gather<'_>) -> T,
    ) -> T {
        let level = self.repo.config().compression_level;
        let lost = remote.mirror().damaged_packs();
        let gc = remote.mirror().gc();
        let collected = gc.as_deref().map(|gc| &gc.table);
        work(Gather { scratch: self.options.scratch, level, lost: &lost, collected })
    }

    /// Returns the commits of refs that will move. If the remote store may be incomplete, also
    /// returns the commits of refs that are up to date.
    fn commits(&self, decisions: &[RefDecision], proof: CompletenessProof) -> Vec<CommitId> {
        let going = self.options.refs.iter().zip(decisions);
        let going = going.filter(|(_, decision)| match decision {
            RefDecision::Move => true,
            RefDecision::UpToDate => proof == CompletenessProof::None,
            RefDecision::Moved(_) | RefDecision::Rejected(_) => false,
        });
        going.map(|(update, _)| update.commit).collect()
    }
}
