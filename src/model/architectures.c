/* The table of architectures, and how their keys make a plan.  No other file knows an architecture's name. */
#include "base/math.h"
#include "model/plan.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- keys ------------------------------------------------------------------------------------------------------ */

struct key_reader {
    const struct gguf *gguf;        /* the first part, which has the keys */
    struct gguf *const *parts;
    size_t n_part;
    const char *architecture;
    struct error *err;
    char key[128];                  /* the key last asked for, "llama.block_count" */
    bool is_longrope;
    float beta_fast, beta_slow, log_factor;   /* of YaRN */
};

static const char *key_of(struct key_reader *r, const char *suffix) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->architecture, suffix);
    return r->key;
}

/* Reads a count that must be in 1..max.  Leaves *out unchanged if the key is absent; a missing key is an error if *out
 * is 0. */
static plumb_status read_count(struct key_reader *r, const char *suffix, uint32_t max, uint32_t *out) {
    const struct gguf_key *layers;   /* a number for each layer: here that of the first one */
    PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, suffix), &layers, r->err));
    if (layers && layers->n > 0 && gguf_element(layers, 0) <= UINT32_MAX) *out = (uint32_t)gguf_element(layers, 0);
    else PLUMB_TRY(gguf_get_u32(r->gguf, r->key, out, r->err));
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

/* A tensor of a layer, or NULL if no part of the model has it. */
static const struct gguf_tensor *find_tensor(const struct key_reader *r, uint32_t il, const char *suffix) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", il, suffix);
    return gguf_find_in_parts(r->parts, r->n_part, name);
}

/* ---- what all architectures have --------------------------------------------------------------------------------- */

static bool is_text(const struct gguf_string *s, const char *text) {
    return s->n == strlen(text) && memcmp(s->data, text, strlen(text)) == 0;
}

/* The pair whose wavelength fits b times into n_ctx_original: Peng et al. 2023, section 3.2. */
static double yarn_pair(const struct plan *p, const struct rope_plan *rope, double b) {
    const double pi = 3.14159265358979323846;
    double turns = (double)p->n_ctx_original / (2 * pi * b);
    double pair = rope->n_rot * math_log(turns) / (2 * math_log((double)rope->freq_base));
    return pair > -1e6 && pair < 1e6 ? pair : 0;   /* a base of 1 has no wavelengths */
}

/* 0.1 * factor * ln(s) + 1, or 1 if s <= 1: what YaRN multiplies Q and K by, as in llama.cpp. */
static double yarn_magnitude(double s, double factor) { return s <= 1 ? 1 : 0.1 * factor * math_log(s) + 1; }

static double round_down(double x) {
    double whole = (double)(int64_t)x;
    return whole > x ? whole - 1 : whole;
}

/* Of YaRN, only the keys of beta that the architecture reads differ from 32 and 1. */
static void set_yarn(const struct plan *p, struct rope_plan *rope, float beta_fast, float beta_slow, float log_factor) {
    if (!rope->is_yarn) return;
    double low = round_down(yarn_pair(p, rope, (double)beta_fast));
    double high = -round_down(-yarn_pair(p, rope, (double)beta_slow)), s = 1 / (double)rope->freq_scale;
    rope->ramp_low = (float)(low < 0 ? 0 : low);
    rope->ramp_high = (float)(high > rope->n_rot - 1 ? rope->n_rot - 1 : high);
    double magnitude = yarn_magnitude(s, 1);
    if (log_factor != 0.0f) magnitude /= yarn_magnitude(s, (double)log_factor);
    rope->magnitude *= (float)magnitude;
}

static plumb_status read_n_rot(struct key_reader *r, const char *suffix, uint32_t k_dim, uint32_t *out) {
    PLUMB_TRY(read_count(r, suffix, k_dim, out));
    if (*out % 2 == 0) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected an even number", r->key, *out);
}

static plumb_status read_rope(struct key_reader *r, struct plan *p, uint32_t k_dim, struct rope_plan *rope) {
    rope->n_rot = k_dim;
    PLUMB_TRY(read_n_rot(r, "rope.dimension_count", k_dim, &rope->n_rot));
    rope->freq_base = 10000.0f;
    PLUMB_TRY(read_freq_base(r, "rope.freq_base", &rope->freq_base));
    p->n_ctx_original = p->n_ctx_train;
    PLUMB_TRY(read_count(r, "rope.scaling.original_context_length", UINT32_MAX, &p->n_ctx_original));
    struct gguf_string scaling = { "linear", 6 };
    PLUMB_TRY(gguf_get_string(r->gguf, key_of(r, "rope.scaling.type"), &scaling, r->err));
    bool none = is_text(&scaling, "none");
    rope->is_yarn = is_text(&scaling, "yarn");
    r->is_longrope = is_text(&scaling, "longrope");
    if (!none && !rope->is_yarn && !r->is_longrope && !is_text(&scaling, "linear")) {
        struct shown shown;
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s: \"%s\" is not supported, expected none, linear, "
                         "yarn or longrope", r->key, show_bytes(&shown, scaling.data, (size_t)scaling.n));
    }
    float factor = 0.0f;   /* 0 means no scaling, as in llama.cpp; scale_linear is the old name of the key */
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, "rope.scale_linear"), &factor, r->err));
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, "rope.scaling.factor"), &factor, r->err));
    if (!(factor == 0.0f || (factor >= 0.1f && factor <= 1e6f))) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %g, expected 0.1 to 1e6", r->key, (double)factor);
    }
    rope->freq_scale = none || factor == 0.0f ? 1.0f : 1.0f / factor;
    rope->magnitude = 1.0f;
    return read_scale(r, "rope.scaling.attn_factor", &rope->magnitude);
}

/* Reads the width of a feed-forward network; width if the key is absent or 0. */
static plumb_status read_width(struct key_reader *r, const char *suffix, uint32_t width, uint32_t *out) {
    enum { MAX_WIDTH = 1 << 22 };
    *out = 0;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, suffix), out, r->err));
    if (*out > MAX_WIDTH) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected at most %d", r->key, *out, MAX_WIDTH);
    }
    if (*out == 0) *out = width;
    return PLUMB_OK;
}

static plumb_status read_experts(struct key_reader *r, struct ffn_plan *p) {
    enum { MAX_EXPERTS = 512 };   /* as in llama.cpp */
    uint32_t n_group = 0;
    p->gating = GATING_SOFTMAX;
    p->weights_scale = 1.0f;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "expert_count"), &p->n_expert, r->err));
    if (p->n_expert == 0) return PLUMB_OK;
    if (p->n_expert > MAX_EXPERTS) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected at most %d", r->key, p->n_expert,
                         MAX_EXPERTS);
    }
    PLUMB_TRY(read_count(r, "expert_used_count", p->n_expert, &p->n_used));
    PLUMB_TRY(read_width(r, "expert_feed_forward_length", p->n_ff, &p->n_ff_expert));
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "expert_group_count"), &n_group, r->err));
    if (n_group <= 1) return PLUMB_OK;
    p->n_group = n_group;
    if (n_group > PLAN_MAX_GROUPS || p->n_expert % n_group != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected at most %d and a divisor of the %u "
                         "experts", r->key, n_group, PLAN_MAX_GROUPS, p->n_expert);
    }
    PLUMB_TRY(read_count(r, "expert_group_used_count", n_group, &p->n_group_used));
    if (p->n_used > p->n_group_used * (p->n_expert / n_group)) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, but these groups have fewer experts than the %u "
                         "that are used", r->key, p->n_group_used, p->n_used);
    }
    return PLUMB_OK;
}

