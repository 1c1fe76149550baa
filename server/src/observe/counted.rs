//! A body whose bytes are counted as they pass.

use axum::body::Body;
use http_body_util::BodyExt;

/// Calls `on` with the length of each piece of a body. `on`, with all it owns, is dropped with the
/// body, complete or not.
pub(super) fn counted(body: Body, mut on: impl FnMut(u64) + Send + 'static) -> Body {
    Body::new(body.map_frame(move |frame| {
        if let Some(piece) = frame.data_ref() {
            on(piece.len() as u64);
        }
        frame
    }))
}
