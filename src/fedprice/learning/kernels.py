"""The inner loops, compiled by numba: coins, and local SGD of multinomial logistic regression.

Layout: a model is float32 of shape (classes, features), class by class, so that vector lanes run
over features. Features are padded to a multiple of 16 and hold a constant 1 for the bias; classes
are padded to an even number. Loops are blocked by hand: 2 rows × 5 classes forward, 8 rows × 2
classes backward. Batches are padded to a multiple of 8 with rows of gradient 0.

The Gram form. With Z = X Wᵀ the logits of a client's own samples and K = X Xᵀ, a step with batch B
and logit gradients g changes Z by −(K[:, B] g), which is the backward loop with K in place of X,
and no forward loop is needed. W is recovered once, from the sum of the g. It wins for clients with
few samples, the direct form for large ones.
"""

from __future__ import annotations

import math

import numba as nb
import numpy as np

__all__ = ["draw_joiners", "evaluate_rows", "gram_matrix", "update_clients"]

f4, u8 = np.float32, np.uint64
_compiled = nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy", boundscheck=False)
_exact = nb.njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)

TILE = 256  # features that a block of rows passes at a time

# Powers of two 2^-126 … 2^1, for the exponential.
_TWO = np.ldexp(np.float32(1), np.arange(-126, 2)).astype(np.float32)


@_exact
def mix(z):
    z = z + u8(0x9E3779B97F4A7C15)
    z = (z ^ (z >> u8(30))) * u8(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> u8(27))) * u8(0x94D049BB133111EB)
    return z ^ (z >> u8(31))


@_exact
def key(seed, stream, round_, client):
    return mix(mix(mix(mix(u8(seed)) + u8(stream)) + u8(round_)) + u8(client))


@_exact
def uniform(z):
    return (z >> u8(11)) * 2.0**-53


@_exact
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
def forward(x, rows, w, z):
    """Write the logits x[rows] · w of each class into z."""
    classes, features = w.shape
    for b in range(0, rows.size, 2):
        r, s = x[rows[b]], x[rows[b + 1]]
        c = 0
        while c + 5 <= classes:
            v0, v1, v2, v3, v4 = w[c], w[c + 1], w[c + 2], w[c + 3], w[c + 4]
            r0 = r1 = r2 = r3 = r4 = s0 = s1 = s2 = s3 = s4 = f4(0)
            for f in range(features):
                p, q = r[f], s[f]
                r0 += p * v0[f]
                r1 += p * v1[f]
                r2 += p * v2[f]
                r3 += p * v3[f]
                r4 += p * v4[f]
                s0 += q * v0[f]
                s1 += q * v1[f]
                s2 += q * v2[f]
                s3 += q * v3[f]
                s4 += q * v4[f]
            z[b, c], z[b, c + 1], z[b, c + 2], z[b, c + 3], z[b, c + 4] = r0, r1, r2, r3, r4
            z[b + 1, c], z[b + 1, c + 1], z[b + 1, c + 2] = s0, s1, s2
            z[b + 1, c + 3], z[b + 1, c + 4] = s3, s4
            c += 5
        while c < classes:
            v0 = w[c]
            r0 = s0 = f4(0)
            for f in range(features):
                r0 += r[f] * v0[f]
                s0 += s[f] * v0[f]
            z[b, c], z[b + 1, c] = r0, s0
            c += 1


