/* The intrinsics of the vector kernels: WebAssembly's SIMD128, or in native builds for x86 with SSE4.1 and for 64-bit
 * ARM, functions with WebAssembly's names that use their instructions.  So the native program runs the kernels that
 * ship, with sanitizers too.
 *
 * HAVE_SIMD128 is defined if the build has one of them.  HAVE_RELAXED is defined if it also has WebAssembly's relaxed
 * dots, and in native test builds for x86 (-DEMULATE_RELAXED), which emulate the dots of each kind of engine.  The
 * names mean what clang's wasm_simd128.h says.  Where x86 differs, a comment says how; the kernels do not depend on
 * it. */
#ifndef PLUMB_KERNELS_SIMD128_H
#define PLUMB_KERNELS_SIMD128_H

/* Pragmas for the loop that follows, which keep it rolled or unroll it completely. */
#if defined(__clang__)
#define LOOP_ROLLED _Pragma("clang loop unroll(disable)")
#define LOOP_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define LOOP_ROLLED _Pragma("GCC unroll 1")
#define LOOP_UNROLLED _Pragma("GCC unroll 16")
#endif

/* Hides the values of two pointers from the compiler.  Offsets from them then stay in the loads, where WebAssembly has
 * a field for them, instead of becoming pointers of their own. */
#define OPAQUE(p, q) __asm__ volatile("" : "+r"(p), "+r"(q))
/* Hides the value of a constant.  It then keeps a register for a whole loop; otherwise V8 computes it again in each
 * iteration, with three instructions. */
#define IN_REGISTER(v) __asm__("" : VECTOR_CONSTRAINT(v))
/* Computes these vectors before anything that follows.  Otherwise LLVM orders the products by the sum they belong to,
 * so that operands shared by several sums live long and are spilled. */
#define IN_ORDER(a, b) __asm__ volatile("" : VECTOR_CONSTRAINT(a), VECTOR_CONSTRAINT(b))

/* As IN_ORDER, for engines that reorder values unless they are stored: the V8 of Node 20 and Cranelift.  Without the
 * stores, Q8_0 decodes a fifth slower there, and prefill is a third slower.  Both engines run modules without relaxed
 * SIMD.  In modules with relaxed SIMD this macro does not store, because later versions of V8 keep the order, and a
 * store can make the loop of panel_dot_x4 half as fast.  tiles_simd128.c is compiled for both kinds of module.  sink: a
 * volatile v128_t[2] on the stack, so that no other thread shares its cache line. */
#if defined(__wasm_relaxed_simd__)
#define IN_ORDER_STORED(sink, a, b)                                                     \
    do {                                                                                  \
        (void)(sink);                                                                   \
        IN_ORDER(a, b);                                                                   \
    } while (0)
#else
#define IN_ORDER_STORED(sink, a, b) ((void)(sink), (sink)[0] = (a), (sink)[1] = (b))
#endif

/* How an engine treats bytes above 127 in the second operand of a relaxed dot, which the specification leaves open: as
 * signed (ARM, AVX-VNNI-INT8), as unsigned (AVX-VNNI), or in another way, such as 16-bit sums that saturate (older x86)
 * or wrap (older ARM). */
enum relaxed_bytes { RELAXED_BYTES_OTHER, RELAXED_BYTES_SIGNED, RELAXED_BYTES_UNSIGNED };
/* Finds out by two dots what this engine does.  Only if HAVE_RELAXED; tiles8_relaxed.c defines it. */
enum relaxed_bytes kernels_relaxed_bytes(void);

#if defined(__wasm_simd128__)

#define VECTOR_CONSTRAINT(v) "+r"(v)
#define HAVE_SIMD128 1
#define SIMD128_NAME "simd128"
#if defined(__wasm_relaxed_simd__)
#define HAVE_RELAXED 1
#endif
#include <wasm_simd128.h>

/* Loads 16 bits from p + each 32-bit lane of `at`, to the low half of that lane; the high half is 0.  base is
 * GATHER_BASE(p): WebAssembly adds it to all lanes at once.  p is a table of static data, whose addresses have 32 bits
 * in 64-bit memories too. */
