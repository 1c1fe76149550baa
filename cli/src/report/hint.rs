//! Hints: what the user can do about an error.

use std::{error::Error, ffi::OsStr, io, path::Path};

use snap_core::{
    base::{
        blocked::{Blocked, PartialClone},
        id::CommitId,
        io::PathError,
        kind::ErrorKind,
        suggestions::similar_names,
    },
    disk::{
        scratch::{self, is_unique_name},
        symlink_guard::LinkError,
    },
    local::ignore::GIT,
    ops::{
        bundle, commit::CommitError, export::ExportError, forget::KeepReason, list::ListError,
        reach::ReachError, removal_error::RemovalError, restore::RestoreError,
    },
    repo::{
        PastError, Pointer, RefError, RefName, Repo, RepoError, SpecError, UndoError,
        config::{
            ConfigError,
            error::{PlacementRule, SettingOrigin},
            layer::ConfigOwner,
        },
        path::PathInTreeError,
        ref_log,
        undo::Direction,
    },
    store::{BundleError, StoreError},
};

use crate::{
    command_stream::CommandStreamError,
    report::{CliError, causes::causes, remote, trust},
    ui::text,
    ui::time,
};

/// Limit on the profiles that a hint lists.
const LISTED: usize = 10;

/// First half of the hint for damage in another store.
const NOT_HERE: &str = "the local store is not damaged";

/// How to repair another store.
const PUSH_AGAIN: &str = "push again from an undamaged store";

/// Returns the hint for an error, if there is one.
pub(super) fn hint(error: &CliError) -> Option<String> {
    causes(error).find_map(specific).or_else(|| by_kind(error))
}

#[cfg(feature = "serve")]
use super::serve::hint as of_serve;

