/* The sampling chain: bias, penalties, top-k, typical, top-p, min-p, temperature, draw.
 *
 * The steps and their order are those of llama.cpp's default chain (llama-sampler.cpp), so that settings mean the same
 * here.  Where llama.cpp leaves something open, this file decides: of equal logits the one with the lower id ranks
 * first, sums are f64, NaN and -infinity are never chosen, and +infinity beats every finite logit.
 *
 *   logits (n_vocab) -> values: a copy with bias and penalties; NaN becomes -infinity
 *                    -> candidates: the top k of them, or all; every filter shortens this array in place
 *                    -> weights exp((logit - max) / temperature), one random number, one token
 */
#include "sampler/sampler.h"

#include "base/math.h"

#include <math.h>   /* INFINITY, isnan, fabs: no function of libm is linked */
#include <stdlib.h>

struct plumb_sampler {
    plumb_sampling params;      /* params.bias points to the copy below */
    plumb_logit_bias *bias;     /* (n_bias) */
    uint32_t n_vocab;
    struct rng rng;
    const uint32_t *allowed;    /* set of the tokens that can be chosen in this call; NULL: all */
    float *values;              /* (n_vocab) */
    struct candidate *candidates;  /* (n_candidate_max) */
    uint32_t n_candidate_max;   /* top_k, or n_vocab if top_k is off */
    /* The last n_recent <= penalty_last_n accepted tokens, in a ring buffer.  Once it is full, the oldest one is at
     * next_recent.  recent and count are NULL if no penalty is on. */
    int32_t *recent;
    uint32_t n_recent, next_recent;
    uint32_t *count;            /* (n_vocab) how often each token is in recent */
};

plumb_sampling plumb_sampling_default(void) {
#define DEFAULT(type, name, low, high, standard, ...) .name = (type)(standard),
    return (plumb_sampling){ PLUMB_SAMPLING_TABLE(DEFAULT) };
}

static bool is_within(double x, double low, double high) { return x >= low && x <= high; }

/* Returns a sentence about the first parameter that is wrong; NULL if there is none. */
static const char *find_problem(uint32_t n_vocab, const plumb_sampling *p) {
    if (n_vocab == 0 || n_vocab > INT32_MAX) return "n_vocab must be 1..2147483647";
    /* The limits are rounded to the parameter's type, as the value was. */
#define CHECK(type, name, low, high, ...) \
    if (!is_within((double)p->name, (double)(type)(low), (double)(type)(high))) { \
        return #name " must be " #low ".." #high; \
    }
    PLUMB_SAMPLING_TABLE(CHECK)
    if (p->n_bias > 0 && !p->bias) return "bias is NULL";
    for (uint32_t i = 0; i < p->n_bias; i++) {
        int32_t token = p->bias[i].token;
        if (token < 0 || (uint32_t)token >= n_vocab) return "a bias token is outside the vocabulary";
        if (isnan(p->bias[i].bias)) return "bias must not be NaN";
    }
    return NULL;
}

plumb_status plumb_sampler_create(plumb_sampler **out, uint32_t n_vocab, const plumb_sampling *params,
                                  const char **reason) {
    *out = NULL;
    const char *problem = find_problem(n_vocab, params);
    if (reason) *reason = problem ? problem : "";
    if (problem) return PLUMB_ERROR_ARGUMENT;

    plumb_sampler *s = calloc(1, sizeof *s);
    if (!s) goto no_memory;
    s->params = *params;
    s->n_vocab = n_vocab;
    s->n_candidate_max = params->top_k > 0 && params->top_k < n_vocab ? params->top_k : n_vocab;
    rng_seed(&s->rng, params->seed);
    s->values = alloc_array(n_vocab, sizeof *s->values);
    s->candidates = alloc_array(s->n_candidate_max, sizeof *s->candidates);
    if (!s->values || !s->candidates) goto no_memory;
    if (params->n_bias > 0) {
        s->bias = alloc_array(params->n_bias, sizeof *s->bias);
        if (!s->bias) goto no_memory;
        memcpy(s->bias, params->bias, params->n_bias * sizeof *s->bias);
    }
    s->params.bias = s->bias;
    bool penalize = params->repeat_penalty != 1 || params->presence_penalty != 0 || params->frequency_penalty != 0;
    if (penalize && params->penalty_last_n > 0) {
        s->recent = alloc_array(params->penalty_last_n, sizeof *s->recent);
        s->count = calloc(n_vocab, sizeof *s->count);
        if (!s->recent || !s->count) goto no_memory;
    }
    *out = s;
    return PLUMB_OK;

no_memory:
    plumb_sampler_free(s);
    if (reason) *reason = "out of memory";
    return PLUMB_ERROR_MEMORY;
}

