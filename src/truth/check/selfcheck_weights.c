/* Checks of tensors by their values alone.  The bounds were tried on two models, SmolLM2 135M (Q4_1) and Gemma 3 270M
 * (Q4_K_M).  The comment on each bound gives the values that these two have. */
#include "check/selfcheck.h"

#include "base/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- one pass over a tensor, row by row -------------------------------------------------------------------------- */

/* Adds a row of n values to *s and to the sums.  place: index of row[0] in the flattened tensor.  *sum_log and *n_log
 * are the sum and the number of the logarithms from which tensor_stats.usual is computed. */
static void count_row(struct tensor_stats *s, const float *row, uint64_t n, uint64_t place, double *sum, double *sum2,
                    double *sum_log, uint64_t *n_log) {
    float min = row[0], max = row[0];
    for (uint64_t from = 0; from < n; from += 32) {
        uint64_t end = n - from < 32 ? n : from + 32;
        double block2 = 0;
        for (uint64_t i = from; i < end; i++) {
            double x = (double)row[i];
            if (!isfinite(x)) {
                if (s->n_nan + s->n_inf == 0) s->first_bad = place + i;
                if (isnan(x)) s->n_nan++;
                else s->n_inf++;
                continue;
            }
            if (fabs(x) > s->max_abs) {
                s->max_abs = fabs(x);
                s->max_place = place + i;
            }
            s->n_negative += x < 0;
            s->n_one += row[i] == 1.0f;
            *sum += x;
            block2 += x * x;
            if (row[i] < min) min = row[i];
            if (row[i] > max) max = row[i];
        }
        *sum2 += block2;
        if (block2 > 0) {
            *sum_log += 0.5 * log(block2 / (double)(end - from));
            ++*n_log;
        }
    }
    if (n > 1 && min == max && s->n_constant++ == 0) s->first_constant = place / n;
}

plumb_status tensor_stats_of(struct tensor_stats *s, const struct gguf_tensor *t, struct error *err) {
    *s = (struct tensor_stats) { .tensor = t, .n_row = gguf_n_row(t) };
    float *row = alloc_array(t->shape[0], sizeof *row);
    uint8_t *bytes = alloc_array(gguf_row_bytes(t), 1);
    if (!row || !bytes) {
        free(row);
        free(bytes);
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: a row of %s, %llu elements", t->name.data,
                         (unsigned long long)t->shape[0]);
    }
    uint64_t n = t->shape[0], n_log = 0, n_log_before = 0;
    double sum = 0, sum2 = 0, sum_log = 0;
    for (uint64_t i = 0; i < s->n_row; i++) {
        quant_dequantize(quant_traits(t->type), repack_tensor_row(t, i, bytes), row, (size_t)n);
        count_row(s, row, n, i * n, &sum, &sum2, &sum_log, &n_log);
        if (t->n_dims < 3 || (i + 1) % t->shape[1] != 0) continue;
        if (n_log == n_log_before && s->n_zero++ == 0) s->first_zero = i / t->shape[1];
        n_log_before = n_log;
    }
    free(row);
    free(bytes);
    uint64_t n_finite = t->n_elements - s->n_nan - s->n_inf;
    if (n_finite > 0) {
        s->mean = sum / (double)n_finite;
        s->rms = sqrt(sum2 / (double)n_finite);
    }
    if (n_log > 0) s->usual = exp(sum_log / (double)n_log);
    return PLUMB_OK;
}

/* ---- the kind of a tensor, by its name --------------------------------------------------------------------------- */

static bool is_norm(const struct tensor_stats *s) { return gguf_name_ends(s->tensor, "norm.weight"); }
static bool is_bias(const struct tensor_stats *s) { return gguf_name_ends(s->tensor, ".bias"); }
/* A bias may be all zeros, or have peaks of any height (Qwen2's attn_k.bias).  Of adapters inside the file number 0 is
 * all zeros, and others are where they change nothing, or have a smaller rank. */
static bool is_free(const struct tensor_stats *s) {
    return is_bias(s) || gguf_name_ends(s->tensor, ".lora_a") || gguf_name_ends(s->tensor, ".lora_b");
}
static bool is_matrix(const struct tensor_stats *s) { return s->n_row > 1 && !is_bias(s); }
static bool is_named(const struct tensor_stats *s, const char *name) { return strcmp(s->tensor->name.data, name) == 0; }

/* Writes "[row 3, column 17]" or, for a tensor of one row, "[17]".  place: an index in the flattened tensor.  Returns
 * buf->text. */
