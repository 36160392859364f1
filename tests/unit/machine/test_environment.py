"""Commands get an allow-list of the environment; nothing that looks like a credential passes by itself."""

from __future__ import annotations

import pytest

from execworld.machine.environment import SCREENLESS, base_environment, command_environment
from execworld.seams.errors import CommandInvalid, ConfigurationError


def passes(name: str, value: str = "x", allowed: tuple[str, ...] = ()) -> bool:
    return name.encode() in base_environment([(name.encode(), value.encode())], allowed)


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "LANG", "LC_ALL", "LC_TIME", "TZ", "TMPDIR", "SSL_CERT_FILE"]
)
def test_what_programs_need_passes(name: str) -> None:
    assert passes(name)


@pytest.mark.parametrize(
    "name",
    [
        *("FAKE_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "SESSION", "COOKIE"),
        *("SSH_AUTH_SOCK", "GIT_ASKPASS", "SSH_ASKPASS", "KUBECONFIG", "DOCKER_HOST", "GPG_AGENT_INFO"),
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "NODE_OPTIONS", "PYTHONSTARTUP", "PYTHONPATH"),
        *("BASH_ENV", "ENV", "PROMPT_COMMAND", "SHELLOPTS", "PERL5OPT", "RUBYOPT", "GIT_DIR", "EXECWORLD_X"),
        *("path", "Path", "PATHS", "XPATH", "LC", "ANYTHING_ELSE"),
    ],
)
def test_everything_else_stays_here(name: str) -> None:
    """The rule is an allow-list, so a name nobody thought of stays as well."""
    assert not passes(name)


@pytest.mark.parametrize("name", ["LC_API_KEY", "LC_TOKEN", "LC_my_password", "LC_SECRET"])
def test_a_credential_shaped_name_does_not_pass_by_an_allowed_prefix(name: str) -> None:
    assert not passes(name)


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "all_proxy"])
def test_a_proxy_passes_unless_it_carries_a_login(name: str) -> None:
    assert passes(name, "http://proxy.test:3128")
    assert not passes(name, "http://user:word@proxy.test:3128")
    assert passes(name, "http://user:word@proxy.test:3128", (name,))


def test_a_name_passes_when_it_is_given_exactly() -> None:
    """Letting one name through lets no other through, not even one that begins alike."""
    inherited = [(b"MY_API_KEY", b"1"), (b"MY_API_KEY_2", b"2"), (b"PATH", b"/bin")]
    assert dict(base_environment(inherited, ["MY_API_KEY"])) == {b"MY_API_KEY": b"1", b"PATH": b"/bin"}


@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
def test_a_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError):
        base_environment([], [name])
    with pytest.raises(CommandInvalid):
        command_environment({}, {name: "x"})
    with pytest.raises(CommandInvalid):
        command_environment({}, {name: None})


def test_a_value_with_nul_is_refused_and_not_shown() -> None:
    """The message names the variable; its value may be a secret."""
    with pytest.raises(CommandInvalid) as caught:
        command_environment({}, {"D": "sec\0ret"})
    assert "D" in str(caught.value)
    assert "sec" not in str(caught.value)


def test_overrides_are_exact() -> None:
    """Newlines, other alphabets, undecodable bytes and the empty value arrive; None removes; the base stays."""
    base = {b"PATH": b"/bin", b"GONE": b"1"}
    values = {"A": "x\ny", "B": "é", "C": "", "E": "\udcff", "GONE": None, "NEVER": None}
    assert dict(command_environment(base, values)) == {
        b"PATH": b"/bin",
        b"A": b"x\ny",
        b"B": "é".encode(),
        b"C": b"",
        b"E": b"\xff",
    }
    assert base == {b"PATH": b"/bin", b"GONE": b"1"}
    assert command_environment(base, None) == tuple(base.items())


def test_a_screenless_environment_has_no_pager_and_no_prompt() -> None:
    assert SCREENLESS["TERM"] == "dumb"
    assert {SCREENLESS[name] for name in ("PAGER", "GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER")} == {"cat"}
    assert SCREENLESS["GIT_TERMINAL_PROMPT"] == "0"
