//! A server for stores: push and pull over HTTP, access tokens, and reading files in place.
//!
//! Connections and bodies are async. Stores are read and written by blocking threads
//! ([`body`]). The server keeps no state except caches. A module imports only from the
//! modules above it in this table:
//!
//! | module | what |
//! |---|---|
//! | [`allocator`] | returns large freed buffers to the system |
//! | [`clock`] | real time, or a time that a test moves |
//! | [`causes`] | formats an error with all its causes, for the log |
//! | [`route_table`] | the routes, and what each needs |
//! | [`tls`] | the certificate and its key, reloaded when they change |
//! | [`settings`] | the settings, their defaults, and their file |
//! | [`problem`] | error responses: why a request was refused |
//! | [`body`] | request and response bodies, between connections and threads |
//! | [`pagination`] | pagination |
//! | [`ref_log`] | moves of refs in their logs |
//! | [`upstream`] | remote stores that this server caches and serves |
//! | [`repository`] | one store: its packs, its index, its refs, and uploads to it |
//! | [`hub`] | the repositories of a server |
//! | [`access`] | authentication and authorization |
//! | [`observe`] | request logs, metrics, and the audit log |
//! | [`quota`] | storage quotas of repositories |
//! | [`routes`] | the protocol: `docs/protocol.md` |
//! | [`page`] | pages for people with a browser: `docs/page.md` |
//! | [`app_service`] | the middleware around each request |
//! | [`connections`] | incoming connections: limits and timeouts |
//! | [`run`] | listening, and graceful shutdown |

pub mod access;
pub mod allocator;
pub mod app_service;
pub mod body;
pub mod causes;
pub mod clock;
pub mod connections;
pub mod hub;
pub mod observe;
pub mod page;
pub mod pagination;
pub mod problem;
pub mod quota;
pub mod ref_log;
pub mod repository;
pub mod route_table;
pub mod routes;
pub mod run;
pub mod settings;
pub mod tls;
pub mod upstream;
