/* Selfcheck: files that llama.cpp runs pass, and each check fails on a file, or on activations, that break its rule. */
#include "adversary.h"
#include "threads/pool.h"
#include "api/model.h"
#include "broken.h"
#include "fixture.h"
#include "kernels/kernels.h"
#include "model/plan.h"
#include "test.h"
#include "check/selfcheck.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SYNTH "tests/vectors/synth/"

static bool run(plumb_model *m, plumb_format format, struct capture *told) {
    bool ok = false;
    plumb_report report = { .format = format, .write = capture_write, .user = told, .name_a = "a \"model\"" };
    CHECK(m && plumb_selfcheck(m, &report, &ok) == PLUMB_OK, "%s", m ? plumb_model_error(m) : "no model");
    return ok;
}

/* ---- good files -------------------------------------------------------------------------------------------------- */

static const char *const names[] = { "file", "tensors", "statistics", "layers", "head", "norms", "depth", "pairs",
                                     "tokenizer", "rope", "softmax", "position-0", "absorbed", "experts", "layer",
                                     "batch", "cache", "saved", "threads", "simd", "relaxed", "text", "reference" };
enum { N_CHECK = sizeof names / sizeof *names };

/* What on_progress was told. */
struct progress { struct capture told; uint32_t n; double last; bool ascends; };

static void note_write(void *user, const char *data, size_t n) {
    struct progress *p = user;
    capture_write(&p->told, data, n);
}
static void note_progress(void *user, double done) {
    struct progress *p = user;
    p->ascends = p->ascends && done >= p->last;
    p->last = done;
    p->n++;
}

/* Progress is reported within the checks that take long, too. */
static void progress_case(void) {
    struct progress p = { .ascends = true };
    plumb_model *m = fixture_load(SYNTH "f32.gguf");
    bool ok = false;
    plumb_report report = { .format = PLUMB_FORMAT_TEXT, .write = note_write, .user = &p,
                            .on_progress = note_progress };
    CHECK(m && plumb_selfcheck(m, &report, &ok) == PLUMB_OK && ok, "%s", m ? plumb_model_error(m) : "no model");
    CHECK(p.ascends && p.last > 0.99 && p.last <= 1.001, "it ends at %g", p.last);
    uint64_t n_tensor = m ? plumb_model_n_tensor(m) : 0;   /* 12: the tokens of the check of the cache */
    CHECK(p.n == n_tensor + N_CHECK + 12, "%u reports for %llu tensors", p.n, (unsigned long long)n_tensor);
    capture_free(&p.told);
    plumb_model_free(m);
}

static void good_row(const void *row) {
    struct broken b = { 0 };
    struct capture text = { 0 }, json = { 0 };
    if (broken_read(&b, row)) {
        CHECK(run(b.good, PLUMB_FORMAT_TEXT, &text) && run(b.good, PLUMB_FORMAT_JSON, &json), "%s", text.text);
        size_t n_ok = 0;
        for (size_t i = 0; i < N_CHECK; i++) {
            char line[40], named[40];
            snprintf(line, sizeof line, "OK    %-11s ", names[i]);
            snprintf(named, sizeof named, "{\"name\": \"%s\", ", names[i]);
            bool is_ok = text.text && strstr(text.text, line);
            /* Two layers are too few to compare; the models are toys without experts or latent attention; threads and
             * SIMD depend on the build. */
            bool may_skip = strcmp(names[i], "layers") == 0 || strcmp(names[i], "depth") == 0
                            || strcmp(names[i], "pairs") == 0 || strcmp(names[i], "text") == 0
                            || strcmp(names[i], "experts") == 0 || strcmp(names[i], "absorbed") == 0
                            || strcmp(names[i], "threads") == 0
                            || strcmp(names[i], "simd") == 0 || strcmp(names[i], "relaxed") == 0;
            CHECK(is_ok || may_skip, "%s: %s", names[i], text.text);
            CHECK(json.text && strstr(json.text, named), "%s is not in the JSON", names[i]);
            n_ok += is_ok;
        }
        struct pool *pool = pool_create(2);
        struct kernels k;
        kernels_init(&k, KERNELS_RELAXED, PLUMB_PRECISION_FAST8);
        /* Relaxed kernels exist for codes of 4 to 7 bits and, on some machines, for Q8_0, which the others have. */
        bool has_none = strstr(row, "f32") || strstr(row, "bf16");
        bool has_types = !has_none && (strstr(row, "/q4_") || strstr(row, "/q6_") || k.bytes[1].dot[QUANT_Q8_0]);
        bool threads_ran = strstr(text.text, "OK    threads") != NULL;
        bool has_few_layers = !strstr(row, "/gemma3.gguf");   /* it has 4 layers, the others have 2 */
        size_t n_skip = 5 + (size_t)has_few_layers + !threads_ran;   /* 5: depth, pairs, absorbed, experts, text */
        n_skip += k.isa == KERNELS_SCALAR;
        n_skip += k.isa != KERNELS_RELAXED || !has_types;
        /* Each of these rows says what was tested, or why it could not be. */
        CHECK(strstr(json.text, "the other threads took part")
              || strstr(json.text, pool_size(pool) > 1 ? "only the first thread" : "has one thread"), "%s",
              json.text);
        CHECK(strstr(json.text, k.isa != KERNELS_RELAXED ? "has no relaxed SIMD" : has_types ? "exact16 and fast8 with "
                     "relaxed kernels, for " : "have no relaxed kernels") != NULL, "%s", json.text);
        pool_free(pool);
        CHECK(strstr(json.text, "\"limits\": \"What leaves the model fluent is not seen here") != NULL, "%s",
              json.text);
        CHECK(n_ok == N_CHECK - n_skip, "%zu checks OK, %zu may be skipped: %s", n_ok, n_skip, text.text);
        CHECK(json.text && strstr(json.text, "\"model\": \"a \\\"model\\\"\"")
              && strstr(json.text, "\"ok\": true"), "%s", json.text);
    }
    capture_free(&text);
    capture_free(&json);
    broken_free(&b);
}

/* ---- broken files ------------------------------------------------------------------------------------------------ */

static void fill(struct broken *b, const char *name, float value) {
    size_t n = 0;
    uint8_t *data = broken_data(b, name, &n);
    for (size_t i = 0; data && i < n / 4; i++) broken_set_f32(data, i, value);
}
/* Sets the f16 scale of block i of a Q8_0 tensor. */
static void set_d(struct broken *b, const char *name, size_t i, unsigned bits) {
    uint8_t *data = broken_data(b, name, NULL);
    if (!data) return;
    data[34 * i] = (uint8_t)bits;
    data[34 * i + 1] = (uint8_t)(bits >> 8);
}
static void zero(struct broken *b, const char *name) {
    size_t n = 0;
    uint8_t *data = broken_data(b, name, &n);
    if (data) memset(data, 0, n);
}

