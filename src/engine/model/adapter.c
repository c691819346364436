/* See adapter.h. */
#include "model/adapter.h"

#include "base/decimal.h"

#include <math.h>
#include <stdlib.h>

/* ---- LoRA -------------------------------------------------------------------------------------------------------- */

static void mark(bool *usable, const struct affine *of) {
    if (of->w) usable[of->w->tensor] = true;
}

/* Returns for each weight of the model whether it is a tensor that passes multiply by, or the embeddings.  NULL: out of
 * memory. */
static bool *find_usable(const struct model *m) {
    bool *usable = calloc(m->n_weight + 1, sizeof *usable);
    for (uint32_t il = 0; usable && il < m->plan.n_layer; il++) {
        const struct program *program = m->layers[il].program;
        const struct affine *w = m->layers[il].w;
        for (uint32_t i = 0; i < program->n; i++) {
            const struct step *s = &program->steps[i];
            bool is_product = s->kind == STEP_PRODUCT || s->kind == STEP_GATE_SHARED;
            if (is_product) mark(usable, model_affine(m, il, s->weight));
            for (int k = 0; k < 3 && s->kind == STEP_EXPERTS; k++) mark(usable, &w[W_FFN_GATE_EXPS + k]);
            for (int k = 0; k < 3 && s->kind == STEP_ADJUGATES; k++) mark(usable, &w[W_FFN_GATE_ADJUGATE + k]);
        }
    }
    if (usable) mark(usable, &m->token_embd);
    if (usable) mark(usable, &m->output);
    return usable;
}
_Static_assert(W_FFN_DOWN_EXPS == W_FFN_GATE_EXPS + 2 && W_FFN_UP_EXPS == W_FFN_GATE_EXPS + 1, "in this order");
_Static_assert(W_FFN_DOWN_ADJUGATE == W_FFN_GATE_ADJUGATE + 2, "in this order");

/* The index of the model's tensor with this name; n_weight: it has none. */
static size_t find_tensor(const struct model *m, const char *name, size_t n) {
    size_t i = 0;
    while (i < m->n_weight && (m->weights[i].tensor != i || strncmp(m->weights[i].name, name, n) != 0
                               || m->weights[i].name[n] != '\0')) i++;
    return i;
}

static bool is_embedding(const struct model *m, size_t i) { return i == m->token_embd.w->tensor; }

/* Puts lora_a or lora_b of a tensor into its pair.  Shapes are checked when both are there. */
static plumb_status bind(struct adapter *a, const bool *usable, const struct gguf_tensor *t, bool is_a,
                         struct error *err) {
    const struct model *m = a->model;
    size_t n = (size_t)t->name.n - strlen(".lora_a"), i = find_tensor(m, t->name.data, n);
    struct shown shown;
    show_bytes(&shown, t->name.data, n);
    if (i == m->n_weight) {
        return error_set(err, PLUMB_ERROR_TENSOR, "the adapter changes tensor \"%s\", which the model does not have: "
                         "it is for another model", shown.text);
    }
    if (!usable[i]) {
        return error_set(err, PLUMB_ERROR_UNSUPPORTED, "the adapter changes tensor \"%s\", which is no matrix that "
                         "adapters can change", shown.text);
    }
    if (t->shape[0] > UINT32_MAX || t->n_elements / t->shape[0] > UINT32_MAX || t->shape[3] != 1) {
        return error_set(err, PLUMB_ERROR_TENSOR, "tensor %s: its shape fits no matrix", t->name.data);
    }
    *(is_a ? &a->pairs[i].a : &a->pairs[i].b) = (struct weight) {
        .name = t->name.data, .traits = quant_traits(t->type), .type = t->type, .data = t->data,
        .n_in = (uint32_t)t->shape[0], .n_out = (uint32_t)(t->n_elements / t->shape[0]),
        .n_matrix = (uint32_t)t->shape[2], .n_apart = (uint32_t)t->shape[1], .row_bytes = gguf_row_bytes(t),
        .file = a->file, .offset = t->offset,
    };
    return PLUMB_OK;
}

