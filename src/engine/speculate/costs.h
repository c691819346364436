/* How many tokens of a draft to compute: what passes cost on this machine, and how likely drafts are right.
 *
 * All of it comes from passes that were made anyway.  The first passes of one token say what one costs; passes of more
 * tokens are first taken to cost what they did on our machines, until some were made here.  Nothing in this file
 * changes an answer: it decides only how many tokens are computed at once. */
#ifndef PLUMB_SPECULATE_COSTS_H
#define PLUMB_SPECULATE_COSTS_H

#include "base/base.h"

/* The most tokens of a pass with a draft. */
enum { COSTS_MOST = 16 };

/* What passes cost, for all sessions that share a pass. */
struct costs {
    double single;                  /* seconds of a pass of one token; 0: not known yet */
    double ratio[COSTS_MOST + 1];   /* a pass of so many tokens costs so many times as much */
    uint32_t n_single;              /* how many passes of one token were measured */
    double credit;                  /* what drafts have saved, in passes of one token; they may cost no more */
};

/* How often guesses of one kind were right. */
struct rate { double right; };

void costs_init(struct costs *c);
/* A pass of n tokens, with logits of each, took so many seconds.  Returns what it has cost, in passes of one token, or
 * what it was expected to cost if that is not known. */
double costs_measure(struct costs *c, uint32_t n, double seconds);
/* What a pass of n tokens costs, in passes of one token. */
double costs_of(const struct costs *c, uint32_t n);
/* What a draft has saved, in passes of one token; negative: it has cost that.  0 for a pass without one. */
void costs_settle(struct costs *c, double saved);

void rate_count(struct rate *r, bool is_right);

/* Returns the best length of a draft, at most n_most and perhaps 0.  n: the other tokens of the pass; n_made: those
 * that it makes without this draft; each: what a token of the draft costs before the pass, in passes of one token;
 * chances: (n_most) the probability of each token of the draft to be right if those before it are. */
uint32_t costs_plan(const struct costs *c, uint32_t n, double n_made, double each, const double *chances,
                    uint32_t n_most);

#endif