/// Returns nothing: without the feature `serve` there are no such errors.
#[cfg(not(feature = "serve"))]
fn of_serve(_: &(dyn Error + 'static)) -> Option<String> {
    None
}

/// Returns the hint for one error of the chain of causes.
fn specific(error: &(dyn Error + 'static)) -> Option<String> {
    let of = |found: Option<String>| found;
    of(error.downcast_ref().and_then(of_cli))
        .or_else(|| remote::hint(error))
        .or_else(|| of_serve(error))
        .or_else(|| error.downcast_ref().and_then(trust::hint))
        .or_else(|| error.downcast_ref().and_then(of_bundle))
        .or_else(|| error.downcast_ref().and_then(of_unpack))
        .or_else(|| error.downcast_ref().and_then(of_file))
        .or_else(|| error.downcast_ref().and_then(of_repo))
        .or_else(|| error.downcast_ref().and_then(of_config))
        .or_else(|| error.downcast_ref().and_then(of_ref))
        .or_else(|| error.downcast_ref().and_then(of_spec))
        .or_else(|| error.downcast_ref().and_then(of_path))
        .or_else(|| error.downcast_ref().and_then(of_restore))
        .or_else(|| error.downcast_ref().and_then(of_export))
        .or_else(|| error.downcast_ref().and_then(of_commit))
        .or_else(|| error.downcast_ref().and_then(of_removal))
        .or_else(|| error.downcast_ref().and_then(of_past))
        .or_else(|| error.downcast_ref().and_then(of_undo))
        .or_else(|| error.downcast_ref().and_then(of_store))
        .or_else(|| error.downcast_ref().and_then(of_threads))
        .or_else(|| error.downcast_ref().and_then(of_io))
}

fn of_threads(_: &rayon::ThreadPoolBuildError) -> Option<String> {
    Some("`ulimit -u` shows the limit of processes and threads of this user".to_owned())
}

fn of_cli(error: &CliError) -> Option<String> {
    let hint = match error {
        CliError::NoStore => {
            "`snap commit` creates a store here\n\
             `snap init` creates an empty store\n\
             `snap --store STORE COMMAND` uses another store"
        }
        CliError::FolderDeleted => "change to another folder",
        CliError::FolderAndPaths => {
            "`snap restore REV -- PATH...` restores the paths to their place in the project\n\
             `snap restore REV:PATH DIR` restores one path into a folder"
        }
        CliError::StoreIsRemote { .. } => {
            "commit to a folder, then `snap push URL` copies its commits there\n\
             to read them there, write `URL#REV`, for example `snap log URL#main`"
        }
        CliError::WholeMachine => {
            "change to the project folder first; `snap --store STORE commit /` commits the whole \
             machine"
        }
        CliError::StoreDeclined { .. } | CliError::NoStoreThere { .. } => {
            "change to the project folder first\n\
             or create a store here: `snap init`"
        }
        CliError::NoPolicy => {
            "add a rule, for example `snap forget --keep-daily 30 -n`\n\
             or name a commit: `snap forget REV`"
        }
        CliError::ReceivedUnknown => "leave out --by; rules then use the times of the commits",
        CliError::ForgetRemote { .. } => "run `snap forget` in a clone of the remote",
        CliError::RedoForget { .. } => "run the same `snap forget` again",
        CliError::RedoRewrite => "run the same `snap rewrite` again",
        CliError::RewriteFinal => {
            "`snap branch --log` lists other changes; `snap undo NAME` undoes one"
        }
        CliError::ForgetBranch { .. } => "`snap branch` lists the branches",
        CliError::ForgottenGone { .. } => DELETED,
        CliError::NoSource { store } => {
            return Some(format!("name what to commit: `snap --store {store} commit PATH`"));
        }
        CliError::FolderOfSnapshot { what, path } => {
            let place = text::word(format!("{what}:{path}").as_bytes());
            return Some(format!(
                "`snap restore {place}` restores that folder\n\
                 pass another DIR to restore the whole snapshot"
            ));
        }
        CliError::NotAFile { noun: "folder", .. } => "`snap ls` lists a folder",
        CliError::CurrentBranch { .. } => {
            "switch to another branch first: `snap branch --switch NAME`"
        }
        CliError::NoContent { .. } => "REV:PATH names a file, such as latest:notes.txt",
        CliError::NoPlace { .. } => "name the path from a parent folder, without `..`",
        CliError::Cloned { folder, .. } => {
            return Some(format!(
                "the downloaded part is kept; in {folder}, run `snap fetch`, then `snap restore \
                 latest`"
            ));
        }
        CliError::FileOrRevision { name } => {
            let file = text::word(format!("./{name}").as_bytes());
            return Some(format!(
                "for the file, write `{file}`\n\
                 for the revision, write `heads/NAME`, `remotes/NAME` or `tags/NAME`"
            ));
        }
        CliError::NameOfRemote { remote, .. } => {
            return Some(format!("choose a name that does not begin with `{remote}/`"));
        }
        CliError::NoBundle { .. } => {
            "`snap log` lists the commits\n\
             `snap pack` creates a bundle"
        }
        CliError::OutputExists { .. } => {
            "name another file with `-o FILE`\n\
             --force replaces it"
        }
        CliError::PlainFolder { folder } => {
            let word = text::word(folder.as_bytes());
            return Some(format!(
                "if it has copies of the files: `snap archive {word} -o FILE.snap`, then `snap \
                 repair --from FILE.snap`\n\
                 if not, name a project or a store folder"
            ));
        }
        CliError::ToTerminal => {
            "pass a file with `-o FILE`\n\
             redirect stdout to a file or a program"
        }
        CliError::GcServed { .. } => {
            "--yes collects it all the same\n\
             `snap gc -n` shows what would be deleted"
        }
        CliError::NotForward { .. } => {
            "the commits of the bundle are in the store\n\
             --force moves the branch to them\n\
             `--branch NAME` with a new name keeps both"
        }
        CliError::NoRef { .. } => {
            "`snap branch` lists the branches\n\
             `snap tag` lists the tags"
        }
        CliError::NotWithin { within, .. } => {
            return Some(format!("`snap ls -R {within}` lists its files and folders"));
        }
        CliError::OnNeitherSide { .. } => "paths are relative to the current folder",
        CliError::Outside { .. } => {
            "pass a path in it\n\
             pass another folder with `--folder FOLDER`"
        }
        CliError::OutsideProject { .. } => {
            "`./` and `../` start at the current folder, `REV:PATH` at the top of the snapshot"
        }
        CliError::NoCommand { .. } => "`snap --help` lists the commands",
        CliError::BadDate { .. } => return date(),
        CliError::NoUserFile => {
            "set SNAP_CONFIG to a file\n\
             set HOME to a folder"
        }
        CliError::OtherHome { .. } => {
            "write the full path\n\
             write `./~…` for a file or folder of that name"
        }
        CliError::NoHome { .. } => {
            "set HOME to a folder\n\
             write the full path"
        }
        CliError::NoStart { .. } => "start the path with `/` or `~/`",
        CliError::NoPaths { profile, .. } => {
            return Some(format!("`snap config get profile.{profile}.paths` lists them"));
        }
        CliError::NoProfile { known, .. } if known.is_empty() => {
            "`snap config set profile.NAME.paths '[\"~/docs\"]'` creates one for this store\n\
             with --user, it creates one for all stores"
        }
        CliError::NoProfile { name, known } => return Some(profiles(name, known)),
        CliError::HookStart { .. } => "hooks run with `sh -c`; check that `sh` is in PATH",
        CliError::PreHook { .. } => {
            "nothing was committed; `snap commit --no-hooks` commits without hooks"
        }
        CliError::CommandStream(CommandStreamError::Start { .. }) => {
            "check the command after `--`\n\
             for shell syntax, write `-- sh -c '…'`"
        }
        CliError::CommandStream(CommandStreamError::Failed { .. }) => "nothing was committed",
        CliError::PreHookInterrupted { .. } => "nothing was committed; run the command again",
        CliError::UnknownFormat { .. } => {
            "pass --format tar, tar.zst or zip\n\
             end the file name in .tar, .tar.zst or .zip"
        }
        CliError::NoLevel { format: "tar", .. } => "tar is not compressed; use .tar.zst",
        CliError::NoLevel { format: "zip", .. } => {
            "zip supports 0 (not compressed) to 9 (smallest)"
        }
        CliError::NoLevel { .. } => "tar.zst supports 1 (fastest) to 19 (smallest)",
        CliError::NothingIncluded => {
            "patterns have the syntax of .gitignore\n\
             `snap ls -R REV` lists all entries"
        }
        CliError::Unsaved { hint, .. } => return Some(hint.clone()),
        CliError::BranchOfRemote { name, remotes } => {
            let name = text::word(name.as_bytes());
            let creates = remotes.iter().map(|remote| {
                let remote = text::word(remote.as_bytes());
                format!("`snap branch {name} {remote}` creates it from that of the remote")
            });
            return Some(creates.collect::<Vec<_>>().join("\n"));
        }
        CliError::GitAtTop { .. } => {
            "--include-git restores it\npass a folder to restore it elsewhere"
        }
        CliError::NoRemote { .. } | CliError::NoRemotes | CliError::WhichRemote { .. } => {
            return remote::which(error);
        }
        CliError::RemoteExists { name, .. } => {
            return Some(format!(
                "choose another name\n\
                 `snap remote remove {name}` removes it from the settings and keeps its data"
            ));
        }
        CliError::NoBranch => "`snap branch` lists the branches",
        CliError::Unfit { .. } => {
            "grant these permissions to the credentials\n\
             `snap pull`, `snap clone` and `snap ls` need only list and read"
        }
        CliError::CredentialsFile { .. } => {
            "the file needs the lines `name = …` and `secret = …`\n\
             `chmod 600 FILE` makes it private"
        }
        CliError::CredentialsCommand { .. } => {
            "the command runs with `sh -c`\n\
             it must print the lines `name = …` and `secret = …`, or JSON"
        }
        CliError::UpdateConflict { first, new, .. } => {
            let path = first.as_os_str().as_encoded_bytes();
            let entry = text::word(&[b"HEAD:", path].concat());
            let saved = text::word(&[b"NAME:", path].concat());
            return Some(format!(
                "`snap commit -b NAME` saves the local changes on a new branch, then pull again\n\
                 `snap restore {saved} --overwrite` takes your version from that branch afterwards\n\
                 `snap diff {new:.12}` compares the files with the pulled commit\n\
                 `snap restore {entry} --overwrite` drops the change of one file"
            ));
        }
        CliError::Diverged { remote, .. } if remote.contains("://") => {
            "`snap remote add NAME URL` makes its commits available as NAME/BRANCH\n\
             --force moves the local one and drops the local commits from it"
        }
        CliError::Diverged { remote, name, .. } => {
            let theirs = text::word(format!("{remote}/{name}").as_bytes());
            let name = text::word(name.as_bytes());
            return Some(format!(
                "`snap diff {name} {theirs}` compares them\n\
                 `snap branch NAME {name}` keeps the local commits under another name\n\
                 `snap pull --force` moves the local one to the remote's"
            ));
        }
        CliError::NotEmpty { .. } => "pass a folder that is empty or does not exist",
        CliError::Prefix { .. } => "--prefix is a folder in the archive, such as project-1.0",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_bundle(error: &BundleError) -> Option<String> {
    let hint = match error {
        BundleError::Incomplete { .. } => "run `snap unpack` in a store that has the prerequisites",
        BundleError::Head(_) => {
            "`snap pack` creates a bundle of commits\n\
             `snap archive` creates a bundle of a folder"
        }
        BundleError::Empty => {
            "check the command that created the bundle, then create or copy it again"
        }
        BundleError::Cut { .. } => {
            "copy the file again\n\
             if a command sent the bundle, check its messages"
        }
        BundleError::Blocked(_) => return None,
        error if error.kind() == ErrorKind::Damaged => {
            "the file was changed after it was created; copy it again"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_unpack(error: &bundle::Error) -> Option<String> {
    let hint = match error {
        bundle::Error::Prerequisites { .. } => {
            "first unpack a bundle with these commits\n\
             or pack again without --since"
        }
        bundle::Error::Broken { .. } | bundle::Error::Damaged(_) => {
            "nothing was unpacked; copy or create the bundle again"
        }
        bundle::Error::Blocked(_) | bundle::Error::Reach(ReachError::Blocked(_)) => {
            "nothing was changed; run the command again"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns the hint for a temporary folder that cannot be written to, or for a link in place of a
/// file.
fn of_file(error: &PathError) -> Option<String> {
    let name = error.path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
    if is_unique_name(name, scratch::PREFIX) {
        return Some("set TMPDIR to a folder with free space that you may write to".to_owned());
    }
    let is_link = error.source.get_ref().is_some_and(|source| source.is::<LinkError>());
    is_link.then(|| remove_link(&error.path))
}

/// Returns the hint for a link inside a store.
fn remove_link(path: &Path) -> String {
    let word = text::word(path.as_os_str().as_encoded_bytes());
    format!("another user may have created the link; `rm {word}` removes it")
}

/// Returns the hint for an unknown profile: similar names, or the existing profiles.
fn profiles(name: &str, known: &[String]) -> String {
    let close = similar_names(name, known.iter().map(String::as_str));
    if !close.is_empty() {
        return format!("did you mean `{}`?", close.join("`, `"));
    }
    let shown: Vec<&str> = known.iter().take(LISTED).map(String::as_str).collect();
    let more = match known.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("known: `{}`{more}", shown.join("`, `"))
}

fn of_repo(error: &RepoError) -> Option<String> {
    let hint = match error {
        RepoError::NoStore { .. } => {
            "if the store is on another disk, mount that disk\n\
             `snap --store STORE init` creates a store"
        }
        RepoError::NotAStore { dir } if Repo::is_unfinished(dir) => {
            "its creation was interrupted; the next commit or `snap init` completes it\n\
             if `snap clone` was interrupted, remove the folder and clone again"
        }
        RepoError::SettingsLost { .. } => {
            "`snap repair` recreates it with default settings and keeps all commits"
        }
        RepoError::ObjectsLost { dir } => {
            let objects = dir.join("objects");
            let word = text::word(objects.as_os_str().as_encoded_bytes());
            if objects.is_symlink() {
                return Some(format!("{word} links to a missing folder; mount its disk"));
            }
            return Some(format!(
                "if it is your store: `mkdir {word}`, then `snap repair` downloads the objects \
                 from remotes\n\
                 if it is not a store, rename the folder"
            ));
        }
        RepoError::NotEmpty { dir } if Repo::has_lost_settings(dir) => {
            "this store has lost its settings; `snap repair` recreates them"
        }
        RepoError::NotAStore { .. } => "name the store folder itself, such as PROJECT/.snap",
        RepoError::Link { path } => return Some(remove_link(path)),
        RepoError::FoundLink { dir } => {
            let word = text::word(dir.as_os_str().as_encoded_bytes());
            return Some(format!(
                "if you made the link: `snap --store {word} COMMAND`\n\
                 if not: `rm {word}` removes the link"
            ));
        }
        RepoError::ObjectsInStore { .. } => {
            "this store may come from another user\n\
             to keep packs in another folder of the same file system, link to one outside all stores"
        }
        RepoError::Remote { dir } => {
            let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
            let path = text::line(dir.as_os_str().as_encoded_bytes());
            let [all, main] =
                ["", "#main"].map(|end| text::word(format!("file://{path}{end}").as_bytes()));
            return Some(format!(
                "`snap clone {all}` clones it\n\
                 `snap ls {main}` lists its files\n\
                 `snap serve {all}` serves it"
            ));
        }
        RepoError::Exists { .. } => "nothing was changed; `snap commit` uses this store",
        RepoError::NotEmpty { .. } => "pass a folder that is empty or does not exist",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The hint for a store from before the first release.
pub(super) const FROM_BEFORE_THE_RELEASE: &str =
    "make a new store and commit again; the snap that made this store can restore from it";

fn of_config(error: &ConfigError) -> Option<String> {
    let hint = match error {
        ConfigError::Newer { .. } => "a newer version of snap wrote this store; update snap",
        ConfigError::Older { .. } => FROM_BEFORE_THE_RELEASE,
        ConfigError::Unknown { key, .. } | ConfigError::UnknownKey { key, .. }
            if remote::is_secret(key) =>
        {
            "settings contain no secrets; set `remote.NAME.credentials_file` or \
             `remote.NAME.credentials_command`"
        }
        ConfigError::Unknown { close, .. } | ConfigError::UnknownKey { close, .. }
            if !close.is_empty() =>
        {
            return Some(format!("did you mean `{}`?", close.join("`, `")));
        }
        ConfigError::UnknownKey { .. } => "`snap config list` lists the settings",
        ConfigError::Misplaced { rule: PlacementRule::UserFile, .. } => {
            "`snap config set --user KEY VALUE` writes to the user's file"
        }
        ConfigError::NotEditable { .. } => "edit that file by hand",
        ConfigError::TooLarge { .. } => {
            "settings files have a few lines; check whether this is one"
        }
        ConfigError::NoVersion { .. } => "add `version = 5`",
        error => return of_setting_in_file(error),
    };
    Some(hint.to_owned())
}

fn of_setting_in_file(error: &ConfigError) -> Option<String> {
    const OF_STORE: &str = "correct that line of the file\n\
                            or remove the file; `snap repair` then recreates it with default \
                            settings";
    let hint = match error {
        ConfigError::Unknown { origin, .. }
        | ConfigError::FixedChunks { origin, .. }
        | ConfigError::Value { origin, .. }
        | ConfigError::Misplaced { origin, .. } => {
            origin.file()?;
            match **origin {
                SettingOrigin::File { owner: ConfigOwner::User, .. } => {
                    "correct that line of the file\n\
                     SNAP_CONFIG= ignores the file"
                }
                SettingOrigin::File { owner: ConfigOwner::Store, .. } => OF_STORE,
                _ => "correct that line of the file",
            }
        }
        ConfigError::Damaged { .. } => OF_STORE,
        ConfigError::Syntax { .. } => "correct that line of the file",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns what ends a partial clone.
fn of_partial(lacks: PartialClone) -> &'static str {
    match lacks {
        PartialClone::Paths => "`snap restore latest --overwrite` restores all paths",
        PartialClone::Packs => "`snap fetch` downloads the rest",
    }
}

fn of_removal(error: &RemovalError) -> Option<String> {
    let hint = match error {
        RemovalError::Blocked(Blocked::Partial { lacks, .. }) => of_partial(*lacks),
        RemovalError::Blocked(Blocked::Contended { .. }) => "run the command again later",
        RemovalError::NoMatch { .. } => "`snap find NAME` shows which commits have a file",
        RemovalError::OnlyTips => "add a rule such as --keep-daily 30, or pass --allow-none",
        RemovalError::Protected { reason: KeepReason::Tip(name), .. } => {
            return Some(format!(
                "to apply a policy to the branch, add a rule such as `snap forget {} --keep-daily 30`",
                name.short()
            ));
        }
        RemovalError::Protected { reason: KeepReason::Tag(name), .. } => {
            return Some(format!("`snap tag -d {}` deletes the tag", name.short()));
        }
        RemovalError::Protected { reason: KeepReason::Head, .. } => {
            "switch to a branch first: `snap branch --switch NAME`"
        }
        RemovalError::Protected { reason: KeepReason::Base, .. } => {
            "run `snap commit` first; the files then come from the new commit"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns the hint for a ref whose commit a collection has deleted.
fn of_collected(pointer: &Pointer) -> String {
    match pointer {
        Pointer::Head => "`snap branch --switch NAME` leaves the commit".to_owned(),
        Pointer::Ref(name) if name.kind() == snap_core::repo::ref_name::RefKind::Remote => {
            "`snap fetch` removes it if the remote no longer has the branch".to_owned()
        }
        Pointer::Ref(name) => {
            let (noun, short) = (name.kind().noun(), text::word(name.short().as_bytes()));
            format!("`snap {noun} -d {short}` deletes the {noun}")
        }
    }
}

/// Returns the hint for an error of a ref or of another small file of a store.
pub(crate) fn of_ref(error: &RefError) -> Option<String> {
    let hint = match error {
        RefError::Exists { .. } => "--force moves it".to_owned(),
        RefError::Moved { .. } | RefError::HeadMoved => "run the command again".to_owned(),
        RefError::Unknown { name } => format!("`snap {}` lists them", name.kind().noun()),
        RefError::Damaged { path, .. } => return of_damaged_ref(path),
        RefError::Replaced { .. } => {
            "run the same `snap rewrite` where the commit comes from, and push from there with --force"
                .to_owned()
        }
        RefError::AtCollected { pointer, .. } => of_collected(pointer),
        RefError::Collected { .. } => "`snap log --all` lists the commits that are left".to_owned(),
        RefError::Lost { name, at } => of_lost_ref(name, at),
        RefError::Newer { .. } => {
            "update snap: a newer version runs garbage collection here".to_owned()
        }
        RefError::Locked { .. } => "another snap process uses this store; run the command again \
                                    later"
            .to_owned(),
        RefError::FilesBusy { .. } => {
            "a commit or a restore is running here; run the command again when it has ended"
                .to_owned()
        }
        _ => return None,
    };
    Some(hint)
}

/// Returns the hint for a damaged ref. Its log can still be read.
fn of_damaged_ref(path: &Path) -> Option<String> {
    let head = || Some("`snap repair` restores it from its log".to_owned());
    let mut names = path.components().rev().map(|part| part.as_os_str().to_string_lossy());
    let mut name = names.next()?.into_owned();
    if name == "HEAD" {
        return head();
    }
    if name == "scope" {
        let hint = "the file lists the paths of the partial clone, and its copy is damaged, too\n\
                    `snap restore HEAD --overwrite` restores all paths and makes this a full \
                    clone";
        return Some(hint.to_owned());
    }
    for above in names {
        let word = text::word(name.as_bytes());
        return Some(match &*above {
            "heads" => format!(
                "`snap branch --force {word} {}` restores it\n\
                 `snap branch --log {word}` lists its earlier commits",
                last_logged(path)
            ),
            "tags" => format!("`snap tag --force {word} {}` restores it", last_logged(path)),
            folder => {
                name = format!("{folder}/{name}");
                continue;
            }
        });
    }
    None
}

/// Returns the last commit in the log of a ref, for a command that restores the ref.
fn last_logged(path: &Path) -> String {
    let of_refs = |above: &&Path| above.file_name().is_some_and(|name| name == "refs");
    let log = path.ancestors().find(of_refs).and_then(|refs| {
        let name = path.strip_prefix(refs).ok()?.to_str()?;
        Some(refs.parent()?.join(format!("logs/refs/{name}.log")))
    });
    let last = log.and_then(|log| ref_log::read(&log).ok()?.pop()?.new.commit());
    last.map_or_else(|| "ID".to_owned(), |id| format!("{id:.12}"))
}

fn of_lost_ref(name: &RefName, id: &CommitId) -> String {
    let (noun, name) = (name.kind().noun(), text::word(name.short().as_bytes()));
    format!(
        "`snap {noun} {name} {id:.12}` recreates it\n\
         `snap verify` lists further damage"
    )
}

const LISTS_REVISIONS: &str = "`snap log --all` lists the commits\n\
                               `snap branch` lists the branches, `snap tag` the tags";

/// Returns the hint for text that is not a revision. Users type paths and git's ranges there.
fn of_unknown_revision(text: &str) -> String {
    // The user typed `@DATE` or `:PATH` without a revision.
    if text.is_empty() {
        return "`latest@DATE` is the newest commit on or before a date\n\
                `HEAD:PATH` is a path in the last commit"
            .to_owned();
    }
    if Path::new(text).symlink_metadata().is_ok() {
        return "a path follows a revision, as in `HEAD:PATH`\n\
                in `snap log` and `snap diff`, paths follow `--`"
            .to_owned();
    }
    if text.contains("..") && !text.contains('/') {
        return "`snap diff OLD NEW` compares two commits".to_owned();
    }
    LISTS_REVISIONS.to_owned()
}

fn of_spec(error: &SpecError) -> Option<String> {
    match error {
        SpecError::Unknown { close, .. } if !close.is_empty() => {
            Some(format!("did you mean `{}`?", close.join("`, `")))
        }
        SpecError::Unknown { text, .. } => Some(of_unknown_revision(text)),
        SpecError::NoneBefore { .. } => Some(LISTS_REVISIONS.into()),
        SpecError::ForgottenBefore { newest, .. } => Some(format!(
            "`snap log` lists the commits that are left\n\
             until `snap gc` deletes it, `snap restore {newest:.12} DIR` still restores it"
        )),
        SpecError::NoParent { number: 1, .. } => Some("it is the first commit".into()),
        SpecError::NoParent { .. } => Some("`snap show` lists the parents of a commit".into()),
        SpecError::Unborn { .. } => Some("`snap commit` creates the first one".into()),
        SpecError::Ambiguous { candidates, .. } => {
            let mut hint = "give more digits".to_owned();
            for candidate in candidates {
                let (when, message) = (time::local(candidate.time), &candidate.message);
                hint.push_str(&format!("\n  {:.16}  {when}  {message}", candidate.id));
            }
            Some(hint)
        }
        SpecError::Date { .. } | SpecError::NoDate { .. } => date(),
        _ => None,
    }
}

fn date() -> Option<String> {
    Some("a date looks like 2026-11-01, 2026-11-01T10:00 or yesterday".to_owned())
}

fn of_path(error: &PathInTreeError) -> Option<String> {
    match error {
        PathInTreeError::NotFound { .. } => {
            Some("`snap ls -R REV` lists what is in a snapshot".to_owned())
        }
        _ => None,
    }
}

fn of_store(error: &StoreError) -> Option<String> {
    match error {
        StoreError::Absent { .. } => {
            Some("snap downloads it when its remote is reachable".to_owned())
        }
        StoreError::PackHash { .. } => Some(
            "`snap verify --data` lists the affected snapshots and paths\n\
             the next commit then stores the lost data again"
                .to_owned(),
        ),
        StoreError::Forgotten { id } => Some(format!(
            "`snap log` lists the commits that are left\n\
             a remote may still have it: `snap restore REMOTE#{id:.12} DIR`"
        )),
        _ => None,
    }
}

fn of_restore(error: &RestoreError) -> Option<String> {
    let hint = match error {
        RestoreError::Differs { count: 1, .. } => {
            "--overwrite replaces it\n\
             `snap restore REV DIR` restores to another folder"
        }
        RestoreError::Differs { .. } => {
            "--overwrite replaces them\n\
             `snap restore REV DIR` restores to another folder"
        }
        RestoreError::InStore { .. } => "pass a folder outside the store",
        RestoreError::Link(_) => {
            "`snap restore REV --include /PATH --overwrite --yes` replaces the link by the folder\n\
             `snap restore REV:PATH DIR` restores to another folder"
        }
        RestoreError::Blocked { .. } => {
            "move the entries in it away\n\
             --overwrite --delete removes those that commits could contain\n\
             --delete-excluded also removes the others"
        }
        RestoreError::Damaged { .. } if error.kind() == ErrorKind::Unavailable => {
            "everything else was restored; run the command again when the remote is reachable"
        }
        RestoreError::Damaged { source, .. } if source.is_remote() => {
            return Some(format!(
                "everything else was restored, and {NOT_HERE}\n\
                 run the command again; if the error remains, {PUSH_AGAIN}"
            ));
        }
        RestoreError::Damaged { .. } => {
            "everything else was restored\n\
             `snap verify --data` lists the damage\n\
             `snap repair --data` recovers lost data from other copies"
        }
        RestoreError::Interrupted => {
            "run the command again to continue; it keeps the restored files"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_export(error: &ExportError) -> Option<String> {
    match error {
        ExportError::PathTooLong { .. } => {
            Some("pass --format tar or tar.zst, which supports such paths".to_owned())
        }
        _ => None,
    }
}

fn of_commit(error: &CommitError) -> Option<String> {
    let hint = match error {
        CommitError::Overlap { .. } => "name each file and folder once",
        CommitError::EmptyStream { .. } => {
            "nothing was committed\n\
             --stdin-from-command runs the command itself and detects a failure\n\
             --allow-empty-stream commits an empty file"
        }
        CommitError::StreamOverFolder { .. } => {
            "pass another name with `--stdin NAME`\n\
             `-b NAME` commits to a new branch"
        }
        CommitError::Excluded { path } if path.iter().any(|name| name == GIT) => {
            "--include-git saves a `.git` at the top of the project"
        }
        CommitError::Excluded { .. } => {
            "change .snapignore or the exclude options; they also apply to `snap commit` without \
             paths"
        }
        CommitError::Unfinished { path } => {
            let word = text::word(path.as_os_str().as_encoded_bytes());
            return Some(format!(
                "run the same `snap restore` again to finish the folder\n\
                 `chmod 700 {word}` accepts the folder in its current state"
            ));
        }
        CommitError::OutOfScope { .. } => {
            "commits keep it unchanged\n\
             `snap restore latest --overwrite` downloads all files"
        }
        CommitError::OverUnfetched { .. } => {
            "rename the entry\n\
             `snap restore latest --overwrite` downloads all files; with -n, it shows what that \
             changes"
        }
        CommitError::Behind(behind) if behind.lost_base.is_some() => {
            "`snap repair` recovers the lost commit from a remote; then run the command again\n\
             `snap commit -b NAME` saves the files on a new branch"
        }
        CommitError::Behind(_) => {
            "`snap pull --update` updates the files and keeps local changes\n\
             `snap restore HEAD --overwrite --delete -n` lists what a restore of those commits \
             changes; without -n, it drops local changes\n\
             `snap commit PATH` commits paths that those commits did not change\n\
             `snap commit -b NAME` saves the files on a new branch\n\
             `snap commit --onto-tip` commits anyway and undoes the changes of those commits"
        }
        CommitError::OtherSources { .. } => {
            "`-b NAME` commits to a new branch\n\
             --replace continues this branch with the new source"
        }
        CommitError::OtherLayout { .. } => {
            "`-b NAME` commits to a new branch\n\
             --replace continues this branch with all files at their new places"
        }
        CommitError::Parent { .. } => {
            "`snap commit -b NAME` saves the files on a new branch\n\
             `snap verify --data` lists what else is lost"
        }
        CommitError::Incomplete(_) => {
            "`snap commit` without paths stores them again from the files of the project\n\
             `snap verify` lists what is lost"
        }
        CommitError::TooManyRules { .. } => {
            "pass the same --exclude options each time\n\
             or commit the whole project"
        }
        CommitError::Contended { .. } => "run the command again",
        CommitError::Purged { path } => {
            return Some(format!(
                "add it to .snapignore or remove it; --allow {} commits it all the same\n\
                 `snap gc` deletes the copy that is in this store now",
                text::word(path.as_bytes())
            ));
        }
        CommitError::Blocked(_) => "nothing was committed; run the command again",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_past(error: &PastError) -> Option<String> {
    let hint = match error {
        PastError::NoSuchPath { .. } => {
            "paths are relative to the current folder\n\
             `snap find NAME` searches the whole history"
        }
        PastError::Pattern { .. } => {
            "a pattern is a name or path with *, ?, [abc], {a,b} or **\n\
             a backslash makes the next character literal"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The hint for an undo that needs what a collection has deleted.
const DELETED: &str = "a copy elsewhere may still have it\n\
                       `snap undo BRANCH` undoes the last change of one branch";

fn of_undo(error: &UndoError) -> Option<String> {
    match error {
        UndoError::Nothing { direction: Direction::Redo, .. } => {
            Some("only the last undo can be redone, and only before any other change".into())
        }
        UndoError::Nothing { pointer: Some(_), .. } => {
            Some("`snap undo` without a name undoes the last change".to_owned())
        }
        UndoError::ChangedSince { .. } | UndoError::ForgottenSince => {
            Some("name the branch or tag: `snap undo --redo NAME`".to_owned())
        }
        UndoError::Collected { .. } => Some(DELETED.to_owned()),
        UndoError::Log { pointer } | UndoError::Commit { pointer, .. } => Some(match pointer {
            Pointer::Head => "`snap branch --log` lists its earlier values".to_owned(),
            Pointer::Ref(name) => {
                let (noun, short) = (name.kind().noun(), text::word(name.short().as_bytes()));
                format!("`snap {noun} --force {short} ID` moves it to a commit")
            }
        }),
        _ => None,
    }
}

fn of_io(error: &io::Error) -> Option<String> {
    if let Some(hint) = trust::of_io(error) {
        return Some(hint);
    }
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space, and run the command again\n\
             in a store, `snap forget` and then `snap gc --now` free space"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "snap log, show, ls, cat, diff, restore and verify also work on a read-only disk"
        }
        io::ErrorKind::PermissionDenied => "check its owner and mode (`ls -ld`)",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns true if only another store has the object.
fn lies_elsewhere(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(StoreError::is_remote)
}

fn by_kind(error: &CliError) -> Option<String> {
    if let CliError::List(ListError::Output(_))
    | CliError::Export(ExportError::PathTooLong { .. })
    | CliError::ExportTo { .. }
    | CliError::Output(_) = error
    {
        return None;
    }
    match error.kind() {
        ErrorKind::Damaged if causes(error).any(lies_elsewhere) => Some(format!(
            "{NOT_HERE}; run the command again\n\
             if the error remains, {PUSH_AGAIN}"
        )),
        ErrorKind::Damaged => {
            let text = "`snap verify --data` lists the damage and the affected paths\n\
                        `snap repair` recovers lost data";
            Some(text.to_owned())
        }
        ErrorKind::Unsupported => Some("a newer version of snap may be able to read it".to_owned()),
        _ => None,
    }
}
