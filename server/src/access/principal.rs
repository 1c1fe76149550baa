//! The client of a request, and its rights.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use crate::ref_log::UNNAMED_CLIENT;

pub use snap_remote::wire::right::Right;

/// A right in some repositories, or in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub right: Right,
    /// The repositories; `None` means all, also those that do not exist yet.
    pub repositories: Option<BTreeSet<String>>,
}

impl Grant {
    fn holds_in(&self, repository: &str) -> bool {
        self.repositories.as_ref().is_none_or(|names| names.contains(repository))
    }
}

/// The client of a request. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    inner: Arc<PrincipalInner>,
}

#[derive(Debug, PartialEq, Eq)]
struct PrincipalInner {
    name: Option<String>,
    grants: Vec<Grant>,
}

impl Principal {
    /// Creates a client that has a name and the rights in `grants`.
    pub fn new(name: &str, grants: Vec<Grant>) -> Self {
        Self { inner: Arc::new(PrincipalInner { name: Some(name.to_owned()), grants }) }
    }

    /// Returns the client of a server without tokens: it may do everything.
    pub fn unrestricted() -> Self {
        let everything = Grant { right: Right::Admin, repositories: None };
        Self { inner: Arc::new(PrincipalInner { name: None, grants: vec![everything] }) }
    }

    /// Returns a client that is not identified: it may do nothing.
    pub fn anonymous() -> Self {
        Self { inner: Arc::new(PrincipalInner { name: None, grants: Vec::new() }) }
    }

    /// Returns the name of the token, if there is one.
    pub fn name(&self) -> Option<&str> {
        self.inner.name.as_deref()
    }

    /// Returns the name that is written to the logs of refs.
    pub fn ref_log_name(&self) -> &str {
        self.name().unwrap_or(UNNAMED_CLIENT)
    }

    /// Returns true if the client has any right.
    pub fn has_grants(&self) -> bool {
        !self.inner.grants.is_empty()
    }

    /// Returns true if the client has the right in this repository, even if the repository does not
    /// exist.
    pub fn can(&self, right: Right, repository: &str) -> bool {
        let holds = |grant: &Grant| grant.right >= right && grant.holds_in(repository);
        self.inner.grants.iter().any(holds)
    }

    /// Returns true if the client has the right in all repositories.
    pub fn can_everywhere(&self, right: Right) -> bool {
        let holds = |grant: &Grant| grant.right >= right && grant.repositories.is_none();
        self.inner.grants.iter().any(holds)
    }
}

/// A place for the client of a request. The request log reads it even if the client has
/// disconnected before the response.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrincipalSlot {
    who: Arc<OnceLock<Principal>>,
}

impl PrincipalSlot {
    /// Records the client.
    pub(super) fn note(&self, who: &Principal) {
        // The client of a request never changes, so a second call does nothing.
        let _ = self.who.set(who.clone());
    }

    /// Returns the client; `None` before access control has identified it.
    pub(crate) fn who(&self) -> Option<&Principal> {
        self.who.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_applies_only_to_its_repositories() {
        let some =
            |right, name: &str| Grant { right, repositories: Some([name.to_owned()].into()) };
        let who = Principal::new("ci", vec![some(Right::Append, "a"), some(Right::Read, "b")]);
        assert!(who.can(Right::Read, "a") && who.can(Right::Append, "a"));
        assert!(!who.can(Right::Write, "a") && !who.can(Right::Append, "b"));
        assert!(!who.can(Right::Read, "c") && !who.can_everywhere(Right::Read));
        assert!(
            !Principal::anonymous().can(Right::Read, "a") && !Principal::anonymous().has_grants()
        );
        assert!(Principal::unrestricted().can_everywhere(Right::Admin));
    }
}
