"""The suite of the file system seam."""

from __future__ import annotations

from execworld.seams.testing.fs_edits import EditClauses
from execworld.seams.testing.fs_guards import GuardClauses
from execworld.seams.testing.fs_listing import ListingClauses, WalkClauses, WatchClauses
from execworld.seams.testing.fs_paths import MetadataClauses, PathClauses
from execworld.seams.testing.fs_reads import ReadClauses
from execworld.seams.testing.fs_tree import TreeChangeClauses
from execworld.seams.testing.fs_writes import WriteClauses


class FileSystemContract(
    PathClauses,
    MetadataClauses,
    ReadClauses,
    ListingClauses,
    WalkClauses,
    WatchClauses,
    WriteClauses,
    GuardClauses,
    EditClauses,
    TreeChangeClauses,
):
    """All clauses of `FileSystem`."""
