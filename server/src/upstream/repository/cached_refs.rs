//! The refs in the cache, which follow those upstream.

use std::{path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use snap_core::{
    base::{id::CommitId, time::Time},
    repo::{
        Repo,
        ref_name::{RefKind, RefName},
        refs::{Damage, ExpectedRef, Head, RefError, RefLogMessage},
    },
};
use snap_remote::peer::RemoteError;

use crate::ref_log;

/// File in `cache/` of the local store: the fingerprint of its refs when they last matched those
/// upstream. If the refs have another fingerprint now, some of them were lost.
const FOLLOWED: &str = "followed";

/// The refs of the store upstream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UpstreamRefs {
    pub(super) refs: Vec<(RefName, CommitId)>,
    /// Refs that are damaged upstream.
    pub(super) damaged: Vec<RefName>,
    /// The branch that a clone begins with; `None` when `HEAD` is damaged upstream.
    pub(super) head: Option<RefName>,
}

/// The refs in the cache.
#[derive(Debug)]
pub(super) struct CachedRefs {
    repo: Arc<Repo>,
    /// The fingerprint of the refs when they last matched those upstream, if they ever did.
    followed: Mutex<Option<String>>,
}

impl CachedRefs {
    /// Opens the refs of a cache. They have followed if they are as an earlier server left them.
    pub(super) fn of(repo: &Arc<Repo>) -> Self {
        let refs = Self { repo: Arc::clone(repo), followed: Mutex::default() };
        let written = fs_err::read_to_string(refs.path()).ok();
        let followed = written.filter(|written| refs.fingerprint().is_ok_and(|is| is == *written));
        *refs.followed.lock() = followed;
        refs
    }

    fn path(&self) -> PathBuf {
        self.repo.dir().join("cache").join(FOLLOWED)
    }

    /// Returns a hash of all refs and of their commits.
    fn fingerprint(&self) -> Result<String, RefError> {
        let refs = self.repo.refs();
        let mut hash = blake3::Hasher::new();
        hash.update(format!("{:?}\n", refs.head()?).as_bytes());
        for kind in [RefKind::Branch, RefKind::Tag] {
            let (readable, damaged) = refs.list_readable(kind)?;
            for (name, at) in readable {
                hash.update(format!("{name} {at}\n").as_bytes());
            }
            for (name, error) in damaged {
                let damage = refs.damage(&name)?.ok_or(error)?;
                hash.update(format!("{name} {}\n", damage.tag()).as_bytes());
            }
        }
        Ok(hash.finalize().to_hex().to_string())
    }

    /// Returns true if the refs matched those upstream at some time.
    pub(super) fn have_followed(&self) -> bool {
        self.followed.lock().is_some()
    }

    /// Returns true if the refs are as they were when they last matched those upstream. Files of a
    /// cache may be deleted one by one.
    pub(super) fn are_unchanged(&self) -> Result<bool, RefError> {
        let followed = self.followed.lock().clone();
        Ok(Some(self.fingerprint()?) == followed)
    }

    /// Records that the refs match those upstream.
    pub(super) fn remember(&self) -> Result<(), RefError> {
        let fingerprint = self.fingerprint()?;
        let mut followed = self.followed.lock();
        if followed.as_ref() != Some(&fingerprint) {
            let tmp = self.repo.dir().join("tmp");
            // If it cannot be written, the next server serves no refs before it has compared them.
            let _ = self.repo.disk().write_whole(&tmp, &self.path(), fingerprint.as_bytes());
            *followed = Some(fingerprint);
        }
        Ok(())
    }

    /// Moves the refs to their commits upstream. Returns true if that was possible for all of them.
    pub(super) fn follow(&self, known: &UpstreamRefs) -> Result<bool, RemoteError> {
        let UpstreamRefs { refs, damaged, head } = known;
        let mut is_all = true;
        let change = RefLogMessage { time: Time::now(), who: "upstream", reason: ref_log::FOLLOW };
        let ours = self.repo.refs();
        for (name, commit) in refs {
            if matches!(ours.read(name), Err(RefError::Damaged { .. })) {
                ours.repair(name, *commit, &change)?;
            }
        }
        for kind in [RefKind::Branch, RefKind::Tag] {
            let (readable, unreadable) = ours.list_readable(kind)?;
            for (name, at) in readable {
                let mut there = refs.iter().map(|(other, _)| other).chain(damaged);
                if there.all(|other| *other != name) {
                    ours.update(&name, Some(at), None, &change)?;
                }
            }
            for (name, error) in unreadable {
                if damaged.contains(&name) {
                    continue;
                }
                let damage = ours.damage(&name)?.ok_or(error)?;
                ours.swap(&name, ExpectedRef::Damaged(damage), None, &change)?;
            }
        }
        for name in damaged {
            if ours.damage(name)? != Some(Damage::elsewhere()) {
                tracing::warn!(%name, "a ref is damaged upstream");
                match ours.put_damaged(name) {
                    Err(RefError::NameConflict { .. }) => is_all = false,
                    put => put?,
                }
            }
        }
        for (name, commit) in refs {
            if self.repo.store().locate(&commit.object())?.is_none() {
                tracing::error!(%name, %commit, "a ref upstream points at a commit that upstream lacks");
                is_all = false;
                continue;
            }
            ours.update(name, ours.read(name)?, Some(*commit), &change)?;
        }
        match head {
            Some(head) => ours.set_head(&ours.head()?, &Head::Branch(head.clone()), &change)?,
            None => tracing::warn!("HEAD is damaged upstream"),
        }
        Ok(is_all)
    }

    /// Moves a ref that this server has moved upstream.
    pub(super) fn move_one(
        &self,
        name: &RefName,
        new: Option<CommitId>,
        who: &str,
    ) -> Result<(), RefError> {
        let change = RefLogMessage { time: Time::now(), who, reason: ref_log::PUSH };
        let refs = self.repo.refs();
        match refs.damage(name)? {
            Some(damage) if damage == Damage::elsewhere() => {
                refs.swap(name, ExpectedRef::Damaged(damage), new, &change)?;
            }
            _ => refs.update(name, refs.read(name)?, new, &change)?,
        }
        if self.have_followed() { self.remember() } else { Ok(()) }
    }
}
