/* The order of the elements of a head in Q and K.
 *
 * RoPE turns pairs of elements.  In transformers the two of a pair are half a head apart; in GGUF files of architecture
 * llama and granite they are neighbours, since converters permute the rows of attn_q and attn_k (llama.cpp,
 * conversion/llama.py, LlamaModel.permute).  With half = head_dim / 2:
 *
 *   element p of a head in transformers  =  element 2 (p % half) + p / half in the GGUF
 *
 * before RoPE and after it.  Scores are sums over a head, and no other tap knows of it.  For other architectures, qwen2
 * for instance, converters leave the rows as they are.
 *
 * A trace does not tell its architecture, and an engine in PyTorch may have transformers' module names with the weights
 * of a GGUF.  So where Q and K came under those names (plumb_trace.by_module), the numbers decide, once for the whole
 * trace.  This hides no mistake: the order is one for all heads, tokens and layers, and wrong numbers do not become
 * right by it; what fits in neither order is left as it is.  A mistake in RoPE comes after the Q and K that are asked.
 */
#ifndef PLUMB_TRACE_HEADS_H
#define PLUMB_TRACE_HEADS_H

#include "trace/trace.h"

/* The taps whose values lie in that order. */
bool heads_has_order(enum tap_id id);
/* head_dim, if Qcur and Kcur of theirs are in transformers' order and those of ours in a GGUF's: they fit clearly
 * better so.  0: they do not, or head_dim is not known. */
uint32_t heads_permuted(const struct plumb_trace *theirs, const struct plumb_trace *ours);
/* *out: t with Q and K in the GGUF's order.  It borrows all but their rows from t; release with heads_free, also after
 * a failure. */
plumb_status heads_permute(struct plumb_trace *out, const struct plumb_trace *t, uint32_t head_dim, struct error *err);
void heads_free(struct plumb_trace *permuted);

#endif
