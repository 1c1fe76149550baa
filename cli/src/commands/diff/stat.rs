//! A diffstat: one line for each file, with a bar for the numbers of added and removed lines.

use std::io::{self, Write};

use snap_core::ops::diff::{Change, SideContent, Status, lines::LineDiff};

use crate::{
    commands::diff::{
        names::{format_rename, shown, word},
        record::LinesJson,
    },
    ui::{Out, Ui, size, size::ByteCount},
};

/// Number of rows that are buffered to compute the column widths. Later rows use the same widths.
const HELD: usize = 4096;

/// The part of a row after the name.
#[derive(Debug)]
enum StatRow {
    Lines(u64, u64),
    /// Not text: lengths before and after.
    Bytes(u64, u64),
    Words(String),
}

/// Rows and totals.
#[derive(Debug, Default)]
pub(crate) struct Stat {
    rows: Vec<(Vec<u8>, StatRow)>,
    widths: Option<Widths>,
    files: u64,
    added: u64,
    deleted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Widths {
    name: usize,
    number: usize,
    bar: usize,
    /// The largest number of lines in a bar.
    most: u64,
}

/// Counts added and removed lines, for a record.
pub(crate) fn count(contents: (&SideContent, &SideContent)) -> LinesJson {
    match LineDiff::compare(contents.0, contents.1) {
        LineDiff::Text(text) => {
            let (added, deleted) = text.counts();
            let (lines_added, lines_deleted) = (Some(added), Some(deleted));
            LinesJson { binary: false, lines_added, lines_deleted }
        }
        LineDiff::Binary | LineDiff::TooLarge => {
            LinesJson { binary: true, lines_added: None, lines_deleted: None }
        }
    }
}

impl Stat {
    /// Returns the numbers of added and removed lines so far.
    pub(crate) fn sums(&self) -> (u64, u64) {
        (self.added, self.deleted)
    }

    /// Adds the lines of a change to the totals.
    pub(crate) fn sum(&mut self, lines: Option<LinesJson>) {
        self.files += 1;
        self.added += lines.and_then(|lines| lines.lines_added).unwrap_or(0);
        self.deleted += lines.and_then(|lines| lines.lines_deleted).unwrap_or(0);
    }

    /// Adds a row; `words` describes differences other than the content.
    pub(crate) fn push(
        &mut self,
        out: &mut Out,
        ui: &Ui,
        change: &Change,
        (lines, words): (Option<LinesJson>, String),
    ) -> io::Result<()> {
        let name = match &change.old_path {
            Some(old) => format_rename(old, &change.path),
            None => change.path.clone(),
        };
        let mut name = shown(ui, &name);
        if change.item().what.is_folder() {
            name.push(b'/');
        }
        // The file still exists, so none of its lines is deleted.
        let is_ignored = change.status() == Status::Ignored;
        let lines = lines.filter(|_| !is_ignored);
        let bytes = |item: &Option<_>| {
            item.as_ref().map_or(0, |item: &snap_core::ops::diff::ChangeSide| item.what.bytes())
        };
        let row =
            match lines {
                Some(LinesJson {
                    lines_added: Some(added), lines_deleted: Some(deleted), ..
                }) if words.is_empty() || added + deleted > 0 => StatRow::Lines(added, deleted),
                Some(LinesJson { binary: true, .. }) => {
                    StatRow::Bytes(bytes(&change.old), bytes(&change.new))
                }
                _ if is_ignored => StatRow::Words(word(Status::Ignored).to_owned()),
                _ if words.is_empty() && change.status() == Status::Renamed => StatRow::Lines(0, 0),
                _ => StatRow::Words(words),
            };
        self.sum(lines);
        self.rows.push((name, row));
        if self.rows.len() >= HELD || self.widths.is_some() { self.flush(out, ui) } else { Ok(()) }
    }

    fn flush(&mut self, out: &mut Out, ui: &Ui) -> io::Result<()> {
        let widths = *self.widths.get_or_insert_with(|| Widths::of(&self.rows, ui.columns()));
        for (name, row) in self.rows.drain(..) {
            widths.write(out, ui, &name, &row)?;
        }
        Ok(())
    }

