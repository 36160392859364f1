"""Providers are found by metadata; only the chosen one is imported; every failure says what to do."""

import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest

from execworld.seams import (
    CleanupIncomplete,
    ConfigurationError,
    OpenRequest,
    Probe,
    Provider,
    ProviderNotInstalled,
    ProviderUnknown,
    World,
    WorldUnavailable,
)
from execworld.world import list_providers, load_provider, open_world, resolve_world
from execworld.world.discovery import missing_package_refused

PROVIDER = """
from contextlib import asynccontextmanager
from dataclasses import dataclass
from execworld.seams import Probe, Provider

@dataclass(frozen=True, slots=True)
class Config:
    image: str = "none"

@asynccontextmanager
async def open_world(request):
    {opening}
    yield None

async def probe():
    return Probe(False)

provider = Provider("{name}", "for a test", Config, open_world, probe, config_from_url={from_url})
"""


class Config:
    """Defined here, so that this module counts as the provider's own code."""


def open_nothing(request: OpenRequest[Config]) -> AbstractAsyncContextManager[World]:
    raise NotImplementedError


async def probe_nothing() -> Probe:
    return Probe(False)


def import_absent_sdk() -> None:
    importlib.import_module("absent_sdk")


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution on the path that registers a provider, as an installation would."""

    def install_one(
        name: str,
        *,
        distribution: str | None = None,
        module: str | None = None,
        opening: str = "pass",
        from_url: str = "None",
        source: str | None = None,
    ) -> None:
        distribution = distribution or f"{name}-world"
        module = module or f"provider_of_{name}"
        information = tmp_path / f"{distribution.replace('-', '_')}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[execworld.providers]\n{name} = {module}:provider\n")
        text = PROVIDER.format(name=name, opening=opening, from_url=from_url) if source is None else source
        (tmp_path / f"{module}.py").write_text(text)
        monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()

    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return install_one


def test_listing_imports_nothing(install: Install) -> None:
    install("acme", source="raise AssertionError('imported')")
    assert ("acme", "acme-world", "provider_of_acme:provider") in [
        (listing.name, listing.distribution, listing.reference) for listing in list_providers()
    ]
    assert "provider_of_acme" not in sys.modules


def test_only_the_chosen_provider_is_imported(install: Install) -> None:
    install("acme")
    install("other", source="raise AssertionError('imported')")
    assert load_provider("acme").name == "acme"
    assert "provider_of_other" not in sys.modules


def test_an_unknown_name_names_the_nearest_and_lists_all(install: Install) -> None:
    install("acme")
    with pytest.raises(ProviderUnknown) as caught:
        load_provider("acmee")
    assert "`acmee`" in caught.value.message
    assert "did you mean `acme`?" in caught.value.hint
    assert "local" in caught.value.hint


@pytest.mark.parametrize("name", ["", " ", "nothing-like-it", "\0", "local\n"])
def test_a_strange_name_is_unknown(name: str) -> None:
    with pytest.raises(ProviderUnknown):
        load_provider(name)


def test_a_mistyped_url_is_not_repeated() -> None:
    """What follows the name may hold a password."""
    with pytest.raises(ProviderUnknown) as caught:
        resolve_world("shh://user:hunter2@host/dir", {})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ProviderUnknown) as caught:
        resolve_world("user:hunter2@host", {})
    assert "hunter2" not in str(caught.value)


def test_a_name_registered_twice_is_refused_and_the_others_go_on(install: Install) -> None:
    install("acme", distribution="acme-one", module="acme_one")
    install("acme", distribution="acme-two", module="acme_two")
    install("fine")
    with pytest.raises(ConfigurationError) as caught:
        load_provider("acme")
    assert "acme-one" in caught.value.message
    assert "acme-two" in caught.value.message
    assert load_provider("fine").name == "fine"
    assert [listing.name for listing in list_providers()].count("acme") == 2


def test_an_object_that_is_no_provider_is_refused(install: Install) -> None:
    install("acme", source="provider = 3")
    with pytest.raises(WorldUnavailable, match="not a provider"):
        load_provider("acme")


def test_a_provider_that_goes_by_another_name_is_refused(install: Install) -> None:
    install("acme", source=PROVIDER.format(name="landlock", opening="pass", from_url="None"))
    with pytest.raises(WorldUnavailable, match="not a provider of that name"):
        load_provider("acme")


def test_a_missing_object_is_refused(install: Install) -> None:
    install("acme", source="")
    with pytest.raises(WorldUnavailable, match="could not be loaded"):
        load_provider("acme")


def test_an_absent_package_is_reported_as_not_installed(install: Install) -> None:
    install("acme", source="import absent_sdk")
    with pytest.raises(ProviderNotInstalled) as caught:
        load_provider("acme")
    assert "`absent_sdk`" in caught.value.message
    assert "absent_sdk" in caught.value.hint


def test_the_extra_is_named() -> None:
    provider = Provider("acme", "for a test", Config, open_nothing, probe_nothing, extra="docker")
    with pytest.raises(ProviderNotInstalled) as caught:
        with missing_package_refused(provider):
            import_absent_sdk()
    assert "pip install 'execworld[docker]'" in caught.value.hint


def test_a_broken_sdk_is_not_reported_as_missing(install: Install, tmp_path: Path) -> None:
    """Its own dependency is missing: installing the extra once more would not help."""
    (tmp_path / "broken_sdk.py").write_text("import absent_dependency_of_the_sdk")
    install("acme", source="import broken_sdk")
    with pytest.raises(WorldUnavailable) as caught:
        load_provider("acme")
    assert "absent_dependency_of_the_sdk" in caught.value.message


def test_an_sdk_of_the_wrong_version_is_not_reported_as_missing(install: Install, tmp_path: Path) -> None:
    (tmp_path / "old_sdk.py").write_text("")
    install("acme", source="from old_sdk import new_name")
    with pytest.raises(WorldUnavailable, match="new_name"):
        load_provider("acme")
    install("second", source="import old_sdk.new_part")
    with pytest.raises(WorldUnavailable, match="new_part"):
        load_provider("second")


@pytest.mark.anyio
async def test_a_package_that_opening_needs_is_reported_the_same_way(install: Install) -> None:
    install("acme", opening="import absent_sdk")
    with pytest.raises(ProviderNotInstalled, match="absent_sdk"):
        async with open_world("acme"):
            raise AssertionError("opened")


@pytest.mark.anyio
async def test_an_import_error_of_the_caller_passes_unchanged(install: Install) -> None:
    install("acme")
    error = ModuleNotFoundError("the caller's own", name="absent")
    with pytest.raises(ModuleNotFoundError) as caught:
        async with open_world("acme"):
            raise error
    assert caught.value is error


GROUPING = """
from contextlib import asynccontextmanager
from dataclasses import dataclass
import anyio
from execworld.seams import CleanupIncomplete, Probe, Provider, WorldUnavailable

