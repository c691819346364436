/* The table of architectures, and how their keys make a plan.  No other file knows an architecture's name. */
#include "base/math.h"
#include "model/plan.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- keys ------------------------------------------------------------------------------------------------------ */

struct key_reader {
    const struct gguf *gguf;
    const char *architecture;
    struct error *err;
    char key[128];   /* the key last asked for, "llama.block_count" */
};

static const char *key_of(struct key_reader *r, const char *suffix) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->architecture, suffix);
    return r->key;
}

/* Reads a count that must be in 1..max.  Leaves *out unchanged if the key is absent; a missing key is an error if *out
 * is 0. */
static plumb_status read_count(struct key_reader *r, const char *suffix, uint32_t max, uint32_t *out) {
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, suffix), out, r->err));
    if (*out == 0 && !gguf_find_key(r->gguf, r->key)) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing", r->key);
    }
    if (*out == 0 || *out > max) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected 1 to %u", r->key, *out, max);
    }
    return PLUMB_OK;
}

/* Reads a factor.  Leaves *out unchanged if the key is absent or, as in llama.cpp, 0. */
static plumb_status read_scale(struct key_reader *r, const char *suffix, float *out) {
    float scale = 0.0f;
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, suffix), &scale, r->err));
    if (!(scale == 0.0f || (scale >= 1e-6f && scale <= 1e6f))) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %g, expected 1e-6 to 1e6", r->key, (double)scale);
    }
    if (scale != 0.0f) *out = scale;
    return PLUMB_OK;
}

static plumb_status read_freq_base(struct key_reader *r, const char *suffix, float *out) {
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, suffix), out, r->err));
    if (*out >= 1.0f && *out <= 1e12f) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %g, expected 1 to 1e12", r->key, (double)*out);
}

/* ---- what all architectures have --------------------------------------------------------------------------------- */

static plumb_status read_rope(struct key_reader *r, uint32_t k_dim, struct rope_plan *rope) {
    rope->n_rot = k_dim;
    PLUMB_TRY(read_count(r, "rope.dimension_count", k_dim, &rope->n_rot));
    if (rope->n_rot % 2 != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected an even number", r->key, rope->n_rot);
    }
    rope->freq_base = 10000.0f;
    PLUMB_TRY(read_freq_base(r, "rope.freq_base", &rope->freq_base));
    struct gguf_string scaling = { "linear", 6 };
    PLUMB_TRY(gguf_get_string(r->gguf, key_of(r, "rope.scaling.type"), &scaling, r->err));
    bool none = scaling.n == 4 && memcmp(scaling.data, "none", 4) == 0;
    if (!none && !(scaling.n == 6 && memcmp(scaling.data, "linear", 6) == 0)) {
        struct shown shown;
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s: \"%s\" is not supported, expected none or linear",
                         r->key, show_bytes(&shown, scaling.data, (size_t)scaling.n));
    }
    float factor = 0.0f;   /* 0 means no scaling, as in llama.cpp; scale_linear is the old name of the key */
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, "rope.scale_linear"), &factor, r->err));
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, "rope.scaling.factor"), &factor, r->err));
    if (!(factor == 0.0f || (factor >= 0.1f && factor <= 1e6f))) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %g, expected 0.1 to 1e6", r->key, (double)factor);
    }
    rope->freq_scale = none || factor == 0.0f ? 1.0f : 1.0f / factor;
    return PLUMB_OK;
}

/* The bounds are far above any real model.  They keep products of two of these numbers far below 2^64. */
static plumb_status read_common(struct key_reader *r, struct plan *p, struct layer_plan *layer) {
    struct attn_plan *a = &layer->attn;
    PLUMB_TRY(read_count(r, "block_count", 1u << 16, &p->n_layer));
    PLUMB_TRY(read_count(r, "embedding_length", 1u << 20, &p->n_embd));
    PLUMB_TRY(read_count(r, "feed_forward_length", 1u << 22, &layer->ffn.n_ff));
    PLUMB_TRY(read_count(r, "context_length", UINT32_MAX, &p->n_ctx_train));
    PLUMB_TRY(read_count(r, "attention.head_count", 1u << 16, &a->n_head));
    a->n_head_kv = a->n_head;
    PLUMB_TRY(read_count(r, "attention.head_count_kv", a->n_head, &a->n_head_kv));
    if (a->n_head % a->n_head_kv != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, which does not divide the %u query heads", r->key,
                         a->n_head_kv, a->n_head);
    }
    a->k_dim = p->n_embd / a->n_head;
    PLUMB_TRY(read_count(r, "attention.key_length", 1u << 16, &a->k_dim));
    a->v_dim = a->k_dim;
    PLUMB_TRY(read_count(r, "attention.value_length", 1u << 16, &a->v_dim));
    if (a->v_dim != a->k_dim) {
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s is %u, which differs from the key length %u", r->key,
                         a->v_dim, a->k_dim);
    }
    p->norm_eps = -1.0f;
    const char *epsilon = p->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, epsilon), &p->norm_eps, r->err));
    if (!(p->norm_eps >= 0.0f && p->norm_eps <= 1.0f)) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing or not from 0 to 1", r->key);
    }
    uint32_t n_expert = 0;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "expert_count"), &n_expert, r->err));
    if (n_expert != 0) {
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s is %u, but mixtures of experts are not supported",
                         r->key, n_expert);
    }
    return read_rope(r, a->k_dim, &p->ropes[ROPE_GLOBAL]);
}

