#include "check/describe.h"

#include "api/model.h"

#include <stdlib.h>

/* Text of a kind of layer, to which add appends. */
struct text {
    size_t n;
    char bytes[3000];
};

#define add(t, ...) report_append((t)->bytes, sizeof (t)->bytes, &(t)->n, __VA_ARGS__)

static void add_rope(struct text *t, const struct plan *p, const struct attn_plan *a) {
    if (a->rope == ROPE_NONE) {
        if (a->n_bucket > 0) add(t, ", a bias for each of %u buckets of distances", a->n_bucket);
        else add(t, ", %s", a->alibi != 0 ? "ALiBi" : "no RoPE");
        return;
    }
    const struct rope_plan *r = &p->ropes[a->rope];
    add(t, ", RoPE with base %.7g", (double)r->freq_base);
    if (r->n_rot < a->k_dim) add(t, " of %u elements", r->n_rot);
    if (r->freq_scale != 1) add(t, ", positions divided by %.4g", 1 / (double)r->freq_scale);
    if (r->is_yarn) add(t, " with YaRN");
}

static void add_attention(struct text *t, const struct plan *p, const struct attn_plan *a) {
    const struct latent_plan *l = &a->latent;
    if (l->n_kv > 0) {
        add(t, "latent attention of %u heads of %u and %u rotated, V of %u, from vectors of %u%s", a->n_head,
            l->n_plain, l->n_rotated, l->v_dim, l->n_kv, l->is_absorbed ? ", absorbed" : "");
    } else {
        add(t, "attention of %u heads of %u", a->n_head, a->k_dim);
    }
    bool is_plain = l->n_kv == 0;
    if (is_plain && a->n_head_kv != a->n_head) add(t, ", %u for K and V", a->n_head_kv);
    if (is_plain && a->v_dim != a->k_dim) add(t, ", V of %u", a->v_dim);
    if (a->window > 0) {
        add(t, ", %s of %u tokens", a->is_chunked ? "chunks" : a->is_symmetric ? "a window around it" : "a window",
            a->window);
    }
    if (a->reads_encoder) add(t, ", K and V of the encoder's output");
    else add_rope(t, p, a);
    if (a->softcap != 0) add(t, ", scores up to %.4g", (double)a->softcap);
    if (a->temperature_floor > 0) add(t, ", Q times a temperature");
    if (a->gate != ATTN_GATE_NONE) add(t, ", gated");
}

static void add_scan(struct text *t, const struct plan *p, const struct layer_plan *l) {
    const struct scan_plan *s = &p->scan;
    if (s->dim > 1) add(t, "scan of %u heads of %u", s->n_head, s->dim);
    else add(t, "scan of %u elements", s->n_head);
    add(t, " with states of %u", s->n_state);
    if (s->n_group > 1) add(t, ", %u groups", s->n_group);
    add(t, ", convolution over %u tokens", l->n_conv);
}

static void add_rwkv(struct text *t, const struct plan *p, const struct attn_plan *a) {
    static const char *const kinds[] = { [RWKV_6] = "RWKV 6", [RWKV_LINEAR] = "gated linear attention",
                                         [RWKV_7] = "RWKV 7", [RWKV_LIGHTNING] = "lightning attention" };
    add(t, "%s of %u heads of %u", kinds[p->rwkv.kind], a->n_head, a->k_dim);
    if (a->n_head_kv != a->n_head) add(t, ", %u for K and V", a->n_head_kv);
}

static void add_mixer(struct text *t, const struct plan *p, const struct layer_plan *l) {
    const struct delta_plan *d = &l->delta;
    switch (l->mixer) {
    case MIXER_ATTENTION:
        add_attention(t, p, &l->attn);
        if (l->kv_back > 0) add(t, ", the K and V of layer %u", (uint32_t)(l - p->layers) - l->kv_back);
        break;
    case MIXER_CONVOLUTION: add(t, "convolution over %u tokens", l->n_conv); break;
    case MIXER_DELTA_NET:
        add(t, "%s of %u heads of %u", d->is_diagonal ? "Kimi Delta Attention" : "gated delta net", d->n_head, d->dim);
        if (d->n_key_head != d->n_head) add(t, ", %u for Q and K", d->n_key_head);
        add(t, ", convolution over %u tokens", l->n_conv);
        break;
    case MIXER_RWKV: case MIXER_LIGHTNING: add_rwkv(t, p, &l->attn); break;
    case MIXER_BOTH: add_attention(t, p, &l->attn); add(t, "\n"); add_scan(t, p, l); break;
    case MIXER_SCAN: add_scan(t, p, l); break;
    case MIXER_NONE: break;
    }
}

