//! Push: its requests, its behaviour under faults, and races.

mod faults;
mod index;
mod interrupted;
mod races;
mod requests;
