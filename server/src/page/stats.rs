//! `/r/{repo}/stats`: the growth of the store, and the savings by deduplication and
//! compression.

use std::{sync::Arc, time::Duration};

use super::{
    chart, icon,
    layout::{PageLayout, Tab},
    link::Links,
    moment,
    page_request::PageRequest,
    ref_index::RefIndex,
    show,
    stats_cache::{GrowthStats, StatsFailure, stored_bytes},
};
use crate::{problem::HttpProblem, repository::Repository};
use maud::{Markup, html};
use snap_core::base::number::{ByteCount, count, grouped};
use snap_core::base::observe::Observer;

/// Longest wait of the page for the numbers. Counting continues after it.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn view(
    ask: &PageRequest,
    repository: &Arc<Repository>,
    _: &dyn Observer,
) -> Result<Markup, HttpProblem> {
    let repo = ask.repo();
    let shell = PageLayout::of(&repo, Tab::Stats, None, format!("Growth · {repo}"));
    let tips = RefIndex::of(repository)?.tips();
    let grown = match ask.pages.growth().of(repository, tips, Some(PATIENCE)) {
        Some(Ok(grown)) => grown,
        None => return Ok(shell.page(ask.around(), not_yet(&ask.links()))),
        Some(Err(why)) => return Ok(shell.page(ask.around(), failed(why))),
    };
    if grown.commit_count == 0 {
        return Ok(shell.page(ask.around(), html! {
            section.empty { h1 { "No commits yet" } p { "Statistics appear here after the first push." } }
        }));
    }
    Ok(shell.page(
        ask.around(),
        html! {
            div.head { h1 { "How the store grew" } }
            (tiles(&grown))
            (chart::view(&grown.points, grown.known()))
            (commits(&ask.links(), &grown))
            (files(&ask.links(), &grown))
        },
    ))
}

fn not_yet(links: &Links) -> Markup {
    html! {
        section.empty {
            h1 { "Statistics are being computed" }
            p { "The history is long. Reload this page in a moment." }
            a.button href=(links.page("stats")) { "Try again" }
        }
    }
}

fn failed(why: StatsFailure) -> Markup {
    html! {
        section.empty {
            @match why {
                StatsFailure::TooLarge => {
                    h1 { "Statistics took too long" }
                    p { "Computing them took more than ten minutes and was stopped. " code { "snap stats" } " has no time limit." }
                }
                StatsFailure::Unreadable => {
                    h1 { "Statistics are not available" }
                    p { "An object of the store cannot be read. An administrator of this server can locate it with " code { "snap verify" } " and in its log." }
                }
            }
        }
    }
}

fn tiles(grown: &GrowthStats) -> Markup {
    let (full, fresh) = (grown.snapshot_bytes, grown.added.data.raw_bytes);
    let kept = stored_bytes(&grown.added);
    let saved = full.saturating_sub(kept);
    html! {
        dl.tiles {
            div.tile { dt { "Commits" } dd { (grouped(grown.commit_count)) } dd { "in " (count(grown.packs, "pack")) } }
            div.tile { dt { "As full copies" } dd { (ByteCount(full)) } dd { "all files of all commits" } }
            div.tile { dt { "After deduplication" } dd { (ByteCount(fresh)) } dd { (percent(fresh, full)) " of that" } }
            div.tile { dt { "Stored, compressed" } dd { (ByteCount(kept)) } dd { (percent(kept, full)) " of that" } }
            div.tile.strong { dt { "Saved" } dd { (ByteCount(saved)) } dd { (percent(saved, full)) " of full copies" } }
        }
    }
}

fn commits(links: &Links, grown: &GrowthStats) -> Markup {
    html! {
        section.sheet {
            div.toolbar { h2 { "What the newest commits added" } }
            table.entries data-list="" {
                thead {
                    tr {
                        th scope="col" { "Commit" }
                        th.number.wide scope="col" { "Changed" }
                        th.number.wide scope="col" { "New" }
                        th.number scope="col" { "Stored" }
                    }
                }
                tbody {
                    @for commit in &grown.newest {
                        @let added = &commit.added;
                        tr {
                            td.name {
                                a data-go="" href=(links.entry(&commit.id.to_string(), b"")) {
                                    @if commit.message.trim().is_empty() { em.quiet { "no message" } }
                                    @else { (show::brief(&commit.message)) }
                                }
                                " " span.quiet { (moment::ago(commit.time)) }
                            }
                            td.number.wide { (ByteCount(added.changed_bytes)) " " span.quiet { (count(added.changed_files, "file")) } }
                            td.number.wide { (ByteCount(added.data.raw_bytes)) }
                            td.number { (ByteCount(stored_bytes(added))) }
                        }
                    }
                }
            }
        }
    }
}

fn files(links: &Links, grown: &GrowthStats) -> Markup {
    html! {
        section.sheet {
            div.toolbar { h2 { "The largest files" } }
            table.entries {
                thead { tr { th scope="col" { "Path" } th.number scope="col" { "Size" } } }
                tbody {
                    @for file in &grown.files {
                        tr {
                            td.name { (icon::file()) a href=(links.entry(&file.commit.to_string(), &file.path)) { (show::name(&file.path)) } }
                            td.number { (ByteCount(file.bytes)) }
                        }
                    }
                }
            }
        }
    }
}

/// Formats a part as a percentage, with one decimal below 10 %.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0 %".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_formatted_as_percentages() {
        assert_eq!(
            (percent(1, 3), percent(1, 40), percent(1, 0)),
            ("33 %".into(), "2.5 %".into(), "0 %".into())
        );
    }
}
