/* See model.h.  Two tables hold what is known about models: architectures[] says what differs between architectures,
 * and the weight specs say which tensor, of which shape, is bound to which field. */
#include "model/model.h"

#include "base/decimal.h"
#include "base/math.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the table of architectures ------------------------------------------------------------------------------ */

static const struct architecture {
    const char *name;                 /* general.architecture, and the prefix of its keys */
    enum rope_pairing rope_pairing;   /* as llama.cpp's llama_model_rope_type */
    bool has_scales;                  /* it has keys that scale embeddings, residuals, scores and logits */
} architectures[] = {
    { "llama", ROPE_NORM, false },    /* its converters permute Q and K to this pairing */
    { "qwen2", ROPE_NEOX, false },
    { "granite", ROPE_NORM, true },   /* converted as llama */
};

/* ---- keys -> config ------------------------------------------------------------------------------------------ */

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
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s: %u is not in 1..%u", r->key, *out, max);
    }
    return PLUMB_OK;
}

static plumb_status read_rope(struct key_reader *r, struct model_config *c) {
    c->n_rot = c->head_dim;
    PLUMB_TRY(read_count(r, "rope.dimension_count", c->head_dim, &c->n_rot));
    if (c->n_rot % 2 != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s: %u is odd", r->key, c->n_rot);
    }
    c->rope_freq_base = 10000.0f;
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, "rope.freq_base"), &c->rope_freq_base, r->err));
    if (!(c->rope_freq_base >= 1.0f && c->rope_freq_base <= 1e12f)) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s: %g is not in 1..1e12", r->key,
                         (double)c->rope_freq_base);
    }
    struct gguf_string scaling = { "linear", 6 };
    PLUMB_TRY(gguf_get_string(r->gguf, key_of(r, "rope.scaling.type"), &scaling, r->err));
    bool none = scaling.n == 4 && memcmp(scaling.data, "none", 4) == 0;
    if (!none && !(scaling.n == 6 && memcmp(scaling.data, "linear", 6) == 0)) {
        struct shown shown;
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s: \"%s\" is not supported (none and linear are)",
                         r->key, show_bytes(&shown, scaling.data, (size_t)scaling.n));
    }
    float factor = 0.0f;   /* 0 means no scaling, as in llama.cpp; scale_linear is the old name of the key */
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, "rope.scale_linear"), &factor, r->err));
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, "rope.scaling.factor"), &factor, r->err));
    if (!(factor == 0.0f || (factor >= 0.1f && factor <= 1e6f))) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s: %g is not in 0.1..1e6", r->key, (double)factor);
    }
    c->rope_freq_scale = none || factor == 0.0f ? 1.0f : 1.0f / factor;
    return PLUMB_OK;
}

/* Reads a factor.  Leaves *out unchanged if the key is absent or, as in llama.cpp, 0. */
static plumb_status read_scale(struct key_reader *r, const char *suffix, float *out) {
    float scale = 0.0f;
    PLUMB_TRY(gguf_get_f32(r->gguf, key_of(r, suffix), &scale, r->err));
    if (!(scale == 0.0f || (scale >= 1e-6f && scale <= 1e6f))) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s: %g is not in 1e-6..1e6", r->key, (double)scale);
    }
    if (scale != 0.0f) *out = scale;
    return PLUMB_OK;
}

static plumb_status read_scales(struct key_reader *r, struct model_config *c) {
    PLUMB_TRY(read_scale(r, "embedding_scale", &c->embedding_scale));
    PLUMB_TRY(read_scale(r, "residual_scale", &c->residual_scale));
    PLUMB_TRY(read_scale(r, "attention.scale", &c->attention_scale));
    c->logit_scale = 0.0f;
    PLUMB_TRY(read_scale(r, "logit_scale", &c->logit_scale));
    if (c->logit_scale == 0.0f) {   /* logits are divided by it */
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing or 0", r->key);
    }
    /* Only in the architectures with scales, llama.cpp reads this key as "the model has RoPE". */
    bool has_rope = true;
    PLUMB_TRY(gguf_get_bool(r->gguf, key_of(r, "rope.scaling.finetuned"), &has_rope, r->err));
    if (!has_rope) return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s: no RoPE is not supported", r->key);
    return PLUMB_OK;
}