struct place_text { char text[64]; };
static const char *show_place(struct place_text *buf, const struct tensor_stats *s, uint64_t place) {
    uint64_t n_in = s->tensor->shape[0];
    if (s->n_row == 1) snprintf(buf->text, sizeof buf->text, "[%llu]", (unsigned long long)place);
    else snprintf(buf->text, sizeof buf->text, "[row %llu, column %llu]", (unsigned long long)(place / n_in),
                  (unsigned long long)(place % n_in));
    return buf->text;
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

/* The upper bound of largest value / usual magnitude.  This ratio is at most 60 in the two models, and about 100 to 300
 * at the rare "super weights" of larger ones (Yu et al. 2024).  A block with a wrong f16 scale has thousands. */
#define MAX_PEAK 1000.0
/* Bounds of the RMS of a matrix.  In the two models it is 0.015 to 0.25, and up to 1 in embeddings. */
#define MIN_RMS 1e-5
#define MAX_RMS 100.0

/* Adds a detail if something is wrong with a tensor.  Returns false if nothing is. */
static bool report_outlier(struct check *c, const struct tensor_stats *s) {
    const char *name = s->tensor->name.data, *type = quant_traits(s->tensor->type)->name;
    struct place_text at;
    if (s->n_nan + s->n_inf > 0) {
        check_detail(c, "%s (%s): %llu NaN and %llu infinite of %llu values, the first at %s", name, type,
                     (unsigned long long)s->n_nan, (unsigned long long)s->n_inf,
                     (unsigned long long)s->tensor->n_elements, show_place(&at, s, s->first_bad));
    } else if (is_free(s)) {
        return false;
    } else if (s->max_abs == 0) {
        check_detail(c, "%s (%s): all %llu values are 0", name, type, (unsigned long long)s->tensor->n_elements);
    } else if (s->n_zero > 0) {
        check_detail(c, "%s (%s): in %llu of %llu experts all values are 0, the first is expert %llu", name, type,
                     (unsigned long long)s->n_zero, (unsigned long long)(s->n_row / s->tensor->shape[1]),
                     (unsigned long long)s->first_zero);
    } else if (s->max_abs > MAX_PEAK * s->usual) {
        check_detail(c, "%s (%s): a value of %.3g at %s, %.3g times the usual magnitude %.3g", name, type, s->max_abs,
                     show_place(&at, s, s->max_place), s->max_abs / s->usual, s->usual);
    } else if (is_matrix(s) && !(s->rms >= MIN_RMS && s->rms <= MAX_RMS)) {
        check_detail(c, "%s (%s): the RMS is %.3g, but usual values are %g to %g", name, type, s->rms, MIN_RMS,
                     MAX_RMS);
    } else if (is_matrix(s) && s->n_constant > s->n_row / 2) {
        check_detail(c, "%s (%s): in %llu of %llu rows all values are equal, the first is row %llu", name, type,
                     (unsigned long long)s->n_constant, (unsigned long long)s->n_row,
                     (unsigned long long)s->first_constant);
    } else {
        return false;
    }
    return true;
}

void selfcheck_statistics(struct check *c, const struct tensor_stats *stats, size_t n) {
    size_t n_bad = 0;
    const struct tensor_stats *peak = NULL, *constant = NULL;
    for (size_t i = 0; i < n; i++) {
        n_bad += report_outlier(c, &stats[i]);
        if (is_free(&stats[i]) || stats[i].usual == 0) continue;
        if (!peak || stats[i].max_abs / stats[i].usual > peak->max_abs / peak->usual) peak = &stats[i];
        /* The embeddings of tokens that never occurred in training may be zeros. */
        bool is_embedding = is_named(&stats[i], "token_embd.weight") || is_named(&stats[i], "output.weight");
        if (is_matrix(&stats[i]) && stats[i].n_constant > 0 && !is_embedding && !constant) constant = &stats[i];
    }
    if (n_bad > 0) {
        check_set(c, VERDICT_FAIL, "%zu of %zu tensors have values that no trained tensor has", n_bad, n);
    } else if (constant) {
        check_set(c, VERDICT_WARN, "%s: in %llu of %llu rows all values are equal, the first is row %llu",
                  constant->tensor->name.data, (unsigned long long)constant->n_constant,
                  (unsigned long long)constant->n_row, (unsigned long long)constant->first_constant);
    } else if (peak) {
        check_set(c, VERDICT_OK, "all values are finite, no weight is all zeros; the highest peak is %.3g times the "
                  "usual magnitude, in %s (bound %g)", peak->max_abs / peak->usual, peak->tensor->name.data, MAX_PEAK);
    } else {
        check_set(c, VERDICT_SKIP, "the file has no weights");
    }
}

/* ---- the same tensor in other layers ----------------------------------------------------------------------------- */

/* A tensor is far off if two things hold.  Its RMS differs from the median over the layers by a factor of more than
 * FAR_MATRIX or FAR_NORM, and the logarithm of this factor is more than FAR_DEVIATIONS standard deviations (estimated
 * from the median absolute deviation of the logarithms).  In SmolLM2's first layer the RMS of a matrix is smaller than
 * the median by a factor of 3.7, and that of a norm by a factor of 8, or 7.7 deviations.  Gemma's post-norms differ by
 * a factor of 13, or 1.2 deviations. */
#define FAR_MATRIX 8.0
#define FAR_NORM 32.0
#define FAR_DEVIATIONS 8.0

bool selfcheck_in_layer(const struct gguf_tensor *t, uint32_t *layer, const char **rest) {
    *layer = 0;
    *rest = t->name.data;
    const char *block = strncmp(*rest, "enc.", 4) == 0 ? *rest + 4 : *rest;   /* of T5 */
    if (strncmp(block, "blk.", 4) != 0) return false;
    *rest = block + 4;
    *layer = decimal_read_u32(rest);
    return *rest != block + 4 && **rest == '.';
}

static double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, compare_f64);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* Compares by the name without the layer, then by the layer, for qsort. */
static int by_name(const void *a, const void *b) {
    uint32_t layer_a, layer_b;
    const char *rest_a, *rest_b;
    selfcheck_in_layer((*(const struct tensor_stats *const *)a)->tensor, &layer_a, &rest_a);
    selfcheck_in_layer((*(const struct tensor_stats *const *)b)->tensor, &layer_b, &rest_b);
    int order = strcmp(rest_a, rest_b);
    return order != 0 ? order : (layer_a > layer_b) - (layer_a < layer_b);
}

