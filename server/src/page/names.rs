//! Branches and tags: where they stand, and how addresses name them.

use std::collections::{HashMap, HashSet};

use snap_core::{
    base::id::CommitId,
    repo::ref_name::{RefKind, RefName},
};

use crate::{problem::Problem, repository::Repository};

/// All of a repository. A page asks for them once, so that all of it tells of the
/// same moment.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: Vec<(RefName, CommitId)>,
    /// The branch that whoever clones begins with; it need not be there.
    default: Option<RefName>,
    /// Which of them stand at each commit, by their places in `all`.
    at: HashMap<CommitId, Vec<usize>>,
    branches: HashSet<String>,
}

impl Names {
    /// Reads them.
    ///
    /// # Errors
    /// Those of [`Repository::refs`].
    pub(super) fn of(repository: &Repository) -> Result<Self, Problem> {
        let all = repository.refs()?;
        Ok(Self::new(all, repository.known_branch().ok()))
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

    /// Branches, then tags, each in order.
    pub(super) fn all(&self) -> &[(RefName, CommitId)] {
        &self.all
    }

    /// The branch that whoever clones begins with.
    pub(super) fn default_branch(&self) -> Option<&RefName> {
        self.default.as_ref()
    }

    /// The one that people begin with: the default branch; where nobody pushed
    /// that one, another branch, or a tag.
    pub(super) fn first(&self) -> Option<&(RefName, CommitId)> {
        let default = self.all.iter().find(|(name, _)| Some(name) == self.default_branch());
        default.or(self.all.first())
    }

    /// Commits at which any of them stands, each once, in order.
    pub(super) fn tips(&self) -> Vec<CommitId> {
        let mut tips: Vec<CommitId> = self.at.keys().copied().collect();
        tips.sort_unstable();
        tips
    }

    /// Those that stand at a commit, in order.
    pub(super) fn at(&self, id: &CommitId) -> impl ExactSizeIterator<Item = &RefName> {
        let places = self.at.get(id).map(Vec::as_slice).unwrap_or_default();
        places.iter().map(|place| &self.all[*place].0)
    }

    /// What names one of them in an address: a name alone is first that of a
    /// branch.
    pub(super) fn rev(&self, name: &RefName) -> String {
        let is_other = name.kind() == RefKind::Tag && self.branches.contains(name.short());
        if is_other { format!("tags/{}", name.short()) } else { name.short().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_told_from_a_branch_of_the_same_name() {
        let (branch, tag) = (RefName::branch("v1").unwrap(), RefName::tag("v1").unwrap());
        let id = CommitId::of(b"a commit");
        let names = Names::new(vec![(tag.clone(), id), (branch.clone(), id)], None);
        assert_eq!((names.rev(&branch), names.rev(&tag)), ("v1".into(), "tags/v1".into()));
        assert_eq!(names.at(&id).collect::<Vec<_>>(), [&branch, &tag]);
        assert_eq!(names.tips(), [id]);
        let alone = Names::new(vec![(tag.clone(), id)], None);
        assert_eq!(alone.rev(&tag), "v1");
    }

    #[test]
    fn people_begin_with_the_default_branch_if_it_is_there() {
        let [first, main] = ["first", "main"].map(|name| RefName::branch(name).unwrap());
        let id = CommitId::of(b"a commit");
        let of = |all: &[&RefName]| {
            let all = all.iter().map(|name| ((*name).clone(), id)).collect();
            let names = Names::new(all, Some(main.clone()));
            names.first().map(|(name, _)| name.short().to_owned())
        };
        assert_eq!(of(&[&first, &main]), Some("main".to_owned()));
        assert_eq!(of(&[&first]), Some("first".to_owned()));
        assert_eq!(of(&[]), None);
    }
}
