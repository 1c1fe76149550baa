//! What a restore may change, and what it must write.

use std::collections::BTreeSet;

use fs_err as fs;
use snap_core::base::id::BlobId;

use crate::{
    sandbox::Ran,
    search::Fault,
    sequences::{
        check::{Before, check_store},
        execute::Execution,
        files::{Kind, Node, Tree, is_immutable, is_within, observe},
        model::{Damage, Rules, is_in_nested_store, is_store_link, prefixes},
        operation::{Place, RestoreArgs},
    },
};

/// The expectations for one restore into a working folder.
struct Contract<'a> {
    args: &'a RestoreArgs,
    /// The entries of the commit that are restored.
    wanted: Tree,
    /// Paths of the commit that damage took.
    lost: BTreeSet<Option<String>>,
    /// The files before the restore.
    before: &'a Tree,
    /// The restored path.
    scope: &'a str,
    /// Rules whose excluded files are certainly protected.
    surely: Rules,
    /// Rules whose excluded files may be protected.
    perhaps: Rules,
    has_mount: bool,
    /// Immutable entries.
    immutable: BTreeSet<String>,
    /// True if the restore must leave out a symbolic link called `.snap`.
    has_store_link: bool,
    /// True if the store was damaged, so that the program may know less.
    is_hurt: bool,
    /// Contents that a commit contains.
    stored: BTreeSet<BlobId>,
}

impl Execution {
    /// Restores a commit and checks the files.
    pub(crate) fn restore(&mut self, place: Place, args: &RestoreArgs) -> Result<(), Fault> {
        let commits = &self.model.store(place).commits;
        if commits.is_empty() {
            return Ok(());
        }
        let id = commits[commits.len() - 1 - args.back as usize % commits.len()].clone();
        let commit = self.model.commits[&id].clone();
        let scope = args.path.as_deref().unwrap_or_default();
        let node = commit.tree.get(scope);
        if !scope.is_empty() && node.is_none() {
            return Ok(());
        }
        let is_file = node.is_some_and(|node| node.kind != Kind::Folder);
        let lost = self.model.store(place).lost.get(&id).cloned().unwrap_or_default();
        let is_excluded = |path: &str| {
            let rules = Rules { tmp: args.exclude, ign: false };
            rules.exclude(path, &commit.tree)
        };
        let is_chosen = |path: &str| is_within(path, scope) && !is_excluded(path);
        let has_store_link =
            commit.tree.iter().any(|(path, node)| is_chosen(path) && is_store_link(path, node));
        let wanted: Tree = (commit.tree.iter())
            .filter(|(path, node)| is_chosen(path) && !is_store_link(path, node))
            .map(|(path, node)| (path.clone(), node.clone()))
            .collect();
        let revision = match scope {
            "" => id.clone(),
            path => format!("{id}:{path}"),
        };
        let before = Before::read(&self.world);
        let elsewhere = self.world.elsewhere();
        let folder = self.world.folder(place);
        let mut words: Vec<&str> = args.options();
        words.push(&revision);
        if args.elsewhere {
            if elsewhere.exists() {
                fs::remove_dir_all(&elsewhere).unwrap();
            }
            words.push("../elsewhere");
        }
        let ran = self.world.run(&folder, words);
        let is_remote = args.elsewhere;
        before.check_unchanged(&self.world, (!is_remote).then_some(place))?;
        if is_remote {
            let prefix =
                if is_file { scope.rsplit_once('/').map_or("", |(above, _)| above) } else { scope };
            let found = observe(&elsewhere).unwrap();
            self.check_elsewhere((args, has_store_link), &wanted, prefix, &found, &lost, &ran)?;
            return check_store(&self.world, &mut self.model, place, None);
        }
        let saved = Rules::of(&commit.tree);
        let now = Rules::of(before.of(place));
        let surely = now.or(commit.rules);
        let contract = Contract {
            args,
            wanted,
            lost,
            before: before.of(place),
            scope,
            surely: if scope.is_empty() { surely.or(saved) } else { surely },
            perhaps: surely.or(saved),
            // A restore of the mount point itself is meant for the mounted files.
            immutable: self.immutable(place, before.of(place)),
            has_store_link,
            has_mount: self.mounted_on(place).is_some() && scope != "m",
            stored: self.stored_contents(place),
            is_hurt: self.model.store(place).damage != Damage::None,
        };
        let after = observe(&folder).unwrap();
        contract.check(&after, &ran, self.asks)?;
        if ran.code != Some(1) && args.path.is_none() && !args.dry_run {
            let is_whole = ran.code == Some(0) && !args.exclude;
            self.model.restored(place, &id, is_whole);
        }
        check_store(&self.world, &mut self.model, place, None)
    }

