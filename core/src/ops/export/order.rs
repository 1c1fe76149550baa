//! Produces the entries of an archive in the order of the tree.

use std::{
    borrow::Cow, collections::HashMap, ffi::OsStr, io, os::unix::ffi::OsStrExt, path::Path,
    sync::Arc, sync::mpsc::SyncSender,
};

use crate::{
    base::observe::Note,
    format::tree::{AttributesHash, Entry, EntryKind, Metadata},
    ops::{
        export::{
            ArchiveFormat, ExportError, ExportJob, ExportOutcome, MetadataLoss,
            batch::{ArchiveEntry, EntryBatch, EntryData},
            load::load,
            windows,
        },
        list::{self, ListDepth, ListError},
        reserved::Reserved,
        restore::RestoreSource,
    },
};

/// Mode of a prefix folder that corresponds to no folder of the snapshot.
const PREFIX_MODE: u16 = 0o755;

/// Sends all entries of `what` to `sender` with their contents loaded. Fails if the receiver is gone.
pub(super) fn produce(
    job: &ExportJob<'_>,
    what: &RestoreSource,
    sender: &SyncSender<Vec<ArchiveEntry>>,
) -> Result<ExportOutcome, ExportError> {
    let mut producer = Producer {
        job,
        sender,
        batch: EntryBatch::default(),
        outcome: ExportOutcome::default(),
        firsts: HashMap::new(),
        left_out: None,
    };
    producer.all(what)?;
    Ok(producer.outcome)
}

/// The first name of a file with several names.
struct FirstName {
    kind: EntryKind,
    path: Arc<[u8]>,
}

struct Producer<'p> {
    job: &'p ExportJob<'p>,
    sender: &'p SyncSender<Vec<ArchiveEntry>>,
    batch: EntryBatch,
    outcome: ExportOutcome,
    /// First names, by the link number that all names of one file share, and the attributes.
    firsts: HashMap<(u64, AttributesHash), FirstName>,
    /// The path of the last folder that was left out, with a slash at its end.
    left_out: Option<Vec<u8>>,
}

