"""Block tariffs and the full tariff for clients whose cost and value are both private.

Symbols: q level, c cost, τ cost exponent, v value, k impact, T payment, B budget, μ multiplier of
the budget, m(q; θ) = τ c q^{τ−1} − v k / q² the price at which type θ = (c, v) takes the increment
at q.

A type takes the increment at q if its marginal price p(q) is at least m(q; θ). So

    E[k/q] + μ E[T] = constant − ∫ H_q(p(q)) (k/q² − μ p(q)) dq,   H_q(p) = P(m(q; θ) ≤ p),

and every level is a separate problem: p(q) maximises H_q(p) (k/q² − μ p) over p ≥ 0 (Wilson's
demand profile). With blocks, one price maximises the integral over its block, and dynamic
programming finds the best ends of blocks. With prices of at least 0, no client is worse off than if
it joined unpaid.

Some types cross a tariff more than once, so that the demand profile misjudges them. Expected loss
and spend are therefore those of every type's true best choice, and so is the spend that has to meet
the budget.

References
----------
R. Wilson, Nonlinear Pricing, Oxford University Press, 1993, chapter 4.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice.beliefs.curves import Moments
from fedprice.beliefs.expectations import Rows, rows_of
from fedprice.beliefs.price_search import NoPriceError
from fedprice.beliefs.tariff_tails import tail_fee, with_tail
from fedprice.errors import InputError, number_like
from fedprice.game import best_level
from fedprice.tariff import Tariffs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice._plumbing.arrays import BoolArray, FloatArray, IntArray
    from fedprice.beliefs.beliefs import Types

__all__ = [
    "FoundTariffs",
    "post_tariffs",
    "with_unbought",
]

HAIR = 1e-9  # relative increase of a price, so that the type it is made for takes it
# The same for a list of levels, on which most types would otherwise be all but indifferent between
# two rows: what is promised must not depend on costs to the last digit.
MARGIN = 1e-3
LOWEST = 1e-6  # the lowest end of a block, relative to the largest level
ROUGH, FINE, FULL = (48, 48), (64, 64), (128, 128)  # ends and prices to choose from
CHANGES = (0.06, 0.02)  # relative, of prices
FEW = 1 << 11  # types of all rows, up to which the full tariff is improved
ATTEMPTS = 6  # at tariffs that spend the budget, and at improved ones within it
STEPS = 40  # evaluations of the spend in search of a root


Choice = Callable[[float], tuple[Tariffs, "FloatArray"]]  # the best tariffs at 1/μ, and their spend


class FoundTariffs(NamedTuple):
    """Tariffs, and what is expected of the types that they are posted to.

    Attributes
    ----------
    tariffs
        One tariff per client.
    moments
        What is expected of each client, shape (N,) each.
    multiplier
        μ: how much expected loss one more unit of budget would save; 0 if the budget is slack.
    """

    tariffs: Tariffs
    moments: Moments
    multiplier: float

    @property
    def expected_loss(self) -> FloatArray:
        """E[k/q] of each client, shape (N,)."""
        return self.moments.loss

    @property
    def expected_spend(self) -> FloatArray:
        """E[T] of each client, shape (N,); the sum is at most the budget."""
        return self.moments.spend


def post_tariffs(
    impact: FloatArray,
    types: Sequence[Types],
    group_of: IntArray,
    cost_exponent: float,
    level_max: FloatArray,
    budget: float,
    blocks: int | None = 4,
) -> FoundTariffs:
    """Return the tariffs of least expected loss whose expected spend is within the budget.

    Parameters
    ----------
    impact, level_max
        k and the largest level of each client, shape (N,).
    types, group_of
        The beliefs: the possible types of each group, and each client's group, shape (N,).
    cost_exponent
        τ.
    budget
        B > 0: the most that is spent in expectation.
    blocks
        Number of blocks, at most 48; None for the full tariff.

    Notes
    -----
    The full tariff is a list of 128 levels: a type for which it is made is indifferent along a
    range of levels, and with every level for sale would stop inside a block. Below them, 16 more
    are for costs above all believed ones. These, and the first block of block tariffs, are paid
    from a thousandth of the budget (see `fedprice.beliefs.tariff_tails`).

    Clients without impact are offered a price of 0. Beyond 96 distinct impacts in a group of
    clients with the same beliefs and largest level, clients share 96 tariffs by impact, and what is
    expected of a client is interpolated over the logarithm of its impact.
    """
    if blocks is not None:
        number = number_like("blocks", blocks)
        if not 1 <= number <= ROUGH[0] or number != int(number):
            raise InputError(f"`blocks` must be a whole number from 1 to {ROUGH[0]}; got {blocks}.")
        blocks = int(number)
    if not budget > 0:
        raise NoPriceError(
            f"`budget` must be above 0 for tariffs, which never charge; got {budget:g}. Raise the "
            "budget."
        )
    bought = impact > 0
    if not bought.any():
        raise InputError("no client has any impact, so there is nothing to buy.")
    if not bought.all():
        some = impact[bought], types, group_of[bought], cost_exponent, level_max[bought]
        return with_unbought(bought, level_max, post_tariffs(*some, budget, blocks))
    rows = rows_of(impact, types, group_of, level_max)
    fee, tariffs, reciprocal = _searched(rows, len(impact), cost_exponent, budget, blocks)
    tariffs = with_tail(tariffs, np.full(len(tariffs), fee), rows.cost.max(axis=1), cost_exponent)
    if np.isfinite(reciprocal):
        # With a finite number of types the spend jumps at some multipliers: use what is left.
        tariffs = _raised(
            tariffs, lambda more: rows.total(rows.expected(more, cost_exponent)[1]), budget
        )
    moments = rows.moments(tariffs, impact, cost_exponent)
    return FoundTariffs(tariffs.of(rows.row_of), moments, 1 / reciprocal)


def _searched(
    rows: Rows, count: int, tau: float, budget: float, blocks: int | None
) -> tuple[float, Tariffs, float]:
    """Return the fee of each client's tail, the tariffs of the rows, and 1/μ (inf if slack)."""

    def spend(tariffs: Tariffs) -> float:
        return rows.total(rows.expected(tariffs, tau)[1])

    # First search all levels and prices, roughly; then search around that choice. The spend is that
    # of every type's true best choice.
    rough = _choice(rows, *_everything(rows, tau, *ROUGH), blocks or 8, tau)
    most = float(rows.clients @ rough(np.inf)[1])
    fee = tail_fee(min(budget, most), count)
    fees = fee * count
    guess = budget / float(rows.clients @ rows.impact)

    def total(choice: Choice, t: float) -> float:
        return spend(choice(t)[0]) + fees

    reciprocal = _most(partial(total, rough), budget, guess, 16.0, 1e-3)
    slack, start = np.isinf(reciprocal), rough(reciprocal)[0]
    near = guess if slack else reciprocal
    for _ in range(ATTEMPTS):
        fine = _choice(rows, *_around(rows, start, tau, *(FINE if blocks else FULL)), blocks, tau)
        reciprocal = _most(partial(total, fine), budget, near, 1.02, 1e-3)
        if slack or np.isfinite(reciprocal):
            break
        start = fine(reciprocal)[0]  # there is more to buy than lies around the rough choice
    tariffs, _ = fine(reciprocal)
    if np.isfinite(reciprocal):
        # Improved tariffs may cost more than the budget: improve cheaper ones, or else none.
        lower = reciprocal
        for attempt in range(ATTEMPTS):
            better = _improved(rows, fine(lower)[0], lower, tau)
            if (cost := spend(better) + fees) <= budget:
                tariffs, reciprocal = better, lower
                break
            lower *= 0.999 * (budget / cost) ** 2**attempt
    return fee, tariffs, reciprocal


