//! The dry run of a push.

use std::collections::HashMap;

use snap_core::{base::observe::Observer, repo::Repo};
use tokio::runtime::Handle;

use super::{
    PreparedPush, PushOptions, PushRun, PushedRef, RefDecision,
    first_requests::{FEW_REFS, FirstRequests},
    upload::{self, PackUpload},
};
use crate::{
    service::{client::PART_BYTES, traffic::RequestKind},
    store::{RemoteError, RemoteStore, StoreLookup, refs::RefSlot},
};

/// Objects on one page of a listing.
const PAGE: usize = 1000;

/// The planned work of a push.
#[derive(Debug, Default)]
pub struct PushPlan {
    /// The refs in the given order, with their planned results. No ref has moved.
    pub refs: Vec<PushedRef>,
    /// Number of objects that the remote store lacks.
    pub objects: u64,
    /// Uncompressed bytes of these objects.
    pub raw_bytes: u64,
    /// Bytes of packs to send.
    pub bytes: u64,
    /// Number of packs to send.
    pub packs: u64,
    /// Number of requests of the push by kind, in the order of [`RequestKind::ALL`]: without
    /// retries, races with other clients, and requests for the folders of a share.
    pub requests_by_kind: [u64; RequestKind::ALL.len()],
}

impl PushPlan {
    /// Returns the number of all requests.
    pub fn requests(&self) -> u64 {
        self.requests_by_kind.iter().sum()
    }

    fn add(&mut self, kind: RequestKind, requests: usize) {
        self.requests_by_kind[kind as usize] += requests as u64;
    }
}

/// Plans the work of [`run`](super::run). Reads from the remote store; writes nothing to it.
///
/// # Errors
/// [`RemoteError`], like [`run`](super::run).
pub fn plan(
    repo: &Repo,
    remote: &mut RemoteStore,
    options: &PushOptions<'_>,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<PushPlan, RemoteError> {
    remote.must_be_another(repo.dir())?;
    let _hold = repo.store().pin_packs()?;
    let push = PushRun { repo, options, runtime, observer };
    let PreparedPush { slots, found, has_settings, selection, uploaded: arrived, decisions: fates } =
        push.prepare(remote)?;
    let mut plan = PushPlan::default();
    let going = fates.iter().filter(|fate| matches!(fate, RefDecision::Move)).count();
    let refs_there = slots.iter().filter(|slot| slot.exists()).count();
    let (question, refs) = (push.first_requests(remote)?, options.refs.len());
    add_reads(&mut plan, question, remote, refs, refs_there, going, &arrived);
    plan.add(RequestKind::Put, usize::from(!has_settings));
    plan.add(RequestKind::Get, usize::from(found == StoreLookup::Store && push.repairs(remote)));
    if found == StoreLookup::Missing && going > 0 {
        plan.add(RequestKind::Put, 2 + usize::from(!remote.client().maintains_index()));
    }
    if let Some(selection) = selection.filter(|selection| selection.objects > 0) {
        plan.objects = selection.objects;
        plan.raw_bytes = selection.raw_bytes;
        let packs = upload::packs(&selection)?;
        let going = || packs.iter().filter(|pack| !pack.is_in(&arrived));
        going().for_each(|pack| add_pack(&mut plan, remote, pack));
        if remote.mirror().may_have_sent() {
            let may = |pack: &&PackUpload| remote.client().may_resume(&pack.key(), pack.bytes);
            plan.add(RequestKind::Head, going().filter(may).count());
        }
        plan.add(RequestKind::Put, remote.index_update(selection.packs())?.objects());
    }
    add_moves(&mut plan, remote, going, found == StoreLookup::Missing);
    let is_made = |(slot, fate): (&RefSlot, &RefDecision)| {
        slot.commit.is_none() && matches!(fate, RefDecision::Move)
    };
    let makes = slots.iter().zip(&fates).any(is_made);
    if makes && found == StoreLookup::Store && !remote.client().refuses_conflicting_refs() {
        // Listings before and after the move: see `store::name_conflicts`.
        plan.add(RequestKind::List, 2);
    }
    if !remote.client().maintains_index() {
        let head = push.head()?;
        for ((update, slot), fate) in options.refs.iter().zip(&slots).zip(&fates) {
            let is_first = found == StoreLookup::Missing && update.name == head;
            if is_made((slot, fate)) && !is_first {
                // The ref is first created as deleted: see `store::gc`.
                let can = remote.known_conditions().unwrap_or_else(|| remote.client().conditions());
                let is_reserved = !slot.exists() && can.absent && can.unchanged;
                plan.add(RequestKind::Put, usize::from(is_reserved));
                plan.add(RequestKind::Get, 1 + usize::from(is_reserved));
            }
        }
    }
    let decided = options.refs.iter().zip(slots).zip(fates);
    plan.refs = decided.map(|((update, slot), fate)| fate.into_pushed_ref(update, &slot)).collect();
    Ok(plan)
}

