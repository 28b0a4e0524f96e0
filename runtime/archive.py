"""The container of an artifact: a zip whose every byte is determined by its members.

Members are stored, never compressed, one after the other without gaps, each at a 64-byte boundary
(padding in the extra field 0xD935, as zipalign does), with one fixed date.  The reader re-encodes
all headers and compares them, so that nothing can hide in them: no second directory, overlap, gap,
lying size or trailing bytes.  Layout of records: PKWARE APPNOTE 6.3.9, sections 4.3 and 4.5.3.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from graphwright.errors import ArtifactError

ALIGNMENT = 64
MANIFEST, WEIGHTS, GRAPH = "manifest.json", "weights.safetensors", "graph.ir"
CHUNK = 4 << 20  # bytes under one CRC-32 of a large member
_DATE = 0x0021  # 1980-01-01, the earliest that a zip can hold
_LIMIT = 0xFFFFFFFF
_MAX_MEMBERS = 60_000
_END, _LOCATOR, _END64 = (
    struct.Struct("<4s4H2IH"),
    struct.Struct("<4sIQI"),
    struct.Struct("<4sQ2H2I4Q"),
)
_LOCAL, _CENTRAL = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I")
_NAME = re.compile(r"[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*")


@dataclass(frozen=True, slots=True)
class Member:
    """One file: where its local header starts and where its data lies, in bytes of the archive."""

    name: str
    size: int
    crc: int
    offset: int

    @property
    def start(self) -> int:
        return self.offset + local_header_size(self.name, self.size, self.offset)

    @property
    def end(self) -> int:
        return self.start + self.size


def check_name(name: str) -> str:
    """The member name itself.  Raises ArtifactError for an absolute, climbing or odd path."""
    parts = name.split("/")
    if not _NAME.fullmatch(name) or len(name) > 200 or any(p in (".", "..") for p in parts):
        raise ArtifactError(f"archive: {name[:80]!r} is not an acceptable member name")
    return name


def _extra64(size: int, offset: int | None) -> bytes:
    # Zip64 extra field: in a local header both sizes, in a central one also the offset.
    if offset is None:
        return struct.pack("<2H2Q", 1, 16, size, size) if size >= _LIMIT else b""
    fields = [size, size] if size >= _LIMIT else []
    fields += [offset] if offset >= _LIMIT else []
    return struct.pack(f"<2H{len(fields)}Q", 1, 8 * len(fields), *fields) if fields else b""


def local_header_size(name: str, size: int, offset: int) -> int:
    """Bytes of the header before the data of a member that starts at `offset`."""
    used = _LOCAL.size + len(name) + len(_extra64(size, None)) + 6
    return used + -(offset + used) % ALIGNMENT


def local_header(name: str, size: int, crc: int, offset: int) -> bytes:
    """The header of the member whose header starts at `offset`."""
    wide = _extra64(size, None)
    total = local_header_size(name, size, offset)
    padding = total - _LOCAL.size - len(name) - len(wide) - 6
    extra = wide + struct.pack("<3H", 0xD935, 2 + padding, ALIGNMENT) + bytes(padding)
    short = min(size, _LIMIT)
    head = _LOCAL.pack(
        b"PK\3\4", 45 if wide else 20, 0, 0, 0, _DATE, crc, short, short, len(name), len(extra)
    )
    return head + name.encode() + extra


def directory(members: Sequence[Member]) -> bytes:
    """The central directory and the end records, after the last member."""
    parts: list[bytes] = []
    for m in members:
        wide = _extra64(m.size, m.offset)
        short = min(m.size, _LIMIT)
        version = 45 if wide else 20
        parts.append(
            _CENTRAL.pack(
                b"PK\1\2", version, version, 0, 0, 0, _DATE, m.crc, short, short, len(m.name),
                len(wide), 0, 0, 0, 0, min(m.offset, _LIMIT),
            )
            + m.name.encode()
            + wide
        )  # fmt: skip
    start, size = members[-1].end if members else 0, sum(map(len, parts))
    count = len(members)
    if start + size >= _LIMIT:
        parts.append(_END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start))
        parts.append(_LOCATOR.pack(b"PK\6\7", 0, start + size, 1))
    parts.append(_END.pack(b"PK\5\6", 0, 0, count, count, min(size, _LIMIT), min(start, _LIMIT), 0))
    return b"".join(parts)


def read_members(data: memoryview) -> dict[str, Member]:
    """The members by name, in file order.  Raises ArtifactError unless the bytes are exactly those
    that `local_header` and `directory` would write; contents are not read.
    """
    total = len(data)
    if bytes(data[:4]) != b"PK\3\4":
        raise ArtifactError("not a graphwright artifact: it does not start as a zip archive")
    if total < _END.size or bytes(data[total - _END.size :][:4]) != b"PK\5\6":
        raise ArtifactError("the artifact is truncated or has bytes after its end")
    _, _, _, _, count, size, start, _ = _END.unpack(data[total - _END.size :])
    if start == _LIMIT or size == _LIMIT:
        at = total - _END.size - _LOCATOR.size
        where = _LOCATOR.unpack(data[at : at + _LOCATOR.size])[2] if at >= 0 else total
        if where + _END64.size > total:
            raise ArtifactError("archive: the zip64 end record lies outside the file")
        *_, size, start = _END64.unpack(data[where : where + _END64.size])
    if count > _MAX_MEMBERS or start + size > total:
        raise ArtifactError("archive: the directory lies outside the file")
    members: dict[str, Member] = {}
    at, end, offset = start, start + size, 0
    for _ in range(count):
        if at + _CENTRAL.size > end:
            raise ArtifactError("archive: the directory is cut short")
        entry = _CENTRAL.unpack(data[at : at + _CENTRAL.size])
        crc, length, name_size, extra_size = entry[7], entry[9], entry[10], entry[11]
        at += _CENTRAL.size
        if at + name_size + extra_size > end:
            raise ArtifactError("archive: the directory is cut short")
        name = check_name(bytes(data[at : at + name_size]).decode("latin-1"))
        at += name_size
        if length == _LIMIT and extra_size >= 20:
            length = struct.unpack("<Q", data[at + 12 : at + 20])[0]
        at += extra_size
        if name in members:
            raise ArtifactError(f"archive: {name!r} is there twice")
        member = members[name] = Member(name, length, crc, offset)
        if member.end > start:
            raise ArtifactError(f"archive: {name!r} reaches beyond the directory")
        header = local_header(name, length, crc, offset)
        if bytes(data[offset : offset + len(header)]) != header:
            raise ArtifactError(f"archive: the header of {name!r} is not as graphwright writes it")
        offset = member.end
    if offset != start or bytes(data[start:]) != directory(list(members.values())):
        raise ArtifactError("archive: the directory is not as graphwright writes it")
    return members