def with_unbought(bought: BoolArray, level_max: FloatArray, post: FoundTariffs) -> FoundTariffs:
    """Return the tariffs of all clients; those without impact are paid nothing."""
    blocks = post.tariffs.ends.shape[1]
    ends = level_max[:, None] * np.arange(1, blocks + 1) / blocks
    prices, moments = np.zeros_like(ends), np.zeros((4, len(bought)))
    ends[bought], prices[bought] = post.tariffs.ends, post.tariffs.prices
    moments[:, bought] = post.moments
    return FoundTariffs(
        Tariffs(ends, prices, post.tariffs.menu), Moments(*moments), post.multiplier
    )


def _everything(rows: Rows, tau: float, ends: int, prices: int) -> tuple[FloatArray, FloatArray]:
    """Return ends (R, L) and prices (R, P) to choose from in the first search."""
    cap = rows.level_max[:, None]
    free = _free(rows, tau)
    highest = tau * rows.cost.max(axis=1, keepdims=True) * cap ** (tau - 1)
    return (
        _between(np.clip(free, LOWEST * cap, cap / 2), cap, ends),
        np.pad(_between(1e-4 * highest, highest, prices - 1), ((0, 0), (1, 0))),
    )


def _around(
    rows: Rows, tariffs: Tariffs, tau: float, ends: int, prices: int
) -> tuple[FloatArray, FloatArray]:
    """Return ends (R, L) and prices (R, P) to choose from, around those of given tariffs."""
    cap = rows.level_max[:, None]
    levels = tariffs.best_levels(rows.cost, rows.value_impact, tau)
    high = np.minimum(1.05 * levels.max(axis=1, keepdims=True), (1 - 1 / ends) * cap)
    # Down to the lowest level without payment, so that no client is worse off than unpaid.
    least = levels.min(axis=1, keepdims=True)
    free = _free(rows, tau)
    low = np.clip(np.where(free > 0, np.minimum(free, least), least / 2), LOWEST * cap, high / 2)
    top = tariffs.prices.max(axis=1, keepdims=True)
    bottom = np.where(tariffs.prices > 0, tariffs.prices, np.inf).min(axis=1, keepdims=True)
    unpaid = top == 0  # then any positive candidates will do
    bottom, top = np.where(unpaid, 1e-6, bottom / 1.5), np.where(unpaid, 1e-5, top * 1.3)
    return (
        np.concatenate([_between(low, high, ends - 1), cap], axis=1),
        np.pad(_between(bottom, top, prices - 1), ((0, 0), (1, 0))),
    )


