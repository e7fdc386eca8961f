"""Wrong functions that people really write, one id each, and what to tell whoever wrote one.

Each dict belongs to one exercise: id -> (wrong functions with the same outputs or the same cause, message). A function
here stands only where the result alone, in structure.py, does not already give the mistake away.
"""

import numpy as np

from mha_lib import layers
from mha_lib.checks.structure import same
from mha_lib.numpy_attention import attention as attend
from mha_lib.numpy_attention import attention_scores as scaled_scores
from mha_lib.numpy_attention import causal_mask as future_hidden
from mha_lib.numpy_attention import merge_heads as merge
from mha_lib.numpy_attention import softmax as shares
from mha_lib.numpy_attention import split_heads as split


def diagnoses(table):
    """Turn a table of wrong functions into diagnoses: does one of them return what the answer returned?"""
    return {name: _same_as(functions, message) for name, (functions, message) in table.items()}


def _same_as(functions, message):
    def diagnosis(trial):
        return message if any(_returns(wrong, trial) for wrong in functions) else None
    return diagnosis


def _returns(wrong, trial):
    try:
        result = wrong(*trial.args.values())
    except (ValueError, IndexError, np.linalg.LinAlgError):     # this wrong function stops on these sizes
        return False
    parts = result if len(trial.returns) > 1 else [result]
    return all(same(trial.got[name], part) for name, part in zip(trial.returns, parts, strict=True))


# ------------------------------------------------------------------ 01 projections

PROJECT = {
    "transposed-weight": ([lambda X, *W: [X @ w.T for w in W], lambda X, *W: [(w @ X.T).T for w in W]],
                          "You multiply by the transposed matrices. All shapes stay right, because the matrices are square, but "
                          "the numbers are others. Rows are tokens here: which side of X does the matrix stand on, and as it is?"),
    "no-projection": ([lambda X, *W: [X, X, X]], "Q, K and V are all X itself. Then a word asks for exactly what it offers. "
                      "Each of the three sees X through its own matrix."),
}


def reused_projection(trial):
    names = list(trial.got)
    for i, a in enumerate(names):
        for b in names[i + 1:]:
            if same(trial.got[a], trial.got[b]) and not same(trial.want[a], trial.want[b]):
                return (f"{a} and {b} came out equal: one matrix was used for both. Asking, being found and handing over are "
                        "three roles. Look for a line that was copied and not changed everywhere.")


LINEAR = {
    "not-transposed": ([lambda weight: weight], "You return the weight as it is stored, (out, in). For a square one X @ weight runs "
                       "without any error and is wrong. Rows of X have length in: which axis must they meet?"),
    "reshaped": ([lambda weight: weight.reshape(weight.shape[::-1])], "The shape is right and the numbers are in the wrong places: "
                 "a reshape keeps the order in memory and cuts it anew. You need rows to become columns."),
}

