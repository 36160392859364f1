"""A wider sandbox for one call: strictly wider, with a reason, allowed by a person, above the floor, for that call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import BaseModel

from execworld.kernel import WORLD, AsyncEffect, Context, open_kernel
from execworld.seams import ErrorCode, FileError, SandboxMode, SandboxPolicy, World, WorldClaims
from execworld.seams.floor import Floor
from execworld.tools.approval import APPROVAL, Answer, ApprovalRequest
from execworld.tools.calls import ToolContext, ToolResult
from execworld.tools.content import Text
from execworld.tools.definition import Tool
from execworld.tools.escalation import WIDER_VIEWS, Escalatable, HostViews
from execworld.tools.pipeline import PIPELINE, Pipeline, tool_pipeline
from execworld.tools.session import ToolSession
from execworld.world import open_world, root_sandbox

pytestmark = [pytest.mark.anyio, pytest.mark.landlock, pytest.mark.timeout(60)]


class Put(Escalatable, extra="forbid", frozen=True):
    path: str


class Done(BaseModel):
    mode: str


async def put(ctx: ToolContext, arguments: Put) -> Done:
    await ctx.world.fs.write_text(arguments.path, "x")
    return Done(mode=str(ctx.world.policy.mode))


class Person:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[ApprovalRequest] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def ask(self, request: ApprovalRequest) -> Answer:
        self.requests.append(request)
        if self.meanwhile is not None:
            await self.meanwhile()
        return self.answer


class Setting:
    def __init__(
        self, root: Context, session: ToolSession, world: World, person: Person, views: AsyncEffect
    ) -> None:
        self.root = root
        self.views = views
        self.session = session
        self.world = world
        self.person = person
        self.pipeline: Pipeline = root.get(PIPELINE)

    async def put(self, path: Path, mode: object = None, why: object = None) -> ToolResult:
        arguments = {"path": str(path), "sandbox_permissions": mode, "justification": why}
        given = {name: value for name, value in arguments.items() if value is not None}
        return await self.pipeline.call(self.session, "put", given)


@asynccontextmanager
async def setting(
    policy: SandboxPolicy, cwd: Path, *, answer: Answer = Answer.ALLOWED_ONCE, floor: Floor | None = None
) -> AsyncGenerator[Setting]:
    person = Person(answer)
    async with open_kernel() as root, open_world("landlock", policy=policy, cwd=str(cwd)) as world:
        await root.plugin(tool_pipeline)
        sandbox = root_sandbox(world)
        assert sandbox is not None
        root.provide(WORLD, world)
        views = root.provide(WIDER_VIEWS, HostViews(world, sandbox, floor or Floor(), WorldClaims()))
        root.provide(APPROVAL, person)
        async with ToolSession(str(cwd)) as session:
            found = Setting(root, session, world, person, views)
            found.pipeline.registry.add(
                root, Tool("put", "Puts.", Put, Done, put, lambda _, value: (Text(value.mode),))
            )
            yield found


async def test_a_granted_call_runs_in_the_wider_view_and_the_next_one_does_not(tmp_path: Path) -> None:
    async with setting(SandboxPolicy.read_only(), tmp_path) as here:
        assert (await here.put(tmp_path / "a")).code == ErrorCode.FS_SANDBOX_DENIED
        result = await here.put(tmp_path / "a", "workspace-write", "to keep notes")
        assert (result.ok, result.text) == (True, "workspace-write")
        assert result.view_id != here.world.view_id
        assert (tmp_path / "a").exists()
        assert (await here.put(tmp_path / "b")).code == ErrorCode.FS_SANDBOX_DENIED
        assert not (tmp_path / "b").exists()
    (request,) = here.person.requests
    assert request.mode is SandboxMode.WORKSPACE_WRITE
    assert "to keep notes" in request.reason
    assert "workspace-write" in request.reason


async def test_what_was_granted_is_for_the_world_that_it_was_asked_in(tmp_path: Path) -> None:
    """Not for one that took its place while the person thought, although its id is the same, as on one host."""
    async with setting(SandboxPolicy.read_only(), tmp_path) as here:

        async def replace_world() -> None:
            sandbox = root_sandbox(here.world)
            assert sandbox is not None
            await here.views.dispose()
            here.root.provide(WIDER_VIEWS, HostViews(here.world, sandbox, Floor(), WorldClaims()))

        here.person.meanwhile = replace_world
        result = await here.put(tmp_path / "a", "workspace-write", "to keep notes")
        assert result.code == ErrorCode.WORLD_MISMATCH
        assert not (tmp_path / "a").exists()


async def test_full_access_is_the_root_view(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    async with setting(SandboxPolicy.workspace_write(str(inside)), inside) as here:
        assert (await here.put(tmp_path / "a")).code == ErrorCode.FS_SANDBOX_DENIED
        assert (await here.put(tmp_path / "a", "full-access", "it is needed")).text == "full-access"


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("workspace-write", None),
        (None, "because"),
        ("workspace-write", "  "),
        ("read-only", "because"),
        ("everything", "because"),
        (["full-access"], "because"),
        ("workspace-write", "is not wider"),
    ],
)
async def test_nobody_is_asked_about_what_is_not_wider_or_has_no_reason(
    tmp_path: Path, mode: object, why: object
) -> None:
    async with setting(SandboxPolicy.workspace_write(str(tmp_path)), tmp_path) as here:
        assert (await here.put(tmp_path / "a", mode, why)).code == ErrorCode.INVALID_ARGS
        assert not (tmp_path / "a").exists()
    assert here.person.requests == []


@pytest.mark.parametrize("answer", [Answer.REJECTED, Answer.CANCELLED, Answer.UNAVAILABLE])
async def test_without_a_yes_nothing_runs(tmp_path: Path, answer: Answer) -> None:
    async with setting(SandboxPolicy.read_only(), tmp_path, answer=answer) as here:
        assert (await here.put(tmp_path / "a", "full-access", "please")).code == ErrorCode.TOOL_DENIED
        assert not (tmp_path / "a").exists()


async def test_a_view_below_the_floor_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    floor = Floor(mode=SandboxMode.WORKSPACE_WRITE)
    async with setting(SandboxPolicy.read_only(str(tmp_path)), tmp_path, floor=floor) as here:
        result = await here.put(tmp_path / "a", "full-access", "please")
        assert result.code == ErrorCode.FLOOR_VIOLATED
        assert here.person.requests == []
        assert (await here.put(tmp_path / "a", "workspace-write", "please")).ok


async def test_a_guard_denies_what_was_granted(tmp_path: Path) -> None:
    async with setting(SandboxPolicy.read_only(), tmp_path) as here:
        here.pipeline.guards.add(here.root, lambda call: "no" if call.argument("justification") else None)
        assert (await here.put(tmp_path / "a", "full-access", "please")).code == ErrorCode.TOOL_DENIED
        assert not (tmp_path / "a").exists()


async def test_only_the_mode_is_widened(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    policy = SandboxPolicy(SandboxMode.READ_ONLY, str(tmp_path), hidden=(str(secret),))
    async with setting(policy, tmp_path) as here:
        seen: list[World] = []

        async def look(ctx: ToolContext, arguments: Put) -> Done:
            seen.append(ctx.world)
            with pytest.raises(FileError):
                await ctx.world.fs.read_text(arguments.path)
            return Done(mode=str(ctx.world.policy.mode))

        here.pipeline.registry.add(
            here.root.scoped(here.session.scope), Tool("put", "Looks.", Put, Done, look, lambda _, __: ())
        )
        assert (await here.put(secret, "workspace-write", "please")).ok
        assert seen[0].policy.hidden == (str(secret),)


async def test_the_arguments_are_advertised_only_where_something_wider_can_be_had(tmp_path: Path) -> None:
    async with setting(SandboxPolicy.read_only(), tmp_path) as here:
        (schema,) = here.pipeline.schemas(here.session)
        assert "justification" in schema["parameters"]["properties"]
    async with setting(SandboxPolicy.full_access(), tmp_path) as here:
        (schema,) = here.pipeline.schemas(here.session)
        assert list(schema["parameters"]["properties"]) == ["path"]
        assert (await here.put(tmp_path / "a", "full-access", "please")).code == ErrorCode.INVALID_ARGS


async def test_a_view_has_no_way_to_a_wider_one(tmp_path: Path) -> None:
    async with setting(SandboxPolicy.full_access(), tmp_path) as here:
        view = await here.world.sandbox.confine(SandboxPolicy.read_only())
        assert root_sandbox(view) is None