#define GATHER_BASE(p) wasm_i32x4_splat((int32_t)(uintptr_t)(p))
static inline v128_t gather16(const void *p, v128_t base, v128_t at) {
    uint32_t addresses[4];   /* loads of stored lanes take fewer cycles than extracting them */
    v128_t v = wasm_i32x4_splat(0);
    wasm_v128_store(addresses, wasm_i32x4_add(base, at));
    __asm__ volatile("" : "+m"(addresses));
    v = wasm_v128_load16_lane((const void *)(uintptr_t)addresses[0], v, 0);
    v = wasm_v128_load16_lane((const void *)(uintptr_t)addresses[1], v, 2);
    v = wasm_v128_load16_lane((const void *)(uintptr_t)addresses[2], v, 4);
    (void)p;
    return wasm_v128_load16_lane((const void *)(uintptr_t)addresses[3], v, 6);
}

#elif defined(__SSE4_1__)

#define VECTOR_CONSTRAINT(v) "+x"(v)
#define HAVE_SIMD128 1
#define SIMD128_NAME "sse41"
#include <smmintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m128i v128_t;
typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));
typedef int16_t v8i __attribute__((vector_size(16)));

static inline __m128 as_f32(v128_t v) { return _mm_castsi128_ps(v); }
static inline v128_t of_f32(__m128 v) { return _mm_castps_si128(v); }

/* ---- memory ---- */
static inline v128_t wasm_v128_load(const void *p) { return _mm_loadu_si128(p); }
static inline void wasm_v128_store(void *p, v128_t v) { _mm_storeu_si128(p, v); }
static inline v128_t wasm_v128_load32_splat(const void *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm_set1_epi32(word);
}
static inline v128_t wasm_v128_load64_splat(const void *p) {
    v128_t v = _mm_loadl_epi64(p);
    return _mm_unpacklo_epi64(v, v);
}
#define GATHER_BASE(p) _mm_setzero_si128()
static inline v128_t gather16(const void *p, v128_t base, v128_t at) {
    uint32_t offsets[4], words[4] = { 0 };
    _mm_storeu_si128((v128_t *)offsets, _mm_add_epi32(base, at));
    for (int i = 0; i < 4; i++) memcpy(&words[i], (const char *)p + offsets[i], 2);
    return _mm_loadu_si128((const v128_t *)words);
}
static inline v128_t wasm_i16x8_load8x8(const void *p) { return _mm_cvtepi8_epi16(_mm_loadl_epi64(p)); }
static inline v128_t wasm_u16x8_load8x8(const void *p) { return _mm_cvtepu8_epi16(_mm_loadl_epi64(p)); }
static inline v128_t wasm_i32x4_load16x4(const void *p) { return _mm_cvtepi16_epi32(_mm_loadl_epi64(p)); }

/* ---- lanes ---- */
#define wasm_i8x16_splat(x) _mm_set1_epi8((char)(x))
#define wasm_i16x8_splat(x) _mm_set1_epi16((short)(x))
#define wasm_i32x4_splat(x) _mm_set1_epi32((int)(x))
#define wasm_i32x4_make(a, b, c, d) _mm_setr_epi32(a, b, c, d)
#define wasm_f32x4_splat(x) of_f32(_mm_set1_ps(x))
#define wasm_i32x4_extract_lane(v, i) _mm_extract_epi32(v, i)
#define wasm_f32x4_extract_lane(v, i) (((v4f)(v))[i])
#if defined(__clang__)
#define wasm_i32x4_shuffle(a, b, ...) ((v128_t)__builtin_shufflevector((v4i)(a), (v4i)(b), __VA_ARGS__))
#define wasm_i16x8_shuffle(a, b, ...) ((v128_t)__builtin_shufflevector((v8i)(a), (v8i)(b), __VA_ARGS__))
#else
#define wasm_i32x4_shuffle(a, b, ...) ((v128_t)__builtin_shuffle((v4i)(a), (v4i)(b), (v4i){ __VA_ARGS__ }))
#define wasm_i16x8_shuffle(a, b, ...) ((v128_t)__builtin_shuffle((v8i)(a), (v8i)(b), (v8i){ __VA_ARGS__ }))
#endif
/* Shuffles the bytes of a and ignores b. */
#define wasm_i8x16_shuffle(a, b, ...) ((void)(b), _mm_shuffle_epi8(a, _mm_setr_epi8(__VA_ARGS__)))
/* An index of 16 or more selects byte index % 16, unless its bit 7 is set; then it gives 0. */
static inline v128_t wasm_i8x16_swizzle(v128_t v, v128_t index) { return _mm_shuffle_epi8(v, index); }
static inline v128_t wasm_i32x4_extend_low_i16x8(v128_t v) { return _mm_cvtepi16_epi32(v); }
static inline v128_t wasm_i32x4_extend_high_i16x8(v128_t v) { return _mm_cvtepi16_epi32(_mm_srli_si128(v, 8)); }
static inline v128_t wasm_i16x8_narrow_i32x4(v128_t a, v128_t b) { return _mm_packs_epi32(a, b); }
static inline v128_t wasm_i8x16_narrow_i16x8(v128_t a, v128_t b) { return _mm_packs_epi16(a, b); }

