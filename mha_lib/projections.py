"""The learned matrices of one attention sublayer, their other layouts, and the running example of the course.

Our convention, everywhere: rows are tokens, so Q = X @ W_Q, and W_Q, W_K, W_V stand side by side in W_QKV (d, 3d).
Other libraries store (out, in), the transpose. This is the only file that turns one into the other.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_lib import rules


def _affine(X, W, b):
    """X @ W (+ b)."""
    if rules.library_of(X) == "torch":
        from torch.nn.functional import linear

        return linear(X, W.T, b)                        # adds b within the product
    product = X @ W
    if b is not None:
        product += b
    return product


@dataclass(frozen=True, eq=False)
class Projections:
    """W_QKV (d, 3d) and W_O (d, d), with biases b_QKV (3d,) and b_O (d,) or None; NumPy arrays or torch tensors."""

    W_QKV: Any
    W_O: Any
    b_QKV: Any = None
    b_O: Any = None

    def __post_init__(self):
        named = {name: x for name, x in vars(self).items() if x is not None or name[0] == "W"}
        rules.same_kind(**named)
        d = self.W_O.shape[0] if self.W_O.ndim else 0
        for name, shape in dict(W_QKV=(d, 3 * d), W_O=(d, d), b_QKV=(3 * d,), b_O=(d,)).items():
            if name in named and tuple(named[name].shape) != shape:
                raise ValueError(f"W_O (d, d) is {tuple(self.W_O.shape)}, so {name} must be {shape}: "
                                 f"got {tuple(named[name].shape)}")

    @classmethod
    def from_matrices(cls, W_Q, W_K, W_V, W_O):
        """Four (d, d) matrices -> Projections without biases."""
        rules.same_kind(W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O)
        for name, W in dict(W_Q=W_Q, W_K=W_K, W_V=W_V).items():
            if W.shape != W_O.shape:
                raise ValueError("all four matrices must be (d, d): "
                                 f"got {name} {tuple(W.shape)} and W_O {tuple(W_O.shape)}")
        if rules.library_of(W_O) == "numpy":
            return cls(np.concatenate([W_Q, W_K, W_V], axis=1), W_O)
        import torch

        return cls(torch.cat([W_Q, W_K, W_V], dim=1), W_O)

    @classmethod
    def draw(cls, d, seed=0, bias=False, dtype=np.float64):
        """Normal weights of variance 1/d, which keeps unit variance at unit variance; the same for the same seed."""
        rules.whole(d=d)
        rng = np.random.default_rng(seed)
        W_QKV, W_O = (rng.normal(size=(d, width)) * d ** -0.5 for width in (3 * d, d))
        biases = [rng.normal(size=width) for width in (3 * d, d)] if bias else []
        return cls(*(x.astype(dtype) for x in (W_QKV, W_O, *biases)))

    @property
    def d(self):
        """The model width."""
        return self.W_O.shape[0]

    @property
    def W_Q(self):
        """(d, d), a view of W_QKV."""
        return self.W_QKV[:, :self.d]

    @property
    def W_K(self):
        """(d, d), a view of W_QKV."""
        return self.W_QKV[:, self.d:2 * self.d]

    @property
    def W_V(self):
        """(d, d), a view of W_QKV."""
        return self.W_QKV[:, 2 * self.d:]

    def project(self, X):
        """X (..., n, d) -> Q, K, V (..., n, d) each: X @ W_QKV (+ b_QKV), one product cut in three."""
        rules.same_kind(X=X, W_QKV=self.W_QKV)
        rules.has_axes("n, d", X=X)
        rules.meets(X, self.W_QKV)
        d, QKV = self.d, _affine(X, self.W_QKV, self.b_QKV)                     # (..., n, 3d)
        return QKV[..., :d], QKV[..., d:2 * d], QKV[..., 2 * d:]

    def mix(self, concat):
        """concat (..., n, d) -> output (..., n, d): concat @ W_O (+ b_O)."""
        return _affine(concat, self.W_O, self.b_O)

    def to_torch(self, device=None, dtype=None):
        """The same numbers as torch tensors, the same memory where possible; dtype is kept unless given.

        MPS holds no float64: give torch.float32.
        """
        import torch

        return self._each(lambda x: torch.as_tensor(x).to(device=device, dtype=dtype))

    def to_numpy(self):
        """The same numbers as NumPy arrays, the same memory where possible, cut from autograd.

        bfloat16, which NumPy lacks, becomes float32.
        """
        def convert(x):
            if rules.library_of(x) == "numpy":
                return x
            x = x.detach().cpu()
            return (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()

        return self._each(convert)

    def _each(self, convert):
        return Projections(*(None if x is None else convert(x) for x in vars(self).values()))

    @classmethod
    def from_multihead_attention(cls, module):
        """Copy torch's nn.MultiheadAttention: in_proj_weight (3d, d), rows [Q; K; V], each (out, in) -> Projections."""
        if module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
            raise ValueError("only self-attention can be copied: "
                             "kdim, vdim, add_bias_kv and add_zero_attn must stay unset")
        biases = [None if b is None else b.detach().clone() for b in (module.in_proj_bias, module.out_proj.bias)]
        return cls(module.in_proj_weight.detach().T.clone(), module.out_proj.weight.detach().T.clone(), *biases)

    def to_multihead_attention(self, h):
        """-> torch's nn.MultiheadAttention(d, h, batch_first=True) with copies of these weights, on their device."""
        import torch

        ours = self.to_torch()
        rules.heads_divide(ours.d, h)
        has_bias = ours.b_QKV is not None or ours.b_O is not None
        module = torch.nn.MultiheadAttention(ours.d, h, bias=has_bias, batch_first=True,
                                             device=ours.W_O.device, dtype=ours.W_O.dtype)
        with torch.no_grad():
            module.in_proj_weight.copy_(ours.W_QKV.T)
            module.out_proj.weight.copy_(ours.W_O.T)
            for theirs, b in ((module.in_proj_bias, ours.b_QKV), (module.out_proj.bias, ours.b_O)):
                if has_bias:
                    theirs.copy_(torch.zeros_like(theirs) if b is None else b)
        return module

    @classmethod
    def from_gpt2(cls, weights):
        """From one attention layer of GPT-2 as published: c_attn.weight (d, 3d), c_proj.weight (d, d), their biases.

        GPT-2 stores (in, out), as we do, so nothing is transposed. Ports to nn.Linear (nanoGPT) store the transpose;
        c_attn then has shape (3d, d) and is refused, because the square c_proj would be wrong without any error.
        """
        names = ["c_attn.weight", "c_proj.weight", "c_attn.bias", "c_proj.bias"]
        missing = [name for name in names if name not in weights]
        if missing:
            raise ValueError(f"a GPT-2 attention layer has {', '.join(names)}; missing: {', '.join(missing)}")
        rows, columns = weights["c_attn.weight"].shape
        if rows == 3 * columns:
            raise ValueError(f"c_attn.weight is {(rows, columns)}, (out, in) as nn.Linear stores it: "
                             "transpose c_attn.weight and c_proj.weight, GPT-2's own layout is (in, out)")
        return cls(*(weights[name] for name in names))

    def to_gpt2(self):
        """-> the four arrays of a GPT-2 attention layer by name; missing biases as zeros."""
        zeros = [0 * self.W_QKV[0], 0 * self.W_O[0]]
        b_QKV, b_O = (zero if b is None else b for b, zero in zip((self.b_QKV, self.b_O), zeros, strict=True))
        return {"c_attn.weight": self.W_QKV, "c_attn.bias": b_QKV, "c_proj.weight": self.W_O, "c_proj.bias": b_O}


