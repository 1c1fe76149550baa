//! Index segments: object id → place, for the objects of some packs.
//!
//! A segment is a [table](crate::format::table) with 48-byte records:
//!
//! | offset | bytes | field                                             |
//! |--------|-------|---------------------------------------------------|
//! | 0      | 32    | object id, the key                                |
//! | 32     | 4     | pack, u32: number in the list below; kind in the 4 high bits |
//! | 36     | 4     | frame number in the pack, u32                     |
//! | 40     | 4     | offset in the frame's raw bytes, u32              |
//! | 44     | 4     | length, u32                                       |
//!
//! Its meta is the list of packs, 32 bytes each. A segment holds every object
//! of each pack it lists, once for each of the packs that have it: any of them
//! may go, and the object must then be found in the others. Records of packs
//! that are gone are dead and left out at the next merge.

use std::{
    collections::{BinaryHeap, HashMap},
    path::{Path, PathBuf},
};

use crate::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        limits,
    },
    disk::{
        Disk,
        table::{Table, TableError, TableWriter},
    },
    format::{
        pack::{Frame, Object, ObjectKind},
        table::{Purpose, Shape},
        wire::FormatError,
    },
    store::objects::Place,
};

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 48;

/// Shape of an index segment.
pub(super) const SHAPE: Shape =
    Shape { purpose: Purpose::Index, key_bytes: 32, record_bytes: RECORD_BYTES };

/// Packs that one segment can number.
const MAX_PACKS: u32 = 1 << 28;

/// One record.
pub(super) type Record = [u8; RECORD_BYTES];

/// Makes the records of a pack's objects, sorted and each id once.
pub(super) fn records(pack: u32, frames: &[Frame], objects: &[Object]) -> Vec<Record> {
    let mut records = Vec::with_capacity(objects.len());
    let mut rest = objects.iter();
    for (number, frame) in frames.iter().enumerate() {
        let mut offset = 0;
        for object in rest.by_ref().take(frame.objects as usize) {
            records.push(record(pack, number as u32, offset, object));
            offset += object.bytes;
        }
    }
    records.sort_unstable();
    records.dedup_by(|a, b| a[..32] == b[..32]);
    records
}

fn record(pack: u32, frame: u32, offset: u32, object: &Object) -> Record {
    debug_assert!(pack < MAX_PACKS);
    let mut record = [0; RECORD_BYTES];
    record[..32].copy_from_slice(object.id.as_bytes());
    let pack = pack | (u32::from(object.kind.code()) << 28);
    for (at, value) in [(32, pack), (36, frame), (40, offset), (44, object.bytes)] {
        record[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    record
}

fn field(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
}

/// The place in a record; its pack is still the segment's own number.
fn place(record: &[u8]) -> Option<Place> {
    let pack = field(record, 32);
    let kind = ObjectKind::from_code((pack >> 28) as u8)?;
    Some(Place {
        pack: pack & (MAX_PACKS - 1),
        frame: field(record, 36),
        offset: field(record, 40),
        bytes: field(record, 44),
        kind,
    })
}

/// A segment that is read: from its file or, where nothing can be written,
/// from memory.
#[derive(Debug)]
pub(super) struct Segment {
    source: Source,
    packs: Vec<PackId>,
    /// The store's number of each pack, `None` when it is gone.
    numbers: Vec<Option<u32>>,
}

#[derive(Debug)]
enum Source {
    File(Table),
    Memory(Vec<Record>),
}

impl Segment {
    /// Opens the segment at `path`.
    pub(super) fn open(path: &Path, numbers: &HashMap<PackId, u32>) -> Result<Self, TableError> {
        let table = Table::open(path, SHAPE)?;
        let meta = table.meta();
        if meta.is_empty() || meta.len() % 32 != 0 {
            let source = FormatError::Invalid { what: "pack list", at: meta.len() };
            return Err(TableError::Damaged { path: path.to_owned(), source });
        }
        let packs = meta.as_chunks::<32>().0.iter().map(|id| PackId::from_bytes(*id)).collect();
        Ok(Self::new(Source::File(table), packs, numbers))
    }

    /// Takes the sorted records of one pack as a segment.
    pub(super) fn in_memory(
        pack: PackId,
        records: Vec<Record>,
        numbers: &HashMap<PackId, u32>,
    ) -> Self {
        Self::new(Source::Memory(records), vec![pack], numbers)
    }

    fn new(source: Source, packs: Vec<PackId>, numbers: &HashMap<PackId, u32>) -> Self {
        let numbers = packs.iter().map(|id| numbers.get(id).copied()).collect();
        Self { source, packs, numbers }
    }

    /// The packs it covers.
    pub(super) fn packs(&self) -> &[PackId] {
        &self.packs
    }

    /// Whether any of its packs is still there.
    pub(super) fn is_live(&self) -> bool {
        self.numbers.iter().any(Option::is_some)
    }

    /// Its file.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::File(table) => Some(table.path()),
            Source::Memory(_) => None,
        }
    }

    /// How many records.
    pub(super) fn records(&self) -> u64 {
        match &self.source {
            Source::File(table) => table.records(),
            Source::Memory(records) => records.len() as u64,
        }
    }

    /// Where an object is, if this segment knows it and its pack is there: the
    /// first of its places that will do.
    pub(super) fn find(
        &self,
        id: &ObjectId,
        will_do: &dyn Fn(&Place) -> bool,
    ) -> Result<Option<Place>, TableError> {
        match &self.source {
            Source::File(table) => {
                for record in table.from(id.as_bytes())? {
                    let record = record?;
                    if record[..32] != id.as_bytes()[..] {
                        break;
                    }
                    if let Some(place) = self.live_place(record).filter(will_do) {
                        return Ok(Some(place));
                    }
                }
                Ok(None)
            }
            Source::Memory(records) => {
                let at = records.binary_search_by(|record| record[..32].cmp(id.as_bytes()));
                Ok(at.ok().and_then(|at| self.live_place(&records[at])).filter(will_do))
            }
        }
    }

    /// Number of an object's record.
    pub(super) fn position(&self, id: &ObjectId) -> Result<Option<u64>, TableError> {
        match &self.source {
            Source::File(table) => Ok(table.find(id.as_bytes())?.map(|(at, _)| at)),
            Source::Memory(records) => {
                let found = records.binary_search_by(|record| record[..32].cmp(id.as_bytes()));
                Ok(found.ok().map(|at| at as u64))
            }
        }
    }

    fn live_place(&self, record: &[u8]) -> Option<Place> {
        let place = place(record)?;
        let pack = (*self.numbers.get(place.pack as usize)?)?;
        Some(Place { pack, ..place })
    }

    /// Calls `visit` with each live object from `low` to `high`, until it
    /// returns false.
    pub(super) fn between(
        &self,
        low: &[u8; 32],
        high: &[u8; 32],
        visit: &mut impl FnMut(ObjectId, Place) -> bool,
    ) -> Result<(), TableError> {
        let mut step = |record: &[u8]| {
            let mut digest = [0; 32];
            digest.copy_from_slice(&record[..32]);
            if digest > *high {
                return false;
            }
            self.live_place(record).is_none_or(|place| visit(ObjectId::from_bytes(digest), place))
        };
        match &self.source {
            Source::File(table) => {
                for record in table.from(low)? {
                    if !step(record?) {
                        break;
                    }
                }
            }
            Source::Memory(records) => {
                let start = records.partition_point(|record| record[..32] < low[..]);
                let _ = records[start..].iter().all(|record| step(record));
            }
        }
        Ok(())
    }

    fn record(&self, index: u64) -> Result<Option<&[u8]>, TableError> {
        match &self.source {
            Source::File(table) if index < table.records() => table.record(index).map(Some),
            Source::File(_) => Ok(None),
            Source::Memory(records) => Ok(records.get(index as usize).map(|record| &record[..])),
        }
    }
}

