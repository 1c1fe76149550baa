//! Encoded values decode to the same values, accepted bytes have only one encoding, and
//! no bytes make a decoder panic.

use std::sync::Arc;

use proptest::{
    collection::{btree_set, vec},
    prelude::*,
};
use snap_core::{
    base::{
        id::{BlobId, ChunkListId, CommitId, ContentId, ListPartId, ObjectId, TreeId},
        limits,
        name::EntryName,
        time::Time,
    },
    chunk::{Cutter, Params},
    codec::{Decoder, Encoder},
    disk::{
        Disk,
        table::{Table, TableWriter},
    },
    format::{
        chunk_list::{self, BlobRef, ChunkList, ListEnd, PartRef, ZERO_CHUNK},
        commit::{self, Commit},
        pack::{
            self, Codec, Frame, HEADER_BYTES, ObjectClass, ObjectKind, PackedObject, TRAILER_BYTES,
            Trailer,
        },
        selection::{FolderMarker, IgnoreOptions, Selection},
        table::{Shape, TableHeader, TablePurpose},
        tree::{
            self, Child, Device, Entry, EntryKind, Metadata, Node, Owner, Totals, Xattr,
            split::FolderEncoder,
        },
        wire::{FormatError, WireReader, WireWriter},
    },
};

use crate::crafted::list_part;

fn digest() -> impl Strategy<Value = [u8; 32]> {
    any::<[u8; 32]>()
}

fn name() -> impl Strategy<Value = EntryName> {
    let bytes = prop_oneof![vec(any::<u8>(), 1..12), vec(any::<u8>(), 250..256)];
    bytes.prop_filter_map("no name", |bytes| EntryName::new(&bytes).ok())
}

fn time() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Time { secs, nanos })
}

fn owner() -> impl Strategy<Value = Arc<Owner>> {
    let text = || vec(any::<u8>(), 0..20).prop_map(Vec::into_boxed_slice);
    // Few numbers, so that several entries have the same owner.
    let parts = (0..3_u32, prop_oneof![0..3_u32, any::<u32>()], text(), text());
    parts.prop_map(|(uid, gid, user, group)| Arc::new(Owner { uid, gid, user, group }))
}

fn xattrs() -> impl Strategy<Value = Vec<Xattr>> {
    let names = vec(1..=255_u8, 1..30);
    proptest::collection::btree_map(names, vec(any::<u8>(), 0..50), 0..4).prop_map(|map| {
        let pairs = map.into_iter();
        pairs.map(|(name, value)| Xattr { name: name.into(), value: value.into() }).collect()
    })
}

fn metadata() -> impl Strategy<Value = Metadata> {
    use proptest::option::of;
    (0..=0o7777_u16, of(owner()), of(time()), xattrs(), of(any::<u64>()), any::<bool>()).prop_map(
        |(mode, owner, mtime, xattrs, link, sparse)| Metadata {
            mode,
            owner,
            mtime,
            xattrs,
            link,
            sparse,
        },
    )
}

fn kind() -> impl Strategy<Value = EntryKind> {
    let device = || any::<(u32, u32)>().prop_map(|(major, minor)| Device { major, minor });
    prop_oneof![
        (0..=limits::CHUNK_BYTES as u64, digest())
            .prop_map(|(size, id)| EntryKind::File { size, id: BlobId::from_bytes(id).into() }),
        (limits::WHOLE_FILE_BYTES + 1.., digest()).prop_map(|(size, id)| EntryKind::File {
            size,
            id: ContentId::Chunked(ChunkListId::from_bytes(id)),
        }),
        digest().prop_map(|id| EntryKind::Folder { id: TreeId::from_bytes(id) }),
        vec(1..=255_u8, 1..100).prop_map(|target| EntryKind::Symlink { target: target.into() }),
        Just(EntryKind::Fifo),
        Just(EntryKind::Socket),
        device().prop_map(|device| EntryKind::CharDevice { device }),
        device().prop_map(|device| EntryKind::BlockDevice { device }),
    ]
}

