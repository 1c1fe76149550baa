//! What a request is for.

use http::{Method, Uri};

/// What a request is for, as S3 tells by method and query; WebDAV's requests
/// are put where they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An object, or a range of it, is read.
    Get,
    /// An object's or a bucket's length, version or existence is asked for.
    Head,
    /// An object is written whole, or a bucket made.
    Put,
    /// An object is removed.
    Delete,
    /// Several objects are removed.
    DeleteMany,
    /// A page of a listing.
    List,
    /// An upload in parts begins.
    CreateUpload,
    /// A part is uploaded.
    UploadPart,
    /// The parts of an upload are listed.
    ListParts,
    /// An upload in parts becomes an object.
    CompleteUpload,
    /// An upload in parts is given up.
    AbortUpload,
    /// Anything else, such as a folder that is made.
    Other,
}

impl Kind {
    /// Kind of a request.
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
