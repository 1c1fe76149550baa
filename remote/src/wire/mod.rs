//! What a client and a snap server send each other (`docs/protocol.md`), once for both.
//!
//! | module | what |
//! |---|---|
//! | [`right`] | the rights that a token can grant, and the access that a route requires |
//! | [`routes`] | the operations: method, path and required access; the URL of each |
//! | [`headers`] | the names of headers, and the epoch of a store |
//! | [`types`] | bodies in JSON |
//! | [`problem`] | error responses and their codes |
//!
//! `tests/openapi.rs` writes `docs/openapi.json` from these modules.

pub mod headers;
pub mod problem;
pub mod right;
pub mod routes;
pub mod types;

#[cfg(test)]
mod tests {
    mod openapi;
}
