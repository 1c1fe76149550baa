//! Refs elsewhere: read, compared and swapped.
//!
//! A ref is two lines: the id of the commit, and a nonce that says who wrote
//! it. A write whose reply was lost may have happened, and then looks like a
//! conflict when it is made again: so a conflict is believed only after reading
//! the ref and finding somebody else's nonce.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use snap_core::{base::id::CommitId, repo::ref_name::RefName};

use super::{RemoteError, RemoteStore};
use crate::service::{Object, Version, What, When};

/// Where a ref stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// At which commit.
    pub commit: CommitId,
    nonce: String,
    version: Option<Version>,
}

/// What a write that is made only once came to.
enum Swapped {
    Done,
    Lost,
}

fn key(name: &RefName) -> String {
    format!("refs/{}/{}", name.kind().folder(), name.short())
}

fn nonce() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}

impl RemoteStore {
    /// Where a ref stands.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] when it is no ref.
    pub async fn standing(&self, name: &RefName) -> Result<Option<Standing>, RemoteError> {
        let key = key(name);
        let found = self.client.find(&key).await?;
        found.map(|object| self.parse(&key, &object)).transpose()
    }

    fn parse(&self, key: &str, object: &Object) -> Result<Standing, RemoteError> {
        let text = std::str::from_utf8(&object.bytes).unwrap_or("");
        let mut lines = text.lines();
        let commit = lines.next().and_then(|line| line.parse().ok());
        let commit = commit.ok_or_else(|| RemoteError::Damaged {
            key: key.to_owned(),
            location: self.location.clone(),
            why: "it is not a commit id".to_owned(),
        })?;
        let nonce = lines.next().unwrap_or_default().to_owned();
        Ok(Standing { commit, nonce, version: object.version.clone() })
    }

    /// Moves a ref to `new` if it stands where `expected` says.
    ///
    /// # Errors
    /// [`RemoteError::Raced`] when it does not.
    pub async fn swap(
        &self,
        name: &RefName,
        expected: Option<&Standing>,
        new: CommitId,
    ) -> Result<(), RemoteError> {
        let (key, nonce) = (key(name), nonce());
        let can = self.client.conditions();
        let when = match expected {
            None if can.absent => When::Absent,
            Some(Standing { version: Some(version), .. }) if can.unchanged => {
                When::Unchanged(version.clone())
            }
            _ => return self.swap_unconditionally(name, expected, new).await,
        };
        let text = Bytes::from(format!("{new}\n{nonce}\n"));
        match self.client.write(&key, text, when).await {
            Ok(_) => Ok(()),
            Err(error) if error.what == What::Conflict => match self.swapped(name, &nonce).await? {
                Swapped::Done => Ok(()),
                Swapped::Lost => Err(self.raced(name)),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the ref has our nonce.
    async fn swapped(&self, name: &RefName, nonce: &str) -> Result<Swapped, RemoteError> {
        let now = self.standing(name).await?;
        let ours = now.is_some_and(|standing| standing.nonce == nonce);
        Ok(if ours { Swapped::Done } else { Swapped::Lost })
    }

    fn raced(&self, name: &RefName) -> RemoteError {
        RemoteError::Raced { name: Box::new(name.clone()), location: self.location.clone() }
    }

    /// Where the service knows no conditions: each writer claims the ref under
    /// a name of its own, looks who else does, and only the one whose claim
    /// comes first goes on; the others take theirs back.
    async fn swap_unconditionally(
        &self,
        name: &RefName,
        expected: Option<&Standing>,
        new: CommitId,
    ) -> Result<(), RemoteError> {
        let nonce = nonce();
        let claims = format!("claims/{}/{}/", name.kind().folder(), name.short());
        let claim = format!("{claims}{nonce}");
        self.client.write(&claim, Bytes::from_static(b"\n"), When::Always).await?;
        let outcome = self.swap_claimed(name, (&claims, &claim), expected, (new, &nonce)).await;
        self.client.remove(&claim).await?;
        outcome
    }

    async fn swap_claimed(
        &self,
        name: &RefName,
        (claims, claim): (&str, &str),
        expected: Option<&Standing>,
        (new, nonce): (CommitId, &str),
    ) -> Result<(), RemoteError> {
        let all = self.client.list(claims).await?;
        if all.iter().any(|other| other.key != claim) {
            return Err(self.raced(name));
        }
        let now = self.standing(name).await?;
        let same = now.as_ref().map(|now| (&now.commit, &now.nonce))
            == expected.map(|expected| (&expected.commit, &expected.nonce));
        if !same {
            return Err(self.raced(name));
        }
        let text = Bytes::from(format!("{new}\n{nonce}\n"));
        self.client.write(&key(name), text, When::Always).await?;
        match self.swapped(name, nonce).await? {
            Swapped::Done => Ok(()),
            Swapped::Lost => Err(self.raced(name)),
        }
    }
}
