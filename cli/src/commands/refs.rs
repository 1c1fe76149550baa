//! Shared code of the commands that list and move branches and tags.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use serde::Serialize;
use snap_core::{
    base::id::CommitId,
    repo::{
        Head, Pointer, RefError, RefName, Repo,
        history::{History, Parents},
        ref_log::RefLogEntry,
        ref_name::RefKind,
        refs::ExpectedRef,
    },
};

use crate::{
    commands::verify::tell_at_collected,
    context::Context,
    report::{CliError, CommandOutcome, hint},
    ui::{Out, misnamed, text, time},
};

/// How to treat a name that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnExistingRef {
    /// Fail.
    Refuse,
    /// Move the ref.
    Move,
}

impl From<bool> for OnExistingRef {
    fn from(force: bool) -> Self {
        if force { Self::Move } else { Self::Refuse }
    }
}

/// A branch or tag.
#[derive(Serialize)]
pub(super) struct RefJson<'a> {
    version: u32,
    r#type: &'static str,
    name: &'a str,
    kind: &'static str,
    id: String,
    current: bool,
}

impl<'a> RefJson<'a> {
    /// Makes the record of a ref; `current` tells whether `HEAD` names it.
    pub(super) fn new(name: &'a RefName, id: &CommitId, current: bool) -> Self {
        let (kind, id) = (name.kind().noun(), id.to_string());
        Self { version: 1, r#type: "ref", name: name.short(), kind, id, current }
    }
}

/// A change of a ref.
#[derive(Serialize)]
struct RefChangeJson<'a> {
    version: u32,
    r#type: &'static str,
    action: &'static str,
    kind: &'static str,
    name: &'a str,
    /// The commit after the change.
    id: Option<String>,
    /// The commit before the change.
    old: Option<String>,
}

#[derive(Serialize)]
struct LineJson<'a> {
    version: u32,
    r#type: &'static str,
    name: &'a str,
    time: String,
    old: String,
    new: String,
    who: &'a str,
    reason: &'a str,
}

/// Returns the branches or tags that can be read. Prints warnings about damaged and lost ones and
/// about misnamed files, so that one of these does not stop a command that does not need it.
pub(super) fn readable(
    cx: &Context,
    repo: &Repo,
    kind: RefKind,
) -> Result<Vec<(RefName, CommitId)>, CliError> {
    Ok(readable_of(cx, repo, kind)?.0)
}

/// Returns the same refs as [`readable`], and true if all refs could be read.
fn readable_of(
    cx: &Context,
    repo: &Repo,
    kind: RefKind,
) -> Result<(Vec<(RefName, CommitId)>, bool), CliError> {
    let (refs, damaged) = repo.refs().list_readable(kind)?;
    let lost = repo.lost_refs()?.into_iter().filter(|(name, _)| name.kind() == kind);
    let lost = lost.map(|(name, at)| RefError::Lost { name, at });
    let mut is_whole = true;
    for error in damaged.into_iter().map(|(_, error)| error).chain(lost) {
        let error = CliError::from(error);
        let hint = hint(&error).map(|hint| format!(" ({hint})")).unwrap_or_default();
        cx.ui().warning_once(&format!("{}{hint}", text::chain(&error)));
        is_whole = false;
    }
    for file in repo.refs().misnamed(kind)? {
        cx.ui().warning_once(&misnamed(&file.path, None, file.commit.as_ref()));
    }
    Ok((refs, is_whole))
}

/// Lists branches or tags with their commits.
pub(super) fn list(cx: &Context, repo: &Repo, kind: RefKind) -> Result<CommandOutcome, CliError> {
    let (refs, is_whole) = readable_of(cx, repo, kind)?;
    let head = repo.refs().head()?;
    let is_current = |name: &RefName| matches!(&head, Head::Branch(branch) if branch == name);
    let width = refs.iter().map(|(name, _)| name.short().len()).max().unwrap_or(0);
    let mut collected = Vec::new();
    let mut out = cx.ui().out();
    for (name, id) in &refs {
        let (short, current) = (name.short(), is_current(name));
        if cx.ui().is_json() {
            out.json(&RefJson::new(name, id, current))?;
            continue;
        }
        let mark = match kind {
            RefKind::Branch if current => "* ",
            RefKind::Branch => "  ",
            RefKind::Tag | RefKind::Remote => "",
        };
        let paint = cx.ui().paint();
        let (shown, shown_id) =
            (paint.name(&format!("{short:<width$}")), paint.id(&cx.ui().id(id)));
        let commit = match repo.store().commit(id) {
            Err(_) if repo.is_found_dead(id)? => {
                writeln!(out, "{mark}{shown} {shown_id}")?;
                collected.push((name, *id));
                continue;
            }
            commit => commit?,
        };
        let message = text::line(commit.message.lines().next().unwrap_or_default().as_bytes());
        let when = time::local(commit.time);
        writeln!(out, "{}", format!("{mark}{shown} {shown_id} {when} {message}").trim_end())?;
    }
    out.finish()?;
    if let (RefKind::Branch, Head::Branch(branch)) = (kind, &head)
        && refs.iter().all(|(name, _)| name != branch)
        && is_whole
    {
        cx.ui().status(format_args!("On branch {}; no commit yet", branch.short()));
    }
    for (name, id) in &collected {
        tell_at_collected(Pointer::Ref((*name).clone()), *id, cx);
    }
    Ok(match is_whole {
        false => CommandOutcome::Damaged,
        // The next fetch removes a remote-tracking branch.
        true if collected.is_empty() || kind == RefKind::Remote => CommandOutcome::Success,
        true => CommandOutcome::Different,
    })
}

