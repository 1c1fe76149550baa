//! Properties that must hold for any input of a decoder: it does not panic, it does not allocate
//! memory because of an unchecked length, and a decoded value encodes to the same bytes again.
//!
//! There is one function for each decoder. The fuzz targets call them with inputs of libFuzzer,
//! `tests/core/fuzz_replay.rs` with past findings and with mutations of valid encodings, and `soak`
//! with random mutations.

use std::{
    path::{Path, PathBuf},
    sync::LazyLock,
};

use snap_core::{
    base::{
        id::{IdPrefix, ListPartId},
        limits,
        observe::Silent,
    },
    codec::{DEFAULT_LEVEL, Decoder, Encoder},
    disk::{Disk, table::Table},
    format::{
        bundle::BundleHead,
        chunk_list::{self, ChunkList, ListEnd, PartRef},
        commit::Commit,
        pack::{self, Codec, FRAME_ENTRY_BYTES, HEADER_BYTES, TRAILER_BYTES, Trailer},
        table::{BLOCK_BYTES, BLOCK_SUM_BYTES, Shape, TableHeader, TablePurpose},
        tree::Node,
        wire::{WireReader, WireWriter},
    },
    local::{
        ignore::{self, IgnoreRules, IgnoreScope},
        scan::{FileKind, FileStat},
    },
    ops::find::{self, FindOptions, FoundPath},
    repo::{Config, RefName, Repo, past::PastError, ref_log, spec::Revisions},
    store::BundleReader,
};

pub mod seeds;

