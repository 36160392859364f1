"""The table of mounts: what it says, and where else a file can be found by it."""

from __future__ import annotations

from execworld.confinement.mount_table import Mount, aliases, parse

DISK, OTHER = 0x801, 0x811
TABLE = rb"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw - proc proc rw
24 22 8:1 /data/a\040b /mnt/a\040b rw master:1 propagate_from:2 - ext4 /dev/sda1 rw
25 22 0:300 / /srv/chroot/proc rw - proc proc rw
nonsense
"""


def test_a_table_is_read_with_its_escapes_and_optional_fields() -> None:
    assert parse(TABLE) == (
        Mount(0x801, b"/", b"/", b"ext4"),
        Mount(0x15, b"/", b"/proc", b"proc"),
        Mount(0x801, b"/data/a b", b"/mnt/a b", b"ext4"),
        Mount(0x10002C, b"/", b"/srv/chroot/proc", b"proc"),
    )


def test_another_mount_of_what_is_above_leads_to_it() -> None:
    mounts = (Mount(DISK, b"/", b"/", b"ext4"), Mount(DISK, b"/data", b"/srv", b"ext4"))
    assert aliases(mounts, b"/data/x/secret") == ((b"/srv/x/secret", b"/data/x/secret"),)
    assert aliases(mounts, b"/srv/x") == ((b"/data/x", b"/srv/x"),)


def test_a_mount_of_what_is_below_leads_into_it() -> None:
    mounts = (Mount(DISK, b"/", b"/", b"ext4"), Mount(DISK, b"/data/x/deep", b"/srv", b"ext4"))
    assert aliases(mounts, b"/data/x") == ((b"/srv", b"/data/x/deep"),)


def test_a_subvolume_mounted_twice_leads_to_it() -> None:
    mounts = (Mount(DISK, b"/@home", b"/home", b"btrfs"), Mount(DISK, b"/", b"/mnt/all", b"btrfs"))
    assert aliases(mounts, b"/home/user/.ssh") == ((b"/mnt/all/@home/user/.ssh", b"/home/user/.ssh"),)


def test_other_file_systems_and_what_lies_below_the_hidden_path_do_not_count() -> None:
    mounts = (
        Mount(DISK, b"/", b"/", b"ext4"),
        Mount(OTHER, b"/data", b"/srv", b"ext4"),
        Mount(DISK, b"/data/x", b"/data/x/again", b"ext4"),
    )
    assert aliases(mounts, b"/data/x") == ()
