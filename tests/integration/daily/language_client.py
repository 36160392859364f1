"""Starts a language server, opens module.py, and says what it answers about the call in its last line."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any


def main() -> None:
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    file = pathlib.Path("module.py").resolve()
    stdin, stdout = server.stdin, server.stdout

    def send(message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        stdin.flush()

    def answer_to(number: int) -> Any:
        while True:
            length = 0
            while (line := stdout.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            message = json.loads(stdout.read(length))
            if message.get("id") == number and "method" not in message:
                return message["result"]
            if "id" in message:
                send(
                    {
                        "id": message["id"],
                        "result": [{}] if message["method"] == "workspace/configuration" else None,
                    }
                )

    root = {"uri": file.parent.as_uri(), "name": "project"}
    capabilities: dict[str, Any] = {"textDocument": {"hover": {"contentFormat": ["plaintext"]}}}
    parameters = {
        "processId": None,
        "rootUri": root["uri"],
        "workspaceFolders": [root],
        "capabilities": capabilities,
    }
    send({"id": 1, "method": "initialize", "params": parameters})
    answer_to(1)
    send({"method": "initialized", "params": {}})
    document = {"uri": file.as_uri(), "languageId": "python", "version": 1, "text": file.read_text()}
    send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
    position = {"line": 4, "character": 2}
    send(
        {
            "id": 2,
            "method": "textDocument/hover",
            "params": {"textDocument": {"uri": file.as_uri()}, "position": position},
        }
    )
    sys.stdout.write(f"{answer_to(2)['contents']['value']}\n")
    send({"id": 3, "method": "shutdown"})
    answer_to(3)
    send({"method": "exit"})
    server.wait(20)


if __name__ == "__main__":
    main()
