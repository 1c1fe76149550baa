//! Layer 4: the user's own files: listing, ignore rules, the stat cache, attributes, and safe
//! writing.

pub mod attributes;
pub mod contain;
pub mod cut;
pub mod describe;
pub mod fingerprint;
pub mod holes;
pub mod ignore;
mod kernel_files;
pub mod mount;
pub mod owners;
pub(crate) mod pattern;
pub mod read;
pub mod scan;
pub mod stat_cache;
pub mod store_folder;
pub mod unfinished;
pub mod visible;
pub(crate) mod wildmatch;
pub mod write;
