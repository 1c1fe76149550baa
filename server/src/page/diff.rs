//! `/r/{repo}/diff?from=&to=`: the differences between two commits, as a list of paths,
//! and line by line for texts.

use std::{io, sync::Arc};

use maud::{Markup, html};
use snap_core::base::number::{ByteCount, count};
use snap_core::{
    base::{id::CommitId, observe::Observer},
    ops::cat::CatError,
    ops::diff::{
        self, Change, ComparedKind, DiffError, DiffOutcome, Limit, New, SideContent, SideReader,
        Status,
    },
    repo::path::components,
};

use super::{
    deadline::Deadline,
    hunks::{self, DiffBudget, RenderedDiff},
    layout::{PageLayout, Tab},
    link::Links,
    page_request::{NamedCommit, PageRequest},
    ref_index::RefIndex,
    show,
};
use crate::{problem::HttpProblem, repository::Repository};

/// Maximum number of changes in the list.
const LISTED: usize = 1000;

/// Maximum length of all paths in the list together, in bytes.
const PATHS_BYTES: usize = 2 << 20;

/// Maximum number of changes whose lines are shown.
const SHOWN: usize = 100;

/// Maximum size of a content that is compared line by line, in bytes.
const CONTENT_BYTES: u64 = 1 << 20;

/// Maximum size of all contents that are read for a page together, in bytes.
const PAGE_BYTES: u64 = 16 << 20;

/// Text in place of changes that were not compared before the deadline.
const LATE: &str = "The comparison took too long. snap diff has no time limit.";

struct ComparedCommits {
    changes: Vec<Change>,
    end: DiffEnd,
    outcome: DiffOutcome,
}

/// Why the list ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiffEnd {
    All,
    More,
    Late,
}

pub(super) fn view(
    ask: &PageRequest,
    repository: &Arc<Repository>,
    observer: &dyn Observer,
) -> Result<Markup, HttpProblem> {
    let repo = ask.repo();
    let (from, to) = (ask.param("from"), ask.param("to"));
    let form = form(ask, repository, from.as_deref(), to.as_deref())?;
    let (Some(from), Some(to)) = (from, to) else {
        let body = html! {
            div.head { h1 { "Compare two commits" } }
            (form)
            p.quiet { "A branch, a tag, the first digits of an id, or a revision such as " code { "main~3" } "." }
        };
        return Ok(PageLayout::of(&repo, Tab::Compare, None, format!("Compare · {repo}"))
            .page(ask.around(), body));
    };
    let (from, to) = (ask.named(repository, &from)?, ask.named(repository, &to)?);
    let path = normal(ask.bytes("path").unwrap_or_default());
    let deadline = ask.deadline(observer);
    let compared = compare(repository, &from, &to, &path, &deadline)?;
    let body = html! {
        div.head {
            h1 { "What changed" @if !path.is_empty() { " in " (show::name(&path)) } }
            (sums(&compared.outcome))
        }
        (form)
        @if compared.changes.is_empty() && compared.end == DiffEnd::Late {
            section.sheet { p.none { (LATE) } }
        } @else if compared.changes.is_empty() {
            section.sheet { p.none { "Nothing differs." } }
        } @else {
            (list(&ask.links(), &from, &to, &compared))
            (contents(ask, repository, &from, &to, &compared.changes, &deadline)?)
        }
    };
    let title = format!("{} → {} · {repo}", from.shown(), to.shown());
    Ok(PageLayout::of(&repo, Tab::Compare, None, title).page(ask.around(), body))
}

/// Shortens a full commit id to its first digits.
fn brief(rev: &str) -> &str {
    let is_id = rev.parse::<CommitId>().is_ok();
    rev.get(..12).filter(|_| is_id).unwrap_or(rev)
}

fn normal(path: &[u8]) -> Vec<u8> {
    components(path).collect::<Vec<_>>().join(&b'/')
}