/// The name of a decoder, and the check of its properties.
pub type Target = (&'static str, fn(&[u8]));

/// All targets; each has a file in `targets/` and a folder in `fixtures/fuzz/`.
pub const TARGETS: [Target; 15] = [
    ("wire", wire),
    ("tree", tree),
    ("commit", commit),
    ("chunk_list", chunk_list),
    ("pack", pack),
    ("pack_footer", pack_footer),
    ("bundle", bundle),
    ("frame", frame),
    ("table", table),
    ("table_sealed", table_sealed),
    ("ref_log", ref_log),
    ("revision", revision),
    ("config", config),
    ("ignore", ignore),
    ("find", find),
];

/// Checks the primitives; the byte before each selects which one is read.
pub fn wire(data: &[u8]) {
    let mut r = WireReader::new(data);
    while let Ok(which) = r.u8("which") {
        let from = r.at();
        let mut w = WireWriter::new();
        let read = match which % 4 {
            0 => r.varint("varint").map(|value| w.varint(value)),
            1 => r.zigzag("zigzag").map(|value| w.zigzag(value)),
            2 => r.bytes("bytes", 1 << 10).map(|bytes| w.bytes(bytes)),
            _ => r.u32("u32").map(|value| w.u32(value)),
        };
        if read.is_err() {
            return;
        }
        assert_eq!(&data[from..r.at()], w.finish());
    }
}

/// Checks a tree node.
pub fn tree(data: &[u8]) {
    if let Ok(node) = Node::decode(data) {
        assert!(node.encode() == data, "{node:?} has two forms");
    }
}

/// Checks a commit.
pub fn commit(data: &[u8]) {
    if let Ok(commit) = Commit::decode(data) {
        assert!(commit.encode() == data, "{commit:?} has two forms");
    }
}

/// Checks a chunk list, and a part of one.
pub fn chunk_list(data: &[u8]) {
    if let Ok(list) = ChunkList::decode(data) {
        assert!(list.encode() == data, "{list:?} has two forms");
    }
    // The reference to a part has the length that the part states.
    let lengths = data
        .chunks_exact(36)
        .map(|chunk| u64::from(u32::from_le_bytes([chunk[32], chunk[33], chunk[34], chunk[35]])));
    let part = PartRef { id: ListPartId::of(data), bytes: lengths.sum() };
    for end in [ListEnd::Part, ListEnd::Content] {
        if let Ok(chunks) = chunk_list::decode_part(Some(part.bytes), end, data) {
            assert!(seeds::part(&chunks) == data, "{chunks:?} has two forms");
        }
    }
}

/// Checks a whole pack, as found in a folder.
pub fn pack(data: &[u8]) {
    let Ok(extension) = pack::decode_header(data) else { return };
    if extension == 0 {
        assert_eq!(pack::encode_header(), data[..HEADER_BYTES]);
    }
    let start = HEADER_BYTES as u64 + u64::from(extension);
    let Some(end) = data.len().checked_sub(TRAILER_BYTES) else { return };
    let Ok(trailer) = Trailer::decode(&data[end..], data.len() as u64) else { return };
    let footer = trailer.footer_offset() as usize;
    let objects = footer + trailer.frame_table_bytes();
    let Ok(frames) = trailer.decode_frames(&data[footer..objects], start) else { return };
    let Ok(objects) = trailer.decode_objects(&data[objects..end], &frames) else { return };
    assert!(pack::encode_footer(&frames, &objects, start) == data[footer..]);
    let mut decoder = Decoder::new().unwrap();
    for frame in frames {
        let stored = &data[frame.offset as usize..][..frame.stored_bytes as usize];
        let raw = decoder.decode(frame.codec, stored, frame.raw_bytes as usize);
        assert!(raw.is_err() || raw.unwrap().len() == frame.raw_bytes as usize);
    }
}

/// Checks the head of a bundle, and a bundle read from a pipe.
pub fn bundle(data: &[u8]) {
    if let Ok(head) = BundleHead::decode(data) {
        assert!(head.encode() == data, "{head:?} has two forms");
    }
    let Ok((mut reader, _)) = BundleReader::new(data) else { return };
    while let Ok(Some((_, bytes))) = reader.next_pack() {
        let mut read = 0;
        let whole = reader.read_pack(bytes, &mut |piece| {
            read += piece.len() as u64;
            Ok(())
        });
        assert!(read <= bytes && (whole.is_err() || read == bytes));
        if whole.is_err() {
            break;
        }
    }
}

/// Checks a pack footer with valid checksums, so that the code behind them is reached. The first
/// byte is the number of frames.
pub fn pack_footer(data: &[u8]) {
    let Some((&frames, rest)) = data.split_first() else { return };
    let Some((table, objects)) = rest.split_at_checked(usize::from(frames) * FRAME_ENTRY_BYTES)
    else {
        return;
    };
    let stored =
        |entry: &[u8]| u64::from(u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]));
    let frames_bytes: u64 = table.chunks_exact(FRAME_ENTRY_BYTES).map(stored).sum();
    let start = HEADER_BYTES as u64;
    let count = objects.len() / pack::OBJECT_ENTRY_BYTES;
    let trailer = Trailer {
        frames: u32::from(frames),
        objects: count as u32,
        frames_checksum: pack::checksum(table),
        objects_checksum: pack::checksum(objects),
        file_bytes: start + frames_bytes + (rest.len() + TRAILER_BYTES) as u64,
    };
    let Ok(decoded) = trailer.decode_frames(table, start) else { return };
    let Ok(found) = trailer.decode_objects(objects, &decoded) else { return };
    let again = pack::encode_footer(&decoded, &found, start);
    assert!(again[..rest.len()] == *rest);
    let end = &again[rest.len()..];
    assert_eq!(Trailer::decode(end, trailer.file_bytes), Ok(trailer));
}

/// Checks a compressed frame; the first three bytes are its expected length.
pub fn frame(data: &[u8]) {
    let Some((len, stored)) = data.split_first_chunk::<3>() else { return };
    let raw_bytes = usize::from(len[0]) | usize::from(len[1]) << 8 | usize::from(len[2]) << 16;
    let raw_bytes = raw_bytes.min(limits::FRAME_RAW_BYTES);
    let mut decoder = Decoder::new().unwrap();
    if let Ok(raw) = decoder.decode(Codec::Zstd, stored, raw_bytes) {
        assert_eq!(raw.len(), raw_bytes);
    }
    let mut encoder = Encoder::new(DEFAULT_LEVEL).unwrap();
    let (codec, encoded) = encoder.encode(stored).unwrap();
    assert!(decoder.decode(codec, encoded, stored.len()).unwrap() == stored);
}

/// The shape of the tested tables: that of the index.
const SHAPE: Shape = Shape { purpose: TablePurpose::Index, key_bytes: 32, record_bytes: 48 };

/// Checks a table file.
pub fn table(data: &[u8]) {
    read_table(data);
}

