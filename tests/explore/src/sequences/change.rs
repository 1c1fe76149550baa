//! Changes from outside the program: edits of files, mounts, and packs that a disk loses or
//! damages.

use std::path::Path;

use fs_err as fs;

use crate::sequences::{
    check::{note_damage, packs},
    execute::Execution,
    files::{self, is_within},
    model::{Damage, Rules},
    operation::{DamageKind, FileOp, MountKind, Place, victim_from},
};

impl Execution {
    /// Changes a file. Returns an error if the present files do not allow the change.
    pub(crate) fn change_file(&mut self, place: Place, op: &FileOp) -> std::io::Result<()> {
        let folder = self.world.folder(place);
        let at = |path: &str| folder.join(path);
        match op {
            FileOp::Write(path, filling) => files::write(&at(path), *filling),
            FileOp::Rewrite(path, filling, keep) => files::rewrite(&at(path), *filling, *keep),
            FileOp::Rename(from, to) => {
                if let Some(parent) = at(to).parent() {
                    fs::create_dir_all(parent)?;
                }
                fs::rename(at(from), at(to))
            }
            FileOp::Link(from, to) if from == to => Ok(()),
            FileOp::Link(from, to) => {
                if let Some(parent) = at(to).parent() {
                    fs::create_dir_all(parent)?;
                }
                let _ = fs::remove_file(at(to));
                fs::hard_link(at(from), at(to))
            }
            FileOp::Symlink(target, path) => fs::os::unix::fs::symlink(target, at(path)),
            FileOp::Remove(path) => {
                let has_mount = self.mounted.iter().any(|(mounted, _)| *mounted == place);
                if has_mount && is_within("m", path) {
                    return Ok(());
                }
                files::remove(&at(path))
            }
            FileOp::Chmod(path, mode) => files::chmod(&at(path), *mode),
            FileOp::Touch(path, secs) => files::touch(&at(path), *secs),
            FileOp::Attribute(path, value) => {
                files::set_attribute(&at(path), *value);
                Ok(())
            }
            FileOp::Ignore(patterns) => {
                let path = at(".snapignore");
                if patterns.is_empty() {
                    fs::remove_file(path)
                } else {
                    fs::write(path, Rules::text(patterns))
                }
            }
            // A folder called `.snap` that is not a store does not hide a store above it.
            FileOp::Nest(path) if at(path).join(".snap/notes").exists() => Ok(()),
            FileOp::Nest(path) => {
                fs::create_dir_all(at(path))?;
                fs::write(at(path).join("g"), "nested\n")?;
                self.world.run(&at(path), ["init"]);
                self.world.run(&at(path), ["commit"]);
                Ok(())
            }
            FileOp::Lookalike(path) => {
                fs::create_dir_all(at(path).join(".snap"))?;
                fs::write(at(path).join(".snap/notes"), "mine\n")
            }
            FileOp::StoreLink(path) => {
                fs::create_dir_all(at(path))?;
                fs::os::unix::fs::symlink(victim_from(path), at(path).join(".snap"))
            }
            FileOp::Immutable(path, is_immutable) => {
                self.world.has_immutable.set(true);
                files::set_immutable(&at(path), *is_immutable)
            }
        }
    }

    /// Mounts a file system on `m`, or unmounts it.
    pub(crate) fn mount(&mut self, place: Place, kind: Option<MountKind>) {
        let has_mount = self.mounted.iter().any(|(mounted, _)| *mounted == place);
        match kind {
            None if self.mounted.last().is_some_and(|(mounted, _)| *mounted == place) => {
                self.mounted.pop();
                self.world.unmount();
            }
            Some(kind) if self.may_mount && !has_mount => {
                let point = self.world.folder(place).join("m");
                if fs::create_dir_all(&point).is_err() {
                    return;
                }
                let outside = self.world.outside();
                let done = match kind {
                    MountKind::Memory => self.world.mount(&["-t", "tmpfs", "none"], &point),
                    MountKind::Bind => {
                        let outside = outside.to_str().expect("a plain path");
                        self.world.mount(&["--bind", outside], &point)
                    }
                };
                if done {
                    self.mounted.push((place, kind));
                    if kind == MountKind::Memory {
                        fs::write(point.join("f"), "mounted\n").unwrap();
                    }
                }
            }
            _ => {}
        }
    }

    /// Damages a pack.
    pub(crate) fn damage(&mut self, place: Place, which: u64, kind: DamageKind) {
        let packs = packs(&self.world, place);
        if packs.is_empty() {
            return;
        }
        let pack = &packs[which as usize % packs.len()];
        let how_bad = match kind {
            DamageKind::Lose => {
                fs::remove_file(pack).unwrap();
                Damage::Lost
            }
            DamageKind::Flip(at) => {
                let mut bytes = fs::read(pack).unwrap();
                let at = bytes.len() * at as usize / 1000;
                bytes[at] ^= 4;
                replace(pack, &bytes);
                Damage::Hidden
            }
            DamageKind::Truncate => {
                let bytes = fs::read(pack).unwrap();
                replace(pack, &bytes[..bytes.len() * 2 / 3]);
                // The next command that needs the pack checks its length.
                Damage::Lost
            }
        };
        let store = self.model.store(place);
        store.damage = store.damage.max(how_bad);
        note_damage(&self.world, &mut self.model, place);
    }
}

/// Replaces a pack and keeps its modification time, as damage on a disk would.
fn replace(pack: &Path, bytes: &[u8]) {
    let modified = fs::metadata(pack).unwrap().modified().unwrap();
    let mut permissions = fs::metadata(pack).unwrap().permissions();
    let original = permissions.clone();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    fs::set_permissions(pack, permissions).unwrap();
    fs::write(pack, bytes).unwrap();
    fs::File::open(pack).unwrap().file().set_modified(modified).unwrap();
    fs::set_permissions(pack, original).unwrap();
}