static void add_feed_forward(struct text *t, const struct ffn_plan *f) {
    static const char *const gatings[] = { [GATING_SOFTMAX] = "softmax", [GATING_SIGMOID] = "sigmoid",
                                           [GATING_SOFTMAX_USED] = "softmax of those used" };
    if (f->n_expert == 0) {
        add(t, "feed-forward network of %u", f->n_ff);
        return;
    }
    const char *gating = (size_t)f->gating < sizeof gatings / sizeof *gatings ? gatings[f->gating] : NULL;
    add(t, "%u experts of %u, %u for each token", f->n_expert, f->n_ff_expert, f->n_used);
    if (gating) add(t, " (%s)", gating);
    if (f->n_group > 1) add(t, ", from %u of %u groups", f->n_group_used, f->n_group);
    if (f->n_ff_shared > 0) add(t, ", and one of %u for all tokens", f->n_ff_shared);
}

static const char *gate_of(enum attn_gate gate) {
    switch (gate) {
    case ATTN_GATE_SIGMOID: return "%o *= sigmoid(%i)";
    case ATTN_GATE_SOFTPLUS: return "%o *= softplus(%i)";
    case ATTN_GATE_SILU: return "%o *= silu(%i)";
    case ATTN_GATE_NONE: break;
    }
    return NULL;
}

/* The formula of a step.  %o: out, %i: in, %w: the name of the weight, %f: the factor, %a: an activation, %p and %t:
 * the elements of a part that are read and written; %r and %s: the rows of n elements that these are. */
static const char *formula_of(const struct step *s, const struct layer_plan *l) {
    bool in_place = s->in == s->out;
    switch (s->kind) {
    case STEP_NORM: return "%o = norm(%w, %i)";
    case STEP_PRODUCT: return "%o = %w %i";
    case STEP_COPY: return "%o = %i";
    case STEP_SCALE: return s->factor == 1 ? "%o = %i" : in_place ? "%o *= %f" : "%o = %i * %f";
    case STEP_MULTIPLY: return in_place ? "%o *= %w" : "%o = %i * %w";
    case STEP_TANH: return "%o = tanh(%i)";
    case STEP_PREDICT: return "%o = (x, others) + %i (x, others)";
    case STEP_CORRECT: return "%o += (x - %o[0]) * (1 + %i)";
    case STEP_FIRST: return "%o = %i[0]";
    case STEP_OTHERS: return "%o = %i[1...] + h";
    case STEP_SPARSE: return "%o = above_mean(%o)";
    case STEP_OWN: return "%o *= this layer's part of %i";
    case STEP_DIVIDE: return "%o = %i / %w";
    case STEP_ADD: return s->factor == 1 ? "%o += %i" : "%o += %i * %f";
    case STEP_ADD_SCALED: return "%o += %i * %w";
    case STEP_ADD_BIAS: return "%o = %i + %w";
    case STEP_ADD_STATES: return "%o = low + high";
    case STEP_ROPE: return "%o = rope(%i)";
    case STEP_TEMPERATURE: return "%o = temperature(%i)";
    case STEP_ATTENTION: return "%o = attention(q, k, v)";
    case STEP_PART:
        if (s->n_norm < s->n_to) return "%o[:, %t] = %i[:, %p]";
        return s->n_from < s->n_head * s->n ? "%o = %i[:, %p]" : "%o = %i[%p]";
    case STEP_HEAD_PRODUCTS: return "%o = %w %i, by heads";
    case STEP_CONVOLVE:
        return l->mixer == MIXER_CONVOLUTION ? "%o = convolution(b * x, %w)" : "%o = convolution(%i, %w)";
    case STEP_DECAY: return "%o = ssm_a * softplus(%o + %w)";
    case STEP_SOFTPLUS: return "%o = softplus(%i)";
    case STEP_SCAN: return "%o = scan(%i, b, c, dt, %w, ssm_d)";
    case STEP_DELTA: return "%o = delta_rule(%i, beta, decay)";
    case STEP_SHIFT: return "%o = before(%i) - %i";
    case STEP_LERP: return s->n_to > 0 ? "%o = %i + shift * (%w[%r] + lerps[%s])" : "%o = %i + shift * %w[%r]";
    case STEP_FADE: return "%o = fade(%o)";
    case STEP_MIX: return "%o += (%i - %o) * mix";
    case STEP_UNIT: return "%o = unit(%o)";
    case STEP_REPLACE: return "%o *= 1 + (%i - 1) * %w";
    case STEP_BONUS: return "%o = value * sum(%i * q * %w)";
    case STEP_WKV:
        return l->attn.gate == ATTN_GATE_NONE ? "%o = wkv(q, fade, %i, value, removal, rate)"
             : s->weight != W_COUNT ? "%o = wkv(q, fade, %i, value, %w)" : "%o = wkv(q, fade, %i, value)";
    case STEP_NORM_HEADS: return "%o = layer_norm(%w, %i), by heads";
    case STEP_TIMES: return "%o *= %i";
    case STEP_GATE_CONV: return "%o *= c";
    case STEP_GATE_HEADS: return gate_of(l->attn.gate);
    case STEP_ACTIVATE: return in_place ? "%o = %a(%i)" : "%o = %a(%o) * %i";
    case STEP_SOFTMAX: return "%o = softmax(%i)";
    case STEP_SIGMOID: return "%o = sigmoid(%i)";
    case STEP_BEST: return "%o = best(%i)";
    case STEP_TAKE: return "%o = %i[used]";
    case STEP_SUM_TO_1: return "%o = %i / sum(%i)";
    case STEP_EXPERTS: return "%o = experts(%i, used, weights)";
    case STEP_ADJUGATES: return "%o += adjugates(%i, used)";
    case STEP_GATE_SHARED: return "%o *= sigmoid(%w %i)";
    case STEP_SHOW: case STEP_KINDS: break;
    }
    return NULL;
}

