//! What to do about an error.

use std::{error::Error, io, path::Path};

use snap_core::{
    base::{close::close_names, io::PathError, kind::ErrorKind},
    ops::{
        bundle, commit::CommitError, export::ExportError, list::ListError, restore::RestoreError,
    },
    repo::{
        PastError, Pointer, RefError, Repo, RepoError, SpecError, UndoError,
        config::{ConfigError, error::Origin},
        path::PathInTreeError,
        undo::Direction,
    },
    store::{BundleError, StoreError},
};

use crate::{
    report::{CliError, causes::causes, remote, serve, trust},
    ui::text,
    ui::time,
};

/// Profiles that a hint names at most.
const LISTED: usize = 10;

/// Advice for an error, where there is any.
pub(super) fn hint(error: &CliError) -> Option<String> {
    causes(error).find_map(specific).or_else(|| by_kind(error))
}

/// Advice for one link of the chain of causes.
fn specific(error: &(dyn Error + 'static)) -> Option<String> {
    let of = |found: Option<String>| found;
    of(error.downcast_ref().and_then(of_cli))
        .or_else(|| remote::hint(error))
        .or_else(|| serve::hint(error))
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
        .or_else(|| error.downcast_ref().and_then(of_past))
        .or_else(|| error.downcast_ref().and_then(of_undo))
        .or_else(|| error.downcast_ref().and_then(of_store))
        .or_else(|| error.downcast_ref().and_then(of_io))
}

fn of_cli(error: &CliError) -> Option<String> {
    let hint = match error {
        CliError::NoStore => {
            "`snap commit` makes one here, `snap init` an empty one; --store names another"
        }
        CliError::NoSource { store } => {
            return Some(format!("`snap --store {store} commit PATH` names what to commit"));
        }
        CliError::FolderOfSnapshot { what, path } => {
            let place = text::word(format!("{what}:{path}").as_bytes());
            return Some(format!(
                "`snap restore {place}` restores that folder; name another folder for the \
                 whole snapshot"
            ));
        }
        CliError::NotAFile { noun: "folder", .. } => "`snap ls` lists a folder",
        CliError::CurrentBranch { .. } => "`snap branch --switch NAME` goes to another one first",
        CliError::NoContent { .. } => "REV:PATH names a file, such as latest:notes.txt",
        CliError::NoPlace { .. } => "name it from a folder above, without `..`",
        CliError::Cloned { folder, .. } => {
            return Some(format!(
                "what has come is kept: in {folder}, `snap fetch` brings the rest, and \
                 `snap restore latest` the files"
            ));
        }
        CliError::NoBundle { .. } => "`snap pack` makes bundles, `snap log` lists commits",
        CliError::ToTerminal => "name a file with -o, or send stdout to a file or a program",
        CliError::NotForward { .. } => {
            "its objects are in the store; --force moves the branch, another name keeps both"
        }
        CliError::NoRef { .. } => "`snap branch` and `snap tag` list those that are there",
        CliError::NotWithin { within, .. } => {
            return Some(format!("`snap ls -R {within}` lists what is in it"));
        }
        CliError::OnNeitherSide { .. } => "paths are relative to the folder you stand in",
        CliError::Outside { .. } => "name a path in it; --folder names another folder",
        CliError::NoCommand { .. } => "`snap --help` lists the commands",
        CliError::BadDate { .. } => return date(),
        CliError::NoUserFile => "SNAP_CONFIG names one, else HOME the folder it is in",
        CliError::NoHome { .. } => "`~/` stands for the folder that HOME names; else write it out",
        CliError::NoStart { .. } => "write it from `/` or `~/` on",
        CliError::NoPaths { profile, .. } => {
            return Some(format!("`snap config get profile.{profile}.paths` lists them"));
        }
        CliError::NoProfile { known, .. } if known.is_empty() => {
            "`snap config set profile.NAME.paths '[\"~/docs\"]'` makes one; --user, for all stores"
        }
        CliError::NoProfile { name, known } => return Some(profiles(name, known)),
        CliError::HookStart { .. } => "it is run by `sh -c`; is there a `sh` in PATH?",
        CliError::PreHook { .. } => "nothing was committed; --no-hooks commits without it",
        CliError::PreHookInterrupted { .. } => "nothing was committed; run it again",
        CliError::UnknownFormat { .. } => {
            "end it with .tar, .tar.zst or .zip, or say --format tar, tar.zst or zip"
        }
        CliError::NoLevel { format: "tar", .. } => "it is not compressed; .tar.zst is",
        CliError::NoLevel { format: "zip", .. } => "zip has 0 (not compressed) to 9 (smallest)",
        CliError::NoLevel { .. } => "tar.zst has 1 (fastest) to 19 (smallest)",
        CliError::NoRemote { .. } | CliError::NoRemotes | CliError::WhichRemote { .. } => {
            return remote::which(error);
        }
        CliError::RemoteExists { name, .. } => {
            return Some(format!("`snap remote remove {name}` takes it away; its files stay"));
        }
        CliError::NoBranch => "`snap branch` lists the branches",
        CliError::Unfit { .. } => {
            "give the keys those rights; `pull`, `clone` and `ls` need to list and read only"
        }
        CliError::CredentialsFile { .. } => {
            "it has lines `name = …` and `secret = …`; `chmod 600` keeps it to yourself"
        }
        CliError::CredentialsCommand { .. } => {
            "it is run by `sh -c`, and prints lines `name = …`, `secret = …`, or JSON"
        }
        CliError::Diverged { remote, .. } if remote.contains("://") => {
            "give the remote a name, and its commits are to be found; --force moves the one here"
        }
        CliError::Diverged { remote, name, .. } => {
            let theirs = text::word(format!("{remote}/{name}").as_bytes());
            let name = text::word(name.as_bytes());
            return Some(format!(
                "`snap diff {name} {theirs}` compares them; --force moves the one here, \
                 `snap branch NAME {name}` keeps it first"
            ));
        }
        CliError::NotEmpty { .. } => "name a folder that is empty or does not exist yet",
        CliError::Prefix { .. } => "it names a folder in the archive, such as project-1.0",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_bundle(error: &BundleError) -> Option<String> {
    let hint = match error {
        BundleError::Incomplete { .. } => {
            "unpack it into a store that has what it builds on (`snap unpack`)"
        }
        BundleError::Head(_) => "`snap pack` and `snap archive` make bundles",
        BundleError::Cut { .. } => "it was not copied to its end; get it again",
        BundleError::Interrupted => return None,
        error if error.kind() == ErrorKind::Damaged => {
            "the file has changed since it was made; get it again"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_unpack(error: &bundle::Error) -> Option<String> {
    let hint = match error {
        bundle::Error::Prerequisites { .. } => {
            "unpack a bundle that has them first, or have one made without --since"
        }
        bundle::Error::Broken { .. } | bundle::Error::Damaged(_) => {
            "the store is as it was; have the bundle made again"
        }
        bundle::Error::Interrupted => "nothing was changed; run it again",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// A file that is in the way of what a command makes.
fn of_file(error: &PathError) -> Option<String> {
    let taken = error.action == "write" && error.source.kind() == io::ErrorKind::AlreadyExists;
    taken.then(|| "--force replaces it".to_owned())
}

/// Profiles that are there, when one is not.
fn profiles(name: &str, known: &[String]) -> String {
    let close = close_names(name, known.iter().map(String::as_str));
    if !close.is_empty() {
        return format!("did you mean `{}`?", close.join("`, `"));
    }
    let shown: Vec<&str> = known.iter().take(LISTED).map(String::as_str).collect();
    let more = match known.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("there is `{}`{more}", shown.join("`, `"))
}

fn of_repo(error: &RepoError) -> Option<String> {
    let hint = match error {
        RepoError::NoStore { .. } => "`snap --store STORE init` makes one",
        RepoError::NotAStore { dir } if Repo::is_unfinished(dir) => {
            "making it was interrupted; the next commit, or `snap init`, completes it"
        }
        RepoError::NotAStore { .. } => "name the store folder itself, such as PROJECT/.snap",
        RepoError::Link { path } => {
            let word = text::word(path.as_os_str().as_encoded_bytes());
            return Some(format!("somebody may have put it there; `rm {word}` removes the link"));
        }
        RepoError::Remote { dir } => {
            let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
            let path = text::line(dir.as_os_str().as_encoded_bytes());
            let [all, main] =
                ["", "#main"].map(|end| text::word(format!("file://{path}{end}").as_bytes()));
            return Some(format!(
                "`snap clone {all}` makes a store of it, `snap ls {main}` reads it, and `snap serve \
                 {all}` serves it"
            ));
        }
        RepoError::Exists { .. } => "nothing was changed; the store can be used as it is",
        RepoError::NotEmpty { .. } => "name a folder that is empty or does not exist yet",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_config(error: &ConfigError) -> Option<String> {
    let hint = match error {
        ConfigError::Newer { .. } => "a newer snap made this store; use that one or later",
        ConfigError::Unknown { key, .. } | ConfigError::UnknownKey { key, .. }
            if remote::is_secret(key) =>
        {
            "keys are no settings: `remote.NAME.credentials_file` or `…credentials_command` says \
             where they are"
        }
        ConfigError::Unknown { close, .. } | ConfigError::UnknownKey { close, .. }
            if !close.is_empty() =>
        {
            return Some(format!("did you mean `{}`?", close.join("`, `")));
        }
        ConfigError::UnknownKey { .. } => "`snap config list` names all settings",
        ConfigError::Misplaced { rule, .. } if rule.contains("user's") => {
            "`snap config set --user KEY VALUE` writes the user's file"
        }
        ConfigError::FixedVersion => {
            "the next commit makes an older store one of the newest version"
        }
        ConfigError::Awkward { .. } => "change that file by hand",
        ConfigError::TooLarge { .. } => "settings take a few lines; look at what that file is",
        ConfigError::NoVersion { .. } => "`version = 1` is the only one so far",
        error => return of_setting_in_file(error),
    };
    Some(hint.to_owned())
}

fn of_setting_in_file(error: &ConfigError) -> Option<String> {
    let is_user = match error {
        ConfigError::Unknown { origin, .. }
        | ConfigError::Value { origin, .. }
        | ConfigError::Misplaced { origin, .. } => {
            origin.file()?;
            matches!(**origin, Origin::User { .. })
        }
        ConfigError::Syntax { .. } => false,
        _ => return None,
    };
    let hint = match is_user {
        true => "correct that line of the file; with SNAP_CONFIG= it is not read",
        false => "correct that line of the file",
    };
    Some(hint.to_owned())
}

fn of_ref(error: &RefError) -> Option<String> {
    let hint = match error {
        RefError::Exists { .. } => "--force moves it".to_owned(),
        RefError::Moved { .. } | RefError::HeadMoved => {
            "another snap was faster; run the command again".to_owned()
        }
        RefError::Unknown { name } => format!("`snap {}` lists them", name.kind().noun()),
        RefError::Damaged { path, .. } => return of_damaged_ref(path),
        RefError::Newer { .. } => "a newer snap collects garbage here; update snap".to_owned(),
        RefError::Locked { .. } => "another snap is still at work on this store".to_owned(),
        RefError::FilesBusy { .. } => {
            "a commit reads the files, or a restore writes them: run this again when it has ended"
                .to_owned()
        }
        _ => return None,
    };
    Some(hint)
}

/// A ref has a log, and the log is read without the ref.
fn of_damaged_ref(path: &Path) -> Option<String> {
    let head = || {
        let text = "write `ref: refs/heads/NAME` into it, as logs/HEAD.log or refs/heads have it";
        Some(text.to_owned())
    };
    let mut names = path.components().rev().map(|part| part.as_os_str().to_string_lossy());
    let mut name = names.next()?.into_owned();
    if name == "HEAD" {
        return head();
    }
    for above in names {
        let word = text::word(name.as_bytes());
        return Some(match &*above {
            "heads" => format!(
                "`snap branch --log {word}` tells where it was, `snap branch --force {word} ID` \
                 puts it back"
            ),
            "tags" => format!("`snap tag --force {word} ID` puts it back"),
            folder => {
                name = format!("{folder}/{name}");
                continue;
            }
        });
    }
    None
}

fn of_spec(error: &SpecError) -> Option<String> {
    match error {
        SpecError::Unknown { close, .. } if !close.is_empty() => {
            Some(format!("did you mean `{}`?", close.join("`, `")))
        }
        SpecError::Unknown { .. } | SpecError::NoneBefore { .. } => Some(
            "`snap log --all` lists the commits, `snap branch` and `snap tag` the names".into(),
        ),
        SpecError::NoParent { number: 1, .. } => Some("it is the first commit".into()),
        SpecError::NoParent { .. } => Some("`snap show` lists the parents of a commit".into()),
        SpecError::Unborn { .. } => Some("`snap commit` makes the first one".into()),
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
    Some("a date is such as 2026-11-01, 2026-11-01T10:00 or yesterday".to_owned())
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
            Some("it comes by itself when the remote that has it can be reached".to_owned())
        }
        StoreError::Garbled { .. } => Some(
            "nothing here is damaged; run it again, and if it stays so, push again from a store \
             that is whole"
                .to_owned(),
        ),
        StoreError::PackHash { .. } => Some(
            "`snap verify --data` tells which snapshots and paths need it, and has the next commit \
             store them again"
                .to_owned(),
        ),
        _ => None,
    }
}

fn of_restore(error: &RestoreError) -> Option<String> {
    let hint = match error {
        RestoreError::Differs { count: 1, .. } => {
            "pass --overwrite to replace it, or name another folder"
        }
        RestoreError::Differs { .. } => "pass --overwrite to replace them, or name another folder",
        RestoreError::InStore { .. } => "name a folder outside the store",
        RestoreError::Link(_) => {
            "`snap restore REV --include /PATH --overwrite`, without `:PATH`, puts the folder back \
             in place of the link; `snap restore REV:PATH DIR` restores elsewhere"
        }
        RestoreError::Blocked { .. } => {
            "move what is in there away; --overwrite --delete removes what commits could have \
             held, and --delete-excluded the rest"
        }
        RestoreError::Unsaved(_) => {
            "`snap commit -b NAME` saves them first, on a branch of their own; --dry-run lists what \
             would go; pass --yes to remove them for ever"
        }
        RestoreError::Damaged { .. } if error.kind() == ErrorKind::Unavailable => {
            "what is here was restored; run it again when the rest can be fetched"
        }
        RestoreError::Damaged { source, .. } if source.is_elsewhere() => {
            "what could be restored was; what is here is not damaged, so run it again, and if it \
             stays so, push again from a store that is whole"
        }
        RestoreError::Damaged { .. } => {
            "what could be restored was; `snap verify --data` tells what is damaged, and `snap \
             repair` puts it back from other copies"
        }
        RestoreError::Interrupted => "run it again to go on; what is right is kept",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_export(error: &ExportError) -> Option<String> {
    match error {
        ExportError::PathTooLong { .. } => Some("tar can: --format tar or tar.zst".to_owned()),
        _ => None,
    }
}

fn of_commit(error: &CommitError) -> Option<String> {
    let hint = match error {
        CommitError::Overlap { .. } => "name each file and folder once",
        CommitError::StreamOverFolder { .. } => {
            "give the stream another name, or commit it to a branch of its own with -b"
        }
        CommitError::Excluded { .. } => {
            "`snap commit` without paths leaves it out, too; change .snapignore or the excludes"
        }
        CommitError::Behind(_) => {
            "`snap commit -b NAME` saves the files as they are on a branch of their own; `snap commit \
             PATH` commits paths that those commits did not change; `snap restore HEAD --overwrite \
             --delete -n` lists what a restore of those commits would replace and remove here, and \
             without -n it does that; `snap commit --onto-tip` takes those commits back"
        }
        CommitError::OtherSources { .. } => {
            "-b NAME commits to a branch of its own; --replace lets this branch go on with the new \
             source"
        }
        CommitError::Parent { .. } => {
            "`snap commit -b NAME` stores the files as they are on a new branch; `snap verify \
             --data` tells what else is lost"
        }
        CommitError::Incomplete(_) => {
            "`snap commit` without paths stores it again from the project's files; `snap verify` \
             tells what is lost"
        }
        CommitError::TooManyRules { .. } => {
            "use the same --exclude options each time; a commit of the whole project starts anew"
        }
        CommitError::Contended { .. } => "run the command again",
        CommitError::Interrupted => "nothing was committed; run it again",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_past(error: &PastError) -> Option<String> {
    let hint = match error {
        PastError::NoSuchPath { .. } => {
            "paths are those in the snapshot, from its top; `snap find NAME` searches them"
        }
        PastError::Pattern { .. } => {
            "a pattern is a name or path with *, ?, [abc], {a,b} or **; a backslash takes the next \
             character as it is"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_undo(error: &UndoError) -> Option<String> {
    match error {
        UndoError::Nothing { direction: Direction::Redo, .. } => Some(
            "only what was undone last, and not followed by another change, can be redone".into(),
        ),
        UndoError::Nothing { pointer: Some(_), .. } => {
            Some("`snap undo` without a name takes back what changed last".to_owned())
        }
        UndoError::Since { .. } => {
            Some("name the branch or tag that is to be redone: `snap undo --redo NAME`".to_owned())
        }
        UndoError::Log { pointer } | UndoError::Commit { pointer, .. } => Some(match pointer {
            Pointer::Head => "`snap branch --log` lists what it said".to_owned(),
            Pointer::Ref(name) => {
                let (noun, short) = (name.kind().noun(), text::word(name.short().as_bytes()));
                format!("`snap {noun} --force {short} ID` puts it where you want it")
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
            "the disk is full; make room and run the command again, nothing committed is lost"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "the disk is read-only; log, show, ls, cat, diff, restore and verify work there all the same"
        }
        io::ErrorKind::PermissionDenied => "check whom it belongs to and its mode (`ls -ld`)",
        _ => return None,
    };
    Some(hint.to_owned())
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
        ErrorKind::Damaged => {
            let text = "`snap verify --data` tells what is damaged and what it touches, `snap \
                        repair` puts it back";
            Some(text.to_owned())
        }
        ErrorKind::Unsupported => Some("a newer snap may be able to read it".to_owned()),
        _ => None,
    }
}
