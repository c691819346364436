/* Writes what llama.cpp computes for a model and a row of tokens: the ground truth that plumb's passes are held to.
 *
 *   logits [options] MODEL.gguf CPU_BACKEND.so OUT.bin           - for the backend: it is linked in
 *     -f FILE   tokenize this text as llama.cpp does by default (BOS if the model asks for it)
 *     -i FILE   or take these token ids, decimal, separated by white space
 *     -p        text of special tokens in FILE is parsed as special tokens (for rendered chat templates)
 *     -n N      keep the first N tokens
 *     -g N      then N greedy tokens, one by one; the records are those N choices (end-of-text does not stop them)
 *     -s N      record every N-th logit, ids 0, N, 2N...; 0 records none
 *     -t N      record the N largest logits
 *               T5's encoder reads the prompt; its decoder reads it too or, with -g, begins with its start token
 *     -b N      of T5's encoder the first N blocks are those of the model: later ones add nothing, and are not dumped
 *     -d FILE   dump the activations of the prompt's pass there, as its evaluation callback sees them
 *     -l F:S    use the LoRA in file F with the scale S; several together
 *     -c F:S    add the control vector in file F, times S
 *     -r A-B    only to the layers A to B, counted from 0
 *     -k N:CTX  the context holds CTX tokens: when it is full, the first N stay, and half of the others are dropped
 *     -v TYPE   K and V are of this type of ggml instead of f32, such as q8_0, with flash attention
 *     -e KINDS  record no logits; the dump ends in the embeddings of the tokens by each of these kinds of pooling, with
 *               llama.cpp's numbers: 0 gives "none", with a row for each token, 1234 "mean", "cls", "last", "rank"
 *
 * Only arithmetic may differ from plumb's reference pass, so: CPU, one thread, f32 KV cache, no flash attention, no
 * repacked weights, and one fixed CPU backend instead of the best for the machine.
 *
 * OUT.bin is little-endian; all words are 32 bits:
 *   char magic[8] "PLMBLOGT"
 *   u32  n_vocab, n_token, n_record, stride, n_sample, n_top      n_sample = ceil(n_vocab / stride), 0 if stride is 0
 *   u32  token[n_token]                                           everything fed, from position 0 on
 *   n_record records, those of the last n_record tokens; each is what stands after that token:
 *     f32 logsumexp                                               natural logarithm, over the whole vocabulary
 *     f32 sample[n_sample]                                        logits of ids 0, stride, 2 stride...
 *     u32 top_id[n_top];  f32 top[n_top]                          largest first; of equals the smaller id
 * The most negative number, which llama.cpp has for tokens that a model never answers, is written as -infinity.
 * A dump is a row of: char name[24] ("Qcur-0", "Qcur_rope-0" behind RoPE, "result_norm"; of a longer name the last 24
 * bytes); u32 ne[4], fastest dimension first; f32 values, also of the indices of ffn_moe_topk.  Of two records with one
 * name the later one is the step.
 * A file of greedy choices holds the prompt and all but the last choice as tokens; top_id[0] of record k is choice k.
 */
#include <float.h>
#include <ggml-backend.h>
#include <gguf.h>
#include <llama.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TOKEN 4096
#define MAX_ADAPTER 8

static void die(const char *what, const char *which) {
    fprintf(stderr, "logits: %s: %s\n", what, which);
    exit(1);
}

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static char *read_text(const char *path, int32_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) die("cannot open", path);
    char *text = malloc(1 << 20);
    *n = (int32_t)fread(text, 1, (1 << 20) - 1, f);
    text[*n] = 0;
    fclose(f);
    return text;
}

static void put(FILE *f, const void *words, int32_t n) {
    if (fwrite(words, 4, (size_t)n, f) != (size_t)n) die("cannot write", "the output");
}

static bool is_arctic, is_grovemoe, is_nemotron_h, is_jamba, is_gemma3n, is_gemma4, is_switch, is_chameleon;

static float shown(float x) { return x == -FLT_MAX ? -INFINITY : x; }

/* llama.cpp leaves out the logits of Chameleon's codes of images only in the first row of a batch, which is the only
 * one when the model answers: here also in the others. */
static void leave_out(float *logits, const float *first, int64_t n) {
    for (int64_t i = 0; is_chameleon && i < n; i++) {
        if (first[i] == -FLT_MAX || first[i] == -INFINITY) logits[i] = -INFINITY;
    }
}

/* Whether a tensor's name comes again.  GroveMoE applies adjugate experts after the others, with the same names. */
static bool is_seen(const char *name) {
    static char seen[1000][GGML_MAX_NAME];
    static int n;
    for (int i = 0; i < n; i++) {
        if (strcmp(seen[i], name) == 0) return true;
    }
    if (n < 1000) strcpy(seen[n++], name);
    return false;
}

/* Whether an operand of t is a weight whose name ends so; layer: "-0". */
static bool has_weight(const struct ggml_tensor *t, const char *end, char *layer) {
    for (int i = 0; t && i < 2 && t->src[i]; i++) {
        size_t n = strlen(t->src[i]->name), n_end = strlen(end);
        if (n < n_end || strcmp(t->src[i]->name + n - n_end, end) != 0) continue;
        return sscanf(t->src[i]->name, "blk.%11[0-9]", layer + 1) == 1;
    }
    return false;
}