def _free(rows: Rows, tau: float) -> FloatArray:
    """Return the lowest level that any type chooses unpaid, shape (R, 1)."""
    levels = best_level(0.0, rows.cost, rows.value_impact, tau, rows.level_max[:, None])
    lowest: FloatArray = levels.min(axis=1, keepdims=True)
    return lowest


def _between(low: FloatArray, high: FloatArray, count: int) -> FloatArray:
    """Return a geometric progression in each row, the bounds included, shape (R, count)."""
    steps: FloatArray = low * (high / low) ** np.linspace(0, 1, count)
    steps[:, -1:] = high
    return steps


def _choice(
    rows: Rows, ends: FloatArray, prices: FloatArray, blocks: int | None, tau: float
) -> Choice:
    """Return t = 1/μ → the best tariffs, and their spend (R,) by the demand profile.

    Parameters
    ----------
    ends, prices
        What to choose from, shapes (R, L) and (R, P).
    blocks
        How many blocks; None for one per end, at the lowest price with the same demand.
    """
    count, size = ends.shape[1], prices.shape[1]
    demand = np.empty((len(ends), count, size))
    offered = np.repeat(prices[:, None, :], count, axis=1)
    for row in range(len(ends)):
        least = _least_prices(rows, ends, tau, row)
        place = np.searchsorted(prices[row], least) + (size + 1) * np.arange(count)[:, None]
        weight = np.broadcast_to(rows.weight[row], least.shape)

        cells = count * (size + 1)
        share = np.bincount(place.ravel(), weight.ravel(), minlength=cells)
        demand[row] = np.cumsum(share.reshape(count, size + 1), axis=1)[:, :-1]
        if blocks is None:
            takers = np.bincount(place.ravel(), minlength=cells).reshape(count, size + 1)
            takers = np.cumsum(takers, axis=1)[:, :-1]
            highest = np.take_along_axis(np.sort(least, axis=1), np.maximum(takers - 1, 0), 1)
            offered[row] = np.where(takers > 0, np.maximum(highest, 0.0), 0.0)
    worth = np.zeros_like(ends)
    worth[:, 1:] = rows.impact[:, None] * (1 / ends[:, :-1] - 1 / ends[:, 1:])
    gain = demand * worth[:, :, None]
    paid = demand * offered * np.diff(ends, prepend=0.0)[:, :, None]
    # A type that is left out of the first block makes the loss infinite.
    barred = np.where(demand[:, 0] > 1 - 1e-9, 0.0, -np.inf)
    if blocks is None:
        gain[:, 0] = barred

        def post_all(reciprocal: float) -> tuple[Tariffs, FloatArray]:
            best = (gain - paid / reciprocal).argmax(axis=2)[:, :, None]
            chosen, spend = (np.take_along_axis(x, best, 2)[:, :, 0] for x in (offered, paid))
            return Tariffs(ends, chosen * (1 + MARGIN), menu=True), spend.sum(axis=1)

        return post_all

    # Sums up to each end: what a block adds at a price is the difference between its two ends.
    gain, paid = (np.pad(np.cumsum(x, axis=1), ((0, 0), (1, 0), (0, 0))) for x in (gain, paid))
    each = np.arange(len(ends))

    def post(reciprocal: float) -> tuple[Tariffs, FloatArray]:
        last, index = _best_blocks(gain - paid / reciprocal, barred, blocks)
        first = np.pad(last[:, :-1], ((0, 0), (1, 0)))
        row = each[:, None]
        spend = (paid[row, last, index] - paid[row, first, index]).sum(axis=1)
        return Tariffs(ends[row, last - 1], prices[row, index] * (1 + HAIR)), spend

    return post


