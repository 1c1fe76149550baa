//! Configuration of property tests: the same cases in every run.

use std::env;

use proptest::test_runner::{Config, RngSeed};

/// Seed of all property tests, unless `SNAP_TEST_SEED` sets another one.
const SEED: u64 = 20_261_125;

/// Returns a configuration for `cases` cases with a fixed seed, and prints the seed. A failing test
/// prints its smallest counterexample; no file remembers it, so make it a test of its own.
///
/// # Panics
/// If `SNAP_TEST_SEED` is no number.
#[expect(clippy::print_stdout, reason = "the harness shows it if the test fails")]
pub fn cases(cases: u32) -> Config {
    let seed = env::var("SNAP_TEST_SEED");
    let seed = seed.map_or(SEED, |text| text.parse().expect("SNAP_TEST_SEED is a number"));
    println!("property test with SNAP_TEST_SEED={seed}");
    Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() }
}
