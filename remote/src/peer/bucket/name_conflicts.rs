//! Conflicts between names of refs, where one is a folder of the other: `x` and `x/y`.
//!
//! Both cannot exist, since a local store, a folder and a server keep refs as files. The tombstone
//! of a deleted ref may conflict, too. A local store and a server keep no tombstones. A folder
//! removes a tombstone under its lock. In a bucket a tombstone stays, and blocks nothing. On a
//! WebDAV or SFTP server, and in a gateway that keeps a bucket on a disk, a tombstone is a file
//! that blocks the name. A client cannot remove it safely, because another client may create a ref
//! in its place at the same moment. So the push reports the conflict.
//!
//! A bucket does not refuse such names itself. So a push that creates a ref lists the existing refs
//! before and after. Of two concurrent pushes at least one sees the other, and removes its own ref.
//! If both are killed before that, both refs stay. Readers then skip the ref that lies below the
//! other, and `verify` reports it, until the user deletes one of them.

use std::collections::{BTreeSet, HashMap, HashSet};

use snap_core::{
    base::{id::CommitId, observe::Observer},
    repo::ref_name::RefName,
};

use super::BucketStore;
use crate::{
    bucket::{FailureDetail, FailureReason, ServiceError, ref_name_conflict},
    peer::{REFS, RemoteError, all_refs::outer_names},
};

/// An object that blocks the name of a ref.
#[derive(Clone, Debug)]
pub(crate) struct BlockingRef {
    other: RefName,
    /// The commit of the other ref; `None` if it is deleted.
    commit: Option<CommitId>,
}

/// The names of the refs in a bucket, and of the objects that block them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefNames<'s>(&'s BucketStore);

impl BucketStore {
    pub(super) fn ref_names(&self) -> RefNames<'_> {
        RefNames(self)
    }
}

impl RefNames<'_> {
    /// Returns the refs that block the names of new refs. For each name, prefers an existing ref to
    /// a deleted one.
    pub(crate) async fn blocking_refs(
        &self,
        names: &[&RefName],
    ) -> Result<HashMap<RefName, BlockingRef>, RemoteError> {
        let listed = self.0.client.list(REFS).await?;
        let there: Vec<RefName> =
            listed.iter().filter_map(|object| RefName::parse_full(&object.key)).collect();
        let mut found = HashMap::new();
        for name in names {
            for other in there.iter().filter(|other| name.conflicts_with(other)) {
                let commit = self.0.slot(other).await?.commit;
                let way = BlockingRef { other: other.clone(), commit };
                if commit.is_some() {
                    found.insert((*name).clone(), way);
                    break;
                }
                found.insert((*name).clone(), way);
            }
        }
        Ok(found)
    }

    /// Returns the error for a name that an existing ref blocks.
    pub(crate) fn stands_beside(&self, name: &RefName, way: &BlockingRef) -> Option<RemoteError> {
        way.commit.map(|_| self.at_location(ref_name_conflict(name, &way.other)))
    }

    /// Returns the error for a name that another ref blocks, existing or deleted. A WebDAV server
    /// would replace a folder and everything in it by a file of the same name, so the push must not
    /// try the write.
    pub(crate) fn cannot_be_made(&self, name: &RefName, way: &BlockingRef) -> Option<RemoteError> {
        let error = self.stands_beside(name, way);
        error.or_else(|| self.0.client.facts().has_folders.then(|| self.deleted_beside(name, way)))
    }

    /// Returns the error for a name that the tombstone of a deleted ref blocks.
    fn deleted_beside(&self, name: &RefName, way: &BlockingRef) -> RemoteError {
        let refused = ref_name_conflict(name, &way.other);
        let message = format!("{}, which was deleted there", refused.message);
        let detail = Some(FailureDetail::NameReserved);
        self.at_location(ServiceError { message, detail, ..refused })
    }

    /// Replaces the error of creating a ref, if another ref blocks its name.
    pub(crate) async fn explain_conflict(&self, name: &RefName, error: RemoteError) -> RemoteError {
        let is_refusal = |error: &ServiceError| {
            use FailureReason::{Denied, NotFound, Other, Refused, Unsupported};
            matches!(error.reason, Refused | Other | Unsupported | Denied | NotFound)
        };
        match &error {
            RemoteError::Service(error) if is_refusal(error) => {}
            _ => return error,
        }
        let Ok(mut found) = self.blocking_refs(&[name]).await else { return error };
        let Some(way) = found.remove(name) else { return error };
        self.stands_beside(name, &way).unwrap_or_else(|| self.deleted_beside(name, &way))
    }

    /// Returns an error for each object that is not a ref and conflicts with another key. Other
    /// readers ignore such an object. Informs `observer` about each key below `refs/` that cannot name
    /// a branch or tag.
    ///
    /// # Errors
    /// [`RemoteError::Service`] if the refs cannot be listed or read.
    pub(crate) async fn check_ref_names(
        &self,
        observer: &dyn Observer,
    ) -> Result<Vec<RemoteError>, RemoteError> {
        let mut problems = Vec::new();
        let listed = self.0.list_refs().await?;
        listed.misnamed.iter().for_each(|file| file.note(Some(&*self.0.location), observer));
        let names: HashSet<RefName> = listed.names.into_iter().collect();
        let mut beside = BTreeSet::new();
        for name in &names {
            let outer: Vec<_> = outer_names(name).filter(|outer| names.contains(outer)).collect();
            if !outer.is_empty() {
                beside.insert(name.clone());
                beside.extend(outer);
            }
        }
        for name in &beside {
            problems.extend(self.0.why_no_ref(name).await?);
        }
        Ok(problems)
    }

    fn at_location(&self, error: ServiceError) -> RemoteError {
        ServiceError { location: self.0.location.clone(), ..error }.into()
    }

    /// Returns true if an unreadable key cannot be a ref: it is a folder of other refs, or one of
    /// its parent folders is a ref.
    pub(super) async fn is_no_ref(&self, name: &RefName) -> bool {
        // A file server may list a file as the content of a folder with its name.
        let is_file = async || matches!(self.0.client.head(&name.to_string()).await, Ok(Some(1..)));
        if self.0.client.facts().has_folders && is_file().await {
            return false;
        }
        match self.0.client.list(&format!("{name}/")).await {
            Ok(below) if !below.is_empty() => return true,
            _ => {}
        }
        for above in outer_names(name) {
            if matches!(self.0.client.head(&above.to_string()).await, Ok(Some(_))) {
                return true;
            }
        }
        false
    }
}
