//! Turns an error into a message, its causes, a hint and an exit code.
//!
//! The exit codes are listed in [`EXIT_CODES`]. A reader that closes the pipe (`snap log | head`)
//! is not an error; the command ends quietly.

pub(crate) mod causes;
mod code;
mod hint;
mod remote;
#[cfg(feature = "serve")]
mod serve;
mod trust;

use std::{io, path::PathBuf, process::ExitCode};

use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        io::PathError,
        kind::ErrorKind,
        name::NameError,
    },
    format::pack::ObjectKind,
    ops::{
        bundle, cat::CatError, commit::CommitError, diff::DiffError, export::ExportError,
        list::ListError, removal_error::RemovalError, restore::RestoreError, update::UpdateError,
        verify::VerifyError,
    },
    repo::{
        PastError, Pointer, RefError, RepoError, SpecError, UndoError, config::ConfigError,
        path::PathInTreeError, ref_name::RefNameError,
    },
    store::{BundleError, StoreError},
};
use snap_remote::{
    location::LocationError,
    peer::{RemoteError, open::OpenError},
};

use self::causes::causes;
#[cfg(feature = "serve")]
pub(crate) use self::serve::ServeError;
pub(crate) use self::{
    code::{ERROR_CODES, ErrorCode},
    hint::of_ref as ref_hint,
    trust::{Role, SensitiveSetting, UntrustedSettings, UntrustedStore},
};
use crate::{
    args,
    command_stream::CommandStreamError,
    foreign,
    stream::Interrupted,
    ui::{ErrorClass, Ui, size::count},
};

/// The meaning of each exit code.
pub(crate) const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "done"),
    ("1", "failed; or `snap diff --exit-code` found differences"),
    ("2", "the command line, a setting or a variable is invalid"),
    ("3", "done, but some files or attributes were skipped"),
    ("4", "damage found"),
    ("130", "interrupted"),
];

/// The exit codes, as in [`EXIT_CODES`].
const FAILED: u8 = 1;
const INVALID: u8 = 2;
const SKIPPED: u8 = 3;
const DAMAGED: u8 = 4;

