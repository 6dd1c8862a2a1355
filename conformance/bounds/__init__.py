"""Error bounds, derived: what the sums and functions of a layer may differ by, element by element.

``running`` holds arrays that carry a bound along, ``formula`` the form of a layer type's formula, the modules named by
groups of layer types the formulas, and ``replay`` a recorded case's steps on them.
"""

from conformance.bounds.replay import bounds_of

__all__ = ["bounds_of"]