/* The bounds are far above any real model.  They keep products of two of these numbers far below 2^64. */
static plumb_status read_common(struct key_reader *r, struct plan *p, struct layer_plan *layer) {
    struct attn_plan *a = &layer->attn;
    PLUMB_TRY(read_count(r, "block_count", 1u << 16, &p->n_layer));
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "nextn_predict_layers"), &p->n_ignored_layer, r->err));
    if (p->n_ignored_layer >= p->n_layer) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u of %u layers, expected fewer", r->key,
                         p->n_ignored_layer, p->n_layer);
    }
    p->n_layer -= p->n_ignored_layer;
    PLUMB_TRY(read_count(r, "embedding_length", 1u << 20, &p->n_embd));
    PLUMB_TRY(read_count(r, "feed_forward_length", 1u << 22, &layer->ffn.n_ff));
    PLUMB_TRY(read_count(r, "context_length", UINT32_MAX, &p->n_ctx_train));
    PLUMB_TRY(read_count(r, "attention.head_count", 1u << 16, &a->n_head));
    a->n_head_kv = a->n_head;
    PLUMB_TRY(read_count(r, "attention.head_count_kv", 1u << 16, &a->n_head_kv));
    if (a->n_head % a->n_head_kv != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, which does not divide the %u query heads", r->key,
                         a->n_head_kv, a->n_head);
    }
    a->k_dim = p->n_embd / a->n_head;
    PLUMB_TRY(read_count(r, "attention.key_length", 1u << 16, &a->k_dim));
    a->v_dim = p->n_embd / a->n_head;
    PLUMB_TRY(read_count(r, "attention.value_length", 1u << 16, &a->v_dim));
    p->norm_eps = -1.0f;
    const char *epsilon = p->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, epsilon), &p->norm_eps, r->err));
    if (!(p->norm_eps >= 0.0f && p->norm_eps <= 1.0f)) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing or not from 0 to 1", r->key);
    }
    PLUMB_TRY(read_experts(r, &layer->ffn));
    return read_rope(r, p, a->k_dim, &p->ropes[ROPE_GLOBAL]);
}

/* Numbers that are arrays with one for each layer. */
static plumb_status read_layers(struct key_reader *r, struct plan *p) {
    static const char *const suffixes[] = { "attention.head_count", "attention.head_count_kv", "feed_forward_length" };
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const struct gguf_key *layers;
        PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, suffixes[i]), &layers, r->err));
        if (layers && layers->n != (uint64_t)p->n_layer + p->n_ignored_layer) {
            return error_set(r->err, PLUMB_ERROR_METADATA, "key %s has %llu elements for %u layers", r->key,
                             (unsigned long long)layers->n, p->n_layer + p->n_ignored_layer);
        }
        for (uint32_t il = 0; layers && il < p->n_layer; il++) {
            struct layer_plan *l = &p->layers[il];
            uint64_t n = gguf_element(layers, il);
            if (n == 0 || n > (i == 2 ? 1u << 22 : 1u << 16)) {
                return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s is %llu for layer %u, expected 1 to %u",
                                 r->key, (unsigned long long)n, il, i == 2 ? 1u << 22 : 1u << 16);
            }
            if (i == 0) l->attn.n_head = (uint32_t)n;
            if (i == 1) l->attn.n_head_kv = (uint32_t)n;
            if (i == 2) l->ffn.n_ff = (uint32_t)n;
        }
    }
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct attn_plan *a = &p->layers[il].attn;
        if (a->n_head % a->n_head_kv != 0) {
            return error_set(r->err, PLUMB_ERROR_METADATA, "layer %u has %u query heads, which the %u heads of K and V "
                             "do not divide", il, a->n_head, a->n_head_kv);
        }
    }
    return PLUMB_OK;
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
#define EXPERTS (SET(FFN_GATE_INP) | SET(FFN_GATE_EXPS) | SET(FFN_UP_EXPS) | SET(FFN_DOWN_EXPS))
#define SHARED (SET(FFN_GATE_SHARED) | SET(FFN_UP_SHARED) | SET(FFN_DOWN_SHARED))
#define ALL_EXPERTS (EXPERTS | SHARED | SET(FFN_EXPERT_BIAS) | SET(FFN_GATE_INP_SHARED))
#define ALL_DENSE (GATED | SET(FFN_GATE_UP))
#define DENSE (ENDS | NORMS | ATTENTION | GATED)      /* Llama's */
#define SPARSE (ENDS | NORMS | ATTENTION | EXPERTS)   /* with experts instead */
#define PLAIN (ENDS | NORMS | ATTENTION | FFN)        /* without a gate */
#define TIED (SET(OUTPUT) | SET(ATTN_QKV))            /* output.weight may be missing, Q, K and V may be fused */
#define FREQS SET(ROPE_FREQS)
#define FACTORS (FREQS | SET(ROPE_LONG) | SET(ROPE_SHORT))
#define ALL_BIAS (ATTENTION_BIAS | FFN | NORM_BIAS)   /* of GPT-2 and its relatives */
/* The biases and factors of fused and separate Q, K and V. */
#define QKV_BIAS (QKV | SET(ATTN_QKV))
#define ATTENTION_BIAS (QKV_BIAS | SET(ATTN_OUTPUT))
#define NORM_BIAS (NORMS | SET(OUTPUT_NORM))
/* llama.cpp applies the factors of attention in all architectures, and those of the feed-forward network in some. */
#define SCALED ATTENTION_BIAS

/* A layer without experts in a model that has some. */
static void set_dense(struct layer_plan *l) {
    l->without = ALL_EXPERTS;
    l->ffn.n_expert = 0;
    l->ffn.n_ff_expert = l->ffn.n_ff_shared = 0;
}

/* ---- what several architectures have ----------------------------------------------------------------------------- */

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
    return PLUMB_OK;
}

/* Layers with a sliding window, and a frequency base of their own.  Of every `period` layers all but the last have the
 * window, or all but the first if windows_last; sliding_window_pattern is another period, or says for each layer
 * whether it has the window. */
static plumb_status plan_pattern(struct key_reader *r, struct plan *p, uint32_t period, uint32_t window,
                                 float freq_base, bool windows_last) {
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "attention.sliding_window"), &window, r->err));
    if (window == 0) return PLUMB_OK;   /* llama.cpp ignores the other keys then */
    const struct gguf_key *pattern;
    PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, "attention.sliding_window_pattern"), &pattern, r->err));
    if (!pattern) PLUMB_TRY(read_count(r, "attention.sliding_window_pattern", 1u << 16, &period));
    if (pattern && pattern->n < p->n_layer) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s has %llu elements for %u layers", r->key,
                         (unsigned long long)pattern->n, p->n_layer);
    }
    struct rope_plan *local = &p->ropes[ROPE_LOCAL];
    *local = p->ropes[ROPE_GLOBAL];
    local->freq_base = freq_base;
    local->freq_scale = 1.0f;
    PLUMB_TRY(read_n_rot(r, "rope.dimension_count_swa", p->layers[0].attn.k_dim, &local->n_rot));
    PLUMB_TRY(read_freq_base(r, "rope.freq_base_swa", &local->freq_base));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        bool is_last = windows_last ? il % period != 0 : il % period != period - 1;
        bool has_window = pattern ? gguf_flag(pattern, il) : is_last;
        if (!has_window) continue;
        p->layers[il].attn.window = window;
        p->layers[il].attn.rope = ROPE_LOCAL;
    }
    return PLUMB_OK;
}

static plumb_status plan_windows(struct key_reader *r, struct plan *p, uint32_t period, uint32_t window,
                                 float freq_base) {
    return plan_pattern(r, p, period, window, freq_base, false);
}

/* Layers before the first one with experts, which is this key's number, have none. */
static plumb_status read_dense_lead(struct key_reader *r, struct plan *p) {
    uint32_t n = 0;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "leading_dense_block_count"), &n, r->err));
    for (uint32_t il = 0; il < p->n_layer && il < n; il++) set_dense(&p->layers[il]);
    return PLUMB_OK;
}

/* The shared expert of all layers with experts; 0: there is none. */
static void set_shared(struct plan *p, uint64_t n_ff) {
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        if (l->ffn.n_expert == 0) continue;
        l->ffn.n_ff_shared = (uint32_t)n_ff;
        if (n_ff == 0) l->without |= SHARED | SET(FFN_GATE_INP_SHARED);
    }
}

