#!/usr/bin/env python3
"""Verifies a Landfall store in a folder, knowing nothing but host/docs/FORMAT.md.

    verify_store.py FOLDER           prints one JSON document; exit 0 when all is whole, 1 when something is damaged, 2 on wrong use
    verify_store.py FOLDER EXPECTED  the same, and compares what is there with a JSON file that says what has to be:
        {"sessions": [{"agent", "session", "commit", "turns", "runs": {RUN: STATUS}, "files": {PATH: SHA256}, "saves": [NAME]}],
         "absent": [SECRET], "idle": true}
        Each session stands on that commit, has exactly these ended runs, once each, and, where they are given, exactly these files in
        /workspace and these named checkpoints; no secret is in
        any object or decoded frame, plain, in base64, hex or percent-encoded; with "idle" nothing is queued or leased.
    verify_store.py --golden FILE    checks the pages of tests/golden/pages.txt in the same way

Standard library only, and for zstd the first of these that is there: `compression.zstd` (Python 3.14), the `zstandard` package,
the `zstd` command. Everything that is stored is checked: each key, each document's digest, each pack's name, footer, frames and
pages, and from every head, save, fork pin, run record and import each page, chunk, total and id that it leads to.
"""

import base64
import functools
import hashlib
import json
import os
import re
import subprocess
import sys

PAGE_MAX, DIRECTORY_MAX, STORED_PAGE_MAX = 16 << 10, 4 << 10, 256 << 10
CHUNK_MAX, PACK_MAX, INLINE_MAX, PARTS_MAX, FANOUT = 1 << 20, 32 << 20, 64, 16, 16
DOCUMENT_MAX, SIZE_MAX, ENTRIES_MAX = 64 << 10, (1 << 63) - 1, 1 << 24


class Damaged(Exception):
    """What is wrong, in words."""


def need(condition, why):
    if not condition:
        raise Damaged(why)


# --- zstd ---------------------------------------------------------------------------------------------------------------------------


def find_zstd():
    try:
        from compression import zstd  # Python 3.14

        return lambda data, length: zstd.decompress(data)
    except ImportError:
        pass
    try:
        import zstandard

        # Exactly one zstd frame: what follows it would be left over by `unused_data`.
        def whole(data, length):
            decoder = zstandard.ZstdDecompressor().decompressobj()
            plain = decoder.decompress(data)
            need(not decoder.unused_data, "bytes follow the zstd data")
            return plain

        return whole
    except ImportError:
        pass
    return lambda data, length: subprocess.run(["zstd", "-d", "-c"], input=data, capture_output=True, check=True).stdout


unzstd = find_zstd()

# --- deterministic CBOR (RFC 8949, 4.2.1): integers, byte and text strings, arrays, null ---------------------------------------------


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        need(self.at + count <= len(self.data), "CBOR ends too early")
        taken = self.data[self.at : self.at + count]
        self.at += count
        return taken

    def item(self, depth=0):
        need(depth < 16, "CBOR is nested too deeply")
        first = self.take(1)[0]
        major, short = first >> 5, first & 0x1F
        if first == 0xF6:
            return None
        if short < 24:
            value = short
        else:
            need(short <= 27, "CBOR has a length of no fixed size")
            size = 1 << (short - 24)
            value = int.from_bytes(self.take(size), "big")
            need(value >= (24 if size == 1 else 1 << (size * 4)), "CBOR has a number that isn't in its shortest form")
        if major == 0:
            return value
        if major == 1:
            return -1 - value
        if major == 2:
            return bytes(self.take(value))
        if major == 3:
            return self.take(value).decode("utf-8")
        need(major == 4 and value <= len(self.data) - self.at, "CBOR has an item of an unknown type, or too many")
        return [self.item(depth + 1) for _ in range(value)]


def cbor(data):
    reader = Reader(data)
    value = reader.item()
    need(reader.at == len(data), "bytes follow the CBOR")
    return value


def encode(value):
    def head(major, number):
        if number < 24:
            return bytes([major << 5 | number])
        for short, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
            if number < 1 << (8 * size):
                return bytes([major << 5 | short]) + number.to_bytes(size, "big")
        raise ValueError(number)

    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    return head(4, len(value)) + b"".join(encode(item) for item in value)


def integer(value, most=SIZE_MAX, least=0):
    need(type(value) is int and least <= value <= most, "a number is missing or out of bounds")
    return value


def octets(value, length=None):
    need(isinstance(value, bytes) and (length is None or len(value) == length), "a byte string is missing or of the wrong length")
    return value


