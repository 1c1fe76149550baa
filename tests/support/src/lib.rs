//! Seeded test data, comparisons and a checker of JSON for snap's tests and
//! benchmarks.
//!
//! Every byte made here follows from a seed, so a failure can be repeated and
//! two runs of a benchmark work on the same data. The crate knows nothing of
//! snap's own types and must not depend on `snap-core`: a unit test of core
//! that used both would see two copies of core's types.

pub mod bytes;
pub mod compare;
pub mod mounts;
pub mod rng;
pub mod schema;
pub mod trees;