/* A shared expert as wide as `each` experts times expert_shared_count.  default_count: if the key is absent. */
static plumb_status read_shared(struct key_reader *r, struct plan *p, uint32_t default_count, uint32_t each) {
    uint32_t n = default_count;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "expert_shared_count"), &n, r->err));
    if (n > 1024) return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected at most 1024", r->key, n);
    uint64_t n_ff = (uint64_t)n * each;
    if (n_ff > 1u << 24) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s makes a shared expert too wide", r->key);
    }
    set_shared(p, n_ff);
    return PLUMB_OK;
}

/* How weights of experts are made.  gating: if the key is absent; 0: it must be there. */
static plumb_status read_gating(struct key_reader *r, struct plan *p, uint32_t gating) {
    bool sum_to_1 = false;
    float scale = 1.0f;
    uint32_t given = 0;   /* 0 stands for no key */
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "expert_gating_func"), &given, r->err));
    if (given != 0) gating = given;
    if (gating < GATING_SOFTMAX || gating > GATING_SOFTMAX_USED) {
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s is %u, expected 1 to 3", r->key, gating);
    }
    PLUMB_TRY(gguf_get_bool(r->gguf, key_of(r, "expert_weights_norm"), &sum_to_1, r->err));
    PLUMB_TRY(read_scale(r, "expert_weights_scale", &scale));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct ffn_plan *f = &p->layers[il].ffn;
        f->gating = (enum gating)gating;
        f->weights_sum_to_1 = sum_to_1;
        f->weights_scale = scale;
    }
    return PLUMB_OK;
}

/* Experts as wide as feed_forward_length, whatever expert_feed_forward_length says. */
static void use_n_ff(struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].ffn.n_ff_expert = p->layers[il].ffn.n_ff;
}

/* Experts as wide as feed_forward_length / n_used if expert_feed_forward_length is absent. */
static plumb_status read_narrow_experts(struct key_reader *r, struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct ffn_plan *f = &p->layers[il].ffn;
        if (f->n_expert == 0) continue;
        PLUMB_TRY(read_width(r, "expert_feed_forward_length", f->n_ff / f->n_used, &f->n_ff_expert));
        if (f->n_ff_expert == 0) return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing", r->key);
    }
    return PLUMB_OK;
}

static void sum_to_1(struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].ffn.weights_sum_to_1 = true;
}

static void set_qk_norm(struct plan *p, enum qk_norm kind) {
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.qk_norm = kind;
}

static void set_alibi(struct plan *p, float max) {
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].attn.alibi = max;
        p->layers[il].attn.rope = ROPE_NONE;
    }
}

/* Layers without a window are not rotated; those with one have the base and scaling of the model. */
static void rotate_windows_only(struct plan *p) {
    p->ropes[ROPE_LOCAL] = p->ropes[ROPE_GLOBAL];
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].attn.rope = p->layers[il].attn.window > 0 ? ROPE_LOCAL : ROPE_NONE;
    }
}

/* The sections of pairs that Qwen2-VL and others have for positions in images. */
static plumb_status read_sections(struct key_reader *r, struct plan *p, bool required) {
    const struct gguf_key *sections;
    PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, "rope.dimension_sections"), &sections, r->err));
    if (!sections && !required) return PLUMB_OK;
    uint64_t sum = 0;
    for (uint32_t i = 0; sections && sections->n == 4 && i < 4; i++) {
        uint64_t n = gguf_element(sections, i);
        p->ropes[ROPE_GLOBAL].sections[i] = n < 1u << 16 ? (uint32_t)n : 0;
        sum += n < 1u << 16 ? n : UINT32_MAX;
    }
    if (sum > 0 && sum <= UINT32_MAX) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing or not four numbers of pairs", r->key);
}

/* ---- architectures, most of them without experts ----------------------------------------------------------------- */

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
    static const char *const unused[] = { "cls.output.weight", NULL };
    p->unused = unused;
    return PLUMB_OK;
}

static plumb_status plan_late_qk_norm(struct key_reader *r, struct plan *p) {
    (void)r;
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.qk_norm = QK_NORM_HEAD_ROPED;
    return PLUMB_OK;
}

static plumb_status plan_seed_oss(struct key_reader *r, struct plan *p) {
    (void)r;
    p->names[W_FFN_NORM] = "post_attention_norm";
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

/* Reads a limit; 0 or no key: there is none. */
static plumb_status read_limit(struct key_reader *r, const char *suffix, float *out) {
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, suffix), out, r->err));
    if (*out >= 0.0f && *out <= 1e30f) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %g, expected 0 to 1e30", r->key, (double)*out);
}

static plumb_status plan_olmo(struct key_reader *r, struct plan *p) {
    p->bare_norms = NORMS | SET(OUTPUT_NORM);
    return read_limit(r, "attention.clamp_kqv", &p->clamp_qkv);
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

/* ALiBi by number of layers: 7B has RoPE, 13B has ALiBi, and others have neither, as in llama.cpp. */
static plumb_status plan_baichuan(struct key_reader *r, struct plan *p) {
    (void)r;
    if (p->n_layer != 32) set_alibi(p, p->n_layer == 40 ? 8.0f : 0.0f);
    return PLUMB_OK;
}

static plumb_status plan_alibi_8(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias",
                                          "rope_freqs.weight", NULL };
    (void)r;
    if (p->norm == NORM_RMS) p->unused = unused;   /* Refact */
    set_alibi(p, 8.0f);
    return PLUMB_OK;
}

static plumb_status plan_jais(struct key_reader *r, struct plan *p) {
    float max = 0.0f;
    PLUMB_TRY(read_limit(r, "attention.max_alibi_bias", &max));
    set_alibi(p, max);
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.scale = 1.0f / (float)p->layers[il].attn.k_dim;
    return PLUMB_OK;
}

static plumb_status plan_mpt(struct key_reader *r, struct plan *p) {
    float max = 0.0f;
    PLUMB_TRY(read_limit(r, "attention.max_alibi_bias", &max));
    set_alibi(p, max);
    set_qk_norm(p, QK_NORM_ROW);
    if (!find_tensor(r, 0, "attn_q_norm.weight")) {   /* llama.cpp ignores the norm of K then */
        static const char *const unused[] = { "attn_k_norm.weight", "attn_k_norm.bias", NULL };
        p->optional &= ~QK_NORM;
        p->unused = unused;
    }
    return read_limit(r, "attention.clamp_kqv", &p->clamp_qkv);
}

/* Learned positions take the place of RoPE. */
static plumb_status plan_positions(struct key_reader *r, struct plan *p) {
    (void)r;
    set_alibi(p, 0.0f);
    return PLUMB_OK;
}

static plumb_status plan_cohere2(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_windows(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base));
    rotate_windows_only(p);
    return plan_command_r(r, p);
}

/* Every token sees the whole batch. */
static plumb_status plan_diffusion(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "output.bias", "rope_freqs.weight", "attn_output.bias", "ffn_gate.bias",
                                          "ffn_up.bias", "ffn_down.bias", NULL };
    (void)r;
    p->unused = unused;
    p->is_causal = false;
    return PLUMB_OK;
}

static plumb_status plan_exaone4(struct key_reader *r, struct plan *p) {
    if (p->n_layer != 64) return PLUMB_OK;   /* only the 32B models have windows, as in llama.cpp */
    PLUMB_TRY(plan_windows(r, p, 4, 4096, p->ropes[ROPE_GLOBAL].freq_base));
    rotate_windows_only(p);
    return PLUMB_OK;
}

/* In the 40B models attention has a norm of its own, and attn_norm is that of the feed-forward network. */
static plumb_status plan_falcon(struct key_reader *r, struct plan *p) {
    if (!find_tensor(r, 0, "attn_norm_2.weight")) return plan_parallel(r, p);
    p->required |= SET(FFN_NORM);
    p->names[W_ATTN_NORM] = "attn_norm_2";
    p->names[W_FFN_NORM] = "attn_norm";
    return plan_parallel(r, p);
}

static plumb_status plan_glm4(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(read_sections(r, p, false));
    if (p->ropes[ROPE_GLOBAL].sections[0] > 0 && p->ropes[ROPE_GLOBAL].sections[1] > 0) {
        p->ropes[ROPE_GLOBAL].pairing = ROPE_NEOX;
    } else {
        memset(p->ropes[ROPE_GLOBAL].sections, 0, sizeof p->ropes[ROPE_GLOBAL].sections);
    }
    return PLUMB_OK;
}

