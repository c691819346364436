/* Compares the tensors of two files: quantization error is not a difference, and each common mistake of a converter or
 * a dequantizer is named.  The expected errors of good files are those of gguf-py on files of llama-quantize. */
#include "api/model.h"
#include "broken.h"
#include "fixture.h"
#include "model/plan.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SYNTH "tests/vectors/synth/"
#define WEIGHTS "tests/vectors/weights/"

static bool compare(plumb_model *a, plumb_model *b, plumb_format format, struct capture *told) {
    bool agree = false;
    plumb_report report = { .format = format, .write = capture_write, .user = told };
    CHECK(a && b && plumb_weights(a, b, &report, &agree) == PLUMB_OK, "%s", a ? plumb_model_error(a) : "no model");
    return agree && told->text;
}

/* ---- quantization ------------------------------------------------------------------------------------------------ */

/* Relative RMS errors by numpy and gguf-py: see tests/vectors/README.md. */
static const struct same {
    const char *name, *a, *b, *tensor;
    double error;
} sames[] = {
    { "Q4_0", WEIGHTS "f32-q4_0.gguf", SYNTH "f32.gguf", "blk.0.attn_k.weight", 0.09293 },
    { "Q8_0", WEIGHTS "f32-q8_0.gguf", SYNTH "f32.gguf", "blk.1.attn_v.weight", 0.005698 },
    { "F16", SYNTH "f16.gguf", SYNTH "f32.gguf", "blk.1.attn_v.weight", 0.0002228 },
    { "BF16", SYNTH "bf16.gguf", SYNTH "f32.gguf", "blk.1.ffn_down.weight", 0.001803 },
    { "Q4_K_M made of Q6_K", WEIGHTS "q6_k-q4_k_m.gguf", SYNTH "q6_k.gguf", "blk.0.ffn_up.weight", 0.06472 },
};

static void same_row(const void *row) {
    const struct same *s = row;
    struct broken a = { 0 }, b = { 0 };
    struct capture told = { 0 };
    if (broken_read(&a, s->a) && broken_read(&b, s->b)) {
        CHECK(compare(a.good, b.good, PLUMB_FORMAT_JSON, &told), "%s", told.text);
        double error = capture_number(&told, s->tensor, "error");
        CHECK(fabs(error / s->error - 1) < 1e-3, "%s: %g, gguf-py has %g", s->tensor, error, s->error);
    }
    capture_free(&told);
    broken_free(&a);
    broken_free(&b);
}

/* Any two files of one model agree, whichever is taken as the truth. */
static void all_pairs_case(void) {
    static const char *const files[] = { SYNTH "f32.gguf", SYNTH "f16.gguf", SYNTH "bf16.gguf", WEIGHTS "f32-q4_0.gguf",
                                         WEIGHTS "f32-q8_0.gguf" };
    for (size_t i = 0; i < 25; i++) {
        struct broken a = { 0 }, b = { 0 };
        struct capture told = { 0 };
        if (broken_read(&a, files[i / 5]) && broken_read(&b, files[i % 5])) {
            CHECK(compare(a.good, b.good, PLUMB_FORMAT_TEXT, &told), "%s against %s: %s", files[i / 5], files[i % 5],
                  told.text);
        }
        capture_free(&told);
        broken_free(&a);
        broken_free(&b);
    }
}

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */

/* Shapes in synth/f32.gguf: n_embd 32, 4 heads of 8, 2 key heads. */
enum { N_EMBD = 32, N_Q = 32, N_KV = 16, HEAD_DIM = 8 };

static void scaled(struct broken *b) { broken_scale(b, "blk.1.ffn_up.weight", 2, 0); }
static void negated(struct broken *b) { broken_scale(b, "blk.1.ffn_up.weight", -1, 0); }
static void scaled_little(struct broken *b) { broken_scale(b, "blk.1.ffn_up.weight", 1.06f, 0); }
static void offset(struct broken *b) { broken_scale(b, "blk.0.attn_v.weight", 1, 0.25f); }
static void norm_less_one(struct broken *b) { broken_scale(b, "blk.0.ffn_norm.weight", 1, -1); }
static void zeros(struct broken *b) { broken_scale(b, "output_norm.weight", 0, 0); }