/* Checks the pair of tensor i. */
static plumb_status check_pair(struct adapter *adapter, size_t i, float alpha, struct error *err) {
    const struct model *m = adapter->model;
    const struct weight *w = &m->weights[i];
    struct adapter_pair *pair = &adapter->pairs[i];
    const struct weight *a = &pair->a, *b = &pair->b;
    if (!a->data && !b->data) return PLUMB_OK;
    if (!a->data || !b->data) {
        return error_set(err, PLUMB_ERROR_TENSOR, "the adapter has only lora_%c of tensor %s", a->data ? 'a' : 'b',
                         w->name);
    }
    uint32_t n_out = w->n_out / w->n_matrix, rank = b->n_in, n_matrix = w->n_matrix;
    bool fits = is_embedding(m, i) ? a->n_in == rank && a->n_apart == n_out && b->n_apart == w->n_in
                                   : a->n_in == w->n_in && a->n_apart == rank && b->n_apart == n_out;
    if (!fits || a->n_matrix != n_matrix || b->n_matrix != n_matrix) {
        return error_set(err, PLUMB_ERROR_TENSOR, "tensor %s: lora_a [%u, %u, %u] and lora_b [%u, %u, %u] do not fit "
                         "the model's [%u, %u, %u]", w->name, a->n_in, a->n_apart, a->n_matrix, b->n_in, b->n_apart,
                         b->n_matrix, w->n_in, n_out, n_matrix);
    }
    if (rank > plan_max_row(&m->plan)) {
        return error_set(err, PLUMB_ERROR_UNSUPPORTED, "tensor %s: the rank of the adapter is %u, expected at most "
                         "%llu", w->name, rank, (unsigned long long)plan_max_row(&m->plan));
    }
    pair->factor = alpha != 0.0f ? alpha / (float)rank : 1.0f;
    if (rank > adapter->max_rank) adapter->max_rank = rank;
    if (b->n_apart > adapter->max_out) adapter->max_out = b->n_apart;
    return PLUMB_OK;
}