static plumb_status plan_granite_moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = 0;
    PLUMB_TRY(plan_granite(r, p));
    use_n_ff(p);
    sum_to_1(p);
    PLUMB_TRY(read_width(r, "expert_shared_feed_forward_length", 0, &n_ff));
    set_shared(p, n_ff);
    return PLUMB_OK;
}

/* llama.cpp reads this key as "the model has RoPE", only in this architecture. */
static plumb_status plan_granite_switch(struct key_reader *r, struct plan *p) {
    bool has_rope = true;
    PLUMB_TRY(plan_granite_moe(r, p));
    PLUMB_TRY(gguf_get_bool(r->gguf, key_of(r, "rope.scaling.finetuned"), &has_rope, r->err));
    for (uint32_t il = 0; !has_rope && il < p->n_layer; il++) p->layers[il].attn.rope = ROPE_NONE;
    return PLUMB_OK;
}

static plumb_status plan_granite_swa(struct key_reader *r, struct plan *p) {
    const struct gguf_key *rotated;
    PLUMB_TRY(plan_granite_moe(r, p));
    PLUMB_TRY(plan_windows(r, p, 1, 0, p->ropes[ROPE_GLOBAL].freq_base));
    PLUMB_TRY(gguf_get_flags(r->gguf, key_of(r, "attention.rope_pattern"), &rotated, r->err));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        bool has_rope = !rotated || il >= rotated->n || gguf_flag(rotated, il);
        p->layers[il].attn.rope = has_rope ? ROPE_GLOBAL : ROPE_NONE;
    }
    return PLUMB_OK;
}

static plumb_status plan_hunyuan(struct key_reader *r, struct plan *p) {
    float alpha = 0.0f;
    struct rope_plan *rope = &p->ropes[ROPE_GLOBAL];
    double k_dim = p->layers[0].attn.k_dim;
    set_qk_norm(p, QK_NORM_HEAD_ROPED);
    PLUMB_TRY(read_limit(r, "rope.scaling.alpha", &alpha));
    double base = (double)rope->freq_base;
    if (alpha > 0.0f && k_dim > 2) base *= math_pow((double)alpha, k_dim / (k_dim - 2));
    if (!(base >= 1 && base <= 1e12)) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %g, which makes the frequency base %g", r->key,
                         (double)alpha, base);
    }
    rope->freq_base = (float)base;
    return PLUMB_OK;
}

static plumb_status plan_hunyuan_vl(struct key_reader *r, struct plan *p) {
    struct rope_plan *rope = &p->ropes[ROPE_GLOBAL];
    PLUMB_TRY(plan_hunyuan(r, p));
    PLUMB_TRY(read_sections(r, p, false));
    if (rope->sections[0] == 0 || rope->sections[1] == 0) memset(rope->sections, 0, sizeof rope->sections);
    return PLUMB_OK;
}

static plumb_status plan_sections(struct key_reader *r, struct plan *p) { return read_sections(r, p, true); }

/* llama.cpp reads no epsilon. */
static plumb_status plan_qwen2vl(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "output.bias", NULL };
    p->unused = unused;
    p->norm_eps = 0.0f;
    return read_sections(r, p, true);
}

static plumb_status plan_qwen3vl(struct key_reader *r, struct plan *p) {
    p->ropes[ROPE_GLOBAL].sections_interleaved = true;
    PLUMB_TRY(plan_qwen3(r, p));
    return read_sections(r, p, true);
}

static plumb_status plan_unused_freqs(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "rope_freqs.weight", "rope_factors_long.weight",
                                          "rope_factors_short.weight", NULL };
    (void)r;
    p->unused = unused;
    return PLUMB_OK;
}

static plumb_status plan_stablelm(struct key_reader *r, struct plan *p) {
    set_qk_norm(p, QK_NORM_HEADS);
    p->is_parallel = !find_tensor(r, 0, "ffn_norm.weight");
    return PLUMB_OK;
}

/* A number for each layer, or one for all, under a key without the architecture's name. */
static plumb_status read_numbers(struct key_reader *r, const char *key, uint32_t il, float *out) {
    const struct gguf_key *k = gguf_find_key(r->gguf, key);
    if (k && k->is_array && k->type == GGUF_FLOAT32 && il < k->n) {
        *out = f32_from_bits(load_u32(k->values + 4 * (size_t)il));
    } else {
        PLUMB_TRY(gguf_get_f32(r->gguf, key, out, r->err));
    }
    if (*out >= -1e6f && *out <= 1e6f) return PLUMB_OK;
    return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing, or %g for layer %u, expected -1e6 to 1e6", key,
                     (double)*out, il);
}

static double softplus(double z) { return z > 20 ? z : math_log(1 + math_exp(z)); }

static plumb_status plan_apertus(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "attn_q_norm.bias", "attn_k_norm.bias", NULL };
    p->unused = unused;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        float alpha_n = 1e7f, alpha_p = 1e7f, beta = 1e7f, eps = 1e7f;   /* refused, so the keys must be there */
        PLUMB_TRY(read_numbers(r, "xielu.alpha_n", il, &alpha_n));
        PLUMB_TRY(read_numbers(r, "xielu.alpha_p", il, &alpha_p));
        PLUMB_TRY(read_numbers(r, "xielu.beta", il, &beta));
        PLUMB_TRY(read_numbers(r, "xielu.eps", il, &eps));
        struct ffn_plan *f = &p->layers[il].ffn;
        f->xielu.a = (float)softplus((double)alpha_p);
        f->xielu.b = beta + (float)softplus((double)alpha_n);
        f->xielu.beta = beta;
        f->xielu.eps = eps;
    }
    return PLUMB_OK;
}

/* For texts.  llama.cpp rotates with a fixed base, whatever the keys say. */
static plumb_status plan_cogvlm(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "vis_attn_qkv.weight", "vis_attn_output.weight", "vis_gate.weight",
                                          "vis_down.weight", "vis_up.weight", "rope_freqs.weight", NULL };
    struct rope_plan *rope = &p->ropes[ROPE_GLOBAL];
    (void)r;
    p->unused = unused;
    rope->freq_base = 10000.0f;
    rope->freq_scale = rope->magnitude = 1.0f;
    rope->is_yarn = false;
    return PLUMB_OK;
}

static plumb_status plan_spark(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_windows(r, p, 1, 0, p->ropes[ROPE_GLOBAL].freq_base));
    p->ropes[ROPE_LOCAL].freq_scale = p->ropes[ROPE_GLOBAL].freq_scale;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].attn.gate = ATTN_GATE_SIGMOID;
        p->layers[il].attn.gate_per_head = true;
    }
    return PLUMB_OK;
}

/* ---- architectures, most of them with experts -------------------------------------------------------------------- */

static plumb_status plan_llama(struct key_reader *r, struct plan *p) {
    (void)r;
    use_n_ff(p);
    sum_to_1(p);
    set_shared(p, 0);
    return PLUMB_OK;
}

static plumb_status plan_minicpm_moe(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_llama(r, p));
    return plan_minicpm(r, p);
}

/* Q is multiplied by a factor that grows with the position. */
static plumb_status plan_mistral3(struct key_reader *r, struct plan *p) {
    float scale = 0.0f;
    PLUMB_TRY(plan_llama(r, p));
    PLUMB_TRY(read_scale(r, "rope.scaling.yarn_beta_fast", &r->beta_fast));
    PLUMB_TRY(read_scale(r, "rope.scaling.yarn_beta_slow", &r->beta_slow));
    PLUMB_TRY(read_scale(r, "rope.scaling.yarn_log_multiplier", &r->log_factor));
    PLUMB_TRY(read_scale(r, "attention.temperature_scale", &scale));
    for (uint32_t il = 0; scale != 0.0f && il < p->n_layer; il++) {
        p->layers[il].attn.temperature_scale = scale;
        p->layers[il].attn.temperature_floor = p->n_ctx_original;
    }
    return PLUMB_OK;
}