/* Row (h, s, i) of Hugging Face's order is row (h, i, s) of GGUF's: llama.cpp, conversion/llama.py, permute. */
static void permute(struct broken *b, const char *name, uint32_t n_row, bool to_gguf) {
    static uint8_t copy[N_Q * N_EMBD * 4];
    uint8_t *data = broken_data(b, name, NULL);
    if (!data) return;
    memcpy(copy, data, (size_t)n_row * N_EMBD * 4);
    for (uint32_t h = 0; h < n_row / HEAD_DIM; h++) {
        for (uint32_t i = 0; i < HEAD_DIM / 2; i++) {
            for (uint32_t s = 0; s < 2; s++) {
                uint32_t theirs = h * HEAD_DIM + s * HEAD_DIM / 2 + i, gguf = h * HEAD_DIM + 2 * i + s;
                uint32_t to = to_gguf ? gguf : theirs, from = to_gguf ? theirs : gguf;
                memcpy(data + (size_t)to * N_EMBD * 4, copy + (size_t)from * N_EMBD * 4, N_EMBD * 4);
            }
        }
    }
}
static void q_unpermuted(struct broken *b) { permute(b, "blk.0.attn_q.weight", N_Q, false); }
static void k_unpermuted(struct broken *b) { permute(b, "blk.1.attn_k.weight", N_KV, false); }
static void q_permuted_twice(struct broken *b) { permute(b, "blk.0.attn_q.weight", N_Q, true); }

static void transpose(struct broken *b, const char *name, uint32_t n_row) {
    static float copy[N_Q * N_EMBD];
    uint8_t *data = broken_data(b, name, NULL);
    for (size_t i = 0; data && i < n_row * N_EMBD; i++) copy[i] = broken_f32(data, i);
    for (size_t i = 0; data && i < n_row * N_EMBD; i++) broken_set_f32(data, i, copy[i % n_row * N_EMBD + i / n_row]);
}
static void square_transposed(struct broken *b) { transpose(b, "blk.0.attn_output.weight", N_Q); }
static void transposed(struct broken *b) {
    transpose(b, "blk.0.attn_v.weight", N_KV);
    broken_reverse_shape(b, "blk.0.attn_v.weight");
}
static void reversed(struct broken *b) { broken_reverse_shape(b, "blk.0.attn_v.weight"); }

static void gate_for_up(struct broken *b) {
    size_t n = 0;
    uint8_t *gate = broken_data(b, "blk.0.ffn_gate.weight", &n), *up = broken_data(b, "blk.0.ffn_up.weight", NULL);
    for (size_t i = 0; gate && up && i < n; i++) {
        uint8_t byte = gate[i];
        gate[i] = up[i];
        up[i] = byte;
    }
}

/* Exchanges the halves of every 32 values: the effect of swapped nibbles in Q4_0, applied to F32. */
static void halves_swapped(struct broken *b) {
    size_t n = 0;
    uint8_t *data = broken_data(b, "blk.0.ffn_down.weight", &n);
    for (size_t i = 0; data && i < n / 4; i++) {
        float value = broken_f32(data, i);
        if (i % 32 >= 16) continue;
        broken_set_f32(data, i, broken_f32(data, i + 16));
        broken_set_f32(data, i + 16, value);
    }
}

/* Block of Q4_0: f16, 16 bytes of nibbles. */
static void nibbles_swapped(struct broken *b) {
    size_t n = 0;
    uint8_t *data = broken_data(b, "blk.0.ffn_down.weight", &n);
    for (size_t i = 0; data && i < n; i++) {
        if (i % 18 >= 2) data[i] = (uint8_t)(data[i] << 4 | data[i] >> 4);
    }
}

/* Block of Q3_K: 32 bytes of high bits, 78 others. */
static void high_inverted(struct broken *b) {
    size_t n = 0;
    uint8_t *data = broken_data(b, "blk.0.attn_q.weight", &n);
    for (size_t i = 0; data && i < n; i++) {
        if (i % 110 < 32) data[i] = (uint8_t)~data[i];
    }
}

static void noise(struct broken *b) {
    size_t n = 0;
    uint8_t *data = broken_data(b, "blk.0.attn_q.weight", &n);
    for (size_t i = 0; data && i < n / 4; i++) broken_set_f32(data, i, (float)(i * 7919 % 1009) / 1009 - 0.5f);
}

