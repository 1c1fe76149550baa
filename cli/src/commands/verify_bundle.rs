//! `snap verify FILE`: checks a bundle without adding it to a store.

use std::{io, os::unix::ffi::OsStrExt, path::Path};

use serde::Serialize;
use snap_core::{
    format::bundle::BundleHead,
    ops::bundle::{
        Error,
        unpack::{self, UnpackOptions},
    },
    store::{BundleReader, read_outline},
};

use crate::{
    commands::log::all_starts,
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{size, size::ByteCount, text},
};

/// The result of a check without errors.
#[derive(Serialize)]
struct VerifiedBundleJson {
    version: u32,
    r#type: &'static str,
    file: String,
    commit: String,
    prerequisites: Vec<String>,
    objects: u64,
    bytes: u64,
}

/// Checks all objects of the bundle, and that they are complete. The commits that it builds on must
/// be in the store of the current folder.
pub(super) fn run(file: &Path, cx: &Context) -> Result<CommandOutcome, CliError> {
    let shown = text::line(file.as_os_str().as_bytes());
    cx.reads_bundle(shown.clone());
    let broken = |source| CliError::VerifyBundle { file: shown.clone(), source: Box::new(source) };
    let opened = read_outline(file).and_then(|_| BundleReader::<io::Empty>::of_file(file));
    let opened = opened.map_err(|error| broken(error.into()))?;
    let progress = cx.progress();
    let settings = cx.settings().config()?;
    let mut options = UnpackOptions { tips: Vec::new(), most_bytes: u64::MAX };
    let checked = if opened.1.prerequisites.is_empty() {
        unpack::verify_alone(&settings, cx.scratch(), opened, &options, &progress)
    } else {
        let repo = match cx.open_repo() {
            Err(CliError::NoStore) => {
                return Err(broken(Error::Prerequisites { missing: opened.1.prerequisites }));
            }
            repo => repo?,
        };
        options.tips = all_starts(&repo, cx)?;
        unpack::prepare(repo.store(), opened, &options, &progress).map(|bundle| bundle.head)
    };
    drop(progress);
    print_result(&shown, &checked.map_err(broken)?, cx)?;
    Ok(CommandOutcome::Success)
}

fn print_result(file: &str, head: &BundleHead, cx: &Context) -> Result<(), CliError> {
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        out.json(&VerifiedBundleJson {
            version: 1,
            r#type: "verified-bundle",
            file: file.to_owned(),
            commit: head.commit.to_string(),
            prerequisites: head.prerequisites.iter().map(ToString::to_string).collect(),
            objects: head.objects,
            bytes: head.raw_bytes,
        })?;
    }
    out.finish()?;
    cx.ui().status(format_args!(
        "Checked {file} with commit {:.12}: {}, {} of contents",
        head.commit,
        size::count(head.objects, "object"),
        ByteCount(head.raw_bytes),
    ));
    if !head.prerequisites.is_empty() {
        let commits = size::count(head.prerequisites.len() as u64, "commit");
        cx.ui().status(format_args!("It builds on {commits}, which the store has"));
    }
    cx.ui().status(format_args!("No errors found"));
    Ok(())
}
