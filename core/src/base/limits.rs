//! Every ceiling, with its reason. A length that comes from outside is checked
//! against one of these before anything is allocated for it.

/// Longest entry name: what Linux file systems allow.
pub const NAME_BYTES: usize = 255;

/// Longest symlink target: `PATH_MAX` on Linux.
pub const SYMLINK_BYTES: usize = 4096;

/// Extended attributes of one entry: what ext4 and XFS allow for one value,
/// times sixteen.
pub const XATTR_TOTAL_BYTES: usize = 1 << 20;

/// Number of extended attributes of one entry.
pub const XATTRS: usize = 4096;

/// Levels of folders in a tree. `PATH_MAX / 2`: no path deeper than that can
/// be named to the system in one call.
pub const DEPTH: usize = 2048;

/// Distinct owners in one tree node: one for each entry at most.
pub const OWNERS: usize = TREE_NODE_ENTRIES;

/// Entries of one tree node; a larger directory is split. With 255-byte names
/// and without xattrs a full node stays near 5 MiB.
pub const TREE_NODE_ENTRIES: usize = 16_384;

/// One encoded tree node. An entry is at most 1.01 MiB; a node is closed once
/// it holds more than [`TREE_NODE_TARGET_BYTES`].
pub const TREE_NODE_BYTES: usize = 8 << 20;

/// A node that grows beyond this is closed even without a boundary name.
pub const TREE_NODE_TARGET_BYTES: usize = 2 << 20;

/// Levels of nodes in one split directory: 16,384³ entries are beyond any
/// file system.
pub const TREE_NODE_LEVELS: u8 = 4;

/// One encoded commit, message and labels included.
pub const COMMIT_BYTES: usize = 1 << 20;

/// Extended attributes of the root folder, which lie in the commit itself and
/// must leave room for its message and its labels.
pub const ROOT_XATTR_BYTES: usize = COMMIT_BYTES / 4;

/// Parents of a commit.
pub const PARENTS: usize = 256;

/// Labels of a commit.
pub const LABELS: usize = 1024;

/// Different rule sets that a commit records: one for each way in which its
/// paths were updated since a commit of everything.
pub const RULE_SETS: usize = 64;

/// Patterns of one rule set; together with everything else they must fit in
/// [`COMMIT_BYTES`].
pub const PATTERNS: usize = 16_384;

/// Source paths that a commit records.
pub const SOURCES: usize = 4096;

/// Bytes of matches that a search holds at a time, about: 200,000 paths with one
/// version each. With more, it goes through the history again.
pub const FIND_BYTES: usize = 96 << 20;

/// Unread paths that a commit records: enough for what a user looks through.
pub const UNREAD_PATHS: usize = 1024;

/// Bytes of those paths: an eighth of [`COMMIT_BYTES`], so that they never
/// keep a commit from being stored.
pub const UNREAD_BYTES: usize = COMMIT_BYTES / 8;

/// Bytes of a frame before compression. Bounds what one reader allocates on
/// the word of a pack.
pub const FRAME_RAW_BYTES: usize = 16 << 20;

/// Bytes of a frame as stored: zstd's worst case on [`FRAME_RAW_BYTES`].
pub const FRAME_STORED_BYTES: usize = FRAME_RAW_BYTES + (FRAME_RAW_BYTES >> 8) + 1024;

/// A frame of small contents is closed at this size: `docs/decisions/0002`.
pub const SMALL_FRAME_BYTES: usize = 2 << 20;

/// Chunks of a large file share a frame up to this size.
pub const LARGE_FRAME_BYTES: usize = 4 << 20;

/// A metadata frame is closed at this size: a reader of one tree expands no
/// more than this.
pub const META_FRAME_BYTES: usize = 256 << 10;

/// Files up to this size are one blob; larger ones are cut.
pub const WHOLE_FILE_BYTES: u64 = 1 << 20;

/// Frames of one pack.
pub const PACK_FRAMES: usize = 1 << 20;

/// Objects of one pack: the footer of a full one is 37 MiB.
pub const PACK_OBJECTS: usize = 1 << 20;

/// Damaged objects of one pack that the shadow table names one by one: 128 KiB
/// of ids. Beyond that the whole pack is shadowed.
pub const SHADOW_OBJECTS: usize = 1 << 12;

/// The shadow table of a store: more than 500 packs that each name
/// [`SHADOW_OBJECTS`] objects.
pub const SHADOW_BYTES: u64 = 64 << 20;

/// Header extension of a pack (a bundle's commit and prerequisites).
pub const PACK_EXTENSION_BYTES: usize = 16 << 20;

/// Packs of one bundle: of full ones, 16 TiB. A reader holds 16 bytes for each.
pub const BUNDLE_PACKS: usize = 1 << 18;

/// Prerequisites of a bundle; half of what fits in [`PACK_EXTENSION_BYTES`].
pub const PREREQUISITES: usize = 1 << 18;

/// Objects of a bundle whose index is held in memory (12 MiB) when it is read
/// in place; that of a larger one is written to a scratch folder.
pub const BUNDLE_INDEX_OBJECTS: u64 = 1 << 18;

