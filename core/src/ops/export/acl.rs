//! Access control lists: from the kernel's bytes to the text that tar has.
//!
//! The attributes `system.posix_acl_access` and `system.posix_acl_default` are
//! a version (u32, 2) and entries of tag (u16), permissions (u16) and number
//! (u32), little-endian. GNU tar restores them from the attribute as well, bsdtar
//! from the text only.

use crate::format::tree::Xattr;

const VERSION: u32 = 2;

/// Key and text of the record for an attribute that is an access control list;
/// none for another, and for one that is not as it should be.
pub(super) fn record(xattr: &Xattr) -> Option<(&'static [u8], String)> {
    let key: &[u8] = match &*xattr.name {
        b"system.posix_acl_access" => b"SCHILY.acl.access",
        b"system.posix_acl_default" => b"SCHILY.acl.default",
        _ => return None,
    };
    let (version, entries) = xattr.value.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % 8 != 0 {
        return None;
    }
    let texts: Option<Vec<String>> = entries.as_chunks::<8>().0.iter().map(entry).collect();
    Some((key, texts?.join(",")))
}

fn entry(&[tag, tag_high, may, may_high, number @ ..]: &[u8; 8]) -> Option<String> {
    let (tag, may) = (u16::from_le_bytes([tag, tag_high]), u16::from_le_bytes([may, may_high]));
    let number = u32::from_le_bytes(number);
    let who = match tag {
        0x01 => "user:".to_owned(),
        0x02 => format!("user:{number}"),
        0x04 => "group:".to_owned(),
        0x08 => format!("group:{number}"),
        0x10 => "mask:".to_owned(),
        0x20 => "other:".to_owned(),
        _ => return None,
    };
    let bit = |bit: u16, letter| if may & bit != 0 { letter } else { '-' };
    Some(format!("{who}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(name: &[u8], value: &[u8]) -> Xattr {
        Xattr { name: name.into(), value: value.into() }
    }

    #[test]
    fn a_list_becomes_text() {
        let all = u32::MAX.to_le_bytes();
        let mut value = VERSION.to_le_bytes().to_vec();
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
