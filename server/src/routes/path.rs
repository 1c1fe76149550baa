//! Parts of a path, as axum has them, but for how it is told that they are no
//! text.

use axum::extract::{self, FromRequestParts};
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::{Code, Problem};

/// Parts of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let found = extract::Path::from_request_parts(parts, state).await;
        let wrong =
            |why: extract::rejection::PathRejection| Problem::new(Code::Invalid, why.body_text());
        found.map(|extract::Path(found)| Self(found)).map_err(wrong)
    }
}
