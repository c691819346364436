"""T5 in the second engine: an encoder, and a decoder that reads its output.

Sources: T5 (arXiv 1910.10683), section 2.1, and llama.cpp v0.5.0's src/models/t5.cpp and its
llama_relative_position_bucket.
The encoder reads the whole text at once, the decoder as other models do.  Layers are counted as plumb shows them: those
of the encoder, and then two for each block of the decoder, of which the first attends to the decoder's own tokens, and
the second one to the encoder's and has the feed-forward network.
"""
import math

import numpy as np

FAR = 128   # distances from here on share a bucket
STORED = {"attn_output": "attn_o"}
CROSS = {"attn_norm": "cross_attn_norm", "attn_q": "cross_attn_q", "attn_k": "cross_attn_k", "attn_v": "cross_attn_v",
         "attn_output": "cross_attn_o", "attn_rel_b": "cross_attn_rel_b"}


class EncoderDecoder:
    """The part of class Engine for these models.  In other models n_encoder is 0."""

    def set_blocks(self):
        self.n_encoder = self.n_layer if self.file.arch == "t5" else 0
        if self.n_encoder:
            self.n_layer += 2 * self.file.key("decoder_block_count", self.n_layer)

    def is_encoder(self, il):
        return il < self.n_encoder

    def is_cross(self, il):
        return il >= self.n_encoder > 0 and (il - self.n_encoder) % 2 == 1

    def is_alone(self, il):
        """Whether a layer has no feed-forward network."""
        return self.kind["alone"] or il >= self.n_encoder > 0 and not self.is_cross(il)

    def sees_all(self, il):
        """Whether a layer attends to all of the encoder's tokens, in the encoder or in the decoder."""
        return self.is_encoder(il) or self.is_cross(il) and not self.wrong("cross.source", "decoder")

    def stored_name(self, name):
        """The name in the file of a tensor that engine.py calls as other models do."""
        if not self.n_encoder:
            return name
        if name == "output_norm.weight":
            return "dec.output_norm.weight"
        if not name.startswith("blk."):
            return name
        _, il, own, kind = name.split(".")
        il = int(il)
        if self.is_encoder(il):
            return f"enc.blk.{il}.{STORED.get(own, own)}.{kind}"
        own = (CROSS if self.is_cross(il) else STORED).get(own, own)
        return f"dec.blk.{(il - self.n_encoder) // 2}.{own}.{kind}"

    def bucket_bias(self, il, slot, n_slot):
        """(H, n, S) what is added to scores.  A block without a table of its own has that of the first one."""
        if not self.n_encoder or self.is_cross(il):
            return 0
        first = 0 if self.is_encoder(il) else self.n_encoder
        table = self.weight(f"blk.{il}.attn_rel_b.weight")
        table = self.weight(f"blk.{first}.attn_rel_b.weight") if table is None else table
        if self.is_encoder(il):
            around = not self.wrong("buckets.encoder", "before")
        else:
            around = self.wrong("buckets.decoder", "around")
        return table[bucket(np.arange(n_slot) - slot[:, None], len(table), around)].transpose(2, 0, 1)

    def attend_encoder(self, il, normed, slot, cache, show):
        """normed: (n, n_embd).  cache: K and V of the encoder's output."""
        q = self.project(f"blk.{il}", "attn_q", normed).reshape(len(normed), self.n_head, -1)
        show("Qcur", q)
        show("Qcur_rope", q)
        return self.attended(il, *self.attention(il, q, *cache, slot, None), normed, None, show)

    def encode(self, tokens, caches, tap):
        """Computes what the decoder reads of the encoder's output, and puts it into its caches."""
        x, n = self.embed(tokens, 0), len(tokens)
        tap("enc_embd", x)
        self.own = None
        for il in range(self.n_encoder):
            nothing = [np.zeros((0, self.n_head_kv, dim)) for dim in (self.head_dim, self.v_dim)]
            x = self.layer(il, x, 0, n, nothing, tap)
        x = self.norm("enc.output_norm", x)
        tap(f"enc_result_norm-{self.n_encoder - 1}", x)
        for il in range(self.n_encoder, self.n_layer):
            if not self.is_cross(il) or not self.sees_all(il):
                continue
            names = ("attn_k", "attn_v")
            k, v = (self.project(f"blk.{il}", name, x).reshape(n, self.n_head_kv, -1) for name in (
                names[::-1] if self.wrong("qkv.order", "v_before_k") else names))
            caches[il] = [k, v]
            for name, value in (("Kcur", k), ("Vcur", v), ("Kcur_rope", k)):
                tap(f"{name}-{il}", value)

    def fed_to_decoder(self, tokens):
        is_wrong = self.n_encoder and self.wrong("decoder.start", "missing")
        return np.append(tokens[1:], tokens[-1]) if is_wrong else tokens


def bucket(distance, n, around):
    """distance: of keys to the query, negative for keys before it.  around: half of the n buckets are for keys after
    the query; otherwise these have the bucket of distance 0."""
    first = 0
    if around:
        n //= 2
        first = np.where(distance > 0, n, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    near = n // 2
    # As in f32, where whole powers of two stay whole.
    far = near + np.floor((np.log(np.maximum(distance, 1) / near) / math.log(FAR / near) * (n - near)).astype(
        np.float32)).astype(int)
    return first + np.where(distance < near, distance, np.minimum(far, n - 1))
