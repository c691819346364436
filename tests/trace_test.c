/* Traces: taps' names, recording, JSON and GGUF files.  Ground truths: numpy's statistics, Python's reading of numbers,
 * files by Python's json and the gguf package, llama.cpp's activations; tests/vectors/README.md. */
#include "fixture.h"
#include "gguf_feed.h"
#include "test.h"
#include "base/json.h"
#include "trace/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define VECTORS "tests/vectors/trace/"

/* ---- names ------------------------------------------------------------------------------------------------------ */

static void names_case(void) {
    static const struct {
        const char *name, *tap;   /* tap NULL: not a tap */
    } rows[] = {
        { "embd", "embd" }, { "l_out-3", "l_out-3" }, { "Qcur_rope-0", "Qcur_rope-0" }, { "l_out_29", "l_out-29" },
        { "kq_soft_max.7", "kq_soft_max-7" }, { "inp_embd", "embd" }, { "logits", "result_output" },
        { "ffn_gate_par-2", "ffn_swiglu-2" }, { "model.embed_tokens", "embd" }, { "lm_head", "result_output" },
        { "model.norm", "result_norm" }, { "model.layers.11", "l_out-11" }, { "layers.0.mlp", "ffn_out-0" },
        { "model.layers.0.self_attn.q_proj", "Qcur-0" }, { "model.layers.1.self_attn.k_proj", "Kcur-1" },
        { "base_model.model.model.layers.2.self_attn.v_proj", "Vcur-2" },
        { "model.layers.3.self_attn.o_proj", "attn_out-3" }, { "model.layers.4.input_layernorm", "attn_norm-4" },
        { "model.layers.5.post_attention_layernorm", "ffn_norm-5" }, { "model.layers.6.mlp.gate_proj", "ffn_gate-6" },
        { "ffn_moe_gate-2", "ffn_moe_gate-2" }, { "ffn_moe_gate_biased-2", "ffn_moe_gate-2" },
        { "ffn_moe_geglu_0", "ffn_moe_swiglu-0" }, { "model.layers.0.mlp.gate", "ffn_moe_logits-0" },
        { "model.layers.1.block_sparse_moe.gate", "ffn_moe_logits-1" }, { "ffn_moe_geglu", NULL },
        { "model.layers.1.post_self_attn_layernorm", "attn_post_norm-1" },
        { "model.layers.7.mlp.up_proj", "ffn_up-7" }, { "model.layers.8.mlp.down_proj", "ffn_out-8" },
        { "", NULL }, { "-", NULL }, { "-3", NULL }, { "l_out", NULL }, { "l_out-", NULL }, { "embd-0", NULL },
        { "l_out-x", NULL }, { "l_out-1x", NULL }, { "l_out--1", NULL }, { "l_out-1000000", NULL }, { "norm-0", NULL },
        { "model.layers", NULL }, { "model.layers.", NULL }, { "model.layers.0.", NULL }, { "model.layers.x", NULL },
        { "model.layers.0.self_attn", NULL }, { "vision.norm", NULL }, { "model.", NULL }, { "kq-0", NULL },
        { "lm_head-0", NULL }, { "l_outs-0", NULL },
        /* ollama (model/models/llama/model.go, its gguf tags), candle (quantized_llama.rs, from_gguf) */
        { "token_embd", "embd" }, { "blk.3.attn_norm", "attn_norm-3" }, { "blk.3.attn_q", "Qcur-3" },
        { "blk.3.attn_k.weight", "Kcur-3" }, { "blk.0.attn_output.weight", "attn_out-0" },
        { "blk.0.ffn_norm.weight", "ffn_norm-0" }, { "blk.0.ffn_gate", "ffn_gate-0" },
        { "blk.0.ffn_down", "ffn_out-0" }, { "blk.0.ffn_up", "ffn_up-0" }, { "blk.29", "l_out-29" },
        { "output_norm", "result_norm" },
        { "output.weight", "result_output" }, { "rope_freqs.weight", NULL }, { "blk.0.attn_qkv", NULL },
        { "blk.0.rope_freqs.weight", NULL }, { "blk.x.attn_q", NULL }, { "blk.", NULL }, { "blk.0.", NULL },
        /* candle (quantized_llama.rs, from_ggml): Meta's names */
        { "tok_embeddings.weight", "embd" }, { "layers.2.attention.wq.weight", "Qcur-2" },
        { "layers.2.attention.wo.weight", "attn_out-2" }, { "layers.2.feed_forward.w1.weight", "ffn_gate-2" },
        { "layers.2.feed_forward.w2.weight", "ffn_out-2" }, { "layers.2.feed_forward.w3.weight", "ffn_up-2" },
        { "layers.2.attention_norm.weight", "attn_norm-2" }, { "layers.2.ffn_norm.weight", "ffn_norm-2" },
        { "norm.weight", "result_norm" },
        /* candle (llama.rs) and MLC (llama_model.py): as in transformers, but fused */
        { "model.layers.0.self_attn.qkv_proj", NULL }, { "model.layers.0.mlp.gate_up_proj", NULL },
        { "model.layers.0.self_attn.rotary_emb", NULL }, { "model.layers.0.mlp.act_fn", NULL },
        /* MLC's DefaultDebugInstrument (debug_chat.py) names arguments by their index */
        { "arg_0", NULL }, { "arg_1", NULL },
        /* transformers: GPT-NeoX, GPT-2 */
        { "gpt_neox.layers.0.attention.query_key_value", NULL }, { "gpt_neox.layers.3.attention.dense", "attn_out-3" },
        { "gpt_neox.layers.0.mlp.dense_h_to_4h", "ffn_up-0" }, { "gpt_neox.layers.0.mlp.dense_4h_to_h", "ffn_out-0" },
        { "gpt_neox.final_layer_norm", "result_norm" }, { "embed_out", "result_output" },
        { "transformer.h.0.attn.c_attn", NULL }, { "transformer.h.1.attn.c_proj", "attn_out-1" },
        { "transformer.h.0.mlp.c_fc", "ffn_up-0" }, { "transformer.h.0.mlp.c_proj", "ffn_out-0" },
        { "transformer.h.1.ln_1", "attn_norm-1" }, { "transformer.h.0.ln_2", "ffn_norm-0" },
        { "transformer.h.11", "l_out-11" }, { "transformer.ln_f", "result_norm" }, { "transformer.wpe", NULL },
        /* torch.onnx: outputs that public scripts take from onnxruntime to compare them with other programs */
        { "/model/embed_tokens/Gather_output_0", "embd" }, { "/model/model/embed_tokens/Gather_output_0", "embd" },
        { "/model/layers.0/input_layernorm/Mul_1_output_0", "attn_norm-0" },
        { "/model/layers.0/self_attn/q_proj/MatMul_output_0", "Qcur-0" },
        { "/model/layers.12/self_attn/k_proj/MatMul_output_0", "Kcur-12" },
        { "/model/layers.0/self_attn/v_proj/MatMul_output_0", "Vcur-0" },
        { "/model/layers.0/self_attn/q_norm/Mul_1_output_0", "Qcur_normed-0" },
        { "/model/layers.0/self_attn/k_norm/Mul_1_output_0", "Kcur_normed-0" },
        { "/layers.0/self_attn/Softmax_output_0", "kq_soft_max-0" },
        { "/language_model/model/layers.0/self_attn/MatMul_1_output_0", "kqv_out-0" },
        { "/layers.0/self_attn/o_proj/MatMul_output_0", "attn_out-0" }, { "/layers.0/Add_output_0", "ffn_inp-0" },
        { "/layers.0/mlp/gate_proj/MatMul_output_0", "ffn_gate-0" },
        { "/layers.0/mlp/up_proj/MatMul_output_0", "ffn_up-0" }, { "/layers.0/mlp/Mul_output_0", "ffn_swiglu-0" },
        { "/model/layers.0/mlp/down_proj/MatMul_output_0", "ffn_out-0" },
        { "/model/layers.0/Add_1_output_0", "l_out-0" }, { "/lm_head/MatMul_output_0", "result_output" },
        { "/layers.0/self_attn/MatMul_output_0", NULL }, { "/model/ScatterND_output_0", NULL },
        { "/model/layers.0/post_attention_layernorm/Cast_output_0", NULL },
        { "/model/layers.0/self_attn/Unsqueeze_6_output_0", NULL }, { "/", NULL }, { "/model/layers.0/", NULL },
        { "/model/layers.99999999999/Add_output_0", NULL },
        /* onnxruntime-genai's builder (builders/base.py) */
        { "/model/embed_tokens/Gather/output_0", "embd" }, { "/lm_head/MatMulNBits/output_0", "result_output" },
        { "/model/layers.0/input_layernorm/output_0", "attn_norm-0" },
        { "/model/layers.1/input_layernorm/output_3", "l_out-0" }, { "/model/layers.0/input_layernorm/output_3", NULL },
        { "/model/layers.0/attn/q_proj/MatMul/output_0", "Qcur-0" },
        { "/model/layers.0/attn/k_proj/MatMulNBits/output_0", "Kcur-0" },
        { "/model/layers.0/attn/v_proj/Add/output_0", "Vcur-0" },
        { "/model/layers.0/attn/q_norm/SimplifiedLayerNormalization/output_0", "Qcur_normed-0" },
        { "/model/layers.0/attn/q_rotary/RotaryEmbedding/output_0", "Qcur_rope-0" },
        { "/model/layers.0/attn/k_rotary/RotaryEmbedding/output_0", "Kcur_rope-0" },
        { "/model/layers.0/attn/GroupQueryAttention/output_0", "kqv_out-0" },
        { "/model/layers.0/attn/o_proj/MatMul/output_0", "attn_out-0" },
        { "/model/layers.3/post_attention_layernorm/output_0", "ffn_norm-3" },
        { "/model/layers.3/post_attention_layernorm/output_3", "ffn_inp-3" },
        { "/model/layers.0/mlp/Mul/output_0", "ffn_swiglu-0" },
        { "/model/layers.0/mlp/down_proj/MatMul/output_0", "ffn_out-0" },
        { "/model/layers.30/final_norm_layernorm/output_0", "result_norm" },
        { "/model/layers.0/attn/qkv_proj/MatMul/output_0", NULL },
        { "/model/layers.0/mlp/gate_up_proj/MatMul/output_0", NULL },
        { "/model/layers.0/layer_scalar/Mul/output_0", NULL }, { "/model/layers.0/Add_1/output_0", NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum tap_id id;
        int32_t layer;
        struct tap_text shown;
        bool found = tap_parse(rows[i].name, strlen(rows[i].name), &id, &layer);
        CHECK(found == (rows[i].tap != NULL), "\"%s\": %s", rows[i].name, found ? "found" : "not found");
        if (!found || !rows[i].tap) continue;
        CHECK(strcmp(tap_show(&shown, id, layer), rows[i].tap) == 0, "%s is %s", rows[i].name, shown.text);
    }
}

static void patterns_case(void) {
    static const struct {
        const char *patterns;
        enum tap_id id;
        int32_t layer;
        bool matches;
    } rows[] = {
        { NULL, TAP_L_OUT, 3, true }, { "*", TAP_EMBD, -1, true }, { "", TAP_EMBD, -1, false },
        { "l_out", TAP_L_OUT, 17, true }, { "l_out-1", TAP_L_OUT, 1, true }, { "l_out-1", TAP_L_OUT, 17, false },
        { "l_out-1?", TAP_L_OUT, 17, true }, { "l_out-1?", TAP_L_OUT, 1, false }, { "l_out-*7", TAP_L_OUT, 17, true },
        { "l_out-*7", TAP_L_OUT, 71, false }, { "*cur*-0", TAP_QCUR_ROPE, 0, true },
        { "*cur", TAP_QCUR_ROPE, 0, false },
        { "embd,result_*", TAP_RESULT_NORM, -1, true }, { "embd, result_*", TAP_RESULT_NORM, -1, true },
        { "embd,result_*", TAP_FFN_OUT, 0, false }, { "ffn_*", TAP_FFN_OUT, 0, true }, { ",,", TAP_FFN_OUT, 0, false },
        { "*o*o*t*-1**0", TAP_FFN_OUT, 10, false }, { "*f*o*t*-1**0", TAP_FFN_OUT, 10, true },
        { "l_ou", TAP_L_OUT, 0, false },
        { "l_out_1", TAP_L_OUT, 1, true }, { "l_out_1", TAP_L_OUT, 2, false },
        { "logits", TAP_RESULT_OUTPUT, -1, true }, { "ffn_gate_par", TAP_FFN_SWIGLU, 3, true },
        { "q_proj", TAP_QCUR, 7, true }, { "q_proj", TAP_QCUR_ROPE, 7, false },
        { "model.layers.3.mlp", TAP_FFN_OUT, 3, true }, { "model.layers.3.mlp", TAP_FFN_OUT, 2, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(tap_matches(rows[i].patterns, false, rows[i].id, rows[i].layer) == rows[i].matches, "row %zu: \"%s\"", i,
              rows[i].patterns ? rows[i].patterns : "NULL");
    }
}

static void post_attention_case(void) {
    for (int has = 0; has < 2; has++) {
        CHECK(tap_matches("post_attention_layernorm", has, TAP_FFN_NORM, 3) == !has, "ffn_norm, %d", has);
        CHECK(tap_matches("post_attention_layernorm", has, TAP_ATTN_POST_NORM, 3) == has, "attn_post_norm, %d", has);
        CHECK(tap_matches("layers.3.post_attention_layernorm", has, TAP_ATTN_POST_NORM, 3) == has, "layer 3, %d", has);
        CHECK(!tap_matches("layers.3.post_attention_layernorm", has, TAP_ATTN_POST_NORM, 2), "layer 2, %d", has);
    }
}

/* The order of the taps as a file may have it, in front of the taps or behind them. */
static void order_case(void) {
    static const struct { const char *json; plumb_status status; uint32_t order; } rows[] = {
        { "{\"tap_order\":\"norm_after_rope\",\"taps\":[]}", PLUMB_OK, TAP_ORDER_NORM_AFTER_ROPE },
        { "{\"taps\":[{\"name\":\"Qcur_rope-0\",\"token\":0,\"values\":[1]},{\"name\":\"Qcur_normed-0\",\"token\":0,"
          "\"values\":[1]}],\"tap_order\":\"parallel,nonsense,,norm_after_rope,parallel,\"}", PLUMB_OK,
          TAP_ORDER_PARALLEL | TAP_ORDER_NORM_AFTER_ROPE },
        { "{\"tap_order\":\"\",\"taps\":[]}", PLUMB_OK, 0 },
        { "{\"tap_order\":\"parallel\\u0000,Parallel\",\"taps\":[]}", PLUMB_OK, 0 },
        { "{\"tap_order\":1,\"taps\":[]}", PLUMB_ERROR_METADATA, 0 },
        { "{\"tap_order\":[\"parallel\"],\"taps\":[]}", PLUMB_ERROR_METADATA, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_trace *t = plumb_trace_create();
        plumb_status status = plumb_trace_read(t, rows[i].json, strlen(rows[i].json));
        CHECK(status == rows[i].status && t->order == rows[i].order, "row %zu: status %d, order %u, %s", i, (int)status,
              t->order, plumb_trace_error(t));
        bool is_sorted = t->n_tap < 2 || (t->taps[0].id == TAP_QCUR_ROPE && t->taps[1].id == TAP_QCUR_NORMED);
        CHECK(is_sorted && (t->n_tap < 2 || trace_find_tap(t, TAP_QCUR_NORMED, 0) == &t->taps[1]), "row %zu", i);
        plumb_trace_free(t);
    }
}

static void check_patterns_case(void) {
    static const struct {
        const char *patterns;
        uint32_t first, last;   /* of 30 layers */
        const char *says;       /* NULL: nothing is wrong */
    } rows[] = {
        { NULL, 0, UINT32_MAX, NULL }, { "*", 29, UINT32_MAX, NULL }, { "embd,l_out-29", 0, 29, NULL },
        { "logits, q_proj,l_out_0", 0, UINT32_MAX, NULL }, { "embd", 3, 3, NULL },
        { "embd,Qcurr", 0, UINT32_MAX, "taps: unknown tap \"Qcurr\"; known taps are embd, inp_per_layer, " },
        { "", 0, UINT32_MAX, "taps: unknown tap \"\"" }, { "l_out,", 0, UINT32_MAX, "taps: unknown tap \"\"" },
        { "l_out-30", 0, UINT32_MAX, "taps: unknown tap \"l_out-30\"" },
        { "l_out-4", 0, 3, "taps: \"l_out-4\" is not in layers 0-3" },
        { NULL, 50, 60, "layers 50-60: the model has 30 layers" }, { NULL, 29, 30, "layers 29-30: the model has 30" },
        { NULL, 30, UINT32_MAX, "layers 30-30: the model has 30 layers" },
        { "Qcurr", 0, UINT32_MAX, ", result_norm, result_output" },   /* the list of known taps is not cut */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = { 0 };
        plumb_status status = tap_check_patterns(rows[i].patterns, false, 30, rows[i].first, rows[i].last, &err);
        CHECK(status == (rows[i].says ? PLUMB_ERROR_ARGUMENT : PLUMB_OK), "row %zu: status %d", i, (int)status);
        if (rows[i].says) CHECK(strstr(err.message, rows[i].says) != NULL, "row %zu: %s", i, err.message);
    }
}

/* ---- statistics ------------------------------------------------------------------------------------------------- */

static double load_f64(const uint8_t *p) {
    uint64_t bits = load_u64(p);
    double v;
    memcpy(&v, &bits, 8);
    return v;
}

static void stats_case(void) {
    size_t n_file;
    uint8_t *file = test_read_all(VECTORS "stats.bin", &n_file);
    if (!file) return;
    uint32_t n_array = 0;
    for (size_t at = 0; at < n_file; n_array++) {
        uint32_t n = load_u32(file + at);
        float *values = alloc_array(n, sizeof *values);   /* as long as the array: ASan detects a read past it */
        REQUIRE(values, "%u values", n);
        for (uint32_t i = 0; i < n; i++) values[i] = f32_from_bits(load_u32(file + at + 4 + 4 * i));
        struct trace_stats s = trace_stats_of(values, n);
        const double ours[6] = { s.mean, s.rms, s.min, s.max, s.n_nan, s.n_inf };
        at += 4 + 4 * (size_t)n;
        double rms = load_f64(file + at + 8);
        for (size_t k = 0; k < 6; k++, at += 8) {
            double theirs = load_f64(file + at);
            bool same = isnan(theirs) ? isnan(ours[k]) : k >= 2 ? ours[k] == theirs
                        : fabs(ours[k] - theirs) <= 1e-14 * rms;   /* the order of the sums differs */
            CHECK(same, "array %u of %u, number %zu: %.17g, numpy %.17g", n_array, n, k, ours[k], theirs);
        }
        free(values);
    }
    CHECK(n_array == 12, "%u arrays", n_array);
    free(file);
}

/* ---- recording -------------------------------------------------------------------------------------------------- */

static void record(void *user, const plumb_tap *tap) { plumb_trace_add(user, tap); }

/* Two heads, tokens 0 and 1 in one batch, then token 2: weights worked out by hand. */
static void entropy_case(void) {
    static const int32_t ids[] = { 1, 2, 3 };
    static const float first[] = { 1, 0,  0.5f, 0.5f,   0.25f, 0.75f,  0, 1 };   /* (token, head, 2 keys) */
    static const float second[] = { 0.25f, 0.25f, 0.5f,  0, 0, 1 };
    plumb_trace *t = plumb_trace_create();
    REQUIRE(t, "memory");
    CHECK(trace_set_tokens(t, ids, 3, 2) == PLUMB_OK, "%s", plumb_trace_error(t));
    t->params.n_value = UINT32_MAX;
    plumb_trace_add(t, &(plumb_tap) { "kq_soft_max", 0, 0, 2, 2, 2, first });
    CHECK(plumb_trace_add(t, &(plumb_tap) { "kq_soft_max", 0, 2, 1, 2, 3, second }) == PLUMB_OK, "%s",
          plumb_trace_error(t));
    static const float values[3][6] = { { 1, 0, 0, 0.5f, 0.5f, 0 }, { 0.25f, 0.75f, 0, 0, 1, 0 },
                                        { 0.25f, 0.25f, 0.5f, 0, 0, 1 } };
    /* ln 2 = 0.693147; -(ln(1/4) + 3 ln(3/4)) / 4 = 0.562335; 2 ln(4) / 4 + ln(2) / 2 = 1.039721 */
    static const double entropy[3][2] = { { 0, 0.693147 }, { 0.562335, 0 }, { 1.039721, 0 } };
    static const double square[3] = { 1.5, 0.0625 + 0.5625 + 1, 0.375 + 1 };
    const struct trace_tap *tap = trace_find_tap(t, TAP_KQ_SOFT_MAX, 0);
    if (CHECK(tap && tap->n_row == 3, "rows")) {
        for (uint32_t pos = 0; pos < 3; pos++) {
            const struct trace_row *row = trace_find_row(tap, pos);
            CHECK(row->n_head == 2 && row->n == 3 && row->n_value == 6 && !row->places, "%u x %u", row->n_head, row->n);
            CHECK(row->n_value == 6 && memcmp(row->values, values[pos], sizeof values[pos]) == 0, "token %u", pos);
            for (size_t h = 0; h < 2; h++) {
                CHECK(fabs((double)row->entropy[h] - entropy[pos][h]) < 1e-6, "token %u, head %zu: %g", pos, h,
                      (double)row->entropy[h]);
            }
            CHECK(fabs(row->stats.mean - 2 / 6.0) < 1e-15, "mean %g", row->stats.mean);
            CHECK(fabs(row->stats.rms - sqrt(square[pos] / 6)) < 1e-15, "rms %g", row->stats.rms);
            CHECK(row->stats.min == 0 && row->stats.max == 1, "%g", row->stats.max);
        }
    }
    CHECK(plumb_trace_add(t, &(plumb_tap) { "kq_soft_max", 0, 2, 1, 2, 3, second }) == PLUMB_ERROR_ARGUMENT
          && strcmp(plumb_trace_error(t), "kq_soft_max-0 occurs twice for token 2") == 0, "%s", plumb_trace_error(t));
    CHECK(plumb_trace_add(t, &(plumb_tap) { "l_out", 0, 2, 1, 1, 3, second }) == PLUMB_ERROR_ARGUMENT, "went on");
    plumb_trace_free(t);
}

/* A trace keeps the first three logits and the ten largest: lower ids first among equals, no NaN, none twice. */
static void likeliest_case(void) {
    static const float logits[2][15] = {
        { 0, 9, -1, 3, NAN, 3, 8, 7, 6, 5, 4, 3, -2, 2, 3 },   /* 9 8 7 6 5 4 and all four 3s: 10 */
        { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 },
    };
    static const uint32_t places[2][12] = { { 0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 14 },
                                            { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 } };
    static const uint32_t n_value[2] = { 12, 10 };
    for (uint32_t n_first = 0; n_first <= 3; n_first += 3) {
        plumb_trace *t = plumb_trace_create();
        REQUIRE(t, "memory");
        t->params.n_value = n_first;
        CHECK(plumb_trace_add(t, &(plumb_tap) { "result_output", -1, 0, 2, 1, 15, logits[0] }) == PLUMB_OK, "%s",
              plumb_trace_error(t));
        const struct trace_tap *tap = trace_find_tap(t, TAP_RESULT_OUTPUT, -1);
        for (uint32_t pos = 0; CHECK(tap && tap->n_row == 2, "rows") && pos < 2; pos++) {
            const struct trace_row *row = &tap->rows[pos];
            uint32_t n = n_first > 0 ? n_value[pos] : 0;   /* only statistics were requested */
            CHECK(row->n == 15 && row->n_value == n && row->n_top == (n > 0 ? 10 : 0), "%u of %u values, top %u",
                  row->n_value, row->n, row->n_top);
            for (uint32_t i = 0; i < n && i < row->n_value; i++) {
                CHECK(row->places[i] == places[pos][i] && row->values[i] == logits[pos][places[pos][i]],
                      "token %u, value %u: %g at %u", pos, i, (double)row->values[i], row->places[i]);
            }
        }
        plumb_trace_free(t);
    }
}

/* Whole rows, and rows marked so, contain the largest logits of all. */
static void known_likeliest_case(void) {
    static const struct { const char *record; uint32_t n; } rows[] = {
        { "\"shape\":[3],\"values\":[1,3,2]", 3 }, { "\"shape\":[9],\"values\":[1,3,2]", 0 },
        { "\"values\":[1,3,2]", 0 }, { "\"top\":[[1,3],[2,2]]", 2 }, { "\"top\":[[1,3]],\"values\":[1,3,2]", 1 },
        { "\"places\":[0,1,2],\"values\":[1,3,2]", 0 }, { "\"max\":3,\"places\":[0,1],\"values\":[1,3]", 0 },
        { "\"n_top\":2,\"places\":[0,1,2],\"values\":[1,3,2]", 2 },
        { "\"n_top\":9,\"places\":[1],\"values\":[3]", 1 }, { "\"max\":3", 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char json[200];
        int len = snprintf(json, sizeof json, "{\"taps\":[{\"name\":\"logits\",\"token\":0,%s}]}", rows[i].record);
        plumb_trace *t = plumb_trace_create();
        struct trace_value top[TRACE_TOP];
        CHECK(plumb_trace_read(t, json, (size_t)len) == PLUMB_OK, "row %zu: %s", i, plumb_trace_error(t));
        uint32_t n = t->n_tap > 0 ? trace_known_top(&t->taps[0].rows[0], top) : 99;
        CHECK(n == rows[i].n && (n == 0 || (top[0].place == 1 && top[0].value == 3)), "row %zu: %u", i, n);
        plumb_trace_free(t);
    }
}

/* Records a trace of synth/f32.gguf: the first n_prompt tokens of `tokens` in batches of n_batch, then one by one. */
static plumb_trace *record_synth(const plumb_trace *tokens, uint32_t n_prompt, uint32_t n_batch,
                                 const plumb_trace_params *params) {
    plumb_model *m = fixture_load("tests/vectors/synth/f32.gguf");
    plumb_session *s = NULL;
    plumb_session_params p = { .n_ctx = 40, .n_batch = n_batch, .pass = PLUMB_PASS_REFERENCE };
    plumb_trace *t = plumb_trace_create();
    if (m && t && CHECK(plumb_session_create(&s, m, &p) == PLUMB_OK, "%s", plumb_model_error(m))) {
        CHECK(plumb_trace_begin(t, s, tokens->tokens, tokens->n_token, n_prompt, params) == PLUMB_OK, "%s",
              plumb_trace_error(t));
        CHECK(plumb_session_set_tap(s, record, t) == PLUMB_OK, "%s", plumb_session_error(s));
        plumb_session_feed(s, tokens->tokens, n_prompt);
        for (uint32_t i = n_prompt; i < tokens->n_token; i++) plumb_session_feed(s, tokens->tokens + i, 1);
        CHECK(t->err.status == PLUMB_OK, "%s", plumb_trace_error(t));
    }
    plumb_session_free(s);
    plumb_model_free(m);
    return t;
}

/* A trace outlives the model whose run it records, and can be extended afterwards. */
static void freed_model_case(void) {
    plumb_trace *theirs = fixture_read_trace(VECTORS "f32-taps.json");
    if (!theirs) return;
    plumb_trace *t = record_synth(theirs, 24, 5, NULL);   /* its model is already freed */
    float logits[260];
    for (uint32_t i = 0; i < 260; i++) logits[i] = (float)(i * 7 % 260);
    plumb_tap tap = { "result_output", -1, t->n_token, 1, 1, 260, logits };
    CHECK(t->vocab.t == NULL, "it still has the vocabulary");
    CHECK(plumb_trace_add(t, &tap) == PLUMB_OK, "%s", plumb_trace_error(t));
    const struct trace_tap *output = trace_find_tap(t, TAP_RESULT_OUTPUT, -1);
    CHECK(output && trace_find_row(output, t->n_token), "the row is not there");
    plumb_trace_free(t);

    /* In the other order, and with two traces of one model. */
    plumb_model *m = fixture_load("tests/vectors/synth/f32.gguf");
    plumb_session *s = NULL;
    plumb_trace *traces[3] = { plumb_trace_create(), plumb_trace_create(), plumb_trace_create() };
    REQUIRE(m && plumb_session_create(&s, m, NULL) == PLUMB_OK, "no session");
    for (size_t i = 0; i < 6; i++) {
        CHECK(plumb_trace_begin(traces[i % 3], s, theirs->tokens, theirs->n_token, 1, NULL) == PLUMB_OK, "%s",
              plumb_trace_error(traces[i % 3]));
        CHECK(traces[i % 3]->vocab.t != NULL, "no vocabulary");
    }
    plumb_trace_free(traces[1]);
    plumb_session_free(s);
    plumb_model_free(m);
    CHECK(!traces[0]->vocab.t && !traces[2]->vocab.t, "they still have the vocabulary");
    plumb_trace_free(traces[0]);
    plumb_trace_free(traces[2]);
    plumb_trace_free(theirs);
}

/* Rows of tokens 0 and 2 of 4 as a GGUF, the second position replaced. */
static void gguf_position_case(void) {
    static const int32_t tokens[] = { 1, 2, 3, 4 };
    static const float values[] = { 1, 2, 3 };
    static const struct { uint32_t pos; plumb_status status; } rows[] = {
        { 2, PLUMB_OK }, { UINT32_MAX, PLUMB_ERROR_METADATA }, { 0x80000000, PLUMB_ERROR_METADATA },
        { 99, PLUMB_ERROR_ARGUMENT },
    };
    plumb_trace *t = plumb_trace_create();
    struct capture file = { 0 };
    CHECK(trace_set_tokens(t, tokens, 4, 4) == PLUMB_OK, "%s", plumb_trace_error(t));
    for (uint32_t pos = 0; pos <= 2; pos += 2) {
        struct trace_row *row;
        CHECK(trace_new_row(t, TAP_EMBD, -1, pos, &row) == PLUMB_OK
              && trace_set_values(t, row, TAP_EMBD, 1, 3, values, NULL, 3) == PLUMB_OK, "%s", plumb_trace_error(t));
    }
    CHECK(plumb_trace_write(t, PLUMB_FORMAT_GGUF, capture_write, &file) == PLUMB_OK, "%s", plumb_trace_error(t));
    static const char key[] = "plumb.trace.rows.embd";
    size_t at = 0;
    while (at + sizeof key + 30 < file.n && memcmp(file.text + at, key, sizeof key - 1) != 0) at++;
    at += sizeof key - 1 + 4 + 4 + 8 + 4;   /* array, of int32, 2 elements, after the first */
    for (size_t i = 0; i < sizeof rows / sizeof *rows && CHECK(at + 4 < file.n, "no positions"); i++) {
        for (int k = 0; k < 4; k++) file.text[at + (size_t)k] = (char)(rows[i].pos >> 8 * k);
        plumb_trace *read = plumb_trace_create();
        plumb_status status = plumb_trace_read(read, file.text, file.n);
        CHECK(status == rows[i].status, "position %d: %s, %s", (int)rows[i].pos, plumb_status_name(status),
              plumb_trace_error(read));
        bool told = strstr(plumb_trace_error(read), "plumb.trace.rows.embd: position -") != NULL;
        CHECK(told == (status == PLUMB_ERROR_METADATA), "%s", plumb_trace_error(read));
        plumb_trace_free(read);
    }
    capture_free(&file);
    plumb_trace_free(t);
}

/* The text of llama-eval-callback shows the number of tokens, but it may lack their ids.  A row of the last token alone
 * must keep its position in a GGUF. */
static void gguf_no_ids_case(void) {
    static const float values[] = { 1, 2, 3 };
    plumb_trace *t = plumb_trace_create();
    struct capture file = { 0 };
    struct trace_row *row;
    t->n_token = t->n_prompt = 4;
    for (uint32_t pos = 0; pos < 4; pos++) {
        CHECK(trace_new_row(t, TAP_EMBD, -1, pos, &row) == PLUMB_OK
              && trace_set_values(t, row, TAP_EMBD, 1, 3, values, NULL, 3) == PLUMB_OK, "%s", plumb_trace_error(t));
    }
    CHECK(trace_new_row(t, TAP_RESULT_NORM, -1, 3, &row) == PLUMB_OK
          && trace_set_values(t, row, TAP_RESULT_NORM, 1, 3, values, NULL, 3) == PLUMB_OK, "%s", plumb_trace_error(t));
    CHECK(plumb_trace_write(t, PLUMB_FORMAT_GGUF, capture_write, &file) == PLUMB_OK, "%s", plumb_trace_error(t));
    CHECK(plumb_trace_read(t, file.text, file.n) == PLUMB_OK, "%s", plumb_trace_error(t));
    const struct trace_tap *embd = trace_find_tap(t, TAP_EMBD, -1), *norm = trace_find_tap(t, TAP_RESULT_NORM, -1);
    CHECK(embd && embd->n_row == 4 && embd->rows[3].pos == 3, "embd");
    CHECK(norm && norm->n_row == 1 && norm->rows[0].pos == 3, "result_norm of token %u", norm ? norm->rows[0].pos : 0);
    capture_free(&file);
    plumb_trace_free(t);
}

/* Every tap of tokens 0, 7 and 23 against numpy's statistics of llama.cpp's activations. */
static void llama_case(void) {
    plumb_trace *theirs = fixture_read_trace(VECTORS "f32-taps.json");
    if (!theirs) return;
    plumb_trace *ours = record_synth(theirs, 24, 5, NULL);
    uint32_t n_row = 0, n_entropy = 0;
    for (size_t i = 0; ours && i < theirs->n_tap; i++) {
        const struct trace_tap *b = &theirs->taps[i], *a = trace_find_tap(ours, b->id, b->layer);
        for (uint32_t k = 0; k < b->n_row; k++) {
            const struct trace_row *y = &b->rows[k], *x = a ? trace_find_row(a, y->pos) : NULL;
            struct tap_text name;
            tap_show(&name, b->id, b->layer);
            if (!x && !tap_spec(b->id)->in_layer && b->id != TAP_EMBD && y->pos != 23) continue;   /* no logits there */
            if (!CHECK(x != NULL, "%s of token %u", name.text, y->pos)) continue;
            double most = 1e-5 * y->stats.rms;
            CHECK(fabs(x->stats.mean - y->stats.mean) <= most && fabs(x->stats.rms - y->stats.rms) <= most
                  && fabs(x->stats.min - y->stats.min) <= 10 * most && fabs(x->stats.max - y->stats.max) <= 10 * most
                  && x->stats.n_nan == 0 && x->stats.n_inf == 0, "%s of token %u: %g %g %g %g, not %g %g %g %g",
                  name.text, y->pos, x->stats.mean, x->stats.rms, x->stats.min, x->stats.max, y->stats.mean,
                  y->stats.rms, y->stats.min, y->stats.max);
            for (uint32_t h = 0; b->id == TAP_KQ_SOFT_MAX && h < x->n_head; h++) {
                float theirs_h = y->entropy ? y->entropy[h] : NAN;
                CHECK(fabsf(x->entropy[h] - theirs_h) <= 1e-5f, "%s, token %u, head %u: entropy %g, not %g", name.text,
                      y->pos, h, (double)x->entropy[h], (double)theirs_h);
                n_entropy++;
            }
            n_row++;
        }
    }
    CHECK(n_row == 3 * 33 + 2 && n_entropy == 2 * 3 * 4, "%u rows, %u entropies", n_row, n_entropy);
    if (ours) {
        CHECK(strcmp(ours->source, "plumb " PLUMB_VERSION ", reference pass") == 0, "%s", ours->source);
        CHECK(ours->pieces && strcmp(ours->pieces[0], "i") == 0, "%s", ours->pieces ? ours->pieces[0] : "no pieces");
        CHECK(ours->n_prompt == 24 && trace_find_tap(ours, TAP_L_OUT, 0)->rows[3].n_value == 8, "default parameters");
    }
    plumb_trace_free(ours);
    plumb_trace_free(theirs);
}

/* However the tokens are batched, the values kept of a row are the beginning of the whole row. */
static void batches_case(void) {
    plumb_trace *tokens = fixture_read_trace(VECTORS "f32-taps.json");
    if (!tokens) return;
    const plumb_trace_params all = { NULL, 0, UINT32_MAX, UINT32_MAX };
    const plumb_trace_params some = { "*_rope,kq_soft_max-?,embd", 1, 1, 30 };
    plumb_trace *whole = record_synth(tokens, 24, 24, &all), *part = record_synth(tokens, 9, 4, &some);
    if (whole && part && CHECK(part->n_tap == 4, "%zu taps", part->n_tap)) {
        for (size_t i = 0; i < part->n_tap; i++) {
            const struct trace_tap *b = &part->taps[i], *a = trace_find_tap(whole, b->id, b->layer);
            CHECK(b->layer == (b->id == TAP_EMBD ? -1 : 1) && b->n_row == 24 && a && a->n_row == 24, "tap %zu", i);
            for (uint32_t k = 0; a && k < 24 && k < b->n_row && k < a->n_row; k++) {
                const struct trace_row *x = &a->rows[k], *y = &b->rows[k];
                CHECK(x->n_head == y->n_head && x->n == y->n && x->n_value == x->n_head * x->n && !x->places, "shapes");
                CHECK(y->n_value == (y->n_head * y->n < 30 ? y->n_head * y->n : 30)
                      && memcmp(x->values, y->values, y->n_value * sizeof(float)) == 0, "tap %zu, token %u", i, k);
                CHECK(fabs(x->stats.mean - y->stats.mean) <= 1e-14 * x->stats.rms
                      && fabs(x->stats.rms - y->stats.rms) <= 1e-14 * x->stats.rms && x->stats.min == y->stats.min
                      && x->stats.max == y->stats.max, "tap %zu, token %u: statistics", i, k);
            }
        }
    }
    plumb_trace_free(part);
    plumb_trace_free(whole);
    plumb_trace_free(tokens);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* Reading one format, writing the other, and back again, gives the file that Python wrote. */
static void formats_case(const void *user) {
    const plumb_format *through = user;
    size_t n_gguf, n_json;
    char *gguf = test_read_all(VECTORS "trace.gguf", &n_gguf), *json = test_read_all(VECTORS "trace.json", &n_json);
    plumb_trace *t = plumb_trace_create();
    struct capture out = { 0 }, again = { 0 };
    if (gguf && json && t) {
        bool from_json = *through == PLUMB_FORMAT_GGUF;
        CHECK(plumb_trace_read(t, from_json ? json : gguf, from_json ? n_json : n_gguf) == PLUMB_OK, "%s",
              plumb_trace_error(t));
        CHECK(t->n_token == 3 && t->tokens && t->tokens[1] == 5 && t->n_prompt == 2 && t->bos == 1, "tokens");
        CHECK(t->source && strcmp(t->source, "numpy") == 0, "program");
        CHECK(t->pieces && strcmp(t->pieces[1], "\xc3\xa9t\xc3\xa9 \"q\"") == 0
              && strcmp(t->pieces[2], "\\n") == 0, "pieces");
        CHECK(plumb_trace_write(t, *through, capture_write, &out) == PLUMB_OK, "%s", plumb_trace_error(t));
        CHECK(plumb_trace_read(t, out.text, out.n) == PLUMB_OK, "%s", plumb_trace_error(t));
        CHECK(plumb_trace_write(t, PLUMB_FORMAT_GGUF, capture_write, &again) == PLUMB_OK, "%s", plumb_trace_error(t));
        CHECK(again.n == n_gguf && memcmp(again.text, gguf, n_gguf) == 0, "%zu bytes, GGUFWriter's file has %zu",
              again.n, n_gguf);
    }
    capture_free(&out);
    capture_free(&again);
    plumb_trace_free(t);
    free(gguf);
    free(json);
}

/* A recorded trace has the texts of its likeliest tokens, and so does its file. */
static void texts_case(void) {
    plumb_trace *tokens = fixture_read_trace(VECTORS "f32-taps.json"), *t = NULL, *again = plumb_trace_create();
    plumb_model *m = fixture_load("tests/vectors/synth/f32.gguf");
    struct capture out = { 0 };
    const plumb_trace_params params = { "result_output", 0, UINT32_MAX, 2 };
    if (tokens && m && again) t = record_synth(tokens, 24, 24, &params);
    if (t && CHECK(plumb_trace_write(t, PLUMB_FORMAT_JSON, capture_write, &out) == PLUMB_OK, "%s",
                   plumb_trace_error(t))) {
        CHECK(plumb_trace_read(again, out.text, out.n) == PLUMB_OK, "%s", plumb_trace_error(again));
        CHECK(again->n_text >= 10 && again->n_text == t->n_text, "%zu texts, read %zu", t->n_text, again->n_text);
        const struct trace_tap *tap = trace_find_tap(again, TAP_RESULT_OUTPUT, -1);
        struct trace_value top[TRACE_TOP];
        uint32_t n = tap ? trace_known_top(&tap->rows[tap->n_row - 1], top) : 0;
        CHECK(n == 10, "%u likeliest", n);
        for (uint32_t i = 0; i < n; i++) {
            char piece[64];
            int64_t len = plumb_token_piece(m, (int32_t)top[i].place, true, piece, sizeof piece);
            const char *text = trace_text(again, (int32_t)top[i].place);
            bool plain = len > 0 && (uint8_t)piece[0] >= 0x20 && (uint8_t)piece[0] < 0x7f;   /* not escaped */
            CHECK(text && (!plain || (strlen(text) == (size_t)len && memcmp(text, piece, (size_t)len) == 0)),
                  "%u: \"%s\", not \"%.*s\"", top[i].place, text ? text : "", (int)len, piece);
        }
    }
    static const char json[] = "{\"texts\":[[7,\" Paris\"],[2,\"a\\nb\"],[7,\" Paris\"]],\"taps\":[]}";
    CHECK(plumb_trace_read(again, json, sizeof json - 1) == PLUMB_OK, "%s", plumb_trace_error(again));
    CHECK(trace_text(again, 7) && strcmp(trace_text(again, 7), " Paris") == 0 && trace_text(again, 2)
          && strcmp(trace_text(again, 2), "a\\nb") == 0 && !trace_text(again, 3), "in any order");
    capture_free(&out);
    plumb_trace_free(again);
    plumb_trace_free(t);
    plumb_trace_free(tokens);
    plumb_model_free(m);
}

/* A trace without whole tensors cannot be a GGUF, and there are only two formats. */
static void refusals_case(void) {
    static const char json[] = "{\"tokens\":[1,2],\"taps\":[{\"name\":\"embd\",\"token\":1,\"shape\":[3],"
                               "\"values\":[1,2]}]}";
    plumb_trace *t = plumb_trace_create();
    struct capture out = { 0 };
    CHECK(plumb_trace_read(t, json, sizeof json - 1) == PLUMB_OK, "%s", plumb_trace_error(t));
    CHECK(plumb_trace_write(t, PLUMB_FORMAT_GGUF, capture_write, &out) == PLUMB_ERROR_ARGUMENT && out.n == 0
          && strstr(plumb_trace_error(t), "embd of token 1: 2 of 3 values"), "%s", plumb_trace_error(t));
    CHECK(plumb_trace_write(t, PLUMB_FORMAT_HTML, capture_write, &out) == PLUMB_ERROR_ARGUMENT && out.n == 0, "html");
    plumb_trace_free(t);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static void numbers_case(void) {
    size_t n_file;
    char *file = test_read_all(VECTORS "numbers.txt", &n_file);
    if (!file) return;
    uint32_t n_line = 0;
    for (char *line = file; *line; n_line++) {
        char *space = strchr(line, ' '), *end = strchr(line, '\n');
        uint64_t bits;
        struct json j;
        struct error err = { 0 };
        json_begin(&j, line, (size_t)(space - line), &err);
        double value = json_number(&j, "a number");
        CHECK(json_end(&j) == PLUMB_OK, "%s", err.message);
        memcpy(&bits, &value, 8);
        CHECK(bits == strtoull(space + 1, NULL, 16), "%.60s: %.17g", line, value);
        line = end + 1;
    }
    CHECK(n_line > 2000, "%u numbers", n_line);
    free(file);
}

/* Prints a trace as one line: for each row name, token, shape, places = values, statistics. */
static void describe(const plumb_trace *t, char *out, size_t cap) {
    size_t n = 0;
    out[0] = 0;
#define PUT(...) n += n < cap ? (size_t)snprintf(out + n, cap - n, __VA_ARGS__) : 0
    for (size_t i = 0; i < t->n_tap; i++) {
        for (uint32_t k = 0; k < t->taps[i].n_row; k++) {
            const struct trace_row *row = &t->taps[i].rows[k];
            struct tap_text name;
            PUT("%s%s@", n > 0 ? " " : "", tap_show(&name, t->taps[i].id, t->taps[i].layer));
            if (row->pos == TRACE_ALL_TOKENS) PUT("all");
            else PUT("%u", row->pos);
            if (row->n > 0) PUT("(%ux%u)", row->n_head, row->n);
            for (uint32_t v = 0; v < row->n_value; v++) {
                PUT(v > 0 ? "," : ":");
                if (row->places) PUT("%u=", row->places[v]);
                PUT("%g", (double)row->values[v]);
            }
            if (!isnan(row->stats.rms)) PUT("~%g", row->stats.rms);
            if (row->entropy) PUT("^%g", (double)row->entropy[0]);
            if (row->quantum > 0) PUT("/%g", (double)row->quantum);
        }
    }
    const struct remark *first = remarks_first_ignored(&t->remarks);
    if (first) PUT("|%u %s", remarks_n_ignored(&t->remarks), first->name);
#undef PUT
}

/* Reads JSON written with ' instead of ". */
static plumb_status read_json(plumb_trace *t, const char *json) {
    char text[400];
    size_t n = strlen(json);
    if (!CHECK(n < sizeof text, "%zu bytes", n)) return PLUMB_ERROR_ARGUMENT;
    for (size_t i = 0; i < n; i++) text[i] = json[i] == '\'' ? '"' : json[i];
    return plumb_trace_read(t, text, n);
}

static void shapes_case(void) {
    static const struct {
        const char *json, *facts;
    } rows[] = {
        /* one token at a time */
        { "{'taps':[{'name':'l_out-3','token':4,'values':[1,2.5]}]}", "l_out-3@4:1,2.5" },
        { "{'taps':[{'name':'l_out','layer':3,'token':4,'values':[[1],[2.5]]}]}", "l_out-3@4:1,2.5" },
        { "{'taps':[{'name':'embd','layer':-1,'token':0,'rms':2,'future':{'x':[1,{}]}}]}", "embd@0~2" },
        { "{'taps':[{'values':[3,4],'shape':[2],'token':0,'name':'embd'}]}", "embd@0(1x2):3,4~3.53553" },
        { "{'taps':[{'name':'embd','token':0,'shape':[1,1,2],'values':[3],'quantum':1e-4}]}", "embd@0(1x2):3/0.0001" },
        { "{'taps':[{'name':'embd','token':0,'values':[NaN,Infinity,-Infinity,'NaN','-Infinity',null,1e300,-1e300]}]}",
          "embd@0:nan,inf,-inf,nan,-inf,nan,inf,-inf" },
        { "{'taps':[{'name':'embd','token':0,'values':[nan,-nan,inf,-inf,-NaN]}]}", "embd@0:nan,nan,inf,-inf,nan" },
        /* a list per token: of all tokens, of the last ones, beginning at one */
        { "{'tokens':[7,8],'taps':[{'name':'embd','values':[[1,2],[3,[4]]]}]}", "embd@0:1,2 embd@1:3,4" },
        { "{'taps':[{'name':'embd','values':[[1],[2]]}],'tokens':[7,8,9,9]}", "embd@2:1 embd@3:2" },
        { "{'tokens':[7,8,9],'taps':[{'name':'embd','values':[[1],[2],[3]]},{'name':'l_out-0','values':[[4],[5]]}]}",
          "embd@0:1 embd@1:2 embd@2:3 l_out-0@1:4 l_out-0@2:5" },
        /* one less than the tokens: the first ones, unless a record gives its token */
        { "{'tokens':[7,8,9],'taps':[{'name':'embd','values':[[1],[2]],'rms':3},{'name':'logits','values':[[4]]}]}",
          "embd@0:1 embd@1:2 embd@all~3 result_output@1:4" },
        { "{'tokens':[7,8,9],'taps':[{'name':'embd','values':[[1],[2]]},{'name':'logits','token':2,'values':[4]}]}",
          "embd@1:1 embd@2:2 result_output@2:4" },
        { "{'tokens':[7,8],'taps':[{'name':'embd','values':[[1]]}]}", "embd@1:1" },
        { "{'tokens':[7,8,9],'taps':[{'name':'embd','first_token':0,'values':[[1],[2]]}]}", "embd@0:1 embd@1:2" },
        { "{'tokens':[7,8,9],'taps':[{'name':'embd','first_token':1,'values':[1,2]}]}", "embd@1:1,2" },
        { "{'tokens':[7,8],'taps':[{'name':'embd','shape':[2],'values':[1,1,2,2]}]}",
          "embd@0(1x2):1,1~1 embd@1(1x2):2,2~2" },
        { "{'taps':[{'name':'embd','values':[]},{'name':'l_out-0','values':[[],[]]}]}",
          "embd@all l_out-0@0 l_out-0@1|2 embd" },
        /* PyTorch's leading batch axis */
        { "{'tokens':[7,8],'taps':[{'name':'embd','values':[[[1,2],[3,4]]]}]}", "embd@0:1,2 embd@1:3,4" },
        { "{'tokens':[7,8],'taps':[{'name':'embd','shape':[2],'values':[[[1,1],[2,2]]]}]}",
          "embd@0(1x2):1,1~1 embd@1(1x2):2,2~2" },
        { "{'tokens':[7,8],'taps':[{'name':'Qcur-0','shape':[2,1],'values':[[[1],[1]]]}]}", "Qcur-0@1(2x1):1,1~1" },
        /* a single token needs no index; statistics without an index cover all tokens */
        { "{'tokens':[7],'taps':[{'name':'embd','values':[1,2],'rms':3}]}", "embd@0:1,2~3" },
        { "{'taps':[{'name':'embd','values':[1,2]}]}", "embd@0:1,2" },
        { "{'tokens':[7,8],'taps':[{'name':'embd','rms':3}]}", "embd@all~3" },
        { "{'tokens':[7,8],'taps':[{'name':'embd','values':[[1],[2]],'rms':3}]}", "embd@0:1 embd@1:2 embd@all~3" },
        /* places and likeliest tokens, in any order */
        { "{'taps':[{'name':'embd','token':0,'values':[5,6],'places':[0,9]}]}", "embd@0:0=5,9=6" },
        { "{'taps':[{'name':'logits','token':0,'top':[[9,3.5],[2,1.5]]}]}", "result_output@0:2=1.5,9=3.5" },
        { "{'taps':[{'name':'logits','token':0,'top':[[9,3.5],[0,1.5]],'values':[1.5,2]}]}",
          "result_output@0:0=1.5,1=2,9=3.5" },
        { "{'taps':[{'name':'logits','token':0,'top':[[9,3.5],[2,1.5]],'values':[1.5,2],'places':[2,4]}]}",
          "result_output@0:2=1.5,4=2,9=3.5" },
        /* rows in any order; taps under other names */
        { "{'taps':[{'name':'l_out-1','token':1,'rms':1},{'name':'kq-0'},{'name':'l_out-0','token':2,'rms':2},"
          "{'name':'l_out-1','token':0,'rms':3},{'name':'l_out','rms':1},{'name':'embd','token':1,'rms':4}]}",
          "embd@1~4 l_out-0@2~2 l_out-1@0~3 l_out-1@1~1|2 kq-0" },
        { "{'taps':[{'name':'model.layers.0.mlp.down_proj','token':0,'rms':1},"
          "{'name':'model.layers.0.mlp','token':0,'rms':1}]}", "ffn_out-0@0~1|1 model.layers.0.mlp" },
        /* one name that is not the same tap in all models of transformers */
        { "{'taps':[{'name':'layers.0.post_attention_layernorm','token':0,'rms':1}]}", "ffn_norm-0@0~1" },
        { "{'taps':[{'name':'layers.0.post_attention_layernorm','token':0,'rms':1},"
          "{'name':'layers.0.pre_feedforward_layernorm','token':0,'rms':2}]}", "attn_post_norm-0@0~1 ffn_norm-0@0~2" },
        { "{'taps':[{'name':'layers.0.pre_feedforward_layernorm','token':0,'rms':2},"
          "{'name':'layers.0.post_attention_layernorm','token':0,'rms':1}]}", "attn_post_norm-0@0~1 ffn_norm-0@0~2" },
        { "{'taps':[{'name':'layers.1.post_attention_layernorm','token':0,'rms':1},"
          "{'name':'layers.0.post_feedforward_layernorm','token':0,'rms':2}]}",
          "ffn_post_norm-0@0~2 attn_post_norm-1@0~1" },
        /* attention weights: padded keys are removed, also from the statistics; missing keys are added */
        { "{'taps':[{'name':'embd','token':1,'values':[.5]}]}", NULL },
        { "{'tokens':[7,8],'taps':[{'name':'kq_soft_max-0','token':1,'shape':[2,4],'values':[0.5,0.5,0,0,1,0,0,0]}]}",
          "kq_soft_max-0@1(2x2):0.5,0.5,1,0~0.612372^0.693147" },
        { "{'tokens':[7,8],'taps':[{'name':'kq_soft_max-0','token':1,'shape':[2,4],'values':[0.5,0.5,0,0,1],'rms':1}]}",
          "kq_soft_max-0@1(2x2):0.5,0.5,1~1.41421" },
        { "{'tokens':[7,8],'taps':[{'name':'kq_soft_max-0','token':0,'shape':[2,1],'values':[1,1],'entropy':[0,0]}]}",
          "kq_soft_max-0@0(2x2):0=1,2=1~0.707107^0" },
        /* an unknown number of NaN counts as none */
        { "{'tokens':[7,8],'taps':[{'name':'kq_soft_max-0','token':0,'shape':[2,1],'values':[1],'rms':1}]}",
          "kq_soft_max-0@0(2x2):1~0.707107" },
        { "{'tokens':[7,8],'taps':[{'name':'kq_soft_max-0','token':1,'shape':[2,2],'rms':1,'entropy':[0.25,0.5]}]}",
          "kq_soft_max-0@1(2x2)~1^0.25" },
        { "{'tokens':[7,8],'taps':[{'name':'kq_soft_max-0','token':1,'entropy':[0.25,0.5]}]}",
          "kq_soft_max-0@1(2x2)^0.25" },
        { "\xef\xbb\xbf \n{'taps':[]}", "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char facts[400];
        plumb_trace *t = plumb_trace_create();
        plumb_status status = read_json(t, rows[i].json);
        describe(t, facts, sizeof facts);
        if (rows[i].facts) {
            CHECK(status == PLUMB_OK && strcmp(facts, rows[i].facts) == 0, "row %zu: %s %s", i, facts,
                  plumb_trace_error(t));
        } else {
            CHECK(status == PLUMB_ERROR_METADATA, "row %zu: %s", i, facts);
        }
        plumb_trace_free(t);
    }
}

static void mistakes_case(void) {
    static const struct {
        const char *json, *message;   /* beginning of the message */
    } rows[] = {
        { "{", "JSON ends after 1 bytes: expected a name in double quotes" },
        { "{'taps':[", "JSON ends after 9 bytes: expected a value" },
        { "{'taps':[1,]}", "JSON, byte 11: expected a value, found ']}'" },
        { "{'taps':[1 2]}", "JSON, byte 11: expected ',' or ']', found '2]}'" },
        { "{'taps':[]} x", "JSON, byte 12: expected the end of the file after the value, found 'x'" },
        { "{'taps' []}", "JSON, byte 8: expected ':' after a name, found '[]}'" },
        { "{'taps':['a\nb']}", "JSON, byte 11: expected no control byte in a string; a line end is written \\n" },
        { "{'taps':['\\x41']}", "JSON, byte 10: expected an escape such as \\n or \\u0041" },
        { "{'taps':[01]}", "JSON, byte 9: expected a number without leading zeros" },
        { "{'taps':[1.]}", "JSON, byte 11: expected a digit after the decimal point" },
        { "{'taps':[1e+]}", "JSON, byte 12: expected a digit of the exponent" },
        { "{'taps':[+1]}", "JSON, byte 9: expected a value, found '+1]}'" },
        { "{'taps':[nul]}", "JSON, byte 9: expected a value" },
        { "{}", "the member \"taps\", the list of records, is missing" },
        { "{'taps':{}}", "JSON, byte 8: expected the list of taps, which begins with '['" },
        { "{'taps':[],'taps':[]}", "JSON, byte 18: expected one list of each kind" },
        { "{'taps':[7]}", "JSON, byte 9: expected a record of a tap, which begins with '{'" },
        { "{'taps':[{}]}", "JSON, byte 9: expected \"name\" in a record of a tap" },
        { "{'taps':[{'name':7}]}", "JSON, byte 17: expected the name of a tap" },
        { "{'plumb_trace':2,'taps':[]}", "JSON, byte 15: expected the version of the format, an integer from 1 to 1" },
        { "{'tokens':[1,-1],'taps':[]}", "JSON, byte 13: expected a token id, an integer from 0 to 2147483647" },
        { "{'tokens':[1.5],'taps':[]}", "JSON, byte 11: expected a token id" },
        { "{'tokens':[1,2],'n_prompt':3,'taps':[]}", "there are 2 tokens, but the prompt has 3" },
        { "{'tokens':[1,2],'pieces':['a'],'taps':[]}", "JSON, byte 25: expected one text for each of 2 tokens, not 1" },
        { "{'pieces':['a'],'taps':[]}", "JSON, byte 10: expected one text for each of 0 tokens" },
        { "{'texts':[[1]],'taps':[]}", "JSON, byte 13: expected a text after the token id" },
        { "{'texts':[[1,2]],'taps':[]}", "JSON, byte 13: expected the text of a token" },
        { "{'texts':[[1,'a','b']],'taps':[]}", "JSON, byte 17: expected ']' after a pair" },
        { "{'taps':[{'name':'embd','token':-1}]}", "JSON, byte 32: expected the index of a token" },
        { "{'taps':[{'name':'embd','shape':[65536,65536]}]}", "JSON, byte 39: expected a shape of less than 2^32" },
        { "{'taps':[{'name':'embd','shape':[0]}]}", "JSON, byte 33: expected a dimension, an integer from 1" },
        { "{'taps':[{'name':'embd','values':[1,[2]]}]}",
      "JSON, byte 36: expected a number, like the elements before it" },
        { "{'taps':[{'name':'embd','values':[[1],2]}]}",
      "JSON, byte 38: expected a list, like the elements before it" },
        { "{'taps':[{'name':'embd','values':['1']}]}", "JSON, byte 34: expected a number, the next value" },
        { "{'taps':[{'name':'embd','values':[1],'places':[1,2]}]}", "JSON, byte 9: expected as many places as values" },
        { "{'taps':[{'name':'embd','top':[[1,2,3]]}]}", "JSON, byte 36: expected ']' after a pair" },
        { "{'taps':[{'name':'embd','token':0,'top':[[1,2],[1,3]]}]}",
          "JSON, the record at byte 9: place 1 has two values" },
        { "{'tokens':[1,2],'taps':[{'name':'embd','token':9}]}",
          "JSON, the record at byte 24: embd of token 9, but there are 2 tokens" },
        { "{'tokens':[1,2],'taps':[{'name':'embd','values':[1,2,3]}]}",
          "JSON, the record at byte 24: \"token\" is missing: there are 2 tokens, but the 3 values" },
        { "{'taps':[{'name':'embd','token':0,'shape':[2],'values':[1,2,3]}]}",
          "JSON, the record at byte 9: embd of token 0: 3 values do not fit the shape 1 x 2" },
        { "{'taps':[{'name':'embd','token':0},{'name':'embd','token':0}]}",
          "JSON, the record at byte 35: embd occurs twice for token 0" },
        { "{'taps':[{'name':'embd'},{'name':'embd'}]}", "JSON, the record at byte 25: embd occurs twice for all" },
        { "{'taps':[{'name':'kq_soft_max-0','token':0,'shape':[2,2],'entropy':[1]}]}",
          "JSON, the record at byte 9: 1 entropies for 2 heads" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_trace *t = plumb_trace_create();
        CHECK(read_json(t, rows[i].json) != PLUMB_OK, "row %zu was read", i);
        CHECK(strncmp(plumb_trace_error(t), rows[i].message, strlen(rows[i].message)) == 0, "row %zu: %s", i,
              plumb_trace_error(t));
        CHECK(t->n_tap == 0 && t->n_token == 0, "row %zu left something", i);
        plumb_trace_free(t);
    }
}

/* ---- hostile files ---------------------------------------------------------------------------------------------- */

/* Bytes on the heap, if ASan counts them. */
static uint64_t held(void) {
#if defined(FEED_ASAN)
    return heap_bytes();
#else
    return 0;
#endif
}

/* Every prefix of a file, and each with one byte changed, gives a status and takes only a small multiple of memory. */
static void broken_case(const void *path) {
    size_t n;
    char *file = test_read_all(path, &n);
    plumb_trace *t = plumb_trace_create();
    uint32_t n_read = 0, random = 1;
    uint64_t start = held(), most = 0;
    for (size_t i = 0; file && t && i < 2 * n; i++) {
        size_t len = i < n ? i : n;
        char *copy = malloc(len > 0 ? len : 1);   /* as long as the text: ASan detects a read past it */
        if (!copy) break;
        memcpy(copy, file, len);
        random = random * 1664525 + 1013904223;
        if (i >= n) copy[i - n] = (char)(random >> 24);
        plumb_status status = plumb_trace_read(t, copy, len);
        CHECK(status == PLUMB_OK || plumb_trace_error(t)[0] != 0, "no message at %zu", i);
        /* a GGUF ends in padding, at most 31 bytes, and JSON in white space */
        CHECK(status != PLUMB_OK || i + 32 > n, "%zu of %zu bytes are enough", i, n);
        n_read += status == PLUMB_OK;
        free(copy);
        most = held() - start > most ? held() - start : most;
    }
    CHECK(n_read > 0, "no changed byte was harmless");
    CHECK(most <= 100 * (uint64_t)n, "%llu bytes held", (unsigned long long)most);
    plumb_trace_free(t);
    free(file);
}

static void hostile_case(void) {
    /* 100000 brackets; 10000 heads by 60000 tokens that must not be filled with zeros */
    size_t n = 200000;
    char *deep = malloc(n);
    plumb_trace *t = plumb_trace_create();
    REQUIRE(deep && t, "memory");
    memset(deep, '[', n);
    memcpy(deep, "{\"a\":", 5);
    CHECK(plumb_trace_read(t, deep, n) == PLUMB_ERROR_METADATA
          && strstr(plumb_trace_error(t), "at most 32 levels"), "%s", plumb_trace_error(t));
    size_t at = 0;
    memcpy(deep, "{\"tokens\":[", at = 11);
    for (size_t i = 0; i < 60000; i++) at += (size_t)snprintf(deep + at, 8, i > 0 ? ",1" : "1");
    at += (size_t)snprintf(deep + at, 200, "],\"taps\":[{\"name\":\"kq_soft_max-0\",\"token\":3,\"shape\":[10000,1],"
                           "\"values\":[");
    for (size_t i = 0; i < 10000; i++) at += (size_t)snprintf(deep + at, 8, i > 0 ? ",1" : "1");
    at += (size_t)snprintf(deep + at, 8, "]}]}");
    uint64_t start = held();
    CHECK(plumb_trace_read(t, deep, at) == PLUMB_OK, "%s", plumb_trace_error(t));
    CHECK(held() - start < 1u << 20, "%llu bytes held", (unsigned long long)(held() - start));
    const struct trace_tap *tap = trace_find_tap(t, TAP_KQ_SOFT_MAX, 0);
    CHECK(tap && tap->rows[0].n == 60000 && tap->rows[0].n_value == 10000 && tap->rows[0].places[2] == 120000, "row");
    plumb_trace_free(t);
    free(deep);
}

/* In the table for people, mean and RMS are those of the finite values. */
static void table_case(void) {
    static const float values[2][4] = { { 2, INFINITY, 4, NAN }, { 1, 1, 1, 1 } };
    plumb_trace *t = plumb_trace_create();
    plumb_trace_add(t, &(plumb_tap) { "embd", -1, 0, 2, 1, 4, values[0] });
    struct capture out = { 0 };
    CHECK(t && plumb_trace_write(t, PLUMB_FORMAT_TEXT, capture_write, &out) == PLUMB_OK, "%s", plumb_trace_error(t));
    const char *line = out.text ? strstr(out.text, "embd ") : NULL;
    char squeezed[200] = "";
    for (size_t n = 0; line && *line && *line != '\n' && n + 1 < sizeof squeezed; line++) {
        if (*line != ' ' || (n > 0 && squeezed[n - 1] != ' ')) squeezed[n++] = *line;
    }
    CHECK(strcmp(squeezed, "embd 2 4 1.67 2 1 4 2") == 0, "\"%s\"", squeezed);
    capture_free(&out);
    plumb_trace_free(t);
}

void test_trace(void) {
    test_case("trace: the table's mean and RMS are those of the finite values", table_case);
    static const plumb_format json = PLUMB_FORMAT_JSON, gguf = PLUMB_FORMAT_GGUF;
    test_case("trace: a trace outlives its model", freed_model_case);
    test_case("trace: a negative position in a GGUF is an error", gguf_position_case);
    test_case("trace: rows keep their positions in a GGUF without the ids of tokens", gguf_no_ids_case);
    test_case("trace: taps are known by the names of llama.cpp and of transformers", names_case);
    test_case("trace: patterns match names", patterns_case);
    test_case("trace: patterns mean the norm after attention if the model has one", post_attention_case);
    test_case("trace: a file may say in which order the taps are", order_case);
    test_case("trace: patterns that match nothing and layers that do not exist are errors", check_patterns_case);
    test_case("trace: statistics equal numpy's", stats_case);
    test_case("trace: attention weights and their entropy equal those worked by hand", entropy_case);
    test_case("trace: logits are kept with the likeliest ids", likeliest_case);
    test_case("trace: rows know whether they hold the likeliest logits", known_likeliest_case);
    test_case("trace: the likeliest tokens have their texts", texts_case);
    test_case("trace: statistics and entropies of a run equal llama.cpp's", llama_case);
    test_case("trace: batches, patterns, layers and value counts only select from the whole rows", batches_case);
    test_case("trace: JSON numbers are read as Python reads them, bit for bit", numbers_case);
    test_row("trace: GGUF to JSON and back is the gguf package's file, byte for byte", formats_case, &json);
    test_row("trace: json.dumps to GGUF is the gguf package's file, byte for byte", formats_case, &gguf);
    test_case("trace: an incomplete trace cannot be written as GGUF", refusals_case);
    test_case("trace: every form that docs/trace.md allows is read", shapes_case);
    test_case("trace: mistakes in JSON are reported with their byte", mistakes_case);
    test_row("trace: broken JSON gives a status", broken_case, VECTORS "trace.json");
    test_row("trace: broken GGUF gives a status", broken_case, VECTORS "trace.gguf");
    test_case("trace: hostile depth and shapes do not exhaust memory", hostile_case);
}
