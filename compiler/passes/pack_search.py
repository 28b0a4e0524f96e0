"""Packs buffers of known sizes into one arena: heuristics, hill climbing, exact search.

Everything works on `Instance`: sizes and live intervals as plain ints, already aligned; the result
is a list of offsets in which no two buffers that are ever live together overlap.  The heuristics
are list orders followed by first fit (Pisarchyk and Lee, "Efficient memory management for deep
neural net inference", arXiv 2001.03288; TVM's unified static memory planner); the exact search
follows the canonical placements of MiniMalloc (Moffitt, ASPLOS 2023).  All deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Instance:
    """`sizes` in bytes, `first` and `last` live step (inclusive); `conflicts[i]`: who overlaps i in
    time; `bound`: the largest sum of sizes live at one step, which no packing can beat.
    """

    sizes: tuple[int, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]
    conflicts: tuple[tuple[int, ...], ...] = field(repr=False)
    bound: int

    @staticmethod
    def of(
        sizes: Sequence[int], first: Sequence[int], last: Sequence[int],
        conflicts: Sequence[Sequence[int]],
    ) -> Instance:  # fmt: skip
        bound = max(live_bytes(sizes, first, last).values(), default=0)
        return Instance(
            tuple(sizes), tuple(first), tuple(last), tuple(map(tuple, conflicts)), bound
        )

    def height(self, offsets: Sequence[int]) -> int:
        return max((o + s for o, s in zip(offsets, self.sizes, strict=True)), default=0)


def find_conflicts(first: Sequence[int], last: Sequence[int]) -> list[list[int]]:
    """For each buffer those whose live interval meets its own; a sweep over starts."""
    conflicts: list[list[int]] = [[] for _ in first]
    live: list[int] = []
    for i in sorted(range(len(first)), key=lambda i: (first[i], i)):
        live = [j for j in live if last[j] >= first[i]]
        for j in live:
            conflicts[i].append(j)
            conflicts[j].append(i)
        live.append(i)
    return conflicts


def live_bytes(sizes: Sequence[int], first: Sequence[int], last: Sequence[int]) -> dict[int, int]:
    """Bytes live at each step at which something starts."""
    events: dict[int, int] = {}
    for size, start, end in zip(sizes, first, last, strict=True):
        events[start] = events.get(start, 0) + size
        events[end + 1] = events.get(end + 1, 0) - size
    total, out = 0, {}
    for step in sorted(events):
        total += events[step]
        out[step] = total
    return out


def first_fit(instance: Instance, order: Sequence[int], best: bool = False) -> list[int]:
    """Places buffers in this order, each at the lowest offset where it fits (`best`: in the
    smallest gap where it fits).
    """
    sizes, offsets = instance.sizes, [-1] * len(instance.sizes)
    for i in order:
        size, at, chosen, room = sizes[i], 0, -1, -1
        for start, end in sorted(
            (offsets[j], offsets[j] + sizes[j]) for j in instance.conflicts[i] if offsets[j] >= 0
        ):
            gap = start - at
            if gap >= size and (room < 0 or gap < room):
                chosen, room = at, gap
                if not best:
                    break
            if end > at:
                at = end
        offsets[i] = at if chosen < 0 else chosen
    return offsets


def heuristic_orders(instance: Instance) -> Iterator[tuple[str, list[int]]]:
    """Named orders, the most successful first."""
    sizes, first, last = instance.sizes, instance.first, instance.last
    every = range(len(sizes))
    yield "greedy by size", sorted(every, key=lambda i: (-sizes[i], first[i], i))
    weight = [sum(sizes[j] for j in c) for c in instance.conflicts]
    yield "greedy by conflict", sorted(every, key=lambda i: (-weight[i] - sizes[i], -sizes[i], i))
    yield "first fit by start", sorted(every, key=lambda i: (first[i], -sizes[i], i))
    yield "first fit by end", sorted(every, key=lambda i: (-last[i], -sizes[i], i))
    yield (
        "greedy by area",
        sorted(every, key=lambda i: (-sizes[i] * (last[i] - first[i] + 1), i)),
    )
    yield (
        "greedy by duration",
        sorted(every, key=lambda i: (first[i] - last[i], -sizes[i], i)),
    )
    yield "greedy by breadth", _breadth_order(instance)


def _breadth_order(instance: Instance) -> list[int]:
    # Steps by live bytes, the fullest first; there the largest buffers first.
    peak = peaks(instance)
    return sorted(range(len(peak)), key=lambda i: (-peak[i], -instance.sizes[i], i))


def peaks(instance: Instance) -> list[int]:
    """For each buffer the most bytes that are live at a step of its life."""
    live = live_bytes(instance.sizes, instance.first, instance.last)
    peak = [0] * len(instance.sizes)
    steps = sorted(live)
    by_start = sorted(range(len(peak)), key=lambda i: instance.first[i])
    active: list[int] = []
    at = 0
    for step in steps:
        while at < len(by_start) and instance.first[by_start[at]] <= step:
            active.append(by_start[at])
            at += 1
        active = [i for i in active if instance.last[i] >= step]
        for i in active:
            peak[i] = max(peak[i], live[step])
    return peak


def subset(instance: Instance, kept: Sequence[int]) -> Instance:
    """The instance of these buffers only, in this order."""
    number = {i: k for k, i in enumerate(kept)}
    return Instance.of(
        [instance.sizes[i] for i in kept],
        [instance.first[i] for i in kept],
        [instance.last[i] for i in kept],
        [[number[j] for j in instance.conflicts[i] if j in number] for i in kept],
    )


def search_packings(instance: Instance, effort: int) -> Iterator[tuple[str, list[int]]]:
    """(method, offsets) of ever dearer searches; the caller stops when one is good enough.

    Hard steps are few in most graphs: the buffers that are live when memory is nearly full are
    packed first, by themselves, and the others go around them.
    """
    peak = peaks(instance)
    hot: list[int] = []
    for percent in (97, 85, 60, 0):
        kept = [i for i, p in enumerate(peak) if p * 100 >= instance.bound * percent]
        if len(kept) == len(hot):
            continue
        hot = kept
        order: list[int] = []
        methods: dict[str, None] = {}
        for group in _groups(instance, hot):
            part = subset(instance, group)
            method, offsets = _best_packing(part, instance.bound, effort)
            methods[method] = None
            order += [group[k] for k in sorted(range(len(group)), key=lambda k: (offsets[k], k))]
        rest = sorted(set(range(len(peak))) - set(hot), key=lambda i: (-instance.sizes[i], i))
        yield f"{' and '.join(methods)} of {len(hot)} hot", first_fit(instance, [*order, *rest])


def _groups(instance: Instance, kept: Sequence[int]) -> list[list[int]]:
    """The buffers split where no two of them meet in time."""
    groups: list[list[int]] = []
    end = -1
    for i in sorted(kept, key=lambda i: (instance.first[i], i)):
        if not groups or instance.first[i] > end:
            groups.append([])
        groups[-1].append(i)
        end = max(end, instance.last[i])
    return groups


def _best_packing(instance: Instance, goal: int, effort: int) -> tuple[str, list[int]]:
    best: tuple[str, list[int]] | None = None
    height = 0
    for method, offsets in _search_part(instance, goal, effort):
        reached = instance.height(offsets)
        if best is None or reached < height:
            best, height = (method, offsets), reached
        if height <= goal:
            break
    assert best is not None
    return best


def _search_part(instance: Instance, goal: int, effort: int) -> Iterator[tuple[str, list[int]]]:
    starts: list[tuple[int, str, list[int], list[int]]] = []
    for method, order in heuristic_orders(instance):
        offsets = first_fit(instance, order)
        starts.append((instance.height(offsets), method, order, offsets))
        if starts[-1][0] <= goal:
            yield method, offsets
            return
    starts.sort(key=lambda s: s[0])
    for percent in (0, 1, 2):
        capacity = goal + goal * percent // 100
        if starts[0][0] <= capacity:
            break
        found = exact_search(instance, capacity, effort // 40)
        if found is not None:
            yield "exact search", found
            break
    for _, method, order, offsets in starts[:3]:
        yield f"hill climbing from {method}", hill_climb(instance, order, offsets, effort)[1]


class _Generator:
    """A small deterministic random generator (xorshift64*, Vigna 2016), equal on every platform."""

    def __init__(self) -> None:
        self._state = 0x9E3779B97F4A7C15

    def below(self, n: int) -> int:
        x = self._state
        x ^= x >> 12
        x = (x ^ (x << 25)) & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 27
        self._state = x
        return ((x * 0x2545F4914F6CDD1D) & 0xFFFFFFFFFFFFFFFF) % n


def hill_climb(
    instance: Instance, order: Sequence[int], offsets: Sequence[int], work: int = 400_000
) -> tuple[list[int], list[int]]:
    """(order, offsets) after moving buffers at the top, and their neighbours, earlier in the order
    while that lowers the arena.  `work` bounds the placements, counted in conflicts looked at.
    """
    rng = _Generator()
    pairs = sum(map(len, instance.conflicts)) + len(order)
    best_order, best = list(order), list(offsets)
    height = instance.height(best)
    current, current_offsets, current_height = best_order, best, height
    for _ in range(min(max(work // max(pairs, 1), 8), 2000)):
        if height <= instance.bound:
            break
        top = [
            i
            for i, size in enumerate(instance.sizes)
            if current_offsets[i] + size == current_height and size
        ]
        moved = top[rng.below(len(top))]
        near = instance.conflicts[moved]
        if near and rng.below(2):  # a buffer below the top one, perhaps
            moved = near[rng.below(len(near))]
        at = current.index(moved)
        trial = current[:]
        del trial[at]
        # Nearly always toward the front, where it gets a lower place.
        trial.insert(rng.below(at + 1) if rng.below(8) else rng.below(len(trial) + 1), moved)
        placed = first_fit(instance, trial)
        reached = instance.height(placed)
        # Equal heights are accepted, so that plateaus are crossed.
        if reached <= current_height:
            current, current_offsets, current_height = trial, placed, reached
            if reached < height:
                best_order, best, height = trial, placed, reached
    return best_order, best


def exact_search(instance: Instance, capacity: int, nodes: int = 20_000) -> list[int] | None:
    """Offsets within `capacity`, or None when there are none or `nodes` placements were tried.

    Depth first over placements in order of non-decreasing offset: every packing pushed down has
    this form.  A partial placement is dropped when some step cannot hold what is still to come,
    or when an unplaced buffer would fit wholly below the place just taken.
    """
    count = len(instance.sizes)
    sizes, conflicts = instance.sizes, instance.conflicts
    # Sections: maximal runs of steps with the same live set.
    starts = sorted({*instance.first, *(end + 1 for end in instance.last)})
    index = {step: k for k, step in enumerate(starts)}
    spans = [
        range(index[f], index[e + 1]) for f, e in zip(instance.first, instance.last, strict=True)
    ]
    left = [0] * len(starts)  # bytes not placed yet, by section
    for i in range(count):
        for k in spans[i]:
            left[k] += sizes[i]
    if max(left, default=0) > capacity:
        return None
    floor = [0] * len(starts)  # the lowest free offset that canonical placement may still use
    offsets = [-1] * count
    lowest = [0] * count
    budget = nodes

    def search(placed: int, level: int) -> bool:
        nonlocal budget
        if placed == count:
            return True
        open_ones = [i for i in range(count) if offsets[i] < 0]
        ceiling = min(max(lowest[i], level) + sizes[i] for i in open_ones)
        # Candidates at or above the level; those that start where another would fit below lose.
        ready = [
            (max(lowest[i], level), -sizes[i] * len(spans[i]), i)
            for i in open_ones
            if max(lowest[i], level) < ceiling or sizes[i] == 0
        ]
        ready.sort()
        tried: set[tuple[int, int, range]] = set()
        for at, _, i in ready:
            if at + sizes[i] > capacity:
                continue
            twin = (at, sizes[i], spans[i])
            if twin in tried:
                continue
            tried.add(twin)
            budget -= 1
            if budget < 0:
                return False
            saved_floor = [floor[k] for k in spans[i]]
            offsets[i] = at
            for k in spans[i]:
                floor[k] = at + sizes[i]
                left[k] -= sizes[i]
            changed = [(j, lowest[j]) for j in conflicts[i] if offsets[j] < 0]
            for j, _ in changed:
                lowest[j] = max(lowest[j], at + sizes[i])
            fits = all(max(floor[k], at) + left[k] <= capacity for k in range(len(left)) if left[k])
            if fits and search(placed + 1, at):
                return True
            for j, old in changed:
                lowest[j] = old
            for k, old in zip(spans[i], saved_floor, strict=True):
                floor[k] = old
                left[k] += sizes[i]
            offsets[i] = -1
            if budget < 0:
                return False
        return False

    if count > 400:  # deeper than Python recurses comfortably
        return None
    return offsets if search(0, 0) else None