    /// Returns the immutable entries among the files of a place.
    fn immutable(&self, place: Place, files: &Tree) -> BTreeSet<String> {
        if !self.world.has_immutable.get() {
            return BTreeSet::new();
        }
        let folder = self.world.folder(place);
        files.keys().filter(|path| is_immutable(&folder.join(path))).cloned().collect()
    }

    /// Returns the contents of files in reachable commits, without those that damage took.
    fn stored_contents(&mut self, place: Place) -> BTreeSet<BlobId> {
        let reachable = self.model.reachable(place);
        let store = self.model.store(place).clone();
        let mut found = BTreeSet::new();
        for id in reachable.iter().filter(|id| self.model.commits.contains_key(*id)) {
            let lost = store.lost.get(id).cloned().unwrap_or_default();
            for (path, node) in self.model.commits[id].tree.iter() {
                if let Kind::File(_, content) = node.kind
                    && !is_lost(&lost, path)
                {
                    found.insert(content);
                }
            }
        }
        found
    }

    fn check_elsewhere(
        &self,
        (args, has_store_link): (&RestoreArgs, bool),
        wanted: &Tree,
        prefix: &str,
        found: &Tree,
        lost: &BTreeSet<Option<String>>,
        ran: &Ran,
    ) -> Result<(), Fault> {
        if args.dry_run {
            let is_quiet = found.is_empty();
            return is_quiet
                .then_some(())
                .ok_or_else(|| Fault::new("a dry run writes files", ran.told()));
        }
        let is_hurt = wanted.keys().any(|path| is_lost(lost, path)) || lost.contains(&None);
        let place = |path: &str| {
            path.strip_prefix(prefix).unwrap_or(path).trim_start_matches('/').to_owned()
        };
        // An entry called `.snap` at the top of a folder is not listed.
        let is_unlisted = |below: &str| below.is_empty() || is_within(below, ".snap");
        // Data that can only be found through the index counts as lost, but can be read while the
        // index exists.
        let is_whole = wanted.iter().all(|(path, node)| {
            let below = place(path);
            is_unlisted(&below) || found.get(&below) == Some(node)
        });
        match ran.code {
            Some(0) if (!is_hurt || is_whole) && !has_store_link => {}
            Some(3) if (!is_hurt || is_whole) && has_store_link => {}
            Some(4) if is_hurt => {}
            Some(1) if lost.contains(&None) => {}
            _ => {
                let kind = if is_hurt {
                    "a restore does not report damage"
                } else {
                    "a restore fails without a reason"
                };
                return Err(Fault::new(kind, ran.told()));
            }
        }
        for (path, node) in wanted.iter().filter(|(path, _)| !is_lost(lost, path)) {
            let below = place(path);
            if !is_unlisted(&below) && found.get(&below) != Some(node) {
                let detail = format!("{path}: expected {node:?}, found {:?}", found.get(&below));
                return Err(Fault::new(
                    "a restore writes a file that differs from the commit",
                    detail,
                ));
            }
        }
        Ok(())
    }
}

/// Returns true if damage took a path.
fn is_lost(lost: &BTreeSet<Option<String>>, path: &str) -> bool {
    let has = |path: &str| lost.contains(&Some(path.to_owned()));
    lost.contains(&None) || prefixes(path).chain([""]).any(has)
}

