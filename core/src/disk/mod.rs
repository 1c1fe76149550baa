//! Layer 3: the only place that changes files of a store.
//!
//! [`Disk`] performs each step of a durable write: create, write, sync, rename, sync the folder. It
//! asks a [`FaultInjector`] before each step. So tests can make any step fail, write only a part,
//! or be the last one before a power cut. Readers use [`regular`] and the memory maps of [`table`].

mod access;
mod durable;
mod fault_injector;
pub mod folder_times;
pub mod lock_wait;
pub mod made_here;
pub mod output;
pub mod regular;
pub mod scratch;
pub mod symlink_guard;
pub mod table;

pub use access::CreateMode;
pub use durable::{Disk, NewFile, Renamed};
#[cfg(debug_assertions)]
pub use fault_injector::install_fault_injector;
pub(crate) use fault_injector::take_step;
pub use fault_injector::{DiskStep, FaultDecision, FaultInjector};
