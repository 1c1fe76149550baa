//! Benchmarks of snap; see `micro/` and `compare/`.
