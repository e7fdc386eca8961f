"""The costs in the ledger against what is really made, counted by others: arrays, torch's FLOP counter, memory."""

import doctest
import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from mha_lib import ledger, numpy_attention, runtime, torch_attention
from mha_lib.ledger import cache_bytes, costs, longest_context
from mha_lib.projections import Projections

B, n, m, d, h, kv_heads = 2, 5, 11, 54, 6, 2
d_k = d // h


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def flops_that_torch_counts(work):
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


# ---- a real pass

@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_shapes_and_bytes_are_those_of_a_real_pass(dtype):
    X = draw(B, n, d).astype(dtype)
    stages = numpy_attention.multi_head_attention(X, Projections.draw(d, dtype=dtype), h)._asdict()
    table = costs(n, d, h, batch=B, dtype=dtype)
    assert [row.stage for row in table] == ["X", *stages]
    for row, made in zip(table, [X, *stages.values()], strict=True):
        assert (row.shape, row.bytes) == (made.shape, made.nbytes)
    assert table.total.bytes == X.nbytes + sum(made.nbytes for made in stages.values())


def test_a_dtype_may_be_given_by_name_or_taken_from_an_array_of_either_library():
    for name in ledger.ITEMSIZE:
        assert ledger.ITEMSIZE[name] == torch.zeros(1, dtype=getattr(torch, name)).element_size()
        assert costs(n, d, h, dtype=name) == costs(n, d, h, dtype=getattr(torch, name))
    assert costs(n, d, h, dtype="float64") == costs(n, d, h, dtype=draw(1).dtype)


def test_parameters_are_those_of_both_modules():
    ours = torch_attention.MultiHeadAttention(d, h)
    theirs = torch.nn.MultiheadAttention(d, h, bias=False)
    counted = costs(n, d, h, batch=B).total.parameters
    assert counted == sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize("batch", [1, B])
def test_flops_are_those_that_torch_counts_stage_by_stage(batch):
    X, p = torch.tensor(draw(batch, n, d)), Projections.draw(d).to_torch()
    counted = flops_that_torch_counts(lambda: torch_attention.multi_head_attention(X, p, h))
    table = costs(n, d, h, batch=batch)
    assert table.total.flops == counted
    made = torch_attention.multi_head_attention(X, p, h)
    products = {"Q": (X, p.W_Q), "K": (X, p.W_K), "V": (X, p.W_V), "scores": (made.Q, made.K.transpose(-1, -2)),
                "heads": (made.weights, made.V), "output": (made.concat, p.W_O)}
    for row in table:
        a, b = products.get(row.stage, (None, None))
        assert row.flops == (0 if a is None else flops_that_torch_counts(lambda a=a, b=b: a @ b)), row.stage


def test_flops_of_a_causal_pass_are_those_of_the_pairs_that_may_see_each_other():
    for queries, keys in itertools.product(range(1, 8), repeat=2):
        if keys >= queries:
            pairs = int(np.isfinite(numpy_attention.causal_mask(queries, keys)).sum())
            table = costs(queries, d, h, m=keys, batch=B, causal=True)
            assert table["scores"].flops == table["heads"].flops == B * h * pairs * 2 * d_k
            assert table["Q"] == costs(queries, d, h, m=keys, batch=B)["Q"]
    full, half = costs(1024, d, h), costs(1024, d, h, causal=True)
    assert half["scores"].flops / full["scores"].flops == pytest.approx(1 / 2, abs=1e-3)
    assert half.total.bytes == full.total.bytes


# ---- with a cache, and with shared keys and values

def test_a_decode_step_computes_one_token_and_reads_the_cache():
    p, cache = Projections.draw(d).to_torch(), torch_attention.KVCache(B, h, m, d_k, torch.float64)
    X = torch.tensor(draw(B, m, d))
    torch_attention.fast_multi_head_attention(X[:, :-1], p, h, True, cache)
    seen = {}

    def step():
        Q, K, V = (torch_attention.split_heads(part, h) for part in p.project(X[:, -1:]))
        K, V = cache.append(K, V)
        seen.update(Q=Q, K=K, V=V, output=p.mix(torch_attention.merge_heads(torch_attention.attention(Q, K, V)[0])))

    counted, table = flops_that_torch_counts(step), costs(1, d, h, m=m, batch=B, dtype="float64")
    assert table.total.flops == counted == costs(1, d, h, m=m, batch=B, causal=True).total.flops
    for name, made in seen.items():
        assert table[name].shape == made.shape and table[name].bytes == made.numel() * 8
    assert cache_bytes(m, d, h, batch=B, dtype="float64") == cache.keys.nbytes + cache.values.nbytes
    assert cache_bytes(m, d, h, batch=B, dtype="float64") == table["K"].bytes + table["V"].bytes


