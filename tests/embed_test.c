/* Texts -> tokens -> embeddings and scores.  Ground truth: llama.cpp's, in tests/vectors/embed. */
#include "fixture.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ID = 128, MAX_ELEMENT = 64 };
static const char query[] = "the {document} in it", query_of_template[] = "the thin one";

/* Reads numbers behind `name`, up to the next bracket.  Returns how many. */
static size_t read_numbers(const char **at, const char *name, double *out, size_t cap) {
    size_t n = 0;
    const char *found = strstr(*at, name);
    if (!found) return 0;
    for (char *end = strchr(found, '['); *end != ']' && n < cap;) out[n++] = strtod(end + 1, &end), *at = end;
    return n;
}

static double cosine_distance(const float *a, const double *b, size_t n) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * (double)a[i];
        bb += b[i] * b[i];
    }
    return 1 - ab / sqrt(aa * bb);
}

/* The tokens of each line of texts.txt, and what both passes make of them. */
static void text_row(const void *row) {
    const char *name = *(const char *const *)row;
    char path[120];
    size_t n_texts, n_expected;
    snprintf(path, sizeof path, "tests/vectors/embed/%s.gguf", name);
    plumb_model *m = fixture_load(path);
    snprintf(path, sizeof path, "tests/vectors/embed/%s.jsonl", name);
    char *texts = test_read_all("tests/vectors/embed/texts.txt", &n_texts);
    char *expected = test_read_all(path, &n_expected);
    bool ranks = strncmp(name, "rank-", 5) == 0;
    const char *q = !ranks ? NULL : strcmp(name, "rank-qwen3") == 0 ? query_of_template : query;
    for (int fast = 0; m && texts && expected && fast < 2; fast++) {
        plumb_session *s = NULL;
        const plumb_session_params params = { .n_ctx = 64, .pass = fast ? PLUMB_PASS_FAST : PLUMB_PASS_REFERENCE };
        if (!CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m))) break;
        const char *at = expected;
        double worst = 0;
        const char *line = texts, *end;
        size_t n_line = 0;
        for (; (end = memchr(line, '\n', n_texts - (size_t)(line - texts))); line = end + 1, n_line++) {
            double ids[MAX_ID], theirs[MAX_ELEMENT];
            int32_t ours[MAX_ID];
            size_t n_id = read_numbers(&at, "tokens", ids, MAX_ID);
            size_t n = read_numbers(&at, "vector", theirs, MAX_ELEMENT);
            int64_t n_own = plumb_tokenize_input(m, q, q ? strlen(q) : 0, line, (size_t)(end - line),
                                                 PLUMB_PARSE_SPECIAL, 0, ours, MAX_ID);
            bool same = n_own > 0 && (size_t)n_own == n_id;
            for (size_t i = 0; same && i < n_id; i++) same = ours[i] == (int32_t)ids[i];
            if (!CHECK(same, "%.*s: other tokens, %lld and %zu: %s", (int)(end - line), line, (long long)n_own, n_id,
                       plumb_model_error(m))) continue;
            uint32_t n_vector, n_element, length = (uint32_t)n_id;
            CHECK(plumb_session_embed(s, ours, &length, 1, PLUMB_POOLING_MODEL) == 1, "%s", plumb_session_error(s));
            const float *v = plumb_session_embedding(s, &n_vector, &n_element);
            if (!CHECK(v && n_vector == 1 && n_element == n, "%u elements, llama.cpp %zu", n_element, n)) continue;
            double distance = cosine_distance(v, theirs, n);
            for (size_t i = 0; ranks && i < n; i++) {   /* scores may have one element; they are near 1 */
                double d = fabs((double)v[i] - theirs[i]);
                if (d > distance || isnan(d)) distance = d;
            }
            if (distance > worst || isnan(distance)) worst = distance;
        }
        CHECK(n_line == 7, "%zu lines", n_line);
        double most = ranks ? (fast ? 5e-4 : 1e-5) : fast ? 1e-6 : 1e-11;
        CHECK(worst <= most, "%s pass: %g", fast ? "fast" : "reference", worst);
        test_note("%s pass: %s %.2g", fast ? "fast" : "reference", ranks ? "scores differ by" : "cosine distance",
                  worst);
        plumb_session_free(s);
    }
    free(texts);
    free(expected);
    plumb_model_free(m);
}