fn entries(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Entry>> {
    proptest::collection::btree_map(name(), (kind(), metadata()), count).prop_map(|map| {
        map.into_iter().map(|(name, (kind, metadata))| Entry { name, kind, metadata }).collect()
    })
}

fn totals() -> impl Strategy<Value = Totals> {
    any::<[u64; 4]>().prop_map(|[files, folders, others, bytes]| Totals {
        files,
        folders,
        others,
        bytes,
    })
}

fn node() -> impl Strategy<Value = Node> {
    let children = proptest::collection::btree_map(name(), digest(), 2..8).prop_map(|map| {
        map.into_iter().map(|(first, id)| Child { first, id: TreeId::from_bytes(id) }).collect()
    });
    prop_oneof![
        (totals(), entries(0..8)).prop_map(|(totals, entries)| Node::Leaf { totals, entries }),
        (1..=4_u8, totals(), children).prop_map(|(level, totals, children)| Node::Inner {
            level,
            totals,
            children
        }),
    ]
}

fn commit() -> impl Strategy<Value = Commit> {
    let text = || ".{0,40}";
    let labels = proptest::collection::btree_map(text(), text(), 0..4);
    let parents = proptest::collection::hash_set(digest(), 0..4)
        .prop_map(|ids| ids.into_iter().map(CommitId::from_bytes).collect());
    let root = proptest::option::of(metadata());
    let made = (digest(), parents, time());
    (made, text(), text(), text(), labels, root, totals(), selection()).prop_map(
        |((tree, parents, time), author, host, message, labels, root, totals, selection)| Commit {
            tree: TreeId::from_bytes(tree),
            parents,
            time,
            author,
            host,
            message,
            labels,
            root,
            totals,
            selection,
        },
    )
}

fn selection() -> impl Strategy<Value = Selection> {
    let path = || vec(any::<u8>(), 1..12);
    let marker = (vec(b'a'..=b'z', 1..9), vec(any::<u8>(), 0..9)).prop_map(|(name, header)| {
        FolderMarker { name: EntryName::new(&name).unwrap(), header: header.into() }
    });
    let patterns = || vec(".{0,8}", 0..3);
    let rules = (
        (patterns(), patterns(), vec(marker, 0..3)),
        any::<[bool; 3]>(),
        proptest::option::of(any::<u64>()),
    );
    (vec(rules, 0..3), btree_set(path(), 0..3), vec(path(), 0..3)).prop_map(
        |(sets, sources, paths)| {
            let sources = sources.into_iter().map(Box::from).collect();
            let mut selection = Selection { sources, ..Selection::default() };
            for (lists, [gitignore, cache_folders, one_file_system], larger_than_bytes) in sets {
                let (patterns, ignore_case_patterns, markers) = lists;
                selection.add_rules(&IgnoreOptions {
                    patterns,
                    ignore_case_patterns,
                    markers,
                    gitignore,
                    cache_folders,
                    larger_than_bytes,
                    one_file_system,
                });
            }
            paths.iter().for_each(|path| selection.unread.insert(path));
            selection
        },
    )
}

/// Makes chunks with the lengths of a content, or of the last part of a list.
fn pieces(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<BlobRef>> {
    let (least, most) = (limits::MIN_CHUNK_BYTES as u32, limits::CHUNK_BYTES as u32);
    let piece = |(id, bytes)| BlobRef { id: BlobId::from_bytes(id), bytes };
    let last = (digest(), 1..=most).prop_map(piece);
    (vec((digest(), least..=most).prop_map(piece), count), last)
        .prop_map(|(pieces, last)| pieces.into_iter().chain([last]).collect())
}

fn chunk_list() -> impl Strategy<Value = ChunkList> {
    let full = |chunk: usize| (limits::CHUNK_LIST_ENTRIES * chunk) as u64;
    let (least, most) = (full(limits::MIN_CHUNK_BYTES), full(limits::CHUNK_BYTES));
    let part = |(id, bytes)| PartRef { id: ListPartId::from_bytes(id), bytes };
    let parts = vec((digest(), least..=most).prop_map(part), 1..20);
    let last = (digest(), 1..=most).prop_map(part);
    prop_oneof![
        pieces(1..20)
            .prop_map(ChunkList::Chunks)
            .prop_filter("short", |list| list.total_bytes() > limits::WHOLE_FILE_BYTES),
        (parts, last).prop_map(|(parts, last)| {
            ChunkList::Parts(parts.into_iter().chain([last]).collect())
        }),
    ]
}

/// Makes frames and their objects in the order of a footer, data before metadata.
fn frames() -> impl Strategy<Value = (Vec<Frame>, Vec<PackedObject>)> {
    let kind = prop::sample::select(vec![0, 2, 3, 5, 6_u8]);
    let object = (digest(), kind, 0..5_000_u32);
    let frame = (vec(object, 1..6), any::<bool>(), any::<bool>(), any::<u64>(), 1..9_000_u32);
    vec(frame, 0..6).prop_map(|mut made| {
        made.sort_by_key(|(_, is_metadata, ..)| *is_metadata);
        let (mut frames, mut objects) = (Vec::new(), Vec::new());
        let mut offset = HEADER_BYTES as u64;
        for (inside, is_metadata, is_raw, checksum, packed_bytes) in made {
            let raw_bytes = inside.iter().map(|(_, _, bytes)| bytes).sum();
            let stored_bytes = if is_raw { raw_bytes } else { packed_bytes };
            let codec = if is_raw { Codec::Raw } else { Codec::Zstd };
            let class = if is_metadata { ObjectClass::Metadata } else { ObjectClass::Data };
            let count = inside.len() as u32;
            frames.push(Frame {
                offset,
                stored_bytes,
                raw_bytes,
                objects: count,
                codec,
                class,
                checksum,
            });
            offset += u64::from(stored_bytes);
            objects.extend(inside.into_iter().map(|(id, kind, bytes)| PackedObject {
                id: ObjectId::from_bytes(id),
                kind: ObjectKind::from_code(if is_metadata { kind } else { 0 }).unwrap(),
                bytes,
            }));
        }
        (frames, objects)
    })
}

/// Changes valid bytes of a format in a few places.
fn hurt(
    bytes: Vec<u8>,
    changes: &[(prop::sample::Index, u8)],
    cut: Option<prop::sample::Index>,
) -> Vec<u8> {
    let mut bytes = bytes;
    for (at, value) in changes.iter().filter(|_| !bytes.is_empty()).collect::<Vec<_>>() {
        let at = at.index(bytes.len());
        bytes[at] = *value;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len() + 1));
    }
    bytes
}

