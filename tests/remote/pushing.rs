//! Push: what it costs, what it survives, and who wins.

mod faults;
mod index;
mod interrupted;
mod races;
mod requests;