static void cut(struct broken *b) { b->n -= 100; }
static void renamed(struct broken *b) {
    broken_rename(b, "blk.0.attn_q.weight", "blk.0.attn_x.weight");
    broken_rename(b, "blk.1.ffn_up.weight", "blk.9.ffn_up.weight");
}
static void transposed(struct broken *b) {   /* [32, 64] and [64, 32], both Q8_0 */
    broken_reverse_shape(b, "blk.0.ffn_gate.weight");
    broken_reverse_shape(b, "blk.1.ffn_down.weight");
}
static void block_count(struct broken *b) {
    uint8_t *key = broken_entry(b, "llama.block_count");
    if (key) key[4] = 3;   /* after the type, u32 */
}
static void nan_scale(struct broken *b) { set_d(b, "blk.1.attn_k.weight", 3, 0x7e00); }
static void inf_value(struct broken *b) {
    uint8_t *data = broken_data(b, "blk.0.attn_norm.weight", NULL);
    if (data) broken_set_f32(data, 5, INFINITY);
}
static void zeros(struct broken *b) { zero(b, "blk.0.attn_output.weight"); }
static void zero_expert(struct broken *b) {   /* of 4 experts */
    size_t n = 0;
    uint8_t *data = broken_data(b, "blk.1.ffn_up_exps.weight", &n);
    if (data) memset(data + n / 2, 0, n / 4);
}
static void peak(struct broken *b) { set_d(b, "blk.0.ffn_up.weight", 7, 0x7bff); }   /* 65504 */
static void tiny(struct broken *b) { broken_scale(b, "blk.0.ffn_up.weight", 1e-7f, 0); }
static void constant(struct broken *b) { fill(b, "blk.1.attn_v.weight", 0.125f); }
static void one_constant_row(struct broken *b) {
    uint8_t *data = broken_data(b, "blk.1.attn_v.weight", NULL);
    for (size_t i = 0; data && i < 32; i++) broken_set_f32(data, 32 * 4 + i, 0.125f);
}
static void one_constant_embedding(struct broken *b) {
    uint8_t *data = broken_data(b, "token_embd.weight", NULL);
    for (size_t i = 0; data && i < 32; i++) broken_set_f32(data, 32 * 4 + i, 0.125f);
}
static void high_bias(struct broken *b) {
    uint8_t *data = broken_data(b, "blk.0.attn_k.bias", NULL);
    if (data) broken_set_f32(data, 3, 10);   /* 4 times the RMS of all 16 */
}
static void zero_embeddings(struct broken *b) { zero(b, "token_embd.weight"); }
static void zero_head(struct broken *b) { zero(b, "output.weight"); }
static void copied_head(struct broken *b) {
    size_t n = 0;
    uint8_t *head = broken_data(b, "output.weight", &n), *embd = broken_data(b, "token_embd.weight", NULL);
    if (head && embd) memcpy(head, embd, n);
}
static const char *const norm_names[] = { "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "blk.1.attn_norm.weight",
                                          "blk.1.ffn_norm.weight", "output_norm.weight" };
static void norms_less_one(struct broken *b) {
    for (size_t i = 0; i < 5; i++) broken_scale(b, norm_names[i], 1, -1);
}
static void norms_one(struct broken *b) {
    for (size_t i = 0; i < 5; i++) fill(b, norm_names[i], 1);
}
static void norm_one(struct broken *b) { fill(b, "output_norm.weight", 1); }
static void norm_small(struct broken *b) { broken_scale(b, norm_names[2], 1e-5f, 0); }
/* Replaces the token of the letter o. */
static void lost_letter(struct broken *b) {
    static const uint8_t token[] = { 1, 0, 0, 0, 0, 0, 0, 0, 'o', 1, 0, 0, 0, 0, 0, 0, 0, 'p' };
    for (size_t i = 0; i + sizeof token <= b->n; i++) {
        if (memcmp(b->bytes + i, token, sizeof token) != 0) continue;
        b->bytes[i + 8] = 1;   /* a name that GPT-2 gives to no byte */
        return;
    }
    CHECK(false, "no letter o");
}