plumb_status model_read_config(struct model_config *c, const struct gguf *g, struct error *err) {
    struct gguf_string name = { NULL, 0 };
    struct shown shown;
    PLUMB_TRY(gguf_get_string(g, "general.architecture", &name, err));
    if (!name.data) return error_set(err, PLUMB_ERROR_METADATA, "key general.architecture is missing");
    const struct architecture *arch = NULL;
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        const char *known = architectures[i].name;
        if (name.n == strlen(known) && memcmp(name.data, known, (size_t)name.n) == 0) arch = &architectures[i];
    }
    if (!arch) {
        return error_set(err, PLUMB_ERROR_UNSUPPORTED, "general.architecture: \"%s\" is not supported (llama, qwen2 "
                         "and granite are)", show_bytes(&shown, name.data, (size_t)name.n));
    }
    c->architecture = arch->name;
    c->rope_pairing = arch->rope_pairing;

    /* The bounds are far above any real model.  They keep products of two of these numbers far below 2^64. */
    struct key_reader r = { g, arch->name, err, "" };
    PLUMB_TRY(read_count(&r, "block_count", 1u << 16, &c->n_layer));
    PLUMB_TRY(read_count(&r, "embedding_length", 1u << 20, &c->n_embd));
    PLUMB_TRY(read_count(&r, "feed_forward_length", 1u << 22, &c->n_ff));
    PLUMB_TRY(read_count(&r, "context_length", UINT32_MAX, &c->n_ctx_train));
    PLUMB_TRY(read_count(&r, "attention.head_count", 1u << 16, &c->n_head));
    c->n_head_kv = c->n_head;
    PLUMB_TRY(read_count(&r, "attention.head_count_kv", c->n_head, &c->n_head_kv));
    if (c->n_head % c->n_head_kv != 0) {
        return error_set(err, PLUMB_ERROR_METADATA, "key %s: %u does not divide the %u query heads", r.key,
                         c->n_head_kv, c->n_head);
    }
    c->head_dim = c->n_embd / c->n_head;
    PLUMB_TRY(read_count(&r, "attention.key_length", 1u << 16, &c->head_dim));
    uint32_t value_length = c->head_dim;
    PLUMB_TRY(read_count(&r, "attention.value_length", 1u << 16, &value_length));
    if (value_length != c->head_dim) {
        return error_set(err, PLUMB_ERROR_UNSUPPORTED, "key %s: %u differs from the key length %u", r.key,
                         value_length, c->head_dim);
    }
    c->rms_eps = -1.0f;
    PLUMB_TRY(gguf_get_f32(g, key_of(&r, "attention.layer_norm_rms_epsilon"), &c->rms_eps, err));
    if (!(c->rms_eps >= 0.0f && c->rms_eps <= 1.0f)) {
        return error_set(err, PLUMB_ERROR_METADATA, "key %s is missing or not in 0..1", r.key);
    }
    uint32_t n_expert = 0;
    PLUMB_TRY(gguf_get_u32(g, key_of(&r, "expert_count"), &n_expert, err));
    if (n_expert != 0) {
        return error_set(err, PLUMB_ERROR_UNSUPPORTED, "key %s: %u: mixtures of experts are not supported", r.key,
                         n_expert);
    }
    c->embedding_scale = c->residual_scale = c->logit_scale = 1.0f;
    if (arch->has_scales) PLUMB_TRY(read_scales(&r, c));
    return read_rope(&r, c);
}

/* ---- names -> weights ------------------------------------------------------------------------------------------ */

/* Sizes of weights, which follow from the config. */
enum dim { DIM_ONE, DIM_EMBD, DIM_Q, DIM_KV, DIM_FF, DIM_VOCAB, DIM_ROT_HALF };

