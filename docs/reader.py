#!/usr/bin/env python3
"""An independent reader of snap stores, written from docs/format.md alone.

    reader.py STORE                      list the commits of HEAD
    reader.py STORE restore REF FOLDER   write a commit's files into a new folder
    reader.py FILE.snap ...              the same for a bundle; HEAD is its commit

It reads packs, and neither index nor cache. `pip install blake3 zstandard xxhash`
installs what it uses. Without blake3 or xxhash it warns and does not check hashes;
without zstandard it calls the program `zstd`. It does not restore owners, times and
attributes: it checks the format, and is not a tool for users.
"""

import os
import struct
import subprocess
import sys

try:
    import blake3
except ImportError:
    blake3 = None
try:
    import xxhash
except ImportError:
    xxhash = None
try:
    import zstandard
except ImportError:
    zstandard = None

BLOB, _, TREE, COMMIT, LINK, CHUNK_LIST, LIST_PART = range(7)
CONTEXTS = {
    TREE: "snap 2026-11-21 tree v1",
    COMMIT: "snap 2026-11-21 commit v1",
    CHUNK_LIST: "snap 2026-11-29 chunk list v1",
    LIST_PART: "snap 2026-11-29 chunk list part v1",
}
MIN_CHUNK, MAX_CHUNK, LIST_ENTRIES = 768 << 10, 4 << 20, 16384


class Damaged(Exception):
    pass


def check(holds, what):
    if not holds:
        raise Damaged(what)


def check_xxh3(data, wanted, what, bits=64):
    if xxhash:
        check(xxhash.xxh3_64_intdigest(data) & ((1 << bits) - 1) == wanted, f"checksum of {what}")


def inverted(id):
    """Returns the id of the link of a commit, or the id of the commit of a link."""
    return bytes(byte ^ 0xFF for byte in id)


def check_id(kind, data, wanted):
    if kind == LINK:
        kind, wanted = COMMIT, inverted(wanted)
    if blake3:
        context = CONTEXTS.get(kind)
        hasher = blake3.blake3(data, derive_key_context=context) if context else blake3.blake3(data)
        check(hasher.digest() == wanted, f"object {wanted.hex()}")


def expand(stored, raw_bytes):
    if zstandard:
        raw = zstandard.ZstdDecompressor().decompress(stored, max_output_size=raw_bytes)
    else:
        raw = subprocess.run(["zstd", "-dcq"], input=stored, capture_output=True, check=True).stdout
    check(len(raw) == raw_bytes, "length of a frame")
    return raw