/* ---- sets of weights --------------------------------------------------------------------------------------------- */

#define SET(weight) (UINT64_C(1) << (W_##weight))
/* Sets of weights that many architectures share. */
#define ENDS (SET(TOKEN_EMBD) | SET(OUTPUT_NORM))
#define QKV (SET(ATTN_Q) | SET(ATTN_K) | SET(ATTN_V))
#define ATTENTION (QKV | SET(ATTN_OUTPUT))
#define QK_NORM (SET(ATTN_Q_NORM) | SET(ATTN_K_NORM))
#define POST_NORM (SET(ATTN_POST_NORM) | SET(FFN_POST_NORM))
#define FFN (SET(FFN_UP) | SET(FFN_DOWN))
#define GATED (SET(FFN_GATE) | FFN)
#define NORMS (SET(ATTN_NORM) | SET(FFN_NORM))
#define DENSE (ENDS | NORMS | ATTENTION | GATED)    /* Llama's */
#define PLAIN (ENDS | NORMS | ATTENTION | FFN)      /* without a gate */
#define TIED (SET(OUTPUT) | SET(ATTN_QKV))          /* output.weight may be missing, Q, K and V may be fused */
#define FREQS SET(ROPE_FREQS)
/* The biases and factors of fused and separate Q, K and V. */
#define QKV_BIAS (QKV | SET(ATTN_QKV))
#define ATTENTION_BIAS (QKV_BIAS | SET(ATTN_OUTPUT))
#define NORM_BIAS (NORMS | SET(OUTPUT_NORM))
/* llama.cpp applies the factors of attention in all architectures, and those of the feed-forward network in some. */
#define SCALED ATTENTION_BIAS

/* ---- what only some have ----------------------------------------------------------------------------------------- */

/* The muP factors of Granite (Yang et al. 2022, "Tensor Programs V"), as in llama.cpp. */
static plumb_status plan_granite(struct key_reader *r, struct plan *p) {
    float attention_scale = 0.0f;
    PLUMB_TRY(read_scale(r, "embedding_scale", &p->embedding_scale));
    PLUMB_TRY(read_scale(r, "residual_scale", &p->residual_scale));
    PLUMB_TRY(read_scale(r, "attention.scale", &attention_scale));
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.scale = attention_scale;
    p->logit_scale = 0.0f;
    PLUMB_TRY(read_scale(r, "logit_scale", &p->logit_scale));
    if (p->logit_scale == 0.0f) {   /* logits are divided by it */
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing or 0", r->key);
    }
    /* llama.cpp reads this key as "the model has RoPE", only in this architecture. */
    bool has_rope = true;
    PLUMB_TRY(gguf_get_bool(r->gguf, key_of(r, "rope.scaling.finetuned"), &has_rope, r->err));
    if (!has_rope) {
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s is false: models without RoPE are not supported",
                         r->key);
    }
    return PLUMB_OK;
}

/* Layers with a sliding window, and a frequency base of their own.  Of every `period` layers all but the last have the
 * window; sliding_window_pattern is another period, or says for each layer whether it has the window. */
static plumb_status plan_windows(struct key_reader *r, struct plan *p, uint32_t period, uint32_t window,
                                 float freq_base) {
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "attention.sliding_window"), &window, r->err));
    if (window == 0) return PLUMB_OK;   /* llama.cpp ignores the other two keys then */
    const struct gguf_key *pattern;
    PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, "attention.sliding_window_pattern"), &pattern, r->err));
    if (!pattern) PLUMB_TRY(read_count(r, "attention.sliding_window_pattern", 1u << 16, &period));
    if (pattern && pattern->n < p->n_layer) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s has %llu elements for %u layers", r->key,
                         (unsigned long long)pattern->n, p->n_layer);
    }
    struct rope_plan *local = &p->ropes[ROPE_LOCAL];
    local->n_rot = p->ropes[ROPE_GLOBAL].n_rot;
    local->freq_base = freq_base;
    local->freq_scale = 1.0f;
    PLUMB_TRY(read_freq_base(r, "rope.freq_base_swa", &local->freq_base));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        bool has_window = pattern ? gguf_flag(pattern, il) : il % period != period - 1;
        if (!has_window) continue;
        p->layers[il].attn.window = window;
        p->layers[il].attn.rope = ROPE_LOCAL;
    }
    return PLUMB_OK;
}

