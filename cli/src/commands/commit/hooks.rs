//! Running the user's commands before and after a commit.
//!
//! A hook is a line for `sh -c`. It reads nothing, since stdin may be what is
//! committed, and what it prints is talk. Where there is a terminal it belongs
//! to it as snap does, so that it may ask for a password and gets Ctrl-C itself.
//! Elsewhere it is a process group of its own, which is sent on what stops snap.

use std::{
    ffi::OsString,
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use snap_core::{
    disk::Disk,
    ops::commit::Outcome,
    repo::{Head, Refs, Repo, open::STORE_FOLDER},
};

use crate::{
    commands::commit::{CommitArgs, plan::Plan},
    config::{Hook, Moment, OnFailure, Settings},
    context::Context,
    report::CliError,
};

/// A hook that is over is noticed after so long at the latest.
const POLL: Duration = Duration::from_millis(20);

/// How long a hook may take to end before it is asked more firmly.
const GRACE: Duration = Duration::from_secs(5);

/// The hooks of one commit, and what they are told.
pub(super) struct Hooks {
    pre: Option<Hook>,
    post: Option<Hook>,
    /// Where they run: the project, else where snap does.
    folder: PathBuf,
    variables: Vec<(&'static str, OsString)>,
}

impl Hooks {
    /// The hooks that are to run for this commit.
    pub(super) fn find(
        args: &CommitArgs,
        (plan, settings): (&Plan, &Settings),
        cx: &Context,
    ) -> Result<Self, CliError> {
        let profile = args.profile.as_deref();
        let wanted = !args.no_hooks && !args.dry_run && !cx.is_in_hook();
        let hook = |moment| match wanted {
            true => settings.hook(moment, profile),
            false => Ok(None),
        };
        let (pre, post) = (hook(Moment::PreCommit)?, hook(Moment::PostCommit)?);
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

    /// Runs the one before the commit.
    pub(super) fn before(&self, cx: &Context) -> Result<(), CliError> {
        let Some(hook) = &self.pre else { return Ok(()) };
        let name = Moment::PreCommit.name();
        match self.run(hook, name, &[], cx)? {
            End::Well => Ok(()),
            End::Interrupted => Err(CliError::PreHookInterrupted { name }),
            End::Failed(how) if hook.on_failure == OnFailure::Report => {
                cx.ui().warning(format_args!("the {name} hook failed: {how}; going on"));
                Ok(())
            }
            End::Failed(how) => Err(CliError::PreHook { name, how }),
        }
    }

    /// Runs the one after the commit, also when nothing had changed.
    pub(super) fn after(
        &self,
        outcome: &Outcome,
        repo: &Repo,
        cx: &Context,
    ) -> Result<(), CliError> {
        let Some(hook) = &self.post else { return Ok(()) };
        let Some(id) = &outcome.id else { return Ok(()) };
        let name = Moment::PostCommit.name();
        repo.store().refresh()?;
        let parent = repo.store().commit(id)?.parents.first().map(ToString::to_string);
        let mut variables = vec![
            ("SNAP_COMMIT", id.to_string()),
            ("SNAP_CREATED", outcome.created.to_string()),
            ("SNAP_FILES", outcome.totals.files.to_string()),
            ("SNAP_BYTES", outcome.totals.bytes.to_string()),
            ("SNAP_FILES_NEW", outcome.files_new.to_string()),
            ("SNAP_FILES_CHANGED", outcome.files_changed.to_string()),
            ("SNAP_SKIPPED", outcome.skipped.to_string()),
        ];
        variables.extend(parent.map(|parent| ("SNAP_PARENT", parent)));
        match self.run(hook, name, &variables, cx)? {
            End::Well => Ok(()),
            End::Interrupted => Err(CliError::PostHookInterrupted { name }),
            End::Failed(how) if hook.on_failure == OnFailure::Report => {
                cx.ui().warning(format_args!("the {name} hook failed: {how}; the commit stands"));
                Ok(())
            }
            End::Failed(how) => Err(CliError::PostHook { name, how }),
        }
    }

    fn run(
        &self,
        hook: &Hook,
        name: &'static str,
        variables: &[(&'static str, String)],
        cx: &Context,
    ) -> Result<End, CliError> {
        cx.ui().detail(format_args!("Running the {name} hook: {}", hook.command));
        let mut command = Command::new("sh");
        command.arg("-c").arg(&hook.command).current_dir(&self.folder);
        // What an outer one was told is not true of this one.
        for old in ["SNAP_BRANCH", "SNAP_PROFILE", "SNAP_COMMIT", "SNAP_PARENT"] {
            command.env_remove(old);
        }
        command.env("SNAP_HOOK", name);
        command.envs(self.variables.iter().map(|(key, value)| (key, value)));
        command.envs(variables.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::null()).stdout(cx.ui().talk_of_child());
        let has_terminal = fs_err::File::open("/dev/tty").is_ok();
        if !has_terminal {
            command.process_group(0);
        }
        let start = |source| CliError::HookStart { name, source };
        let child = command.spawn().map_err(start)?;
        let target = if has_terminal { Target::Process } else { Target::Group };
        wait(child, target, cx).map_err(start)
    }
}

/// How a hook ended.
enum End {
    Well,
    Failed(String),
    Interrupted,
}

/// Whom a signal goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The shell; it and what it runs have Ctrl-C from the terminal.
    Process,
    /// The shell and all that it runs.
    Group,
}

/// Waits for a hook; once the user wants to stop, sends that on.
fn wait(mut child: Child, target: Target, cx: &Context) -> io::Result<End> {
    let mut pause = Duration::from_millis(1);
    let mut cancelled: Option<Instant> = None;
    let mut sent = 0;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if cancelled.is_some() || cx.cancelled() {
                End::Interrupted
            } else {
                ended(status)
            });
        }
        if cx.cancelled() {
            let waited = cancelled.get_or_insert_with(Instant::now).elapsed();
            let signals = match target {
                Target::Process => &[(GRACE, Signal::TERM)][..],
                Target::Group => &[(Duration::ZERO, Signal::INT), (GRACE, Signal::TERM)],
            };
            if let Some((_, signal)) = signals.get(sent).filter(|(after, _)| waited >= *after) {
                send(&child, target, *signal);
                sent += 1;
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(POLL);
    }
}

fn send(child: &Child, target: Target, signal: Signal) {
    let Some(id) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    // One that has just ended needs none.
    let _ = match target {
        Target::Process => kill_process(id, signal),
        Target::Group => kill_process_group(id, signal),
    };
}

fn ended(status: ExitStatus) -> End {
    End::Failed(match (status.code(), status.signal()) {
        (Some(0), _) => return End::Well,
        (Some(126), _) => "exit code 126, a command in it cannot be executed".to_owned(),
        (Some(127), _) => "exit code 127, a command in it was not found".to_owned(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    })
}