static plumb_status plan_qwen2moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = p->layers[0].ffn.n_ff;
    PLUMB_TRY(read_narrow_experts(r, p));
    PLUMB_TRY(read_width(r, "expert_shared_feed_forward_length", n_ff, &n_ff));
    set_shared(p, n_ff);
    return PLUMB_OK;
}

static plumb_status plan_qwen3moe(struct key_reader *r, struct plan *p) {
    sum_to_1(p);
    return read_narrow_experts(r, p);
}

static plumb_status plan_qwen3vlmoe(struct key_reader *r, struct plan *p) {
    p->ropes[ROPE_GLOBAL].sections_interleaved = true;
    PLUMB_TRY(plan_qwen3moe(r, p));
    return read_sections(r, p, true);
}

static plumb_status plan_rnd1(struct key_reader *r, struct plan *p) {
    p->is_causal = false;
    return plan_qwen3moe(r, p);
}

static plumb_status plan_llada_moe(struct key_reader *r, struct plan *p) {
    p->is_causal = false;
    return read_narrow_experts(r, p);
}

static plumb_status plan_olmoe(struct key_reader *r, struct plan *p) {
    (void)r;
    use_n_ff(p);
    set_qk_norm(p, QK_NORM_ROW);
    return PLUMB_OK;
}

static plumb_status plan_phimoe(struct key_reader *r, struct plan *p) {
    (void)r;
    use_n_ff(p);
    sum_to_1(p);
    return PLUMB_OK;
}

static plumb_status plan_deepseek(struct key_reader *r, struct plan *p) {
    float scale = 1.0f;
    PLUMB_TRY(read_dense_lead(r, p));
    PLUMB_TRY(read_scale(r, "expert_weights_scale", &scale));
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].ffn.weights_scale = scale;
    return read_shared(r, p, 0, p->layers[p->n_layer - 1].ffn.n_ff_expert);
}

/* attn_output_norm is the norm before the experts. */
static plumb_status plan_dbrx(struct key_reader *r, struct plan *p) {
    p->names[W_FFN_NORM] = "attn_output_norm";
    use_n_ff(p);
    sum_to_1(p);
    return read_limit(r, "attention.clamp_kqv", &p->clamp_qkv);
}

static plumb_status plan_unused_bias(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "attn_output.bias", NULL };
    (void)r;
    p->unused = unused;
    return PLUMB_OK;
}

static plumb_status plan_ernie_moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = 0, step = 1;
    PLUMB_TRY(plan_unused_bias(r, p));
    sum_to_1(p);
    PLUMB_TRY(read_dense_lead(r, p));
    PLUMB_TRY(read_count(r, "interleave_moe_layer_step", 1, &step));
    PLUMB_TRY(read_width(r, "expert_shared_feed_forward_length", 0, &n_ff));
    set_shared(p, n_ff);
    return PLUMB_OK;
}

/* Layers with windows have no scaling. */
static plumb_status plan_mellum(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(plan_qwen3moe(r, p));
    PLUMB_TRY(plan_windows(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base));
    p->ropes[ROPE_LOCAL].freq_base = p->ropes[ROPE_GLOBAL].freq_base;
    p->ropes[ROPE_LOCAL].is_yarn = false;
    p->ropes[ROPE_LOCAL].magnitude = 1.0f;
    return PLUMB_OK;
}

/* Experts whose gate and up projection are limited; only layers with windows are rotated. */
static plumb_status plan_maple(struct key_reader *r, struct plan *p) {
    const struct gguf_key *limits;
    sum_to_1(p);
    PLUMB_TRY(plan_windows(r, p, 1, 0, p->ropes[ROPE_GLOBAL].freq_base));
    p->ropes[ROPE_LOCAL].freq_scale = p->ropes[ROPE_GLOBAL].freq_scale;
    PLUMB_TRY(gguf_get_array(r->gguf, key_of(r, "swiglu_clamp_exp"), GGUF_FLOAT32, &limits, r->err));
    if (!limits || limits->n < p->n_layer) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s has no element for each of %u layers", r->key,
                         p->n_layer);
    }
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        float limit = f32_from_bits(load_u32(limits->values + 4 * (size_t)il));
        if (limit > 1e-6f) l->ffn.limit = limit;   /* as in llama.cpp */
        if (l->attn.window == 0) l->attn.rope = ROPE_NONE;
    }
    return PLUMB_OK;
}

/* Three of four layers see only their chunk of 8,192 tokens; the fourth is not rotated, and its Q grows with the
 * position.  These numbers are llama.cpp's. */
static plumb_status plan_llama4(struct key_reader *r, struct plan *p) {
    uint32_t step = 0;
    PLUMB_TRY(read_count(r, "interleave_moe_layer_step", 1u << 16, &step));
    PLUMB_TRY(plan_windows(r, p, 4, 8192, p->ropes[ROPE_GLOBAL].freq_base));
    p->ropes[ROPE_LOCAL].freq_scale = p->ropes[ROPE_GLOBAL].freq_scale;
    set_qk_norm(p, QK_NORM_HEAD_ROPED);
    if (p->layers[0].ffn.n_expert != 128) p->bare_norms = QK_NORM;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->ffn.gating = GATING_SIGMOID;
        l->ffn.weights_first = true;
        if ((il + 1) % step != 0) set_dense(l);
        if (l->attn.window > 0) l->attn.window = 8192;
        l->attn.is_chunked = true;
        if ((il + 1) % 4 != 0) continue;
        l->without |= QK_NORM;
        l->attn.rope = ROPE_NONE;
        l->attn.temperature_scale = 0.1f;
        l->attn.temperature_floor = 8192;
        l->attn.temperature_offset = 1;
    }
    set_shared(p, p->layers[p->n_layer - 1].ffn.n_ff_expert);
    return PLUMB_OK;
}

static plumb_status plan_gpt_oss(struct key_reader *r, struct plan *p) {
    p->names[W_FFN_NORM] = "post_attention_norm";
    PLUMB_TRY(plan_windows(r, p, 2, 0, p->ropes[ROPE_GLOBAL].freq_base));
    p->ropes[ROPE_LOCAL].freq_scale = p->ropes[ROPE_GLOBAL].freq_scale;
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].ffn.gating = GATING_SOFTMAX_USED;
    return PLUMB_OK;
}

static plumb_status plan_bailingmoe(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(read_gating(r, p, GATING_SOFTMAX));
    return read_shared(r, p, 0, p->layers[0].ffn.n_ff_expert);
}

/* The width of the shared expert is the key's, times their number. */
static plumb_status plan_bailingmoe2(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = p->layers[p->n_layer - 1].ffn.n_ff_expert;
    PLUMB_TRY(read_gating(r, p, 0));
    PLUMB_TRY(read_dense_lead(r, p));
    PLUMB_TRY(read_width(r, "expert_shared_feed_forward_length", n_ff, &n_ff));
    return read_shared(r, p, 0, n_ff);
}

static plumb_status plan_hunyuan_moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = p->layers[0].ffn.n_ff;
    use_n_ff(p);
    sum_to_1(p);
    set_qk_norm(p, QK_NORM_HEAD_ROPED);
    PLUMB_TRY(read_width(r, "expert_shared_feed_forward_length", n_ff, &n_ff));
    set_shared(p, n_ff);
    return PLUMB_OK;
}

static plumb_status plan_dots1(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(read_gating(r, p, 0));
    PLUMB_TRY(read_dense_lead(r, p));
    return read_shared(r, p, 0, p->layers[p->n_layer - 1].ffn.n_ff_expert);
}

/* The window is 4,096, whatever the key says; the first of four layers has none and is not rotated. */
static plumb_status plan_smallthinker(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(read_gating(r, p, 0));
    PLUMB_TRY(plan_pattern(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base, true));
    p->ropes[ROPE_LOCAL].freq_scale = p->ropes[ROPE_GLOBAL].freq_scale;
    bool has_windows = false;
    for (uint32_t il = 0; il < p->n_layer; il++) has_windows = has_windows || p->layers[il].attn.window > 0;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->ffn.weights_sum_to_1 = true;
        l->ffn.weights_scale = 1.0f;
        l->ffn.router_first = true;
        if (l->attn.window > 0) l->attn.window = 4096;
        if (has_windows && p->n_layer != 4 && il % 4 == 0) l->attn.rope = ROPE_NONE;
    }
    return PLUMB_OK;
}

