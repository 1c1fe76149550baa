//! Classifies requests.

use http::{Method, Uri};

/// The purpose of a request, by its method and query in S3. WebDAV requests are mapped to the
/// same kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Reads an object or a range of it.
    Get,
    /// Looks up the length, version or existence of an object or a bucket.
    Head,
    /// Writes a whole object, or creates a bucket.
    Put,
    /// Removes an object.
    Delete,
    /// Removes several objects.
    DeleteMany,
    /// Lists a page of objects.
    List,
    /// Starts a multipart upload.
    CreateUpload,
    /// Uploads a part.
    UploadPart,
    /// Lists the parts of a multipart upload.
    ListParts,
    /// Completes a multipart upload.
    CompleteUpload,
    /// Aborts a multipart upload.
    AbortUpload,
    /// Any other request, such as creating a folder.
    Other,
}

impl Kind {
    /// Returns the kind of a request.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let has = |name: &str| {
            let pairs = uri.query().unwrap_or_default().split('&');
            pairs.map(|pair| pair.split('=').next().unwrap_or(pair)).any(|found| found == name)
        };
        match method.as_str() {
            "GET" if has("list-type") => Self::List,
            "GET" if has("uploadId") => Self::ListParts,
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "PUT" if has("partNumber") => Self::UploadPart,
            "PUT" => Self::Put,
            "DELETE" if has("uploadId") => Self::AbortUpload,
            "DELETE" => Self::Delete,
            "POST" if has("uploads") => Self::CreateUpload,
            "POST" if has("uploadId") => Self::CompleteUpload,
            "POST" if has("delete") => Self::DeleteMany,
            "PROPFIND" => Self::List,
            _ => Self::Other,
        }
    }
}