static const struct ggml_tensor *source(const struct ggml_tensor *t, int i) { return t ? t->src[i] : NULL; }
static bool is_op(const struct ggml_tensor *t, enum ggml_op op) { return t && t->op == op; }

/* The steps of RWKV, by the weights that what they are made of has. */
static const char *name_in_rwkv(const struct ggml_tensor *t, char layer[16]) {
    const struct ggml_tensor *a = t->src[0], *b = t->src[1];
    bool is_unary = t->op == GGML_OP_UNARY, is_mul = t->op == GGML_OP_MUL, is_add = t->op == GGML_OP_ADD;
    bool is_7 = t->op == GGML_OP_RWKV_WKV7, is_6 = t->op == GGML_OP_RWKV_WKV6 || t->op == GGML_OP_GATED_LINEAR_ATTN;
    const struct ggml_tensor *receptance = source(is_7 ? a : is_6 ? t->src[2] : NULL, 0);
    const struct ggml_tensor *deep = source(source(a, 0), 0);
    if (has_weight(receptance, "time_mix_receptance.weight", layer)) return "wkv_output";
    if (has_weight(receptance, "time_mix_receptance.bias", layer)) return "wkv_output";
    if (is_unary && has_weight(a, "time_mix_a0.weight", layer)) return "wkv_rate";
    if (is_unary && has_weight(a, "time_mix_v0.weight", layer)) return "wkv_value_mix";
    if (is_unary && has_weight(a, "channel_mix_receptance.weight", layer)) return "ffn_receptance";
    if (is_unary && has_weight(deep, "time_mix_w0.weight", layer)) return "wkv_decay";
    if (is_unary && is_op(a, GGML_OP_UNARY) && has_weight(deep, "time_mix_decay.weight", layer)) return "wkv_decay";
    if (t->op == GGML_OP_L2_NORM && has_weight(source(a, 0), "time_mix_k_k.weight", layer)) return "wkv_removal";
    if (t->op == GGML_OP_SQR && has_weight(source(a, 0), "channel_mix_key.weight", layer)) return "ffn_swiglu";
    if (is_add && is_op(b, GGML_OP_SUB) && has_weight(b->src[1], "time_mix_k_a.weight", layer)) return "wkv_key";
    if (is_add && is_op(b, GGML_OP_MUL) && has_weight(source(b->src[1], 0), "time_mix_v0.weight", layer)) {
        return "wkv_value";
    }
    const struct ggml_tensor *bonus = is_add && is_op(b, GGML_OP_RESHAPE) ? b->src[0] : is_mul ? t : NULL;
    const struct ggml_tensor *sum = source(bonus, 1);
    if (is_op(sum, GGML_OP_SUM_ROWS) && has_weight(source(sum->src[0], 1), "time_mix_r_k.weight", layer)) {
        return is_add ? "wkv_sum" : "wkv_bonus";
    }
    if (is_mul && has_weight(b, "time_mix_g2.weight", layer)) return "attn_gated";
    if (is_mul && is_op(b, GGML_OP_UNARY) && has_weight(b->src[0], "time_mix_gate.weight", layer)) return "attn_gated";
    return is_mul && has_weight(b, "channel_mix_value.weight", layer) ? "ffn_out" : NULL;
}

/* Most steps of state-space layers have no name, but weights that no other step has.  NULL: it is none of these. */
static const char *name_by_weight(const struct ggml_tensor *t, char layer[16]) {
    static const struct { enum ggml_op op; const char *weight, *name; } steps[] = {
        {GGML_OP_MUL_MAT, "ssm_in.weight", "mamba_in_proj"}, {GGML_OP_MUL, "ssm_in.scale", "mamba_in_proj"},
        {GGML_OP_ADD, "ssm_conv1d.bias", "conv"}, {GGML_OP_MUL_MAT, "ssm_x.weight", "mamba_bcdt_proj"},
        {GGML_OP_MUL, "ssm_b_norm.weight", "mamba_B_normed"}, {GGML_OP_MUL, "ssm_c_norm.weight", "mamba_C_normed"},
        {GGML_OP_MUL, "ssm_dt_norm.weight", "mamba_dt_normed"}, {GGML_OP_ADD, "ssm_dt.bias", "mamba_dt_proj"},
        {GGML_OP_MUL, "ssm_norm.weight", "mamba_norm"}, {GGML_OP_MUL_MAT, "ssm_out.weight", "mamba_out"},
        {GGML_OP_MUL, "ssm_out.scale", "mamba_out"}, {GGML_OP_MUL_MAT, "time_mix_receptance.weight", "Qcur"},
        {GGML_OP_ADD, "time_mix_receptance.bias", "Qcur"}, {GGML_OP_MUL_MAT, "time_mix_key.weight", "Kcur"},
        {GGML_OP_ADD, "time_mix_key.bias", "Kcur"}, {GGML_OP_MUL_MAT, "time_mix_value.weight", "Vcur"},
        {GGML_OP_ADD, "time_mix_value.bias", "Vcur"}, {GGML_OP_ADD, "time_mix_ln.bias", "wkv_norm"},
        {GGML_OP_MUL_MAT, "time_mix_gate.weight", "attn_gate_proj"},
        {GGML_OP_MUL_MAT, "time_mix_g2.weight", "attn_gate_proj"},
        {GGML_OP_MUL_MAT, "time_mix_output.weight", "attn_out"}, {GGML_OP_MUL_MAT, "channel_mix_key.weight", "ffn_up"},
        {GGML_OP_MUL_MAT, "channel_mix_value.weight", "ffn_out"},
        {GGML_OP_MUL_MAT, "ssm_g_a.weight", "attn_gate_proj"}, {GGML_OP_MUL_MAT, "attn_gate.weight", "attn_gate_proj"},
        {GGML_OP_MUL_MAT, "ssm_beta.weight", "beta"},
    };
    layer[0] = '-';
    if (strncmp(t->name, "node_", 5) != 0) return NULL;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (t->op == steps[i].op && has_weight(t, steps[i].weight, layer)) return steps[i].name;
    }
    if (t->op == GGML_OP_UNARY && has_weight(t->src[0], "ssm_conv1d.bias", layer)) return "conv_output_silu";
    if (t->op == GGML_OP_ADD && has_weight(t->src[1], "ssm_d", layer)) return "mamba2_y_add_d";
    bool is_gate = t->op == GGML_OP_GLU && t->src[1] && has_weight(t->src[1]->src[1], "ssm_d", layer);
    return is_gate ? "mamba_y_swiglu_z" : name_in_rwkv(t, layer);
}

