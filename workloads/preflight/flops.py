"""Floating-point operations of a program's matrix products, loops counted for each round.

XLA's own analysis counts the body of a loop once, and of the rest also what is not on the matrix
units, which set a TPU's peak.
"""

import math
from collections.abc import Iterator
from typing import Any


def matmul_flops(jaxpr: Any) -> float:
    """Of a (closed) jaxpr: a multiplication and an addition for each pair of elements."""
    return sum(_equation(equation) for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns)


def _equation(equation: Any) -> float:
    kind, params = equation.primitive.name, equation.params
    if kind == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        summed = math.prod(shape[axis] for axis in contracted)
        return 2.0 * summed * math.prod(equation.outvars[0].aval.shape)
    inner = [matmul_flops(one) for one in _inner(params)]
    if kind == "cond":
        return max(inner)
    return params["length"] * sum(inner) if kind == "scan" else sum(inner)


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs that an equation runs."""
    for value in params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if hasattr(one, "eqns") or hasattr(one, "jaxpr"):
                yield one
