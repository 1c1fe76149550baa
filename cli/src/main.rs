//! `snap`: snapshots at the command line.

fn main() {}
