//! Runs the user's hooks before and after a commit.
//!
//! A hook is a command line for `sh -c`. Its stdin is empty, because stdin may be the data to
//! commit; its output is printed as messages.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
};

use snap_core::{
    disk::Disk,
    ops::commit::CommitOutcome,
    repo::{Head, Refs, Repo, open::STORE_FOLDER},
};

use crate::{
    child::{self, ChildEnd, ChildProcess},
    commands::commit::{CommitArgs, plan::CommitPlan},
    config::{Hook, HookMoment, OnFailure, Settings},
    context::Context,
    report::CliError,
};

/// The hooks of one commit, and their environment.
pub(super) struct Hooks {
    pre: Option<Hook>,
    post: Option<Hook>,
    /// The folder in which they run: the project, or else the current folder.
    folder: PathBuf,
    variables: Vec<(&'static str, OsString)>,
}

impl Hooks {
    /// Finds the hooks to run for this commit.
    pub(super) fn find(
        args: &CommitArgs,
        (plan, settings): (&CommitPlan, &Settings),
        cx: &Context,
    ) -> Result<Self, CliError> {
        let profile = args.profile.as_deref();
        let wanted = !args.no_hooks && !args.dry_run && !cx.is_in_hook();
        let hook = |moment| match wanted {
            true => settings.hook(moment, profile),
            false => Ok(None),
        };
        let (pre, post) = (hook(HookMoment::PreCommit)?, hook(HookMoment::PostCommit)?);
        let store = std::path::absolute(&plan.store);
        let store = store.map_err(|source| CliError::Folder { source })?;
        let project = store.parent().filter(|_| store.ends_with(STORE_FOLDER));
        let folder = project.map_or_else(|| PathBuf::from("."), PathBuf::from);
        let mut variables = vec![("SNAP_STORE", store.clone().into_os_string())];
        let branch = match &plan.branch {
            Some(branch) => Some(branch.clone()),
            None if pre.is_some() || post.is_some() => {
                match Refs::new(&store, Disk::default()).head()? {
                    Head::Branch(branch) => Some(branch.short().to_owned()),
                    Head::Detached(_) => None,
                }
            }
            None => None,
        };
        variables.extend(branch.map(|branch| ("SNAP_BRANCH", branch.into())));
        variables.extend(profile.map(|name| ("SNAP_PROFILE", name.into())));
        Ok(Self { pre, post, folder, variables })
    }

    /// Runs the hook before the commit.
    pub(super) fn before(&self, cx: &Context) -> Result<(), CliError> {
        let Some(hook) = &self.pre else { return Ok(()) };
        let name = HookMoment::PreCommit.name();
        match self.run(hook, name, &[], cx)? {
            HookEnd::Well => Ok(()),
            HookEnd::Interrupted => Err(CliError::PreHookInterrupted { name }),
            HookEnd::Failed(how) if hook.on_failure == OnFailure::Report => {
                cx.ui().warning(format_args!("the {name} hook failed: {how}; continuing"));
                Ok(())
            }
            HookEnd::Failed(how) => Err(CliError::PreHook { name, how }),
        }
    }

    /// Runs the hook after the commit, even if nothing changed.
    pub(super) fn after(
        &self,
        outcome: &CommitOutcome,
        repo: &Repo,
        cx: &Context,
    ) -> Result<(), CliError> {
        let Some(hook) = &self.post else { return Ok(()) };
        let Some(id) = &outcome.id else { return Ok(()) };
        let name = HookMoment::PostCommit.name();
        repo.store().refresh()?;
        let parent = repo.store().commit(id)?.parents.first().map(ToString::to_string);
        let mut variables = vec![
            ("SNAP_COMMIT", id.to_string()),
            ("SNAP_CREATED", outcome.created.to_string()),
            ("SNAP_FILES", outcome.totals.files.to_string()),
            ("SNAP_BYTES", outcome.totals.bytes.to_string()),
            ("SNAP_FILES_ADDED", outcome.files.added.to_string()),
            ("SNAP_FILES_MODIFIED", outcome.files.modified.to_string()),
            ("SNAP_FILES_DELETED", outcome.files.deleted.to_string()),
            ("SNAP_SKIPPED", outcome.skipped.to_string()),
        ];
        variables.extend(parent.map(|parent| ("SNAP_PARENT", parent)));
        match self.run(hook, name, &variables, cx)? {
            HookEnd::Well => Ok(()),
            HookEnd::Interrupted => Err(CliError::PostHookInterrupted { name }),
            HookEnd::Failed(how) if hook.on_failure == OnFailure::Report => {
                cx.ui().warning(format_args!("the {name} hook failed: {how}; the commit was made"));
                Ok(())
            }
            HookEnd::Failed(how) => Err(CliError::PostHook { name, how }),
        }
    }

    fn run(
        &self,
        hook: &Hook,
        name: &'static str,
        variables: &[(&'static str, String)],
        cx: &Context,
    ) -> Result<HookEnd, CliError> {
        cx.ui().detail(format_args!("Running the {name} hook: {}", hook.command));
        let mut command = Command::new("sh");
        command.arg("-c").arg(&hook.command).current_dir(&self.folder);
        // The variables of an outer hook do not apply to this one.
        for old in ["SNAP_BRANCH", "SNAP_PROFILE", "SNAP_COMMIT", "SNAP_PARENT"] {
            command.env_remove(old);
        }
        command.env("SNAP_HOOK", name);
        command.envs(self.variables.iter().map(|(key, value)| (key, value)));
        command.envs(variables.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::null()).stdout(cx.ui().child_stdout());
        let start = |source| CliError::HookStart { name, source };
        let mut child = ChildProcess::start(&mut command).map_err(start)?;
        Ok(match child.wait(&|| cx.cancelled()).map_err(start)? {
            ChildEnd::Exited(status) => ended(status),
            ChildEnd::Interrupted => HookEnd::Interrupted,
        })
    }
}

/// The result of a hook.
enum HookEnd {
    Well,
    Failed(String),
    Interrupted,
}

/// Returns the result of a hook that ended with this status.
fn ended(status: ExitStatus) -> HookEnd {
    let Some(how) = child::failure(status) else { return HookEnd::Well };
    HookEnd::Failed(match status.code() {
        Some(126) => format!("{how}: a command in it is not executable"),
        Some(127) => format!("{how}: a command in it was not found"),
        _ => how,
    })
}
