//! Keys of what a store elsewhere has: what lies there is told in
//! [`store`](crate::store).

/// Key of the settings.
pub const CONFIG: &str = "config.toml";

/// What keys of packs begin with.
pub const OBJECTS: &str = "objects/";

/// What keys of outlines begin with.
pub const INDEX: &str = "index/";

/// Key of the name of its first branch.
pub const HEAD: &str = "HEAD";

/// What keys of refs begin with.
pub const REFS: &str = "refs/";