class Reader:
    """Decodes the primitives of core/src/format/wire.rs."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def raw(self, count):
        check(self.at + count <= len(self.data), "truncated")
        self.at += count
        return self.data[self.at - count : self.at]

    def u8(self):
        return self.raw(1)[0]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                check(byte != 0 or shift == 0, "overlong varint")
                return value
            shift += 7
            check(shift < 70, "overlong varint")

    def zigzag(self):
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def bytes(self):
        return self.raw(self.varint())

    def end(self):
        check(self.at == len(self.data), "trailing bytes")


def bundle_packs(path):
    """Returns the commit of a bundle, and a list of its packs as (start, length)."""
    with open(path, "rb") as file:
        head = file.read(16)
        check(head[:8] == b"SNAPPACK" and head[8:12] == b"\3\0\1\0", f"head of {path}")
        head += file.read(struct.unpack("<I", head[12:])[0])
        check_xxh3(head[:-8], struct.unpack("<Q", head[-8:])[0], "a bundle's head")
        version, commit, _objects, _bytes, count = struct.unpack("<B32sQQI", head[16:69])
        check(version == 2 and len(head) == 77 + 32 * count, "a bundle's head")
        check(count == 0, "bundle is complete in itself")
        packs = []
        while length := struct.unpack("<Q", file.read(8))[0]:
            packs.append((file.tell(), length))
            file.seek(length, os.SEEK_CUR)
        check(file.read(1) == b"", "end of the bundle")
        return commit, packs


def read_footer(path, base=0, size=None):
    """Yields (frame, objects) of a pack.

    A frame is (path, offset in the file, stored length, raw length, codec, checksum).
    An object is (id, offset in the raw frame, length, kind).
    """
    with open(path, "rb") as file:
        file.seek(base)
        header = file.read(16)
        size = size or os.fstat(file.fileno()).st_size
        check(header[:8] == b"SNAPPACK", f"magic of {path}")
        version, flags, extension = struct.unpack("<HHI", header[8:])
        check(version == 3 and flags == 0, f"version of {path}")
        file.seek(base + size - 48)
        trailer = file.read(48)
        frames, objects, sum_frames, sum_objects, length = struct.unpack("<IIQQQ", trailer[:32])
        check(trailer[40:] == b"SNAPEND\n" and length == size, f"trailer of {path}")
        check(trailer[32:36] == b"\3\0\0\0", f"version of {path}")
        check_xxh3(trailer[:36], struct.unpack("<I", trailer[36:40])[0], "a trailer", bits=32)
        file.seek(base + size - 48 - 24 * frames - 37 * objects)
        table, rest = file.read(24 * frames), file.read(37 * objects)
    check_xxh3(table, sum_frames, "a frame table")
    check_xxh3(rest, sum_objects, "an object table")
    lengths = struct.unpack(f"<{objects}I", rest[32 * objects : 36 * objects])
    at, number = 16 + extension, 0
    for stored, raw, count, codec, _cls, zero, checksum in struct.iter_unpack("<IIIBBHQ", table):
        check(zero == 0 and count > 0, "frame table")
        offset, inside = 0, []
        for number in range(number, number + count):
            inside.append((rest[32 * number : 32 * number + 32], offset, lengths[number], rest[36 * objects + number]))
            offset += lengths[number]
        number += 1
        check(offset == raw, "lengths of a frame's objects")
        yield (path, base + at, stored, raw, codec, checksum), inside
        at += stored
    check(at == size - 48 - 24 * frames - 37 * objects, "lengths of frames")


class Store:
    def __init__(self, folder):
        self.folder, self.places, self.frame, self.head = folder, {}, (None, b""), None
        if os.path.isfile(folder):
            self.head, packs = bundle_packs(folder)
            for base, size in packs:
                self.add(read_footer(folder, base, size))
            return
        with open(os.path.join(folder, "config.toml")) as config:
            lines = [line.split("#")[0].strip() for line in config]
        check("version = 5" in lines, "version of the store")
        objects = os.path.join(folder, "objects")
        for name in os.listdir(objects):
            if len(name) == 64:
                self.add(read_footer(os.path.join(objects, name)))

    def add(self, frames):
        for frame, inside in frames:
            for id, offset, length, kind in inside:
                self.places[id] = (frame, offset, length, kind)

    def ref(self, name):
        if self.head:
            return self.head if name == "HEAD" else bytes.fromhex(name)
        for path in (name, f"refs/heads/{name}", f"refs/tags/{name}"):
            path = os.path.join(self.folder, path)
            if os.path.isfile(path):
                text = open(path).read().split("\n")[0]
                return self.ref(text[5:]) if text.startswith("ref: ") else bytes.fromhex(text)
        return bytes.fromhex(name)

    def object(self, id):
        check(id in self.places, f"object {id.hex()} is missing")
        frame, offset, length, kind = self.places[id]
        if self.frame[0] != frame:
            path, at, stored_bytes, raw_bytes, codec, checksum = frame
            with open(path, "rb") as file:
                file.seek(at)
                stored = file.read(stored_bytes)
            check_xxh3(stored, checksum, "a frame")
            self.frame = (frame, expand(stored, raw_bytes) if codec else stored)
        data = self.frame[1][offset : offset + length]
        check_id(kind, data, id)
        return kind, data

    def commit(self, id):
        """Decodes a commit, or the link of a forgotten one, whose tree may be missing."""
        kind, data = self.object(id if id in self.places else inverted(id))
        r = Reader(data)
        check(kind in (COMMIT, LINK) and r.u8() == 3, "a commit")
        tree = r.raw(32)
        parents = [r.raw(32) for _ in range(r.varint())]
        secs, _nanos = r.zigzag(), r.varint()
        author, host, message = (r.bytes().decode() for _ in range(3))
        labels = {r.bytes().decode(): r.bytes().decode() for _ in range(r.varint())}
        if r.u8():
            metadata(r, None)
        totals = [r.varint() for _ in range(4)]
        selection(r)
        r.end()
        return tree, parents, secs, author, host, message, labels, totals

    def entries(self, id):
        """Yields the entries of a directory; a large one is a tree of nodes."""
        kind, data = self.object(id)
        r = Reader(data)
        check(kind == TREE and r.u8() == 2, "a tree")
        level = r.u8()
        for _ in range(4):
            r.varint()
        if level:
            for _ in range(r.varint()):
                r.bytes()
                yield from self.entries(r.raw(32))
            return r.end()
        owners = [owner(r) for _ in range(r.varint())]
        last = b""
        for _ in range(r.varint()):
            name, kind = r.bytes(), r.u8()
            check(name > last and b"/" not in name and b"\0" not in name, "an entry's name")
            check(name not in (b".", b".."), "an entry's name")
            last = name
            mode, link = metadata(r, owners)
            body = None
            if kind in (0, 7):
                body = (r.varint(), r.raw(32), kind == 7)
                check(body[0] > 1 << 20 if body[2] else body[0] <= MAX_CHUNK, "length of a file")
            elif kind == 1:
                body = r.raw(32)
            elif kind == 2:
                body = r.bytes()
            elif kind in (5, 6):
                body = (r.varint(), r.varint())
            yield name, kind, mode, link, body
        r.end()

    def chunks(self, data, is_last):
        """Decodes the chunks of a list, or of a part of one: pairs of id and length."""
        check(0 < len(data) <= 36 * LIST_ENTRIES and len(data) % 36 == 0, "length of a chunk list")
        chunks = list(struct.iter_unpack("<32sI", data))
        for number, (_id, length) in enumerate(chunks, 1):
            least = 1 if is_last and number == len(chunks) else MIN_CHUNK
            check(least <= length <= MAX_CHUNK, "length of a chunk")
        return chunks

    def list(self, id):
        """Yields the chunks of a chunk list."""
        kind, data = self.object(id)
        check(kind == CHUNK_LIST and data[0] == 2 and data[1] in (0, 1), "a chunk list")
        if data[1] == 0:
            chunks = self.chunks(data[2:], True)
            check(len(chunks) > 1, "a chunk list")
            yield from chunks
            return
        parts = list(struct.iter_unpack("<32sQ", data[2:]))
        check(len(parts) > 1, "a chunk list")
        for number, (part, total) in enumerate(parts, 1):
            kind, data = self.object(part)
            chunks = self.chunks(data, number == len(parts))
            is_full = number == len(parts) or len(chunks) == LIST_ENTRIES
            check(kind == LIST_PART and is_full, "a part of a chunk list")
            check(sum(length for _id, length in chunks) == total, "length of a part")
            yield from chunks

    def content(self, id, is_chunked):
        if not is_chunked:
            kind, data = self.object(id)
            check(kind == BLOB, "a content")
            yield data
            return
        for piece, length in self.list(id):
            kind, chunk = self.object(piece)
            check(kind == BLOB and len(chunk) == length, "length of a chunk")
            yield chunk

    def restore(self, tree, target):
        os.mkdir(target)
        for name, kind, mode, _link, body in self.entries(tree):
            path = os.path.join(os.fsencode(target), name)
            if kind in (0, 7):
                with open(path, "xb") as file:
                    for data in self.content(body[1], body[2]):
                        file.write(data)
                os.chmod(path, mode)
                check(os.path.getsize(path) == body[0], "length of a file")
            elif kind == 1:
                self.restore(body, path)
                os.chmod(path, mode)
            elif kind == 2:
                os.symlink(body, path)
            else:
                print(f"not restored: {os.fsdecode(path)}", file=sys.stderr)


def owner(r):
    return r.varint(), r.varint(), r.bytes(), r.bytes()


def metadata(r, owners):
    flags, mode = r.u8(), r.varint()
    check(flags < 32 and mode <= 0o7777, "metadata")
    if flags & 1:
        owner(r) if owners is None else owners[r.varint()]
    if flags & 2:
        r.zigzag(), r.varint()
    if flags & 4:
        for _ in range(r.varint()):
            r.bytes(), r.bytes()
    link = struct.unpack("<Q", r.raw(8))[0] if flags & 8 else None
    return mode, link


def selection(r):
    """Skips the rules, sources and unread paths of a commit: files do not need them."""
    for _ in range(r.varint()):
        flags = r.u8()
        if flags & 8:
            r.varint()
        for _ in range(r.varint()):
            r.bytes()
        if flags & 16:
            for _ in range(r.varint()):
                r.bytes()
        if flags & 32:
            for _ in range(r.varint()):
                r.bytes(), r.bytes()
    for _ in ("sources", "unread"):
        for _ in range(r.varint()):
            r.bytes()
    r.u8()


def main():
    if len(sys.argv) not in (2, 5):
        sys.exit(__doc__)
    for module, name in ((blake3, "blake3"), (xxhash, "xxhash")):
        if not module:
            print(f"without {name}: its hashes are not checked", file=sys.stderr)
    store = Store(sys.argv[1])
    if len(sys.argv) == 5:
        tree = store.commit(store.ref(sys.argv[3]))[0]
        store.restore(tree, sys.argv[4])
        return
    id = store.ref("HEAD")
    while id:
        _tree, parents, secs, author, host, message, _labels, totals = store.commit(id)
        print(id.hex(), secs, f"{author} on {host}: {message!r}, {totals[0]} files, {totals[3]} bytes")
        id = parents[0] if parents else None


if __name__ == "__main__":
    main()
