//! Completes a command line: maps the words up to the cursor to candidates.
//!
//! The scripts in `scripts/` call the hidden `snap __tab` when the user presses Tab. Options and
//! commands come from clap's definition, the kind of an argument from [`kind`], and the data of a
//! store from [`values`]. [`shell`] splits and quotes words.
//!
//! Three rules apply. Nothing is ever written, not even a missing index. An error is never
//! reported; it only leads to fewer candidates. The work has fixed limits, however large the store
//! is.

mod kind;
pub(crate) mod shell;
mod values;

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, Command};

pub(crate) use self::values::CompletionContext;
use self::{kind::ValueKind, values::Values};

/// A completion of the word at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompletionCandidate {
    /// The whole word.
    pub(crate) value: Vec<u8>,
    /// A short description, for shells that can show it; may be empty.
    pub(crate) about: String,
    /// True if the word may continue, so that the shell adds no space.
    pub(crate) continues: bool,
}

impl CompletionCandidate {
    fn new(value: impl Into<Vec<u8>>, about: impl Into<String>) -> Self {
        Self { value: value.into(), about: about.into(), continues: false }
    }

    fn open(value: impl Into<Vec<u8>>, about: impl Into<String>) -> Self {
        Self { continues: true, ..Self::new(value, about) }
    }
}

/// The files that the shell itself offers if there are no candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FileCompletion {
    /// No files.
    #[default]
    None,
    /// Files and folders.
    All,
    /// Folders only.
    Folders,
}

/// The completions at the cursor.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    /// Candidates, best first.
    pub(crate) candidates: Vec<CompletionCandidate>,
    /// Files that the shell offers.
    pub(crate) files: FileCompletion,
}

/// The position of the cursor in terms of clap's definition.
struct CommandCursor<'c> {
    command: &'c Command,
    /// Names of the nested commands, without `snap`.
    path: Vec<&'c str>,
    /// The option whose value comes next.
    option: Option<&'c Arg>,
    /// Number of positional arguments before the cursor.
    positionals: usize,
    /// The options before the cursor.
    given: Vec<&'c Arg>,
    /// True after `--`.
    only_values: bool,
    /// The value of `--store`.
    store: Option<OsString>,
    /// The first positional argument.
    first: Option<OsString>,
}

/// Returns the completions of the word `current` after the words `before`, without the program's
/// name. `place` has the current folder's store and settings.
pub(crate) fn complete(
    definition: &Command,
    before: &[OsString],
    current: &OsStr,
    place: CompletionContext,
) -> Completions {
    let mut cursor = CommandCursor::new(definition);
    before.iter().for_each(|word| cursor.pass(word));
    let place =
        CompletionContext { store: cursor.store.take().map(Into::into).or(place.store), ..place };
    cursor.answer(current.as_encoded_bytes(), &Values::new(place))
}

impl<'c> CommandCursor<'c> {
    fn new(command: &'c Command) -> Self {
        Self {
            command,
            path: Vec::new(),
            option: None,
            positionals: 0,
            given: Vec::new(),
            only_values: false,
            store: None,
            first: None,
        }
    }

    /// Advances past one word.
    fn pass(&mut self, word: &OsStr) {
        let bytes = word.as_encoded_bytes();
        let looks_like_option = bytes.len() > 1 && bytes[0] == b'-' && !self.only_values;
        if let Some(option) = self.option.take() {
            let optional = option.get_num_args().is_some_and(|range| range.min_values() == 0);
            if !(looks_like_option && (optional || !option.is_allow_hyphen_values_set())) {
                self.note_value(option, word);
                return;
            }
        }
        if !looks_like_option {
            self.pass_value(word);
        } else if bytes == b"--" {
            self.only_values = true;
        } else if let Some((option, value)) = self.long(bytes) {
            self.given.push(option);
            match value {
                Some(value) => self.note_value(option, &from_bytes(value)),
                None => self.option = Some(option).filter(|option| takes_value(option)),
            }
        } else if let Some((option, value)) = self.shorts(bytes) {
            self.given.push(option);
            if value.is_empty() {
                self.option = Some(option).filter(|option| takes_value(option));
            }
        }
    }

    fn pass_value(&mut self, word: &OsStr) {
        let below = word.to_str().filter(|_| self.positionals == 0 && !self.only_values);
        if let Some(command) = below.and_then(|name| self.command.find_subcommand(name)) {
            self.command = command;
            self.path.push(command.get_name());
            return;
        }
        if self.positionals == 0 {
            self.first = Some(word.to_owned());
        }
        self.positionals += 1;
    }

    fn note_value(&mut self, option: &Arg, value: &OsStr) {
        if option.get_id() == "store" {
            self.store = Some(value.to_owned());
        }
    }

