//! Sizes for people, in powers of 1,024.

pub(crate) use snap_core::base::number::{ByteCount, count, grouped};