/* In the 27B models of Gemma, which llama.cpp knows by their number of layers, scores are divided by sqrt(n_embd /
 * n_head). */
static plumb_status set_27b_scale(struct key_reader *r, struct plan *p, uint32_t n_layer) {
    uint32_t width = p->n_embd / p->layers[0].attn.n_head;
    if (p->n_layer != n_layer) return PLUMB_OK;
    if (width == 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, more than the embedding length %u",
                         key_of(r, "attention.head_count"), p->layers[0].attn.n_head, p->n_embd);
    }
    for (uint32_t il = 0; il < n_layer; il++) p->layers[il].attn.scale = 1.0f / (float)math_sqrt(width);
    return PLUMB_OK;
}

static plumb_status plan_gemma3(struct key_reader *r, struct plan *p) {
    p->embedding_scale = (float)math_sqrt(p->n_embd);
    PLUMB_TRY(read_scale(r, "final_logit_softcapping", &p->logit_softcap));
    PLUMB_TRY(set_27b_scale(r, p, 62));
    return plan_windows(r, p, 6, 0, 10000.0f);
}

static plumb_status plan_gemma(struct key_reader *r, struct plan *p) {
    (void)r;
    p->embedding_scale = (float)math_sqrt(p->n_embd);
    return PLUMB_OK;
}

static plumb_status plan_gemma2(struct key_reader *r, struct plan *p) {
    float softcap = 50.0f;
    p->embedding_scale = (float)math_sqrt(p->n_embd);
    p->logit_softcap = 30.0f;
    PLUMB_TRY(read_scale(r, "final_logit_softcapping", &p->logit_softcap));
    PLUMB_TRY(read_scale(r, "attn_logit_softcapping", &softcap));
    PLUMB_TRY(plan_windows(r, p, 2, 4096, p->ropes[ROPE_GLOBAL].freq_base));
    p->ropes[ROPE_LOCAL].freq_scale = p->ropes[ROPE_GLOBAL].freq_scale;
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.softcap = softcap;
    return set_27b_scale(r, p, 46);
}

/* Every fourth layer has no RoPE. */
static plumb_status plan_smollm3(struct key_reader *r, struct plan *p) {
    (void)r;
    for (uint32_t il = 3; il < p->n_layer; il += 4) p->layers[il].attn.rope = ROPE_NONE;
    return PLUMB_OK;
}

static plumb_status plan_qwen(struct key_reader *r, struct plan *p) {
    (void)r;   /* the key has twice the width */
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].ffn.n_ff /= 2;
    return PLUMB_OK;
}

static plumb_status plan_qwen3(struct key_reader *r, struct plan *p) {
    (void)r;
    p->has_classifier = true;
    return PLUMB_OK;
}

static plumb_status plan_late_qk_norm(struct key_reader *r, struct plan *p) {
    (void)r;
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.qk_norm = QK_NORM_HEAD_ROPED;
    return PLUMB_OK;
}

static plumb_status plan_seed_oss(struct key_reader *r, struct plan *p) {
    (void)r;
    p->ffn_norm_name = "post_attention_norm";
    return PLUMB_OK;
}

static plumb_status plan_minicpm(struct key_reader *r, struct plan *p) {
    p->embedding_scale = 12.0f;
    p->residual_scale = 1.4f / (float)math_sqrt(p->n_layer);
    p->logit_scale = 256.0f / (float)p->n_embd;
    PLUMB_TRY(read_scale(r, "embedding_scale", &p->embedding_scale));
    PLUMB_TRY(read_scale(r, "residual_scale", &p->residual_scale));
    return read_scale(r, "logit_scale", &p->logit_scale);
}

/* Layers with windows have the same base, but no scaling. */
static plumb_status plan_olmo2(struct key_reader *r, struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.qk_norm = QK_NORM_ROW;
    PLUMB_TRY(plan_windows(r, p, 4, 0, 10000.0f));
    p->ropes[ROPE_LOCAL].freq_base = p->ropes[ROPE_GLOBAL].freq_base;
    return PLUMB_OK;
}

