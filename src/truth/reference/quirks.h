/* Quirks: each reproduces one known mistake of engines that run GGUF files.  A set of quirks is a struct quirks in
 * which some switches are on; all zeros is the right pass.  A switch with several values selects one of several quirks,
 * which exclude each other.
 *
 * Most quirks are edits: the reference pass takes its right steps, but with a copy of the model's plan and of its table
 * of weights in which a number is wrong or a weight is missing (quirk_edits.c).  What no plan can express is a wrong
 * step (quirk_steps.c).
 */
#ifndef PLUMB_REFERENCE_QUIRKS_H
#define PLUMB_REFERENCE_QUIRKS_H

#include "model/model.h"

/* The switches.  diagnose/quirk_table.c has a sentence for each value that says what it means.  Switches without an
 * enum are on (1) or off (0). */
struct quirks {
    /* Edits. */
    uint8_t embd_scale, model_scales, residual_scale, logit_scale;
    uint8_t softcap_attn, softcap_logits;
    uint8_t norm_kind, norm_eps, norm_bias, norm_embd, norm_post, norm_out;
    uint8_t qk_norm_applied, qk_norm_kind;
    uint8_t attn_bias, ffn_bias, output_bias;
    uint8_t types_missing, position_missing, alibi_missing;
    uint8_t rope_pairing, rope_none, rope_theta, rope_dim, rope_scaling, rope_layers, rope_base, rope_sections;
    uint8_t rope_yarn;
    uint8_t qkv_order, attn_scale, attn_causal, attn_sinks, attn_temperature, attn_gate;
    uint8_t window_size, window_layers, window_kind;
    uint8_t block_order, ffn_order, ffn_act, ffn_limit;
    uint8_t router_gating, router_norm, router_scale, router_no_bias, router_groups;
    uint8_t experts_used, experts_weighted, shared_expert, shared_gate;
    uint8_t output_head;
    uint8_t pooling_kind;   /* a plumb_pooling */
    /* What the caller does to the list of tokens. */
    uint8_t tokens_bos, tokens_last, tokens_padding;
    /* Wrong steps. */
    uint8_t norm_weight, norm_sum, norm_eps_outside, norm_output;
    uint8_t square_weights;
    uint8_t position_learned, alibi_slopes;
    uint8_t rope_applied, rope_position, rope_width, rope_part, rope_direction, rope_cache;
    uint8_t qkv_split, attn_heads, attn_mask, attn_softmax, attn_v, attn_merge;
    uint8_t kv_slot;
    uint8_t residual, ffn_other_act, ffn_limit_side;
    uint8_t router_biased, experts_chosen, experts_index, experts_weights;
    uint8_t tensor_offset;
    uint8_t misread[QUANT_TYPE_COUNT];   /* by tensor type: enum misread */
};

enum quirk_embd_scale { EMBD_SCALE_ADDED = 1, EMBD_SCALE_MISSING };
enum quirk_logit_scale { LOGIT_SCALE_MISSING = 1, LOGIT_SCALE_MULTIPLIED };
enum quirk_norm_kind { NORM_CENTRED = 1, NORM_NOT_CENTRED };
enum quirk_norm_eps { EPS_0 = 1, EPS_1E_6, EPS_1E_5 };
enum quirk_norm_post { POST_MISSING = 1, POST_BEFORE, POST_AS_LLAMA, POST_RESIDUAL };
enum quirk_norm_out { OUT_MISSING = 1, OUT_BEFORE };
enum quirk_qk_norm_applied { QK_NORM_NONE = 1, QK_NORM_Q_ONLY };
enum quirk_qk_norm_kind { QK_NORM_OVER_ROW = 1, QK_NORM_OVER_HEAD, QK_NORM_LATE, QK_NORM_EARLY };
enum quirk_rope_pairing { PAIRING_HALVES = 1, PAIRING_NEIGHBOURS };
enum quirk_rope_theta { THETA_10000 = 1, THETA_100000, THETA_500000, THETA_1000000 };
enum quirk_rope_dim { DIM_HALF = 1, DIM_FULL };
enum quirk_layers { LAYERS_ALL = 1, LAYERS_SHIFTED, LAYERS_EXCHANGED };   /* of rope_layers and window_layers */
enum quirk_rope_base { BASE_GLOBAL = 1, BASE_LOCAL, BASE_EXCHANGED };
enum quirk_rope_yarn { YARN_LINEAR = 1, YARN_NO_MAGNITUDE };
enum quirk_attn_scale { SCALE_MISSING = 1, SCALE_HEAD_DIM, SCALE_N_EMBD, SCALE_IGNORED };
enum quirk_attn_causal { MASK_NONE = 1, MASK_CAUSAL };
enum quirk_attn_gate { GATE_MISSING = 1, GATE_SOFTPLUS };
enum quirk_window_size { WINDOW_PLUS_ONE = 1, WINDOW_MINUS_ONE, WINDOW_IGNORED };
enum quirk_window_kind { WINDOW_CHUNK = 1, WINDOW_SLIDING };
enum quirk_block_order { ORDER_SEQUENTIAL = 1, ORDER_PARALLEL };
enum quirk_ffn_act { FFN_GELU = 1, FFN_RELU, FFN_RELU_SQR, FFN_SILU };
enum quirk_router_norm { ROUTER_NORM_MISSING = 1, ROUTER_NORM_ADDED };
enum quirk_experts_weighted { WEIGHTED_INPUT = 1, WEIGHTED_OUTPUT };
enum quirk_output_head { HEAD_TIED = 1, HEAD_ZERO };

