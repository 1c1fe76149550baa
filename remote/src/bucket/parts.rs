//! Multipart uploads over OpenDAL, below the level of its writers. An OpenDAL writer loses a part
//! that failed with an error.
//!
//! OpenDAL does not expose the id of an upload, and a writer aborts only an upload that it has
//! begun itself. Two transports around the usual one make up for that. All requests are still
//! addressed, signed and counted in the same way. [`UploadIdRecorder`] reads the id from the
//! requests for parts. [`UploadStartStub`] pretends to the writer that the upload with a given id
//! has begun, so that the writer can abort it.

use std::sync::Arc;

use bytes::Bytes;
use futures::{future::BoxFuture, stream};
use http::{Method, Request, Response, header::ETAG};
use opendal::{
    Buffer, Error, ErrorKind, HttpBody, HttpTransport, HttpTransporter, Operator, options,
    raw::{OpWrite, Service as _, oio, oio::Write},
};
use percent_encoding::percent_decode_str;

use super::{
    MultipartUpload, ServiceError, call::call, opendal_error::service_error,
    upload_notes::UploadNote,
};

/// Maximum number of parts of one object in flight.
const PARTS_AT_ONCE: usize = 4;

/// A multipart upload of one object.
pub(super) struct OpendalUpload {
    writer: oio::Writer,
    key: String,
}

impl OpendalUpload {
    /// Begins a multipart upload of the object `key` to `path` of the service, and records its id
    /// in `note`. Returns `None` if the service has no multipart uploads. Sends no request yet.
    pub(super) fn begin(
        operator: &Operator,
        key: &str,
        path: &str,
        note: Arc<UploadNote>,
    ) -> Option<Self> {
        if !operator.info().capability().write_can_multi {
            return None;
        }
        let inner = operator.context().http_transport().clone();
        Self::over(UploadIdRecorder { inner, note }, operator, key, path, PARTS_AT_ONCE)
    }

    fn over(
        transport: impl HttpTransport,
        operator: &Operator,
        key: &str,
        path: &str,
        concurrent: usize,
    ) -> Option<Self> {
        let options = options::WriteOptions { concurrent, ..Default::default() };
        let capability = operator.info().capability();
        let (write, _) = OpWrite::from_options(&capability, options).ok()?;
        let context = operator.context();
        let context = context.with_http_transport(HttpTransporter::new(transport));
        let writer = operator.service().write(&context, path, write).ok()?;
        Some(Self { writer, key: key.to_owned() })
    }

    async fn convert<T>(
        key: &str,
        attempt: impl Future<Output = Result<T, Error>>,
    ) -> Result<(), ServiceError> {
        let (result, reply) = call(|_| (), attempt).await;
        result.map(drop).map_err(|error| service_error("write", key, &error, &reply))
    }
}

impl MultipartUpload for OpendalUpload {
    fn send_part(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(Self::convert(&self.key, self.writer.write(bytes.into())))
    }

    fn finish(&mut self) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(Self::convert(&self.key, self.writer.close()))
    }

    fn abort(&mut self) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(Self::convert(&self.key, self.writer.abort()))
    }
}

/// Aborts an upload of the object `key` to `path` that another process began.
///
/// # Errors
/// [`ServiceError`]; [`FailureReason::NotFound`](super::FailureReason) if the upload does not exist.
pub(super) async fn abort(
    operator: &Operator,
    key: &str,
    path: &str,
    id: &str,
) -> Result<(), ServiceError> {
    let inner = operator.context().http_transport().clone();
    let begun = UploadStartStub { inner, id: id.to_owned() };
    let Some(mut parts) = OpendalUpload::over(begun, operator, key, path, 1) else { return Ok(()) };
    // The writer holds the first part back until it gets a second one.
    for _ in 0..2 {
        parts.send_part(Bytes::from_static(b"-")).await?;
    }
    parts.abort().await
}

/// Returns the value of a query parameter of a request.
fn parameter<'r>(request: &'r Request<Buffer>, name: &str) -> Option<&'r str> {
    let pairs = request.uri().query()?.split('&');
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .find_map(|(found, value)| (found == name).then_some(value))
}

/// A transport that records the id of an upload before it sends the first part.
struct UploadIdRecorder {
    inner: HttpTransporter,
    note: Arc<UploadNote>,
}

impl HttpTransport for UploadIdRecorder {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        if let Some(id) = parameter(&request, "uploadId") {
            self.note.record_id(&percent_decode_str(id).decode_utf8_lossy());
        }
        self.inner.fetch(request).await
    }
}

/// A transport that answers the start and the parts of an upload itself, and forwards all other
/// requests.
struct UploadStartStub {
    inner: HttpTransporter,
    id: String,
}

impl HttpTransport for UploadStartStub {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let begins = *request.method() == Method::POST && parameter(&request, "uploads").is_some();
        if !begins && parameter(&request, "partNumber").is_none() {
            return self.inner.fetch(request).await;
        }
        let text = format!(
            "<InitiateMultipartUploadResult><UploadId>{}</UploadId>\
             </InitiateMultipartUploadResult>",
            self.id
        );
        let length = text.len() as u64;
        let body = HttpBody::new(stream::iter([Ok(Buffer::from(text))]), Some(length));
        let response = Response::builder().header(ETAG, "\"-\"").body(body);
        response.map_err(|error| Error::new(ErrorKind::Unexpected, error.to_string()))
    }
}
