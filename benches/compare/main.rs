//! Compares snap with other tools on the same data in one run.

fn main() {}
