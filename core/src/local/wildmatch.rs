//! Wildcards as git reads them: <https://git-scm.com/docs/gitignore>.
//!
//! | text      | matches                                                             |
//! |-----------|---------------------------------------------------------------------|
//! | `?`       | one byte except `/`                                                 |
//! | `*`       | any bytes except `/`                                                |
//! | `**/`     | nothing, or any folders; at the start or after a `/`                |
//! | `**`      | anything; at the end, or before an escaped `/`, after a `/`         |
//! | `[a-c]`   | one byte of the class except `/`; `!` or `^` at the front negates it |
//! | `\x`      | `x`                                                                 |
//!
//! The comparison takes at most time in proportion to the length of the pattern times the square of
//! that of the text. A later asterisk can take over whatever an earlier one could still match, so
//! only the last `*` of a name and the last `**` are ever extended.

use std::ops::Range;

/// How letters are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letters {
    Exact,
    /// ASCII letters are equal to those of the other case.
    IgnoreCase,
}

impl Letters {
    /// Returns true if two bytes are equal.
    fn are_equal(self, one: u8, other: u8) -> bool {
        one == other || self == Self::IgnoreCase && one.eq_ignore_ascii_case(&other)
    }

    /// Returns true if two texts are equal.
    pub(crate) fn agree(self, one: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Exact => one == other,
            Self::IgnoreCase => one.eq_ignore_ascii_case(other),
        }
    }
}

/// An asterisk that can match more.
#[derive(Clone, Copy)]
struct Extension {
    /// Position after the asterisk in the pattern.
    pattern: usize,
    /// Position after its match in the text.
    text: usize,
    /// True for `**/`, which matches whole folders.
    is_folders: bool,
}

/// Returns true if a pattern matches the whole text.
pub(crate) fn matches(pattern: &[u8], text: &[u8], letters: Letters) -> bool {
    let (mut at, mut text_at) = (0, 0);
    let (mut star, mut deep) = (None::<Extension>, None::<Extension>);
    loop {
        if let Some(run) = asterisks(pattern, at) {
            at = run.end;
            let new = Extension { pattern: at, text: text_at, is_folders: run.is_folders };
            if run.is_deep {
                (star, deep) = (None, Some(new));
            } else {
                star = Some(new);
            }
            continue;
        }
        match (pattern.get(at), text.get(text_at)) {
            (None, None) => return true,
            (Some(_), Some(byte)) => {
                if let Some(length) = one(&pattern[at..], *byte, letters) {
                    at += length;
                    text_at += 1;
                    continue;
                }
            }
            _ => {}
        }
        // Extend the last asterisk that can match more.
        let next_of_star =
            star.filter(|star| text.get(star.text).is_some_and(|byte| *byte != b'/'));
        if let Some(last) = next_of_star {
            text_at = last.text + 1;
            at = last.pattern;
            star = Some(Extension { text: text_at, ..last });
            continue;
        }
        let Some(last) = deep else { return false };
        let rest = text.get(last.text..).unwrap_or_default();
        let skipped = match last.is_folders {
            true => rest.iter().position(|byte| *byte == b'/').map(|slash| slash + 1),
            false => (!rest.is_empty()).then_some(1),
        };
        let Some(skipped) = skipped else { return false };
        text_at = last.text + skipped;
        at = last.pattern;
        (star, deep) = (None, Some(Extension { text: text_at, ..last }));
    }
}

/// A run of asterisks in a pattern.
struct Asterisks {
    /// Position after it, and after the `/` of a `**/`.
    end: usize,
    /// True if it also matches `/`.
    is_deep: bool,
    /// True for `**/`.
    is_folders: bool,
}

/// Reads the run of asterisks at a position, if there is one.
fn asterisks(pattern: &[u8], at: usize) -> Option<Asterisks> {
    let count = pattern.get(at..)?.iter().take_while(|byte| **byte == b'*').count();
    let (end, rest) = (at + count, pattern.get(at + count..)?);
    let begins_name = at == 0 || pattern[at - 1] == b'/';
    let ends_name = rest.is_empty() || rest.starts_with(b"/") || rest.starts_with(b"\\/");
    let is_deep = count > 1 && begins_name && ends_name;
    let is_folders = is_deep && rest.starts_with(b"/");
    (count > 0).then_some(Asterisks { end: end + usize::from(is_folders), is_deep, is_folders })
}

