//! Converts user and group ids to names and back, with a cache.

use std::{collections::HashMap, ffi::OsStr, os::unix::ffi::OsStrExt, sync::Arc};

use parking_lot::RwLock;

use crate::{base::limits, format::tree::Owner};

/// How a restore chooses the owner of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerMapping {
    /// By the name if this system has it, otherwise by the id.
    #[default]
    ByName,
    /// By the id, without looking up or recording names.
    Numeric,
}

/// The user and the group of a file on this system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerIds {
    pub uid: u32,
    pub gid: u32,
}

/// A cache of owners, safe to use from several threads.
#[derive(Debug, Default)]
pub struct Owners {
    ids: OwnerMapping,
    by_ids: RwLock<HashMap<OwnerIds, Arc<Owner>>>,
    by_owner: RwLock<HashMap<Owner, OwnerIds>>,
}

impl Owners {
    /// Makes an empty cache.
    pub fn new(ids: OwnerMapping) -> Self {
        Self { ids, ..Self::default() }
    }

    /// Returns the owner with these ids; equal pairs share one `Arc`.
    pub fn of(&self, uid: u32, gid: u32) -> Arc<Owner> {
        let ids = OwnerIds { uid, gid };
        let known = self.by_ids.read();
        if let Some(owner) = known.get(&ids) {
            return Arc::clone(owner);
        }
        drop(known);
        let owner = self.look_up(uid, gid);
        let mut known = self.by_ids.write();
        Arc::clone(known.entry(ids).or_insert_with(|| Arc::new(owner)))
    }

    /// Returns the ids of `owner` on this system.
    pub fn resolve(&self, owner: &Owner) -> OwnerIds {
        if self.ids == OwnerMapping::Numeric {
            return OwnerIds { uid: owner.uid, gid: owner.gid };
        }
        let known = self.by_owner.read();
        if let Some(ids) = known.get(owner) {
            return *ids;
        }
        drop(known);
        let user = named(&owner.user).and_then(uzers::get_user_by_name);
        let group = named(&owner.group).and_then(uzers::get_group_by_name);
        let ids = OwnerIds {
            uid: user.map_or(owner.uid, |user| user.uid()),
            gid: group.map_or(owner.gid, |group| group.gid()),
        };
        let mut known = self.by_owner.write();
        known.insert(owner.clone(), ids);
        ids
    }

    /// Returns the name of a user of this system if the user database has it.
    pub fn user_name(uid: u32) -> Option<String> {
        Some(uzers::get_user_by_uid(uid)?.name().to_string_lossy().into_owned())
    }

    fn look_up(&self, uid: u32, gid: u32) -> Owner {
        if self.ids == OwnerMapping::Numeric {
            return Owner { uid, gid, ..Owner::default() };
        }
        // A name that is too long for a tree counts as unknown; the id is kept.
        let name = |name: &OsStr| {
            Some(name.as_bytes()).filter(|name| name.len() <= limits::NAME_BYTES).map(Into::into)
        };
        let user = uzers::get_user_by_uid(uid).and_then(|user| name(user.name()));
        let group = uzers::get_group_by_gid(gid).and_then(|group| name(group.name()));
        Owner { uid, gid, user: user.unwrap_or_default(), group: group.unwrap_or_default() }
    }
}

/// Returns the name for a lookup; `None` if it is empty or has a NUL, which a C string cannot hold.
fn named(name: &[u8]) -> Option<&OsStr> {
    (!name.is_empty() && !name.contains(&0)).then(|| OsStr::from_bytes(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_database_names_users() {
        assert_eq!(Owners::user_name(0).as_deref(), Some("root"));
        assert_eq!(Owners::user_name(u32::MAX - 7), None);
    }

    #[test]
    fn owners_are_cached_by_uid_and_gid() {
        let owners = Owners::default();
        let root = owners.of(0, 0);
        assert_eq!((&*root.user, &*root.group), (&b"root"[..], &b"root"[..]));
        assert!(Arc::ptr_eq(&root, &owners.of(0, 0)));
        let nobody = owners.of(3_999_999_999, 3_999_999_998);
        assert_eq!((&*nobody.user, &*nobody.group), (&b""[..], &b""[..]));
    }

    #[test]
    fn an_owner_name_wins_over_its_number_by_default() {
        let owner =
            Owner { uid: 4242, gid: 4343, user: (*b"root").into(), group: (*b"no such").into() };
        let (recorded, by_name) =
            (OwnerIds { uid: 4242, gid: 4343 }, OwnerIds { uid: 0, gid: 4343 });
        assert_eq!(Owners::default().resolve(&owner), by_name);
        assert_eq!(Owners::default().resolve(&owner), by_name);
        assert_eq!(Owners::new(OwnerMapping::Numeric).resolve(&owner), recorded);
        let odd = Owner { user: (*b"a\0b").into(), ..owner };
        assert_eq!(Owners::default().resolve(&odd), recorded);
    }
}
