"""RWKV 6 and 7 in the second engine.

Sources: "Eagle and Finch" (arXiv 2404.05892), "RWKV-7 Goose" (2503.14456), and llama.cpp v0.5.0's
src/models/rwkv6-base.cpp and rwkv7-base.cpp.

A layer's cache is [None, states]: the matrices of its heads, (H, dim of V, dim of K).  self.last has the last input of
each mixing of tokens.
"""
import numpy as np

HEADS_EPS = 64e-5


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Rwkv:
    """The part of class Engine for these models."""

    def is_rwkv(self):
        return self.file.arch.startswith("rwkv")

    def shift(self, key, x):
        """x: (n, n_embd) -> (n, n_embd) by what x changes to become the token before it"""
        wrong, zeros = self.switch.get("shift.token"), np.zeros((1, x.shape[1]))
        last = self.last.get(key, zeros)
        if self.wrong("shift.kept", "none"):
            last = zeros
        before = np.concatenate([last, x[:-1]])
        if wrong == "own":
            before = x
        elif wrong == "next":
            before = np.concatenate([x[1:], x[-1:]])
        self.last[key] = x[-1:]
        return (before - x) * (-1 if self.wrong("shift.sign", "reversed") else 1)

    def time_mix(self, block, x, step, cache, show):
        mix = self.time_mix_7 if self.file.arch == "rwkv7" else self.time_mix_6
        y = mix(block, x, self.shift((block, "time"), x), step, cache, show)
        return show("attn_out", self.product(y, self.weight(f"{block}.time_mix_output.weight")))

    def low_rank(self, block, name, x, f=None):
        """name: "time_mix_a" of time_mix_a1 and time_mix_a2"""
        y = self.product(x, self.weight(f"{block}.{name}1.weight"))
        return self.product(y if f is None else f(y), self.weight(f"{block}.{name}2.weight"))

    def fade(self, d):
        """What states are multiplied by"""
        wrong, is_7 = self.switch.get("wkv.decay"), self.file.arch == "rwkv7"
        if is_7:
            exponent = -(1 if wrong == "unscaled" else 0.606531) * sigmoid(d)
        else:
            exponent = -d if wrong == "one_exp" else -np.exp(d)
        return np.exp(-exponent if wrong == "inverted" else exponent)

    def heads(self, x):
        return x.reshape(len(x), -1, self.file.key("wkv.head_size"))

    def heads_norm(self, block, y, show):
        """y: (n, H, dim), what is read of the states"""
        show("wkv_output", y.reshape(len(y), -1))
        eps = self.epsilon() if self.wrong("wkv.eps", "model") else HEADS_EPS
        y = y - y.mean(axis=2, keepdims=True)
        y = (y / np.sqrt((y * y).mean(axis=2, keepdims=True) + eps)).reshape(len(y), -1)
        weight, bias = (self.weight(f"{block}.time_mix_ln.{part}") for part in ("weight", "bias"))
        return show("wkv_norm", y * weight + bias)

    def time_mix_6(self, block, x, shift, step, cache, show):
        def own(name):
            return self.weight(f"{block}.time_mix_{name}.weight")

        parts = np.tanh(self.product(x + shift * own("lerp_x"), own("w1")))
        parts = np.split(parts, 5, axis=1)                                           # of W, K, V, R and G
        fused = own("lerp_fused")
        factors = [own(f"lerp_{name}") for name in "wkvrg"] if fused is None else fused.reshape(5, -1)
        of = {name: x + shift * (factors[i] + self.product(parts[i], own("w2")[i])) for i, name in enumerate("wkvrg")}
        r = show("Qcur", self.heads(self.product(of["r"], own("receptance"))))
        k = show("Kcur", self.heads(self.product(of["k"], own("key"))))
        v = show("Vcur", self.heads(self.product(of["v"], own("value"))))
        w = own("decay") + self.low_rank(block, "time_mix_decay_w", of["w"], np.tanh)
        w = self.heads(show("wkv_decay", self.fade(w)))
        bonus = 0 if self.wrong("wkv.bonus", "missing") else own("first")            # (H, dim)
        state, y = self.begin_state((*k.shape[1:], k.shape[2]), cache), []
        for t in range(len(x)):
            fed = v[t][..., None] * k[t][:, None]
            y.append(np.einsum("hvk,hk->hv", state, r[t]) + v[t] * (r[t] * k[t] * bonus).sum(axis=1, keepdims=True))
            state = state * w[t][:, None] + fed
        self.end_state(state, step, cache)
        y = self.heads_norm(block, np.stack(y), show)
        gate = show("attn_gate_proj", self.product(of["g"], own("gate")))
        return show("attn_gated", y * gate * sigmoid(gate))

    def time_mix_7(self, block, x, shift, step, cache, show):
        def own(name):
            return self.weight(f"{block}.time_mix_{name}.weight")

        of = dict(zip("rwkvag", (x + shift * factor for factor in own("lerp_fused").reshape(6, -1))))
        r = show("Qcur", self.heads(self.product(of["r"], own("receptance"))))
        k = show("Kcur", self.product(of["k"], own("key")))
        v = show("Vcur", self.product(of["v"], own("value")))
        if block == "blk.0":
            self.first_value = v
        else:
            mix = sigmoid(own("v0") + self.low_rank(block, "time_mix_v", of["v"]))
            v = show("wkv_value", v + (self.first_value - v) * show("wkv_value_mix", mix))
        w = self.heads(show("wkv_decay", self.fade(own("w0") + self.low_rank(block, "time_mix_w", of["w"], np.tanh))))
        a = show("wkv_rate", sigmoid(own("a0") + self.low_rank(block, "time_mix_a", of["a"])))
        removal = self.heads(k * own("k_k"))
        removal = removal / np.maximum(np.sqrt((removal ** 2).sum(axis=2, keepdims=True)), 1e-12)
        show("wkv_removal", removal.reshape(len(x), -1))
        k = self.heads(show("wkv_key", k * (1 + (a - 1) * own("k_a"))))
        v, a = self.heads(v), self.heads(a)
        bonus = v * (r * k * own("r_k").reshape(k.shape[1:])).sum(axis=2, keepdims=True)
        bonus = (bonus * (0 if self.wrong("wkv.bonus", "missing") else 1)).reshape(len(x), -1)
        show("wkv_bonus", bonus)
        state, y = self.begin_state((*k.shape[1:], k.shape[2]), cache), []
        for t in range(len(x)):
            old = np.einsum("hvk,hk->hv", state, removal[t])
            state = (state * w[t][:, None] - old[..., None] * (a[t] * removal[t])[:, None]
                     + v[t][..., None] * k[t][:, None])
            y.append(np.einsum("hvk,hk->hv", state, r[t]))
        self.end_state(state, step, cache)
        y = self.heads_norm(block, np.stack(y), show)
        y = show("wkv_sum", y + bonus)
        gate = show("attn_gate_proj", self.low_rank(block, "time_mix_g", of["g"], sigmoid))
        return show("attn_gated", y * gate)

    def channel_mix(self, block, x, show):
        """In place of a feed-forward network"""
        def own(name):
            return self.weight(f"{block}.channel_mix_{name}.weight")

        shift = self.shift((block, "channel"), x)
        up = show("ffn_up", self.product(x + shift * own("lerp_k"), own("key")))
        y = self.product(show("ffn_swiglu", self.activation(up, 1)), own("value"))
        if own("receptance") is None:
            return y
        gate = self.product(x + shift * own("lerp_r"), own("receptance"))
        return y * show("ffn_receptance", sigmoid(gate))