def test_shared_keys_and_values_are_those_of_torchs_grouped_attention():
    W_Q, W_KV, W_O = (torch.tensor(draw(*shape)) for shape in ((d, d), (d, 2 * kv_heads * d_k), (d, d)))
    X, past = torch.tensor(draw(B, n, d)), torch.tensor(draw(2, B, kv_heads, m - n, d_k))
    made = {}

    def step():
        made["Q"] = torch_attention.split_heads(X @ W_Q, h)
        K, V = (torch_attention.split_heads(part, kv_heads) for part in (X @ W_KV).chunk(2, dim=-1))
        made["K"], made["V"] = torch.cat([past[0], K], dim=-2), torch.cat([past[1], V], dim=-2)
        K, V = (made[name].repeat_interleave(h // kv_heads, dim=1) for name in "KV")     # head a reads a // 3
        made["heads"], made["weights"] = torch_attention.attention(made["Q"], K, V)
        made["output"] = torch_attention.merge_heads(made["heads"]) @ W_O

    counted, table = flops_that_torch_counts(step), costs(n, d, h, m=m, batch=B, dtype="float64", kv_heads=kv_heads)
    assert table.total.flops == counted
    assert torch.allclose(made["heads"], scaled_dot_product_attention(*(made[x] for x in "QKV"), enable_gqa=True))
    for name, array in made.items():
        assert table[name].shape == array.shape and table[name].bytes == array.nbytes
    assert table["scores"].shape == made["weights"].shape
    assert table.total.parameters == W_Q.numel() + W_KV.numel() + W_O.numel()
    cached = cache_bytes(m, d, h, batch=B, dtype="float64", kv_heads=kv_heads)
    assert cached == made["K"].nbytes + made["V"].nbytes
    assert cached * h // kv_heads == cache_bytes(m, d, h, batch=B, dtype="float64")
    assert costs(n, d, h, kv_heads=h) == costs(n, d, h)


def test_the_caches_of_all_layers_are_counted():
    caches = [numpy_attention.KVCache(B, h, m, d_k, np.float32) for _ in range(3)]
    assert cache_bytes(m, d, h, layers=3, batch=B) == sum(c.keys.nbytes + c.values.nbytes for c in caches)


def test_the_longest_context_fits_and_one_token_more_does_not():
    for memory in (10 ** 6, 10 ** 6 + 1, 999_999):
        tokens = longest_context(memory, d, h, layers=3, batch=B, dtype="float16", kv_heads=1)
        fits, not_any_more = (cache_bytes(t, d, h, 3, B, "float16", 1) for t in (tokens, tokens + 1))
        assert fits <= memory < not_any_more
    assert longest_context(1, d, h) == 0


# ---- memory

def test_the_peak_of_an_explicit_pass_lies_where_the_ledger_says():
    size = 300                                          # tokens; the (h, n, n) matrices are nearly everything
    X, p = draw(1, size, d), Projections.draw(d)
    table = costs(size, d, h, dtype="float64")
    peak = runtime.peak_bytes(lambda: numpy_attention.multi_head_attention(X, p, h))
    made = table.total.bytes - table["X"].bytes
    assert made <= peak <= made + table["scores"].bytes + 10 * table["X"].bytes         # softmax holds one more


# ---- reading it

def test_the_table_of_costs_reads_in_text_and_in_html():
    table = costs(1024, 512, 8, batch=B)
    lines = str(table).splitlines()
    assert repr(table) == str(table) and len(lines) == 2 + len(table) + 1 and len({len(line) for line in lines}) == 1
    assert lines[0].split() == ["stage", "formula", "shape", "parameters", "flops", "bytes"]
    for line, row in zip(lines[2:], [*table, table.total], strict=True):
        assert line.startswith(row.stage) and str(row.shape) in line
        assert line.split()[-3:] == [f"{number:,}" for number in row[3:]]
    html = table._repr_html_()
    assert html.count("<tr>") == 1 + len(table) + 1
    assert '<td style="text-align:right">67,108,864</td>' in html and '<td style="text-align:left">total</td>' in html
    assert all(type(number) is int for row in [*table, table.total] for number in row[3:])


def test_a_row_is_found_by_its_name_or_place():
    table = costs(n, d, h)
    assert table["scores"] == table[4] == list(table)[4] and table[-1].stage == "output"
    assert ledger.stages(n, d, h)["scores"].shape == (h, n, n)
    with pytest.raises(KeyError, match="no stage 'score' here: take one of X, Q, K, V, scores"):
        table["score"]


def test_the_example_in_the_docstring_is_right():
    assert doctest.testmod(ledger).failed == 0


def test_numbers_never_overflow():
    sizes = np.array([10 ** 6, 16384, 128], np.int32)
    assert costs(*sizes, batch=np.int32(64)) == costs(10 ** 6, 16384, 128, batch=64)
    assert type(costs(*sizes).total.flops) is int and cache_bytes(*sizes) == 2 * 10 ** 6 * 16384 * 4


@pytest.mark.parametrize("call, error, message", [
    (lambda: costs(5, 28, 3), ValueError, "d=28 does not divide into h=3 heads"),
    (lambda: costs(5, d, h, kv_heads=4), ValueError, "h=6 query heads cannot share kv_heads=4 evenly"),
    (lambda: costs(5, d, h, m=4), ValueError, "n=5 queries are the last of m=4 keys"),
    (lambda: costs(5, d, h, batch=0), ValueError, "batch must be 1 or more"),
    (lambda: costs(5.0, d, h), TypeError, "n must be a whole number"),
    (lambda: costs(5, d, h, dtype="int8"), ValueError, "dtype must be one of float64, float32, bfloat16, float16"),
    (lambda: cache_bytes(5, d, h, layers=0), ValueError, "layers must be 1 or more"),
    (lambda: cache_bytes(5, d, h, kv_heads=0), ValueError, "kv_heads must be 1 or more"),
    (lambda: longest_context(0, d, h), ValueError, "memory must be 1 or more"),
])
def test_wrong_sizes_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
