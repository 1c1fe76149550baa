//! Index segments: tables from object id to location, for the objects of some packs.
//!
//! A segment is a [table](crate::format::table) with 48-byte records:
//!
//! | offset | bytes | field                                             |
//! |--------|-------|---------------------------------------------------|
//! | 0      | 32    | object id, the key                                |
//! | 32     | 4     | pack, u32: its number in the list below; the 4 high bits are the kind |
//! | 36     | 4     | frame number in the pack, u32                     |
//! | 40     | 4     | offset in the frame's raw bytes, u32              |
//! | 44     | 4     | length, u32                                       |
//!
//! The metadata of the table is the list of packs, 32 bytes each. A segment has every object of
//! each listed pack. An object in several of these packs has a record for each pack: lookups still
//! find the object after the removal of one pack. The records of removed packs are dead; the next
//! merge drops them.

use std::{
    collections::{BinaryHeap, HashMap},
    hash::{BuildHasher, RandomState},
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
        pack::{Frame, ObjectKind, PackedObject},
        table::{Shape, TablePurpose},
        wire::FormatError,
    },
    store::objects::ObjectLocation,
};

/// Length of a record in bytes.
pub(super) const RECORD_BYTES: usize = 48;

/// Table of an index segment. The key of a record is an object id.
pub(super) const SHAPE: Shape =
    Shape { purpose: TablePurpose::Index, key_bytes: 32, record_bytes: RECORD_BYTES };

/// Number of packs that one segment can list: 28 bits of a record.
const MAX_PACKS: u32 = 1 << 28;

pub(super) type IndexRecord = [u8; RECORD_BYTES];

/// Returns the sorted records of a pack's objects, one for each id and kind. A content may be
/// stored both as a chunk list and, as a chunk of another content, as a blob.
pub(super) fn records(pack: u32, frames: &[Frame], objects: &[PackedObject]) -> Vec<IndexRecord> {
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
    records.dedup_by(|a, b| a[..32] == b[..32] && kind_code(a) == kind_code(b));
    records
}

