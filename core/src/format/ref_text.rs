//! The text of a ref: the commit of a branch or a tag, and a nonce that identifies the last write.
//!
//! Local stores, folders, buckets and servers use the same form. Lines end with `\n`:
//!
//! | line | what                                                              |
//! |------|-------------------------------------------------------------------|
//! | 1    | id of the commit, 64 hex digits; 64 zeros: the ref was deleted    |
//! | 2    | nonce, 32 hex digits: a new random number for each write          |
//! | 3    | epoch of the garbage collection that the writer knew, in decimal  |
//! | 4 …  | reserved: tips that the ref had before. Each line begins with the |
//! |      | id of a commit; after a space more may follow                     |
//!
//! The garbage collection of a remote writes its epoch into each ref before it deletes objects. So a
//! push with an earlier epoch loses its compare-and-swap ([`gc_state`](crate::format::gc_state)). A
//! program overwrites no ref that has a line 4, because the former tips would be lost. The refs of a
//! local store keep the epoch 0, and a program overwrites [no other](RefText::is_writable) there.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    str::FromStr,
};

use crate::{base::id::CommitId, format::wire::FormatError};

/// The commit id in line 1 of a deleted ref.
const DELETED: [u8; 32] = [0; 32];

/// The epoch before any garbage collection of a remote.
pub const FIRST_EPOCH: u64 = 0;

/// A random number that distinguishes one write of a ref from all others.
///
/// Text form: 32 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// Stands for the nonce of a write that a server does not tell apart from others.
    pub const UNKNOWN: Self = Self([0; 16]);

    /// Generates a unique nonce, which is **not** secret.
    pub fn random() -> Self {
        let random = || u128::from(RandomState::new().hash_one(std::process::id()));
        Self((random() << 64 | random()).to_be_bytes())
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for Nonce {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let digits = Some(text).filter(|text| text.len() == 32 && text.bytes().all(is_digit));
        let number = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        let number = number.ok_or(FormatError::Invalid { what: "nonce of a ref", at: 0 })?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// The content of a ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefText {
    /// The commit that the ref points at; `None` if the ref was deleted.
    pub commit: Option<CommitId>,
    /// The nonce of the last write.
    pub nonce: Nonce,
    /// The garbage collection epoch that the writer knew.
    pub epoch: u64,
    /// True if there are further lines, which only later versions understand.
    pub has_more: bool,
}

impl RefText {
    /// Creates the content for a write, with a new nonce. `None` deletes the ref.
    pub fn new(commit: Option<CommitId>) -> Self {
        Self { commit, nonce: Nonce::random(), epoch: FIRST_EPOCH, has_more: false }
    }

    /// Returns true if this version may overwrite a ref of a local store with this content.
    pub fn is_writable(&self) -> bool {
        self.epoch == FIRST_EPOCH && !self.has_more
    }

    /// Encodes three lines. Does not encode further lines.
    pub fn encode(&self) -> String {
        format!("{}\n{}\n{}\n", self.line(), self.nonce, self.epoch)
    }

    /// Decodes the text of a ref.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] with the offset of the invalid line.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let wrong = |what, at| FormatError::Invalid { what, at };
        let text = str::from_utf8(bytes).map_err(|_| wrong("text of a ref", 0))?;
        let mut at = 0;
        let mut rest = text;
        let mut line = |what| {
            let (line, others) = rest.split_once('\n').ok_or_else(|| wrong(what, at))?;
            rest = others;
            let start = at;
            at += line.len() + 1;
            Ok((line, start))
        };
        let (commit, start) = line("commit id of a ref")?;
        let commit: CommitId = commit.parse().map_err(|_| wrong("commit id of a ref", start))?;
        let commit = (*commit.as_bytes() != DELETED).then_some(commit);
        let (nonce, start) = line("nonce of a ref")?;
        let nonce = nonce.parse().map_err(|_| wrong("nonce of a ref", start))?;
        let (epoch, start) = line("epoch of a ref")?;
        let number = epoch.parse::<u64>().ok().filter(|number| number.to_string() == epoch);
        let epoch = number.ok_or_else(|| wrong("epoch of a ref", start))?;
        // Refuse lines in any other form: the ref is damaged, and a push may overwrite it.
        let is_whole = rest.is_empty() || rest.ends_with('\n');
        match is_whole && rest.lines().all(is_former_tip) {
            true => Ok(Self { commit, nonce, epoch, has_more: !rest.is_empty() }),
            false => Err(wrong("former tips of a ref", at)),
        }
    }

    /// Returns the ETag of the ref: commit, epoch and nonce.
    pub fn tag(&self) -> String {
        format!("{}-{}-{}", self.line(), self.epoch, self.nonce)
    }

    /// Parses an ETag.
    ///
    /// # Errors
    /// [`FormatError::Invalid`].
    pub fn from_tag(tag: &str) -> Result<Self, FormatError> {
        let wrong = FormatError::Invalid { what: "ETag of a ref", at: 0 };
        let [commit, epoch, nonce] = *tag.split('-').collect::<Vec<_>>() else { return Err(wrong) };
        let lines = format!("{commit}\n{nonce}\n{epoch}\n");
        Self::decode(lines.as_bytes()).ok().filter(|read| read.tag() == tag).ok_or(wrong)
    }

    fn line(&self) -> String {
        self.commit.unwrap_or(CommitId::from_bytes(DELETED)).to_string()
    }
}

