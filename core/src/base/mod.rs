//! Layer 1: ids, names, limits, error kinds, time, numbers and the observer.
//!
//! Everything above imports from here; this imports nothing of ours.

pub mod close;
pub mod id;
pub mod io;
pub mod kind;
pub mod limits;
pub mod name;
pub mod number;
pub mod observe;
pub mod time;
