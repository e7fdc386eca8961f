"""Known wrong bills, and caches that are kept or shared the wrong way (07, 08)."""

import inspect
import math

import numpy as np

from mha_lib.checks.known import returns
from mha_lib.checks.structure import same
from mha_lib.numpy_attention import attention, merge_heads, split_heads

# ------------------------------------------------------------------ numbers: FLOPs, bytes, words

FLOPS = {
    "half-the-flops": [lambda n, d, h: 4 * n * d * d + 2 * n * n * d],
    "W_O-forgotten": [lambda n, d, h: 6 * n * d * d + 4 * n * n * d],
    "half-the-square": [lambda n, d, h: 8 * n * d * d + 2 * n * n * d],
    "causal-unasked": [lambda n, d, h: 8 * n * d * d + 2 * n * (n + 1) * d],
    "square-only": [lambda n, d, h: 4 * n * n * d],
    "projections-only": [lambda n, d, h: 8 * n * d * d],
    "n-not-squared": [lambda n, d, h: 8 * n * d * d + 4 * n * d],
    "times-h": [lambda n, d, h: 8 * n * d * d + 4 * h * n * n * d, lambda n, d, h: 8 * h * n * d * d + 4 * n * n * d,
                lambda n, d, h: 8 * h * n * d * d + 4 * h * n * n * d],
    "one-head-counted": [lambda n, d, h: 8 * n * d * d + 4 * n * n * (d // h),
                         lambda n, d, h: 8 * n * d * (d // h) + 4 * n * n * (d // h),
                         lambda n, d, h: 8 * n * d * (d // h) + 4 * n * n * d],
    "per-token": [lambda n, d, h: 8 * d * d + 4 * n * d, lambda n, d, h: 8 * d * d],
    "parameters": [lambda n, d, h: 4 * d * d],
    "one-addition-fewer": [lambda n, d, h: 4 * n * d * (2 * d - 1) + n * n * (2 * d - h) + n * d * (2 * n - 1)],
    "biases-counted": [lambda n, d, h: 8 * n * d * d + 4 * n * n * d + 4 * n * d,
                       lambda n, d, h: 8 * n * d * d + 4 * n * n * d + 4 * d],
}


ELSEWHERE = dict(n=2, d=15, h=3, layers=7, itemsize=11, batch=5, memory=10**7, parameters=3)    # factors


def bills(table):
    """Diagnoses: does a wrong bill come to the same, here and for other sizes? One number may agree by chance."""
    def diagnosis(functions):
        def asks(trial):
            args = {name: x * ELSEWHERE.get(name, 1) for name, x in trial.args.items()}
            alike = [wrong for wrong in functions if returns(wrong, trial)]
            return bool(alike) and any(same(*trial.ask(args).values(), wrong(*args.values())) for wrong in alike)
        return asks
    return {name: diagnosis(functions) for name, functions in table.items()}


def softmax_added(trial):
    """The right number, and a few operations for each score."""
    n, _, h = trial.args.values()
    each = (trial.result - trial.want["flops"]) / (h * n * n)
    return each in range(1, 11) and {"each": int(each)}


def other_factors(trial):
    """a n d d + b n n d with other numbers a and b than 8 and 4."""
    n, d, _ = trial.args.values()
    one, two, three = (float(trial.ask(trial.args | {"n": times * n})["flops"]) for times in (1, 2, 3))
    b = (two - 2 * one) / (2 * n * n * d)
    a = one / (n * d * d) - b * n / d
    if np.isclose(3 * n * a * d * d + 9 * n * n * b * d, three) and (np.round([a, b], 6) % 1 == 0).all():
        wrong = [part for part, right in (("first", round(a) == 8), ("second", round(b) == 4)) if not right]
        which = f"the {wrong[0]} part is wrong" if len(wrong) == 1 else "both parts are wrong"
        return {"a": f"{a:.0f}", "b": f"{b:.0f}", "which": which}


def cache(n, d, h, layers, itemsize, kv_heads, sides=2):
    """Bytes of the caches of n words; sides: keys and values."""
    return sides * layers * kv_heads * n * (d // h) * itemsize


def longest(memory, parameters, d, h, layers, itemsize, kv_heads, batch, sides=2):
    """Words of the longest text whose caches fit beside the model."""
    left = memory - parameters * itemsize
    return max(0, left // (batch * cache(1, d, h, layers, itemsize, kv_heads, sides)))


def _with(bill, **other):
    """The bill with other values of some sizes: a number, or the name of the size that is taken instead."""
    def wrong(*args):
        sizes = dict(zip(inspect.signature(bill).parameters, args, strict=False))
        return bill(**sizes | {name: sizes.get(x, x) for name, x in other.items()})
    return wrong


CACHE = {
    "one-of-two": [_with(cache, sides=1)],
    "layers-forgotten": [_with(cache, layers=1)],
    "kv-heads-ignored": [_with(cache, kv_heads="h")],
    "full-width": [_with(cache, h=1), _with(cache, h=1, kv_heads="h")],
    "width-of-a-group": [_with(cache, h="kv_heads", kv_heads="h")],
    "one-side-shared": [lambda n, d, h, layers, itemsize, kv_heads: layers * n * (d // h) * itemsize * (h + kv_heads)],
    "one-head-counted": [_with(cache, kv_heads=1)],
    "plus-for-times": [lambda n, d, h, layers, *rest: cache(n, d, h, 1, *rest) + layers,
                       lambda n, d, h, layers, itemsize, kv_heads: cache(n, d, h, layers, 1, kv_heads) + itemsize,
                       lambda n, d, h, layers, itemsize, kv_heads: cache(n, d, h, layers, itemsize, 1) + kv_heads],
    "numbers-not-bytes": [_with(cache, itemsize=1)],
    "queries-counted": [_with(cache, sides=3), lambda n, d, h, layers, itemsize, kv_heads:
                        layers * n * (d // h) * itemsize * (2 * kv_heads + h)],
    "n-squared": [lambda n, *rest: n * cache(n, *rest),
                  lambda n, d, h, layers, itemsize, kv_heads: layers * h * n * n * itemsize],
}


def other_unit(trial):
    units = {8: "bits", **{1 / base ** power: f"units of {base:,} ** {power}"
                           for base in (1000, 1024) for power in (1, 2, 3)}}
    return next(({"unit": unit} for factor, unit in units.items() if np.isclose(
        float(trial.result), factor * float(trial.want["bytes"]), rtol=1e-9)), None)


def _rounded(fit):
    """longest with another way to a whole number."""
    return lambda memory, parameters, d, h, layers, itemsize, kv_heads, batch: fit(
        (memory - parameters * itemsize) / (batch * cache(1, d, h, layers, itemsize, kv_heads)))


LONGEST = {
    "model-forgotten": [_with(longest, parameters=0)],
    "one-of-two": [_with(longest, sides=1)],
    "batch-forgotten": [_with(longest, batch=1)],
    "layers-forgotten": [_with(longest, layers=1)],
    "kv-heads-ignored": [_with(longest, kv_heads="h")],
    "full-width": [_with(longest, h=1), _with(longest, h=1, kv_heads="h")],
    "parameters-not-bytes": [lambda memory, parameters, *rest: longest(memory - parameters, 0, *rest)],
    "numbers-not-bytes": [_with(longest, itemsize=1),
                          lambda memory, parameters, d, h, layers, itemsize, *rest:
                          longest(memory - parameters * itemsize, 0, d, h, layers, 1, *rest)],
    "rounded-up": [_rounded(math.ceil), _rounded(round)],
    "gibibytes": [lambda memory, *rest: longest(memory * 2**30 // 10**9, *rest),
                  lambda memory, *rest: longest(memory * 10**9 // 2**30, *rest)],
}


def not_whole(trial):
    """The right number, before it was cut or as a float."""
    close = abs(trial.result - next(iter(trial.want.values()))) < 1
    return trial.result.dtype.kind == "f" and close and {"got": float(trial.result)}


def negative(trial):
    return trial.result < 0 and {"got": float(trial.result)}


def _doubled(trial, name):
    """(mine moves, the right one moves) when one size is twice as large."""
    args = trial.args | {name: 2 * trial.args[name]}
    (mine,), (due,) = trial.ask(args).values(), trial.due(args).values()
    return not same(mine, trial.result), not same(due, next(iter(trial.want.values())))


def _sizes_where(fits):
    def diagnosis(trial):
        names = [name for name in trial.args if fits(*_doubled(trial, name))]
        return bool(names) and {"names": ", ".join(names)}
    return diagnosis


def times_a_number(trial):
    """The right number times a constant, whichever of the sizes changes."""
    factors = []
    for name in (None, *trial.args):
        args = {other: x * (1 + (other == name)) for other, x in trial.args.items()}
        (mine,), (due,) = trial.ask(args).values(), trial.due(args).values()
        factors.append(float(mine) / float(due))
    return factors[0] > 0 and np.allclose(factors, factors[0], rtol=1e-6) and {"factor": f"{factors[0]:.4g}"}


BILL = {
    "size-ignored": _sizes_where(lambda moves, should: should and not moves),
    "size-counted": _sizes_where(lambda moves, should: moves and not should),
    "times-a-number": times_a_number,
}

# ------------------------------------------------------------------ the cache itself


def _both(join):
    return lambda keys, values, K, V: (join(keys, K), join(values, V))


def _overwritten(places):
    """The past with the new words at places(n) instead of after it."""
    def join(past, new):
        past = past.copy()
        past[:, :, places(new.shape[2])] = new
        return past
    return join


APPEND = {
    "new-words-first": [_both(lambda past, new: np.concatenate([new, past], axis=2))],
    "only-the-new": [_both(lambda past, new: new)],
    "keys-with-values": [lambda keys, values, K, V: (np.concatenate([keys, values], axis=2),
                                                     np.concatenate([K, V], axis=2))],
    "summed": [_both(lambda past, new: past + new)],
    "nothing-appended": [_both(lambda past, new: past)],
    "one-grows": [lambda keys, values, K, V: (np.concatenate([keys, K], axis=2), values),
                  lambda keys, values, K, V: (np.concatenate([keys, K], axis=2), V)],
    "overwritten": [_both(_overwritten(lambda n: slice(n))), _both(_overwritten(lambda n: slice(-n, None)))],
}


def joined_elsewhere(trial):
    """Put together along another axis than that of the words."""
    keys, _, K, _ = trial.args.values()
    for axis, what in {0: "the batch", 1: "the heads", 3: "d_k"}.items():
        if keys.shape[:axis] + keys.shape[axis + 1:] == K.shape[:axis] + K.shape[axis + 1:]:
            if same(trial.got["keys"], np.concatenate([keys, K], axis=axis)):
                return {"axis": what}


def unused_slots(trial):
    """All is there, and more: slots that no word has filled."""
    got, want = trial.got["keys"], trial.want["keys"]
    words = want.shape[2]
    more = got.shape[2] - words
    return more > 0 and same(got[:, :, :words], want) and {"more": more, "words": words}


def _step(use=lambda keys, values, K, V: (keys, values), keep=lambda past, new: np.concatenate([past, new], axis=2),
          mix=lambda concat, x, W_O: concat @ W_O):
    """One decode step that reads use(keys, values, new keys, new values) of what keep made."""
    def wrong(x, W_Q, W_K, W_V, W_O, keys, values):
        Q, K, V = (split_heads(x @ W, keys.shape[1]) for W in (W_Q, W_K, W_V))
        keys, values = keep(keys, K), keep(values, V)
        return mix(merge_heads(attention(Q, *use(keys, values, K, V))[0]), x, W_O), keys, values
    return wrong


STEP = {
    "no-W_O": [_step(mix=lambda concat, x, W_O: concat)],
    "W_O-transposed": [_step(mix=lambda concat, x, W_O: concat @ W_O.T)],
    "step-around": [_step(mix=lambda concat, x, W_O: concat @ W_O + x)],
    "new-word-unseen": [_step(lambda keys, values, K, V: (keys[:, :, :-1], values[:, :, :-1]))],
    "only-itself": [_step(lambda keys, values, K, V: (K, V))],
    "keys-as-values": [_step(lambda keys, values, K, V: (keys, keys))],
    "top-left-aligned": [_step(lambda keys, values, K, V: (keys[:, :, :1], values[:, :, :1]))],
    "new-words-first": [_step(keep=lambda past, new: np.concatenate([new, past], axis=2))],
    "only-the-new": [_step(use=lambda keys, values, K, V: (K, V), keep=lambda past, new: new)],
}


def kept_wrong(trial):
    """The output is right, and what is kept is the new word alone, or the past alone."""
    new = {name: x[:, :, -1:] for name, x in trial.want.items() if name != "output"}
    past = {name: x[:, :, :-1] for name, x in trial.want.items() if name != "output"}
    if same(trial.got["output"], trial.want["output"]):
        for kept, words in (("the new word alone", new), ("the past alone", past)):
            if all(same(trial.got[name], x) for name, x in words.items()):
                return {"kept": kept}


EXPAND = {
    "tiled": [lambda K, h: np.tile(K, (1, h // K.shape[1], 1, 1))],
    "divided-by-kv-heads": [lambda K, h: K[:, np.arange(h) // K.shape[1]]],
    "first-head-only": [lambda K, h: np.repeat(K[:, :1], h, axis=1)],
    "repeated-h-times": [lambda K, h: np.repeat(K, h, axis=1)],
}


def repeated_elsewhere(trial):
    K, h = trial.args.values()
    times = h // K.shape[1]
    for axis, what in {0: "the batch", 2: "the words", 3: "d_k"}.items():
        if same(trial.result, np.repeat(K, times, axis=axis)):
            return {"axis": what}
