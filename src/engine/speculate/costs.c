#include "speculate/costs.h"

/* Ratios of Qwen2.5-Coder 1.5B in one thread of Node 24, and what they become as they are measured.
 * SLOWLY: the share of a new measurement.  A single one may be disturbed by other programs, so none counts for more
 * than DISTURBED times what was expected, or as many passes as it has tokens.  RETURN: with each pass of one token, a
 * ratio that is larger than usual moves back by this share, so that it is tried again some time. */
static const double usual[COSTS_MOST + 1] = { 0, 1, 1.45, 1.95, 2.4, 2.8, 3.2, 3.55, 3.9, 4.2, 4.5, 4.85, 5.15, 5.45,
                                              5.75, 6.1, 6.4 };
static const double SLOWLY = 0.25, DISTURBED = 2, RETURN = 0.01, LEAST_EXCESS = 0.05;
/* Drafts may cost as much as they have saved, CREDIT at first, and GRANT more for each pass without one: they slow
 * answers by at most 1 % and two passes.  MARGIN: what a draft must be expected to gain. */
static const double CREDIT = 2, GRANT = 0.01, MOST_CREDIT = 12, MARGIN = 1.03;
/* The first passes of a module run in its slower code. */
enum { WARM = 2 };

void costs_init(struct costs *c) {
    *c = (struct costs) { .credit = CREDIT };
    memcpy(c->ratio, usual, sizeof usual);
}

double costs_of(const struct costs *c, uint32_t n) {
    if (n <= COSTS_MOST) return c->ratio[n];
    return c->ratio[COSTS_MOST] + (n - COSTS_MOST) * (c->ratio[COSTS_MOST] - c->ratio[COSTS_MOST / 2])
                                  / (COSTS_MOST / 2);
}

/* Passes of about as many tokens cost more or less than usual for the same reasons, so that what is learned of one says
 * something of the others, the less the further they are. */
static void learn(struct costs *c, uint32_t n, double cost) {
    double excess = (cost - 1) / (usual[n] - 1);
    if (excess < LEAST_EXCESS) excess = LEAST_EXCESS;
    for (uint32_t i = 2; i <= COSTS_MOST; i++) {
        double distance = i > n ? i - n : n - i, is = i == n ? cost : 1 + (usual[i] - 1) * excess;
        c->ratio[i] += SLOWLY / (1 + distance) * (is - c->ratio[i]);
    }
}

double costs_measure(struct costs *c, uint32_t n, double seconds) {
    if (n == 0 || n > COSTS_MOST || !(seconds > 0) || (n > 1 && c->single == 0)) return costs_of(c, n);
    if (n > 1) {
        double cost = seconds / c->single, most = DISTURBED * c->ratio[n];
        if (most > n) most = n;   /* so many passes of one token */
        if (cost > most) cost = most;
        learn(c, n, cost);
        return cost;
    }
    if (++c->n_single <= WARM) c->single = seconds;
    double most = DISTURBED * c->single;
    c->single += SLOWLY * ((seconds < most ? seconds : most) - c->single);
    for (uint32_t i = 2; i <= COSTS_MOST; i++) {
        if (c->ratio[i] > usual[i]) c->ratio[i] += RETURN * (usual[i] - c->ratio[i]);
    }
    return 1;
}

void costs_settle(struct costs *c, double saved) {
    c->credit += saved + GRANT;
    if (c->credit > MOST_CREDIT) c->credit = MOST_CREDIT;
}

void rate_count(struct rate *r, bool is_right) {
    static const double RECENT = 0.1;
    r->right += RECENT * (is_right - r->right);
}

uint32_t costs_plan(const struct costs *c, uint32_t n, double n_made, double each, const double *chances,
                    uint32_t n_most) {
    if (c->n_single < WARM) return 0;
    double best = n_made / costs_of(c, n) * MARGIN, chance = 1, expected = n_made;
    uint32_t n_best = 0;
    for (uint32_t k = 1; k <= n_most && n + k <= COSTS_MOST; k++) {
        chance *= chances[k - 1];
        expected += chance;
        double cost = costs_of(c, n + k) + k * each;
        if (cost - costs_of(c, n) > c->credit) break;
        if (expected / cost <= best) continue;
        best = expected / cost;
        n_best = k;
    }
    return n_best;
}