static const struct broken_file {
    const char *name, *file;
    void (*make)(struct broken *b);
    const char *line, *detail;   /* beginning of a line of the report, and a text somewhere after it */
} broken_files[] = {
    { "a file cut short", SYNTH "q8_0.gguf", cut, "FAIL  file        ", "output_norm.weight" },
    { "a part of a split model", SYNTH "split-00001-of-00003.gguf", NULL, "FAIL  file        ", "split into 3 files" },
    { "an expert of zeros", "tests/vectors/archs/olmoe.gguf", zero_expert, "FAIL  statistics  ",
      "blk.1.ffn_up_exps.weight (Q8_0): in 1 of 4 experts all values are 0, the first is expert 2" },
    { "a tensor of another name is missing and unknown", SYNTH "q8_0.gguf", renamed, "FAIL  tensors     4 tensors",
      "tensor \"blk.0.attn_x.weight\" is not used by" },
    { "all problems of the directory, extra", SYNTH "q8_0.gguf", renamed, "FAIL  tensors     ",
      "tensor \"blk.9.ffn_up.weight\" is not used by" },
    { "all problems of the directory, missing", SYNTH "q8_0.gguf", renamed, "FAIL  tensors     ",
      "tensor blk.0.attn_q.weight is missing" },
    { "all problems of the directory, the last", SYNTH "q8_0.gguf", renamed, "FAIL  tensors     ",
      "tensor blk.1.ffn_up.weight is missing" },
    { "transposed matrices, the first", SYNTH "q8_0.gguf", transposed, "FAIL  tensors     2 tensors",
      "tensor blk.0.ffn_gate.weight: expected shape [32, 64], file has Q8_0 [64, 32]: it is transposed" },
    { "transposed matrices, the second", SYNTH "q8_0.gguf", transposed, "FAIL  tensors     2 tensors",
      "tensor blk.1.ffn_down.weight: expected shape [64, 32], file has Q8_0 [32, 64]: it is transposed" },
    { "a block more than there is", SYNTH "q8_0.gguf", block_count, "FAIL  tensors     9 tensors",
      "tensor blk.2.ffn_down.weight is missing" },
    { "a block scale that is NaN", SYNTH "q8_0.gguf", nan_scale, "FAIL  statistics  ",
      "blk.1.attn_k.weight (Q8_0): 32 NaN and 0 infinite of 512 values, the first at [row 3, column 0]" },
    { "NaN reaches the activations", SYNTH "q8_0.gguf", nan_scale, "FAIL  reference   Kcur-1 is the first tap with NaN",
      "" },
    { "an infinite norm weight", SYNTH "q8_0.gguf", inf_value, "FAIL  statistics  ",
      "blk.0.attn_norm.weight (F32): 0 NaN and 1 infinite of 32 values, the first at [5]" },
    { "a matrix of zeros", SYNTH "q8_0.gguf", zeros, "FAIL  statistics  ",
      "blk.0.attn_output.weight (Q8_0): all 1024" },
    { "a block of wrong scale", SYNTH "q8_0.gguf", peak, "FAIL  statistics  ",
      "blk.0.ffn_up.weight (Q8_0): a value of " },
    { "a matrix far too small", SYNTH "f32.gguf", tiny, "FAIL  statistics  ",
      "blk.0.ffn_up.weight (F32): the RMS is " },
    { "a matrix of one value", SYNTH "f32.gguf", constant, "FAIL  statistics  ",
      "blk.1.attn_v.weight (F32): in 16 of 16 rows all values are equal" },
    { "a row of one value", SYNTH "f32.gguf", one_constant_row,
      "WARN  statistics  blk.1.attn_v.weight: in 1 of 16 rows all values are equal, the first is row 4", "" },
    /* tokens that never occurred in training; numpy's largest |w| / usual of the weights except biases */
    { "an embedding of one value", SYNTH "f32.gguf", one_constant_embedding,
      "OK    statistics  all values are finite, no weight is all zeros", "" },
    { "a bias of any height", SYNTH "qwen2.gguf", high_bias,
      "OK    statistics  all values are finite, no weight is all zeros",
      "the highest peak is 2.81 times the usual magnitude, in blk.0.ffn_gate.weight" },
    { "embeddings of zeros, tied", SYNTH "q8_0.gguf", zero_embeddings,
      "FAIL  head        token_embd.weight is all zeros", "" },
    { "a head of zeros", SYNTH "untied.gguf", zero_head, "FAIL  head        output.weight is all zeros", "" },
    { "a head that repeats the embeddings", SYNTH "untied.gguf", copied_head,
      "WARN  head        output.weight repeats token_embd.weight", "" },
    { "norms stored less 1", SYNTH "f32.gguf", norms_less_one, "FAIL  norms       5 of 5 norms are centred on 0", "" },
    { "norms of ones", SYNTH "f32.gguf", norms_one, "WARN  norms       all 5 norms are exactly 1", "" },
    { "one norm of ones", SYNTH "f32.gguf", norm_one,
      "WARN  norms       1 of 5 norms are exactly 1, output_norm.weight is the first", "" },
    { "a norm out of scale", SYNTH "f32.gguf", norm_small, "FAIL  norms       1 of 5 norms",
      "blk.1.attn_norm.weight: the RMS is 1.02e-05" },
    { "a vocabulary without the letter o", SYNTH "q8_0.gguf", lost_letter, "FAIL  tokenizer   ", "is decoded as" },
};

/* The lines of a report before they are wrapped, including those of details. */
static void unwrap(char *text) {
    for (char *at; (at = strstr(text, "\n                  "));) {
        *at++ = ' ';
        size_t n = strspn(at, " ");
        memmove(at, at + n, strlen(at + n) + 1);
    }
}

static void broken_row(const void *row) {
    const struct broken_file *f = row;
    struct broken b = { 0 };
    struct capture told = { 0 };
    plumb_model *wrong = NULL;
    b.bytes = test_read_all(f->file, &b.n);
    if (f->make && b.bytes) {
        free(b.bytes);
        b.bytes = NULL;
        if (broken_read(&b, f->file)) f->make(&b);
    }
    if (b.bytes) {
        wrong = broken_load(&b);
        bool ok = run(wrong, PLUMB_FORMAT_TEXT, &told);
        CHECK(ok == (f->line[0] != 'F'), "%s", told.text);
        if (told.text) unwrap(told.text);
        const char *line = told.text ? strstr(told.text, f->line) : NULL;
        CHECK(line && (line == told.text || line[-1] == '\n'), "%s: %s", f->line, told.text);
        CHECK(line && strstr(line, f->detail), "%s: %s", f->detail, told.text);
    }
    capture_free(&told);
    plumb_model_free(wrong);
    broken_free(&b);
}

/* A directory that the loader refuses: its message is the whole report. */
static void refused_case(void) {
    struct broken b = { 0 };
    struct capture told = { 0 };
    plumb_model *m = plumb_model_create();
    uint8_t *entry = m && broken_read(&b, SYNTH "q8_0.gguf") ? broken_entry(&b, "blk.0.attn_q.weight") : NULL;
    if (entry) {
        entry[4 + 2 * 8 + 4]++;   /* its offset, after n_dims, the shape and the type */
        CHECK(plumb_model_begin(m, b.n) == PLUMB_OK
              && fixture_give(m, b.bytes, 0, b.n, SIZE_MAX) == PLUMB_ERROR_TENSOR, "%s", plumb_model_error(m));
        char line[400];
        snprintf(line, sizeof line, "FAIL  file        %s\nSKIP  tensors     ", plumb_model_error(m));
        CHECK(!run(m, PLUMB_FORMAT_TEXT, &told), "it is ok");
        if (told.text) unwrap(told.text);
        CHECK(told.text && strncmp(told.text, line, strlen(line)) == 0, "%s", told.text);
        snprintf(line, sizeof line, "\n0 OK, 0 WARN, 1 FAIL, %d SKIP\n", N_CHECK - 1);
        CHECK(told.text && strstr(told.text, line), "%s", told.text);
    }
    capture_free(&told);
    plumb_model_free(m);
    broken_free(&b);
}

