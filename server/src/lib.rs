//! A server for stores: push and pull over HTTP, tokens, reading in place.
//!
//! Async at its edge, where bodies are; a store is read and written by threads
//! that may block ([`body`]). It keeps no state of its own but caches. A module
//! imports from those above it in this list only:
//!
//! | module | what |
//! |---|---|
//! | [`allocator`] | large buffers go back to the system |
//! | [`causes`] | an error with all its causes, for the log |
//! | [`right`] | what may be done |
//! | [`tls`] | a certificate and its key |
//! | [`settings`] | what there is to choose, and a file that says it |
//! | [`problem`] | why a request was refused, as its sender is told |
//! | [`body`] | bodies between connections and threads |
//! | [`cache`] | what was asked for lately, up to a number of bytes |
//! | [`skip`] | pages of lists |
//! | [`upstream`] | stores elsewhere that are served from here |
//! | [`repository`] | one store: its packs, its index, its refs, what is on its way in |
//! | [`hub`] | which repositories there are |
//! | [`access`] | who may do what |
//! | [`observe`] | logs, metrics |
//! | [`quota`] | how much repositories may hold |
//! | [`routes`] | the protocol: `docs/protocol.md` |
//! | [`page`] | the same for people with a browser: `docs/page.md` |
//! | [`around`] | what is around each request |
//! | [`socket`] | connections, not too many of them |
//! | [`run`] | listening, and stopping in an orderly manner |

pub mod access;
pub mod allocator;
pub mod around;
pub mod body;
pub mod cache;
pub mod causes;
pub mod hub;
pub mod observe;
pub mod page;
pub mod problem;
pub mod quota;
pub mod repository;
pub mod right;
pub mod routes;
pub mod run;
pub mod settings;
pub mod skip;
pub mod socket;
pub mod tls;
pub mod upstream;
