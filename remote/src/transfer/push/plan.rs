//! What a push would do, without doing it.

use std::collections::HashMap;

use snap_core::{base::observe::Observer, repo::Repo};
use tokio::runtime::Handle;

use super::{
    Eager, Fate, Options, Prepared, Push, Pushed,
    ask::{FEW_REFS, Question},
    send::{self, Pack},
};
use crate::{
    service::{client::PART_BYTES, traffic::Kind},
    store::{Found, RemoteError, RemoteStore, refs::Slot},
};

/// Objects on a page of a listing.
const PAGE: usize = 1000;

/// What a push would do.
#[derive(Debug, Default)]
pub struct Plan {
    /// The refs, in the order in which they were given; nothing has moved.
    pub refs: Vec<Pushed>,
    /// Objects that are not there.
    pub objects: u64,
    /// Their bytes, uncompressed.
    pub raw_bytes: u64,
    /// Bytes of packs that would be sent.
    pub bytes: u64,
    /// Packs that would be sent.
    pub packs: u64,
    /// Requests that the push would make, by kind in the order of [`Kind::ALL`],
    /// if none has to be made again and nobody else pushes. Those that a share
    /// needs for its folders are left out.
    pub requests_by_kind: [u64; Kind::ALL.len()],
}

impl Plan {
    /// All requests.
    pub fn requests(&self) -> u64 {
        self.requests_by_kind.iter().sum()
    }

    fn add(&mut self, kind: Kind, requests: usize) {
        self.requests_by_kind[kind as usize] += requests as u64;
    }
}

/// Says what [`run`](super::run) would do. Reads what it has to; writes nothing
/// there.
///
/// # Errors
/// [`RemoteError`], as [`run`](super::run).
pub fn plan(
    repo: &Repo,
    remote: &mut RemoteStore,
    options: &Options<'_>,
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<Plan, RemoteError> {
    remote.must_be_another(repo.dir())?;
    let _hold = repo.store().hold_packs()?;
    let push = Push { repo, options, runtime, observer };
    let Prepared { slots, found, has_settings, selection, sending: _, arrived, fates } =
        push.prepare(remote, Eager::No)?;
    let mut plan = Plan::default();
    let going = fates.iter().filter(|fate| matches!(fate, Fate::Go)).count();
    let refs_there = slots.iter().filter(|slot| slot.is_there()).count();
    let reads = (refs_there, going, &arrived);
    add_reads(&mut plan, push.question(remote)?, remote, options.refs.len(), reads);
    plan.add(Kind::Put, usize::from(!has_settings));
    plan.add(Kind::Get, usize::from(found == Found::Store && push.mends(remote)));
    if found == Found::Nothing && going > 0 {
        plan.add(Kind::Put, 2);
    }
    if let Some(selection) = selection.filter(|selection| selection.objects > 0) {
        plan.objects = selection.objects;
        plan.raw_bytes = selection.raw_bytes;
        let packs = send::packs(&selection)?;
        let going = || packs.iter().filter(|pack| !pack.is_in(&arrived));
        going().for_each(|pack| add_pack(&mut plan, remote, pack));
        if remote.mirror().may_have_sent() {
            let may = |pack: &&Pack| remote.client().may_resume(&pack.key(), pack.bytes);
            plan.add(Kind::Head, going().filter(may).count());
        }
        plan.add(Kind::Put, remote.publication(selection.packs())?.objects());
    }
    add_moves(&mut plan, remote, going, found == Found::Nothing);
    let is_made = |(slot, fate): (&Slot, &Fate)| slot.commit.is_none() && matches!(fate, Fate::Go);
    let makes = slots.iter().zip(&fates).any(is_made);
    if makes && found == Found::Store && !remote.client().keeps_names_apart() {
        // Before and after: see `store::names`.
        plan.add(Kind::List, 2);
    }
    let told = options.refs.iter().zip(slots).zip(fates);
    plan.refs = told.map(|((update, slot), fate)| fate.told(update, &slot)).collect();
    Ok(plan)
}

fn add_reads(
    plan: &mut Plan,
    question: Question,
    remote: &RemoteStore,
    refs: usize,
    (refs_there, going, arrived): (usize, usize, &HashMap<String, u64>),
) {
    match refs > FEW_REFS {
        true => {
            plan.add(Kind::List, 1);
            plan.add(Kind::Get, refs_there);
        }
        false => plan.add(Kind::Get, refs),
    }
    match question {
        Question::Survey => {
            plan.add(Kind::Get, 1);
            plan.add(Kind::List, 1);
        }
        Question::RefsAndIndex => {
            plan.add(Kind::List, pages(remote.index_files()));
            plan.add(Kind::Get, usize::from(going > 0));
        }
        Question::All => {
            plan.add(Kind::List, pages(remote.index_files()));
            plan.add(Kind::Get, usize::from(question.reads_settings(remote)));
        }
        Question::Refs if going > 0 => plan.add(Kind::List, pages(remote.index_files())),
        Question::Refs => {}
    }
    if remote.mirror().may_have_sent() {
        plan.add(Kind::List, pages(arrived.len()));
    }
}

fn add_pack(plan: &mut Plan, remote: &RemoteStore, pack: &Pack) {
    plan.packs += 1;
    plan.bytes += pack.bytes;
    match remote.client().takes_parts(&pack.key(), pack.bytes) {
        true => {
            plan.add(Kind::Post, 2);
            plan.add(Kind::Put, pack.bytes.div_ceil(PART_BYTES) as usize);
        }
        false => plan.add(Kind::Put, 1),
    }
}

fn add_moves(plan: &mut Plan, remote: &RemoteStore, going: usize, is_new: bool) {
    let can = remote.known_conditions().unwrap_or_else(|| {
        if going > 0 {
            plan.add(Kind::Put, remote.trials());
            // The settings, twice: see `store::conditions`.
            if !is_new {
                plan.add(Kind::Get, 1 + usize::from(!remote.has_config()));
            }
        }
        remote.client().conditions()
    });
    plan.add(Kind::Put, going);
    if !can.absent || !can.unchanged {
        // Claims: see `store::claims`.
        plan.add(Kind::Put, going);
        plan.add(Kind::List, going);
        plan.add(Kind::Get, 2 * going);
        plan.add(Kind::Delete, going);
    }
    if going == 0 {
        return;
    }
    let superfluous = remote.superfluous().len();
    match remote.client().removed_at_once() {
        1 => plan.add(Kind::Delete, superfluous),
        _ if superfluous == 1 => plan.add(Kind::Delete, 1),
        many => plan.add(Kind::Post, superfluous.div_ceil(many)),
    }
}

fn pages(objects: usize) -> usize {
    objects.div_ceil(PAGE).max(1)
}