/* Such as "h = norm(attn_norm, x); q = attn_q h; k = attn_k h", with a line for each part of a layer. */
static void add_program(struct text *t, const struct plan *p, uint32_t il, const struct layer *layer) {
    const struct layer_plan *l = &p->layers[il];
    const struct program *program = layer->program;
    bool v_is_k = layer->w[W_ATTN_V].w == layer->w[W_ATTN_K].w;
    static const char *const streams[STREAM_COUNT] = {
        [STREAM_X] = "x", [STREAM_H] = "h", [STREAM_INPUT] = "input", [STREAM_EMBD] = "embd", [STREAM_LOW] = "low",
        [STREAM_HIGH] = "high", [STREAM_SUM] = "sum", [STREAM_SHARED] = "shared", [STREAM_Q] = "q", [STREAM_K] = "k",
        [STREAM_V] = "v", [STREAM_ENCODED] = "encoded", [STREAM_LATENT_Q_A] = "q_a", [STREAM_LATENT_Q] = "q_heads",
        [STREAM_LATENT_KV] = "kv_a",
        [STREAM_LATENT] = "latent", [STREAM_LATENT_KV_B] = "kv", [STREAM_LATENT_HEADS] = "latent_heads",
        [STREAM_BETA_DECAY] = "beta_decay", [STREAM_HEADS] = "heads", [STREAM_CONV_IN] = "conv_in",
        [STREAM_BETA] = "beta",
        [STREAM_DECAY] = "decay", [STREAM_Q_GATE] = "q_gate", [STREAM_CONV] = "conv",
        [STREAM_SCAN_IN] = "scan_in", [STREAM_Z] = "z", [STREAM_BCDT] = "bcdt", [STREAM_RANK] = "rank",
        [STREAM_B] = "b", [STREAM_C] = "c", [STREAM_DT] = "dt", [STREAM_SCAN] = "scan",
        [STREAM_GATES] = "gates", [STREAM_QKV] = "qkv", [STREAM_FF_GATE] = "gate",
        [STREAM_FF_UP] = "up", [STREAM_SCORES] = "scores", [STREAM_CHOICE] = "choice", [STREAM_USED] = "used",
        [STREAM_WEIGHTS] = "weights", [STREAM_PER_LAYER] = "per_layer", [STREAM_OWN] = "own",
        [STREAM_OTHERS] = "others", [STREAM_PREDICTED] = "predicted", [STREAM_MODES] = "modes",
        [STREAM_SHIFT] = "shift", [STREAM_MIXED] = "mixed", [STREAM_LERPS] = "lerps", [STREAM_FADE] = "fade",
        [STREAM_MIX] = "mix", [STREAM_RATE] = "rate", [STREAM_KEY] = "key", [STREAM_VALUE] = "value",
        [STREAM_FIRST_VALUE] = "first_value", [STREAM_REMOVAL] = "removal", [STREAM_BONUS] = "bonus",
        [STREAM_COEFS] = "coefs", [STREAM_FACTORS] = "factors", [STREAM_NARROW] = "narrow",
        [STREAM_NARROW_SUM] = "narrow_sum",
    };
    static const char *const activations[] = {
        [ACT_SILU] = "silu", [ACT_GELU_TANH] = "gelu", [ACT_RELU] = "relu", [ACT_RELU_SQR] = "relu2",
        [ACT_SWIGLU_OAI] = "swiglu_oai", [ACT_XIELU] = "xielu",
    };
    const char *between = "\n";
    for (uint32_t i = 0; i < program->n; i++) {
        const struct step *s = &program->steps[i];
        const char *formula = formula_of(s, l);
        bool is_switched = s->kind == STEP_PRODUCT && s->weight < W_LAYER_COUNT && layer->w[s->weight].lora_a;
        if (is_switched) formula = "%o = (%w + adapter) %i";
        bool is_v = s->weight == W_ATTN_V;
        if (!formula) continue;
        add(t, "%s", between);
        for (const char *at = formula; *at; at++) {
            if (*at != '%') add(t, "%c", *at);
            else if (*++at == 'o') add(t, "%s", streams[s->out]);
            else if (*at == 'i') add(t, "%s", streams[s->in]);
            else if (*at == 'w') {
                enum weight_id id = is_v && v_is_k ? W_ATTN_K : s->weight;
                add(t, "%s%s", model_weight_prefix(p, il, id), model_weight_name(p, id));
            }
            else if (*at == 'r') add(t, "%u", s->first / s->n);
            else if (*at == 's') add(t, "%u", s->to / s->n);
            else if (*at == 't') add(t, "%u:%u", s->to, s->to + s->n_norm);
            else if (*at == 'f') add(t, "%.7g", (double)s->factor);
            else if (*at == 'p') add(t, "%u:%u", s->first, s->first + s->n_norm);
            else add(t, "%s", activations[s->activation]);
        }
        bool ends_line = s->out == STREAM_X || s->kind == STEP_EXPERTS;
        between = ends_line ? "\n" : "; ";
    }
}