/* ---- bits ---- */
static inline v128_t wasm_v128_and(v128_t a, v128_t b) { return _mm_and_si128(a, b); }
static inline v128_t wasm_v128_or(v128_t a, v128_t b) { return _mm_or_si128(a, b); }
static inline v128_t wasm_v128_xor(v128_t a, v128_t b) { return _mm_xor_si128(a, b); }
static inline v128_t wasm_v128_andnot(v128_t a, v128_t b) { return _mm_andnot_si128(b, a); }
#define wasm_i16x8_shl(v, n) _mm_slli_epi16(v, (int)(n))
#define wasm_i16x8_shr(v, n) _mm_srai_epi16(v, (int)(n))
#define wasm_u16x8_shr(v, n) _mm_srli_epi16(v, (int)(n))
#define wasm_i32x4_shl(v, n) _mm_slli_epi32(v, (int)(n))
#define wasm_i32x4_shr(v, n) _mm_srai_epi32(v, (int)(n))
#define wasm_u32x4_shr(v, n) _mm_srli_epi32(v, (int)(n))

/* ---- integers ---- */
static inline v128_t wasm_i8x16_add(v128_t a, v128_t b) { return _mm_add_epi8(a, b); }
static inline v128_t wasm_i8x16_gt(v128_t a, v128_t b) { return _mm_cmpgt_epi8(a, b); }
static inline v128_t wasm_i8x16_sub(v128_t a, v128_t b) { return _mm_sub_epi8(a, b); }
static inline v128_t wasm_i16x8_add(v128_t a, v128_t b) { return _mm_add_epi16(a, b); }
static inline v128_t wasm_i16x8_sub(v128_t a, v128_t b) { return _mm_sub_epi16(a, b); }
static inline v128_t wasm_i32x4_add(v128_t a, v128_t b) { return _mm_add_epi32(a, b); }
static inline v128_t wasm_i32x4_sub(v128_t a, v128_t b) { return _mm_sub_epi32(a, b); }
static inline v128_t wasm_i32x4_mul(v128_t a, v128_t b) { return _mm_mullo_epi32(a, b); }
static inline v128_t wasm_i8x16_eq(v128_t a, v128_t b) { return _mm_cmpeq_epi8(a, b); }
static inline v128_t wasm_u32x4_max(v128_t a, v128_t b) { return _mm_max_epu32(a, b); }
static inline v128_t wasm_i32x4_dot_i16x8(v128_t a, v128_t b) { return _mm_madd_epi16(a, b); }

#if defined(EMULATE_RELAXED)
#define HAVE_RELAXED 1
/* Engines that add two products in 16 bits, which saturate or wrap, and engines that add four in 32 bits, with the
 * second operand signed or unsigned. */
