//! Walks the chain of causes of an error.
//!
//! A `transparent` error shows the message of the error that it wraps, and its `source()` skips the
//! wrapped error. This walk includes the wrapped errors, so that a caller can look for them.

use std::error::Error;

use snap_core::{
    ops::{
        bundle, cat::CatError, commit::CommitError, diff::DiffError, export::ExportError,
        list::ListError, reach::ReachError, removal_error::RemovalError, restore::RestoreError,
        verify::VerifyError,
    },
    repo::{PastError, RepoError, SpecError, UndoError, path::PathInTreeError},
    store::{BundleError, RemoteFrameError, StoreError},
};
use snap_remote::{
    peer::{RemoteError, open::OpenError},
    ranges::ReadError,
};

use crate::report::CliError;

type Link<'a> = &'a (dyn Error + 'static);

/// Iterates over an error and its causes, including errors that only wrap another one.
pub(crate) fn causes<'a>(error: Link<'a>) -> impl Iterator<Item = Link<'a>> {
    std::iter::successors(Some(error), |&error| wrapped(error).or_else(|| error.source()))
}

/// Returns the error that a transparent error wraps. Its `source()` skips that error.
fn wrapped<'a>(error: Link<'a>) -> Option<Link<'a>> {
    let of = |found: Option<Link<'a>>| found;
    of(error.downcast_ref().and_then(of_cli))
        .or_else(|| error.downcast_ref().and_then(of_repo))
        .or_else(|| error.downcast_ref().and_then(of_spec))
        .or_else(|| error.downcast_ref().and_then(of_bundle_work))
        .or_else(|| error.downcast_ref().and_then(of_bundle))
        .or_else(|| of_remote(error))
        .or_else(|| error.downcast_ref().and_then(of_store))
        .or_else(|| of_past(error))
        .or_else(|| of_reading(error))
        .or_else(|| of_writing(error))
}

fn of_cli(error: &CliError) -> Option<Link<'_>> {
    match error {
        CliError::Commit(inner) => Some(inner),
        CliError::Restore(inner) => Some(inner),
        CliError::Export(inner) => Some(inner),
        CliError::Verify(inner) => Some(inner),
        CliError::Removal(inner) => Some(inner),
        CliError::Repo(inner) => Some(inner),
        CliError::Config(inner) => Some(inner),
        CliError::Ref(inner) => Some(inner),
        CliError::RefName(inner) => Some(inner),
        CliError::Spec(inner) => Some(inner),
        CliError::Path(inner) => Some(inner),
        CliError::Store(inner) => Some(inner),
        CliError::List(inner) => Some(inner),
        CliError::Cat(inner) => Some(inner),
        CliError::File(inner) => Some(inner),
        CliError::Bundle { source, .. } => Some(&**source),
        CliError::InBundle { source, .. } => Some(&**source),
        CliError::Pack { source, .. }
        | CliError::Unpack { source, .. }
        | CliError::VerifyBundle { source, .. } => Some(&**source),
        CliError::Content { source, .. } => Some(&**source),
        CliError::Cloned { source, .. } => Some(&**source),
        CliError::Past(inner) => Some(inner),
        CliError::Undo(inner) => Some(inner),
        CliError::Diff(inner) => Some(inner),
        #[cfg(feature = "serve")]
        CliError::Serve(inner) => Some(inner),
        CliError::Remote(inner) => Some(&**inner),
        CliError::OpenRemote(inner) => Some(&**inner),
        _ => None,
    }
}

/// Errors of remotes.
fn of_remote<'a>(error: Link<'a>) -> Option<Link<'a>> {
    if let Some(OpenError::Location(inner)) = error.downcast_ref() {
        return Some(inner);
    }
    if let Some(RemoteFrameError { source, .. }) = error.downcast_ref() {
        return Some(&**source);
    }
    if let Some(ReadError::Service(inner)) = error.downcast_ref() {
        return Some(&**inner);
    }
    match error.downcast_ref()? {
        RemoteError::Service(inner) => Some(inner),
        RemoteError::Reach(inner) => Some(&**inner),
        RemoteError::Repo(inner) => Some(&**inner),
        RemoteError::Ref(inner) => Some(&**inner),
        RemoteError::Store(inner) => Some(&**inner),
        RemoteError::Io(inner) => Some(inner),
        RemoteError::Repair(inner) => Some(&**inner),
        _ => None,
    }
}