/* Reverses the bytes of each value. */
static void bytes_reversed(struct broken *b) {
    size_t n = 0;
    uint8_t *data = broken_data(b, "blk.1.attn_q.weight", &n);
    for (size_t i = 0; data && i + 4 <= n; i += 4) {
        uint8_t bytes[4] = { data[i + 3], data[i + 2], data[i + 1], data[i] };
        memcpy(data + i, bytes, 4);
    }
}
/* Reads Q4_0 as IQ4_NL, whose codes stand for the values of a table (llama.cpp, kvalues_iq4nl). */
static void q4_0_as_iq4_nl(struct broken *b) {
    static const int8_t table[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
    struct broken source = { 0 };
    uint8_t *to = broken_data(b, "blk.1.ffn_up.weight", NULL);
    size_t n = 0;
    const uint8_t *from = broken_read(&source, WEIGHTS "f32-q4_0.gguf")
                        ? broken_data(&source, "blk.1.ffn_up.weight", &n) : NULL;
    for (size_t i = 0; to && from && i < n / 18 * 32; i++) {
        const uint8_t *block = from + i / 32 * 18;
        uint8_t code = block[2 + i % 16] >> (i % 32 < 16 ? 0 : 4) & 15;
        broken_set_f32(to, i, f32_from_f16(load_u16(block)) * (float)table[code]);
    }
    broken_free(&source);
}
/* Row i becomes what row from[i] was. */
static void order_rows(struct broken *b, const char *name, uint32_t n_row, uint32_t (*from)(uint32_t i, uint32_t n)) {
    static uint8_t copy[N_Q * N_EMBD * 4];
    uint8_t *data = broken_data(b, name, NULL);
    if (!data) return;
    memcpy(copy, data, (size_t)n_row * N_EMBD * 4);
    for (uint32_t i = 0; i < n_row; i++) {
        memcpy(data + (size_t)i * N_EMBD * 4, copy + (size_t)from(i, n_row) * N_EMBD * 4, N_EMBD * 4);
    }
}
static uint32_t reversed_row(uint32_t i, uint32_t n) { return n - 1 - i; }
static uint32_t turned_row(uint32_t i, uint32_t n) { return (i + 3) % n; }
static uint32_t mixed_row(uint32_t i, uint32_t n) { return (5 * i + 1) % n; }
static void rows_reversed(struct broken *b) { order_rows(b, "blk.0.attn_v.weight", N_KV, reversed_row); }
static void rows_turned(struct broken *b) { order_rows(b, "blk.0.attn_v.weight", N_KV, turned_row); }
static void rows_mixed(struct broken *b) { order_rows(b, "blk.0.attn_v.weight", N_KV, mixed_row); }
static void values_transposed(struct broken *b) { transpose(b, "blk.0.attn_v.weight", N_KV); }

static void nan_value(struct broken *b) {
    uint8_t *data = broken_data(b, "blk.1.attn_q.weight", NULL);
    if (data) broken_set_f32(data, 77, NAN);
}
static void renamed(struct broken *b) { broken_rename(b, "blk.1.attn_q.weight", "blk.1.attn_x.weight"); }

#define OLMOE "tests/vectors/archs/olmoe.gguf"
/* Q8_0 [32, 64] for each of 4 experts: 64 rows of one block of 34 bytes. */
enum { EXPERT_BYTES = 64 * 34 };
static void swap_bytes(uint8_t *a, uint8_t *b, size_t n) {
    for (size_t i = 0; a && b && i < n; i++) {
        uint8_t byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}
static void experts_moved(struct broken *b) {
    uint8_t *data = broken_data(b, "blk.1.ffn_up_exps.weight", NULL);
    if (data) swap_bytes(data + EXPERT_BYTES, data + 3 * EXPERT_BYTES, EXPERT_BYTES);
}
static void expert_gates_for_ups(struct broken *b) {
    size_t n = 0;
    uint8_t *gate = broken_data(b, "blk.1.ffn_gate_exps.weight", &n);
    swap_bytes(gate, broken_data(b, "blk.1.ffn_up_exps.weight", NULL), n);
}

/* a is the broken file, or b if the row says so. */
static const struct mistake {
    const char *name, *file, *against;
    void (*make)(struct broken *a);
    const char *tensor, *line;   /* the tensor, and the report's line about it */
} mistakes[] = {
    { "scaled by 2", SYNTH "f32.gguf", SYNTH "f32.gguf", scaled, "blk.1.ffn_up.weight", "A is B scaled by 2\n" },
    { "of the other sign", SYNTH "f32.gguf", SYNTH "f16.gguf", negated, "blk.1.ffn_up.weight",
      "A is B scaled by -1\n" },
    { "scaled by 1.06, less than the noise of Q4_0", SYNTH "f32.gguf", WEIGHTS "f32-q4_0.gguf", scaled_little,
      "blk.1.ffn_up.weight", "scaled by 1.0" },
    { "offset", SYNTH "f32.gguf", WEIGHTS "f32-q4_0.gguf", offset, "blk.0.attn_v.weight", "A is B offset by 0.2" },
    { "norm less 1", SYNTH "f32.gguf", SYNTH "f32.gguf", norm_less_one, "blk.0.ffn_norm.weight",
      "A is B offset by -1: the 1 that Gemma's norms omit" },
    { "all zeros", SYNTH "f32.gguf", SYNTH "f32.gguf", zeros, "output_norm.weight", "A is all zeros" },
    { "Q not permuted", SYNTH "f32.gguf", SYNTH "f32.gguf", q_unpermuted, "blk.0.attn_q.weight",
      "the rows are permuted as for RoPE: A has Hugging Face's order, B has GGUF's" },
    { "K not permuted, found through Q4_0", SYNTH "f32.gguf", WEIGHTS "f32-q4_0.gguf", k_unpermuted,
      "blk.1.attn_k.weight", "the rows are permuted as for RoPE: A has Hugging Face's order, B has GGUF's" },
    { "Q permuted twice", SYNTH "f32.gguf", SYNTH "f32.gguf", q_permuted_twice, "blk.0.attn_q.weight",
      "the rows are permuted as for RoPE: A has GGUF's order, B has Hugging Face's" },
    { "square matrix transposed", SYNTH "f32.gguf", WEIGHTS "f32-q8_0.gguf", square_transposed,
      "blk.0.attn_output.weight", "A is B transposed" },
    { "matrix transposed, its shape too", SYNTH "f32.gguf", SYNTH "f32.gguf", transposed, "blk.0.attn_v.weight",
      "A is B transposed" },
    { "shape reversed alone", SYNTH "f32.gguf", SYNTH "f16.gguf", reversed, "blk.0.attn_v.weight",
      "the shape is reversed, the values are in the same order" },
    { "gate and up exchanged", SYNTH "f32.gguf", WEIGHTS "f32-q4_0.gguf", gate_for_up, "blk.0.ffn_gate.weight",
      "it is B's blk.0.ffn_up.weight" },
    { "halves of every 32 exchanged", SYNTH "f32.gguf", SYNTH "f32.gguf", halves_swapped, "blk.0.ffn_down.weight",
      "each block of 32 holds the same values in another order" },
    { "nibbles swapped", WEIGHTS "f32-q4_0.gguf", WEIGHTS "f32-q4_0.gguf", nibbles_swapped, "blk.0.ffn_down.weight",
      "A has B's blocks, misread (Q4_0.nibbles=swapped)" },
    { "Q4_0 read with swapped nibbles into F32", SYNTH "f32.gguf", WEIGHTS "f32-q4_0.gguf", halves_swapped,
      "blk.0.ffn_down.weight", "A has B's blocks, misread (Q4_0.nibbles=swapped)" },
    { "high bits of Q3_K inverted", SYNTH "q3_k.gguf", SYNTH "q3_k.gguf", high_inverted, "blk.0.attn_q.weight",
      "A has B's blocks, misread (Q3_K.high=inverted)" },
    { "bytes reversed", SYNTH "f32.gguf", SYNTH "f32.gguf", bytes_reversed, "blk.1.attn_q.weight",
      "A has B's bytes, with the bytes of each F32 reversed" },
    { "Q4_0 read as IQ4_NL", SYNTH "f32.gguf", WEIGHTS "f32-q4_0.gguf", q4_0_as_iq4_nl, "blk.1.ffn_up.weight",
      "A has B's bytes, read as IQ4_NL instead of Q4_0" },
    { "rows in reverse order, found through Q8_0", SYNTH "f32.gguf", WEIGHTS "f32-q8_0.gguf", rows_reversed,
      "blk.0.attn_v.weight", "the rows are in reverse order: row 0 of A is row 15 of B" },
    { "rows shifted in a circle", SYNTH "f32.gguf", SYNTH "f32.gguf", rows_turned, "blk.0.attn_v.weight",
      "the rows are shifted by 3, and the last are the first: row 0 of A is row 3 of B" },
    { "rows in another order", SYNTH "f32.gguf", SYNTH "f32.gguf", rows_mixed, "blk.0.attn_v.weight",
      "the rows are in another order: row 0 of A is row 1 of B" },
    { "values transposed, not the shape", SYNTH "f32.gguf", SYNTH "f32.gguf", values_transposed, "blk.0.attn_v.weight",
      "A has the values of B transposed, in B's shape" },
    { "something else", SYNTH "f32.gguf", SYNTH "f32.gguf", noise, "blk.0.attn_q.weight",
      "no known mistake explains it" },
    { "NaN", SYNTH "f32.gguf", SYNTH "f32.gguf", nan_value, "blk.1.attn_q.weight",
      "differences in NaN or infinite values: 1" },
    { "experts in another order", OLMOE, OLMOE, experts_moved, "blk.1.ffn_up_exps.weight",
      "the experts are in another order: expert 1 of A is expert 3 of B" },
    { "gates and ups of experts exchanged", OLMOE, OLMOE, expert_gates_for_ups, "blk.1.ffn_gate_exps.weight",
      "it is B's blk.1.ffn_up_exps.weight" },
    { "another name", SYNTH "f32.gguf", SYNTH "f32.gguf", renamed, "blk.1.attn_x.weight", "only in A" },
    { "a missing name", SYNTH "f32.gguf", SYNTH "f32.gguf", renamed, "blk.1.attn_q.weight", "only in B" },
};

static void mistake_row(const void *row) {
    const struct mistake *m = row;
    struct broken a = { 0 }, b = { 0 };
    struct capture told = { 0 };
    plumb_model *wrong = NULL;
    if (broken_read(&a, m->file) && broken_read(&b, m->against)) {
        m->make(&a);
        wrong = broken_load(&a);
        CHECK(!compare(wrong, b.good, PLUMB_FORMAT_TEXT, &told), "they agree");
        const char *line = told.text ? strstr(told.text, m->tensor) : NULL;
        const char *next = line ? strstr(line, "  blk.") : NULL, *found = line ? strstr(line, m->line) : NULL;
        CHECK(found && (!next || found < next), "%s: %s", m->tensor, told.text);
        /* No other tensor is reported. */
        size_t n_blamed = 0, n_expected = 1;
        n_expected += m->make == gate_for_up || m->make == renamed || m->make == expert_gates_for_ups;
        for (const char *at = told.text; at; at = strchr(at, '\n')) {
            at += *at == '\n';
            n_blamed += strncmp(at, "DIFF ", 5) == 0 || strncmp(at, "A     ", 6) == 0 || strncmp(at, "B     ", 6) == 0;
        }
        CHECK(n_blamed == n_expected, "%zu tensors blamed: %s", n_blamed, told.text);
    }
    capture_free(&told);
    plumb_model_free(wrong);
    broken_free(&a);
    broken_free(&b);
}

/* ---- other places ------------------------------------------------------------------------------------------------ */

#define Q8_0_FILE WEIGHTS "f32-q8_0.gguf"
#define Q4_0_FILE WEIGHTS "f32-q4_0.gguf"

/* Tensors that were read `shift` bytes from their own place: as a file's bytes, or from Q8_0 as the f32 that blocks of
 * an f16 and 32 signed bytes stand for. */
static const struct place {
    const char *name, *file, *tensor;
    int shift;
    bool is_f32;            /* A is synth/f32.gguf with values, B the file */
    const char *distance;   /* in the text */
} places[] = {
    { "one block of Q8_0 before", Q8_0_FILE, "blk.1.ffn_up.weight", -34, true, ": 34 bytes (1 row) before its own" },
    { "half a block of Q8_0 after", Q8_0_FILE, "blk.1.attn_q.weight", 17, true, ": 17 bytes (half a block) aft" },
    { "an odd number of bytes after", Q8_0_FILE, "blk.0.attn_v.weight", 1021, true, ": 1021 bytes after its own" },
    { "32 bytes, the alignment, before", Q8_0_FILE, "blk.1.attn_k.weight", -32, true, ": 32 bytes before its own" },
    { "bytes of Q4_0, half a block before", Q4_0_FILE, "blk.1.ffn_up.weight", -9, false, ": 9 bytes (half a block) b" },
    { "bytes of Q4_0, six rows after", Q4_0_FILE, "blk.0.ffn_down.weight", 108, false, ": 108 bytes (6 rows) a" },
    { "f32, one value after", SYNTH "f32.gguf", "blk.1.attn_norm.weight", 4, false, ": 4 bytes (1 value) after its " },
    { "f32, 7 bytes before", SYNTH "f32.gguf", "blk.1.ffn_gate.weight", -7, false, ": 7 bytes before its own place" },
};

static void place_row(const void *row) {
    const struct place *p = row;
    struct broken a = { 0 }, b = { 0 };
    struct capture text = { 0 }, json = { 0 };
    plumb_model *wrong = NULL;
    if (broken_read(&a, p->is_f32 ? SYNTH "f32.gguf" : p->file) && broken_read(&b, p->file)) {
        size_t n = 0;
        const uint8_t *own = broken_data(&b, p->tensor, &n), *from = own + p->shift;
        uint8_t *to = broken_data(&a, p->tensor, NULL);
        REQUIRE(own && to && from + n <= b.bytes + b.n, "the data end before it");
        for (size_t i = 0; p->is_f32 && i < n / 34 * 32; i++) {
            const uint8_t *block = from + i / 32 * 34;
            float value = f32_from_f16(load_u16(block)) * (float)(int8_t)block[2 + i % 32];
            broken_set_f32(to, i, value);
        }
        if (!p->is_f32) memcpy(to, from, n);
        wrong = broken_load(&a);
        CHECK(!compare(wrong, b.good, PLUMB_FORMAT_TEXT, &text), "they agree");
        CHECK(!compare(wrong, b.good, PLUMB_FORMAT_JSON, &json), "they agree");
        char place[120], says[120];
        snprintf(place, sizeof place, "A has the data at byte %zu of B", (size_t)(from - b.bytes));
        const char *line = text.text ? strstr(text.text, place) : NULL;
        CHECK(line && strstr(line, p->distance), "%s ... %s: %s", place, p->distance, text.text);
        snprintf(place, sizeof place, "\"byte\": %zu, \"own_byte\": %zu,", (size_t)(from - b.bytes),
                 (size_t)(own - b.bytes));
        snprintf(says, sizeof says, "{\"name\": \"%s\"", p->tensor);
        const char *object = json.text ? strstr(json.text, says) : NULL, *found = object ? strstr(object, place) : NULL;
        CHECK(found && found < strchr(object, '\n'), "%s %s: %s", says, place, json.text);
    }
    capture_free(&text);
    capture_free(&json);
    plumb_model_free(wrong);
    broken_free(&a);
    broken_free(&b);
}

/* All tensors are read 96 bytes after their places.  The last one, output_norm, then reads past the end of the file. */
static void all_moved_case(void) {
    struct broken a = { 0 }, b = { 0 };
    struct capture text = { 0 };
    plumb_model *wrong = NULL;
    if (broken_read(&a, SYNTH "f32.gguf") && broken_read(&b, SYNTH "f32.gguf")) {
        const uint8_t *first = broken_data(&b, "token_embd.weight", NULL);
        size_t begin = first ? (size_t)(first - b.bytes) : b.n;
        memmove(a.bytes + begin, b.bytes + begin + 96, b.n - begin - 96);
        wrong = broken_load(&a);
        CHECK(!compare(wrong, b.good, PLUMB_FORMAT_TEXT, &text), "they agree");
        size_t n = 0, n_differ = 0;
        for (const char *at = text.text; at && (at = strstr(at, "\nDIFF ")); at++) n_differ++;
        for (const char *at = text.text; at && (at = strstr(at, ": 96 bytes (")); at++) n++;
        CHECK(n >= 18 && n == n_differ - 1, "%zu of %zu are explained: %s", n, n_differ, text.text);
        CHECK(text.text && !strstr(text.text, "was stopped"), "%s", text.text);
    }
    capture_free(&text);
    plumb_model_free(wrong);
    broken_free(&a);
    broken_free(&b);
}

/* In each file of a split model one tensor is read a block after its place. */
static void split_case(void) {
    static const struct { const char *tensor; uint32_t offset, n; } moved[] = {
        { "blk.0.attn_q.weight", 13856, 1088 }, { "blk.1.attn_q.weight", 5056, 1088 },
        { "blk.1.ffn_up.weight", 2528, 2176 },
    };
    struct capture text = { 0 };
    plumb_model *models[] = { plumb_model_create(), plumb_model_create() };   /* the right one and the wrong one */
    for (uint32_t i = 0; i < 3; i++) {
        char path[120];
        size_t n = 0;
        snprintf(path, sizeof path, SYNTH "split-%05u-of-00003.gguf", i + 1);
        uint8_t *file = test_read_all(path, &n);
        for (int k = 0; file && k < 2; k++) {
            if (k == 1) memmove(file + moved[i].offset, file + moved[i].offset + 34, moved[i].n);
            CHECK(plumb_model_begin(models[k], n) == PLUMB_OK && fixture_give(models[k], file, 0, n, n) == PLUMB_OK,
                  "%s", plumb_model_error(models[k]));
        }
        free(file);
    }
    CHECK(!compare(models[1], models[0], PLUMB_FORMAT_TEXT, &text), "they agree");
    for (uint32_t i = 0; i < 3; i++) {
        char says[120];
        snprintf(says, sizeof says, "A has the data at byte %u of B, byte 34 of %s: 34 bytes (", moved[i].offset + 34,
                 moved[i].tensor);
        CHECK(text.text && strstr(text.text, says), "%s: %s", says, text.text ? text.text : "no memory");
    }
    capture_free(&text);
    plumb_model_free(models[0]);
    plumb_model_free(models[1]);
}

/* Values that are nowhere: the search is given up after four tensors, and the report says so. */
static void nowhere_case(void) {
    struct broken a = { 0 };
    struct capture text = { 0 };
    plumb_model *wrong = NULL;
    if (broken_read(&a, SYNTH "f32.gguf")) {
        struct gguf *g = a.good->parts[0];
        for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
            size_t n = 0;
            uint8_t *data = broken_data(&a, gguf_tensor_at(g, i)->name.data, &n);
            for (size_t k = 0; data && k < n / 4; k++) {
                broken_set_f32(data, k, (float)((k + i) * 7919 % 1009) / 1009 - 0.5f);
            }
        }
        wrong = broken_load(&a);
        CHECK(!compare(wrong, a.good, PLUMB_FORMAT_TEXT, &text), "they agree");
        CHECK(text.text && strstr(text.text, "no known mistake explains it") && !strstr(text.text, "has the data at")
              && strstr(text.text, "was stopped after 4 tensors that are nowhere"), "%s", text.text);
    }
    capture_free(&text);
    plumb_model_free(wrong);
    broken_free(&a);
}

/* Each tensor of a layer of an architecture, scaled by 2, is named, and no other one. */
static void architecture_row(const void *row) {
    char path[120];
    struct broken b = { 0 };
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", (const char *)row);
    if (!broken_read(&b, path)) return;
    struct gguf *g = b.good->parts[0];
    uint32_t n_named = 0;
    for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        bool is_inside = strncmp(t->name.data, "blk.1.", 6) == 0 || strncmp(t->name.data, "blk.", 4) != 0;
        if (!is_inside || (t->type != QUANT_F32 && t->type != QUANT_Q8_0)) continue;
        size_t n = 0;
        uint8_t *data = broken_data(&b, t->name.data, &n), *saved = malloc(n);
        if (!data || !saved) break;
        memcpy(saved, data, n);
        for (size_t k = 0; k < n / 4 && t->type == QUANT_F32; k++) broken_set_f32(data, k, 2 * broken_f32(data, k));
        /* Each block begins with its scale; the exponent of an f16 begins at bit 10. */
        for (size_t k = 0; k < n && t->type == QUANT_Q8_0; k += 34) data[k + 1] = (uint8_t)(data[k + 1] + 4);
        struct capture told = { 0 };
        plumb_model *wrong = broken_load(&b);
        CHECK(!compare(wrong, b.good, PLUMB_FORMAT_TEXT, &told), "%s agrees", t->name.data);
        char line[120];
        snprintf(line, sizeof line, "DIFF  %s ", t->name.data);
        const char *found = told.text ? strstr(told.text, line) : NULL;
        CHECK(found && strstr(found, "A is B scaled by 2\n") && strstr(told.text, ": 1 differ more"), "%s: %s",
              t->name.data, told.text);
        capture_free(&told);
        plumb_model_free(wrong);
        memcpy(data, saved, n);
        free(saved);
        n_named++;
    }
    CHECK(n_named >= 8, "%u tensors", n_named);
    broken_free(&b);
}

