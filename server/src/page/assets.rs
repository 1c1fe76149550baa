//! The stylesheet, the script and the icon. They are embedded in the binary. Each file
//! name contains the hash of the content, so browsers may cache it for ever.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::header;

use crate::problem::{Code, HttpProblem};

/// A file in the binary.
#[derive(Debug)]
pub(super) struct Asset {
    name: String,
    kind: &'static str,
    text: &'static str,
}

impl Asset {
    fn new(stem: &str, end: &str, kind: &'static str, text: &'static str) -> Self {
        let hash = blake3::hash(text.as_bytes()).to_hex();
        Self { name: format!("{stem}-{}.{end}", &hash[..16]), kind, text }
    }

    /// Returns the URL path of the file.
    pub(super) fn link(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

pub(super) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("style", "css", "text/css; charset=utf-8", include_str!("assets/style.css"))
});

pub(super) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let kind = "text/javascript; charset=utf-8";
    Asset::new("script", "js", kind, include_str!("assets/script.js"))
});

pub(super) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("assets/icon.svg")));

/// `GET /assets/{name}`.
pub(super) async fn read(Path(name): Path<String>) -> Result<Response, HttpProblem> {
    let all = [&STYLE, &SCRIPT, &ICON];
    let asset = all.into_iter().find(|asset| asset.name == name);
    let asset = asset.ok_or_else(|| HttpProblem::new(Code::NotFound, "file not found"))?;
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    Ok((headers, asset.text).into_response())
}
