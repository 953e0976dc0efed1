"""The products of a step of SGD, blocked by hand for vector registers.

Written as LLVM vectors of 16 floats, because a compiler left to itself reaches a third of this
speed. Lanes run over features, whose count must be a multiple of LANES; arrays are contiguous. The
SIDE² sums of a block of `dots` fill one register.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fedprice.learning.prepared import LANES, SIDE

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["dots", "power_of_two", "step_block"]


_INDEX, _PLACE = ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
WIDEST_PART = 5  # classes of a part of `dots`: 20 sums, 5 factors and a row fit in 32 registers
_FUSED = ("contract",)  # a product and a sum may become one instruction


@intrinsic
def dots(
    _context: Any, x: Any, rows: Any, first: Any, w: Any, c: Any, z: Any, block: Any
) -> Any:  # fmt: skip
    """Write z[k, b] = x[rows[b]] · w[k] for SIDE rows b from `first`, len(block) classes k from c.

    The classes are taken in parts of about equal size, so that the sums stay in registers.
    """
    size = block.count
    parts = -(-size // WIDEST_PART)
    ends = [size * part // parts for part in range(parts + 1)]

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, rows, w, z = (_array(context, builder, signature, args, i) for i in (0, 1, 3, 5))
        first, c = args[2], args[4]
        wide = builder.extract_value(w.shape, 1)
        chosen = [builder.load(_at(builder, rows.data, first, i)) for i in range(SIDE)]
        xs = [_at(builder, x.data, builder.mul(row, wide)) for row in chosen]
        last = builder.sub(builder.extract_value(rows.shape, 0), _INDEX(SIDE))
        then = builder.add(first, _INDEX(SIDE))
        then = builder.select(builder.icmp_signed("<", then, last), then, last)
        coming = [builder.load(_at(builder, rows.data, then, i)) for i in range(SIDE)]
        for start, end in pairwise(ends):
            ws = [_row(builder, w, c, j) for j in range(start, end)]
            sums = [_registers(builder, SIDE) for _ in ws]
            with cgutils.for_range_slice(builder, _INDEX(0), wide, _INDEX(LANES)) as (f, _):
                right = [_load(builder, _at(builder, row, f)) for row in ws]
                if start == 0:
                    for row in coming:
                        _prefetch(builder, _at(builder, x.data, builder.mul(row, wide), f))
                for i, row in enumerate(xs):
                    left = _load(builder, _at(builder, row, f))
                    for j, factor in enumerate(right):
                        _add_product(builder, sums[j][i], left, factor)
            flat = [builder.load(s) for column in sums for s in column]
            for at in range(0, len(flat), LANES):
                totals = _totals(builder, flat[at : at + LANES])
                for i in range(0, len(flat[at : at + LANES]), SIDE):
                    part = _pick(builder, totals, totals, range(i, i + SIDE))
                    place = _at(builder, _row(builder, z, c, start + (at + i) // SIDE), first)
                    builder.store(part, builder.bitcast(place, part.type.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(x, rows, first, w, c, z, block), build


@intrinsic
def step_block(
    _context: Any, x: Any, rows: Any, ahead: Any, g: Any, w: Any, c: Any, f: Any, shrink: Any,
    products: Any, block: Any,
) -> Any:
    """Take a step on LANES features from f of as many classes from c as `block` is long.

    There, w −= d with d = Σ_b g[b] x[rows[b]] + shrink · w. Return ‖d‖².
    """
    size = block.count

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, rows, ahead, g, w = (_array(context, builder, signature, args, i) for i in range(5))
        c, f, shrink = args[5:8]
        wide = builder.extract_value(x.shape, 1)
        sums = _registers(builder, size)
        with cgutils.for_range(builder, builder.extract_value(rows.shape, 0)) as loop:
            start = builder.mul(builder.load(_at(builder, rows.data, loop.index)), wide)
            row = _load(builder, _at(builder, x.data, start, f))
            coming = builder.mul(builder.load(_at(builder, ahead.data, loop.index)), wide)
            _prefetch(builder, _at(builder, x.data, coming, f))
            factors = _at(builder, _row(builder, g, loop.index, 0), c)
            for j in range(size):
                factor = _spread(builder, builder.load(_at(builder, factors, j)))
                _add_product(builder, sums[j], factor, row)
        if not isinstance(signature.args[8], types.NoneType):
            products = _array(context, builder, signature, args, 8)
            for j in range(size):
                place = _at(builder, _row(builder, products, c, j), f)
                place = builder.bitcast(place, _VECTOR.as_pointer())
                builder.store(builder.load(sums[j]), place, align=4)
        some = builder.fcmp_ordered(">", shrink, ir.Constant(shrink.type, 0))
        with builder.if_then(some, likely=False):
            shrinking = _spread(builder, shrink)
            for j in range(size):
                place = _at(builder, _row(builder, w, c, j), f)
                _add_product(builder, sums[j], shrinking, _load(builder, place))
        length = _registers(builder, 1)[0]
        for j in range(size):
            place = builder.bitcast(_at(builder, _row(builder, w, c, j), f), _VECTOR.as_pointer())
            old = builder.load(place, align=4)
            change = builder.load(sums[j])
            _add_product(builder, length, change, change)
            builder.store(builder.fsub(old, change), place, align=4)
        lanes = builder.load(length)
        only = _totals(builder, [lanes])
        return builder.extract_element(only, _PLACE(0))

    return types.float32(x, rows, ahead, g, w, c, f, shrink, products, block), build


@intrinsic
def power_of_two(_context: Any, n: Any) -> Any:
    """Return 2ⁿ as a float, for whole n from −126 to 127."""

    def build(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        exponent = builder.shl(builder.add(args[0], _PLACE(127)), _PLACE(23))
        return builder.bitcast(exponent, ir.FloatType())

    return types.float32(types.int32), build


def _array(context: Any, builder: Any, signature: Any, args: Any, i: int) -> Any:
    return context.make_array(signature.args[i])(context, builder, args[i])


def _at(builder: Any, pointer: Any, *steps: Any) -> Any:
    for step in steps:
        pointer = builder.gep(pointer, [_INDEX(step) if isinstance(step, int) else step])
    return pointer


def _row(builder: Any, array: Any, first: Any, i: int) -> Any:
    wide = builder.extract_value(array.shape, 1)
    return _at(builder, array.data, builder.mul(builder.add(first, _INDEX(i)), wide))


def _registers(builder: Any, count: int) -> list[Any]:
    zero = ir.Constant(_VECTOR, None)
    return [cgutils.alloca_once_value(builder, zero) for _ in range(count)]


def _load(builder: Any, pointer: Any) -> Any:
    return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)


def _prefetch(builder: Any, pointer: Any) -> None:
    """Fetch the cache line of a pointer into the second-level cache."""
    pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, _PLACE, _PLACE, _PLACE])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(fetch, [pointer, _PLACE(0), _PLACE(2), _PLACE(1)])


def _spread(builder: Any, number: Any) -> Any:
    alone = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, _PLACE(0))
    return _pick(builder, alone, alone, [0] * LANES)


def _add_product(builder: Any, register: Any, a: Any, b: Any) -> None:
    product = builder.fmul(a, b, flags=_FUSED)
    builder.store(builder.fadd(builder.load(register), product, flags=_FUSED), register)


def _pick(builder: Any, a: Any, b: Any, places: Sequence[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_PLACE, len(places)), list(places))
    return builder.shuffle_vector(a, b, mask)


def _totals(builder: Any, vectors: list[Any]) -> Any:
    """Return a vector of the sums over the lanes of up to LANES vectors, in their order."""
    vectors = vectors + [ir.Constant(_VECTOR, None)] * (LANES - len(vectors))
    width = LANES
    while width > 1:
        low = [i for i in range(2 * LANES) if i % width < width // 2]
        high = [i + width // 2 for i in low]
        vectors = [
            builder.fadd(_pick(builder, a, b, low), _pick(builder, a, b, high))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
        width //= 2
    return vectors[0]