static plumb_status read_lora(struct adapter *a, const bool *usable, struct error *err) {
    float alpha = 0.0f;
    PLUMB_TRY(gguf_get_f32(a->file, "adapter.lora.alpha", &alpha, err));
    if (!isfinite(alpha)) {
        return error_set(err, PLUMB_ERROR_METADATA, "key adapter.lora.alpha: expected a finite number");
    }
    if (gguf_find_key(a->file, "adapter.alora.invocation_tokens")) {
        return error_set(err, PLUMB_ERROR_UNSUPPORTED, "an activated LoRA, which changes only the tokens after some "
                         "text, is not supported");
    }
    for (uint64_t i = 0; i < gguf_n_tensor(a->file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(a->file, i);
        bool is_a = gguf_name_ends(t, ".lora_a");
        if (is_a || gguf_name_ends(t, ".lora_b")) {
            PLUMB_TRY(bind(a, usable, t, is_a, err));
        } else if (!gguf_name_ends(t, "_norm.weight")) {
            struct shown shown;
            return error_set(err, PLUMB_ERROR_TENSOR, "tensor \"%s\" of the adapter ends neither in .lora_a nor in "
                             ".lora_b", show_bytes(&shown, t->name.data, (size_t)t->name.n));
        }
    }
    for (size_t i = 0; i < a->model->n_weight; i++) PLUMB_TRY(check_pair(a, i, alpha, err));
    return PLUMB_OK;
}

/* ---- control vectors --------------------------------------------------------------------------------------------- */

static plumb_status read_directions(struct adapter *a, struct error *err) {
    const struct plan *p = &a->model->plan;
    for (uint64_t i = 0; i < gguf_n_tensor(a->file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(a->file, i);
        const char *name = t->name.data, *digits = name + strlen("direction.");
        uint32_t il = 0;
        if (strncmp(name, "direction.", strlen("direction.")) == 0 && *digits >= '1' && *digits <= '9') {
            il = decimal_read_u32(&digits);
        }
        struct shown shown;
        show_bytes(&shown, name, (size_t)t->name.n);
        if (il == 0 || *digits != '\0') {
            return error_set(err, PLUMB_ERROR_TENSOR, "tensor \"%s\" of the control vector: expected direction.1, "
                             "direction.2...", shown.text);
        }
        if (il >= p->n_layer) {
            return error_set(err, PLUMB_ERROR_TENSOR, "tensor %s of the control vector: the model has %u layers: it is "
                             "for another model", shown.text, p->n_layer);
        }
        if (t->type != QUANT_F32 || t->n_dims != 1 || t->shape[0] != p->n_embd) {
            return error_set(err, PLUMB_ERROR_TENSOR, "tensor %s of the control vector: expected F32 [%u], file has %s "
                             "of %llu elements", shown.text, p->n_embd, quant_traits(t->type)->name,
                             (unsigned long long)t->n_elements);
        }
        memcpy(a->directions + (size_t)il * p->n_embd, t->data, p->n_embd * sizeof *a->directions);
    }
    return PLUMB_OK;
}

/* ---- an adapter -------------------------------------------------------------------------------------------------- */

static plumb_status read_file(struct adapter *a, struct error *err) {
    const struct plan *p = &a->model->plan;
    struct gguf_string type = { "", 0 }, architecture = { "", 0 }, kind = { "", 0 };
    PLUMB_TRY(gguf_get_string(a->file, "general.type", &type, err));
    PLUMB_TRY(gguf_get_string(a->file, "general.architecture", &architecture, err));
    PLUMB_TRY(gguf_get_string(a->file, "adapter.type", &kind, err));
    if (gguf_n_tensor(a->file) == 0) return error_set(err, PLUMB_ERROR_TENSOR, "the adapter has no tensors");
    if (strcmp(architecture.data, "controlvector") == 0) {
        a->directions = calloc((size_t)p->n_layer, p->n_embd * sizeof *a->directions);
        if (a->directions) return read_directions(a, err);
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a control vector of %u layers", p->n_layer);
    }
    struct shown shown;
    if (strcmp(type.data, "adapter") != 0 || strcmp(kind.data, "lora") != 0) {
        return error_set(err, PLUMB_ERROR_METADATA, "expected general.type adapter and adapter.type lora, or "
                         "general.architecture controlvector; the file's general.type is \"%s\"",
                         show_bytes(&shown, type.data, (size_t)type.n));
    }
    if (strcmp(architecture.data, p->architecture) != 0) {
        return error_set(err, PLUMB_ERROR_METADATA, "the adapter is for a model of the architecture \"%s\", and this "
                         "one is %s", show_bytes(&shown, architecture.data, (size_t)architecture.n), p->architecture);
    }
    a->pairs = calloc(a->model->n_weight, sizeof *a->pairs);
    bool *usable = find_usable(a->model);
    plumb_status status = a->pairs && usable
        ? read_lora(a, usable, err) : error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the tables of an adapter");
    free(usable);
    return status;
}

plumb_status adapter_create(struct adapter **out, const struct model *m, struct gguf *file, struct error *err) {
    struct adapter *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a) {
        gguf_free(file);
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: an adapter");
    }
    a->model = m;
    a->file = file;
    plumb_status status = read_file(a, err);
    if (status == PLUMB_OK) *out = a;
    else adapter_free(a);
    return status;
}

void adapter_free(struct adapter *a) {
    if (!a) return;
    gguf_free(a->file);
    free(a->pairs);
    free(a->directions);
    free(a);
}

bool adapter_find(const struct adapter *adapter, const struct weight *w, struct weight *a, struct weight *b,
                  float *factor) {
    const struct adapter_pair *pair = adapter->pairs ? &adapter->pairs[w->tensor] : NULL;
    if (!pair || !pair->a.data || is_embedding(adapter->model, w->tensor)) return false;
    uint32_t n_row = pair->b.n_apart;   /* of each matrix */
    const struct weight rows = weight_expert(&pair->b, w->first / n_row);
    *a = weight_expert(&pair->a, w->first / n_row);
    *b = weight_rows(&rows, w->first % n_row, w->n_out);
    *factor = pair->factor;
    return true;
}

const struct adapter_pair *adapter_embedding(const struct adapter *adapter) {
    const struct adapter_pair *pair = adapter->pairs ? &adapter->pairs[adapter->model->token_embd.w->tensor] : NULL;
    return pair && pair->a.data ? pair : NULL;
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

plumb_status adapter_set_create(struct adapter_set *set, const struct model *m, const struct adapter_use *uses,
                                size_t n) {
    size_t n_embd = m->plan.n_embd;
    *set = (struct adapter_set) { .uses = alloc_array(n, sizeof *uses), .n = n };
    if (!set->uses) return PLUMB_ERROR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const struct adapter *a = uses[i].adapter;
        set->uses[i] = uses[i];
        if (a->max_rank > set->max_rank) set->max_rank = a->max_rank;
        if (a->max_out > set->max_out) set->max_out = a->max_out;
        if (!a->directions) continue;
        if (!set->directions) set->directions = calloc(m->plan.n_layer, n_embd * sizeof *set->directions);
        if (!set->directions) return PLUMB_ERROR_MEMORY;
        for (size_t k = 0; k < m->plan.n_layer * n_embd; k++) {
            bool is_used = k / n_embd >= uses[i].first_layer && k / n_embd <= uses[i].last_layer;
            if (is_used) set->directions[k] += a->directions[k] * uses[i].scale;
        }
    }
    return PLUMB_OK;
}

void adapter_set_free(struct adapter_set *set) {
    free(set->uses);
    free(set->directions);
    *set = (struct adapter_set) { 0 };
}
