#include "dump/inflate.h"

enum { MAX_BITS = 15, N_LITERAL = 288, N_DISTANCE = 32, N_LENGTH_CODE = 19, END_OF_BLOCK = 256 };

/* ---- input: bits, lowest bit of a byte first --------------------------------------------------------------------- */

struct input {
    const uint8_t *next, *end;
    uint32_t held;          /* bits that were read but not taken; the lowest is the next */
    unsigned n_held;
    bool over;              /* more bits were asked for than there are; take_bits returned 0 */
};

static uint32_t take_bits(struct input *in, unsigned n) {   /* n <= 16 */
    while (in->n_held < n) {
        if (in->next == in->end) {
            in->over = true;
            return 0;
        }
        in->held |= (uint32_t)*in->next++ << in->n_held;
        in->n_held += 8;
    }
    uint32_t bits = in->held & ((1u << n) - 1);
    in->held >>= n;
    in->n_held -= n;
    return bits;
}

/* ---- canonical prefix codes: ordered by length, those of one length by symbol ------------------------------------ */

struct code {
    uint16_t n_of[MAX_BITS + 1];    /* number of codes of each length */
    uint16_t symbols[N_LITERAL];    /* symbols in the order of their codes */
};

/* Builds the code from the length of each of n symbols, 0 for an unused one.  Returns false if the lengths are
 * over-subscribed or incomplete.  Two incomplete codes are allowed: a single code of one bit (RFC 1951, 3.2.7: a single
 * distance code is one bit), and none at all. */
