"""Strict rows: what is unknown or of the wrong type is an error in every layer, with its place and the right name."""

from __future__ import annotations

import pytest

from .documents import DEFAULTS, REGISTRY, Mount, composed, place, refused

WRONG = [
    # rows and sections
    ("toosl: {}", "1:1", "there is no row `toosl`", "a new row has a `use`"),
    ("worrld: {config: {}}", "1:1", "there is no row `worrld`", "did you mean `world`?"),
    ("World: {use: box}", "1:1", "`World` cannot be the name of a row", ""),
    ("pollicy: {mode: read-only}", "1:1", "there is no row `pollicy`", "did you mean `policy`?"),
    ("floorr:\n  mode: read-only", "1:1", "there is no row `floorr`", "did you mean `floor`?"),
    ("aduit: {disabled: yes}", "1:1", "there is no row `aduit`", "did you mean `audit`?"),
    ("audti: ~", "1:1", "there is no row `audti`", "did you mean `audit`?"),
    ("worrld: {use: box}", "1:15", "`box` is a world", "in the row `world`"),
    ("a: {use: adit}", "1:10", "no plugin is named `adit`", "did you mean `audit`?"),
    ("world: {use: bxo}", "1:14", "no world is named `bxo`", "did you mean `box`?"),
    ("world: {use: audit}", "1:14", "no world is named `audit`", "installed worlds: box, plain, silent"),
    ("world: {use: 'box+attach://x:secret@y'}", "1:14", "is a name and not an address", "`use: box`"),
    ("world: box", "1:8", "row `world` is text: it must be a mapping", ""),
    ("world: [box]", "1:8", "row `world` is a list: it must be a mapping", ""),
    ("world: {use: 1}", "1:14", "`world.use` is a number", ""),
    ("world: {use: ~}", "1:14", "`world.use` is nothing", ""),
    ("world: {uses: box}", "1:9", "row `world` has no `uses`", "did you mean `use`?"),
    ("world: {image: x}", "1:9", "row `world` has no `image`", "below `config`"),
    ("world: {disabled: yes}", "1:19", "the world cannot be disabled", ""),
    ("audit: {disabled: 1}", "1:19", "`audit.disabled` is a number", ""),
    ("audit: {disabled: 'no'}", "1:19", "`audit.disabled` is text", ""),
    ("audit: {config: [1]}", "1:17", "audit.config is a list: it must be a mapping", ""),
    # options
    ("world: {use: box, config: {imge: x}}", "1:28", "`world.config` has no `imge`", "did you mean `image`?"),
    (
        "world: {use: box, config: {Image: x}}",
        "1:28",
        "`world.config` has no `Image`",
        "did you mean `image`?",
    ),
    ("world: {use: box, config: {imge: ~}}", "1:28", "`world.config` has no `imge`", "did you mean `image`?"),
    (
        "world: {use: box, config: {image: 1}}",
        "1:35",
        "`world.config.image` is a number",
        "put quotes around",
    ),
    (
        "world: {use: box, config: {image: no}}",
        "1:35",
        "`world.config.image` is yes or no",
        "put quotes around",
    ),
    ("world: {use: box, config: {port: '22'}}", "1:34", "`world.config.port` is text", ""),
    ("world: {use: box, config: {port: 1.0}}", "1:34", "`world.config.port` is a number", ""),
    ("world: {use: box, config: {tty: 1}}", "1:33", "`world.config.tty` is a number", ""),
    ("world: {use: box, config: {tty: 'yes'}}", "1:33", "`world.config.tty` is text", ""),
    (
        "world: {use: box, config: {pull: allwayz}}",
        "1:34",
        "must be 'always' or 'missing'",
        "did you mean `always`?",
    ),
    ("world: {use: box, config: {names: x}}", "1:35", "`world.config.names` is text", ""),
    ("world: {use: box, config: {names: [a, 1]}}", "1:39", "`world.config.names.1` is a number", ""),
    ("world: {use: box, config: {env: {A: 1}}}", "1:37", "`world.config.env.A` is a number", ""),
    (
        "world:\n  use: box\n  config:\n    mounts:\n      - source: /a\n        tarket: /b",
        "6:9",
        "`world.config.mounts.0` has no `tarket`",
        "did you mean `target`?",
    ),
    (
        "world: {use: box, config: {mounts: [{}]}}",
        "1:37",
        "`world.config.mounts.0` needs a value for `source`",
        "",
    ),
    (
        "world: {use: box, config: {build: {contxt: x}}}",
        "1:36",
        "`world.config.build` has no `contxt`",
        "did you mean `context`?",
    ),
    (
        "world: {use: box, config: {labels: {a: {b: [1]}}}}",
        "1:44",
        "`world.config.labels.a.b` is a list",
        "",
    ),
    ("audit: {config: {levvel: 2}}", "1:18", "`audit.config` has no `levvel`", "did you mean `level`?"),
    ("audit: {config: {level: x}}", "1:25", "`audit.config.level` is text", ""),
    ("new: {use: needy, config: {kye: x}}", "1:28", "`new.config` has no `kye`", "did you mean `key`?"),
    # the policy
    ("policy: [a]", "1:9", "`policy` is a list: it must be a mapping", ""),
    ("policy: {mod: read-only}", "1:10", "`policy` has no `mod`", "did you mean `mode`?"),
    ("policy: {mode: readonly}", "1:16", "`policy.mode` is text: it must be 'read-only'", "`read-only`?"),
    ("policy: {network: some}", "1:19", "`policy.network` is text", ""),
    ("policy: {network: no}", "1:19", "`policy.network` is yes or no", ""),
    ("policy: {denyWrit: [/a]}", "1:10", "`policy` has no `denyWrit`", "it has: mode"),
    (
        "policy: {limits: {memory: 1}}",
        "1:19",
        "`policy.limits` has no `memory`",
        "did you mean `memory_bytes`?",
    ),
    ("policy: {require: {fs.writ: yes}}", "1:20", "`policy.require.fs.writ`", "did you mean `fs.write`?"),
    ("policy: {require: {fs.write: x}}", "1:30", "`policy.require.fs.write` is text", ""),
    ("policy: {hidden: /a}", "1:18", "`policy.hidden` is text", ""),
    # the floor
    ("floor: ~", "1:8", "`floor` is nothing", ""),
    ("floor: {mods: [read-only]}", "1:9", "`floor` has no `mods`", "did you mean `mode`?"),
    ("floor: {boundary: containeer}", "1:19", "`floor.boundary` is text", "did you mean `container`?"),
    ("floor: {require: [fs.wriite]}", "1:19", "`floor.require.0` is text", "did you mean `fs.write`?"),
    ("floor: {mode: ~}", "1:15", "null has no meaning in a floor", ""),
    ("floor: {hidden: !replace []}", "1:17", "`!replace` has no meaning in a floor", ""),
    ("floor: {hidden: [a]}", "1:8", "a path of a floor is absolute", ""),
    ("floor: {images: ['*:latest']}", "1:8", "`*` stands at the end of an image", ""),
    ("floor: {hosts: ['a.*']}", "1:8", "a host is a name", ""),
]
BASE = f"{DEFAULTS}\naudit: {{use: audit}}"


