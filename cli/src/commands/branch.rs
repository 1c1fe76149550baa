//! `snap branch`: lists, creates, moves, deletes and switches branches.

use snap_core::repo::{
    Head, RefError, RefName, Repo,
    ref_log::RefLogEntry,
    ref_name::{Pointer, RefKind},
};

use crate::{
    commands::refs,
    context::Context,
    report::{CliError, CommandOutcome},
    ui::text,
};

const EXAMPLES: &str = "\
Examples:
  snap branch                     list branches; * marks the current one
  snap branch try latest~2        create one, two commits back
  snap branch --switch try        switch to it; files are unchanged
  snap branch exp origin/exp      create one from that of a remote
  snap branch --log main          earlier commits of main, newest first
  snap branch --force main 4f2a   move it to a commit";

/// List, create, move or delete branches
///
/// A branch is a name for a commit that moves to each new commit. Every move is logged and can be
/// undone.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BranchArgs {
    /// Branch to create
    name: Option<String>,

    /// Commit of the new branch
    #[arg(default_value = "HEAD")]
    rev: String,

    /// Move the branch if it exists
    #[arg(short, long, requires = "name")]
    force: bool,

    /// Branch to delete; its commits stay
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["name", "switch", "log"])]
    delete: Option<String>,

    /// Branch to switch to; files are unchanged
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["name", "log"])]
    switch: Option<String>,

    /// List the branches of remotes, as of the last contact
    #[arg(long, conflicts_with_all = ["name", "delete", "switch", "log"])]
    remotes: bool,

    /// List the moves of a branch or of HEAD
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        default_missing_value = "HEAD",
        conflicts_with = "name"
    )]
    log: Option<String>,
}

pub(crate) fn run(args: &BranchArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let repo = cx.open_repo()?;
    if let Some(name) = &args.delete {
        refs::delete(cx, &repo, &RefName::branch(name)?)?;
    } else if let Some(name) = &args.switch {
        switch(cx, &repo, &RefName::branch(name)?)?;
    } else if let Some(name) = &args.log {
        let lines = match name.as_str() {
            "HEAD" => repo.refs().log_of(&Pointer::Head)?,
            name => log_of(&repo, &RefName::branch(name)?)?,
        };
        refs::write_log(cx, name, &lines)?;
    } else if let Some(name) = &args.name {
        refs::make(cx, &repo, (&RefName::branch(name)?, &args.rev), args.force.into())?;
    } else if args.remotes {
        return refs::list(cx, &repo, RefKind::Remote);
    } else {
        let listed = refs::list(cx, &repo, RefKind::Branch)?;
        hint_at_remote_branches(&repo, cx)?;
        return Ok(listed);
    }
    Ok(CommandOutcome::Success)
}

/// Names the command that lists the branches of remotes, if there are any that are not here.
fn hint_at_remote_branches(repo: &Repo, cx: &Context) -> Result<(), CliError> {
    let local = refs::readable(cx, repo, RefKind::Branch)?;
    let is_here = |branch: &str| local.iter().any(|(name, _)| name.short() == branch);
    let remote = refs::readable(cx, repo, RefKind::Remote)?;
    let others = remote.iter().filter(|(name, _)| {
        name.short().split_once('/').is_some_and(|(_, branch)| !is_here(branch))
    });
    let mut others = others.map(|(name, _)| name);
    if let Some(name) = others.next() {
        let (name, more) = (name.short(), others.count());
        let branch = name.split_once('/').map_or(name, |(_, branch)| branch);
        let list = if more > 0 { "\n`snap branch --remotes` lists all of them" } else { "" };
        cx.ui().hint(&format!(
            "`snap branch {} {}` creates a branch of a remote here{list}",
            text::word(branch.as_bytes()),
            text::word(name.as_bytes()),
        ));
    }
    Ok(())
}

/// Returns the log of a branch that exists or existed.
fn log_of(repo: &Repo, name: &RefName) -> Result<Vec<RefLogEntry>, CliError> {
    let lines = repo.refs().log(name)?;
    let is_current = || Ok::<_, RefError>(repo.refs().head()? == Head::Branch(name.clone()));
    if lines.is_empty() && repo.refs().read(name)?.is_none() && !is_current()? {
        return Err(RefError::Unknown { name: name.clone() }.into());
    }
    Ok(lines)
}

/// Returns the error for a branch that does not exist here. It names the remotes that have it.
fn not_here(repo: &Repo, name: &RefName, cx: &Context) -> Result<CliError, CliError> {
    let of_remotes = refs::readable(cx, repo, RefKind::Remote)?;
    let is_same = |other: &RefName| {
        other.short().split_once('/').is_some_and(|(_, branch)| branch == name.short())
    };
    let of_remotes = of_remotes.iter().map(|(name, _)| name).filter(|name| is_same(name));
    let remotes: Vec<String> = of_remotes.map(|name| name.short().to_owned()).collect();
    Ok(match remotes.is_empty() {
        true => RefError::Unknown { name: name.clone() }.into(),
        false => CliError::BranchOfRemote { name: name.short().to_owned(), remotes },
    })
}

/// Switches to an existing branch.
fn switch(cx: &Context, repo: &Repo, name: &RefName) -> Result<(), CliError> {
    let id = match repo.refs().read(name)? {
        Some(id) => id,
        None => return Err(not_here(repo, name, cx)?),
    };
    // Switching away from a damaged branch must work too.
    let stood = repo.refs().head_commit().ok().flatten();
    let (old, new) = (repo.refs().head()?, Head::Branch(name.clone()));
    if old == new {
        cx.ui().status(format_args!("Already on branch {}", name.short()));
        return refs::print_change(cx, "switched", name, (Some(id), stood));
    }
    let reason = format!("switch: from {}", refs::shown_head(&old));
    cx.with_change(repo.config(), &reason, |change| repo.refs().set_head(&old, &new, change))?;
    let files = if repo.project().is_some() { "; files are unchanged" } else { "" };
    cx.ui().status(format_args!("Switched to branch {}{files}", name.short()));
    refs::print_change(cx, "switched", name, (Some(id), stood))
}
