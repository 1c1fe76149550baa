//! Layer 2: bytes ⇄ values. No I/O.
//!
//! Encodings are canonical (one byte form for one value) and decoders refuse everything else:
//! overlong integers, wrong order, trailing bytes, lengths beyond [`limits`](crate::base::limits).
//! `fixtures/golden/` has golden bytes of each encoding.

pub mod acl;
pub mod bundle;
pub mod chunk_list;
pub mod commit;
pub mod forgotten;
pub mod gc_state;
pub mod gc_table;
pub mod outline;
pub mod pack;
pub mod ref_text;
pub mod rewrites;
pub mod selection;
pub mod shadow;
mod small_table;
pub mod table;
pub mod tree;
pub mod wire;
