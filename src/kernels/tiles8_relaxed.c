/* Relaxed SIMD on packed weights, for activations of 8 bits: i32x4.relaxed_dot_i8x16_i7x16_add_s multiplies four codes
 * of each of 4 rows at once, which lie in a register as the template of tiles.h takes them out of a tile.
 *
 * Its second operand must be in 0 .. 127, or engines differ: so it gets the codes of the weights, before their bias is
 * subtracted.  Those of q8_0 and of the iq4 types are larger; these types keep the dots of 16 bits.  Two products of
 * 7 and 8 bits fit the 16 that engines may add them in: the integers are those of every other kernel, and the floats
 * too.
 */
#include "kernels/kernels.h"

#if defined(__wasm_relaxed_simd__)

#define BYTES_ARE_MULTIPLIED
#include "kernels/tiles_simd128.h"

/* ---- four weights of 8 rows -------------------------------------------------------------------------------------- */

typedef int8_t code;
ALWAYS_INLINE const code *codes_of(const struct activations *a) { return a->bytes; }
ALWAYS_INLINE code *panel_codes(struct panel *p) { return (code *)p->pairs; }

enum { N_DOT = 2 };

#define DOT(acc, w, x) acc = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w, acc)

ALWAYS_INLINE void dot_4(v128_t dots[N_DOT], tile_codes *codes, const uint8_t *low, const uint8_t *high, uint32_t k,
                         uint32_t j, const code *q) {
    v128_t four = wasm_v128_load32_splat(q);
    DOT(dots[0], codes(low, high, k, j), four);
    DOT(dots[1], codes(low + 16, high + 16, k, j), four);
}

ALWAYS_INLINE v128_t total(const v128_t dots[N_DOT], uint32_t half) { return dots[half]; }
ALWAYS_INLINE void in_order(v128_t dots[N_DOT], volatile v128_t unread[2]) {
    IN_ORDER(dots[0], dots[1]);
    (void)unread;
}

/* The bias stays in: first_sum subtracts it. */
ALWAYS_INLINE void store_4(code *quads, tile_codes *codes, const uint8_t *low, const uint8_t *high, uint32_t k,
                           uint32_t j, int16_t bias) {
    (void)bias;
    wasm_v128_store(quads, codes(low, high, k, j));
    wasm_v128_store(quads + 16, codes(low + 16, high + 16, k, j));
}

/* The bias that store_4 left in. */
ALWAYS_INLINE v128_t first_sum(const struct panel *p, const int32_t *isum) {
    return wasm_i32x4_mul(wasm_v128_load32_splat(isum), wasm_i32x4_splat(-p->bias));
}

#include "kernels/panels.h"

/* ---- the types --------------------------------------------------------------------------------------------------- */

#define DOT_AND_UNPACK(TYPE, TEMPLATE, NAME)                                                    \
static void NAME##_unpack__relaxed8(struct panel *p, const uint8_t *rows) {               \
    TEMPLATE##_unpack(&NAME, p, rows);                                                    \
    p->in_bytes = true;                                                                   \
    p->bias = NAME.bias;                                                                  \
}                                                                                         \
static void NAME##_dot__relaxed8(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a, uint32_t t) { \
    TEMPLATE##_dot(&NAME, y, rows, a, t);                                                 \
}

RELAXED_TYPES(DOT_AND_UNPACK)

static void bytes_dot__relaxed8(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t) {
    panel_dot(y, p, a, t);
}
static void bytes_dot_x4__relaxed8(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                  uint32_t t) {
    panel_dot_x4(y, stride, p, a, t);
}

void kernels_fill_relaxed8(struct kernels *k) {
#define FILL(TYPE, TEMPLATE, NAME) k->dot[TYPE] = NAME##_dot__relaxed8, k->unpack[TYPE] = NAME##_unpack__relaxed8;
    RELAXED_TYPES(FILL)
    k->name = "relaxed";
    k->isa = KERNELS_RELAXED;
    k->n_byte = 1;
    k->bytes_dot = bytes_dot__relaxed8;
    k->bytes_dot_x4 = bytes_dot_x4__relaxed8;
}

#else
typedef int tiles8_relaxed_is_empty;   /* ISO C wants a declaration in every file */
#endif
