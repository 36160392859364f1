"""What people do all day in a workspace, as scripts. Each runs in a directory of its own and ends with the line `done`.

The host puts into the directory what has to be at hand: `material/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from execworld.seams import Dimension


@dataclass(frozen=True, slots=True)
class Recipe:
    """One piece of work.

    Attributes:
        tools: Programs that it needs.
        script: For bash.
        expected: Text in its output.
        not_required: What its policy names as dispensable; nothing for work with nothing special configured.
    """

    tools: tuple[str, ...]
    script: str
    expected: tuple[str, ...] = ()
    not_required: tuple[Dimension, ...] = ()


GIT: Final = Recipe(
    ("git",),
    r"""
git init -q -b main repository
cd repository
git config user.name Somebody
git config user.email somebody@example.invalid
mkdir one two
echo text >one/file
git add -A
git commit -q -m first
git checkout -q -b topic
git mv one/file two/file
mv two/file one/again
mv one/again two/file
git add -A
git commit -q -m moved
git worktree add -q ../tree main
test -f ../tree/one/file
(cd ../tree && echo more >>one/file && git commit -q -a -m more)
git merge -q --no-edit main
git gc -q
git log --oneline | wc -l
git status --short
git worktree remove ../tree
git stash list
git tag -a -m tag v1
git clone -q . ../clone
test -f ../clone/two/file
""",
)

COMPILE: Final = Recipe(
    ("gcc", "make", "cmake"),
    r"""
cat >hello.c <<'END'
#include <stdio.h>
int main(void) { puts("hello from C"); return 0; }
END
cat >Makefile <<'END'
hello: hello.o
	gcc -o $@ hello.o
hello.o: hello.c
	gcc -c -pipe -O2 -o $@ hello.c
END
make -j2
./hello
mkdir tree
mv hello.c tree/
cat >tree/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.10)
project(hello C)
add_executable(hello-cmake hello.c)
END
cmake -S tree -B build >/dev/null
cmake --build build >/dev/null
build/hello-cmake
""",
    ("hello from C",),
)

NODE: Final = Recipe(
    ("node", "npm"),
    r"""
node -e '
const fs = require("fs"), { execFileSync } = require("child_process"), { Worker } = require("worker_threads");
fs.writeFileSync("a", "text"); fs.mkdirSync("d"); fs.renameSync("a", "d/b");
console.log(execFileSync("cat", ["d/b"]).toString());
new Worker("require(\"worker_threads\").parentPort.postMessage(\"from a worker\")", { eval: true })
  .on("message", (text) => console.log(text));
const server = require("net").createServer((c) => c.end("over loopback"));
server.listen(0, "127.0.0.1", () =>
  require("net").connect(server.address().port, "127.0.0.1").on("data", (data) => {
    console.log(data.toString()); server.close();
  }));
'
mkdir package project
echo '{"name": "local-package", "version": "1.0.0", "main": "index.js",
  "bin": {"local-command": "bin.js"}}' >package/package.json
echo 'module.exports = "a local package";' >package/index.js
printf '#!/usr/bin/env node\nconsole.log("a local command");\n' >package/bin.js
(cd package && npm pack --silent >/dev/null)
cd project
echo '{"name": "project", "version": "1.0.0", "private": true, "scripts": {"start": "local-command"}}' >package.json
npm install --offline --no-audit --no-fund ../package/local-package-1.0.0.tgz
node -e 'console.log(require("local-package"))'
npm run --silent start
""",
    ("from a worker", "over loopback", "a local package", "a local command"),
)

PIP: Final = Recipe(
    ("python3",),
    r"""
python3 -m venv environment
environment/bin/pip install --no-index --disable-pip-version-check material/local_wheel-1.0-py3-none-any.whl
environment/bin/python -c 'import local_wheel; print(local_wheel.TEXT)'
""",
    ("a local wheel",),
)

PYTEST: Final = Recipe(
    ("python3",),
    r"""
cat >test_all.py <<'END'
import os, pathlib, subprocess, tempfile, pytest
@pytest.mark.parametrize("number", range(8))
def test_one(number, tmp_path):
    (tmp_path / "file").write_text(str(number))
    assert subprocess.run(["cat", tmp_path / "file"], capture_output=True, text=True).stdout == str(number)
END
PYTHONPATH=$SITE_PACKAGES PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python3 -m pytest -q -p xdist -n 2 test_all.py
""",
    ("8 passed",),
)

CARGO: Final = Recipe(
    ("cargo", "rustc"),
    r"""