type Changes = (Vec<(prop::sample::Index, u8)>, Option<prop::sample::Index>);

fn changes() -> impl Strategy<Value = Changes> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    (vec(change, 0..4), proptest::option::weighted(0.2, any::<prop::sample::Index>()))
}

/// Runs each decoder on the bytes. Accepted bytes must encode to the same bytes.
fn decode_everything(bytes: &[u8]) {
    if let Ok(node) = Node::decode(bytes) {
        assert_eq!(node.encode(), bytes);
    }
    if let Ok(commit) = Commit::decode(bytes) {
        assert_eq!(commit.encode(), bytes);
    }
    if let Ok(list) = ChunkList::decode(bytes) {
        assert_eq!(list.encode(), bytes);
    }
    // The reference to a part has the length that the part states.
    let lengths = bytes
        .chunks_exact(36)
        .map(|chunk| u64::from(u32::from_le_bytes([chunk[32], chunk[33], chunk[34], chunk[35]])));
    let part = PartRef { id: ListPartId::of(bytes), bytes: lengths.sum() };
    for end in [ListEnd::Part, ListEnd::Content] {
        if let Ok(chunks) = chunk_list::decode_part(Some(part.bytes), end, bytes) {
            let (again, (_, _, encoded)) = list_part(&chunks);
            assert_eq!((again, &encoded[..]), (part, bytes));
        }
    }
    let mut r = WireReader::new(bytes);
    if let Ok(value) = r.varint("varint") {
        let mut w = WireWriter::new();
        w.varint(value);
        assert_eq!(w.finish(), bytes[..r.at()]);
    }
    let _ = pack::decode_header(bytes);
    let _ = TableHeader::decode(bytes, SHAPE, bytes.len() as u64);
    for raw in [0, 1, 1000, 1 << 20] {
        let _ = Decoder::new().unwrap().decode(Codec::Zstd, bytes, raw);
    }
    let Some(end) = bytes.len().checked_sub(TRAILER_BYTES) else { return };
    let Ok(trailer) = Trailer::decode(&bytes[end..], bytes.len() as u64) else { return };
    let table = trailer.footer_offset() as usize;
    let objects = table + trailer.frame_table_bytes();
    let Ok(frames) = trailer.decode_frames(&bytes[table..objects], HEADER_BYTES as u64) else {
        return;
    };
    let Ok(objects) = trailer.decode_objects(&bytes[objects..end], &frames) else { return };
    assert_eq!(pack::encode_footer(&frames, &objects, HEADER_BYTES as u64), bytes[table..]);
}

