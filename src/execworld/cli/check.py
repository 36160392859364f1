"""``execworld check``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from execworld.cli.compositions import CompositionChoice, composition_options
from execworld.cli.descriptors import Sink
from execworld.cli.documents import encode_document
from execworld.cli.exits import FAILURE
from execworld.cli.supervision import run_supervised

if TYPE_CHECKING:
    from execworld.config import Composition
    from execworld.seams.policy_order import Shortfall

EPILOG = """\b
Examples:
  execworld check
  execworld check docker.patch.yml
  execworld check --no-home main.yml branch.yml

\b
Exit codes: 0 nothing is missing; 1 something is; 125 a document is wrong.
"""


@click.command("check", epilog=EPILOG)
@composition_options
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@click.argument("documents", nargs=-1, metavar="[A [B]]")
def command(as_json: bool, documents: tuple[str, ...], **options: Any) -> int:
    """Tell what a composition lacks of its floor, and what is lost from A to B.

    A and B are documents that are laid over what the options say; without them, that alone is checked. Nothing is
    started: what a world claims of itself is proved, or refused, when it is opened. What cannot be compared counts as
    lost.
    """
    if len(documents) > 2:
        raise click.UsageError("name two documents at the most")
    from execworld.config import losses, shortfalls

    choice = CompositionChoice(**options)
    compositions = [choice.load(*each) for each in (((path,) for path in documents) if documents else ((),))]
    last = compositions[-1]
    lacking = shortfalls(last)
    lost = losses(compositions[0], last) if len(compositions) == 2 else ()
    if as_json:
        found = {
            "lacks": [each.as_dict() for each in lacking],
            "loses": [each.as_dict() for each in lost],
        }
        return _print(encode_document(found, indent=2), FAILURE if lacking or lost else 0)
    lines = [_told("lacks", last, each) for each in lacking] + [_told("loses", last, each) for each in lost]
    text = "".join(f"{line}\n" for line in lines) or "nothing is missing\n"
    return _print(text.encode("utf-8", "backslashreplace"), FAILURE if lines else 0)


def _told(word: str, composition: Composition, missing: Shortfall) -> str:
    origin = composition.origin(missing.subject)
    line = f"{word} {missing}" + (f" ({origin})" if origin is not None else "")
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def _print(data: bytes, code: int) -> int:
    async def work() -> int:
        await Sink(1).write(data)
        return code

    return run_supervised(work)
