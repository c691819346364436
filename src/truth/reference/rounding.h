/* Engines round activations to fewer bits before a product, because integers and short floats are faster.  This is not
 * a mistake.  The reference pass does not round, but it can be told to round as an engine does, so that a comparison
 * with that engine shows its mistakes only.
 *
 *   products    the input of each product with a matrix
 *   keys        Q and K, after RoPE
 *   values      V, and the attention weights by which it is multiplied
 */
#ifndef PLUMB_REFERENCE_ROUNDING_H
#define PLUMB_REFERENCE_ROUNDING_H

#include "quant/quant.h"

/* ROUND_BY_TYPE: as llama.cpp does, depending on the type of the matrix: F16 and BF16 to the same type, F32 not at all,
 *     types with blocks of 256 to 8 bits in blocks of 256, all others to 8 bits in blocks of 32 with a scale in f16. */
enum rounding_kind { ROUND_NONE, ROUND_F16, ROUND_BF16, ROUND_INT8, ROUND_BY_TYPE };

/* ROTATE_64, ROTATE_MOST: a Hadamard matrix of 64 elements, or of the most that divide the row, multiplies the parts of
 * the row before they are rounded, and again after it, which undoes the rotation: so few large elements do not cost all
 * others their precision.  llama.cpp does this to the heads of a quantized cache (llama-kv-cache.cpp, attn_rot_k and
 * attn_rot_v), if they have a multiple of 64 elements; others are not rotated. */
enum rounding_rotation { ROTATE_NONE, ROTATE_64, ROTATE_MOST };

/* Codes of 8 bits are -127..127, and the largest element of a block has the code 127 or -127. */
struct rounding {
    enum rounding_kind kind;
    uint32_t block;      /* ROUND_INT8: elements that share a scale; 0: the whole row */
    bool has_f16_scale;  /* ROUND_INT8: the scale is rounded to f16 after the codes are computed from it */
    enum rounding_rotation rotation;
    bool is_stored_only; /* keys, values: only K or V is rounded, not what it is multiplied by */
};

struct roundings { struct rounding products, keys, values; };

/* Returns true if rows of n elements can be rotated. */
static inline bool rounding_can_rotate(size_t n) { return n > 0 && n % 64 == 0; }

/* Rounds n elements of a row that is to be multiplied by a matrix of this type.  The type matters to ROUND_BY_TYPE
 * only. */
void rounding_apply(const struct rounding *how, enum quant_type type, double *x, size_t n);

#endif