const SHAPE: Shape = Shape { purpose: TablePurpose::StatFiles, key_bytes: 16, record_bytes: 80 };

proptest! {
    #![proptest_config(snap_testkit::property::cases(256))]

    #[test]
    fn numbers_round_trip(value in any::<u64>(), shift in 0..64_u32, signed in any::<i64>()) {
        let value = value >> shift;
        let mut w = WireWriter::new();
        w.varint(value);
        w.zigzag(signed >> shift);
        let bytes = w.finish();
        let mut r = WireReader::new(&bytes);
        prop_assert_eq!(r.varint("v"), Ok(value));
        prop_assert_eq!(r.zigzag("z"), Ok(signed >> shift));
        prop_assert_eq!(r.finish(), Ok(()));
    }

    #[test]
    fn tree_nodes_round_trip(node in node()) {
        prop_assert_eq!(Node::decode(&node.encode()), Ok(node));
    }

    #[test]
    fn commits_round_trip(commit in commit()) {
        prop_assert_eq!(Commit::decode(&commit.encode()), Ok(commit));
    }

    #[test]
    fn chunk_lists_round_trip(pieces in pieces(0..20), list in chunk_list()) {
        let (part, (_, _, bytes)) = list_part(&pieces);
        prop_assert_eq!(chunk_list::decode_part(Some(part.bytes), ListEnd::Content, &bytes), Ok(pieces));
        prop_assert!(chunk_list::decode_part(Some(part.bytes), ListEnd::Part, &bytes).is_err(), "it is not full");
        prop_assert_eq!(ChunkList::decode(&list.encode()), Ok(list));
    }

    #[test]
    fn pack_footers_round_trip((frames, objects) in frames()) {
        let stored: u64 = frames.iter().map(|frame| u64::from(frame.stored_bytes)).sum();
        let footer = pack::encode_footer(&frames, &objects, HEADER_BYTES as u64);
        let end = footer.len() - TRAILER_BYTES;
        let file_bytes = HEADER_BYTES as u64 + stored + footer.len() as u64;
        let trailer = Trailer::decode(&footer[end..], file_bytes).unwrap();
        prop_assert_eq!(trailer.footer_offset(), HEADER_BYTES as u64 + stored);
        let table = trailer.frame_table_bytes();
        let back = trailer.decode_frames(&footer[..table], HEADER_BYTES as u64).unwrap();
        prop_assert_eq!(trailer.decode_objects(&footer[table..end], &back).unwrap(), objects);
        prop_assert_eq!(back, frames);
    }

    #[test]
    fn frames_round_trip(seed in vec(any::<u8>(), 0..200), times in 0..300_usize, level in 1..=19) {
        let raw = seed.repeat(times);
        let mut encoder = Encoder::new(level).unwrap();
        let (codec, stored) = encoder.encode(&raw).unwrap();
        prop_assert!(stored.len() <= raw.len());
        let back = Decoder::new().unwrap().decode(codec, stored, raw.len());
        prop_assert_eq!(back.unwrap(), raw);
    }

    #[test]
    fn chunks_cover_the_input_and_do_not_depend_on_the_read_size(
        data in vec((any::<u8>(), 0..3_000_usize), 0..40),
        steps in vec(1..5_000_usize, 1..20),
    ) {
        let data: Vec<u8> =
            data.into_iter().flat_map(|(byte, times)| (0..times).map(move |n| byte ^ (n * n) as u8)).collect();
        let params = Params { min: 64, average: 4096, max: 9000 };
        let all_at_once = cut(&data, params, &[data.len().max(1)]);
        prop_assert_eq!(all_at_once.iter().sum::<usize>(), data.len());
        prop_assert!(all_at_once.iter().all(|len| (1..=9000).contains(len)));
        let but_last = all_at_once.len().saturating_sub(1);
        prop_assert!(all_at_once[..but_last].iter().all(|len| *len >= 64));
        prop_assert_eq!(cut(&data, params, &steps), all_at_once);
    }

    #[test]
    fn tables_find_every_inserted_key(
        keys in proptest::collection::btree_set(any::<[u8; 16]>(), 0..300),
        others in vec(any::<[u8; 16]>(), 0..20),
        meta in vec(any::<u8>(), 0..100),
    ) {
        let dir = crate::scratch::temporary();
        let path = dir.path().join("table");
        let mut writer = TableWriter::create(&Disk::default(), &path, SHAPE).unwrap();
        let record = |key: &[u8; 16]| [&key[..], &[key[0] ^ 0xff; 64]].concat();
        keys.iter().try_for_each(|key| writer.push(&record(key))).unwrap();
        writer.finish(&meta).unwrap();
        let table = Table::open(&path, SHAPE).unwrap();
        prop_assert_eq!(table.meta(), meta);
        let all: Vec<Vec<u8>> = table.iter().map(|record| record.unwrap().to_vec()).collect();
        prop_assert_eq!(&all, &keys.iter().map(record).collect::<Vec<_>>());
        for key in keys.iter().chain(&others) {
            let found = table.find(key).unwrap().map(|(_, record)| record.to_vec());
            prop_assert_eq!(found, keys.contains(key).then(|| record(key)));
            let at = table.lower_bound(key).unwrap();
            let next = (at < table.records()).then(|| table.record(at).unwrap().to_vec());
            prop_assert_eq!(next, keys.range(*key..).next().map(record));
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..400)) {
        decode_everything(&bytes);
    }

    #[test]
    fn corrupted_trees_are_refused_or_canonical(node in node(), (changes, cut) in changes()) {
        decode_everything(&hurt(node.encode(), &changes, cut));
    }

    #[test]
    fn corrupted_commits_are_refused_or_canonical(commit in commit(), (changes, cut) in changes()) {
        decode_everything(&hurt(commit.encode(), &changes, cut));
    }

    #[test]
    fn corrupted_chunk_lists_are_refused_or_canonical(
        pieces in pieces(0..20), list in chunk_list(), (changes, cut) in changes(),
    ) {
        decode_everything(&hurt(list.encode(), &changes, cut));
        decode_everything(&hurt(list_part(&pieces).1.2, &changes, cut));
    }

    #[test]
    fn corrupted_footers_are_refused_or_canonical(
        (frames, objects) in frames(), (changes, cut) in changes(),
    ) {
        let mut bytes = pack::encode_header().to_vec();
        bytes.resize(HEADER_BYTES + frames.iter().map(|frame| frame.stored_bytes as usize).sum::<usize>(), 7);
        bytes.extend(pack::encode_footer(&frames, &objects, HEADER_BYTES as u64));
        decode_everything(&bytes);
        decode_everything(&hurt(bytes, &changes, cut));
    }
}

