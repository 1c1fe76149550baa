//! `snap init`: make an empty store.

use std::path::{Path, PathBuf};

use snap_core::{
    disk::Disk,
    repo::{Config, Repo, RepoError, open::STORE_FOLDER},
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
  snap --store /backup/all init   make a bare store, for any folders";

/// Make an empty store
///
/// The store is the folder `.snap` in DIR, or STORE itself when --store or
/// SNAP_STORE names one. `snap commit` makes a store by itself where there is
/// none, so this is only needed for a store of its own.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// Folder to make `.snap` in; this one if not given
    dir: Option<PathBuf>,
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
    make(cx, &store)?;
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
    match make(cx, store) {
        Err(CliError::Repo(RepoError::Exists { .. })) => Ok(()),
        made => made,
    }
}

/// Makes a store and says so.
fn make(cx: &Context, store: &Path) -> Result<(), CliError> {
    // How it is written is settled now; all else stays open to later changes.
    let config = Config { chunk: cx.settings().config()?.chunk, ..Config::default() };
    Repo::init(store, &Disk::default(), &config)?;
    let shown = text::line(store.as_os_str().as_encoded_bytes());
    cx.ui().status(format_args!("Made a store at {shown}"));
    Ok(())
}