void plumb_sampler_free(plumb_sampler *s) {
    if (!s) return;
    free(s->values);
    free(s->candidates);
    free(s->bias);
    free(s->recent);
    free(s->count);
    free(s);
}

void plumb_sampler_accept(plumb_sampler *s, int32_t token) {
    if (!s->recent || token < 0 || (uint32_t)token >= s->n_vocab) return;
    if (s->n_recent == s->params.penalty_last_n) s->count[s->recent[s->next_recent]]--;
    else s->n_recent++;
    s->recent[s->next_recent] = token;
    s->count[token]++;
    s->next_recent = s->next_recent + 1 == s->params.penalty_last_n ? 0 : s->next_recent + 1;
}

/* ---- logits -> values -------------------------------------------------------------------------------------------- */

/* values = logits with bias and penalties.  NaN, from the model or from +inf - inf, becomes -infinity. */
static void adjust(plumb_sampler *s, const float *logits) {
    const plumb_sampling *p = &s->params;
    float *values = s->values;
    memcpy(values, logits, s->n_vocab * sizeof *values);
    for (uint32_t i = 0; i < p->n_bias; i++) values[p->bias[i].token] += p->bias[i].bias;
    if (s->recent) {
        /* A positive logit is divided and a negative one multiplied, so that a penalty above 1 always lowers it. */
        for (uint32_t i = 0; i < s->n_vocab; i++) {
            if (s->count[i] == 0) continue;
            float x = values[i] <= 0 ? values[i] * p->repeat_penalty : values[i] / p->repeat_penalty;
            values[i] = x - ((float)s->count[i] * p->frequency_penalty + p->presence_penalty);
        }
    }
    for (uint32_t i = 0; i < s->n_vocab; i++) values[i] = isnan(values[i]) ? -INFINITY : values[i];
    for (uint32_t i = 0; s->allowed && i < s->n_vocab; i++) {
        if (!(s->allowed[i / 32] >> i % 32 & 1)) values[i] = -INFINITY;
    }
}

/* The token with the largest value, of those that are allowed (NULL: all). */
static int32_t find_max(const float *values, uint32_t n, const uint32_t *allowed) {
    int32_t best = -1;
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (values[i] > max && (!allowed || allowed[i / 32] >> i % 32 & 1)) {
            max = values[i];
            best = (int32_t)i;
        }
    }
    return best;
}

/* ---- order: a heap whose root is the worst candidate kept -------------------------------------------------------- */

/* A strict total order, because ids differ.  So the result of a selection does not depend on the initial order. */
static bool ranks_before(const struct candidate *a, const struct candidate *b) {
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

static void swap(struct candidate *a, struct candidate *b) {
    struct candidate t = *a;
    *a = *b;
    *b = t;
}

static void sift_down(struct candidate *heap, size_t n, size_t i) {
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && ranks_before(&heap[child], &heap[child + 1])) child++;
        if (!ranks_before(&heap[i], &heap[child])) return;
        swap(&heap[i], &heap[child]);
    }
}

static void heapify(struct candidate *heap, size_t n) {
    for (size_t i = n / 2; i-- > 0;) sift_down(heap, n, i);
}

/* Heap -> array, best first. */
static void sort_heap(struct candidate *heap, size_t n) {
    for (size_t i = n; i-- > 1;) {
        swap(&heap[0], &heap[i]);
        sift_down(heap, i, 0);
    }
}

