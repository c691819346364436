"""What Gemma 4 has of its own in the second engine: widths of heads and K and V that differ by layer, and an embedding
for each layer.

Source: llama.cpp v0.5.0's src/models/gemma4.cpp.
"""
import math

import numpy as np


class PerLayer:
    """The part of class Engine for these models."""

    def is_gemma4(self):
        return self.file.arch == "gemma4"

    def enter(self, il):
        """The widths of a layer, from here on."""
        if not self.is_gemma4():
            return
        key, end = self.file.key, "_swa" if self.has_window[il] else ""
        self.head_dim = self.v_dim = self.scaled_dim = key(f"attention.key_length{end}")
        self.n_rot = key(f"rope.dimension_count{end}")
        self.n_head_kv = key("attention.head_count_kv")[il]

    def kv_layer(self, il):
        """The layer whose K and V this layer reads."""
        own = self.n_layer - (self.file.key("attention.shared_kv_layers", 0) if self.is_gemma4() else 0)
        return il if il < own else own - (2 if self.has_window[il] else 1)

    def embed_layers(self, tokens, x, tap):
        """x: (n, n_embd), embeddings -> (n, n_layer, n_own)"""
        table = self.weight("per_layer_token_embd.weight")
        if table is None or not self.is_gemma4():
            return None
        n_own, wrong = self.file.key("embedding_length_per_layer_input"), self.switch.get("per_layer.rows")
        rows = table[tokens].reshape(len(x), self.n_layer, n_own) * (1 if wrong == "unscaled" else math.sqrt(n_own))
        own = self.product(x, self.weight("per_layer_model_proj.weight")) / math.sqrt(self.n_embd)
        own, weight = own.reshape(rows.shape), self.weight("per_layer_proj_norm.weight")
        own = self.normalized(own + rows, weight) if wrong == "before_norm" else self.normalized(own, weight) + rows
        own = own / (1 if self.wrong("per_layer.sum", "unscaled") else math.sqrt(2))
        tap("inp_per_layer", own.reshape(len(x), -1))
        return own

    def add_own(self, il, x, show):
        """x: (n, n_embd), what a layer computes otherwise"""
        if self.own is None:
            return x
        block = f"blk.{il}"
        show("pe_in", x)
        part = {"next": (il + 1) % self.n_layer, "first": 0}.get(self.switch.get("per_layer.part"), il)
        gate = show("first_prediction_gated", self.activation(self.product(x, self.weight(f"{block}.inp_gate.weight")),
                                                              1))
        gate = show("first_prediction_scaled", gate * self.own[:, part])
        out = self.norm(f"{block}.post_norm", self.product(gate, self.weight(f"{block}.proj.weight")))
        return (x + show("per_layer_embd_out", out)) * self.weight(f"{block}.layer_output_scale.weight")
