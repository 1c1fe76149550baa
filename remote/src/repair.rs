//! Repair: what a store elsewhere has lost goes there again, from wherever it still
//! is.
//!
//! The store elsewhere is verified, so its mirror shadows what is damaged or lost.
//! The rest is found and put together by [`repair::collect`] of the engine and sent
//! as packs, those that were damaged under their names. No ref moves.

use std::{path::Path, sync::Arc};

use snap_core::{
    base::{id::CommitId, observe::Observer},
    ops::{
        repair::{self, Collected, Elsewhere, Lost, RepairError, Repaired, Run, Sources, Workshop},
        verify::Data,
    },
    repo::RefName,
};

use crate::{
    distant::{Contents, RemotePacks, Waiting},
    store::{RemoteError, RemoteStore},
    transfer::push,
    verify,
};

/// Choices.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// How much of the data there is read and hashed to find damage.
    pub data: Data,
    /// Whether anything is sent.
    pub run: Run,
    /// Compression of new packs.
    pub level: i32,
    /// Where a scratch folder may be made.
    pub scratch: &'a Path,
    /// Where branches there stood when they were last seen.
    pub seen: &'a [(RefName, CommitId)],
}

/// What happened, or would.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Problems that were found at first.
    pub problems: usize,
    /// What was sent again, or would be.
    pub repaired: Vec<Repaired>,
    /// Bytes of packs that were sent.
    pub sent_bytes: u64,
    /// Objects that stay lost.
    pub lost: Vec<Lost>,
    /// The last verification: problems that stay. Of a dry run, the only one.
    pub left: verify::Outcome,
}

/// Opens the store elsewhere, each time anew.
pub type Open<'f> = dyn Fn() -> Result<RemoteStore, RemoteError> + 'f;

/// Repairs the store elsewhere that `open` opens, as far as `sources` have what it
/// lacks. Waits; not to be called by a thread of the runtime.
///
/// # Errors
/// [`RemoteError`]; what was sent until then stays.
pub fn run(
    open: &Open<'_>,
    sources: &Sources<'_, '_>,
    options: &Options<'_>,
    (waiting, observer): (&Waiting, &dyn Observer),
) -> Result<Outcome, RemoteError> {
    waiting.runtime.block_on(open()?.client().begin_push())?;
    let (mut outcome, mut data) = (Outcome::default(), options.data);
    let mut round_before = None;
    loop {
        let checks = snap_core::ops::verify::Options { data };
        let found = verify::run(open()?, (&checks, options.seen), (waiting, observer))?;
        if round_before.is_none() {
            outcome.problems = found.problems.len() + found.found.problems.len();
        }
        if found.is_whole() {
            outcome.left = found;
            outcome.lost.clear();
            return Ok(outcome);
        }
        let workshop = Workshop::create(options.scratch)?;
        let Collected { packs, repaired, lost } =
            collect(open()?, sources, (&workshop, options), (waiting, observer))?;
        outcome.lost = lost;
        let is_new = !packs.is_empty() && round_before.as_ref() != Some(&repaired);
        if options.run == Run::Dry || !is_new {
            if options.run == Run::Dry {
                outcome.repaired = repaired;
            }
            outcome.left = found;
            return Ok(outcome);
        }
        let sent = (workshop.store(), &*packs);
        let runtime = &waiting.runtime;
        outcome.sent_bytes += push::send_packs(&mut open()?, sent, (runtime, observer))?;
        outcome.repaired.extend(repaired.iter().cloned());
        round_before = Some(repaired);
        data = Data::None;
    }
}

/// Collects what the store elsewhere lacks.
fn collect(
    mut remote: RemoteStore,
    sources: &Sources<'_, '_>,
    (workshop, options): (&Workshop, &Options<'_>),
    (waiting, observer): (&Waiting, &dyn Observer),
) -> Result<Collected, RemoteError> {
    let asking = async {
        // Damaged files of the index were told of by the verification.
        remote.refresh_around_damage(false).await?;
        remote.readable_refs().await
    };
    let (refs, _) = waiting.runtime.block_on(waiting.unless_stopped(asking))?;
    let tips: Vec<_> = refs.into_iter().map(|(_, id)| id).collect();
    let (client, location, mirror) = remote.into_parts();
    let packs = RemotePacks::of(client, location, waiting.clone());
    let packs = packs.with_contents(Contents::Forget);
    let stubs = mirror.into_store().with_distant(Arc::new(packs));
    let elsewhere = Elsewhere { stubs: &stubs, tips: &tips, level: options.level };
    let collected = repair::collect(&elsewhere, sources(), (workshop, options.run), observer);
    collected.map_err(|error| match error {
        RepairError::Store(error) => error.into(),
        RepairError::Reach(snap_core::ops::reach::ReachError::Store(error)) => error.into(),
        RepairError::Interrupted => RemoteError::Interrupted,
        error => RemoteError::Repair(Box::new(error)),
    })
}