/* The tensor whose distance is the largest part of its bound.  distance and bound are logarithms of ratios. */
struct farthest { const struct tensor_stats *at; double distance, bound; };

/* Checks one group, which is the same tensor in all layers.  logs: (n) scratch.  Returns how many are far off. */
static size_t check_group(struct check *c, const struct tensor_stats *const *group, size_t n, double *logs,
                          struct farthest *farthest) {
    if (n < 4) return 0;   /* these are too few layers to say which RMS is usual */
    size_t n_far = 0;
    for (size_t i = 0; i < n; i++) logs[i] = log(group[i]->rms);
    double middle = median(logs, n);
    for (size_t i = 0; i < n; i++) logs[i] = fabs(logs[i] - middle);
    double deviation = 1.4826 * median(logs, n);   /* for a Gaussian: 1.4826 times the median absolute deviation */
    double bound = fmax(log(is_norm(group[0]) ? FAR_NORM : FAR_MATRIX), FAR_DEVIATIONS * deviation);
    for (size_t i = 0; i < n; i++) {
        double distance = fabs(log(group[i]->rms) - middle);
        if (!farthest->at || distance / bound > farthest->distance / farthest->bound) {
            *farthest = (struct farthest) { group[i], distance, bound };
        }
        if (distance <= bound) continue;
        n_far++;
        check_detail(c, "%s (%s): the RMS is %.3g, but in the other layers it is about %.3g",
                     group[i]->tensor->name.data, quant_traits(group[i]->tensor->type)->name, group[i]->rms,
                     exp(middle));
    }
    return n_far;
}

/* Whether no pass uses a tensor that a file may have.  rest: its name from the dot behind the layer on. */
static bool is_unused(const struct check *c, const struct gguf_tensor *t, const char *rest) {
    const char *const *unused = c->model ? c->model->plan.unused : NULL;
    while (unused && *unused && strcmp(*unused, rest + 1) != 0) unused++;
    if (!unused || !*unused) return false;
    for (size_t i = 0; i < c->model->n_weight; i++) {   /* other layers may use it */
        if (c->model->weights[i].name == t->name.data) return false;
    }
    return true;
}

