//! Layer 3: the only place that changes files of a store.
//!
//! [`Disk`] performs each step of a durable write (create, write, sync,
//! rename, sync the folder) and asks a [`Gate`] before each one, so that tests
//! can make any single step fail, stop short, or be the last one before the
//! power goes. Reading goes through [`regular`] and the memory maps of
//! [`table`].

mod access;
mod durable;
mod gate;
pub mod inside;
pub mod output;
pub mod regular;
pub mod scratch;
pub mod table;

pub use access::Access;
pub use durable::{Disk, NewFile, Renamed};
pub use gate::{Gate, Step, Verdict};
