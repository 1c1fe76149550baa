//! `/r/{repo}/search?q=`: paths by name, over the whole history.

use std::sync::Arc;

use maud::{Markup, html};
use snap_core::base::number::{Size, count};
use snap_core::{
    base::observe::Observer,
    format::tree::Kind,
    ops::find::{self, Case, Found, Options},
    repo::past::PastError,
};

use super::{
    ask::Ask,
    deadline::Deadline,
    icon,
    link::Links,
    moment,
    names::Names,
    shell::{Shell, Tab},
    show,
};
use crate::{problem::Problem, repository::Repository};

/// Paths that are listed.
const LISTED: usize = 500;

/// How long they are together.
const PATHS_BYTES: usize = 2 << 20;

/// Matches that one search holds, in bytes, about.
const FIND_BYTES: usize = 16 << 20;

/// What a pattern is made of; a name without them is looked for within names.
const WILDCARDS: &[u8] = b"*?[]{}\\/";

/// Why a search ended before all was found.
enum Stop {
    Enough,
    Failed(PastError),
}

impl From<PastError> for Stop {
    fn from(error: PastError) -> Self {
        Self::Failed(error)
    }
}

/// What was found.
enum Answer {
    All(Vec<Found>),
    Some(Vec<Found>),
    /// It took too long.
    Late,
    /// The pattern is none.
    Wrong(String),
}

pub(super) fn view(
    ask: &Ask,
    repository: &Arc<Repository>,
    observer: &dyn Observer,
) -> Result<Markup, Problem> {
    let repo = ask.repo();
    let Some(query) = ask.param("q") else {
        let body = html! { section.empty { h1 { "Search by name" } (help()) } };
        return Ok(
            Shell::of(&repo, Tab::Other, None, format!("Search · {repo}")).page(ask.around(), body)
        );
    };
    let answer = look(repository, ask.bytes("q").unwrap_or_default(), &Deadline::usual(observer))?;
    let links = ask.links();
    let body = html! {
        div.head { h1 { "“" (show::text(query.as_bytes())) "”" } p.quiet { "in all commits of all branches and tags" } }
        @match &answer {
            Answer::All(found) if found.is_empty() => section.sheet { div.none { p { "No commit has such a path." } (help()) } },
            Answer::All(found) => { (table(&links, found, &count(found.len() as u64, "path"))) },
            Answer::Some(found) => { (table(&links, found, &format!("The first {}", count(found.len() as u64, "path")))) },
            Answer::Late => section.sheet { p.none { "There is too much history to look through for a page. snap find does it without a limit." } },
            Answer::Wrong(why) => section.sheet { div.none { p { (why) } (help()) } },
        }
    };
    let title = format!("{} · {repo}", show::plain(query.as_bytes()));
    let shell = Shell::of(&repo, Tab::Other, None, title);
    Ok(Shell { query: Some(&query), ..shell }.page(ask.around(), body))
}

fn look(repository: &Repository, query: &[u8], deadline: &Deadline<'_>) -> Result<Answer, Problem> {
    let tips = Names::of(repository)?.tips();
    let is_pattern = query.iter().any(|byte| WILDCARDS.contains(byte));
    let within = [b"*", query, b"*"].concat();
    // What is not UTF-8 can be no pattern; such a name is looked for as it is.
    let is_text = std::str::from_utf8(query).is_ok();
    let pattern = if is_pattern || !is_text { query } else { &within };
    let options = Options { case: Case::Ignored, limit_bytes: FIND_BYTES, ..Options::new(pattern) };
    let (mut found, mut path_bytes) = (Vec::new(), 0);
    let store = repository.repo().store();
    let ended = find::run(store, &tips, &options, deadline, &mut |one| {
        path_bytes += one.path.len();
        if found.len() == LISTED || path_bytes > PATHS_BYTES {
            return Err(Stop::Enough);
        }
        found.push(one.clone());
        Ok(())
    });
    match ended {
        Ok(_) => Ok(Answer::All(found)),
        Err(Stop::Enough) => Ok(Answer::Some(found)),
        Err(Stop::Failed(PastError::Interrupted)) => Ok(Answer::Late),
        Err(Stop::Failed(PastError::Pattern { source, .. })) => {
            Ok(Answer::Wrong(format!("That is no pattern: {source}.")))
        }
        Err(Stop::Failed(error)) => Err(error.into()),
    }
}

fn help() -> Markup {
    html! {
        p.quiet {
            "A part of a name, or a pattern: " code { "*.rs" } ", " code { "src/**/mod.rs" } ", " code { "{a,b}?.txt" } "."
        }
    }
}

fn table(links: &Links, found: &[Found], title: &str) -> Markup {
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
                        th.number scope="col" { "Last in" }
                    }
                }
                tbody { @for one in found { (row(links, one)) } }
            }
        }
    }
}

fn row(links: &Links, found: &Found) -> Markup {
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
                td.number { @if let Kind::File { size, .. } = version.kind { (Size(size)) } }
                td.number.quiet { (moment::ago(range.last.time)) }
            }
        }
    }
}
