/* llama.cpp as an engine of driver.h, through a libllama from npm, which is built for every x86-64 from SSE4.2 to
 * AVX-512 and picks the best.  Its defaults are unchanged: repacked weights, f16 KV cache, flash attention auto.
 *
 *   llama serve MODEL N_CTX N_THREAD     driver.h
 *   llama quantize IN OUT TYPE           llama.cpp's own quantizer; TYPE as llama-quantize names it
 *   llama kl MODEL BASE N_THREAD         the divergence of its probabilities from a run that plumb perplexity --save
 *                                        wrote, by the formulas of src/cli/perplexity.c: one line of JSON
 *
 * Compiled by Emscripten, it is the module of engine-llama.js instead, which calls the functions at its end. */
#include "driver.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <llama.h>

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct llama_model *model;
static struct llama_context *context;
static char last_error[512] = "failed without a message";

/* Keeps warnings and errors for the answer and drops the rest. */
static void on_log(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) snprintf(last_error, sizeof last_error, "%s", text);
}

/* ---- the engine -------------------------------------------------------------------------------------------------- */

/* K and V in F32, and no flash attention: the faster setting in WebAssembly for some models. */
static bool is_plain;

/* In WebAssembly threads are lasting ones: by itself llama.cpp starts and ends them with each graph, and a worker that
 * has ended is there again only when the script that waits for it has returned. */
static const char *start_threads(uint32_t n_thread) {
#ifdef __EMSCRIPTEN__
    struct ggml_threadpool_params params = ggml_threadpool_params_default((int)n_thread);
    struct ggml_threadpool *pool = n_thread > 1 ? ggml_threadpool_new(&params) : NULL;
    if (n_thread > 1 && !pool) return "no threads can be started";
    if (pool) llama_attach_threadpool(context, pool, pool);
#endif
    (void)n_thread;
    return NULL;
}

static const char *open_with(const char *path, uint32_t n_ctx, uint32_t n_thread) {
    struct llama_model_params of_model = llama_model_default_params();
    model = llama_model_load_from_file(path, of_model);
    if (!model) return last_error;
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = n_ctx;
    params.n_threads = params.n_threads_batch = (int32_t)n_thread;
    if (is_plain) {
        params.type_k = params.type_v = GGML_TYPE_F32;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    }
    context = llama_init_from_model(model, params);
    return context ? start_threads(n_thread) : last_error;
}

static const char *engine_feed(const int32_t *ids, uint32_t n) {
    uint32_t n_batch = llama_n_batch(context);
    for (uint32_t at = 0, some; at < n; at += some) {
        some = n - at < n_batch ? n - at : n_batch;
        /* llama.cpp does not write to it, although its batch is not const. */
        if (llama_decode(context, llama_batch_get_one((llama_token *)(uintptr_t)(ids + at), (int32_t)some)) != 0) {
            return last_error;
        }
    }
    llama_synchronize(context);
    return NULL;
}

/* A recurrent state can't go back. */
static uint32_t engine_rewind(uint32_t n_past) {
    if (llama_memory_seq_rm(llama_get_memory(context), 0, (llama_pos)n_past, -1)) return n_past;
    llama_memory_clear(llama_get_memory(context), false);
    return 0;
}

/* The features of the CPU backend that was picked. */
static const char *engine_about(void) {
    static char about[256];
    snprintf(about, sizeof about, "llama.cpp %s", llama_version());
    const char *info = llama_print_system_info(), *cpu = strstr(info, "CPU : ");
    for (const char *p = cpu ? cpu + 6 : ""; *p; ) {
        size_t n = strcspn(p, "|"), length = strlen(about), name = strcspn(p, " =");
        if (isupper((unsigned char)*p) && length + name + 2 < sizeof about && memmem(p, n, "= 1", 3)) {
            snprintf(about + length, sizeof about - length, " %.*s", (int)name, p);
        }
        p += n;
        p += strspn(p, "| ");
    }
    return about;
}

#ifndef __EMSCRIPTEN__

/* ---- quantize ---------------------------------------------------------------------------------------------------- */

static int quantize(const char *in, const char *out, const char *type) {
    static const struct { const char *name; enum llama_ftype type; } types[] = {
        { "Q4_0", LLAMA_FTYPE_MOSTLY_Q4_0 }, { "Q4_1", LLAMA_FTYPE_MOSTLY_Q4_1 }, { "Q5_0", LLAMA_FTYPE_MOSTLY_Q5_0 },
        { "Q8_0", LLAMA_FTYPE_MOSTLY_Q8_0 }, { "Q4_K_M", LLAMA_FTYPE_MOSTLY_Q4_K_M },
        { "Q5_K_M", LLAMA_FTYPE_MOSTLY_Q5_K_M }, { "Q6_K", LLAMA_FTYPE_MOSTLY_Q6_K }, { "F16", LLAMA_FTYPE_MOSTLY_F16 },
        { "F32", LLAMA_FTYPE_ALL_F32 },
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(type, types[i].name) != 0) continue;
        struct llama_model_quantize_params params = llama_model_quantize_default_params();
        params.ftype = types[i].type;
        params.allow_requantize = true;   /* from the default model's type to F32 */
        if (llama_model_quantize(in, out, &params) == 0) return 0;
        fprintf(stderr, "llama: %s\n", last_error);
        return 1;
    }
    fprintf(stderr, "llama: no type %s\n", type);
    return 1;
}

