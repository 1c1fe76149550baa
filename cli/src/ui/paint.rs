//! Colours, where they are wanted.

use anstyle::{AnsiColor, Style};
use snap_core::ops::diff::Status;

/// Paints, or leaves as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// Paints if `on`.
    pub(crate) const fn new(on: bool) -> Self {
        Self { on }
    }

    /// Whether it paints.
    pub(crate) const fn is_on(self) -> bool {
        self.on
    }

    fn with(self, style: Style, text: &str) -> String {
        if self.on { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// An id.
    pub(crate) fn id(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default(), text)
    }

    /// Name of a branch or tag, without what would steer the terminal.
    pub(crate) fn name(self, text: &str) -> String {
        self.with(AnsiColor::Green.on_default().bold(), &super::text::line(text.as_bytes()))
    }

    /// Name of a folder.
    pub(crate) fn folder(self, text: &str) -> String {
        self.with(AnsiColor::Blue.on_default().bold(), text)
    }

    /// Name of a symlink.
    pub(crate) fn link(self, text: &str) -> String {
        self.with(AnsiColor::Cyan.on_default(), text)
    }

    /// What a status says, or the letter of it.
    pub(crate) fn change(self, status: Status, text: &str) -> String {
        let color = match status {
            Status::Added => AnsiColor::Green,
            Status::Removed => AnsiColor::Red,
            Status::Modified | Status::Metadata | Status::Kind => AnsiColor::Yellow,
            Status::Renamed => AnsiColor::Cyan,
        };
        self.with(color.on_default(), text)
    }

    /// A line that is new, or signs that stand for such lines.
    pub(crate) fn plus(self, text: &str) -> String {
        self.with(AnsiColor::Green.on_default(), text)
    }

    /// A line that is gone, or signs that stand for such lines.
    pub(crate) fn minus(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default(), text)
    }

    /// Where in a file lines stand.
    pub(crate) fn place(self, text: &str) -> String {
        self.with(AnsiColor::Cyan.on_default(), text)
    }

    /// What stands above a part of the output.
    pub(crate) fn heading(self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    /// `error:`
    pub(crate) fn error(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default().bold(), text)
    }

    /// `warning:`
    pub(crate) fn warning(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default().bold(), text)
    }

    /// `hint:`
    pub(crate) fn hint(self, text: &str) -> String {
        self.with(AnsiColor::Cyan.on_default().bold(), text)
    }
}
