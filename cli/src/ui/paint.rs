//! Colours, where they are wanted.

use anstyle::{AnsiColor, Style};

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

    fn with(self, style: Style, text: &str) -> String {
        if self.on { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// An id.
    pub(crate) fn id(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default(), text)
    }

    /// Name of a branch or tag.
    pub(crate) fn name(self, text: &str) -> String {
        self.with(AnsiColor::Green.on_default().bold(), text)
    }

    /// Name of a folder.
    pub(crate) fn folder(self, text: &str) -> String {
        self.with(AnsiColor::Blue.on_default().bold(), text)
    }

    /// Name of a symlink.
    pub(crate) fn link(self, text: &str) -> String {
        self.with(AnsiColor::Cyan.on_default(), text)
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
