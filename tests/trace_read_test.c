/* Traces of other programs: files of numpy and the output of llama-eval-callback.  tests/vectors/README.md says how
 * the files were made; npz.py there defines their contents. */
#include "bytes.h"
#include "fixture.h"
#include "test.h"
#include "dump/inflate.h"
#include "trace/compare.h"
#include "trace/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define VECTORS "tests/vectors/trace/"
#define CORPUS "tests/fuzz/corpus/trace/"

static const struct trace_row *find_row(const plumb_trace *t, const char *name, uint32_t pos) {
    enum tap_id id;
    int32_t layer;
    if (!tap_parse(name, strlen(name), &id, &layer)) return NULL;
    const struct trace_tap *tap = trace_find_tap(t, id, layer);
    return tap ? trace_find_row(tap, pos) : NULL;
}

static uint32_t place_of(const struct trace_row *row, uint32_t i) { return row->places ? row->places[i] : i; }

static void check_tokens(const plumb_trace *t, const int32_t *ids, uint32_t n, uint32_t n_prompt) {
    if (!CHECK(t->tokens && t->n_token == n, "%u tokens", t->n_token)) return;
    for (uint32_t i = 0; i < n; i++) CHECK(t->tokens[i] == ids[i], "token %u is %d", i, (int)t->tokens[i]);
    CHECK(t->n_prompt == n_prompt, "a prompt of %u", t->n_prompt);
}

/* The file has one record that was left out, of this name. */
static void check_ignored(const plumb_trace *t, const char *name) {
    const struct remark *first = remarks_first_ignored(&t->remarks);
    CHECK(remarks_n_ignored(&t->remarks) == 1 && first && strcmp(first->name, name) == 0, "%u ignored: %s",
          remarks_n_ignored(&t->remarks), first ? first->name : "none");
}

/* ---- numpy ------------------------------------------------------------------------------------------------------- */

/* Row t holds n values (10 t + i) / divisor. */
static void check_row(const plumb_trace *t, const char *name, uint32_t pos, uint32_t n_head, uint32_t n, uint32_t first,
                      float divisor) {
    const struct trace_row *row = find_row(t, name, pos);
    REQUIRE(row != NULL, "%s of token %u", name, pos);
    CHECK(row->n_head == n_head && row->n == n, "%s: %u x %u", name, row->n_head, row->n);
    REQUIRE(row->n_value == n_head * n && !row->places, "%s: %u values", name, row->n_value);
    for (uint32_t i = 0; i < row->n_value; i++)
        CHECK(row->values[i] == (float)(first + i) / divisor, "%s, token %u, %u: %g", name, pos, i,
              (double)row->values[i]);
    CHECK(row->quantum == 0, "%s: not rounded", name);
}

static void numpy_types(void) {
    static const struct { const char *name; uint32_t n_head; float divisor; } rows[] = {
        {"embd", 1, 8}, {"attn_norm-0", 1, 8}, {"Qcur-0", 2, 8}, {"Qcur_rope-0", 2, 8}, {"Kcur-0", 1, 8},
        {"Kcur_rope-0", 2, 8}, {"Vcur-0", 1, 8}, {"ffn_gate-0", 1, 1}, {"ffn_up-0", 1, 1}, {"ffn_out-0", 1, 1},
        {"l_out-0", 1, 1}, {"attn_norm-1", 1, 1}, {"Qcur-1", 1, 1}, {"Kcur-1", 1, 1}, {"Vcur-1", 1, 1},
        {"ffn_out-1", 1, 8}};
    plumb_trace *t = fixture_read_trace(VECTORS "plain.npz");
    REQUIRE(t != NULL, "read");
    check_tokens(t, (const int32_t[]){1, 500, 49151}, 3, 2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t pos = 0; pos < 3; pos++)
            check_row(t, rows[i].name, pos, rows[i].n_head, 8 / rows[i].n_head, 10 * pos, rows[i].divisor);
    /* One row for three tokens belongs to the last token. */
    check_row(t, "l_out-1", 2, 1, 8, 0, 8);
    check_row(t, "result_output", 2, 1, 20, 0, 8);
    CHECK(!find_row(t, "l_out-1", 0) && !find_row(t, "result_output", 1), "rows of other tokens");
    for (uint32_t pos = 0; pos < 3; pos++) {
        const struct trace_row *odd = find_row(t, "ffn_inp-1", pos);
        for (uint32_t i = 0; odd && i < 8; i++) CHECK(odd->values[i] == (float)(i % 2), "bool %u", i);
        CHECK(odd != NULL, "ffn_inp-1");
    }
    check_ignored(t, "rotary_cos");
    const struct trace_row *special = find_row(t, "ffn_norm-0", 1);
    if (CHECK(special && special->n_value == 8, "ffn_norm-0")) {
        const float *v = special->values;
        CHECK(v[1] == 11.0f / 8 && isnan(v[2]) && v[3] == INFINITY && v[4] == -INFINITY && v[5] == 15.0f / 8,
              "%g %g %g %g %g", (double)v[1], (double)v[2], (double)v[3], (double)v[4], (double)v[5]);
        CHECK(special->stats.n_nan == 1 && special->stats.n_inf == 2 && special->stats.max == 17.0 / 8, "%g %g %g",
              special->stats.n_nan, special->stats.n_inf, special->stats.max);
    }
    plumb_trace_free(t);
}

/* Head 0 attends equally to all tokens so far, head 1 only to its own; (token, head, key), then transformers' order. */
static void numpy_weights(void) {
    plumb_trace *t = fixture_read_trace(VECTORS "plain.npz");
    REQUIRE(t != NULL, "read");
    for (uint32_t layer = 0; layer < 2; layer++)
        for (uint32_t pos = 0; pos < 3; pos++) {
            const struct trace_row *row = find_row(t, layer ? "kq_soft_max-1" : "kq_soft_max-0", pos);
            REQUIRE(row && row->n_head == 2 && row->n == 3 && row->n_value == 6, "layer %u, token %u", layer, pos);
            for (uint32_t key = 0; key < 3; key++) {
                CHECK(row->values[key] == (key <= pos ? 1 / (float)(pos + 1) : 0), "head 0, %u to %u", pos, key);
                CHECK(row->values[3 + key] == (key == pos), "head 1, %u to %u", pos, key);
            }
            REQUIRE(row->entropy != NULL, "entropy");
            CHECK(fabs((double)row->entropy[0] - log(pos + 1)) < 1e-6 && row->entropy[1] == 0, "entropy %g, %g",
                  (double)row->entropy[0], (double)row->entropy[1]);
        }
    plumb_trace_free(t);
}

static void numpy_compressed(void) {
    plumb_trace *t = fixture_read_trace(VECTORS "packed.npz");
    REQUIRE(t != NULL, "read");
    check_tokens(t, (const int32_t[]){7, 8, 9}, 3, 3);
    for (uint32_t pos = 0; pos < 3; pos++) {
        check_row(t, "embd", pos, 1, 8, 10 * pos, 8);
        const struct trace_row *far = find_row(t, "l_out-0", pos), *zeros = find_row(t, "l_out-1", pos);
        REQUIRE(far && zeros && far->n_value == 1000 && zeros->n_value == 40000, "token %u", pos);
        for (uint32_t i = 0; i < 1000; i++)
            CHECK(far->values[i] == (float)((1000 * pos + i) % 251), "%u: %g", i, (double)far->values[i]);
        CHECK(zeros->stats.min == 0 && zeros->stats.max == 0 && zeros->stats.n_nan == 0, "zeros");
    }
    plumb_trace_free(t);
}