/// Compares a byte with the start of a pattern, which is not an asterisk. Returns the length of that
/// part of the pattern if they match.
fn one(pattern: &[u8], byte: u8, letters: Letters) -> Option<usize> {
    let (is_match, length) = match pattern {
        [b'?', ..] => (byte != b'/', 1),
        [b'[', class @ ..] => {
            let (is_member, length) = class_has(class, byte, letters)?;
            (is_member && byte != b'/', length + 1)
        }
        [b'\\', escaped, ..] => (letters.are_equal(*escaped, byte), 2),
        [b'\\'] | [] => (false, 1),
        [literal, ..] => (letters.are_equal(*literal, byte), 1),
    };
    is_match.then_some(length)
}

/// A function that tests if a byte is in a named class.
type IsIn = fn(&u8) -> bool;

/// Named classes and their members.
const NAMED: [(&[u8], IsIn); 12] = [
    (b"alnum", u8::is_ascii_alphanumeric),
    (b"alpha", u8::is_ascii_alphabetic),
    (b"blank", |byte| matches!(byte, b' ' | b'\t')),
    (b"cntrl", u8::is_ascii_control),
    (b"digit", u8::is_ascii_digit),
    (b"graph", u8::is_ascii_graphic),
    (b"lower", u8::is_ascii_lowercase),
    (b"print", |byte| byte.is_ascii_graphic() || *byte == b' '),
    (b"punct", u8::is_ascii_punctuation),
    (b"space", |byte| byte.is_ascii_whitespace() || *byte == 0x0b),
    (b"upper", u8::is_ascii_uppercase),
    (b"xdigit", u8::is_ascii_hexdigit),
];

/// Returns true if the class after a `[` has a byte, and the length of the class with its `]`.
/// Returns `None` if git matches nothing with the class: it has no end, or an unknown named class.
fn class_has(class: &[u8], byte: u8, letters: Letters) -> Option<(bool, usize)> {
    let is_negated = matches!(class.first(), Some(b'!' | b'^'));
    let start = usize::from(is_negated);
    let (lower, upper) = (byte.to_ascii_lowercase(), byte.to_ascii_uppercase());
    let is_it = |is_in: &dyn Fn(u8) -> bool| match letters {
        Letters::Exact => is_in(byte),
        Letters::IgnoreCase => is_in(lower) || is_in(upper),
    };
    let (mut at, mut has) = (start, false);
    loop {
        let first = *class.get(at)?;
        if first == b']' && at > start {
            return Some((has != is_negated, at + 1));
        }
        if let Some(named) = class[at..].strip_prefix(b"[:") {
            let length = named.iter().position(|byte| *byte == b']')?;
            // Without `:]`, the `[` is a member.
            if let Some(name) = named[..length].strip_suffix(b":") {
                let (_, is_in) = NAMED.iter().find(|(known, _)| *known == name)?;
                has |= is_it(&|byte| is_in(&byte));
                at += length + 3;
                continue;
            }
        }
        let (first, next) = member(class, at)?;
        let is_range = class.get(next) == Some(&b'-') && *class.get(next + 1)? != b']';
        let (last, next) = if is_range { member(class, next + 1)? } else { (first, next) };
        // The first byte of a range is a member even if the range is empty.
        has |= is_it(&|byte| byte == first || (first..=last).contains(&byte));
        at = next;
    }
}

/// Returns the member of a class at a position, without its escape, and the position after it.
fn member(class: &[u8], at: usize) -> Option<(u8, usize)> {
    let escaped = usize::from(class.get(at) == Some(&b'\\'));
    Some((*class.get(at + escaped)?, at + escaped + 1))
}

/// The bytes that every match of a pattern has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Literals {
    /// Length of the literal start of the pattern.
    pub(crate) start_bytes: usize,
    /// Length of the literal end of the pattern, at most the part after the last wildcard.
    pub(crate) end_bytes: usize,
    /// The longest literal part after the start.
    pub(crate) inner: Range<usize>,
}

