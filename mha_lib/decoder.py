"""A decoder small enough to train on two cores in seconds, two tasks for it, and one head that learns.

Its blocks are x + Sublayer(Norm(x)) around our own attention. All that is random comes from a seed: on the same CPU a
run repeats itself exactly, on another machine the losses differ a little.
"""

from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from mha_lib import layers, runtime, torch_attention


class Decoder(nn.Module):
    """tokens (batch, n), whole numbers below `tokens` -> logits (batch, n, tokens), a score for each possible next one.

    n is the longest input, with a learned position each. norm=False and mlp=False leave those parts out, causal=False
    lets positions see the future, scale=1.0 leaves the scores undivided (None: 1 / sqrt(d_k)). gain multiplies the
    standard deviation 1 / sqrt(d) that W_Q, W_K and W_V start with.
    """

    def __init__(self, tokens, n, d, h, blocks, *, mlp=True, norm=True, causal=True, scale=None, gain=1.0, seed=0):
        super().__init__()
        runtime.seed_all(seed)
        self.kinds = nn.Parameter(torch.randn(tokens, d) * 0.5)         # a row for what a token is
        self.places = nn.Parameter(torch.randn(n, d) * 0.5)             # and one for where it stands
        self.norm = layers.layer_norm if norm else lambda X: X
        self.blocks = nn.ModuleList(Block(d, h, mlp, causal, scale, gain, self.norm) for _ in range(blocks))
        self.read_out = nn.Linear(d, tokens, bias=False)

    def forward(self, tokens):
        X = self.embed(tokens)                          # (batch, n, d)
        for block in self.blocks:
            X = block(X)
        return self.read_out(self.norm(X))              # (batch, n, tokens)

    def embed(self, tokens):
        """tokens (batch, n) -> the stream X (batch, n, d) that enters the first block."""
        return self.kinds[tokens] + self.places[:tokens.shape[1]]

    @torch.no_grad()
    def look(self, tokens):
        """-> the attention stages of every block, to look at: model.look(tokens)[0].weights is (batch, h, n, n)."""
        X, stages = self.embed(tokens), []
        for block in self.blocks:
            stages.append(block.stages(self.norm(X)))
            X = block(X)
        return stages


class Block(nn.Module):
    """X + attention(norm(X)), then X + mlp(norm(X)) if there is an MLP: (batch, n, d) -> (batch, n, d)."""

    def __init__(self, d, h, mlp, causal, scale, gain, norm):
        super().__init__()
        self.attention = torch_attention.MultiHeadAttention(d, h, causal)
        with torch.no_grad():
            self.attention.W_QKV *= gain
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) if mlp else None
        self.scale, self.norm = scale, norm

    def forward(self, X):
        X = layers.sublayer(X, self.attend, self.norm)
        return X if self.mlp is None else layers.sublayer(X, self.mlp, self.norm)

    def attend(self, X):
        """The fast path where it fits: it always divides by sqrt(d_k)."""
        return self.attention(X) if self.scale is None else self.stages(X).output

    def stages(self, X):
        """Everything that attention computes for the normalised X."""
        part, n = self.attention, X.shape[1]
        mask = torch_attention.causal_mask(n, dtype=X.dtype, device=X.device) if part.causal else None
        return torch_attention.multi_head_attention(X, part.projections, part.h, mask, self.scale)


def position_losses(model, batch):
    """-log(probability given to the token that comes next): batch (B, n + 1) -> (B, n), one loss for each position."""
    logits = model(batch[:, :-1])                       # (B, n, tokens)
    return F.cross_entropy(logits.transpose(1, 2), batch[:, 1:], reduction="none")


