//! Temporary keys for services whose writes may be cut short, but whose renames are atomic.

use snap_core::disk::scratch::unique_name;

/// Prefix of the temporary keys.
pub(super) const ASIDE: &str = "tmp/";

/// Prefix of claims, whose content does not matter.
const CLAIMS: &str = "claims/";

/// Start of the names of temporary objects.
const NAME: &str = "put";

/// Returns the temporary key for a write of the object `key`, or `None` if the write is in place.
pub(super) fn of(key: &str) -> Option<String> {
    let is_in_place = [CLAIMS, ASIDE].iter().any(|start| key.starts_with(start));
    (!is_in_place).then(|| format!("{ASIDE}{}", unique_name(NAME)))
}

/// Returns true if a push wrote a temporary object under this key.
#[cfg(feature = "sftp")]
pub(super) fn is_temporary(key: &str) -> bool {
    key.strip_prefix(ASIDE).and_then(|name| name.strip_prefix(NAME)).is_some()
}

/// Returns true if the key is that of a claim.
#[cfg(feature = "sftp")]
pub(super) fn is_claim(key: &str) -> bool {
    key.starts_with(CLAIMS)
}

/// Returns true if the name of an object contains the hash of its content. An existing object of
/// the same length then has the same content.
pub(super) fn is_content_addressed(key: &str) -> bool {
    key.starts_with(super::keys::OBJECTS) || key.starts_with(super::keys::INDEX)
}
