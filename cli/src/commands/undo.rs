//! `snap undo`: take back the last change of a ref.

use serde::Serialize;
use snap_core::{
    base::id::CommitId,
    ops::undo,
    repo::{
        Pointer, RefError, RefName, Repo,
        ref_log::Target,
        ref_name::RefKind,
        undo::{Direction, Plan},
    },
};

use crate::{
    context::Context,
    report::{CliError, Done},
    ui::{VERSION, text, time},
};

const EXAMPLES: &str = "\
Examples:
  snap undo                 take back the last commit, move, switch or delete
  snap undo --dry-run       only say what that would be
  snap undo main            take back what happened to main last
  snap undo tags/v1         bring back a tag that was deleted
  snap undo --redo          do again what was undone last";

/// Take back the last change of a branch, a tag or HEAD
///
/// A commit, a branch or tag that was made, moved or deleted, a switch to
/// another branch. No file is touched and no snapshot goes: only the name
/// stands again where it stood.
///
/// Each further undo goes further back. `snap undo --redo` goes forward again,
/// one change at a time, until something new is done. An undo is logged as
/// every change is: `snap branch --log NAME` lists it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UndoArgs {
    /// Branch, tag or HEAD; what changed last if not given
    #[arg(value_name = "REF")]
    name: Option<String>,

    /// Make again what was undone last
    #[arg(long)]
    redo: bool,

    /// Say what would be done, and do nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(crate) fn run(args: &UndoArgs, cx: &Context) -> Result<Done, CliError> {
    let repo = cx.open_repo()?;
    let wanted = args.name.as_deref().map(|name| pointer(&repo, name)).transpose()?;
    let direction = if args.redo { Direction::Redo } else { Direction::Undo };
    let plan = undo::plan(&repo, wanted.as_ref(), direction)?;
    let sentence = sentence(&repo, &plan)?;
    if args.dry_run {
        cx.ui().status(format_args!("{sentence}"));
        cx.ui().status(format_args!("Nothing was done (--dry-run)"));
    } else {
        cx.with_change(repo.config(), &plan.reason(), |change| undo::run(&repo, &plan, change))?;
        let back = match direction {
            Direction::Undo => "`snap undo --redo` does it again",
            Direction::Redo => "`snap undo` takes it back",
        };
        cx.ui().status(format_args!("{sentence}"));
        cx.ui().status(format_args!("Done; {back}"));
    }
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&UndoJson { done: !args.dry_run, ..UndoJson::new(&plan) })?;
        out.finish()?;
    }
    Ok(Done::Well)
}

#[derive(Serialize)]
struct UndoJson<'a> {
    version: u32,
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
    /// Takes what a plan says; nothing is done yet.
    fn new(plan: &'a Plan) -> Self {
        let (name, kind) = match &plan.pointer {
            Pointer::Head => ("HEAD", "head"),
            Pointer::Ref(name) => (name.short(), name.kind().noun()),
        };
        let target = |target: &Target| (*target != Target::Nothing).then(|| target.to_string());
        Self {
            version: VERSION,
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

/// What a text names: `HEAD`, else a branch or tag that is there, else one
/// that was.
fn pointer(repo: &Repo, text: &str) -> Result<Pointer, CliError> {
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

/// What happens, such as "main goes back from … to …".
fn sentence(repo: &Repo, plan: &Plan) -> Result<String, CliError> {
    let shown = match &plan.pointer {
        Pointer::Head => "HEAD".to_owned(),
        Pointer::Ref(name) if name.kind() == RefKind::Tag => format!("tag {}", name.short()),
        Pointer::Ref(name) => name.short().to_owned(),
    };
    let (way, again) = match plan.direction {
        Direction::Undo => ("goes back", ""),
        Direction::Redo => ("goes forward", " again"),
    };
    let at = |target: &Target| place(repo, target);
    let why = text::line(plan.change.reason.as_bytes());
    let moves = match (&plan.from, &plan.to) {
        (Target::Nothing, to) => {
            let back =
                if plan.direction == Direction::Undo { "comes back" } else { "is made again" };
            format!("{shown} {back} at {}", at(to))
        }
        (from, Target::Nothing) if is_current(repo, &plan.pointer)? => {
            format!("{shown} {way} from {} to no commit", at(from))
        }
        (from, Target::Nothing) => format!("{shown}, at {}, is removed{again}", at(from)),
        (from, to) => format!("{shown} {way} from {} to {}", at(from), at(to)),
    };
    let verb = plan.direction.verb();
    Ok(format!("{moves}: {verb} of \"{why}\", {}", time::local(plan.change.time)))
}

/// Whether `HEAD` names this branch.
fn is_current(repo: &Repo, pointer: &Pointer) -> Result<bool, CliError> {
    let head = repo.refs().target(&Pointer::Head)?;
    Ok(matches!((pointer, head), (Pointer::Ref(name), Target::Branch(branch)) if *name == branch))
}

fn place(repo: &Repo, target: &Target) -> String {
    match target {
        Target::Nothing => "nothing".to_owned(),
        Target::Branch(name) => format!("branch {}", name.short()),
        Target::Commit(id) => with_message(repo, id),
    }
}

/// An id with the first line of its message, if it can be read.
fn with_message(repo: &Repo, id: &CommitId) -> String {
    let message = repo.store().commit(id).map(|commit| commit.message).unwrap_or_default();
    match message.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => format!("{id:.12} ({})", text::line(line.as_bytes())),
        None => format!("{id:.12}"),
    }
}