enum emulated_engine { EMULATED_SATURATES, EMULATED_WRAPS, EMULATED_SIGNED, EMULATED_UNSIGNED };
extern enum emulated_engine emulated_engine;   /* only tests set it; a real engine never changes */
static inline v128_t wasm_i32x4_relaxed_dot_i8x16_i7x16_add(v128_t a, v128_t b, v128_t sum) {
    __m128i one = _mm_set1_epi16(1);
    if (emulated_engine == EMULATED_SATURATES) return _mm_add_epi32(sum, _mm_madd_epi16(_mm_maddubs_epi16(b, a), one));
    __m128i a0 = _mm_cvtepi8_epi16(a), a1 = _mm_cvtepi8_epi16(_mm_srli_si128(a, 8)), high = _mm_srli_si128(b, 8);
    bool sign = emulated_engine != EMULATED_UNSIGNED;
    __m128i b0 = sign ? _mm_cvtepi8_epi16(b) : _mm_cvtepu8_epi16(b);
    __m128i b1 = sign ? _mm_cvtepi8_epi16(high) : _mm_cvtepu8_epi16(high);
    if (emulated_engine == EMULATED_WRAPS) {
        __m128i pairs = _mm_hadd_epi16(_mm_mullo_epi16(a0, b0), _mm_mullo_epi16(a1, b1));
        return _mm_add_epi32(sum, _mm_madd_epi16(pairs, one));
    }
    return _mm_add_epi32(sum, _mm_hadd_epi32(_mm_madd_epi16(a0, b0), _mm_madd_epi16(a1, b1)));
}
static inline v128_t wasm_i16x8_relaxed_dot_i8x16_i7x16(v128_t a, v128_t b) {
    if (emulated_engine == EMULATED_SATURATES || emulated_engine == EMULATED_UNSIGNED) return _mm_maddubs_epi16(b, a);
    __m128i high_a = _mm_cvtepi8_epi16(_mm_srli_si128(a, 8)), high_b = _mm_cvtepi8_epi16(_mm_srli_si128(b, 8));
    return _mm_hadd_epi16(_mm_mullo_epi16(_mm_cvtepi8_epi16(a), _mm_cvtepi8_epi16(b)), _mm_mullo_epi16(high_a, high_b));
}
#endif

