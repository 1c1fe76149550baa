//! Tests of the core.

#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

mod accept;
mod ahead;
mod base;
mod base_sequences;
mod bundle;
mod bundle_hostile;
mod concurrency;
mod crafted;
mod cut_packs;
mod damage;
mod diff;
mod elsewhere;
mod export;
mod faults;
mod files_lock;
mod fuzz_replay;
mod golden;
mod golden_store;
mod hostile;
mod hostile_packs;
mod layers;
mod limits;
mod noticed;
mod partial;
mod past;
mod power_cut;
mod promises;
mod repair;
mod restore;
mod restore_extras;
mod restore_fixture;
mod restore_hostile;
mod restore_in_place;
mod restore_saved;
mod restore_speed;
mod rolling;
mod round_trip;
mod scratch;
mod selection;
mod shadow;
mod staged;
mod store;
mod trees;