def array(value, length=None):
    need(isinstance(value, list) and (length is None or len(value) == length), "an array is missing or of the wrong length")
    return value


# --- keys -----------------------------------------------------------------------------------------------------------------------------


def segment(name):
    text = "".join(
        chr(b) if chr(b).isascii() and (chr(b).isalnum() or b in b"-_" or (b == 0x2E and at)) else "%%%02X" % b
        for at, b in enumerate(name.encode())
    )
    return text if len(text) <= 200 else "~" + base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def unsegment(text):
    if text.startswith("~"):
        name = base64.urlsafe_b64decode(text[1:] + "=" * (-len(text[1:]) % 4)).decode()
    else:
        name = re.sub(rb"%([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), text.encode()).decode()
    need(segment(name) == text, f"{text!r} is not an encoded name")
    return name


HEX32, HEX40, HEX64 = r"[0-9a-f]{32}", r"[0-9a-f]{40}", r"[0-9a-f]{64}"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
KEYS = [
    ("store", r"landfall-store"),
    ("head", r"sessions/([^/]+)/([^/]+)/head"),
    ("pack", rf"sessions/([^/]+)/([^/]+)/packs/({HEX64})"),
    ("input", rf"sessions/([^/]+)/([^/]+)/inputs/({HEX64})"),
    ("run", rf"sessions/([^/]+)/([^/]+)/runs/({UUID})"),
    ("import", rf"repos/({HEX64})/({HEX40})"),
    ("pack", rf"repos/({HEX64})/packs/({HEX64})"),
    ("queued", rf"queue/({HEX64})/({UUID})"),
    ("plan", r"schedules/plan/([^/]+)"),
    ("schedule", r"schedules/state/([^/]+)"),
    ("claim", rf"schedules/claims/([^/]+)/([0-9]{{8}}T[0-9]{{6}}Z|t-{UUID})"),
    ("replica", rf"replicas/(.+)-({HEX32})"),
    ("probe", rf"probe/({HEX32})"),
]


def kind_of(key):
    for kind, pattern in KEYS:
        match = re.fullmatch(pattern, key)
        if match:
            if key.startswith("sessions/"):
                unsegment(match[1]), unsegment(match[2])
            if kind in ("replica", "plan", "schedule", "claim"):
                unsegment(match[1])
            return kind
    raise Damaged("no such key is described")


def session_hash(agent, session):
    return hashlib.sha256(b"landfall:session:1\0" + agent.encode() + b"\0" + session.encode()).hexdigest()


# --- documents ------------------------------------------------------------------------------------------------------------------------


def document(data, kind):
    """Returns a document's body after comparing its bytes with its digest."""
    need(len(data) <= DOCUMENT_MAX, "a document is too long")
    match = re.match(rb'\{"landfall":"([a-z-]+)","version":([1-9][0-9]*),"sha256":"([0-9a-f]{64})",', data)
    need(match, "it doesn't begin with a document header")
    rest = data[match.end() :]
    tag = b"landfall:document:%s:%s\n" % (match[1], match[2])
    need(hashlib.sha256(tag + rest).hexdigest() == match[3].decode(), "its bytes don't match their digest")
    need(match[1].decode() == kind, f"it is a {match[1].decode()}, not a {kind}")
    need(match[2] == b"1", "a newer version wrote it")
    value = json.loads(data)
    need(set(value) == {"landfall", "version", "sha256", "nonce", "nonces", "body"}, "its header has other fields")
    nonces = [value["nonce"], *value["nonces"]]
    need(len(nonces) <= 16 and all(re.fullmatch(HEX32, nonce) for nonce in nonces), "its nonces are none")
    need(data.endswith(b"}\n"), "it doesn't end with a line feed")
    return value["body"]


# --- packs ----------------------------------------------------------------------------------------------------------------------------


class Pack:
    """A whole pack, checked: its name, its footer, and that each frame decodes to what the footer says."""

    def __init__(self, data, name):
        need(hashlib.sha256(data).hexdigest() == name, "its bytes don't have its name")
        need(20 <= len(data) <= PACK_MAX, "its length isn't one of a pack")
        need(data[:8] == b"LFPACK1\n" and data[-8:] == b"LFPEND1\n", "the magic bytes at its ends are missing")
        length = int.from_bytes(data[-12:-8], "little")
        need(length <= len(data) - 20, "its footer is longer than it")
        version, frames, salt = array(cbor(data[-12 - length : -12]), 3)
        need(version == 1, "its footer has another version")
        octets(salt, 16)
        self.data, self.frames, self.plain = data, {}, functools.lru_cache(64)(self.decode)
        offset, pages = 8, False
        for frame in array(frames):
            kind, at, stored, plain, objects = array(frame, 5)
            need(kind in (0, 1) and not (pages and kind == 0), "its content doesn't come before its pages")
            pages = kind == 1
            need(at == offset and 6 <= integer(stored) <= CHUNK_MAX + 5, "its frames aren't back to back")
            need(objects and all(integer(size, CHUNK_MAX, 1) for size in objects) and sum(objects) == plain <= CHUNK_MAX, "a frame has impossible lengths")
            need(kind == 0 or len(objects) == 1, "a page doesn't have its own frame")
            self.frames[at] = (kind, stored, plain, objects)
            offset += stored
        need(offset == len(data) - 12 - length, "its footer doesn't follow its frames")
        for at in self.frames:
            self.plain(at)

    def decode(self, at):
        _, stored, plain, _ = self.frames[at]
        codec, length, payload = self.data[at], int.from_bytes(self.data[at + 1 : at + 5], "little"), self.data[at + 5 : at + stored]
        need(length == plain, "a frame says another length than the footer")
        if codec == 0:
            found = payload
        else:
            need(codec == 1, "a frame has an unknown codec")
            try:
                found = unzstd(payload, length)
            except Damaged:
                raise
            except Exception as error:
                raise Damaged(f"a frame can't be decoded: {error}") from None
        need(len(found) == length, "a frame decodes to another length")
        return found

    def object(self, at):
        """Returns the bytes at a place (frame, stored, start, length)."""
        frame, stored, start, length = at
        need(frame in self.frames and self.frames[frame][1] == stored, "a hint leads to no frame")
        starts, total = [], 0
        for size in self.frames[frame][3]:
            starts.append((total, size))
            total += size
        need((start, length) in starts, "a hint leads to no object")
        return self.plain(frame)[start : start + length]


# --- pages ----------------------------------------------------------------------------------------------------------------------------

DIRECTORY, SPLIT, LIST, LIST_SPLIT, TABLE, TABLE_SPLIT = range(6)


def page_id(body):
    return hashlib.sha256(b"landfall:page:1\0" + body).digest()


def names_of_page(kind, items):
    """Gives everything that a body names, in its order: ("page", id) or ("chunk", id, length)."""

    def content(size, form):
        if isinstance(form, list):
            if form[0] == 0:
                yield "chunk", form[1], size
            elif form[0] == 1:
                yield from parts(form[1])
            else:
                yield "page", form[1]

    def parts(items):
        for part in items:
            if isinstance(part, list):
                yield "chunk", part[0], part[1]

    for item in items:
        if kind == DIRECTORY and item[1] == 0:
            yield from content(item[4], item[5])
        elif kind == DIRECTORY and item[1] == 1:
            yield "page", item[4]
        elif kind == SPLIT and item is not None:
            yield "page", item[0]
        elif kind == LIST:
            yield from parts([item])
        elif kind in (LIST_SPLIT, TABLE_SPLIT):
            yield "page", item[0]
        elif kind == TABLE:
            yield from content(item[4], item[5])


def check_parts(parts):
    total, hole = 0, False
    for part in array(parts):
        if isinstance(part, list):
            array(part, 2), octets(part[0], 32)
            total, hole = total + integer(part[1], CHUNK_MAX, 1), False
        else:
            need(not hole, "two holes are in a row")
            total, hole = total + integer(part, SIZE_MAX, 1), True
    need(0 < total <= SIZE_MAX, "a list has no parts, or too many bytes")
    return total


def check_content(size, form):
    integer(size)
    if isinstance(form, bytes):
        need(len(form) == size <= INLINE_MAX, "an inline content isn't of its size")
        return
    need(size > INLINE_MAX, "a small content isn't inline")
    array(form, 2)
    if form[0] == 0:
        octets(form[1], 32)
        need(size <= CHUNK_MAX, "a chunk is too long")
    elif form[0] == 1:
        need(check_parts(form[1]) == size and len(form[1]) <= PARTS_MAX, "parts aren't of their file's size")
        need(not (len(form[1]) == 1 and isinstance(form[1][0], list)), "one chunk is written as parts")
    else:
        need(form[0] == 2, "a content is of an unknown form")
        octets(form[1], 32)


def check_entry(item):
    name, kind = octets(array(item)[0]), item[1]
    need(1 <= len(name) <= 255 and name not in (b".", b"..") and b"/" not in name and b"\0" not in name, "a name isn't allowed")
    need(len(item) == {0: 6, 1: 5, 2: 5, 3: 3}.get(kind), "an entry is of an unknown kind or length")
    if kind == 3:
        integer(item[2])
        return
    integer(item[2], 0o777), integer(item[3], SIZE_MAX, -SIZE_MAX - 1)
    if kind == 0:
        check_content(item[4], item[5])
    elif kind == 1:
        octets(item[4], 32)
    else:
        need(1 <= len(octets(item[4])) <= 4095 and b"\0" not in item[4], "a link's target isn't allowed")


def ascending(keys):
    need(all(a < b for a, b in zip(keys, keys[1:])), "items aren't in order")


def check_body(body):
    need(len(body) <= PAGE_MAX, "a page is too long")
    kind, items = array(cbor(body), 2)
    array(items)
    if kind == DIRECTORY:
        need(len(items) <= 1 or len(body) <= DIRECTORY_MAX, "a directory page has more than fits one")
        for item in items:
            check_entry(item)
        ascending([item[0] for item in items])
    elif kind == SPLIT:
        need(len(items) == FANOUT, "a split has another number of slots")
        used = [array(item, 3) for item in items if item is not None]
        entries = sum(integer(item[2], ENTRIES_MAX, 1) for item in used)
        length = sum(integer(item[1], SIZE_MAX, 1) for item in used)
        need(all(octets(item[0], 32) for item in used) and entries <= ENTRIES_MAX, "a split has impossible totals")
        need(entries > 1 and 2 + len(encode(entries)) + length > DIRECTORY_MAX, "a split holds what would fit one page")
    elif kind == LIST:
        check_parts(items)
    elif kind in (LIST_SPLIT, TABLE_SPLIT):
        need(items, "a split has no children")
        for item in items:
            array(item, 2), octets(item[0], 32), integer(item[1], SIZE_MAX, 1 if kind == LIST_SPLIT else 0)
        if kind == TABLE_SPLIT:
            ascending([item[1] for item in items])
    else:
        need(kind == TABLE and items, "a page is of an unknown kind")
        for item in items:
            array(item, 6), integer(item[0]), integer(item[1], (1 << 32) - 1, 1), integer(item[2], 0o777)
            integer(item[3], SIZE_MAX, -SIZE_MAX - 1)
            check_content(item[4], item[5])
        ascending([item[0] for item in items])
    return kind, items


def check_stored_page(data, home, pack):
    """Returns a stored page's id, kind, items and, for each name in its body, where that lies: (home, pack, frame, stored, start, length)."""
    need(len(data) <= STORED_PAGE_MAX, "a stored page is too long")
    version, body, hints = array(cbor(data), 3)
    need(version == 1, "a page has another version")
    kind, items = check_body(octets(body))
    packs, frames, places = array(hints, 3)
    table = []
    for entry in array(packs):
        code = array(entry)[0]
        if code == 0 and len(entry) == 1:
            table.append((home, pack))
        elif code == 1 and len(entry) == 2:
            table.append((home, octets(entry[1], 32)))
        elif code == 2 and len(entry) == 3:
            table.append((f"repos/{octets(entry[1], 32).hex()}", octets(entry[2], 32)))
        elif code == 3 and len(entry) == 4:
            table.append((f"sessions/{segment(entry[1])}/{segment(entry[2])}", octets(entry[3], 32)))
        else:
            raise Damaged("a hint names an unknown home")
    need(len(array(frames)) % 3 == 0, "a table of frames is of the wrong length")
    where = []
    for at in range(0, len(frames), 3):
        number, frame, stored = (integer(value, (1 << 32) - 1) for value in frames[at : at + 3])
        need(number < len(table), "a hint names no pack")
        where.append((*table[number], frame, stored))
    rest, found = list(array(places)), []
    for name in names_of_page(kind, items):
        need(len(rest) >= (2 if name[0] == "chunk" else 3), "there are fewer hints than names")
        number, start = integer(rest.pop(0)), integer(rest.pop(0))
        need(number < len(where), "a hint names no frame")
        found.append((name, (*where[number], start, name[2] if name[0] == "chunk" else integer(rest.pop(0)))))
    need(not rest, "there are more hints than names")
    return page_id(body), kind, items, found


# --- the store ------------------------------------------------------------------------------------------------------------------------


class Store:
    def __init__(self, folder):
        self.folder, self.problems, self.documents = folder, [], {}
        self.counts = dict.fromkeys(("objects", "documents", "packs", "pages", "chunks", "checkpoints", "entries", "bytes"), 0)
        self.pack = functools.lru_cache(32)(self.open_pack)
        self.page = functools.lru_cache(1 << 16)(self.open_page)
        self.chunk = functools.lru_cache(1 << 20)(self.open_chunk)
        self.root = functools.lru_cache(None)(self.check_root)

    def read(self, key):
        with open(os.path.join(self.folder, key), "rb") as file:
            return file.read()

    def problem(self, where, why):
        self.problems.append({"where": where, "why": str(why)})

    def guarded(self, where, work):
        try:
            return work()
        except Damaged as error:
            self.problem(where, error)
        except FileNotFoundError:
            self.problem(where, "it is missing")
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, UnicodeDecodeError, OverflowError) as error:
            self.problem(where, f"it isn't of the described form: {type(error).__name__} {error}")
        return None

    def open_pack(self, home, name):
        key = f"{home}/packs/{name.hex()}"
        try:
            return Pack(self.read(key), name.hex())
        except FileNotFoundError:
            raise Damaged(f"pack {key} is missing") from None

    def open_page(self, wanted, place):
        home, pack, *at = place
        found, kind, items, names = check_stored_page(self.pack(home, pack).object(tuple(at)), home, pack)
        need(found == wanted, f"page {wanted.hex()} doesn't match its id")
        self.counts["pages"] += 1
        return kind, items, names

    def open_chunk(self, wanted, place):
        home, pack, *at = place
        need(hashlib.sha256(self.pack(home, pack).object(tuple(at))).digest() == wanted, f"chunk {wanted.hex()} doesn't match its id")
        self.counts["chunks"] += 1
        return True

    # Directories, lists and tables below a root

    def directory(self, wanted, place, path, seen, digits=(), totals=None):
        kind, items, names = self.page(wanted, place)
        names = iter(names)
        if kind == DIRECTORY:
            if totals:
                length = sum(len(encode(item)) for item in items)
                need(totals == (length, len(items)), f"page {wanted.hex()} has other totals than the page above it says")
            for item in items:
                digest = hashlib.sha256(item[0]).hexdigest()
                need(all(digest[at] == "%x" % digit for at, digit in enumerate(digits)), f"a name of page {wanted.hex()} is in a wrong slot")
                self.entry(item, names, path + b"/" + item[0] if path else item[0], seen)
            return
        need(kind == SPLIT and len(digits) < 64, f"page {wanted.hex()} isn't a directory")
        if totals:
            used = [item for item in items if item is not None]
            need(totals == (sum(item[1] for item in used), sum(item[2] for item in used)), f"page {wanted.hex()} has other totals than the page above it says")
        for digit, item in enumerate(items):
            if item is not None:
                self.directory(item[0], next(names)[1], path, seen, (*digits, digit), (item[1], item[2]))

    def entry(self, item, names, path, seen):
        seen["entries"] += 1
        self.counts["entries"] += 1
        if item[1] == 0:
            self.content(item[4], item[5], names, seen)
        elif item[1] == 1:
            need(len(path) < 1 << 16, "a path is too long")
            self.directory(item[4], next(names)[1], path, seen)
        elif item[1] == 3:
            seen["linked"][item[2]] = seen["linked"].get(item[2], 0) + 1

    def content(self, size, form, names, seen):
        seen["bytes"] += size
        self.counts["bytes"] += size
        if not isinstance(form, list):
            return
        if form[0] == 2:
            self.list(form[1], next(names)[1], size)
            return
        for _ in range(1 if form[0] == 0 else sum(isinstance(part, list) for part in form[1])):
            (_, wanted, _), place = next(names)
            self.chunk(wanted, place)

    def list(self, wanted, place, size, height=0):
        kind, items, names = self.page(wanted, place)
        need(height < 64, "a list is split too often")
        if kind == LIST:
            total = sum(part[1] if isinstance(part, list) else part for part in items)
            for (_, chunk, _), at in names:
                self.chunk(chunk, at)
        else:
            need(kind == LIST_SPLIT, f"page {wanted.hex()} isn't a list")
            total = sum(item[1] for item in items)
            for item, (_, at) in zip(items, names):
                self.list(item[0], at, item[1], height + 1)
        need(total == size, f"page {wanted.hex()} lists another number of bytes than its file has")

    def table(self, wanted, place, seen, largest=None, height=0):
        kind, items, names = self.page(wanted, place)
        names = iter(names)
        need(height < 64, "a table is split too often")
        if kind == TABLE:
            need(largest in (None, items[-1][0]), f"page {wanted.hex()} has another largest number than the page above it says")
            for item in items:
                need(item[0] not in seen["table"], "a number is in a table twice")
                seen["table"][item[0]] = item[1]
                self.content(item[4], item[5], names, seen)
            return
        need(kind == TABLE_SPLIT, f"page {wanted.hex()} isn't a table of linked files")
        need(largest in (None, items[-1][1]), f"page {wanted.hex()} has another largest number than the page above it says")
        for item in items:
            self.table(item[0], next(names)[1], seen, item[1], height + 1)

    def link(self, form):
        """Reads a page's or chunk's link in a document's JSON: its id, and its place."""
        (family, name), = form["home"].items()
        need(family in ("session", "repository"), "a link has an unknown home")
        home = f"repos/{name}" if family == "repository" else f"sessions/{segment(name['agent'])}/{segment(name['session'])}"
        place = (home, bytes.fromhex(form["pack"]), form["frame"], form["stored"], form["start"], form["len"])
        return octets(bytes.fromhex(form["id"]), 32), place

    def check_root(self, text, totals=True):
        root = json.loads(text)
        seen = {"entries": 0, "bytes": 0, "linked": {}, "table": {}}
        if root.get("links"):
            self.table(*self.link(root["links"]), seen)
        self.directory(*self.link(root["page"]), b"", seen)
        need(seen["linked"] == seen["table"], "the table of linked files doesn't fit the entries")
        need(not totals or (seen["entries"], seen["bytes"]) == (root["entries"], root["bytes"]), "a root's totals aren't those of its tree")
        return True

    def checkpoint(self, checkpoint):
        record = checkpoint["root"]

        def form(root):
            links = bytes.fromhex(root["links"]["id"]) if root.get("links") else None
            return [bytes.fromhex(root["page"]["id"]), links, root["entries"], root["bytes"]]

        pin, git = record.get("pin"), record.get("git")
        canonical = [1, form(record["workspace"]), form(record["state"]), form(git) if git else None]
        on_branch = {"unchecked": 0, "yes": 1}
        canonical.append([pin["url"], pin["branch"], bytes.fromhex(pin["commit"]), on_branch[pin["on_branch"]]] if pin else None)
        found = hashlib.sha256(b"landfall:checkpoint:1\0" + encode(canonical)).hexdigest()
        need(found == checkpoint["id"], f"checkpoint {checkpoint['id']} has a root record with the id {found}")
        self.counts["checkpoints"] += 1
        for root in (record["workspace"], record["state"], git):
            if root:
                self.root(json.dumps(root, sort_keys=True))

    # Whole objects

    def check_object(self, key):
        kind = kind_of(key)
        self.counts["objects"] += 1
        data = self.read(key)
        if kind == "pack":
            home, name = key.rsplit("/packs/", 1)
            pack = self.pack(home, bytes.fromhex(name))
            self.counts["packs"] += 1
            for at, (kind, stored, plain, _) in pack.frames.items():
                if kind == 1:
                    check_stored_page(pack.object((at, stored, 0, plain)), home, bytes.fromhex(name))
        elif kind == "input":
            need(hashlib.sha256(data).hexdigest() == key.rsplit("/", 1)[1], "its bytes don't have its name")
        elif kind != "probe":
            self.counts["documents"] += 1
            self.documents[key] = (kind, document(data, kind), hashlib.sha256(data).hexdigest())

    def check_head(self, key, head):
        session = key[: -len("/head")]
        need(session == f"sessions/{segment(head['session']['agent'])}/{segment(head['session']['session'])}", "it is the head of another session")
        if head["state"] != "open":
            return
        for what in [head, *head["saves"], *head["pins"]]:
            if what["checkpoint"]:
                self.checkpoint(what["checkpoint"])
        # Official records: the head names the last ones by digest, and each names the one before it.
        newest = max(head["recent"], key=lambda recent: recent["seq"], default=None)
        need((newest["seq"] if newest else 0) == head["seq"] or not head["recent"], "its last run isn't its seq")
        for recent in head["recent"]:
            record, digest = self.documents.get(f"{session}/runs/{recent['run']}", (None, None, None))[1:]
            need(record is not None, f"the record of run {recent['run']} is missing")
            need(digest == recent["record"], f"the record of run {recent['run']} isn't the one that the head names")
            need((record["seq"], record["epoch"], record["status"]) == (recent["seq"], recent["epoch"], recent["status"]), "a record isn't what the head says")
        completed = [recent for recent in head["recent"] if recent["status"] == "completed"]
        if completed and head["checkpoint"]:
            last = max(completed, key=lambda recent: recent["seq"])
            record = self.documents[f"{session}/runs/{last['run']}"][1]
            # A rollback or a fork may have moved the head since; its id is then another run's.
            ids = {body["after"]["id"] for kind, body, _ in self.documents.values() if kind == "run" and body.get("after")}
            need(record["after"]["id"] == head["checkpoint"]["id"] or head["checkpoint"]["id"] in ids or head["forked_from"], "its checkpoint is no run's")

    def check_record(self, key, record):
        session = key.rsplit("/runs/", 1)[0]
        need(session == f"sessions/{segment(record['session']['agent'])}/{segment(record['session']['session'])}", "it is the record of another session")
        need(key.endswith(record["run"]), "it is the record of another run")
        head = self.documents.get(f"{session}/head", (None, None, None))[1]
        need(head is not None, "its session has no head")
        if head["state"] != "open" or head["incarnation"] != record["incarnation"] or record["seq"] < head["kept_from"]:
            return
        previous = record["previous"]
        if previous:
            before, digest = self.documents.get(f"{session}/runs/{previous['run']}", (None, None, None))[1:]
            if before is not None:
                need(digest == previous["record"] and before["seq"] == previous["seq"] < record["seq"], "the record before it isn't the one that it names")
        for checkpoint in (record["before"], record["after"]):
            if checkpoint:
                self.checkpoint(checkpoint)
        for text in (record["output"], record["log"], record["events"]):
            if text and "stored" in text:
                self.chunk(*self.link(text["stored"]))
        given = record["input"]
        if given and "inline" in given:
            need(hashlib.sha256(given["inline"].encode()).hexdigest() == given["digest"], "its input doesn't match its digest")

    def check_import(self, key, body):
        need(key == f"repos/{hashlib.sha256(body['url'].encode()).hexdigest()}/{body['commit']}", "it is the import of something else")
        self.root(json.dumps(body["workspace"], sort_keys=True))
        self.root(json.dumps(body["git"], sort_keys=True))
        # This one counts its files only.
        self.root(json.dumps(body["blobs"], sort_keys=True), False)

    def check(self):
        for folder, folders, files in os.walk(self.folder):
            if folder == self.folder:
                # The file store's own: unfinished writes and lock files.
                folders[:] = [name for name in folders if name not in (".tmp", ".locks")]
            for name in sorted(files):
                key = os.path.relpath(os.path.join(folder, name), self.folder)
                self.guarded(key, lambda: self.check_object(key))
        if "landfall-store" not in self.documents:
            self.problem("landfall-store", "it is missing: this is no store")
        for key, (kind, body, _) in sorted(self.documents.items()):
            if kind == "head":
                self.guarded(key, lambda: self.check_head(key, body))
            elif kind == "run":
                self.guarded(key, lambda: self.check_record(key, body))
            elif kind == "import":
                self.guarded(key, lambda: self.check_import(key, body))
            elif kind == "queued":
                of = session_hash(body["session"]["agent"], body["session"]["session"])
                if key != f"queue/{of}/{body['run']}":
                    self.problem(key, "it is the queue entry of another run")
        return {"whole": not self.problems, **self.counts, "problems": self.problems}

    # What has to be there

    def expect(self, expected):
        for session in expected.get("sessions", []):
            where = f"sessions/{segment(session['agent'])}/{segment(session['session'])}"
            self.guarded(where, lambda: self.expect_session(where, session))
        for secret in expected.get("absent", []):
            self.expect_absent(secret.encode())
        if expected.get("idle"):
            for key, (kind, body, _) in self.documents.items():
                if kind == "queued" or (kind == "head" and body["lease"]):
                    self.problem(key, "something is left that says that work goes on")

    def expect_session(self, where, session):
        need(f"{where}/head" in self.documents, "the session has no head")
        head = self.documents[f"{where}/head"][1]
        records = [body for key, (kind, body, _) in self.documents.items() if kind == "run" and key.startswith(f"{where}/runs/")]
        official = [r for r in records if r["incarnation"] == head["incarnation"] and r["seq"] <= head["seq"] and r["status"] != "running"]
        need(sorted(r["seq"] for r in official) == list(range(1, head["seq"] + 1)), "the official records aren't one for each ended run")
        found = {r["run"]: r["status"] for r in official}
        need(found == session["runs"], f"the ended runs are {found}, not {session['runs']}")
        need(head["turn"] == session["turns"], f"it has {head['turn']} turns, not {session['turns']}")
        pin = head["checkpoint"]["root"].get("pin")
        need((pin or {}).get("commit") == session.get("commit"), f"its pin is {pin}")
        need(all(r["pin"] == pin for r in official if r["status"] == "completed"), "a run stood on another pin")
        if "saves" in session:
            need(sorted(save["name"] for save in head["saves"]) == sorted(session["saves"]), "its named checkpoints are others")
        if "files" not in session:
            return
        files = self.files(head["checkpoint"]["root"]["workspace"])
        for path in sorted(set(files) | set(session["files"])):
            need(files.get(path) == session["files"].get(path), f"/workspace/{path} isn't what it has to be")

    def files(self, root):
        """Returns the SHA-256 of each file's content below a root, by path."""
        found = {}

        def directory(wanted, place, path):
            kind, items, names = self.page(wanted, place)
            names = iter(names)
            for item in items:
                if kind == SPLIT:
                    if item is not None:
                        directory(item[0], next(names)[1], path)
                elif item[1] == 1:
                    directory(item[4], next(names)[1], f"{path}{item[0].decode()}/")
                elif item[1] == 0:
                    found[path + item[0].decode()] = hashlib.sha256(self.bytes_of(item[5], names)).hexdigest()

        directory(*self.link(root["page"]), "")
        return found

    def bytes_of(self, form, names):
        def chunk():
            (_, wanted, _), (home, pack, *at) = next(names)
            data = self.pack(home, pack).object(tuple(at))
            need(hashlib.sha256(data).digest() == wanted, "a chunk doesn't match its id")
            return data

        def listed(wanted, place):
            kind, items, inner = self.page(wanted, place)
            inner = iter(inner)
            if kind == LIST_SPLIT:
                return b"".join(listed(item[0], next(inner)[1]) for item in items)
            return b"".join(self.bytes_of([1, [part]], inner) for part in items)

        if not isinstance(form, list):
            return form
        if form[0] == 0:
            return chunk()
        if form[0] == 1:
            return b"".join(chunk() if isinstance(part, list) else bytes(part) for part in form[1])
        return listed(form[1], next(names)[1])

    def expect_absent(self, secret):
        # In base64 the text depends on where it begins in a group of three; its ends depend on what is beside it.
        forms = [secret, secret.hex().encode(), secret.hex().upper().encode(), b"".join(b"%%%02X" % b for b in secret)]
        forms += [base64.b64encode(b"x" * at + secret)[4 if at else 0 : -4] for at in range(3)]
        for folder, _, names in os.walk(self.folder):
            for name in names:
                key = os.path.relpath(os.path.join(folder, name), self.folder)
                data = self.read(key)
                plain = [data]
                if "/packs/" in key:
                    home, pack = key.rsplit("/packs/", 1)
                    opened = self.guarded(key, lambda: self.pack(home, bytes.fromhex(pack)))
                    plain += [opened.plain(at) for at in opened.frames] if opened else []
                if any(form in text for form in forms for text in plain):
                    self.problem(key, "a secret is in it")


