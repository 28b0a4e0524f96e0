"""Writing files so that no half-written one is ever seen under its name.  Standard library only."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from graphwright.errors import ResourceError


@contextmanager
def _told(target: Path) -> Generator[None]:
    """A full disk becomes a ResourceError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ResourceError(f"{target}: {error.strerror}; nothing was written") from error
        raise


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Generator[BinaryIO]:
    """A file to write; on a normal exit it is flushed to disk and takes the name `path` at once.

    It lies beside `path` under a temporary name until then and is removed when anything fails, so
    `path` always holds the whole old or the whole new content.  A symbolic link stays one: what it
    points to is replaced.  A device or pipe (/dev/stdout) is written to when all is there.  Raises ResourceError when the disk
    is full, OSError as `open` does.
    """
    target = Path(os.path.realpath(path))
    if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
        with tempfile.TemporaryFile() as file, _told(Path(path)):
            yield file
            file.seek(0)
            with open(path, "wb") as device:
                shutil.copyfileobj(file, device)
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        # 0o666: the mode that the umask of the process makes of it, as for any new file.
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == str(temporary) and not error.filename2:
            error.filename = os.fspath(path)  # the name that the caller knows
        with _told(Path(path)):
            raise error
    with suppress(OSError):  # the rename itself must survive a power cut; not all systems can
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
