//! Several changes of refs and tables under one lock.

use crate::{
    base::{id::CommitId, time::Time},
    format::{forgotten::ForgottenTable, ref_text::RefText, rewrites::RewriteTable},
    repo::{
        ref_log::RefValue,
        ref_name::{Pointer, RefKind, RefName},
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

    /// Moves a branch, a tag or a remote-tracking ref, like [`Refs::swap`].
    ///
    /// # Errors
    /// As [`Refs::update`].
    pub fn swap(
        &mut self,
        name: &RefName,
        expected: ExpectedRef<'_>,
        new: Option<CommitId>,
        change: &RefLogMessage<'_>,
    ) -> Result<RefText, RefError> {
        let (refs, lock) = (self.refs, &mut self.lock);
        let is_damaged = match &expected {
            ExpectedRef::Damaged(damage) => refs.damage(name)?.as_ref() == Some(damage),
            _ => false,
        };
        let text = if is_damaged { None } else { refs.text(name)? };
        let found = text.as_ref().and_then(|text| text.commit);
        let path = name.file(&refs.store);
        if found != new && text.as_ref().is_some_and(|text| !text.is_writable()) {
            return Err(RefError::Newer { path });
        }
        match found {
            _ if is_damaged => {}
            _ if expected.is_met(text.as_ref()) => {}
            Some(at) if expected.commit().is_none() => {
                return Err(RefError::Exists { name: name.clone(), at });
            }
            _ => return Err(RefError::Moved { name: name.clone(), found }),
        }
        if found == new && !is_damaged {
            return Ok(text.unwrap_or_else(|| RefText::new(None)));
        }
        if let Some(new) = &new {
            refs.check_commit(new, found)?;
            if name.kind() != RefKind::Remote {
                refs.keep(new)?;
            }
        }
        // All checks have passed. The log line comes before the ref file, see `ref_log`.
        let folder = path.parent().unwrap_or(&refs.store);
        if new.is_some() {
            refs.make_room(name, &path)?;
            refs.disk.create_folders(folder)?;
        }
        let old = if text.is_some() { found.into() } else { refs.lost(name)? };
        // If the file of a branch or tag is lost, a move to another commit would silently drop the
        // lost commits from history.
        if let (RefValue::Commit(at), Some(new), false) = (&old, new, is_damaged)
            && text.is_none()
            && new != *at
            && !matches!(expected, ExpectedRef::Lost(_))
            && name.kind() != RefKind::Remote
        {
            return Err(RefError::Lost { name: name.clone(), at: *at });
        }
        let text = RefText::new(new);
        let log = name.log_file(&refs.store);
        let write = || match new {
            Some(_) => {
                refs.write(&path, &text.encode())?;
                // Another process may have created a folder on the path, and crashed before its
                // sync.
                if name.short().contains('/') { refs.sync(name) } else { Ok(()) }
            }
            None => {
                refs.disk.remove(&path)?;
                Ok(refs.disk.sync_folder(folder)?)
            }
        };
        let is_done = || refs.read(name).is_ok_and(|at| at == new);
        refs.change(lock, &log, (&old, &new.into()), change, write, is_done)?;
        Ok(text)
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
        let (refs, lock) = (self.refs, &mut self.lock);
        if refs.head()? != *expected {
            return Err(RefError::HeadMoved);
        }
        if expected == new {
            return Ok(());
        }
        if let Head::Detached(new) = new {
            refs.check_commit(new, None)?;
            refs.keep(new)?;
        }
        let log = refs.log_file(&Pointer::Head);
        let is_done = || refs.head().is_ok_and(|head| head == *new);
        let write = || refs.write_head(new);
        refs.change(lock, &log, (&expected.into(), &new.into()), change, write, is_done)
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