@_compiled
def backward(x, rows, g, w, shrink, scratch, gram):
    """Take a step: w −= Σ_b g[b] x[rows[b]] + shrink · w. Return the squared length of the step.

    With `gram`, x is K and w the logits; the length is then that of the step of the model, less its
    part from shrinking. Features go by tiles, so that the rows' tiles stay in the first cache while
    all classes pass.
    """
    classes, features = w.shape
    s0, s1 = scratch[0], scratch[1]
    length = 0.0
    if gram:
        length = gram_length(x, rows, g, classes)
    for first in range(0, features, TILE):
        last = min(first + TILE, features)
        for c in range(0, classes, 2):
            s0[:TILE] = f4(0)
            s1[:TILE] = f4(0)
            for b in range(0, rows.size, 8):
                x0, x1, x2, x3 = (
                    x[rows[b], first:last], x[rows[b + 1], first:last],
                    x[rows[b + 2], first:last], x[rows[b + 3], first:last],
                )  # fmt: skip
                x4, x5, x6, x7 = (
                    x[rows[b + 4], first:last], x[rows[b + 5], first:last],
                    x[rows[b + 6], first:last], x[rows[b + 7], first:last],
                )  # fmt: skip
                a0, a1, a2, a3 = g[b, c], g[b + 1, c], g[b + 2, c], g[b + 3, c]
                a4, a5, a6, a7 = g[b + 4, c], g[b + 5, c], g[b + 6, c], g[b + 7, c]
                d = c + 1
                e0, e1, e2, e3 = g[b, d], g[b + 1, d], g[b + 2, d], g[b + 3, d]
                e4, e5, e6, e7 = g[b + 4, d], g[b + 5, d], g[b + 6, d], g[b + 7, d]
                for f in range(last - first):
                    p0, p1, p2, p3 = x0[f], x1[f], x2[f], x3[f]
                    p4, p5, p6, p7 = x4[f], x5[f], x6[f], x7[f]
                    s0[f] += (
                        a0 * p0
                        + a1 * p1
                        + a2 * p2
                        + a3 * p3
                        + a4 * p4
                        + a5 * p5
                        + a6 * p6
                        + a7 * p7
                    )
                    s1[f] += (
                        e0 * p0
                        + e1 * p1
                        + e2 * p2
                        + e3 * p3
                        + e4 * p4
                        + e5 * p5
                        + e6 * p6
                        + e7 * p7
                    )
            w0, w1 = w[c, first:last], w[c + 1, first:last]
            part = f4(0)
            for f in range(last - first):
                d0, d1 = s0[f] + shrink * w0[f], s1[f] + shrink * w1[f]
                part += d0 * d0 + d1 * d1
                w0[f] -= d0
                w1[f] -= d1
            if not gram:
                length += part
    return length


@_compiled
def gram_length(k, rows, g, classes):
    """Return ‖Σ_b g[b] x[rows[b]]‖² from the inner products of the rows."""
    length = 0.0
    for b in range(rows.size):
        own = k[rows[b]]
        for d in range(b + 1):
            dot = f4(0)
            for c in range(classes):
                dot += g[b, c] * g[d, c]
            length += dot * own[rows[d]] * (f4(1) if d == b else f4(2))
    return length


@_compiled
def exponentials(v):
    """Replace non-positive numbers by their exponentials, to two units in the last place."""
    for i in range(v.size):
        x = max(v[i], f4(-87))
        n = np.floor(x * f4(1.4426950408889634) + f4(0.5))
        r = x - n * f4(0.693359375) + n * f4(2.12194440e-4)
        p = f4(1.9875691500e-4)
        p = p * r + f4(1.3981999507e-3)
        p = p * r + f4(8.3334519073e-3)
        p = p * r + f4(4.1665795894e-2)
        p = p * r + f4(1.6666665459e-1)
        p = p * r + f4(5.0000001201e-1)
        v[i] = (p * r * r + r + f4(1)) * _TWO[int(n) + 126]


@_compiled
def logit_gradients(z, y, rows, batch, classes, scale):
    """Replace the logits of a batch by scale · (softmax − one-hot); padding becomes 0."""
    for b in range(batch):
        top = z[b, 0]
        for c in range(1, classes):
            top = max(top, z[b, c])
        for c in range(classes):
            z[b, c] -= top
        z[b, classes:] = f4(0)
    z[batch:] = f4(0)
    exponentials(z.reshape(z.size))
    for b in range(batch):
        total = f4(0)
        for c in range(classes):
            total += z[b, c]
        factor = scale / total
        for c in range(classes):
            z[b, c] *= factor
        z[b, classes:] = f4(0)
        z[b, y[rows[b]]] -= scale
    z[batch:] = f4(0)


