//! Tests of the real binary under external failures: kills, power cuts, a full disk, a read-only
//! disk, Ctrl-C.
//!
//! Each time, these must hold: the store opens, every listed commit restores, and every commit
//! whose id was printed is listed. The moments are random numbers from a seed, scaled by the
//! measured duration of the work. Tests that need root or loop devices are skipped without them,
//! with a message.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod full_disk;
mod interrupt;
mod kill;
mod kill_remote;
mod kill_restore;
mod kill_serve;
mod kill_unpack;
mod left_over;
mod mounted_target;
mod place;
mod power_cut;
mod read_only;
mod serving;
mod versions;
