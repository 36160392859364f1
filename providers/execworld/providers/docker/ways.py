"""How the warden gets into a container that runs: the programs of it that are used for that, and what they are given.

None of them is more than a loader. It is given the warden on its standard input, of which it takes exactly that much,
and becomes it; what comes behind belongs to the warden.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

PREFIX: Final = ".execworld-"

_PLACES: Final = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108 - of the container

# $1 how many bytes, $2 the name of our directory, then places for it, best first.
# A directory that is there already is never taken. Whether programs may be run from a place is tried by running one.
# `head` of some systems reads ahead, so nothing may follow before the warden has begun to speak, and `dd` is slow.
# The file is run by its descriptor, so that nothing is left of it whatever happens later.
_SHELL: Final = r"""
umask 077
exec 4>&2
size=$1 name=$2
shift 2
for place in "$@" "$HOME" . /; do
    own=$place/$name
    mkdir "$own" 2>/dev/null || continue
    trap 'rm -rf "$own"' 0
    trap 'exit 1' 1 2 13 15
    if echo '#!/bin/sh' >"$own/try" && chmod 700 "$own/try" && "$own/try"; then
        { head -c "$size" || dd ibs=1 obs=65536 count="$size"; } >"$own/warden" 2>/dev/null
        chmod 555 "$own/warden" && exec 3<"$own/warden" || exit 1
        rm -rf "$own" || { trap - 0; exec "$own/warden" 2>&4; }
        trap - 0
        exec /proc/self/fd/3 2>&4
    fi
    rm -rf "$own"
    trap - 0
done 2>/dev/null
echo "no program can be run from any of $* $HOME . /" >&4
exit 1
"""

_PYTHON: Final = """
import os, sys
size = int(sys.argv[1])
try:
    file = os.memfd_create("warden", 0x11)  # MFD_CLOEXEC | MFD_EXEC
except OSError:
    file = os.memfd_create("warden", 0x01)  # of a kernel that does not know the second
while size:
    data = os.read(0, min(size, 65536))
    if not data:
        sys.exit("the input ended early")
    size -= len(data)
    while data:
        data = data[os.write(file, data):]
os.execve("/proc/self/fd/%d" % file, ["warden"], os.environ)
"""


def shell_command(size_bytes: int, name: str, mounted: Sequence[str]) -> tuple[str, ...]:
    """Args:
    name: Of the directory to make.
    mounted: Places that may be tried too.
    """
    return ("/bin/sh", "-c", _SHELL, "execworld", str(size_bytes), name, *_PLACES, *mounted)


def python_command(size_bytes: int) -> tuple[str, ...]:
    return ("python3", "-I", "-S", "-c", _PYTHON, str(size_bytes))


def writable_mounts(inspected: Mapping[str, Any], *, volumes_alone: bool = False) -> list[str]:
    """Where something is mounted that may be written, volumes before directories of the host, and a tmpfs first.

    Args:
        volumes_alone: Leave a tmpfs out: what the engine unpacks there nobody sees.
    """
    found: list[tuple[int, str]] = []
    for mount in inspected.get("Mounts") or ():
        rank = {"volume": 1, "bind": 2}.get(mount.get("Type"))
        if rank is not None and mount.get("RW") is True:
            found.append((rank, str(mount["Destination"])))
    if not volumes_alone:
        found += [(0, str(place)) for place in inspected["HostConfig"].get("Tmpfs") or ()]
    return [place for _, place in sorted(found)]


def is_file_of(archive: bytes, content: bytes) -> bool:
    """Whether the one file in *archive* has just this *content*."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            entry = tar.next()
            file = None if entry is None or entry.size != len(content) else tar.extractfile(entry)
            return file is not None and file.read() == content
    except tarfile.TarError:
        return False