@pytest.mark.parametrize(("text", "where", "problem", "hint"), WRONG)
def test_c223_a_mistake_is_told_with_its_place_and_the_right_name(
    text: str, where: str, problem: str, hint: str
) -> None:
    error = refused(BASE, text)
    assert place(error) == f"2.yml:{where}"
    assert error.message.startswith(f"2.yml:{where}: ")
    assert problem in error.message
    assert hint in error.hint
    assert "secret" not in str(error)


@pytest.mark.parametrize(("text", "where", "problem", "hint"), WRONG)
def test_c223_a_mistake_is_one_though_a_later_layer_would_hide_it(
    text: str, where: str, problem: str, hint: str
) -> None:
    later = "world: !replace {use: plain}\naudit: !replace {use: audit}\npolicy: !replace {mode: read-only}"
    assert place(refused(BASE, text, later)) == f"2.yml:{where}"


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("new: {use: needy}", "1:1", "`new.config` needs a value for `key`"),
        ("new: {use: needy, config: {other: x}}", "1:1", "`new.config` needs a value for `key`"),
        ("world: {use: box, config: {image: bad}}", "1:1", "no such image: 'bad'"),
        ("world: {use: box, config: {build: {target: x}}}", "1:35", "needs a value for `context`"),
        ("policy: {mode: read-only, write_roots: [/a]}", "1:1", "write roots make no sense"),
        ("policy: {workspace: a}", "1:1", "policy path must be absolute"),
        ("policy: {network: [0]}", "1:1", "TCP port out of range"),
        ("policy: {limits: {processes: 0}}", "1:18", "limit processes must be a positive number"),
        ("world: {use: box}\npolicy: {network: none}", "2:1", "needs a directory of that world"),
    ],
)
def test_what_a_layer_above_could_still_mend_is_told_in_the_end(text: str, where: str, problem: str) -> None:
    error = refused(BASE, text)
    assert place(error) == f"2.yml:{where}"
    assert problem in error.message