fn of_repo(error: &RepoError) -> Option<Link<'_>> {
    match error {
        RepoError::Config(inner) => Some(inner),
        RepoError::Ref(inner) => Some(inner),
        RepoError::Store(inner) => Some(inner),
        _ => None,
    }
}

fn of_store(error: &StoreError) -> Option<Link<'_>> {
    match error {
        StoreError::Io(inner) => Some(inner),
        _ => None,
    }
}

fn of_spec(error: &SpecError) -> Option<Link<'_>> {
    match error {
        SpecError::Path(inner) => Some(inner),
        SpecError::Ref(inner) => Some(inner),
        SpecError::Store(inner) => Some(inner),
        _ => None,
    }
}

fn of_bundle_work(error: &bundle::Error) -> Option<Link<'_>> {
    match error {
        bundle::Error::Bundle(inner) => Some(inner),
        bundle::Error::Reach(inner) => Some(inner),
        bundle::Error::Commit(inner) => Some(inner),
        bundle::Error::Repo(inner) => Some(inner),
        bundle::Error::Store(inner) => Some(inner),
        bundle::Error::Io(inner) => Some(inner),
        bundle::Error::Broken { source, .. } => Some(&**source),
        _ => None,
    }
}

fn of_bundle(error: &BundleError) -> Option<Link<'_>> {
    match error {
        BundleError::Store(inner) => Some(inner),
        BundleError::Io(inner) => Some(inner),
        _ => None,
    }
}

/// Errors about history and undo.
fn of_past<'a>(error: Link<'a>) -> Option<Link<'a>> {
    match error.downcast_ref() {
        Some(PastError::Tree { source, .. }) => return Some(&**source),
        Some(PastError::Store(inner)) => return Some(inner),
        _ => {}
    }
    match error.downcast_ref() {
        Some(UndoError::Commit { source, .. }) => Some(&**source),
        Some(UndoError::Ref(inner)) => Some(inner),
        _ => None,
    }
}

/// Errors of operations that only read.
fn of_reading<'a>(error: Link<'a>) -> Option<Link<'a>> {
    if let Some(ReachError::Store(inner)) = error.downcast_ref() {
        return Some(inner);
    }
    match error.downcast_ref() {
        Some(RemovalError::Store(inner)) => return Some(inner),
        Some(RemovalError::Ref(inner)) => return Some(inner),
        Some(RemovalError::Past(inner)) => return Some(inner),
        Some(RemovalError::Pattern(inner)) => return Some(inner),
        Some(RemovalError::Io(inner)) => return Some(inner),
        _ => {}
    }
    match error.downcast_ref() {
        Some(VerifyError::Store(inner)) => return Some(inner),
        Some(VerifyError::Reach(inner)) => return Some(inner),
        Some(VerifyError::Adopt(inner)) => return Some(inner),
        Some(VerifyError::Io(inner)) => return Some(inner),
        _ => {}
    }
    if let Some(ListError::Tree { source, .. }) = error.downcast_ref() {
        return Some(&**source);
    }
    match error.downcast_ref() {
        Some(DiffError::Tree { source, .. }) => return Some(&**source),
        Some(DiffError::Pattern(inner)) => return Some(inner),
        _ => {}
    }
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(PathInTreeError::Store(inner)), _) | (_, Some(CatError::Store(inner))) => Some(inner),
        _ => None,
    }
}

/// Errors of operations that write.
fn of_writing<'a>(error: Link<'a>) -> Option<Link<'a>> {
    match error.downcast_ref() {
        Some(CommitError::Store(inner)) => return Some(inner),
        Some(CommitError::Parent { source, .. }) => return Some(&**source),
        Some(CommitError::Ref(inner)) => return Some(inner),
        _ => {}
    }
    match error.downcast_ref() {
        Some(ExportError::List(inner)) => return Some(inner),
        Some(ExportError::Content { source, .. }) => return Some(&**source),
        _ => {}
    }
    match error.downcast_ref() {
        Some(RestoreError::Store(inner)) => Some(&**inner),
        Some(RestoreError::Damaged { source, .. }) => Some(&**source),
        _ => None,
    }
}