COUNT = {
    "W_O-forgotten": ([lambda d, h: 3 * d * d], "You counted three matrices. They make Q, K and V; after the heads are put "
                      "together, one more matrix mixes them."),
    "times-h": ([lambda d, h: 4 * d * d * h, lambda d, h: 3 * d * d * h], "Your count grows with h. Heads share the columns of one "
                "(d, d) matrix: each gets d / h of them, so more heads means narrower heads, not more numbers."),
    "biases-counted": ([lambda d, h: 4 * d * d + 4 * d], "You counted the biases too. Here, as in the original paper, there are "
                       "none: only matrices."),
    "one-matrix": ([lambda d, h: d * d], "That is one matrix. How many does the sublayer have, from X to its output?"),
    "one-head-only": ([lambda d, h: 4 * d * d // h, lambda d, h: 3 * d * d // h], "That is the share of one head. All h heads "
                      "together have h times as many."),
    "sliced-input": ([lambda d, h: 4 * (d // h) ** 2, lambda d, h: 3 * (d // h) ** 2, lambda d, h: 4 * h * (d // h) ** 2 + 0 * d],
                     "You counted (d_k, d_k) matrices, as if a head read only its own slice of X. Each head reads all d columns "
                     "of X and writes d_k."),
}

# ------------------------------------------------------------------ 02 scores

SCORES = {
    "reshaped": ([lambda Q, K: scaled_scores(Q, K.reshape(K.shape[::-1]).T), lambda Q, K: Q @ K.reshape(K.shape[::-1])],
                 "The keys were turned with a reshape. It gives the right shape and mixes the keys: its columns hold pieces of "
                 "several. Entry (i, j) should be query i against the whole of key j."),
    "cosine": ([lambda Q, K: _unit(Q) @ _unit(K).T, lambda Q, K: scaled_scores(_unit(Q), _unit(K))],
               "You divide each query and key by its own length. Then all scores lie between -1 and 1 and a strong query cannot "
               "be sharper than a weak one. Here one number, the same for all, divides."),
    "softmax-included": ([lambda Q, K: shares(scaled_scores(Q, K)), lambda Q, K: shares(Q @ K.T)], "These are the shares already: "
                         "rows sum to 1. Asked are the scores before the softmax, which may be negative."),
}


def _unit(X):
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def _plain_softmax(s, axis=-1):
    exps = np.exp(s)
    return exps / exps.sum(axis=axis, keepdims=True)


SOFTMAX = {
    "no-keepdims": ([lambda s: np.exp(s) / np.exp(s).sum(axis=-1)], "Row i should be divided by its own sum, but column j is divided "
                    "by the sum of row j. Summing drops an axis, and the sums then line up with the columns. Look at the sum's shape."),
    "max-of-columns": ([lambda s: shares(s - s.max(axis=0, keepdims=True)), lambda s: shares(s - s.max(axis=-1))],
                       "What you subtract differs within a row, so it changes the shares. Only one number for the whole row may "
                       "go, such as the row's own maximum."),
    "not-normalised": ([lambda s: np.exp(s), lambda s: np.exp(s - s.max(axis=-1, keepdims=True)), lambda s: np.exp(s - s.max())],
                       "These are the exponentials alone: positive, but rows do not sum to 1. One step is missing to turn them "
                       "into shares."),
    "logarithm": ([lambda s: np.log(_plain_softmax(s))], "These are the logarithms of the shares: all negative. Asked are the shares, "
                  "from 0 to 1."),
    "one-by-one": ([lambda s: 1 / (1 + np.exp(-s))], "Each score is squashed by itself, without looking at the others in its row, "
                   "so a row does not sum to 1. A share depends on the whole row."),
}


def global_maximum(trial):
    """On large scores only: rows far below the largest score come out as 0 / 0."""
    got = next(iter(trial.got.values()))
    if trial.spread > 1 and np.isnan(got).any() and not np.isnan(got).all(axis=-1).any() | np.isnan(got[0]).any():
        return None
    if trial.spread > 1 and np.isnan(got).any() and not np.isnan(got[0]).any():
        return ("Right on small scores; on large ones, rows far below the overall maximum come out as 0 / 0. What is subtracted "
                "may differ from row to row, so take it from the row itself.")


def other_base(trial):
    from mha_lib.checks.structure import Seen, divisor
    found = divisor(Seen(trial.args["scores"], weights=next(iter(trial.got.values())))) if trial.spread == 1 else None
    if found is not None and not np.isclose(found, 1):
        return (f"Your shares are those of the scores divided by {found:.4g}. Softmax takes the scores as they come; the scale is "
                "a step of its own, and the base of the power is e.")


ATTENTION = {
    "keys-as-values": ([lambda Q, K, V: (shares(scaled_scores(Q, K)) @ K, shares(scaled_scores(Q, K)))],
                       "The weights are right, and then they mix the keys. A key says how a word is found; what it hands over is "
                       "another row. Look at the last product."),
    "queries-as-values": ([lambda Q, K, V: (shares(scaled_scores(Q, K)) @ Q, shares(scaled_scores(Q, K)))],
                          "The weights are right, and then they mix the queries. What does a word hand over when it is read? "
                          "Look at the last product."),
    "summed-over-queries": ([lambda Q, K, V: (shares(scaled_scores(Q, K)).T @ V, shares(scaled_scores(Q, K)))],
                            "The weights are right, but the values are summed over the queries: column j of the weights is used "
                            "where row i should be. It only runs because there are as many queries as keys."),
    "no-keepdims": ([lambda Q, K, V: _from_weights(SOFTMAX["no-keepdims"][0][0](scaled_scores(Q, K)), V)],
                    SOFTMAX["no-keepdims"][1]),
}


def _from_weights(weights, V):
    return weights @ V, weights


def outside_the_values(trial):
    """A weighted mean stays between the smallest and the largest of what it is a mean of."""
    V, output = trial.args.get("V"), trial.got["output"]
    low, high = V.min(axis=-2, keepdims=True), V.max(axis=-2, keepdims=True)
    if (output < low - 1e-9).any() or (output > high + 1e-9).any():
        return ("Some outputs lie outside the range of their column of V. A weighted mean cannot: so what you sum is not V with "
                "shares that add up to 1. Look at the last product.")


# ------------------------------------------------------------------ 04 heads

SPLIT = {
    "split-by-reshape": ([lambda X, h: X.reshape(h, X.shape[0], -1)], "The shape is right, but a head now holds whole words cut in "
                         "pieces: a reshape keeps the order in memory and cuts it anew. Each head should have *its columns* of "
                         "every word. Which step moves an axis without reading the numbers in a new order?"),
    "every-h-th-column": ([lambda X, h: np.stack([X[:, a::h] for a in range(h)])], "Each head has every h-th column. Asked are "
                          "neighbouring ones: head 0 the first d_k, head 1 the next d_k. Look at the order of h and d_k."),
    "heads-reversed": ([lambda X, h: split(X, h)[::-1]], "The heads are right but in reverse order. Head 0 has the first d_k columns."),
}

MERGE = {
    "merge-by-reshape": ([lambda heads: heads.reshape(heads.shape[1], -1)], "The shape is right, but row 0 now holds the first words "
                         "of head 0 one after the other: a reshape keeps the order in memory. A row should hold *one* word, head "
                         "by head. Which axis must move first?"),
    "every-h-th-column": ([lambda heads: heads.transpose(1, 2, 0).reshape(heads.shape[1], -1)], "The columns of the heads are shuffled "
                          "like cards: first column of each head, then the second. Asked are the heads side by side, each in one piece."),
    "heads-reversed": ([lambda heads: merge(heads[::-1])], "The heads are side by side, but the last one comes first."),
}


def scrambled(trial):
    """Every number is there, in another place: say where the first wrong one came from."""
    (part, got), = trial.got.items()
    want, source_name = trial.want[part], next(iter(trial.args))
    source = trial.args[source_name]
    if np.array_equal(np.sort(got, axis=None), np.sort(want, axis=None)):
        at = tuple(map(int, np.argwhere(got != want)[0]))
        came, due = (tuple(map(int, np.argwhere(source == x[at])[0])) for x in (got, want))
        return (f"All the numbers are there, but not in their places. Entry {list(at)} should be {source_name}{list(due)} and "
                f"is {source_name}{list(came)}. Write the axes down after each step.")


def _columns(W, a, h):
    d_k = W.shape[1] // h
    return W[:, a * d_k:(a + 1) * d_k]


def _one_head(Q, K, V):
    return attend(Q, K, V)[0]


ONE_HEAD = {
    "next-head": ([lambda X, W_Q, W_K, W_V, a, h: _one_head(*(X @ _columns(W, (a + 1) % h, h) for W in (W_Q, W_K, W_V))),
                   lambda X, W_Q, W_K, W_V, a, h: _one_head(*(X @ _columns(W, (a - 1) % h, h) for W in (W_Q, W_K, W_V)))],
                  "This is the output of a neighbouring head: heads count from 0. Look at where the slice of columns begins."),
    "every-h-th-column": ([lambda X, W_Q, W_K, W_V, a, h: _one_head(*(X @ W[:, a::h] for W in (W_Q, W_K, W_V)))],
                          "You take every h-th column. A head has d_k neighbouring columns, from a * d_k on."),
    "sliced-input": ([lambda X, W_Q, W_K, W_V, a, h: _one_head(*(_columns(X, a, h) @ _columns(W, a, h)[_rows(W, a, h)]
                                                                 for W in (W_Q, W_K, W_V)))],
                     "Your head reads only its slice of X. A head reads *all* d columns of X and writes d_k: the matrix is cut by "
                     "columns, X is not cut."),
    "transposed-weight": ([lambda X, W_Q, W_K, W_V, a, h: _one_head(*(X @ _columns(W.T, a, h) for W in (W_Q, W_K, W_V)))],
                          "You take the head's *rows* of the matrices. Rows are tokens here, so what comes out is decided by the "
                          "columns of W."),
    "scores-of-all-heads": ([lambda X, W_Q, W_K, W_V, a, h: _columns(_one_head(X @ W_Q, X @ W_K, X @ W_V), a, h),
                             lambda X, W_Q, W_K, W_V, a, h: attend(X @ W_Q, X @ W_K, X @ _columns(W_V, a, h),
                                                                   scale=(len(W_Q) // h) ** -0.5)[0]],
                            "The scores were made from all d columns, so every head would get the same weights. A head compares "
                            "its own d_k columns of Q and K. Cut before the scores, not after."),
    "keys-as-values": ([lambda X, W_Q, W_K, W_V, a, h: _one_head(*(X @ _columns(W, a, h) for W in (W_Q, W_K, W_K)))],
                       "Your head hands over its keys. Being found and handing over are two roles, with two matrices: look at "
                       "which one makes V."),
    "reused-projection": ([lambda X, W_Q, W_K, W_V, a, h: _one_head(*(X @ _columns(W, a, h) for W in (W_K, W_K, W_V))),
                           lambda X, W_Q, W_K, W_V, a, h: _one_head(*(X @ _columns(W, a, h) for W in (W_Q, W_Q, W_V)))],
                          "Queries and keys were made with the same matrix, so i scores j exactly as j scores i. Look for a line "
                          "that was copied and not changed everywhere."),
}


def _rows(W, a, h):
    d_k = W.shape[0] // h
    return slice(a * d_k, (a + 1) * d_k)


# ------------------------------------------------------------------ 05 the whole layer

def layer(X, W_Q, W_K, W_V, W_O, h, cut=split, join=merge, mask=None):
    """The sublayer with exchangeable parts, to build wrong ones from."""
    Q, K, V = (cut(X @ W, h) for W in (W_Q, W_K, W_V))
    return join(attend(Q, K, V, mask)[0]) @ W_O


def _cut_by_reshape(X, h):
    return X.reshape(*X.shape[:-2], h, X.shape[-2], -1)


def _join_by_reshape(heads):
    *batch, h, n, d_k = heads.shape
    return heads.reshape(*batch, n, h * d_k)


def _cut_every_hth(X, h):
    return X.reshape(*X.shape[:-1], -1, h).swapaxes(-1, -3).swapaxes(-1, -2)


def _join_every_hth(heads):
    return np.moveaxis(heads, -3, -1).reshape(*heads.shape[:-3], heads.shape[-2], -1)


def _mean_weights(X, W_Q, W_K, W_V, W_O, h):
    Q, K, V = (split(X @ W, h) for W in (W_Q, W_K, W_V))
    return merge(attend(Q, K, V)[1].mean(axis=-3, keepdims=True) @ V) @ W_O


LAYER = {
    "no-W_O": ([lambda *a: layer(*a[:4], np.eye(len(a[4])), a[5])], "Your output is the heads side by side: W_O is missing at the end, "
               "or its result is not what you return. Each head then stays in its own columns and heads never mix."),
    "split-by-reshape": ([lambda *a: layer(*a, cut=_cut_by_reshape)], SPLIT["split-by-reshape"][1]),
    "merge-by-reshape": ([lambda *a: layer(*a, join=_join_by_reshape)], MERGE["merge-by-reshape"][1]),
    "split-and-merge-by-reshape": ([lambda *a: layer(*a, cut=_cut_by_reshape, join=_join_by_reshape)], "Splitting and merging undo "
                                   "each other, but a reshape alone never moved the head axis: a head attends among pieces of a "
                                   "few words. Each head should have *its columns* of every word."),
    "every-h-th-column": ([lambda *a: layer(*a, cut=_cut_every_hth), lambda *a: layer(*a, join=_join_every_hth),
                           lambda *a: layer(*a, cut=_cut_every_hth, join=_join_every_hth)], SPLIT["every-h-th-column"][1]),
    "one-head-only": ([lambda *a: layer(*a[:5], 1)], "This is one head of full width: h makes no difference. One head gives one "
                      "blend per word; h heads give h blends, each from its own columns."),
    "residual-added": ([lambda *a: a[0] + layer(*a)], "X was added to the result. The residual connection is a step around this "
                       "layer, not in it."),
    "heads-averaged": ([_mean_weights], "All heads use the same weights, the mean over the heads. Each head keeps its own n x n "
                       "weights; what one looks for must not wash out the other."),
    "transposed-weight": ([lambda X, W_Q, W_K, W_V, W_O, h: layer(X, W_Q.T, W_K.T, W_V.T, W_O, h),
                           lambda X, W_Q, W_K, W_V, W_O, h: layer(X, W_Q.T, W_K.T, W_V.T, W_O.T, h)], PROJECT["transposed-weight"][1]),
    "W_O-transposed": ([lambda X, W_Q, W_K, W_V, W_O, h: layer(X, W_Q, W_K, W_V, W_O.T, h)], "All is right up to the heads side by "
                       "side; then W_O is used transposed. Its shape is square, so nothing complains. Rows are tokens: as X @ W_Q."),
    "keys-as-values": ([lambda X, W_Q, W_K, W_V, W_O, h: layer(X, W_Q, W_K, W_K, W_O, h)], ONE_HEAD["keys-as-values"][1]),
    "keys-values-swapped": ([lambda X, W_Q, W_K, W_V, W_O, h: layer(X, W_Q, W_V, W_K, W_O, h)], "Keys and values have changed places: "
                            "W_V makes what is compared, W_K what is handed over. Look at the order in which the three come back."),
    "reused-projection": ([lambda X, W_Q, W_K, W_V, W_O, h: layer(X, W_K, W_K, W_V, W_O, h),
                           lambda X, W_Q, W_K, W_V, W_O, h: layer(X, W_Q, W_Q, W_V, W_O, h)], ONE_HEAD["reused-projection"][1]),
    "sliced-input": ([lambda X, W_Q, W_K, W_V, W_O, h: layer(X, *(W * np.kron(np.eye(h), np.ones((len(W) // h,) * 2))
                                                                 for W in (W_Q, W_K, W_V)), W_O, h)], ONE_HEAD["sliced-input"][1]),
}


def samples_mixed(trial):
    """Another sample in the batch must not matter."""
    moved = _moved(trial, (0,))
    if moved is not None and moved[1:].any():
        return ("Changing a word of sample 0 changes the output of sample 1. Sequences in a batch must not see each other: some "
                "step attends over the batch axis, or folds it in one order and unfolds it in another.")


def tokens_do_not_mix(trial):
    """Moving one word must move the other words' outputs."""
    moved = _moved(trial, (0, 0))
    if moved is not None and moved[0, 0].any() and not moved[0, 1:].any():
        return ("Changing word 0 changes only the output of word 0: words exchange nothing. The two axes that the scores are made "
                "from are not tokens and columns. Look at the shape just before the product of Q and K.")


def _moved(trial, at):
    """Which outputs (B, n) move when X[at] moves, or None."""
    X = trial.args["X"].copy()
    X[at] += 1
    parts = trial.ask(trial.args | {"X": X})
    output = next(iter(trial.got.values()))
    if parts is None or output.ndim != 3:
        return None
    return ~np.isclose(next(iter(parts.values())), output, atol=1e-9).all(axis=-1)


def contributions_summed(trial):
    heads, W_O = trial.args.values()
    if same(next(iter(trial.got.values())), merge(heads) @ W_O):
        return ("That is the finished output, the sum. Asked are its h parts, one (n, d) for each head, so that one can see who "
                "wrote what. Where does the head axis get lost?")


def _each_head(heads, rows):
    return np.stack([head @ rows(a, *heads.shape) for a, head in enumerate(heads)])


CONTRIBUTIONS = {
    "every-h-th-row": ([lambda heads, W_O: _each_head(heads, lambda a, h, n, d_k: W_O[a::h])], "Head a gets every h-th row of W_O. "
                       "Concat puts a head into neighbouring columns, so it meets neighbouring rows."),
    "same-rows": ([lambda heads, W_O: _each_head(heads, lambda a, h, n, d_k: W_O[:d_k])], "Every head is multiplied by the same rows "
                  "of W_O. Concat puts head a into its own columns: which rows do those meet?"),
    "W_O-transposed": ([lambda heads, W_O: _each_head(heads, lambda a, h, n, d_k: W_O[:, a * d_k:(a + 1) * d_k].T)],
                       "You use the *columns* of W_O, turned. In concat @ W_O a column of concat meets a row of W_O."),
    "shared-equally": ([lambda heads, W_O: np.stack([merge(heads) @ W_O / len(heads)] * len(heads))], "The sum is right, but every "
                       "head gets the same part. Asked is what each head itself wrote."),
    "not-projected": ([lambda heads, W_O: _each_head(heads, lambda a, h, n, d_k: np.eye(h * d_k)[a * d_k:(a + 1) * d_k])],
                      "Each head stands in its columns, with zeros around it: concat, taken apart. W_O has not acted yet."),
}


def _centred(X, axis=-1):
    return X - X.mean(axis=axis, keepdims=True)


def _norm(X, axis=-1, eps=1e-5):
    return _centred(X, axis) / np.sqrt(X.var(axis=axis, keepdims=True) + eps)


NORM = {
    "over-columns": ([lambda X: _norm(X, 0), lambda X: _norm(X, 0, 0)], "Your columns have mean 0 and spread 1, your rows do not. "
                     "Each word is normalised for itself, over its own d numbers: look at the axis."),
    "over-everything": ([lambda X: _norm(X, (0, 1)), lambda X: _norm(X, (0, 1), 0)], "One mean and one spread were taken over all "
                        "words. Each word has its own, so that no word depends on its neighbours."),
    "not-centred": ([layers.rms_norm, lambda X: X / np.sqrt(X.var(axis=-1, keepdims=True) + 1e-5)], "The rows are scaled, but their "
                    "mean is not 0. Layer norm first takes the row's mean away."),
    "not-divided": ([_centred], "The rows have mean 0, but each still has its own spread. One step is missing."),
    "variance-not-root": ([lambda X: _centred(X) / (X.var(axis=-1, keepdims=True) + 1e-5), lambda X: _centred(X)
                           / X.var(axis=-1, keepdims=True)], "You divide by the variance. Its unit is the square of x; what brings "
                          "the spread to 1 is measured in x itself."),
    "divided-by-d-minus-1": ([lambda X: _centred(X) / np.sqrt(X.var(axis=-1, ddof=1, keepdims=True) + 1e-5),
                              lambda X: _centred(X) / (X.std(axis=-1, ddof=1, keepdims=True) + 1e-5),
                              lambda X: _centred(X) / X.std(axis=-1, ddof=1, keepdims=True)], "Your variance divides by d - 1, as "
                             "for a sample. Layer norm takes the plain mean of the squares, over d. (torch's own .var and .std "
                             "divide by d - 1 unless told otherwise.)"),
    "unit-length": ([lambda X: _unit(_centred(X)), _unit], "Each row has length 1 now. Layer norm makes the *mean* of the squares 1, "
                    "not their sum: the row comes out sqrt(d) times longer."),
    "eps-outside-the-root": ([lambda X: _centred(X) / (X.std(axis=-1, keepdims=True) + 1e-5)], "Nearly: eps is added after the root. "
                             "It belongs to the variance, under the root; on rows with a small spread the difference shows."),
    "no-eps": ([lambda X: _norm(X, eps=0)], "Right but for eps. A row of equal numbers has variance 0, and 0 / 0 is NaN: what "
               "keeps the root away from 0?"),
}

SUBLAYER = {
    "post-norm": ([lambda X, f, norm: norm(X + f(X))], "That is post-norm: the sum is normalised. Here the stream itself is never "
                  "normalised; only the copy that f reads is. Where does norm stand in x + Sublayer(Norm(x))?"),
    "no-residual": ([lambda X, f, norm: f(norm(X)), lambda X, f, norm: norm(f(X))], "What f returns replaces the stream. It should be "
                    "*added* to it: with f giving 0, X should come out unchanged."),
    "normalised-stream": ([lambda X, f, norm: norm(X) + f(norm(X))], "You add to the normalised copy, so the stream itself is lost. "
                          "Perhaps X was given a new value by norm; both are needed."),
    "no-norm": ([lambda X, f, norm: X + f(X)], "f reads the stream as it is. It should read a normalised copy."),
    "norm-after-f": ([lambda X, f, norm: X + norm(f(X))], "norm is applied to what f returns. It should be applied to what f reads."),
    "f-left-out": ([lambda X, f, norm: X + norm(X), lambda X, f, norm: X], "f was never asked. It reads the normalised copy and its "
                   "result is added."),
    "f-of-the-sum": ([lambda X, f, norm: f(norm(X) + X), lambda X, f, norm: f(X + norm(X))], "f reads a sum and nothing is added "
                     "afterwards. The addition is the last step."),
}

# ------------------------------------------------------------------ 06 masks

def _masked(change, renormalise=False):
    """Causal attention whose scores pass through change(scores, visible) instead of the mask."""
    def wrong(Q, K, V):
        scores = scaled_scores(Q, K)
        return _from_weights(shares(change(scores, np.tril(np.ones(scores.shape[-2:])))), V)
    return wrong


def _keeps(product):
    def wrong(Q, K, V):
        weights = attend(Q, K, V, future_hidden(Q.shape[-2]))[1]
        return product(weights, K, Q, V), weights
    return wrong


MASKED = {
    "blocked-at-zero": ([_masked(lambda s, see: s * see), _masked(lambda s, see: np.where(see, s, 1e-9)),
                         _masked(lambda s, see: np.where(see, s, -1e-9))], "Blocked scores are 0, or so small that it makes no "
                        "difference. But 0 is an ordinary score: e ** 0 is 1, so the future keeps a share. Which score has e ** s = 0?"),
    "ones-added": ([_masked(lambda s, see: s + see), _masked(lambda s, see: s - (1 - see)), _masked(lambda s, see: s + (1 - see))],
                   "A mask of 0 and 1 was added to the scores. That moves a score by 1 and blocks nothing. A mask that is added "
                   "needs a value that leaves no share at all."),
    "keys-as-values": ([_keeps(lambda w, K, Q, V: w @ K)], ATTENTION["keys-as-values"][1]),
    "summed-over-queries": ([_keeps(lambda w, K, Q, V: w.swapaxes(-1, -2) @ V)], ATTENTION["summed-over-queries"][1]),
}


def finite_mask(trial):
    weights = trial.got["weights"]
    if trial.spread > 1 and (np.triu(np.nan_to_num(weights), 1) > 1e-9).any():
        return ("Right on small scores. When real scores are very negative, your fill value is no longer the lowest, and blocked "
                "keys get all the weight. Which value lies below every number?")


def _coding(test, message):
    """A diagnosis from the values of a mask."""
    def diagnosis(trial):
        mask = next(iter(trial.got.values()))
        return message if test(mask) else None
    return diagnosis


def _values_in(*values):
    return lambda mask: mask.dtype != bool and np.isin(mask, values).all() and bool(set(mask.ravel().tolist()) - {0})


CODING = {
    "boolean-mask": _coding(lambda mask: mask.dtype == bool, "Your mask holds True and False. This course *adds* its masks, and added "
                            "True counts as 1. Asked are two floats: one that changes nothing, one that leaves no share."),
    "ones-and-zeros": _coding(_values_in(0, 1, -1), "Your mask holds 0 and 1. Added to the scores, 1 only moves a score and blocks "
                              "nothing. Asked are 0 where i may see j, and a value that leaves no share where it may not."),
    "zero-times-inf": _coding(lambda mask: np.isnan(mask).any(), "Your mask holds NaN: 0 * inf is not 0 but NaN. Pick one of two "
                              "values for each entry instead of multiplying."),
    "plus-infinity": _coding(lambda mask: np.isposinf(mask).any(), "Your mask holds +inf. e ** inf is inf, so the blocked key would "
                             "get everything. The sign is the other one."),
    "tiny-mask": _coding(lambda mask: np.isfinite(mask).all() and 0 < np.abs(mask).max() < 1e-3, "Your blocked entries are nearly 0, "
                         "like 1e-9: added to a score that changes nothing. Look at the sign of the exponent, and of the number."),
    "finite-mask": _coding(lambda mask: np.isfinite(mask).all() and mask.min() < -1, "Your blocked entries are large and negative, "
                           "but finite. A real score can be lower still, and then blocked keys win. Which value lies below all numbers?"),
}


def _pattern(blocked, message):
    """A diagnosis from which entries are blocked: -inf in a float mask."""
    def diagnosis(trial):
        mask = next(iter(trial.got.values()))
        n, m = mask.shape
        return message if np.array_equal(np.isneginf(mask), blocked(np.ones((n, m), bool), m - n)) else None
    return diagnosis


PATTERN = {
    "diagonal-blocked": _pattern(lambda ones, past: np.triu(ones, past), "The diagonal is blocked too: a word cannot see itself, and "
                                 "with n = m row 0 has nothing left, which gives 0 / 0. Look where your triangle begins."),
    "one-future-token": _pattern(lambda ones, past: np.triu(ones, past + 2), "Each query still sees one key too many, the one right "
                                 "after it: the very word it has to predict. Look where your triangle begins: off by one."),
    "past-blocked": lambda trial: _past(trial),
    "no-mask": _pattern(lambda ones, past: ones & False, "Nothing is blocked: all entries are 0. Query i must not see a key j that "
                        "comes after it."),
    "everything-blocked": _pattern(lambda ones, past: ones, "Everything is blocked, so no query has anything left to see. If you turned "
                                   "a mask round with ~, look at its dtype: ~1 is -2, which counts as True."),
}
TOP_LEFT = {
    "top-left-aligned": _pattern(lambda ones, past: np.triu(ones, 1), "Query i sees keys 0 to i, as if the first query stood at the "
                                 "first key. But m - n keys lie in the past, and the *last* query stands at the last key. So "
                                 "cached keys are hidden from words that should see them."),
}


def _past(trial):
    mask = next(iter(trial.got.values()))
    n, m = mask.shape
    for k in (m - n - 1, m - n):
        if np.array_equal(np.isneginf(mask), np.tril(np.ones((n, m), bool), k)):
            return ("Your triangle is the wrong way round: the past is blocked and the future is visible. Row i is the query, "
                    "column j the key: which of j > i and j < i has not been written yet?")


def _causal(n):
    return np.tril(np.ones((n, n), bool))


def _see(real):
    return real[:, None, None, :]


COMBINE = {
    "inverted": ([lambda real: ~(_causal(real.shape[1]) & _see(real))], "True and False have changed places. Asked is who *may* be "
                 "seen: True. Some libraries mark what to block instead, so name a mask after what True means."),
    "or-for-and": ([lambda real: _causal(real.shape[1]) | _see(real)], "A key is visible in your mask if it is in the past *or* real. "
                   "It must be both."),
    "padding-lost": ([lambda real: np.broadcast_to(_causal(real.shape[1]), (len(real), 1, *real.shape[1:] * 2))],
                     "Only the causal part is left: padding is still visible. A causal mask hides what comes later, not what is empty."),
    "causal-lost": ([lambda real: np.repeat(_see(real), real.shape[1], axis=2)], "Only the padding part is left: words see the words "
                    "after them."),
    "padding-on-queries": ([lambda real: _causal(real.shape[1]) & real[:, None, :, None]], "The padding lies on the *rows*, so padded "
                           "queries are blocked and real words still read padding. Padding must be hidden as keys: which axis is that?"),
    "padding-on-both": ([lambda real: _causal(real.shape[1]) & _see(real) & real[:, None, :, None]], "Padded queries are blocked as well "
                        "as padded keys. Their rows are then empty, and the softmax of an empty row is 0 / 0. Hide padding as keys "
                        "only; what a padded query reads is never used."),
    "past-blocked": ([lambda real: _causal(real.shape[1]).T & _see(real)], "The triangle is the wrong way round: the future is "
                     "visible and the past is not."),
    "diagonal-blocked": ([lambda real: np.tril(_causal(real.shape[1]), -1) & _see(real)], "The diagonal is blocked: no word sees itself, "
                         "and row 0 sees nothing at all."),
}


def no_head_axis(trial):
    mask = next(iter(trial.got.values()))
    B, n = trial.args["real"].shape
    if mask.shape == (B, n, n):
        return ("Your mask is (B, n, n); the scores are (B, h, n, n). Broadcasting lines axes up from the right, so your B meets "
                "their h: an error at best, and with B = h sample i masks head i. Which axis is missing, and of which length?")


TO_SDPA = {
    "inverted": ([lambda mask: np.isneginf(mask), lambda mask: mask != 0], "True stands where the mask blocks. torch's "
                 "scaled_dot_product_attention reads True as *may attend*, so every word would read the future only."),
    "all-true": ([lambda mask: np.ones(mask.shape, bool)], "Everything is True: nothing is blocked any more. As a Boolean, -inf is "
                 "True like every number but 0."),
}


def _heads_first(mask, h):
    return np.concatenate([mask] * h)


TO_MHA = {
    "inverted": ([lambda visible, h: np.repeat(visible, h, axis=0)], "True stands where a query may see. nn.MultiheadAttention reads "
                 "True as *blocked*, the opposite of scaled_dot_product_attention, so the past would be hidden."),
    "heads-first": ([lambda visible, h: _heads_first(~visible, h)], "The samples come in the order 0, 1, 0, 1, ... nn.MultiheadAttention "
                    "folds (B, h) with the head running fastest: all heads of sample 0, then of sample 1. So one sample is "
                    "masked with another one's padding."),
    "inverted-and-heads-first": ([lambda visible, h: _heads_first(visible, h)], "Two things at once: True marks what may be seen, where "
                                 "nn.MultiheadAttention wants what is blocked; and samples alternate, where all heads of one sample "
                                 "come first."),
}


def _dead(scores):
    return np.isneginf(scores).all(axis=-1)


def dead_rows(value, message):
    """A diagnosis from what the answer makes of rows that hold -inf only."""
    def diagnosis(trial):
        scores, got = trial.args["scores"], next(iter(trial.got.values()))
        dead = _dead(scores)
        return message if dead.any() and value(got[dead]) else None
    return diagnosis


DEAD = {
    "empty-row-nan": dead_rows(lambda rows: np.isnan(rows).all(), "A row of -inf only comes out as NaN: -inf minus -inf, or 0 / 0. One "
                               "such row spreads NaN into every gradient. Asked are zeros: who sees nothing reads nothing."),
    "empty-row-uniform": dead_rows(lambda rows: np.allclose(rows, 1 / rows.shape[-1]), "A row of -inf only comes out as equal shares: "
                                   "an average over exactly the keys that are hidden. It gives no error, and padding leaks in. "
                                   "Asked are zeros."),
    "everything-zero": lambda trial: ("Rows that do see something lost their shares as well. Only a row of -inf alone becomes zeros."
                                      if not np.nan_to_num(next(iter(trial.got.values()))).any() else None),
}


def silent_remainder(trial):
    """Asked was an error, and a number came."""
    if trial.want is None:
        return ("d = 10 does not divide into h = 3 heads, but your function returned a number. With d // h columns each, the last "
                "column belongs to no head and is lost without a word. Raise a ValueError that names d and h.")