/// Checks a table with valid checksums. The first byte is the number of metadata bytes; the rest is
/// records and metadata.
pub fn table_sealed(data: &[u8]) {
    let Some((&meta_bytes, rest)) = data.split_first() else { return };
    let Some(at) = rest.len().checked_sub(usize::from(meta_bytes)) else { return };
    let (body, meta) = rest.split_at(at);
    let records: Vec<&[u8]> = body.chunks_exact(SHAPE.record_bytes).collect();
    let mut blocks = Vec::new();
    let mut tail = Vec::new();
    for block in records.chunks(SHAPE.block_records()) {
        tail.extend_from_slice(&block[0][..8]);
        let mut bytes = block.concat();
        bytes.resize(BLOCK_BYTES - BLOCK_SUM_BYTES, 0);
        blocks.extend_from_slice(&pack::checksum(&bytes).to_le_bytes());
        blocks.extend_from_slice(&bytes);
    }
    tail.extend_from_slice(meta);
    let header = TableHeader {
        shape: SHAPE,
        records: records.len() as u64,
        meta_bytes: meta.len() as u64,
        tail_checksum: pack::checksum(&tail),
    };
    assert!(read_table(&[header.encode(), blocks, tail].concat()), "a table was refused");
}

/// Opens a table and reads everything in it; returns true if it could be opened.
fn read_table(bytes: &[u8]) -> bool {
    static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
    let path = FOLDER.path().join(format!("table-{:?}", std::thread::current().id()));
    // A mapped file must not change, so the file is removed and written anew each time.
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, bytes).unwrap();
    let Ok(table) = Table::open(&path, SHAPE) else { return false };
    let mut key = [0; 32];
    for record in table.iter() {
        let Ok(record) = record else { break };
        key.copy_from_slice(&record[..32]);
    }
    for key in [[0; 32], key, [255; 32]] {
        let _ = table.find(&key);
        if let Ok(first) = table.lower_bound(&key) {
            (first..table.records()).take(3).for_each(|at| drop(table.record(at)));
        }
    }
    true
}

/// Checks a ref log.
pub fn ref_log(data: &[u8]) {
    static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
    let path = FOLDER.path().join(format!("log-{:?}", std::thread::current().id()));
    std::fs::write(&path, data).unwrap();
    let lines = ref_log::read(&path).unwrap();
    assert!(lines.len() <= data.iter().filter(|byte| **byte == b'\n').count());
}

/// Opens a store without commits.
fn empty_repo() -> Repo {
    static REPO: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
        (folder, store)
    });
    Repo::open(&REPO.1, Disk::default(), &Silent).unwrap()
}

/// Checks a revision, on a store without commits.
pub fn revision(data: &[u8]) {
    let repo = empty_repo();
    let date = |_: &str| None;
    let _ = Revisions::new(&repo, &date).resolve(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(prefix) = IdPrefix::parse(text) {
        let (low, high) = prefix.bounds();
        assert!(low <= high);
    }
    if let Ok(name) = RefName::branch(text) {
        assert_eq!(name.short(), text);
        assert!(RefName::parse_full(&name.to_string()).is_some_and(|again| again == name));
    }
}

/// Checks the settings of a store.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(config) = Config::parse(text, Path::new("config.toml")) {
        let again = Config::parse(&config.to_text(), Path::new("config.toml"));
        assert_eq!(again.unwrap(), config);
    }
}

/// Checks patterns of options and the lines of an ignore file; the last line is the path to match.
pub fn ignore(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let path = lines.pop().unwrap_or_default();
    let (scope, _) = IgnoreScope::default().with_file(lines.join("\n").as_bytes(), b"");
    let none = IgnoreRules::new(ignore::Options::default()).unwrap();
    none.excludes_path(&scope, path.as_bytes(), false);
    let options = ignore::Options { patterns: lines, ..ignore::Options::default() };
    let Ok(rules) = IgnoreRules::new(options) else { return };
    rules.excludes_size(&FileStat { kind: FileKind::File, ..seeds::stat() });
    for is_folder in [false, true] {
        rules.excludes_path(&IgnoreScope::default(), path.as_bytes(), is_folder);
    }
}

/// Checks the pattern of a search, on a store without commits.
pub fn find(data: &[u8]) {
    let repo = empty_repo();
    for case in [find::Case::Exact, find::Case::Ignored] {
        let options = FindOptions { case, ..FindOptions::new(data) };
        let mut each = |_: &FoundPath| Ok::<_, PastError>(());
        let _ = find::run(repo.store(), &[], &options, &Silent, &mut each);
    }
}
