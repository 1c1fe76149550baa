//! Converts access control lists from the kernel's binary form to the text form of tar.
//!
//! GNU tar also restores a list from its extended attribute; bsdtar restores it only from
//! the text.

use crate::format::{
    acl::{self, Rule, Subject},
    tree::Xattr,
};

/// Returns key and text of the pax record for an attribute. Returns `None` if the
/// attribute is not a valid access control list.
pub(super) fn record(xattr: &Xattr) -> Option<(&'static [u8], String)> {
    let key: &[u8] = match &*xattr.name {
        acl::ACCESS => b"SCHILY.acl.access",
        acl::DEFAULT => b"SCHILY.acl.default",
        _ => return None,
    };
    let texts: Vec<String> = acl::decode(&xattr.value)?.iter().map(text).collect();
    Some((key, texts.join(",")))
}

fn text(Rule { subject, bits }: &Rule) -> String {
    let who = match subject {
        Subject::Owner => "user:".to_owned(),
        Subject::User(number) => format!("user:{number}"),
        Subject::OwningGroup => "group:".to_owned(),
        Subject::Group(number) => format!("group:{number}"),
        Subject::Mask => "mask:".to_owned(),
        Subject::Others => "other:".to_owned(),
    };
    let bit = |bit: u16, letter| if bits & bit != 0 { letter } else { '-' };
    format!("{who}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(name: &[u8], value: &[u8]) -> Xattr {
        Xattr { name: name.into(), value: value.into() }
    }

    #[test]
    fn an_acl_is_formatted_as_text() {
        let all = u32::MAX.to_le_bytes();
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, may, number) in
            [(1, 6, all), (2, 7, 1000_u32.to_le_bytes()), (4, 4, all), (16, 7, all), (32, 0, all)]
        {
            value.extend([tag, 0, may, 0]);
            value.extend(number);
        }
        let (key, text) = record(&acl(b"system.posix_acl_default", &value)).unwrap();
        assert_eq!(key, b"SCHILY.acl.default");
        assert_eq!(text, "user::rw-,user:1000:rwx,group::r--,mask::rwx,other::---");
        assert!(record(&acl(b"user.x", &value)).is_none());
        for bad in [&value[..3], &value[..11], b"\x03\0\0\0", b"\x02\0\0\0\x09\0\0\0\0\0\0\0"] {
            assert!(record(&acl(b"system.posix_acl_access", bad)).is_none());
        }
    }
}