/// Returns the chunk lengths of `data` that arrives in pieces of these lengths.
fn cut(data: &[u8], params: Params, steps: &[usize]) -> Vec<usize> {
    let (mut cutter, mut start, mut have, mut lengths) = (Cutter::new(params), 0, 0, Vec::new());
    let mut steps = steps.iter().cycle();
    loop {
        match cutter.next_cut(&data[start..have], have == data.len()) {
            Some(len) => {
                lengths.push(len);
                start += len;
            }
            None if have == data.len() => return lengths,
            None => have = (have + steps.next().unwrap()).min(data.len()),
        }
    }
}

#[test]
fn excessive_counts_are_refused_without_allocation() {
    // A leaf, a node and a commit that claim the largest possible counts.
    let (tree, commit) = (tree::VERSION, commit::VERSION);
    let claims = [&[tree, 0, 0, 0, 0, 0, 0][..], &[tree, 1, 0, 0, 0, 0], &[commit, 0, 0]];
    for claim in claims {
        for count in [16_383, 16_384, 16_385, u64::from(u32::MAX), u64::MAX] {
            let mut w = WireWriter::on(claim.to_vec());
            w.varint(count);
            w.raw(&[0; 50]);
            let bytes = w.finish();
            assert!(Node::decode(&bytes).is_err());
            assert!(Commit::decode(&bytes).is_err());
        }
    }
    // The number of entries of a list follows from its length.
    let chunk = ZERO_CHUNK;
    let part = PartRef {
        id: ListPartId::of(b""),
        bytes: (limits::CHUNK_LIST_ENTRIES * limits::CHUNK_BYTES) as u64,
    };
    for more in [0, 1] {
        let chunks = ChunkList::Chunks(vec![chunk; limits::CHUNK_LIST_ENTRIES + more]);
        let parts = ChunkList::Parts(vec![part; limits::CHUNK_LIST_PARTS + more]);
        for list in [chunks, parts] {
            let is_refused =
                matches!(ChunkList::decode(&list.encode()), Err(FormatError::Limit { .. }));
            assert_eq!(is_refused, more > 0);
        }
    }
}