/// Creates a branch or tag at `rev`, or moves it there.
pub(super) fn make(
    cx: &Context,
    repo: &Repo,
    (name, rev): (&RefName, &str),
    taken: OnExistingRef,
) -> Result<(), CliError> {
    let id = cx.resolve_commit(repo, rev)?;
    let (noun, short) = (name.kind().noun(), name.short());
    let reason = format!("{noun}: at {rev}");
    let old = match (taken, repo.refs().read(name)) {
        (OnExistingRef::Refuse, _) => None,
        (OnExistingRef::Move, Err(RefError::Damaged { .. })) => {
            cx.with_change(repo.config(), &reason, |change| repo.refs().repair(name, id, change))?;
            cx.ui().status(format_args!("Repaired {noun} {short}, now at {id:.12}"));
            return print_change(cx, "repaired", name, (Some(id), None));
        }
        (OnExistingRef::Move, old) => old?,
    };
    if old.is_none() {
        check_new(name, repo, cx)?;
    }
    let lost = repo.lost_ref(name)?;
    if let (OnExistingRef::Refuse, Some(lost)) = (taken, lost)
        && lost != id
    {
        return Err(RefError::Lost { name: name.clone(), at: lost }.into());
    }
    let expected = lost.map_or(ExpectedRef::At(old), ExpectedRef::Lost);
    cx.with_change(repo.config(), &reason, |change| {
        repo.refs().swap(name, expected, Some(id), change).map(drop)
    })?;
    match old {
        Some(old) => {
            cx.ui().status(format_args!("Moved {noun} {short} from {old:.12} to {id:.12}"))
        }
        None => cx.ui().status(format_args!("Created {noun} {short} at {id:.12}")),
    }
    print_change(cx, if old.is_some() { "moved" } else { "made" }, name, (Some(id), old))
}

/// Fails if a new branch or tag must not have this name: revisions would take it for a remote
/// branch, or a remote branch for it.
pub(super) fn check_new(name: &RefName, repo: &Repo, cx: &Context) -> Result<(), CliError> {
    name.check_new()?;
    let remotes = cx.settings_of(repo.dir())?.remotes();
    let is_above = |remote: &String| {
        name.short().strip_prefix(remote.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    match remotes.into_iter().find(is_above) {
        Some(remote) => {
            Err(CliError::NameOfRemote { name: text::line(name.short().as_bytes()), remote })
        }
        None => Ok(()),
    }
}

/// Prints a change as JSON; users have seen the status message.
pub(super) fn print_change(
    cx: &Context,
    action: &'static str,
    name: &RefName,
    (id, old): (Option<CommitId>, Option<CommitId>),
) -> Result<(), CliError> {
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        out.json(&RefChangeJson {
            version: 1,
            r#type: "ref-changed",
            action,
            kind: name.kind().noun(),
            name: name.short(),
            id: id.map(|id| id.to_string()),
            old: old.map(|id| id.to_string()),
        })?;
    }
    Ok(out.finish()?)
}

/// Deletes a branch or tag.
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
        "Deleted {noun} {short}; `snap {noun} {} {old:.12}` restores it",
        text::word(short.as_bytes())
    ));
    print_change(cx, "deleted", name, (None, Some(old)))
}

/// Prints the log of a branch, a tag or HEAD, newest change first.
pub(super) fn write_log(cx: &Context, name: &str, lines: &[RefLogEntry]) -> Result<(), CliError> {
    let mut out = cx.ui().out();
    for line in lines.iter().rev() {
        match cx.ui().is_json() {
            true => out.json(&LineJson {
                version: 1,
                r#type: "ref-log",
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

fn write_log_line(out: &mut Out, cx: &Context, line: &RefLogEntry) -> io::Result<()> {
    use snap_core::repo::ref_log::RefValue;
    let shown = |target: &RefValue| match target {
        RefValue::Commit(id) => cx.ui().paint().id(&cx.ui().id::<_>(id)),
        RefValue::Branch(name) => cx.ui().paint().name(name.short()),
        RefValue::Nothing => "nothing".to_owned(),
    };
    let (who, reason) = (text::line(line.who.as_bytes()), text::line(line.reason.as_bytes()));
    let (old, new) = (shown(&line.old), shown(&line.new));
    writeln!(out, "{} {old} -> {new} {who}: {reason}", time::local(line.time))
}

/// Formats `HEAD` for users.
pub(super) fn shown_head(head: &Head) -> String {
    match head {
        Head::Branch(name) => name.short().to_owned(),
        Head::Detached(id) => short(id),
    }
}

fn short(id: &CommitId) -> String {
    format!("{id:.12}")
}

/// Returns true if `old` is `new` or one of its ancestors.
pub(super) fn is_before(repo: &Repo, old: CommitId, new: CommitId) -> Result<bool, CliError> {
    if old == new {
        return Ok(true);
    }
    for step in History::new(repo.store(), &[new], Parents::All)? {
        if step?.id == old {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns how many commits only the history of `one` contains, and how many only that of `other`.
pub(super) fn count_apart(
    repo: &Repo,
    one: CommitId,
    other: CommitId,
) -> Result<(u64, u64), CliError> {
    let history = |tip| -> Result<BTreeSet<CommitId>, CliError> {
        let steps = History::new(repo.store(), &[tip], Parents::All)?;
        steps.map(|step| Ok(step?.id)).collect()
    };
    let (one, other) = (history(one)?, history(other)?);
    Ok((one.difference(&other).count() as u64, other.difference(&one).count() as u64))
}
