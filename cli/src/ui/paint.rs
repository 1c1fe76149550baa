//! Colours for terminal output.

use anstyle::{AnsiColor, Style};
use snap_core::ops::diff::Status;

/// Adds colours to text, or leaves it unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// Makes a painter that adds colours if `on` is true.
    pub(crate) const fn new(on: bool) -> Self {
        Self { on }
    }

    /// Returns true if colours are on.
    pub(crate) const fn is_on(self) -> bool {
        self.on
    }

    fn with(self, style: Style, text: &str) -> String {
        if self.on { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// Colours an id.
    pub(crate) fn id(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default(), text)
    }

    /// Colours the name of a branch or tag, and escapes control sequences in it.
    pub(crate) fn name(self, text: &str) -> String {
        self.with(AnsiColor::Green.on_default().bold(), &super::text::line(text.as_bytes()))
    }

    /// Colours the name of a folder.
    pub(crate) fn folder(self, text: &str) -> String {
        self.with(AnsiColor::Blue.on_default().bold(), text)
    }

    /// Colours the name of a symlink.
    pub(crate) fn link(self, text: &str) -> String {
        self.with(AnsiColor::Cyan.on_default(), text)
    }

    /// Colours a change by its status.
    pub(crate) fn change(self, status: Status, text: &str) -> String {
        let color = match status {
            Status::Added => AnsiColor::Green,
            Status::Deleted => AnsiColor::Red,
            Status::Modified | Status::Metadata | Status::Kind => AnsiColor::Yellow,
            Status::Renamed => AnsiColor::Cyan,
            Status::Ignored => AnsiColor::Magenta,
        };
        self.with(color.on_default(), text)
    }

    /// Colours an added line or its sign.
    pub(crate) fn plus(self, text: &str) -> String {
        self.with(AnsiColor::Green.on_default(), text)
    }

    /// Colours a removed line or its sign.
    pub(crate) fn minus(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default(), text)
    }

    /// Colours a position in a file.
    pub(crate) fn place(self, text: &str) -> String {
        self.with(AnsiColor::Cyan.on_default(), text)
    }

    /// Formats a heading.
    pub(crate) fn heading(self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    /// Colours the label `error:`.
    pub(crate) fn error(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default().bold(), text)
    }

    /// Colours the label `warning:`.
    pub(crate) fn warning(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default().bold(), text)
    }

    /// Colours the label `hint:`.
    pub(crate) fn hint(self, text: &str) -> String {
        self.with(AnsiColor::Cyan.on_default().bold(), text)
    }
}
