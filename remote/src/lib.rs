//! Stores elsewhere: where they lie, how they are reached, what is moved.
//!
//! Async lives here, at the network's edge; the engine below is sync and the
//! command line above waits. A module imports from those above it in this list
//! only:
//!
//! | module | what |
//! |---|---|
//! | [`location`] | where a store lies, as users write it |
//! | [`service`] | objects by key in a bucket, a share, a folder |
//! | [`ranges`] | planned, merged, eager reads of ranges, and a seekable reader |
//! | [`store`] | a store elsewhere: its index, its refs, what is known of it |
//! | [`transfer`] | push, pull, clone |

pub mod location;
pub mod ranges;
pub mod service;
pub mod store;
pub mod transfer;
