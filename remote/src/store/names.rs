//! Names of refs of which one would be a folder of the other: `x` and `x/y`.
//!
//! Not both of them can stand, since a store here, a folder and a server have files for
//! refs. What was deleted blocks nothing by itself. A local store and a server forget what
//! was deleted. A folder takes what says so away, under its lock. In a bucket it stays,
//! and is in nobody's way. A WebDAV or SFTP server, and a gateway that keeps a bucket on
//! a disk, have a file or a folder there. It cannot be taken away safely: a ref that
//! somebody makes anew meanwhile would go with it. Then the push says so.
//!
//! A bucket does not keep names apart, so a push that makes a ref lists those that are
//! there, before and after. Of two pushes at once at least one sees the other, and takes
//! its own back.

use std::collections::HashMap;

use snap_core::{base::id::CommitId, repo::ref_name::RefName};

use super::{REFS, RemoteError, RemoteStore};
use crate::service::{ServiceError, What, beside};

/// What is in the way of a ref.
#[derive(Clone, Debug)]
pub(crate) struct InTheWay {
    other: RefName,
    /// Where it stands; `None` for one that was deleted.
    commit: Option<CommitId>,
}

impl RemoteStore {
    /// What is in the way of refs that are to be made: of each one that stands, else one
    /// that was deleted.
    pub(crate) async fn in_the_way(
        &self,
        names: &[&RefName],
    ) -> Result<HashMap<RefName, InTheWay>, RemoteError> {
        let listed = self.client().list(REFS).await?;
        let there: Vec<RefName> =
            listed.iter().filter_map(|object| RefName::parse_full(&object.key)).collect();
        let mut found = HashMap::new();
        for name in names {
            for other in there.iter().filter(|other| name.is_beside(other)) {
                let commit = self.slot(other).await?.commit;
                let way = InTheWay { other: other.clone(), commit };
                if commit.is_some() {
                    found.insert((*name).clone(), way);
                    break;
                }
                found.insert((*name).clone(), way);
            }
        }
        Ok(found)
    }

    /// The error that a ref cannot be beside one that stands.
    pub(crate) fn stands_beside(&self, name: &RefName, way: &InTheWay) -> Option<RemoteError> {
        way.commit.map(|_| self.placed(beside(name, &way.other)))
    }

    /// The error that a ref cannot be made because of another one, deleted or not. A WebDAV
    /// server replaces a folder with all that is in it by a file of its name, so it is
    /// not tried there.
    pub(crate) fn cannot_be_made(&self, name: &RefName, way: &InTheWay) -> Option<RemoteError> {
        let error = self.stands_beside(name, way);
        error.or_else(|| self.client().has_folders().then(|| self.deleted_beside(name, way)))
    }

    /// The error that the place of a ref that was deleted is in the way.
    fn deleted_beside(&self, name: &RefName, way: &InTheWay) -> RemoteError {
        let refused = beside(name, &way.other);
        let message = format!("{}, which was deleted there", refused.message);
        self.placed(ServiceError { message, ..refused })
    }

    /// Why a ref could not be made: because of its name, if something is in its way.
    pub(crate) async fn explained(&self, name: &RefName, error: RemoteError) -> RemoteError {
        let is_refusal = |error: &ServiceError| {
            use What::{Denied, NotFound, Other, Refused, Unsupported};
            matches!(error.what, Refused | Other | Unsupported | Denied | NotFound)
        };
        match &error {
            RemoteError::Service(error) if is_refusal(error) => {}
            _ => return error,
        }
        let Ok(mut found) = self.in_the_way(&[name]).await else { return error };
        let Some(way) = found.remove(name) else { return error };
        self.stands_beside(name, &way).unwrap_or_else(|| self.deleted_beside(name, &way))
    }

    fn placed(&self, error: ServiceError) -> RemoteError {
        ServiceError { location: self.location().to_owned(), ..error }.into()
    }

    /// Whether nothing can lie under the key of a ref that could not be read: it is a
    /// folder of others there, or another one lies where its folder would be.
    pub(super) async fn is_no_ref(&self, name: &RefName) -> bool {
        match self.client().list(&format!("{name}/")).await {
            Ok(below) if !below.is_empty() => return true,
            _ => {}
        }
        for (at, _) in name.short().match_indices('/') {
            let Ok(above) = RefName::new(name.kind(), &name.short()[..at]) else { continue };
            if matches!(self.client().length(&above.to_string()).await, Ok(Some(_))) {
                return true;
            }
        }
        false
    }
}