/* Of a model with an encoder and a decoder: blocks of the encoder, whether the decoder runs, and its last block whose
 * cross attention has begun.  n_encoder 0: another model. */
static struct { int32_t n_encoder, cross; bool decodes; } t5;

/* The layers of the decoder follow those of the encoder: two for each block, as plumb has them.  layer: "-0" or NULL;
 * buffer: for another one, which is returned. */
static const char *name_in_t5(char own[64], const char *layer, char buffer[16]) {
    int32_t il = layer ? atoi(layer + 1) : 0;
    if (!t5.decodes) {
        if (il >= t5.n_encoder) strcpy(own, "");   /* no tap */
        bool is_norm = strcmp(own, "result_norm") == 0, is_embd = strcmp(own, "embd") == 0;
        if (is_embd || is_norm) sprintf(own, is_norm ? "enc_result_norm" : "enc_embd");
        if (is_norm) sprintf(buffer, "-%d", t5.n_encoder - 1);
        return is_norm ? buffer : layer;
    }
    bool begins = strcmp(own, "attn_norm_cross") == 0;
    if (begins) t5.cross = il;
    if (begins) strcpy(own, "attn_norm");
    if (strcmp(own, "cross_inp") == 0) strcpy(own, "l_out");
    if (!layer) return NULL;
    sprintf(buffer, "-%d", t5.n_encoder + 2 * il + (t5.cross == il));
    return buffer;
}

/* Steps that a dump shows: those that plumb taps.  Q, K and V get their name several times; heads are apart and biases
 * added when they are reshaped or are views of the fused product, and RoPE comes after. */
