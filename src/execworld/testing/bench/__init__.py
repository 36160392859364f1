"""How long a world takes for what agents do all day, beside the plain way to do the same, in one run."""

from execworld.testing.bench.measuring import Measured, Row
from execworld.testing.bench.report import CAVEATS, as_document, as_table
from execworld.testing.bench.rows import ROWS, measure_rows

__all__ = ["CAVEATS", "ROWS", "Measured", "Row", "as_document", "as_table", "measure_rows"]
