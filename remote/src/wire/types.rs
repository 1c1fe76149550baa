//! Bodies of requests and responses in JSON.
//!
//! Bodies of requests refuse unknown fields. Bodies of responses accept them, since a newer server
//! may send more.

use serde::{Deserialize, Serialize};
use snap_core::base::id::{CommitId, ObjectId};

/// The response of `GET /v1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerInfo {
    #[cfg_attr(test, schemars(extend("const" = "snap")))]
    pub server: String,
    /// The version of the program.
    pub version: String,
    /// The version of the protocol.
    #[cfg_attr(test, schemars(extend("const" = 1)))]
    pub protocol: u32,
    pub authentication: Authentication,
    pub limits: Limits,
    /// The state of the upstream, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamInfo>,
}

/// What a request must contain so that the server serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Authentication {
    None,
    Bearer,
}

/// The limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Limits {
    /// Maximum length of a pack.
    pub pack_bytes: u64,
    /// Maximum length of a bundle.
    pub bundle_bytes: u64,
    /// Maximum number of ids in a request.
    pub missing_ids: usize,
}

/// The state of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UpstreamInfo {
    pub state: UpstreamState,
    /// Seconds since the last successful request to an upstream that is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_secs: Option<u64>,
}

/// Whether an upstream answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UpstreamState {
    There,
    Away,
}

/// The repositories that a client may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Repositories {
    pub repositories: Vec<RepositoryName>,
}

/// The name of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RepositoryName {
    pub name: String,
}

/// The default branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Head {
    /// Its name, such as `refs/heads/main`.
    pub head: String,
}

/// The branches and tags of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refs {
    /// The name of the default branch; `null` if it cannot be read.
    pub head: Option<String>,
    pub refs: Vec<Ref>,
    /// The names of damaged refs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
}

/// A branch or a tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ref {
    /// Its name, such as `refs/heads/main`.
    pub name: String,
    #[cfg_attr(test, schemars(with = "Id"))]
    pub commit: CommitId,
}

/// Moves a ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Move {
    #[cfg_attr(test, schemars(with = "Id"))]
    pub commit: CommitId,
}

/// Published and staged packs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Packs {
    pub packs: Vec<Listed>,
}

/// The index files of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Index {
    pub files: Vec<Listed>,
    /// True if garbage was ever collected in the store.
    pub collected: bool,
}

/// A file in a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Listed {
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// Asks which of these objects are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Ids {
    #[cfg_attr(test, schemars(with = "Vec<Id>"))]
    pub ids: Vec<ObjectId>,
}

/// The objects that are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Missing {
    #[cfg_attr(test, schemars(with = "Vec<Id>"))]
    pub missing: Vec<ObjectId>,
}

/// What a client has, so that a bundle need not contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Have {
    /// Commits with everything that they refer to.
    #[cfg_attr(test, schemars(with = "Vec<Id>"))]
    pub have: Vec<CommitId>,
    /// Objects with everything that they refer to.
    #[cfg_attr(test, schemars(with = "Vec<Id>"))]
    pub have_objects: Vec<ObjectId>,
}

/// A bundle that was unpacked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unpacked {
    #[cfg_attr(test, schemars(with = "Id"))]
    pub commit: CommitId,
    /// Commits that the bundle relies on.
    #[cfg_attr(test, schemars(with = "Vec<Id>"))]
    pub prerequisites: Vec<CommitId>,
    /// Objects in the bundle.
    pub objects: u64,
    /// Their length, uncompressed.
    pub bytes: u64,
    /// Commits that the repository did not have.
    pub new_commits: u64,
    /// Objects that the repository did not have.
    pub new_objects: u64,
}

/// An id as text, for schemas.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(description = "BLAKE3-256 in hexadecimal")]
#[allow(dead_code, reason = "it stands for ids in schemas")]
struct Id(#[schemars(regex(pattern = "^[0-9a-f]{64}$"))] String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_id_lists_are_refused() {
        let id = "5f".repeat(32);
        let read = |text: &str| {
            serde_json::from_str::<Ids>(&format!("{{\"ids\": {text}}}")).map(|ids| ids.ids.len())
        };
        assert_eq!(read("[]").unwrap(), 0);
        assert_eq!(read(&format!("[\"{id}\",\"{id}\"]")).unwrap(), 2);
        for wrong in ["[\"\"]", "[1]", "{}", &format!("[\"{id}\",\"{}\"]", &id[1..])] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