def _least_prices(rows: Rows, ends: FloatArray, tau: float, row: int) -> FloatArray:
    """Return the least price at which each type takes a whole block: the mean of m, (L, S).

    For the lowest impact of the row: a type takes at a higher one what it takes at a lower one.
    """
    end = ends[row][:, None]
    start = np.pad(end[:-1], ((1, 0), (0, 0)))
    driven = rows.value[row] * rows.lowest[row]
    with np.errstate(divide="ignore", invalid="ignore"):
        saved = np.where(driven > 0, driven * (1 / start - 1 / end), 0.0)
    mean: FloatArray = (rows.cost[row] * (end**tau - start**tau) - saved) / (end - start)
    return mean


def _best_blocks(worth: FloatArray, barred: FloatArray, blocks: int) -> tuple[IntArray, IntArray]:
    """Return the best division into blocks by dynamic programming.

    Parameters
    ----------
    worth
        What everything up to each end is worth at each price, shape (R, L + 1, P).
    barred
        What is added to the first block's worth, shape (R, P).
    blocks
        How many blocks.

    Returns
    -------
    last, price
        The end of each block and the number of its price, shape (R, blocks).
    """
    count = worth.shape[1] - 1
    most = np.full((len(worth), count + 1, count + 1), -np.inf)  # of a block from i to j
    price = np.zeros(most.shape, np.int64)
    for i in range(count):
        of_block = worth[:, i + 1 :] - worth[:, i : i + 1]
        if i == 0:
            of_block = of_block + barred[:, None, :]
        price[:, i, i + 1 :] = of_block.argmax(axis=2)
        most[:, i, i + 1 :] = of_block.max(axis=2)
    best = np.full((len(worth), count + 1), -np.inf)
    best[:, 0] = 0.0
    starts = []
    for _ in range(blocks):
        total = best[:, :, None] + most
        starts.append(total.argmax(axis=1))
        best = total.max(axis=1)
    each = np.arange(len(worth))
    end = np.full(len(worth), count)
    lasts, indices = [], []
    for start_of in reversed(starts):
        start = start_of[each, end]
        lasts.append(end)
        indices.append(price[each, start, end])
        end = start
    return np.stack(lasts[::-1], 1), np.stack(indices[::-1], 1)


