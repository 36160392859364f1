"""The narrow waist: primitive operations below, all semantics above, once for every world."""