/// Collects the entries of a directory, however it was split.
fn entries_below(
    nodes: &std::collections::HashMap<TreeId, Vec<u8>>,
    id: TreeId,
    into: &mut Vec<Entry>,
) -> u8 {
    match Node::decode(&nodes[&id]).unwrap() {
        Node::Leaf { entries, .. } => {
            into.extend(entries);
            0
        }
        Node::Inner { level, children, .. } => {
            for child in children {
                let first = into.len();
                assert_eq!(entries_below(nodes, child.id, into), level - 1);
                assert_eq!(into[first].name, child.first);
            }
            level
        }
    }
}

fn split(entries: &[Entry]) -> (TreeId, std::collections::HashMap<TreeId, Vec<u8>>) {
    let mut nodes = std::collections::HashMap::new();
    let mut put = |id, bytes: Vec<u8>| {
        nodes.insert(id, bytes);
        Ok::<_, FormatError>(())
    };
    let mut encoder = FolderEncoder::new();
    for entry in entries {
        encoder.push(entry.clone(), &Totals::default(), &mut put).unwrap();
    }
    let folder = encoder.finish(&mut put).unwrap();
    (folder.id, nodes)
}

#[test]
fn large_directories_round_trip() {
    let mut runner = proptest::test_runner::TestRunner::new(snap_testkit::property::cases(3));
    let sizes = (entries(20..60), 10_000..40_000_usize);
    let run = runner.run(&sizes, |(kinds, count)| {
        let entries: Vec<Entry> = (0..count)
            .map(|n| {
                let name = EntryName::new(format!("{:06}", n * 7).as_bytes()).unwrap();
                Entry { name, ..kinds[n % kinds.len()].clone() }
            })
            .collect();
        let (id, nodes) = split(&entries);
        prop_assert!(nodes.len() > 2);
        let mut back = Vec::new();
        entries_below(&nodes, id, &mut back);
        prop_assert!(back == entries);
        Ok(())
    });
    run.unwrap();
}
