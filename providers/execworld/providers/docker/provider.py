"""Provider ``docker``."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from execworld.machine.warden import LinkSettings, WardenMachine, open_warden_machine
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.providers.docker.boundary import ContainerBoundary, boundary_of
from execworld.providers.docker.claims import claims
from execworld.providers.docker.config import DockerConfig, config_from_url
from execworld.providers.docker.confining import confiner_in, kill_tree, restrict_programs
from execworld.providers.docker.contexts import DEFAULT_ADDRESS, EngineAddress, engine_variables, find_engine
from execworld.providers.docker.creating import MadeContainer, make_container
from execworld.providers.docker.engine import Engine, open_engine
from execworld.providers.docker.entrypoints import entrypoint_of, run_entrypoint
from execworld.providers.docker.executing import Life
from execworld.providers.docker.images import find_image
from execworld.providers.docker.joining import join_container, refuse_options_of_made
from execworld.providers.docker.shaping import Shape, is_root, refuse_engine_sockets
from execworld.providers.docker.sweeping import clean
from execworld.providers.docker.workspaces import calling_user, ensure_workspace
from execworld.seams.enforcement import Dimension, Enforcement
from execworld.seams.errors import ConfigurationError, Unsupported, WorldUnavailable
from execworld.seams.identity import Boundary, WorldIdentity
from execworld.seams.policy import NetworkMode
from execworld.seams.provider import OpenRequest, Probe, Provider
from execworld.seams.world import World

_LEASE_S: Final = 30.0
"""The engine may be restarted in a way that lets containers live; then nobody closes the warden's input."""
_SHOWN_ID_CHARACTERS: Final = 12


@asynccontextmanager
async def _open(request: OpenRequest[DockerConfig]) -> AsyncGenerator[World]:
    config = request.config
    address = find_engine(
        host=config.host,
        context=config.context,
        variables=engine_variables() if config.from_environment else None,
    )
    _refuse_tls(address)
    if config.container:
        refuse_options_of_made(config)
    refuse_engine_sockets(config, address)
    if config.workspace and address.scheme != "unix":
        raise ConfigurationError(
            f"`workspace` is a directory of this host, and the engine is elsewhere: {address.shown}",
            hint="use `workspace_volume`, or a bind mount of a path of that host",
        )
    async with (
        open_engine(
            address, timeout_s=config.engine_timeout_s, trust_environment=config.from_environment
        ) as engine,
        (_joined_world if config.container else _made_world)(request, engine) as world,
    ):
        yield world


def _refuse_tls(address: EngineAddress) -> None:
    # A socket under TLS cannot be taken from the SDK: it has no duplicate, and what it has read ahead is hidden.
    if address.tls is not None:
        raise Unsupported(
            f"an engine behind TLS cannot be used yet: {address.shown} ({address.source})",
            op="world.open",
            hint="reach it as ssh://user@host, or forward its socket by SSH and name that",
        )


@asynccontextmanager
async def _made_world(request: OpenRequest[DockerConfig], engine: Engine) -> AsyncGenerator[World]:
    config = request.config
    info = await engine.info()
    image = await find_image(engine, config, info, request.on_progress)
    if config.start_entrypoint:
        entrypoint_of(image)
    user = config.user or (calling_user(info) if config.workspace else "")
    shape = Shape(
        image=str(image["Id"]),
        architecture=str(image["Architecture"]),
        user=user,
        is_root=is_root(user or str(image["Config"].get("User") or "")),
        network=config.network or ("none" if request.policy.network.mode is NetworkMode.NONE else ""),
        environment=_environment(request),
    )
    async with make_container(engine, config, shape) as (made, transport):
        async with open_warden_machine(transport, LinkSettings(lease_s=_LEASE_S)) as machine:
            boundary = boundary_of(made.inspected, info, remote=engine.address.scheme != "unix")
            await restrict_programs(machine, config, shape, boundary)
            await ensure_workspace(engine, made.container, machine, request.policy)
            async with AsyncExitStack() as opened:
                world = await opened.enter_async_context(_world_on(request, made, machine, boundary))
                if config.start_entrypoint:
                    await opened.enter_async_context(run_entrypoint(world, image))
                yield world


@asynccontextmanager
async def _joined_world(request: OpenRequest[DockerConfig], engine: Engine) -> AsyncGenerator[World]:
    settings = LinkSettings(lease_s=_LEASE_S)
    info = await engine.info()
    async with join_container(engine, request.config, _environment(request), settings) as (life, machine):
        boundary = boundary_of(life.inspected, info, remote=engine.address.scheme != "unix")
        async with _world_on(request, life, machine, boundary) as world:
            yield world


@asynccontextmanager
async def _world_on(
    request: OpenRequest[DockerConfig],
    made: MadeContainer | Life,
    machine: WardenMachine,
    boundary: ContainerBoundary,
) -> AsyncGenerator[World]:
    identity = WorldIdentity("docker", f"{made.container[:_SHOWN_ID_CHARACTERS]}@{made.started_at}")
    machine.world_id = identity.world_id
    workspace = request.config.workspace_target if request.config.has_workspace else None
    settings = WorldSettings(
        identity=identity,
        policy=request.policy,
        enforcement=Enforcement({Dimension.KILL_TREE: kill_tree(machine, boundary)}),
        boundary=boundary.boundary,
        crossings=boundary.crossings,
        cwd=request.cwd or request.policy.workspace or workspace,
        environment=(
            *request.environment,
            *request.config.env,
            *_names(made.inspected["Config"].get("Env") or ()),
        ),
        confiner=await confiner_in(machine, boundary),
    )
    async with open_machine_world(machine, settings) as world:
        yield world


def _environment(request: OpenRequest[DockerConfig]) -> Mapping[str, str]:
    """What the container gets beside the environment of its image: what was let through, and the option `env`."""
    let_through = (*request.environment, *request.policy.environment)
    return {name: os.environ[name] for name in let_through if name in os.environ} | dict(request.config.env)


def _names(environment: Iterable[str]) -> tuple[str, ...]:
    return tuple(entry.partition("=")[0] for entry in environment)


async def _probe() -> Probe:
    address = EngineAddress(DEFAULT_ADDRESS)
    try:
        async with open_engine(address, timeout_s=5.0) as engine:
            info: Mapping[str, Any] = await engine.info()
    except ImportError as error:
        return Probe(
            available=False,
            reason=f"the Python package `{error.name}` is not installed",
            hint="pip install 'execworld[docker]'",
        )
    except WorldUnavailable as error:
        return Probe(available=False, reason=error.message, hint=error.hint)
    if info.get("OSType") != "linux":
        return Probe(
            available=False,
            reason=f"the engine runs containers for {info.get('OSType')}",
            hint="it must run Linux containers",
        )
    return Probe(available=True, boundary=Boundary.CONTAINER)


provider: Final = Provider(
    name="docker",
    summary="a container, made for the world or joined",
    config_type=DockerConfig,
    open=_open,
    probe=_probe,
    config_from_url=config_from_url,
    extra="docker",
    clean=clean,
    claims=claims,
)
