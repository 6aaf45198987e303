"""The two models of tests/fixtures in PyTorch, with their initial weights, data and order.

What ends in `.mon` there is the same program for monarch; the tests hold both against PyTorch in
float64.
"""

import hashlib
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
# One thread per worker, for everybody.
torch.set_num_threads(1)


class Mlp(nn.Module):
    """64 -> 32 -> 10, relu; cross entropy."""

    fixture, batch, clip = "mlp_adamw", 64, None
    optimizer = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)

    def __init__(self, weights):
        super().__init__()
        self.weights = nn.ParameterDict({name.replace(".", "_"): nn.Parameter(t) for name, t in weights.items()})

    def forward(self, x, y):
        w = self.weights
        hidden = F.relu(x @ w["up_w"] + w["up_b"])
        return F.cross_entropy(hidden @ w["down_w"] + w["down_b"], y.long(), reduction="sum")


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


class Gpt(nn.Module):
    """Two blocks of 32, four heads, 16 characters of context, tied head; cross entropy."""

    fixture, batch, clip = "gpt_adamw", 8, 1.0
    optimizer = dict(lr=3e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)

    def __init__(self, weights):
        super().__init__()
        self.weights = nn.ParameterDict({name.replace(".", "_"): nn.Parameter(t) for name, t in weights.items()})

    def block(self, x, n):
        w = lambda name: self.weights[f"blocks_{n}_{name}"]
        batch, length, width = x.shape
        q, k, v = torch.einsum("btd,ndhk->nbthk", norm(x, w("norm1_w")), w("attn_qkv"))
        score = torch.einsum("bthk,bshk->bhts", q, k) / q.shape[-1] ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        mix = score.masked_fill(future, float("-inf")).softmax(-1)
        x = x + torch.einsum("bhts,bshk,hkd->btd", mix, v, w("attn_out"))
        return x + F.gelu(norm(x, w("norm2_w")) @ w("mlp_up")) @ w("mlp_down")

    def forward(self, ids, following):
        tok = self.weights["tok"]
        x = tok[ids.long()] + self.weights["pos"]
        for n in range(2):
            x = self.block(x, n)
        logits = norm(x, self.weights["norm_w"]) @ tok.T
        return F.cross_entropy(logits.reshape(-1, tok.shape[0]), following.long().reshape(-1), reduction="sum")


MODELS = {"mlp": Mlp, "gpt": Gpt}


class Job:
    """A model, its optimizer and its samples in the order of the file, over and over."""

    def __init__(self, name):
        kind = MODELS[name]
        self.model = kind(load_file(FIXTURES / f"{kind.fixture}.init.safetensors"))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), **kind.optimizer)
        columns = load_file(FIXTURES / f"{kind.fixture}.data.safetensors")
        names = ("x", "y") if name == "mlp" else ("ids", "next")
        self.columns = [columns[n] for n in names]
        self.batch, self.clip = kind.batch, kind.clip
        self.targets = self.batch * (1 if name == "mlp" else self.columns[0].shape[1])

    def samples(self, step, rank, world):
        """This worker's part of a global batch whose size does not depend on the world."""
        first = step * self.batch % len(self.columns[0])
        begin, end = (first + self.batch * r // world for r in (rank, rank + 1))
        return [column[begin:end] for column in self.columns]

    def loss(self, module, step, rank, world):
        """Such that the mean over workers is the mean over the global batch."""
        return module(*self.samples(step, rank, world)) * (world / self.targets)

    def clipped(self):
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)

    def hash(self):
        digest = hashlib.sha256()
        for name, weight in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(weight.numpy().tobytes())
        return digest.hexdigest()[:16]

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def say(*words):
    """One line to whoever watches; whole, also beside others'."""
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())