static plumb_status plan_afmoe(struct key_reader *r, struct plan *p) {
    p->embedding_scale = (float)math_sqrt(p->n_embd);
    PLUMB_TRY(read_gating(r, p, GATING_SIGMOID));
    PLUMB_TRY(read_dense_lead(r, p));
    PLUMB_TRY(plan_windows(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base));
    p->ropes[ROPE_LOCAL].freq_scale = p->ropes[ROPE_GLOBAL].freq_scale;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].attn.gate = ATTN_GATE_SIGMOID;
        if ((il + 1) % 4 == 0) p->layers[il].attn.rope = ROPE_NONE;
    }
    return read_shared(r, p, 0, p->layers[p->n_layer - 1].ffn.n_ff_expert);
}

static plumb_status plan_laguna(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = p->layers[p->n_layer - 1].ffn.n_ff_expert;
    PLUMB_TRY(read_gating(r, p, GATING_SIGMOID));
    PLUMB_TRY(read_dense_lead(r, p));
    PLUMB_TRY(plan_pattern(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base, true));
    p->ropes[ROPE_LOCAL].is_yarn = false;
    p->ropes[ROPE_LOCAL].magnitude = 1.0f;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct gguf_tensor *gate = find_tensor(r, il, "attn_gate.weight");
        p->layers[il].attn.gate = ATTN_GATE_SOFTPLUS;
        p->layers[il].attn.gate_per_head = gate && gate->shape[1] == p->layers[il].attn.n_head;
    }
    PLUMB_TRY(read_shared(r, p, 1, n_ff));
    n_ff = 0;
    PLUMB_TRY(read_width(r, "expert_shared_feed_forward_length", 0, &n_ff));
    if (n_ff > 0) set_shared(p, n_ff);
    return PLUMB_OK;
}

static plumb_status plan_exaone_moe(struct key_reader *r, struct plan *p) {
    uint32_t n_ff = p->layers[p->n_layer - 1].ffn.n_ff_expert;
    PLUMB_TRY(read_gating(r, p, 0));
    PLUMB_TRY(read_dense_lead(r, p));
    PLUMB_TRY(plan_windows(r, p, 4, 128, p->ropes[ROPE_GLOBAL].freq_base));
    rotate_windows_only(p);
    PLUMB_TRY(read_width(r, "expert_shared_feed_forward_length", n_ff, &n_ff));
    set_shared(p, n_ff);
    return PLUMB_OK;
}

static plumb_status plan_glm4moe(struct key_reader *r, struct plan *p) {
    struct rope_plan *rope = &p->ropes[ROPE_GLOBAL];
    p->names[W_FFN_NORM] = "post_attention_norm";
    PLUMB_TRY(read_narrow_experts(r, p));
    PLUMB_TRY(read_gating(r, p, GATING_SIGMOID));
    PLUMB_TRY(read_dense_lead(r, p));
    PLUMB_TRY(read_sections(r, p, false));
    if (rope->sections[0] == 0 || rope->sections[1] == 0) memset(rope->sections, 0, sizeof rope->sections);
    return read_shared(r, p, 0, p->layers[p->n_layer - 1].ffn.n_ff_expert);
}

static plumb_status plan_minimax_m2(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(read_gating(r, p, 0));
    use_n_ff(p);
    set_qk_norm(p, QK_NORM_ROW);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].ffn.weights_sum_to_1 = true;
        p->layers[il].ffn.weights_scale = 1.0f;
    }
    return PLUMB_OK;
}

static plumb_status plan_mimo2(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias",
                                          "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight", "ffn_gate.scale",
                                          "ffn_up.scale", "ffn_down.scale", "ffn_gate.input_scale",
                                          "ffn_up.input_scale", "ffn_down.input_scale", NULL };
    float scale = 0.0f;
    p->unused = unused;
    PLUMB_TRY(read_scale(r, "attention.value_scale", &scale));
    PLUMB_TRY(plan_windows(r, p, 1, 0, 10000.0f));
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        l->ffn.gating = GATING_SIGMOID;
        l->ffn.weights_sum_to_1 = true;
        l->attn.output_scale = scale;
        if (!find_tensor(r, il, "ffn_gate_inp.weight")) set_dense(l);
    }
    return PLUMB_OK;
}

