/* Which head of K or V each head of Q reads, where it is not h / (n_head / n_head_kv). */
#ifndef PLUMB_DIAGNOSE_FIT_HEADS_H
#define PLUMB_DIAGNOSE_FIT_HEADS_H

#include "diagnose/fit.h"

enum { FIT_HEAD_RULES = 4, FIT_HEAD_TEXT = 64 };
/* Fills heads (n_head) by a rule, with n_kv or more for heads of zeros, and writes what it says about head h.  Returns
 * false if there is only one head that could be read. */
bool fit_head_rule(uint32_t rule, uint32_t n_head, uint32_t n_kv, uint32_t *heads, char text[FIT_HEAD_TEXT]);
/* Writes which heads (n_head) are read; of: "K" or "V".  Returns what this costs (struct finding). */
uint32_t fit_say_heads(char *text, size_t size, const char *of, const uint32_t *heads, uint32_t n_head, uint32_t n_kv);

#endif
