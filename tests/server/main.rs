//! Integration tests of the HTTP API and the pages, with well-behaved and hostile
//! clients.

#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

mod accepting;
mod browser;
mod bundles;
mod commits;
mod contract;
mod damaged_refs;
mod files;
mod hostile;
mod index;
mod issuer;
mod limits;
mod login;
mod oidc;
mod openapi;
mod page;
mod page_browser;
mod page_guard;
mod page_markdown;
mod page_overview;
mod page_upstream;
mod place;
mod protocol;
mod pushed;
mod refused;
mod showcase;
mod slow;
mod tls;
mod tokens;
mod upstream;
mod upstream_at_once;
mod upstream_away;
mod upstream_damaged;
mod upstream_full;
mod upstream_hangs;
mod upstream_many;
mod upstream_removed;
mod upstream_steps;
mod watched;

// Tests that explore. They are ignored here; `tests/soak/run` runs them.
#[path = "../soak/browser/axe.rs"]
mod soak_axe;
#[path = "../soak/browser/login.rs"]
mod soak_login;
#[path = "../soak/browser/pages.rs"]
mod soak_pages;
#[path = "../soak/server/upstream_storm.rs"]
mod soak_upstream_storm;
