//! How much repositories may hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How much repositories may hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Bytes of packs of a repository that is not named below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_bytes: Option<u64>,
    /// Bytes of packs of the repositories with these names.
    pub repositories: BTreeMap<String, u64>,
}
