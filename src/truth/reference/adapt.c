/* Adapters in the reference pass.
 * W x + scale alpha / rank B (A x)                Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"
 * x + scale direction, at the end of a layer      Zou et al. 2023, "Representation Engineering" */
#include "reference/steps.h"

#include <stdlib.h>

plumb_status reference_set_adapters(struct reference *r, const struct adapter_set *set) {
    const struct weight *output = r->right->output.w;
    struct weight a, b;
    float factor;
    uint64_t n_low = set ? (uint64_t)r->n_batch * set->max_rank : 0, n_logit = 0;
    for (size_t i = 0; set && output && i < set->n; i++) {
        if (adapter_find(set->uses[i].adapter, output, &a, &b, &factor)) n_logit = (uint64_t)r->n_batch * output->n_out;
    }
    double *low_rank = alloc_array(n_low, sizeof *low_rank);
    double *logits = n_logit > 0 ? alloc_array(n_logit, sizeof *logits) : NULL;
    if (!low_rank || (n_logit > 0 && !logits)) {
        free(low_rank);
        free(logits);
        return PLUMB_ERROR_MEMORY;
    }
    free(r->low_rank);
    free(r->logits);
    r->low_rank = low_rank;
    r->logits = logits;
    r->adapt_bytes = (n_low + n_logit) * sizeof *logits;
    r->adapters = set;
    return PLUMB_OK;
}

/* y (n, n_out) += low_rank B^T * factor */
static void add_products(const struct reference *r, const struct weight *b, uint32_t n, double factor, double *y) {
    const double *z = r->steps.input(r, b, r->low_rank, n);
    for (uint32_t o = 0; o < b->n_out; o++) {
        const float *row = reference_row(r, b, o);
        for (size_t t = 0; t < n; t++) y[t * b->n_out + o] += factor * reference_dot(row, z + t * b->n_in, b->n_in);
    }
}

void reference_adapt(const struct reference *r, const struct weight *w, const double *x, uint32_t n, double *y) {
    for (size_t i = 0; i < r->adapters->n; i++) {
        const struct adapter_use *use = &r->adapters->uses[i];
        struct weight a, b;
        float factor;
        if (!adapter_find(use->adapter, w, &a, &b, &factor)) continue;
        const double *in = r->steps.input(r, &a, x, n);
        for (uint32_t k = 0; k < a.n_out; k++) {
            const float *row = reference_row(r, &a, k);
            for (size_t t = 0; t < n; t++) r->low_rank[t * a.n_out + k] = reference_dot(row, in + t * a.n_in, a.n_in);
        }
        add_products(r, &b, n, (double)factor * (double)use->scale, y);
    }
}

void reference_adapt_embeddings(const struct reference *r, const int32_t *ids, uint32_t n, double *x) {
    for (size_t i = 0; i < r->adapters->n; i++) {
        const struct adapter_use *use = &r->adapters->uses[i];
        const struct adapter_pair *pair = adapter_embedding(use->adapter);
        if (!pair) continue;
        size_t rank = pair->a.n_in;
        for (size_t t = 0; t < n; t++) {
            const float *row = reference_row(r, &pair->a, (size_t)ids[t]);
            for (size_t k = 0; k < rank; k++) r->low_rank[t * rank + k] = (double)row[k];
        }
        add_products(r, &pair->b, n, (double)pair->factor * (double)use->scale, x);
    }
}

void reference_adapt_layer(const struct reference *r, uint32_t il, uint32_t n) {
    size_t n_embd = r->plan.n_embd, n_other = r->plan.n_stream > 0 ? r->plan.n_stream - 1 : 0;
    if (!r->adapters->directions) return;
    const float *direction = r->adapters->directions + il * n_embd;
    for (size_t i = 0; i < n * n_embd; i++) r->x[i] += (double)direction[i % n_embd];
    for (size_t i = 0; i < n * n_other * n_embd; i++) r->streams[STREAM_OTHERS][i] += (double)direction[i % n_embd];
}