cargo init -q --name crate_without_dependencies --vcs none crate
cd crate
cargo build --offline
./target/debug/crate_without_dependencies
cargo test -q --offline
""",
    ("Hello, world!",),
)

GDB: Final = Recipe(
    ("gdb", "gcc"),
    r"""
cat >program.c <<'END'
#include <stdio.h>
int square(int x) { return x * x; }
int main(void) { printf("%d\n", square(12)); return 0; }
END
gcc -g -O0 -o program program.c
gdb -q -nx -batch -ex 'break square' -ex run -ex 'print x' -ex backtrace -ex finish -ex continue ./program
""",
    ("Breakpoint 1, square", "$1 = 12", "Value returned is $2 = 144", "exited normally"),
)

SANITIZERS: Final = Recipe(
    ("gcc",),
    r"""
cat >leak.c <<'END'
#include <stdlib.h>
int main(int argc, char **argv) { char *p = malloc(100); if (argc > 1) { free(p); return p[3]; } p = 0; return 0; }
END
gcc -g -fsanitize=address -o leak leak.c
./leak 2>leaked || true
grep -o 'LeakSanitizer: detected memory leaks' leaked; ! grep 'has encountered a fatal error' leaked
./leak x 2>used || true; grep -o 'AddressSanitizer: heap-use-after-free' used
""",
    ("LeakSanitizer: detected memory leaks", "AddressSanitizer: heap-use-after-free"),
)

LANGUAGE_SERVER: Final = Recipe(
    ("node", "python3"),
    r"""
printf 'def answer(question: str) -> int:\n    return 42\n\n\nanswer("?")\n' >module.py
python3 material/language_client.py node "$SITE_PACKAGES/pyright/dist/langserver.index.js" --stdio
""",
    ("(function) def answer(question: str) -> int",),
)

TERMINAL: Final = Recipe(
    ("script", "vi"),
    r"""
script -qec 'test -t 0 && stty rows 40 cols 100 && stty size && tty' typescript </dev/null
script -qec 'vi -u NONE -i NONE -N -n -c "normal ione line" -c wq file' /dev/null </dev/null >/dev/null
cat file
""",
    ("40 100", "one line"),
)

POOL: Final = Recipe(
    ("python3",),
    r"""
cat >pool.py <<'END'
import multiprocessing
from multiprocessing import shared_memory
def square(x): return x * x
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, sum(pool.map(square, range(10))))
    block = shared_memory.SharedMemory(create=True, size=16); block.buf[0] = 7
    again = shared_memory.SharedMemory(block.name); print("shared", again.buf[0]); again.close()
    block.close(); block.unlink()
    queue = multiprocessing.Queue(); queue.put("queued"); print(queue.get())
END
python3 pool.py
""",
    ("fork 285", "spawn 285", "shared 7", "queued"),
)

UNIX_SOCKETS: Final = Recipe(
    ("python3",),
    r"""
cat >pool.py <<'END'
import multiprocessing
def square(x): return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        print("forkserver", sum(pool.map(square, range(10))))
    with multiprocessing.Manager() as manager:
        print("manager", list(manager.list([1, 2])))
END
python3 pool.py
""",
    ("forkserver 285", "manager [1, 2]"),
    not_required=(Dimension.IPC_UNIX,),
)

SHELL: Final = Recipe(
    (),
    r"""
cat <<END >heredoc
a here document
END
cat heredoc
diff <(echo same) <(echo same)
paste <(printf '1\n2\n') <(printf 'a\nb\n')
tee >(cat >copied) <heredoc >/dev/null
cat <<<'a here string'
mkfifo pipe
(echo 'through a pipe' >pipe &)
cat pipe
echo temporary >"$(mktemp)"
echo x >/dev/null
echo e >/dev/stderr
echo o >/dev/stdout
sleep 100 & kill %1
wait $! || echo "ended by $?"
tar czf archive.tgz heredoc
tar xzf archive.tgz -C "$(mktemp -d)"
find . -name heredoc
cp -a heredoc kept
ls -l /proc/self/exe >/dev/null
ps -e >/dev/null
date >/dev/null
id
""",
    ("a here document", "2\tb", "a here string", "through a pipe", "ended by 143"),
)

RECIPES: Final = {
    "git": GIT,
    "compile": COMPILE,
    "node-npm": NODE,
    "pip-venv": PIP,
    "pytest-xdist": PYTEST,
    "cargo": CARGO,
    "gdb": GDB,
    "sanitizers": SANITIZERS,
    "language-server": LANGUAGE_SERVER,
    "terminal": TERMINAL,
    "multiprocessing": POOL,
    "unix-sockets": UNIX_SOCKETS,
    "shell": SHELL,
}