@contextmanager
def _one_thread():
    """Products this small gain little from a second thread, and lose much when another program wants it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def train(model, draw, steps, lr=3e-3, warm_up=30, seed=0, name="training"):
    """Train with AdamW, in place -> the loss at each step. draw(generator) gives a batch (B, n + 1) and what counts.

    What counts is (B, n), True where the loss of that position is trained on, or None for everywhere. The step size
    grows over the first warm_up steps. Batches follow the seed alone, so two models can be given the same ones.
    """
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr)
    growing = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1, (step + 1) / warm_up))
    device, history = model.kinds.device, []
    for step in range(1, steps + 1):
        batch, counts = draw(generator)
        losses = position_losses(model, batch.to(device))
        loss = losses.mean() if counts is None else losses[counts.to(device)].mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        growing.step()
        history.append(loss.item())
        if step % 10 == 0 or step == steps:
            runtime.progress(step, steps, f"{name}, " + ("done" if step == steps else f"loss {history[-1]:.2f}"))
    return history


def copy_task(generator, tokens=32, batch=32):
    """A shuffled row of all tokens, cut at a random place and begun again: copy what came before -> batch, what counts.

    (batch, tokens) whole numbers, and (batch, tokens - 1), True where the next token lies in the repeat. The rest is
    chance. No token comes twice before the cut, so that looking back for the last one leads to the right place.
    """
    shuffled = torch.rand(batch, tokens, generator=generator).argsort(dim=1)                # (batch, tokens)
    cut = torch.randint(tokens // 2, 3 * tokens // 4 + 1, (batch, 1), generator=generator)  # (batch, 1)
    place = torch.arange(tokens)                                                            # (tokens,)
    return shuffled.gather(1, place % cut), place[1:] >= cut


def training_text():
    """The course's own text: scenes around Ada and her friends, 50,000 characters of plain English."""
    return Path(__file__).with_name("training_text.txt").read_text(encoding="utf-8")


def encode(text, alphabet):
    """Characters -> their places in the alphabet, a tensor (n,) of whole numbers."""
    place = {character: i for i, character in enumerate(alphabet)}
    return torch.tensor([place[character] for character in text])


def text_windows(data, n, batch=32):
    """-> draw(generator) for train: `batch` stretches of n + 1 characters from anywhere in data (encoded text)."""
    def draw(generator):
        start = torch.randint(len(data) - n, (batch, 1), generator=generator)               # (batch, 1)
        return data[start + torch.arange(n + 1)], None                                      # (batch, n + 1)

    return draw


@_one_thread()
@torch.no_grad()
def generate(model, prompt, count, temperature=0.8, seed=0):
    """Continue prompt (n,) by `count` tokens, each drawn from the last position's softmax -> (n + count,)."""
    generator = torch.Generator().manual_seed(seed)
    tokens = prompt
    for _ in range(count):
        seen = tokens[None, -len(model.places):].to(model.kinds.device)
        odds = torch_attention.softmax(model(seen)[0, -1] / temperature).cpu()              # (tokens,)
        tokens = torch.cat([tokens, torch.multinomial(odds, 1, generator=generator)])
    return tokens


@_one_thread()
def learn_one_head(seed=0, steps=300, n=5, kinds=7, d_k=4):
    """One head learns to name the word before, from outputs alone -> W_Q, W_K, W_V (d, d_k), W_O (d_k, kinds), losses.

    A word is one of `kinds`, a row of X holds a one for its kind and a one for its place, as in the running example
    (d = kinds + n). The words are random, so only the word before can tell; that it has to look there, nobody says.
    """
    generator = torch.Generator().manual_seed(seed)
    d = kinds + n

    def draw(rows, columns):
        return (torch.randn(rows, columns, generator=generator) * rows ** -0.5).requires_grad_()

    W_Q, W_K, W_V, W_O = draw(d, d_k), draw(d, d_k), draw(d, d_k), draw(d_k, kinds)
    optimiser = torch.optim.Adam([W_Q, W_K, W_V, W_O], lr=0.03)
    losses = []
    for _ in range(steps):
        words = torch.randint(kinds, (64, n), generator=generator)                          # (64, n)
        X = torch.cat([F.one_hot(words, kinds), torch.eye(n).expand(64, n, n)], dim=-1)     # (64, n, d)
        found, _ = torch_attention.attention(X @ W_Q, X @ W_K, X @ W_V)                     # (64, n, d_k)
        loss = F.cross_entropy((found @ W_O)[:, 1:].flatten(0, 1), words[:, :-1].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return *(W.detach().numpy() for W in (W_Q, W_K, W_V, W_O)), losses
