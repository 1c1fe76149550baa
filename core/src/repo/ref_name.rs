//! Names of branches and tags. The checks ensure that a name can be a file name and does not look
//! like another part of a revision.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::base::limits;

/// Words that have another meaning in a revision.
const RESERVED: [&str; 3] = ["HEAD", "latest", "@"];

/// First components that name the kind of a ref, as in `heads/main`.
const QUALIFIERS: [&str; 4] = ["refs", "heads", "tags", "remotes"];

/// Minimum length of a name of hex digits that counts as a shortened id; such names are refused. A
/// revision reads shorter ones (`feed`, `20261101`) as names, not as id prefixes.
const ID_LIKE_DIGITS: usize = 12;

/// The kind of a ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefKind {
    /// A ref that moves with each commit on it.
    Branch,
    /// A ref that does not move.
    Tag,
    /// A remote-tracking branch, `REMOTE/BRANCH`: the branch of the remote at the last fetch or
    /// push.
    Remote,
}

impl RefKind {
    /// Returns the name of its folder below `refs/`.
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Branch => "heads",
            Self::Tag => "tags",
            Self::Remote => "remotes",
        }
    }

    /// Returns the kind whose folder below `refs/` has this name.
    pub fn of_folder(folder: &str) -> Option<Self> {
        [Self::Branch, Self::Tag, Self::Remote].into_iter().find(|kind| kind.folder() == folder)
    }

    /// Returns the noun for messages.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Tag => "tag",
            Self::Remote => "remote branch",
        }
    }
}

/// A checked name of a branch or a tag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName {
    kind: RefKind,
    name: Box<str>,
}

/// Why a text cannot be the name of a ref.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a valid name of a {}: {rule}", kind.noun())]
pub struct RefNameError {
    /// The kind of ref to be named.
    pub kind: RefKind,
    /// The rejected text.
    pub name: String,
    /// The rule that the text breaks.
    pub rule: &'static str,
}

impl RefName {
    /// Checks `name` and makes a ref name of it.
    ///
    /// # Errors
    /// [`RefNameError`] names the rule that `name` breaks.
    pub fn new(kind: RefKind, name: &str) -> Result<Self, RefNameError> {
        match broken_rule(name) {
            None => Ok(Self { kind, name: name.into() }),
            Some(rule) => Err(RefNameError { kind, name: name.to_owned(), rule }),
        }
    }

    /// Checks that a new ref may have this name: it must not contain invisible characters, or
    /// characters that change how other characters look. Snap can still read, move and delete
    /// existing refs with such names.
    ///
    /// # Errors
    /// [`RefNameError`].
    pub fn check_new(&self) -> Result<(), RefNameError> {
        if !self.name.contains(is_unseen) {
            return Ok(());
        }
        let rule = "it contains an invisible character or one that changes the text direction";
        Err(RefNameError { kind: self.kind, name: self.name.to_string(), rule })
    }

    /// Makes the name of a branch.
    ///
    /// # Errors
    /// As [`RefName::new`].
    pub fn branch(name: &str) -> Result<Self, RefNameError> {
        Self::new(RefKind::Branch, name)
    }

    /// Makes the name of a tag.
    ///
    /// # Errors
    /// As [`RefName::new`].
    pub fn tag(name: &str) -> Result<Self, RefNameError> {
        Self::new(RefKind::Tag, name)
    }

    /// Makes the name of a remote-tracking branch.
    ///
    /// # Errors
    /// As [`RefName::new`].
    pub fn remote(remote: &str, branch: &str) -> Result<Self, RefNameError> {
        Self::new(RefKind::Remote, &format!("{remote}/{branch}"))
    }

    /// Parses `refs/heads/NAME`, `refs/tags/NAME` or `refs/remotes/NAME`.
    pub fn parse_full(text: &str) -> Option<Self> {
        let (folder, name) = text.strip_prefix("refs/")?.split_once('/')?;
        Self::new(RefKind::of_folder(folder)?, name).ok()
    }

    /// Returns the kind of the ref.
    pub const fn kind(&self) -> RefKind {
        self.kind
    }

    /// Returns the short name, without `refs/heads/`.
    pub const fn short(&self) -> &str {
        &self.name
    }

    /// Returns true if the two refs cannot both exist: the path of one file would be a folder on
    /// the path of the other.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let lies_in = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
        };
        let (one, other_one) = (self.short(), other.short());
        self.kind == other.kind && (lies_in(one, other_one) || lies_in(other_one, one))
    }

    /// Returns the path of the ref's file in the store at `store`.
    pub fn file(&self, store: &Path) -> PathBuf {
        store.join("refs").join(self.kind.folder()).join(&*self.name)
    }

    /// Returns the path of the ref's log in the store at `store`.
    pub fn log_file(&self, store: &Path) -> PathBuf {
        store.join("logs").join(format!("{self}.log"))
    }
}

/// The full form, `refs/heads/NAME`.
impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refs/{}/{}", self.kind.folder(), self.name)
    }
}

/// A movable reference: `HEAD`, a branch or a tag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pointer {
    /// `HEAD` itself, not the branch that it names.
    Head,
    /// A branch or a tag.
    Ref(RefName),
}

