//! Packs that go on where they broke off.

use std::path::Path;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request};
use serde::Deserialize;
use snap_core::base::limits;

use super::{
    super::{Arrived, Resume, ServiceError, What, transport::with_file},
    OBJECTS, REPOSITORIES, SnapServer,
};

#[derive(Default, Deserialize)]
struct ServerJson {
    #[serde(default)]
    capabilities: Vec<String>,
}

impl Resume for SnapServer {
    fn is_known(&self) -> BoxFuture<'_, Result<bool, ServiceError>> {
        let ask = async || {
            let asked = ("read", "");
            let end = self.base.rfind(REPOSITORIES).unwrap_or(self.base.len());
            let request = Request::builder().method(Method::GET).uri(&self.base[..end]);
            let request = (self.named(request), Bytes::new());
            let told = self.ask(request, limits::REPLY_BYTES, asked).await?;
            // One that says nothing of it knows nothing of it.
            let told: ServerJson = serde_json::from_slice(&told.bytes).unwrap_or_default();
            Ok(told.capabilities.iter().any(|name| name == "uploads"))
        };
        Box::pin(async move { self.resumes.get_or_try_init(ask).await.copied() })
    }

    fn arrived<'a>(
        &'a self,
        key: &'a str,
        length: u64,
    ) -> BoxFuture<'a, Result<Arrived, ServiceError>> {
        Box::pin(async move {
            let ask = |method| {
                let request = self.request(method, &upload(key));
                self.ask((request, Bytes::new()), limits::REPLY_BYTES, ("stat", key))
            };
            let headers = match ask(Method::HEAD).await {
                Ok(answer) => answer.headers,
                Err(error) if error.what == What::NotFound => return Ok(Arrived::Part(0)),
                Err(error) => return Err(error),
            };
            let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
            let number = |name: &str| said(name).and_then(|text| text.parse::<u64>().ok());
            if said("upload-complete") == Some("?1") {
                return Ok(Arrived::Whole);
            }
            match number("upload-offset").filter(|offset| *offset <= length) {
                Some(offset) if number("upload-length") == Some(length) => {
                    Ok(Arrived::Part(offset))
                }
                // Whoever sent it was wrong about it.
                _ => match ask(Method::DELETE).await {
                    Err(error) if error.what != What::NotFound => Err(error),
                    _ => Ok(Arrived::Part(0)),
                },
            }
        })
    }

    fn write_rest<'a>(
        &'a self,
        key: &'a str,
        (path, length): (&'a Path, u64),
        at: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            let request = self.request(Method::PATCH, &upload(key));
            let request = request.header("upload-offset", at).header("upload-length", length);
            let ask = self.ask((request, Bytes::new()), limits::REPLY_BYTES, ("write", key));
            let answer = with_file((path.to_owned(), at..length), ask).await?;
            let is_whole = answer.headers.get("upload-complete").is_some_and(|said| said == "?1");
            let short = || "a part of it came".to_owned();
            is_whole
                .then_some(())
                .ok_or_else(|| ServiceError::new("write", key, What::Temporary, short()))
        })
    }
}

/// Where a pack goes that can go on.
fn upload(key: &str) -> String {
    format!("uploads/{}", key.strip_prefix(OBJECTS).unwrap_or(key))
}
