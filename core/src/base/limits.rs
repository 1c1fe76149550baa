//! All limits, each with its reason. Decoders compare a length with its limit before they allocate
//! memory for it.

use std::time::Duration;

/// Length of an entry name: the limit of Linux file systems.
pub const NAME_BYTES: usize = 255;

/// Length of a symlink target: `PATH_MAX` on Linux.
pub const SYMLINK_BYTES: usize = 4096;

/// Total size of the extended attributes of one entry: 16 times the limit of ext4 and XFS for one
/// value.
pub const XATTR_TOTAL_BYTES: usize = 1 << 20;

/// Number of extended attributes of one entry.
pub const XATTRS: usize = 4096;

/// Levels of folders in a tree: `PATH_MAX / 2`. System calls refuse a deeper path.
pub const DEPTH: usize = 2048;

/// Number of distinct owners in one tree node: at most one for each entry.
pub const OWNERS: usize = TREE_NODE_ENTRIES;

/// Number of entries of one tree node. A larger directory is split into several nodes. A full node
/// with 255-byte names and without xattrs is about 5 MiB.
pub const TREE_NODE_ENTRIES: usize = 16_384;

/// Length of an encoded tree node. An entry takes at most 1.01 MiB, and a node is
/// closed when it holds more than [`TREE_NODE_TARGET_BYTES`].
pub const TREE_NODE_BYTES: usize = 8 << 20;

/// Size at which a tree node is closed even without a boundary name.
pub const TREE_NODE_TARGET_BYTES: usize = 2 << 20;

/// Levels of nodes above the leaves of one split directory. Two levels already hold
/// 16,384³ entries, more than any file system allows.
pub const TREE_NODE_LEVELS: u8 = 4;

/// Length of an encoded commit, including its message, its labels and [`PATTERNS`] with 30 bytes each.
pub const COMMIT_BYTES: usize = 4 << 20;

/// Total size of the root folder's extended attributes. The commit contains them and must have room
/// for its message and labels.
pub const ROOT_XATTR_BYTES: usize = 256 << 10;

/// Number of parents of a commit.
pub const PARENTS: usize = 256;

/// Number of labels of a commit.
pub const LABELS: usize = 1024;

/// Number of distinct rule sets of a commit: one for each set of ignore options in use since the
/// last complete commit.
pub const RULE_SETS: usize = 64;

/// Number of patterns of one rule set: those of the largest lists of files that users exclude. The
/// rest of the commit must also fit in [`COMMIT_BYTES`].
pub const PATTERNS: usize = 1 << 17;

/// Number of source paths that a commit records.
pub const SOURCES: usize = 4096;

/// Approximate memory for the matches of a search: 200,000 paths with one version each.
/// A search with more matches reads the history again.
pub const FIND_BYTES: usize = 96 << 20;

/// Number of unread paths that a commit records: more than a user would read through.
pub const UNREAD_PATHS: usize = 1024;

/// Total length of the unread paths of a commit: a small part of [`COMMIT_BYTES`], so that they never
/// make a commit too large to store.
pub const UNREAD_BYTES: usize = 128 << 10;

/// Length of a frame before compression. A reader allocates at most this much memory for one frame.
pub const FRAME_RAW_BYTES: usize = 16 << 20;

/// Length of a stored frame: zstd's worst case for [`FRAME_RAW_BYTES`].
pub const FRAME_STORED_BYTES: usize = FRAME_RAW_BYTES + (FRAME_RAW_BYTES >> 8) + 1024;

/// Maximum raw size of a frame with several small contents; see `docs/decisions/0002`.
pub const SMALL_FRAME_BYTES: usize = 2 << 20;

/// Raw size at which a frame with chunks of a large file is full.
pub const LARGE_FRAME_BYTES: usize = 4 << 20;

/// Maximum raw size of a metadata frame with several objects. A larger object has a frame of its
/// own.
pub const META_FRAME_BYTES: usize = 256 << 10;

/// Length up to which a content is one blob. A longer content is cut into chunks; it is one blob if
/// there is only one chunk.
pub const WHOLE_FILE_BYTES: u64 = 1 << 20;

/// Number of bytes that are read from a file that reports a size of 0. Files under `/proc` report
/// 0, and some of them are endless.
pub const UNSIZED_FILE_BYTES: usize = 1 << 20;

/// Time to read all bytes of a file that reports a size of 0. A read of some kernel files, such as
/// `trace_pipe`, blocks until the kernel has an event.
pub const UNSIZED_FILE_TIME: Duration = Duration::from_secs(1);

/// Number of frames in one pack.
pub const PACK_FRAMES: usize = 1 << 20;

/// Number of objects in one pack. The object table of a full pack is 37 MiB.
pub const PACK_OBJECTS: usize = 1 << 20;

/// Number of damaged objects of one pack that the shadow table lists individually: 128 KiB of ids.
/// Beyond this, the store shadows the whole pack.
pub const SHADOW_OBJECTS: usize = 1 << 12;

