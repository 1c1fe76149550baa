//! The rules that keep a push complete while a collector deletes.

/// A rule of the protocol. The model must find a counterexample when one is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// After the epoch was raised, the collector writes every ref again with the new epoch.
    TouchRefs,
    /// A touch changes the version of a ref, so a writer that read it before loses its swap.
    RefVersion,
    /// The collector lists the refs that it touches after it raised the epoch, not before.
    ListRefsAfterEpoch,
    /// The collector lists the index after it touched the last ref, not before.
    ListIndexAfterTouch,
    /// Dead objects in a pack that stays are shadowed.
    ShadowPartly,
    /// A collector deletes only packs that were shadowed before it touched the refs.
    SweepOnlyFenced,
    /// When a collector names an index file that came after the fence, it shadows what is dead in
    /// the file's packs.
    ShadowLateFiles,
    /// A writer creates a new ref as deleted before it reads the garbage collection state.
    ReserveRef,
    /// An index file counts only if the state names it, or if it has the epoch of the reader.
    IndexEpoch,
    /// A writer uploads its index file after all of its packs.
    IndexLast,
    /// A writer does not use the name of a pack that has shadowed objects.
    NameOfShadowed,
    /// The names of deleted packs are never used again.
    NameOfGone,
    /// After a change of epoch a writer sends its packs again.
    SendAgain,
    /// A merged index file takes over only files that count.
    MergeCounted,
    /// An index file is removed only if the larger one that replaces it counts.
    RemoveMerged,
    /// An index file stays if the larger one is of an earlier epoch. A collector may be about to
    /// replace the larger file by the smaller one.
    RemoveOlder,
    /// The index file of a repacked pack is written and named before the old pack goes.
    RepackIndex,
    /// A copy holds only objects that the state did not shadow before the collector read the refs.
    CopyUnshadowed,
    /// A pack goes only if the copies of its objects stay: packs cannot rely on each other.
    RepackCopies,
    /// The link of a commit is stored before the commit is forgotten.
    LinkFirst,
    /// A link stands only for a parent, never for a commit that a ref points at.
    LinkIsNoCommit,
    /// The undo of a forget checks that no object of the commit went.
    UndoChecks,
    /// A forget and its undo change the version of the state, so a collector begins again.
    ForgetVersion,
    /// A writer refuses purged objects.
    RefusePurged,
    /// A collector does not withdraw the shadow of a purged object, even if a ref reaches it.
    KeepPurgedShadowed,
    /// A local writer looks its objects up again, under the lock, when the epoch has changed.
    LookAgain,
    /// A local writer gives a pack its name under the lock, and only in the epoch in which it looked
    /// objects up. So no pack of an earlier epoch appears after a collection.
    PublishInEpoch,
    /// A local collector lists the packs again under the lock, and shadows what is dead in them.
    PacksUnderLock,
    /// A local collector reads the refs under the lock under which it publishes what goes.
    RefsUnderLock,
    /// A local collector deletes only packs that are still listed as going, under the lock.
    DeleteListed,
}

impl Guard {
    /// All guards.
    pub const ALL: [Self; 30] = [
        Self::TouchRefs,
        Self::RefVersion,
        Self::ListRefsAfterEpoch,
        Self::ListIndexAfterTouch,
        Self::ShadowPartly,
        Self::SweepOnlyFenced,
        Self::ShadowLateFiles,
        Self::ReserveRef,
        Self::IndexEpoch,
        Self::IndexLast,
        Self::NameOfShadowed,
        Self::NameOfGone,
        Self::SendAgain,
        Self::MergeCounted,
        Self::RemoveMerged,
        Self::RemoveOlder,
        Self::RepackIndex,
        Self::CopyUnshadowed,
        Self::RepackCopies,
        Self::LinkFirst,
        Self::LinkIsNoCommit,
        Self::UndoChecks,
        Self::ForgetVersion,
        Self::RefusePurged,
        Self::KeepPurgedShadowed,
        Self::LookAgain,
        Self::PublishInEpoch,
        Self::PacksUnderLock,
        Self::RefsUnderLock,
        Self::DeleteListed,
    ];

    /// Returns the scenario that has a counterexample when the guard is removed.
    pub fn needed_in(self) -> &'static str {
        match self {
            Self::TouchRefs
            | Self::RefVersion
            | Self::ListIndexAfterTouch
            | Self::ShadowPartly
            | Self::SweepOnlyFenced
            | Self::IndexEpoch
            | Self::IndexLast
            | Self::MergeCounted => "a push and a collection",
            Self::ListRefsAfterEpoch | Self::ReserveRef => "two pushes and a collection",
            Self::ShadowLateFiles | Self::RemoveMerged => {
                "a push, a collection and a merge of index files"
            }
            Self::RemoveOlder => "a push, a collection and a removal of index files",
            Self::NameOfShadowed => "a push in two packs and a collection",
            Self::NameOfGone | Self::SendAgain => "a new branch and two collections",
            Self::RepackIndex => "a push and a collection that repacks",
            Self::CopyUnshadowed => "a copy of something that dies again",
            Self::RepackCopies => "two packs with the same object",
            Self::LinkFirst => "a forget and a collection",
            Self::LinkIsNoCommit => "a branch at a forgotten commit",
            Self::UndoChecks | Self::ForgetVersion => "an undo of a forget and a collection",
            Self::RefusePurged => "a purge and a push of the same tree",
            Self::KeepPurgedShadowed => "a purge, a push and a collection",
            Self::LookAgain | Self::PublishInEpoch | Self::PacksUnderLock | Self::RefsUnderLock => {
                "a commit and a local collection"
            }
            Self::DeleteListed => "a commit of what two local collections delete",
        }
    }
}

/// The guards that hold in a run: all, or all but one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guards {
    /// The guard that is removed.
    pub removed: Option<Guard>,
}

impl Guards {
    pub(crate) fn hold(self, guard: Guard) -> bool {
        self.removed != Some(guard)
    }
}