impl Producer<'_> {
    fn all(&mut self, what: &RestoreSource) -> Result<(), ExportError> {
        match what {
            RestoreSource::Entry(entry) => {
                self.prefix(None)?;
                self.entry(entry.name.as_bytes(), entry)?;
            }
            RestoreSource::Folder { tree, root } => {
                self.prefix(root.as_ref())?;
                let (store, observer) = (self.job.store, self.job.observer);
                let mut stopped = None;
                let mut each = |path: &[u8], entry: &Entry| {
                    self.entry(path, entry).map_err(|stop| {
                        stopped = Some(stop);
                        io::ErrorKind::Other.into()
                    })
                };
                let listed = list::run(store, *tree, b"", ListDepth::All, observer, &mut each);
                match (stopped, listed) {
                    (Some(stop), _) => return Err(stop),
                    (None, Err(ListError::Blocked(_))) => {
                        return Err(ExportError::Interrupted);
                    }
                    (None, Err(error)) => return Err(ExportError::List(error)),
                    (None, Ok(_)) => {}
                }
            }
        }
        self.send()
    }

    /// Adds the prefix folder with the attributes of the exported folder. Without a prefix, the
    /// exported folder itself is not in the archive: unpacking it would change the attributes of
    /// the folder around it.
    fn prefix(&mut self, root: Option<&Metadata>) -> Result<(), ExportError> {
        let Some(path) = self.job.options.prefix.as_bytes().strip_suffix(b"/") else {
            return Ok(());
        };
        let plain = || Metadata { mode: PREFIX_MODE, ..Metadata::default() };
        let metadata = root.cloned().unwrap_or_else(plain);
        let id = crate::base::id::TreeId::of(b"");
        self.add(path.to_vec(), EntryKind::Folder { id }, metadata)
    }

    fn entry(&mut self, path: &[u8], entry: &Entry) -> Result<(), ExportError> {
        if self.left_out.as_ref().is_some_and(|folder| path.starts_with(folder)) {
            return Ok(());
        }
        if let Some(reserved) = Reserved::of(self.job.store, entry) {
            self.lose(path, MetadataLoss::Store);
            let (path_shown, error) = (Path::new(OsStr::from_bytes(path)), reserved.to_error());
            self.job.observer.note(Note::Skipped { path: path_shown, error: &error });
            self.left_out = Some([path, b"/"].concat());
            return Ok(());
        }
        let is_zip = self.job.options.format == ArchiveFormat::Zip;
        if is_zip && windows::renames(path) {
            self.lose(path, MetadataLoss::Name);
        }
        let inside = if is_zip { windows::path(path) } else { Cow::Borrowed(path) };
        let path = [self.job.options.prefix.as_bytes(), &inside].concat();
        self.add(path, entry.kind.clone(), entry.metadata.clone())
    }

    fn add(
        &mut self,
        path: Vec<u8>,
        kind: EntryKind,
        mut metadata: Metadata,
    ) -> Result<(), ExportError> {
        let is_zip = self.job.options.format == ArchiveFormat::Zip;
        let left_out = match kind {
            EntryKind::Socket => Some(MetadataLoss::Socket),
            EntryKind::Fifo if is_zip => Some(MetadataLoss::Fifo),
            EntryKind::CharDevice { .. } | EntryKind::BlockDevice { .. } if is_zip => {
                Some(MetadataLoss::Device)
            }
            _ => None,
        };
        if let Some(loss) = left_out {
            self.lose(&path, loss);
            return Ok(());
        }
        // As in a restore: an unpacked set-id file would otherwise have the rights of the user who
        // unpacks it.
        if !metadata.owner.as_ref().is_some_and(|owner| owner.is_possible()) {
            metadata.owner = None;
            if !matches!(kind, EntryKind::Folder { .. }) {
                metadata.drop_owner_rights();
            }
        }
        if is_zip && !metadata.xattrs.is_empty() {
            metadata.mode = metadata.mode_without_acl();
            metadata.xattrs.clear();
            self.lose(&path, MetadataLoss::Attributes);
        }
        metadata.mtime.get_or_insert(self.job.options.mtime);
        let body = match self.first_name(&path, &kind, &metadata) {
            Some(_) if is_zip => {
                self.lose(&path, MetadataLoss::Link);
                body_of(&kind)
            }
            Some(first) => EntryData::Link(first),
            None => body_of(&kind),
        };
        let outcome = &mut self.outcome;
        outcome.entries += 1;
        if let EntryKind::File { size, .. } = kind {
            outcome.files += 1;
            outcome.bytes += if matches!(body, EntryData::Link(_)) { 0 } else { size };
        }
        if self.batch.push(ArchiveEntry { path, kind, metadata, body }) {
            self.send()?;
        }
        Ok(())
    }

    /// Returns the path of the file's first name if `path` is a further name. Otherwise records
    /// `path` as the first name.
    fn first_name(
        &mut self,
        path: &[u8],
        kind: &EntryKind,
        metadata: &Metadata,
    ) -> Option<Arc<[u8]>> {
        let link = metadata.link.filter(|_| !matches!(kind, EntryKind::Folder { .. }))?;
        // Names are linked only if they really have the same content and attributes.
        let file = (link, metadata.attributes_hash());
        if let Some(first) = self.firsts.get(&file)
            && first.kind == *kind
        {
            return Some(Arc::clone(&first.path));
        }
        self.firsts
            .entry(file)
            .or_insert_with(|| FirstName { kind: kind.clone(), path: path.into() });
        None
    }

    fn lose(&mut self, path: &[u8], loss: MetadataLoss) {
        *self.outcome.lost.entry(loss).or_default() += 1;
        if let Some(on_loss) = self.job.options.on_loss {
            on_loss(Path::new(OsStr::from_bytes(path)), loss);
        }
    }

    fn send(&mut self) -> Result<(), ExportError> {
        let mut items = self.batch.take();
        let wanted = items.iter().filter(|item| matches!(item.body, EntryData::Wanted));
        let mut ids = wanted.filter_map(|item| item.content().map(|(id, _)| id));
        self.job.store.prefetch_contents(&mut ids);
        load(self.job, &mut items)?;
        // The receiver is gone if writing failed, and that error counts.
        self.sender.send(items).map_err(|_| ExportError::Interrupted)
    }
}

fn body_of(kind: &EntryKind) -> EntryData {
    if matches!(kind, EntryKind::File { .. }) { EntryData::Wanted } else { EntryData::None }
}
