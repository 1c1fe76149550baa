//! Several changes of refs and tables under one lock.

use crate::{
    base::{id::CommitId, time::Time},
    format::{forgotten::ForgottenTable, rewrites::RewriteTable},
    repo::{
        ref_name::RefName,
        refs::{ExpectedRef, Head, Lock, RefError, RefLogMessage, Refs},
    },
    store::Store,
};

/// The refs of a store while none of them moves.
pub struct HeldRefs<'r> {
    pub(super) refs: &'r Refs,
    pub(super) lock: Lock,
}

impl HeldRefs<'_> {
    /// Returns the time of the last change of a ref or of a table; the beginning of time before the
    /// first one.
    ///
    /// # Errors
    /// [`RefError`] when a log cannot be read.
    pub fn last_change(&self) -> Result<Time, RefError> {
        Ok(self.refs.last_change()?.map(|last| last.time).unwrap_or_default())
    }

    /// Changes the table of forgotten commits of `store`, durably. Passes the time of the change,
    /// which no other change of the store has.
    ///
    /// # Errors
    /// [`RefError`] when the table cannot be written.
    pub fn change_forgotten(
        &mut self,
        store: &Store,
        message: &RefLogMessage<'_>,
        change: &dyn Fn(&mut ForgottenTable, Time),
    ) -> Result<(), RefError> {
        let time = self.refs.timed(&mut self.lock, message)?.time;
        store.change_forgotten(&|table| change(table, time))?;
        self.lock.set_done();
        Ok(())
    }

    /// Moves a branch, a tag or a remote-tracking ref, like [`Refs::update`].
    ///
    /// # Errors
    /// As [`Refs::update`].
    pub fn update(
        &mut self,
        name: &RefName,
        expected: Option<CommitId>,
        new: Option<CommitId>,
        change: &RefLogMessage<'_>,
    ) -> Result<(), RefError> {
        self.refs.swap_held(&mut self.lock, name, ExpectedRef::At(expected), new, change).map(drop)
    }

    /// Points `HEAD` at `new`, like [`Refs::set_head`].
    ///
    /// # Errors
    /// As [`Refs::set_head`].
    pub fn set_head(
        &mut self,
        expected: &Head,
        new: &Head,
        change: &RefLogMessage<'_>,
    ) -> Result<(), RefError> {
        self.refs.set_head_held(&mut self.lock, expected, new, change)
    }

    /// Changes the table of rewrites of `store`, durably. Passes the time of the change, which no
    /// other change of the store has.
    ///
    /// # Errors
    /// [`RefError`] when the table cannot be written.
    pub fn change_rewrites(
        &mut self,
        store: &Store,
        message: &RefLogMessage<'_>,
        change: impl FnOnce(&mut RewriteTable, Time),
    ) -> Result<(), RefError> {
        let time = self.refs.timed(&mut self.lock, message)?.time;
        store.change_rewrites(|table| change(table, time))?;
        self.lock.set_done();
        Ok(())
    }
}
