//! From an error to a message, its causes, a hint and an exit code.
//!
//! The codes are those of [`EXIT_CODES`]. A reader that goes away (`snap log |
//! head`) is no failure and no message.

mod causes;
mod hint;
mod remote;
mod serve;
mod trust;

use std::{io, path::PathBuf, process::ExitCode};

use snap_core::{
    base::{id::CommitId, io::PathError, kind::ErrorKind, name::NameError},
    ops::{
        bundle, cat::CatError, commit::CommitError, diff::DiffError, export::ExportError,
        list::ListError, repair::RepairError, restore::RestoreError, verify::VerifyError,
    },
    repo::{
        PastError, RefError, RepoError, SpecError, UndoError, config::ConfigError,
        path::PathInTreeError, ref_name::RefNameError,
    },
    store::{BundleError, StoreError},
};
use snap_remote::{location::LocationError, service::open::OpenError, store::RemoteError};

use self::causes::causes;
pub(crate) use self::{
    serve::ServeError,
    trust::{Role, UntrustedStore},
};
use crate::{stream::Interrupted, ui::Ui};

/// What each exit code means.
pub(crate) const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "done"),
    ("1", "failed; or, of `snap diff --exit-code`, something differs"),
    ("2", "the command line, a setting or a variable is wrong"),
    ("3", "done, but some files or attributes were skipped"),
    ("4", "damage found"),
    ("130", "interrupted"),
];

/// Exit code after Ctrl-C.
pub(crate) const INTERRUPTED: i32 = 130;

