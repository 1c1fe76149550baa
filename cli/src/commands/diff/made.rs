//! Prints what a commit changed, for `snap log -p` and `snap show -p`.

use snap_core::{
    base::limits,
    format::commit::Commit,
    ops::diff::{self, Change, DiffOptions, Limit, New, SideReader},
    repo::history::nearest_kept,
    store::Store,
};

use super::{
    CONTEXT_LINES, collect,
    printer::{DiffFormat, Printer},
};
use crate::{
    context::Context,
    report::CliError,
    ui::{Out, Progress},
};

/// Writes the changes that a commit made, as `snap diff` prints them. A merge is compared with its
/// first parent, the first commit with nothing. The nearest kept ancestor takes the place of a
/// forgotten parent. Without paths, writes all changes. Returns the
/// number of files that could not be read.
pub(crate) fn write_made_changes(
    out: &mut Out,
    (store, commit): (&Store, &Commit),
    paths: Vec<Vec<u8>>,
    (cx, progress): (&Context, &Progress<'_>),
) -> Result<u64, CliError> {
    let form = match cx.ui().is_json() {
        true => DiffFormat::Json,
        false => DiffFormat::Unified(CONTEXT_LINES),
    };
    let parent = commit.parents.first().map(|parent| nearest_kept(store, *parent)).transpose()?;
    let parent = parent.flatten();
    let (old, new) = (parent.map(|(_, parent)| parent.tree), New::Tree(Some(commit.tree)));
    let reader = SideReader::new(store, &new, limits::DIFF_FILE_BYTES)?;
    let differences = |change: &Change| change.differences().usual();
    let mut printer = Printer::new(cx, progress, reader, (form, differences), out);
    let options = DiffOptions { limit: Limit::to(paths), ..DiffOptions::default() };
    let outcome = collect(&mut |change| printer.take(change), |each| {
        diff::run(store, old, &new, &options, progress, each)
    })?;
    printer.finish(&outcome)
}
