//! Rights, and who has which of them where.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

pub use crate::right::Right;

/// A right in some repositories, or in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What may be done.
    pub right: Right,
    /// Where; `None` is everywhere, also where nothing is yet.
    pub repositories: Option<BTreeSet<String>>,
}

impl Grant {
    fn holds_in(&self, repository: &str) -> bool {
        self.repositories.as_ref().is_none_or(|names| names.contains(repository))
    }
}

/// Whoever asks. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    inner: Arc<Inner>,
}

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    name: Option<String>,
    grants: Vec<Grant>,
}

impl Who {
    /// Somebody with a name, who may do what `grants` say.
    pub fn new(name: &str, grants: Vec<Grant>) -> Self {
        Self { inner: Arc::new(Inner { name: Some(name.to_owned()), grants }) }
    }

    /// Whoever asks a server that has no tokens: may do everything.
    pub fn anybody() -> Self {
        let everything = Grant { right: Right::Admin, repositories: None };
        Self { inner: Arc::new(Inner { name: None, grants: vec![everything] }) }
    }

    /// Whoever has not said who they are: may do nothing.
    pub fn nobody() -> Self {
        Self { inner: Arc::new(Inner { name: None, grants: Vec::new() }) }
    }

    /// Name of the token, where there is one.
    pub fn name(&self) -> Option<&str> {
        self.inner.name.as_deref()
    }

    /// As the logs of refs have it.
    pub fn logged(&self) -> &str {
        self.name().unwrap_or("client")
    }

    /// Whether they have any right at all.
    pub fn is_known(&self) -> bool {
        !self.inner.grants.is_empty()
    }

    /// Whether they may do that in the repository of that name, which need not
    /// be there.
    pub fn may(&self, right: Right, repository: &str) -> bool {
        let holds = |grant: &Grant| grant.right >= right && grant.holds_in(repository);
        self.inner.grants.iter().any(holds)
    }

    /// Whether they may do that in all repositories.
    pub fn may_everywhere(&self, right: Right) -> bool {
        let holds = |grant: &Grant| grant.right >= right && grant.repositories.is_none();
        self.inner.grants.iter().any(holds)
    }
}

/// Where it is noted who asks, for those who log a request even if nobody waits
/// for its answer any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asker {
    who: Arc<OnceLock<Who>>,
}

impl Asker {
    /// It is they.
    pub(super) fn note(&self, who: &Who) {
        // Nobody becomes somebody else.
        let _ = self.who.set(who.clone());
    }

    /// Whoever asks, if that is known by now.
    pub(crate) fn who(&self) -> Option<&Who> {
        self.who.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_holds_where_it_was_given_and_no_further() {
        let some =
            |right, name: &str| Grant { right, repositories: Some([name.to_owned()].into()) };
        let who = Who::new("ci", vec![some(Right::Append, "a"), some(Right::Read, "b")]);
        assert!(who.may(Right::Read, "a") && who.may(Right::Append, "a"));
        assert!(!who.may(Right::Write, "a") && !who.may(Right::Append, "b"));
        assert!(!who.may(Right::Read, "c") && !who.may_everywhere(Right::Read));
        assert!(!Who::nobody().may(Right::Read, "a") && !Who::nobody().is_known());
        assert!(Who::anybody().may_everywhere(Right::Admin));
    }
}
