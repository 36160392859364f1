"""Guards: plugins that hold a line, one verb each. Each works in any kernel, with the others and without them.

They add floors, and earlier and friendlier errors. What makes a policy hold is the world itself, which compares what
was asked for with what is enforced on every call; no row can switch that off.
"""

from execworld.policies.hold_floor import hold_floor
from execworld.policies.keep_one_world import keep_one_world
from execworld.policies.limit_output import limit_output
from execworld.policies.limit_time import limit_time
from execworld.policies.refuse_downgrade import refuse_downgrade
from execworld.policies.scrub_environment import scrub_environment

__all__ = [
    "hold_floor",
    "keep_one_world",
    "limit_output",
    "limit_time",
    "refuse_downgrade",
    "scrub_environment",
]