impl Contract<'_> {
    fn check(&self, after: &Tree, ran: &Ran, asks: bool) -> Result<(), Fault> {
        let changed = self.before != after;
        if self.args.dry_run {
            return if changed {
                Err(self.fault("a dry run writes files", "", ran))
            } else {
                Ok(())
            };
        }
        let is_hurt = !self.lost.is_empty();
        match ran.code {
            Some(0 | 3) => {}
            Some(4) if is_hurt => {}
            Some(_) => return self.check_refusal(changed, asks, ran),
            None => return Err(self.fault("a restore is killed", "", ran)),
        }
        if ran.code == Some(0) && self.has_store_link {
            return Err(self.fault("a restore does not report a link called `.snap`", "", ran));
        }
        self.check_kept(after, ran, asks)?;
        let keeps = self.wanted.iter().find(|(path, node)| self.keeps_attributes(path, node));
        if let (Some(0), Some((path, _))) = (ran.code, keeps) {
            return Err(self.fault("a restore does not report kept attributes", path, ran));
        }
        self.check_written(after, ran)?;
        if ran.code == Some(0) && self.args.delete {
            let stays = self.extras().find(|path| {
                after.contains_key(*path)
                    && !self.protects(path, self.perhaps)
                    && !self.holds_protected(path, self.perhaps)
            });
            if let Some(path) = stays {
                return Err(self.fault("a restore leaves an extra entry", path, ran));
            }
        }
        Ok(())
    }

    /// Checks the entries that must stay unchanged.
    fn check_kept(&self, after: &Tree, ran: &Ran, asks: bool) -> Result<(), Fault> {
        for (path, node) in self.before {
            let is_same = after.get(path) == Some(node);
            if !is_same && !self.args.overwrite {
                let kind = "a restore without --overwrite changes an existing entry";
                let detail = format!("{path}: was {node:?}, is {:?}", after.get(path));
                return Err(self.fault(kind, &detail, ran));
            }
            let is_replaced = after.get(path).is_none_or(|now| now.kind != node.kind);
            if asks && is_replaced && self.is_edited(path) && self.may_ask_about_edits() {
                return Err(self.fault(
                    "a restore without --yes overwrites a file that is in no commit",
                    path,
                    ran,
                ));
            }
            if is_same || self.wanted.contains_key(path) && !self.protects(path, Rules::default()) {
                continue;
            }
            if self.wanted.contains_key(path) {
                // An entry behind a mount or in a store may be written, but never removed.
                if after.contains_key(path) {
                    continue;
                }
                return Err(self.fault("a restore removes a protected file", path, ran));
            }
            // All names of a file share its attributes.
            let is_linked = |other: &String| {
                self.before.get(other) == Some(node) && after.get(other) == after.get(path)
            };
            let follows = after.get(path).is_some_and(|now| now.kind == node.kind)
                && self.wanted.keys().any(is_linked);
            if follows {
                continue;
            }
            if !is_within(path, self.scope) {
                return Err(self.fault("a restore changes files outside of its path", path, ran));
            }
            if self.protects(path, self.surely) {
                let kind = match () {
                    () if is_in_nested_store(path, self.before) => {
                        "a restore removes a nested store"
                    }
                    () if self.has_mount && is_within(path, "m") => "a restore empties a mount",
                    () => "a restore removes an ignored file",
                };
                return Err(self.fault(kind, path, ran));
            }
            let is_replaced = prefixes(path).any(|prefix| {
                self.wanted.get(prefix).is_some_and(|node| node.kind != Kind::Folder)
            });
            let may_go = self.args.delete || is_replaced && self.args.overwrite;
            let is_folder = node.kind == Kind::Folder;
            let stays_a_folder = is_folder && after.contains_key(path);
            if !(may_go || stays_a_folder) {
                return Err(self.fault("a restore changes a file unnecessarily", path, ran));
            }
            let needs_consent = asks && !self.args.yes && !self.is_recoverable(path);
            if needs_consent && !after.contains_key(path) {
                return Err(self.fault(
                    "a restore without --yes removes a file that is in no commit",
                    path,
                    ran,
                ));
            }
        }
        Ok(())
    }

    /// Checks that the entries of the commit exist.
    fn check_written(&self, after: &Tree, ran: &Ran) -> Result<(), Fault> {
        for (path, node) in &self.wanted {
            let is_blocked = self.holds_protected(path, self.perhaps)
                || prefixes(path).any(|prefix| self.protects(prefix, self.perhaps));
            // The program must report what it could not write.
            let is_refused = ran.code != Some(0) && self.refuses(path, node);
            if is_lost(&self.lost, path) || is_blocked || is_refused {
                continue;
            }
            // An existing target folder keeps its own attributes.
            let is_kept_target = path == self.scope
                && node.kind == Kind::Folder
                && !self.args.overwrite
                && self.before.get(path).is_some_and(|node| node.kind == Kind::Folder);
            // The same holds for existing entries with the same content.
            let is_kept = !self.args.overwrite
                && self.before.get(path).is_some_and(|before| {
                    before.kind == node.kind && after.get(path) == Some(before)
                });
            if after.get(path) != Some(node) && !is_kept_target && !is_kept {
                let found = after.get(path);
                let detail = format!("{path}: expected {node:?}, found {found:?}");
                return Err(self.fault(
                    "a restore writes a file that differs from the commit",
                    &detail,
                    ran,
                ));
            }
        }
        let foreign = after.keys().find(|path| {
            let is_above = is_within(self.scope, path);
            !self.before.contains_key(*path) && !self.wanted.contains_key(*path) && !is_above
        });
        match foreign {
            Some(path) => Err(self.fault("a restore leaves a temporary file", path, ran)),
            None => Ok(()),
        }
    }

    fn check_refusal(&self, changed: bool, asks: bool, ran: &Ran) -> Result<(), Fault> {
        if changed {
            return Err(self.fault("a refused restore changes files", "", ran));
        }
        let differs = self.wanted.iter().any(|(path, node)| {
            self.before.get(path).is_some_and(|found| found.kind != node.kind)
                || prefixes(path).any(|prefix| {
                    prefix != path
                        && self.before.get(prefix).is_some_and(|node| node.kind != Kind::Folder)
                })
        });
        let stops = !self.args.overwrite && differs;
        let asks = asks
            && self.args.delete
            && !self.args.yes
            && self
                .extras()
                .any(|path| !self.is_recoverable(path) || self.is_symlink(path) || self.is_hurt);
        let asks_about_edits = self.may_ask_about_edits()
            && self.wanted.iter().any(|(path, node)| {
                self.before.get(path).is_some_and(|found| found.kind != node.kind)
                    && (self.is_edited(path) || self.is_symlink(path) || self.is_hurt)
            });
        let blocked = self.wanted.iter().any(|(path, node)| {
            let swaps = self
                .before
                .get(path)
                .is_some_and(|found| (found.kind == Kind::Folder) != (node.kind == Kind::Folder));
            swaps || self.has_mount && is_within(path, "m")
        });
        // Nothing could be restored.
        let refuses = self.wanted.iter().any(|(path, node)| self.refuses(path, node));
        if stops || asks || asks_about_edits || blocked || refuses || !self.lost.is_empty() {
            return Ok(());
        }
        Err(self.fault("a restore fails without a reason", "", ran))
    }

    /// Returns the paths in the scope of the restore that the commit lacks.
    fn extras(&self) -> impl Iterator<Item = &String> {
        let is_extra =
            |path: &&String| is_within(path, self.scope) && !self.wanted.contains_key(*path);
        let is_excluded = |path: &str| {
            let rules = Rules { tmp: self.args.exclude, ign: false };
            rules.exclude(path, self.before)
        };
        self.before.keys().filter(is_extra).filter(move |path| !is_excluded(path))
    }

    /// Returns true if the restore must keep an entry and report that its mode or attribute
    /// differs.
    fn keeps_attributes(&self, path: &str, node: &Node) -> bool {
        let is_target = path == self.scope && node.kind == Kind::Folder;
        let differs = self.before.get(path).is_some_and(|before| {
            before.kind == node.kind
                && (before.mode != node.mode || before.attribute != node.attribute)
        });
        let is_blocked = prefixes(path).any(|prefix| self.protects(prefix, self.perhaps));
        !self.args.overwrite && differs && !is_target && !is_blocked
    }

    /// Returns true if an immutable entry keeps an entry of the commit from being written.
    fn refuses(&self, path: &str, node: &Node) -> bool {
        let is_in_the_way = |entry: &String| node.kind != Kind::Folder && is_within(entry, path);
        prefixes(path).any(|prefix| self.immutable.contains(prefix))
            || self.immutable.iter().any(is_in_the_way)
    }

    /// Returns true if an entry itself must survive `--delete`.
    fn protects(&self, path: &str, rules: Rules) -> bool {
        let rules = if self.args.delete_excluded { Rules::default() } else { rules };
        let rules = Rules { tmp: rules.tmp || self.args.exclude, ..rules };
        is_in_nested_store(path, self.before)
            || self.has_mount && is_within(path, "m")
            || rules.exclude(path, self.before)
    }

    /// Returns true if an entry below must survive.
    fn holds_protected(&self, path: &str, rules: Rules) -> bool {
        let below = self.before.keys().filter(|other| is_within(other, path) && *other != path);
        below.into_iter().any(|other| self.protects(other, rules))
    }

    fn is_recoverable(&self, path: &str) -> bool {
        match self.before.get(path).map(|node| &node.kind) {
            Some(Kind::File(_, id)) => self.stored.contains(id),
            _ => true,
        }
    }

    /// Returns true if a file of the commit is replaced, and no commit contains its content.
    fn is_edited(&self, path: &str) -> bool {
        let has_content = matches!(
            self.before.get(path).map(|node| &node.kind),
            Some(Kind::File(bytes, _)) if *bytes > 0
        );
        has_content && self.wanted.contains_key(path) && !self.is_recoverable(path)
    }

    /// Returns true if the program asks before it overwrites an edited file. It does not if the
    /// user names the file itself.
    fn may_ask_about_edits(&self) -> bool {
        let names_file = self.wanted.get(self.scope).is_some_and(|node| node.kind != Kind::Folder);
        self.args.overwrite && !self.args.yes && !names_file
    }

    /// Returns true if an entry is a symlink. The model does not record whether a commit contains
    /// its target.
    fn is_symlink(&self, path: &str) -> bool {
        self.before.get(path).is_some_and(|node| matches!(node.kind, Kind::Symlink(_)))
    }

    fn fault(&self, kind: &'static str, what: &str, ran: &Ran) -> Fault {
        Fault::new(kind, format!("{what}\n{}", ran.told()))
    }
}