/* Six layers; one tensor of one layer is 20 times as large as in the others. */
static void layers_case(void) {
    struct gguf_tensor tensors[12] = { 0 };
    struct tensor_stats stats[12] = { 0 };
    char texts[12][32];
    for (int i = 0; i < 12; i++) {
        int n = snprintf(texts[i], sizeof texts[i], "blk.%d.%s.weight", i / 2, i % 2 == 0 ? "attn_q" : "attn_norm");
        tensors[i] = (struct gguf_tensor) { .name = { texts[i], (uint64_t)n } };
        stats[i] = (struct tensor_stats) { .tensor = &tensors[i], .n_row = i % 2 == 0 ? 64 : 1,
                                           .rms = i % 2 == 0 ? 0.2 + 0.01 * i : 1.0 };
    }
    struct check c = { 0 };
    stats[1].rms = 0.05;   /* the first norm may be that small: SmolLM2's is */
    selfcheck_layers(&c, stats, 12);
    CHECK(c.verdict == VERDICT_OK && strstr(c.why, "blk.0.attn_norm.weight is nearest to its bound: its RMS ")
          && strstr(c.why, "a factor of 20 (bound 32)"), "%s", c.why);
    stats[6].rms *= 20;
    selfcheck_layers(&c, stats, 12);
    CHECK(c.verdict == VERDICT_FAIL && c.n_detail == 1 && strstr(c.details[0], "blk.3.attn_q.weight"), "%s: %s", c.why,
          c.n_detail > 0 ? c.details[0] : "");
    stats[6].rms /= 20;
    stats[11].rms = 1e-3;
    selfcheck_layers(&c, stats, 12);
    CHECK(c.verdict == VERDICT_FAIL && c.n_detail == 2 && strstr(c.details[1], "blk.5.attn_norm.weight"), "%s", c.why);
    selfcheck_layers(&c, stats, 6);
    CHECK(c.verdict == VERDICT_SKIP, "three layers: %s", c.why);
    free(c.details);
}

/* ---- weights in other places ------------------------------------------------------------------------------------- */

enum { DEEP = 10, WIDE = 64 };

/* Returns a number of -1..1 that depends on i alone. */
static double made_up(size_t i) { return (double)((uint64_t)i * 2654435761u % 10007) / 5003 - 1; }

/* Norms of DEEP layers that change slowly: value k of layer il lies between one made-up number and another.  Both kinds
 * of norms share nothing. */
static void make_norms(float norms[2][DEEP][WIDE]) {
    for (size_t kind = 0; kind < 2; kind++) {
        for (size_t il = 0; il < DEEP; il++) {
            for (size_t k = 0; k < WIDE; k++) {
                double part = (double)il / (DEEP - 1);
                double from = made_up(977 * kind + k), to = made_up(5000 + 977 * kind + k);
                norms[kind][il][k] = (float)exp(from * (1 - part) + to * part);
            }
        }
    }
}

static void exchange_norms(float *a, float *b) {
    float copy[WIDE];
    memcpy(copy, a, sizeof copy);
    memcpy(a, b, sizeof copy);
    memcpy(b, copy, sizeof copy);
}

/* Checks the norms.  detail: a text of the first detail; NULL: the verdict must be this one, without details. */
static void check_depth(float norms[2][DEEP][WIDE], size_t n_layer, enum verdict verdict, const char *detail) {
    struct gguf_tensor tensors[2 * DEEP + 1] = { 0 };
    struct tensor_stats stats[2 * DEEP + 1] = { 0 };
    char texts[2 * DEEP + 1][64];
    size_t n = 0;
    for (size_t i = 0; i < 2 * n_layer; i++, n++) {
        snprintf(texts[n], sizeof texts[n], "blk.%zu.%s_norm.weight", i / 2, i % 2 == 0 ? "attn" : "ffn");
        tensors[n].data = (uint8_t *)norms[i % 2][i / 2];
    }
    snprintf(texts[n], sizeof texts[n], "output_norm.weight");
    tensors[n++].data = (uint8_t *)norms[0][0];
    for (size_t i = 0; i < n; i++) {
        tensors[i].name = (struct gguf_string) { texts[i], strlen(texts[i]) };
        tensors[i].n_elements = tensors[i].shape[0] = WIDE;
        stats[i] = (struct tensor_stats) { .tensor = &tensors[i], .n_row = 1, .rms = 1 };
    }
    struct check c = { 0 };
    selfcheck_depth(&c, stats, n);
    CHECK(c.verdict == verdict && (detail ? c.n_detail == 1 && strstr(c.details[0], detail) : c.n_detail == 0),
          "%s; %u details: %s", c.why, c.n_detail, c.n_detail > 0 ? c.details[0] : "");
    free(c.details);
}

static void depth_case(void) {
    static float norms[2][DEEP][WIDE];
    make_norms(norms);
    check_depth(norms, DEEP, VERDICT_OK, NULL);
    check_depth(norms, 7, VERDICT_SKIP, NULL);
    for (size_t kind = 0; kind < 2; kind++) exchange_norms(norms[kind][2], norms[kind][7]);
    check_depth(norms, DEEP, VERDICT_WARN, "layers 2 and 7: with the norms of one in the place of the other's");
    make_norms(norms);
    exchange_norms(norms[0][5], norms[1][5]);
    check_depth(norms, DEEP, VERDICT_WARN, "layer 5: attn_norm and ffn_norm are more similar to each other's");
    make_norms(norms);
    for (size_t il = 0; il < DEEP; il++) memset(norms[0][il], 0, sizeof norms[0][il]);   /* all equal: not compared */
    check_depth(norms, DEEP, VERDICT_SKIP, NULL);
}

enum { PAIR_LAYERS = 3, PAIR_HEADS = 3, PAIR_DIM = 64, PAIR_IN = 8, PAIR_ROWS = PAIR_HEADS * PAIR_DIM };

/* Fills a matrix whose rows have made-up lengths.  The rows 2i and 2i + 1 of a head, or i and i + 32 with `halves`,
 * have the same length if `paired`. */
static void make_rows(float *w, size_t seed, bool paired, bool halves) {
    for (size_t r = 0; r < PAIR_ROWS; r++) {
        size_t pair = halves ? r % (PAIR_DIM / 2) : r % PAIR_DIM / 2;
        size_t which = paired ? r / PAIR_DIM * PAIR_DIM + pair : r;
        for (size_t i = 0; i < PAIR_IN; i++) w[r * PAIR_IN + i] = (float)exp(made_up(seed + 7 * which));
    }
}

