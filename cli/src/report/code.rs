//! Codes of errors in `--json`, for programs that decide by them. A code never changes its meaning.
//! `docs/cli.md` lists them.

use std::{error::Error, io};

use snap_core::{
    base::kind::ErrorKind,
    ops::commit::CommitError,
    repo::{RefError, RepoError, SpecError, UndoError, ownership::Distrust},
    store::StoreError,
};
use snap_remote::{
    bucket::{FailureReason, ServiceError},
    peer::RemoteError,
};

use crate::report::{CliError, causes::causes};

/// The class of an error, in one stable word.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ErrorCode {
    pub(crate) name: &'static str,
    /// True if the same command may succeed later, although the user changes nothing.
    pub(crate) retry: bool,
    pub(crate) meaning: &'static str,
}

const fn code(name: &'static str, meaning: &'static str) -> ErrorCode {
    ErrorCode { name, retry: false, meaning }
}

const fn temporary(name: &'static str, meaning: &'static str) -> ErrorCode {
    ErrorCode { name, retry: true, meaning }
}

const CHANGED: ErrorCode =
    temporary("changed", "another process changed the branch, the tag or the file meanwhile");
const COMMAND_FAILED: ErrorCode =
    code("command-failed", "a hook or another command that snap runs failed");
const CONFLICT: ErrorCode =
    code("conflict", "`snap pull --update`: files were changed here and in the pulled commit");
const CREDENTIALS: ErrorCode = code("credentials", "credentials are missing, wrong or expired");
const DAMAGED: ErrorCode = code("damaged", "damage found");
const DENIED: ErrorCode = code("denied", "a permission is missing, or the disk is read-only");
const EXISTS: ErrorCode = code("exists", "something is already there, and stays as it is");
const FORGOTTEN: ErrorCode =
    code("forgotten", "the commit was forgotten, or `snap gc` has deleted it");
const INTERRUPTED: ErrorCode = temporary("interrupted", "the user or a signal stopped the command");
const INVALID: ErrorCode = code("invalid", "an argument, a setting or a variable is invalid");
const IO: ErrorCode = code("io", "a file of this machine cannot be read or written");
const LOCKED: ErrorCode = temporary("locked", "another process uses the store or the files");
const NO_SPACE: ErrorCode = code("no-space", "a disk, a quota or the remote is full");
const NO_STORE: ErrorCode = code("no-store", "no store exists here, or at the remote");
const NOT_FOUND: ErrorCode =
    code("not-found", "a commit, a branch, a path or a file does not exist");
const REFUSED: ErrorCode = code("refused", "a rule of the store or of the server forbids it");
const REJECTED: ErrorCode =
    code("rejected", "the branch has commits that the command would drop; pull first");
const UNAVAILABLE: ErrorCode =
    temporary("unavailable", "a service failed, or this machine lacks threads");
const UNREACHABLE: ErrorCode = temporary("unreachable", "the remote cannot be reached");
const UNSUPPORTED: ErrorCode =
    code("unsupported", "a newer snap wrote the data, or a service lacks a function");
const UNTRUSTED: ErrorCode =
    code("untrusted", "you do not trust the store, its settings or the key of a host");
pub(crate) const USAGE: ErrorCode = code("usage", "the command line is invalid");

/// All codes, sorted.
pub(crate) const ERROR_CODES: [&ErrorCode; 22] = [
    &CHANGED,
    &COMMAND_FAILED,
    &CONFLICT,
    &CREDENTIALS,
    &DAMAGED,
    &DENIED,
    &EXISTS,
    &FORGOTTEN,
    &INTERRUPTED,
    &INVALID,
    &IO,
    &LOCKED,
    &NO_SPACE,
    &NO_STORE,
    &NOT_FOUND,
    &REFUSED,
    &REJECTED,
    &UNAVAILABLE,
    &UNREACHABLE,
    &UNSUPPORTED,
    &UNTRUSTED,
    &USAGE,
];

/// Returns the code of an error: that of its nearest cause with one of its own, or else that of its
/// kind.
pub(super) fn of(error: &CliError) -> &'static ErrorCode {
    let kind = error.kind();
    let specific = match kind {
        // A damaged store is damaged, whatever led to it.
        ErrorKind::Damaged | ErrorKind::Interrupted => None,
        _ => causes(error).find_map(specific),
    };
    specific.unwrap_or_else(|| of_kind(kind, error))
}

fn of_kind(kind: ErrorKind, error: &CliError) -> &'static ErrorCode {
    match kind {
        ErrorKind::NotFound => &NOT_FOUND,
        ErrorKind::Exists => &EXISTS,
        ErrorKind::Damaged => &DAMAGED,
        ErrorKind::Locked => &LOCKED,
        ErrorKind::Denied => &DENIED,
        ErrorKind::Unsupported => &UNSUPPORTED,
        ErrorKind::Interrupted => &INTERRUPTED,
        ErrorKind::Refused => &REFUSED,
        ErrorKind::Invalid => &INVALID,
        // Few errors of local files are temporary.
        _ if causes(error).any(|cause| cause.is::<io::Error>()) => &IO,
        _ => &UNAVAILABLE,
    }
}

