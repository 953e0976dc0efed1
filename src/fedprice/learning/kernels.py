"""The inner loops, compiled by numba: coins, and local SGD of multinomial logistic regression.

Layout: a model is float32 of shape (classes, features), class by class, so that vector lanes run
over features. Features are padded to a multiple of LANES and hold a constant 1 for the bias;
classes are padded to a multiple of the block that the backward product takes at a time (`block`, a
tuple, since its length must be a constant of the compiled code). Batches are padded to a multiple
of SIDE with rows of gradient 0. Logits are kept class by class, one row of lanes per class, and
their gradients sample by sample, as the backward product reads them.

The Gram form. With Z = X Wᵀ the logits of a client's own samples and K = X Xᵀ, a step with batch B
and logit gradients g changes Z by −(K[:, B] g), which is the backward product with K in place of X,
and no forward product is needed. W is recovered once, from the sum of the g. It wins for clients
with few samples, the direct form for large ones.
"""

from __future__ import annotations

import hashlib
import math
from functools import partial
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np

from fedprice.learning.prepared import BESIDE, LANES, SIDE
from fedprice.learning.products import dots, partition, softmax, step_block

__all__ = ["draw_joiners", "evaluate_rows", "gram_matrix", "loss_gradient", "update_clients"]

f4, u8 = np.float32, np.uint64

# numba recompiles a function when its own file has changed, but not when a file that it calls has.
_FILES = [Path(__file__).with_name(f"{name}.py") for name in ("kernels", "prepared", "products")]
_SOURCES = hashlib.sha256(b"\0".join(file.read_bytes() for file in _FILES)).hexdigest()
_config: Any = nb.config
_callers_cache = _config.CACHE_DIR
_config.CACHE_DIR = str(
    Path(_callers_cache or Path(__file__).with_name("__pycache__")) / f"kernels-{_SOURCES[:16]}"
)

# No fastmath: it rounds differently in a process that compiles and in one that loads the cache.
_njit = partial(nb.njit, nogil=True, cache=True, error_model="numpy", boundscheck=False)
_compiled = _njit()
_inlined = _njit(inline="always")  # for what is called once: it is not compiled on its own as well

SQUARE = (0,) * SIDE  # a block for matrices whose rows come in any number
ROWS = 64  # processed at a time


@_compiled
def mix(z):
    z = z + u8(0x9E3779B97F4A7C15)
    z = (z ^ (z >> u8(30))) * u8(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> u8(27))) * u8(0x94D049BB133111EB)
    return z ^ (z >> u8(31))


@_compiled
def key(seed, stream, round_, client):
    return mix(mix(mix(mix(u8(seed)) + u8(stream)) + u8(round_)) + u8(client))


@_compiled
def uniform(z):
    return (z >> u8(11)) * 2.0**-53


@_compiled
def draw_joiners(seed, round_, highest, joined):
    """Write the clients that join a round into `joined`; return how many."""
    size = highest.size // 2
    start = key(seed, 1, round_, 0)
    nodes, leaves = np.empty(64, np.int64), np.empty(64, np.int64)
    least = np.empty(64, np.float64)
    nodes[0], leaves[0] = 1, size
    least[0] = -math.expm1(math.log1p(-uniform(mix(start))) / size)
    depth, count = 1, 0
    while depth > 0:
        depth -= 1
        node, below, low = nodes[depth], leaves[depth], least[depth]
        if low >= highest[node]:
            continue
        if node >= size:
            joined[count] = node - size
            count += 1
            continue
        below //= 2
        drawn = mix(start + u8(node))
        other = -math.expm1(math.log1p(-uniform(mix(drawn))) / below)
        above = low + (1 - low) * other
        left = drawn >> u8(63) == u8(0)
        nodes[depth], leaves[depth], least[depth] = 2 * node + 1, below, above if left else low
        nodes[depth + 1], leaves[depth + 1], least[depth + 1] = (
            2 * node,
            below,
            low if left else above,
        )
        depth += 2
    return count


@_compiled
def forward(x, rows, w, z, block):
    """Write the logits w · x[rows] into z, class by class. Rows come in multiples of SIDE."""
    classes = w.shape[0]
    for b in range(0, rows.size, SIDE):
        for c in range(0, classes, len(block)):
            dots(x, rows, b, w, min(c, classes - len(block)), z, block)


@_compiled
def backward(x, rows, ahead, g, w, shrink, block):
    """Take a step: w −= Σ_b g[b] x[rows[b]] + shrink · w. Return the squared length of the step.

    The rows `ahead` are fetched.
    """
    length = 0.0
    for f in range(0, x.shape[1], LANES):
        for c in range(0, w.shape[0], len(block)):
            length += step_block(x, rows, ahead, g, w, c, f, c, f, shrink, None, block)
    return length