/// How a command that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// As it should.
    Well,
    /// Without some files that could not be read.
    Skipped,
    /// Damage was found, as was asked.
    Damaged,
    /// Differences were found, as was asked.
    Different,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// No store was named, and none is here or above.
    #[error("there is no store here or above")]
    NoStore,
    /// The current folder is gone or cannot be named.
    #[error("cannot tell which folder this is")]
    Folder { source: io::Error },
    /// A time that is not one.
    #[error("{name}: `{text}` is not a time such as 2026-11-21T08:00:00Z")]
    BadTime { name: &'static str, text: String },
    /// A date that is not one.
    #[error("{}", no_date(text))]
    BadDate { text: String },
    /// The user's file of settings cannot be read or written.
    #[error(transparent)]
    Settings(PathError),
    /// The user's file is to be changed, and there can be none.
    #[error("there is no file for the user's settings")]
    NoUserFile,
    /// A profile that there is not.
    #[error("there is no profile `{name}`")]
    NoProfile { name: String, known: Vec<String> },
    /// A `~` that stands for nothing.
    #[error("`{path}` has a `~` that stands for no folder")]
    NoHome { path: String },
    /// A path of a profile that starts nowhere.
    #[error(
        "profile `{profile}`: `{path}` is no full path, and a bare store has no folder to start at"
    )]
    NoStart { profile: String, path: String },
    /// A profile none of whose paths is there.
    #[error("{}", no_paths(profile, path, *count))]
    NoPaths { profile: String, path: String, count: usize },
    /// A setting that counts in a store's file only when the user trusts it.
    #[error(
        "{origin}: {what} is refused: you have not trusted the settings of this store, or they \
         changed since"
    )]
    Untrusted { origin: String, what: String, store: PathBuf },
    /// A store that was found, and may have been planted by another user.
    #[error(transparent)]
    UntrustedStore(#[from] UntrustedStore),
    /// A store's file that belongs to another user and is to be written anew.
    #[error("{} belongs to the user with id {uid}: only its owner changes it", path.display())]
    ForeignSettings { path: PathBuf, uid: u32 },
    /// A system's file that users may have written.
    #[error(
        "{} is not used: it must belong to root, and only root may write to it (owner {uid}, mode \
         {mode:04o})",
        path.display()
    )]
    SystemFile { path: PathBuf, uid: u32, mode: u32 },
    /// A path to be trusted that depends on where the command runs.
    #[error("{origin}: `{}` is not an absolute path", path.display())]
    RelativeTrust { origin: &'static str, path: PathBuf },
    /// Trust cannot be recorded.
    #[error("no folder to record trust in")]
    NoStateFolder,
    /// Keys that do not go to a place that an untrusted store's file names.
    #[error(
        "no keys are sent to {remote}: only the settings of this store name the place, and they \
         are not trusted"
    )]
    KeysWithheld { remote: String },
    /// A hook cannot be started.
    #[error("cannot start the {name} hook")]
    HookStart { name: &'static str, source: io::Error },
    /// A hook failed, and nothing was committed.
    #[error("the {name} hook failed: {how}")]
    PreHook { name: &'static str, how: String },
    /// A hook failed after the commit.
    #[error("the commit stands, but the {name} hook failed: {how}")]
    PostHook { name: &'static str, how: String },
    /// Ctrl-C while a hook ran, before the commit.
    #[error("interrupted in the {name} hook")]
    PreHookInterrupted { name: &'static str },
    /// Ctrl-C while a hook ran, after the commit.
    #[error("interrupted in the {name} hook; the commit stands")]
    PostHookInterrupted { name: &'static str },
    /// Nothing says what to commit to a store without a project.
    #[error("no path is given, and {store} is no project's store")]
    NoSource { store: String },
    /// Options that do not go together.
    #[error("{0}")]
    Usage(&'static str),
    /// A whole snapshot would be written into a folder that it has itself.
    #[error("the whole snapshot would go into `{path}`, a folder that it has itself")]
    FolderOfSnapshot { what: String, path: String },
    /// What should be a file is something else.
    #[error("`{path}` is a {noun}, not a file")]
    NotAFile { path: String, noun: &'static str },
    /// What should be a folder is something else.
    #[error("`{text}` names neither a file in a snapshot nor a content")]
    NoContent { text: String },
    /// What should be a branch or tag and never was.
    #[error("there is no branch or tag `{name}`, and there was none")]
    NoRef { name: String },
    /// A path given to `commit` that cannot be read.
    #[error(transparent)]
    Source(PathError),
    /// A path given to `commit` that has no name in a snapshot.
    #[error("`{path}` cannot be the path of a file in a snapshot")]
    NoPlace { path: String },
    /// A path to be compared that neither side has.
    #[error("there is no `{path}` on either side")]
    OnNeitherSide { path: String },
    /// A path to be compared that is not below the folder that is.
    #[error("`{path}` is not in the folder that is compared")]
    Outside { path: String },
    /// A path that the snapshot that was named does not have.
    #[error("there is no `{path}` in `{within}`")]
    NotWithin { path: String, within: String },
    /// A content to be compared that cannot be read.
    #[error("cannot compare `{path}`")]
    Content { path: String, source: Box<CatError> },
    /// A label with two values.
    #[error("label `{key}` is given twice")]
    LabelTwice { key: String },
    /// A name given to `commit --stdin` that is none.
    #[error("--stdin needs the name of a file, without folders")]
    StdinName { source: NameError },
    /// An archive whose form nobody said.
    #[error("`{path}` does not say what it is to be")]
    UnknownFormat { path: String },
    /// A compression level that the form of an archive does not have.
    #[error("{format} has no compression level {level}")]
    NoLevel { format: &'static str, level: i32 },
    /// A folder in an archive that is none.
    #[error("--prefix needs a relative path")]
    Prefix { source: NameError },
    /// A branch that cannot go.
    #[error("`{name}` is the branch you are on")]
    CurrentBranch { name: String },
    /// A branch that would lose commits.
    #[error("branch `{name}` has commits that {commit:.12} does not follow")]
    NotForward { name: String, commit: CommitId },
    /// A bundle or an archive on a screen.
    #[error("stdout is a terminal")]
    ToTerminal,
    /// A bundle that is not there.
    #[error("there is no file `{file}`, and no commit of that name")]
    NoBundle { file: String },
    /// A file that cannot be read as a bundle.
    #[error("cannot use {file} as a bundle")]
    Bundle { file: String, source: Box<BundleError> },
    /// An object in a bundle that cannot be read.
    #[error("cannot read from {file}")]
    InBundle { file: String, source: Box<StoreError> },
    /// A clone that ended before all was there, of which something is kept.
    #[error("the clone in {folder} is not complete")]
    Cloned { folder: String, source: Box<CliError> },
    /// A bundle that could not be written.
    #[error("cannot pack into {file}")]
    Pack { file: String, source: Box<bundle::Error> },
    /// A bundle that could not be taken in.
    #[error("cannot unpack {file}")]
    Unpack { file: String, source: Box<bundle::Error> },
    /// An archive that could not be written.
    #[error("cannot export to {file}")]
    ExportTo { file: String, source: io::Error },
    /// A remote that there is not.
    #[error("there is no remote `{name}`")]
    NoRemote { name: String, known: Vec<String> },
    /// A remote is needed, and there is none.
    #[error("there is no remote")]
    NoRemotes,
    /// A remote is needed, and none of several is the usual one.
    #[error("which remote? there is `{}`", known.join("`, `"))]
    WhichRemote { known: Vec<String> },
    /// A remote that is there already.
    #[error("there is a remote `{name}` already: {url}")]
    RemoteExists { name: String, url: String },
    /// What cannot be the name of a remote.
    #[error("`{name}` cannot be the name of a remote: {why}")]
    RemoteName { name: String, why: &'static str },
    /// A ref has to be named.
    #[error("HEAD is on no branch: name what is meant")]
    NoBranch,
    /// Only part of what a remote must do works.
    #[error("{location} cannot be used as it is: {what}")]
    Unfit { location: String, what: String },
    /// A file with keys that others may read.
    #[error("the keys in {} are not used: {why}", path.display())]
    CredentialsFile { path: PathBuf, why: String },
    /// A command for keys that has none to give.
    #[error("the command for the keys of {remote} failed: {why}")]
    CredentialsCommand { remote: String, why: String },
    /// A branch here and the one there have both gone on.
    #[error("{noun} `{name}` here and at {remote} have gone different ways")]
    Diverged { noun: &'static str, name: String, remote: String },
    /// A folder to clone into that is not empty.
    #[error("{} is not an empty folder", path.display())]
    NotEmpty { path: PathBuf },
    /// Nothing can wait for the network.
    #[error("cannot start threads for the network")]
    Runtime { source: io::Error },
    /// A store elsewhere could not be used.
    #[error(transparent)]
    Remote(Box<RemoteError>),
    /// A service could not be set up.
    #[error(transparent)]
    OpenRemote(Box<OpenError>),
    /// A file of the user that could not be written.
    #[error(transparent)]
    File(#[from] PathError),
    /// No command of that name has a manual page.
    #[error("there is no command `{name}`")]
    NoCommand { name: String },
    /// Ctrl-C cannot be caught.
    #[error("cannot catch signals")]
    Signal(#[source] io::Error),
    /// stdout failed.
    #[error("cannot write to stdout")]
    Output(#[from] io::Error),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error(transparent)]
    Repair(#[from] RepairError),
    #[error(transparent)]
    Repo(#[from] RepoError),
    /// There is no server, or no token.
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Ref(#[from] RefError),
    #[error(transparent)]
    RefName(#[from] RefNameError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Path(#[from] PathInTreeError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    List(#[from] ListError),
    #[error(transparent)]
    Cat(#[from] CatError),
    #[error(transparent)]
    Past(#[from] PastError),
    #[error(transparent)]
    Undo(#[from] UndoError),
    #[error(transparent)]
    Diff(#[from] DiffError),
}

impl From<RemoteError> for CliError {
    fn from(error: RemoteError) -> Self {
        Self::Remote(Box::new(error))
    }
}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> Self {
        Self::OpenRemote(Box::new(error))
    }
}

impl From<LocationError> for CliError {
    fn from(error: LocationError) -> Self {
        OpenError::from(error).into()
    }
}

impl CliError {
    /// What a caller can do about it.
    pub(crate) fn kind(&self) -> ErrorKind {
        let lacks = causes(self)
            .any(|cause| matches!(cause.downcast_ref(), Some(StoreError::Missing { .. })));
        if lacks {
            // Every id that gets this far came from the store itself.
            return ErrorKind::Damaged;
        }
        if causes(self).any(|cause| cause.downcast_ref().is_some_and(Interrupted::is_why)) {
            return ErrorKind::Interrupted;
        }
        match self {
            Self::NoStore | Self::NoContent { .. } | Self::NoUserFile | Self::NoRef { .. } => {
                ErrorKind::NotFound
            }
            Self::NoCommand { .. } | Self::NoPaths { .. } => ErrorKind::NotFound,
            Self::NoProfile { .. } | Self::NoHome { .. } | Self::NoStart { .. } => {
                ErrorKind::Invalid
            }
            Self::Untrusted { .. } | Self::RelativeTrust { .. } | Self::SystemFile { .. } => {
                ErrorKind::Invalid
            }
            Self::UntrustedStore(_) | Self::ForeignSettings { .. } | Self::KeysWithheld { .. } => {
                ErrorKind::Denied
            }
            Self::NoStateFolder => ErrorKind::NotFound,
            Self::HookStart { .. } | Self::PreHook { .. } | Self::PostHook { .. } => {
                ErrorKind::Unavailable
            }
            Self::PreHookInterrupted { .. } | Self::PostHookInterrupted { .. } => {
                ErrorKind::Interrupted
            }
            Self::OnNeitherSide { .. } | Self::NotWithin { .. } => ErrorKind::NotFound,
            Self::Outside { .. } => ErrorKind::Invalid,
            Self::NotAFile { .. } | Self::CurrentBranch { .. } => ErrorKind::Exists,
            Self::BadTime { .. } | Self::BadDate { .. } => ErrorKind::Invalid,
            Self::NoSource { .. } | Self::FolderOfSnapshot { .. } | Self::Usage(_) => {
                ErrorKind::Invalid
            }
            Self::NoPlace { .. } | Self::LabelTwice { .. } | Self::StdinName { .. } => {
                ErrorKind::Invalid
            }
            Self::UnknownFormat { .. } | Self::NoLevel { .. } | Self::Prefix { .. } => {
                ErrorKind::Invalid
            }
            Self::Folder { source }
            | Self::Signal(source)
            | Self::Output(source)
            | Self::ExportTo { source, .. } => {
                match ErrorKind::of_io(source) {
                    // Nothing here is the store's.
                    ErrorKind::Damaged | ErrorKind::Invalid => ErrorKind::Unavailable,
                    kind => kind,
                }
            }
            Self::NoBundle { .. } | Self::NoRemote { .. } | Self::NoRemotes => ErrorKind::NotFound,
            Self::WhichRemote { .. } | Self::RemoteName { .. } | Self::NoBranch => {
                ErrorKind::Invalid
            }
            Self::RemoteExists { .. } | Self::Diverged { .. } | Self::NotEmpty { .. } => {
                ErrorKind::Exists
            }
            Self::Unfit { .. } | Self::CredentialsFile { .. } => ErrorKind::Denied,
            Self::CredentialsCommand { .. } | Self::Runtime { .. } => ErrorKind::Unavailable,
            Self::Remote(error) => error.kind(),
            Self::OpenRemote(_) => ErrorKind::Invalid,
            Self::NotForward { .. } => ErrorKind::Exists,
            Self::ToTerminal => ErrorKind::Invalid,
            Self::Bundle { source, .. } => source.kind(),
            Self::InBundle { source, .. } => source.kind(),
            Self::Cloned { source, .. } => source.kind(),
            Self::Pack { source, .. } | Self::Unpack { source, .. } => source.kind(),
            Self::Source(error) | Self::File(error) | Self::Settings(error) => match error.kind() {
                ErrorKind::Damaged => ErrorKind::Unavailable,
                kind => kind,
            },
            Self::Commit(error) => error.kind(),
            Self::Restore(error) => error.kind(),
            Self::Export(error) => error.kind(),
            Self::Verify(error) => error.kind(),
            Self::Repair(error) => error.kind(),
            Self::Repo(error) => error.kind(),
            Self::Serve(error) => error.kind(),
            Self::Config(error) => error.kind(),
            Self::Ref(error) => error.kind(),
            Self::RefName(_) => ErrorKind::Invalid,
            Self::Spec(error) => error.kind(),
            Self::Path(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::List(error) => error.kind(),
            Self::Past(error) => error.kind(),
            Self::Undo(error) => error.kind(),
            Self::Cat(error) => error.kind(),
            Self::Content { source, .. } => source.kind(),
            Self::Diff(error) => error.kind(),
        }
    }

    /// Whether the reader of stdout went away.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        let output = match self {
            Self::Output(error)
            | Self::List(ListError::Output(error))
            | Self::ExportTo { source: error, .. }
            | Self::Cat(CatError::Output(error))
            | Self::Diff(DiffError::Output(error)) => error,
            Self::Pack { source, .. } => match &**source {
                bundle::Error::Bundle(BundleError::Stream { source: error, .. }) => error,
                _ => return false,
            },
            _ => return false,
        };
        output.kind() == io::ErrorKind::BrokenPipe
    }
}

fn no_paths(profile: &str, path: &str, count: usize) -> String {
    match count {
        1 => format!("path of profile `{profile}` does not exist: {path}"),
        _ => format!("no path of profile `{profile}` exists, such as {path}"),
    }
}

fn no_date(text: &str) -> String {
    match text.trim() {
        "" => "a date is missing".to_owned(),
        _ => format!("`{text}` is not a date"),
    }
}

/// Prints help, version or what is wrong with the command line.
pub(crate) fn usage(answer: &clap::Error, ui: &Ui) -> ExitCode {
    let code = u8::try_from(answer.exit_code()).unwrap_or(2);
    if answer.use_stderr() {
        ui.usage_error(&answer.render(), code);
    } else if let Err(error) = ui.help(&answer.render()) {
        return failure(&error.into(), None, ui);
    }
    ExitCode::from(code)
}

/// The exit code of a command that did not fail.
pub(crate) fn done(done: Done) -> ExitCode {
    match done {
        Done::Well => ExitCode::SUCCESS,
        Done::Skipped => ExitCode::from(3),
        Done::Damaged => ExitCode::from(4),
        Done::Different => ExitCode::FAILURE,
    }
}

/// Reports an error and gives its exit code. `advice` comes from those who know
/// more than the error says.
pub(crate) fn failure(error: &CliError, advice: Option<String>, ui: &Ui) -> ExitCode {
    if error.is_broken_pipe() {
        return ExitCode::SUCCESS;
    }
    let code = match error.kind() {
        ErrorKind::Invalid => 2,
        ErrorKind::Damaged => 4,
        ErrorKind::Interrupted => 130,
        _ => 1,
    };
    ui.error(error, advice.or_else(|| hint::hint(error)).as_deref(), code);
    ExitCode::from(code)
}