void selfcheck_layers(struct check *c, const struct tensor_stats *stats, size_t n) {
    const struct tensor_stats **order = alloc_array(n, sizeof *order);
    double *logs = alloc_array(n, sizeof *logs);
    struct farthest farthest = { 0 };
    size_t n_order = 0, n_far = 0;
    uint32_t layer;
    const char *rest, *other;
    c->out_of_memory |= !order || !logs;
    for (size_t i = 0; !c->out_of_memory && i < n; i++) {
        bool counts = stats[i].rms > 0 && !is_bias(&stats[i]) && selfcheck_in_layer(stats[i].tensor, &layer, &rest);
        if (counts && !is_unused(c, stats[i].tensor, rest)) order[n_order++] = &stats[i];
    }
    if (n_order > 0) qsort(order, n_order, sizeof *order, by_name);
    for (size_t from = 0, end; from < n_order; from = end) {
        selfcheck_in_layer(order[from]->tensor, &layer, &rest);
        for (end = from + 1; end < n_order && selfcheck_in_layer(order[end]->tensor, &layer, &other)
             && strcmp(rest, other) == 0;) end++;
        n_far += check_group(c, order + from, end - from, logs, &farthest);
    }
    free(order);
    free(logs);
    if (n_far > 0) {
        check_set(c, VERDICT_FAIL, "%zu tensors differ in scale from the same tensor in the other layers", n_far);
    } else if (!farthest.at) {
        check_set(c, VERDICT_SKIP, "fewer than 4 layers are too few to compare");
    } else {
        check_set(c, VERDICT_OK, "%s is nearest to its bound: its RMS differs from that of the median layer by a "
                  "factor of %.2g (bound %.2g)", farthest.at->tensor->name.data, exp(farthest.distance),
                  exp(farthest.bound));
    }
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* Bounds of the RMS of a norm's weights.  In SmolLM2 it is 0.04 to 10, in Gemma 3 it is 2 to 380. */
#define MIN_NORM 1e-3
#define MAX_NORM 1e4

void selfcheck_norms(struct check *c, const struct tensor_stats *stats, size_t n) {
    size_t n_norm = 0, n_bad = 0, n_one = 0, n_centred = 0;
    const struct tensor_stats *first_one = NULL;
    double min = INFINITY, max = 0;
    for (size_t i = 0; i < n; i++) {
        const struct tensor_stats *s = &stats[i];
        if (!is_norm(s)) continue;
        n_norm++;
        min = fmin(min, s->rms);
        max = fmax(max, s->rms);
        bool is_one = s->n_one == s->tensor->n_elements;
        if (is_one && n_one++ == 0) first_one = s;
        n_centred += s->n_negative > s->tensor->n_elements / 4;
        if (s->rms >= MIN_NORM && s->rms <= MAX_NORM) continue;
        n_bad++;
        check_detail(c, "%s: the RMS is %.3g, but usual values are %g to %g", s->tensor->name.data, s->rms, MIN_NORM,
                     MAX_NORM);
    }
    if (n_norm == 0) {
        check_set(c, VERDICT_SKIP, "no tensor's name ends in norm.weight");
    } else if (n_bad > 0) {
        check_set(c, VERDICT_FAIL, "%zu of %zu norms have an unusual scale", n_bad, n_norm);
    } else if (n_centred > n_norm / 2) {   /* a single one may be: SmolLM2's first is */
        check_set(c, VERDICT_FAIL, "%zu of %zu norms are centred on 0 instead of 1: do they store the weight minus 1, "
                  "as Gemma's checkpoints do?", n_centred, n_norm);
    } else if (n_one > 0 && n_one < n_norm) {
        check_set(c, VERDICT_WARN, "%zu of %zu norms are exactly 1, %s is the first: was its weight lost?", n_one,
                  n_norm, first_one->tensor->name.data);
    } else if (n_one == n_norm) {
        check_set(c, VERDICT_WARN, "all %zu norms are exactly 1: were they not trained, or not converted?", n_norm);
    } else {
        check_set(c, VERDICT_OK, "%zu norms, RMS %.3g to %.3g (bounds %g and %g), not centred on 0", n_norm, min, max,
                  MIN_NORM, MAX_NORM);
    }
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

void selfcheck_head(struct check *c, const struct tensor_stats *stats, size_t n) {
    const struct tensor_stats *embd = NULL, *head = NULL;
    for (size_t i = 0; i < n; i++) {
        if (is_named(&stats[i], "token_embd.weight")) embd = &stats[i];
        if (is_named(&stats[i], "output.weight")) head = &stats[i];
    }
    if (!embd) {
        check_set(c, VERDICT_FAIL, "the file has no token_embd.weight");
    } else if (c->model && !c->model->plan.has_logits) {
        check_set(c, VERDICT_SKIP, "the model computes embeddings, and no logits");
    } else if ((head ? head : embd)->max_abs == 0) {
        check_set(c, VERDICT_FAIL, "%s is all zeros: all logits would be 0", (head ? head : embd)->tensor->name.data);
    } else if (!head) {
        check_set(c, VERDICT_OK, "tied: there is no output.weight, so token_embd.weight is also the head");
    } else if (head->tensor->type == embd->tensor->type && head->tensor->n_bytes == embd->tensor->n_bytes
               && memcmp(head->tensor->data, embd->tensor->data, (size_t)head->tensor->n_bytes) == 0) {
        check_set(c, VERDICT_WARN, "output.weight repeats token_embd.weight: %.1f MB that a tied head would not need",
                  (double)head->tensor->n_bytes / 1e6);
    } else {
        check_set(c, VERDICT_OK, "untied: output.weight (%s) is the head", quant_traits(head->tensor->type)->name);
    }
}