def golden(path):
    """Checks each page of a golden file against its id, and that its stored form holds its body; returns how many there are."""
    count = 0
    with open(path, encoding="utf-8") as file:
        for block in file.read().strip().split("\n\n"):
            fields = dict(line.split(" ", 1) for line in block.splitlines()[1:])
            body, stored = bytes.fromhex(fields["body"]), bytes.fromhex(fields["stored"])
            need(page_id(body).hex() == fields["id"] and encode(cbor(body)) == body, f"{block.splitlines()[0]}: its id isn't that of its body")
            found, *_ = check_stored_page(stored, "sessions/reviewer/fix%2042", bytes(32))
            need(found.hex() == fields["id"] and encode(cbor(stored)) == stored, f"{block.splitlines()[0]}: its stored form holds another body")
            count += 1
    return count


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--golden":
        print(json.dumps({"whole": True, "pages": golden(sys.argv[2])}))
        return 0
    if len(sys.argv) not in (2, 3) or not os.path.isdir(sys.argv[1]):
        print(__doc__, file=sys.stderr)
        return 2
    sys.setrecursionlimit(100_000)
    store = Store(sys.argv[1])
    report = store.check()
    if len(sys.argv) == 3:
        with open(sys.argv[2], encoding="utf-8") as file:
            store.expect(json.load(file))
        report["whole"] = not store.problems
    print(json.dumps(report, indent=1))
    return 0 if report["whole"] else 1


if __name__ == "__main__":
    sys.exit(main())