enum need {
    REQUIRED,
    OPTIONAL,
    IGNORED,   /* accepted but not used: old converters wrote it */
};

struct weight_spec {
    const char *name;      /* the tensor's name; in layers the part after "blk.N." */
    size_t field;          /* offset of its struct weight in struct model or struct layer */
    enum dim n_in, n_out;  /* shape [n_in, n_out], or [n_in] if n_out is DIM_ONE */
    enum need need;
};

static const struct weight_spec model_specs[] = {
    { "token_embd.weight", offsetof(struct model, token_embd), DIM_EMBD, DIM_VOCAB, REQUIRED },
    { "output_norm.weight", offsetof(struct model, output_norm), DIM_EMBD, DIM_ONE, REQUIRED },
    { "output.weight", offsetof(struct model, output), DIM_EMBD, DIM_VOCAB, OPTIONAL },
    { "rope_freqs.weight", offsetof(struct model, rope_freqs), DIM_ROT_HALF, DIM_ONE, OPTIONAL },
};

static const struct weight_spec layer_specs[] = {
    { "attn_norm.weight", offsetof(struct layer, attn_norm), DIM_EMBD, DIM_ONE, REQUIRED },
    { "attn_q.weight", offsetof(struct layer, attn_q), DIM_EMBD, DIM_Q, REQUIRED },
    { "attn_q.bias", offsetof(struct layer, attn_q_bias), DIM_Q, DIM_ONE, OPTIONAL },
    { "attn_k.weight", offsetof(struct layer, attn_k), DIM_EMBD, DIM_KV, REQUIRED },
    { "attn_k.bias", offsetof(struct layer, attn_k_bias), DIM_KV, DIM_ONE, OPTIONAL },
    { "attn_v.weight", offsetof(struct layer, attn_v), DIM_EMBD, DIM_KV, REQUIRED },
    { "attn_v.bias", offsetof(struct layer, attn_v_bias), DIM_KV, DIM_ONE, OPTIONAL },
    { "attn_output.weight", offsetof(struct layer, attn_output), DIM_Q, DIM_EMBD, REQUIRED },
    { "attn_output.bias", offsetof(struct layer, attn_output_bias), DIM_EMBD, DIM_ONE, OPTIONAL },
    { "ffn_norm.weight", offsetof(struct layer, ffn_norm), DIM_EMBD, DIM_ONE, REQUIRED },
    { "ffn_gate.weight", offsetof(struct layer, ffn_gate), DIM_EMBD, DIM_FF, REQUIRED },
    { "ffn_up.weight", offsetof(struct layer, ffn_up), DIM_EMBD, DIM_FF, REQUIRED },
    { "ffn_down.weight", offsetof(struct layer, ffn_down), DIM_FF, DIM_EMBD, REQUIRED },
    { "attn_rot_embd.weight", 0, DIM_ROT_HALF, DIM_ONE, IGNORED },
};

#define N_MODEL_SPEC (sizeof model_specs / sizeof *model_specs)
#define N_LAYER_SPEC (sizeof layer_specs / sizeof *layer_specs)

static uint64_t dim_size(const struct model_config *c, enum dim dim) {
    switch (dim) {
    case DIM_ONE: return 1;
    case DIM_EMBD: return c->n_embd;
    case DIM_Q: return (uint64_t)c->n_head * c->head_dim;
    case DIM_KV: return (uint64_t)c->n_head_kv * c->head_dim;
    case DIM_FF: return c->n_ff;
    case DIM_VOCAB: return c->n_vocab;
    case DIM_ROT_HALF: return c->n_rot / 2;
    }
    return 0;
}

/* Writes the first n_dims dimensions as "[576, 192]". */
static void shape_text(char *buf, size_t cap, const uint64_t *shape, uint32_t n_dims) {
    int n = snprintf(buf, cap, "[");
    for (uint32_t i = 0; i < n_dims && n >= 0 && (size_t)n < cap; i++) {
        n += snprintf(buf + n, cap - (size_t)n, i == 0 ? "%llu" : ", %llu", (unsigned long long)shape[i]);
    }
    if (n >= 0 && (size_t)n < cap) snprintf(buf + n, cap - (size_t)n, "]");
}