    /// Writes the rest and the totals.
    pub(crate) fn finish(mut self, out: &mut Out, ui: &Ui) -> io::Result<()> {
        self.flush(out, ui)?;
        if self.files == 0 {
            return Ok(());
        }
        let mut sums = format!(" {} changed", size::count(self.files, "file"));
        if self.added > 0 || self.deleted == 0 {
            sums.push_str(&format!(", {}(+)", size::count(self.added, "insertion")));
        }
        if self.deleted > 0 || self.added == 0 {
            sums.push_str(&format!(", {}(-)", size::count(self.deleted, "deletion")));
        }
        writeln!(out, "{sums}")
    }
}

fn chars(name: &[u8]) -> usize {
    name.utf8_chunks()
        .map(|c| c.valid().chars().count() + usize::from(!c.invalid().is_empty()))
        .sum()
}

impl Widths {
    fn of(rows: &[(Vec<u8>, StatRow)], columns: usize) -> Self {
        let name = rows.iter().map(|(name, _)| chars(name)).max().unwrap_or(0);
        let digits = |row: &StatRow| match row {
            StatRow::Lines(added, deleted) => (added + deleted).to_string().len(),
            StatRow::Bytes(..) => 3,
            StatRow::Words(_) => 0,
        };
        let number = rows.iter().map(|(_, row)| digits(row)).max().unwrap_or(0);
        let lines = |row: &StatRow| if let StatRow::Lines(a, b) = row { a + b } else { 0 };
        let most = rows.iter().map(|(_, row)| lines(row)).max().unwrap_or(0);
        // Space, name, ` | `, number, space, bar.
        let room = columns.saturating_sub(number + 5);
        let wanted_bar = usize::try_from(most).unwrap_or(usize::MAX);
        let name = name.min(room.saturating_sub(wanted_bar.min(room * 3 / 8)).max(8));
        let bar = room.saturating_sub(name).max(5);
        Self { name, number, bar, most }
    }

    fn write(&self, out: &mut Out, ui: &Ui, name: &[u8], row: &StatRow) -> io::Result<()> {
        let cut = self.cut(name);
        let pad = self.name.saturating_sub(chars(&cut));
        out.write_all(b" ")?;
        out.write_all(&cut)?;
        write!(out, "{:pad$} | ", "")?;
        match row {
            StatRow::Words(words) => writeln!(out, "{words}"),
            StatRow::Bytes(old, new) => {
                let (old, new) = (
                    ui.paint().minus(&ByteCount(*old).to_string()),
                    ui.paint().plus(&ByteCount(*new).to_string()),
                );
                writeln!(out, "{:>1$} {old} -> {new}", "Bin", self.number)
            }
            StatRow::Lines(added, deleted) => {
                let (plus, minus) = self.bar(*added, *deleted);
                let bar = format!(
                    "{}{}",
                    ui.paint().plus(&"+".repeat(plus)),
                    ui.paint().minus(&"-".repeat(minus))
                );
                let number = format!("{:>1$}", added + deleted, self.number);
                match plus + minus {
                    0 => writeln!(out, "{number}"),
                    _ => writeln!(out, "{number} {bar}"),
                }
            }
        }
    }

    /// Shortens a name to the width of the column; keeps its end.
    fn cut(&self, name: &[u8]) -> Vec<u8> {
        if chars(name) <= self.name {
            return name.to_vec();
        }
        let text = String::from_utf8_lossy(name);
        let keep = self.name.saturating_sub(3);
        let from = text.char_indices().rev().nth(keep.saturating_sub(1)).map_or(0, |(at, _)| at);
        let tail = &text[from..];
        let tail = tail.find('/').map_or(tail, |at| &tail[at..]);
        format!("...{tail}").into_bytes()
    }

    /// Returns the numbers of signs in a bar; at least one for any lines.
    fn bar(&self, added: u64, deleted: u64) -> (usize, usize) {
        let room = self.bar as u64;
        if self.most <= room {
            return (added as usize, deleted as usize);
        }
        let scaled = |lines: u64| match lines {
            0 => 0,
            lines => {
                ((u128::from(lines) * u128::from(room) / u128::from(self.most)) as usize).max(1)
            }
        };
        (scaled(added), scaled(deleted))
    }
}