enum quirk_bos { BOS_MISSING = 1, BOS_DOUBLED };

enum quirk_norm_weight { NORM_UNWEIGHTED = 1, NORM_PLUS_ONE };
enum quirk_position_learned { LEARNED_PLUS_ONE = 1, LEARNED_PLUS_TWO, LEARNED_RESTARTED };
enum quirk_alibi_slopes { SLOPES_POSITIVE = 1, SLOPES_FROM_ZERO };
enum quirk_rope_applied { APPLIED_Q_ONLY = 1, APPLIED_K_ONLY };
enum quirk_rope_position {
    POSITION_PLUS_ONE = 1, POSITION_Q_PLUS_ONE, POSITION_FROZEN, POSITION_RESTARTED, POSITION_SAME
};
enum quirk_attn_heads { HEADS_INTERLEAVED = 1, HEADS_FIRST, HEADS_NOT_REPEATED };
enum quirk_attn_mask { MASK_STRICT = 1, MASK_LATE };
enum quirk_attn_softmax { SOFTMAX_OVER_QUERIES = 1, SOFTMAX_OVER_HEADS, SOFTMAX_NO_MAX };
enum quirk_kv_slot { SLOT_STALE = 1, SLOT_EXTRA, SLOT_OVERWRITTEN };
enum quirk_residual { RESIDUAL_NO_ATTN = 1, RESIDUAL_NO_FFN, RESIDUAL_NORM };
enum quirk_ffn_other_act { FFN_GELU_ERF = 1, FFN_GELU_QUICK, FFN_IDENTITY };
enum quirk_ffn_limit_side { LIMIT_ONE_SIDED = 1, LIMIT_SWAPPED };

/* Mistakes in reading a block.  The table has an entry for each type for which a mistake makes sense. */
enum misread {
    MISREAD_NONE,
    MISREAD_NIBBLES,     /* low and high nibble of every byte swapped */
    MISREAD_LAYOUT,      /* byte j of a group holds elements 2j and 2j + 1, instead of j and j + group size */
    MISREAD_OFFSET,      /* codes taken as they are, without subtracting 1, 4, 8, 16 or 32 */
    MISREAD_MIN,         /* the minimum with the wrong sign */
    MISREAD_SCALES,      /* scale and minimum of each sub-block swapped */
    MISREAD_SCALE_BITS,  /* packed 6-bit scales and minima without their upper two bits, which are stored apart */
    MISREAD_SCALE_ORDER, /* packed 6-bit scales read in sequence */
    MISREAD_D,           /* the block's two f16 swapped */
    MISREAD_HIGH,        /* high bits, of codes or of indexes into a grid, not added */
    MISREAD_HIGH_ORDER,  /* high bits taken in another order */
    MISREAD_HIGH_SIGN,   /* high bits inverted */
    MISREAD_ORDER,       /* Q2_K, Q3_K, Q6_K, TQ1_0, TQ2_0: elements read in sequence; NVFP4: in the order of MXFP4 */
    MISREAD_TABLE,       /* IQ4_NL, IQ4_XS, MXFP4, NVFP4: codes taken as those of Q4_0 */
    MISREAD_DOUBLED,     /* MXFP4, NVFP4: scales not halved, though the values of the codes are doubled */
    MISREAD_DIGITS,      /* TQ1_0: bytes taken as integers of base 3, not as fractions */
    MISREAD_SIGNS,       /* IQ2, IQ3: all weights of a vector positive */
    MISREAD_LAST_SIGN,   /* IQ2_XXS, IQ2_XS, IQ3_XXS: the eighth sign, which the other seven determine, taken as plus */
    MISREAD_SHIFT,       /* IQ1: 1/8 neither added nor subtracted */
    MISREAD_HALF,        /* IQ1, IQ2, IQ3: 1/2 not added to the scales */
    MISREAD_SIGN,        /* signed bytes read as unsigned, or 32 not subtracted from scales */
    MISREAD_BF16,        /* f16 read as bf16, or BF16 as f16 */
};

/* True if the switch at this offset in struct quirks is an edit. */
static inline bool quirk_is_edit(size_t field) { return field < offsetof(struct quirks, tokens_bos); }
/* Makes the edits of a set.  p: a copy of the model's plan.  m: a copy of the model with a table of layers of its own;
 * its plan stays the right one. */
void quirk_edit(const struct quirks *q, struct plan *p, struct model *m);
/* Returns 1 if the edits of a set change anything in this model, 0 if not, and -1 if there is no memory to find out. */
int quirk_edits_change(const struct quirks *q, const struct model *m);
/* Dequantizes one row of n elements as an engine with the mistake does.  n is a multiple of the type's block size. */
void quirk_misread(enum quant_type type, enum misread misread, const void *src, float *dst, size_t n);

#endif