static bool dump_tensor(struct ggml_tensor *t, bool ask, void *user) {
    static const char *const wanted[] = {"embd", "attn_norm", "Qcur", "Kcur", "Vcur", "Qcur_normed", "Kcur_normed",
                                         "kq_soft_max", "kqv_out", "attn_out", "attn_post_norm", "ffn_inp", "ffn_norm",
                                         "ffn_gate", "ffn_up", "ffn_swiglu", "ffn_out", "ffn_post_norm", "l_out",
                                         "Qcur_attn_temp_scaled", "attn_gate_proj", "attn_gated",
                                         "attn_sub_norm", "ffn_sub_norm", "ffn_moe_logits", "ffn_moe_probs",
                                         "ffn_moe_probs_biased", "ffn_moe_topk", "ffn_moe_weights",
                                         "ffn_moe_weights_softmax",
                                         "ffn_moe_weights_norm", "ffn_moe_weights_scaled", "ffn_moe_gate",
                                         "ffn_moe_up", "ffn_moe_swiglu", "ffn_moe_down", "ffn_moe_weighted",
                                         "ffn_moe_out", "ffn_shexp", "ffn_shexp_gate_inp", "conv_in", "conv",
                                         "conv_out", "linear_attn_qkv_mixed", "beta", "alpha", "beta_sigmoid",
                                         "delta_decay", "conv_output_silu", "delta_rule", "final_output",
                                         "linear_attn_out", "q", "kv_cmpr_pe", "kv_cmpr", "kv",
                                         "mamba_in_proj", "mamba_x_split", "mamba_z_split",
                                         "mamba_bcdt_proj", "mamba_B_raw", "mamba_C_raw", "mamba_dt_raw",
                                         "mamba_B_normed", "mamba_C_normed", "mamba_dt_normed", "mamba_dt_proj",
                                         "mamba2_y_add_d", "mamba_y_swiglu_z", "mamba_norm", "mamba_out",
                                         "Vcur_normed", "ffn_norm_2", "ffn_moe", "ffn_mlp",
                                         "inp_per_layer", "pe_in", "per_layer_embd_out", "modalities", "predictions",
                                         "active_prediction", "laurel_out", "corrected", "first_prediction_gated",
                                         "first_prediction_scaled", "wkv_value_mix", "wkv_value", "wkv_decay",
                                         "wkv_rate", "wkv_removal", "wkv_key", "wkv_bonus", "wkv_output", "wkv_norm",
                                         "wkv_sum", "ffn_receptance", "QKVcur", "QKVcur_silu",
                                         "enc_embd", "enc_result_norm", "result_norm", "result_output"};
    /* Names that some architectures have for the same steps. */
    static const char *const others[][2] = {{"inp_scaled", "embd"}, {"sa_out", "ffn_inp"}, {"ffn_geglu", "ffn_swiglu"},
                                            {"ffn_gate_b", "ffn_gate"}, {"ffn_up_b", "ffn_up"},
                                            {"ffn_gelu", "ffn_swiglu"}, {"ffn_sqr(relu)", "ffn_swiglu"},
                                            {"Qcur_norm", "Qcur_normed"}, {"Kcur_norm", "Kcur_normed"},
                                            {"inpL", "embd"}, {"attn_o_proj", "attn_out"},
                                            {"attn_out_proj", "attn_out"},
                                            {"ffn_shexp_out", "ffn_shexp"},
                                            {"ffn_moe_logits_biased", "ffn_moe_logits"}, {"embd_norm", "embd"},
                                            {"inp_embd_scaled", "embd"}, {"ffn_gate_s", "ffn_gate"},
                                            {"ffn_up_s", "ffn_up"}, {"ffn_down_s", "ffn_out"},
                                            {"ffn_act", "ffn_swiglu"}, {"ffn_silu", "ffn_swiglu"},
                                            {"ffn_swiglu_limited", "ffn_swiglu"},
                                            {"inp_norm", "embd"}, {"attn_q_norm", "Qcur_normed"},
                                            {"attn_k_norm", "Kcur_normed"}, {"attn_residual", "ffn_inp"},
                                            {"attn_proj", "attn_out"}, {"Qcur_pos", "Qcur"}, {"Kcur_pos", "Kcur"},
                                            {"ffn_swiglu_oai", "ffn_swiglu"},
                                            {"ffn_relu", "ffn_swiglu"},
                                            {"ffn_moe_gate_biased", "ffn_moe_gate"},
                                            {"ffn_moe_up_biased", "ffn_moe_up"},
                                            {"ffn_moe_down_biased", "ffn_moe_down"},
                                            {"ffn_moe_gate_scaled", "ffn_moe_gate"},
                                            {"ffn_moe_up_scaled", "ffn_moe_up"},
                                            {"ffn_moe_down_scaled", "ffn_moe_down"},
                                            {"ffn_moe_geglu", "ffn_moe_swiglu"},
                                            {"ffn_moe_gelu", "ffn_moe_swiglu"},
                                            {"ffn_moe_silu", "ffn_moe_swiglu"},
                                            {"ffn_moe_reglu", "ffn_moe_swiglu"},
                                            {"ffn_moe_relu", "ffn_moe_swiglu"},
                                            {"ffn_moe_relu_sqr", "ffn_moe_swiglu"},
                                            {"ffn_moe_swiglu_oai", "ffn_moe_swiglu"},
                                            {"ffn_moe_swiglu_limited", "ffn_moe_swiglu"},
                                            {"result_embd", "result_norm"}, {"final_norm_out", "result_norm"},
                                            {"inp_embd", "embd"}, {"model.embed_tokens", "embd"},
                                            {"model.layers.{}.operator_norm", "attn_norm"},
                                            {"model.layers.{}.conv.in_proj", "conv_in"},
                                            {"model.layers.{}.conv.conv", "conv"},
                                            {"model.layers.{}.conv.out_proj", "conv_out"},
                                            {"model.layers.{}.self_attn.q_layernorm", "Qcur_normed"},
                                            {"model.layers.{}.self_attn.k_layernorm", "Kcur_normed"},
                                            {"model.layers.{}.self_attn.out_proj", "attn_out"},
                                            {"model.layers.{}.ffn_out", "ffn_norm"},   /* LFM2 renames the norm */
                                            {"z", "attn_gate_proj"}, {"gate", "delta_decay"},
                                            {"conv_output_raw", "conv"}, {"gate_reshaped", "attn_gate_proj"},
                                            {"ffn_shexp_gated", "ffn_shexp"}, {"b", "beta"}, {"a", "alpha"},
                                            {"mamba_conv1d", "conv"}, {"mamba_conv1d_silu", "conv_output_silu"},
                                            {"mamba_y_add_d", "mamba2_y_add_d"}, {"ssm_out", "mamba_out"},
                                            {"ffn_pre_norm", "ffn_norm"}, {"ffn_residual", "l_out"},
                                            {"nemotron_h_block_out", "l_out"},
                                            {"ffn_norm_1", "ffn_norm"}, {"ffn_moe_combined", "ffn_out"},
                                            {"attn_laurel", "ffn_inp"}, {"attn_ffw_laurel_gated", "pe_in"},
                                            {"first_prediction_out", "per_layer_embd_out"},
                                            {"kv_pe_compresseed", "kv_cmpr_pe"}, {"kv_compressed", "kv_cmpr"},
                                            {"kda_g1", "delta_decay"}, {"kda_gate", "delta_decay"},
                                            {"g1 f_b(f_a(cur))", "alpha"},
                                            {"g2 g_b(g_a(cur_2d))", "attn_gate_proj"}, {"kda_beta", "beta"},
                                            {"kda_out", "linear_attn_out"}, {"mla_out", "attn_out"},
                                            {"g", "attn_gate_proj"}, {"qkv_permuted", "wkv_output"},
                                            {"qkv_norm", "wkv_norm"}, {"attn_pre_o", "kqv_out"}};
    FILE *f = user;
    char name[24] = "", own[64], full[96], block[16];
    const char *by_weight = name_by_weight(t, block);
    const char *layer = by_weight ? block : strrchr(t->name, '-');   /* "-0" of "Qcur-post-rope-0" too */
    bool is_normed = is_op(t, GGML_OP_ADD) && strcmp(t->src[1]->name, "token_embd_norm.bias") == 0;   /* of RWKV */
    /* The embedding, though its name has a layer. */
    bool is_bloom = strcmp(t->name, "inp_norm-0") == 0 || (is_normed && strncmp(t->name, "node_", 5) == 0);
    size_t n = is_bloom ? strlen(t->name) : strcspn(t->name, "-");
    snprintf(own, sizeof own, "%.*s", by_weight ? (int)strlen(by_weight) : (int)n, by_weight ? by_weight : t->name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(own, others[i][0]) == 0) strcpy(own, others[i][1]);
    }
    if (is_bloom) strcpy(own, "embd");
    char in_t5[16];
    if (t5.n_encoder > 0) layer = name_in_t5(own, layer, in_t5);
    /* Qwen 3.5 gives the output of attention this name, and what the delta rule reads. */
    if (strcmp(own, "attn_output") == 0) strcpy(own, t->op == GGML_OP_MUL_MAT ? "attn_out" : "delta_rule");
    /* Jamba gives it the name of the sum that comes next. */
    bool is_mixed = is_jamba && strcmp(own, "ffn_inp") == 0;
    if (is_mixed) strcpy(own, t->op == GGML_OP_MUL_MAT || t->op == GGML_OP_MUL ? "attn_out" : "mamba_out");
    /* Gemma 4 calls the sum with the residual attn_out. */
    if (is_gemma4 && strcmp(own, "attn_out") == 0) strcpy(own, "ffn_inp");
    bool is_stack = is_gemma3n && (strcmp(own, "l_out") == 0 || strcmp(own, "predictions") == 0
                                   || strcmp(own, "corrected") == 0);   /* streams, of which l_out shows the first */
    /* Encoders give what follows attn_output the name of its input. */
    if (strcmp(own, "kqv_out") == 0 && t->op != GGML_OP_CONT) strcpy(own, "attn_out");
    /* With a softmax over the experts that are used, the scores have no other name. */
    bool is_score = t->op == GGML_OP_ADD || t->op == GGML_OP_MUL_MAT;
    if (strcmp(own, "ffn_moe_probs") == 0 && is_score) strcpy(own, "ffn_moe_logits");
    bool cur = n == 4 && strncmp(t->name + 1, "cur", 3) == 0, rope = t->op == GGML_OP_ROPE;
    /* The norm of Q and K of jina-bert-v2. */
    struct ggml_tensor *before = cur && t->op == GGML_OP_RESHAPE ? t->src[0] : NULL;
    bool is_last = before && (before->op == GGML_OP_MUL || before->op == GGML_OP_ADD);
    if (is_last && strstr(before->src[1]->name, "_norm")) strcat(own, "_normed");
    bool is_wanted = !strstr(t->name, " (") && (!cur || rope || is_gemma4 || t->op == GGML_OP_RESHAPE
                                               || t->op == GGML_OP_VIEW);
    bool found = false;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (strcmp(own, wanted[i]) == 0) found = true;
    }
    /* llama4 calls the output of attention so in layers with experts. */
    bool is_norm = (t->src[1] && strstr(t->src[1]->name, "norm")) || t->op == GGML_OP_NORM || t->op == GGML_OP_RMS_NORM;
    if (strcmp(own, "ffn_norm") == 0 && !is_norm) found = false;
    /* gptneox also calls the sum with the residual ffn_out; that of graniteswitch adds an adapter's part. */
    bool is_sum = t->op == GGML_OP_ADD && !strstr(t->src[1]->name, "bias") && !is_switch;
    if (strcmp(own, "ffn_out") == 0 && is_sum) found = false;
    /* What is shown of Gemma 3n is a sum before the next one, and the second of two mixtures has no own name. */
    if (is_gemma3n && strcmp(own, "attn_gated") == 0) found = false;
    if (!is_wanted || !found) return !ask;   /* asked: do we want to see it; told: go on */
    if (ask) return true;
    if ((is_grovemoe || (is_gemma3n && strcmp(own, "modalities") == 0)) && is_seen(t->name)) return true;
    if (is_arctic && strcmp(own, "ffn_out") == 0) strcpy(own, "ffn_shexp");   /* the dense network */
    bool is_network = is_nemotron_h && strncmp(t->name, "l_out", 5) == 0;   /* nemotron_h_block_out comes later */
    if (is_network) strcpy(own, "ffn_out");
    bool is_integer = t->type == GGML_TYPE_I32;
    if (t->type != GGML_TYPE_F32 && !is_integer) die("neither F32 nor I32", t->name);
    if (!layer || is_bloom) layer = "";
    size_t n_full = (size_t)snprintf(full, sizeof full, "%s%s%s", own, rope ? "_rope" : "", layer);
    memcpy(name, full + (n_full > sizeof name ? n_full - sizeof name : 0), n_full < sizeof name ? n_full : sizeof name);
    float *data = malloc((size_t)ggml_nelements(t) * sizeof *data);
    for (int64_t i = 0; i < ggml_nelements(t); i++) {   /* the tensor may be a view of another one */
        int64_t rest = i;
        const char *at = t->data;
        for (int k = 0; k < 4; k++) {
            at += rest % t->ne[k] * (int64_t)t->nb[k];
            rest /= t->ne[k];
        }
        data[i] = is_integer ? (float)*(const int32_t *)at : shown(*(const float *)at);
    }
    int64_t n_column = strncmp(name, "result_output", 13) == 0 ? t->ne[0] : 0;
    for (int64_t row = 0; row < ggml_nrows(t); row++) leave_out(data + row * n_column, data, n_column);
    fwrite(name, 1, sizeof name, f);
    /* The cache is padded to 256 keys: as many as there are tokens are real. */
    int32_t n_row = (int32_t)ggml_nrows(t), padded = (int32_t)t->ne[0];
    int32_t ne0 = strncmp(name, "kq_soft_max", 11) == 0 ? (int32_t)t->ne[1] : padded;
    /* Behind what is read of them. */
    bool has_states = strncmp(name, "wkv_output", 10) == 0 && t->op != GGML_OP_CONT;
    if (has_states) n_row = (int32_t)t->src[0]->ne[2];
    if (is_stack) {   /* (stream, token) becomes (token, stream) */
        int32_t n_token = (int32_t)t->ne[1], n_shown = strcmp(own, "l_out") == 0 ? 1 : (int32_t)t->ne[2];
        put(f, (const int32_t[]){ne0, n_shown, n_token, 1}, 4);
        for (int32_t i = 0; i < n_token * n_shown; i++) {
            put(f, data + (size_t)(i % n_shown * n_token + i / n_shown) * ne0, ne0);
        }
        n_row = 0;
    } else {
        put(f, &ne0, 1);
        for (int i = 1; i < 4; i++) put(f, &(int32_t){has_states && i == 1 ? n_row : (int32_t)t->ne[i]}, 1);
    }
    for (int32_t row = 0; row < n_row; row++) put(f, data + (size_t)row * padded, ne0);
    free(data);
    return true;
}

