//! Keys of the objects of a remote store. [`bucket`](crate::peer::bucket) describes the layout.

/// Key of the settings.
pub const CONFIG: &str = "config.toml";

/// Prefix of the keys of packs.
pub const OBJECTS: &str = "objects/";

/// Prefix of the keys of index files.
pub const INDEX: &str = "index/";

/// Key of the default branch.
pub const HEAD: &str = "HEAD";

/// Prefix of the keys of refs.
pub const REFS: &str = "refs/";
