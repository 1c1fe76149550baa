//! The frame of each page: the HTML head, the bar with the search field, the menu, the breadcrumbs,
//! and the footer.

use maud::{DOCTYPE, Markup, html};
use snap_core::base::number::count;

use super::{
    assets::{ICON, SCRIPT, STYLE},
    icon,
    link::Links,
    login::Viewer,
    show,
};
use crate::upstream::health::UpstreamOutage;

/// The pages of a repository, in the order of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Commits,
    Files,
    Compare,
    Refs,
    Stats,
    /// A page that is not in the menu.
    Other,
}

/// The repository that a page belongs to.
#[derive(Clone, Debug)]
pub(super) struct RepositoryContext<'a> {
    pub(super) repo: &'a str,
    pub(super) tab: Tab,
    /// The revision that the page shows.
    pub(super) rev: Option<&'a str>,
}

/// Parts of the frame of a page that depend on the request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameContext<'a> {
    pub(super) viewer: Option<&'a Viewer>,
    /// Present if the page may be out of date because the upstream does not answer.
    pub(super) away: Option<UpstreamOutage>,
}

/// A page without its content.
#[derive(Debug)]
pub(super) struct PageLayout<'a> {
    pub(super) title: String,
    pub(super) within: Option<RepositoryContext<'a>>,
    /// The query that the search field shows.
    pub(super) query: Option<&'a str>,
}

impl<'a> PageLayout<'a> {
    /// Creates a page that belongs to no repository.
    pub(super) fn plain(title: impl Into<String>) -> Self {
        Self { title: title.into(), within: None, query: None }
    }

    /// Creates a page of a repository.
    pub(super) fn of(
        repo: &'a str,
        tab: Tab,
        rev: Option<&'a str>,
        title: impl Into<String>,
    ) -> Self {
        Self {
            title: title.into(),
            within: Some(RepositoryContext { repo, tab, rev }),
            query: None,
        }
    }

    /// Renders the whole page around `main`.
    pub(super) fn page(&self, around: FrameContext<'_>, main: Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · snap" }
                    link rel="icon" type="image/svg+xml" href=(ICON.link());
                    link rel="stylesheet" href=(STYLE.link());
                    script src=(SCRIPT.link()) defer {}
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    (self.bar(around.viewer))
                    @if let Some(within) = &self.within { (menu(within)) }
                    main #main tabindex="-1" {
                        @if let Some(away) = around.away { (outdated_notice(away)) }
                        (main)
                    }
                    (foot())
                }
            }
        }
    }

    fn bar(&self, viewer: Option<&Viewer>) -> Markup {
        html! {
            header.bar {
                div.inside {
                    a.brand href="/" aria-label="snap: all repositories" {
                        img src=(ICON.link()) alt="" width="24" height="24";
                        span { "snap" }
                    }
                    @if let Some(within) = &self.within {
                        nav.where aria-label="Repository" {
                            span.slash aria-hidden="true" { "/" }
                            a href=(Links::new(within.repo).log()) { (within.repo) }
                        }
                        form.search role="search" method="get"
                            action=(Links::new(within.repo).page("search")) {
                            label.unseen for="q" { "Search by name" }
                            (icon::search())
                            input #q type="search" name="q" value=[self.query]
                                placeholder="Search by name" autocomplete="off"
                                autocapitalize="none" spellcheck="false";
                            kbd.hint aria-hidden="true" { "/" }
                            button.unseen type="submit" { "Search" }
                        }
                    }
                    @if let Some(viewer) = viewer { (logout_form(viewer)) }
                }
            }
        }
    }
}

/// Renders the warning that the page may be out of date.
fn outdated_notice(away: UpstreamOutage) -> Markup {
    let age = away.age_secs.map(|secs| format!(" It was current {} ago.", count(secs, "second")));
    html! {
        p.sheet.none role="status" {
            "The upstream of this server does not answer. This page shows the last known state."
            (age.unwrap_or_default())
        }
    }
}

/// Renders the name of the token, and the button to log out.
fn logout_form(viewer: &Viewer) -> Markup {
    html! {
        form.leave method="post" action="/logout" {
            span { (viewer.name) }
            input type="hidden" name="form" value=(viewer.form);
            button.button type="submit" { "Log out" }
        }
    }
}

fn menu(within: &RepositoryContext<'_>) -> Markup {
    let links = Links::new(within.repo);
    let log = within.rev.map_or_else(|| links.log(), |rev| links.log_of(rev, 1));
    let files = links.entry(within.rev.unwrap_or("HEAD"), b"");
    let tabs = [
        (Tab::Commits, "Commits", log),
        (Tab::Files, "Files", files),
        (Tab::Compare, "Compare", links.page("diff")),
        (Tab::Refs, "Branches and tags", links.page("refs")),
        (Tab::Stats, "Growth", links.page("stats")),
    ];
    html! {
        nav.menu aria-label="Pages of the repository" {
            ul.inside {
                @for (tab, name, link) in tabs {
                    li { a href=(link) aria-current=[(tab == within.tab).then_some("page")] { (name) } }
                }
            }
        }
    }
}

fn foot() -> Markup {
    html! {
        footer.foot {
            div.inside {
                span { "snap " (env!("CARGO_PKG_VERSION")) }
                button.keys type="button" hidden { kbd { "?" } " shows the shortcuts" }
            }
        }
    }
}

/// Renders a path as breadcrumbs. Each folder is a link, and the last part is the
/// heading.
pub(super) fn trail(links: &Links, rev: &str, top: &str, path: &[u8]) -> Markup {
    let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|part| !part.is_empty()).collect();
    let ends = parts.iter().scan(0, |end, part| {
        *end += part.len() + usize::from(*end > 0);
        Some(*end)
    });
    let steps: Vec<(usize, &[u8])> = ends.zip(parts.iter().copied()).collect();
    html! {
        nav.trail.path aria-label="Path" {
            ol {
                li {
                    @if path.is_empty() { h1 aria-current="page" { (top) } }
                    @else { a href=(links.entry(rev, b"")) { (top) } }
                }
                @for (end, part) in &steps {
                    li {
                        @if *end == path.len() {
                            h1 aria-current="page" { (show::name(part)) }
                        } @else {
                            a href=(links.entry(rev, &path[..*end])) { (show::name(part)) }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the head of a table of commits, or of refs with their commits.
pub(super) fn columns(first: &str) -> Markup {
    html! {
        thead role="rowgroup" {
            tr role="row" {
                th role="columnheader" scope="col" { (first) }
                th role="columnheader" scope="col" { "Author" }
                th.number role="columnheader" scope="col" { "Date" }
            }
        }
    }
}

/// Renders links to the previous and the next page, with their labels.
pub(super) fn paging(
    before: Option<String>,
    after: Option<String>,
    before_label: &str,
    after_label: &str,
) -> Markup {
    html! {
        @if before.is_some() || after.is_some() {
            nav.paging aria-label="Paging" {
                @if let Some(link) = before { a.button rel="prev" href=(link) { "← " (before_label) } }
                @if let Some(link) = after { a.button.last rel="next" href=(link) { (after_label) " →" } }
            }
        }
    }
}