/* Says what the model computes from a whole text, if it does so. */
static void write_pooling(struct report_writer *w, const struct plan *p) {
    static const char *const kinds[] = { [PLUMB_POOLING_NONE] = "one vector for each token: the file names no pooling",
                                         [PLUMB_POOLING_MEAN] = "a vector for each text, the mean over its tokens",
                                         [PLUMB_POOLING_CLS] = "a vector for each text, that of its first token",
                                         [PLUMB_POOLING_LAST] = "a vector for each text, that of its last token",
                                         [PLUMB_POOLING_RANK] = "a score for each text, from a classifier" };
    plumb_pooling kind = p->pooling.kind;
    if (p->has_logits && kind == PLUMB_POOLING_NONE) return;
    report_printf(w, "  embeddings: %s%s\n", kinds[kind], p->has_logits ? "" : "; no logits");
}

/* A file can give each of 65,536 layers another width.  Comparing each with all others would take minutes. */
enum { MAX_KINDS = 64 };

/* Finds the kind of each layer; MAX_KINDS is one too many.  texts: (MAX_KINDS).  Returns how many layers come before
 * the first one of such a kind. */
static uint32_t find_kinds(const struct plan *p, const struct layer *layers, struct text *texts, uint8_t *kinds) {
    uint32_t n_kind = 0, n_known = 0;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct text t = { 0 };
        uint32_t k = 0;
        add_mixer(&t, p, &p->layers[il]);
        bool has_network = p->layers[il].ffn.n_ff > 0 || p->layers[il].ffn.n_expert > 0;
        if (t.n > 0 && has_network) add(&t, "\n");
        if (has_network) add_feed_forward(&t, &p->layers[il].ffn);
        if (layers) add_program(&t, p, il, &layers[il]);
        while (k < n_kind && strcmp(texts[k].bytes, t.bytes) != 0) k++;
        if (k == n_kind && k < MAX_KINDS) texts[n_kind++] = t;
        kinds[il] = (uint8_t)k;
        if (k < MAX_KINDS && n_known == il) n_known = il + 1;
    }
    return n_known;
}