static plumb_status plan_muse(struct key_reader *r, struct plan *p) {
    p->logit_softcap = 30.0f;
    PLUMB_TRY(read_limit(r, "final_logit_softcapping", &p->logit_softcap));
    PLUMB_TRY(plan_windows(r, p, 4, 0, p->ropes[ROPE_GLOBAL].freq_base));
    float scale = 1.0f;
    PLUMB_TRY(read_scale(r, "logit_scale", &scale));
    p->logit_scale = 1.0f / scale;
    p->bare_norms = SET(TOKEN_EMBD_NORM);
    p->post_norm_eps = 1e-8f;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].attn.gate = ATTN_GATE_SIGMOID;
        if (p->layers[il].attn.window == 0) p->layers[il].attn.rope = ROPE_NONE;
    }
    return PLUMB_OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct architecture {
    const char *name;                 /* general.architecture, and the prefix of its keys */
    enum rope_pairing rope_pairing;   /* as llama.cpp's llama_model_rope_type */
    enum norm_kind norm;
    enum activation activation;
    uint64_t required, optional, biased, scaled;
    /* Reads what else the keys say; NULL: nothing.  All layers of the plan are filled, each with the same numbers,
     * except those that read_layers reads. */
    plumb_status (*plan)(struct key_reader *r, struct plan *p);
} architectures[] = {
    /* Its converters permute Q and K to this pairing. */
    { "llama", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS, TIED | FACTORS, ATTENTION_BIAS | GATED, SCALED | GATED
      | EXPERTS, plan_llama },
    { "qwen", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS, SCALED, plan_qwen },
    { "qwen2", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED | FREQS, ATTENTION_BIAS | SET(OUTPUT), SCALED, NULL },
    { "qwen3", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS, SCALED | GATED, plan_qwen3 },
    { "gemma", ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE, SET(ATTN_QKV), QKV_BIAS, SCALED, plan_gemma },
    { "gemma2", ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE | POST_NORM, SET(ATTN_QKV), QKV_BIAS, SCALED, plan_gemma2 },
    { "gemma3", ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE | QK_NORM | POST_NORM, TIED, QKV_BIAS, SCALED, plan_gemma3 },
    /* It is converted as llama is. */
    { "granite", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS | SHARED, TIED | FACTORS, ATTENTION_BIAS | GATED,
      SCALED, plan_granite_switch },
    { "smollm3", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_smollm3 },
    { "internlm2", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, NULL },
    { "xverse", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, NULL },
    { "exaone", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED | FREQS, QKV_BIAS, SCALED, NULL },
    { "ernie4_5", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_unused_bias },
    { "maincoder", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS, SCALED, plan_late_qk_norm },
    { "hunyuan-dense", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS, SCALED, plan_hunyuan },
    { "seed_oss", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_seed_oss },
    { "pangu-embedded", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, ATTENTION_BIAS, SCALED, plan_unused_freqs },
    { "mistral3", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS, TIED | FACTORS, ATTENTION_BIAS | GATED, SCALED | GATED
      | EXPERTS, plan_mistral3 },
    { "minicpm", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS, TIED | FACTORS, ATTENTION_BIAS | GATED, SCALED,
      plan_minicpm_moe },
    { "arcee", ROPE_NORM, NORM_RMS, ACT_RELU_SQR, PLAIN, TIED | FREQS, QKV_BIAS, SCALED, NULL },
    { "olmo2", ROPE_NEOX, NORM_RMS, ACT_SILU, ENDS | SET(OUTPUT) | ATTENTION | GATED | QK_NORM | POST_NORM,
      SET(ATTN_QKV), QKV_BIAS, SCALED, plan_olmo2 },
    { "olmo", ROPE_NORM, NORM_LAYER, ACT_SILU, SET(TOKEN_EMBD) | ATTENTION | GATED, TIED, QKV_BIAS, SCALED, plan_olmo },
    { "orion", ROPE_NEOX, NORM_LAYER, ACT_SILU, DENSE, TIED, QKV_BIAS | NORM_BIAS, SCALED, NULL },
    { "starcoder2", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN, TIED, ATTENTION_BIAS | FFN | NORM_BIAS, SCALED, NULL },
    { "phi2", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, (PLAIN & ~SET(FFN_NORM)) | SET(OUTPUT), SET(ATTN_QKV),
      ATTENTION_BIAS | FFN | NORM_BIAS | SET(OUTPUT), SCALED, plan_parallel },
    { "falcon", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN & ~SET(FFN_NORM), TIED, NORM_BIAS, SCALED, plan_falcon },
    { "gptneox", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN | SET(OUTPUT), SET(ATTN_QKV), ATTENTION_BIAS | FFN
      | NORM_BIAS, SCALED, plan_gptneox },
    { "command-r", ROPE_NORM, NORM_LAYER, ACT_SILU, DENSE & ~SET(FFN_NORM), SET(ATTN_QKV), QKV_BIAS, SCALED,
      plan_command_r },
    { "nemotron", ROPE_NEOX, NORM_LAYER, ACT_RELU_SQR, PLAIN | SET(OUTPUT), SET(ATTN_QKV), ATTENTION_BIAS | FFN
      | NORM_BIAS, SCALED, NULL },
    { "apertus", ROPE_NEOX, NORM_RMS, ACT_XIELU, PLAIN | QK_NORM | SET(OUTPUT), SET(ATTN_QKV) | FACTORS, ATTENTION_BIAS,
      SCALED, plan_apertus },
    { "bitnet", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | SET(ATTN_SUB_NORM) | SET(FFN_SUB_NORM), 0, 0, ATTENTION | GATED,
      NULL },
    { "cogvlm", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, 0, SET(ATTN_OUTPUT), plan_cogvlm },
    { "baichuan", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS, SCALED, plan_baichuan },
    { "bloom", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN | SET(TOKEN_EMBD_NORM), TIED, ALL_BIAS
      | SET(TOKEN_EMBD_NORM), SCALED, plan_alibi_8 },
    { "chatglm", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | SET(FFN_GATE_UP), TIED, QKV_BIAS, SCALED, NULL },
    { "codeshell", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN | SET(OUTPUT), SET(ATTN_QKV), ALL_BIAS, SCALED, NULL },
    { "cohere2", ROPE_NORM, NORM_LAYER, ACT_SILU, DENSE & ~SET(FFN_NORM), SET(ATTN_QKV), QKV_BIAS, SCALED | GATED,
      plan_cohere2 },
    { "deci", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED | FACTORS, ATTENTION_BIAS | GATED, SCALED, NULL },
    { "dream", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_diffusion },
    { "exaone4", ROPE_NEOX, NORM_RMS, ACT_SILU, ENDS | ATTENTION | GATED | QK_NORM | POST_NORM, TIED | FREQS, QKV_BIAS,
      SCALED, plan_exaone4 },
    { "glm4", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | SET(FFN_GATE_UP) | POST_NORM, TIED, QKV_BIAS, SCALED, plan_glm4 },
    { "gpt2", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN | SET(POSITION_EMBD), TIED, ALL_BIAS, SCALED,
      plan_positions },
    { "granite_swa", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS | SHARED | SET(ATTN_SINKS), TIED | FACTORS,
      ATTENTION_BIAS | GATED, SCALED, plan_granite_swa },
    { "granitemoe", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS | SHARED, TIED | FACTORS, ATTENTION_BIAS | GATED,
      SCALED, plan_granite_moe },
    { "hunyuan_vl", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS, SCALED, plan_hunyuan_vl },
    { "jais", ROPE_NEOX, NORM_LAYER, ACT_SILU, DENSE | SET(OUTPUT), SET(ATTN_QKV), ALL_BIAS | GATED, SCALED,
      plan_jais },
    { "jais2", ROPE_NEOX, NORM_LAYER, ACT_RELU_SQR, PLAIN, TIED, ALL_BIAS, SCALED, NULL },
    { "llada", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_diffusion },
    { "mpt", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN, TIED | SET(POSITION_EMBD) | QK_NORM | SET(FFN_ACT_SCALES),
      ALL_BIAS | QK_NORM, SCALED, plan_mpt },
    { "muse-glimmer", ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | SET(OUTPUT) | POST_NORM | QK_NORM | SET(ATTN_GATE),
      SET(ATTN_QKV), QKV_BIAS, SCALED, plan_muse },
    { "openelm", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, SET(ATTN_QKV), 0, SET(ATTN_OUTPUT), NULL },
    { "paddleocr", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, ATTENTION_BIAS, SCALED, plan_sections },
    { "phi3", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | SET(FFN_GATE_UP), TIED | SET(ROPE_LONG) | SET(ROPE_SHORT),
      QKV_BIAS, SCALED, NULL },
    { "plamo", ROPE_NEOX, NORM_RMS, ACT_SILU, (DENSE & ~SET(FFN_NORM)) | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS, SCALED,
      plan_parallel },
    { "pockettts", ROPE_NORM, NORM_LAYER, ACT_GELU_TANH, PLAIN, SET(ATTN_QKV), QKV_BIAS | NORM_BIAS, SCALED, NULL },
    { "qwen2vl", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_qwen2vl },
    { "qwen3vl", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE | QK_NORM, TIED, QKV_BIAS, SCALED, plan_qwen3vl },
    { "refact", ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, TIED, QKV_BIAS, SCALED, plan_alibi_8 },
    { "spark2_5", ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE | SET(ATTN_GATE), TIED, QKV_BIAS, SCALED, plan_spark },
    { "stablelm", ROPE_NEOX, NORM_LAYER, ACT_SILU, (DENSE & ~SET(FFN_NORM)) | SET(OUTPUT), SET(ATTN_QKV) | SET(FFN_NORM)
      | QK_NORM, QKV_BIAS | NORM_BIAS, SCALED, plan_stablelm },
    { "starcoder", ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, PLAIN | SET(POSITION_EMBD), TIED, ALL_BIAS, SCALED,
      plan_positions },
    { "qwen2moe", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | SHARED | SET(FFN_GATE_INP_SHARED) | SET(OUTPUT),
      SET(ATTN_QKV), QKV_BIAS, SCALED, plan_qwen2moe },
    { "qwen3moe", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM, TIED, QKV_BIAS, SCALED | EXPERTS, plan_qwen3moe },
    { "qwen3vlmoe", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM, TIED, QKV_BIAS, SCALED, plan_qwen3vlmoe },
    { "olmoe", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS, SCALED,
      plan_olmoe },
    { "phimoe", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | SET(OUTPUT), SET(ATTN_QKV) | SET(ROPE_LONG) | SET(ROPE_SHORT),
      ATTENTION_BIAS | NORM_BIAS | SET(OUTPUT), SCALED, plan_phimoe },
    { "deepseek", ROPE_NORM, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED, TIED, QKV_BIAS, SCALED, plan_deepseek },
    { "dbrx", ROPE_NEOX, NORM_LAYER, ACT_SILU, SPARSE | SET(OUTPUT), SET(ATTN_QKV), 0, SCALED, plan_dbrx },
    { "ernie4_5-moe", ROPE_NORM, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED, TIED | SET(FFN_EXPERT_BIAS), QKV_BIAS,
      SCALED, plan_ernie_moe },
    { "llada-moe", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS, SCALED,
      plan_llada_moe },
    { "rnd1", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM, TIED, QKV_BIAS, SCALED, plan_rnd1 },
    { "mellum", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS, SCALED
      | EXPERTS, plan_mellum },
    { "maple", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS, SCALED,
      plan_maple },
    { "llama4", ROPE_NORM, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED, TIED | FREQS, QKV_BIAS, SCALED, plan_llama4 },
    { "gpt-oss", ROPE_NEOX, NORM_RMS, ACT_SWIGLU_OAI, SPARSE | SET(OUTPUT) | SET(ATTN_SINKS), SET(ATTN_QKV),
      ATTENTION_BIAS | EXPERTS, SCALED, plan_gpt_oss },
    { "bailingmoe", ROPE_NORM, NORM_RMS, ACT_SILU, SPARSE | SHARED | SET(OUTPUT), SET(ATTN_QKV), QKV_BIAS, SCALED,
      plan_bailingmoe },
    { "bailingmoe2", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | QK_NORM | SET(OUTPUT), SET(ATTN_QKV)
      | SET(FFN_EXPERT_BIAS), 0, SCALED, plan_bailingmoe2 },
    { "hunyuan-moe", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | SHARED | QK_NORM, TIED, QKV_BIAS, SCALED,
      plan_hunyuan_moe },
    { "dots1", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | QK_NORM | SET(OUTPUT), SET(ATTN_QKV)
      | SET(FFN_EXPERT_BIAS), QKV_BIAS, SCALED, plan_dots1 },
    { "smallthinker", ROPE_NEOX, NORM_RMS, ACT_RELU, SPARSE, TIED, QKV_BIAS, SCALED, plan_smallthinker },
    { "afmoe", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | QK_NORM | POST_NORM | SET(ATTN_GATE)
      | SET(FFN_EXPERT_BIAS), TIED, QKV_BIAS, SCALED, plan_afmoe },
    { "laguna", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | QK_NORM | SET(ATTN_GATE)
      | SET(FFN_EXPERT_BIAS), TIED, QKV_BIAS, SCALED, plan_laguna },
    { "exaone-moe", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | QK_NORM | SET(OUTPUT), SET(ATTN_QKV)
      | FREQS | SET(FFN_EXPERT_BIAS), QKV_BIAS, SCALED, plan_exaone_moe },
    { "glm4moe", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SHARED | SET(FFN_EXPERT_BIAS), TIED | QK_NORM,
      QKV_BIAS, SCALED, plan_glm4moe },
    { "minimax-m2", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | QK_NORM | SET(OUTPUT) | SET(FFN_EXPERT_BIAS), SET(ATTN_QKV),
      QKV_BIAS, SCALED, plan_minimax_m2 },
    { "mimo2", ROPE_NEOX, NORM_RMS, ACT_SILU, SPARSE | GATED | SET(OUTPUT), SET(ATTN_QKV) | SET(ATTN_SINKS)
      | SET(FFN_EXPERT_BIAS), 0, SET(ATTN_OUTPUT), plan_mimo2 },
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
    return error_set(err, PLUMB_ERROR_UNSUPPORTED, "general.architecture: \"%s\" is not supported; "
                     "docs/architectures.md lists the %d that are", show_bytes(&shown, name.data, (size_t)name.n),
                     (int)N_ARCHITECTURE);
}