# The running example: five words and three heads, written by hand so that every weight means something.
SENTENCE = "Ada with friends paints herself"
COLUMNS = "sgN plN sgV plV sgP plP other p0 p1 p2 p3 p4".split()        # what a word is, and where it stands
KINDS = {"Ada": "sgN", "friends": "plN", "paints": "sgV", "paint": "plV", "herself": "sgP", "them": "plP",
         "with": "other"}


def running_example(sentence=SENTENCE, positions=True):
    """-> words, X (n, 12), Projections for h = 3 heads of width d_k = 4, written by hand, not trained.

    X has two ones a row: the word's kind (singular or plural noun, verb, pronoun, or other) and its position.
    Head 0 links nouns and verbs that agree in number, head 1 a pronoun to its noun, head 2 each word to the one before.
    A query that finds its match gives it .93; one that finds none gives the same share to every word.
    `positions=False` leaves the position columns empty. Not for tests: d_k = 4 hides mistakes such as d ** 1 / 2.
    """
    words = sentence.split()
    unknown = [word for word in words if word not in KINDS]
    if unknown or not 1 <= len(words) <= 5:
        raise ValueError(f"the example takes one to five of the words {', '.join(KINDS)}: got {sentence!r}")
    column = {name: i for i, name in enumerate(COLUMNS)}
    X = np.zeros((len(words), len(COLUMNS)))            # (n, d)
    for i, word in enumerate(words):
        X[i, column[KINDS[word]]] = 1
        if positions:
            X[i, column[f"p{i}"]] = 1
    return words, X, Projections.from_matrices(*_matrices_by_hand(column))


def _matrices_by_hand(column, gain=8.0):
    """W_Q, W_K, W_V, W_O. A match scores gain / sqrt(4) = 4, and e^4 / (e^4 + 4) = .93."""
    W_Q, W_K, W_V, W_O = np.zeros((4, 12, 12))

    # head 0 (columns 0-3), agreement: a verb asks for its noun, a noun for its verb
    for asks, finds in (("sgV", "sgN"), ("plV", "plN"), ("sgN", "sgV"), ("plN", "plV")):
        W_Q[column[asks], column[finds]] = gain
        W_K[column[finds], column[finds]] = W_V[column[finds], column[finds]] = 1

    # head 1 (columns 4-7, two of them used), reference: a pronoun asks for the noun it stands for
    for head_column, (asks, finds) in enumerate((("sgP", "sgN"), ("plP", "plN")), start=4):
        W_Q[column[asks], head_column] = gain
        W_K[column[finds], head_column] = W_V[column[finds], head_column] = 1

    # head 2 (columns 8-11), the word before: position i asks for i - 1, the first word for itself; values: the kind
    for i in range(5):
        W_Q[column[f"p{i}"], 8 + max(i - 1, 0)] = gain
    for j in range(4):
        W_K[column[f"p{j}"], 8 + j] = 1
    for head_column, kinds in enumerate((("sgN", "plN"), ("sgV", "plV"), ("sgP", "plP"), ("other",)), start=8):
        for kind in kinds:
            W_V[column[kind], head_column] = 1
            W_O[head_column, column[kind]] = 1 / len(kinds)     # hands the kind back, halved where two share a column

    # W_O writes the findings of heads 0 and 1 back into the columns for kinds of word
    W_O[range(4), range(4)] = 1
    W_O[4, column["sgN"]] = W_O[5, column["plN"]] = 1
    return W_Q, W_K, W_V, W_O
