//! Seeded test data and comparisons.