static plumb_status plan_olmo(struct key_reader *r, struct plan *p) {
    float clamp = 0.0f;
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, "attention.clamp_kqv"), &clamp, r->err));
    if (clamp != 0.0f) {
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s is %g, but clamping is not supported", r->key,
                         (double)clamp);
    }
    p->bare_norms = NORMS | SET(OUTPUT_NORM);
    return PLUMB_OK;
}

static plumb_status plan_parallel(struct key_reader *r, struct plan *p) {
    (void)r;
    p->is_parallel = true;
    return PLUMB_OK;
}

static plumb_status plan_gptneox(struct key_reader *r, struct plan *p) {
    return gguf_get_bool(r->gguf, key_of(r, "use_parallel_residual"), &p->is_parallel, r->err);
}

/* The key logit_scale is a factor here, not a divisor. */
static plumb_status plan_command_r(struct key_reader *r, struct plan *p) {
    float scale = 1.0f;
    PLUMB_TRY(read_scale(r, "logit_scale", &scale));
    p->logit_scale = 1.0f / scale;
    return plan_parallel(r, p);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct architecture {
    const char *name;                 /* general.architecture, and the prefix of its keys */
    enum rope_pairing rope_pairing;   /* as llama.cpp's llama_model_rope_type */
    enum norm_kind norm;
    enum activation activation;
    uint64_t required, optional, biased, scaled;
    /* Reads what else the keys say; NULL: nothing.  All layers of the plan are filled, each with the same numbers. */
    plumb_status (*plan)(struct key_reader *r, struct plan *p);
} architectures[] = {
    /* Its converters permute Q and K to this pairing. */
    { "llama", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED | FREQS, ATTENTION_BIAS | GATED, SCALED | GATED, NULL },
    { "qwen", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS, SCALED, plan_qwen },
    { "qwen2", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED | FREQS, ATTENTION_BIAS | SET(OUTPUT), SCALED, NULL },
    { "qwen3", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS, SCALED | GATED, plan_qwen3 },
    { "gemma", ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE, SET(ATTN_QKV), QKV_BIAS, SCALED, plan_gemma },
    { "gemma2", ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE | POST_NORM, SET(ATTN_QKV), QKV_BIAS, SCALED, plan_gemma2 },
    { "gemma3", ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE | QK_NORM | POST_NORM, TIED, QKV_BIAS, SCALED, plan_gemma3 },
    /* It is converted as llama is. */
    { "granite", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED | FREQS, ATTENTION_BIAS | GATED, SCALED, plan_granite },
    { "smollm3", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_smollm3 },
    { "internlm2", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, NULL },
    { "xverse", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, NULL },
    { "exaone", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED | FREQS, QKV_BIAS, SCALED, NULL },
    { "ernie4_5", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, NULL },
    { "maincoder", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS, SCALED, plan_late_qk_norm },
    { "hunyuan-dense", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS, SCALED, plan_late_qk_norm },
    { "seed_oss", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_seed_oss },
    { "pangu-embedded", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, ATTENTION_BIAS, SCALED, NULL },
    { "mistral3", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED | FREQS, ATTENTION_BIAS | GATED, SCALED | GATED, NULL },
    { "minicpm", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED | FREQS, ATTENTION_BIAS | GATED, SCALED, plan_minicpm },
    { "arcee", ROPE_NORM, NORM_RMS, ACT_RELU_SQR, PLAIN, TIED | FREQS, QKV_BIAS, SCALED, NULL },
    { "olmo2", ROPE_NEOX, NORM_RMS, ACT_SILU, ENDS | SET(OUTPUT) | ATTENTION | GATED | QK_NORM | POST_NORM,
      SET(ATTN_QKV), QKV_BIAS, SCALED, plan_olmo2 },
    { "olmo", ROPE_NORM, NORM_LAYER, ACT_SILU, SET(TOKEN_EMBD) | ATTENTION | GATED, TIED, QKV_BIAS, SCALED, plan_olmo },
    { "orion", ROPE_NEOX, NORM_LAYER, ACT_SILU, DENSE, TIED, QKV_BIAS | NORM_BIAS, SCALED, NULL },
    { "starcoder2", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN, TIED, ATTENTION_BIAS | FFN | NORM_BIAS, SCALED, NULL },
    { "phi2", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, (PLAIN & ~SET(FFN_NORM)) | SET(OUTPUT), SET(ATTN_QKV),
      ATTENTION_BIAS | FFN | NORM_BIAS | SET(OUTPUT), SCALED, plan_parallel },
    { "falcon", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN & ~SET(FFN_NORM), TIED, NORM_BIAS, SCALED, plan_parallel },
    { "gptneox", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN | SET(OUTPUT), SET(ATTN_QKV),
      ATTENTION_BIAS | FFN | NORM_BIAS, SCALED, plan_gptneox },
    { "command-r", ROPE_NORM, NORM_LAYER, ACT_SILU, DENSE & ~SET(FFN_NORM), SET(ATTN_QKV), QKV_BIAS, SCALED,
      plan_command_r },
    { "nemotron", ROPE_NEOX, NORM_LAYER, ACT_RELU_SQR, PLAIN | SET(OUTPUT), SET(ATTN_QKV),
      ATTENTION_BIAS | FFN | NORM_BIAS, SCALED, NULL },
};

enum { N_ARCHITECTURE = sizeof architectures / sizeof *architectures };

const char *plan_architecture(size_t i) { return i < N_ARCHITECTURE ? architectures[i].name : NULL; }

static plumb_status find_architecture(const struct gguf *g, const struct architecture **out, struct error *err) {
    struct gguf_string name = { NULL, 0 };
    PLUMB_TRY(gguf_get_string(g, "general.architecture", &name, err));
    if (!name.data) return error_set(err, PLUMB_ERROR_METADATA, "key general.architecture is missing");
    for (size_t i = 0; i < N_ARCHITECTURE; i++) {
        *out = &architectures[i];
        if (name.n == strlen((*out)->name) && memcmp(name.data, (*out)->name, (size_t)name.n) == 0) return PLUMB_OK;
    }
    struct shown shown;
    return error_set(err, PLUMB_ERROR_UNSUPPORTED, "general.architecture: \"%s\" is not supported; docs/architectures.md "
                     "lists the %d that are", show_bytes(&shown, name.data, (size_t)name.n), (int)N_ARCHITECTURE);
}

static void set_maxima(struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct attn_plan *a = &p->layers[il].attn;
        uint64_t q = (uint64_t)a->n_head * a->k_dim, k = (uint64_t)a->n_head_kv * a->k_dim;
        uint64_t v = (uint64_t)a->n_head_kv * a->v_dim, out = (uint64_t)a->n_head * a->v_dim;
        if (a->n_head > p->max_head) p->max_head = a->n_head;
        if (q > p->max_q) p->max_q = q;
        if (out > p->max_q) p->max_q = out;
        if (k > p->max_k) p->max_k = k;
        if (v > p->max_v) p->max_v = v;
        if (p->layers[il].ffn.n_ff > p->max_ff) p->max_ff = p->layers[il].ffn.n_ff;
    }
}

