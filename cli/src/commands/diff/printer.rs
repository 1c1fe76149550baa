//! From changes to what is printed.

use std::os::unix::ffi::OsStrExt;

use snap_core::{
    base::observe::{Note, Observer},
    ops::{
        cat::CatError,
        diff::{Change, Differences, Item, Outcome, Reader},
    },
};

use crate::{
    commands::diff::{
        contents::{Batch, Read, Want},
        names::{self, Ends},
        record::{ChangeJson, SummaryJson},
        stat::Stat,
        unified::Unified,
        words::words,
    },
    context::Context,
    report::CliError,
    ui::{Out, Progress, text},
};

/// What changes look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Line by line, with so many lines around each change.
    Unified(usize),
    /// A bar for each file.
    Stat,
    /// A path a line.
    Names(Ends),
    /// The letter of what happened, and a path.
    NamesAndStatus(Ends),
    /// A record a line.
    Json,
    /// The same with numbers of lines.
    JsonWithLines,
}

/// Prints changes as they come.
pub(crate) struct Printer<'a> {
    cx: &'a Context,
    progress: &'a Progress<'a>,
    form: Form,
    differences: fn(&Change) -> Differences,
    reader: Reader<'a>,
    out: Out,
    batch: Batch,
    stat: Stat,
    /// A folder that came or went: if something in it did, that says enough.
    folder: Option<Change>,
    /// A file in the place of a folder; it waits until all in that has gone.
    after: Option<Change>,
    /// A path that is a folder on one side only, which `patch` cannot apply.
    turned: Option<Vec<u8>>,
    /// Files that could not be read.
    skipped: u64,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(
        cx: &'a Context,
        progress: &'a Progress<'a>,
        reader: Reader<'a>,
        (form, differences): (Form, fn(&Change) -> Differences),
    ) -> Self {
        let out = cx.ui().out();
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
        if matches!(self.form, Form::Json | Form::JsonWithLines) {
            return self.queue(change);
        }
        let change = match self.form {
            Form::Unified(_) => self.removals_first(change)?,
            _ => Some(change),
        };
        match change {
            Some(change) => self.without_folders(change),
            None => Ok(()),
        }
    }

    /// In a patch, what is in a folder goes before a file takes its place.
    /// Returns the change that comes next, if it is not to wait.
    fn removals_first(&mut self, change: Change) -> Result<Option<Change>, CliError> {
        let is_folder = |item: &Option<Item>| item.as_ref().map(|item| item.what.is_folder());
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
            let Change { path, old_path, old, new } = change;
            let created = Change { path: path.clone(), old_path: None, old: None, new };
            self.after = Some(created);
            return Ok(Some(Change { path, old_path, old, new: None }));
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
            Form::Names(ends) => self.name(&change, (None, ends)),
            Form::NamesAndStatus(ends) => {
                self.name(&change, (Some(names::letter(change.status())), ends))
            }
            Form::Json => {
                self.begin();
                let record = ChangeJson::new(&change, (self.differences)(&change), None);
                Ok(self.out.json(&record)?)
            }
            Form::Unified(_) | Form::Stat | Form::JsonWithLines => {
                if self.batch.push(change) {
                    self.flush()
                } else {
                    Ok(())
                }
            }
        }
    }

    fn name(&mut self, change: &Change, how: (Option<char>, Ends)) -> Result<(), CliError> {
        self.begin();
        Ok(names::write_line(&mut self.out, self.cx.ui(), change, how)?)
    }

    /// A bar and what is printed would write over each other.
    fn begin(&self) {
        if self.cx.ui().is_terminal() {
            self.progress.clear();
        }
    }

    fn flush(&mut self) -> Result<(), CliError> {
        let want = match self.form {
            Form::Unified(_) => Want::Contents,
            _ => Want::Counts,
        };
        for read in self.batch.read(&self.reader, want, self.progress) {
            self.write(read)?;
        }
        Ok(())
    }

    fn write(&mut self, read: Read) -> Result<(), CliError> {
        let Read { change, contents, lines } = read;
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
            Form::Unified(context) => {
                let unified = Unified { ui, context, differences };
                unified.write(&mut self.out, &change, (&old, &new))?;
            }
            Form::JsonWithLines => {
                self.stat.sum(lines);
                self.out.json(&ChangeJson::new(&change, differences(&change), lines))?;
            }
            _ => {
                let words = words(&change, differences(&change));
                self.stat.push(&mut self.out, ui, &change, (lines, words))?;
            }
        }
        Ok(())
    }

    /// Prints the rest. Returns how many files could not be read.
    pub(crate) fn finish(mut self, outcome: &Outcome) -> Result<u64, CliError> {
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
                "`{}` is a file on one side and a folder on the other: `git apply` applies this \
                 patch, GNU `patch` only after its removals were applied by themselves",
                text::line(&path)
            ));
        }
        let mut outcome = *outcome;
        outcome.skipped += self.skipped;
        match self.form {
            Form::Json => self.out.json(&SummaryJson::new(&outcome, None))?,
            Form::JsonWithLines => {
                self.out.json(&SummaryJson::new(&outcome, Some(self.stat.sums())))?;
            }
            Form::Stat => self.stat.finish(&mut self.out, self.cx.ui())?,
            _ => {}
        }
        self.out.finish()?;
        Ok(outcome.skipped)
    }
}

/// Whether a path is in a folder.
pub(crate) fn is_below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.first() == Some(&b'/'))
}