/// `HEAD`, or the full form of a name.
impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head => f.write_str("HEAD"),
            Self::Ref(name) => name.fmt(f),
        }
    }
}

impl Pointer {
    /// Returns the branch or tag; `None` for `HEAD`.
    pub fn name(&self) -> Option<&RefName> {
        match self {
            Self::Head => None,
            Self::Ref(name) => Some(name),
        }
    }

    /// Returns the form for messages: `HEAD`, or for example "branch `main`".
    pub fn shown(&self) -> String {
        match self {
            Self::Head => "HEAD".to_owned(),
            Self::Ref(name) => format!("{} `{}`", name.kind().noun(), name.short()),
        }
    }
}

/// Returns true if a character is invisible, or changes how a terminal or a browser shows other
/// characters: line ends, direction marks, and most format characters of Unicode. Joiners are
/// allowed, because some scripts need them within words.
fn is_unseen(c: char) -> bool {
    let ranges = [
        '\u{ad}'..='\u{ad}',
        '\u{61c}'..='\u{61c}',
        '\u{180e}'..='\u{180e}',
        '\u{200b}'..='\u{200b}',
        '\u{200e}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{fff9}'..='\u{fffb}',
        '\u{feff}'..='\u{feff}',
        '\u{e0000}'..='\u{e007f}',
    ];
    c.is_control() || ranges.iter().any(|range| range.contains(&c))
}

fn broken_rule(name: &str) -> Option<&'static str> {
    let special = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    let rules = [
        (name.is_empty(), "it is empty"),
        (name.len() > limits::REF_NAME_BYTES, "it has more than 200 bytes"),
        (name.starts_with('-'), "it starts with a dash"),
        (
            name.contains(special),
            "it contains a space, a control character or one of ~ ^ : ? * [ \\",
        ),
        (name.contains("..") || name.ends_with('.'), "it contains `..` or ends with a dot"),
        (name.contains("@{"), "it contains `@{`"),
        (RESERVED.contains(&name), "the word is reserved in revisions"),
        (is_id_like(name), "it looks like a commit id"),
    ];
    let whole = rules.into_iter().find_map(|(broken, rule)| broken.then_some(rule));
    whole.or_else(|| broken_component_rule(name))
}

fn is_id_like(name: &str) -> bool {
    (ID_LIKE_DIGITS..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_hexdigit())
}

fn broken_component_rule(name: &str) -> Option<&'static str> {
    let components: Vec<&str> = name.split('/').collect();
    if QUALIFIERS.contains(&components[0]) && components.len() > 1 {
        return Some("its first part is `refs`, `heads`, `tags` or `remotes`");
    }
    let last = components.len() - 1;
    components.iter().enumerate().find_map(|(at, part)| {
        let rules = [
            (part.is_empty(), "it starts or ends with a slash or contains two in a row"),
            (part.starts_with('.'), "a part of it starts with a dot"),
            (part.ends_with(".lock"), "a part of it ends with `.lock`"),
            // The folder `a.log` of the branch `a.log/b` would have the path of the log of `a`.
            (at < last && part.ends_with(".log"), "the name of a folder in it ends with `.log`"),
        ];
        rules.into_iter().find_map(|(broken, rule)| broken.then_some(rule))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ref_name_conflicts_with_the_folder_of_another_ref() {
        let [a, inner, longer] = ["a", "a/b", "ab"].map(|name| RefName::branch(name).unwrap());
        assert!(a.conflicts_with(&inner) && inner.conflicts_with(&a));
        assert!(!a.conflicts_with(&longer) && !a.conflicts_with(&a));
        assert!(!RefName::tag("a").unwrap().conflicts_with(&inner));
    }

    #[test]
    fn names_that_git_would_refuse_are_refused() {
        for name in [
            "",
            "-x",
            "a b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\",
            "a..b",
            "a.",
            "a@{b",
            "@",
            "HEAD",
            "latest",
            ".a",
            "a/.b",
            "a/",
            "/a",
            "a//b",
            "a.lock",
            "a.lock/b",
            "a\nb",
            "a\0b",
            "heads/a",
            "tags/a",
            "refs/heads/a",
            "remotes/a",
            "a.log/b",
            "0123456789ab",
            &"a".repeat(64),
            &"é".repeat(101),
        ] {
            assert!(RefName::branch(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_new_name_has_no_invisible_characters() {
        for c in ["\u{202e}", "\u{2066}", "\u{200b}", "\u{feff}", "\u{ad}", "\u{e0041}"] {
            for name in [c.to_owned(), format!("a{c}b"), format!("a/{c}")] {
                // Snap can read an existing ref of this name.
                let name = RefName::branch(&name).unwrap();
                assert!(name.check_new().is_err(), "{name:?}");
            }
        }
        for name in ["main", "é", "日本/語", "سلام", "می\u{200c}خواهم"] {
            assert_eq!(RefName::branch(name).unwrap().check_new(), Ok(()));
        }
    }

    #[test]
    fn usual_names_are_accepted() {
        for name in ["main", "feature/x-1", "v1.2.3", "a@b", "20261101", "é", "heads", "x.log"] {
            let branch = RefName::branch(name).unwrap();
            assert_eq!(RefName::parse_full(&branch.to_string()), Some(branch));
        }
    }
}
