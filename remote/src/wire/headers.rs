//! The headers and content types that the protocol defines.

use std::{fmt, str::FromStr};

use http::{HeaderMap, HeaderName};
use snap_core::{format::ref_text::Nonce, store::Epoch};

/// Content type of a pack.
pub const PACK_TYPE: &str = "application/vnd.snap.pack";

/// Content type of a bundle.
pub const BUNDLE_TYPE: &str = "application/vnd.snap.bundle";

/// Content type of an index file.
pub const OUTLINES_TYPE: &str = "application/vnd.snap.outlines";

/// Content type of binary ids, 32 bytes each, without separators.
pub const IDS_TYPE: &str = "application/vnd.snap.ids";

/// The kind of an object, such as `blob`.
pub const SNAP_KIND: HeaderName = HeaderName::from_static("snap-kind");

/// The commit that a revision in the path stands for.
pub const SNAP_COMMIT: HeaderName = HeaderName::from_static("snap-commit");

/// Present if the upstream is away, so that the response may be out of date.
pub const SNAP_UPSTREAM: HeaderName = HeaderName::from_static("snap-upstream");

/// The [`EpochTag`] of the store; in a request that writes, the one that the client relies on.
pub const SNAP_EPOCH: HeaderName = HeaderName::from_static("snap-epoch");

/// The epoch of garbage collection of a store: `NUMBER-NONCE`. A client sends back what it received,
/// and does not parse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochTag {
    number: u64,
    nonce: Nonce,
}

impl EpochTag {
    /// Creates the tag of an epoch.
    pub fn new(number: u64, nonce: Nonce) -> Self {
        Self { number, nonce }
    }

    /// Returns the tag of the epoch of a local store; `None` if its file is lost.
    pub fn of(epoch: &Epoch) -> Option<Self> {
        Some(Self::new(epoch.number, epoch.nonce?))
    }

    /// Returns the tag in a request, if there is one.
    ///
    /// # Errors
    /// [`MalformedEpoch`] for several headers, and for a value that is not a tag.
    pub fn in_request(headers: &HeaderMap) -> Result<Option<Self>, MalformedEpoch> {
        let mut values = headers.get_all(SNAP_EPOCH).into_iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(tag), None) => tag.to_str().map_err(|_| MalformedEpoch)?.parse().map(Some),
            (Some(_), Some(_)) => Err(MalformedEpoch),
        }
    }
}

impl fmt::Display for EpochTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.nonce)
    }
}

/// A value of `snap-epoch` that no server has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`snap-epoch` is not an epoch that a server has sent")]
pub struct MalformedEpoch;

impl FromStr for EpochTag {
    type Err = MalformedEpoch;

    fn from_str(text: &str) -> Result<Self, MalformedEpoch> {
        let parsed = text
            .split_once('-')
            .and_then(|(number, nonce)| Some(Self::new(number.parse().ok()?, nonce.parse().ok()?)));
        parsed.filter(|tag| tag.to_string() == text).ok_or(MalformedEpoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_epochs_are_accepted() {
        let nonce = "0123456789abcdef".repeat(2);
        for number in [0, 7, u64::MAX] {
            let text = format!("{number}-{nonce}");
            assert_eq!(text.parse().map(|tag: EpochTag| tag.to_string()), Ok(text));
        }
        for number in ["", "-1", "+1", "01", "1 ", "18446744073709551616"] {
            let text = format!("{number}-{nonce}");
            assert_eq!(text.parse::<EpochTag>(), Err(MalformedEpoch), "{text}");
        }
        for text in ["", "1", "1-", &format!("1-{nonce}0"), &format!("1-{nonce}").to_uppercase()] {
            assert_eq!(text.parse::<EpochTag>(), Err(MalformedEpoch), "{text}");
        }
    }
}
