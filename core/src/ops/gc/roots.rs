//! The commits from which a marking begins.

use std::collections::BTreeSet;

use crate::{
    base::{id::CommitId, time::Time},
    ops::gc::{GcError, GcOptions},
    repo::{
        Repo,
        ref_name::{RefKind, RefName},
        refs::Head,
    },
};

/// The commits from which a marking begins.
#[derive(Debug, Default)]
pub(super) struct Roots {
    /// The commits at branches, tags and `HEAD`. They are complete, even if they were forgotten.
    pub(super) refs: BTreeSet<CommitId>,
    /// The remote-tracking refs, each with its commit.
    pub(super) tracking: Vec<(RefName, CommitId)>,
    /// Former values of refs, the commits of lost refs, and the base of the project.
    pub(super) former: BTreeSet<CommitId>,
}

impl Roots {
    /// Reads the roots.
    ///
    /// # Errors
    /// [`GcError::Ref`] if a ref is damaged: it may point at any commit.
    pub(super) fn read(repo: &Repo, options: &GcOptions) -> Result<Self, GcError> {
        let (refs, mut roots) = (repo.refs(), Self::default());
        for kind in [RefKind::Branch, RefKind::Tag, RefKind::Remote] {
            if let Some(error) = refs.misnamed(kind)?.pop() {
                return Err(error.into());
            }
            let listed = refs.list(kind)?;
            match kind {
                RefKind::Remote => roots.tracking = listed,
                _ => roots.refs.extend(listed.into_iter().map(|(_, id)| id)),
            }
        }
        if let Head::Detached(id) = refs.head()? {
            roots.refs.insert(id);
        }
        roots.former.extend(repo.base()?.unwrap_or_default().named());
        roots.former.extend(repo.lost_refs()?.into_iter().map(|(_, id)| id));
        let undo_secs = i64::try_from(options.undo.as_secs()).unwrap_or(i64::MAX);
        let since =
            Time { secs: options.present.secs.saturating_sub(undo_secs), ..options.present };
        for pointer in refs.logged()? {
            for line in refs.log_of(&pointer)?.iter().filter(|line| line.time >= since) {
                roots.former.extend(line.old.commit());
                roots.former.extend(line.new.commit());
            }
        }
        Ok(roots)
    }
}
