/* What all architectures have, and how a row and the keys of a file make a plan. */
#include "base/math.h"
#include "model/architecture.h"

#include <stdlib.h>

/* ---- what all architectures have --------------------------------------------------------------------------------- */

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

static plumb_status read_rope(struct key_reader *r, struct plan *p, uint32_t k_dim, struct rope_plan *rope) {
    rope->n_rot = k_dim;
    PLUMB_TRY(key_n_rot(r, "rope.dimension_count", k_dim, &rope->n_rot));
    rope->freq_base = 10000.0f;
    PLUMB_TRY(key_freq_base(r, "rope.freq_base", &rope->freq_base));
    p->n_ctx_original = p->n_ctx_train;
    PLUMB_TRY(key_count(r, "rope.scaling.original_context_length", UINT32_MAX, &p->n_ctx_original));
    struct gguf_string scaling = { "linear", 6 };
    PLUMB_TRY(gguf_get_string(r->gguf, key_of(r, "rope.scaling.type"), &scaling, r->err));
    bool none = key_is_text(&scaling, "none");
    rope->is_yarn = key_is_text(&scaling, "yarn");
    r->is_longrope = key_is_text(&scaling, "longrope");
    if (!none && !rope->is_yarn && !r->is_longrope && !key_is_text(&scaling, "linear")) {
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
    return key_scale(r, "rope.scaling.attn_factor", &rope->magnitude);
}

/* Reads how the embeddings of tokens become one vector. */
static plumb_status read_pooling(struct key_reader *r, struct pooling_plan *p) {
    enum { MAX_CLASSES = 1 << 16 };
    uint32_t kind = PLUMB_POOLING_NONE;
    const struct gguf_key *labels;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "pooling_type"), &kind, r->err));
    if (kind == UINT32_MAX) kind = PLUMB_POOLING_NONE;   /* llama.cpp writes it if it has no other value */
    if (kind > PLUMB_POOLING_RANK) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected 0 to %d", r->key, kind,
                         (int)PLUMB_POOLING_RANK);
    }
    p->kind = (plumb_pooling)kind;
    p->rank_of = PLUMB_POOLING_CLS;
    PLUMB_TRY(gguf_get_array(r->gguf, key_of(r, "classifier.output_labels"), GGUF_STRING, &labels, r->err));
    if (labels && labels->n > MAX_CLASSES) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s has %llu labels, expected at most %d", r->key,
                         (unsigned long long)labels->n, MAX_CLASSES);
    }
    p->n_class = labels && labels->n > 0 ? (uint32_t)labels->n : 1;
    return PLUMB_OK;
}

static plumb_status read_experts(struct key_reader *r, struct ffn_plan *p) {
    uint32_t n_group = 0;
    p->gating = GATING_SOFTMAX;
    p->weights_scale = 1.0f;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "expert_count"), &p->n_expert, r->err));
    if (p->n_expert == 0) return PLUMB_OK;
    if (p->n_expert > PLAN_MAX_EXPERTS) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected at most %d", r->key, p->n_expert,
                         PLAN_MAX_EXPERTS);
    }
    PLUMB_TRY(key_count(r, "expert_used_count", p->n_expert, &p->n_used));
    PLUMB_TRY(key_width(r, "expert_feed_forward_length", p->n_ff, &p->n_ff_expert));
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "expert_group_count"), &n_group, r->err));
    if (n_group <= 1) return PLUMB_OK;
    p->n_group = n_group;
    if (n_group > PLAN_MAX_GROUPS || p->n_expert % n_group != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected at most %d and a divisor of the %u "
                         "experts", r->key, n_group, PLAN_MAX_GROUPS, p->n_expert);
    }
    PLUMB_TRY(key_count(r, "expert_group_used_count", n_group, &p->n_group_used));
    if (p->n_used > p->n_group_used * (p->n_expert / n_group)) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, but these groups have fewer experts than the %u "
                         "that are used", r->key, p->n_group_used, p->n_used);
    }
    return PLUMB_OK;
}

/* Mamba has neither attention nor a feed-forward network, and RWKV reads its own keys. */
static bool has_usual_layers(const struct plan *p) {
    return p->required & SET(ATTN_OUTPUT) && !(p->required & SET(DECAY));
}

