//! Storage quotas of repositories.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Storage quotas of repositories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Quota of a repository that `repositories` does not name, in bytes: packs, uploads
    /// and refs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_bytes: Option<u64>,
    /// Quotas by name of the repository, in bytes.
    pub repositories: BTreeMap<String, u64>,
}