/* Moves the best k of n to the front, in order; the others follow in any order. */
static void sort_best(struct candidate *c, size_t n, size_t k) {
    heapify(c, k);
    for (size_t i = k; i < n; i++) {
        if (!ranks_before(&c[i], &c[0])) continue;
        swap(&c[i], &c[0]);
        sift_down(c, k, 0);
    }
    sort_heap(c, k);
}

/* ---- filters: each returns how many candidates stay -------------------------------------------------------------- */

/* Makes candidates of the best n_candidate_max values above -infinity.  They are sorted if n_candidate_max < n_vocab,
 * and in the order of their ids otherwise. */
static size_t gather(plumb_sampler *s) {
    struct candidate *c = s->candidates;
    const size_t k = s->n_candidate_max;
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        float x = s->values[i];
        if (n < k) {
            if (x == -INFINITY) continue;
            c[n++] = (struct candidate){ .logit = x, .key = x, .id = (int32_t)i };
            if (n == k && k < s->n_vocab) heapify(c, k);
        } else if (x > c[0].key) {   /* an equal value ranks lower, as its id is higher */
            c[0] = (struct candidate){ .logit = x, .key = x, .id = (int32_t)i };
            sift_down(c, k, 0);
        }
    }
    if (k < s->n_vocab) {
        if (n < k) heapify(c, n);
        sort_heap(c, n);
    }
    return n;
}

static float max_logit(const struct candidate *c, size_t n) {
    float max = c[0].logit;
    for (size_t i = 1; i < n; i++) max = c[i].logit > max ? c[i].logit : max;
    return max;
}

/* logit - max, but 0 and not NaN if both are infinite. */
static double below_max(float logit, float max) { return logit == max ? 0 : (double)logit - (double)max; }

/* Softmax without the division.  Returns the sum of the weights, which is at least 1, because the best weight is 1. */
static double set_weights(struct candidate *c, size_t n, double temperature) {
    const float max = max_logit(c, n);
    double total = 0;
    for (size_t i = 0; i < n; i++) {
        double x = below_max(c[i].logit, max) / temperature;
        c[i].weight = x < -750 ? 0 : math_exp(x);   /* exp(-746) is 0 in f64 */
        total += c[i].weight;
    }
    return total;
}

/* Keeps the shortest run of candidates, best key first, whose weight reaches a share p of the total, or exceeds it if
 * exceed is set.  Top-p uses the former and typical the latter, as in llama.cpp.  The candidates are sorted in growing
 * chunks, because a peaked distribution needs only the first one. */
static size_t keep_share(struct candidate *c, size_t n, double total, double p, bool exceed) {
    const double target = p * total;
    double sum = 0;
    for (size_t i = 0, sorted = 0; i < n; i++) {
        if (i == sorted) {
            size_t chunk = sorted == 0 ? 256 : 7 * sorted;
            if (chunk > n - sorted) chunk = n - sorted;
            sort_best(c + sorted, n - sorted, chunk);
            sorted += chunk;
        }
        sum += c[i].weight;
        if (exceed ? sum > target : sum >= target) return i + 1;
    }
    return n;
}

/* Locally typical sampling (Meister et al. 2022, arXiv:2202.00666).  Candidates whose information -log p is nearest to
 * the entropy H come first. */
static size_t keep_typical(struct candidate *c, size_t n, double p) {
    const double total = set_weights(c, n, 1), log_total = math_log(total);
    const float max = max_logit(c, n);
    double entropy = 0;
    for (size_t i = 0; i < n; i++) {
        if (c[i].weight > 0) entropy += c[i].weight / total * (log_total - below_max(c[i].logit, max));
    }
    for (size_t i = 0; i < n; i++) {
        c[i].key = (float)-fabs(log_total - below_max(c[i].logit, max) - entropy);
    }
    n = keep_share(c, n, total, p, true);
    for (size_t i = 0; i < n; i++) c[i].key = c[i].logit;
    return n;
}