/* The bounds are far above any real model.  They keep products of two of these numbers far below 2^64. */
static plumb_status read_common(struct key_reader *r, struct plan *p, struct layer_plan *layer) {
    struct attn_plan *a = &layer->attn;
    PLUMB_TRY(key_count(r, "block_count", 1u << 16, &p->n_layer));
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "nextn_predict_layers"), &p->n_ignored_layer, r->err));
    if (p->n_ignored_layer >= p->n_layer) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u of %u layers, expected fewer", r->key,
                         p->n_ignored_layer, p->n_layer);
    }
    p->n_layer -= p->n_ignored_layer;
    PLUMB_TRY(key_count(r, "embedding_length", 1u << 20, &p->n_embd));
    PLUMB_TRY(key_count(r, "context_length", UINT32_MAX, &p->n_ctx_train));
    PLUMB_TRY(key_epsilon(r, p));
    a->n_head = a->n_head_kv = 1;
    if (!has_usual_layers(p)) return PLUMB_OK;
    PLUMB_TRY(key_count(r, "feed_forward_length", 1u << 22, &layer->ffn.n_ff));
    PLUMB_TRY(key_count(r, "attention.head_count", 1u << 16, &a->n_head));
    a->n_head_kv = a->n_head;
    PLUMB_TRY(key_count(r, "attention.head_count_kv", 1u << 16, &a->n_head_kv));
    if (a->n_head % a->n_head_kv != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, which does not divide the %u query heads", r->key,
                         a->n_head_kv, a->n_head);
    }
    a->k_dim = p->n_embd / a->n_head;
    PLUMB_TRY(key_count(r, "attention.key_length", 1u << 16, &a->k_dim));
    a->v_dim = p->n_embd / a->n_head;
    PLUMB_TRY(key_count(r, "attention.value_length", 1u << 16, &a->v_dim));
    PLUMB_TRY(gguf_get_bool(r->gguf, key_of(r, "attention.causal"), &layer->attn.is_causal, r->err));
    PLUMB_TRY(read_pooling(r, &p->pooling));
    p->pooling.n_hidden = p->n_embd;
    PLUMB_TRY(read_experts(r, &layer->ffn));
    return read_rope(r, p, a->k_dim, &p->ropes[ROPE_GLOBAL]);
}

/* Numbers that are arrays with one for each layer. */
static plumb_status read_layers(struct key_reader *r, struct plan *p) {
    static const char *const suffixes[] = { "attention.head_count", "attention.head_count_kv", "feed_forward_length" };
    if (!has_usual_layers(p)) return PLUMB_OK;
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
            if (n == 0 && i < 2 && p->required >> W_CONV_OUT & 1) {
                l->mixer = MIXER_CONVOLUTION;
                continue;
            }
            if (n == 0 && i == 2 && p->steps == steps_one) {
                l->ffn.n_ff = 0;
                continue;
            }
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

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct architecture *const tables[] = { plan_dense_rows, plan_sparse_rows, plan_recurrent_rows,
                                                    plan_encoder_rows };
enum { N_TABLE = sizeof tables / sizeof *tables };

/* Row i of all tables together; NULL if i is beyond their end. */
static const struct architecture *row_at(size_t i) {
    for (size_t k = 0; k < N_TABLE; k++) {
        for (const struct architecture *row = tables[k]; row->name; row++) {
            if (i-- == 0) return row;
        }
    }
    return NULL;
}

const char *plan_architecture(size_t i) {
    const struct architecture *row = row_at(i);
    return row ? row->name : NULL;
}

/* Other architectures of llama.cpp by what they are, each name between spaces. */
static const struct { const char *what, *names; } refused[] = {
    { "a model with latent attention and hundreds of billions of parameters",
      " deepseek32 dots3note glm-dsa hy_v4 " },
    { "a model with linear and latent attention and hundreds of billions of parameters", " kimi-k3 " },
    { "a model with compressed or sparse attention and hundreds of billions of parameters",
      " deepseek4 minimax-m3 qwen4exp " },
    { "a model that drafts tokens for Gemma 4", " gemma4-assistant " },
    { "a head that drafts tokens for another model", " dflash eagle3 " },
    { "a model of images or sound", " clip wavtokenizer-dec " },
};

/* What a refused architecture is, "a recurrent model"; NULL if the table does not have it. */
static const char *refused_kind(const struct gguf_string *name) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        for (const char *at = refused[i].names; *++at;) {
            size_t n = strcspn(at, " ");
            if (n == name->n && memcmp(at, name->data, n) == 0) return refused[i].what;
            at += n;
        }
    }
    return NULL;
}

