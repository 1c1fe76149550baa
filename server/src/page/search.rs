//! `/r/{repo}/search?q=`: a search for paths by name in the whole history.

use std::sync::Arc;

use maud::{Markup, html};
use snap_core::base::number::{ByteCount, count};
use snap_core::{
    base::observe::Observer,
    format::tree::EntryKind,
    ops::find::{self, Case, FindOptions, FoundPath},
    repo::past::PastError,
};

use super::{
    deadline::Deadline,
    icon,
    layout::{PageLayout, Tab},
    link::Links,
    moment,
    page_request::PageRequest,
    ref_index::RefIndex,
    show,
};
use crate::{problem::HttpProblem, repository::Repository};

/// Maximum number of paths that are listed.
const LISTED: usize = 500;

/// Maximum length of all listed paths together, in bytes.
const PATHS_BYTES: usize = 2 << 20;

/// Approximate limit for the matches that a search holds in memory, in bytes.
const FIND_BYTES: usize = 16 << 20;

/// Bytes that make a query a pattern. Any other query matches parts of names.
const WILDCARDS: &[u8] = b"*?[]{}\\/";

/// Why a search ended early.
enum SearchStop {
    Enough,
    Failed(PastError),
}

impl From<PastError> for SearchStop {
    fn from(error: PastError) -> Self {
        Self::Failed(error)
    }
}

/// The result of a search.
enum SearchAnswer {
    All(Vec<FoundPath>),
    Some(Vec<FoundPath>),
    /// The search took too long.
    Late,
    /// The query is not a valid pattern.
    Wrong(String),
}

pub(super) fn view(
    ask: &PageRequest,
    repository: &Arc<Repository>,
    observer: &dyn Observer,
) -> Result<Markup, HttpProblem> {
    let repo = ask.repo();
    let Some(query) = ask.param("q") else {
        let body = html! { section.empty { h1 { "Search by name" } (help()) } };
        return Ok(PageLayout::of(&repo, Tab::Other, None, format!("Search · {repo}"))
            .page(ask.around(), body));
    };
    let answer = look(repository, ask.bytes("q").unwrap_or_default(), &ask.deadline(observer))?;
    let links = ask.links();
    let body = html! {
        div.head { h1 { "“" (show::text(query.as_bytes())) "”" } p.quiet { "in all commits of all branches and tags" } }
        @match &answer {
            SearchAnswer::All(found) if found.is_empty() => section.sheet { div.none { p { "No commit contains a matching path." } (help()) } },
            SearchAnswer::All(found) => { (table(&links, found, &count(found.len() as u64, "path"))) },
            SearchAnswer::Some(found) => { (table(&links, found, &format!("The first {}", count(found.len() as u64, "path")))) },
            SearchAnswer::Late => section.sheet { p.none { "The search took too long. snap find has no time limit." } },
            SearchAnswer::Wrong(why) => section.sheet { div.none { p { (why) } (help()) } },
        }
    };
    let title = format!("{} · {repo}", show::plain(query.as_bytes()));
    let shell = PageLayout::of(&repo, Tab::Other, None, title);
    Ok(PageLayout { query: Some(&query), ..shell }.page(ask.around(), body))
}

fn look(
    repository: &Repository,
    query: &[u8],
    deadline: &Deadline<'_>,
) -> Result<SearchAnswer, HttpProblem> {
    let tips = RefIndex::of(repository)?.tips();
    let is_pattern = query.iter().any(|byte| WILDCARDS.contains(byte));
    let within = [b"*", query, b"*"].concat();
    // A pattern must be UTF-8. A query of other bytes must match a whole name.
    let is_text = std::str::from_utf8(query).is_ok();
    let pattern = if is_pattern || !is_text { query } else { &within };
    let options =
        FindOptions { case: Case::Ignored, limit_bytes: FIND_BYTES, ..FindOptions::new(pattern) };
    let (mut found, mut path_bytes) = (Vec::new(), 0);
    let store = repository.repo().store();
    let ended = find::run(store, &tips, &options, deadline, &mut |one| {
        path_bytes += one.path.len();
        if found.len() == LISTED || path_bytes > PATHS_BYTES {
            return Err(SearchStop::Enough);
        }
        found.push(one.clone());
        Ok(())
    });
    match ended {
        Ok(_) => Ok(SearchAnswer::All(found)),
        Err(SearchStop::Enough) => Ok(SearchAnswer::Some(found)),
        Err(SearchStop::Failed(PastError::Blocked(_))) => Ok(SearchAnswer::Late),
        Err(SearchStop::Failed(PastError::Pattern(error))) => {
            Ok(SearchAnswer::Wrong(format!("The pattern is not valid: {}.", error.source)))
        }
        Err(SearchStop::Failed(error)) => Err(error.into()),
    }
}

fn help() -> Markup {
    html! {
        p.quiet {
            "A part of a name, or a pattern: " code { "*.rs" } ", " code { "src/**/mod.rs" } ", " code { "{a,b}?.txt" } "."
        }
    }
}

fn table(links: &Links, found: &[FoundPath], title: &str) -> Markup {
    html! {
        section.sheet {
            div.toolbar { h2 { (title) } }
            table.entries data-list="" {
                caption.unseen { "Paths" }
                thead {
                    tr {
                        th scope="col" { "Path" }
                        th.wide scope="col" { "Versions" }
                        th.number scope="col" { "Size" }
                        th.number.quiet scope="col" { "Last in" }
                    }
                }
                tbody { @for one in found { (row(links, one)) } }
            }
        }
    }
}

fn row(links: &Links, found: &FoundPath) -> Markup {
    let newest = found.versions.first();
    let range = newest.and_then(|version| version.ranges.first());
    html! {
        @if let (Some(version), Some(range)) = (newest, range) {
            @let rev = range.last.id.to_string();
            tr {
                td.name {
                    (icon::of(&version.kind))
                    a data-go="" href=(links.entry(&rev, &found.path)) { (show::name(&found.path)) }
                }
                td.wide.number {
                    a href=(links.history(&rev, &found.path)) { (count(found.versions.len() as u64, "version")) }
                }
                td.number { @if let EntryKind::File { size, .. } = version.kind { (ByteCount(size)) } }
                td.number.quiet { (moment::ago(range.last.time)) }
            }
        }
    }
}
