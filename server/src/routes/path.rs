//! Path parameters. Like axum's extractor, but a rejection is a [`HttpProblem`].

use axum::extract::{self, FromRequestParts};
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::{Code, HttpProblem};

/// The parameters of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        let found = extract::Path::from_request_parts(parts, state).await;
        let wrong = |why: extract::rejection::PathRejection| {
            HttpProblem::new(Code::Invalid, why.body_text())
        };
        found.map(|extract::Path(found)| Self(found)).map_err(wrong)
    }
}