plumb_status describe_plan(const struct plan *p, const struct layer *layers, struct report_writer *w) {
    uint8_t *kinds = calloc(p->n_layer, 1);
    struct text *texts = calloc(MAX_KINDS, sizeof *texts);
    plumb_status status = kinds && texts ? PLUMB_OK : PLUMB_ERROR_MEMORY;
    if (status != PLUMB_OK) goto done;
    report_printf(w, "  %u layers of width %u, trained for %u tokens%s%s%s\n", p->n_layer, p->n_embd, p->n_ctx_train,
                  p->norm == NORM_LAYER ? ", layer norms" : ", RMS norms",
                  p->is_parallel ? ", attention and feed forward in parallel" : "",
                  plan_is_causal(p) ? "" : ", tokens see later ones");
    if (p->n_ignored_layer > 0) {
        report_printf(w, "  %u more behind them predict further tokens, and are not computed\n", p->n_ignored_layer);
    }
    if (p->n_encoder > 0) {
        report_printf(w, "  layers 0 to %u are the encoder, where tokens see later ones; each of the %u blocks of the "
                      "decoder is two layers\n", p->n_encoder - 1, (p->n_layer - p->n_encoder) / 2);
    }
    if (p->adapters.n > 0) {
        report_printf(w, "  %u adapters of rank %u, which tokens switch on\n", p->adapters.n, p->adapters.n_rank);
    }
    write_pooling(w, p);
    uint32_t n_known = find_kinds(p, layers, texts, kinds), n_written = 0;
    for (uint32_t il = 0; il < n_known; il++) {
        if (kinds[il] < n_written) continue;
        n_written++;
        report_printf(w, p->n_layer == 1 ? "  layer " : "  layers ");
        report_ranges(w, kinds, p->n_layer, kinds[il]);
        report_printf(w, "\n");
        for (const char *line = texts[kinds[il]].bytes; *line;) {
            size_t n = strcspn(line, "\n");
            report_printf(w, "    ");
            report_wrapped(w, line, n, 6);
            line += n + (line[n] == '\n');
        }
    }
    if (n_known < p->n_layer) report_printf(w, "  more kinds of layers, the first of them layer %u\n", n_known);
done:
    free(texts);
    free(kinds);
    return status;
}

plumb_status plumb_model_describe(plumb_model *m, plumb_write *write, void *user) {
    struct plan plan = { 0 };
    struct report_writer w;
    if (!plumb_model_has_header(m)) return error_set(&m->err, PLUMB_ERROR_STATE, "the header is not complete");
    report_begin(&w, write, user);
    const struct gguf_tensor *embd = gguf_find_in_parts(m->parts, m->n_part, "token_embd.weight");
    struct model *bound = NULL;
    struct error ignored = { PLUMB_OK, "" };   /* what is wrong with its tensors */
    if (embd) model_create(&bound, m->parts, m->n_part, (uint32_t)embd->shape[1], &ignored);
    plumb_status status = plan_create(&plan, m->parts, m->n_part, plumb_model_n_tensor(m), &m->err);
    if (status == PLUMB_OK) status = describe_plan(&plan, bound ? bound->layers : NULL, &w);
    if (status == PLUMB_ERROR_MEMORY) error_set(&m->err, status, "out of memory: the layers");
    plan_free(&plan);
    if (bound) model_free(bound);
    report_flush(&w);
    return status;
}