/* Q, K and V of each layer: whether the rows are paired, and how. */
struct rows { bool paired, halves; };
static void check_pairs(const struct rows rows[PAIR_LAYERS][3], enum verdict verdict, const char *says) {
    static float w[PAIR_LAYERS][3][PAIR_ROWS * PAIR_IN];
    static const int places[] = { W_ATTN_Q, W_ATTN_K, W_ATTN_V };
    static struct weight weights[PAIR_LAYERS][3];
    static struct layer layers[PAIR_LAYERS];
    static struct layer_plan plans[PAIR_LAYERS];
    struct model m = { .plan = { .n_layer = PAIR_LAYERS, .layers = plans }, .layers = layers };
    m.plan.ropes[0] = (struct rope_plan) { .pairing = ROPE_NORM, .n_rot = PAIR_DIM };
    for (size_t il = 0; il < PAIR_LAYERS; il++) {
        plans[il].attn = (struct attn_plan) { .n_head = PAIR_HEADS, .n_head_kv = PAIR_HEADS, .k_dim = PAIR_DIM,
                                              .v_dim = PAIR_DIM, .is_causal = true };
        for (size_t k = 0; k < 3; k++) {
            make_rows(w[il][k], 1000 * il + 300 * k, rows[il][k].paired, rows[il][k].halves);
            weights[il][k] = (struct weight) { .traits = quant_traits(QUANT_F32), .type = QUANT_F32, .n_in = PAIR_IN,
                                               .data = (uint8_t *)w[il][k], .n_out = PAIR_ROWS, .n_matrix = 1,
                                               .row_bytes = PAIR_IN * sizeof(float) };
            layers[il].w[places[k]].w = &weights[il][k];
        }
    }
    struct check c = { .model = &m };
    selfcheck_pairs(&c);
    bool found = strstr(c.why, says) || (c.n_detail > 0 && strstr(c.details[0], says));
    CHECK(c.verdict == verdict && found, "%s; %u details: %s", c.why, c.n_detail, c.n_detail > 0 ? c.details[0] : "");
    free(c.details);
}

static void pairs_case(void) {
    static const struct rows yes = { true, false }, no = { false, false }, other = { true, true };
    check_pairs((struct rows[][3]) { { yes, yes, no }, { yes, yes, no }, { yes, yes, no } }, VERDICT_OK,
                "have similar lengths in Q and K, not in V");
    check_pairs((struct rows[][3]) { { yes, yes, no }, { yes, no, yes }, { yes, yes, no } }, VERDICT_WARN,
                "layer 1: attn_v has RoPE's pairs of rows (correlation 1.00), attn_k does not");
    check_pairs((struct rows[][3]) { { yes, no, yes }, { yes, no, yes }, { yes, no, yes } }, VERDICT_FAIL,
                "are K and V exchanged?");
    check_pairs((struct rows[][3]) { { yes, yes, no }, { yes, yes, no }, { other, yes, no } }, VERDICT_WARN,
                "layer 2: the rows of attn_q have the pairs of halves (correlation 1.00)");
    check_pairs((struct rows[][3]) { { other, yes, no }, { other, yes, no }, { other, yes, no } }, VERDICT_FAIL,
                "the rows of attn_q are in the order of the other kind of RoPE");
    check_pairs((struct rows[][3]) { { yes, other, no }, { yes, other, no }, { yes, other, no } }, VERDICT_FAIL,
                "the rows of attn_k are in the order of the other kind of RoPE");
}

static void perplexity_case(void) {
    static const struct { double value; enum verdict verdict; const char *says; } rows[] = {
        { 2.97, VERDICT_OK, "perplexity 2.97 over 84 tokens" }, { 21, VERDICT_WARN, "or made for other texts?" },
        { 1130, VERDICT_FAIL, "guessing gives 49152" }, { NAN, VERDICT_FAIL, "perplexity nan" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct check c = { 0 };
        selfcheck_perplexity(&c, rows[i].value, 84, 49152);
        CHECK(c.verdict == rows[i].verdict && strstr(c.why, rows[i].says), "%g: %s", rows[i].value, c.why);
    }
}

/* With more than 10,000 special tokens the row says how many were left out. */
static void specials_case(void) {
    static const struct { size_t n; const char *says; } rows[] = {
        { 1 << 17, "restored, 5000 special tokens are one token each" },
        { (1 << 18) + 32, "restored, the 200 longest of 10001 special tokens are one token each" },
    };
    const struct adversary *a = adversaries;
    while (a->name && strcmp(a->name, "40,000 special tokens per MiB") != 0) a++;
    REQUIRE(a->name, "no such vocabulary");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct attack attack;
        struct check c = { 0 };
        REQUIRE(attack_create(&attack, a, "gpt-2", rows[i].n), "it cannot be made");
        selfcheck_tokenizer(&c, attack.t);
        CHECK(c.verdict == VERDICT_OK && strstr(c.why, rows[i].says), "%s", c.why);
        free(c.details);
        attack_free(&attack);
    }
}

/* ---- broken activations ------------------------------------------------------------------------------------------ */

enum { N_TOKEN = 8 };

static void record_tap(void *trace, const plumb_tap *tap) {
    CHECK(plumb_trace_add(trace, tap) == PLUMB_OK, "%s", plumb_trace_error(trace));
}

/* Records all taps of a prompt of the tiny model, by one of the passes. */
static struct plumb_trace *record(plumb_model *m, plumb_pass pass) {
    int32_t ids[N_TOKEN] = { 72, 101, 13, 255, 0, 97, 97, 32 };
    for (size_t i = 0; i < N_TOKEN; i++) ids[i] %= (int32_t)plumb_model_n_vocab(m);
    static const plumb_trace_params all = { .layer_last = UINT32_MAX, .n_value = UINT32_MAX };
    struct plumb_trace *t = plumb_trace_create();
    plumb_session *s = NULL;
    plumb_session_params params = { .n_ctx = N_TOKEN, .pass = pass, .precision = PLUMB_PRECISION_EXACT16 };
    if (CHECK(t && plumb_session_create(&s, m, &params) == PLUMB_OK
              && plumb_trace_begin(t, s, ids, N_TOKEN, N_TOKEN, &all) == PLUMB_OK
              && plumb_session_set_tap(s, record_tap, t) == PLUMB_OK, "%s", plumb_model_error(m))) {
        plumb_session_feed_all(s, ids, N_TOKEN, NULL, NULL);   /* also of models without logits */
    }
    plumb_session_free(s);
    return t;
}

/* Returns value (token, head, i) of a recorded tap, so that it can be changed. */
static float *value_of(struct plumb_trace *trace, enum tap_id id, int32_t layer, uint32_t t, uint32_t h, uint32_t i) {
    static float none;
    const struct trace_tap *tap = trace_find_tap(trace, id, layer);
    struct tap_text name;
    if (!CHECK(tap && t < tap->n_row && h < tap->rows[t].n_head && i < tap->rows[t].n, "no %s",
               tap_show(&name, id, layer))) {
        return &none;
    }
    return &tap->rows[t].values[(size_t)h * tap->rows[t].n + i];
}