    /// Returns the option of `--name` or `--name=value`, and its value.
    fn long<'w>(&self, word: &'w [u8]) -> Option<(&'c Arg, Option<&'w [u8]>)> {
        let word = word.strip_prefix(b"--")?;
        let (name, value) = match word.iter().position(|b| *b == b'=') {
            Some(at) => (&word[..at], Some(&word[at + 1..])),
            None => (word, None),
        };
        let name = std::str::from_utf8(name).ok()?;
        let found = self.command.get_arguments().find(|arg| {
            arg.get_long() == Some(name)
                || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        });
        Some((found?, value))
    }

    /// Returns the last option of `-abc`, and the text after it as its value.
    fn shorts<'w>(&self, word: &'w [u8]) -> Option<(&'c Arg, &'w [u8])> {
        let word = word.strip_prefix(b"-").filter(|rest| !rest.starts_with(b"-"))?;
        let mut last = None;
        for (at, letter) in word.iter().enumerate() {
            let letter = char::from(*letter);
            let option =
                self.command.get_arguments().find(|arg| arg.get_short() == Some(letter))?;
            last = Some((option, &word[at + 1..]));
            if takes_value(option) {
                break;
            }
        }
        last
    }

    fn answer(&self, current: &[u8], values: &Values) -> Completions {
        if !self.only_values && current.starts_with(b"-") {
            return self.options(current, values);
        }
        let Some(option) = self.option else { return self.positional(current, values) };
        let mut answer = self.value_of(option, current, values);
        let optional = option.get_num_args().is_some_and(|range| range.min_values() == 0);
        if optional {
            answer.candidates.extend(self.positional(current, values).candidates);
        }
        answer
    }

    /// Completes a subcommand or the next positional argument.
    fn positional(&self, current: &[u8], values: &Values) -> Completions {
        let mut answer = Completions::default();
        if self.positionals == 0 && !self.only_values {
            let below = self.command.get_subcommands().filter(|command| !command.is_hide_set());
            let below = below.filter(|command| command.get_name().as_bytes().starts_with(current));
            answer.candidates.extend(below.map(|command| {
                CompletionCandidate::new(command.get_name(), text_of(command.get_about()))
            }));
        }
        let due = self.due();
        if let Some(argument) = due {
            let more = self.value_of(argument, current, values);
            answer.candidates.extend(more.candidates);
            answer.files = more.files;
        }
        answer
    }

    /// Returns the positional argument at the cursor.
    fn due(&self) -> Option<&'c Arg> {
        let mut left = self.positionals;
        for argument in self.command.get_positionals() {
            if argument.is_last_set() && !self.only_values {
                return None;
            }
            // An argument that is only given after `--` starts there.
            if argument.is_last_set() {
                return Some(argument);
            }
            let most = argument.get_num_args().map_or(1, |range| range.max_values());
            if left < most {
                return Some(argument);
            }
            left -= most;
        }
        None
    }

    fn options(&self, current: &[u8], values: &Values) -> Completions {
        if let Some((option, Some(value))) = self.long(current) {
            let mut answer = self.value_of(option, value, values);
            let name = &current[..current.len() - value.len()];
            for candidate in &mut answer.candidates {
                candidate.value.splice(..0, name.iter().copied());
            }
            return answer;
        }
        let mut candidates = Vec::new();
        for option in self.command.get_arguments().filter(|arg| !arg.is_positional()) {
            let again = matches!(option.get_action(), ArgAction::Append | ArgAction::Count);
            let given = self.given.iter().any(|given| given.get_id() == option.get_id());
            if option.is_hide_set() || (given && !again) {
                continue;
            }
            let about = text_of(option.get_help());
            if let Some(long) = option.get_long() {
                candidates.push(CompletionCandidate::new(format!("--{long}"), about));
            } else if let Some(short) = option.get_short() {
                candidates.push(CompletionCandidate::new(format!("-{short}"), about));
            }
        }
        candidates.retain(|candidate| candidate.value.starts_with(current));
        Completions { candidates, files: FileCompletion::None }
    }

    fn value_of(&self, argument: &Arg, current: &[u8], values: &Values) -> Completions {
        let possible = argument.get_possible_values();
        if takes_value(argument) && !possible.is_empty() {
            let shown = possible.iter().filter(|value| !value.is_hide_set());
            let shown =
                shown.map(|v| CompletionCandidate::new(v.get_name(), text_of(v.get_help())));
            let mut candidates: Vec<_> = shown.collect();
            candidates.retain(|candidate| candidate.value.starts_with(current));
            return Completions { candidates, files: FileCompletion::None };
        }
        let kind = kind::of(&self.path, argument).unwrap_or(ValueKind::Other);
        values.answer(kind, current, self.first.as_deref())
    }
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

fn text_of(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

fn from_bytes(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(bytes).to_owned()
}

#[cfg(test)]
mod tests;