fn record(pack: u32, frame: u32, offset: u32, object: &PackedObject) -> IndexRecord {
    debug_assert!(pack < MAX_PACKS);
    let mut record = [0; RECORD_BYTES];
    record[..32].copy_from_slice(object.id.as_bytes());
    let pack = pack | (u32::from(object.kind.code()) << 28);
    for (at, value) in [(32, pack), (36, frame), (40, offset), (44, object.bytes)] {
        record[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    record
}

fn kind_code(record: &[u8]) -> u32 {
    field(record, 32) >> 28
}

fn field(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
}

/// Decodes the location in a record. Its pack number still refers to the segment's own list.
fn place(record: &[u8]) -> Option<ObjectLocation> {
    let pack = field(record, 32);
    let kind = ObjectKind::from_code((pack >> 28) as u8)?;
    Some(ObjectLocation {
        pack: pack & (MAX_PACKS - 1),
        frame: field(record, 36),
        offset: field(record, 40),
        bytes: field(record, 44),
        kind,
    })
}

/// A digest of the records of one pack. It does not depend on the order of the records or on the
/// number of the pack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordsDigest {
    records: u64,
    sum: u64,
}

impl RecordsDigest {
    /// Adds a record. All records must be hashed with the same `state`.
    pub(super) fn add(&mut self, state: &RandomState, record: &[u8]) {
        let kind = field(record, 32) & !(MAX_PACKS - 1);
        self.records += 1;
        self.sum = self.sum.wrapping_add(state.hash_one((&record[..32], kind, &record[36..])));
    }
}

/// An open segment, backed by a file or, if the store cannot be written, by memory.
#[derive(Debug)]
pub(super) struct Segment {
    source: SegmentRecords,
    /// The packs whose objects the segment has.
    packs: Vec<PackId>,
    /// For each pack, its number in the open store; `None` if the pack is gone.
    numbers: Vec<Option<u32>>,
}

#[derive(Debug)]
enum SegmentRecords {
    File(Table),
    Memory(Vec<IndexRecord>),
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
        Ok(Self::new(SegmentRecords::File(table), packs, numbers))
    }

    /// Creates a segment in memory from the sorted records of packs.
    pub(super) fn in_memory(
        packs: Vec<PackId>,
        records: Vec<IndexRecord>,
        numbers: &HashMap<PackId, u32>,
    ) -> Self {
        Self::new(SegmentRecords::Memory(records), packs, numbers)
    }

    fn new(source: SegmentRecords, packs: Vec<PackId>, numbers: &HashMap<PackId, u32>) -> Self {
        let numbers = packs.iter().map(|id| numbers.get(id).copied()).collect();
        Self { source, packs, numbers }
    }

    pub(super) fn packs(&self) -> &[PackId] {
        &self.packs
    }

    /// Returns true if at least one pack of the segment still exists.
    pub(super) fn is_live(&self) -> bool {
        self.numbers.iter().any(Option::is_some)
    }

    /// Returns the path of the segment's file, or `None` for a segment in memory.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.source {
            SegmentRecords::File(table) => Some(table.path()),
            SegmentRecords::Memory(_) => None,
        }
    }

    /// Returns the records of one pack, renumbered for a segment of that pack alone. Returns `None`
    /// if the segment does not cover the pack or is damaged.
    pub(super) fn records_of(&self, pack: &PackId) -> Option<Vec<IndexRecord>> {
        let wanted = self.packs.iter().position(|id| id == pack)? as u32;
        let mut found = Vec::new();
        for at in 0..self.records() {
            let mut record: IndexRecord = self.record(at).ok()??.try_into().ok()?;
            let number = field(&record, 32);
            if number & (MAX_PACKS - 1) == wanted {
                record[32..36].copy_from_slice(&(number & !(MAX_PACKS - 1)).to_le_bytes());
                found.push(record);
            }
        }
        Some(found)
    }

    /// Returns a digest of the records of each covered pack.
    ///
    /// # Errors
    /// [`TableError`] when the file is damaged.
    pub(super) fn digests(&self, state: &RandomState) -> Result<Vec<RecordsDigest>, TableError> {
        let mut digests = vec![RecordsDigest::default(); self.packs.len()];
        for at in 0..self.records() {
            let Some(record) = self.record(at)? else { break };
            let pack = (field(record, 32) & (MAX_PACKS - 1)) as usize;
            if let Some(digest) = digests.get_mut(pack) {
                digest.add(state, record);
            }
        }
        Ok(digests)
    }

    /// Unmaps the pages of the file. The next read maps them again.
    pub(super) fn release(&self) {
        if let SegmentRecords::File(table) = &self.source {
            table.release();
        }
    }

    /// Returns the number of records.
    pub(super) fn records(&self) -> u64 {
        match &self.source {
            SegmentRecords::File(table) => table.records(),
            SegmentRecords::Memory(records) => records.len() as u64,
        }
    }

    /// Returns the first location of an object that is in an existing pack and that `is_acceptable`
    /// accepts.
    pub(super) fn find(
        &self,
        id: &ObjectId,
        is_acceptable: &dyn Fn(&ObjectLocation) -> bool,
    ) -> Result<Option<ObjectLocation>, TableError> {
        let mut at = self.lower_bound(id.as_bytes())?;
        while let Some(record) = self.record(at)?.filter(|record| record.starts_with(id.as_bytes()))
        {
            if let Some(place) = self.live_place(record).filter(is_acceptable) {
                return Ok(Some(place));
            }
            at += 1;
        }
        Ok(None)
    }

    /// Returns the id of a record; `at` is less than [`Segment::records`].
    pub(super) fn id(&self, at: u64) -> Result<ObjectId, TableError> {
        let record = self.record(at)?.and_then(|record| record.first_chunk::<32>());
        Ok(ObjectId::from_bytes(*record.unwrap_or(&[0; 32])))
    }

    /// Returns the number of an object's first record.
    pub(super) fn position(&self, id: &ObjectId) -> Result<Option<u64>, TableError> {
        let at = self.lower_bound(id.as_bytes())?;
        let is_found = self.record(at)?.is_some_and(|record| record.starts_with(id.as_bytes()));
        Ok(is_found.then_some(at))
    }

    /// Returns the number of the first record whose id is not below `id`.
    fn lower_bound(&self, id: &[u8; 32]) -> Result<u64, TableError> {
        match &self.source {
            SegmentRecords::File(table) => table.lower_bound(id),
            SegmentRecords::Memory(records) => {
                Ok(records.partition_point(|record| record[..32] < id[..]) as u64)
            }
        }
    }

    fn live_place(&self, record: &[u8]) -> Option<ObjectLocation> {
        let place = place(record)?;
        let pack = (*self.numbers.get(place.pack as usize)?)?;
        Some(ObjectLocation { pack, ..place })
    }

    /// Calls `visit` for each object from `low` to `high` in an existing pack, until `visit`
    /// returns false.
    pub(super) fn between(
        &self,
        low: &[u8; 32],
        high: &[u8; 32],
        visit: &mut impl FnMut(ObjectId, ObjectLocation) -> bool,
    ) -> Result<(), TableError> {
        let mut at = self.lower_bound(low)?;
        while let Some(record) = self.record(at)? {
            let digest = record.first_chunk().filter(|digest| *digest <= high);
            let Some(id) = digest.map(|digest| ObjectId::from_bytes(*digest)) else { break };
            if !self.live_place(record).is_none_or(|place| visit(id, place)) {
                break;
            }
            at += 1;
        }
        Ok(())
    }

    /// Returns a record by its number, or `None` after the last record.
    fn record(&self, index: u64) -> Result<Option<&[u8]>, TableError> {
        match &self.source {
            SegmentRecords::File(table) if index < table.records() => table.record(index).map(Some),
            SegmentRecords::File(_) => Ok(None),
            SegmentRecords::Memory(records) => {
                Ok(records.get(index as usize).map(|record| &record[..]))
            }
        }
    }
}

