//! Resumable uploads of packs.

use std::path::Path;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request};
use serde::Deserialize;
use snap_core::base::limits;

use super::{
    super::{FailureReason, ResumableUpload, ServiceError, UploadedBytes, transport::with_file},
    OBJECTS, REPOSITORIES, SnapServer,
};

#[derive(Default, Deserialize)]
struct ServerInfoBody {
    #[serde(default)]
    capabilities: Vec<String>,
}

impl ResumableUpload for SnapServer {
    fn is_known(&self) -> BoxFuture<'_, Result<bool, ServiceError>> {
        let ask = async || {
            let end = self.base.rfind(REPOSITORIES).unwrap_or(self.base.len());
            let request = Request::builder().method(Method::GET).uri(&self.base[..end]);
            let request = self.with_token(request);
            let response =
                self.send(request, Bytes::new(), limits::REPLY_BYTES, "read", "").await?;
            // A server that does not list the capability does not have it.
            let response: ServerInfoBody =
                serde_json::from_slice(&response.bytes).unwrap_or_default();
            Ok(response.capabilities.iter().any(|name| name == "uploads"))
        };
        Box::pin(async move { self.resumes.get_or_try_init(ask).await.copied() })
    }

    fn uploaded_bytes<'a>(
        &'a self,
        key: &'a str,
        length: u64,
    ) -> BoxFuture<'a, Result<UploadedBytes, ServiceError>> {
        Box::pin(async move {
            let ask = |method| {
                let request = self.request(method, &upload(key));
                self.send(request, Bytes::new(), limits::REPLY_BYTES, "stat", key)
            };
            let headers = match ask(Method::HEAD).await {
                Ok(answer) => answer.headers,
                Err(error) if error.reason == FailureReason::NotFound => {
                    return Ok(UploadedBytes::Part(0));
                }
                Err(error) => return Err(error),
            };
            let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
            let number = |name: &str| header(name).and_then(|text| text.parse::<u64>().ok());
            if header("upload-complete") == Some("?1") {
                return Ok(UploadedBytes::Whole);
            }
            match number("upload-offset").filter(|offset| *offset <= length) {
                Some(offset) if number("upload-length") == Some(length) => {
                    Ok(UploadedBytes::Part(offset))
                }
                // The upload has another length, so another client has sent another file: start
                // over.
                _ => match ask(Method::DELETE).await {
                    Err(error) if error.reason != FailureReason::NotFound => Err(error),
                    _ => Ok(UploadedBytes::Part(0)),
                },
            }
        })
    }

    fn write_rest<'a>(
        &'a self,
        key: &'a str,
        path: &'a Path,
        length: u64,
        at: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            let request = self.request(Method::PATCH, &upload(key));
            let request = request.header("upload-offset", at).header("upload-length", length);
            let ask = self.send(request, Bytes::new(), limits::REPLY_BYTES, "write", key);
            let answer = with_file(path.to_owned(), at..length, ask).await?;
            let is_whole =
                answer.headers.get("upload-complete").is_some_and(|header| header == "?1");
            let short = || "only a part of it was received".to_owned();
            is_whole
                .then_some(())
                .ok_or_else(|| ServiceError::new("write", key, FailureReason::Temporary, short()))
        })
    }
}

/// Returns the upload resource of a pack.
fn upload(key: &str) -> String {
    format!("uploads/{}", key.strip_prefix(OBJECTS).unwrap_or(key))
}
