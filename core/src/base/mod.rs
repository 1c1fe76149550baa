//! Layer 1: ids, names, limits, error kinds, reasons to stop, time, durations, numbers, a cache, a single flight,
//! the repetition of overtaken work, and the observer.
//!
//! Every other layer imports from this one. It imports no other layer.

pub mod again;
pub mod blocked;
pub mod byte_cache;
pub mod duration;
pub mod id;
pub mod io;
pub mod kind;
pub mod limits;
pub mod name;
pub mod number;
pub mod observe;
pub mod single_flight;
pub mod suggestions;
pub mod time;