/* A zip file of one array of 300 KB, of which its directory says that it unpacks to n bytes.  Its stream is none, which
 * only shows if it is unpacked. */
static plumb_status read_bomb(const char *name, uint32_t n, char *message, size_t size) {
    enum { PACKED = 300 << 10 };
    uint32_t n_name = (uint32_t)strlen(name);
    struct bytes b = {NULL, 0, 0};
    for (int is_directory = 0; is_directory < 2; is_directory++) {
        put_number(&b, is_directory ? 0x02014b50 : 0x04034b50, 4);
        put_number(&b, 20, is_directory ? 4 : 2);   /* versions */
        put_number(&b, 8 << 16, 4);                 /* flags, DEFLATE */
        put_number(&b, 0, 8);                       /* time, CRC-32 */
        put_number(&b, PACKED, 4);
        put_number(&b, n, 4);
        put_number(&b, n_name, 4);                  /* no extra field */
        for (int i = 0; i < 14 && is_directory; i++) put_number(&b, 0, 1);
        put(&b, name, n_name);
        for (int i = 0; i < PACKED && !is_directory; i++) put_number(&b, 0xff, 1);
    }
    const uint64_t at = 30 + n_name + PACKED;
    put_number(&b, 0x06054b50, 4);
    put_number(&b, 0, 4);
    put_number(&b, 1 | 1 << 16, 4);
    put_number(&b, b.n - 12 - at, 4);
    put_number(&b, at, 4);
    put_number(&b, 0, 2);
    plumb_trace *t = plumb_trace_create();
    plumb_status status = plumb_trace_read(t, b.data, b.n);
    snprintf(message, size, "%s", plumb_trace_error(t));
    plumb_trace_free(t);
    free(b.data);
    return status;
}

/* Both are within what DEFLATE can do, 1032 times the packed bytes. */
static void refuses_bombs(void) {
    char message[300];
    plumb_status status = read_bomb("l_out-0.npy", 270u << 20, message, sizeof message);
    CHECK(status == PLUMB_ERROR_METADATA && strstr(message, "l_out-0 unpacks to 283115520 bytes: with the arrays"
          " before it that is more than the 273"), "%s", message);
    status = read_bomb("l_out-0.npy", 200u << 20, message, sizeof message);
    CHECK(status == PLUMB_ERROR_MEMORY || strstr(message, "cannot be unpacked"), "%s", message);
    status = read_bomb("nothing.npy", 270u << 20, message, sizeof message);
    CHECK(!strstr(message, "unpacks"), "what is no tap is not unpacked: %s", message);
}

