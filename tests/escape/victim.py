"""A process outside, with belongings that a probe wants.

Reads its order as one line of JSON, answers with its facts, and each further line with what was written to it.

python -S -E -s victim.py SECRET
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import tempfile
from typing import Any

SLOT_BYTES = 64


def main() -> None:
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    secret = str(order["secret"]).encode()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(15, secret, 0, 0, 0)  # PR_SET_NAME

    descriptor, path = tempfile.mkstemp(prefix=secret.decode() + "-", dir=order["directory"])
    os.write(descriptor, secret.ljust(4096, b"\n"))
    mapped = mmap.mmap(descriptor, 4096)
    os.unlink(path)

    buffer = ctypes.create_string_buffer(secret)
    slots = {token: ctypes.create_string_buffer(SLOT_BYTES) for token in order["tokens"]}
    facts: dict[str, Any] = {
        "pid": os.getpid(),
        "descriptor": descriptor,
        "secret_address": ctypes.addressof(buffer),
        "length": len(secret),
        "slots": {token: ctypes.addressof(slot) for token, slot in slots.items()},
    }
    key = int.from_bytes(os.urandom(3), "big") + 1
    segment = libc.shmget(key, 4096, 0o1666)  # IPC_CREAT
    if segment >= 0:
        libc.shmat.restype = ctypes.c_void_p
        ctypes.memmove(libc.shmat(segment, None, 0), secret, len(secret))
        facts["segment_key"] = key
    try:
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()
        for _ in sys.stdin:
            written = [token for token, slot in slots.items() if slot.value]
            sys.stdout.write(json.dumps(written) + "\n")
            sys.stdout.flush()
    finally:
        if segment >= 0:
            libc.shmctl(segment, 0, None)  # IPC_RMID
    mapped.close()


if __name__ == "__main__":
    main()