/* Changes one value of a trace and runs one check.  model: NULL stands for synth/q8_0. */
struct doctored {
    const char *name, *model;
    enum tap_id tap;
    int32_t layer;
    uint32_t t, h, i;
    float factor, add;      /* value * factor + add */
    void (*check)(struct check *c, const struct plumb_trace *t);
    const char *why;        /* contained in the first detail */
};

static const struct doctored doctored[] = {
    { "RoPE that makes a query longer", NULL, TAP_QCUR_ROPE, 1, 3, 2, 1, 1.001f, 0, selfcheck_rope,
      "Qcur-1: token 3, head 2" },
    { "RoPE that makes a key NaN", NULL, TAP_KCUR_ROPE, 0, 7, 1, 0, 1, NAN, selfcheck_rope, "Kcur-0: token 7, head 1" },
    { "attention that sums to 1.001", NULL, TAP_KQ_SOFT_MAX, 1, 5, 3, 0, 1, 0.001f, selfcheck_softmax,
      "kq_soft_max-1: token 5, head 3: the weights sum to 1.001" },
    { "attention to a later token", NULL, TAP_KQ_SOFT_MAX, 0, 2, 1, 3, 0, 1e-6f, selfcheck_softmax,
      "kq_soft_max-0: token 2, head 1: the weight of token 3 is 1e-06, which is a later token" },
    { "a negative attention weight", NULL, TAP_KQ_SOFT_MAX, 0, 6, 0, 2, -1, 0, selfcheck_softmax,
      "the weight of token 2 is -" },
    { "an attention weight that is NaN", NULL, TAP_KQ_SOFT_MAX, 0, 6, 0, 2, 1, NAN, selfcheck_softmax,
      "the weight of token 2 is" },
    { "RoPE that turns position 0", NULL, TAP_KCUR_ROPE, 1, 0, 1, 4, 1.0001f, 0, selfcheck_first,
      "layer 1, position 0: Kcur" },
    { "a first token that does not give V", NULL, TAP_KQV_OUT, 0, 0, 3, 7, 1.0001f, 0, selfcheck_first,
      "layer 0, position 0: kqv_out[head 3, 7]" },
    { "a first token that gives another head's V", NULL, TAP_VCUR, 0, 0, 1, 0, 1, 1, selfcheck_first,
      "kqv_out[head 2, 0]" },   /* heads 2 and 3 share it */
    /* Other kinds of layers. */
    { "an element that a partial RoPE must not change", "gptneox", TAP_QCUR_ROPE, 1, 3, 2, 7, 1.001f, 0, selfcheck_rope,
      "Qcur-1: token 3, head 2: RoPE rotates 4 elements, but element 7 is" },
    { "RoPE in a layer without it", "smollm3", TAP_KCUR_ROPE, 3, 5, 1, 2, 1.001f, 0, selfcheck_rope,
      "Kcur-3: token 5, head 1: RoPE rotates 0 elements, but element 2 is" },
    { "norms of Q after RoPE, RoPE makes a query longer", "hunyuan-dense", TAP_QCUR_ROPE, 0, 3, 2, 1, 1.01f, 0,
      selfcheck_rope, "Qcur-0: token 3, head 2: norm" },
    { "YaRN without its magnitude in one element", "mellum", TAP_QCUR_ROPE, 2, 3, 2, 1, 0.5f, 0, selfcheck_rope,
      "Qcur_normed-2: token 3, head 2: norm" },
    { "YaRN's magnitude at position 0", "mellum", TAP_KCUR_ROPE, 2, 0, 1, 1, 1.001f, 0, selfcheck_first,
      "layer 2, position 0: Kcur" },
    { "attention before the window", "gemma2", TAP_KQ_SOFT_MAX, 0, 7, 1, 0, 1, 1e-6f, selfcheck_softmax,
      "kq_soft_max-0: token 7, head 1: the weight of token 0 is 1e-06, which is before the window" },
    { "attention after a window", "modern-bert", TAP_KQ_SOFT_MAX, 1, 2, 1, 7, 1, 1e-6f, selfcheck_softmax,
      "kq_soft_max-1: token 2, head 1: the weight of token 7 is 1e-06, which is after the window" },
    { "attention with sinks that sums to more than 1", "gpt-oss", TAP_KQ_SOFT_MAX, 1, 5, 3, 5, 1, 1, selfcheck_softmax,
      "kq_soft_max-1: token 5, head 3: the weights sum to 1." },
    { "a first token that takes all of V in spite of a sink", "gpt-oss", TAP_KQV_OUT, 1, 0, 2, 3, 1.01f, 0,
      selfcheck_first, "layer 1, position 0: kqv_out[head 2, 3]" },
    { "V narrower than K", "mimo2", TAP_KQV_OUT, 1, 0, 2, 3, 1.01f, 0, selfcheck_first,
      "layer 1, position 0: kqv_out[head 2, 3]" },
    { "latent attention, RoPE makes a query longer", "deepseek2", TAP_QCUR_ROPE, 1, 3, 2, 17, 1.01f, 0, selfcheck_rope,
      "q-1: token 3, head 2: norm" },
    { "latent attention, RoPE makes a key longer", "mistral4", TAP_KCUR_ROPE, 0, 5, 0, 20, 1.01f, 0, selfcheck_rope,
      "kv_cmpr_pe-0: token 5, head 0: norm" },
    { "latent attention, RoPE in a model without it", "kimi-linear", TAP_KCUR_ROPE, 4, 5, 0, 20, 1.001f, 0,
      selfcheck_rope, "kv_cmpr_pe-4: token 5, head 0: RoPE rotates 0 elements, but element 20 is" },
    { "latent attention, a key that is not the latent vector", "bailingmoe3", TAP_KCUR_ROPE, 1, 7, 0, 15, 1.001f, 0,
      selfcheck_rope, "kv_cmpr_pe-1: token 7, head 0: RoPE rotates 8 elements, but element 15 is" },
    { "latent attention, plain, RoPE makes the key of a head longer", "plm", TAP_KCUR_ROPE, 2, 4, 3, 8, 1.01f, 0,
      selfcheck_rope, "kv_cmpr_pe-2: token 4, head 3: norm" },
    { "latent attention, plain, a query where RoPE does nothing", "minicpm3", TAP_QCUR_ROPE, 2, 4, 3, 1, 1.001f, 0,
      selfcheck_rope, "q-2: token 4, head 3: RoPE rotates 4 elements, but element 1 is" },
    { "latent attention, plain, a key of another head", "minicpm3", TAP_KCUR_ROPE, 0, 4, 1, 2, 1.001f, 0,
      selfcheck_rope, "kv_cmpr_pe-0: token 4, head 1: RoPE rotates 4 elements, but element 2 is" },
    { "latent attention, RoPE that turns position 0", "deepseek2", TAP_KCUR_ROPE, 1, 0, 0, 23, 1.0001f, 0,
      selfcheck_first, "layer 1, position 0: kv_cmpr_pe[head 0, 23] is" },
    { "latent attention, RoPE that turns a query at position 0", "plm", TAP_QCUR_ROPE, 1, 0, 2, 8, 1.0001f, 0,
      selfcheck_first, "layer 1, position 0: q[head 2, 8] is" },
    { "latent attention, a first token that does not give V", "deepseek2", TAP_LATENT_HEADS, 2, 0, 3, 5, 1.001f, 0,
      selfcheck_first, "layer 2, position 0: kqv_latent[head 3, 5] is" },
    { "latent attention, plain, a first token that gives another head's V", "minicpm3", TAP_VCUR, 0, 0, 1, 0, 1, 1,
      selfcheck_first, "layer 0, position 0: kqv_out[head 1, 0] is" },
    { "absorbed, an output that plain attention does not give", "deepseek2", TAP_KQV_OUT, 2, 5, 1, 27, 1, 0.5f,
      selfcheck_absorbed, "kqv_out-2: head 1: relative error" },
    { "absorbed, the latent vectors of a token are not what was stored", "kimi-linear", TAP_LATENT, 1, 3, 0, 7, -3, 0,
      selfcheck_absorbed, "kqv_out-1: head 0: relative error" },
    { "absorbed, queries that are not rotated", "mistral4", TAP_QCUR_ROPE, 0, 7, 3, 23, -1, 1, selfcheck_absorbed,
      "kqv_out-0: head 3: relative error" },
    { "an expert that is used twice", "olmoe", TAP_FFN_USED, 1, 2, 0, 0, 0, 9, selfcheck_experts,
      "ffn_moe_topk-1: token 2: expert 9 is not one of 4, or is used twice" },
    { "an expert with a better score that is not used", "olmoe", TAP_FFN_PROBS, 1, 2, 0, 0, 0, -1, selfcheck_experts,
      "ffn_moe_topk-1: token 2: the last of 2 experts is number" },
    { "an expert that the bias does not choose", "minimax-m2", TAP_FFN_PROBS_BIASED, 2, 2, 0, 1, 0, -9,
      selfcheck_experts, "ffn_moe_topk-2: token 2: the last of 2 experts is number" },
    { "weights of experts that do not sum to 1", "qwen3moe", TAP_FFN_WEIGHTS_NORM, 0, 4, 1, 0, 1.1f, 0,
      selfcheck_experts, "ffn_moe_weights_norm-0: token 4: the weights sum to" },
    { "a sum that lacks an expert", "gpt-oss", TAP_EXPERT_WEIGHTED, 0, 4, 1, 0, 1.5f, 0, selfcheck_experts,
      "ffn_moe_out-0: token 4: relative error" },
    { "a sum of other experts, weights first", "llama4", TAP_EXPERT_DOWN, 1, 4, 0, 3, 1.5f, 0, selfcheck_experts,
      "ffn_moe_out-1: token 4: relative error" },
};