/// Writes the sorted records of one pack to `path`.
pub(super) fn write(
    disk: &Disk,
    path: &Path,
    pack: PackId,
    records: &[Record],
) -> Result<PathBuf, PathError> {
    let mut writer = TableWriter::create(disk, path, SHAPE)?;
    for record in records {
        writer.push(record)?;
    }
    writer.finish(pack.as_bytes())
}

/// Merges segments into one at `path`, without records of packs that are gone.
///
/// An object keeps a record for each pack that has it. Were it reduced to one,
/// that one might be of a pack that is about to be removed, or was removed by
/// another process since the packs were listed.
///
/// Memory: one record for each segment, and those of one object.
pub(super) fn merge(
    disk: &Disk,
    path: &Path,
    segments: &[&Segment],
) -> Result<PathBuf, TableError> {
    let mut packs: Vec<PackId> = Vec::new();
    let mut numbering: HashMap<PackId, u32> = HashMap::new();
    for segment in segments {
        for (id, number) in segment.packs.iter().zip(&segment.numbers) {
            if number.is_some() && packs.len() * 32 < limits::TABLE_META_BYTES {
                numbering.entry(*id).or_insert_with(|| {
                    packs.push(*id);
                    packs.len() as u32 - 1
                });
            }
        }
    }
    let mut writer = TableWriter::create(disk, path, SHAPE)?;
    let mut heap = BinaryHeap::new();
    for (which, segment) in segments.iter().enumerate() {
        push_next(&mut heap, segment, which, 0)?;
    }
    // Records of one object, under the new numbers: sorted once they are all
    // here, since each segment sorted them by its own.
    let mut same: Vec<Record> = Vec::new();
    while let Some(std::cmp::Reverse((mut record, which, index))) = heap.pop() {
        push_next(&mut heap, segments[which], which, index + 1)?;
        let own = (field(&record, 32) & (MAX_PACKS - 1)) as usize;
        let Some(pack) = segments[which].packs.get(own).and_then(|id| numbering.get(id)) else {
            continue;
        };
        if same.first().is_some_and(|first| first[..32] != record[..32]) {
            push_all(&mut writer, &mut same)?;
        }
        let kind = field(&record, 32) & !(MAX_PACKS - 1);
        record[32..36].copy_from_slice(&(pack | kind).to_le_bytes());
        same.push(record);
    }
    push_all(&mut writer, &mut same)?;
    let meta: Vec<u8> = packs.iter().flat_map(|id| *id.as_bytes()).collect();
    Ok(writer.finish(&meta)?)
}

/// Writes the records of one object, one for each pack.
fn push_all(writer: &mut TableWriter, records: &mut Vec<Record>) -> Result<(), PathError> {
    records.sort_unstable_by_key(|record| (field(record, 32), *record));
    records.dedup_by_key(|record| field(record, 32));
    records.drain(..).try_for_each(|record| writer.push(&record))
}

type Heap = BinaryHeap<std::cmp::Reverse<(Record, usize, u64)>>;

fn push_next(
    heap: &mut Heap,
    segment: &Segment,
    which: usize,
    index: u64,
) -> Result<(), TableError> {
    if let Some(bytes) = segment.record(index)? {
        let mut record = [0; RECORD_BYTES];
        record.copy_from_slice(bytes);
        heap.push(std::cmp::Reverse((record, which, index)));
    }
    Ok(())
}