/* ---- kl ---------------------------------------------------------------------------------------------------------- */

static int fail(const char *what) {
    fprintf(stderr, "llama: %s\n", what);
    return 1;
}

/* The base's log-probabilities at one position, and the divergence of ours from them. */
static bool compare(FILE *base, const float *logits, uint32_t n_vocab, uint16_t *levels, double *kl, bool *same_top) {
    float head[2];   /* scale, least: log p = least + scale * level */
    uint32_t best = 0, base_best = 0;
    double sum = 0;
    if (fread(head, sizeof head, 1, base) != 1 || fread(levels, 2, n_vocab + n_vocab % 2, base) < n_vocab) return false;
    for (uint32_t i = 1; i < n_vocab; i++) {
        if (logits[i] > logits[best]) best = i;
        if (levels[i] > levels[base_best]) base_best = i;
    }
    for (uint32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - (double)logits[best]);
    double log_sum = (double)logits[best] + log(sum);
    *kl = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        double log_p = (double)(head[0] * (float)levels[i] + head[1]);
        if (log_p > -16) *kl += exp(log_p) * (log_p - ((double)logits[i] - log_sum));
    }
    *same_top = best == base_best;
    return true;
}

static int kl(const char *path, const char *base_path, uint32_t n_thread) {
    struct { char magic[8]; uint32_t n_ctx, n_vocab, n_chunk; } head;
    FILE *base = fopen(base_path, "rb");
    if (!base) return fail(strerror(errno));
    if (fread(&head, sizeof head, 1, base) != 1 || memcmp(head.magic, "_logits_", 8) != 0) return fail("no saved run");
    const char *error = open_with(path, head.n_ctx, n_thread);
    if (error) return fail(error);
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    if (llama_vocab_n_tokens(vocab) != (int32_t)head.n_vocab) return fail("another vocabulary");
    size_t n_id = (size_t)head.n_ctx * head.n_chunk;
    int32_t *ids = malloc(n_id * sizeof *ids);
    uint16_t *levels = malloc(((size_t)head.n_vocab + 1) * sizeof *levels);
    struct llama_batch batch = llama_batch_init((int32_t)head.n_ctx, 0, 1);
    if (!ids || !levels || fread(ids, sizeof *ids, n_id, base) != n_id) return fail("the saved run is cut off");
    double sum = 0;
    uint32_t n = 0, n_same = 0;
    for (uint32_t chunk = 0; chunk < head.n_chunk; chunk++) {
        engine_rewind(0);
        batch.n_tokens = (int32_t)head.n_ctx - 1;
        for (uint32_t i = 0; i + 1 < head.n_ctx; i++) {
            batch.token[i] = ids[(size_t)chunk * head.n_ctx + i];
            batch.pos[i] = (llama_pos)i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = i >= head.n_ctx / 2;
        }
        if (llama_vocab_get_add_bos(vocab)) batch.token[0] = llama_vocab_bos(vocab);
        if (llama_decode(context, batch) != 0) return fail(last_error);
        for (uint32_t i = head.n_ctx / 2; i + 1 < head.n_ctx; i++, n++) {
            double divergence;
            bool same;
            if (!compare(base, llama_get_logits_ith(context, (int32_t)i), head.n_vocab, levels, &divergence, &same)) {
                return fail("the saved run is cut off");
            }
            sum += divergence;
            n_same += same;
        }
    }
    printf("{\"kl\": %.9g, \"same_top\": %.9g, \"tokens\": %" PRIu32 "}\n", sum / n, (double)n_same / n, n);
    return 0;
}

int main(int argc, char **argv) {
    static const struct engine engine = { open_with, engine_feed, engine_rewind, engine_about };
    llama_log_set(on_log, NULL);
    /* The CPU backends are in libllama's folder, where the loader does not search by itself. */
    ggml_backend_load_all_from_path(LLAMA_DIR);
    if (argc >= 2 && strcmp(argv[1], "serve") == 0) return drive(&engine, argc - 1, argv + 1);
    if (argc == 5 && strcmp(argv[1], "quantize") == 0) return quantize(argv[2], argv[3], argv[4]);
    if (argc == 5 && strcmp(argv[1], "kl") == 0) return kl(argv[2], argv[3], (uint32_t)strtoul(argv[4], NULL, 10));
    return fail("usage: serve MODEL N_CTX N_THREAD | quantize IN OUT TYPE | kl MODEL BASE N_THREAD");
}

#else

/* ---- the module -------------------------------------------------------------------------------------------------- */

/* These return NULL or an error message, except bench_rewind: see engine_rewind. */
const char *bench_open(const char *path, uint32_t n_ctx, uint32_t n_thread, bool plain);
const char *bench_feed(const int32_t *ids, uint32_t n);
uint32_t bench_rewind(uint32_t n_past);
const char *bench_about(void);

const char *bench_open(const char *path, uint32_t n_ctx, uint32_t n_thread, bool plain) {
    llama_log_set(on_log, NULL);
    is_plain = plain;
    return open_with(path, n_ctx, n_thread);
}

const char *bench_feed(const int32_t *ids, uint32_t n) { return engine_feed(ids, n); }
uint32_t bench_rewind(uint32_t n_past) { return engine_rewind(n_past); }
const char *bench_about(void) { return engine_about(); }

#endif
