//! The planned and actual results of a push, for each ref and in numbers.

use snap_core::{base::id::CommitId, repo::ref_name::RefName};

use crate::peer::RemoteError;

/// The outcome for one ref.
#[derive(Debug)]
pub struct PushedRef {
    /// The requested ref.
    pub name: RefName,
    /// The commit before the push; `None` for a ref that did not exist.
    pub before: Option<CommitId>,
    /// The requested commit; the ref is at this commit unless `result` is an error.
    pub after: CommitId,
    /// [`RemoteError::Behind`], [`RemoteError::Diverged`], or another failure.
    pub result: Result<(), RemoteError>,
}

/// The planned work of a push.
#[derive(Debug, Default)]
pub struct PushPlan {
    /// The refs in the given order, with their planned results. No ref has moved.
    pub refs: Vec<PushedRef>,
    /// Number of objects that the remote store lacks.
    pub objects: u64,
    /// Uncompressed bytes of these objects.
    pub raw_bytes: u64,
    /// Bytes of packs to send.
    pub bytes: u64,
    /// Number of packs to send.
    pub packs: u64,
}

/// The outcome of a push.
#[derive(Debug, Default)]
pub struct PushOutcome {
    /// One entry for each requested ref, in the order of the request.
    pub refs: Vec<PushedRef>,
    /// Number of objects that the remote store lacked.
    pub objects: u64,
    /// Number of these objects that the remote store had before and has lost.
    pub sent_again: u64,
    /// Uncompressed bytes of these objects.
    pub raw_bytes: u64,
    /// Bytes of sent packs.
    pub sent_bytes: u64,
    /// Number of sent packs.
    pub packs: u64,
    /// Number of packs that an earlier, interrupted push had sent.
    pub resumed: u64,
    /// Keys of lost or damaged objects that the push has repaired, except packs.
    pub mended: Vec<String>,
}

impl PushOutcome {
    /// Returns the outcome if every ref moved.
    ///
    /// # Errors
    /// The error of the first ref that did not move.
    pub fn all_moved(mut self) -> Result<Self, RemoteError> {
        match self.refs.iter().position(|pushed| pushed.result.is_err()) {
            Some(at) => self.refs.swap_remove(at).result.map(|()| self),
            None => Ok(self),
        }
    }
}