fn compare(
    repository: &Repository,
    from: &NamedCommit,
    to: &NamedCommit,
    path: &[u8],
    deadline: &Deadline<'_>,
) -> Result<ComparedCommits, HttpProblem> {
    let options = diff::DiffOptions {
        limit: Limit::to(if path.is_empty() { Vec::new() } else { vec![path.to_vec()] }),
        jobs: Some(1),
        ..diff::DiffOptions::default()
    };
    let mut compared =
        ComparedCommits { changes: Vec::new(), end: DiffEnd::All, outcome: DiffOutcome::default() };
    let new = New::Tree(Some(to.commit.tree));
    let old = Some(from.commit.tree);
    let store = repository.repo().store();
    let mut path_bytes = 0;
    let ended = diff::run(store, old, &new, &options, deadline, &mut |change| {
        path_bytes += change.path.len() + change.old_path.as_ref().map_or(0, Vec::len);
        if compared.changes.len() == LISTED || path_bytes > PATHS_BYTES {
            compared.end = DiffEnd::More;
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        compared.outcome.count(&change);
        compared.changes.push(change);
        Ok(())
    });
    match ended {
        Err(DiffError::Output(_)) => {}
        Err(DiffError::Blocked(_)) => compared.end = DiffEnd::Late,
        ended => {
            ended?;
        }
    }
    Ok(compared)
}

fn form(
    ask: &PageRequest,
    repository: &Repository,
    from: Option<&str>,
    to: Option<&str>,
) -> Result<Markup, HttpProblem> {
    let names = RefIndex::of(repository)?;
    let revs = names.all().iter().take(LISTED).map(|(name, _)| names.rev(name));
    Ok(html! {
        form.compare method="get" action=(ask.links().page("diff")) {
            label { "From" input.field name="from" list="refs" required value=[from.map(brief)] autocomplete="off" autocapitalize="none" spellcheck="false"; }
            label { "To" input.field name="to" list="refs" required value=[to.map(brief)] autocomplete="off" autocapitalize="none" spellcheck="false"; }
            datalist #refs { @for rev in revs.filter(|rev| show::is_plain(rev)) { option value=(rev) {} } }
            button.button.main type="submit" { "Compare" }
        }
    })
}

fn sums(outcome: &DiffOutcome) -> Markup {
    let words = [
        (outcome.added + outcome.folders_added, "added", "plus"),
        (outcome.deleted + outcome.folders_deleted, "deleted", "minus"),
        (outcome.modified + outcome.kind, "modified", ""),
        (outcome.renamed, "renamed", ""),
        (outcome.metadata, "with other metadata", ""),
    ];
    html! {
        p.sums {
            @for (number, word, class) in words.into_iter().filter(|(number, ..)| *number > 0) {
                span class=(class) { (number) " " (word) }
            }
            @if outcome.bytes_added > 0 { span.plus { "+" (ByteCount(outcome.bytes_added)) } }
            @if outcome.bytes_deleted > 0 { span.minus { "−" (ByteCount(outcome.bytes_deleted)) } }
        }
    }
}

/// How a page shows a status.
struct StatusView {
    letter: &'static str,
    word: &'static str,
    /// The CSS class of the row.
    class: &'static str,
}

fn status_view(status: Status) -> StatusView {
    let (letter, word, class) = match status {
        Status::Added => ("A", "added", "status-added"),
        Status::Deleted => ("D", "deleted", "status-deleted"),
        // Only a comparison with a folder has ignored entries.
        Status::Ignored => ("I", "ignored", "status-deleted"),
        Status::Modified => ("M", "modified", "status-modified"),
        Status::Metadata => ("m", "other metadata", "status-metadata"),
        Status::Kind => ("T", "type changed", "status-type"),
        Status::Renamed => ("R", "renamed", "status-renamed"),
    };
    StatusView { letter, word, class }
}

fn list(links: &Links, from: &NamedCommit, to: &NamedCommit, compared: &ComparedCommits) -> Markup {
    let changes = &compared.changes;
    html! {
        section.sheet {
            div.toolbar { h2 { (count(changes.len() as u64, "change")) @if compared.end != DiffEnd::All { ", and more" } } }
            table.changes data-list="" {
                caption.unseen { "Changes" }
                thead.unseen {
                    tr { th scope="col" { "What" } th scope="col" { "Path" } th scope="col" { "Size" } }
                }
                tbody {
                    @for (at, change) in changes.iter().enumerate() { (row(links, from, to, at, change)) }
                }
            }
            @if compared.end == DiffEnd::Late { p.none { (LATE) } }
            @if compared.end == DiffEnd::More { p.none { "The list is too long for this page. \
                                                          snap diff lists all changes." } }
        }
    }
}

fn row(links: &Links, from: &NamedCommit, to: &NamedCommit, at: usize, change: &Change) -> Markup {
    let StatusView { letter, word, class } = status_view(change.status());
    let bytes = |side: &Option<diff::ChangeSide>| side.as_ref().map_or(0, |item| item.what.bytes());
    let (old, new) = (bytes(&change.old), bytes(&change.new));
    let link = match has_lines(change) {
        true if at < SHOWN => format!("#change-{at}"),
        true => alone(links, from, to, change),
        false => {
            let rev = if change.new.is_some() { &to.id } else { &from.id };
            links.entry(&rev.to_string(), &change.path)
        }
    };
    html! {
        tr class=(class) {
            td.sign { span aria-hidden="true" title=(word) { (letter) } span.unseen { (word) } }
            td.name {
                a data-go="" href=(link) {
                    @if let Some(old) = &change.old_path { (show::name(old)) " → " }
                    (show::name(&change.path))
                    @if change.item().what.is_folder() { "/" }
                }
            }
            td.number.quiet {
                @if new > old { span.plus { "+" (ByteCount(new - old)) } }
                @else if old > new { span.minus { "−" (ByteCount(old - new)) } }
            }
        }
    }
}

/// Returns true if a change has contents that can be compared line by line.
fn has_lines(change: &Change) -> bool {
    let by_lines = |item: &diff::ChangeSide| {
        matches!(item.what, ComparedKind::File { .. } | ComparedKind::Symlink { .. })
    };
    let is_other = change.old.is_none() || change.new.is_none() || change.differences().content;
    is_other && [&change.old, &change.new].into_iter().flatten().any(by_lines)
}

fn contents(
    ask: &PageRequest,
    repository: &Repository,
    from: &NamedCommit,
    to: &NamedCommit,
    changes: &[Change],
    deadline: &Deadline<'_>,
) -> Result<Markup, HttpProblem> {
    let store = repository.repo().store();
    let new = New::Tree(Some(to.commit.tree));
    let reader = SideReader::new(store, &new, CONTENT_BYTES)?;
    let (mut room, mut bytes, mut all) = (DiffBudget::default(), 0, Vec::new());
    for (at, change) in changes.iter().take(SHOWN).enumerate().filter(|(_, c)| has_lines(c)) {
        let sides = [&change.old, &change.new].into_iter().flatten();
        bytes += sides.map(|item| item.what.bytes().min(CONTENT_BYTES)).sum::<u64>();
        let (is_first, heading) = (all.is_empty(), format!("path-{at}"));
        let lines = match bytes > PAGE_BYTES || room.is_full() {
            true => RenderedDiff { html: html! {}, is_whole: false },
            false => match sides_of(&reader, change, deadline) {
                Ok((old, new)) => hunks::view(&old, &new, &heading, &mut room),
                Err(CatError::Blocked(_)) => html! { p.none { (LATE) } }.into(),
                Err(error) => return Err(error.into()),
            },
        };
        all.push(html! {
            section.sheet id={ "change-" (at) } {
                (title(&ask.links(), from, to, change, &heading))
                (lines.html)
                @if !lines.is_whole {
                    p.none {
                        "The rest does not fit on this page. "
                        @if !is_first { a href=(alone(&ask.links(), from, to, change)) { "Show this path only" } ", or use " }
                        @else { "For all of it, use " }
                        code { "snap diff" } "."
                    }
                }
            }
        });
    }
    Ok(html! { @for one in &all { (one) } })
}

fn sides_of(
    reader: &SideReader<'_>,
    change: &Change,
    deadline: &Deadline<'_>,
) -> Result<(SideContent, SideContent), CatError> {
    // Reading a short content does not check the deadline.
    deadline.check()?;
    let old = reader.old(change.old.as_ref(), deadline)?;
    Ok((old, reader.new_side(&change.path, change.new.as_ref(), deadline)?))
}

/// Returns the URL of the page that shows only this change.
fn alone(links: &Links, from: &NamedCommit, to: &NamedCommit, change: &Change) -> String {
    links.diff_of(&from.id.to_string(), &to.id.to_string(), &change.path)
}

fn title(
    links: &Links,
    from: &NamedCommit,
    to: &NamedCommit,
    change: &Change,
    heading: &str,
) -> Markup {
    let (from, to) = (from.id.to_string(), to.id.to_string());
    let (rev, path) = match (&change.new, &change.old_path) {
        (Some(_), _) => (&to, &change.path),
        (None, old) => (&from, old.as_ref().unwrap_or(&change.path)),
    };
    html! {
        div.toolbar {
            h2.file-name id=(heading) {
                @if let Some(old) = &change.old_path { (show::name(old)) " → " }
                (show::name(&change.path))
            }
            div.actions {
                @if let Some(mode) = modes(change) { span.quiet { (mode) } }
                a.button href=(links.history(rev, path)) { "History" }
                a.button href=(links.entry(rev, path)) { "Show" }
            }
        }
    }
}

fn modes(change: &Change) -> Option<String> {
    let (old, new) = (change.old.as_ref()?, change.new.as_ref()?);
    let is_other = change.differences().mode;
    is_other.then(|| format!("mode {:04o} → {:04o}", old.metadata.mode, new.metadata.mode))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use snap_core::base::observe::Silent;

    use super::{super::two_commits::two_commits, *};
    use crate::clock::Clock;

    #[test]
    fn work_beyond_the_deadline_ends_and_is_reported() {
        let (_folder, repository, named) = two_commits();
        let clock = Clock::manual();
        let of = |time| {
            let deadline = Deadline::after(time, &clock, &Silent);
            compare(&repository, &named[0], &named[1], b"", &deadline).unwrap()
        };
        let compared = of(Duration::from_secs(60));
        assert_eq!((compared.changes.len(), compared.end), (1, DiffEnd::All));
        let late = of(Duration::ZERO);
        assert_eq!((late.changes.len(), late.end), (0, DiffEnd::Late));
        let new = New::Tree(Some(named[1].commit.tree));
        let reader = SideReader::new(repository.repo().store(), &new, CONTENT_BYTES).unwrap();
        let deadline = Deadline::after(Duration::ZERO, &clock, &Silent);
        let read = sides_of(&reader, &compared.changes[0], &deadline);
        assert!(matches!(read, Err(CatError::Blocked(_))), "{read:?}");
    }
}