def test_parts_of_a_value_come_together_from_layers() -> None:
    composition = composed(
        DEFAULTS,
        "world: {use: box, config: {build: {target: x}, image: bad}}\nnew: {use: needy, config: {other: o}}",
        "world: {config: {build: {context: c}, image: debian}}\nnew: {config: {key: k}}",
    )
    config = composition.world.config
    assert (config.build.context, config.build.target, config.image) == ("c", "x", "debian")
    assert (composition.rows["new"].config.key, composition.rows["new"].config.other) == ("k", "o")


def test_options_arrive_as_their_types() -> None:
    config = composed(
        "world: {use: box, config: {pull: always, weight: 2, mounts: [{source: /a}], names: [a]}}"
    ).world.config
    assert config.pull == "always"
    assert (config.weight, type(config.weight)) == (2.0, float)
    assert config.mounts == (Mount("/a"),)
    assert config.names == ("a",)


def test_a_composition_has_a_world() -> None:
    assert "has no world" in refused("audit: {use: audit}").message
    assert "has no world" in refused(DEFAULTS, "world: ~").message


def test_rows_come_in_the_order_in_which_they_were_said_and_the_world_first() -> None:
    composition = composed("b: {use: audit}", "a: {use: audit}\nworld: {use: plain}", "b: {disabled: yes}")
    assert list(composition.rows) == ["world", "b", "a"]


def test_a_policy_that_nobody_states_is_the_usual_one_of_the_world() -> None:
    assert str(composed(DEFAULTS).policy.mode) == "workspace-write"
    assert composed(DEFAULTS).policy.workspace == "/project"
    assert str(composed("world: {use: box}").policy.mode) == "full-access"
    stated = composed(DEFAULTS, "policy: {network: none, require: {strict: yes, net.udp: no}}").policy
    assert (stated.workspace, str(stated.network.mode), str(stated.require)) == ("/project", "none", "strict")
    assert {str(name): wanted for name, wanted in stated.require_dimensions.items()} == {"net.udp": False}


def test_every_way_to_state_a_policy_arrives() -> None:
    policy = composed(
        DEFAULTS,
        """
        policy:
          mode: workspace-write
          workspace: /p
          read_roots: [/r]
          write_roots: [/w]
          hidden: [/h]
          network: [443, 80]
          environment: [A]
          require: strict
          limits: {processes: 1, memory_bytes: 2, cpu_s: 3, file_size_bytes: 4, wall_s: 5.5, output_bytes: 6}
        """,
    ).policy
    assert policy.as_dict() == {
        "mode": "workspace-write",
        "workspace": "/p",
        "read_roots": ["/r"],
        "write_roots": ["/w"],
        "hidden": ["/h"],
        "network": {"mode": "ports", "tcp_ports": [80, 443]},
        "limits": {
            "processes": 1,
            "memory_bytes": 2,
            "cpu_s": 3.0,
            "file_size_bytes": 4,
            "wall_s": 5.5,
            "output_bytes": 6,
        },
        "environment": ["A"],
        "require": "strict",
        "require_dimensions": {},
    }


def test_no_world_is_imported_but_the_one_that_is_used() -> None:
    from execworld.config import PluginType, Registry, compose

    from .documents import BOX, AuditConfig, layer

    class Watched(dict[str, object]):
        def __getitem__(self, name: str) -> object:
            looked_up.append(name)
            return super().__getitem__(name)

    looked_up: list[str] = []
    worlds: object = Watched(box=BOX, other=None)
    compose(
        (layer("world: {use: box}"),),
        Registry(worlds, {"audit": PluginType(AuditConfig)}),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] the other one is never looked at
    )
    assert set(looked_up) == {"box"}
    assert REGISTRY.worlds["box"] is BOX