/* Keeps the candidates that are at least min_p times as likely as the likeliest one. */
static size_t keep_min_p(struct candidate *c, size_t n, double min_p) {
    const double min_logit = (double)max_logit(c, n) + math_log(min_p);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if ((double)c[i].logit >= min_logit) c[kept++] = c[i];
    }
    return kept;
}

static size_t filter(plumb_sampler *s, const float *logits) {
    const plumb_sampling *p = &s->params;
    struct candidate *c = s->candidates;
    adjust(s, logits);
    size_t n = gather(s);
    if (n == 0) return 0;
    if (p->typical_p < 1) n = keep_typical(c, n, (double)p->typical_p);
    if (p->top_p < 1) n = keep_share(c, n, set_weights(c, n, 1), (double)p->top_p, false);
    if (p->min_p > 0) n = keep_min_p(c, n, (double)p->min_p);
    return n;
}

/* ---- log-probabilities ------------------------------------------------------------------------------------------- */

double plumb_logits_top(const float *logits, uint32_t n_vocab, uint32_t k, int32_t *ids) {
    uint32_t n = 0;
    float max = -INFINITY;
    for (uint32_t i = 0; i < n_vocab; i++) {
        float x = logits[i];
        if (x > max) max = x;
        if (isnan(x) || x == -INFINITY || (n == k && (k == 0 || !(x > logits[ids[k - 1]])))) continue;
        uint32_t at = n < k ? n++ : k - 1;
        for (; at > 0 && x > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = (int32_t)i;
    }
    while (n < k) ids[n++] = -1;
    double sum = 0, chunk[64];
    const uint32_t chunk_size = sizeof chunk / sizeof chunk[0];
    for (uint32_t i = 0; i < n_vocab; i += chunk_size) {
        uint32_t m = n_vocab - i < chunk_size ? n_vocab - i : chunk_size;
        for (uint32_t j = 0; j < m; j++) {
            chunk[j] = isnan(logits[i + j]) ? -INFINITY : below_max(logits[i + j], max);
        }
        math_exp_all(chunk, chunk, m);
        for (uint32_t j = 0; j < m; j++) sum += chunk[j];
    }
    return (double)max + (sum > 0 ? math_log(sum) : 0);
}

/* ---- the draw ---------------------------------------------------------------------------------------------------- */

const struct candidate *sampler_candidates(plumb_sampler *s, const float *logits, size_t *n, double *total) {
    struct candidate *c = s->candidates;
    *n = filter(s, logits);
    *total = 0;
    if (*n == 0) return c;
    if (s->params.temperature > 0) {
        *total = set_weights(c, *n, (double)s->params.temperature);
    } else {
        sort_best(c, *n, 1);
        c[0].weight = *total = 1;
        *n = 1;
    }
    return c;
}

static int32_t sample(plumb_sampler *s, const float *logits) {
    if (s->params.temperature <= 0 && s->params.typical_p >= 1) {
        /* Greedy: every filter but typical keeps the likeliest token.  NaN is never greater than the best. */
        if (s->params.n_bias == 0 && !s->recent) return find_max(logits, s->n_vocab, s->allowed);
        adjust(s, logits);
        return find_max(s->values, s->n_vocab, NULL);
    }
    size_t n;
    double total;
    const struct candidate *c = sampler_candidates(s, logits, &n, &total);
    if (n == 0) return -1;
    /* Draw one random number for each token even if there is only one candidate, so that later draws do not depend on
     * how many there were. */
    const double target = rng_uniform(&s->rng) * total;
    double sum = 0;
    size_t last = 0;   /* the last candidate with a weight, in case rounding keeps sum from exceeding target */
    for (size_t i = 0; i < n; i++) {
        if (c[i].weight == 0) continue;
        last = i;
        sum += c[i].weight;
        if (sum > target) break;
    }
    return c[last].id;
}

int32_t plumb_sampler_sample_allowed(plumb_sampler *s, const float *logits, const uint32_t *allowed) {
    s->allowed = allowed;
    int32_t token = sample(s, logits);
    s->allowed = NULL;
    return token;
}

int32_t plumb_sampler_sample(plumb_sampler *s, const float *logits) {
    return plumb_sampler_sample_allowed(s, logits, NULL);
}
