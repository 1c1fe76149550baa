//! Runs the binary, stops it at counted steps, and compares random runs with a model.
//!
//! `tests/crash`, which is part of `cargo test --workspace`, uses fixed seeds and counted steps.
//! `tests/soak` uses fresh seeds, the clock and more time.
//!
//! | module | what |
//! |---|---|
//! | [`program`] | runs the binary and reads its answers |
//! | [`steps`] | stops the binary at a counted step |
//! | [`versions`] | trees that a message determines, so that a restore can be checked |
//! | [`serving`] | a server that is killed and started again |
//! | [`sequences`] | random sequences of commands, changes of files, damage and kills, against a model |
//! | [`histories`] | random histories of several stores, against a model of what each must keep |
//! | [`search`] | runs random sequences, and minimises those that fail |
//! | [`network`] | random clients of a remote behind a faulty proxy |

#![expect(clippy::unwrap_used, reason = "a test may panic")]

pub mod histories;
pub mod network;
pub mod program;
mod sandbox;
pub mod search;
pub mod sequences;
pub mod serving;
mod shrink;
pub mod steps;
pub mod versions;