fn add_reads(
    plan: &mut PushPlan,
    question: FirstRequests,
    remote: &RemoteStore,
    refs: usize,
    refs_there: usize,
    going: usize,
    arrived: &HashMap<String, u64>,
) {
    match refs > FEW_REFS {
        true => {
            plan.add(RequestKind::List, 1);
            plan.add(RequestKind::Get, refs_there);
        }
        false => plan.add(RequestKind::Get, refs),
    }
    match question {
        FirstRequests::RefsAndStore => {
            plan.add(RequestKind::Get, 1);
            plan.add(RequestKind::List, 1);
        }
        FirstRequests::RefsAndIndex => {
            plan.add(RequestKind::List, pages(remote.index_files()));
            plan.add(RequestKind::Get, usize::from(going > 0));
        }
        FirstRequests::All => {
            plan.add(RequestKind::List, pages(remote.index_files()));
            plan.add(RequestKind::Get, usize::from(question.reads_settings()));
        }
        FirstRequests::Refs if going > 0 => {
            plan.add(RequestKind::List, pages(remote.index_files()))
        }
        FirstRequests::Refs => {}
    }
    if remote.mirror().may_have_sent() {
        plan.add(RequestKind::List, pages(arrived.len()));
    }
}

fn add_pack(plan: &mut PushPlan, remote: &RemoteStore, pack: &PackUpload) {
    plan.packs += 1;
    plan.bytes += pack.bytes;
    match remote.client().takes_parts(&pack.key(), pack.bytes) {
        true => {
            plan.add(RequestKind::Post, 2);
            plan.add(RequestKind::Put, pack.bytes.div_ceil(PART_BYTES) as usize);
        }
        false => plan.add(RequestKind::Put, 1),
    }
}

fn add_moves(plan: &mut PushPlan, remote: &RemoteStore, going: usize, is_new: bool) {
    let can = remote.known_conditions().unwrap_or_else(|| {
        if going > 0 {
            plan.add(RequestKind::Put, remote.test_requests());
            // Reads of the settings for the test: see `store::conditions`.
            if !is_new {
                plan.add(RequestKind::Get, 1 + usize::from(!remote.has_config()));
            }
        }
        remote.client().conditions()
    });
    plan.add(RequestKind::Put, going);
    if !can.absent || !can.unchanged {
        // Requests for claims: see `store::claims`.
        plan.add(RequestKind::Put, going);
        plan.add(RequestKind::List, going);
        plan.add(RequestKind::Get, 2 * going);
        plan.add(RequestKind::Delete, going);
    }
    if going == 0 {
        return;
    }
    let superfluous = remote.superfluous().len();
    match remote.client().max_removals_per_request() {
        1 => plan.add(RequestKind::Delete, superfluous),
        _ if superfluous == 1 => plan.add(RequestKind::Delete, 1),
        many => plan.add(RequestKind::Post, superfluous.div_ceil(many)),
    }
}

fn pages(objects: usize) -> usize {
    objects.div_ceil(PAGE).max(1)
}
