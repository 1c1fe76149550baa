//! `snap init`: make an empty store.

use std::path::{Path, PathBuf};

use snap_core::{
    disk::Disk,
    repo::{Config, Repo, RepoError, Sharing, open::STORE_FOLDER},
};

use crate::{
    context::{Context, Named},
    report::{CliError, Done},
    ui::text,
};

const EXAMPLES: &str = "\
Examples:
  snap init                       make .snap in this folder
  snap init ~/photos              make ~/photos/.snap
  snap init --shared              let the group of the folder commit to it, too
  snap --store /backup/all init   make a bare store, for any folders";

/// Make an empty store
///
/// The store is the folder `.snap` in DIR, or STORE itself when --store or
/// SNAP_STORE names one. `snap commit` makes a store by itself where there is
/// none, so this is only needed for a store of its own.
///
/// Only you may read a new store, whatever your umask is. With --shared the group
/// of the folder may read and write it; `chgrp GROUP DIR && chmod g+s DIR` before
/// says which group that is.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// Folder to make `.snap` in; this one if not given
    dir: Option<PathBuf>,

    /// Let the group of the folder use the store
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

pub(crate) fn run(args: &InitArgs, cx: &Context) -> Result<Done, CliError> {
    let store = match (&args.dir, cx.named()) {
        (Some(_), Named::ByOption) => {
            return Err(CliError::Usage("--store names a bare store and DIR the place of another"));
        }
        (Some(dir), _) => dir.join(STORE_FOLDER),
        (None, Named::ByOption | Named::ByEnvironment) => cx.store_dir()?,
        (None, Named::Nowhere) => Path::new(STORE_FOLDER).to_owned(),
    };
    let sharing = args.shared.as_ref().map_or(Sharing::Private, |_| Sharing::Group);
    make(sharing, &store, cx)?;
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        let shown = store.to_string_lossy();
        out.json(&serde_json::json!({ "version": 1, "store": shown }))?;
        out.finish()?;
    }
    Ok(Done::Well)
}

/// Makes a store for a command that needs one. Somebody who does the same at
/// the same time may be faster.
pub(crate) fn make_for_use(cx: &Context, store: &Path) -> Result<(), CliError> {
    match make(Sharing::Private, store, cx) {
        Err(CliError::Repo(RepoError::Exists { .. })) => Ok(()),
        made => made,
    }
}

/// Makes a store and says so.
fn make(sharing: Sharing, store: &Path, cx: &Context) -> Result<(), CliError> {
    // How it is written is settled now; all else stays open to later changes.
    let config = Config { chunk: cx.settings().config()?.chunk, ..Config::default() };
    // An empty `.snap` may be there already, put there by another user.
    if fs_err::symlink_metadata(store).is_ok() {
        cx.check_found(store)?;
    }
    Repo::init_for(sharing, store, &Disk::default(), &config)?;
    let shown = text::line(store.as_os_str().as_encoded_bytes());
    cx.ui().status(format_args!("Made a store at {shown}"));
    if let Err(why) = cx.check_found(store) {
        cx.ui().warning(format_args!("from the next command on, {why}"));
    }
    Ok(())
}
