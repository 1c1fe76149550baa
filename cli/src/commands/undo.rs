//! `snap undo`: takes back the last change of a ref.

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, time::Time},
    format::forgotten::ForgottenState,
    ops::{
        forget::{LastForget, UndoneForget},
        rewrite::{self, LastRewrite},
    },
    repo::{
        Pointer, RefError, RefLogMessage, RefName, Repo,
        ref_log::RefValue,
        ref_name::RefKind,
        undo::{self, Direction, UndoError, UndoPlan},
    },
};

use crate::{
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{VERSION, size, text, time},
};

const EXAMPLES: &str = "\
Examples:
  snap undo                 undo the last commit, move, switch or delete
  snap undo --dry-run       show what would be undone
  snap undo main            undo the last change of main
  snap undo tags/v1         restore a deleted tag
  snap undo --redo          redo the last undone change";

/// Undo the last change of a branch, a tag or HEAD
///
/// Undoes the last operation: a commit, a switch to another branch, a created, moved or deleted
/// branch or tag, or a `snap forget` or `snap rewrite` until `snap gc` deletes what it let go. Only
/// names move back: files are unchanged and no snapshot is deleted. `snap undo` does not undo a
/// restore.
///
/// Each further undo goes one change further back. `snap undo --redo` goes forward again, until a
/// new change is made. It does not redo a `snap rewrite`. `snap branch --log NAME` lists all
/// changes, also those by an undo.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UndoArgs {
    /// Branch, tag or HEAD; default: the last changed one
    #[arg(value_name = "REF")]
    name: Option<String>,

    /// Redo the last undone change
    #[arg(long)]
    redo: bool,

    /// Show what would be undone; change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(crate) fn run(args: &UndoArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let repo = cx.open_repo()?;
    let wanted = args.name.as_deref().map(|name| pointer(&repo, name)).transpose()?;
    let direction = direction_of(args);
    let plan = undo::plan(&repo, wanted.as_ref(), direction);
    if wanted.is_none() && direction == Direction::Undo {
        let change = plan.as_ref().ok().map(|plan| &plan.change);
        let forget = LastForget::read(&repo)?
            .filter(|last| change.is_none_or(|change| change.time < last.forget.time));
        let rewrite = LastRewrite::read(&repo)?
            .filter(|last| change.is_none_or(|change| last.is_after(change)));
        let rewrite_time = rewrite.as_ref().map(|last| last.time);
        match (forget, rewrite) {
            (Some(last), _) if Some(last.forget.time) > rewrite_time => {
                return undo_forget(&last, args, &repo, cx);
            }
            (_, Some(last)) => return undo_rewrite(&last, args, &repo, cx),
            _ => {}
        }
    }
    if wanted.is_none() && direction == Direction::Redo {
        let undone = plan.as_ref().ok().and_then(|plan| plan.undone);
        if let Some(forget) =
            UndoneForget::read(&repo).filter(|forget| undone < Some(forget.0.since))
        {
            return redo_forget(&forget, args, &repo, cx);
        }
        let forgotten = repo.store().forgotten().last(ForgottenState::Forgotten);
        if plan.is_ok() && forgotten.is_some_and(|forget| undone < Some(forget.time)) {
            return Err(UndoError::ForgottenSince.into());
        }
    }
    let plan = plan?;
    if direction == Direction::Redo && plan.change.reason.starts_with(rewrite::REASON) {
        return Err(CliError::RedoRewrite);
    }
    let sentence = sentence(&repo, &plan)?;
    if args.dry_run {
        cx.ui().status(format_args!("{sentence}"));
        cx.ui().status(format_args!("Dry run: nothing was changed"));
    } else {
        cx.with_change(repo.config(), &plan.reason(), |change| plan.run(repo.refs(), change))?;
        let back = match direction {
            Direction::Undo => "`snap undo --redo` redoes it",
            Direction::Redo => "`snap undo` undoes it",
        };
        cx.ui().status(format_args!("{sentence}"));
        cx.ui().status(format_args!("Done; {back}"));
    }
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&UndoJson { done: !args.dry_run, ..UndoJson::new(&plan) })?;
        out.finish()?;
    }
    Ok(CommandOutcome::Success)
}

fn direction_of(args: &UndoArgs) -> Direction {
    if args.redo { Direction::Redo } else { Direction::Undo }
}