static void numpy_corpus(void) {
    static const struct { const char *name; plumb_status status; const char *text; } files[] = {
        {"read", PLUMB_OK, ""}, {"read-deflated", PLUMB_OK, ""}, {"read-stored-blocks", PLUMB_OK, ""},
        {"read-zip64", PLUMB_OK, ""}, {"read-with-a-comment", PLUMB_OK, ""},
        {"cut-off", PLUMB_ERROR_TRUNCATED, "201 bytes without the end of a zip directory"},
        {"directory-beyond-the-end", PLUMB_ERROR_TRUNCATED, "no entry at byte 2147483647 of 231"},
        {"more-entries-than-there-are", PLUMB_ERROR_TRUNCATED, "no entry at byte 209 of 231"},
        {"end64-beyond-the-end", PLUMB_ERROR_METADATA, "at byte 18446744073709551615"},
        {"name-beyond-the-end", PLUMB_ERROR_TRUNCATED, "entry at byte 155 is cut off"},
        {"member-beyond-the-end", PLUMB_ERROR_TRUNCATED, "no zip entry begins at byte 2147483632 of 231"},
        {"data-beyond-the-end", PLUMB_ERROR_TRUNCATED, "2130706432 bytes from byte 38 on do not fit in 231"},
        {"encrypted", PLUMB_ERROR_UNSUPPORTED, "encrypted"},
        {"bzip2", PLUMB_ERROR_UNSUPPORTED, "zip method 12"},
        {"stored-in-fewer-bytes", PLUMB_ERROR_METADATA, "117 bytes cannot unpack to 256"},
        {"deflated-beyond-1032", PLUMB_ERROR_METADATA, "21 bytes cannot unpack to 1073741824"},
        {"deflated-to-more", PLUMB_ERROR_METADATA, "longer than its stated size"},
        {"deflated-to-less", PLUMB_ERROR_METADATA, "shorter than its stated size"},
        {"deflated-cut-off", PLUMB_ERROR_METADATA, "ends too early"},
        {"deflated-badly", PLUMB_ERROR_METADATA, "a block has an unknown type"},
        {"three-members-in-one-place", PLUMB_ERROR_METADATA, "shares its bytes"},
        {"damaged", PLUMB_ERROR_METADATA, "embd is damaged: its CRC-32 is"},
        {"no-array", PLUMB_ERROR_METADATA, "embd is not an .npy array"},
        {"header-beyond-the-end", PLUMB_ERROR_TRUNCATED, "a header of 59 bytes in an entry of 60"},
        {"header-of-nothing", PLUMB_ERROR_METADATA, "lacks descr, fortran_order or shape"},
        {"version-9", PLUMB_ERROR_UNSUPPORTED, ".npy version 9"},
        {"big-endian", PLUMB_ERROR_UNSUPPORTED, "embd: elements of type '>f4' are not supported"},
        {"complex", PLUMB_ERROR_UNSUPPORTED, "'<c8'"}, {"objects", PLUMB_ERROR_UNSUPPORTED, "'|O'"},
        {"records", PLUMB_ERROR_UNSUPPORTED, "[('a'"},
        {"text", PLUMB_ERROR_UNSUPPORTED, "tokens: elements of type '<U3'"},
        {"five-axes", PLUMB_ERROR_METADATA, "(1, 1, 1, 3, 4)"}, {"a-negative-axis", PLUMB_ERROR_METADATA, "(-3, 4)"},
        {"axes-that-wrap-64-bits", PLUMB_ERROR_TENSOR, "shape does not match its 48 bytes of f4"},
        {"axes-of-more-than-there-is", PLUMB_ERROR_TENSOR, "shape does not match its 48 bytes of f4"},
        {"axes-without-an-end", PLUMB_ERROR_METADATA, "(3, 4"}, {"empty", PLUMB_ERROR_TENSOR, "has 0 elements"},
        {"no-count", PLUMB_ERROR_TENSOR, "add an array of their ids, named tokens"},
        {"other-count", PLUMB_ERROR_TENSOR, "embd is (7, 4), of 7 tokens; expected 3"},
        {"no-token-axis", PLUMB_ERROR_TENSOR, "Qcur-0 is (4, 2, 4); no axis has the length 3, the number of tokens"},
        {"flat-weights", PLUMB_ERROR_TENSOR, "expected (n_token, n_head, n_key)"},
        {"too-many-axes", PLUMB_ERROR_TENSOR, "embd is (2, 3, 4); expected (n_token, n)"},
        {"half-a-token", PLUMB_ERROR_ARGUMENT, "1.5 is not a whole number"},
        {"a-negative-token", PLUMB_ERROR_ARGUMENT, "-1 is not a whole number"},
        {"two-texts", PLUMB_ERROR_TENSOR, "tokens is (2, 2); expected the ids of one text"},
        {"prompt-beyond-the-end", PLUMB_ERROR_ARGUMENT, "n_prompt: 4"},
        {"tokens-twice", PLUMB_ERROR_METADATA, "two arrays of tokens"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[120];
        size_t n;
        snprintf(path, sizeof path, CORPUS "npz-%s", files[i].name);
        void *bytes = test_read_all(path, &n);
        plumb_trace *t = plumb_trace_create();
        REQUIRE(bytes && t, "%s", path);
        CHECK(plumb_trace_read(t, bytes, n) == files[i].status, "%s: %s", files[i].name, plumb_trace_error(t));
        CHECK(strstr(plumb_trace_error(t), files[i].text) != NULL, "%s: %s", files[i].name, plumb_trace_error(t));
        for (uint32_t pos = 0; pos < 3 && files[i].status == PLUMB_OK; pos++)
            check_row(t, "embd", pos, 1, 4, 10 * pos, 8);
        plumb_trace_free(t);
        free(bytes);
    }
}

/* Hooks on every module of transformers see one activation under two names. */
static void numpy_two_names(void) {
    plumb_trace *t = fixture_read_trace(CORPUS "npz-two-names-of-one-tap");
    REQUIRE(t != NULL, "it is read");
    check_row(t, "l_out-0", 2, 1, 4, 20, 8);
    CHECK(remarks_n_ignored(&t->remarks) == 1 && t->n_tap == 1, "%zu remarks, %zu taps", t->remarks.n, t->n_tap);
    plumb_trace_free(t);
}

/* With as many heads as tokens, the shape does not say which axis is which: other arrays or a causal mask may show it,
 * and otherwise a remark says what was assumed.  The first value of each file is in the first head of the first token,
 * and the next but three differ. */
static void numpy_axes(void) {
    static const struct {
        const char *file, *tap;
        float second;        /* the first value of the second token's first head */
        const char *says;    /* NULL: there is no remark */
    } rows[] = {
        {"npz-heads-or-tokens", "Qcur-0", 10.0f / 8, "with as many heads as tokens, (3, 3, 4) does not say which axis "
         "is which; it was taken for (n_token, n_head, n), the usual order; to make it plain, save it as (n_token, "
         "n_head * n)"},
        {"npz-heads-or-tokens-batch", "Qcur-0", 4.0f / 8, "taken for (1, n_head, n_token, n), the usual order"},
        {"npz-heads-like-others", "Qcur-0", 4.0f / 8, "taken for (n_head, n_token, n), like other arrays of the file"},
        {"npz-weights-or-tokens", "kq_soft_max-0", 1, "save it as (1, n_head, n_token, n_key)"},
        {"npz-weights-with-a-mask", "kq_soft_max-0", 0.5f, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[120];
        snprintf(path, sizeof path, CORPUS "%s", rows[i].file);
        plumb_trace *t = fixture_read_trace(path);
        REQUIRE(t != NULL, "%s", path);
        const struct trace_row *row = find_row(t, rows[i].tap, 1);
        CHECK(row && row->n_head == 3 && row->values[0] == rows[i].second, "%s: %g", rows[i].file,
              row ? (double)row->values[0] : 0);
        const struct remark *remark = t->remarks.n > 0 ? &t->remarks.list[0] : NULL;
        CHECK(t->remarks.n == (rows[i].says != NULL), "%s: %zu remarks", rows[i].file, t->remarks.n);
        if (remark && rows[i].says) CHECK(remark->kind == REMARK_AXES && strstr(remark->text, rows[i].says), "%s",
                                          remark->text);
        plumb_trace_free(t);
    }
}

/* ---- inflate ----------------------------------------------------------------------------------------------------- */

/* Streams assembled by hand from RFC 1951. */
static void inflate_by_hand(void) {
    static const struct { const char *stream; size_t n; const char *text, *why; } rows[] = {
        /* stored: last 1, type 00; lengths; the bytes */
        {"\1\3\0\374\377abc", 8, "abc", NULL},
        {"\0\1\0\376\377a\1\1\0\376\377b", 12, "ab", NULL},
        {"\1\3\0\374\376abc", 8, "abc", "the length of a stored block contradicts itself"},
        {"\1\3\0\374\377ab", 7, "abc", "the stream ends too early"},
        {"\1\3\0\374\377abc", 8, "ab", "the data is longer than its stated size"},
        {"\1\3\0\374\377abc", 8, "abcd", "the data is shorter than its stated size"},
        /* fixed: 'a' is 0x91 in 8 bits, highest first; length 4 is 0000010, distance 1 is 00000; the end is 0000000 */
        {"\113\4\0", 3, "a", NULL},
        {"\113\4\1\0", 4, "aaaaa", NULL},
        {"\113\4\1", 3, "aaaaa", "the stream ends too early"},
        {"\3\1\0", 3, "aaaa", "a distance goes back before the first byte"},
        {"\7", 1, "", "a block has an unknown type"},
        {"", 0, "", "the stream ends too early"},
        {"\375\377\377", 3, "", "there are more codes than symbols"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[16] = "";
        const char *why = NULL;
        size_t n = strlen(rows[i].text);
        bool ok = inflate_bytes(rows[i].stream, rows[i].n, out, n, &why);
        CHECK(ok == !rows[i].why, "row %zu: %s", i, ok ? "read" : why);
        if (ok) CHECK(memcmp(out, rows[i].text, n) == 0 && out[n] == 0, "row %zu: %.*s", i, (int)n, out);
        if (!ok && rows[i].why) CHECK(strcmp(why, rows[i].why) == 0, "row %zu: %s", i, why);
    }
}

/* ---- llama-eval-callback ----------------------------------------------------------------------------------------- */

/* numpy saved whole rows of the same run, which give every value that was printed. */
static void callback_values(void) {
    plumb_trace *text = fixture_read_trace(VECTORS "callback.txt"), *whole = fixture_read_trace(VECTORS "callback.npz");
    REQUIRE(text && whole, "read");
    check_tokens(text, (const int32_t[]){79, 75, 84, 76, 65, 220, 72, 83}, 8, 8);
    CHECK(strcmp(text->source, "llama-eval-callback") == 0, "%s", text->source);
    CHECK(text->n_tap == 1 + 2 * 16 + 2 && whole->n_tap == text->n_tap, "%zu taps of %zu", text->n_tap, whole->n_tap);
    uint32_t n_value = 0, n_mean = 0;
    double worst = 0;
    for (size_t i = 0; i < text->n_tap; i++) {
        const struct trace_tap *tap = &text->taps[i], *all = trace_find_tap(whole, tap->id, tap->layer);
        struct tap_text name;
        tap_show(&name, tap->id, tap->layer);
        REQUIRE(all && all->n_row == 8, "%s", name.text);
        /* The first three and the last three tokens; after the last layer's attention only the last. */
        bool last_only = tap->id >= TAP_FFN_INP && tap->layer != 0;
        uint32_t n_row = last_only ? 1 : 6;
        CHECK(tap->n_row - n_row <= 1, "%s: %u rows", name.text, tap->n_row);
        double sum = 0;
        uint32_t count = 0;
        for (uint32_t j = last_only ? 7 : 0; j < 8; j++) {
            for (uint32_t k = 0; k < all->rows[j].n_value; k++) sum += (double)all->rows[j].values[k];
            count += all->rows[j].n_value;
        }
        for (uint32_t j = 0; j < tap->n_row; j++) {
            const struct trace_row *row = &tap->rows[j];
            if (!isnan(row->stats.mean)) {
                CHECK(row->pos == TRACE_ALL_TOKENS || n_row == 1, "%s: a mean of token %u", name.text, row->pos);
                CHECK(fabs(row->stats.mean - sum / count) < 1e-5, "%s: mean %g, not %g", name.text, row->stats.mean,
                      sum / count);
                n_mean++;
            }
            if (row->pos == TRACE_ALL_TOKENS) continue;
            CHECK(row->pos == (last_only ? 7 : j < 3 ? j : j + 2), "%s: row %u is token %u", name.text, j, row->pos);
            const struct trace_row *truth = trace_find_row(all, row->pos);
            REQUIRE(truth && truth->n == row->n && truth->n_head == row->n_head, "%s: %u x %u", name.text, row->n_head,
                    row->n);
            CHECK(row->quantum == 1e-4f, "%s: rounded to %g", name.text, (double)row->quantum);
            for (uint32_t k = 0; k < row->n_value; k++) {
                double d = fabs((double)row->values[k] - (double)truth->values[place_of(row, k)]);
                worst = worse(worst, d);
                /* Half a step, plus the difference between two builds of llama.cpp. */
                CHECK(d <= 0.5e-4 + 1e-5, "%s, token %u, place %u: %g", name.text, row->pos, place_of(row, k), d);
            }
            n_value += row->n_value;
        }
    }
    /* By hand, of the first layer: 10 taps of 6 values, 2 of 4 and 3 of 2 heads of 6, 4 heads of keys 0, 1 and 2, all
     * of 6 tokens; of the second: 7 of the 10 have one token only; and the three outside. */
    CHECK(n_value == 6 * (60 + 84 + 12) + 6 * (18 + 84 + 12) + 42 + 48, "%u values", n_value);
    CHECK(n_mean == text->n_tap, "%u means", n_mean);
    test_note("%u values, the furthest %.3g away", n_value, worst);
    plumb_trace_free(text);
    plumb_trace_free(whole);
}

static void add(void *trace, const plumb_tap *tap) { plumb_trace_add(trace, tap); }

/* Layer 0 of archs/gpt-oss.gguf, against the reference pass: experts with biases, their names and shapes. */
static void callback_experts(void) {
    static const plumb_session_params params = { .n_ctx = 16, .pass = PLUMB_PASS_REFERENCE };
    static const plumb_trace_params all = { .layer_last = 0, .n_value = UINT32_MAX };
    plumb_trace *theirs = fixture_read_trace(VECTORS "callback-experts.txt"), *ours = plumb_trace_create();
    plumb_model *m = fixture_load("tests/vectors/archs/gpt-oss.gguf");
    plumb_session *s = NULL;
    REQUIRE(theirs && m && theirs->n_token == 8, "read");
    check_tokens(theirs, (const int32_t[]){7, 1, 33, 33, 60, 2, 19, 48}, 8, 8);
    REQUIRE(plumb_session_create(&s, m, &params) == PLUMB_OK
            && plumb_trace_begin(ours, s, theirs->tokens, 8, 8, &all) == PLUMB_OK
            && plumb_session_set_tap(s, add, ours) == PLUMB_OK, "%s", plumb_model_error(m));
    plumb_session_feed(s, theirs->tokens, 8);
    uint32_t n_expert = 0;
    for (size_t i = 0; i < ours->n_tap; i++) {
        const struct trace_tap *tap = &ours->taps[i], *other = trace_find_tap(theirs, tap->id, tap->layer);
        struct comparison c = {0};
        struct tap_text name;
        tap_show(&name, tap->id, tap->layer);
        bool unnamed = tap->id == TAP_FFN_OUT || tap->id >= TAP_RESULT_NORM;   /* the text ends with layer 0 */
        CHECK(unnamed == !other, "%s", name.text);
        if (!other) continue;
        compare_taps(&c, other, tap);
        CHECK(c.n_row >= 6 && c.n_value >= 6 && compare_error(&c) < 2e-5, "%s: %u rows, error %g", name.text, c.n_row,
              compare_error(&c));
        n_expert += tap->id >= TAP_FFN_ROUTER && tap->id <= TAP_FFN_EXPERTS;
    }
    CHECK(n_expert == 10 && theirs->n_tap == ours->n_tap - 3, "%u taps of experts, %zu in all", n_expert,
          theirs->n_tap);
    plumb_session_free(s);
    plumb_model_free(m);
    plumb_trace_free(theirs);
    plumb_trace_free(ours);
}

/* The output of versions of 2024: other names, sums of the printed values, no ids.  Two heads of four, and a cache
 * padded to 32. */
#define ROW4 "[      1.0000,       2.0000,       3.0000,       4.0000],\n"
static const char old_text[] =
    "llama_new_context_with_model: graph nodes  = 1225\n"
    "ggml_debug:                 inp_embd = (f32)   GET_ROWS(token_embd.weight{8, 99, 1, 1}, inp_tokens{2, 1, 1, 1}}) "
    "= {8, 2, 1, 1}\n"
    "                                     [\n"
    "                                      [\n"
    "                                       [      0.1000,       0.2000,       0.3000, ...,       0.6000,"
    "       0.7000,       0.8000],\n"
    "                                       [     -0.1000,          nan,         -inf, ...,      -0.6000,"
    "      -0.7000,      -0.8000],\n"
    "                                      ],\n"
    "                                     ]\n"
    "                                     sum = nan\n"
    "ggml_debug:                   Qcur-0 = (f32)    MUL_MAT(blk.0.attn_q.weight{8, 8, 1, 1}, attn_norm-0{8, 2, 1, 1}})"
    " = {8, 2, 1, 1}\n"
    "[\n[\n[9, 9, 9, ..., 9, 9, 9],\n[9, 9, 9, ..., 9, 9, 9],\n],\n]\nsum = 108.000000\n"
    "ggml_debug:                   Qcur-0 = (f32)        ADD(Qcur-0{8, 2, 1, 1}, blk.0.attn_q.bias{8, 1, 1, 1}}) = "
    "{8, 2, 1, 1}\n"
    "[\n[\n[1, 2, 3, ..., 2, 3, 4],\n[1, 2, 3, ..., 2, 3, 4],\n],\n]\nsum = 30.000000\n"
    "ggml_debug:        Qcur-0 (reshaped) = (f32)    RESHAPE(Qcur-0{8, 2, 1, 1}, }) = {4, 2, 2, 1}\n"
    "[\n[\n" ROW4 ROW4 "],\n[\n" ROW4 ROW4 "],\n]\nsum = 40.000000\n"
    "ggml_debug:                   Qcur-0 = (f32)       ROPE(Qcur-0 (reshaped){4, 2, 2, 1}, inp_pos{2, 1, 1, 1}}) = "
    "{4, 2, 2, 1}\n"
    "[\n[\n" ROW4 ROW4 "],\n[\n" ROW4 "[      5.5000,       6.0000,       7.0000,       8.0000],\n" "],\n]\n"
    "sum = 56.500000\n"
    "ggml_debug:                   Qcur-0 = (f32)      SCALE(Qcur-0{4, 2, 2, 1}, }) = {4, 2, 2, 1}\n"
    "[\n[\n" ROW4 ROW4 "],\n[\n" ROW4 ROW4 "],\n]\nsum = 40.000000\n"
    "ggml_debug:        kq_soft_max_ext-0 = (f32)   SOFT_MAX(kq-0{32, 2, 2, 1}, KQ_mask{32, 2, 1, 1}}) = "
    "{32, 2, 2, 1}\n"
    "[\n[\n[1.0000, 0.0000, 0.0000, ..., 0.0000, 0.0000, 0.0000],\n[0.2500, 0.7500, 0.0000, ..., 0.0000, 0.0000, "
    "0.0000],\n],\n[\n[1.0000, 0.0000, 0.0000, ..., 0.0000, 0.0000, 0.0000],\n[0.5000, 0.5000, 0.0000, ..., 0.0000, "
    "0.0000, 0.0000],\n],\n]\nsum = 4.000000\n"
    "ggml_debug:        kqv_merged_cont-0 = (f32)       CONT(kqv_merged-0{4, 2, 2, 1}, }) = {8, 2, 1, 1}\n"
    "[\n[\n[1, 1, 1, ..., 1, 1, 1],\n[2, 2, 2, ..., 2, 2, 2],\n],\n]\nsum = 99.000000\n"
    "ggml_debug:                kqv_out-0 = (f32)    MUL_MAT(blk.0.attn_output.weight{8, 8, 1, 1}, "
    "kqv_merged_cont-0{8, 2, 1, 1}}) = {8, 2, 1, 1}\n"
    "[\n[\n[3, 3, 3, ..., 3, 3, 3],\n[4, 4, 4, ..., 4, 4, 4],\n],\n]\nsum = 42.000000\n"
    "ggml_debug:                 l_out-0 = (f32)        ADD(ffn_out-0{8, 1, 1, 1}, ffn_inp-0{8, 1, 1, 1}}) = "
    "{8, 1, 1, 1}\n"
    "[\n[\n[5, 5, 5, ..., 5, 5, 5],\n],\n]\nsum = 41.000000\n"
    "ggml_debug:                     norm = (f32)   RMS_NORM(l_out-0{8, 1, 1, 1}, }) = {8, 1, 1, 1}\n"
    "[\n[\n[7, 7, 7, ..., 7, 7, 7],\n],\n]\nsum = 41.000000\n";

static plumb_trace *read_text(const char *text, size_t n) {
    /* A block of exactly its size, so that reading one byte too many is caught. */
    char *copy = malloc(n + (n == 0));
    plumb_trace *t = plumb_trace_create();
    if (!copy || !t) abort();
    memcpy(copy, text, n);
    plumb_status status = plumb_trace_read(t, copy, n);
    CHECK((status == PLUMB_OK) == (plumb_trace_error(t)[0] == 0), "status %d with the sentence \"%s\"", (int)status,
          plumb_trace_error(t));
    free(copy);
    return t;
}

static void check_printed(const plumb_trace *t, const char *name, uint32_t pos, uint32_t n, uint32_t n_value,
                          const float *values, const uint32_t *places) {
    const struct trace_row *row = find_row(t, name, pos);
    REQUIRE(row != NULL, "%s of token %u", name, pos);
    CHECK(row->n == n, "%s of %u: n %u", name, pos, row->n);
    REQUIRE(row->n_value == n_value, "%s of %u: %u values", name, pos, row->n_value);
    for (uint32_t i = 0; i < n_value; i++) {
        bool same = row->values[i] == values[i] || (isnan(values[i]) && isnan(row->values[i]));
        CHECK(same && place_of(row, i) == places[i], "%s of %u: %g at %u", name, pos, (double)row->values[i],
              place_of(row, i));
    }
}

static void callback_old(void) {
    static const uint32_t six[] = {0, 1, 2, 5, 6, 7}, eight[] = {0, 1, 2, 3, 4, 5, 6, 7}, four[] = {0, 1, 2, 3};
    plumb_trace *t = read_text(old_text, sizeof old_text - 1);
    CHECK(plumb_trace_error(t)[0] == 0, "%s", plumb_trace_error(t));
    CHECK(t->n_token == 2 && !t->tokens && t->n_prompt == 2, "%u tokens, a prompt of %u", t->n_token, t->n_prompt);
    check_printed(t, "embd", 0, 8, 6, (const float[]){0.1f, 0.2f, 0.3f, 0.6f, 0.7f, 0.8f}, six);
    check_printed(t, "embd", 1, 8, 6, (const float[]){-0.1f, NAN, -INFINITY, -0.6f, -0.7f, -0.8f}, six);
    check_printed(t, "Qcur-0", 1, 4, 8, (const float[]){1, 2, 3, 4, 1, 2, 3, 4}, eight);
    check_printed(t, "Qcur_rope-0", 0, 4, 8, (const float[]){1, 2, 3, 4, 1, 2, 3, 4}, eight);
    check_printed(t, "Qcur_rope-0", 1, 4, 8, (const float[]){1, 2, 3, 4, 5.5f, 6, 7, 8}, eight);
    check_printed(t, "kq_soft_max-0", 0, 2, 4, (const float[]){1, 0, 1, 0}, four);
    check_printed(t, "kq_soft_max-0", 1, 2, 4, (const float[]){0.25f, 0.75f, 0.5f, 0.5f}, four);
    check_printed(t, "kqv_out-0", 1, 8, 6, (const float[]){2, 2, 2, 2, 2, 2}, six);
    check_printed(t, "attn_out-0", 0, 8, 6, (const float[]){3, 3, 3, 3, 3, 3}, six);
    check_printed(t, "l_out-0", 1, 8, 6, (const float[]){5, 5, 5, 5, 5, 5}, six);
    CHECK(!find_row(t, "l_out-0", 0) && !find_row(t, "result_norm", 1), "rows that are not there");
    check_ignored(t, "norm");
    /* A sum of printed values gives no mean; 99 / 16 and 41 / 8 do. */
    const struct trace_row *all = find_row(t, "kqv_out-0", TRACE_ALL_TOKENS), *one = find_row(t, "l_out-0", 1);
    CHECK(!find_row(t, "attn_out-0", TRACE_ALL_TOKENS) && !find_row(t, "embd", TRACE_ALL_TOKENS), "a mean of some");
    CHECK(all && all->stats.mean == 99.0 / 16 && isnan(all->stats.rms) && all->n_value == 0, "a mean of all");
    CHECK(one && one->stats.mean == 41.0 / 8, "a mean of one");
    const struct trace_row *q = find_row(t, "Qcur-0", 0), *embd = find_row(t, "embd", 0);
    CHECK(q && embd && q->quantum == 1e-4f && embd->quantum == 1e-4f, "steps");
    plumb_trace_free(t);
}

/* Numbers as other C libraries print them, and numbers longer than any value. */
static void callback_numbers(void) {
    static const uint32_t eight[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const char text[] =
        "inp_embd = (f32) GET_ROWS(token_embd.weight{8, 99, 1, 1}, inp_tokens{1, 1, 1, 1}}) = {8, 1, 1, 1}\n"
        "[\n[\n[-nan(ind), NAN, Inf, -INFINITY, +1.5, -.25e1,\t"
        "0.1000000000000000055511151231257827021181583404541015625000000000000000000000, 1e400],\n],\n]\nsum = nan\n";
    plumb_trace *t = read_text(text, strlen(text));
    CHECK(plumb_trace_error(t)[0] == 0, "%s", plumb_trace_error(t));
    check_printed(t, "embd", 0, 8, 8, (float[]){NAN, NAN, INFINITY, -INFINITY, 1.5f, -2.5f, 0.1f, INFINITY}, eight);
    plumb_trace_free(t);
    static const char last[] = "inp_embd = (f32) GET_ROWS(b{4, 99, 1, 1}, c{1, 1, 1, 1}}) = {4, 1, 1, 1}\n"
        "[\n[\n[0.25, 0.5, 1e-3, nan],\n],\n]\nsum = nan\n";
    t = read_text(last, strlen(last));
    const struct trace_row *row = find_row(t, "embd", 0);
    CHECK(row && row->quantum == 0.01f, "the finest step, that of 0.25: %g", row ? (double)row->quantum : 0);
    plumb_trace_free(t);
    static const char *const none[] = {"na", "nan(ind", "nano", "infi", "inf(1)", "infinity1", "-", "--inf", "0x10",
                                       "1.5f", "1.5.5", "1e", "e1", ".", "1\v"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        char broken[256];
        snprintf(broken, sizeof broken, "a = (f32) GET_ROWS(b{1, 9, 1, 1}, c{1, 1, 1, 1}}) = {1, 1, 1, 1}\n"
                 "inp_embd = (f32) GET_ROWS(b{1, 9, 1, 1}, c{1, 1, 1, 1}}) = {1, 1, 1, 1}\n[[[%s]]]\nsum = 1\n"
                 "a = (f32) GET_ROWS(b{1, 9, 1, 1}, c{1, 1, 1, 1}}) = {1, 1, 1, 1}\n", none[i]);
        t = read_text(broken, strlen(broken));
        CHECK(strstr(plumb_trace_error(t), "expected the next line of its values"),
              "%s: \"%s\"", none[i], plumb_trace_error(t));
        plumb_trace_free(t);
    }
}

/* A second run of the graph continues behind the first; steps of one token are not the prompt. */
static void callback_passes(void) {
    static const char step[] =
        "cb: embd = (f32) GET_ROWS(token_embd.weight{2, 9, 1, 1}, inp_tokens{1, 1, 1, 1}}) = {2, 1, 1, 1}\n[\n[\n"
        "[0.5, 0.25],\n],\n]\nsum = 0.75\n"
        "cb: Qcur-0 = (f32) VIEW(wqkv-0{4, 1, 1, 1}, }) = {2, 2, 1, 1}\n[\n[\n[1.5, 2.5],\n[3.5, 4.5],\n],\n]\n"
        "cb: kq_soft_max-0 = (f32) SOFT_MAX(kq-0{32, 1, 1, 1}, KQ_mask{32, 1, 1, 1}}) = {32, 1, 1, 1}\n[\n[\n"
        "[0.5, 0.25, 0.25, ..., 0.0, 0.0, 0.0],\n],\n]\nsum = 1.0\n";
    static char text[sizeof old_text + 2 * sizeof step];
    int n = snprintf(text, sizeof text, "%s%s%s", old_text, step, step);
    plumb_trace *t = read_text(text, (size_t)n);
    CHECK(plumb_trace_error(t)[0] == 0, "%s", plumb_trace_error(t));
    CHECK(t->n_token == 4 && t->n_prompt == 2, "%u tokens, a prompt of %u", t->n_token, t->n_prompt);
    for (uint32_t pos = 2; pos < 4; pos++) {
        check_printed(t, "embd", pos, 2, 2, (const float[]){0.5f, 0.25f}, (const uint32_t[]){0, 1});
        check_printed(t, "Qcur-0", pos, 2, 4, (const float[]){1.5f, 2.5f, 3.5f, 4.5f}, (const uint32_t[]){0, 1, 2, 3});
        check_printed(t, "kq_soft_max-0", pos, 4, 3, (const float[]){0.5f, 0.25f, 0.25f}, (const uint32_t[]){0, 1, 2});
    }
    const struct trace_row *row = find_row(t, "embd", 3);
    CHECK(row && row->quantum == 0.01f, "the step of 0.25: %g", row ? (double)row->quantum : 0);
    plumb_trace_free(t);
}

/* llama.cpp rotates the heads of Q, K and V for a quantized cache, and undoes that behind attention.  Heads of 8 are
 * rotated in parts of 4. */
static void callback_rotated(void) {
#define FOUR(x) "[" #x ", " #x ", " #x ", " #x "],\n"
#define EIGHT(x) "[" #x ", " #x ", " #x ", ..., " #x ", " #x ", " #x "],\n"
#define PARTS "[\n[\n" FOUR(9) FOUR(9) FOUR(9) FOUR(9) "],\n]\nsum = 144\n"
#define HEADS(x) "[\n[\n" EIGHT(x) "],\n[\n" EIGHT(x) "],\n]\nsum = 1\n"
#define ROWS(x) "[\n[\n" EIGHT(x) EIGHT(x) "],\n]\nsum = 1\n"
    static const char text[] =
        "number of input tokens = 2\n  5\n  6\n"
        "cb: Qcur-0 = (f32) ROPE(Qcur-0{8, 1, 2, 1}, inp_pos{2, 1, 1, 1}}) = {8, 1, 2, 1}\n" HEADS(1)
        "cb: Qcur-0 (reshaped) = (f32) RESHAPE(Qcur-0{8, 1, 2, 1}, }) = {4, 4, 1, 1}\n" PARTS
        "cb: node_1 = (f32) MUL_MAT(attn_inp_k_rot{4, 4, 1, 1}, Qcur-0 (reshaped){4, 4, 1, 1}}) = {4, 4, 1, 1}\n" PARTS
        "cb: Vcur-0 = (f32) MUL_MAT(blk.0.attn_v.weight{8, 8, 1, 1}, attn_norm-0{8, 2, 1, 1}}) = {8, 2, 1, 1}\n" ROWS(2)
        "cb: Vcur-0 = (f32) RESHAPE(Vcur-0{8, 2, 1, 1}, }) = {8, 1, 2, 1}\n" HEADS(2)
        "cb: Vcur-0 (reshaped) = (f32) RESHAPE(Vcur-0{8, 1, 2, 1}, }) = {4, 4, 1, 1}\n" PARTS
        "cb: node_2 = (f32) MUL_MAT(attn_inp_v_rot{4, 4, 1, 1}, Vcur-0 (reshaped){4, 4, 1, 1}}) = {4, 4, 1, 1}\n" PARTS
        "cb: (reshaped) = (f32) RESHAPE(node_2{4, 4, 1, 1}, }) = {8, 1, 2, 1}\n" HEADS(8)
        "cb: kqv_out-0 = (f32) RESHAPE(node_3{8, 1, 2, 1}, }) = {8, 2, 1, 1}\n" ROWS(7)
        "cb: kqv_out-0 (reshaped) = (f32) RESHAPE(kqv_out-0{8, 2, 1, 1}, }) = {4, 4, 1, 1}\n" PARTS
        "cb: node_4 = (f32) MUL_MAT(attn_inp_v_rot{4, 4, 1, 1}, kqv_out-0 (reshaped){4, 4, 1, 1}}) = {4, 4, 1, 1}\n"
        PARTS "cb: (reshaped) = (f32) RESHAPE(node_4{4, 4, 1, 1}, }) = {8, 2, 1, 1}\n" ROWS(3);
    static const uint32_t six[] = {0, 1, 2, 5, 6, 7};
    plumb_trace *t = read_text(text, sizeof text - 1);
    check_tokens(t, (const int32_t[]){5, 6}, 2, 2);
    check_printed(t, "Qcur_rope-0", 1, 8, 6, (const float[]){1, 1, 1, 1, 1, 1}, six);
    check_printed(t, "Vcur-0", 1, 8, 6, (const float[]){2, 2, 2, 2, 2, 2}, six);
    check_printed(t, "kqv_out-0", 1, 8, 6, (const float[]){3, 3, 3, 3, 3, 3}, six);
    CHECK(t->n_tap == 3, "%zu taps", t->n_tap);
    plumb_trace_free(t);
}

/* Where the result of the product that undoes the rotation is not there, kqv_out cannot be read. */
static void callback_still_rotated(void) {
#define KQV(x) \
    "number of input tokens = 2\n  5\n  6\n" \
    "cb: Vcur-0 = (f32) RESHAPE(Vcur-0{8, 2, 1, 1}, }) = {8, 1, 2, 1}\n" HEADS(2) \
    "cb: kqv_out-0 = (f32) RESHAPE(node_3{8, 1, 2, 1}, }) = {8, 2, 1, 1}\n" ROWS(7) \
    "cb: kqv_out-0 (reshaped) = (f32) RESHAPE(kqv_out-0{8, 2, 1, 1}, }) = {4, 4, 1, 1}\n" PARTS \
    "cb: node_4 = (f32) MUL_MAT(attn_inp_v_rot{4, 4, 1, 1}, kqv_out-0 (reshaped){4, 4, 1, 1}}) = {4, 4, 1, 1}\n" \
    PARTS x
#define ATTN_OUT "cb: attn_out-0 = (f32) MUL_MAT(blk.0.attn_output.weight{8, 8, 1, 1}, x{8, 2, 1, 1}}) = " \
    "{8, 2, 1, 1}\n" ROWS(4)
    static const struct { const char *text; size_t n_tap; } rows[] = {
        { KQV("cb: (reshaped) = (f32) RESHAPE(node_4{4, 4, 1, 1}, }) = {8, 2, 1, 1}\n" ATTN_OUT), 2 },
        { KQV("cb: (reshaped) = (f32) RESHAPE(node_4{4, 4, 1, 1}, }) = {8, 2, 1, 2}\n" ROWS(3) ATTN_OUT), 2 },
        { KQV(ATTN_OUT), 2 }, { KQV(""), 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_trace *t = read_text(rows[i].text, strlen(rows[i].text));
        const struct remark *remark = remarks_first_ignored(&t->remarks);
        for (size_t k = 0; k < t->remarks.n; k++) {
            if (strcmp(t->remarks.list[k].name, "kqv_out-0") == 0) remark = &t->remarks.list[k];
        }
        CHECK(remark && strcmp(remark->name, "kqv_out-0") == 0 && strstr(remark->text, "rotated"), "row %zu: %s", i,
              remark ? remark->text : "no remark");
        CHECK(t->n_tap == rows[i].n_tap && !trace_find_tap(t, TAP_KQV_OUT, 0), "row %zu: %zu taps", i, t->n_tap);
        plumb_trace_free(t);
    }
}
#undef FOUR
#undef EIGHT
#undef PARTS
#undef HEADS
#undef ROWS
#undef KQV
#undef ATTN_OUT

static void json_prompt(void) {
    static const struct { const char *json; uint32_t n_prompt; } rows[] = {
        {"{\"tokens\":[1,2],\"taps\":[]}", 2}, {"{\"tokens\":[1,2],\"n_prompt\":1,\"taps\":[]}", 1},
        {"{\"tokens\":[1,2],\"n_prompt\":0,\"taps\":[]}", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_trace *t = read_text(rows[i].json, strlen(rows[i].json));
        CHECK(t->n_token == 2 && t->n_prompt == rows[i].n_prompt, "%s: a prompt of %u", rows[i].json, t->n_prompt);
        plumb_trace_free(t);
    }
}

static void few_tokens(void) {
    static const char json[] = "{\"taps\":[{\"name\":\"embd\",\"token\":5,\"values\":[1]}]}";
    plumb_trace *t = read_text(json, strlen(json));
    CHECK(plumb_trace_set_tokens(t, (const int32_t[]){1, 2, 3}, 3, 3) == PLUMB_ERROR_ARGUMENT
          && strstr(plumb_trace_error(t), "embd of token 5, but there are 3 tokens"), "%s", plumb_trace_error(t));
    plumb_trace_free(t);
}

static void callback_hostile(void) {
#define HEAD "cb: l_out-0 = (f32) ADD(a{8, 2, 1, 1}, b{8, 2, 1, 1}}) = {8, 2, 1, 1}\n"
#define NEXT "cb: x = (f32) ADD(a{8, 2, 1, 1}, b{8, 2, 1, 1}}) = {8, 2, 1, 1}\n"
    static const struct { const char *text, *message; } rows[] = {
        {"", "the file is empty"},
        {" \n\n", "the file is empty"},
        {"plumb 0.1.0, 2 tokens\ntap             tokens     shape\n", "this is the table that `plumb trace` prints"},
        {"hello\n", "not a trace"},
        {NEXT, "not a trace"},
        {"number of input tokens = 3\n1\n2", "not a trace"},
        {HEAD "[\n[\n[1, 2, 3, ..., 6, 7],\n" NEXT, "line 4, l_out-0 of {8, 2, 1}"},
        {HEAD "[\n[\n[1, 2, 3, ..., 6, 7, 8, 9],\n" NEXT, "line 4, "},
        {HEAD "[\n[\n[1, 2, 3, 4, 5, ..., 8],\n" NEXT, "line 4, "},
        {HEAD "[\n[\n[1, 2, ..., ..., 7, 8],\n" NEXT, "line 4, "},
        {HEAD "[\n[\n[..., 7, 8],\n" NEXT, "line 4, "},
        {HEAD "[\n[\n[1, 2, x, ..., 6, 7, 8],\n" NEXT, "line 4, "},
        {HEAD "[\n[\n[1, 2, 3, ..., 6, 7, 8],\n],\n]\n" NEXT, "line 5, "},
        {HEAD "[\n[\n[[1], 2],\n" NEXT, "line 4, "},
        {HEAD "[\n[\n1, 2\n" NEXT, "line 4, "},
        {HEAD "[\n]\n" NEXT, "line 3, "},
        {"cb: l_out-0 = (f32) ADD(a{8, 2, 1, 1}, b{8, 2, 1, 1}}) = {65536, 65536, 1, 1}\n[\n", "not a trace"},
        {HEAD, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_trace *t = read_text(rows[i].text, strlen(rows[i].text));
        CHECK(strstr(plumb_trace_error(t), rows[i].message) != NULL, "row %zu: %s", i, plumb_trace_error(t));
        plumb_trace_free(t);
    }
    /* A last block that is incomplete or damaged is dropped; the blocks before it are kept. */
    static const char whole[] = HEAD "[\n[\n[1, 2, 3, ..., 6, 7, 8],\n[1, 2, 3, ..., 6, 7, 8],\n],\n]\n";
    static const char *const tails[] = {"[\n[\n[1, 2, 3, ..., 6, 7", "[\n[\n[1, 2, 2, 3, ..., 7\n7, 8],\n", "",
                                        "[\n]\n"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        char text[400];
        int n = snprintf(text, sizeof text, "%scb: l_out-1 = (f32) A(a{8, 2, 1, 1}, }) = {8, 2, 1, 1}\n%s", whole,
                         tails[i]);
        plumb_trace *t = read_text(text, (size_t)n);
        CHECK(plumb_trace_error(t)[0] == 0 && find_row(t, "l_out-0", 1) && !find_row(t, "l_out-1", 0), "tail %zu: %s",
              i, plumb_trace_error(t));
        plumb_trace_free(t);
    }
}

/* ---- rows in any order ------------------------------------------------------------------------------------------- */

/* A file of 4 MB with its rows from the last to the first: inserted one by one they would take minutes here. */
static void rows_backwards(void) {
    enum { N = 100000, MOST = 48 };   /* MOST: largest size of a row in bytes */
    char *text = malloc((N + 2) * MOST);
    if (!text) abort();
    size_t at = (size_t)snprintf(text, MOST, "{\"taps\":[{\"name\":\"embd\",\"rms\":1}");
    for (uint32_t pos = N; pos-- > 0;) {
        at += (size_t)snprintf(text + at, MOST, ",{\"name\":\"embd\",\"token\":%u,\"rms\":%u}", pos, 2 * pos);
    }
    memcpy(text + at, "]}", 2);
    plumb_trace *t = read_text(text, at + 2);
    const struct trace_tap *tap = trace_find_tap(t, TAP_EMBD, -1);
    if (CHECK(tap && tap->n_row == N + 1, "%s", plumb_trace_error(t))) {
        for (uint32_t pos = 0; pos < N; pos++) {
            const struct trace_row *row = trace_find_row(tap, pos);
            if (!CHECK(row && row->stats.rms == 2.0 * pos, "token %u", pos)) break;
        }
        CHECK(trace_find_row(tap, TRACE_ALL_TOKENS) == &tap->rows[N], "the statistics of all tokens are not last");
    }
    plumb_trace_free(t);
    free(text);
}

static void rows_twice(void) {
    static const char text[] = "{\"taps\":[{\"name\":\"embd\",\"token\":1},{\"name\":\"embd\",\"token\":0},"
                               "{\"name\":\"l_out-0\",\"token\":0},{\"name\":\"embd\",\"token\":1}]}";
    plumb_trace *t = read_text(text, sizeof text - 1);
    CHECK(strcmp(plumb_trace_error(t), "embd occurs twice for token 1") == 0, "%s", plumb_trace_error(t));
    plumb_trace_free(t);
}

/* ---- any bytes --------------------------------------------------------------------------------------------------- */

/* Every prefix, and every byte with one bit flipped, is read or refused with a message.  The sanitizers check the
 * rest. */
static uint32_t mutilate(const char *bytes, size_t n) {
    char *copy = malloc(n);
    uint32_t n_read = 0;
    if (!copy) abort();
    for (size_t i = 0; i < n; i++) {
        plumb_trace *t = read_text(bytes, i);
        n_read += plumb_trace_error(t)[0] == 0;
        plumb_trace_free(t);
        memcpy(copy, bytes, n);
        copy[i] = (char)(copy[i] ^ 1 << i % 8);
        plumb_trace_free(read_text(copy, n));
    }
    free(copy);
    return n_read;
}

static void any_text(void) {
    uint32_t n_read = mutilate(old_text, sizeof old_text - 1);
    CHECK(n_read > sizeof old_text / 2, "%u prefixes have a tap", n_read);
}

static void any_npz(void) {
    static const char *const names[] = {"read", "read-deflated", "read-zip64", "read-one-token", "heads-or-tokens"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[120];
        size_t n;
        snprintf(path, sizeof path, CORPUS "npz-%s", names[i]);
        char *bytes = test_read_all(path, &n);
        REQUIRE(bytes != NULL, "%s", path);
        CHECK(mutilate(bytes, n) == 0, "%s: a prefix was read", names[i]);
        free(bytes);
    }
}

void test_trace_read(void) {
    test_case("trace_read: numpy's types, orders and shapes are read", numpy_types);
    test_case("trace_read: numpy's attention weights are read token first and head first", numpy_weights);
    test_case("trace_read: files of numpy.savez_compressed are read", numpy_compressed);
    test_case("trace_read: every .npz file of the corpus gives the expected status", numpy_corpus);
    test_case("trace_read: a second name of one tap is ignored", numpy_two_names);
    test_case("trace_read: axes that a shape does not tell apart are shown by other arrays or assumed", numpy_axes);
    test_case("trace_read: DEFLATE streams made by hand from RFC 1951 are decoded", inflate_by_hand);
    test_case("trace_read: the text of llama-eval-callback gives llama.cpp's values", callback_values);
    test_case("trace_read: the text of a layer of experts gives llama.cpp's values", callback_experts);
    test_case("trace_read: the text of older versions is read", callback_old);
    test_case("trace_read: numbers of other printf implementations are read", callback_numbers);
    test_case("trace_read: a list of tokens that is too short for the rows is refused", few_tokens);
    test_case("trace_read: JSON without a length of the prompt means all tokens, and 0 means none", json_prompt);
    test_case("trace_read: a text of several passes is read", callback_passes);
    test_case("trace_read: what llama.cpp rotates for a quantized cache is read as if it had not", callback_rotated);
    test_case("trace_read: kqv_out whose rotation is not undone is left out, with a remark", callback_still_rotated);
    test_case("trace_read: broken texts are refused or read up to the damage", callback_hostile);
    test_case("trace_read: rows in any order are sorted quickly", rows_backwards);
    test_case("trace_read: a row that occurs twice, far apart, is refused", rows_twice);
    test_case("trace_read: a damaged text is read or refused", any_text);
    test_case("trace_read: a damaged .npz is read or refused", any_npz);
    test_case("trace_read: an .npz that unpacks to much more than it has is refused first", refuses_bombs);
}