/// Objects of packs newer than a writer that the writer remembers it relied on: 2 MiB of ids. Beyond
/// this, it begins again if a garbage collection runs meanwhile.
pub const NEWER_OBJECTS: usize = 1 << 16;

/// Length of a store's shadow table: room for more than 500 packs that each list
/// [`SHADOW_OBJECTS`] objects.
pub const SHADOW_BYTES: u64 = 64 << 20;

/// Size of the reserve of a store, for the files that a garbage collection writes on a full disk before
/// it deletes anything: a few blocks, and the shadows of about a thousand objects.
pub const GC_RESERVE_BYTES: usize = 64 << 10;

/// Length of a table of forgotten commits: room for more than a million commits.
pub const FORGOTTEN_BYTES: u64 = 64 << 20;

/// Length of a table of rewrites: room for more than a million commits and four million objects.
pub const REWRITES_BYTES: u64 = 256 << 20;

/// Number of attempts of a push that meets the beginning of a garbage collection each time.
pub const GC_ROUNDS: usize = 8;

/// Seconds between the beginnings of two epochs of a remote store. Each costs running pushes a retry.
pub const GC_INTERVAL_SECS: i64 = 600;

/// Length of the garbage collection state of a remote store: six short lines.
pub const GC_STATE_BYTES: u64 = 512;

/// Length of the garbage collection table of a remote store: a shadow table of [`SHADOW_BYTES`], and
/// room for the names of two million deleted packs.
pub const GC_TABLE_BYTES: u64 = 128 << 20;

/// Maximum length of a file of pack checks: 450,000 lines of at most 150 bytes. A longer file counts
/// as empty, so no pack in it counts as checked or proven.
pub const CHECK_LOG_BYTES: u64 = 64 << 20;

/// Length of the header extension of a pack, which holds a bundle's commit and
/// prerequisites.
pub const PACK_EXTENSION_BYTES: usize = 16 << 20;

/// Number of packs in one bundle: 16 TiB of full packs. A reader keeps 16 bytes for each pack.
pub const BUNDLE_PACKS: usize = 1 << 18;

/// Number of prerequisites of a bundle: half of what fits in [`PACK_EXTENSION_BYTES`].
pub const PREREQUISITES: usize = 1 << 18;

/// Number of objects of a bundle whose index is kept in memory (12 MiB) when the bundle
/// is read in place. The index of a larger bundle goes to a scratch folder.
pub const BUNDLE_INDEX_OBJECTS: u64 = 1 << 18;

/// Length of a pack in a bundle. Writers close packs below an eighth of this limit.
pub const PACK_BYTES: u64 = 1 << 30;

/// Stored size of the frames at which a pack is closed. A push of 1 GiB then takes tens of
/// requests, and a merge of one pack is still quick.
pub const PACK_TARGET_BYTES: u64 = 64 << 20;

/// Raw size of the frames at which a pack is closed, however well they compress. A pack reaches
/// [`PACK_TARGET_BYTES`] first unless its frames shrink to less than 1/256.
pub const PACK_RAW_TARGET_BYTES: u64 = 16 << 30;

/// Raw size of a received pack: four times that of a full pack from a writer. One core decompresses
/// this much in about a minute. Without this limit, 100 MB of zstd data could expand to terabytes.
pub const PACK_RAW_BYTES: u64 = 64 << 30;

/// Size of the metadata frames that wait in memory for the end of their pack. Beyond this, the
/// writer closes the pack early.
pub const PENDING_META_BYTES: usize = 12 << 20;

/// Number of objects that wait in memory for the end of their pack.
pub const PENDING_OBJECTS: usize = 1 << 18;

/// Minimum length of a chunk, except the last chunk of a content.
pub const MIN_CHUNK_BYTES: usize = 768 << 10;

/// Length at which a content is cut more often.
pub const AVERAGE_CHUNK_BYTES: usize = 1 << 20;

/// Maximum length of a chunk, and of a content that is one blob.
pub const CHUNK_BYTES: usize = 4 << 20;

/// Number of entries of a chunk list, or of one part of a long list. One part is 590 KB.
pub const CHUNK_LIST_ENTRIES: usize = 16_384;

/// Number of parts of a chunk list. 1,024 parts of 16,384 chunks of 1 MiB are 16 TiB,
/// the largest file of ext4. A reader of all parts at once needs 600 MB of memory, a
/// reader of one part at a time 600 KB.
pub const CHUNK_LIST_PARTS: usize = 1024;

/// Number of chunks that the chunk lists of packs may name that are received together: 80 TB of
/// contents. A walk looks up each of them; this many lookups take about a minute.
pub const NAMED_CHUNKS: u64 = 1 << 26;

/// Number of records of one table file, such as an index segment or the stat cache.
pub const TABLE_RECORDS: u64 = 1 << 32;

