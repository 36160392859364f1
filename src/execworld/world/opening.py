"""From the name of a world to the open world."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from execworld.seams import (
    ConfigurationError,
    OnProgress,
    OpenRequest,
    Provider,
    SandboxPolicy,
    World,
    WorldClaims,
)
from execworld.seams.values import value_class
from execworld.world.discovery import load_provider, missing_package_refused
from execworld.world.groups import leaf_errors, take_notes
from execworld.world.locations import user_locations
from execworld.world.machine_floor import hold_machine_floor, refuse_opened
from execworld.world.options import validate_options

ConfigT = TypeVar("ConfigT")
ResultT = TypeVar("ResultT")


@value_class
class ResolvedWorld(Generic[ConfigT]):
    """A name that was found and options that are right. Nothing was started yet."""

    provider: Provider[ConfigT]
    config: ConfigT

    def default_policy(self, cwd: str | None) -> SandboxPolicy:
        """What the world is opened with when no policy is named."""
        make = self.provider.default_policy
        return SandboxPolicy.full_access() if make is None else make(cwd)

    def claims(self, policy: SandboxPolicy) -> WorldClaims:
        """What the provider says of the world before it is opened."""
        tell = self.provider.claims
        return WorldClaims() if tell is None else tell(self.config, policy)

    @asynccontextmanager
    async def open(
        self,
        *,
        policy: SandboxPolicy | None = None,
        cwd: str | None = None,
        environment: Iterable[str] = (),
        on_progress: OnProgress | None = None,
    ) -> AsyncGenerator[World]:
        """Open the world; leaving the context closes it. Arguments and errors as of `open_world`."""
        policy = self.default_policy(cwd) if policy is None else policy
        floor = hold_machine_floor(self, policy)
        opening = self.open_composed(policy=policy, cwd=cwd, environment=environment, on_progress=on_progress)
        async with opening as world:
            if floor is not None:
                refuse_opened(floor, self, world)
            yield world

    @asynccontextmanager
    async def open_composed(
        self,
        *,
        policy: SandboxPolicy | None = None,
        cwd: str | None = None,
        environment: Iterable[str] = (),
        on_progress: OnProgress | None = None,
        documents: Iterable[str] = (),
    ) -> AsyncGenerator[World]:
        """As `open`, for a composition: its floor begins with that of the machine, and it holds it itself.

        Args:
            documents: The files of which it was made, which no program under a policy may write.
        """
        request = OpenRequest(
            config=self.config,
            policy=self.default_policy(cwd) if policy is None else policy,
            cwd=cwd,
            environment=tuple(environment),
            on_progress=on_progress,
            obeyed=(user_locations().directory, *documents),
        )
        manager = self.provider.open(request)
        with missing_package_refused(self.provider):
            world = await _ungrouped(manager.__aenter__())
        try:
            yield world
        except BaseException as error:
            if not await _ungrouped(manager.__aexit__(type(error), error, error.__traceback__), error):
                raise
        else:
            await _ungrouped(manager.__aexit__(None, None, None))


async def _ungrouped(awaitable: Awaitable[ResultT], known: BaseException | None = None) -> ResultT:
    """What *awaitable* gives. A group with a single error in it is replaced by that error.

    A provider keeps its tasks in a task group, and leaving one wraps whatever passes through it. The caller opened
    a world, not a group, and expects the documented error, or *known*, the very error of its own code.
    """
    try:
        return await awaitable
    except BaseExceptionGroup as group:
        leaves = leaf_errors(group)
        # By their leaves: an event loop may copy the groups on the way.
        if known is not None and _same(leaves, leaf_errors(known)):
            error = known
        elif len(leaves) == 1:
            (error,) = leaves
        else:
            raise
        take_notes(error, group)
    raise error  # outside of the handler, so that the group does not become its context


def _same(left: list[BaseException], right: list[BaseException]) -> bool:
    return [id(error) for error in left] == [id(error) for error in right]


def resolve_world(name: str, options: Mapping[str, object], *, text: bool = False) -> ResolvedWorld[Any]:
    """Find the provider of a world name or world URL and check the options.

    Args:
        name: ``docker``, or a URL as ``docker://IMAGE`` or ``docker+attach://CONTAINER``: the name of the
            provider, and what it makes of the rest.
        options: Options by name, beside those that the URL gives.
        text: The values are text from a command line.

    Raises:
        ProviderUnknown, ProviderNotInstalled, WorldUnavailable: as of `load_provider`.
        ConfigurationError: an option is wrong, or is given by the URL as well; or the world takes no URL.
    """
    scheme, separator, _ = name.partition("://")
    provider_name = scheme.partition("+")[0] if separator else name
    provider: Provider[Any] = load_provider(provider_name)
    if not separator:
        return ResolvedWorld(provider, validate_options(provider, options, text=text))
    if provider.config_from_url is None:
        message = f"world `{provider_name}` takes no address after its name"
        raise ConfigurationError(message, hint=f"write `{provider_name}`")
    from_url = provider.config_from_url(name)
    both = sorted(set(from_url) & set(options))
    if both:
        names = ", ".join(f"`{option}`" for option in both)
        raise ConfigurationError(
            f"world `{provider_name}`: given by its URL and as an option as well: {names}"
        )
    return ResolvedWorld(provider, validate_options(provider, {**options, **from_url}, text=text))


@asynccontextmanager
async def open_world(
    name: str,
    /,
    *,
    policy: SandboxPolicy | None = None,
    cwd: str | None = None,
    environment: Iterable[str] = (),
    on_progress: OnProgress | None = None,
    **config: object,
) -> AsyncGenerator[World]:
    """Open the execution world *name*; leaving the context closes it.

    Closing ends every process tree of the world and removes what it made.

    Args:
        name: Name of an installed provider, or a world URL.
        policy: What commands and file operations may do in it; None for what the provider takes then:
            ``landlock`` workspace-write on the working directory, the others no restriction inside the world.
        cwd: Working directory in the world; None for the provider's default.
        environment: Names that are let through from the environment of this process beside the allow-list.
        on_progress: Called in the thread of the event loop while opening takes long, as when an image is pulled.
        config: Options of the provider.

    Raises:
        ProviderUnknown, ProviderNotInstalled, ConfigurationError: nothing was started.
        FloorViolated: it is below the floor of this machine, ``/etc/execworld/floor.yml``; nothing ran.
        SandboxUnavailable: the policy cannot be enforced there; nothing ran.
        WorldUnavailable: it could not be opened; nothing was left behind.
        CleanupIncomplete: on leaving, something could not be proven gone.
    """
    opening = resolve_world(name, config).open(
        policy=policy, cwd=cwd, environment=environment, on_progress=on_progress
    )
    async with opening as world:
        yield world
