"""The products of a step of SGD, blocked by hand for vector registers.

They are written as LLVM vectors, because a compiler on its own reaches a third of this speed. Lanes
run over features, whose count must be a multiple of LANES; arrays are contiguous. Rows that are
needed next are fetched into the cache while the present ones are multiplied.

A processor has 32 registers of 16 floats, or 16 registers of 8. Blocks are cut so that their sums
stay in registers on both; every sum has the same terms in the same order, and so the same bits.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from fedprice.learning.prepared import BESIDE, LANES, SIDE

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["dots", "partition", "softmax", "step_block"]


class Registers(NamedTuple):
    """How blocks are cut for the vector registers of a processor.

    Attributes
    ----------
    lanes
        Floats in a register.
    dots_part
        Classes of a part of `dots`: its SIDE sums per class, a factor for each class and a row fit
        in the registers, 26 of 32 or 16 of 16.
    step_part
        Classes of a part of `step_block`: its sums, a factor and a row of LANES floats each fit in
        the registers, 16 of 32 or 15 of 16.
    """

    lanes: int
    dots_part: int
    step_part: int


WIDE, NARROW = Registers(16, 5, 14), Registers(8, 3, 6)
_FEATURES = cpu_target.target_context.codegen().magic_tuple()[2]  # that numba compiles for
REGISTERS = WIDE if "+avx512f" in _FEATURES else NARROW

_INDEX, _PLACE = ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_FLOATS = ir.FloatType().as_pointer()
FIRST_LEVEL, SECOND_LEVEL = 3, 2  # caches, as LLVM counts them
_FUSED = ("contract",)  # a product and a sum may become one instruction


@intrinsic
def dots(
    _context: Any, x: Any, rows: Any, first: Any, w: Any, c: Any, z: Any, block: Any
) -> Any:  # fmt: skip
    """Write z[k, b] = x[rows[b]] · w[k] for SIDE rows b from `first`, len(block) classes k from c.

    The classes are taken in parts of about equal size, so that the sums stay in registers.
    """
    registers = REGISTERS
    parts = _parts(block.count, registers.dots_part)

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
        coming = [_at(builder, x.data, builder.mul(row, wide)) for row in coming]
        for start, end in parts:
            ws = [_row(builder, w, c, j) for j in range(start, end)]
            room = cgutils.alloca_once(builder, _VECTOR, size=_INDEX(len(ws) * SIDE))
            places = [
                builder.bitcast(_at(builder, room, i), _FLOATS) for i in range(len(ws) * SIDE)
            ]
            for lane in range(0, LANES, registers.lanes):
                sums = [_registers(builder, SIDE, registers.lanes) for _ in ws]
                with cgutils.for_range_slice(builder, _INDEX(lane), wide, _INDEX(LANES)) as (f, _):
                    right = [_load(builder, _at(builder, row, f), registers.lanes) for row in ws]
                    if start == lane == 0:
                        for row in coming:
                            _prefetch(builder, _at(builder, row, f))
                    for i, row in enumerate(xs):
                        left = _load(builder, _at(builder, row, f), registers.lanes)
                        for j, factor in enumerate(right):
                            _add_product(builder, sums[j][i], left, factor)
                for own, place in zip(chain.from_iterable(sums), places, strict=True):
                    _store(builder, builder.load(own), _at(builder, place, lane))
                if registers.lanes < LANES:
                    _keep_in_memory(builder, room)
            flat = [_load(builder, place) for place in places]
            for at in range(0, len(flat), LANES):
                totals = _totals(builder, flat[at : at + LANES])
                for i in range(0, len(flat[at : at + LANES]), SIDE):
                    part = _pick(builder, totals, totals, range(i, i + SIDE))
                    row = _row(builder, z, c, start + (at + i) // SIDE)
                    _store(builder, part, _at(builder, row, first))
        return context.get_dummy_value()

    return types.void(x, rows, first, w, c, z, block), build


@intrinsic
def step_block(
    _context: Any,
    x: Any,
    rows: Any,
    ahead: Any,
    g: Any,
    w: Any,
    c: Any,
    f: Any,
    row: Any,
    place: Any,
    shrink: Any,
    products: Any,
    block: Any,
) -> Any:
    """Take a step on LANES features from f of as many classes from c as `block` is long.

    These are in the rows of w from `row`, at `place`. There, w −= d with
    d = Σ_b g[b] x[rows[b]] + shrink · w. Return ‖d‖². The sum alone is written to the same rows of
    `products` unless that is None. The rows `ahead`, at least as many, are fetched.
    """
    size = block.count

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, rows, ahead, g, w = (_array(context, builder, signature, args, i) for i in range(5))
        c, f, row, place, shrink = args[5:10]
        wide = builder.extract_value(x.shape, 1)
        length = _registers(builder, 1)[0]
        for first, end in _parts(size, REGISTERS.step_part):
            sums = _registers(builder, end - first)
            with cgutils.for_range(builder, builder.extract_value(rows.shape, 0)) as loop:
                start = builder.mul(builder.load(_at(builder, rows.data, loop.index)), wide)
                left = _load(builder, _at(builder, x.data, start, f))
                if first == 0:
                    coming = builder.mul(builder.load(_at(builder, ahead.data, loop.index)), wide)
                    _prefetch(builder, _at(builder, x.data, coming, f))
                    _prefetch(builder, _at(builder, x.data, start, f, LANES), FIRST_LEVEL)
                factors = _at(builder, _row(builder, g, loop.index, 0), c)
                for j, own in enumerate(sums, start=first):
                    factor = _spread(builder, builder.load(_at(builder, factors, j)))
                    _add_product(builder, own, factor, left)
            if not isinstance(signature.args[10], types.NoneType):
                products = _array(context, builder, signature, args, 10)
                for j, own in enumerate(sums, start=first):
                    to = _at(builder, _row(builder, products, row, j), place)
                    _store(builder, builder.load(own), to)
            places = [_at(builder, _row(builder, w, row, j), place) for j in range(first, end)]
            with builder.if_then(builder.fcmp_ordered(">", shrink, ir.Constant(shrink.type, 0))):
                shrinking = _spread(builder, shrink)
                for own, at in zip(sums, places, strict=True):
                    _add_product(builder, own, shrinking, _load(builder, at))
            for own, at in zip(sums, places, strict=True):
                change = builder.load(own)
                _add_product(builder, length, change, change)
                _store(builder, builder.fsub(_load(builder, at), change), at)
        only = _totals(builder, [builder.load(length)])
        return builder.extract_element(only, _PLACE(0))

    kinds = (x, rows, ahead, g, w, c, f, row, place, shrink, products, block)
    return types.float32(*kinds), build


@intrinsic
def softmax(_context: Any, z: Any, first: Any, classes: Any, scale: Any) -> Any:
    """Replace the logits of BESIDE rows from `first` by scale · softmax.

    Logits are of shape (classes, rows). Sums run over the classes in their order.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        z = _array(context, builder, signature, args, 0)
        first, classes, scale = args[1:]
        place, _, total = _powers(builder, z, first, classes, keep=True)
        factor = builder.fdiv(_spread(builder, scale, BESIDE), total)
        with cgutils.for_range(builder, classes) as loop:
            power = _load(builder, place(loop.index), BESIDE)
            _store(builder, builder.fmul(power, factor), place(loop.index))
        return context.get_dummy_value()

    return types.void(z, first, classes, scale), build


