"""The configuration of a plugin: what is not known is an error, at any depth, and values are not repeated."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict  # the one that pydantic takes before Python 3.12

from execworld.kernel import Context, as_plugin, open_kernel
from execworld.kernel.configuration import check_model, validate_config
from execworld.seams import ConfigurationError, PluginInvalid

pytestmark = pytest.mark.timeout(10)


class Mount(BaseModel, extra="forbid"):
    source: str
    writable: bool = False


class Settings(BaseModel, extra="forbid"):
    image: str = "debian"
    port: int = 22
    token: str = Field(default="", alias="secret_token")
    mounts: tuple[Mount, ...] = ()

    @field_validator("image")
    @classmethod
    def check_image(cls, image: str) -> str:
        if image == "bad":
            raise ConfigurationError("no such image", hint="try another")
        return image


class Loose(BaseModel):
    text: str = ""


class Allowing(BaseModel, extra="allow"):
    text: str = ""


@dataclass
class LooseData:
    text: str = ""


@dataclass
class StrictData:
    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}
    text: str = ""


class LooseDictionary(TypedDict):
    text: str


def nested(annotation: object) -> type[BaseModel]:
    class Outer(BaseModel, extra="forbid"):
        inner: annotation = None  # type: ignore[valid-type]  # pyright: ignore[reportInvalidTypeForm] made for each case

    return Outer


@pytest.mark.parametrize("model", [Loose, Allowing])
def test_a_model_that_takes_unknown_keys_is_refused(model: type[BaseModel]) -> None:
    with pytest.raises(PluginInvalid, match=f"`{model.__name__}` takes keys that it does not know"):
        check_model("p", model)


@pytest.mark.parametrize(
    "annotation",
    [
        Loose,
        Loose | None,
        list[Loose],
        dict[str, tuple[Loose, ...]],
        Annotated[Loose, "note"],
        nested(list[Loose]),
        LooseData,
        LooseDictionary,
    ],
)
def test_one_inside_it_is_refused_as_well(annotation: object) -> None:
    with pytest.raises(PluginInvalid, match=r"Loose\w*` takes keys"):
        check_model("p", nested(annotation))


@pytest.mark.parametrize("annotation", [Mount, list[Mount], StrictData, dict[str, str], int, object])
def test_a_model_that_knows_its_keys_is_taken(annotation: object) -> None:
    check_model("p", nested(annotation))


def test_a_plugin_with_such_a_model_is_refused_before_it_starts() -> None:
    def loose(ctx: Context, config: Loose) -> None:
        raise AssertionError

    with pytest.raises(PluginInvalid, match="plugin `loose`"):
        as_plugin(loose)


def test_values_become_what_the_model_says() -> None:
    given = {"port": "2222", "mounts": [{"source": "/a"}], "secret_token": "x"}
    config = validate_config("p", Settings, given)
    assert isinstance(config, Settings)
    assert (config.port, config.mounts, config.token) == (2222, (Mount(source="/a"),), "x")
    assert validate_config("p", Settings, config) is config
    assert validate_config("p", Settings, None) == Settings()


WRONG: list[tuple[dict[str, object], str]] = [
    (
        {"imgae": "x"},
        "no key `imgae`\nhint: did you mean `image`\\? its keys: image, mounts, port, secret_token",
    ),
    ({"Image": "x"}, "no key `Image`\nhint: did you mean `image`"),
    ({"zzz": "x"}, "no key `zzz`\nhint: its keys: image"),
    (
        {"mounts": [{"source": "/a", "writeable": True}]},
        "no key `mounts.0.writeable`\nhint: did you mean `writable`",
    ),
    ({"mounts": [{}]}, "key `mounts.0.source`: Field required"),
    ({"image": "bad"}, "^no such image\nhint: try another$"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_what_is_wrong_is_named_with_the_nearest_right_name(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        validate_config("p", Settings, given)


def test_a_wrong_value_is_named_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="key `port`") as caught:
        validate_config("p", Settings, {"port": "top-secret"})
    assert "top-secret" not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"


def test_a_configuration_is_a_mapping() -> None:
    with pytest.raises(ConfigurationError, match="a mapping, not list"):
        validate_config("p", Settings, ["x"])


def test_a_plugin_without_a_configuration_takes_none() -> None:
    assert validate_config("p", None, None) is None
    assert validate_config("p", None, {}) is None
    with pytest.raises(ConfigurationError, match="takes no configuration"):
        validate_config("p", None, {"image": "x"})


@pytest.mark.anyio
async def test_a_wrong_configuration_is_raised_where_the_plugin_is_applied() -> None:
    def start(ctx: Context, config: Settings) -> None:
        raise AssertionError

    async with open_kernel() as root:
        with pytest.raises(ConfigurationError):
            root.plugin(start, {"imgae": "x"})
        assert root.describe().children == ()