@_compiled
def update_clients(
    x, y, offsets, gram, gram_at, joined, slots, model, classes, seed, round_, steps, batch, rate,
    l2, updates, norms,
):  # fmt: skip
    """Run the local steps of the joiners in some slots; write their updates and gradient norms.

    x, y, offsets: the padded samples of all clients. gram, gram_at: the matrices K, flat, and where
    each client's begins, −1 where the direct form is faster. updates: (joiners, classes, features).
    norms: (joiners, 2), the sum of the squared norms over the steps, and the largest.
    """
    padded = (batch + 7) // 8 * 8
    rows = np.zeros(padded, np.int64)
    z = np.zeros((padded, model.shape[0]), f4)
    scratch = np.zeros((2, model.shape[1]), f4)
    scale, shrink = f4(rate / batch), f4(rate * l2)
    for i in slots:
        n = joined[i]
        own_x, own_y = x[offsets[n] : offsets[n + 1]], y[offsets[n] : offsets[n + 1]]
        count = own_y.size
        start = key(seed, 2, round_, n)
        w = updates[i]
        w[:] = model
        norms[i, :] = 0.0
        if gram_at[n] < 0:
            for step in range(steps):
                for b in range(batch):
                    drawn = mix(start + u8(step * batch + b))
                    rows[b] = np.int64(((drawn >> u8(32)) * u8(count)) >> u8(32))
                forward(own_x, rows, w, z)
                logit_gradients(z, own_y, rows, batch, classes, scale)
                length = backward(own_x, rows, z, w, shrink, scratch, False)
                norms[i, 0] += length
                norms[i, 1] = max(norms[i, 1], length)
        else:
            wide = (count + 15) // 16 * 16
            k = gram[gram_at[n] : gram_at[n] + count * wide].reshape(count, wide)
            every = np.zeros((count + 7) // 8 * 8, np.int64)
            every[:count] = np.arange(count)
            summed = np.zeros((every.size, model.shape[0]), f4)
            forward(own_x, every, w, summed)
            logits = np.zeros((model.shape[0], wide), f4)
            logits[:, :count] = summed[:count].T
            summed[:] = f4(0)
            wide_scratch = np.zeros((2, wide), f4)
            kept = f4(1)
            square = np.float64(0)
            if shrink > 0:
                for c in range(model.shape[0]):
                    for f in range(model.shape[1]):
                        square += model[c, f] * model[c, f]
            for step in range(steps):
                inner = 0.0
                for b in range(batch):
                    drawn = mix(start + u8(step * batch + b))
                    rows[b] = np.int64(((drawn >> u8(32)) * u8(count)) >> u8(32))
                    for c in range(classes):
                        z[b, c] = logits[c, rows[b]]
                logit_gradients(z, own_y, rows, batch, classes, scale)
                if shrink > 0:
                    for b in range(batch):
                        for c in range(classes):
                            inner += z[b, c] * logits[c, rows[b]]
                    summed *= f4(1) - shrink
                    kept *= f4(1) - shrink
                length = backward(k, rows, z, logits, shrink, wide_scratch, True)
                # ‖Xᵀg + shrink W‖², from what is known of Xᵀg, and ‖W‖² after the step.
                length += shrink * (2 * inner + shrink * square)
                square += length - 2 * (inner + shrink * square)
                for b in range(batch):
                    for c in range(classes):
                        summed[rows[b], c] += z[b, c]
                norms[i, 0] += length
                norms[i, 1] = max(norms[i, 1], length)
            w *= kept
            backward(own_x, every, summed, w, f4(0), scratch, False)
        w -= model
        norms[i] /= rate * rate


@_compiled
def gram_matrix(x, k):
    """Write x xᵀ into k, whose rows may be wider."""
    rows = np.zeros((x.shape[0] + 1) // 2 * 2, np.int64)
    rows[: x.shape[0]] = np.arange(x.shape[0])
    products = np.zeros((rows.size, x.shape[0]), f4)
    forward(x, rows, x, products)
    k[:, : x.shape[0]] = products[: x.shape[0]]


@_compiled
def evaluate_rows(x, y, model, classes, first, last):
    """Return the summed cross-entropy of some rows, and how many are classified rightly."""
    rows = np.zeros(2, np.int64)
    z = np.zeros((2, model.shape[0]), f4)
    loss, right = 0.0, 0
    for i in range(first, last, 2):
        rows[0], rows[1] = i, min(i + 1, last - 1)
        forward(x, rows, model, z)
        for b in range(min(2, last - i)):
            best, top = 0, z[b, 0]
            for c in range(1, classes):
                if z[b, c] > top:
                    best, top = c, z[b, c]
            total = 0.0
            for c in range(classes):
                total += math.exp(z[b, c] - top)
            loss += math.log(total) + top - z[b, y[i + b]]
            right += best == y[i + b]
    return loss, right
