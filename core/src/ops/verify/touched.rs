//! Which commits and paths a missing or damaged object touches.

use std::collections::HashMap;

use crate::{
    base::{
        id::{CommitId, ObjectId, TreeId},
        limits,
        observe::Observer,
    },
    format::tree::{Kind, Node},
    ops::verify::{Dated, Findings, VerifyError},
    store::{Content, Marks, Store, StoreError},
};

/// Paths that are kept; beyond that they are counted.
const KEPT_PATHS: usize = 1000;

/// A path that lacks something in a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchedPath {
    /// The newest commit in which it does.
    pub commit: CommitId,
    /// How many commits have this very state of the path.
    pub commits: u64,
    /// The path; empty for the whole snapshot.
    pub path: Vec<u8>,
    /// What is missing or damaged.
    pub object: ObjectId,
}

/// What is touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Commits that lack something, newest first.
    pub commits: Vec<CommitId>,
    /// Paths that lack something, at most a thousand.
    pub paths: Vec<TouchedPath>,
    /// How many more there are.
    pub more_paths: u64,
}

/// Walks all commits again, past what is known to be whole.
pub(super) fn find(
    store: &Store,
    commits: &[Dated],
    findings: &Findings<'_>,
    observer: &dyn Observer,
) -> Result<Touched, VerifyError> {
    let mut search = Search {
        store,
        findings,
        whole: Marks::new(store),
        lacking: Marks::new(store),
        places: HashMap::new(),
        touched: Touched::default(),
    };
    for (_, id) in commits {
        if observer.cancelled() {
            return Err(VerifyError::Interrupted);
        }
        if findings.is_bad(&id.object()) {
            search.touched.commits.push(*id);
            continue;
        }
        let Ok(commit) = store.commit(id) else { continue };
        if search.tree(*id, commit.tree)? {
            search.touched.commits.push(*id);
        }
    }
    Ok(search.touched)
}

struct Search<'s> {
    store: &'s Store,
    findings: &'s Findings<'s>,
    /// Trees with nothing wrong below.
    whole: Marks,
    /// Trees with something wrong below.
    lacking: Marks,
    /// Where in `touched.paths` a path with an object is.
    places: HashMap<(Vec<u8>, ObjectId), usize>,
    touched: Touched,
}

/// A folder that is being searched.
struct Step {
    id: TreeId,
    path_bytes: usize,
    hit: bool,
    items: std::vec::IntoIter<Item>,
}

/// Something in a folder.
enum Item {
    Tree(Vec<u8>, TreeId),
    File(Vec<u8>, crate::base::id::BlobId),
}

impl Search<'_> {
    /// Searches a tree; whether anything is wrong below it.
    fn tree(&mut self, commit: CommitId, root: TreeId) -> Result<bool, VerifyError> {
        let mut path = Vec::new();
        let mut stack: Vec<Step> = Vec::new();
        let mut hit = self.enter(commit, root, &path, &mut stack)?;
        while let Some(step) = stack.last_mut() {
            path.truncate(step.path_bytes);
            match step.items.next() {
                Some(Item::Tree(name, id)) => {
                    push(&mut path, &name);
                    let below = self.enter(commit, id, &path, &mut stack)?;
                    if let Some(step) = stack.last_mut() {
                        step.hit |= below;
                    }
                }
                Some(Item::File(name, id)) => {
                    push(&mut path, &name);
                    if let Some(object) = self.bad_part(id) {
                        step.hit = true;
                        self.add(commit, &path, object);
                    }
                }
                None => {
                    let (id, own) = (step.id, step.hit);
                    stack.pop();
                    let known = if own { &self.lacking } else { &self.whole };
                    known.mark(&id.object())?;
                    match stack.last_mut() {
                        Some(above) => above.hit |= own,
                        None => hit |= own,
                    }
                }
            }
        }
        Ok(hit)
    }

    /// Starts on a tree node; true when the node itself is bad.
    fn enter(
        &mut self,
        commit: CommitId,
        id: TreeId,
        path: &[u8],
        stack: &mut Vec<Step>,
    ) -> Result<bool, VerifyError> {
        if self.whole.is_marked(&id.object())? {
            return Ok(false);
        }
        // A folder that many folders share is not searched under each of its
        // paths for ever.
        if self.touched.paths.len() >= KEPT_PATHS && self.lacking.is_marked(&id.object())? {
            self.touched.more_paths += 1;
            return Ok(true);
        }
        let too_deep = stack.len() > limits::DEPTH * usize::from(limits::TREE_NODE_LEVELS);
        // Asked before it is read: a bad node may be named ever so often.
        let is_bad = too_deep || self.findings.is_bad(&id.object());
        let node = match is_bad {
            true => None,
            false => match self.store.tree(&id) {
                // Nothing is known of what is below.
                Err(StoreError::Absent { .. }) => return Ok(false),
                node => node.ok(),
            },
        };
        let Some(node) = node else {
            self.add(commit, path, id.object());
            return Ok(true);
        };
        let items: Vec<Item> = match node {
            Node::Leaf { entries, .. } => entries
                .into_iter()
                .filter_map(|entry| match entry.kind {
                    Kind::Folder { id } => Some(Item::Tree(entry.name.as_bytes().to_vec(), id)),
                    Kind::File { id, .. } => Some(Item::File(entry.name.as_bytes().to_vec(), id)),
                    _ => None,
                })
                .collect(),
            Node::Inner { children, .. } => {
                children.into_iter().map(|child| Item::Tree(Vec::new(), child.id)).collect()
            }
        };
        stack.push(Step { id, path_bytes: path.len(), hit: false, items: items.into_iter() });
        Ok(false)
    }

    /// What of a content is missing or damaged.
    fn bad_part(&self, id: crate::base::id::BlobId) -> Option<ObjectId> {
        if self.findings.is_bad(&id.object()) {
            return Some(id.object());
        }
        match self.store.content(&id) {
            Ok(Content::Whole(_)) | Err(StoreError::Absent { .. }) => None,
            Ok(Content::Chunks(chunks)) => chunks
                .iter()
                .map(|chunk| chunk.id.object())
                .find(|chunk| self.findings.is_bad(chunk)),
            Err(_) => Some(id.object()),
        }
    }

    fn add(&mut self, commit: CommitId, path: &[u8], object: ObjectId) {
        let key = (path.to_vec(), object);
        if let Some(&at) = self.places.get(&key) {
            self.touched.paths[at].commits += 1;
        } else if self.touched.paths.len() < KEPT_PATHS {
            self.places.insert(key, self.touched.paths.len());
            self.touched.paths.push(TouchedPath {
                commit,
                commits: 1,
                path: path.to_vec(),
                object,
            });
        } else {
            self.touched.more_paths += 1;
        }
    }
}

fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() && !name.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