/* Collects problems: the first one becomes *err, and on_problem gets all of them. */
struct problems {
    struct error *err;
    uint64_t n;
    model_on_problem *on_problem;   /* NULL: only the first one is wanted */
    void *user;
};

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static void problem(struct problems *p, plumb_status status, const char *format, ...) {
    char message[sizeof p->err->message];
    va_list args;
    va_start(args, format);
    if (vsnprintf(message, sizeof message, format, args) < 0) message[0] = 0;
    va_end(args);
    if (p->n++ == 0) error_set(p->err, status, "%s", message);
    if (p->on_problem) p->on_problem(p->user, status, message);
}

/* Binds w to tensor t of g and reports where t differs from its spec. */
static void bind_weight(struct weight *w, const struct weight_spec *spec, struct gguf *g, const struct gguf_tensor *t,
                        const struct model_config *c, struct problems *p) {
    uint64_t expected[2] = { dim_size(c, spec->n_in), dim_size(c, spec->n_out) };
    uint32_t n_dims = spec->n_out == DIM_ONE ? 1 : 2;
    if (t->shape[0] != expected[0] || t->shape[1] != expected[1] || t->shape[2] != 1 || t->shape[3] != 1) {
        char has[100], needs[100];
        shape_text(has, sizeof has, t->shape, t->n_dims);
        shape_text(needs, sizeof needs, expected, n_dims);
        bool is_transposed = n_dims == 2 && t->shape[0] == expected[1] && t->shape[1] == expected[0];
        problem(p, PLUMB_ERROR_TENSOR, "tensor %s: expected shape %s, file has %s %s%s", t->name.data, needs,
                quant_traits(t->type)->name, has, is_transposed ? ": it is transposed" : "");
    }
    /* Norms, biases and frequency factors are used in place as F32; every converter writes them so. */
    if (n_dims == 1 && t->type != QUANT_F32) {
        problem(p, PLUMB_ERROR_UNSUPPORTED, "tensor %s: expected F32, file has %s", t->name.data,
                quant_traits(t->type)->name);
    }
    w->name = t->name.data;
    w->traits = quant_traits(t->type);
    w->type = t->type;
    w->data = t->data;
    w->n_in = (uint32_t)expected[0];
    w->n_out = (uint32_t)expected[1];
    w->row_bytes = gguf_row_bytes(t);
    w->n_packed = (uint32_t)t->n_packed;
    w->file = g;
    w->offset = t->offset;
}

/* Finds the spec of a tensor by its name and sets *w to the weight it is bound to; NULL if no table has the name.  For
 * an IGNORED tensor *w is meaningless. */
static const struct weight_spec *find_place(struct model *m, const char *name, struct weight **w) {
    uint32_t il = 0;
    const char *rest = name;
    bool in_layer = strncmp(rest, "blk.", 4) == 0 && rest[4] >= '0' && rest[4] <= '9';
    if (in_layer) {
        const char *end = rest + 4;
        il = decimal_read_u32(&end);
        if (*end != '.' || il >= m->config.n_layer || (rest[4] == '0' && end != rest + 5)) return NULL;
        rest = end + 1;
    }
    const struct weight_spec *specs = in_layer ? layer_specs : model_specs;
    char *base = in_layer ? (char *)&m->layers[il] : (char *)m;
    for (size_t i = 0; i < (in_layer ? N_LAYER_SPEC : N_MODEL_SPEC); i++) {
        if (strcmp(rest, specs[i].name) == 0) {
            *w = (struct weight *)(void *)(base + specs[i].field);
            return &specs[i];
        }
    }
    return NULL;
}

_Static_assert(QUANT_TYPE_COUNT <= 64, "struct model has a bit for each type");