static void doctored_row(const void *row) {
    const struct doctored *d = row;
    struct broken b = { 0 };
    struct plumb_trace *t = NULL;
    struct check good = { 0 }, c = { 0 };
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", d->model ? d->model : "");
    if (broken_read(&b, d->model ? path : SYNTH "q8_0.gguf")) {
        good.model = c.model = b.good->model;
        t = record(b.good, PLUMB_PASS_FAST);
        d->check(&good, t);
        CHECK(good.verdict == VERDICT_OK, "before: %s", good.why);
        float *value = value_of(t, d->tap, d->layer, d->t, d->h, d->i);
        *value = *value * d->factor + d->add;
        d->check(&c, t);
        CHECK(c.verdict == VERDICT_FAIL && c.n_detail > 0 && strstr(c.details[0], d->why), "%s: %s", c.why,
              c.n_detail > 0 ? c.details[0] : "");
    }
    free(good.details);
    free(c.details);
    plumb_trace_free(t);
    broken_free(&b);
}

static void reference_case(void) {
    struct broken b = { 0 };
    struct plumb_trace *fast = NULL, *reference = NULL;
    struct check c = { 0 };
    if (broken_read(&b, SYNTH "q8_0.gguf")) {
        fast = record(b.good, PLUMB_PASS_FAST);
        reference = record(b.good, PLUMB_PASS_REFERENCE);
        selfcheck_reference(&c, fast, reference, 0.01);
        CHECK(c.verdict == VERDICT_OK, "%s", c.why);
        test_note("%s", c.why);
        uint32_t n_of_layers = 0;   /* one detail for each of the two layers, and for embd and both results */
        for (uint32_t i = 0; i < c.n_detail; i++) n_of_layers += strncmp(c.details[i], "layer ", 6) == 0;
        CHECK(c.n_detail == 5 && n_of_layers == 2, "%u details, %u of layers", c.n_detail, n_of_layers);
        const struct trace_tap *gate = trace_find_tap(fast, TAP_FFN_GATE, 1);
        REQUIRE(gate, "no ffn_gate-1");
        for (uint32_t i = 0; i < gate->rows[0].n; i++) *value_of(fast, TAP_FFN_GATE, 1, 2, 0, i) *= 1.05f;
        selfcheck_reference(&c, fast, reference, 0.01);   /* 0.05 in one of 8 tokens: 0.018 */
        CHECK(c.verdict == VERDICT_FAIL && strstr(c.why, "ffn_gate-1 is the first tap over"), "%s", c.why);
        *value_of(fast, TAP_VCUR, 0, 1, 0, 0) = NAN;
        *value_of(reference, TAP_VCUR, 0, 1, 0, 0) = NAN;
        selfcheck_reference(&c, fast, reference, 0.01);
        CHECK(c.verdict == VERDICT_FAIL && strstr(c.why, "Vcur-0 is the first tap with NaN or infinity, at [1, 0]"),
              "%s", c.why);
        trace_clear(reference);
        selfcheck_reference(&c, fast, reference, 0.01);
        CHECK(c.verdict == VERDICT_FAIL, "nothing to compare with: %s", c.why);
    }
    free(c.details);
    plumb_trace_free(fast);
    plumb_trace_free(reference);
    broken_free(&b);
}