/* The name of a step in a dump, and its values (n_row, n). */
static void put_step(FILE *f, const char *name, const float *values, int32_t n_row, int32_t n) {
    char padded[24] = "";
    snprintf(padded, sizeof padded, "%s", name);
    fwrite(padded, 1, sizeof padded, f);
    put(f, (const int32_t[]){n, n_row, 1, 1}, 4);
    put(f, values, n_row * n);
}

/* Computes a batch: with the encoder, if the model has one, and then with the decoder, if it has one and is wanted.
 * start: the decoder reads its start token instead.  llama_decode would let the tokens of T5's encoder see those before
 * them only. */
static bool run(struct llama_context *ctx, struct llama_batch batch, bool decodes, bool start) {
    const struct llama_model *model = llama_get_model(ctx);
    t5.decodes = false;
    t5.cross = -1;
    if (llama_model_has_encoder(model) && llama_encode(ctx, batch) != 0) return false;
    if (!llama_model_has_decoder(model) || !decodes) return true;
    t5.decodes = true;
    llama_token first = llama_model_decoder_start_token(model);
    return llama_decode(ctx, start ? llama_batch_get_one(&first, 1) : batch) == 0;
}

/* Appends the embedding of the tokens by one kind of pooling to a dump. */
static void put_embedding(FILE *f, struct llama_model *model, struct llama_context_params cp, struct llama_batch batch,
                          int32_t pooling) {
    static const char *const names[] = {"none", "mean", "cls", "last", "rank"};
    cp.embeddings = true;
    cp.pooling_type = (enum llama_pooling_type)pooling;
    cp.cb_eval = NULL;
    struct llama_context *ctx = llama_init_from_model(model, cp);
    if (!ctx || !run(ctx, batch, t5.n_encoder == 0, false)) die("cannot embed", names[pooling]);
    int32_t n = pooling == 4 ? (int32_t)llama_model_n_cls_out(model) : llama_model_n_embd_out(model);
    if (pooling == 0) put_step(f, names[pooling], llama_get_embeddings(ctx), batch.n_tokens, n);
    else put_step(f, names[pooling], llama_get_embeddings_seq(ctx, 0), 1, n);
    llama_free(ctx);
}

