//! `snap init`: creates an empty store.

use std::path::{Path, PathBuf};

use snap_core::{
    disk::Disk,
    local::store_folder::store_above,
    repo::{
        Config, NewStore, Repo, RepoError, Sharing,
        open::{STORE_FOLDER, refuse_found_link},
    },
};

use crate::{
    context::{Context, StoreChoice},
    report::{CliError, CommandOutcome},
    ui::text,
};

const EXAMPLES: &str = "\
Examples:
  snap init                       create .snap in this folder
  snap init ~/photos              create ~/photos/.snap
  snap init --shared              also let the group of the folder commit
  snap --store /backup/all init   create a bare store, for any folders";

/// Create an empty store
///
/// The store is the folder `.snap` in DIR, or STORE itself if --store or SNAP_STORE is set. `snap
/// commit` creates a missing `.snap`. Use `snap init` for a STORE, or for an empty or a shared store.
///
/// Only you can access a new store, whatever your umask is. With --shared, the group of the folder
/// can read and write it. Set that group first: `chgrp GROUP DIR && chmod g+s DIR`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// Folder to create `.snap` in; default: the current folder
    dir: Option<PathBuf>,

    /// Let the group of the folder read and write the store
    #[arg(
        long,
        value_name = "WHO",
        value_parser = ["group"],
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "group"
    )]
    shared: Option<String>,
}

pub(crate) fn run(args: &InitArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let store = match (&args.dir, cx.named()) {
        (Some(_), StoreChoice::ByOption) => {
            return Err(CliError::Usage("--store STORE and DIR cannot be used together"));
        }
        (Some(dir), _) => dir.join(STORE_FOLDER),
        (None, StoreChoice::ByOption | StoreChoice::ByEnvironment) => cx.store_dir()?,
        (None, StoreChoice::Nowhere) => Path::new(STORE_FOLDER).to_owned(),
    };
    if cx.named() == StoreChoice::Nowhere || args.dir.is_some() {
        refuse_found_link(&store)?;
    }
    let sharing = args.shared.as_ref().map_or(Sharing::Private, |_| Sharing::Group);
    make(sharing, &store, cx)?;
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        let shown = store.to_string_lossy();
        out.json(&serde_json::json!({ "version": 1, "type": "store", "store": shown }))?;
        out.finish()?;
    }
    Ok(CommandOutcome::Success)
}

/// Creates a store for a command that needs one. Succeeds if another process creates it at the same
/// time. Returns the store, so that the command can discard it, unless its folder existed before.
pub(crate) fn make_for_use(cx: &Context, store: &Path) -> Result<Option<NewStore>, CliError> {
    let was_there = fs_err::symlink_metadata(store).is_ok();
    match make(Sharing::Private, store, cx) {
        Err(CliError::Repo(RepoError::Exists { .. })) => Ok(None),
        Err(error) => Err(error),
        Ok(()) if was_there => Ok(None),
        Ok(()) => Ok(Some(NewStore::at(store)?)),
    }
}

/// Removes a store that a failed command has created. A store that other commands have changed
/// meanwhile is kept. Returns true if the store was removed.
pub(super) fn discard(new: NewStore, store: &Path, cx: &Context) -> bool {
    let shown = text::line(store.as_os_str().as_encoded_bytes());
    match new.discard(store) {
        Ok(true) => return true,
        Ok(false) => cx.ui().warning(format_args!(
            "{shown} is kept: branches, tags or HEAD have changed in it since the command began"
        )),
        Err(error) => cx.ui().warning(format_args!("{shown} could not be removed: {error}")),
    }
    false
}

/// Creates a store and reports it.
fn make(sharing: Sharing, store: &Path, cx: &Context) -> Result<(), CliError> {
    refuse_in_store(store)?;
    let config = Config::default();
    // Another user may have put an empty `.snap` there.
    if fs_err::symlink_metadata(store).is_ok() {
        cx.check_found(store)?;
    }
    Repo::init_for(sharing, store, &Disk::default(), &config)?;
    let shown = text::line(store.as_os_str().as_encoded_bytes());
    cx.ui().status(format_args!("Created a store at {shown}"));
    if let Err(why) = cx.check_found(store) {
        cx.ui().warning(format_args!("later commands will refuse to write to it: {why}"));
    }
    Ok(())
}

/// Refuses to create a store inside another store.
pub(super) fn refuse_in_store(store: &Path) -> Result<(), CliError> {
    match store_above(store) {
        Some(_) => {
            Err(CliError::Usage("the new store would be inside a store; pass another folder"))
        }
        None => Ok(()),
    }
}