/* A head of zeros stays one, which is no error of 0 by 0. */
static void zeros_case(void) {
    struct broken b = { 0 };
    struct check c = { 0 };
    struct plumb_trace *t = NULL;
    if (broken_read(&b, SYNTH "q8_0.gguf")) {
        t = record(b.good, PLUMB_PASS_FAST);
        c.model = b.good->model;
        const struct trace_tap *q = trace_find_tap(t, TAP_QCUR, 0);
        for (uint32_t i = 0; q && i < q->rows[2].n; i++) {
            *value_of(t, TAP_QCUR, 0, 2, 1, i) = *value_of(t, TAP_QCUR_ROPE, 0, 2, 1, i) = 0;
        }
        selfcheck_rope(&c, t);
        CHECK(q && c.verdict == VERDICT_OK, "%s", c.why);
    }
    free(c.details);
    plumb_trace_free(t);
    broken_free(&b);
}

/* The checks batch, cache and simd compare bits. */
static void logits_case(void) {
    float a[6] = { 1, 2, 3, 4, 5, 6 }, b[6] = { 1, 2, 3, 4, 5, 6 };
    struct check c = { 0 };
    selfcheck_logits(&c, a, b, 2, 3, "so and so");
    CHECK(c.verdict == VERDICT_OK, "%s", c.why);
    b[4] = nextafterf(b[4], 6);
    selfcheck_logits(&c, a, b, 2, 3, "so and so");
    CHECK(c.verdict == VERDICT_FAIL && strstr(c.why, "so and so: 1 of 6 logits differ")
          && strstr(c.details[0], "after token 1, id 1: 5 and 5.0000004"), "%s: %s", c.why, c.details[0]);
    free(c.details);
}

static void misuse_case(void) {
    struct broken b = { 0 };
    struct capture told = { 0 };
    bool ok = true;
    plumb_report report = { .format = PLUMB_FORMAT_HTML, .write = capture_write, .user = &told };
    if (broken_read(&b, SYNTH "q8_0.gguf")) {
        CHECK(plumb_selfcheck(b.good, &report, &ok) == PLUMB_ERROR_ARGUMENT && !ok, "HTML");
        plumb_model *empty = plumb_model_create();
        CHECK(empty && plumb_selfcheck(empty, &report, &ok) == PLUMB_ERROR_STATE && !ok, "an empty model");
        plumb_model_free(empty);
    }
    capture_free(&told);
    broken_free(&b);
}

/* Models of other architectures, whose vocabulary has no texts. */
static void architecture_row(const void *row) {
    struct capture text = { 0 };
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", (const char *)row);
    plumb_model *m = fixture_load(path);
    CHECK(run(m, PLUMB_FORMAT_TEXT, &text), "%s", text.text);
    CHECK(text.text && strstr(text.text, "SKIP  tokenizer   the vocabulary has no texts"), "%s", text.text);
    plumb_model_info info = { .has_logits = true };
    plumb_model_get_info(m, &info);
    CHECK(text.text && (strstr(text.text, "the embeddings") != NULL) == !info.has_logits, "%s", text.text);
    CHECK(text.text && (strstr(text.text, "SKIP  head        the model computes embeddings") != NULL)
          == !info.has_logits, "%s", text.text);
    bool has_experts = m->model->plan.max_expert > 0;
    CHECK(text.text && strstr(text.text, has_experts ? "OK    experts" : "SKIP  experts"), "%s", text.text);
    bool attends = m->model->plan.max_k > 0;
    bool is_causal = plan_is_causal(&m->model->plan), is_absorbed = false;
    for (uint32_t il = 0; il < m->model->plan.n_layer; il++) {
        const struct layer_plan *l = &m->model->plan.layers[il];
        is_absorbed = is_absorbed || (plan_attends(l) && l->attn.latent.is_absorbed);
    }
    CHECK(text.text && strstr(text.text, attends ? "OK    rope" : "SKIP  rope"), "%s", text.text);
    CHECK(text.text && strstr(text.text, is_absorbed ? "OK    absorbed" : "SKIP  absorbed"), "%s", text.text);
    CHECK(text.text && strstr(text.text, attends ? "OK    softmax" : "SKIP  softmax"), "%s", text.text);
    CHECK(text.text && strstr(text.text, attends && is_causal ? "OK    position-0" : "SKIP  position-0"), "%s",
          text.text);
    plumb_model_free(m);
    capture_free(&text);
}

void test_selfcheck(void) {
    for (size_t i = 0; plan_architecture(i); i++) {
        char name[100];
        snprintf(name, sizeof name, "selfcheck: nothing is wrong with architecture %s", plan_architecture(i));
        if (test_repeats(i)) test_row(name, architecture_row, plan_architecture(i));
    }
    static const char *const good[] = { "q8_0", "f32", "bf16", "q4_0", "q4_k", "q6_k", "iq4_xs", "untied", "qwen2",
                                        "heads-4to1", "key-length", "rope-freqs", "rope-partial", "rope-linear",
                                        "llama-bias", "spm", "granite", "qwen3", "gemma3",
                                        "gemma3-full" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char name[100], path[100];
        snprintf(name, sizeof name, "selfcheck: nothing is wrong with %s", good[i]);
        snprintf(path, sizeof path, SYNTH "%s.gguf", good[i]);
        test_row(name, good_row, path);
    }
    TEST_ROWS("selfcheck: seen: ", broken_row, broken_files);
    test_case("selfcheck: seen: a directory that cannot be loaded", refused_case);
    test_case("selfcheck: seen: a tensor that is not like those of the other layers", layers_case);
    test_case("selfcheck: seen: layers and kinds of norms that are exchanged", depth_case);
    test_case("selfcheck: seen: K and V exchanged, rows of Q or K permuted", pairs_case);
    test_case("selfcheck: seen: a perplexity that no right model has", perplexity_case);
    test_case("selfcheck: special tokens that are left out are counted", specials_case);
    TEST_ROWS("selfcheck: seen: ", doctored_row, doctored);
    test_case("selfcheck: seen: a tap that is not the reference pass's", reference_case);
    test_case("selfcheck: a head of zeros is no error of RoPE", zeros_case);
    test_case("selfcheck: seen: a logit that differs in its last bit", logits_case);
    test_case("selfcheck: progress is reported within checks", progress_case);
    test_case("selfcheck: misuse gives a status", misuse_case);
}
