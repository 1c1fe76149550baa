//! Tests of the real binary under external failures: kills, power cuts, a full disk, a read-only
//! disk, Ctrl-C; and short runs of the random tests.
//!
//! Each time, these must hold: the store opens, every listed commit restores, and every commit
//! whose id was printed is listed. Kills and cuts come at counted steps, and random numbers from a
//! fixed seed, so each run does the same; `tests/soak` explores with fresh seeds. Tests that need
//! root or loop devices are skipped without them, with a message.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod full_disk;
mod halt;
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
mod random;
mod read_only;
