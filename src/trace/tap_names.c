#include "trace/tap_names.h"

#include <stdio.h>

/* ---- names ------------------------------------------------------------------------------------------------------ */

struct alias {
    const char *name;
    enum tap_id id;
};

/* Other programs' names, except those of transformers' modules in layers. */
static const struct alias other_names[] = {
    /* older versions of llama.cpp; ffn_gate_par is from before one operation computed activation and product */
    { "inp_embd", TAP_EMBD },
    { "ffn_gate_par", TAP_FFN_SWIGLU },
    /* llama.cpp, some architectures.  _b and _biased are sums with a bias, _s and _scaled products with a factor. */
    { "inp_scaled", TAP_EMBD }, { "inp_embd_scaled", TAP_EMBD }, { "embd_norm", TAP_EMBD }, { "inp_norm", TAP_EMBD },
    { "Qcur_norm", TAP_QCUR_NORMED }, { "Kcur_norm", TAP_KCUR_NORMED },
    { "attn_o_proj", TAP_ATTN_OUT }, { "attn_out_proj", TAP_ATTN_OUT },
    { "sa_out", TAP_FFN_INP },
    { "ffn_gate_b", TAP_FFN_GATE }, { "ffn_gate_s", TAP_FFN_GATE },
    { "ffn_up_b", TAP_FFN_UP }, { "ffn_up_s", TAP_FFN_UP }, { "ffn_down_s", TAP_FFN_OUT },
    { "ffn_geglu", TAP_FFN_SWIGLU }, { "ffn_gelu", TAP_FFN_SWIGLU }, { "ffn_silu", TAP_FFN_SWIGLU },
    { "ffn_relu", TAP_FFN_SWIGLU }, { "ffn_sqr(relu)", TAP_FFN_SWIGLU }, { "ffn_act", TAP_FFN_SWIGLU },
    { "ffn_swiglu_oai", TAP_FFN_SWIGLU },
    { "ffn_moe_logits_biased", TAP_FFN_ROUTER },
    { "ffn_moe_gate_biased", TAP_EXPERT_GATE }, { "ffn_moe_gate_scaled", TAP_EXPERT_GATE },
    { "ffn_moe_up_biased", TAP_EXPERT_UP }, { "ffn_moe_up_scaled", TAP_EXPERT_UP },
    { "ffn_moe_down_biased", TAP_EXPERT_DOWN }, { "ffn_moe_down_scaled", TAP_EXPERT_DOWN },
    { "ffn_moe_geglu", TAP_EXPERT_SWIGLU }, { "ffn_moe_gelu", TAP_EXPERT_SWIGLU },
    { "ffn_moe_silu", TAP_EXPERT_SWIGLU }, { "ffn_moe_reglu", TAP_EXPERT_SWIGLU },
    { "ffn_moe_relu", TAP_EXPERT_SWIGLU }, { "ffn_moe_relu_sqr", TAP_EXPERT_SWIGLU },
    { "ffn_moe_swiglu_oai", TAP_EXPERT_SWIGLU }, { "ffn_moe_swiglu_limited", TAP_EXPERT_SWIGLU },
    { "ffn_shexp_out", TAP_FFN_SHARED },
    { "result_embd", TAP_RESULT_NORM }, { "final_norm_out", TAP_RESULT_NORM },
    /* what many engines call them */
    { "logits", TAP_RESULT_OUTPUT },
    /* transformers' modules outside the layers */
    { "embed_tokens", TAP_EMBD },
    { "norm", TAP_RESULT_NORM },
    { "lm_head", TAP_RESULT_OUTPUT },
};

/* What follows "layers.N" in the module paths of transformers.  A tap may have several names.  In some models
 * post_attention_layernorm is another tap: see tap_is_post_attention. */
#define POST_ATTENTION ".post_attention_layernorm"
static const struct alias modules[] = {
    { "", TAP_L_OUT },
    { ".input_layernorm", TAP_ATTN_NORM },
    { ".self_attn.q_proj", TAP_QCUR },
    { ".self_attn.k_proj", TAP_KCUR },
    { ".self_attn.v_proj", TAP_VCUR },
    { ".self_attn.q_norm", TAP_QCUR_NORMED },
    { ".self_attn.k_norm", TAP_KCUR_NORMED },
    { ".self_attn.o_proj", TAP_ATTN_OUT },
    { ".post_self_attn_layernorm", TAP_ATTN_POST_NORM },
    { ".pre_feedforward_layernorm", TAP_FFN_NORM },
    { ".pre_mlp_layernorm", TAP_FFN_NORM },
    { ".post_feedforward_layernorm", TAP_FFN_POST_NORM },
    { ".post_mlp_layernorm", TAP_FFN_POST_NORM },
    { POST_ATTENTION, TAP_FFN_NORM },
    { ".mlp.gate_proj", TAP_FFN_GATE },
    { ".mlp.up_proj", TAP_FFN_UP },
    { ".mlp.down_proj", TAP_FFN_OUT },
    { ".mlp", TAP_FFN_OUT },
    { ".mlp.gate", TAP_FFN_ROUTER },
    { ".mlp.shared_experts", TAP_FFN_SHARED },
    { ".block_sparse_moe.gate", TAP_FFN_ROUTER },
    { ".block_sparse_moe", TAP_FFN_OUT },
};

