"""A plain command in a world of our own profile sees the system calls that the engine's default would let it see."""

from __future__ import annotations

import platform
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from execworld.machine.warden import WardenMachine
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.providers.docker.seccomp import program_filter
from execworld.seams import OutputLimits, SandboxPolicy
from execworld.seams.enforcement import Enforcement
from execworld.seams.identity import Boundary, WorldIdentity

from .contained import PLAIN, make_image, open_contained
from .engines import Engine

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.anyio]

WHOLE = OutputLimits(head_bytes=1 << 20, tail_bytes=0)

# The profile follows the engine's documented default of today. Older engines differ from that in these calls.
FOLLOWS = (29, 4, 2)
SINCE_ALLOWED: Mapping[str, frozenset[int]] = {
    # name_to_handle_at, process_vm_readv, process_vm_writev, pkey_mprotect, pkey_alloc, pkey_free
    "x86_64": frozenset({303, 310, 311, 329, 330, 331}),
    "i386": frozenset({341, 347, 348, 380, 381, 382}),
    "aarch64": frozenset({264, 270, 271, 288, 289, 290}),
}
SINCE_DENIED = frozenset({425, 426, 427})  # io_uring_*
SINCE_KNOWN = frozenset(range(450, 470))  # what is newer than an engine is said not to exist (ENOSYS)
SINCE_DENIED_FAMILIES = frozenset({"family-38", "family-40"})  # AF_ALG, AF_VSOCK


@dataclass(frozen=True)
class Call:
    """Attributes:
    interface: Of the kernel; x32 has the numbers of x86_64 beside a bit.
    """

    interface: str
    number: int
    arguments: str

    @property
    def was_changed(self) -> bool:
        """Whether the engine's default says today otherwise than some engine that is still supported."""
        table = SINCE_ALLOWED["x86_64" if self.interface == "x32" else self.interface]
        return (
            self.number & ~0x4000_0000 in table | SINCE_DENIED | SINCE_KNOWN
            or self.arguments in SINCE_DENIED_FAMILIES
        )


def outcomes(text: str) -> dict[Call, str]:
    found: dict[Call, str] = {}
    for line in text.splitlines():
        interface, number, arguments, outcome = line.split(" ", 3)
        found[Call(interface, int(number) & ~0x4000_0000, arguments)] = outcome
    assert len(found) > 700
    return found


@pytest.fixture(scope="module")
def image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with make_image(engine, tmp_path_factory.mktemp("image")) as name:
        yield name


@pytest.fixture(scope="module", params=["root", "user"])
def options(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return {"root": (), "user": ("--user=1000:1000", "--cap-drop=ALL")}[request.param]


@pytest.fixture(scope="module")
def by_default(engine: Engine, image: str, options: tuple[str, ...]) -> dict[Call, str]:
    # PID 1 is under rules of its own for signals, so the probe is a child of an init, as it is in a world.
    return outcomes(engine.docker(*PLAIN, "--init", *options, image, "/probe"))


async def view_of(machine: WardenMachine) -> dict[Call, str]:
    settings = WorldSettings(
        identity=WorldIdentity("docker", "test"),
        policy=SandboxPolicy.full_access(),
        enforcement=Enforcement(),
        boundary=Boundary.CONTAINER,
    )
    async with open_machine_world(machine, settings) as world:
        result = await world.subprocess.run(["/probe"], limits=WHOLE, timeout_s=60)
    return outcomes(result.stdout.text)


async def test_a_command_sees_what_it_would_see_by_default(
    engine: Engine, image: str, options: tuple[str, ...], by_default: dict[Call, str], tmp_path: Path
) -> None:
    async with open_contained(engine, image, options, tmp_path) as machine:
        await machine.restrict_programs(program_filter(platform.machine(), administrator=False))
        view = await view_of(machine)
    assert view.keys() == by_default.keys()
    different = {call: (by_default[call], view[call]) for call in view if view[call] != by_default[call]}
    version = engine.docker("version", "--format={{.Server.Version}}").split("+")[0].split("-")[0]
    if tuple(int(part) for part in version.split(".")) < FOLLOWS:
        different = {call: both for call, both in different.items() if not call.was_changed}
    assert different == {}


async def test_without_the_filter_more_is_seen(
    engine: Engine, image: str, options: tuple[str, ...], by_default: dict[Call, str], tmp_path: Path
) -> None:
    """The twin: the comparison notices what the profile allows to the warden."""
    async with open_contained(engine, image, options, tmp_path) as machine:
        view = await view_of(machine)
    different = {call for call in view if view[call] != by_default[call] and not call.was_changed}
    new_user = (
        Call("x86_64", 272, "bit-28") if platform.machine() == "x86_64" else Call("aarch64", 97, "bit-28")
    )
    assert new_user in different
    assert view[new_user] == "ok"