/* Splits "FILE:SCALE" and returns the scale. */
static float split_scale(char *text) {
    char *colon = strrchr(text, ':');
    if (!colon) die("expected FILE:SCALE", text);
    *colon = 0;
    return strtof(colon + 1, NULL);
}

/* Adds direction.1, direction.2... of a file to the layers first to last, as common_control_vector_load does. */
static void set_control(struct llama_context *ctx, const struct llama_model *model, const char *path, float scale,
                        int32_t first, int32_t last) {
    struct ggml_context *tensors = NULL;
    struct gguf_context *file = gguf_init_from_file(path, (struct gguf_init_params){false, &tensors});
    if (!file) die("cannot read", path);
    int32_t n_embd = llama_model_n_embd(model), n_layer = llama_model_n_layer(model);
    float *data = calloc((size_t)n_embd * (size_t)n_layer, sizeof *data);
    for (int64_t i = 0; i < gguf_get_n_tensors(file); i++) {
        const struct ggml_tensor *t = ggml_get_tensor(tensors, gguf_get_tensor_name(file, i));
        int32_t il = atoi(strchr(t->name, '.') + 1);
        for (int32_t k = 0; k < n_embd; k++) data[(il - 1) * n_embd + k] += ((const float *)t->data)[k] * scale;
    }
    size_t n = (size_t)n_embd * (size_t)n_layer;
    if (llama_set_adapter_cvec(ctx, data, n, n_embd, first, last) != 0) die("cannot use", path);
    free(data);
}