/* n_max leaves out the end of the text only: the tokens in front of it and behind it stay. */
static void limit_row(const void *row) {
    const char *name = *(const char *const *)row;
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/embed/%s.gguf", name);
    plumb_model *m = fixture_load(path);
    const char *q = strncmp(name, "rank-", 5) == 0 ? query_of_template : NULL, text[] = "the line is in it, the one";
    size_t n_query = q ? strlen(q) : 0;
    int32_t whole[MAX_ID], front[MAX_ID], some[MAX_ID];
    int64_t n = m ? plumb_tokenize_input(m, q, n_query, text, strlen(text), 0, 0, whole, MAX_ID) : 0;
    int64_t n_around = m ? plumb_tokenize_input(m, q, n_query, "", 0, 0, 0, front, MAX_ID) : 0;
    int64_t n_tail = 0;   /* tokens behind the text, which are the same without it */
    while (n_tail < n_around && front[n_around - 1 - n_tail] == whole[n - 1 - n_tail]) n_tail++;
    for (size_t n_max = (size_t)n_around + 1; m && n_max < (size_t)n; n_max++) {
        int64_t found = plumb_tokenize_input(m, q, n_query, text, strlen(text), 0, n_max, some, MAX_ID);
        CHECK(found == (int64_t)n_max, "%lld of %zu tokens: %s", (long long)found, n_max, plumb_model_error(m));
        size_t n_front = n_max - (size_t)n_tail;
        CHECK(memcmp(some, whole, n_front * sizeof *some) == 0
              && memcmp(some + n_front, whole + n - n_tail, (size_t)n_tail * sizeof *some) == 0, "%zu: others", n_max);
        /* Fewer are written than there are. */
        some[3] = -7;
        CHECK(plumb_tokenize_input(m, q, n_query, text, strlen(text), 0, n_max, some, 3) == found && some[3] == -7,
              "%zu: it writes more than it may", n_max);
    }
    for (size_t n_max = 1; m && n_max <= (size_t)n_around; n_max++) {
        CHECK(plumb_tokenize_input(m, q, n_query, text, strlen(text), 0, n_max, some, MAX_ID) == PLUMB_ERROR_CONTEXT
              && strstr(plumb_model_error(m), "no token of the text fits"), "%zu: %s", n_max, plumb_model_error(m));
    }
    CHECK(!m || plumb_tokenize_input(m, q, n_query, text, strlen(text), 0, (size_t)n, some, MAX_ID) == n, "all fit");
    plumb_model_free(m);
}

/* A template that has no place for the text, and one whose key has another name. */
static void template_case(void) {
    static const char place[] = "{document}", key[] = "tokenizer.chat_template.rerank";
    for (int renamed = 0; renamed < 2; renamed++) {
        size_t n;
        uint8_t *file = test_read_all("tests/vectors/embed/rank-qwen3.gguf", &n);
        for (size_t i = 0; file && i + sizeof key + 16 < n; i++) {
            if (!renamed && memcmp(file + i, place, sizeof place - 1) == 0) file[i + 1] = 'x';
            if (renamed && memcmp(file + i, key, sizeof key - 1) == 0) file[i + sizeof key - 2] = 'x';
        }
        plumb_model *m = plumb_model_create();
        if (file && CHECK(plumb_model_begin(m, n) == PLUMB_OK && fixture_give(m, file, 0, n, n) == PLUMB_OK
                          && plumb_model_end(m) == PLUMB_OK, "%s", plumb_model_error(m))) {
            int32_t a[MAX_ID], b[MAX_ID];
            int64_t n_a = plumb_tokenize_input(m, "a", 1, "b", 1, 0, 0, a, MAX_ID);
            int64_t n_b = plumb_tokenize_input(m, "a", 1, "in", 2, 0, 0, b, MAX_ID);
            if (!renamed) {
                CHECK(n_a == n_b && memcmp(a, b, (size_t)n_a * sizeof *a) == 0, "the text is somewhere");
                CHECK(plumb_tokenize_input(m, "a", 1, "b", 1, 0, 5, a, MAX_ID) == PLUMB_ERROR_CONTEXT, "5 tokens");
            } else {
                CHECK(n_a == 4 && n_b == 4, "without the template there are %lld and %lld tokens", (long long)n_a,
                      (long long)n_b);
            }
        }
        plumb_model_free(m);
        free(file);
    }
}

/* A file that asks for a token which its vocabulary lacks. */
static void missing_case(void) {
    size_t n;
    uint8_t *file = test_read_all("tests/vectors/embed/rank-bert-eos.gguf", &n);
    static const char eos[] = "tokenizer.ggml.eos_token_id", sep[] = "tokenizer.ggml.seperator_token_id";
    for (size_t i = 0; file && i + sizeof sep < n; i++) {   /* the names of both keys are changed */
        if (memcmp(file + i, eos, sizeof eos - 1) == 0 || memcmp(file + i, sep, sizeof sep - 1) == 0) file[i] = 'x';
    }
    plumb_model *m = plumb_model_create();
    if (file && CHECK(plumb_model_begin(m, n) == PLUMB_OK && fixture_give(m, file, 0, n, n) == PLUMB_OK
                      && plumb_model_end(m) == PLUMB_OK, "%s", plumb_model_error(m))) {
        int32_t ids[MAX_ID];
        int64_t found = plumb_tokenize_input(m, "a", 1, "b", 1, 0, 0, ids, MAX_ID);
        CHECK(found == PLUMB_ERROR_TOKENIZER && strstr(plumb_model_error(m), "asks for BOS, EOS or SEP"), "%lld: %s",
              (long long)found, plumb_model_error(m));
    }
    plumb_model_free(m);
    free(file);
}

void test_embed(void) {
    static const char *const names[] = { "bert", "modern-bert", "nomic-bert-moe", "gemma-embedding", "qwen3",
                                         "rank-bert", "rank-bert-eos", "rank-xlm", "rank-qwen3" };
    TEST_ROWS("embed: tokens and embeddings of texts equal llama.cpp's: ", text_row, names);
    TEST_ROWS("embed: of a long text the end is left out: ", limit_row, names);
    test_case("embed: a reranker that lacks a separator", missing_case);
    test_case("embed: a reranker's template without a place for the text, or of another name", template_case);
}
