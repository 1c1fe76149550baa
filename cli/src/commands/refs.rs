//! What commands that move branches and tags have in common.

use std::io::{self, Write};

use serde::Serialize;
use snap_core::{
    base::id::CommitId,
    repo::{
        Head, RefError, RefName, Repo,
        history::{History, Parents},
        ref_log::Line,
        ref_name::RefKind,
    },
};

use crate::{
    context::Context,
    report::CliError,
    ui::{Out, text, time},
};

/// What to do when the name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Say so.
    Refuse,
    /// Move it.
    Move,
}

impl From<bool> for Taken {
    fn from(force: bool) -> Self {
        if force { Self::Move } else { Self::Refuse }
    }
}

#[derive(Serialize)]
struct RefJson<'a> {
    version: u32,
    name: &'a str,
    kind: &'static str,
    id: String,
    current: bool,
}

/// A change that was made.
#[derive(Serialize)]
struct ChangeJson<'a> {
    version: u32,
    action: &'static str,
    kind: &'static str,
    name: &'a str,
    /// Where it points now.
    id: Option<String>,
    /// Where it pointed before.
    old: Option<String>,
}

#[derive(Serialize)]
struct LineJson<'a> {
    version: u32,
    name: &'a str,
    time: String,
    old: String,
    new: String,
    who: &'a str,
    reason: &'a str,
}

/// Lists branches or tags with the commit of each.
pub(super) fn list(cx: &Context, repo: &Repo, kind: RefKind) -> Result<(), CliError> {
    let refs = repo.refs().list(kind)?;
    let head = repo.refs().head()?;
    let is_current = |name: &RefName| matches!(&head, Head::Branch(branch) if branch == name);
    let width = refs.iter().map(|(name, _)| name.short().len()).max().unwrap_or(0);
    let mut out = cx.ui().out();
    for (name, id) in &refs {
        let (short, current) = (name.short(), is_current(name));
        if cx.ui().is_json() {
            let id = id.to_string();
            out.json(&RefJson { version: 1, name: short, kind: kind.noun(), id, current })?;
            continue;
        }
        let mark = match kind {
            RefKind::Branch if current => "* ",
            RefKind::Branch => "  ",
            RefKind::Tag | RefKind::Remote => "",
        };
        let commit = repo.store().commit(id)?;
        let message = text::line(commit.message.lines().next().unwrap_or_default().as_bytes());
        let name = cx.ui().paint().name(&format!("{short:<width$}"));
        let (id, when) = (cx.ui().paint().id(&cx.ui().id(id)), time::local(commit.time));
        writeln!(out, "{}", format!("{mark}{name} {id} {when} {message}").trim_end())?;
    }
    out.finish()?;
    if let (RefKind::Branch, Head::Branch(branch)) = (kind, &head)
        && refs.iter().all(|(name, _)| name != branch)
    {
        cx.ui().status(format_args!("On branch {}, which has no commit yet", branch.short()));
    }
    Ok(())
}

/// Makes a branch or tag at `rev`, or moves it there.
pub(super) fn make(
    cx: &Context,
    repo: &Repo,
    (name, rev): (&RefName, &str),
    taken: Taken,
) -> Result<(), CliError> {
    let id = cx.resolve_commit(repo, rev)?;
    let (noun, short) = (name.kind().noun(), name.short());
    let reason = format!("{noun}: at {rev}");
    let old = match (taken, repo.refs().read(name)) {
        (Taken::Refuse, _) => None,
        (Taken::Move, Err(RefError::Damaged { .. })) => {
            cx.with_change(repo.config(), &reason, |change| repo.refs().repair(name, id, change))?;
            cx.ui().status(format_args!("Repaired {noun} {short}, now at {id:.12}"));
            return tell_change(cx, "repaired", name, (Some(id), None));
        }
        (Taken::Move, old) => old?,
    };
    if old.is_none() {
        name.check_new()?;
    }
    cx.with_change(repo.config(), &reason, |change| {
        repo.refs().update(name, old, Some(id), change)
    })?;
    match old {
        Some(old) => {
            cx.ui().status(format_args!("Moved {noun} {short} from {old:.12} to {id:.12}"))
        }
        None => cx.ui().status(format_args!("Made {noun} {short} at {id:.12}")),
    }
    tell_change(cx, if old.is_some() { "moved" } else { "made" }, name, (Some(id), old))
}

