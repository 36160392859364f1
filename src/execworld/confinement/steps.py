"""A list of steps under construction, with what each of them stands for."""

from __future__ import annotations

from execworld.confinement.layers import Layer
from execworld.machine.cell import AttachTree, CellStep, CloneTree, MountAttribute, NewFileSystem, Pin


class StepList:
    """Attributes:
    steps: In the order in which they are applied.
    layers: One for each step; None for the pin of a path of the policy, whose failure no layer can be blamed for.
    """

    def __init__(self) -> None:
        self.steps: list[CellStep] = []
        self.layers: list[Layer | None] = []
        self._pins = 0
        self._trees = 0

    def add(self, layer: Layer | None, *steps: CellStep) -> None:
        for step in steps:
            self.steps.append(step)
            self.layers.append(layer)

    def pin(self, layer: Layer | None, path: bytes, *, directory: bool = False) -> int:
        self.add(layer, Pin(path, directory))
        self._pins += 1
        return self._pins - 1

    def clone(self, layer: Layer, pin: int) -> int:
        self.add(layer, CloneTree(pin))
        self._trees += 1
        return self._trees - 1

    def attach(
        self, layer: Layer, tree: int, pin: int, attributes: MountAttribute = MountAttribute.NONE
    ) -> None:
        self.add(layer, AttachTree(tree, pin, attributes))

    def mount(
        self,
        layer: Layer,
        kind: bytes,
        path: bytes,
        attributes: MountAttribute,
        **options: str,
    ) -> None:
        """A new file system over *path*, as it is found after all steps before."""
        pin = self.pin(layer, path, directory=True)
        pairs = tuple((name.encode(), value.encode()) for name, value in options.items())
        self.add(layer, NewFileSystem(kind, pin, pairs, attributes))