static bool is_name(const char *name, const char *bytes, size_t n) {
    return strlen(name) == n && memcmp(name, bytes, n) == 0;
}

static bool starts_with(const char *bytes, size_t n, const char *start) {
    return strlen(start) <= n && memcmp(bytes, start, strlen(start)) == 0;
}

/* What tap_parse returns: 1 for plumb's own names, then a number for each of other_names, then for each of modules. */
enum { OWN_NAME = 1, N_OTHER = sizeof other_names / sizeof *other_names, FIRST_MODULE = OWN_NAME + 1 + N_OTHER };

bool tap_is_module(uint32_t number) { return number >= FIRST_MODULE; }
bool tap_is_post_attention(uint32_t number) {
    return tap_is_module(number) && strcmp(modules[number - FIRST_MODULE].name, POST_ATTENTION) == 0;
}

bool tap_find(const char *name, size_t n, enum tap_id *id) {
    for (uint32_t i = 0; i < TAP_COUNT; i++) {
        if (is_name(tap_spec((enum tap_id)i)->name, name, n)) return *id = (enum tap_id)i, true;
    }
    return false;
}

/* Finds a name, without a layer, among plumb's own names and other_names.  Returns what tap_parse returns. */
static uint32_t find_name(const char *name, size_t n, enum tap_id *id) {
    if (tap_find(name, n, id)) return OWN_NAME;
    for (uint32_t i = 0; i < N_OTHER; i++) {
        if (is_name(other_names[i].name, name, n)) return *id = other_names[i].id, OWN_NAME + 1 + i;
    }
    return 0;
}

/* Reads the digits of a layer at name + *at and advances *at past them.  Returns false if there are none, or if the
 * layer is not below TAP_MAX_LAYER. */
static bool read_layer(const char *name, size_t n, size_t *at, int32_t *layer) {
    size_t first = *at;
    for (*layer = 0; *at < n && name[*at] >= '0' && name[*at] <= '9' && *layer < TAP_MAX_LAYER; ++*at) {
        *layer = *layer * 10 + (name[*at] - '0');
    }
    return *at > first && *layer < TAP_MAX_LAYER;
}

uint32_t tap_parse(const char *name, size_t n, enum tap_id *id, int32_t *layer) {
    static const char *const prefixes[] = { "base_model.", "model.", "language_model.", "module." };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes;) {   /* "base_model.model.model." has three prefixes */
        if (starts_with(name, n, prefixes[i])) {
            name += strlen(prefixes[i]);
            n -= strlen(prefixes[i]);
            i = 0;
        } else {
            i++;
        }
    }
    if (starts_with(name, n, "layers.")) {
        size_t at = strlen("layers.");
        if (!read_layer(name, n, &at, layer)) return 0;
        for (uint32_t i = 0; i < sizeof modules / sizeof *modules; i++) {
            if (is_name(modules[i].name, name + at, n - at)) return *id = modules[i].id, FIRST_MODULE + i;
        }
        return 0;
    }
    *layer = -1;
    uint32_t number = find_name(name, n, id);
    if (number > 0) return tap_spec(*id)->in_layer ? 0 : number;
    /* The layer follows a "-".  Where names cannot contain one, as with the keywords of numpy.savez, it follows a "_"
     * or a ".". */
    size_t digits = n;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') digits--;
    if (digits < 2 || !strchr("-_.", name[digits - 1]) || name[digits - 1] == 0) return 0;
    size_t at = digits;
    number = find_name(name, digits - 1, id);
    return number > 0 && tap_spec(*id)->in_layer && read_layer(name, n, &at, layer) && at == n ? number : 0;
}

const char *tap_show(struct tap_text *buf, enum tap_id id, int32_t layer) {
    if (layer < 0) snprintf(buf->text, sizeof buf->text, "%s", tap_spec(id)->name);
    else snprintf(buf->text, sizeof buf->text, "%s-%d", tap_spec(id)->name, (int)layer);
    return buf->text;
}

const char *tap_show_inputs(struct tap_inputs_text *buf, uint32_t order, enum tap_id id, uint64_t absent) {
    uint64_t set = tap_inputs_without(order, id, absent);
    snprintf(buf->text, sizeof buf->text, "%s", "the token ids");
    for (uint32_t i = 0, n = 0; i < TAP_COUNT; i++) {
        const char *of = i != TAP_L_OUT ? "" : tap_spec(id)->in_layer
                       ? " of the layer before (embd in layer 0)" : " of the last layer";
        if (!(set >> i & 1)) continue;
        n += (uint32_t)snprintf(buf->text + n, sizeof buf->text - n, "%s%s%s", n > 0 ? ", " : "",
                                tap_spec((enum tap_id)i)->name, of);
    }
    return buf->text;
}