/// Returns true if a line begins with the id of a commit.
fn is_former_tip(line: &str) -> bool {
    let id = line.split(' ').next().unwrap_or(line);
    id.parse::<CommitId>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "0123456789abcdef0123456789abcdef";

    fn commit() -> CommitId {
        CommitId::of(b"a commit")
    }

    #[test]
    fn a_ref_is_encoded_as_three_lines() {
        let text = RefText { nonce: NONCE.parse().unwrap(), ..RefText::new(Some(commit())) };
        let bytes = format!("{}\n{NONCE}\n0\n", commit());
        assert_eq!(text.encode(), bytes);
        assert_eq!(RefText::decode(bytes.as_bytes()).unwrap(), text);
        assert_eq!(text.tag(), format!("{}-0-{NONCE}", commit()));
        let deleted = RefText { commit: None, ..text };
        let bytes = format!("{}\n{NONCE}\n0\n", "0".repeat(64));
        assert_eq!(deleted.encode(), bytes);
        assert_eq!(RefText::decode(bytes.as_bytes()).unwrap(), deleted);
        assert_ne!(RefText::new(None).nonce, RefText::new(None).nonce);
        for text in [deleted, RefText::new(Some(commit()))] {
            assert_eq!(RefText::from_tag(&text.tag()).unwrap(), text);
        }
        let commit = commit().to_string();
        for tag in
            ["", "x", "-0-", &commit, &format!("{commit}-0"), &format!("{commit}-0-{NONCE}0")]
        {
            assert!(RefText::from_tag(tag).is_err(), "{tag}");
        }
    }

    #[test]
    fn refs_of_a_newer_version_are_read_only() {
        let later = RefText::decode(format!("{}\n{NONCE}\n7\n", commit()).as_bytes()).unwrap();
        assert_eq!((later.commit, later.epoch, later.is_writable()), (Some(commit()), 7, false));
        let tips = format!("{0}\n{NONCE}\n0\n{0} 1795248000\n", commit());
        let tips = RefText::decode(tips.as_bytes()).unwrap();
        assert_eq!((tips.commit, tips.has_more, tips.is_writable()), (Some(commit()), true, false));
    }

    #[test]
    fn malformed_refs_are_refused() {
        let commit = commit();
        for text in [
            String::new(),
            "\n".to_owned(),
            commit.to_string(),
            format!("{commit}\n"),
            format!("{commit}\n{NONCE}\n"),
            format!("{commit}0\n"),
            format!("{}\n", commit.to_string().to_uppercase()),
            format!("ref: {commit}\n"),
            format!("{commit}\r\n"),
            format!("{commit}\n\n"),
            format!("{commit}\n{NONCE}"),
            format!("{commit}\n{}\n", NONCE.to_uppercase()),
            format!("{commit}\n+{}\n", &NONCE[1..]),
            format!("{commit}\n{NONCE}\n0"),
            format!("{commit}\n{NONCE}\n\n"),
            format!("{commit}\n{NONCE}\n00\n"),
            format!("{commit}\n{NONCE}\n+1\n"),
            format!("{commit}\n{NONCE}\n18446744073709551616\n"),
            format!("{commit}\n{NONCE}\n0\n\0"),
            format!("{commit}\n{NONCE}\n0\nxyz\n"),
            format!("{commit}\n{NONCE}\n0\n{commit}"),
            format!("{commit}\n{NONCE}\n0\n{commit}0 1\n"),
            format!("{commit}\n{NONCE}\n0\n{commit} 1\n\n"),
        ] {
            assert!(RefText::decode(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
