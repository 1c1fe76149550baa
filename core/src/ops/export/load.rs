//! Loads the small contents of a batch of entries.

use crate::{
    ops::export::{
        ArchiveFormat, ExportError, ExportJob,
        batch::{ArchiveEntry, EntryData},
        deflate::StoredContent,
    },
    store::{ContentReader, FileContent},
};

/// Number of frames that may have contents of two batches: a commit fills several frames in
/// parallel.
const CARRY_OVER: usize = 4;

/// Loads the contents that entries are waiting for. Marks large contents to be streamed.
pub(super) fn load(job: &ExportJob<'_>, items: &mut [ArchiveEntry]) -> Result<(), ExportError> {
    let (mut batch, mut wanted) = (Vec::new(), Vec::new());
    for (at, item) in items.iter_mut().enumerate() {
        match item.content() {
            Some((id, bytes)) if matches!(item.body, EntryData::Wanted) => {
                if item.is_small() {
                    batch.push(FileContent { id, bytes });
                    wanted.push(at);
                } else {
                    item.body = EntryData::Stream;
                }
            }
            _ => {}
        }
    }
    let body = |content: &[u8]| match job.options.format {
        ArchiveFormat::Zip => EntryData::Packed(StoredContent::new(content, job.level())),
        _ => EntryData::Bytes(content.to_vec()),
    };
    let loaded = ContentReader::new(job.store).read_batch(
        &batch,
        CARRY_OVER,
        &|| job.check().ok(),
        &|(), _, content| content.map(body),
    );
    job.check()?;
    for (index, body) in loaded.visited {
        let item = &mut items[wanted[index]];
        item.body = body.map_err(|error| job.damaged(&item.path, error))?;
    }
    for (_, index) in loaded.chunked {
        items[wanted[index]].body = EntryData::Stream;
    }
    Ok(())
}