/// Moves the refs back that the last `snap rewrite` moved.
fn undo_rewrite(
    last: &LastRewrite,
    args: &UndoArgs,
    repo: &Repo,
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    if last.is_final {
        return Err(CliError::RewriteFinal);
    }
    let count = size::count(last.refs.len() as u64, "ref");
    let reason = format!("rewrite: {count}");
    if !args.dry_run {
        let undo = |change: &RefLogMessage<'_>| last.undo(repo, change);
        if !cx.with_change(repo.config(), &format!("undo: {reason}"), undo)? {
            return match LastRewrite::read(repo)? {
                Some(last) if last.is_final => Err(CliError::RewriteFinal),
                _ => Err(RefError::HeadMoved.into()),
            };
        }
    }
    let time = time::local(last.time);
    cx.ui().status(format_args!("{count} moved back: undo of \"snap rewrite\", {time}"));
    report_undo(("rewritten", "refs"), last.time, &reason, args, cx)
}

/// Brings back the commits of the last `snap forget`.
fn undo_forget(
    last: &LastForget,
    args: &UndoArgs,
    repo: &Repo,
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let gone = |id: CommitId| {
        LastForget::check_not_lost(repo, &id)?;
        Err(CliError::ForgottenGone { id })
    };
    if let Some(id) = last.deleted {
        return gone(id);
    }
    let count = size::count(last.forget.commits.len() as u64, "commit");
    let reason = format!("forget: {count}");
    if !args.dry_run {
        let undo = |change: &RefLogMessage<'_>| last.undo(repo, change);
        if !cx.with_change(repo.config(), &format!("undo: {reason}"), undo)? {
            return LastForget::read(repo)?
                .and_then(|last| last.deleted)
                .map_or_else(|| Err(CliError::from(RefError::HeadMoved)), gone);
        }
    }
    let time = time::local(last.forget.time);
    cx.ui().status(format_args!("{count} brought back: undo of \"snap forget\", {time}"));
    if !args.dry_run {
        cx.ui().status(format_args!("Done; `snap undo --redo` redoes it"));
    }
    report_undo(("forgotten", "commits"), last.forget.time, &reason, args, cx)
}

/// Forgets the commits again that the last undo of a `snap forget` brought back.
fn redo_forget(
    undone: &UndoneForget,
    args: &UndoArgs,
    repo: &Repo,
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let UndoneForget(forget) = undone;
    if let Some(pointer) = undo::changed_since(repo.refs(), forget.since)? {
        return Err(CliError::RedoForget { pointer });
    }
    let mut commits = forget.commits.len() as u64;
    if !args.dry_run {
        let reason = format!("redo: forget: {}", size::count(commits, "commit"));
        let progress = cx.progress();
        let redo = |change: &RefLogMessage<'_>| undone.redo(repo, change, &progress);
        commits = match cx.with_change(repo.config(), &reason, redo)? {
            Some(0) => {
                let nothing = UndoError::Nothing { direction: Direction::Redo, pointer: None };
                return Err(nothing.into());
            }
            Some(commits) => commits,
            None => return Err(RefError::HeadMoved.into()),
        };
    }
    let (count, time) = (size::count(commits, "commit"), time::local(forget.time));
    cx.ui().status(format_args!("{count} forgotten again: redo of \"snap forget\", {time}"));
    if !args.dry_run {
        cx.ui().status(format_args!("Done; `snap undo` undoes it"));
    }
    let reason = format!("forget: {count}");
    report_undo(("forgotten", "commits"), forget.time, &reason, args, cx)
}

/// Ends the report of an undo or a redo of several changes at once. They have a name and the noun of a
/// kind.
fn report_undo(
    (name, kind): (&str, &'static str),
    time: Time,
    reason: &str,
    args: &UndoArgs,
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    if args.dry_run {
        cx.ui().status(format_args!("Dry run: nothing was changed"));
    }
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&UndoJson {
            version: VERSION,
            r#type: "undo",
            action: direction_of(args).verb(),
            name,
            kind,
            from: None,
            to: None,
            time: time.rfc3339(),
            who: "",
            reason,
            done: !args.dry_run,
        })?;
        out.finish()?;
    }
    Ok(CommandOutcome::Success)
}

#[derive(Serialize)]
struct UndoJson<'a> {
    version: u32,
    r#type: &'static str,
    action: &'static str,
    name: &'a str,
    kind: &'static str,
    from: Option<String>,
    to: Option<String>,
    time: String,
    who: &'a str,
    reason: &'a str,
    done: bool,
}