@intrinsic
def partition(_context: Any, z: Any, first: Any, classes: Any, tops: Any, totals: Any) -> Any:
    """Write the largest logit of each of BESIDE rows from `first`, and Σ exp(logit − largest).

    Logits are of shape (classes, rows). Sums run over the classes in their order.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        z, tops, totals = (_array(context, builder, signature, args, i) for i in (0, 3, 4))
        first, classes = args[1:3]
        _, top, total = _powers(builder, z, first, classes, keep=False)
        _store(builder, top, _at(builder, tops.data, first))
        _store(builder, total, _at(builder, totals.data, first))
        return context.get_dummy_value()

    return types.void(z, first, classes, tops, totals), build


def _powers(builder: Any, z: Any, first: Any, classes: Any, *, keep: bool) -> Any:
    """Compute the exponentials of the logits of BESIDE rows, less the largest of each row.

    They replace the logits if they are to be kept. Return where those of a class are, the largest
    logits and the sums.
    """
    wide = builder.extract_value(z.shape, 1)
    column = _at(builder, z.data, first)

    def place(c: Any) -> Any:
        return _at(builder, column, builder.mul(c, wide))

    top = cgutils.alloca_once_value(builder, _load(builder, column, BESIDE))
    total = _registers(builder, 1, BESIDE)[0]
    with cgutils.for_range(builder, classes) as loop:
        logit, old = _load(builder, place(loop.index), BESIDE), builder.load(top)
        above = builder.fcmp_ordered(">", logit, old)
        builder.store(builder.select(above, logit, old), top)
    with cgutils.for_range(builder, classes) as loop:
        logit = _load(builder, place(loop.index), BESIDE)
        power = _exponential(builder, builder.fsub(logit, builder.load(top)))
        builder.store(builder.fadd(builder.load(total), power), total)
        if keep:
            _store(builder, power, place(loop.index))
    return place, builder.load(top), builder.load(total)


def _exponential(builder: Any, x: Any) -> Any:
    """Return the exponentials of non-positive numbers, to two units in the last place.

    Below −50 counts as −50: nothing there matters, and denormal numbers are slow.
    """

    def number(value: float) -> Any:
        return ir.Constant(x.type, [float(np.float32(value))] * x.type.count)

    add, multiply = builder.fadd, builder.fmul
    x = builder.select(builder.fcmp_ordered("<", x, number(-50)), number(-50), x)
    floor = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(x.type, [x.type]), f"llvm.floor.v{x.type.count}f32"
    )
    n = builder.call(floor, [add(multiply(x, number(1.4426950408889634)), number(0.5))])
    r = builder.fsub(x, multiply(n, number(0.693359375)))
    r = add(r, multiply(n, number(2.12194440e-4)))
    p = number(1.9875691500e-4)
    for coefficient in (
        1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1
    ):  # fmt: skip
        p = add(multiply(p, r), number(coefficient))
    p = add(add(multiply(multiply(p, r), r), r), number(1))
    whole = ir.VectorType(_PLACE, x.type.count)
    exponent = builder.add(builder.fptosi(n, whole), ir.Constant(whole, [127] * whole.count))
    exponent = builder.shl(exponent, ir.Constant(whole, [23] * whole.count))
    return multiply(p, builder.bitcast(exponent, x.type))


def _array(context: Any, builder: Any, signature: Any, args: Any, i: int) -> Any:
    return context.make_array(signature.args[i])(context, builder, args[i])


def _at(builder: Any, pointer: Any, *steps: Any) -> Any:
    for step in steps:
        pointer = builder.gep(pointer, [_INDEX(step) if isinstance(step, int) else step])
    return pointer


def _row(builder: Any, array: Any, first: Any, i: int) -> Any:
    wide = builder.extract_value(array.shape, 1)
    return _at(builder, array.data, builder.mul(builder.add(first, _INDEX(i)), wide))


def _registers(builder: Any, count: int, lanes: int = LANES) -> list[Any]:
    zero = ir.Constant(ir.VectorType(ir.FloatType(), lanes), None)
    return [cgutils.alloca_once_value(builder, zero) for _ in range(count)]


def _load(builder: Any, pointer: Any, lanes: int = LANES) -> Any:
    kind = ir.VectorType(ir.FloatType(), lanes)
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)


def _store(builder: Any, vector: Any, pointer: Any) -> None:
    builder.store(vector, builder.bitcast(pointer, vector.type.as_pointer()), align=4)


def _prefetch(builder: Any, pointer: Any, level: int = SECOND_LEVEL) -> None:
    """Fetch the cache line of a pointer into a cache."""
    pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, _PLACE, _PLACE, _PLACE])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(fetch, [pointer, _PLACE(0), _PLACE(level), _PLACE(1)])


def _spread(builder: Any, number: Any, lanes: int = LANES) -> Any:
    kind = ir.VectorType(ir.FloatType(), lanes)
    alone = builder.insert_element(ir.Constant(kind, ir.Undefined), number, _PLACE(0))
    return _pick(builder, alone, alone, [0] * lanes)


def _add_product(builder: Any, register: Any, a: Any, b: Any) -> None:
    product = builder.fmul(a, b, flags=_FUSED)
    builder.store(builder.fadd(builder.load(register), product, flags=_FUSED), register)


def _pick(builder: Any, a: Any, b: Any, places: Sequence[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_PLACE, len(places)), list(places))
    return builder.shuffle_vector(a, b, mask)


def _parts(size: int, widest: int) -> list[tuple[int, int]]:
    """Split a block of classes into parts of about equal size; return their beginnings and ends."""
    count = -(-size // widest)
    return list(pairwise(size * part // count for part in range(count + 1)))


def _keep_in_memory(builder: Any, pointer: Any) -> None:
    """Keep what was stored there out of the registers, of which the next loop needs all."""
    kind = ir.FunctionType(ir.VoidType(), [pointer.type])
    builder.asm(kind, "", "r,~{memory}", [pointer], side_effect=True)


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
