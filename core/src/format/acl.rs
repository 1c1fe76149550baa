//! POSIX access control lists, as Linux stores them in the extended attributes
//! `system.posix_acl_access` and `system.posix_acl_default`.
//!
//! | field   | form | meaning                                          |
//! |---------|------|--------------------------------------------------|
//! | version | u32  | 2                                                |
//! | entries | 8    | back to back: tag u16, permissions u16, id u32   |
//!
//! Integers are little-endian; permissions are 4 read, 2 write, 1 execute.

use crate::format::tree::Metadata;

/// The attribute with the access control list of an entry.
pub const ACCESS: &[u8] = b"system.posix_acl_access";

/// The attribute of a folder with the access control list that new entries inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;

/// The subject of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The owner of the file.
    Owner,
    /// The user with this id.
    User(u32),
    /// The group of the file.
    OwningGroup,
    /// The group with this id.
    Group(u32),
    /// Upper bound for the permissions of named users, named groups and the group of the file.
    Mask,
    /// All other users.
    Others,
}

/// One rule of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub subject: Subject,
    /// Permissions: three bits, as in a mode.
    pub bits: u16,
}

/// Decodes the value of an attribute. Returns `None` if the value is not a valid list.
pub fn decode(value: &[u8]) -> Option<Vec<Rule>> {
    let (version, entries) = value.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % 8 != 0 {
        return None;
    }
    entries.as_chunks::<8>().0.iter().map(rule).collect()
}

fn rule(&[tag, tag_high, may, may_high, number @ ..]: &[u8; 8]) -> Option<Rule> {
    let number = u32::from_le_bytes(number);
    let subject = match u16::from_le_bytes([tag, tag_high]) {
        0x01 => Subject::Owner,
        0x02 => Subject::User(number),
        0x04 => Subject::OwningGroup,
        0x08 => Subject::Group(number),
        0x10 => Subject::Mask,
        0x20 => Subject::Others,
        _ => return None,
    };
    Some(Rule { subject, bits: u16::from_le_bytes([may, may_high]) & 0o7 })
}

impl Metadata {
    /// Returns a mode that grants no additional rights to an entry without its access control list.
    ///
    /// The group bits of an entry with a list are the mask of the list, the upper bound for all
    /// named users and groups. Without the list, the group bits are the rights of the owning group.
    /// So the group bits of the result are the rights that the list grants to that group, or none
    /// if the list is invalid.
    pub fn mode_without_acl(&self) -> u16 {
        let Some(list) = self.xattrs.iter().find(|xattr| *xattr.name == *ACCESS) else {
            return self.mode;
        };
        let rules = decode(&list.value).unwrap_or_default();
        let bits = |wanted| rules.iter().find(|rule| rule.subject == wanted).map(|rule| rule.bits);
        let group = bits(Subject::OwningGroup).unwrap_or(0) & bits(Subject::Mask).unwrap_or(0o7);
        self.mode & (!0o070 | group << 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tree::Xattr;

    /// Makes a list of rules from tags and permissions.
    fn list(rules: &[(u8, u8)]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, may) in rules {
            value.extend([*tag, 0, *may, 0, 0xff, 0xff, 0xff, 0xff]);
        }
        value
    }

    fn mode_without(value: Vec<u8>, mode: u16) -> u16 {
        let xattrs = vec![Xattr { name: ACCESS.into(), value: value.into() }];
        Metadata { mode, xattrs, ..Metadata::default() }.mode_without_acl()
    }

    #[test]
    fn the_mode_without_an_acl_grants_no_more_than_the_acl() {
        // The mask is rwx for a named user, and the owning group may read.
        let for_user = list(&[(1, 6), (2, 7), (4, 4), (16, 7), (32, 0)]);
        assert_eq!(mode_without(for_user, 0o670), 0o640);
        // The mask restricts the owning group.
        let masked = list(&[(1, 6), (4, 7), (16, 4), (32, 0)]);
        assert_eq!(mode_without(masked, 0o640), 0o640);
        let nothing = list(&[(1, 6), (2, 7), (4, 0), (16, 7), (32, 0)]);
        assert_eq!(mode_without(nothing, 0o4670), 0o4600);
        // Without a mask, the rules are the same as the mode.
        assert_eq!(mode_without(list(&[(1, 6), (4, 4), (32, 4)]), 0o644), 0o644);
        for broken in [Vec::new(), b"\x03\0\0\0".to_vec(), list(&[(9, 7)])] {
            assert_eq!(mode_without(broken, 0o664), 0o604);
        }
        let plain = Metadata { mode: 0o664, ..Metadata::default() };
        assert_eq!(plain.mode_without_acl(), 0o664);
    }
}
