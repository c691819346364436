/* Finds out in which order a trace has the elements of a head in Q and K, and permutes them to a GGUF's order.
 *
 * RoPE rotates pairs of elements.  In transformers the two elements of a pair are half a head apart.  In GGUF files of
 * some architectures, such as llama and granite, they are neighbours, because converters permute the rows of attn_q and
 * attn_k (llama.cpp, conversion/llama.py, LlamaModel.permute).  With half = head_dim / 2:
 *
 *   element p of a head in transformers  =  element 2 (p % half) + p / half in the GGUF
 *
 * This holds before and after RoPE.  Attention scores are sums over a head, so no other tap depends on the order.  For
 * other architectures, such as qwen2, converters leave the rows as they are.
 *
 * A trace does not say which architecture it is from, and an engine in PyTorch may use transformers' module names with
 * the weights of a GGUF.  If a file calls Q and K by those modules (plumb_trace.by_module), the numbers therefore
 * decide which order it has, once for the whole trace.  This hides no mistake: all heads, tokens and layers are
 * permuted in the same way, which does not make wrong numbers right, and a trace that fits in neither order is left as
 * it is.  A mistake in RoPE does not affect the decision, because Q and K before RoPE decide.
 */
#ifndef PLUMB_TRACE_HEADS_H
#define PLUMB_TRACE_HEADS_H

#include "trace/trace.h"

/* Returns true for the taps that depend on the order: Q and K, before and after RoPE. */
bool heads_has_order(enum tap_id id);
/* Returns head_dim if Qcur and Kcur of theirs fit those of ours clearly better when they are permuted from
 * transformers' order to a GGUF's.  Returns 0 if they do not, or if head_dim is not known. */
uint32_t heads_permuted(const struct plumb_trace *theirs, const struct plumb_trace *ours);
/* Sets *out to t with Q and K permuted to the GGUF's order.  *out owns its list of taps and the rows of Q and K; it
 * borrows everything else from t, so t must outlive it.  Release it with heads_free, never with trace_clear, also after
 * a failure. */
plumb_status heads_permute(struct plumb_trace *out, const struct plumb_trace *t, uint32_t head_dim, struct error *err);
void heads_free(struct plumb_trace *permuted);

#endif