static plumb_status find_architecture(const struct gguf *g, const struct architecture **out, struct error *err) {
    struct gguf_string name = { NULL, 0 };
    size_t n = 0;
    PLUMB_TRY(gguf_get_string(g, "general.architecture", &name, err));
    if (!name.data) return error_set(err, PLUMB_ERROR_METADATA, "key general.architecture is missing");
    for (; (*out = row_at(n)) != NULL; n++) {
        if (key_is_text(&name, (*out)->name)) return PLUMB_OK;
    }
    struct shown shown;
    const char *kind = refused_kind(&name);
    if (kind) {
        return error_set(err, PLUMB_ERROR_UNSUPPORTED, "general.architecture: \"%s\" is %s; plumb does not run these "
                         "yet", show_bytes(&shown, name.data, (size_t)name.n), kind);
    }
    return error_set(err, PLUMB_ERROR_UNSUPPORTED, "general.architecture: \"%s\" is not supported; "
                     "docs/architectures.md lists the %zu that are", show_bytes(&shown, name.data, (size_t)name.n), n);
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

/* Elements of the longest row of a stream of latent attention; 0: there is none. */
static uint64_t latent_row(const struct attn_plan *a) {
    const struct latent_plan *l = &a->latent;
    const uint64_t rows[] = { l->n_q, (uint64_t)a->n_head * (l->n_plain + l->n_rotated),
                              (uint64_t)l->n_kv + l->n_rotated,
                              (uint64_t)a->n_head * (l->n_plain + l->v_dim), (uint64_t)a->n_head * l->n_kv };
    uint64_t max = 0;
    for (size_t i = 0; l->n_kv > 0 && i < sizeof rows / sizeof *rows; i++) max = rows[i] > max ? rows[i] : max;
    return max;
}

static void at_least(uint64_t *max, uint64_t n) {
    if (n > *max) *max = n;
}

static void set_maxima_of_attention(struct plan *p, const struct layer_plan *l) {
    const struct attn_plan *a = &l->attn;
    uint64_t n_kv = l->kv_back == 0 ? a->n_head_kv : 0;
    if (a->n_head > p->max_head) p->max_head = a->n_head;
    at_least(&p->max_q, (uint64_t)a->n_head * a->k_dim);
    at_least(&p->max_q, (uint64_t)a->n_head * a->v_dim);
    at_least(&p->max_q, (uint64_t)a->n_head * a->latent.v_dim);
    at_least(&p->max_k, n_kv * a->k_dim);
    at_least(&p->max_v, n_kv * a->v_dim);
    at_least(&p->max_latent, latent_row(a));
}

static void set_maxima(struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct layer_plan *l = &p->layers[il];
        const struct ffn_plan *ffn = &l->ffn;
        if (plan_attends(l)) set_maxima_of_attention(p, l);
        if (l->attn.gate != ATTN_GATE_NONE) p->has_gates = true;
        if (plan_state_size(p, il) > 0) p->is_recurrent = true;
        if (l->state != STATE_NONE) p->has_states = true;
        at_least(&p->max_delta, delta_n_decay(&l->delta));
        at_least(&p->max_q, (uint64_t)l->delta.n_head * l->delta.dim);
        at_least(&p->max_conv, plan_conv_width(p, il));
        if (plan_has_wkv(l)) {
            at_least(&p->max_q, (uint64_t)l->attn.n_head * l->attn.k_dim);
        }
        if (plan_scans(l)) at_least(&p->max_scan, plan_scan_width(&p->scan));
        /* Where no layer has such a network, no tensor vouches for the key: memory for it is not allocated. */
        if (((p->required | p->optional) & ~l->without) >> W_FFN_DOWN & 1) at_least(&p->max_ff, ffn->n_ff);
        at_least(&p->max_ff, ffn->n_ff_expert);
        at_least(&p->max_ff, ffn->n_ff_shared);
        at_least(&p->max_ff, ffn->n_ff_adjugate);
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
    p->steps = arch->steps;
    p->embedding_scale = p->residual_scale = p->logit_scale = 1.0f;
    p->has_logits = true;
    p->decoder_start = -1;
    for (int i = 0; i < PLAN_ROPES; i++) p->ropes[i].pairing = arch->rope_pairing;
    struct key_reader r = { .gguf = g, .parts = parts, .n_part = n_part, .architecture = arch->name, .err = err,
                            .prefix = "", .beta_fast = 32.0f, .beta_slow = 1.0f };
    struct layer_plan layer = { .ffn.activation = arch->activation, .attn.is_causal = true, .prefix = "" };
    PLUMB_TRY(read_common(&r, p, &layer));
    if (p->n_layer > n_tensor && p->n_layer > PLAN_MAX_REPEATED) {
        return error_set(err, PLUMB_ERROR_METADATA, "key %s.block_count is %u, but the file has only %llu tensors",
                         arch->name, p->n_layer, (unsigned long long)n_tensor);
    }
    p->layers = calloc(p->n_layer, sizeof *p->layers);
    if (!p->layers) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the plan of %u layers", p->n_layer);
    if (!(arch->required & EXPERTS)) layer.ffn.n_expert = 0;   /* llama.cpp reads the key in all architectures */
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il] = layer;
        p->layers[il].block = il;
        p->layers[il].without = layer.ffn.n_expert > 0 ? ALL_DENSE : ALL_EXPERTS;
    }
    if (layer.ffn.n_expert == 0 && (arch->required & EXPERTS) && !(arch->required & FFN)) {
        return error_set(err, PLUMB_ERROR_METADATA, "key %s.expert_count is missing or 0", arch->name);
    }
    PLUMB_TRY(read_layers(&r, p));
    p->ropes[ROPE_GLOBAL].has_factors = true;
    p->n_rope_factor = p->ropes[ROPE_GLOBAL].n_rot / 2;
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

