//! Push: what the other side lacks goes there, then refs move.
//!
//! ```text
//! 1  the refs, a listing of the index      meanwhile what is to go is worked
//!                                          out here, and goes if it is little
//! 2  packs                                 many at a time; with a new store its
//!                                          settings and first branch
//! 3  their outlines                        one object: now they count
//! 4  the refs                              compare-and-swap; what is superfluous
//!                                          in the index goes
//! ```
//!
//! Each line is one round trip where nothing is in the way; 1 and 2 are one
//! when little is to go. A store that is seen for the first time is looked at
//! in place of the listing, and listed in a round trip of its own if there is
//! one. Where all is there already the refs alone are asked for, and a listing
//! only if one of them is to move.
//!
//! Where the mirror says that something is damaged or lost there, or knows nothing yet, all
//! that the commits reach is walked, and what is lost goes again under the names of its
//! packs, if they are here.
//!
//! Interrupted at any point, what arrived is found again by its name: packs
//! are named by their bytes, gathering the same makes the same bytes, and a
//! note here says that some may be there. To a snap server a pack goes on where it
//! broke off, also in a later run. Elsewhere one of which only parts had arrived is
//! sent again; packs are of 64 MiB, and two at most are sent in parts at a time.
//!
//! Many small pushes leave many small packs there. Merging those is the work of
//! whoever collects garbage, and not done here.

mod ask;
mod outcome;
mod plan;
mod send;

use std::{collections::HashMap, path::Path, thread};

use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::Observer,
    },
    ops::select::{Gather, Holding, Selection},
    repo::{
        Repo,
        ref_name::{RefKind, RefName},
        refs::Head,
    },
    store::Store,
};
use tokio::runtime::Handle;

use self::{
    ask::{Answers, Leftovers, Question},
    send::Sending,
};
use super::is_before;
use crate::store::{
    CONFIG, Found, HEAD, RemoteError, RemoteStore, Settings,
    names::InTheWay,
    refs::{self, Slot},
};

pub use outcome::{Outcome, Pushed};
pub use plan::{Plan, plan};

/// Bytes of packs that go before it is known whether the refs may move.
const EAGER_BYTES: u64 = 8 << 20;

/// How often a ref that others move meanwhile is tried.
const RACES: usize = 8;

/// What may be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Move {
    /// A branch goes forward only, a tag is only made.
    #[default]
    Forward,
    /// A ref goes wherever it is told to.
    Force,
}

/// A ref that is to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Which.
    pub name: RefName,
    /// Where to.
    pub commit: CommitId,
    /// What may be moved.
    pub moves: Move,
}

/// Choices.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Which refs there are to move.
    pub refs: Vec<Update>,
    /// Where a scratch folder may be made.
    pub scratch: &'a Path,
}