/* An output matrix that repeats the embeddings equals that of a file that ties them. */
static void tied_case(void) {
    struct broken b = { 0 };
    struct capture told = { 0 };
    plumb_model *copied = NULL, *tied = NULL;
    if (broken_read(&b, SYNTH "untied.gguf")) {
        size_t n = 0, n_embd = 0;
        uint8_t *head = broken_data(&b, "output.weight", &n), *embd = broken_data(&b, "token_embd.weight", &n_embd);
        if (head && embd && CHECK(n == n_embd, "%zu bytes", n)) memcpy(head, embd, n);
        copied = broken_load(&b);
        broken_rename(&b, "output.weight", "outpux.weight");
        tied = broken_load(&b);
        CHECK(!compare(copied, tied, PLUMB_FORMAT_JSON, &told), "outpux.weight is in one file only");
        CHECK(capture_number(&told, "output.weight", "error") == 0, "%s", told.text);
        CHECK(told.text && strstr(told.text, "\"n_parts\": 0, \"n_alone\": 1, \"agree\": false"), "%s", told.text);
        capture_free(&told);
        CHECK(!compare(tied, copied, PLUMB_FORMAT_JSON, &told), "outpux.weight is in one file only");
        CHECK(capture_number(&told, "output.weight", "error") == 0, "%s", told.text);
    }
    capture_free(&told);
    plumb_model_free(copied);
    plumb_model_free(tied);
    broken_free(&b);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* A key with another value, or with another name, which leaves the default.  at: from the end of its type on. */
static const struct changed_key {
    const char *name, *file, *key;
    size_t at;
    const char *bytes;           /* 4 of them; NULL: the last letter of the name becomes X */
    const char *expected;        /* NULL: the files compute the same */
} changed_keys[] = {
    { "base of RoPE", "archs/gemma3", "gemma3.rope.freq_base", 0, "\0\x40\x1c\x46", "freq_base  A 10000  B 1e+06\n" },
    { "rotated dimensions", "archs/gemma3", "gemma3.rope.dimension_count", 0, "\10\0\0\0", "count  A 8  B 16\n" },
    { "epsilon", "archs/gemma3", "gemma3.attention.layer_norm_rms_epsilon", 0, "\xbd\x37\x86\x35",
      "epsilon  A 1e-06  B 1e-05\n" },
    { "heads of K and V", "archs/gemma3", "gemma3.attention.head_count_kv", 0, "\4\0\0\0", "count_kv  A 4  B 2\n" },
    { "window", "archs/gemma3", "gemma3.attention.sliding_window", 0, "\4\0\0\0", "window  A 4  B 3\n" },
    { "no window", "archs/gemma3", "gemma3.attention.sliding_window", 0, NULL, "window  A -  B 3\n" },
    { "the default, not said", "archs/gemma3", "gemma3.rope.dimension_count", 0, NULL, NULL },
    { "a key that is not read", "archs/gemma3", "gemma3.vocab_size", 0, "\1\0\0\0", NULL },
    { "EOS", "synth/f32", "tokenizer.ggml.eos_token_id", 0, "\1\0\0\0", "eos_token_id  A 1  B 256\n" },
    { "a type of a token", "synth/f32", "tokenizer.ggml.token_type", 12 + 4 * 5, "\4\0\0\0",
      "token_type[5]  A 4  B 1  (1 of 260 and 260 values differ)\n" },
    { "a merge", "synth/f32", "tokenizer.ggml.merges", 12 + 11 + 8, "t t\3", "merges[1]  A \"t t\"  B \"e t\"" },
    { "a name", "synth/f32", "general.name", 8, "Anne", NULL },
};

static void key_row(const void *row) {
    const struct changed_key *k = row;
    char path[120];
    struct broken b = { 0 };
    struct capture told = { 0 };
    const size_t n = strlen(k->key);
    snprintf(path, sizeof path, "tests/vectors/%s.gguf", k->file);
    if (!broken_read(&b, path)) return;
    size_t at = 0;
    while (at + n + 64 < b.n && (b.bytes[at] != n || memcmp(b.bytes + at + 8, k->key, n) != 0)) at++;
    uint8_t *value = b.bytes + at + 8 + n + 4 + k->at;
    if (k->bytes) memcpy(value, k->bytes, 4);
    else b.bytes[at + 8 + n - 1] = 'X';
    plumb_model *changed = broken_load(&b);
    bool agree = compare(changed, b.good, PLUMB_FORMAT_TEXT, &told);
    CHECK(agree == !k->expected, "%s", told.text);
    CHECK(told.text && (k->expected ? strstr(told.text, k->expected) != NULL : !strstr(told.text, "KEY")), "%s",
          told.text);
    capture_free(&told);
    agree = compare(changed, b.good, PLUMB_FORMAT_JSON, &told);
    const char *n_key = k->expected ? "\"n_key\": 1\n" : "\"n_key\": 0\n";
    CHECK(agree == !k->expected && told.text && strstr(told.text, n_key), "%s", told.text);
    capture_free(&told);
    plumb_model_free(changed);
    broken_free(&b);
}

static void tolerance_case(void) {
    struct broken a = { 0 }, b = { 0 };
    struct capture told = { 0 };
    bool agree = true;
    plumb_report report = { .write = capture_write, .user = &told, .tolerance = 0.01 };
    if (broken_read(&a, WEIGHTS "f32-q4_0.gguf") && broken_read(&b, SYNTH "f32.gguf")) {
        CHECK(plumb_weights(a.good, b.good, &report, &agree) == PLUMB_OK && !agree
              && strstr(told.text, " differ more than the tolerance of 0.01 allows, 0 are in one file only"), "%s",
              told.text);
        report.tolerance = 0.1;
        CHECK(plumb_weights(a.good, b.good, &report, &agree) == PLUMB_OK && agree
              && strstr(told.text, " no difference is larger than the tolerance of 0.1 allows\n"), "%s", told.text);
        report.format = PLUMB_FORMAT_HTML;
        CHECK(plumb_weights(a.good, b.good, &report, &agree) == PLUMB_ERROR_ARGUMENT && !agree, "HTML");
        plumb_model *empty = plumb_model_create();
        CHECK(empty && plumb_weights(empty, b.good, &report, &agree) == PLUMB_ERROR_STATE, "an empty model");
        plumb_model_free(empty);
    }
    capture_free(&told);
    broken_free(&a);
    broken_free(&b);
}

void test_weights(void) {
    for (size_t i = 0; plan_architecture(i); i++) {
        char name[120];
        snprintf(name, sizeof name, "weights: each tensor that differs is named: architecture %s",
                 plan_architecture(i));
        if (test_repeats(i)) test_row(name, architecture_row, plan_architecture(i));
    }
    for (size_t i = 0; i < sizeof sames / sizeof *sames; i++) {
        char name[120];
        snprintf(name, sizeof name, "weights: %s is as far from its source as gguf-py says, and as expected",
                 sames[i].name);
        test_row(name, same_row, &sames[i]);
    }
    test_case("weights: files of one model in five types agree, all 25 pairs", all_pairs_case);
    TEST_ROWS("weights: named: ", mistake_row, mistakes);
    TEST_ROWS("weights: the place is named: ", place_row, places);
    test_case("weights: the places of all tensors of a file are named", all_moved_case);
    test_case("weights: places in each file of a split model are named", split_case);
    test_case("weights: the search for values that are nowhere ends", nowhere_case);
    test_case("weights: an output matrix that repeats the embeddings equals a tied one", tied_case);
    TEST_ROWS("weights: keys: ", key_row, changed_keys);
    test_case("weights: a given tolerance replaces the default; misuse gives a status", tolerance_case);
}
