//! A body whose bytes are counted as they go by.

use axum::body::Body;
use http_body_util::BodyExt;

/// Tells `on` how long each piece of a body is. What `on` owns is dropped when
/// the body is over, however it ended.
pub(super) fn counted(body: Body, mut on: impl FnMut(u64) + Send + 'static) -> Body {
    Body::new(body.map_frame(move |frame| {
        if let Some(piece) = frame.data_ref() {
            on(piece.len() as u64);
        }
        frame
    }))
}
