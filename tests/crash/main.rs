//! Tests of the real binary against what is not its fault: being killed, a
//! power cut, a full disk, a read-only disk, Ctrl-C.
//!
//! What must hold each time: the store opens, everything that is listed
//! restores, and every commit whose id was printed is listed. Moments are
//! random, but from a seed, and counted in parts of the time that the work was
//! measured to take. What needs root or loop devices says so and passes where
//! it has neither.

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