/// Brings commits to the store elsewhere, and moves refs there.
///
/// # Errors
/// [`RemoteError`] when nothing could be done at all: no ref has then moved.
/// What hinders one ref is told in [`Outcome::refs`].
pub fn run(
    repo: &Repo,
    remote: &mut RemoteStore,
    options: &Options<'_>,
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<Outcome, RemoteError> {
    remote.must_be_another(repo.dir())?;
    runtime.block_on(remote.client().begin_push())?;
    let _hold = repo.store().hold_packs()?;
    let push = Push { repo, options, runtime, observer };
    let Prepared { slots, mut found, has_settings, selection, sending, arrived, mut fates } =
        push.prepare(remote, Eager::Yes)?;
    if found == Found::Nothing && remote.client().is_made_first() {
        runtime.block_on(remote.create(&repo.config().to_text(), &push.head()?))?;
        found = Found::Store;
    }
    let mut outcome = Outcome::default();
    if !has_settings {
        runtime.block_on(remote.mend_settings(&repo.config().to_text()))?;
        outcome.mended.push(CONFIG.to_owned());
    }
    if found == Found::Store && push.mends(remote) {
        let head = push.head()?;
        if runtime.block_on(remote.mend_head(&head))? {
            outcome.mended.push(HEAD.to_owned());
        }
    }
    if let Some(selection) = selection.as_ref().filter(|selection| selection.objects > 0) {
        outcome.objects = selection.objects;
        outcome.raw_bytes = selection.raw_bytes;
        outcome.sent_again = selection.lost;
        let sending = match sending {
            Some(sending) => sending,
            None => Sending::begin(remote, send::packs(selection)?, &arrived, runtime),
        };
        push.send(remote, found, sending, &mut outcome)?;
        let publication = remote.publication(selection.packs())?;
        runtime.block_on(remote.write_publication(publication))?;
        let sent: Vec<PackId> = selection.packs().into_iter().map(|(_, id)| id).collect();
        // A server may have kept what it had. The next verification reads it.
        if !remote.client().keeps_index() {
            remote.mirror().rely_again(&sent)?;
        }
    } else if found == Found::Nothing {
        runtime.block_on(remote.create(&repo.config().to_text(), &push.head()?))?;
    }
    if observer.cancelled() {
        return Err(RemoteError::Interrupted);
    }
    if !remote.client().keeps_index() {
        outcome.mended.extend(runtime.block_on(remote.mend_index())?);
    }
    runtime.block_on(push.move_refs(remote, &slots, &mut fates));
    let refs = options.refs.iter().zip(&slots).zip(&fates);
    let mended = refs.filter(|((_, slot), fate)| slot.is_damaged() && fate.has_moved());
    outcome.mended.extend(mended.map(|((update, _), _)| refs::key(&update.name)));
    let told = options.refs.iter().zip(slots).zip(fates);
    outcome.refs = told.map(|((update, slot), fate)| fate.told(update, &slot)).collect();
    Ok(outcome)
}

/// Sends packs of `store` as they are, in place of what has their names there, and
/// makes them count. No ref moves. Returns how many bytes were sent. Waits; not to be
/// called by a thread of the runtime.
///
/// # Errors
/// [`RemoteError`]; the packs count all together then, or none does.
pub fn send_packs(
    remote: &mut RemoteStore,
    (store, packs): (&Store, &[PackId]),
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<u64, RemoteError> {
    runtime.block_on(remote.client().begin_push())?;
    // What is damaged in the index cannot be named by what is new.
    runtime.block_on(remote.refresh_around_damage(false))?;
    let (paths, nothing) = (packs.iter().map(|id| (*id, store.pack_path(id))), HashMap::new());
    let packs_to_send = send::packs_at(paths)?;
    let sending = Sending::begin(remote, packs_to_send, &nothing, runtime);
    let (_, bytes) = runtime.block_on(sending.finish(observer))?;
    let publication = remote.publication(packs.iter().map(|id| (store, *id)).collect())?;
    runtime.block_on(remote.write_publication(publication))?;
    // A server may have kept what it had. The next verification reads it.
    if !remote.client().keeps_index() {
        remote.mirror().rely_again(packs)?;
    }
    Ok(bytes)
}

/// Deletes a ref elsewhere, if it stands where `expected` says, or wherever it
/// stands. Returns where it stood, `None` for what was no ref. Objects stay.
///
/// # Errors
/// [`RemoteError::NoRef`], [`RemoteError::Raced`].
pub fn delete(
    remote: &RemoteStore,
    name: &RefName,
    expected: Option<CommitId>,
    runtime: &Handle,
) -> Result<Option<CommitId>, RemoteError> {
    runtime.block_on(async {
        remote.client().begin_push().await?;
        let location = || remote.location().to_owned();
        let (found, slot) = futures::join!(remote.look(), remote.any_slot(name));
        if found? == Found::Nothing {
            return Err(RemoteError::NoStore { location: location() });
        }
        let mut slot = slot?;
        for _ in 0..RACES {
            let name = Box::new(name.clone());
            let commit = slot.commit;
            if commit.is_none() && !slot.is_damaged() {
                return Err(RemoteError::NoRef { name, location: location() });
            }
            if expected.is_some_and(|expected| Some(expected) != commit) {
                return Err(RemoteError::Raced { name, location: location(), theirs: commit });
            }
            match remote.swap(&name, &slot, None).await {
                Err(RemoteError::Raced { .. }) => slot = remote.any_slot(&name).await?,
                result => return result.map(|()| commit),
            }
        }
        Err(RemoteError::Held { name: Box::new(name.clone()), location: location() })
    })
}

/// What is to become of a ref, or became of it.
enum Fate {
    /// It stands there already.
    Stands,
    /// It shall move.
    Go,
    /// It moved, from where it stood in the end.
    Moved(Option<CommitId>),
    /// It may not, or could not.
    Not(RemoteError),
}

impl Fate {
    fn has_moved(&self) -> bool {
        matches!(self, Self::Moved(_))
    }

    fn told(self, update: &Update, slot: &Slot) -> Pushed {
        let (before, result) = match self {
            Self::Stands | Self::Go => (slot.commit, Ok(())),
            Self::Moved(before) => (before, Ok(())),
            Self::Not(error) => (slot.commit, Err(error)),
        };
        Pushed { name: update.name.clone(), before, after: update.commit, result }
    }
}

/// What says that the store there has all that its objects refer to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// Its index: what it names is complete.
    Index,
    /// Nothing, so all is walked that the commits reach.
    None,
}

/// Whether packs may go before all is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Eager {
    Yes,
    No,
}