/// Longest pack that a bundle may announce: what a writer makes stays below an
/// eighth of it.
pub const PACK_BYTES: u64 = 1 << 30;

/// A pack is closed once its frames hold this much. Large enough that a push
/// of a GiB is tens of requests, small enough that merging one is short.
pub const PACK_TARGET_BYTES: u64 = 64 << 20;

/// A pack is closed once its frames come to this, expanded, however well they
/// compress: what follows 256 times shorter fills a pack of
/// [`PACK_TARGET_BYTES`] all the same.
pub const PACK_RAW_TARGET_BYTES: u64 = 16 << 30;

/// Bytes of a pack that is taken in, expanded: four times what a writer makes. A
/// minute for one processor, however short the pack is; zstd alone would make
/// terabytes of 100 MB.
pub const PACK_RAW_BYTES: u64 = 64 << 30;

/// Metadata frames that wait in memory for the end of their pack; beyond
/// this the pack is closed early.
pub const PENDING_META_BYTES: usize = 12 << 20;

/// Objects that wait in memory for the end of their pack.
pub const PENDING_OBJECTS: usize = 1 << 18;

/// Largest chunk a store may be configured to: a chunk must fit in a frame.
pub const CHUNK_BYTES: usize = 8 << 20;

/// Entries of a chunk list, or of one part of it. One part is 590 KB.
pub const CHUNK_LIST_ENTRIES: usize = 16_384;

/// Parts of a chunk list: 1,024 parts of 16,384 chunks of 1 MiB are 16 TiB, the
/// largest file of ext4; a reader that wants all of them at once holds 600 MB for
/// that, one that goes part by part 600 KB.
pub const CHUNK_LIST_PARTS: usize = 1024;

/// What a chunk counts for at least when it is reckoned how much work a list is
/// to check: finding and reading it takes about as long as hashing so many bytes.
pub const CHUNK_WORK_BYTES: u64 = 64 << 10;

/// Records of one table file (index segment or stat cache).
pub const TABLE_RECORDS: u64 = 1 << 32;

/// Bytes of a table's own metadata: 16,384 pack names are 512 KiB.
pub const TABLE_META_BYTES: usize = 16 << 20;

/// A ref file: an id, a nonce, an epoch, and about 200 former tips that a later
/// version may keep there; or one name.
pub const REF_BYTES: usize = 16 << 10;

/// Length of a branch or tag name.
pub const REF_NAME_BYTES: usize = 200;

/// Bytes at the end of a ref log that are read: some 200,000 changes.
pub const REF_LOG_BYTES: u64 = 64 << 20;

/// The list of packs that the stat cache relies on: more than 500,000.
pub const RELIED_BYTES: u64 = 64 << 20;

/// The paths of a partial clone's scope: more than a command line can name.
pub const SCOPE_BYTES: u64 = 4 << 20;

/// Store configuration file.
pub const CONFIG_BYTES: u64 = 1 << 20;

/// A file of the index of a store elsewhere. No push writes more than a few MiB,
/// unless one pack alone says more of itself: at most [`PACK_EXTENSION_BYTES`],
/// 24 bytes for each of [`PACK_FRAMES`] and 37 for each of [`PACK_OBJECTS`], 77
/// MiB. With it are the smaller files that are merged, 8 MiB at most.
pub const REMOTE_INDEX_BYTES: u64 = 96 << 20;

/// What a service may reply beside objects, such as one page of a listing: 1,000
/// keys in a bucket are below 2 MiB, and a share lists a folder of 60,000 files.
pub const REPLY_BYTES: u64 = 64 << 20;

/// Objects that are listed with one prefix elsewhere: a million packs of 64 MiB are 64 TiB, and
/// what is known of so many takes 130 MiB. A service that lists more has no end.
pub const LISTED_OBJECTS: usize = 1 << 20;

/// An ignore file; a larger one is not one.
pub const IGNORE_FILE_BYTES: u64 = 4 << 20;

/// Decoded frames that a reader keeps: a restore reads a frame once, so this
/// serves trees and chunk lists.
pub const FRAME_CACHE_BYTES: usize = 16 << 20;

/// Pack files kept open for reading.
pub const OPEN_PACKS: usize = 256;

/// Retries of a ref update that lost a race.
pub const REF_RETRIES: usize = 64;

/// Files that a comparison considers as halves of renames; beyond that they
/// show as removed and added. More than anybody looks through.
pub const RENAME_CANDIDATES: usize = 50_000;

/// What such files, and the changes between them, may take in memory.
pub const RENAME_BYTES: usize = 48 << 20;

/// Pairs of folders whose differences `stats` keeps the sums of: about 12 MiB.
pub const COMPARED_FOLDERS: usize = 1 << 16;

/// Results of folders that a comparison may be ahead of what it hands out:
/// about 400 bytes each.
pub const DIFF_AHEAD: usize = 1 << 14;

/// A larger file is said to differ, but not how: both sides are held in memory.
pub const DIFF_FILE_BYTES: u64 = 8 << 20;
