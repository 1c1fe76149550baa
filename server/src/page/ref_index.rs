//! The branches and tags of a repository, and how URLs name them.

use std::collections::{HashMap, HashSet};

use snap_core::{
    base::id::CommitId,
    repo::ref_name::{RefKind, RefName},
};

use crate::{problem::HttpProblem, repository::Repository};

/// A listing of all branches and tags. A page reads it once, so that all its parts show
/// the same state.
#[derive(Debug, Default)]
pub(super) struct RefIndex {
    all: Vec<(RefName, CommitId)>,
    /// The names of damaged refs.
    damaged: Vec<RefName>,
    /// The branch that a clone checks out. It may not exist.
    default: Option<RefName>,
    /// Positions in `all` of the refs that point at each commit.
    at: HashMap<CommitId, Vec<usize>>,
    branches: HashSet<String>,
}

impl RefIndex {
    /// Reads the refs of a repository.
    ///
    /// # Errors
    /// The errors of [`Repository::listing`].
    pub(super) fn of(repository: &Repository) -> Result<Self, HttpProblem> {
        let listing = repository.refs().listing()?;
        let names = Self::new(listing.refs.to_vec(), repository.refs().cached_branch().ok());
        Ok(Self { damaged: listing.damaged.to_vec(), ..names })
    }

    fn new(mut all: Vec<(RefName, CommitId)>, default: Option<RefName>) -> Self {
        all.sort();
        let mut names = Self { default, ..Self::default() };
        for (place, (name, id)) in all.iter().enumerate() {
            names.at.entry(*id).or_default().push(place);
            if name.kind() == RefKind::Branch {
                names.branches.insert(name.short().to_owned());
            }
        }
        Self { all, ..names }
    }

    /// Returns the names of damaged branches and tags, sorted.
    pub(super) fn damaged(&self) -> &[RefName] {
        &self.damaged
    }

    /// Returns the branches and then the tags, each sorted.
    pub(super) fn all(&self) -> &[(RefName, CommitId)] {
        &self.all
    }

    /// Returns the branch that a clone checks out.
    pub(super) fn default_branch(&self) -> Option<&RefName> {
        self.default.as_ref()
    }

    /// Returns the ref with which pages start: the default branch, or else the first
    /// branch or tag.
    pub(super) fn first(&self) -> Option<&(RefName, CommitId)> {
        let default = self.all.iter().find(|(name, _)| Some(name) == self.default_branch());
        default.or(self.all.first())
    }

    /// Returns the commits that refs point at, sorted and without duplicates.
    pub(super) fn tips(&self) -> Vec<CommitId> {
        let mut tips: Vec<CommitId> = self.at.keys().copied().collect();
        tips.sort_unstable();
        tips
    }

    /// Returns the refs that point at a commit, sorted.
    pub(super) fn at(&self, id: &CommitId) -> impl ExactSizeIterator<Item = &RefName> {
        let places = self.at.get(id).map(Vec::as_slice).unwrap_or_default();
        places.iter().map(|place| &self.all[*place].0)
    }

    /// Returns the shortest unambiguous name of a ref. If a branch and a tag have the same name,
    /// the bare name means the branch.
    pub(super) fn rev(&self, name: &RefName) -> String {
        let is_other = name.kind() == RefKind::Tag && self.branches.contains(name.short());
        if is_other { format!("tags/{}", name.short()) } else { name.short().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_and_a_branch_of_the_same_name_are_distinguished() {
        let (branch, tag) = (RefName::branch("v1").unwrap(), RefName::tag("v1").unwrap());
        let id = CommitId::of(b"a commit");
        let names = RefIndex::new(vec![(tag.clone(), id), (branch.clone(), id)], None);
        assert_eq!((names.rev(&branch), names.rev(&tag)), ("v1".into(), "tags/v1".into()));
        assert_eq!(names.at(&id).collect::<Vec<_>>(), [&branch, &tag]);
        assert_eq!(names.tips(), [id]);
        let alone = RefIndex::new(vec![(tag.clone(), id)], None);
        assert_eq!(alone.rev(&tag), "v1");
    }

    #[test]
    fn the_default_branch_is_shown_first() {
        let [first, main] = ["first", "main"].map(|name| RefName::branch(name).unwrap());
        let id = CommitId::of(b"a commit");
        let of = |all: &[&RefName]| {
            let all = all.iter().map(|name| ((*name).clone(), id)).collect();
            let names = RefIndex::new(all, Some(main.clone()));
            names.first().map(|(name, _)| name.short().to_owned())
        };
        assert_eq!(of(&[&first, &main]), Some("main".to_owned()));
        assert_eq!(of(&[&first]), Some("first".to_owned()));
        assert_eq!(of(&[]), None);
    }
}
