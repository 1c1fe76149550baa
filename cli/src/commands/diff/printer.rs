//! Prints changes in the requested format.

use std::os::unix::ffi::OsStrExt;

use snap_core::{
    base::observe::{Note, Observer},
    ops::{
        cat::CatError,
        diff::{Change, ChangeSide, DiffOutcome, Differences, SideReader},
    },
};

use crate::{
    commands::diff::{
        contents::{Batch, ContentRead, Want},
        names::{self, Ends},
        record::{DiffChangeJson, SummaryJson},
        stat::Stat,
        unified::Unified,
        words::words,
    },
    context::Context,
    report::CliError,
    ui::{Out, Progress, text},
};

/// The format of the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiffFormat {
    /// Unified diff, with this number of context lines.
    Unified(usize),
    /// Diffstat: a bar for each file.
    Stat,
    /// One path on each line.
    Names(Ends),
    /// The letter of the status and a path.
    NamesAndStatus(Ends),
    /// One JSON record on each line.
    Json,
    /// JSON records with line counts.
    JsonWithLines,
}

/// Prints changes as they arrive.
pub(crate) struct Printer<'a> {
    cx: &'a Context,
    progress: &'a Progress<'a>,
    form: DiffFormat,
    differences: fn(&Change) -> Differences,
    reader: SideReader<'a>,
    out: &'a mut Out,
    batch: Batch,
    stat: Stat,
    /// An added or removed folder. It is not printed if something in it is printed.
    folder: Option<Change>,
    /// A file that replaces a folder. It waits until all removals in the folder are printed.
    after: Option<Change>,
    /// A path that is a folder on one side only; `patch` cannot apply that.
    turned: Option<Vec<u8>>,
    /// Number of files that could not be read.
    skipped: u64,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(
        cx: &'a Context,
        progress: &'a Progress<'a>,
        reader: SideReader<'a>,
        (form, differences): (DiffFormat, fn(&Change) -> Differences),
        out: &'a mut Out,
    ) -> Self {
        let (batch, stat) = (Batch::default(), Stat::default());
        Self {
            cx,
            progress,
            form,
            differences,
            reader,
            out,
            batch,
            stat,
            folder: None,
            after: None,
            turned: None,
            skipped: 0,
        }
    }

    /// Takes the next change.
    pub(crate) fn take(&mut self, change: Change) -> Result<(), CliError> {
        if matches!(self.form, DiffFormat::Json | DiffFormat::JsonWithLines) {
            return self.queue(change);
        }
        let change = match self.form {
            DiffFormat::Unified(_) => self.removals_first(change)?,
            _ => Some(change),
        };
        match change {
            Some(change) => self.without_folders(change),
            None => Ok(()),
        }
    }

    /// In a patch, the removals in a folder come before the file that replaces it. Returns the next
    /// change, unless it has to wait.
    fn removals_first(&mut self, change: Change) -> Result<Option<Change>, CliError> {
        let is_folder = |item: &Option<ChangeSide>| item.as_ref().map(|item| item.what.is_folder());
        let turns = match (is_folder(&change.old), is_folder(&change.new)) {
            (Some(old), Some(new)) => old != new,
            _ => false,
        };
        if turns {
            self.turned.get_or_insert_with(|| change.path.clone());
        }
        if let Some(after) = self.after.take_if(|after| !is_below(&change.path, &after.path)) {
            self.without_folders(after)?;
        }
        if turns && is_folder(&change.old) == Some(true) && self.after.is_none() {
            let Change { path, old_path, old, new, .. } = change;
            let created =
                Change { path: path.clone(), old_path: None, old: None, new, is_ignored: false };
            self.after = Some(created);
            return Ok(Some(Change { path, old_path, old, new: None, is_ignored: false }));
        }
        Ok(Some(change))
    }

    fn without_folders(&mut self, change: Change) -> Result<(), CliError> {
        if let Some(folder) = self.folder.take()
            && !(is_below(&change.path, &folder.path) && change.status() == folder.status())
        {
            self.queue(folder)?;
        }
        if change.item().what.is_folder() && (change.old.is_none() || change.new.is_none()) {
            self.folder = Some(change);
            return Ok(());
        }
        self.queue(change)
    }

    fn queue(&mut self, change: Change) -> Result<(), CliError> {
        match self.form {
            DiffFormat::Names(ends) => self.name(&change, (None, ends)),
            DiffFormat::NamesAndStatus(ends) => {
                self.name(&change, (Some(names::letter(change.status())), ends))
            }
            DiffFormat::Json => {
                self.begin();
                let record = DiffChangeJson::new(&change, (self.differences)(&change), None);
                Ok(self.out.json(&record)?)
            }
            DiffFormat::Unified(_) | DiffFormat::Stat | DiffFormat::JsonWithLines => {
                if self.batch.push(change) { self.flush() } else { Ok(()) }
            }
        }
    }

    fn name(&mut self, change: &Change, how: (Option<char>, Ends)) -> Result<(), CliError> {
        self.begin();
        Ok(names::write_line(self.out, self.cx.ui(), change, how)?)
    }

    /// Removes the bar, because it would overwrite the output.
    fn begin(&self) {
        if self.cx.ui().is_terminal() {
            self.progress.clear();
        }
    }

    fn flush(&mut self) -> Result<(), CliError> {
        let want = match self.form {
            DiffFormat::Unified(_) => Want::Contents,
            _ => Want::Counts,
        };
        for read in self.batch.read(&self.reader, want, self.progress) {
            self.write(read)?;
        }
        Ok(())
    }

    fn write(&mut self, read: ContentRead) -> Result<(), CliError> {
        let ContentRead { change, contents, lines } = read;
        let (old, new) = match contents {
            Ok(contents) => contents,
            Err(CatError::Output(error)) => {
                let path = std::path::Path::new(std::ffi::OsStr::from_bytes(&change.path));
                self.progress.note(Note::Skipped { path, error: &error });
                self.skipped += 1;
                return Ok(());
            }
            Err(source) => {
                let (path, source) = (text::line(&change.path), Box::new(source));
                return Err(CliError::Content { path, source });
            }
        };
        self.begin();
        let (ui, differences) = (self.cx.ui(), self.differences);
        match self.form {
            DiffFormat::Unified(context) => {
                let unified = Unified { ui, context, differences };
                unified.write(self.out, &change, (&old, &new))?;
            }
            DiffFormat::JsonWithLines => {
                self.stat.sum(lines);
                self.out.json(&DiffChangeJson::new(&change, differences(&change), lines))?;
            }
            _ => {
                let words = words(&change, differences(&change));
                self.stat.push(self.out, ui, &change, (lines, words))?;
            }
        }
        Ok(())
    }

    /// Prints the rest. Returns the number of files that could not be read.
    pub(crate) fn finish(mut self, outcome: &DiffOutcome) -> Result<u64, CliError> {
        if let Some(after) = self.after.take() {
            self.without_folders(after)?;
        }
        if let Some(folder) = self.folder.take() {
            self.queue(folder)?;
        }
        self.flush()?;
        self.progress.clear();
        if let Some(path) = self.turned.take().filter(|_| !self.cx.ui().is_terminal()) {
            self.cx.ui().warning(format_args!(
                "`{}` is a file on one side and a folder on the other; apply the patch with `git \
                 apply`, not with `patch`",
                text::line(&path)
            ));
        }
        if self.reader.has_left_out() {
            self.cx.ui().hint("`snap diff --text-limit SIZE` also compares larger files by lines");
        }
        let mut outcome = *outcome;
        outcome.skipped += self.skipped;
        match self.form {
            DiffFormat::Json => self.out.json(&SummaryJson::new(&outcome, None))?,
            DiffFormat::JsonWithLines => {
                self.out.json(&SummaryJson::new(&outcome, Some(self.stat.sums())))?;
            }
            DiffFormat::Stat => self.stat.finish(self.out, self.cx.ui())?,
            _ => {}
        }
        Ok(outcome.skipped)
    }
}

/// Returns true if a path is inside a folder.
pub(crate) fn is_below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.first() == Some(&b'/'))
}