@dataclass(frozen=True, slots=True)
class Config:
    fail: str = ""

@asynccontextmanager
async def open_world(request):
    try:
        async with anyio.create_task_group() as tasks:
            if request.config.fail == "open":
                raise WorldUnavailable("no")
            yield None
            if request.config.fail == "close":
                raise CleanupIncomplete("left")
    except BaseException as error:
        error.add_note("of the provider")
        raise

async def probe():
    return Probe(False)

provider = Provider("acme", "for a test", Config, open_world, probe)
"""


@pytest.mark.anyio
async def test_errors_are_not_wrapped_by_the_task_group_of_a_provider(install: Install) -> None:
    """And what the provider noted on the group is not lost with it."""
    install("acme", source=GROUPING)
    with pytest.raises(WorldUnavailable) as refused:
        async with open_world("acme", fail="open"):
            raise AssertionError("opened")
    with pytest.raises(CleanupIncomplete) as left:
        async with open_world("acme", fail="close"):
            pass
    assert refused.value.__notes__ == left.value.__notes__ == ["of the provider"]
    for error in (ValueError("own"), ExceptionGroup("own", [ValueError("inner")])):
        with pytest.raises(type(error)) as caught:
            async with open_world("acme"):
                raise error
        assert caught.value is error
        assert "of the provider" in getattr(error, "__notes__", [])


@pytest.mark.anyio
async def test_cancellation_passes_through_an_open_world(install: Install) -> None:
    install("acme", source=GROUPING)
    with anyio.CancelScope() as scope:
        async with open_world("acme"):
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught


def test_a_url_chooses_the_provider_by_its_scheme(install: Install) -> None:
    install("acme", from_url="lambda url: {'image': url}")
    assert resolve_world("acme://x/y", {}).config.image == "acme://x/y"
    assert resolve_world("acme+attach://x", {}).config.image == "acme+attach://x"
    assert resolve_world("acme", {}).config.image == "none"


def test_a_world_without_addresses_refuses_a_url(install: Install) -> None:
    install("acme")
    with pytest.raises(ConfigurationError, match="takes no address"):
        resolve_world("acme://x", {})


def test_url_and_option_must_not_give_the_same_value(install: Install) -> None:
    """Whichever won, the other would be ignored without a word."""
    install("acme", from_url="lambda url: {'image': url}")
    with pytest.raises(ConfigurationError, match="as an option as well: `image`"):
        resolve_world("acme://x", {"image": "y"})