@_inlined
def gram_step(k, rows, ahead, batch, g, logits, shrink, step, last, wanted, products, block):
    """Like `backward`, but with K and the logits; write K g at the samples of the batch.

    Only LANES samples among which there is one of the batch are written, as `wanted` will say:
    writing all of them takes time. Logits that no later step reads stay as they are (`last`).
    """
    classes = g.shape[1]
    wanted[:] = False
    for b in range(batch):
        wanted[rows[b] // LANES] = True
    for i in range(wanted.size):
        for c in range(0, classes, len(block)):
            f, row = i * LANES, i * classes + c
            if wanted[i]:
                step_block(k, rows, ahead, g, logits, c, f, row, 0, shrink, products, block)
            elif last[i] > step:
                step_block(k, rows, ahead, g, logits, c, f, row, 0, shrink, None, block)


@_compiled
def logit_gradients(z, y, rows, batch, classes, scale, g):
    """Write scale · (softmax − one-hot) of a batch into g, whose padding stays 0; overwrites z."""
    for b in range(0, batch, BESIDE):
        softmax(z, b, classes, scale)
    for b in range(batch):
        for c in range(classes):
            g[b, c] = z[c, b]
        g[b, y[rows[b]]] -= scale


@_compiled
def draw_rows(start, step, batch, count, rows):
    """Write the samples of a step into `rows`, of which the padding stays 0."""
    for b in range(batch):
        drawn = mix(start + u8(step * batch + b))
        rows[b] = np.int64(((drawn >> u8(32)) * u8(count)) >> u8(32))


@_inlined
def direct_update(x, y, start, classes, steps, batch, scale, shrink, w, lengths, block):
    """Run the local steps of one client on its model w; write the squared lengths of the steps."""
    padded = (batch + SIDE - 1) // SIDE * SIDE
    rows, ahead = np.zeros(padded, np.int64), np.zeros(padded, np.int64)
    z = np.zeros((w.shape[0], (batch + BESIDE - 1) // BESIDE * BESIDE), f4)
    g = np.zeros((padded, w.shape[0]), f4)
    draw_rows(start, 0, batch, y.size, rows)
    for step in range(steps):
        forward(x, rows, w, z, block)
        logit_gradients(z, y, rows, batch, classes, scale, g)
        draw_rows(start, step + 1, batch, y.size, ahead)
        lengths[step] = backward(x, rows, ahead, g, w, shrink, block)
        rows, ahead = ahead, rows


@_compiled
def aligned_rows(count):
    """Return rows of LANES zeros, each of which is one cache line."""
    raw = np.zeros((count + 1) * LANES, f4)
    skipped = -(raw.ctypes.data // 4) % LANES
    return raw[skipped : skipped + count * LANES].reshape(count, LANES)


@_inlined
def gram_update(x, k, y, start, classes, steps, batch, scale, shrink, w, lengths, block):
    """Like `direct_update`, but in the Gram form.

    Logits are kept in groups of LANES samples, each with one row of LANES numbers per class, so
    that what a block of the step reads and writes is contiguous.
    """
    padded = (batch + SIDE - 1) // SIDE * SIDE
    z = np.zeros((w.shape[0], (batch + BESIDE - 1) // BESIDE * BESIDE), f4)
    g = np.zeros((padded, w.shape[0]), f4)
    drawn = np.zeros((steps + 1, padded), np.int64)
    groups, wide = k.shape[1] // LANES, w.shape[0]
    last = np.zeros(groups, np.int64)  # step that draws one of LANES samples
    for step in range(steps):
        draw_rows(start, step, batch, y.size, drawn[step])
        for b in range(batch):
            last[drawn[step, b] // LANES] = step
    count = (y.size + SIDE - 1) // SIDE * SIDE
    every = np.zeros(groups * LANES + ROWS, np.int64)
    for i in range(y.size):
        every[i] = i
    summed = np.zeros((count, w.shape[0]), f4)
    logits, products = aligned_rows(groups * wide), aligned_rows(groups * wide)
    for i in range((y.size + LANES - 1) // LANES):  # the last group may be padding only
        own = slice(i * LANES, (i + 1) * LANES)
        forward(x, every[own], w, logits[i * wide : (i + 1) * wide], block)
    square = 0.0
    if shrink > 0:
        for c in range(classes):
            for f in range(w.shape[1]):
                square += w[c, f] * w[c, f]
    kept = f4(1)
    wanted = np.zeros(groups, np.bool_)
    for step in range(steps):
        rows, ahead = drawn[step], drawn[step + 1]
        for b in range(batch):
            first, lane = rows[b] // LANES * wide, rows[b] % LANES
            for c in range(classes):
                z[c, b] = logits[first + c, lane]
        logit_gradients(z, y, rows, batch, classes, scale, g)
        inner = 0.0
        if shrink > 0:
            for b in range(batch):
                first, lane = rows[b] // LANES * wide, rows[b] % LANES
                for c in range(classes):
                    inner += g[b, c] * logits[first + c, lane]
            summed *= f4(1) - shrink
            kept *= f4(1) - shrink
        gram_step(k, rows, ahead, batch, g, logits, shrink, step, last, wanted, products, block)
        # ‖Xᵀg + shrink W‖²: K g at the batch gives ‖Xᵀg‖², the logits before it ⟨Xᵀg, W⟩.
        length = 0.0
        for b in range(batch):
            first, lane = rows[b] // LANES * wide, rows[b] % LANES
            own = 0.0
            for c in range(classes):
                own += g[b, c] * products[first + c, lane]
                summed[rows[b], c] += g[b, c]
            length += own
        if shrink > 0:
            length += shrink * (2 * inner + shrink * square)
            square += length - 2 * (inner + shrink * square)
        lengths[step] = length
    w *= kept
    for first in range(0, count, ROWS):
        some, then = slice(first, min(first + ROWS, count)), slice(first + ROWS, None)
        backward(x, every[some], every[then], summed[some], w, f4(0), block)


@_compiled
def update_clients(
    x, y, offsets, gram, gram_at, joined, slots, model, classes, seed, round_, steps, batch, rate,
    l2, w, updates, norms, block,
):  # fmt: skip
    """Run the local steps of the joiners in some slots; write their updates and gradient norms.

    x, y, offsets: the padded samples of all clients. gram, gram_at: the matrices K, flat, and where
    each client's begins, −1 where the direct form is faster. w: room for a client's model. updates:
    (joiners, classes, features), without padding. norms: (joiners, 2), the sum of the squared norms
    over the steps, and the largest.
    """
    scale, shrink = f4(rate / batch), f4(rate * l2)
    lengths = np.zeros(steps, np.float64)
    for i in slots:
        n = joined[i]
        own_x, own_y = x[offsets[n] : offsets[n + 1]], y[offsets[n] : offsets[n + 1]]
        start = key(seed, 2, round_, n)
        for c in range(w.shape[0]):  # a slice would add seconds to the compile time
            for f in range(w.shape[1]):
                w[c, f] = model[c, f]
        if gram_at[n] < 0:
            direct_update(
                own_x, own_y, start, classes, steps, batch, scale, shrink, w, lengths, block
            )
        else:
            count = own_y.size
            wide = (count + LANES - 1) // LANES * LANES | LANES  # as `gram_width` does
            k = gram[gram_at[n] : gram_at[n] + count * wide].reshape(count, wide)
            gram_update(
                own_x, k, own_y, start, classes, steps, batch, scale, shrink, w, lengths, block
            )
        for c in range(updates.shape[1]):
            for f in range(updates.shape[2]):
                updates[i, c, f] = w[c, f] - model[c, f]
        norms[i, 0] = norms[i, 1] = 0.0
        for length in lengths:
            norms[i, 0] += length / (rate * rate)
            norms[i, 1] = max(norms[i, 1], length / (rate * rate))


@_compiled
def gram_matrix(x, k):
    """Write x xᵀ into k, whose rows may be wider."""
    rows = np.zeros((x.shape[0] + SIDE - 1) // SIDE * SIDE, np.int64)
    for i in range(x.shape[0]):
        rows[i] = i
    products = np.zeros((x.shape[0], rows.size), f4)
    forward(x, rows, x, products, SQUARE)
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            k[i, j] = products[i, j]


@_compiled
def cross_entropies(z, y, rows, count, classes, tops, totals):
    """Return the summed loss of some rows of logits, and how many are classified correctly."""
    for b in range(0, count, BESIDE):
        partition(z, b, classes, tops, totals)
    loss, right = 0.0, 0
    for b in range(count):
        label = y[rows[b]]
        loss += math.log(np.float64(totals[b])) + tops[b] - z[label, b]
        best = 0
        while z[best, b] < tops[b]:  # of equal logits, the first counts
            best += 1
        right += best == label
    return loss, right


@_compiled
def evaluate_rows(x, y, model, classes):
    """Return the summed cross-entropy of all rows, and how many are classified correctly."""
    rows, z = np.zeros(ROWS, np.int64), np.zeros((model.shape[0], ROWS), f4)
    tops, totals = np.zeros(ROWS, f4), np.zeros(ROWS, f4)
    loss, right = 0.0, 0
    for first in range(0, y.size, ROWS):
        for b in range(ROWS):
            rows[b] = min(first + b, y.size - 1)
        forward(x, rows, model, z, SQUARE)
        count = min(ROWS, y.size - first)
        own, hits = cross_entropies(z, y, rows, count, classes, tops, totals)
        loss += own
        right += hits
    return loss, right


@_compiled
def loss_gradient(x, y, model, classes, gradient, block):
    """Return the summed cross-entropy of all rows, and add its gradient to `gradient`."""
    rows, z = np.zeros(ROWS, np.int64), np.zeros((model.shape[0], ROWS), f4)
    g = np.zeros((ROWS, model.shape[0]), f4)
    tops, totals = np.zeros(ROWS, f4), np.zeros(ROWS, f4)
    loss = 0.0
    for first in range(0, y.size, ROWS):
        count = min(ROWS, y.size - first)
        for b in range(ROWS):
            rows[b] = min(first + b, y.size - 1)
        forward(x, rows, model, z, block)
        loss += cross_entropies(z, y, rows, count, classes, tops, totals)[0]
        logit_gradients(z, y, rows, count, classes, f4(-1), g)
        g[count:] = f4(0)
        backward(x, rows, rows, g, gradient, f4(0), block)
    return loss


_config.CACHE_DIR = _callers_cache  # of other packages
