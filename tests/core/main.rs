//! Tests of the core.
mod restore;
mod restore_fixture;
mod restore_hostile;
mod restore_speed;
mod concurrency;
mod scratch;
mod fuzz_replay;
