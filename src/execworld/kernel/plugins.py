"""What a plugin is, and how a function, a class or a module is read as one."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, get_type_hints

from execworld.kernel.configuration import check_model, is_model, validate_config
from execworld.kernel.keys import AnyKey, Key
from execworld.seams import PluginAmbiguous, PluginInvalid
from execworld.seams.values import value_class

if TYPE_CHECKING:
    from pydantic import BaseModel

Body: TypeAlias = Callable[..., AbstractAsyncContextManager[object]]

_DECLARATIONS: Final = ("name", "inject", "optional", "provides")
# What people write who mean one of them. It would be ignored, and the plugin would start without its services.
_MISTAKES: Final = {
    "injects": "inject",
    "injected": "inject",
    "require": "inject",
    "requires": "inject",
    "depends": "inject",
    "depends_on": "inject",
    "dependencies": "inject",
    "optionals": "optional",
    "provide": "provides",
    "provided": "provides",
} | {name: name for name in _DECLARATIONS[1:]}
_STARTERS: Final = ("apply", "start", "__aenter__")


@value_class
class Plugin:
    """One way to start a plugin, with all that has to be known before.

    Attributes:
        name: What it is called in messages and graphs.
        body: Called with the context, and the configuration if there is a model of one, gives what is entered to
            start the plugin and left to end it; both in the same task.
        inject: Services without which it does not start. It is restarted when another provider takes over.
        optional: Services that it reads if they are there. It is restarted when one of them comes, goes or changes.
        provides: Every service that it may provide.
        config_type: Model of its configuration.
    """

    name: str
    body: Body
    inject: tuple[AnyKey, ...] = ()
    optional: tuple[AnyKey, ...] = ()
    provides: tuple[AnyKey, ...] = ()
    config_type: type[BaseModel] | None = None

    def validate(self, config: object) -> BaseModel | None:
        """The configuration that *config* means; see `validate_config`."""
        return validate_config(self.name, self.config_type, config)


def plugin(
    *,
    name: str | None = None,
    inject: Iterable[AnyKey] = (),
    optional: Iterable[AnyKey] = (),
    provides: Iterable[AnyKey] = (),
) -> Callable[[Callable[..., object]], Plugin]:
    """Make a function a plugin with declarations.

    The function takes a `Context`, and a model of pydantic if it has a configuration. It may be plain, async, or an
    async generator that yields once, in the middle of its ``async with`` blocks.
    """

    def declare(function: Callable[..., object]) -> Plugin:
        return _from_function(function, name, _declared(inject, optional, provides))

    return declare


def as_plugin(candidate: object) -> Plugin:
    """Read *candidate* as a plugin: a `Plugin`, a function, a class or a module.

    Raises:
        PluginAmbiguous: it could be read in two ways.
        PluginInvalid: it is no plugin, or what it declares is wrong.
    """
    if isinstance(candidate, Plugin):
        return candidate
    if isinstance(candidate, ModuleType):
        return _from_module(candidate)
    if isinstance(candidate, type):
        return _from_class(candidate)
    if inspect.isfunction(candidate) or inspect.ismethod(candidate):
        return _from_function(candidate, None, {})
    message = f"no plugin: an object of type `{type(candidate).__name__}`"
    raise PluginInvalid(message, hint="a plugin is a function, a class, a module or a Plugin")


def _from_function(
    function: Callable[..., object], name: str | None, declared: dict[str, tuple[AnyKey, ...]]
) -> Plugin:
    name = name or str(getattr(function, "__name__", ""))
    if inspect.isgeneratorfunction(function):
        raise PluginInvalid(f"plugin `{name}`: a generator", hint="make it an async generator")
    model = _config_type(name, function, skip=0)
    if inspect.isasyncgenfunction(function):
        body = asynccontextmanager(function)
    else:
        body = asynccontextmanager(_held_open(function))
    return Plugin(name, body, config_type=model, **declared)


def _held_open(function: Callable[..., object]) -> Callable[..., AsyncGenerator[None]]:
    async def body(*arguments: object) -> AsyncGenerator[None]:
        started = function(*arguments)
        if inspect.isawaitable(started):
            await started
        yield

    return body


def _from_class(cls: type[Any]) -> Plugin:
    name = _name_of(cls, cls.__name__)
    if inspect.isabstract(cls):
        raise PluginInvalid(f"plugin `{name}`: an abstract class", hint="use a class that implements it")
    starters = [each for each in _STARTERS if hasattr(cls, each)]
    if len(starters) > 1 or "apply" in starters:
        message = f"plugin `{name}`: a class that has {' and '.join(f'`{each}`' for each in starters)}"
        raise PluginAmbiguous(message, hint="a class is started by `start`, or entered as a context manager")
    model = _config_type(name, cls.__init__, skip=1)
    if "__aenter__" in starters:
        return Plugin(name, cls, config_type=model, **_declarations(name, cls))

    async def start(*arguments: object) -> None:
        begun = getattr(cls(*arguments), "start", lambda: None)()
        if inspect.isawaitable(begun):
            await begun

    return Plugin(name, asynccontextmanager(_held_open(start)), config_type=model, **_declarations(name, cls))


def _from_module(module: ModuleType) -> Plugin:
    name = _name_of(module, module.__name__.rpartition(".")[2])
    apply = getattr(module, "apply", None)
    if apply is None:
        others = [each for each, value in vars(module).items() if isinstance(value, Plugin)]
        hint = f"it holds the plugin `{others[0]}`: use that" if others else "define a function `apply` in it"
        raise PluginInvalid(f"no plugin: module `{module.__name__}` has no `apply`", hint=hint)
    if isinstance(apply, Plugin):
        message = f"plugin `{name}`: a module whose `apply` is a plugin with declarations of its own"
        raise PluginAmbiguous(message, hint="use the plugin itself, or declare all in the module")
    if not inspect.isfunction(apply):
        raise PluginInvalid(f"plugin `{name}`: the `apply` of a module is a function")
    return _from_function(apply, name, _declarations(name, module))


def _name_of(owner: object, default: str) -> str:
    name = getattr(owner, "name", default)
    if not isinstance(name, str) or not name:
        raise PluginInvalid(f"plugin `{default}`: its `name` is no text")
    return name


def _declarations(name: str, owner: object) -> dict[str, tuple[AnyKey, ...]]:
    for attribute in dir(owner):
        meant = _MISTAKES.get(attribute.lower().rstrip("_"))
        if meant is not None and attribute not in _DECLARATIONS:
            message = f"plugin `{name}`: it declares `{attribute}`, which means nothing"
            raise PluginInvalid(message, hint=f"did you mean `{meant}`?")
    values = [getattr(owner, each, ()) for each in _DECLARATIONS[1:]]
    return _declared(*values, name=name)


def _declared(
    inject: object, optional: object, provides: object, *, name: str = ""
) -> dict[str, tuple[AnyKey, ...]]:
    declared = {"inject": _keys(inject), "optional": _keys(optional), "provides": _keys(provides)}
    wrong = [word for word, keys in declared.items() if keys is None]
    if wrong:
        message = f"plugin `{name}`: `{wrong[0]}` is a tuple of keys"
        raise PluginInvalid(message, hint=f'{wrong[0]} = (Key[Clock]("clock"),)')
    return cast("dict[str, tuple[AnyKey, ...]]", declared)


def _keys(value: object) -> tuple[AnyKey, ...] | None:
    if not isinstance(value, Iterable) or isinstance(value, str):
        return None
    keys = tuple(cast("Iterable[object]", value))
    return tuple(dict.fromkeys(cast("tuple[AnyKey, ...]", keys))) if _all_keys(keys) else None


def _all_keys(values: tuple[object, ...]) -> bool:
    return all(isinstance(each, Key) for each in values)


def _config_type(name: str, function: Callable[..., object], *, skip: int) -> type[BaseModel] | None:
    """The model that the second parameter is annotated with; None where there is no second parameter."""
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    positional = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) != len(parameters) or not 1 <= len(positional) <= 2:
        message = f"plugin `{name}`: it takes a context, and at most a configuration beside it"
        raise PluginInvalid(message, hint="(ctx: Context) or (ctx: Context, config: MyConfig)")
    if len(positional) == 1:
        return None
    annotation = _annotation(name, function, positional[1])
    if not is_model(annotation):
        message = f"plugin `{name}`: its configuration `{positional[1].name}` is not annotated with a pydantic model"
        raise PluginInvalid(message, hint='class MyConfig(BaseModel, extra="forbid")')
    check_model(name, annotation)
    return annotation


def _annotation(name: str, function: Callable[..., object], parameter: inspect.Parameter) -> object:
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    try:
        return get_type_hints(function).get(parameter.name)
    except NameError:
        pass  # another name is known to type checkers alone; the one that matters may still be found
    try:
        return getattr(inspect.unwrap(function), "__globals__", {})[parameter.annotation]
    except KeyError:
        message = f"plugin `{name}`: the annotation `{parameter.annotation}` cannot be found when it runs"
        raise PluginInvalid(
            message, hint="import or define it outside of functions and of TYPE_CHECKING"
        ) from None