/* ---- patterns --------------------------------------------------------------------------------------------------- */

/* Returns true if text matches the n bytes of a pattern.  A star first matches as little as possible, then one more
 * byte each time that the rest does not match.  Only the last star has to be tried again, so the time is at most the
 * product of the lengths. */
static bool matches(const char *pattern, size_t n, const char *text) {
    size_t p = 0, star = SIZE_MAX;
    const char *after_star = NULL;
    while (*text) {
        if (p < n && pattern[p] == '*') {
            star = p++;
            after_star = text;
        } else if (p < n && (pattern[p] == '?' || pattern[p] == *text)) {
            p++;
            text++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            text = ++after_star;
        } else {
            return false;
        }
    }
    while (p < n && pattern[p] == '*') p++;
    return p == n;
}

/* Returns true if the pattern is another program's name of the tap.  A name without a layer stands for every layer. */
static bool is_alias(const char *pattern, size_t n, bool has_output_norms, enum tap_id id, int32_t layer) {
    enum tap_id named = TAP_COUNT;
    int32_t at = layer;
    uint32_t number = tap_parse(pattern, n, &named, &at);
    if (number == 0) at = layer;
    if (number == 0) number = find_name(pattern, n, &named);
    for (uint32_t i = 0; number == 0 && i < sizeof modules / sizeof *modules; i++) {
        const char *last = strrchr(modules[i].name, '.');
        if (!last || !is_name(last + 1, pattern, n)) continue;
        named = modules[i].id;
        number = FIRST_MODULE + i;
    }
    if (has_output_norms && tap_is_post_attention(number)) named = TAP_ATTN_POST_NORM;
    return number > 0 && named == id && at == layer;
}

/* Matches one pattern.  n: its bytes. */
static bool matches_one(const char *pattern, size_t n, bool has_output_norms, enum tap_id id, int32_t layer) {
    struct tap_text full;
    const char *name = memchr(pattern, '-', n) ? tap_show(&full, id, layer) : tap_spec(id)->name;
    return matches(pattern, n, name) || is_alias(pattern, n, has_output_norms, id, layer);
}

/* Returns the pattern at *at without the spaces around it, and sets *n to its length.  Moves *at to the next pattern,
 * or sets it to NULL if this was the last. */
static const char *next_pattern(const char **at, size_t *n) {
    const char *pattern = *at + strspn(*at, " ");
    *n = strcspn(pattern, ",");
    *at = pattern[*n] ? pattern + *n + 1 : NULL;
    while (*n > 0 && pattern[*n - 1] == ' ') --*n;
    return pattern;
}

bool tap_matches(const char *patterns, bool has_output_norms, enum tap_id id, int32_t layer) {
    if (!patterns) return true;
    for (size_t n; patterns;) {
        const char *pattern = next_pattern(&patterns, &n);
        if (matches_one(pattern, n, has_output_norms, id, layer)) return true;
    }
    return false;
}

/* Returns true if the pattern matches a tap outside the layers, or one in the layers first to last. */
static bool matches_any(const char *pattern, size_t n, bool has_output_norms, uint32_t first, uint32_t last) {
    for (uint32_t i = 0; i < TAP_COUNT; i++) {
        enum tap_id id = (enum tap_id)i;
        bool in_layer = tap_spec(id)->in_layer;
        if (!in_layer && matches_one(pattern, n, has_output_norms, id, -1)) return true;
        for (uint32_t il = first; in_layer && il <= last; il++) {
            if (matches_one(pattern, n, has_output_norms, id, (int32_t)il)) return true;
        }
    }
    return false;
}

plumb_status tap_check_patterns(const char *patterns, bool has_output_norms, uint32_t n_layer, uint32_t first,
                                uint32_t last, struct error *err) {
    if (last == UINT32_MAX) last = first < n_layer ? n_layer - 1 : first;
    if (last >= n_layer || first > last) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "layers %u-%u: the model has %u layers, numbered from 0", first,
                         last, n_layer);
    }
    for (size_t n; patterns;) {
        const char *pattern = next_pattern(&patterns, &n);
        if (matches_any(pattern, n, has_output_norms, first, last)) continue;
        struct shown shown;
        show_bytes(&shown, pattern, n);
        if (matches_any(pattern, n, has_output_norms, 0, n_layer - 1)) {
            return error_set(err, PLUMB_ERROR_ARGUMENT, "taps: \"%s\" is not in layers %u-%u", shown.text, first, last);
        }
        char known[800];
        for (size_t i = 0, at = 0; i < TAP_COUNT && at < sizeof known; i++) {
            int more = snprintf(known + at, sizeof known - at, i > 0 ? ", %s" : "%s", tap_spec((enum tap_id)i)->name);
            at += (size_t)more;
        }
        return error_set(err, PLUMB_ERROR_ARGUMENT, "taps: unknown tap \"%s\"; known taps are %s", shown.text, known);
    }
    return PLUMB_OK;
}