/* Writes one record and returns the greedy choice. */
static llama_token put_record(FILE *f, const float *logits, int32_t n_vocab, int32_t stride, int32_t n_top) {
    int32_t *top = calloc((size_t)(n_top + 1), sizeof *top);
    int32_t n = 0, keep = n_top ? n_top : 1;
    for (int32_t id = 0; id < n_vocab; id++) {
        int32_t at = n;
        while (at > 0 && logits[id] > logits[top[at - 1]]) at--;
        if (at == keep) continue;
        if (n < keep) n++;
        memmove(top + at + 1, top + at, sizeof *top * (size_t)(n - 1 - at));
        top[at] = id;
    }
    double sum = 0;
    for (int32_t id = 0; id < n_vocab; id++) sum += exp((double)logits[id] - logits[top[0]]);
    float logsumexp = (float)(log(sum) + logits[top[0]]);

    put(f, &logsumexp, 1);
    for (int32_t id = 0; stride > 0 && id < n_vocab; id += stride) put(f, &(float){shown(logits[id])}, 1);
    put(f, top, n_top);
    for (int32_t k = 0; k < n_top; k++) put(f, logits + top[k], 1);
    llama_token best = top[0];
    free(top);
    return best;
}

int main(int argc, char **argv) {
    const char *text_path = NULL, *ids_path = NULL, *dump_path = NULL, *kinds = NULL;
    bool special = false;
    int32_t n_token = 0, n_max = MAX_TOKEN, n_greedy = 0, stride = 0, n_top = 0;
    char *lora_paths[MAX_ADAPTER], *control = NULL;
    size_t n_lora = 0;
    int32_t first = 1, last = 1000000, n_keep = 0, n_ctx = 0, n_encoder = 0;
    const char *kv_name = NULL;
    for (int c; (c = getopt(argc, argv, "f:i:pn:g:s:t:d:e:l:c:r:k:v:b:")) != -1;) switch (c) {
        case 'f': text_path = optarg; break;
        case 'i': ids_path = optarg; break;
        case 'p': special = true; break;
        case 'n': n_max = atoi(optarg); break;
        case 'g': n_greedy = atoi(optarg); break;
        case 's': stride = atoi(optarg); break;
        case 't': n_top = atoi(optarg); break;
        case 'd': dump_path = optarg; break;
        case 'e': kinds = optarg; break;
        case 'l':
            if (n_lora == MAX_ADAPTER) die("too many", "-l");
            lora_paths[n_lora++] = optarg;
            break;
        case 'c': control = optarg; break;
        case 'r': sscanf(optarg, "%d-%d", &first, &last); break;
        case 'k': sscanf(optarg, "%d:%d", &n_keep, &n_ctx); break;
        case 'v': kv_name = optarg; break;
        case 'b': n_encoder = atoi(optarg); break;
        default: return 2;
        }
    if (argc - optind != 3) die("expected", "MODEL.gguf CPU_BACKEND.so OUT.bin");
    const char *model_path = argv[optind], *backend_path = argv[optind + 1], *out_path = argv[optind + 2];

    llama_log_set(quiet, NULL);
    bool is_linked = strcmp(backend_path, "-") == 0;
    if (!is_linked && !ggml_backend_load(backend_path)) die("cannot load", backend_path);
    llama_backend_init();
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    mp.use_extra_bufts = false;
    struct llama_model *model = llama_model_load_from_file(model_path, mp);
    char architecture[64] = "";
    if (model) llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture);
    is_arctic = strcmp(architecture, "arctic") == 0;
    is_grovemoe = strcmp(architecture, "grovemoe") == 0;
    is_jamba = strcmp(architecture, "jamba") == 0;
    is_nemotron_h = strncmp(architecture, "nemotron_h", 10) == 0;
    is_gemma3n = strcmp(architecture, "gemma3n") == 0;
    is_gemma4 = strcmp(architecture, "gemma4") == 0;
    is_switch = strcmp(architecture, "graniteswitch") == 0;
    is_chameleon = strcmp(architecture, "chameleon") == 0;
    if (!model) die("cannot load", model_path);
    if (llama_model_has_encoder(model) && llama_model_has_decoder(model)) {
        t5.n_encoder = n_encoder > 0 ? n_encoder : llama_model_n_layer(model);
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    int32_t n_vocab = llama_vocab_n_tokens(vocab);

    static llama_token token[2 * MAX_TOKEN];
    int32_t n_text;
    if (ids_path) {
        char *text = read_text(ids_path, &n_text), *end;
        for (char *at = text; n_token < MAX_TOKEN; at = end, n_token++) {
            token[n_token] = (llama_token)strtol(at, &end, 10);
            if (end == at) break;
        }
    } else if (text_path) {
        char *text = read_text(text_path, &n_text);
        n_token = llama_tokenize(vocab, text, n_text, token, MAX_TOKEN, true, special);
    }
    if (n_token > n_max) n_token = n_max;
    if (n_token <= 0 || n_greedy < 0 || n_greedy > MAX_TOKEN) die("no tokens, or too many", "-f, -i, -g");

    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = cp.n_batch = (uint32_t)(n_token + n_greedy);
    cp.n_threads = cp.n_threads_batch = 1;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    cp.type_k = cp.type_v = GGML_TYPE_F32;
    for (int t = 0; kv_name && t < GGML_TYPE_COUNT; t++) {
        if (!ggml_type_name((enum ggml_type)t) || strcmp(ggml_type_name((enum ggml_type)t), kv_name) != 0) continue;
        cp.type_k = cp.type_v = (enum ggml_type)t;
        cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    }
    FILE *dump = dump_path ? fopen(dump_path, "wb") : NULL;
    if (dump_path && !dump) die("cannot create", dump_path);
    if (dump) {
        cp.cb_eval = dump_tensor;
        cp.cb_eval_user_data = dump;
    }
    struct llama_context *ctx = llama_init_from_model(model, cp);
    if (!ctx) die("no context for", model_path);
    struct llama_adapter_lora *loras[MAX_ADAPTER];
    float scales[MAX_ADAPTER];
    for (size_t i = 0; i < n_lora; i++) {
        scales[i] = split_scale(lora_paths[i]);
        if (!(loras[i] = llama_adapter_lora_init(model, lora_paths[i]))) die("cannot use", lora_paths[i]);
    }
    if (n_lora > 0) llama_set_adapters_lora(ctx, loras, n_lora, scales);
    float scale = control ? split_scale(control) : 0;
    if (control) set_control(ctx, model, control, scale, first, last);

    FILE *f = fopen(out_path, "wb");
    if (!f) die("cannot create", out_path);
    int32_t n_fed = n_token + (n_greedy > 0 ? n_greedy - 1 : 0);
    int32_t head[6] = {n_vocab, n_fed, kinds ? 0 : n_greedy > 0 ? n_greedy : n_token, stride,
                       stride > 0 ? (n_vocab + stride - 1) / stride : 0, n_top};
    fwrite("PLMBLOGT", 1, 8, f);
    put(f, head, 6);
    long tokens_at = ftell(f);
    put(f, token, n_fed); /* the greedy ones are not known yet */

    struct llama_batch batch = llama_batch_init(n_token, 0, 1);
    for (int32_t at = 0, n_past = 0; at < n_token; at += batch.n_tokens, n_past += batch.n_tokens) {
        if (n_ctx > 0 && n_past == n_ctx) {
            int32_t n_drop = (n_ctx - n_keep) / 2;
            llama_memory_t memory = llama_get_memory(ctx);
            if (!llama_memory_seq_rm(memory, 0, n_keep, n_keep + n_drop)) die("cannot drop in", model_path);
            llama_memory_seq_add(memory, 0, n_keep + n_drop, -1, -n_drop);
            n_past -= n_drop;
        }
        batch.n_tokens = n_ctx > 0 && n_token - at > n_ctx - n_past ? n_ctx - n_past : n_token - at;
        for (int32_t i = 0; i < batch.n_tokens; i++) {
            batch.token[i] = token[at + i];
            batch.pos[i] = n_past + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = n_greedy == 0 || at + i == n_token - 1;
        }
        if (!run(ctx, batch, true, t5.n_encoder > 0 && n_greedy > 0)) die("cannot decode with", model_path);
        for (int32_t i = 0; n_greedy == 0 && !kinds && i < batch.n_tokens; i++) {
            leave_out(llama_get_logits_ith(ctx, i), llama_get_logits_ith(ctx, 0), n_vocab);
            put_record(f, llama_get_logits_ith(ctx, i), n_vocab, stride, n_top);
        }
    }
    for (const char *kind = kinds; kind && dump && *kind; kind++) put_embedding(dump, model, cp, batch, *kind - '0');
    for (int32_t k = 0; k < n_greedy; k++) {
        llama_token *next = &token[n_token + k];
        *next = put_record(f, llama_get_logits_ith(ctx, -1), n_vocab, stride, n_top);
        if (k + 1 < n_greedy && llama_decode(ctx, llama_batch_get_one(next, 1)) != 0) die("cannot decode", model_path);
    }
    fseek(f, tokens_at, SEEK_SET);
    put(f, token, n_fed);
    if (fclose(f) != 0 || (dump && fclose(dump) != 0)) die("cannot write", out_path);
    return 0;
}
