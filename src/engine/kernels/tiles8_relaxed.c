/* Relaxed SIMD kernels on packed weights, for 8-bit activations.  i32x4.relaxed_dot_i8x16_i7x16_add_s multiplies four
 * codes of each of 4 rows at once, in the order in which tiles_simd128.h extracts them from a tile.
 *
 * Engines differ if the second operand of this dot is not in 0 .. 127.  For all types but q8_0, it therefore gets the
 * codes of the weights before the bias is subtracted, which have at most 7 bits.  Two products of 7 and 8 bits fit in
 * the 16 bits in which engines may add them.  So all integer dots, and all results, are the same as those of the other
 * kernels.
 *
 * The codes of q8_0 have 8 bits.  Engines that take the second operand as signed bytes get them as they are, and
 * engines that take it as unsigned get them plus 128.  Other engines use the SIMD128 kernels for q8_0; all engines use
 * them for the types that are not in RELAXED_TYPES.  q8_0 usually gets 16-bit activations (tiles16_relaxed.c).  It gets
 * 8-bit ones only where it shares them with other types (kernels_max_code): then this file multiplies its panels, and
 * the SIMD128 dot multiplies a single token.
 *
 * This file also makes the panels of bytes that tiles16_relaxed.c multiplies.
 */
/* Compiled for speed, and with -mrelaxed-simd. */
#include "kernels/kernels.h"
#include "kernels/simd128.h"

#if defined(HAVE_RELAXED)

#define BYTES_ARE_MULTIPLIED
#include "kernels/tiles_simd128.h"

/* ---- four weights of 8 rows -------------------------------------------------------------------------------------- */

typedef int8_t code;
ALWAYS_INLINE const code *codes_of(const struct activations *a, bool even_odd) {
    (void)even_odd;   /* only q8_0 asks for it, and its dots are in tiles16_relaxed.c */
    return a->bytes;
}
ALWAYS_INLINE code *panel_codes(struct panel *p) { return (code *)p->pairs; }

enum { N_DOT = 2 };

#define DOT(acc, w, x) acc = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w, acc)

ALWAYS_INLINE void dot_4(v128_t dots[N_DOT], tile_codes *codes, const uint8_t *words, uint32_t k,
                         uint32_t j, const code *q) {
    v128_t four = wasm_v128_load32_splat(q);
    DOT(dots[0], codes(words, k, j), four);
    DOT(dots[1], codes(words + 16, k, j), four);
}

ALWAYS_INLINE v128_t total(const v128_t dots[N_DOT], uint32_t half) { return dots[half]; }
ALWAYS_INLINE void in_order(v128_t dots[N_DOT], volatile v128_t sink[2]) {
    IN_ORDER(dots[0], dots[1]);
    (void)sink;
}

/* Does not subtract the bias: first_sum does. */
ALWAYS_INLINE void store_4(code *quads, tile_codes *codes, const uint8_t *words, uint32_t k,
                           uint32_t j, int16_t bias, bool even_odd) {
    (void)bias;
    for (uint32_t half = 0; half < 2; half++, quads += 16, words += 16) {
        v128_t c = codes(words, k, j);
        if (even_odd) c = wasm_i8x16_shuffle(c, c, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
        wasm_v128_store(quads, c);
    }
}

/* Sums begin with -bias * (sum of the activations' codes), because store_4 has not subtracted the bias. */
ALWAYS_INLINE v128_t first_sum(const struct panel *p, const int32_t *isum) {
    return wasm_i32x4_mul(wasm_v128_load32_splat(isum), wasm_i32x4_splat(-p->bias));
}

/* With constants for shifts and offsets, unpacking takes half the time. */
#define BLOCK_LOOP LOOP_UNROLLED
#define GROUP_LOOP LOOP_ROLLED
#include "kernels/panels.h"

/* ---- the types --------------------------------------------------------------------------------------------------- */

#define UNPACK(TYPE, TEMPLATE, NAME)                                                      \
static void NAME##_unpack__relaxed8(struct panel *p, const uint8_t *rows) {               \
    TEMPLATE##_unpack(&NAME, p, rows);                                                    \
    p->in_bytes = true;                                                                   \
    p->largest = largest_code(TYPE);                                                      \
}
#define DOT_OF(TYPE, TEMPLATE, NAME)                                                      \
static void NAME##_dot__relaxed8(float y[TILE_ROWS], const uint8_t *rows, const struct activations *a) { \
    TEMPLATE##_dot(&NAME, y, rows, a);                                                    \
}

RELAXED_TYPES(UNPACK)
RELAXED_TYPES(DOT_OF)
UNPACK(QUANT_Q8_0, block, q8_0)
UNPACK(QUANT_Q8_0, block, q8_0_signed)

/* Returns a lane of the relaxed dot of vectors whose bytes are all x or all w, which the compiler does not know.  It is
 * 4 * x * w if the engine takes w as unsigned and does not overflow. */
static __attribute__((noinline)) int32_t dot__relaxed8(int x, int w) {
    v128_t a = wasm_i8x16_splat((int8_t)x), b = wasm_i8x16_splat((int8_t)w), sum = wasm_i32x4_splat(0);
    IN_REGISTER(a);
    IN_REGISTER(b);
    DOT(sum, b, a);
    return wasm_i32x4_extract_lane(sum, 0);
}

#if defined(EMULATE_RELAXED)
enum emulated_engine emulated_engine;
#endif

/* Tries the products of the largest magnitude, signed and unsigned.  An engine that adds two of them in 16 bits
 * overflows, which shows in the result. */
enum relaxed_bytes kernels_relaxed_bytes(void) {
    int32_t lowest = dot__relaxed8(-128, 128), highest = dot__relaxed8(127, 255);
    if (lowest == 4 * -128 * 128 && highest == 4 * 127 * 255) return RELAXED_BYTES_UNSIGNED;
    return lowest == 4 * -128 * -128 && highest == 4 * 127 * -1 ? RELAXED_BYTES_SIGNED : RELAXED_BYTES_OTHER;
}

static void bytes_dot__relaxed8(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t) {
    panel_dot(y, p, a, t);
}
void bytes_dot_x4__relaxed8(float *y, size_t stride, const struct panel *p, const struct activations *a, uint32_t t) {
    panel_dot_x4(y, stride, p, a, t, p->group);
}

void kernels_fill_relaxed8(struct kernels *k) {
#define FILL_UNPACK(TYPE, TEMPLATE, NAME) k->unpack[TYPE] = NAME##_unpack__relaxed8;
    RELAXED_TYPES(FILL_UNPACK)
    enum relaxed_bytes bytes = kernels_relaxed_bytes();
    if (bytes == RELAXED_BYTES_UNSIGNED) FILL_UNPACK(QUANT_Q8_0, block, q8_0)
    if (bytes == RELAXED_BYTES_SIGNED) FILL_UNPACK(QUANT_Q8_0, block, q8_0_signed)
#define FILL_DOT(TYPE, TEMPLATE, NAME) k->bytes[0].dot[TYPE] = NAME##_dot__relaxed8;
    RELAXED_TYPES(FILL_DOT)
    k->name = "relaxed";
    k->isa = KERNELS_RELAXED;
    k->needs_bytes = true;
    k->bytes[0].panel_dot = bytes_dot__relaxed8;
    k->bytes[0].panel_dot_x4 = bytes_dot_x4__relaxed8;
}

#else
typedef int tiles8_relaxed_is_empty;   /* ISO C wants a declaration in every file */
#endif