/// What is known before anything is written, besides what went eagerly.
struct Prepared<'s> {
    slots: Vec<Slot>,
    found: Found,
    /// Whether the store has settings that can be used; a new one gets some.
    has_settings: bool,
    /// None when no ref is to move.
    selection: Option<Selection<'s>>,
    /// Packs that are on their way.
    sending: Option<Sending>,
    /// Lengths of packs that are there, as far as that was asked.
    arrived: HashMap<String, u64>,
    fates: Vec<Fate>,
}

/// What was worked out while the answers were on their way.
type Early<'s> = Option<(Selection<'s>, Option<Sending>)>;

struct Push<'a> {
    repo: &'a Repo,
    options: &'a Options<'a>,
    runtime: &'a Handle,
    observer: &'a dyn Observer,
}

impl<'a> Push<'a> {
    fn prepare(&self, remote: &mut RemoteStore, eager: Eager) -> Result<Prepared<'a>, RemoteError> {
        let question = self.question(remote)?;
        let was_damaged = remote.mirror().is_damaged();
        remote.pass_over_damaged_index();
        let known = remote.mirror().store().packs();
        let (answers, early) = self.ask(remote, question, eager);
        let Answers { slots, found, listed, settings, arrived } = answers?;
        let (mut found, mut has_settings) = match found {
            Err(error) if self.is_forced() && error.is_of_settings() => (Found::Store, false),
            found => (found?, true),
        };
        let is_anything = listed.as_ref().is_some_and(|listed| !listed.is_empty())
            || slots.iter().any(Slot::is_there);
        if is_anything {
            has_settings &= self.settings(remote, settings)?;
        }
        let mut fates = self.fates(remote, &slots)?;
        let goes = fates.iter().any(|fate| matches!(fate, Fate::Go));
        if goes && is_anything && question == Question::RefsAndIndex {
            let settings = self.runtime.block_on(remote.settings())?;
            has_settings &= self.settings(remote, Some(settings))?;
        }
        match (question, listed) {
            (_, Some(listed)) => self.runtime.block_on(remote.take_in_listed(listed))?,
            (Question::Refs, None) if goes => self.runtime.block_on(remote.refresh())?,
            (Question::Survey, None) if found == Found::Store => {
                self.runtime.block_on(remote.refresh())?;
            }
            _ => {}
        }
        if goes && question != Question::Survey && remote.index_files() == 0 {
            found = self.runtime.block_on(remote.survey())?;
            if found == Found::Nothing && !self.is_forced() {
                // Not to make one the next time either.
                remote.mirror().remember_seen();
                return Err(RemoteError::Emptied { location: remote.location().to_owned() });
            }
        }
        if found == Found::Nothing {
            remote.forget()?;
        } else if question != Question::Refs {
            self.check_tips(remote, &slots)?;
        }
        let mut prepared = Prepared {
            slots,
            found,
            has_settings: has_settings || found == Found::Nothing,
            selection: None,
            sending: None,
            arrived,
            fates: Vec::new(),
        };
        // What is known to be lost there goes again, whether or not a ref moves. Of a store that
        // is seen for the first time nobody here knows that it is complete.
        let is_damaged = remote.mirror().is_damaged();
        let is_new_here = question == Question::Survey && found == Found::Store;
        let proof = match is_damaged || (is_new_here && !remote.client().keeps_index()) {
            true => Proof::None,
            false => Proof::Index,
        };
        if goes || proof == Proof::None {
            let commits = self.commits(&fates, proof);
            let all = commits.len() == fates.len();
            let same = all && is_damaged == was_damaged && known == remote.mirror().store().packs();
            match early?.filter(|_| same) {
                Some((selection, sending)) => {
                    (prepared.selection, prepared.sending) = (Some(selection), sending);
                }
                None => prepared.selection = Some(self.select(remote, &commits, proof)?),
            }
        }
        prepared.fates.append(&mut fates);
        Ok(prepared)
    }

    /// Whether the settings can be used. Where they are to be replaced, false.
    fn settings(
        &self,
        remote: &RemoteStore,
        settings: Option<Settings>,
    ) -> Result<bool, RemoteError> {
        match settings {
            None | Some(Settings::Usable) => Ok(true),
            Some(_) if self.is_forced() => Ok(false),
            Some(Settings::Unusable(error)) => Err(error),
            Some(Settings::Lost) => {
                Err(RemoteError::NoSettings { location: remote.location().to_owned() })
            }
        }
    }

    /// Sees to it that the index tells of the commits on which refs stand there. A file of it
    /// that is lost is remembered as damage.
    fn check_tips(&self, remote: &mut RemoteStore, slots: &[Slot]) -> Result<(), RemoteError> {
        let store = self.repo.store();
        let is_lacking = |remote: &RemoteStore| {
            for commit in slots.iter().filter_map(|slot| slot.commit) {
                // What is not here either cannot be sent again.
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

    /// Whether `HEAD` is looked at, too.
    fn mends(&self, remote: &RemoteStore) -> bool {
        !remote.client().keeps_index() && (self.is_forced() || remote.mirror().is_damaged())
    }

    /// Whether a new store may take the place of one that is gone.
    fn is_forced(&self) -> bool {
        self.options.refs.iter().any(|update| update.moves == Move::Force)
    }

    /// What has to be asked first.
    fn question(&self, remote: &RemoteStore) -> Result<Question, RemoteError> {
        if !remote.mirror().was_seen() {
            return Ok(Question::Survey);
        }
        if remote.mirror().is_damaged() {
            return Ok(Question::All);
        }
        for update in &self.options.refs {
            if !remote.mirror().has(&update.commit.object())? {
                return Ok(Question::All);
            }
        }
        Ok(match remote.client().keeps_index() {
            true => Question::Refs,
            false if self.is_forced() => Question::All,
            false => Question::RefsAndIndex,
        })
    }

    /// Asks, and meanwhile works out what is to go if nothing is new there.
    fn ask(
        &self,
        remote: &RemoteStore,
        question: Question,
        eager: Eager,
    ) -> (Result<Answers, RemoteError>, Result<Early<'a>, RemoteError>) {
        let names: Vec<&RefName> = self.options.refs.iter().map(|update| &update.name).collect();
        // Before anything is sent, which would change it.
        let leftovers = Leftovers::of(remote.mirror());
        let goes = eager == Eager::Yes
            && question == Question::All
            && leftovers == Leftovers::None
            && !remote.mirror().store().packs().is_empty();
        let eager = if goes { Eager::Yes } else { Eager::No };
        thread::scope(|scope| {
            let ask = || self.runtime.block_on(ask::ask(remote, &names, (question, leftovers)));
            let asking = scope.spawn(ask);
            let early = match question {
                Question::Refs | Question::RefsAndIndex => Ok(None),
                Question::All | Question::Survey => self.begin(remote, eager),
            };
            (asking.join().expect("asking does not panic"), early)
        })
    }

    fn begin(&self, remote: &RemoteStore, eager: Eager) -> Result<Early<'a>, RemoteError> {
        let commits: Vec<CommitId> = self.options.refs.iter().map(|update| update.commit).collect();
        let proof = match remote.mirror().is_damaged() {
            true => Proof::None,
            false => Proof::Index,
        };
        let selection = self.select(remote, &commits, proof)?;
        let packs = send::packs(&selection)?;
        let bytes: u64 = packs.iter().map(|pack| pack.bytes).sum();
        let goes = eager == Eager::Yes && bytes <= EAGER_BYTES;
        if !goes {
            return Ok(Some((selection, None)));
        }
        let sending = Sending::begin(remote, packs, &HashMap::new(), self.runtime);
        Ok(Some((selection, Some(sending))))
    }

    fn select(
        &self,
        remote: &RemoteStore,
        commits: &[CommitId],
        proof: Proof,
    ) -> Result<Selection<'a>, RemoteError> {
        let level = self.repo.config().compression.level;
        let lost = remote.mirror().damaged_packs();
        let gather = Gather { scratch: self.options.scratch, level, lost: &lost };
        let store = self.repo.store();
        let holdings = match proof {
            Proof::Index => remote.mirror().holdings(),
            Proof::None => remote.mirror().unproven_holdings(),
        };
        let has = |id: &ObjectId| match holdings.of(id)? {
            // What is not here cannot be sent again.
            Holding::Alone | Holding::Lost if !store.is_stored(id)? => Ok(Holding::All),
            holding => Ok(holding),
        };
        Ok(Selection::make(self.repo.store(), commits, &has, gather, self.observer)?)
    }

    /// Commits of refs that are to move and, if the store there may lack something, of
    /// those that stand where they should.
    fn commits(&self, fates: &[Fate], proof: Proof) -> Vec<CommitId> {
        let going = self.options.refs.iter().zip(fates);
        let going = going.filter(|(_, fate)| match fate {
            Fate::Go => true,
            Fate::Stands => proof == Proof::None,
            Fate::Moved(_) | Fate::Not(_) => false,
        });
        going.map(|(update, _)| update.commit).collect()
    }

    fn fates(&self, remote: &RemoteStore, slots: &[Slot]) -> Result<Vec<Fate>, RemoteError> {
        let updates = self.options.refs.iter().zip(slots);
        updates.map(|(update, slot)| self.fate(remote, update, slot)).collect()
    }

    fn fate(
        &self,
        remote: &RemoteStore,
        update: &Update,
        slot: &Slot,
    ) -> Result<Fate, RemoteError> {
        if let Some(damage) = remote.damage(&update.name, slot) {
            return Ok(match update.moves {
                Move::Force => Fate::Go,
                Move::Forward => Fate::Not(damage),
            });
        }
        let Some(theirs) = slot.commit else {
            return Ok(match slot.is_writable() {
                true => Fate::Go,
                false => Fate::Not(remote.newer(&update.name)),
            });
        };
        let (name, location) = (Box::new(update.name.clone()), remote.location().to_owned());
        if theirs == update.commit {
            return Ok(Fate::Stands);
        }
        if !slot.is_writable() {
            return Ok(Fate::Not(remote.newer(&update.name)));
        }
        if update.moves == Move::Force {
            return Ok(Fate::Go);
        }
        let store = self.repo.store();
        let is_branch = update.name.kind() == RefKind::Branch;
        if is_branch && store.locate(&theirs.object())?.is_none() {
            return Ok(Fate::Not(RemoteError::Behind { name, location, theirs }));
        }
        match is_branch && is_before(store, theirs, update.commit)? {
            true => Ok(Fate::Go),
            false => Ok(Fate::Not(RemoteError::Diverged { name, location, theirs })),
        }
    }

    /// The branch that whoever clones begins with.
    fn head(&self) -> Result<RefName, RemoteError> {
        let refs = self.options.refs.iter().map(|update| &update.name);
        let pushed = |name: &RefName| self.options.refs.iter().any(|update| update.name == *name);
        match self.repo.refs().head()? {
            Head::Branch(name) if pushed(&name) => Ok(name),
            head => {
                let first = refs.clone().find(|name| name.kind() == RefKind::Branch).cloned();
                Ok(first.unwrap_or(match head {
                    Head::Branch(name) => name,
                    Head::Detached(_) => RefName::branch("main").expect("a good name"),
                }))
            }
        }
    }

    /// Waits for packs, and makes a store where there is none.
    fn send(
        &self,
        remote: &RemoteStore,
        found: Found,
        sending: Sending,
        outcome: &mut Outcome,
    ) -> Result<(), RemoteError> {
        outcome.resumed = sending.resumed;
        let head = self.head()?;
        let create = async {
            match found {
                Found::Nothing => remote.create(&self.repo.config().to_text(), &head).await,
                Found::Store => Ok(()),
            }
        };
        let (created, sent) =
            self.runtime.block_on(async { futures::join!(create, sending.finish(self.observer)) });
        if let Err(RemoteError::Store(error)) = &sent {
            // A pack that is not what its name says must not be relied on here either.
            let _ = self.repo.store().shadow_damage(error);
        }
        (outcome.packs, outcome.sent_bytes) = sent?;
        created?;
        Ok(())
    }

    async fn move_refs(&self, remote: &RemoteStore, slots: &[Slot], fates: &mut [Fate]) {
        let made = self.made(remote, slots, fates);
        self.refuse_beside(remote, &made, fates).await;
        self.move_all(remote, slots, fates).await;
        self.take_back(remote, &made, fates).await;
    }

    /// Positions of the refs that are made in a store that is there, where the service does
    /// not keep names apart.
    fn made(&self, remote: &RemoteStore, slots: &[Slot], fates: &[Fate]) -> Vec<usize> {
        if remote.client().keeps_names_apart() || remote.is_new() {
            return Vec::new();
        }
        let goes = |at: &usize| matches!(fates[*at], Fate::Go) && slots[*at].commit.is_none();
        (0..fates.len()).filter(goes).collect()
    }

    /// Does not make a ref that would be beside one that stands.
    async fn refuse_beside(&self, remote: &RemoteStore, made: &[usize], fates: &mut [Fate]) {
        for (at, way) in self.beside(remote, made).await {
            if let Some(error) = remote.cannot_be_made(&self.options.refs[at].name, &way) {
                fates[at] = Fate::Not(error);
            }
        }
    }

    /// Deletes refs that were made while somebody else made one beside them.
    async fn take_back(&self, remote: &RemoteStore, made: &[usize], fates: &mut [Fate]) {
        let moved = |at: &usize| matches!(fates[*at], Fate::Moved(None));
        let made: Vec<usize> = made.iter().copied().filter(moved).collect();
        for (at, way) in self.beside(remote, &made).await {
            let Update { name, commit, .. } = &self.options.refs[at];
            let Some(error) = remote.stands_beside(name, &way) else { continue };
            let error = match remote.slot(name).await {
                Ok(slot) if slot.commit == Some(*commit) => {
                    remote.swap(name, &slot, None).await.err().unwrap_or(error)
                }
                // Somebody else has moved it on.
                _ => error,
            };
            fates[at] = Fate::Not(error);
        }
    }

    /// What is in the way of some refs, by their positions.
    async fn beside(&self, remote: &RemoteStore, made: &[usize]) -> Vec<(usize, InTheWay)> {
        if made.is_empty() {
            return Vec::new();
        }
        let name = |at: usize| &self.options.refs[at].name;
        let names: Vec<&RefName> = made.iter().map(|at| name(*at)).collect();
        // A service that cannot list cannot be moved on either, and says so then.
        let Ok(mut found) = remote.in_the_way(&names).await else { return Vec::new() };
        made.iter().filter_map(|at| Some((*at, found.remove(name(*at))?))).collect()
    }

    async fn move_all(&self, remote: &RemoteStore, slots: &[Slot], fates: &mut [Fate]) {
        let updates = self.options.refs.iter().zip(slots).zip(fates);
        let going = updates.filter(|(_, fate)| matches!(fate, Fate::Go));
        let moves = going.map(|((update, slot), fate)| {
            let moved = async move {
                let moved = self.move_ref(remote, update, slot.clone()).await;
                *fate = moved.unwrap_or_else(Fate::Not);
            };
            (&update.name, moved)
        });
        let moves = async {
            let mut moves: Vec<_> = moves.collect();
            // A server has clones begin with the branch that is there first.
            let is_empty = slots.iter().all(|slot| slot.commit.is_none());
            if is_empty && remote.client().is_made_first() {
                let head = self.head().ok();
                let is_head = |(name, _): &(&RefName, _)| Some(*name) == head.as_ref();
                if let Some(at) = moves.iter().position(is_head) {
                    moves.remove(at).1.await;
                }
            }
            futures::future::join_all(moves.into_iter().map(|(_, moved)| moved)).await
        };
        // What cannot be removed is there for the next push.
        let (_, _superfluous) = futures::join!(moves, remote.remove_superfluous());
    }

    async fn move_ref(
        &self,
        remote: &RemoteStore,
        update: &Update,
        mut slot: Slot,
    ) -> Result<Fate, RemoteError> {
        for _ in 0..RACES {
            let new = (Some(update.commit), self.observer);
            match remote.swap_observed(&update.name, &slot, new).await {
                Ok(()) => return Ok(Fate::Moved(slot.commit)),
                Err(RemoteError::Raced { .. }) => {}
                Err(error) if slot.commit.is_none() => {
                    return Err(remote.explained(&update.name, error).await);
                }
                Err(error) => return Err(error),
            }
            slot = remote.any_slot(&update.name).await?;
            match self.fate(remote, update, &slot)? {
                Fate::Go => {}
                fate => return Ok(fate),
            }
        }
        let (name, location) = (Box::new(update.name.clone()), remote.location().to_owned());
        Err(RemoteError::Held { name, location })
    }
}
