"""Labels: what is in use is never taken for a leak, and a leak is found."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from execworld.providers.docker.labels import (
    MADE_BY,
    Owner,
    OwnerState,
    Purpose,
    labels_for,
    read_labels,
)


@pytest.fixture(scope="module")
def ended() -> Owner:
    """A process of this host that ran, and does not any more."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = Owner.current()
    owner = replace(started, pid=child.pid, started="1")
    child.communicate(b"")
    return owner


def test_labels_are_read_as_they_were_written() -> None:
    ownership = read_labels(labels_for(Purpose.WORLD, "w", lifetime_s=60), "w")
    assert ownership is not None
    assert (ownership.purpose, ownership.owner, ownership.keep) == ("world", Owner.current(), False)
    assert ownership.expires_at_s is not None
    assert 0 < ownership.expires_at_s - time.time() < 120


def test_labels_of_others_are_not_ours() -> None:
    assert read_labels({}, "") is None
    assert read_labels({"com.example.made-by": "world", "io.execworld.owner.pid": "1"}, "") is None


def test_what_a_running_process_made_is_no_leak_even_when_it_has_expired() -> None:
    labels = labels_for(Purpose.WORLD, "w", lifetime_s=60)
    ownership = read_labels(labels, "w")
    assert ownership is not None
    assert ownership.leaked(time.time()) == ""
    assert ownership.leaked(time.time() + 1e9) == ""


def test_what_an_ended_process_made_is_a_leak(ended: Owner) -> None:
    ownership = read_labels(labels_for(Purpose.WORLD, "w", lifetime_s=60), "w")
    assert ownership is not None
    assert str(ended.pid) in replace(ownership, owner=ended).leaked(time.time())


def test_a_number_that_was_given_to_another_process_is_not_the_owner() -> None:
    own = Owner.current()
    assert own.state() is OwnerState.RUNS
    assert replace(own, started="1").state() is OwnerState.GONE


def test_what_is_to_be_kept_goes_only_when_it_has_expired(ended: Owner) -> None:
    ownership = read_labels(labels_for(Purpose.WORLD, "w", lifetime_s=60, keep=True), "w")
    assert ownership is not None
    ownership = replace(ownership, owner=ended)
    assert ownership.leaked(time.time()) == ""
    assert ownership.leaked(time.time() + 120) != ""


def test_a_zombie_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert replace(Owner.current(), pid=child.pid).state() is OwnerState.GONE
    finally:
        child.wait()


@pytest.mark.parametrize("host", ["", "elsewhere/boot/1"], ids=["a host that is not named", "another host"])
def test_processes_of_other_hosts_cannot_be_judged(host: str, ended: Owner) -> None:
    """Their numbers mean something else here. Only the time counts."""
    labels = labels_for(Purpose.WORLD, "w", lifetime_s=60) | {
        "io.execworld.owner.host": host,
        "io.execworld.owner.pid": str(ended.pid),
    }
    ownership = read_labels(labels, "w")
    assert ownership is not None
    assert ownership.leaked(time.time()) == ""
    assert ownership.leaked(time.time() + 120) == "it has expired"


@pytest.mark.parametrize("pid", ["", "0", "-1", "1 ", "one", "\u0661", "9" * 40])
@pytest.mark.parametrize("expires", ["", "-5", "never", "nan", "1e3", "9" * 40])
def test_labels_that_make_no_sense_prove_nothing(pid: str, expires: str) -> None:
    """Whoever may make containers may write anything into their labels."""
    labels = labels_for(Purpose.WORLD, "w", lifetime_s=60) | {
        "io.execworld.owner.pid": pid,
        "io.execworld.expires": expires,
    }
    ownership = read_labels(labels, "w")
    assert ownership is not None
    assert ownership.owner is None
    assert ownership.leaked(time.time() + 1e12) == ""


def test_the_purpose_is_there_to_be_filtered_by() -> None:
    assert labels_for(Purpose.CARRIER, "w", lifetime_s=1)[MADE_BY] == "carrier"


def test_labels_that_came_with_an_image_are_not_ours() -> None:
    """`docker commit` keeps the labels of a container, and whatever is made of that image has them too."""
    labels = labels_for(Purpose.WORLD, "execworld-1", lifetime_s=60)
    assert read_labels(labels, "/execworld-1") is not None
    assert read_labels(labels, "/somebody-elses") is None
    assert (
        read_labels({name: value for name, value in labels.items() if not name.endswith(".name")}, "") is None
    )
