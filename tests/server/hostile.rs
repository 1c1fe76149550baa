//! Names and contents that would run as code in a browser, or mislead the reader, if
//! pages did not escape them.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use crate::place::Place;

/// A PNG image of one pixel.
pub(crate) const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\0\x05\0\x01\xff\x56\xc7\x2f\x0d\0\0\0\0IEND\xaeB`\x82";

/// A script that sets `window.pwned`.
const RUN: &str = "window.pwned=1";

/// Returns file names, none of which contains a slash.
pub(crate) fn names() -> Vec<Vec<u8>> {
    let names: [&[u8]; 13] = [
        b"<script>window.pwned=1<script>.html",
        b"<img src=x onerror=window.pwned=1>.txt",
        b"\" onmouseover=\"window.pwned=1\" x=\".txt",
        b"' autofocus onfocus='window.pwned=1.txt",
        b"javascript:window.pwned=1",
        b"two\nlines\r\n.txt",
        "evil\u{202e}txt.exe".as_bytes(),
        "zero\u{200b}width.txt".as_bytes(),
        b"not-utf8-\xff\xfe.txt",
        b"&lt;b&gt;&amp;.txt",
        b"per%cent%2Fslash%00.txt",
        b"a?b#c d+e.txt",
        b"\x1b[31mred.txt",
    ];
    names.iter().map(|name| name.to_vec()).collect()
}

/// A branch and a tag whose names look like other ones.
pub(crate) const REFS: [&str; 2] = ["refs/heads/main\u{202e}txt", "refs/tags/v1\u{200b}<b>"];

/// Adds files with these names, and HTML, SVG and Markdown files that contain scripts.
pub(crate) fn fill(place: &Place) {
    let folder = place.folder.path().join("files/hostile");
    fs_err::create_dir_all(&folder).unwrap();
    for name in names() {
        let content = format!("<script>{RUN}</script>\n\u{202e}<img src=x onerror={RUN}>\n");
        fs_err::write(folder.join(OsStr::from_bytes(&name)), content).unwrap();
    }
    let html = format!("<!doctype html><body onload=\"{RUN}\"><script>{RUN}</script></body>\n");
    fs_err::write(folder.join("page.html"), html).unwrap();
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"40\" height=\"40\" onload=\"{RUN}\">\
         <script>{RUN}</script><circle cx=\"20\" cy=\"20\" r=\"18\" fill=\"#c33\"/></svg>\n"
    );
    fs_err::write(folder.join("picture.svg"), svg).unwrap();
    let markdown = format!(
        "# <script>{RUN}</script> \" onmouseover=\"{RUN}\n\n<img src=x onerror={RUN}>\n\n\
         [a](javascript:{RUN}) [b](java&#115;cript:{RUN}) <javascript:{RUN}> [c]\n\n\
         ![d](javascript:{RUN}) ![\" onerror=\"{RUN}](picture.svg) \u{202e}\n\n\
         [c]: data:text/html,<script>{RUN}</script>\n\n<svg onload={RUN}>\n"
    );
    fs_err::write(folder.join("README.md"), markdown).unwrap();
}
