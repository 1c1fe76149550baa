//! What a command has seen of a store, to tell damage from what other processes have changed
//! meanwhile.

use crate::{
    base::time::Time,
    repo::{
        Repo,
        refs::RefError,
        roots::{Root, RootChoice, Roots},
    },
    store::{Epoch, StoreError},
};

/// The epoch and the refs of a store at one moment.
#[derive(Debug, PartialEq, Eq)]
struct State {
    epoch: Epoch,
    refs: Vec<Root>,
}

impl State {
    fn read(repo: &Repo) -> Result<Self, RefError> {
        let since = Time { secs: i64::MAX, nanos: 0 };
        let roots = Roots::read(repo, RootChoice::Kept { since })?;
        Ok(Self { epoch: repo.store().epoch()?, refs: roots.iter().cloned().collect() })
    }
}

/// What a command has seen of a store. The default is a command that has not looked yet: it looks
/// after its first error, and then always tries once more.
#[derive(Debug, Default)]
pub struct Seen(Option<State>);

impl Seen {
    /// Looks at a store.
    ///
    /// # Errors
    /// [`RefError`] if the epoch or a folder of refs cannot be read.
    pub fn of(repo: &Repo) -> Result<Self, RefError> {
        Ok(Self(Some(State::read(repo)?)))
    }

    /// Looks at the store again after an error, and lists its packs. Returns true if the error comes
    /// from what another process has moved, deleted or added since the last look.
    ///
    /// # Errors
    /// As [`Seen::of`].
    pub fn look_again(&mut self, repo: &Repo, error: &StoreError) -> Result<bool, RefError> {
        let store = repo.store();
        match error {
            StoreError::Collected | StoreError::Gone { .. } => {
                store.refresh()?;
                Ok(true)
            }
            StoreError::Missing { .. } | StoreError::Forgotten { .. } => {
                let packs = store.packs();
                store.refresh()?;
                let now = Some(State::read(repo)?);
                let is_new = now != self.0 || store.packs() != packs;
                self.0 = now;
                Ok(is_new)
            }
            _ => Ok(false),
        }
    }
}