/* ---- floats ---- */
static inline v128_t wasm_f32x4_add(v128_t a, v128_t b) { return of_f32(_mm_add_ps(as_f32(a), as_f32(b))); }
static inline v128_t wasm_f32x4_sub(v128_t a, v128_t b) { return of_f32(_mm_sub_ps(as_f32(a), as_f32(b))); }
static inline v128_t wasm_f32x4_mul(v128_t a, v128_t b) { return of_f32(_mm_mul_ps(as_f32(a), as_f32(b))); }
static inline v128_t wasm_f32x4_div(v128_t a, v128_t b) { return of_f32(_mm_div_ps(as_f32(a), as_f32(b))); }
static inline v128_t wasm_f32x4_neg(v128_t a) { return _mm_xor_si128(a, _mm_set1_epi32(INT32_MIN)); }
static inline v128_t wasm_f32x4_lt(v128_t a, v128_t b) { return of_f32(_mm_cmplt_ps(as_f32(a), as_f32(b))); }
static inline v128_t wasm_f32x4_pmax(v128_t a, v128_t b) { return of_f32(_mm_max_ps(as_f32(b), as_f32(a))); }
static inline v128_t wasm_f32x4_pmin(v128_t a, v128_t b) { return of_f32(_mm_min_ps(as_f32(b), as_f32(a))); }
static inline v128_t wasm_f32x4_nearest(v128_t a) {
    return of_f32(_mm_round_ps(as_f32(a), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline v128_t wasm_f32x4_convert_i32x4(v128_t a) { return of_f32(_mm_cvtepi32_ps(a)); }
/* Returns INT32_MIN for NaN and for values that do not fit in an i32. */
static inline v128_t wasm_i32x4_trunc_sat_f32x4(v128_t a) { return _mm_cvttps_epi32(as_f32(a)); }

#elif defined(__ARM_NEON) && defined(__aarch64__) && defined(__clang__)

#define VECTOR_CONSTRAINT(v) "+w"(v)
#define HAVE_SIMD128 1
#define SIMD128_NAME "neon"
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

typedef int32x4_t v128_t;

static inline float32x4_t as_f32(v128_t v) { return vreinterpretq_f32_s32(v); }
static inline uint32x4_t as_u32(v128_t v) { return vreinterpretq_u32_s32(v); }
static inline int16x8_t as_i16(v128_t v) { return vreinterpretq_s16_s32(v); }
static inline uint16x8_t as_u16(v128_t v) { return vreinterpretq_u16_s32(v); }
static inline int8x16_t as_i8(v128_t v) { return vreinterpretq_s8_s32(v); }
static inline uint8x16_t as_u8(v128_t v) { return vreinterpretq_u8_s32(v); }
static inline v128_t of_f32(float32x4_t v) { return vreinterpretq_s32_f32(v); }
static inline v128_t of_u32(uint32x4_t v) { return vreinterpretq_s32_u32(v); }
static inline v128_t of_i16(int16x8_t v) { return vreinterpretq_s32_s16(v); }
static inline v128_t of_u16(uint16x8_t v) { return vreinterpretq_s32_u16(v); }
static inline v128_t of_i8(int8x16_t v) { return vreinterpretq_s32_s8(v); }
static inline v128_t of_u8(uint8x16_t v) { return vreinterpretq_s32_u8(v); }

/* ---- memory ---- */
static inline v128_t wasm_v128_load(const void *p) { return of_u8(vld1q_u8(p)); }
static inline void wasm_v128_store(void *p, v128_t v) { vst1q_u8(p, as_u8(v)); }
static inline v128_t wasm_v128_load32_splat(const void *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return vdupq_n_s32(word);
}
static inline v128_t wasm_v128_load64_splat(const void *p) {
    const uint8x8_t v = vld1_u8(p);
    return of_u8(vcombine_u8(v, v));
}
#define GATHER_BASE(p) vdupq_n_s32(0)
static inline v128_t gather16(const void *p, v128_t base, v128_t at) {
    uint32_t offsets[4], words[4] = { 0 };
    vst1q_u32(offsets, as_u32(vaddq_s32(base, at)));
    for (int i = 0; i < 4; i++) memcpy(&words[i], (const char *)p + offsets[i], 2);
    return of_u32(vld1q_u32(words));
}
static inline v128_t wasm_i16x8_load8x8(const void *p) { return of_i16(vmovl_s8(vld1_s8(p))); }
static inline v128_t wasm_u16x8_load8x8(const void *p) { return of_u16(vmovl_u8(vld1_u8(p))); }
static inline v128_t wasm_i32x4_load16x4(const void *p) { return vmovl_s16(vreinterpret_s16_u8(vld1_u8(p))); }

/* ---- lanes ---- */
#define wasm_i8x16_splat(x) of_i8(vdupq_n_s8((int8_t)(x)))
#define wasm_i16x8_splat(x) of_i16(vdupq_n_s16((int16_t)(x)))
#define wasm_i32x4_splat(x) vdupq_n_s32((int32_t)(x))
#define wasm_i32x4_make(a, b, c, d) ((v128_t){ a, b, c, d })
#define wasm_f32x4_splat(x) of_f32(vdupq_n_f32(x))
#define wasm_i32x4_extract_lane(v, i) vgetq_lane_s32(v, i)
#define wasm_f32x4_extract_lane(v, i) vgetq_lane_f32(as_f32(v), i)
#define wasm_i32x4_shuffle(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define wasm_i16x8_shuffle(a, b, ...) of_i16(__builtin_shufflevector(as_i16(a), as_i16(b), __VA_ARGS__))
#define wasm_i8x16_shuffle(a, b, ...) of_i8(__builtin_shufflevector(as_i8(a), as_i8(b), __VA_ARGS__))
static inline v128_t wasm_i8x16_swizzle(v128_t v, v128_t index) { return of_u8(vqtbl1q_u8(as_u8(v), as_u8(index))); }
static inline v128_t wasm_i32x4_extend_low_i16x8(v128_t v) { return vmovl_s16(vget_low_s16(as_i16(v))); }
static inline v128_t wasm_i32x4_extend_high_i16x8(v128_t v) { return vmovl_high_s16(as_i16(v)); }
static inline v128_t wasm_i16x8_narrow_i32x4(v128_t a, v128_t b) { return of_i16(vqmovn_high_s32(vqmovn_s32(a), b)); }
static inline v128_t wasm_i8x16_narrow_i16x8(v128_t a, v128_t b) {
    return of_i8(vqmovn_high_s16(vqmovn_s16(as_i16(a)), as_i16(b)));
}

/* ---- bits ---- */
static inline v128_t wasm_v128_and(v128_t a, v128_t b) { return vandq_s32(a, b); }
static inline v128_t wasm_v128_or(v128_t a, v128_t b) { return vorrq_s32(a, b); }
static inline v128_t wasm_v128_xor(v128_t a, v128_t b) { return veorq_s32(a, b); }
static inline v128_t wasm_v128_andnot(v128_t a, v128_t b) { return vbicq_s32(a, b); }
#define wasm_i16x8_shl(v, n) of_i16(vshlq_s16(as_i16(v), vdupq_n_s16((int16_t)(n))))
#define wasm_i16x8_shr(v, n) of_i16(vshlq_s16(as_i16(v), vdupq_n_s16((int16_t)-(int)(n))))
#define wasm_u16x8_shr(v, n) of_u16(vshlq_u16(as_u16(v), vdupq_n_s16((int16_t)-(int)(n))))
#define wasm_i32x4_shl(v, n) vshlq_s32(v, vdupq_n_s32((int)(n)))
#define wasm_i32x4_shr(v, n) vshlq_s32(v, vdupq_n_s32(-(int)(n)))
#define wasm_u32x4_shr(v, n) of_u32(vshlq_u32(as_u32(v), vdupq_n_s32(-(int)(n))))

/* ---- integers ---- */
static inline v128_t wasm_i8x16_add(v128_t a, v128_t b) { return of_i8(vaddq_s8(as_i8(a), as_i8(b))); }
static inline v128_t wasm_i8x16_gt(v128_t a, v128_t b) { return of_u8(vcgtq_s8(as_i8(a), as_i8(b))); }
static inline v128_t wasm_i8x16_sub(v128_t a, v128_t b) { return of_i8(vsubq_s8(as_i8(a), as_i8(b))); }
static inline v128_t wasm_i16x8_sub(v128_t a, v128_t b) { return of_i16(vsubq_s16(as_i16(a), as_i16(b))); }
static inline v128_t wasm_i32x4_add(v128_t a, v128_t b) { return vaddq_s32(a, b); }
static inline v128_t wasm_i32x4_sub(v128_t a, v128_t b) { return vsubq_s32(a, b); }
static inline v128_t wasm_i32x4_mul(v128_t a, v128_t b) { return vmulq_s32(a, b); }
static inline v128_t wasm_i8x16_eq(v128_t a, v128_t b) { return of_u8(vceqq_s8(as_i8(a), as_i8(b))); }
static inline v128_t wasm_u32x4_max(v128_t a, v128_t b) { return of_u32(vmaxq_u32(as_u32(a), as_u32(b))); }
static inline v128_t wasm_i32x4_dot_i16x8(v128_t a, v128_t b) {
    const int16x8_t x = as_i16(a), y = as_i16(b);
    return vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}

/* ---- floats ---- */
static inline v128_t wasm_f32x4_add(v128_t a, v128_t b) { return of_f32(vaddq_f32(as_f32(a), as_f32(b))); }
static inline v128_t wasm_f32x4_sub(v128_t a, v128_t b) { return of_f32(vsubq_f32(as_f32(a), as_f32(b))); }
static inline v128_t wasm_f32x4_mul(v128_t a, v128_t b) { return of_f32(vmulq_f32(as_f32(a), as_f32(b))); }
static inline v128_t wasm_f32x4_div(v128_t a, v128_t b) { return of_f32(vdivq_f32(as_f32(a), as_f32(b))); }
static inline v128_t wasm_f32x4_neg(v128_t a) { return of_f32(vnegq_f32(as_f32(a))); }
static inline v128_t wasm_f32x4_lt(v128_t a, v128_t b) { return of_u32(vcltq_f32(as_f32(a), as_f32(b))); }
static inline v128_t wasm_f32x4_pmax(v128_t a, v128_t b) { return vbslq_s32(vcltq_f32(as_f32(a), as_f32(b)), b, a); }
static inline v128_t wasm_f32x4_pmin(v128_t a, v128_t b) { return vbslq_s32(vcltq_f32(as_f32(b), as_f32(a)), b, a); }
static inline v128_t wasm_f32x4_nearest(v128_t a) { return of_f32(vrndnq_f32(as_f32(a))); }
static inline v128_t wasm_f32x4_convert_i32x4(v128_t a) { return of_f32(vcvtq_f32_s32(a)); }
static inline v128_t wasm_i32x4_trunc_sat_f32x4(v128_t a) { return vcvtq_s32_f32(as_f32(a)); }

#endif

#endif