/// Returns the code of one error of the chain, if its kind does not say enough.
fn specific(error: &(dyn Error + 'static)) -> Option<&'static ErrorCode> {
    error
        .downcast_ref()
        .and_then(of_cli)
        .or_else(|| error.downcast_ref().and_then(of_service))
        .or_else(|| error.downcast_ref().and_then(of_remote))
        .or_else(|| error.downcast_ref().and_then(of_repo))
        .or_else(|| error.downcast_ref().and_then(of_ref))
        .or_else(|| error.downcast_ref().and_then(of_undo))
        .or_else(|| error.downcast_ref().and_then(of_spec))
        .or_else(|| error.downcast_ref().and_then(of_store))
        .or_else(|| error.downcast_ref().and_then(of_commit))
        .or_else(|| error.downcast_ref().and_then(of_io))
}

fn of_cli(error: &CliError) -> Option<&'static ErrorCode> {
    Some(match error {
        CliError::Usage(_) | CliError::FolderAndPaths => &USAGE,
        CliError::NoStore => &NO_STORE,
        CliError::UpdateConflict { .. } => &CONFLICT,
        CliError::Diverged { .. } | CliError::NotForward { .. } => &REJECTED,
        CliError::ForgottenGone { .. } | CliError::RewriteFinal => &FORGOTTEN,
        CliError::UntrustedStore(store) if matches!(*store.why, Distrust::Io(_)) => &DENIED,
        CliError::Untrusted { .. }
        | CliError::UntrustedStore(_)
        | CliError::UntrustedDefault { .. }
        | CliError::KeysWithheld { .. } => &UNTRUSTED,
        CliError::CredentialsFile { .. } | CliError::CredentialsCommand { .. } => &CREDENTIALS,
        CliError::HookStart { .. }
        | CliError::PreHook { .. }
        | CliError::PostHook { .. }
        | CliError::CommandStream(_) => &COMMAND_FAILED,
        _ => return None,
    })
}

fn of_service(error: &ServiceError) -> Option<&'static ErrorCode> {
    Some(match error.reason {
        FailureReason::Unauthenticated | FailureReason::Expired => &CREDENTIALS,
        FailureReason::Conflict => &CHANGED,
        FailureReason::Full => &NO_SPACE,
        FailureReason::HostKey => &UNTRUSTED,
        FailureReason::NoBucket => &NO_STORE,
        FailureReason::Unreachable => &UNREACHABLE,
        FailureReason::Busy | FailureReason::Temporary => &UNAVAILABLE,
        _ => return None,
    })
}

fn of_remote(error: &RemoteError) -> Option<&'static ErrorCode> {
    Some(match error {
        RemoteError::NoStore { .. } | RemoteError::Emptied { .. } => &NO_STORE,
        RemoteError::Behind { .. } | RemoteError::Diverged { .. } => &REJECTED,
        RemoteError::Raced { .. } => &CHANGED,
        _ => return None,
    })
}

fn of_repo(error: &RepoError) -> Option<&'static ErrorCode> {
    let is_absent = matches!(error, RepoError::NoStore { .. } | RepoError::NotAStore { .. });
    is_absent.then_some(&NO_STORE)
}

fn of_ref(error: &RefError) -> Option<&'static ErrorCode> {
    Some(match error {
        RefError::Moved { .. } | RefError::HeadMoved => &CHANGED,
        RefError::Collected { .. } | RefError::AtCollected { .. } => &FORGOTTEN,
        _ => return None,
    })
}

fn of_undo(error: &UndoError) -> Option<&'static ErrorCode> {
    matches!(error, UndoError::Collected { .. }).then_some(&FORGOTTEN)
}

fn of_spec(error: &SpecError) -> Option<&'static ErrorCode> {
    matches!(error, SpecError::ForgottenBefore { .. }).then_some(&FORGOTTEN)
}

fn of_store(error: &StoreError) -> Option<&'static ErrorCode> {
    matches!(error, StoreError::Forgotten { .. }).then_some(&FORGOTTEN)
}

fn of_commit(error: &CommitError) -> Option<&'static ErrorCode> {
    Some(match error {
        CommitError::Behind(_) => &REJECTED,
        CommitError::Contended { .. } => &CHANGED,
        _ => return None,
    })
}

fn of_io(error: &io::Error) -> Option<&'static ErrorCode> {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    is_full.then_some(&NO_SPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_words_and_each_occurs_once() {
        let names = ERROR_CODES.map(|code| code.name.replace('-', " "));
        assert!(names.is_sorted_by(|one, other| one < other), "{names:?}");
    }

    #[test]
    fn the_nearest_cause_with_a_code_decides() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(of(&CliError::Output(full())), &NO_SPACE);
        assert_eq!(of(&CliError::Output(io::Error::other("broken"))), &IO);
        assert_eq!(of(&CliError::NoBranch), &INVALID);
        let refused = |reason| {
            let error = ServiceError::new("read", "refs", reason, String::new());
            of(&CliError::from(RemoteError::from(error)))
        };
        assert_eq!(refused(FailureReason::Unreachable), &UNREACHABLE);
        assert_eq!(refused(FailureReason::Refused), &REFUSED);
        assert_eq!(refused(FailureReason::Damaged), &DAMAGED);
        assert_eq!(refused(FailureReason::Denied), &DENIED);
    }
}
