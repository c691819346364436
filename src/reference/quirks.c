/* The table of quirks, and which of them make sense for a model.
 *
 * The sentences are exact: tests/reference/engine.py makes the same mistakes from them and from nothing else.  In them
 * t is a token of the batch, p its position, h one of n_head query heads, g one of n_head_kv key and value heads; a
 * batch is the whole prompt, or one token after it ("a step").
 */
#include "reference/quirks.h"

#define AT(switch) offsetof(struct quirks, switch)
#define MISREAD(type, kind) offsetof(struct quirks, misread) + QUANT_##type, MISREAD_##kind

static const struct quirk quirks[] = {
    /* ---- tokens ---- */
    { "tokens.bos=missing", AT(tokens_bos), 1, "embd", "the first token (BOS) is not fed" },
    { "tokens.bos=doubled", AT(tokens_bos), 2, "embd", "the first token (BOS) is fed twice" },
    { "tokens.last=twice", AT(tokens_last), 1, "embd", "the last token of the prompt is fed again after the prompt, "
      "as the first step" },
    { "embd.scale=added", AT(embd_scale), 1, "embd", "embeddings are multiplied by sqrt(n_embd)" },
    { "embd.scale=missing", AT(embd_scale), 2, "embd", "embeddings are not multiplied by the scale of the file" },

    /* ---- norms: all RMS norms unless it says otherwise ---- */
    { "norm.weight=missing", AT(norm_weight), 1, "attn_norm", "the normalized vector is not multiplied by the weight" },
    { "norm.weight=plus_one", AT(norm_weight), 2, "attn_norm", "it is multiplied by weight + 1" },
    { "norm.mean=subtracted", AT(norm_mean), 1, "attn_norm", "the mean is subtracted first, and the variance taken "
      "instead of the mean square: LayerNorm" },
    { "norm.mean=sum", AT(norm_mean), 2, "attn_norm", "the sum of squares is not divided by the number of elements" },
    { "norm.eps=0", AT(norm_eps), 1, "attn_norm", "epsilon is 0" },
    { "norm.eps=1e-6", AT(norm_eps), 2, "attn_norm", "epsilon is 1e-6" },
    { "norm.eps=1e-5", AT(norm_eps), 3, "attn_norm", "epsilon is 1e-5" },
    { "norm.eps=outside", AT(norm_eps), 4, "attn_norm", "epsilon is added to the root: x / (sqrt(mean(x^2)) + eps)" },
    { "norm.output=missing", AT(norm_output), 1, "result_norm", "the final norm is left out" },

    /* ---- projections ---- */
    { "weights.square=transposed", AT(square_weights), 1, "Qcur", "every square matrix among attn_q, attn_k, attn_v "
      "and attn_output is used transposed" },
    { "attn.bias=missing", AT(attn_bias), 1, "Qcur", "biases are not added" },

    /* ---- RoPE ---- */
    { "rope.pairing=halves", AT(rope_pairing), 1, "Qcur_rope", "elements i and i + n_rot/2 turn together, not 2i and "
      "2i + 1" },
    { "rope.pairing=neighbours", AT(rope_pairing), 2, "Qcur_rope", "elements 2i and 2i + 1 turn together, not i and "
      "i + n_rot/2" },
    { "rope.applied=none", AT(rope_applied), 1, "Qcur_rope", "neither Q nor K is turned" },
    { "rope.applied=q_only", AT(rope_applied), 2, "Kcur_rope", "K is not turned" },
    { "rope.applied=k_only", AT(rope_applied), 3, "Qcur_rope", "Q is not turned" },
    { "rope.theta=10000", AT(rope_theta), 1, "Qcur_rope", "the base of the frequencies is 10000" },
    { "rope.theta=100000", AT(rope_theta), 2, "Qcur_rope", "the base of the frequencies is 100000" },
    { "rope.theta=500000", AT(rope_theta), 3, "Qcur_rope", "the base of the frequencies is 500000" },
    { "rope.theta=1000000", AT(rope_theta), 4, "Qcur_rope", "the base of the frequencies is 1000000" },
    { "rope.position=plus_one", AT(rope_position), 1, "Qcur_rope", "Q and K of position p are turned as of p + 1" },
    { "rope.position=q_plus_one", AT(rope_position), 2, "Qcur_rope", "Q of position p is turned as of p + 1, K as of "
      "p" },
    { "rope.position=frozen", AT(rope_position), 3, "Qcur_rope", "the position stands still after the prompt: every "
      "step is turned as of n_prompt" },
    { "rope.position=restarted", AT(rope_position), 4, "Qcur_rope", "positions begin at 0 in every batch: every step "
      "is turned as of 0" },
    { "rope.position=same", AT(rope_position), 5, "Qcur_rope", "all tokens of a batch are turned as of the batch's "
      "first position" },
    { "rope.dim=half", AT(rope_dim), 1, "Qcur_rope", "only n_rot/2 elements are turned, with frequencies "
      "base^(-2i / (n_rot/2))" },
    { "rope.dim=full", AT(rope_dim), 2, "Qcur_rope", "head_dim elements are turned where the file says fewer" },
    { "rope.dim=n_embd", AT(rope_dim), 3, "Qcur_rope", "frequencies are base^(-2i / n_embd): the model's width for "
      "the head's" },
    { "rope.scaling=ignored", AT(rope_scaling), 1, "Qcur_rope", "neither the scaling factor nor rope_freqs is applied" },
    { "rope.direction=reversed", AT(rope_direction), 1, "Qcur_rope", "angles have the opposite sign" },
    { "rope.cache=unrotated", AT(rope_cache), 1, "kq_soft_max", "K is cached before RoPE, and a query turns all keys "
      "by its own position" },

    /* ---- attention ---- */
    { "attn.heads=interleaved", AT(attn_heads), 1, "kq_soft_max", "query head h reads key and value head "
      "h % n_head_kv, not h / (n_head / n_head_kv)" },
    { "attn.heads=first", AT(attn_heads), 2, "kq_soft_max", "every query head reads key and value head 0" },
    { "attn.heads=not_repeated", AT(attn_heads), 3, "kq_soft_max", "query head h reads key and value head h; from "
      "n_head_kv on those are zeros" },
    { "attn.scale=missing", AT(attn_scale), 1, "kq_soft_max", "scores are not divided by sqrt(head_dim)" },
    { "attn.scale=head_dim", AT(attn_scale), 2, "kq_soft_max", "scores are divided by head_dim, not by its root" },
    { "attn.scale=n_embd", AT(attn_scale), 3, "kq_soft_max", "scores are divided by sqrt(n_embd)" },
    { "attn.mask=none", AT(attn_mask), 1, "kq_soft_max", "a token also sees the later tokens of its batch" },
    { "attn.mask=strict", AT(attn_mask), 2, "kq_soft_max", "a token does not see itself; the first token does" },
    { "attn.mask=late", AT(attn_mask), 3, "kq_soft_max", "a token also sees the one after it, where its batch has "
      "one" },
    { "attn.softmax=over_queries", AT(attn_softmax), 1, "kq_soft_max", "exponentials of scores are divided by their "
      "sum over the tokens of the batch that see the key, not over the keys" },
    { "attn.softmax=over_heads", AT(attn_softmax), 2, "kq_soft_max", "exponentials of scores are divided by their sum "
      "over the query heads, not over the keys" },
    { "attn.softmax=no_max", AT(attn_softmax), 3, "kq_soft_max", "the largest score is not subtracted, so that e^s "
      "is infinite in f32 from s > 88.7228 on" },
    { "attn.v=unpermuted", AT(attn_v), 1, "kqv_out", "the rows of V of all tokens so far, in memory as (token, g), are "
      "read as (g, token): key p of head g is row g * (number of tokens so far, this batch included) + p" },
    { "attn.merge=unpermuted", AT(attn_merge), 1, "kqv_out", "the batch's attention outputs, in memory as (h, token), "
      "are read as (token, h)" },
    { "kv.slot=stale", AT(kv_slot), 1, "kq_soft_max", "a step attends before its own K and V are written: its slot of "
      "the cache holds zeros" },
    { "kv.slot=extra", AT(kv_slot), 2, "kq_soft_max", "a token also sees one more slot of the cache after its own, K "
      "and V zero" },
    { "kv.slot=overwritten", AT(kv_slot), 3, "kq_soft_max", "every step writes its K and V into slot n_prompt and sees "
      "the slots 0..n_prompt" },

    /* ---- residual stream, feed forward ---- */
    { "residual.attn=missing", AT(residual), 1, "ffn_inp", "the attention's input is not added to its output" },
    { "residual.ffn=missing", AT(residual), 2, "l_out", "the feed forward's input is not added to its output" },
    { "residual.from=norm", AT(residual), 3, "ffn_inp", "what is added to the outputs of attention and feed forward "
      "is the normalized input" },
    { "ffn.order=swapped", AT(ffn_order), 1, "ffn_gate", "ffn_gate and ffn_up are exchanged" },
    { "ffn.act=gelu", AT(ffn_act), 1, "ffn_swiglu", "GELU in its tanh form instead of SiLU" },
    { "ffn.act=gelu_erf", AT(ffn_act), 2, "ffn_swiglu", "GELU in its exact form instead of SiLU" },
    { "ffn.act=relu", AT(ffn_act), 3, "ffn_swiglu", "ReLU instead of SiLU" },
    { "ffn.act=none", AT(ffn_act), 4, "ffn_swiglu", "gate times up, without an activation" },
    { "output.head=tied", AT(output_head), 1, "result_output", "token_embd.weight is the head although the file has "
      "output.weight" },
    { "output.head=zero", AT(output_head), 2, "result_output", "the head is a matrix of zeros where the file has no "
      "output.weight" },

    /* ---- bytes ---- */
    { "tensor.offset=shifted", AT(tensor_offset), 1, "embd", "every tensor is read from one alignment (32 bytes "
      "unless the file says otherwise) after its place; past the end of the file there are zeros" },
    { "Q4_0.nibbles=swapped", MISREAD(Q4_0, NIBBLES), "embd", "low and high nibble of every byte are exchanged" },
    { "Q4_0.layout=interleaved", MISREAD(Q4_0, LAYOUT), "embd", "byte j holds elements 2j and 2j + 1" },
    { "Q4_0.offset=missing", MISREAD(Q4_0, OFFSET), "embd", "8 is not subtracted from the codes" },
    { "Q4_0.d=bf16", MISREAD(Q4_0, BF16), "embd", "the f16 scale is read as bf16" },
    { "Q4_1.nibbles=swapped", MISREAD(Q4_1, NIBBLES), "embd", "low and high nibble of every byte are exchanged" },
    { "Q4_1.layout=interleaved", MISREAD(Q4_1, LAYOUT), "embd", "byte j holds elements 2j and 2j + 1" },
    { "Q4_1.min=subtracted", MISREAD(Q4_1, MIN), "embd", "the minimum is subtracted" },
    { "Q4_1.d=swapped", MISREAD(Q4_1, D), "embd", "scale and minimum are exchanged" },
    { "Q4_1.d=bf16", MISREAD(Q4_1, BF16), "embd", "the f16 scale and minimum are read as bf16" },
    { "Q5_0.nibbles=swapped", MISREAD(Q5_0, NIBBLES), "embd", "low and high nibble of every byte are exchanged; high "
      "bits stay with their elements" },
    { "Q5_0.layout=interleaved", MISREAD(Q5_0, LAYOUT), "embd", "byte j holds the low bits of elements 2j and 2j + 1; "
      "high bit i still belongs to element i" },
    { "Q5_0.offset=missing", MISREAD(Q5_0, OFFSET), "embd", "16 is not subtracted from the codes" },
    { "Q5_0.high=missing", MISREAD(Q5_0, HIGH), "embd", "the high bits are taken as 0" },
    { "Q5_0.high=interleaved", MISREAD(Q5_0, HIGH_ORDER), "embd", "element j < 16 takes high bit 2j, element j + 16 "
      "takes 2j + 1" },
    { "Q5_0.d=bf16", MISREAD(Q5_0, BF16), "embd", "the f16 scale is read as bf16" },
    { "Q5_1.nibbles=swapped", MISREAD(Q5_1, NIBBLES), "embd", "low and high nibble of every byte are exchanged; high "
      "bits stay with their elements" },
    { "Q5_1.layout=interleaved", MISREAD(Q5_1, LAYOUT), "embd", "byte j holds the low bits of elements 2j and 2j + 1; "
      "high bit i still belongs to element i" },
    { "Q5_1.min=subtracted", MISREAD(Q5_1, MIN), "embd", "the minimum is subtracted" },
    { "Q5_1.high=missing", MISREAD(Q5_1, HIGH), "embd", "the high bits are taken as 0" },
    { "Q5_1.high=interleaved", MISREAD(Q5_1, HIGH_ORDER), "embd", "element j < 16 takes high bit 2j, element j + 16 "
      "takes 2j + 1" },
    { "Q5_1.d=swapped", MISREAD(Q5_1, D), "embd", "scale and minimum are exchanged" },
    { "Q5_1.d=bf16", MISREAD(Q5_1, BF16), "embd", "the f16 scale and minimum are read as bf16" },
    { "Q8_0.codes=unsigned", MISREAD(Q8_0, SIGN), "embd", "the codes are read as 0..255" },
    { "Q8_0.d=bf16", MISREAD(Q8_0, BF16), "embd", "the f16 scale is read as bf16" },
    { "Q4_K.nibbles=swapped", MISREAD(Q4_K, NIBBLES), "embd", "low and high nibble of every byte are exchanged" },
    { "Q4_K.layout=interleaved", MISREAD(Q4_K, LAYOUT), "embd", "of each 32 bytes, byte j holds elements 2j and "
      "2j + 1 of the 64; scales still belong to elements" },
    { "Q4_K.min=added", MISREAD(Q4_K, MIN), "embd", "the minimum is added" },
    { "Q4_K.scales=swapped", MISREAD(Q4_K, SCALES), "embd", "6-bit scale and 6-bit minimum of each sub-block are "
      "exchanged" },
    { "Q4_K.scales=low_bits", MISREAD(Q4_K, SCALE_BITS), "embd", "scales and minima of sub-blocks 4..7 lack their "
      "upper two bits" },
    { "Q4_K.d=swapped", MISREAD(Q4_K, D), "embd", "d and dmin are exchanged" },
    { "Q4_K.d=bf16", MISREAD(Q4_K, BF16), "embd", "d and dmin are read as bf16" },
    { "Q5_K.nibbles=swapped", MISREAD(Q5_K, NIBBLES), "embd", "low and high nibble of every byte are exchanged; high "
      "bits stay with their elements" },
    { "Q5_K.layout=interleaved", MISREAD(Q5_K, LAYOUT), "embd", "of each 32 bytes, byte j holds the low bits of "
      "elements 2j and 2j + 1 of the 64; scales and high bits still belong to elements" },
    { "Q5_K.min=added", MISREAD(Q5_K, MIN), "embd", "the minimum is added" },
    { "Q5_K.scales=swapped", MISREAD(Q5_K, SCALES), "embd", "6-bit scale and 6-bit minimum of each sub-block are "
      "exchanged" },
    { "Q5_K.scales=low_bits", MISREAD(Q5_K, SCALE_BITS), "embd", "scales and minima of sub-blocks 4..7 lack their "
      "upper two bits" },
    { "Q5_K.high=missing", MISREAD(Q5_K, HIGH), "embd", "the high bits are taken as 0" },
    { "Q5_K.high=sequential", MISREAD(Q5_K, HIGH_ORDER), "embd", "element i takes bit i % 8 of high byte i / 8" },
    { "Q5_K.d=swapped", MISREAD(Q5_K, D), "embd", "d and dmin are exchanged" },
    { "Q5_K.d=bf16", MISREAD(Q5_K, BF16), "embd", "d and dmin are read as bf16" },
    { "Q6_K.order=sequential", MISREAD(Q6_K, ORDER), "embd", "of the 256 elements, i takes its low nibble from byte "
      "i / 2 (low nibble first), its two high bits from byte i / 4 (lowest first), its scale from i / 16" },
    { "Q6_K.offset=missing", MISREAD(Q6_K, OFFSET), "embd", "32 is not subtracted from the codes" },
    { "Q6_K.high=missing", MISREAD(Q6_K, HIGH), "embd", "the two high bits are taken as 0" },
    { "Q6_K.scales=unsigned", MISREAD(Q6_K, SIGN), "embd", "the 8-bit scales are read as 0..255" },
    { "Q6_K.d=bf16", MISREAD(Q6_K, BF16), "embd", "the f16 scale is read as bf16" },
    { "F16.type=bf16", MISREAD(F16, BF16), "embd", "f16 is read as bf16" },
    { "BF16.type=f16", MISREAD(BF16, BF16), "embd", "bf16 is read as f16" },
};