static void bind_part(struct model *m, struct gguf *g, struct problems *p) {
    for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct weight *w;
        const struct weight_spec *spec = find_place(m, t->name.data, &w);
        if (!spec) {
            struct shown shown;
            problem(p, PLUMB_ERROR_UNSUPPORTED, "tensor \"%s\" has no place in a %s model of %u blocks",
                    show_bytes(&shown, t->name.data, (size_t)t->name.n), m->config.architecture, m->config.n_layer);
        } else if (spec->need != IGNORED && w->name) {
            problem(p, PLUMB_ERROR_TENSOR, "tensor %s is in more than one part of the split file", t->name.data);
        } else if (spec->need != IGNORED) {
            bind_weight(w, spec, g, t, &m->config, p);
            m->types |= UINT64_C(1) << t->type;
        }
    }
}

static void check_required(const void *base, const struct weight_spec *specs, size_t n, const char *prefix,
                           struct problems *p) {
    for (size_t i = 0; i < n; i++) {
        const struct weight *w = (const void *)((const char *)base + specs[i].field);
        if (specs[i].need == REQUIRED && !w->name) {
            problem(p, PLUMB_ERROR_TENSOR, "tensor %s%s is missing", prefix, specs[i].name);
        }
    }
}

static float rope_factor(const struct model *m, uint32_t i) {
    return f32_from_bits(load_u32(m->rope_freqs.data + 4 * (size_t)i));
}

static void bind_all(struct model *m, struct gguf *const *parts, size_t n_part, struct problems *p) {
    for (size_t i = 0; i < n_part; i++) {
        bind_part(m, parts[i], p);
        for (uint64_t k = 0; k < gguf_n_tensor(parts[i]); k++) {
            const struct gguf_tensor *t = gguf_tensor_at(parts[i], k);
            if (t->n_packed > 0 && gguf_row_bytes(t) > m->max_packed_row) m->max_packed_row = gguf_row_bytes(t);
        }
    }
    check_required(m, model_specs, N_MODEL_SPEC, "", p);
    for (uint32_t il = 0; il < m->config.n_layer; il++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "blk.%u.", il);
        check_required(&m->layers[il], layer_specs, N_LAYER_SPEC, prefix, p);
    }
    if (!m->output.name) m->output = m->token_embd;   /* tied */
    if (p->n > 0) return;   /* rope_freqs may have fewer elements than its weight says */
    for (uint32_t i = 0; m->rope_freqs.data && i < m->rope_freqs.n_in; i++) {
        float factor = rope_factor(m, i);
        if (!(factor >= 0.01f && factor <= 1e6f)) {   /* angles are divided by it */
            problem(p, PLUMB_ERROR_TENSOR, "tensor rope_freqs.weight: element %u is %g, not in 0.01..1e6", i,
                    (double)factor);
        }
    }
}

static plumb_status create(struct model **out, struct gguf *const *parts, size_t n_part, uint32_t n_vocab,
                           struct problems *problems) {
    struct error *err = problems->err;
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    if (!m) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %zu bytes for the model", sizeof *m);
    plumb_status status = model_read_config(&m->config, parts[0], err);
    if (status != PLUMB_OK) goto done;
    m->config.n_vocab = n_vocab;

    /* Every layer has tensors, so the number of tensors bounds the layer array before it is allocated. */
    uint64_t n_tensor = 0;
    for (size_t i = 0; i < n_part; i++) n_tensor += gguf_n_tensor(parts[i]);
    if (m->config.n_layer > n_tensor) {
        status = error_set(err, PLUMB_ERROR_METADATA, "key %s.block_count: %u blocks, but the file has only %llu "
                           "tensors", m->config.architecture, m->config.n_layer, (unsigned long long)n_tensor);
        goto done;
    }
    m->layers = calloc(m->config.n_layer, sizeof *m->layers);
    if (!m->layers) {
        status = error_set(err, PLUMB_ERROR_MEMORY, "out of memory: %u layers", m->config.n_layer);
        goto done;
    }
    bind_all(m, parts, n_part, problems);
    if (problems->n > 0) status = err->status;
done:
    if (status != PLUMB_OK) {
        model_free(m);
        return status;
    }
    *out = m;
    return PLUMB_OK;
}

