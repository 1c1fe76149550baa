//! `/r/{repo}/stats`: how the store grew, and what deduplication and
//! compression saved.

use std::{sync::Arc, time::Duration};

use super::{
    ask::Ask,
    chart,
    growth::{Failed, Grown, stored_bytes},
    icon,
    link::Links,
    moment,
    names::Names,
    shell::{Shell, Tab},
    show,
};
use crate::{problem::Problem, repository::Repository};
use maud::{Markup, html};
use snap_core::base::number::{Size, count, grouped};
use snap_core::base::observe::Observer;

/// So long whoever asks waits; then it is counted on without them.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn view(
    ask: &Ask,
    repository: &Arc<Repository>,
    _: &dyn Observer,
) -> Result<Markup, Problem> {
    let repo = ask.repo();
    let shell = Shell::of(&repo, Tab::Stats, None, format!("Growth · {repo}"));
    let tips = Names::of(repository)?.tips();
    let grown = match ask.pages.growth().of(repository, tips, Some(PATIENCE)) {
        Some(Ok(grown)) => grown,
        None => return Ok(shell.page(ask.around(), not_yet(&ask.links()))),
        Some(Err(why)) => return Ok(shell.page(ask.around(), failed(why))),
    };
    if grown.commit_count == 0 {
        return Ok(shell.page(ask.around(), html! {
            section.empty { h1 { "No commits yet" } p { "After the first push there is something to see here." } }
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
            h1 { "Being counted" }
            p { "There is much to look through. Come back in a moment." }
            a.button href=(links.page("stats")) { "Try again" }
        }
    }
}

fn failed(why: Failed) -> Markup {
    html! {
        section.empty {
            @match why {
                Failed::TooLarge => {
                    h1 { "Too large to be counted here" }
                    p { "Counting took more than ten minutes and was stopped. " code { "snap stats" } " counts without a limit." }
                }
                Failed::Unreadable => {
                    h1 { "That could not be counted" }
                    p { "Something in the store cannot be read. Whoever runs this server can find out with " code { "snap verify" } " and in its log." }
                }
            }
        }
    }
}

fn tiles(grown: &Grown) -> Markup {
    let (full, fresh) = (grown.snapshot_bytes, grown.added.data.raw_bytes);
    let kept = stored_bytes(&grown.added);
    let saved = full.saturating_sub(kept);
    html! {
        dl.tiles {
            div.tile { dt { "Commits" } dd { (grouped(grown.commit_count)) } dd { "in " (count(grown.packs, "pack")) } }
            div.tile { dt { "As full copies" } dd { (Size(full)) } dd { "all files of all commits" } }
            div.tile { dt { "After deduplication" } dd { (Size(fresh)) } dd { (percent(fresh, full)) " of that" } }
            div.tile { dt { "Stored, compressed" } dd { (Size(kept)) } dd { (percent(kept, full)) " of that" } }
            div.tile.strong { dt { "Saved" } dd { (Size(saved)) } dd { (percent(saved, full)) " of full copies" } }
        }
    }
}

fn commits(links: &Links, grown: &Grown) -> Markup {
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
                            td.number.wide { (Size(added.changed_bytes)) " " span.quiet { (count(added.changed_files, "file")) } }
                            td.number.wide { (Size(added.data.raw_bytes)) }
                            td.number { (Size(stored_bytes(added))) }
                        }
                    }
                }
            }
        }
    }
}

fn files(links: &Links, grown: &Grown) -> Markup {
    html! {
        section.sheet {
            div.toolbar { h2 { "The largest files" } }
            table.entries {
                thead { tr { th scope="col" { "Path" } th.number scope="col" { "Size" } } }
                tbody {
                    @for file in &grown.files {
                        tr {
                            td.name { (icon::file()) a href=(links.entry(&file.commit.to_string(), &file.path)) { (show::name(&file.path)) } }
                            td.number { (Size(file.bytes)) }
                        }
                    }
                }
            }
        }
    }
}

/// How many parts of a hundred; one decimal below ten.
fn percent(part: u64, whole: u64) -> String {
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
    fn shares_read_well() {
        assert_eq!(
            (percent(1, 3), percent(1, 40), percent(1, 0)),
            ("33 %".into(), "2.5 %".into(), "0 %".into())
        );
    }
}