static bool make_code(struct code *code, const uint8_t *lengths, uint32_t n) {
    uint16_t at[MAX_BITS + 2] = {0};
    memset(code->n_of, 0, sizeof code->n_of);
    for (uint32_t i = 0; i < n; i++) code->n_of[lengths[i]]++;
    uint32_t n_used = n - code->n_of[0];
    code->n_of[0] = 0;
    int32_t left = 1;   /* codes of this length that are not used */
    for (unsigned bits = 1; bits <= MAX_BITS; bits++) {
        left = 2 * left - code->n_of[bits];
        if (left < 0) return false;
        at[bits + 1] = (uint16_t)(at[bits] + code->n_of[bits]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (lengths[i] != 0) code->symbols[at[lengths[i]]++] = (uint16_t)i;
    return left == 0 || n_used == 0 || (n_used == 1 && code->n_of[1] == 1);
}

/* Returns the next symbol; -1 if the bits are no code or the input ends. */
static int32_t take_symbol(struct input *in, const struct code *code) {
    uint32_t bits = 0, first = 0, index = 0;   /* first: first code of this length; index: where its symbol is */
    for (unsigned n = 1; n <= MAX_BITS; n++) {
        bits = bits << 1 | take_bits(in, 1);
        if (in->over) return -1;
        if (bits - first < code->n_of[n]) return code->symbols[index + bits - first];
        index += code->n_of[n];
        first = (first + code->n_of[n]) << 1;
    }
    return -1;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

struct output { uint8_t *data; size_t n, cap; };

static const char *const ENDS = "the stream ends too early", *const LONGER = "the data is longer than its stated size";

static const char *stored_block(struct input *in, struct output *out) {
    in->held >>= in->n_held % 8;
    in->n_held -= in->n_held % 8;
    uint32_t n = take_bits(in, 16), check = take_bits(in, 16);
    if (in->over) return ENDS;
    if (check != (n ^ 0xffffu)) return "the length of a stored block contradicts itself";
    /* in->held is empty here: the 32 bits began at a byte boundary, and take_bits reads no more bytes than it needs. */
    if (n > (size_t)(in->end - in->next)) return ENDS;
    if (n > out->cap - out->n) return LONGER;
    if (n > 0) memcpy(out->data + out->n, in->next, n);
    in->next += n;
    out->n += n;
    return NULL;
}

static const char *coded_block(struct input *in, struct output *out, const struct code *literals,
                               const struct code *distances) {
    static const uint16_t length_base[29] = {3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59,
                                             67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t length_bits[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,
                                            4, 4, 4, 4, 5, 5, 5, 5, 0};
    for (;;) {
        int32_t symbol = take_symbol(in, literals);
        if (symbol == END_OF_BLOCK) return NULL;
        if (in->over) return ENDS;
        if (symbol < 0 || symbol > 285) return "a code stands for neither a byte nor a length";
        if (symbol < END_OF_BLOCK) {
            if (out->n == out->cap) return LONGER;
            out->data[out->n++] = (uint8_t)symbol;
            continue;
        }
        size_t length = length_base[symbol - 257] + take_bits(in, length_bits[symbol - 257]);
        int32_t d = take_symbol(in, distances);
        if (!in->over && (d < 0 || d > 29)) return "a code does not stand for a distance";
        /* Codes 0 to 3 are the distances 1 to 4.  From there on, two codes each have the same number of extra bits. */
        unsigned extra = d < 4 ? 0 : (unsigned)d / 2 - 1;
        size_t distance = 1 + (d < 4 ? (size_t)d : (size_t)(2 + d % 2) << extra) + take_bits(in, extra);
        if (in->over) return ENDS;
        if (distance > out->n) return "a distance goes back before the first byte";
        if (length > out->cap - out->n) return LONGER;
        /* Byte by byte, since a distance below the length repeats bytes that this loop writes. */
        for (size_t i = 0; i < length; i++, out->n++) out->data[out->n] = out->data[out->n - distance];
    }
}

static const char *fixed_block(struct input *in, struct output *out) {
    struct code literals, distances;
    uint8_t lengths[N_LITERAL];
    for (int i = 0; i < N_LITERAL; i++) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    make_code(&literals, lengths, N_LITERAL);
    memset(lengths, 5, N_DISTANCE);
    make_code(&distances, lengths, N_DISTANCE);
    return coded_block(in, out, &literals, &distances);
}

static const char *dynamic_block(struct input *in, struct output *out) {
    static const uint8_t order[N_LENGTH_CODE] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    static const char *const WRONG = "the code lengths do not form a prefix code";
    uint32_t n_literal = 257 + take_bits(in, 5), n_distance = 1 + take_bits(in, 5), n_length = 4 + take_bits(in, 4);
    if (n_literal > 286 || n_distance > 30) return "there are more codes than symbols";
    uint8_t lengths[286 + 30] = {0};
    struct code code, distances;
    for (uint32_t i = 0; i < n_length; i++) lengths[order[i]] = (uint8_t)take_bits(in, 3);
    if (in->over) return ENDS;
    if (!make_code(&code, lengths, N_LENGTH_CODE)) return WRONG;
    memset(lengths, 0, sizeof lengths);
    for (uint32_t i = 0, n = n_literal + n_distance; i < n;) {
        int32_t symbol = take_symbol(in, &code);
        if (!in->over && symbol < 0) return WRONG;
        uint8_t value = symbol < 16 ? (uint8_t)symbol : 0;
        uint32_t repeat = symbol == 16 ? 3 + take_bits(in, 2) : symbol == 17 ? 3 + take_bits(in, 3) :
                          symbol == 18 ? 11 + take_bits(in, 7) : 1;
        if (in->over) return ENDS;
        if ((symbol == 16 && i == 0) || repeat > n - i) return WRONG;
        if (symbol == 16) value = lengths[i - 1];
        while (repeat-- > 0) lengths[i++] = value;
    }
    if (lengths[END_OF_BLOCK] == 0) return "a block has no code for its end";
    if (!make_code(&code, lengths, n_literal) || !make_code(&distances, lengths + n_literal, n_distance)) return WRONG;
    return coded_block(in, out, &code, &distances);
}

bool inflate_bytes(const void *src, size_t n_src, void *dst, size_t n_dst, const char **why) {
    struct input in = {.next = src, .end = (const uint8_t *)src + n_src};
    struct output out = {.data = dst, .cap = n_dst};
    for (bool last = false; !last;) {
        last = take_bits(&in, 1) != 0;
        uint32_t type = take_bits(&in, 2);
        *why = in.over ? ENDS : type == 0 ? stored_block(&in, &out) : type == 1 ? fixed_block(&in, &out) :
               type == 2 ? dynamic_block(&in, &out) : "a block has an unknown type";
        if (*why) return false;
    }
    if (out.n < n_dst) *why = "the data is shorter than its stated size";
    return out.n == n_dst;
}
