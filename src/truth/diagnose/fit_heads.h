/* How engines read K and V wrongly: which head each head of Q reads, where it is not h / (n_head / n_head_kv), and in
 * which order they take the elements. */
#ifndef PLUMB_DIAGNOSE_FIT_HEADS_H
#define PLUMB_DIAGNOSE_FIT_HEADS_H

#include "diagnose/fit.h"
#include "mistakes/formulas.h"

/* How many keys (of n_key) are there when the token at pos attends: those of its batch. */
uint32_t fit_filled(const struct fit *f, uint32_t pos, uint32_t n_key);
/* Puts the right heads (n_head) in the place of those of heads in which the right step is right for every token. */
void fit_keep_right_heads(const struct fit *f, const uint32_t *right, uint32_t n_head, uint32_t *heads);

enum { FIT_HEAD_RULES = 4, FIT_HEAD_TEXT = 64 };
/* Fills heads (n_head) by a rule, with n_kv or more for heads of zeros, and writes what it says about head h.  Returns
 * false if there is only one head that could be read. */
bool fit_head_rule(uint32_t rule, uint32_t n_head, uint32_t n_kv, uint32_t *heads, char text[FIT_HEAD_TEXT]);
/* Writes which heads (n_head) are read; of: "K" or "V".  Returns what this costs (struct finding). */
uint32_t fit_say_heads(char *text, size_t size, const char *of, const uint32_t *heads, uint32_t n_head, uint32_t n_kv);

/* Writes "has rows of V, stored as (token, head), read as (head, token)".  of: "K" or "V". */
void fit_say_order(char *text, size_t size, enum cache_order order, const char *of);
#endif
