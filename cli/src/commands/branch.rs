//! `snap branch`: list, make, move, delete branches; go to another one.

use snap_core::repo::{Head, RefError, RefName, Repo, ref_log::Line, ref_name::RefKind};

use crate::{
    commands::refs,
    context::Context,
    report::{CliError, Done},
};

const EXAMPLES: &str = "\
Examples:
  snap branch                     list them; * marks the one commits go to
  snap branch try latest~2        make one that starts two commits back
  snap branch --switch try        let commits go to it; no file is touched
  snap branch --log main          where main stood before, newest first
  snap branch --force main 4f2a   put it back there";

/// List, make, move or delete branches
///
/// A branch is a name that moves with each commit made on it. Every move is
/// logged, so it can be undone.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BranchArgs {
    /// Branch to make
    name: Option<String>,

    /// Commit it starts at
    #[arg(default_value = "HEAD")]
    rev: String,

    /// Move it if it exists
    #[arg(short, long, requires = "name")]
    force: bool,

    /// Branch to delete; its commits stay
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["name", "switch", "log"])]
    delete: Option<String>,

    /// Branch that commits go to from now on
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["name", "log"])]
    switch: Option<String>,

    /// Branch (or HEAD) whose moves to list
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        default_missing_value = "HEAD",
        conflicts_with = "name"
    )]
    log: Option<String>,
}

pub(crate) fn run(args: &BranchArgs, cx: &Context) -> Result<Done, CliError> {
    let repo = cx.open_repo()?;
    if let Some(name) = &args.delete {
        refs::delete(cx, &repo, &RefName::branch(name)?)?;
    } else if let Some(name) = &args.switch {
        switch(cx, &repo, &RefName::branch(name)?)?;
    } else if let Some(name) = &args.log {
        let lines = match name.as_str() {
            "HEAD" => repo.refs().head_log()?,
            name => log_of(&repo, &RefName::branch(name)?)?,
        };
        refs::write_log(cx, name, &lines)?;
    } else if let Some(name) = &args.name {
        refs::make(cx, &repo, (&RefName::branch(name)?, &args.rev), args.force.into())?;
    } else {
        refs::list(cx, &repo, RefKind::Branch)?;
    }
    Ok(Done::Well)
}

/// What a branch that is or was there has been through.
fn log_of(repo: &Repo, name: &RefName) -> Result<Vec<Line>, CliError> {
    let lines = repo.refs().log(name)?;
    let is_current = || Ok::<_, RefError>(repo.refs().head()? == Head::Branch(name.clone()));
    if lines.is_empty() && repo.refs().read(name)?.is_none() && !is_current()? {
        return Err(RefError::Unknown { name: name.clone() }.into());
    }
    Ok(lines)
}

/// Points `HEAD` at a branch that exists.
fn switch(cx: &Context, repo: &Repo, name: &RefName) -> Result<(), CliError> {
    let unknown = || RefError::Unknown { name: name.clone() };
    let id = repo.refs().read(name)?.ok_or_else(unknown)?;
    // One goes away from a damaged branch as well.
    let stood = repo.refs().head_commit().ok().flatten();
    let (old, new) = (repo.refs().head()?, Head::Branch(name.clone()));
    let reason = format!("switch: from {}", refs::shown_head(&old));
    cx.with_change(repo.config(), &reason, |change| repo.refs().set_head(&old, &new, change))?;
    cx.ui().status(format_args!("Commits go to branch {} from now on", name.short()));
    refs::tell_change(cx, "switched", name, (Some(id), stood))
}