/// Writes the sorted records of packs to `path`.
pub(super) fn write(
    disk: &Disk,
    path: &Path,
    packs: &[PackId],
    records: &[IndexRecord],
) -> Result<PathBuf, PathError> {
    let mut writer = TableWriter::create(disk, path, SHAPE)?;
    for record in records {
        writer.push(record)?;
    }
    writer.finish(&meta_of(packs))
}

/// Returns the metadata of a segment of these packs.
fn meta_of(packs: &[PackId]) -> Vec<u8> {
    packs.iter().flat_map(|id| *id.as_bytes()).collect()
}

/// Merges segments into one at `path`, without the records of packs that are gone.
///
/// An object keeps a record for each pack that has it. The pack of a single record might be removed
/// soon, or might have been removed since the last listing.
///
/// Memory: one record for each segment, and the records of one object.
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
    // A k-way merge: the heap holds the next record of each segment, smallest first.
    let mut heap = BinaryHeap::new();
    for (which, segment) in segments.iter().enumerate() {
        push_next(&mut heap, segment, which, 0)?;
    }
    // Records of one object, with their new pack numbers. Each segment sorts by its own numbers, so
    // `push_all` sorts these records again.
    let mut same: Vec<IndexRecord> = Vec::new();
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
    Ok(writer.finish(&meta_of(&packs))?)
}

/// Sorts the records of one object, writes one for each pack and kind, and clears the list.
fn push_all(writer: &mut TableWriter, records: &mut Vec<IndexRecord>) -> Result<(), PathError> {
    records.sort_unstable_by_key(|record| (field(record, 32), *record));
    records.dedup_by_key(|record| field(record, 32));
    records.drain(..).try_for_each(|record| writer.push(&record))
}

type Heap = BinaryHeap<std::cmp::Reverse<(IndexRecord, usize, u64)>>;

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
