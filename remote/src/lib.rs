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
//! | [`distant`] | frames of packs elsewhere, for a store that threads read |
//! | [`transfer`] | push, pull, clone |
//! | [`reading`] | a store elsewhere read without a copy of it |
//! | [`verify`] | whether a store elsewhere is whole |
//! | [`repair`] | sending again what a store elsewhere has lost |

pub mod distant;
pub mod location;
pub mod ranges;
pub mod reading;
pub mod repair;
pub mod service;
pub mod store;
pub mod transfer;
pub mod verify;
