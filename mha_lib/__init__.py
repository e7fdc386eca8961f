"""mha_lib: every step of multi-head attention, in NumPy and in torch, one function a step.

    rules            the shape and type errors, written once for both libraries
    numpy_attention  softmax, causal_mask, split_heads, merge_heads, attention, multi_head_attention, KVCache, fast path
    torch_attention  the same names and arguments, on any device and differentiable; MultiHeadAttention(nn.Module)
    projections      Projections: W_QKV and W_O, drawn from a seed, NumPy <-> torch, other layouts; the running example
    layers           layer_norm, rms_norm, sublayer: x + Sublayer(Norm(x))
    decoder          a decoder small enough to train in a cell, its tasks, one head that learns
    checks           check("softmax", answer): a verdict that names the mistake
    ledger           every stage of the sublayer and its shape, as integers
    plots            figures with words computed from the data; explore, the slider figure
    runtime          device, seeds, time, memory, progress

Start with numpy_attention.py. n tokens, d model width, h heads, d_k = d / h, i a query, j a key; rows are vectors.
"""

__version__ = "0.1.0"