/// Returns the literal parts of a pattern; `None` if the pattern matches nothing. What follows the
/// literal start may be compared on its own.
pub(crate) fn literals(pattern: &[u8]) -> Option<Literals> {
    let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    let start_bytes = pattern.iter().position(is_special).unwrap_or(pattern.len());
    let rest = &pattern[start_bytes..];
    if rest.is_empty() {
        return Some(Literals { start_bytes, end_bytes: start_bytes, inner: 0..0 });
    }
    let (mut at, mut part_begins, mut inner) = (0, 0, 0..0);
    while at < rest.len() {
        if let Some(run) = asterisks(rest, at) {
            (at, part_begins) = (run.end, run.end);
            continue;
        }
        let special_bytes = match &rest[at..] {
            [b'[', class @ ..] => class_bytes(class)? + 1,
            [b'\\'] => return None,
            [b'\\', ..] => 2,
            [b'?', ..] => 1,
            _ => {
                at += 1;
                if at - part_begins > inner.len() {
                    inner = start_bytes + part_begins..start_bytes + at;
                }
                continue;
            }
        };
        at += special_bytes;
        part_begins = at;
    }
    Some(Literals { start_bytes, end_bytes: rest.len() - part_begins, inner })
}

/// Returns the length of a class after its `[`; `None` if it matches nothing.
fn class_bytes(class: &[u8]) -> Option<usize> {
    let has = |byte| class_has(class, byte, Letters::Exact);
    let (_, length) = has(0)?;
    let text = &class[..length];
    // Only a class of slashes has no member.
    let is_negated = matches!(text.first(), Some(b'!' | b'^'));
    let is_named = text.windows(2).any(|pair| pair == b"[:");
    let mut bytes = text.iter().filter(|byte| **byte != b'/');
    let has_member =
        is_negated || is_named || bytes.any(|byte| has(*byte).is_some_and(|has| has.0));
    has_member.then_some(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, which tries all ways to divide the text.
    fn slow(pattern: &[u8], at: usize, text: &[u8]) -> bool {
        if let Some(run) = asterisks(pattern, at) {
            let ends = (0..=text.len()).filter(|end| match (run.is_folders, run.is_deep) {
                (true, _) => *end == 0 || text[end - 1] == b'/',
                (_, true) => true,
                _ => !text[..*end].contains(&b'/'),
            });
            return ends.into_iter().any(|end| slow(pattern, run.end, &text[end..]));
        }
        match (pattern.get(at..), text) {
            (Some([]) | None, []) => true,
            (Some(rest), [byte, more @ ..]) if !rest.is_empty() => one(rest, *byte, Letters::Exact)
                .is_some_and(|length| slow(pattern, at + length, more)),
            _ => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn extending_the_last_asterisks_is_enough(
            pattern in r"(a|b|\*|\*\*|\*\*/|/|\?|\[ab\]|\\a|\\/){0,8}",
            text in "[ab/]{0,10}",
        ) {
            let fast = matches(pattern.as_bytes(), text.as_bytes(), Letters::Exact);
            prop_assert_eq!(fast, slow(pattern.as_bytes(), 0, text.as_bytes()));
            if fast {
                let Literals { start_bytes, end_bytes, inner } = literals(pattern.as_bytes()).unwrap();
                prop_assert!(text.contains(&pattern[inner]));
                prop_assert!(text.starts_with(&pattern[..start_bytes]));
                prop_assert!(text.ends_with(&pattern[pattern.len() - end_bytes..]));
            }
        }
    }

    #[test]
    fn classes_ignore_case_on_request() {
        for (pattern, text, exact, folded) in [
            ("[a-c]x", "Bx", false, true),
            ("[A-C]x", "bx", false, true),
            ("[[:upper:]]", "q", false, true),
            ("[!a]", "A", true, false),
            ("a?B", "A-b", false, true),
            ("[1-3]", "2", true, true),
        ] {
            let [pattern, text] = [pattern, text].map(str::as_bytes);
            assert_eq!(matches(pattern, text, Letters::Exact), exact);
            assert_eq!(matches(pattern, text, Letters::IgnoreCase), folded);
        }
    }

    #[test]
    fn a_costly_pattern_takes_bounded_time() {
        let pattern = "**/".repeat(250) + "*a*b*a*b*c";
        let text = "ab/".repeat(1300);
        assert!(!matches(pattern.as_bytes(), text.as_bytes(), Letters::Exact));
    }
}
