"""What layers of the second engine compute that keep a state: convolutions, selective scans, delta nets and lightning
attention.

Sources: LFM2 (arXiv 2511.23404), Mamba (2312.00752), Mamba 2 (2405.21060), gated delta nets (2412.06464), Kimi Linear
(2510.26692), MiniMax-01 (2501.08313), and llama.cpp v0.5.0's src/models/lfm2.cpp, mamba-base.cpp, qwen35.cpp,
kimi-linear.cpp and minimax-01.cpp.

A layer's cache is [tail, state]: the last inputs of its convolution, (L - 1, width), and the matrices of its heads,
(H, dim, width of B or K).  Both are None before the first token.
"""
import math

import numpy as np


def silu(x):
    return x / (1 + np.exp(-x))


class Recurrent:
    """The part of class Engine for these layers.  step: a batch after the prompt."""

    def mixer(self, block):
        """What the layer has in place of attention; None if it has attention."""
        parts = {"time_mix_key": self.time_mix, "shortconv.conv": self.short_convolution,
                 "ssm_alpha": self.delta_net, "ssm_ba": self.delta_net,
                 "ssm_in": self.scan, "ssm_f_a": self.delta_net, "attn_norm_2": self.lightning}
        return next((mix for name, mix in parts.items() if f"{block}.{name}.weight" in self.file.tensors), None)

    def scaled(self, block, name, x):
        """x W^T scale"""
        scale = self.weight(f"{block}.{name}.scale") if self.kind["mixer_scale"] else None
        return self.product(x, self.weight(f"{block}.{name}.weight")) * (1 if scale is None else scale)

    def convolve(self, block, name, x, cache):
        """x: (n, width), over the last L tokens.  The last element of a kernel belongs to the token itself."""
        kernel, bias = (self.weight(f"{block}.{name}.{what}") for what in ("weight", "bias"))
        if kernel is None:   # of Q, K and V: (width, 1, L)
            kernel = np.concatenate([self.weight(f"{block}.{name}_{part}.weight")[:, 0] for part in "qkv"])
        n, length = len(x), kernel.shape[1]
        if cache[0] is None or self.wrong("conv.tail", "missing"):
            cache[0] = np.zeros((length - 1, x.shape[1]))
        rows = np.concatenate([cache[0], x])
        end = len(rows) - self.wrong("conv.tail", "late")
        cache[0] = rows[end - length + 1:end]
        if self.wrong("conv.kernel", "reversed"):
            kernel = kernel[:, ::-1]
        y = sum(rows[j:j + n] * kernel[:, j] for j in range(length))
        return y if bias is None or self.wrong("conv.bias", "missing") else y + bias

    def activated(self, x, show):
        return show("conv_output_silu", x if self.wrong("conv.act", "missing") else silu(x))

    def begin_state(self, shape, cache):
        if cache[1] is None or self.wrong("state.kept", "none"):
            return np.zeros(shape)
        return cache[1]

    def end_state(self, state, step, cache):
        if not (step and self.wrong("state.kept", "prompt")):
            cache[1] = state

    def decay(self, x):
        """e^x"""
        wrong = self.switch.get("state.decay")
        return {"missing": np.ones_like, "inverted": lambda x: np.exp(-x), "linear": lambda x: 1 + x}.get(
            wrong, np.exp)(x)

    def softplus(self, x):
        return x if self.wrong("dt.softplus", "missing") else np.logaddexp(0, x)

    # ---- convolution ----

    def short_convolution(self, block, x, step, cache, show):
        row = show("conv_in", self.product(x, self.weight(f"{block}.shortconv.in_proj.weight")))
        before, after, x = np.split(row, 3, axis=1)
        if self.wrong("conv.gates", "exchanged"):
            before, after = after, before
        y = show("conv", self.convolve(block, "shortconv.conv", before * x, cache))
        y = show("conv_gated", y if self.wrong("conv.gate", "missing") else y * after)
        return show("conv_out", self.product(y, self.weight(f"{block}.shortconv.out_proj.weight")))

    # ---- scan ----

    def scan(self, block, x, step, cache, show):
        key, is_first = self.file.key, self.file.arch in ("mamba", "jamba")
        inner, width, rank = key("ssm.inner_size"), key("ssm.state_size"), key("ssm.time_step_rank")
        n, groups = len(x), 1 if is_first else key("ssm.group_count")
        heads = inner if is_first else rank
        dim = inner // heads
        row = show("mamba_in_proj", self.scaled(block, "ssm_in", x))
        n_x = inner + (0 if is_first else 2 * groups * width)
        if is_first != self.wrong("scan.parts", "exchanged"):     # x comes first
            x, z, dt = np.split(row, [n_x, n_x + inner], axis=1)
        else:
            z, x, dt = np.split(row, [inner, inner + n_x], axis=1)
        show("mamba_z_split", z)
        show("mamba_x_split", x)
        if not is_first:
            show("mamba2_dt_split", dt)
        x = self.activated(show("conv", self.convolve(block, "ssm_conv1d", x, cache)), show)
        if is_first:
            row = show("mamba_bcdt_proj", self.product(x, self.weight(f"{block}.ssm_x.weight")))
            dt, b, c = np.split(row, [rank, rank + width], axis=1)
        else:
            x, b, c = np.split(x, [inner, inner + groups * width], axis=1)
        if self.wrong("scan.bc", "exchanged"):
            b, c = c, b
        show("mamba_B_raw", b)
        show("mamba_C_raw", c)
        if is_first:
            show("mamba_dt_raw", dt)
            for norm in ("ssm_b_norm", "ssm_c_norm", "ssm_dt_norm"):
                assert f"{block}.{norm}.weight" not in self.file.tensors, norm
            dt = self.product(dt, self.weight(f"{block}.ssm_dt.weight"))
        dt = show("mamba_dt_proj", dt if self.wrong("dt.bias", "missing") else dt + self.weight(f"{block}.ssm_dt.bias"))
        dt = show("mamba_dt_softplus", self.softplus(dt))
        group = np.arange(heads) // (heads // groups)
        if self.wrong("scan.groups", "interleaved"):
            group = np.arange(heads) % groups
        b, c = (part.reshape(n, groups, width)[:, group] for part in (b, c))         # (n, heads, width)
        y = self.scanned(block, x.reshape(n, heads, dim), dt[..., None], b, c, step, cache)
        y = show("mamba2_y_add_d", y.reshape(n, inner))
        return show("mamba_out", self.scaled(block, "ssm_out", self.scan_gated(block, y, z, groups, show)))

    def scanned(self, block, x, dt, b, c, step, cache):
        """x: (n, H, dim), dt: (n, H, 1), b and c: (n, H, width) -> (n, H, dim)"""
        a = self.weight(f"{block}.ssm_a")                                            # (H, width) or (H, 1)
        fed = {"unscaled": lambda: b, "exact": lambda: np.expm1(dt * a) / a * b}.get(
            self.switch.get("scan.b"), lambda: dt * b)()
        decay, state, y = self.decay(dt * a), self.begin_state((*x.shape[1:], b.shape[2]), cache), []
        for t in range(len(x)):
            state = decay[t][:, None] * state + x[t][..., None] * fed[t][:, None]
            y.append(np.einsum("hdw,hw->hd", state, c[t]))
        self.end_state(state, step, cache)
        d = 0 if self.wrong("scan.d", "missing") else self.weight(f"{block}.ssm_d").reshape(-1, 1)
        return np.stack(y) + d * x

    def scan_gated(self, block, y, z, groups, show):
        weight, wrong = self.weight(f"{block}.ssm_norm.weight"), self.switch.get("recurrent.norm")

        def norm(y):
            if weight is None:
                return y
            parts = 1 if wrong == "row" else groups
            rows = y.reshape(len(y), parts, -1)
            after = rows if wrong == "missing" else self.normalized(rows, weight.reshape(parts, -1))
            return show("mamba_norm", after.reshape(y.shape))

        def gate(y):
            return show("mamba_y_swiglu_z", y if self.wrong("recurrent.gate", "missing") else y * silu(z))

        return gate(norm(y)) if wrong == "moved" else norm(gate(y))

    # ---- delta rule ----

    def unit(self, x, name):
        wrong = self.switch.get("delta.unit")
        if wrong == "none" or wrong == "q_only" and name == "k":
            return x
        return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + self.epsilon())

    def delta_net(self, block, x, step, cache, show):
        key, is_kimi = self.file.key, self.file.arch in ("kimi-linear", "bailingmoe3")
        dim, keys, heads = key("ssm.state_size"), key("ssm.group_count"), key("ssm.time_step_rank")
        if is_kimi:
            dim, keys, heads = key("kda.head_dim"), self.n_head, self.n_head
        n = len(x)

        def matrix(name, x):
            return self.product(x, self.weight(f"{block}.{name}.weight"))

        def one_or_two(name):
            y, second = matrix(f"{name}_a", x), self.weight(f"{block}.{name}_b.weight")
            return y if second is None else self.product(y, second)

        row = (np.concatenate([matrix(f"attn_{part}", x) for part in "qkv"], axis=1) if is_kimi
               else self.scaled(block, "attn_qkv", x))
        show("linear_attn_qkv_mixed", row)
        gate = show("attn_gate_proj", one_or_two("ssm_g") if is_kimi else self.scaled(block, "attn_gate", x))
        if is_kimi:
            beta, decay = matrix("ssm_beta", x), one_or_two("ssm_f")
        elif self.weight(f"{block}.ssm_ba.weight") is None:
            beta, decay = self.scaled(block, "ssm_beta", x), self.scaled(block, "ssm_alpha", x)
        else:   # for each head of K: beta and then alpha of the heads of V that use it
            both = self.scaled(block, "ssm_ba", x).reshape(n, keys, 2, -1)
            beta, decay = both[:, :, 0].reshape(n, -1), both[:, :, 1].reshape(n, -1)
        show("beta", beta)
        show("alpha", decay)
        beta = show("beta_sigmoid", beta if self.wrong("delta.beta", "unbounded") else 1 / (1 + np.exp(-beta)))
        dt = 0 if self.wrong("dt.bias", "missing") else self.weight(f"{block}.ssm_dt.bias")
        a = np.repeat(self.weight(f"{block}.ssm_a").reshape(-1), decay.shape[1] // heads)
        least = key("kda.gate_lower_bound", 0) if self.file.arch == "bailingmoe3" else 0
        decay = least / (1 + np.exp(-a * (decay + dt))) if least else a * self.softplus(decay + dt)
        decay = self.decay(show("delta_decay", decay))
        row = self.activated(show("conv", self.convolve(block, "ssm_conv1d", row, cache)), show)
        decay = decay.reshape(n, heads, 1, -1)                                       # (n, heads, 1, 1 or dim)
        if self.wrong("delta.decay", "first"):
            decay = decay[..., :1]
        elif self.wrong("delta.decay", "rows"):
            decay = decay.swapaxes(2, 3)
        q, k, v = (part.reshape(n, -1, dim) for part in np.split(row, [keys * dim, 2 * keys * dim], axis=1))
        use = self.switch.get("delta.heads", "by_group" if self.file.arch == "qwen3next" else "by_turns")
        of = np.arange(heads) // (heads // keys) if use == "by_group" else np.arange(heads) % keys
        q, k = self.unit(q, "q")[:, of], self.unit(k, "k")[:, of]
        state, wrong, y = self.begin_state((heads, dim, dim), cache), self.switch.get("delta.rule"), []
        for t in range(n):
            early = state
            state = state * decay[t]
            old = np.einsum("hvk,hk->hv", early if wrong == "early" else state, k[t])
            new = beta[t][:, None] * (v[t] - (0 if wrong == "added" else old))
            state = state + new[..., None] * k[t][:, None]
            y.append(np.einsum("hvk,hk->hv", state, q[t]))
        self.end_state(state, step, cache)
        y = np.stack(y) / (1 if self.wrong("delta.scale", "missing") else math.sqrt(dim))
        show("delta_rule", y.reshape(n, -1))
        gate = gate.reshape(y.shape)
        kind = self.switch.get("delta.gate", "sigmoid" if is_kimi else "silu")
        gate = 1 / (1 + np.exp(-gate)) * (1 if kind == "sigmoid" else gate)
        gate = 1 if self.wrong("recurrent.gate", "missing") or self.wrong("attn.gate", "missing") else gate
        weight, wrong = self.weight(f"{block}.ssm_norm.weight"), self.switch.get("recurrent.norm")
        y = {"missing": lambda: y * gate, "moved": lambda: self.normalized(y * gate, weight)}.get(
            wrong, lambda: self.normalized(y, weight) * gate)()
        y = show("final_output", y.reshape(n, -1))
        return show("linear_attn_out", matrix("attn_output", y) if is_kimi else self.scaled(block, "ssm_out", y))

    # ---- lightning attention ----

    def lightning(self, block, x, step, cache, show):
        n, heads = len(x), self.n_head
        il, last = int(block.split(".")[1]), self.n_layer - 1
        row = show("QKVcur", self.product(x, self.weight(f"{block}.attn_qkv.weight")))
        row = show("QKVcur_silu", row if self.wrong("lightning.act", "missing") else silu(row))
        if self.wrong("lightning.split", "by_kind"):
            q, k, v = row.reshape(n, 3, heads, -1).swapaxes(0, 1)
        else:
            q, k, v = np.split(row.reshape(n, heads, -1), 3, axis=2)
        for name, part in (("Qcur", q), ("Kcur", k), ("Vcur", v)):
            show(name, part)
        head = np.arange(heads) + (0 if self.wrong("lightning.slopes", "from_zero") else 1)
        later = 1 if self.wrong("lightning.slopes", "of_first") else 1 - il / last
        fade = np.exp(-2.0 ** (-8 * head / heads) * (later + 1e-5))
        if self.wrong("lightning.decay", "missing"):
            fade = np.ones(heads)
        show("wkv_decay", np.tile(np.repeat(fade, q.shape[2]), (n, 1)))
        state, y = self.begin_state((heads, v.shape[2], k.shape[2]), cache), []
        for t in range(n):
            state = state * fade[:, None, None] + v[t][..., None] * k[t][:, None]
            y.append(np.einsum("hvk,hk->hv", state, q[t]))
        self.end_state(state, step, cache)
        y = show("wkv_output", np.stack(y).reshape(n, -1))
        weight = self.weight(f"{block}.attn_norm_2.weight")
        parts = heads if self.wrong("lightning.norm", "heads") else 1
        y = self.normalized(y.reshape(n, parts, -1), weight.reshape(parts, -1)).reshape(n, -1)
        show("wkv_norm", y)
        gate = show("attn_gate_proj", self.product(x, self.weight(f"{block}.attn_gate.weight")))
        gate = np.logaddexp(0, gate) if self.wrong("attn.gate", "softplus") else 1 / (1 + np.exp(-gate))
        y = show("attn_gated", y * (1 if self.wrong("attn.gate", "missing") else gate))
        return show("attn_out", self.product(y, self.weight(f"{block}.attn_output.weight")))