uint32_t plan_bucket(const struct attn_plan *a, int32_t distance) {
    uint32_t n = a->is_causal ? a->n_bucket : a->n_bucket / 2, n_near = n / 2, from = 0;
    uint32_t size = distance < 0 ? (uint32_t)-(int64_t)distance : (uint32_t)distance;
    if (distance > 0 && !a->is_causal) from = n;
    if (distance > 0 && a->is_causal) size = 0;
    if (size < n_near) return from + size;
    double far = math_log((double)size / n_near) / math_log((double)PLAN_FAR / n_near) * (n - n_near);
    double bucket = n_near + far + 1e-9;   /* powers of two give whole numbers, whatever the logarithm's last bit */
    return from + (bucket < n ? (uint32_t)bucket : n - 1);
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
    if (!r->is_yarn) return 1;
    double width = (double)r->ramp_high - (double)r->ramp_low;
    double ramp = (i - (double)r->ramp_low) / (width > 0.001 ? width : 0.001);
    double scaled = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return scaled + (1 - scaled) / (double)r->freq_scale;
}

uint32_t plan_first_seen(const struct attn_plan *a, uint32_t pos) {
    uint32_t before = a->is_symmetric ? a->window / 2 : a->window - 1;
    if (a->window > 0 && a->is_chunked) return pos / a->window * a->window;
    return a->window == 0 || pos <= before ? 0 : pos - before;
}

uint32_t plan_adapter_of(const struct plan *p, int32_t id) {
    const struct switch_plan *s = &p->adapters;
    uint32_t i = s->n;
    while (i > 0 && gguf_element(s->ids, i - 1) != (uint64_t)id) i--;
    return i;
}

int32_t plan_embedded_as(const struct plan *p, int32_t id) {
    uint32_t i = plan_adapter_of(p, id);
    return i > 0 ? (int32_t)gguf_element(p->adapters.substitutes, i - 1) : id;
}

uint32_t plan_adapter_at(const struct plan *p, uint32_t n_token, uint32_t n_switch, uint64_t sum) {
    double others = math_exp(-2.0 * (double)p->adapters.gain) * (n_token - n_switch);
    if (n_switch == 0) return 0;
    float mean = (float)((double)sum / (n_switch + others));   /* as exact as in llama.cpp */
    return (uint32_t)((double)mean + 0.5);
}

float plan_temperature(const struct attn_plan *a, uint32_t pos) {
    if (a->temperature_floor == 0) return 1.0f;
    double periods = (double)(((uint64_t)pos + a->temperature_offset) / a->temperature_floor);   /* a whole number */
    return 1.0f + a->temperature_scale * (float)math_log(1.0 + periods);
}

uint64_t plan_conv_width(const struct plan *p, uint32_t il) {
    const struct delta_plan *d = &p->layers[il].delta;
    switch (p->layers[il].mixer) {
    case MIXER_ATTENTION: case MIXER_RWKV: case MIXER_LIGHTNING: case MIXER_NONE: return 0;
    case MIXER_CONVOLUTION: return p->n_embd;
    case MIXER_DELTA_NET: return (2 * (uint64_t)d->n_key_head + d->n_head) * d->dim;
    case MIXER_SCAN: case MIXER_BOTH:
        return plan_scan_width(&p->scan) + (p->scan.kind == SCAN_MAMBA_2 ? 2 * plan_scan_group_width(&p->scan) : 0);
    }
    return 0;
}