/// Exit code after Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// The result of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    /// Everything was done.
    Success,
    /// Some files could not be read and were skipped.
    Skipped,
    /// Damage was found by a command that looks for damage.
    Damaged,
    /// Nothing could be done, and the command has said why.
    Failed,
    /// Differences were found, and the user requested an exit code for them.
    Different,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// No store was named, and there is none in this folder or above.
    #[error("no store found in this folder or above")]
    NoStore,
    /// `--store`, `SNAP_STORE` or a profile names a remote.
    #[error("a store is a folder, and `{scheme}://…` is the location of a remote")]
    StoreIsRemote { scheme: String },
    /// The current folder was deleted.
    #[error("the current folder was deleted")]
    FolderDeleted,
    /// The current folder has no path.
    #[error("cannot determine the current folder")]
    Folder { source: io::Error },
    /// A time is invalid.
    #[error("{name}: `{text}` is not a time such as 2026-11-21T08:00:00Z")]
    BadTime { name: &'static str, text: String },
    /// A date is invalid.
    #[error("{}", no_date(text))]
    BadDate { text: String },
    /// The user's settings file cannot be read or written.
    #[error(transparent)]
    Settings(PathError),
    /// The user's settings cannot be changed, because no file is configured for them.
    #[error("no file is configured for the user's settings")]
    NoUserFile,
    /// The profile does not exist.
    #[error("profile `{name}` does not exist")]
    NoProfile { name: String, known: Vec<String> },
    /// A `~` cannot be replaced by a folder.
    #[error("cannot expand `~` in `{path}`")]
    NoHome { path: String },
    /// A path begins with the home folder of another user.
    #[error("cannot expand `~` in `{path}`: only your own home folder is known")]
    OtherHome { path: String },
    /// A path of a profile is relative, and the store has no project folder to start at.
    #[error("profile `{profile}`: `{path}` is relative, and a bare store has no project folder")]
    NoStart { profile: String, path: String },
    /// None of the paths of a profile exists.
    #[error("{}", no_paths(profile, path, *count))]
    NoPaths { profile: String, path: String, count: usize },
    /// A setting in a store's file is used only if the user trusts that file.
    #[error(
        "{origin}: {what} is not used: you do not trust the settings of this store, or they \
         changed since"
    )]
    Untrusted { origin: String, what: SensitiveSetting, settings: UntrustedSettings },
    /// The store was found by the search, and another user may have put it there.
    #[error(transparent)]
    UntrustedStore(#[from] UntrustedStore),
    /// The settings file of the store belongs to another user, so this user must not replace it.
    #[error("{} belongs to the user with id {uid}: only its owner can change it", path.display())]
    ForeignSettings { path: PathBuf, uid: u32 },
    /// Users other than root may have written the system's settings file.
    #[error(
        "{} is not used: it must belong to root, and only root may write to it (owner {uid}, mode \
         {mode:04o})",
        path.display()
    )]
    SystemFile { path: PathBuf, uid: u32, mode: u32 },
    /// A path to be trusted is relative, so it depends on the current folder.
    #[error("{origin}: `{}` is not an absolute path", path.display())]
    RelativeTrust { origin: &'static str, path: PathBuf },
    /// Trust cannot be recorded, because there is no folder for it.
    #[error("no folder is configured to record trust in")]
    NoStateFolder,
    /// Credentials are withheld, because an untrusted store's file names the remote.
    #[error(
        "no credentials are sent to {remote}: only the settings of this store, which are not \
         trusted, name it"
    )]
    KeysWithheld { remote: String, settings: UntrustedSettings },
    /// The command names no remote, and only an untrusted store says which one is the default.
    #[error(
        "the default remote {remote} is not used: only the settings of this store, which are not \
         trusted, name it"
    )]
    UntrustedDefault { remote: String, settings: UntrustedSettings },
    /// A hook cannot be started.
    #[error("cannot start the {name} hook")]
    HookStart { name: &'static str, source: io::Error },
    /// A hook failed, and nothing was committed.
    #[error("the {name} hook failed: {how}")]
    PreHook { name: &'static str, how: String },
    /// A hook failed after the commit.
    #[error("the {name} hook failed: {how}; the commit was made")]
    PostHook { name: &'static str, how: String },
    /// The user pressed Ctrl-C while a hook ran, before the commit.
    #[error("interrupted in the {name} hook")]
    PreHookInterrupted { name: &'static str },
    /// The user pressed Ctrl-C while a hook ran, after the commit.
    #[error("interrupted in the {name} hook; the commit was made")]
    PostHookInterrupted { name: &'static str },
    /// The output of a command is not committed.
    #[error(transparent)]
    CommandStream(#[from] CommandStreamError),
    /// `commit` has no path to commit: none is given, and the store has no project.
    #[error("a path is required: the store {store} has no project folder")]
    NoSource { store: String },
    /// A commit in `/` without a store would save the whole machine.
    #[error("there is no store here or above, and a commit of / would save the whole machine")]
    WholeMachine,
    /// The user did not want a store in the folder of a first commit.
    #[error("no store was created at {store}")]
    StoreDeclined { store: String },
    /// Without a terminal, a first commit creates no store in `/` or in the home folder.
    #[error("there is no store here or above, and snap creates none {place} without a question")]
    NoStoreThere { place: String },
    /// The lists of paths are empty, and the command line names no path.
    #[error("the list {file} contains no path")]
    EmptyList { file: String },
    /// Options contradict each other.
    #[error("{0}")]
    Usage(&'static str),
    /// A restore names a folder to restore into, and paths to restore to their place.
    #[error("`snap restore` takes a folder, or paths after `--`, but not both")]
    FolderAndPaths,
    /// A whole snapshot would be written into a folder that is itself part of it.
    #[error("cannot restore the whole snapshot into `{path}`: the folder is part of the snapshot")]
    FolderOfSnapshot { what: String, path: String },
    /// A path names something other than a file.
    #[error("`{path}` is a {noun}, not a file")]
    NotAFile { path: String, noun: &'static str },
    /// An entry has neither a content nor a tree, so it has no id.
    #[error("`{path}` is a {noun}, which has no id")]
    NoId { path: String, noun: &'static str },
    /// A text names neither a file in a snapshot nor a blob.
    #[error("`{text}` is neither REV:PATH nor a content id")]
    NoContent { text: String },
    /// The branch or tag does not exist and never did.
    #[error("branch or tag `{name}` does not exist and never did")]
    NoRef { name: String },
    /// A path given to `commit` cannot be read.
    #[error(transparent)]
    Source(PathError),
    /// A path given to `commit` cannot be a path in a snapshot.
    #[error("`{path}` is not a valid path in a snapshot")]
    NoPlace { path: String },
    /// A path to compare exists on neither side.
    #[error("`{path}` does not exist on either side")]
    OnNeitherSide { path: String },
    /// A path to compare is outside the folder that is compared.
    #[error("`{path}` is not in the folder that is compared")]
    Outside { path: String },
    /// A path leads out of the project.
    #[error("`{path}` is outside the project")]
    OutsideProject { path: String },
    /// The named snapshot does not contain the path.
    #[error("`{path}` does not exist in `{within}`")]
    NotWithin { path: String, within: String },
    /// A file to compare cannot be read.
    #[error("cannot compare `{path}`")]
    Content { path: String, source: Box<CatError> },
    /// A label is given twice.
    #[error("label `{key}` is given twice")]
    LabelTwice { key: String },
    /// A marker in the settings is invalid.
    #[error("exclude_if_present: `{text}` does not start with the name of a file")]
    Marker { text: String },
    /// The file name given to `commit --stdin` is invalid.
    #[error("--stdin requires the name of a file, without folders")]
    StdinName { source: NameError },
    /// The archive format is neither given nor clear from the file name.
    #[error("cannot infer the archive format from `{path}`")]
    UnknownFormat { path: String },
    /// The archive format does not support this compression level.
    #[error("{format} does not support compression level {level}")]
    NoLevel { format: &'static str, level: i32 },
    /// The folder given by `--prefix` is invalid.
    #[error("--prefix requires a relative path")]
    Prefix { source: NameError },
    /// The branch cannot be deleted, because it is the current one.
    #[error("`{name}` is the current branch")]
    CurrentBranch { name: String },
    /// Moving the branch would lose commits.
    #[error("branch `{name}` has commits that are not ancestors of {commit:.12}")]
    NotForward { name: String, commit: CommitId },
    /// A server serves the store, and would serve it read-only after a collection.
    #[error("`snap serve` serves {place}, and would serve this store read-only after `snap gc`")]
    GcServed { place: String },
    /// A bundle or an archive would be written to a terminal.
    #[error("stdout is a terminal")]
    ToTerminal,
    /// The output file exists, and --force is not given.
    #[error("`{file}` already exists")]
    OutputExists { file: String },
    /// The bundle does not exist.
    #[error("`{file}` is neither a file nor a commit")]
    NoBundle { file: String },
    /// A text names a bundle and a revision.
    #[error("`{name}` is both a revision and a bundle")]
    FileOrRevision { name: String },
    /// The name of a new branch or tag could be that of a remote branch.
    #[error("`{name}` could be a branch of the remote `{remote}`")]
    NameOfRemote { name: String, remote: String },
    /// A source of a repair is a folder of files.
    #[error("`{folder}` is neither a store nor a project with a store")]
    PlainFolder { folder: String },
    /// A file cannot be read as a bundle.
    #[error("cannot read the bundle {file}")]
    Bundle { file: String, source: Box<BundleError> },
    /// An object in a bundle cannot be read.
    #[error("cannot read from the bundle {file}")]
    InBundle { file: String, source: Box<StoreError> },
    /// A clone failed before everything was fetched; what was fetched is kept.
    #[error("the clone in {folder} is incomplete")]
    Cloned { folder: String, source: Box<CliError> },
    /// A bundle cannot be written.
    #[error("cannot pack into {file}")]
    Pack { file: String, source: Box<bundle::Error> },
    /// A bundle cannot be unpacked.
    #[error("cannot unpack {file}")]
    Unpack { file: String, source: Box<bundle::Error> },
    /// A bundle is damaged or incomplete, or cannot be checked.
    #[error("cannot verify {file}")]
    VerifyBundle { file: String, source: Box<bundle::Error> },
    /// An archive cannot be written.
    #[error("cannot export to {file}")]
    ExportTo { file: String, source: io::Error },
    /// The remote does not exist.
    #[error("remote `{name}` does not exist")]
    NoRemote { name: String, known: Vec<String> },
    /// The command needs a remote, and there is none.
    #[error("the store has no remote")]
    NoRemotes,
    /// A restore would delete files that no commit contains. `hint` names how to save them.
    #[error("{error}")]
    Unsaved { error: Box<RestoreError>, hint: String },
    /// Only remotes have the branch. `remotes` are their names for it.
    #[error("branch `{name}` does not exist here")]
    BranchOfRemote { name: String, remotes: Vec<String> },
    /// A path to restore in place belongs to git.
    #[error("`{path}` belongs to git; a restore leaves it alone")]
    GitAtTop { path: String },
    /// The patterns of a restore select nothing.
    #[error("nothing was restored: --include and --exclude select no entry")]
    NothingIncluded,
    /// The command needs a remote, and none of several is the default.
    #[error("none of the remotes is the default: `{}`", known.join("`, `"))]
    WhichRemote { known: Vec<String> },
    /// The remote already exists.
    #[error("remote `{name}` already exists: {url}")]
    RemoteExists { name: String, url: String },
    /// The name of a remote is invalid.
    #[error("`{name}` is not a valid name of a remote: {why}")]
    RemoteName { name: String, why: &'static str },
    /// The command needs a ref, because `HEAD` is on no branch.
    #[error("HEAD is detached: name a branch")]
    NoBranch,
    /// The remote lacks an operation that snap needs.
    #[error("{location} cannot be used: {what}")]
    Unfit { location: String, what: String },
    /// A file with credentials is not used, for example because other users may read it.
    #[error("the credentials in {} are not used: {why}", path.display())]
    CredentialsFile { path: PathBuf, why: String },
    /// A command for credentials failed or printed none.
    #[error("the credentials command of {remote} failed: {why}")]
    CredentialsCommand { remote: String, why: String },
    /// An update would lose local changes. The paths were printed.
    #[error(
        "conflict: {} changed both here and in {new:.12}; branch `{branch}` and the files stay as \
         they are",
        were(*paths)
    )]
    UpdateConflict { paths: u64, first: PathBuf, new: CommitId, branch: String },
    /// The branch here and the remote's branch have diverged.
    #[error("{noun} `{name}` and {remote} have diverged: {here} only here, {there} only there")]
    Diverged { noun: &'static str, name: String, remote: String, here: String, there: String },
    /// The folder to clone into is not empty.
    #[error("{} is not an empty folder", path.display())]
    NotEmpty { path: PathBuf },
    /// Worker threads could not be started.
    #[error("cannot start worker threads")]
    Threads(#[source] rayon::ThreadPoolBuildError),
    /// The runtime for the network cannot be started.
    #[error("cannot start threads for the network")]
    Runtime { source: io::Error },
    /// A remote cannot be used.
    #[error(transparent)]
    Remote(Box<RemoteError>),
    /// The client for a remote cannot be set up.
    #[error(transparent)]
    OpenRemote(Box<OpenError>),
    /// A file of the user cannot be written.
    #[error(transparent)]
    File(#[from] PathError),
    /// No command of this name has a manual page.
    #[error("snap has no command `{name}`")]
    NoCommand { name: String },
    /// The handler for Ctrl-C cannot be installed.
    #[error("cannot catch signals")]
    Signal(#[source] io::Error),
    /// Writing to stdout failed.
    #[error("cannot write to stdout")]
    Output(#[from] io::Error),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Update(#[from] UpdateError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error(transparent)]
    Removal(#[from] RemovalError),
    /// A redo moves one ref, and a rewrite all of them.
    #[error("cannot redo `snap rewrite`")]
    RedoRewrite,
    /// A ref has changed since the undo of a `snap forget`.
    #[error("cannot redo `snap forget`: {} has changed since the last undo", pointer.shown())]
    RedoForget { pointer: Pointer },
    /// `snap gc` has deleted what an undo of a rewrite would bring back.
    #[error("cannot undo the last `snap rewrite`: `snap gc` has deleted what it removed")]
    RewriteFinal,
    /// `snap forget` got neither commits nor rules.
    #[error("no policy says which commits to keep")]
    NoPolicy,
    /// No server records when it received a commit.
    #[error("no server records yet when it received a commit")]
    ReceivedUnknown,
    /// `snap forget` works only in local stores.
    #[error("`{name}` is a remote, and snap cannot forget commits of a remote yet")]
    ForgetRemote { name: String },
    /// A policy applies to branches.
    #[error("there is no branch `{name}`")]
    ForgetBranch { name: String },
    /// `snap gc` has deleted a commit that an undo would bring back.
    #[error("cannot undo the last `snap forget`: `snap gc` has deleted commit {id:.12}")]
    ForgottenGone { id: CommitId },
    #[error(transparent)]
    Repo(#[from] RepoError),
    /// A server cannot be started, or its tokens cannot be managed.
    #[cfg(feature = "serve")]
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
        match error {
            OpenError::Cache(error) => error.into(),
            error => Self::OpenRemote(Box::new(error)),
        }
    }
}

impl From<LocationError> for CliError {
    fn from(error: LocationError) -> Self {
        OpenError::from(error).into()
    }
}

impl CliError {
    /// Returns the object that is missing, if the error says so.
    pub(crate) fn missing_object(&self) -> Option<(ObjectId, ObjectKind)> {
        causes(self).find_map(|cause| match cause.downcast_ref() {
            Some(StoreError::Missing { id, wanted }) => Some((*id, *wanted)),
            _ => None,
        })
    }

    /// Returns the pack that could not be fetched, if the error comes from such a pack.
    pub(crate) fn unfetched_pack(&self) -> Option<PackId> {
        causes(self).find_map(|cause| match cause.downcast_ref() {
            Some(StoreError::Fetch { pack, .. }) => Some(*pack),
            _ => None,
        })
    }

    /// Returns the kind of the error, from which a caller decides what to do.
    pub(crate) fn kind(&self) -> ErrorKind {
        if self.missing_object().is_some() {
            // Every id that reaches this point came from the store itself.
            return ErrorKind::Damaged;
        }
        if causes(self).any(|cause| cause.downcast_ref().is_some_and(Interrupted::is_why)) {
            return ErrorKind::Interrupted;
        }
        match self {
            Self::NoStore | Self::NoContent { .. } | Self::NoUserFile | Self::NoRef { .. } => {
                ErrorKind::NotFound
            }
            Self::NoCommand { .. } | Self::NoPaths { .. } | Self::NothingIncluded => {
                ErrorKind::NotFound
            }
            Self::StoreDeclined { .. } | Self::NoStoreThere { .. } => ErrorKind::NotFound,
            Self::StoreIsRemote { .. }
            | Self::NoProfile { .. }
            | Self::NoHome { .. }
            | Self::OtherHome { .. }
            | Self::NoStart { .. } => ErrorKind::Invalid,
            Self::Untrusted { .. } | Self::RelativeTrust { .. } | Self::SystemFile { .. } => {
                ErrorKind::Invalid
            }
            Self::UntrustedStore(_)
            | Self::ForeignSettings { .. }
            | Self::KeysWithheld { .. }
            | Self::UntrustedDefault { .. } => ErrorKind::Denied,
            Self::NoStateFolder | Self::FolderDeleted => ErrorKind::NotFound,
            Self::HookStart { .. }
            | Self::PreHook { .. }
            | Self::PostHook { .. }
            | Self::CommandStream(_) => ErrorKind::Unavailable,
            Self::PreHookInterrupted { .. } | Self::PostHookInterrupted { .. } => {
                ErrorKind::Interrupted
            }
            Self::OnNeitherSide { .. } | Self::NotWithin { .. } => ErrorKind::NotFound,
            Self::Outside { .. } | Self::OutsideProject { .. } => ErrorKind::Invalid,
            Self::NotAFile { .. } | Self::NoId { .. } | Self::CurrentBranch { .. } => {
                ErrorKind::Exists
            }
            Self::BadTime { .. } | Self::BadDate { .. } => ErrorKind::Invalid,
            Self::NoPolicy
            | Self::ReceivedUnknown
            | Self::RedoRewrite
            | Self::ForgetRemote { .. } => ErrorKind::Invalid,
            Self::ForgetBranch { .. }
            | Self::ForgottenGone { .. }
            | Self::RedoForget { .. }
            | Self::RewriteFinal => ErrorKind::NotFound,
            Self::NoSource { .. }
            | Self::WholeMachine
            | Self::FolderOfSnapshot { .. }
            | Self::EmptyList { .. }
            | Self::FolderAndPaths
            | Self::Usage(_) => ErrorKind::Invalid,
            Self::NoPlace { .. }
            | Self::LabelTwice { .. }
            | Self::StdinName { .. }
            | Self::Marker { .. } => ErrorKind::Invalid,
            Self::UnknownFormat { .. } | Self::NoLevel { .. } | Self::Prefix { .. } => {
                ErrorKind::Invalid
            }
            Self::Folder { source }
            | Self::Signal(source)
            | Self::Output(source)
            | Self::ExportTo { source, .. } => {
                match ErrorKind::from(source.kind()) {
                    // The error is not about data of the store.
                    ErrorKind::Damaged | ErrorKind::Invalid => ErrorKind::Unavailable,
                    kind => kind,
                }
            }
            Self::NoBundle { .. }
            | Self::PlainFolder { .. }
            | Self::NoRemote { .. }
            | Self::NoRemotes => ErrorKind::NotFound,
            Self::FileOrRevision { .. } | Self::NameOfRemote { .. } => ErrorKind::Invalid,
            Self::WhichRemote { .. } | Self::RemoteName { .. } | Self::NoBranch => {
                ErrorKind::Invalid
            }
            Self::RemoteExists { .. }
            | Self::Diverged { .. }
            | Self::UpdateConflict { .. }
            | Self::NotEmpty { .. } => ErrorKind::Exists,
            Self::Unfit { .. } | Self::CredentialsFile { .. } => ErrorKind::Denied,
            Self::CredentialsCommand { .. } | Self::Runtime { .. } | Self::Threads(_) => {
                ErrorKind::Unavailable
            }
            Self::Remote(error) => error.kind(),
            Self::OpenRemote(error) => match &**error {
                OpenError::Store(error) => error.kind(),
                _ => ErrorKind::Invalid,
            },
            Self::NotForward { .. } | Self::OutputExists { .. } => ErrorKind::Exists,
            Self::GcServed { .. } => ErrorKind::Refused,
            Self::ToTerminal => ErrorKind::Invalid,
            Self::Bundle { source, .. } => source.kind(),
            Self::InBundle { source, .. } => source.kind(),
            Self::Cloned { source, .. } => source.kind(),
            Self::Pack { source, .. }
            | Self::Unpack { source, .. }
            | Self::VerifyBundle { source, .. } => source.kind(),
            Self::Source(error) | Self::File(error) | Self::Settings(error) => match error.kind() {
                ErrorKind::Damaged => ErrorKind::Unavailable,
                kind => kind,
            },
            Self::Commit(error) => error.kind(),
            Self::Restore(error) => error.kind(),
            Self::Unsaved { error, .. } => error.kind(),
            Self::GitAtTop { .. } => ErrorKind::Exists,
            Self::BranchOfRemote { .. } => ErrorKind::NotFound,
            Self::Update(error) => error.kind(),
            Self::Export(error) => error.kind(),
            Self::Verify(error) => error.kind(),
            Self::Removal(error) => error.kind(),
            Self::Repo(error) => error.kind(),
            #[cfg(feature = "serve")]
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

    /// Returns true if the reader of stdout closed it.
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

fn were(paths: u64) -> String {
    format!("{} {}", count(paths, "path"), if paths == 1 { "was" } else { "were" })
}

fn no_date(text: &str) -> String {
    match text.trim() {
        "" => "a date is missing".to_owned(),
        _ => format!("`{text}` is not a date"),
    }
}

/// Prints the help, the version, or the error in the command line.
pub(crate) fn usage(answer: &clap::Error, ui: &Ui) -> ExitCode {
    let exit = u8::try_from(answer.exit_code()).unwrap_or(INVALID);
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(advice) = foreign::advice(answer, &args::definition(), &words) {
        ui.usage_hint(&advice.message, &advice.hint, ErrorClass { code: &code::USAGE, exit });
    } else if answer.use_stderr() {
        ui.usage_error(&answer.render(), ErrorClass { code: &code::USAGE, exit });
    } else if let Err(error) = ui.help(&answer.render()) {
        return failure(&error.into(), None, ui);
    }
    ExitCode::from(exit)
}

/// Returns the exit code of a command that did not fail.
pub(crate) fn done(done: CommandOutcome) -> ExitCode {
    match done {
        CommandOutcome::Success => ExitCode::SUCCESS,
        CommandOutcome::Skipped => ExitCode::from(SKIPPED),
        CommandOutcome::Damaged => ExitCode::from(DAMAGED),
        CommandOutcome::Failed | CommandOutcome::Different => ExitCode::from(FAILED),
    }
}

/// Returns the hint for an error, if there is one.
pub(crate) fn hint(error: &CliError) -> Option<String> {
    hint::hint(error)
}

/// Reports an error and returns its exit code. A caller that knows more than the error does passes
/// its own hint as `advice`.
pub(crate) fn failure(error: &CliError, advice: Option<String>, ui: &Ui) -> ExitCode {
    if error.is_broken_pipe() {
        return ExitCode::SUCCESS;
    }
    let exit = match error.kind() {
        ErrorKind::Invalid => INVALID,
        ErrorKind::Damaged => DAMAGED,
        ErrorKind::Interrupted => INTERRUPTED,
        _ => FAILED,
    };
    let class = ErrorClass { code: code::of(error), exit };
    ui.error(error, advice.or_else(|| hint::hint(error)).as_deref(), class);
    ExitCode::from(exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_exit_code_once() {
        let listed: Vec<u8> = EXIT_CODES.iter().map(|(code, _)| code.parse().unwrap()).collect();
        assert_eq!(listed, [0, FAILED, INVALID, SKIPPED, DAMAGED, INTERRUPTED]);
    }
}