/// Prints a change for programs; people have been told.
pub(super) fn tell_change(
    cx: &Context,
    action: &'static str,
    name: &RefName,
    (id, old): (Option<CommitId>, Option<CommitId>),
) -> Result<(), CliError> {
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        out.json(&ChangeJson {
            version: 1,
            action,
            kind: name.kind().noun(),
            name: name.short(),
            id: id.map(|id| id.to_string()),
            old: old.map(|id| id.to_string()),
        })?;
    }
    Ok(out.finish()?)
}

/// Removes a branch or tag.
pub(super) fn delete(cx: &Context, repo: &Repo, name: &RefName) -> Result<(), CliError> {
    let (noun, short) = (name.kind().noun(), name.short());
    if repo.refs().head()? == Head::Branch(name.clone()) {
        return Err(CliError::CurrentBranch { name: short.to_owned() });
    }
    let unknown = || RefError::Unknown { name: name.clone() };
    let old = repo.refs().read(name)?.ok_or_else(unknown)?;
    cx.with_change(repo.config(), &format!("{noun}: deleted"), |change| {
        repo.refs().update(name, Some(old), None, change)
    })?;
    cx.ui().status(format_args!(
        "Deleted {noun} {short}; `snap {noun} {} {old:.12}` brings it back",
        text::word(short.as_bytes())
    ));
    tell_change(cx, "deleted", name, (None, Some(old)))
}

/// Prints where a branch, a tag or HEAD stood, newest change first.
pub(super) fn write_log(cx: &Context, name: &str, lines: &[Line]) -> Result<(), CliError> {
    let mut out = cx.ui().out();
    for line in lines.iter().rev() {
        match cx.ui().is_json() {
            true => out.json(&LineJson {
                version: 1,
                name,
                time: line.time.rfc3339(),
                old: line.old.to_string(),
                new: line.new.to_string(),
                who: &line.who,
                reason: &line.reason,
            })?,
            false => write_log_line(&mut out, cx, line)?,
        }
    }
    Ok(out.finish()?)
}

fn write_log_line(out: &mut Out, cx: &Context, line: &Line) -> io::Result<()> {
    use snap_core::repo::ref_log::Target;
    let shown = |target: &Target| match target {
        Target::Commit(id) => cx.ui().paint().id(&cx.ui().id::<_>(id)),
        Target::Branch(name) => cx.ui().paint().name(name.short()),
        Target::Nothing => "nothing".to_owned(),
    };
    let (who, reason) = (text::line(line.who.as_bytes()), text::line(line.reason.as_bytes()));
    let (old, new) = (shown(&line.old), shown(&line.new));
    writeln!(out, "{} {old} -> {new} {who}: {reason}", time::local(line.time))
}

/// `HEAD` as people call it.
pub(super) fn shown_head(head: &Head) -> String {
    match head {
        Head::Branch(name) => name.short().to_owned(),
        Head::Detached(id) => short(id),
    }
}

fn short(id: &CommitId) -> String {
    format!("{id:.12}")
}

/// Whether `old` is `new` or in its history.
pub(super) fn is_before(repo: &Repo, old: CommitId, new: CommitId) -> Result<bool, CliError> {
    if old == new {
        return Ok(true);
    }
    for step in History::new(repo.store(), &[new], Parents::All)? {
        if step?.0 == old {
            return Ok(true);
        }
    }
    Ok(false)
}