uint32_t plan_scan_in(const struct scan_plan *s) {
    uint32_t n = 2 * plan_scan_width(s);
    return s->kind == SCAN_MAMBA_2 ? n + 2 * plan_scan_group_width(s) + s->n_head : n;
}

uint64_t plan_state_size(const struct plan *p, uint32_t il) {
    const struct layer_plan *l = &p->layers[il];
    if (plan_has_wkv(l)) {
        return (uint64_t)p->rwkv.n_shift * p->n_embd + (uint64_t)l->attn.n_head * l->attn.v_dim * l->attn.k_dim;
    }
    if (l->n_conv == 0) return 0;
    uint64_t matrices = plan_scans(l) ? (uint64_t)plan_scan_width(&p->scan) * p->scan.n_state
                                      : (uint64_t)l->delta.n_head * l->delta.dim * l->delta.dim;
    return (l->n_conv - 1) * plan_conv_width(p, il) + matrices;
}

uint64_t plan_states_size(const struct plan *p) {
    uint64_t n = 0;
    for (uint32_t il = 0; il < p->n_layer; il++) n += plan_state_size(p, il);
    return n;
}

uint32_t plan_last_keeper(const struct plan *p) {
    uint32_t il = p->n_layer - 1;
    while (p->layers[il].kv_back > 0 || p->layers[il].attn.reads_encoder) il--;
    return il;
}

uint32_t plan_kept(const struct plan *p) {
    uint32_t last = plan_last_keeper(p);
    for (uint32_t il = last + 1; il < p->n_layer; il++) {
        uint32_t back = p->layers[il].kv_back;
        if (back > 0 && il - back != last) return il - back;
    }
    return p->n_layer;
}

uint32_t plan_max_rank(const struct plan *p) {
    const struct rwkv_plan *r = &p->rwkv;
    const uint32_t ranks[] = { RWKV_LERPS * r->n_lerp, r->n_decay, r->n_value, r->n_rate, r->n_gate, p->scan.n_rank };
    uint32_t max = 0;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) max = ranks[i] > max ? ranks[i] : max;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        if (p->layers[il].delta.n_rank > max) max = p->layers[il].delta.n_rank;
    }
    return max;
}

double plan_fade(const struct plan *p, uint32_t il, uint32_t head) {
    double slope = math_pow(2.0, -8.0 * (head + 1.0) / p->layers[il].attn.n_head);
    return math_exp(-slope * (1.0 - (double)il / (p->n_layer - 1.0) + 1e-5));
}

uint64_t plan_head_row(const struct plan *p) {
    uint64_t max = p->rwkv.n_lerp > 0 ? (uint64_t)p->rwkv.n_lerp + p->n_embd : 0;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct latent_plan *l = &p->layers[il].attn.latent;
        uint64_t n = l->n_kv > 0 ? (uint64_t)l->n_kv + (l->n_plain > l->v_dim ? l->n_plain : l->v_dim) : 0;
        if (n > max) max = n;
    }
    return max;
}

uint64_t plan_max_row(const struct plan *p) {
    uint64_t n = p->n_embd;
    at_least(&n, p->max_q);
    at_least(&n, p->max_ff);
    at_least(&n, p->max_latent);
    at_least(&n, p->max_scan);
    at_least(&n, plan_max_rank(p));
    at_least(&n, p->pooling.n_dense);
    at_least(&n, p->n_narrow);
    at_least(&n, p->adapters.n_rank);
    at_least(&n, p->n_stream);
    at_least(&n, (uint64_t)p->n_layer * p->n_per_layer);
    return n;
}

uint64_t plan_max_used_row(const struct plan *p) {
    uint64_t max = 0;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct ffn_plan *f = &p->layers[il].ffn;
        uint64_t width = plan_expert_row(p);
        at_least(&width, f->n_ff_expert);
        if (f->n_expert > 0 && f->n_used * width > max) max = f->n_used * width;
    }
    return max;
}

uint32_t plan_max_head(const struct plan *p) {
    const struct pooling_plan *pool = &p->pooling;
    uint32_t n = p->n_embd;
    if (pool->n_hidden > n) n = pool->n_hidden;
    if (pool->n_class > n) n = pool->n_class;
    return pool->n_dense > n ? pool->n_dense : n;
}
