//! Access to remote stores: locations, buckets, range reads, push, pull and clone.
//!
//! This is the async layer. The engine below is synchronous, and the command line above blocks on
//! this layer. A module imports only from modules above it in this list:
//!
//! | module | what |
//! |---|---|
//! | [`location`] | the location of a store, as users write it |
//! | [`token_bucket`] | the arithmetic of rate limits, which client and server share |
//! | [`wire`] | what a client and a snap server send each other |
//! | [`bucket`] | objects by key in a bucket, a share or a folder; requests with retries |
//! | [`ranges`] | range requests: planned and merged, or cached with read-ahead |
//! | [`peer`] | stores elsewhere in verbs, and their local mirrors |
//! | [`remote_packs`] | blocking reads of frames of remote packs, with prefetch |
//! | [`unlisted_packs`] | finds complete packs that no index file names, and lists them again |
//! | [`transfer`] | push, pull, clone |
//! | [`gc`] | garbage collection of a remote store |
//! | [`reader`] | reads a remote store without a local copy |
//! | [`verify`] | checks that a remote store is complete and undamaged |
//! | [`repair`] | uploads again what a remote store has lost |

pub mod bucket;
pub mod gc;
pub mod location;
pub mod peer;
pub mod ranges;
pub mod reader;
pub mod remote_packs;
pub mod repair;
pub mod token_bucket;
pub mod transfer;
pub mod unlisted_packs;
pub mod verify;
pub mod wire;