impl<'a> UndoJson<'a> {
    /// Converts a plan, before it is carried out.
    fn new(plan: &'a UndoPlan) -> Self {
        let (name, kind) = match &plan.pointer {
            Pointer::Head => ("HEAD", "head"),
            Pointer::Ref(name) => (name.short(), name.kind().noun()),
        };
        let target = |target: &RefValue| (*target != RefValue::Nothing).then(|| target.to_string());
        Self {
            version: VERSION,
            r#type: "undo",
            action: plan.direction.verb(),
            name,
            kind,
            from: target(&plan.from),
            to: target(&plan.to),
            time: plan.change.time.rfc3339(),
            who: &plan.change.who,
            reason: &plan.change.reason,
            done: false,
        }
    }
}

/// Returns what a text names: `HEAD`, or else an existing branch or tag, or else one that existed.
pub(crate) fn pointer(repo: &Repo, text: &str) -> Result<Pointer, CliError> {
    if text == "HEAD" {
        return Ok(Pointer::Head);
    }
    let short = text.strip_prefix("refs/").unwrap_or(text);
    let names = match short.split_once('/') {
        Some(("heads", name)) => vec![RefName::branch(name)?],
        Some(("tags", name)) => vec![RefName::tag(name)?],
        _ => vec![RefName::branch(text)?, RefName::tag(text)?],
    };
    for name in &names {
        if repo.refs().read(name)?.is_some() {
            return Ok(Pointer::Ref(name.clone()));
        }
    }
    for name in &names {
        if !repo.refs().log(name)?.is_empty() {
            return Ok(Pointer::Ref(name.clone()));
        }
    }
    let name = names.into_iter().next().expect("there is at least one name");
    Err(match text.strip_prefix("refs/").is_some() || short.split_once('/').is_some() {
        true => RefError::Unknown { name }.into(),
        false => CliError::NoRef { name: text.to_owned() },
    })
}

/// Describes the change, such as "main moves back from … to …".
fn sentence(repo: &Repo, plan: &UndoPlan) -> Result<String, CliError> {
    let shown = match &plan.pointer {
        Pointer::Head => "HEAD".to_owned(),
        Pointer::Ref(name) if name.kind() == RefKind::Tag => format!("tag {}", name.short()),
        Pointer::Ref(name) => name.short().to_owned(),
    };
    let (way, again) = match plan.direction {
        Direction::Undo => ("moves back", ""),
        Direction::Redo => ("moves forward", " again"),
    };
    let at = |target: &RefValue| place(repo, target);
    let why = text::line(plan.change.reason.as_bytes());
    let moves = match (&plan.from, &plan.to) {
        (RefValue::Nothing, to) => {
            let back =
                if plan.direction == Direction::Undo { "is restored" } else { "is created again" };
            format!("{shown} {back} at {}", at(to))
        }
        (from, RefValue::Nothing) if is_current(repo, &plan.pointer)? => {
            format!("{shown} {way} from {} to no commit", at(from))
        }
        (from, RefValue::Nothing) => format!("{shown}, at {}, is deleted{again}", at(from)),
        (from, to) => format!("{shown} {way} from {} to {}", at(from), at(to)),
    };
    let verb = plan.direction.verb();
    Ok(format!("{moves}: {verb} of \"{why}\", {}", time::local(plan.change.time)))
}

/// Returns true if `HEAD` names this branch.
fn is_current(repo: &Repo, pointer: &Pointer) -> Result<bool, CliError> {
    let head = repo.refs().target(&Pointer::Head)?;
    Ok(matches!((pointer, head), (Pointer::Ref(name), RefValue::Branch(branch)) if *name == branch))
}

fn place(repo: &Repo, target: &RefValue) -> String {
    match target {
        RefValue::Nothing => "nothing".to_owned(),
        RefValue::Branch(name) => format!("branch {}", name.short()),
        RefValue::Commit(id) => with_message(repo, id),
    }
}

/// Formats an id with the first line of its message, if the commit can be read.
fn with_message(repo: &Repo, id: &CommitId) -> String {
    let message = repo.store().commit(id).map(|commit| commit.message).unwrap_or_default();
    match message.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => format!("{id:.12} ({})", text::line(line.as_bytes())),
        None => format!("{id:.12}"),
    }
}