plumb_status model_create(struct model **out, struct gguf *const *parts, size_t n_part, uint32_t n_vocab,
                          struct error *err) {
    struct problems problems = { .err = err };
    return create(out, parts, n_part, n_vocab, &problems);
}

plumb_status model_check_tensors(struct gguf *const *parts, size_t n_part, uint32_t n_vocab,
                                 model_on_problem *on_problem, void *user, struct error *err) {
    struct problems problems = { err, 0, on_problem, user };
    struct model *m;
    PLUMB_TRY(create(&m, parts, n_part, n_vocab, &problems));
    model_free(m);
    return PLUMB_OK;
}

/* ---- rehearsal ------------------------------------------------------------------------------------------------- */

enum { RING_ALIGNMENT = 64 };

typedef void on_weight(void *user, struct weight *w);

static void for_specs(void *base, const struct weight_spec *specs, size_t n, on_weight *call, void *user) {
    for (size_t i = 0; i < n; i++) {
        struct weight *w = (void *)((char *)base + specs[i].field);
        if (specs[i].need != IGNORED && w->name) call(user, w);
    }
}

/* Visits every weight that is bound.  Tied weights are visited once, and output then becomes a copy of token_embd. */
static void for_weights(struct model *m, on_weight *call, void *user) {
    bool tied = m->output.name == m->token_embd.name;
    if (tied) m->output.name = NULL;
    for_specs(m, model_specs, N_MODEL_SPEC, call, user);
    if (tied) m->output = m->token_embd;
    for (uint32_t il = 0; il < m->config.n_layer; il++) {
        for_specs(&m->layers[il], layer_specs, N_LAYER_SPEC, call, user);
    }
}

static uint64_t ring_bytes(const struct weight *w) {
    return ((uint64_t)w->row_bytes * w->n_out + RING_ALIGNMENT - 1) & ~(uint64_t)(RING_ALIGNMENT - 1);
}

struct sizes { uint64_t all, largest; };

static void add_size(void *user, struct weight *w) {
    struct sizes *s = user;
    uint64_t n = ring_bytes(w);
    s->all += n;
    if (n > s->largest) s->largest = n;
}

uint64_t model_largest_weight(const struct model *m, uint64_t *all) {
    struct sizes sizes = { 0, 0 };
    struct model copy = *m;   /* for_weights writes to m->output if weights are tied */
    for_weights(&copy, add_size, &sizes);
    *all = sizes.all;
    return sizes.largest;
}

struct ring { uint8_t *data; uint64_t n, at; };

static void lay(void *user, struct weight *w) {
    struct ring *r = user;
    uint64_t n = ring_bytes(w);
    if (n > r->n - r->at) r->at = 0;
    w->data = r->data ? r->data + r->at : NULL;
    w->n_packed = w->n_out > 1 && repack_can_rows(w->type, w->row_bytes) ? w->n_out / REPACK_ROWS * REPACK_ROWS : 0;
    r->at += n;
}

void model_rehearse(struct model *m, uint8_t *ring, uint64_t n) {
    for_weights(m, lay, &(struct ring) { ring, n, 0 });
    m->rope_freqs.data = NULL;
}

void model_free(struct model *m) {
    if (!m) return;
    free(m->layers);
    free(m);
}

uint64_t model_max_row(const struct model_config *c) {
    uint64_t n = dim_size(c, DIM_Q);
    if (c->n_embd > n) n = c->n_embd;
    return c->n_ff > n ? c->n_ff : n;
}

void model_rope_angles(const struct model *m, uint32_t pos, double *angles) {
    const struct model_config *c = &m->config;
    for (uint32_t i = 0; i < c->n_rot / 2; i++) {
        double frequency = math_pow((double)c->rope_freq_base, -2.0 * i / c->n_rot);
        if (m->rope_freqs.data) frequency /= (double)rope_factor(m, i);
        angles[i] = (double)pos * (double)c->rope_freq_scale * frequency;
    }
}