plumb_status plan_create(struct plan *p, const struct gguf *g, uint64_t n_tensor, struct error *err) {
    const struct architecture *arch = NULL;
    PLUMB_TRY(find_architecture(g, &arch, err));
    p->architecture = arch->name;
    p->required = arch->required;
    p->optional = arch->optional;
    p->biased = arch->biased;
    p->scaled = arch->scaled;
    p->norm = arch->norm;
    p->ffn_norm_name = "ffn_norm";
    p->embedding_scale = p->residual_scale = p->logit_scale = 1.0f;
    for (int i = 0; i < PLAN_ROPES; i++) p->ropes[i].pairing = arch->rope_pairing;
    struct key_reader r = { g, arch->name, err, "" };
    struct layer_plan layer = { .ffn.activation = arch->activation };
    PLUMB_TRY(read_common(&r, p, &layer));
    if (p->n_layer > n_tensor) {
        return error_set(err, PLUMB_ERROR_METADATA, "key %s.block_count is %u, but the file has only %llu tensors",
                         arch->name, p->n_layer, (unsigned long long)n_tensor);
    }
    p->layers = calloc(p->n_layer, sizeof *p->layers);
    if (!p->layers) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the plan of %u layers", p->n_layer);
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il] = layer;
    if (arch->plan) PLUMB_TRY(arch->plan(&r, p));
    set_maxima(p);
    return PLUMB_OK;
}

bool plan_copy(struct plan *out, const struct plan *p) {
    *out = *p;
    out->layers = malloc(p->n_layer * sizeof *p->layers);
    if (out->layers) memcpy(out->layers, p->layers, p->n_layer * sizeof *p->layers);
    return out->layers != NULL;
}

void plan_free(struct plan *p) {
    free(p->layers);
    p->layers = NULL;
}

uint64_t plan_max_row(const struct plan *p) {
    uint64_t n = p->max_q > p->max_ff ? p->max_q : p->max_ff;
    return p->n_embd > n ? p->n_embd : n;
}