def _improved(rows: Rows, tariffs: Tariffs, reciprocal: float, tau: float) -> Tariffs:
    """Return tariffs after small changes that lower E[k/q] + E[T]/t by every type's true choice.

    The demand profile is exact except for types that cross a tariff more than once. In the full
    tariff, several neighbouring prices change together; with many types, or clients that share
    tariffs, nothing would be gained. Its loss is that at prices lower by MARGIN, so that no change
    uses up the margin.
    """
    ends, prices = tariffs.ends.copy(), tariffs.prices.copy()
    last = ends.shape[1] - 1
    if tariffs.menu and (rows.cost.size > FEW or rows.nodes.shape[1] > 1):
        return tariffs

    def worth(ends: FloatArray, prices: FloatArray) -> FloatArray:
        loss, spend = rows.expected(Tariffs(ends, prices, tariffs.menu), tau)
        if tariffs.menu:
            loss, _ = rows.expected(Tariffs(ends, prices / (1 + MARGIN), menu=True), tau)
        lagrangian: FloatArray = (loss + spend / reciprocal).mean(axis=1)
        return lagrangian

    best = worth(ends, prices)
    for change, width in itertools.product(CHANGES, (16, 8, 4) if tariffs.menu else (1,)):
        for block, factor in itertools.product(range(0, last + 1, width), (1 + change, 1 - change)):
            trial = prices.copy()
            trial[:, block : block + width] *= factor
            trial_worth = worth(ends, trial)
            better = trial_worth < best
            prices[better], best[better] = trial[better], trial_worth[better]
            if tariffs.menu or block == last:
                continue
            trial = ends.copy()
            trial[:, block] *= 1 + (factor - 1) / 2
            rising = np.diff(trial, axis=1, prepend=0.0).min(axis=1, keepdims=True) > 0
            trial = np.where(rising, trial, ends)
            trial_worth = worth(trial, prices)
            better = trial_worth < best
            ends[better], best[better] = trial[better], trial_worth[better]
    return Tariffs(ends, prices, tariffs.menu)


def _raised(tariffs: Tariffs, spend: Callable[[Tariffs], float], budget: float) -> Tariffs:
    """Return the tariffs with all prices raised alike, as far as the budget allows."""

    def scaled(scale: float) -> Tariffs:
        return Tariffs(tariffs.ends, tariffs.prices * scale, tariffs.menu)

    def spent(scale: float) -> float:
        return spend(scaled(scale)) if np.isfinite(scale) else np.inf

    return scaled(_most(spent, budget, start=1.0, factor=1.0005, close=1e-6))


def _most(
    spend: Callable[[float], float], budget: float, start: float, factor: float, close: float
) -> float:
    """Return the largest x > 0 found at which the spend, which rises with x, is within the budget.

    Parameters
    ----------
    spend, budget
        The spend at x, which may jump, and the most that it may be.
    start, factor
        Where to start, and by which factor to step in search of a bracket.
    close
        The part of the budget that may be left; a tenth of it is how close the bracket gets.
    """
    if spend(np.inf) <= budget:
        return np.inf
    lower, upper, left, over = 0.0, np.inf, np.nan, np.nan
    point = start
    for _ in range(STEPS):
        rest = budget - spend(point)
        if rest >= 0:
            lower, left = point, rest
        else:
            upper, over = point, -rest
        if left <= close * budget or upper <= lower * (1 + close / 10):
            break
        if lower == 0:
            point /= factor
            factor = min(factor**2, 16.0)
        elif upper == np.inf:
            point *= factor
            factor = min(factor**2, 16.0)
        else:  # linear interpolation in the logarithm, away from both ends of the bracket
            part = min(max(left / (left + over), 0.05), 0.95)
            point = lower * (upper / lower) ** part
    if lower == 0:
        raise NoPriceError(
            f"`budget` is too small for any tariff; got {budget:g}. Raise the budget."
        )
    return lower
