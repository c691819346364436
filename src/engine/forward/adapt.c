/* Adapters in the fast pass: model/adapter.h says what they compute. */
#include "forward/steps.h"

#include <stdlib.h>

/* Products with B are added for so many tokens at once, as those with the output matrix are long. */
enum { ADAPT_TOKENS = 8 };

/* Makes *x one of at least n elements, of which *n_before are there. */
static bool grow(float **x, uint64_t *n_before, uint64_t n) {
    if (n <= *n_before) return true;   /* control vectors have no products */
    if (!ARRAY_RESIZE(*x, n)) return false;
    *n_before = n;
    return true;
}

plumb_status forward_prepare_adapters(struct forward *f, const struct adapter_set *set) {
    uint64_t max_rank = set ? set->max_rank : f->model->plan.adapters.n_rank;
    uint64_t max_out = set ? set->max_out : plan_max_row(&f->model->plan);
    bool ok = grow(&f->low_rank, &f->n_low_rank, f->n_batch * max_rank)
           && grow(&f->delta, &f->n_delta, ADAPT_TOKENS * max_out);
    return ok ? PLUMB_OK : PLUMB_ERROR_MEMORY;
}

/* y (n_token, n_out) = x W^T */
static void product(struct forward *f, const struct weight *w, const float *x, uint32_t n_token, float *y) {
    const struct matrix matrix = matrix_of(w);
    f->acts.x = x;
    f->acts.n = w->n_in;
    f->acts.n_token = n_token;
    f->acts.max_code = kernels_max_code(f->kernels.precision, w->type);
    f->acts.quantized = false;
    matmul(&f->kernels, f->pool, &matrix, &y, 1, &f->acts, f->panels);
}

/* y (n_token, n_out) += low_rank B^T * factor */
static void add_products(struct forward *f, const struct weight *b, uint32_t n_token, float factor, float *y) {
    for (uint32_t t = 0, n; t < n_token; t += n) {
        n = n_token - t < ADAPT_TOKENS ? n_token - t : ADAPT_TOKENS;
        product(f, b, f->low_rank + (size_t)t * b->n_in, n, f->delta);
        f->kernels.add_scaled(y + (size_t)t * b->n_out, f->delta, factor, (size_t)n * b->n_out);
    }
}

/* Other products may share the codes of x, so what they have set stays set. */
void forward_adapt(struct forward *f, const struct weight *w, const float *x, uint32_t n_token, float *y) {
    const struct activations before = f->acts;
    for (size_t i = 0; i < f->adapters->n; i++) {
        const struct adapter_use *use = &f->adapters->uses[i];
        struct weight a, b;
        float factor;
        if (!adapter_find(use->adapter, w, &a, &b, &factor)) continue;
        product(f, &a, x, n_token, f->low_rank);
        add_products(f, &b, n_token, factor * use->scale, y);
        f->acts = before;
        f->acts.quantized = false;
    }
}

/* Those of a piece. */
static void choose(struct forward *f, const struct piece *piece) {
    const struct plan *p = &f->model->plan;
    uint16_t *switches = piece->sequence->switches;
    int32_t *ids = f->ids + piece->first;
    uint32_t n_switch = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < piece->pos; i++) {
        n_switch += switches[i] > 0;
        sum += switches[i];
    }
    for (uint32_t i = 0; i < piece->n; i++) {
        uint32_t own = plan_adapter_of(p, ids[i]);
        switches[piece->pos + i] = (uint16_t)own;
        n_switch += own > 0;
        sum += own;
        f->adapter_of[piece->first + i] = plan_adapter_at(p, piece->pos + i + 1, n_switch, sum);
        ids[i] = plan_embedded_as(p, ids[i]);
    }
}

void forward_choose_adapters(struct forward *f, struct batch b) {
    for (uint32_t i = 0; f->adapter_of && i < b.n_piece; i++) choose(f, &b.pieces[i]);
}

bool forward_lacks_base(const struct model *m) {
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        for (uint32_t id = 0; id < W_LAYER_COUNT; id++) {
            const struct weight *all = m->layers[il].w[id].lora_b;
            if (!all || !all->data) continue;   /* only the header was read */
            const struct weight b = weight_expert(all, 0);
            for (size_t i = 0; i < b.n_out * b.row_bytes; i++) {
                if (b.data[i] != 0) return false;
            }
        }
    }
    return true;
}

/* Adapters change rarely, so tokens with the same one follow each other. */
void forward_adapt_switched(struct forward *f, const struct affine *of, const float *x, uint32_t n_token, float *y) {
    const struct activations before = f->acts;
    for (uint32_t t = 0, n; t < n_token; t += n) {
        const struct weight a = weight_expert(of->lora_a, f->adapter_of[t]);
        const struct weight b = weight_expert(of->lora_b, f->adapter_of[t]);
        for (n = 1; t + n < n_token && f->adapter_of[t + n] == f->adapter_of[t];) n++;
        if (f->adapter_of[t] == 0 && f->lacks_base) continue;
        product(f, &a, x + (size_t)t * a.n_in, n, f->low_rank);
        add_products(f, &b, n, 1.0f, y + (size_t)t * b.n_out);
    }
    f->acts = before;
    f->acts.quantized = false;
}

void forward_adapt_embeddings(struct forward *f, const int32_t *ids, uint32_t n_token, float *x) {
    for (size_t i = 0; i < f->adapters->n; i++) {
        const struct adapter_use *use = &f->adapters->uses[i];
        const struct adapter_pair *pair = adapter_embedding(use->adapter);
        if (!pair) continue;
        const struct weight *a = &pair->a;
        for (uint32_t t = 0; t < n_token; t++) {
            const uint8_t *row = weight_row(a, (size_t)ids[t], f->panels->bytes);
            quant_dequantize(a->traits, row, f->low_rank + (size_t)t * a->n_in, a->n_in);
        }
        add_products(f, &pair->b, n_token, pair->factor * use->scale, x);
    }
}

void forward_adapt_layer(struct forward *f, uint32_t il, uint32_t n_token) {
    const struct plan *p = &f->model->plan;
    if (!f->adapters->directions) return;
    const float *direction = f->adapters->directions + (size_t)il * p->n_embd;
    uint32_t n_other = p->n_stream > 0 ? p->n_stream - 1 : 0;
    for (size_t t = 0; t < n_token; t++) {
        f->kernels.add_scaled(f->x + t * p->n_embd, direction, 1.0f, p->n_embd);
        for (uint32_t k = 0; k < n_other; k++) {
            float *x = f->streams[STREAM_OTHERS] + (t * n_other + k) * p->n_embd;
            f->kernels.add_scaled(x, direction, 1.0f, p->n_embd);
        }
    }
}
