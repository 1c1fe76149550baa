//! What goes into the archive, in the order of the tree.

use std::{
    borrow::Cow, collections::HashMap, ffi::OsStr, io, os::unix::ffi::OsStrExt, path::Path,
    sync::Arc, sync::mpsc::SyncSender,
};

use crate::{
    format::tree::{Entry, Kind, Metadata},
    ops::{
        export::{
            ExportError, Format, Job, Loss, Outcome,
            batch::{Batch, Body, Item},
            load::Loader,
            windows,
        },
        list::{self, Depth, ListError},
        restore::What,
    },
};

/// Mode of a prefix that stands for no folder of the snapshot.
const PREFIX_MODE: u16 = 0o755;

/// Sends everything in `what` to `sender`, contents loaded. Ends without an
/// error when nobody takes it.
pub(super) fn produce(
    job: &Job<'_>,
    what: &What,
    sender: &SyncSender<Vec<Item>>,
) -> Result<Outcome, ExportError> {
    let mut producer = Producer {
        job,
        sender,
        batch: Batch::default(),
        loader: Loader::default(),
        outcome: Outcome::default(),
        firsts: HashMap::new(),
    };
    match producer.all(what) {
        Ok(()) | Err(Stop::NobodyListens) => Ok(producer.outcome),
        Err(Stop::Failed(error)) => Err(error),
    }
}

enum Stop {
    Failed(ExportError),
    NobodyListens,
}

impl From<ExportError> for Stop {
    fn from(error: ExportError) -> Self {
        Self::Failed(error)
    }
}

/// The first name of a file with several: what it is, and its path.
type First = (Kind, Arc<[u8]>);

struct Producer<'p> {
    job: &'p Job<'p>,
    sender: &'p SyncSender<Vec<Item>>,
    batch: Batch,
    loader: Loader,
    outcome: Outcome,
    /// By the number that the names of one file share.
    firsts: HashMap<u64, First>,
}

impl Producer<'_> {
    fn all(&mut self, what: &What) -> Result<(), Stop> {
        match what {
            What::Entry(entry) => {
                self.prefix(None)?;
                self.entry(entry.name.as_bytes(), entry)?;
            }
            What::Folder { tree, root } => {
                self.prefix(root.as_ref())?;
                let (store, observer) = (self.job.store, self.job.observer);
                let mut stopped = None;
                let mut each = |path: &[u8], entry: &Entry| {
                    self.entry(path, entry).map_err(|stop| {
                        stopped = Some(stop);
                        io::ErrorKind::Other.into()
                    })
                };
                let listed = list::run(store, (*tree, b""), Depth::All, observer, &mut each);
                match (stopped, listed) {
                    (Some(stop), _) => return Err(stop),
                    (None, Err(ListError::Interrupted)) => {
                        return Err(ExportError::Interrupted.into());
                    }
                    (None, Err(error)) => return Err(ExportError::List(error).into()),
                    (None, Ok(_)) => {}
                }
            }
        }
        self.send()
    }

    /// The folder that everything is put into, with the attributes of the
    /// folder that is exported. Without a prefix that one is not in the
    /// archive: unpacked somewhere it would change the folder it is unpacked
    /// into.
    fn prefix(&mut self, root: Option<&Metadata>) -> Result<(), Stop> {
        let Some(path) = self.job.options.prefix.as_bytes().strip_suffix(b"/") else {
            return Ok(());
        };
        let plain = || Metadata { mode: PREFIX_MODE, ..Metadata::default() };
        let metadata = root.cloned().unwrap_or_else(plain);
        let id = crate::base::id::TreeId::of(b"");
        self.add(path.to_vec(), Kind::Folder { id }, metadata)
    }

    fn entry(&mut self, path: &[u8], entry: &Entry) -> Result<(), Stop> {
        let is_zip = self.job.options.format == Format::Zip;
        if is_zip && windows::renames(path) {
            self.lose(path, Loss::Name);
        }
        let inside = if is_zip { windows::path(path) } else { Cow::Borrowed(path) };
        let path = [self.job.options.prefix.as_bytes(), &inside].concat();
        self.add(path, entry.kind.clone(), entry.metadata.clone())
    }

    fn add(&mut self, path: Vec<u8>, kind: Kind, mut metadata: Metadata) -> Result<(), Stop> {
        let is_zip = self.job.options.format == Format::Zip;
        let left_out = match kind {
            Kind::Socket => Some(Loss::Socket),
            Kind::Fifo if is_zip => Some(Loss::Fifo),
            Kind::CharDevice { .. } | Kind::BlockDevice { .. } if is_zip => Some(Loss::Device),
            _ => None,
        };
        if let Some(loss) = left_out {
            self.lose(&path, loss);
            return Ok(());
        }
        if is_zip && !metadata.xattrs.is_empty() {
            metadata.mode = metadata.mode_without_acl();
            metadata.xattrs.clear();
            self.lose(&path, Loss::Attributes);
        }
        metadata.mtime.get_or_insert(self.job.options.mtime);
        let body = match self.first_name(&path, &kind, metadata.link) {
            Some(_) if is_zip => {
                self.lose(&path, Loss::Link);
                body_of(&kind)
            }
            Some(first) => Body::Link(first),
            None => body_of(&kind),
        };
        let outcome = &mut self.outcome;
        outcome.entries += 1;
        if let Kind::File { size, .. } = kind {
            outcome.files += 1;
            outcome.bytes += if matches!(body, Body::Link(_)) { 0 } else { size };
        }
        if self.batch.push(Item { path, kind, metadata, body }) {
            self.send()?;
        }
        Ok(())
    }

    /// Path of the name that came first, for the further ones of a file.
    fn first_name(&mut self, path: &[u8], kind: &Kind, link: Option<u64>) -> Option<Arc<[u8]>> {
        let link = link.filter(|_| !matches!(kind, Kind::Folder { .. }))?;
        if let Some((first, path)) = self.firsts.get(&link)
            // Names that are said to be one file must be so.
            && first == kind
        {
            return Some(Arc::clone(path));
        }
        self.firsts.entry(link).or_insert_with(|| (kind.clone(), path.into()));
        None
    }

    fn lose(&mut self, path: &[u8], loss: Loss) {
        *self.outcome.lost.entry(loss).or_default() += 1;
        if let Some(tell) = self.job.options.on_loss {
            tell(Path::new(OsStr::from_bytes(path)), loss);
        }
    }

    fn send(&mut self) -> Result<(), Stop> {
        let mut items = self.batch.take();
        let wanted = items.iter().filter(|item| matches!(item.body, Body::Wanted));
        let mut ids = wanted.filter_map(|item| item.content().map(|(id, _)| id));
        self.job.store.will_need_contents(&mut ids);
        self.loader.load(self.job, &mut items)?;
        self.sender.send(items).map_err(|_| Stop::NobodyListens)
    }
}

fn body_of(kind: &Kind) -> Body {
    if matches!(kind, Kind::File { .. }) { Body::Wanted } else { Body::None }
}
