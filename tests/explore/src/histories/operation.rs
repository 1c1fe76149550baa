//! The steps of a history, and their form as lines of a script.

use std::fmt;

use crate::sequences::files::Filling;

/// The working folders, each with a store: a project, a full clone of `origin`, a clone of its last
/// commit, and a clone of the folder `d`.
pub(crate) const PLACES: [&str; 4] = ["a", "b", "shallow", "partial"];

/// The remotes, which are folders.
pub(crate) const REMOTES: [&str; 2] = ["origin", "other"];

/// The remote of this name is the project `a`.
pub(crate) const PEER: &str = "peer";

/// A place of [`PLACES`].
pub(crate) type Place = &'static str;

/// Returns true if a place never has all objects.
pub(crate) fn is_partial(store: &str) -> bool {
    matches!(store, "shallow" | "partial")
}

/// Returns the content with a number.
pub(crate) fn filling(number: u64) -> Filling {
    Filling { number, large: false }
}

/// A command in a place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) place: Place,
    /// Its words after `snap`. The execution adds what only it knows: a message, the URL of a remote.
    pub(crate) words: Vec<String>,
}

impl Call {
    /// Makes a command from a line.
    pub(crate) fn new(place: Place, line: impl AsRef<str>) -> Self {
        Self { place, words: line.as_ref().split_whitespace().map(str::to_owned).collect() }
    }

    /// Returns true if this is the command `name`.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.words[0] == name
    }

    /// Returns true if it has this word.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|own| own == word)
    }

    /// Returns the store at a distance that the command changes: a push, or a collection of a remote.
    pub(crate) fn remote(&self) -> Option<&'static str> {
        if self.has(PEER) {
            return self.is("push").then_some("a");
        }
        let named = REMOTES.into_iter().find(|remote| self.has(remote));
        match self.words[0].as_str() {
            "push" => Some(named.unwrap_or("origin")),
            "gc" => named,
            _ => None,
        }
    }

    /// Returns the store whose garbage the command collects.
    pub(crate) fn collects(&self) -> Option<&'static str> {
        self.is("gc").then(|| self.remote().unwrap_or(self.place))
    }

    /// Returns the pattern that a rewrite excludes.
    pub(crate) fn excludes(&self) -> Option<&str> {
        if !self.is("rewrite") {
            return None;
        }
        let at = self.words.iter().position(|word| word == "--exclude")?;
        self.words.get(at + 1).map(String::as_str)
    }
}

/// A step of a history.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// Writes the content with a number to a file of a place.
    Write(Place, &'static str, u64),
    /// Removes a file of a place.
    Remove(Place, &'static str),
    /// Lets hours pass.
    Wait(i64),
    /// Runs a command.
    Run(Call),
    /// Starts a command, and halts it at a counted step. Then runs others, and lets the first one
    /// continue, or kills it.
    Hold { call: Call, step: u64, beside: Vec<Call>, kill: bool },
}

impl Op {
    /// Returns the kind of the operation, to tell faults apart.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Write(..) => "write".to_owned(),
            Self::Remove(..) => "remove".to_owned(),
            Self::Wait(_) => "wait".to_owned(),
            Self::Run(call) => call.words[0].clone(),
            Self::Hold { call, .. } => format!("hold {}", call.words[0]),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words.join(" ");
        match self.is("clone") {
            true => write!(f, "snap {words} file://$PWD/origin {}", self.place),
            false => write!(f, "(cd {} && snap {words})", self.place),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(place, path, number) => {
                write!(f, "(cd {place} && {} > {path})", filling(*number))
            }
            Self::Remove(place, path) => write!(f, "(cd {place} && rm {path})"),
            Self::Wait(hours) => write!(f, "wait {hours} hours"),
            Self::Run(call) => call.fmt(f),
            Self::Hold { call, step, beside, kill } => {
                write!(f, "SNAP_TEST_STOP_AT={step} SNAP_TEST_STOP_BY=STOP {call} &")?;
                beside.iter().try_for_each(|call| write!(f, "\n    {call}"))?;
                write!(f, "\n    kill -{} %1; wait", if *kill { "KILL" } else { "CONT" })
            }
        }
    }
}
