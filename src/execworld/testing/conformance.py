"""The suites as they are run against a world that is named on the command line. Collected by pytest, not imported."""

from execworld.seams.testing import (
    FileSystemContract,
    LossContract,
    SandboxContract,
    ShellContract,
    SubprocessContract,
    TerminalContract,
    WorldContract,
)


class TestWorld(WorldContract):
    pass


class TestFileSystem(FileSystemContract):
    pass


class TestSubprocess(SubprocessContract):
    pass


class TestTerminal(TerminalContract):
    pass


class TestShell(ShellContract):
    pass


class TestSandbox(SandboxContract):
    pass


class TestLoss(LossContract):
    pass
