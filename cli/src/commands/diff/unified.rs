//! Unified diffs with git's headers, so that `patch` and `git apply` can read them.
//!
//! Differences that these tools cannot represent are on extra lines, which they ignore.

use std::io::{self, Read as _, Write};

use snap_core::{
    local::cut::identify_source,
    ops::diff::{
        Change, ChangeSide, ComparedKind, Differences, SideContent, Status,
        lines::{Hunk, LineDiff, Sign, TextDiff},
    },
};

use crate::{
    commands::diff::{
        names::quoted,
        words::{described, metadata},
    },
    ui::{Out, Ui, text},
};

/// Writes changes one after another.
pub(crate) struct Unified<'a> {
    pub(crate) ui: &'a Ui,
    /// Number of context lines around each change.
    pub(crate) context: usize,
    pub(crate) differences: fn(&Change) -> Differences,
}

/// The paths and items of both sides.
struct Pair<'c> {
    old_path: &'c [u8],
    new_path: &'c [u8],
    old: Option<&'c ChangeSide>,
    new: Option<&'c ChangeSide>,
}

impl Unified<'_> {
    /// Writes a change and the differences of its contents.
    pub(crate) fn write(
        &self,
        out: &mut Out,
        change: &Change,
        (old, new): (&SideContent, &SideContent),
    ) -> io::Result<()> {
        let pair = Pair {
            old_path: change.old_path.as_deref().unwrap_or(&change.path),
            new_path: &change.path,
            old: change.old.as_ref(),
            new: change.new.as_ref(),
        };
        if change.status() == Status::Kind {
            // A change of kind is written as a removal and an addition.
            self.block(out, change, &Pair { new: None, ..pair }, (old, &SideContent::None))?;
            return self.block(out, change, &Pair { old: None, ..pair }, (&SideContent::None, new));
        }
        self.block(out, change, &pair, (old, new))
    }

    fn line(&self, out: &mut Out, line: &str) -> io::Result<()> {
        writeln!(out, "{}", self.ui.paint().heading(line))
    }

    fn block(
        &self,
        out: &mut Out,
        change: &Change,
        pair: &Pair<'_>,
        (old, new): (&SideContent, &SideContent),
    ) -> io::Result<()> {
        let patchable = |item: &ChangeSide| {
            matches!(item.what, ComparedKind::File { .. } | ComparedKind::Symlink { .. })
        };
        if !pair.old.or(pair.new).is_some_and(patchable) {
            return self.plain(out, change, pair);
        }
        let (a, b) = (quoted("a/", pair.old_path), quoted("b/", pair.new_path));
        self.line(out, &format!("diff --git {a} {b}"))?;
        self.modes(out, pair)?;
        if let (Some(_), Some(_)) = (pair.old, pair.new) {
            self.metadata(out, change)?;
        }
        let differs = pair.old.is_none() || pair.new.is_none() || change.differences().content;
        if change.old_path.is_some() && pair.old.is_some() && pair.new.is_some() {
            if !differs {
                self.line(out, "similarity index 100%")?;
            }
            self.line(out, &format!("rename from {}", quoted("", pair.old_path)))?;
            self.line(out, &format!("rename to {}", quoted("", pair.new_path)))?;
        }
        if !differs {
            return Ok(());
        }
        let name = |name: String, item: Option<&ChangeSide>| match item {
            Some(_) => name,
            None => "/dev/null".to_owned(),
        };
        let (a, b) = (name(a, pair.old), name(b, pair.new));
        self.index(out, pair, (old, new))?;
        match LineDiff::compare(old, new) {
            LineDiff::Binary => writeln!(out, "Binary files {a} and {b} differ"),
            LineDiff::TooLarge => writeln!(out, "Large files {a} and {b} differ"),
            LineDiff::Text(text) => self.hunks(out, &text, (&a, &b)),
        }
    }

    /// Writes the id prefixes of both contents, which `snap cat` accepts, and the mode if both have
    /// the same one: `patch` needs it to recognise a symlink.
    fn index(
        &self,
        out: &mut Out,
        pair: &Pair<'_>,
        (old, new): (&SideContent, &SideContent),
    ) -> io::Result<()> {
        let (Some(a), Some(b)) = (id(pair.old, old), id(pair.new, new)) else { return Ok(()) };
        let mode = match (pair.old, pair.new) {
            (Some(old), Some(new)) if mode(old) == mode(new) => format!(" {}", mode(new)),
            _ => String::new(),
        };
        self.line(out, &format!("index {a}..{b}{mode}"))
    }

    fn modes(&self, out: &mut Out, pair: &Pair<'_>) -> io::Result<()> {
        match (pair.old, pair.new) {
            (Some(old), Some(new)) if old.metadata.mode != new.metadata.mode => {
                self.line(out, &format!("old mode {}", mode(old)))?;
                self.line(out, &format!("new mode {}", mode(new)))
            }
            (Some(old), None) => self.line(out, &format!("deleted file mode {}", mode(old))),
            (None, Some(new)) => self.line(out, &format!("new file mode {}", mode(new))),
            _ => Ok(()),
        }
    }

    /// Writes differences that neither git nor `patch` can represent.
    fn metadata(&self, out: &mut Out, change: &Change) -> io::Result<()> {
        for (name, old, new) in described(change, (self.differences)(change)) {
            self.line(out, &format!("old {name} {old}"))?;
            self.line(out, &format!("new {name} {new}"))?;
        }
        Ok(())
    }

    /// Writes an entry that is neither a file nor a symlink, on one line.
    fn plain(&self, out: &mut Out, change: &Change, pair: &Pair<'_>) -> io::Result<()> {
        let noun = |item: Option<&ChangeSide>| item.map_or("", |item| item.what.noun());
        let path = quoted("", pair.new_path);
        let line = match (pair.old, pair.new) {
            (None, new) => format!("added {} {path}", noun(new)),
            (old, None) => format!("deleted {} {path}", noun(old)),
            (Some(_), Some(new)) => {
                let words = metadata(change, (self.differences)(change));
                format!("modified {} {path}: {words}", new.what.noun())
            }
        };
        self.line(out, &line)
    }

    fn hunks(&self, out: &mut Out, lines: &TextDiff<'_>, (a, b): (&str, &str)) -> io::Result<()> {
        let hunks = lines.hunks(self.context);
        if hunks.is_empty() {
            return Ok(());
        }
        self.line(out, &format!("--- {a}"))?;
        self.line(out, &format!("+++ {b}"))?;
        for hunk in &hunks {
            let place = format!("@@ -{} +{} @@", range(&hunk.old), range(&hunk.new));
            writeln!(out, "{}", self.ui.paint().place(&place))?;
            self.hunk(out, lines, hunk)?;
        }
        Ok(())
    }

    fn hunk(&self, out: &mut Out, lines: &TextDiff<'_>, hunk: &Hunk) -> io::Result<()> {
        let paint = self.ui.paint();
        for (sign, line) in lines.lines(hunk) {
            let (end, content) = match line.strip_suffix(b"\n") {
                Some(content) => (&b"\n"[..], content),
                None => (&b"\n\\ No newline at end of file\n"[..], line),
            };
            let letter = match sign {
                Sign::Both => " ",
                Sign::Old => "-",
                Sign::New => "+",
            };
            if self.ui.is_terminal() || paint.is_on() {
                let shown = match self.ui.is_terminal() {
                    true => text::row(content),
                    false => String::from_utf8_lossy(content).into_owned(),
                };
                let whole = format!("{letter}{shown}");
                let painted = match sign {
                    Sign::Both => whole,
                    Sign::Old => paint.minus(&whole),
                    Sign::New => paint.plus(&whole),
                };
                out.write_all(painted.as_bytes())?;
            } else {
                // A pipe gets the bytes unchanged.
                out.write_all(letter.as_bytes())?;
                out.write_all(content)?;
            }
            out.write_all(end)?;
        }
        Ok(())
    }
}

/// Formats the lines of a hunk for its header. The first line counts from 1; an empty range names
/// the line before it.
fn range(lines: &std::ops::Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => (lines.start + 1).to_string(),
        len => format!("{},{len}", lines.start + 1),
    }
}

/// Returns the id prefix; zeros for a missing side, as in git.
fn id(item: Option<&ChangeSide>, content: &SideContent) -> Option<String> {
    match (item.map(|item| &item.what), content) {
        (None, _) => Some("0".repeat(12)),
        (Some(ComparedKind::File { id: Some(id), .. }), _) => Some(format!("{id:.12}")),
        (_, SideContent::Bytes(bytes)) => {
            let (id, _) = identify_source(&mut (&bytes[..]).take(u64::MAX), &|| false).ok()?;
            Some(format!("{id:.12}"))
        }
        _ => None,
    }
}

/// Returns the mode with the bits for the kind of file.
fn mode(item: &ChangeSide) -> String {
    match item.what {
        ComparedKind::Symlink { .. } => "120000".to_owned(),
        _ => format!("10{:04o}", item.metadata.mode),
    }
}