static void set_maxima(struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct attn_plan *a = &p->layers[il].attn;
        uint64_t q = (uint64_t)a->n_head * a->k_dim, k = (uint64_t)a->n_head_kv * a->k_dim;
        uint64_t v = (uint64_t)a->n_head_kv * a->v_dim, out = (uint64_t)a->n_head * a->v_dim;
        if (a->gate != ATTN_GATE_NONE) p->has_gates = true;
        if (a->n_head > p->max_head) p->max_head = a->n_head;
        if (q > p->max_q) p->max_q = q;
        if (out > p->max_q) p->max_q = out;
        if (k > p->max_k) p->max_k = k;
        if (v > p->max_v) p->max_v = v;
        const struct ffn_plan *ffn = &p->layers[il].ffn;
        if (ffn->n_ff > p->max_ff) p->max_ff = ffn->n_ff;
        if (ffn->n_ff_expert > p->max_ff) p->max_ff = ffn->n_ff_expert;
        if (ffn->n_ff_shared > p->max_ff) p->max_ff = ffn->n_ff_shared;
        if (ffn->n_expert > p->max_expert) p->max_expert = ffn->n_expert;
        if (ffn->n_used > p->max_used) p->max_used = ffn->n_used;
    }
}

plumb_status plan_create(struct plan *p, struct gguf *const *parts, size_t n_part, uint64_t n_tensor,
                         struct error *err) {
    const struct architecture *arch = NULL;
    const struct gguf *g = parts[0];
    PLUMB_TRY(find_architecture(g, &arch, err));
    p->architecture = arch->name;
    p->required = arch->required;
    p->optional = arch->optional;
    p->biased = arch->biased;
    p->scaled = arch->scaled;
    p->norm = arch->norm;
    p->embedding_scale = p->residual_scale = p->logit_scale = 1.0f;
    p->is_causal = true;
    for (int i = 0; i < PLAN_ROPES; i++) p->ropes[i].pairing = arch->rope_pairing;
    struct key_reader r = { .gguf = g, .parts = parts, .n_part = n_part, .architecture = arch->name, .err = err,
                            .beta_fast = 32.0f, .beta_slow = 1.0f };
    struct layer_plan layer = { .ffn.activation = arch->activation };
    PLUMB_TRY(read_common(&r, p, &layer));
    if (p->n_layer > n_tensor) {
        return error_set(err, PLUMB_ERROR_METADATA, "key %s.block_count is %u, but the file has only %llu tensors",
                         arch->name, p->n_layer, (unsigned long long)n_tensor);
    }
    p->layers = calloc(p->n_layer, sizeof *p->layers);
    if (!p->layers) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the plan of %u layers", p->n_layer);
    if (!(arch->required & EXPERTS)) layer.ffn.n_expert = 0;   /* llama.cpp reads the key in all architectures */
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il] = layer;
        p->layers[il].without = layer.ffn.n_expert > 0 ? ALL_DENSE : ALL_EXPERTS;
    }
    if (layer.ffn.n_expert == 0 && (arch->required & EXPERTS) && !(arch->required & FFN)) {
        return error_set(err, PLUMB_ERROR_METADATA, "key %s.expert_count is missing or 0", arch->name);
    }
    PLUMB_TRY(read_layers(&r, p));
    p->ropes[ROPE_GLOBAL].has_factors = true;
    if (arch->plan) PLUMB_TRY(arch->plan(&r, p));
    for (int i = 0; i < PLAN_ROPES; i++) set_yarn(p, &p->ropes[i], r.beta_fast, r.beta_slow, r.log_factor);
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

float plan_alibi_slope(const struct attn_plan *a, uint32_t head) {
    uint32_t n = 1;
    if (a->alibi == 0.0f) return 0.0f;
    while (2 * n <= a->n_head) n *= 2;
    double exponent = head < n ? (head + 1.0) / n : (2.0 * (head - n) + 1) / (2.0 * n);
    return (float)math_pow(2.0, -(double)a->alibi * exponent);
}

bool plan_rope_rotates(const struct rope_plan *r, uint32_t i) {
    const uint32_t *s = r->sections;
    uint64_t sum = (uint64_t)s[0] + s[1] + s[2] + s[3];
    if (sum == 0) return true;
    uint64_t k = i % sum;
    if (!r->sections_interleaved) return k < sum - s[3];
    return k < 3 * (uint64_t)s[k % 3];
}

double plan_yarn_factor(const struct rope_plan *r, uint32_t i) {
    double width = (double)r->ramp_high - (double)r->ramp_low;
    double ramp = (i - (double)r->ramp_low) / (width > 0.001 ? width : 0.001);
    double scaled = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return scaled + (1 - scaled) / (double)r->freq_scale;
}

float plan_temperature(const struct attn_plan *a, uint32_t pos) {
    if (a->temperature_floor == 0) return 1.0f;
    double periods = (double)(((uint64_t)pos + a->temperature_offset) / a->temperature_floor);   /* a whole number */
    return 1.0f + a->temperature_scale * (float)math_log(1.0 + periods);
}

uint64_t plan_max_row(const struct plan *p) {
    uint64_t n = p->max_q > p->max_ff ? p->max_q : p->max_ff;
    return p->n_embd > n ? p->n_embd : n;
}
