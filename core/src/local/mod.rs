//! Layer 4: the user's own files: list them, leave some out, know which have
//! not changed, read and apply their attributes, write them safely.

pub mod attributes;
pub mod contain;
pub mod describe;
pub mod fingerprint;
pub mod holes;
pub mod ignore;
pub mod mount;
pub mod owners;
pub(crate) mod pattern;
pub mod read;
pub mod scan;
pub mod stat_cache;
pub mod store_folder;
pub mod visible;
pub mod write;