/// Length of the metadata of a table: 16,384 pack ids are 512 KiB.
pub const TABLE_META_BYTES: usize = 16 << 20;

/// Length of a ref file: an id, a nonce and an epoch, or one name. Leaves room for about 200 former
/// tips, which a later version may store there.
pub const REF_BYTES: usize = 16 << 10;

/// Length of a branch or tag name.
pub const REF_NAME_BYTES: usize = 200;

/// Number of bytes that are read from the end of a ref log: about 200,000 changes.
pub const REF_LOG_BYTES: u64 = 64 << 20;

/// Length of the list of packs that the stat cache relies on: room for more than
/// 500,000.
pub const TRUSTED_PACKS_BYTES: u64 = 64 << 20;

/// Length of a file in the mirror of a remote, such as the list of its packs: room for about a
/// million packs.
pub const MIRROR_FILE_BYTES: u64 = 64 << 20;

/// Length of the list of paths in a partial clone: more than fits on a command line.
pub const SCOPE_BYTES: u64 = 4 << 20;

/// Length of the store's configuration file.
pub const CONFIG_BYTES: u64 = 1 << 20;

/// Length of one index file of a remote store. A push writes at most a few MiB, unless a single
/// pack has more index data. The index data of one pack is at most 77 MiB:
/// [`PACK_EXTENSION_BYTES`], 24 bytes for each of [`PACK_FRAMES`] and 37 bytes for each of
/// [`PACK_OBJECTS`]. A merge with smaller index files adds at most 8 MiB.
pub const REMOTE_INDEX_BYTES: u64 = 96 << 20;

/// Length of a service's reply that is not an object, such as one page of a listing.
/// 1,000 keys of a bucket take less than 2 MiB; a share may list a folder of 60,000
/// files.
pub const REPLY_BYTES: u64 = 64 << 20;

/// Number of remote objects listed under one prefix. A million packs of 64 MiB are 64 TiB, and
/// their records in memory take 130 MiB. A longer listing is treated as endless.
pub const LISTED_OBJECTS: usize = 1 << 20;

/// Length of an ignore file. A larger file is not an ignore file. Its
/// patterns take 0.1 s and 40 MiB.
pub const IGNORE_FILE_BYTES: u64 = 1 << 20;

/// Length of a pattern of an ignore file, an option or a search: `PATH_MAX` on Linux. A
/// longer pattern without wildcards matches no path.
pub const PATTERN_BYTES: usize = 4096;

/// Number of wildcards of one pattern: runs of `*`, and each `?`, `[` and `{`. Parsing a pattern
/// takes time in proportion to its length times its number of brackets.
pub const PATTERN_WILDCARDS: usize = 256;

/// Number of wildcards of all patterns of one ignore file, which another user may have written. A
/// pattern with wildcards at both ends is compared with each path in its folder: at the limit, in
/// 0.3 ms for each path.
pub const IGNORE_FILE_WILDCARDS: usize = 1 << 13;

/// Levels of nested braces in the pattern of a search. The `globset` crate recurses on
/// each level, and the regular expressions that it builds support 250 levels.
pub const PATTERN_BRACES: usize = 16;

/// Size of the cache of decompressed frames. The cache serves trees and chunk lists; a restore
/// reads each data frame only once.
pub const FRAME_CACHE_BYTES: usize = 16 << 20;

/// Number of pack files that are kept open for reading.
pub const OPEN_PACKS: usize = 256;

/// Number of times that a read or a listing starts again because packs were merged meanwhile.
pub const MERGE_RETRIES: usize = 16;

/// Number of retries of a ref update that lost a race.
pub const REF_RETRIES: usize = 64;

/// Number of files that a comparison considers for rename detection. Above the limit, renamed files
/// appear as removed and added; no user reads through that many.
pub const RENAME_CANDIDATES: usize = 50_000;

/// Memory for the files that rename detection considers, and for the changes that wait for its
/// result.
pub const RENAME_BYTES: usize = 48 << 20;

/// Number of pairs of folders for which `stats` caches the sums of differences: about 12 MiB.
pub const COMPARED_FOLDERS: usize = 1 << 16;

/// Number of folder results that a comparison may compute ahead of its output: about 400 bytes
/// each.
pub const DIFF_AHEAD: usize = 1 << 14;

/// Maximum length of a file whose differences are shown: both versions are held in memory.
pub const DIFF_FILE_BYTES: u64 = 8 << 20;

/// Number of lines of each side that are compared at once, if both sides have more than four times as
/// many lines that differ. The comparison of such a window takes up to 60 MiB. Longer insertions are
/// then not always found.
pub const DIFF_WINDOW_LINES: usize = 1 << 18;

/// Time limit for a comparison of two files line by line. Contents of [`DIFF_FILE_BYTES`] with few
/// changes take less than a second. Without this limit, two such files with few distinct lines
/// would take minutes.
pub const DIFF_FILE_TIME: Duration = Duration::from_secs(5);
