/* What every room shares: statuses with one message, checked sizes, little-endian loads, f16.
 *
 * Untrusted bytes never abort: a function that reads them returns a plumb_status and, on failure, puts one sentence
 * with place and numbers into the struct error that it was given.
 */
#ifndef PLUMB_BASE_H
#define PLUMB_BASE_H

#include "plumb.h"

#include <string.h>

/* Lets compilers check the format, argument `at`, and those from `args` on, as they do for printf. */
#if defined(__GNUC__)
#define PRINTF_LIKE(at, args) __attribute__((format(printf, at, args)))
#else
#define PRINTF_LIKE(at, args)
#endif

/* The last failure of an object, and its message. */
struct error {
    plumb_status status;
    char message[1792];   /* all names of taps fit */
};

/* Sets the status and the message, and returns status.  The message is formatted as by printf and cut to fit; bytes
 * of characters that are not plain (plumb_is_plain), and those of no character, become "?". */
PRINTF_LIKE(3, 4) plumb_status error_set(struct error *err, plumb_status status, const char *format, ...);

/* Makes n bytes of a name or string from a file safe for a message: shows at most 64 of them, and "..." if there are
 * more; control and non-ASCII bytes become \xNN.  Returns buf->text. */
struct shown { char text[272]; };
const char *show_bytes(struct shown *buf, const void *bytes, size_t n);

/* Seconds since an arbitrary moment, for measuring how long something takes. */
double clock_seconds(void);

#define PLUMB_TRY(expr)                          \
    do {                                         \
        plumb_status try_status_ = (expr);       \
        if (try_status_ != PLUMB_OK) return try_status_; \
    } while (0)

/* Products and sums of sizes from files.  Return false if the result does not fit. */
static inline bool mul_u64(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool add_u64(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_add_overflow(a, b, out); }
/* malloc(n * size), to be released by free().  NULL if out of memory, or if n * size overflows size_t, which has 32
 * bits in wasm. */
void *alloc_array(uint64_t n, size_t size);
/* Makes room for one more element in an array of n elements, allocated for *cap of them: a full array moves, and *cap
 * becomes 2 * *cap + 4.  If out of memory, returns false and leaves the array as it is. */
#define ARRAY_GROW(array, n, cap) ((n) < *(cap) || alloc_grow(&(array), n, cap, sizeof *(array)))
bool alloc_grow(void *array, size_t n, size_t *cap, size_t size);   /* array: where the pointer to it is */
/* The same for `more` elements; *cap becomes 2 * *cap + more + 64. */
#define ARRAY_RESERVE(array, n, more, cap) \
    ((more) <= *(cap) - (n) || alloc_reserve(&(array), n, more, cap, sizeof *(array)))
bool alloc_reserve(void *array, size_t n, uint64_t more, size_t *cap, size_t size);
/* Makes an array one of n elements. */
#define ARRAY_RESIZE(array, n) alloc_resize(&(array), n, sizeof *(array))
bool alloc_resize(void *array, uint64_t n, size_t size);

/* Ascending order, for qsort. */
int compare_u32(const void *a, const void *b);
int compare_u64(const void *a, const void *b);
int compare_f64(const void *a, const void *b);

/* The value of a digit, or of a letter in a base above 10; 36 for any other character. */
static inline uint32_t digit_value(char c) {
    if (c >= '0' && c <= '9') return (uint32_t)(c - '0');
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'z' ? (uint32_t)(c - 'a') + 10 : 36;
}

/* Little-endian loads from any alignment. */
static inline uint16_t load_u16(const void *p) { const uint8_t *b = p; return (uint16_t)(b[0] | b[1] << 8); }
static inline uint32_t load_u32(const void *p) {
    const uint8_t *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}
static inline uint64_t load_u64(const void *p) {
    return (uint64_t)load_u32(p) | (uint64_t)load_u32((const uint8_t *)p + 4) << 32;
}
static inline float f32_from_bits(uint32_t bits) { float f; memcpy(&f, &bits, 4); return f; }
static inline uint32_t f32_to_bits(float f) { uint32_t bits; memcpy(&bits, &f, 4); return bits; }

/* IEEE half to single.  Exact, for subnormals, infinities and NaN payloads too. */
static inline float f32_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = h >> 10 & 0x1fu, mantissa = h & 0x3ffu;
    if (exponent == 31) return f32_from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0) return f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * 0x1p-24f;   /* subnormal: mantissa * 2^-24, exact in f32 */
    return f32_from_bits(sign | f32_to_bits(magnitude));
}
/* Single to IEEE half, rounded to the nearest, of two to the even one.  NaN becomes 0x7e00. */
static inline uint16_t f16_from_f32(float x) {
    uint32_t bits = f32_to_bits(x), magnitude = bits & 0x7fffffffu, h;
    if (magnitude > 0x7f800000u) return 0x7e00;
    if (magnitude >= 0x477ff000u) h = 0x7c00;   /* 65520 and more */
    else if (magnitude < 0x38800000u) {         /* subnormal: adding 0.5 moves 2^-24 to the last bit */
        h = f32_to_bits(f32_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    } else h = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    return (uint16_t)(bits >> 16 & 0x8000u) | (uint16_t)h;
}
/* bfloat16 is the upper half of a single. */
static inline float f32_from_bf16(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }

#endif
