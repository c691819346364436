#include "trace/tap_names.h"

#include <stdio.h>

/* ---- names ------------------------------------------------------------------------------------------------------ */

struct alias {
    const char *name;
    enum tap_id id;
};

/* Other programs' names, except those of transformers' modules in layers. */
static const struct alias other_names[] = {
    /* older versions of llama.cpp; ffn_gate_par is from before one operation computed activation and product */
    { "inp_embd", TAP_EMBD },
    { "ffn_gate_par", TAP_FFN_SWIGLU },
    /* llama.cpp, some architectures.  _b and _biased are sums with a bias, _s and _scaled products with a factor. */
    { "inp_scaled", TAP_EMBD }, { "inp_embd_scaled", TAP_EMBD }, { "embd_norm", TAP_EMBD }, { "inp_norm", TAP_EMBD },
    { "Qcur_norm", TAP_QCUR_NORMED }, { "Kcur_norm", TAP_KCUR_NORMED },
    { "attn_o_proj", TAP_ATTN_OUT }, { "attn_out_proj", TAP_ATTN_OUT },
    { "sa_out", TAP_FFN_INP },
    { "ffn_gate_b", TAP_FFN_GATE }, { "ffn_gate_s", TAP_FFN_GATE },
    { "ffn_up_b", TAP_FFN_UP }, { "ffn_up_s", TAP_FFN_UP }, { "ffn_down_s", TAP_FFN_OUT },
    { "ffn_geglu", TAP_FFN_SWIGLU }, { "ffn_gelu", TAP_FFN_SWIGLU }, { "ffn_silu", TAP_FFN_SWIGLU },
    { "ffn_relu", TAP_FFN_SWIGLU }, { "ffn_sqr(relu)", TAP_FFN_SWIGLU }, { "ffn_act", TAP_FFN_SWIGLU },
    { "ffn_swiglu_oai", TAP_FFN_SWIGLU },
    { "ffn_moe_logits_biased", TAP_FFN_ROUTER },
    { "ffn_moe_gate_biased", TAP_EXPERT_GATE }, { "ffn_moe_gate_scaled", TAP_EXPERT_GATE },
    { "ffn_moe_up_biased", TAP_EXPERT_UP }, { "ffn_moe_up_scaled", TAP_EXPERT_UP },
    { "ffn_moe_down_biased", TAP_EXPERT_DOWN }, { "ffn_moe_down_scaled", TAP_EXPERT_DOWN },
    { "ffn_moe_geglu", TAP_EXPERT_SWIGLU }, { "ffn_moe_gelu", TAP_EXPERT_SWIGLU },
    { "ffn_moe_silu", TAP_EXPERT_SWIGLU }, { "ffn_moe_reglu", TAP_EXPERT_SWIGLU },
    { "ffn_moe_relu", TAP_EXPERT_SWIGLU }, { "ffn_moe_relu_sqr", TAP_EXPERT_SWIGLU },
    { "ffn_moe_swiglu_oai", TAP_EXPERT_SWIGLU }, { "ffn_moe_swiglu_limited", TAP_EXPERT_SWIGLU },
    { "ffn_shexp_out", TAP_FFN_SHARED }, { "ffn_shexp_gated", TAP_FFN_SHARED },
    { "mamba_conv1d", TAP_CONV }, { "mamba_conv1d_silu", TAP_CONV_SILU }, { "mamba_y_add_d", TAP_SCAN },
    { "mamba_out_proj", TAP_SCAN_OUT }, { "ssm_out", TAP_SCAN_OUT }, { "ffn_pre_norm", TAP_FFN_NORM },
    { "kda_g1", TAP_DELTA_DECAY }, { "kda_gate", TAP_DELTA_DECAY }, { "kda_beta", TAP_DELTA_BETA },
    { "kda_out", TAP_DELTA_OUT }, { "mla_out", TAP_ATTN_OUT },
    { "qkv_permuted", TAP_WKV }, { "qkv_norm", TAP_WKV_NORM },
    { "ffn_residual", TAP_L_OUT }, { "nemotron_h_block_out", TAP_L_OUT },
    { "result_embd", TAP_RESULT_NORM }, { "final_norm_out", TAP_RESULT_NORM },
    /* what many engines call them */
    { "logits", TAP_RESULT_OUTPUT },
    /* transformers' modules outside the layers, also those of GPT-NeoX and GPT-2 */
    { "embed_tokens", TAP_EMBD },
    { "norm", TAP_RESULT_NORM },
    { "lm_head", TAP_RESULT_OUTPUT },
    { "embed_in", TAP_EMBD }, { "final_layer_norm", TAP_RESULT_NORM }, { "embed_out", TAP_RESULT_OUTPUT },
    { "ln_f", TAP_RESULT_NORM },
    /* Meta's models (llama/model.py), which candle's quantized_llama.rs reads from GGML files */
    { "tok_embeddings", TAP_EMBD },
    /* GGUF's tensors: what ollama's model/models/llama/model.go and candle's quantized_llama.rs call the modules that
     * hold them.  find_tensor has those in layers. */
    { "token_embd", TAP_EMBD }, { "output_norm", TAP_RESULT_NORM }, { "output", TAP_RESULT_OUTPUT },
};

/* What follows "layers.N" in the module paths of transformers.  candle (candle-transformers/src/models/llama.rs) and
 * MLC (python/mlc_llm/model/llama/llama_model.py) use the same paths.  A tap may have several names.  In some models
 * post_attention_layernorm is another tap: see tap_is_post_attention.  qkv_proj and gate_up_proj are several taps in
 * one, so they are none of these. */
#define POST_ATTENTION ".post_attention_layernorm"
static const struct alias modules[] = {
    { "", TAP_L_OUT },
    { ".input_layernorm", TAP_ATTN_NORM },
    { ".self_attn.q_proj", TAP_QCUR },
    { ".self_attn.k_proj", TAP_KCUR },
    { ".self_attn.v_proj", TAP_VCUR },
    { ".self_attn.q_norm", TAP_QCUR_NORMED },
    { ".self_attn.k_norm", TAP_KCUR_NORMED },
    { ".self_attn.o_proj", TAP_ATTN_OUT },
    { ".post_self_attn_layernorm", TAP_ATTN_POST_NORM },
    { ".pre_feedforward_layernorm", TAP_FFN_NORM },
    { ".pre_mlp_layernorm", TAP_FFN_NORM },
    { ".post_feedforward_layernorm", TAP_FFN_POST_NORM },
    { ".post_mlp_layernorm", TAP_FFN_POST_NORM },
    { POST_ATTENTION, TAP_FFN_NORM },
    { ".mlp.gate_proj", TAP_FFN_GATE },
    { ".mlp.up_proj", TAP_FFN_UP },
    { ".mlp.down_proj", TAP_FFN_OUT },
    { ".mlp", TAP_FFN_OUT },
    { ".mlp.gate", TAP_FFN_ROUTER },
    { ".mlp.shared_experts", TAP_FFN_SHARED },
    { ".block_sparse_moe.gate", TAP_FFN_ROUTER },
    { ".block_sparse_moe", TAP_FFN_OUT },
    /* GPT-NeoX */
    { ".attention.dense", TAP_ATTN_OUT },
    { ".mlp.dense_h_to_4h", TAP_FFN_UP },
    { ".mlp.dense_4h_to_h", TAP_FFN_OUT },
};

/* What follows "h.N" in the module paths of GPT-2 in transformers. */
static const struct alias gpt2_modules[] = {
    { "", TAP_L_OUT },
    { ".ln_1", TAP_ATTN_NORM },
    { ".attn.c_proj", TAP_ATTN_OUT },
    { ".ln_2", TAP_FFN_NORM },
    { ".mlp.c_fc", TAP_FFN_UP },
    { ".mlp.c_proj", TAP_FFN_OUT },
    { ".mlp", TAP_FFN_OUT },
};

/* What follows "layers.N" in Meta's models.  Q and K have the order of a GGUF there. */
static const struct alias meta_modules[] = {
    { ".attention_norm", TAP_ATTN_NORM },
    { ".attention.wq", TAP_QCUR },
    { ".attention.wk", TAP_KCUR },
    { ".attention.wv", TAP_VCUR },
    { ".attention.wo", TAP_ATTN_OUT },
    { ".ffn_norm", TAP_FFN_NORM },
    { ".feed_forward.w1", TAP_FFN_GATE },
    { ".feed_forward.w3", TAP_FFN_UP },
    { ".feed_forward.w2", TAP_FFN_OUT },
    { ".feed_forward", TAP_FFN_OUT },
};

/* Operations of an ONNX graph that are no module: what follows "layers.N", of torch.onnx
 * ("/model/layers.0/self_attn/Softmax_output_0") ... */
static const struct alias torch_nodes[] = {
    { ".self_attn.Softmax", TAP_KQ_SOFT_MAX },
    { ".self_attn.MatMul_1", TAP_KQV_OUT },
    { ".Add", TAP_FFN_INP },
    { ".mlp.Mul", TAP_FFN_SWIGLU },
    { ".Add_1", TAP_L_OUT },
};
/* ... and of onnxruntime-genai's builder (src/python/py/models/builders/base.py), where ".attn" is ".self_attn"
 * ("/model/layers.0/attn/q_rotary/RotaryEmbedding/output_0"). */
static const struct alias genai_nodes[] = {
    { ".self_attn.q_rotary.RotaryEmbedding", TAP_QCUR_ROPE },
    { ".self_attn.k_rotary.RotaryEmbedding", TAP_KCUR_ROPE },
    { ".self_attn.GroupQueryAttention", TAP_KQV_OUT },
    { ".self_attn.MultiHeadAttention", TAP_KQV_OUT },
    { ".mlp.Mul", TAP_FFN_SWIGLU },
    /* SkipLayerNorm also returns the sum of its inputs: in input_layernorm the l_out of the layer before. */
    { ".input_layernorm.output_3", TAP_L_OUT },
    { ".post_attention_layernorm.output_3", TAP_FFN_INP },
    { ".final_norm_layernorm.output_0", TAP_RESULT_NORM },   /* in "layers.N" too, with N the number of layers */
};

static bool is_name(const char *name, const char *bytes, size_t n) {
    return strlen(name) == n && memcmp(name, bytes, n) == 0;
}

static bool starts_with(const char *bytes, size_t n, const char *start) {
    return strlen(start) <= n && memcmp(bytes, start, strlen(start)) == 0;
}

#define LENGTH(list) (sizeof (list) / sizeof *(list))

/* What tap_parse returns: 1 for plumb's own names, then numbers for the names of each list.  A module has three: for
 * its path, and in an ONNX graph for the node of its product or norm, and for that of the sum with its bias. */
enum {
    OWN_NAME = 1,
    FIRST_OTHER = OWN_NAME + 1,
    FIRST_GPT2 = FIRST_OTHER + LENGTH(other_names),
    FIRST_META = FIRST_GPT2 + LENGTH(gpt2_modules),
    FIRST_TENSOR = FIRST_META + LENGTH(meta_modules),
    FIRST_MODULE = FIRST_TENSOR + TAP_COUNT,
    FIRST_NODE = FIRST_MODULE + LENGTH(modules),
    FIRST_SUM = FIRST_NODE + LENGTH(modules),
    FIRST_TORCH = FIRST_SUM + LENGTH(modules),
    FIRST_GENAI = FIRST_TORCH + LENGTH(torch_nodes),
};

bool tap_is_module(uint32_t number) { return number >= FIRST_MODULE; }
bool tap_is_without_bias(uint32_t number) { return number >= FIRST_NODE && number < FIRST_SUM; }
bool tap_is_post_attention(uint32_t number) {
    bool is_path = number >= FIRST_MODULE && number < FIRST_TORCH;
    return is_path && strcmp(modules[(number - FIRST_MODULE) % LENGTH(modules)].name, POST_ATTENTION) == 0;
}

bool tap_has_heads(enum tap_id id) {
    return (id >= TAP_QCUR && id <= TAP_KQV_OUT) || (id >= TAP_EXPERT_GATE && id <= TAP_EXPERT_WEIGHTED);
}

/* A description of each tap for people, and the tensors that it is computed with. */
static const struct { const char *title, *weights; } texts[TAP_COUNT] = {
    [TAP_EMBD] = { "token embedding", "token_embd" },
    [TAP_PER_LAYER] = { "embeddings for each layer",
        "per_layer_token_embd, per_layer_model_proj, per_layer_proj_norm" },
    [TAP_ENCODER_EMBD] = { "token embedding, in the encoder", "token_embd" },
    [TAP_MODALITIES] = { "how the streams of a token are mixed", "altup_router, altup_router_norm" },
    [TAP_PREDICTIONS] = { "predictions of all streams", "altup_predict_coef" },
    [TAP_ACTIVE] = { "prediction of the first stream", "" },
    [TAP_ATTN_NORM] = { "norm before attention", "attn_norm" },
    [TAP_LAUREL] = { "path of few columns beside attention", "laurel_l, laurel_r, laurel_post_norm" },
    [TAP_QCUR] = { "query before RoPE", "attn_q" },
    [TAP_KCUR] = { "key before RoPE", "attn_k" },
    [TAP_VCUR] = { "value", "attn_v" },
    [TAP_QCUR_NORMED] = { "query after its norm", "attn_q_norm" },
    [TAP_KCUR_NORMED] = { "key after its norm", "attn_k_norm" },
    [TAP_VCUR_NORMED] = { "value after its norm", "" },
    [TAP_QCUR_ROPE] = { "query after RoPE", "" },
    [TAP_KCUR_ROPE] = { "key after RoPE", "" },
    [TAP_QCUR_SCALED] = { "query times its temperature", "" },
    [TAP_KQ_SOFT_MAX] = { "attention weights", "" },
    [TAP_KQV_OUT] = { "weighted sum of values, heads concatenated", "" },
    [TAP_WKV_IN] = { "Q, K and V before their activation", "attn_qkv of lightning attention" },
    [TAP_WKV_SILU] = { "their activation", "" },
    [TAP_WKV_MIX] = { "how much of a value that of the first layer replaces", "time_mix_v0, time_mix_v1, time_mix_v2" },
    [TAP_WKV_VALUE] = { "value, mixed with that of the first layer", "" },
    [TAP_WKV_DECAY] = { "what the columns of the states are multiplied by", "time_mix_w0, time_mix_w1, time_mix_w2" },
    [TAP_WKV_RATE] = { "in-context learning rate", "time_mix_a0, time_mix_a1, time_mix_a2" },
    [TAP_WKV_REMOVAL] = { "key of what is removed from the states", "time_mix_k_k" },
    [TAP_WKV_KEY] = { "key of what is added to the states", "time_mix_k_a" },
    [TAP_WKV_BONUS] = { "what a token adds to its own output", "time_mix_r_k" },
    [TAP_WKV] = { "what is read of the states", "time_mix_first" },
    [TAP_WKV_NORM] = { "norm of each head", "time_mix_ln" },
    [TAP_WKV_SUM] = { "it and what a token adds to its own output", "" },
    [TAP_ATTN_GATE] = { "gate of attention before its activation", "attn_gate" },
    [TAP_ATTN_GATED] = { "weighted sum of values times the activated gate", "" },
    [TAP_ATTN_SUB_NORM] = { "norm of the weighted sum of values", "attn_sub_norm" },
    [TAP_LATENT_Q_A] = { "norm of the vector that Q is a product of", "attn_q_a_norm" },
    [TAP_LATENT_Q] = { "query of latent attention, before RoPE", "attn_q or attn_q_b" },
    [TAP_LATENT_KV] = { "latent vector and the part of K that is rotated", "attn_kv_a_mqa" },
    [TAP_LATENT] = { "norm of the latent vector", "attn_kv_a_norm" },
    [TAP_LATENT_KV_B] = { "K and V of all heads, of the latent vector", "attn_kv_b" },
    [TAP_LATENT_HEADS] = { "weighted sums of latent vectors", "" },
    [TAP_ATTN_OUT] = { "attention output", "attn_output" },
    [TAP_CONV_IN] = { "input of the convolution and its two gates", "shortconv.in_proj" },
    [TAP_DELTA_IN] = { "Q, K and V before their convolution", "attn_qkv of the delta net" },
    [TAP_DELTA_BETA] = { "beta before its sigmoid", "ssm_beta" },
    [TAP_DELTA_ALPHA] = { "decay before its softplus", "ssm_alpha" },
    [TAP_DELTA_BETA_SIGMOID] = { "how much of a value replaces the old one", "" },
    [TAP_DELTA_DECAY] = { "logarithm of the decay of the state", "ssm_a, ssm_dt" },
    [TAP_SCAN_IN] = { "input of the convolution, its gate and, in Mamba 2, dt", "ssm_in" },
    [TAP_SCAN_Z] = { "gate of the scan before its activation", "" },
    [TAP_SCAN_X] = { "x and, in Mamba 2, B and C before their convolution", "" },
    [TAP_SCAN_DT_IN] = { "dt before its bias", "" },
    [TAP_CONV] = { "convolution over the last tokens", "shortconv.conv" },
    [TAP_CONV_GATED] = { "convolution times its second gate", "" },
    [TAP_CONV_SILU] = { "activation after the convolution", "" },
    [TAP_DELTA] = { "what the queries read of the states", "" },
    [TAP_DELTA_GATED] = { "its norm times the activated gate", "ssm_norm" },
    [TAP_SCAN_BCDT] = { "B, C and what dt is made of", "ssm_x" },
    [TAP_SCAN_B] = { "B: what of x enters the states", "" },
    [TAP_SCAN_C] = { "C: what is read of the states", "" },
    [TAP_SCAN_RANK] = { "what dt is made of", "" },
    [TAP_SCAN_B_NORMED] = { "B after its norm", "ssm_b_norm" },
    [TAP_SCAN_C_NORMED] = { "C after its norm", "ssm_c_norm" },
    [TAP_SCAN_RANK_NORMED] = { "what dt is made of, after its norm", "ssm_dt_norm" },
    [TAP_SCAN_DT] = { "dt before its softplus", "ssm_dt" },
    [TAP_SCAN_STEP] = { "dt: the steps of time", "" },
    [TAP_SCAN] = { "what C reads of the states, and D x", "ssm_a, ssm_d" },
    [TAP_SCAN_GATED] = { "activated gate times the output of the scan", "" },
    [TAP_SCAN_NORM] = { "its norm", "ssm_norm" },
    [TAP_SCAN_OUT] = { "output of the state-space layer", "ssm_out" },
    [TAP_DELTA_OUT] = { "output of the delta net", "ssm_out" },
    [TAP_CONV_OUT] = { "output of the convolution", "shortconv.out_proj" },
    [TAP_ATTN_POST_NORM] = { "norm after attention", "post_attention_norm" },
    [TAP_FFN_INP] = { "residual after attention", "" },
    [TAP_FFN_NORM] = { "norm before the feed-forward network", "ffn_norm" },
    [TAP_FFN_ROUTER] = { "scores of the experts", "ffn_gate_inp" },
    [TAP_FFN_PROBS] = { "probabilities of the experts", "" },
    [TAP_FFN_PROBS_BIASED] = { "probabilities by which experts are chosen", "exp_probs_b" },
    [TAP_FFN_USED] = { "experts that a token uses, the best one first", "" },
    [TAP_FFN_WEIGHTS] = { "probabilities of these experts", "" },
    [TAP_FFN_WEIGHTS_SOFTMAX] = { "softmax over these experts", "" },
    [TAP_FFN_WEIGHTS_NORM] = { "weights divided by their sum", "" },
    [TAP_FFN_WEIGHTS_SCALED] = { "weights times their scale", "" },
    [TAP_FFN_NORM_EXPS] = { "norm before the experts", "pre_ffw_norm_2" },
    [TAP_EXPERT_GATE] = { "gates of the experts before their activation", "ffn_gate_exps" },
    [TAP_EXPERT_UP] = { "up projections of the experts", "ffn_up_exps" },
    [TAP_EXPERT_SWIGLU] = { "activated gates times up projections", "" },
    [TAP_EXPERT_DOWN] = { "outputs of the experts", "ffn_down_exps" },
    [TAP_EXPERT_WEIGHTED] = { "outputs of the experts times their weights", "" },
    [TAP_FFN_EXPERTS] = { "weighted sum of the experts", "" },
    [TAP_FFN_MOE] = { "norm after the experts", "post_ffw_norm_2" },
    [TAP_FFN_GATE] = { "gate before its activation", "ffn_gate" },
    [TAP_FFN_UP] = { "up projection", "ffn_up" },
    [TAP_FFN_SWIGLU] = { "activated gate times up projection", "" },
    [TAP_FFN_SUB_NORM] = { "norm before the down projection", "ffn_sub_norm" },
    [TAP_FFN_RECEPTANCE] = { "what the feed-forward output is multiplied by", "channel_mix_receptance" },
    [TAP_FFN_SHARED_GATE] = { "gate of the shared expert before its activation", "ffn_gate_inp_shexp" },
    [TAP_FFN_SHARED] = { "output of the expert that every token uses", "ffn_down_shexp" },
    [TAP_FFN_MLP] = { "norm after the network beside the experts", "post_ffw_norm_1" },
    [TAP_FFN_OUT] = { "feed-forward output", "ffn_down" },
    [TAP_FFN_POST_NORM] = { "norm after the feed-forward network", "post_ffw_norm" },
    [TAP_OWN_IN] = { "residual before the layer's own embedding", "" },
    [TAP_CORRECTED] = { "all streams, corrected by the residual", "altup_router, altup_correct_coef" },
    [TAP_OWN_GATED] = { "activated gate of the layer's own embedding", "inp_gate" },
    [TAP_OWN_SCALED] = { "it times the layer's own embedding", "" },
    [TAP_OWN_OUT] = { "what the layer's own embedding adds", "proj, post_norm" },
    [TAP_L_OUT] = { "residual after the layer", "" },
    [TAP_ENCODED] = { "norm of the encoder's output, which the decoder reads", "enc.output_norm" },
    [TAP_RESULT_NORM] = { "norm before the output matrix", "output_norm" },
    [TAP_RESULT_OUTPUT] = { "logits", "output (token_embd if tied)" },
    [TAP_RESULT_POOLED] = { "one embedding for all tokens", "cls, cls.norm, cls.output, dense_2, dense_3" },
};

const char *tap_title(enum tap_id id) { return texts[id].title; }
const char *tap_weights(enum tap_id id) { return texts[id].weights; }

bool tap_find(const char *name, size_t n, enum tap_id *id) {
    for (uint32_t i = 0; i < TAP_COUNT; i++) {
        if (is_name(tap_spec((enum tap_id)i)->name, name, n)) return *id = (enum tap_id)i, true;
    }
    return false;
}

/* Finds a name in a list of n_alias names.  Returns first plus its index; 0 if it is not there. */
static uint32_t find_alias(const struct alias *list, size_t n_alias, uint32_t first, const char *name, size_t n,
                           enum tap_id *id) {
    for (size_t i = 0; i < n_alias; i++) {
        if (is_name(list[i].name, name, n)) return *id = list[i].id, first + (uint32_t)i;
    }
    return 0;
}

/* Finds what follows "blk.N" in the name of a tensor of a GGUF: ".attn_q".  Its tap is what is computed with it. */
static uint32_t find_tensor(const char *name, size_t n, enum tap_id *id) {
    if (n == 0) return *id = TAP_L_OUT, FIRST_TENSOR + TAP_L_OUT;
    for (uint32_t i = 0; i < TAP_COUNT && name[0] == '.' && n > 1; i++) {
        const struct tap_spec *spec = tap_spec((enum tap_id)i);
        if (!spec->in_layer || !is_name(tap_weights((enum tap_id)i), name + 1, n - 1)) continue;
        return *id = (enum tap_id)i, FIRST_TENSOR + i;
    }
    return 0;
}

/* Finds a name, without a layer, among plumb's own names and other_names.  Returns what tap_parse returns. */
static uint32_t find_name(const char *name, size_t n, enum tap_id *id) {
    if (tap_find(name, n, id)) return OWN_NAME;
    return find_alias(other_names, LENGTH(other_names), FIRST_OTHER, name, n, id);
}

/* Reads the digits of a layer at name + *at and advances *at past them.  Returns false if there are none, or if the
 * layer is not below TAP_MAX_LAYER. */
static bool read_layer(const char *name, size_t n, size_t *at, int32_t *layer) {
    size_t first = *at;
    for (*layer = 0; *at < n && name[*at] >= '0' && name[*at] <= '9' && *layer < TAP_MAX_LAYER; ++*at) {
        *layer = *layer * 10 + (name[*at] - '0');
    }
    return *at > first && *layer < TAP_MAX_LAYER;
}

/* Returns what is left of the n bytes of a name without the prefixes of modules that hold the whole model. */
static const char *without_prefixes(const char *name, size_t *n) {
    static const char *const prefixes[] = { "base_model.", "model.", "language_model.", "module.", "gpt_neox.",
                                            "transformer." };
    for (size_t i = 0; i < LENGTH(prefixes);) {   /* "base_model.model.model." has three prefixes */
        if (starts_with(name, *n, prefixes[i])) {
            name += strlen(prefixes[i]);
            *n -= strlen(prefixes[i]);
            i = 0;
        } else {
            i++;
        }
    }
    return name;
}

static bool ends_with(const char *name, size_t n, const char *end) {
    return n >= strlen(end) && memcmp(name + n - strlen(end), end, strlen(end)) == 0;
}

/* Returns true if the name ends with this text, and then shortens it by it. */
static bool drop_end(const char *name, size_t *n, const char *end) {
    if (!ends_with(name, *n, end)) return false;
    *n -= strlen(end);
    return true;
}

/* Finds the tap of a module's node in an ONNX graph: path is the module's, op the operation's. */
static uint32_t find_node(const char *path, size_t n_path, const char *op, size_t n_op, enum tap_id *id) {
    static const char *const products[] = { "MatMul", "MatMulNBits", "Gemm" };
    /* A norm is one node, or several, of which these are the last. */
    static const char *const norms[] = { "LayerNorm", "SkipLayerNorm", "LayerNormalization", "output_0",
                                         "SimplifiedLayerNormalization", "Mul_1", "Add_1" };
    uint32_t number = find_alias(modules, LENGTH(modules), FIRST_NODE, path, n_path, id);
    bool is_norm = ends_with(path, n_path, "norm");
    bool is_matrix = ends_with(path, n_path, "_proj") || is_name(".mlp.gate", path, n_path);
    for (size_t i = 0; number > 0 && is_norm && i < LENGTH(norms); i++) {
        if (is_name(norms[i], op, n_op)) return number;
    }
    for (size_t i = 0; number > 0 && is_matrix && i < LENGTH(products); i++) {
        if (is_name(products[i], op, n_op)) return number;
    }
    return number > 0 && is_matrix && is_name("Add", op, n_op) ? number - FIRST_NODE + FIRST_SUM : 0;
}

/* Reads the name of an output of an ONNX graph's node, in which each "/" was replaced by a ".". */
static uint32_t parse_onnx(const char *name, size_t n, enum tap_id *id, int32_t *layer) {
    /* torch.onnx writes "MatMul_output_0", onnxruntime-genai "MatMul/output_0", but "input_layernorm/output_0". */
    bool is_torch = drop_end(name, &n, "_output_0"), is_sum = ends_with(name, n, ".output_3");
    if (!ends_with(name, n, "norm.output_0")) drop_end(name, &n, ".output_0");
    name = without_prefixes(name, &n);
    size_t at = strlen("layers.");
    *layer = -1;
    if (!starts_with(name, n, "layers.")) {
        static const struct alias nodes[] = { { "embed_tokens.Gather", TAP_EMBD }, { "lm_head.MatMul",
                                              TAP_RESULT_OUTPUT }, { "lm_head.MatMulNBits", TAP_RESULT_OUTPUT },
                                              { "norm.Mul_1", TAP_RESULT_NORM } };
        return find_alias(nodes, LENGTH(nodes), FIRST_GENAI + LENGTH(genai_nodes), name, n, id);
    }
    if (!read_layer(name, n, &at, layer)) return 0;
    char rest[120] = "";
    bool is_attn = starts_with(name + at, n - at, ".attn.");
    int n_rest = snprintf(rest, sizeof rest, "%s%.*s", is_attn ? ".self_attn" : "", (int)(n - at - (is_attn ? 5 : 0)),
                          name + at + (is_attn ? 5 : 0));
    if (n_rest <= 0 || (size_t)n_rest >= sizeof rest) return 0;
    uint32_t number = is_torch
        ? find_alias(torch_nodes, LENGTH(torch_nodes), FIRST_TORCH, rest, (size_t)n_rest, id)
        : find_alias(genai_nodes, LENGTH(genai_nodes), FIRST_GENAI, rest, (size_t)n_rest, id);
    if (number > 0 && !tap_spec(*id)->in_layer) *layer = -1;
    if (is_sum && number > 0 && *id == TAP_L_OUT && --*layer < 0) return 0;   /* layer 0 has no sum */
    if (number > 0 || is_sum) return number;
    const char *op = strrchr(rest, '.');
    return op ? find_node(rest, (size_t)(op - rest), op + 1, strlen(op + 1), id) : 0;
}

uint32_t tap_parse(const char *name, size_t n, enum tap_id *id, int32_t *layer) {
    char path[160];
    if (n > 1 && name[0] == '/' && n <= sizeof path) {
        for (size_t i = 1; i < n; i++) path[i - 1] = name[i] == '/' ? '.' : name[i];
        return parse_onnx(path, n - 1, id, layer);
    }
    name = without_prefixes(name, &n);
    size_t at = strlen("layers.");
    if (starts_with(name, n, "layers.")) {
        if (!read_layer(name, n, &at, layer)) return 0;
        uint32_t number = find_alias(modules, LENGTH(modules), FIRST_MODULE, name + at, n - at, id);
        drop_end(name, &n, ".weight");
        return number > 0 ? number : find_alias(meta_modules, LENGTH(meta_modules), FIRST_META, name + at, n - at, id);
    }
    at = starts_with(name, n, "enc.blk.") ? strlen("enc.blk.") : strlen("blk.");   /* of T5 */
    if (starts_with(name, n, "blk.") || starts_with(name, n, "enc.blk.")) {
        drop_end(name, &n, ".weight");
        return read_layer(name, n, &at, layer) ? find_tensor(name + at, n - at, id) : 0;
    }
    at = strlen("h.");
    if (starts_with(name, n, "h.")) {
        bool has_layer = read_layer(name, n, &at, layer);
        return has_layer ? find_alias(gpt2_modules, LENGTH(gpt2_modules), FIRST_GPT2, name + at, n - at, id) : 0;
    }
    *layer = -1;
    uint32_t number = find_name(name, n, id);
    if (number > 0) return tap_spec(*id)->in_layer ? 0 : number;
    size_t n_bare = n;
    if (drop_end(name, &n_bare, ".weight")) {   /* "output.weight", as tensors are called */
        number = find_name(name, n_bare, id);
        return number > 0 && !tap_spec(*id)->in_layer ? number : 0;
    }
    /* The layer follows a "-".  Where names cannot contain one, as with the keywords of numpy.savez, it follows a "_"
     * or a ".". */
    size_t digits = n;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') digits--;
    if (digits < 2 || !strchr("-_.", name[digits - 1]) || name[digits - 1] == 0) return 0;
    at = digits;
    number = find_name(name, digits - 1, id);
    return number > 0 && tap_spec(*id)->in_layer && read_layer(name, n, &at, layer) && at == n ? number : 0;
}

const char *tap_show(struct tap_text *buf, enum tap_id id, int32_t layer) {
    if (layer < 0) snprintf(buf->text, sizeof buf->text, "%s", tap_spec(id)->name);
    else snprintf(buf->text, sizeof buf->text, "%s-%d", tap_spec(id)->name, (int)layer);
    return buf->text;
}

const char *tap_show_inputs(struct tap_inputs_text *buf, enum tap_id id, id_set inputs) {
    snprintf(buf->text, sizeof buf->text, "%s", "the token ids");
    for (uint32_t i = 0, n = 0; i < TAP_COUNT; i++) {
        const char *of = i != TAP_L_OUT ? "" : tap_spec(id)->in_layer
                       ? " of the layer before (embd in layer 0)" : " of the last layer";
        if (!(inputs >> i & 1)) continue;
        n += (uint32_t)snprintf(buf->text + n, sizeof buf->text - n, "%s%s%s", n > 0 ? ", " : "",
                                tap_spec((enum tap_id)i)->name, of);
    }
    return buf->text;
}

/* ---- patterns --------------------------------------------------------------------------------------------------- */

/* Returns true if text matches the n bytes of a pattern.  A star first matches as little as possible, then one more
 * byte each time that the rest does not match.  Only the last star has to be tried again, so the time is at most the
 * product of the lengths. */
static bool matches(const char *pattern, size_t n, const char *text) {
    size_t p = 0, star = SIZE_MAX;
    const char *after_star = NULL;
    while (*text) {
        if (p < n && pattern[p] == '*') {
            star = p++;
            after_star = text;
        } else if (p < n && (pattern[p] == '?' || pattern[p] == *text)) {
            p++;
            text++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            text = ++after_star;
        } else {
            return false;
        }
    }
    while (p < n && pattern[p] == '*') p++;
    return p == n;
}

/* Returns true if the pattern is another program's name of the tap.  A name without a layer stands for every layer. */
static bool is_alias(const char *pattern, size_t n, bool has_output_norms, enum tap_id id, int32_t layer) {
    enum tap_id named = TAP_COUNT;
    int32_t at = layer;
    uint32_t number = tap_parse(pattern, n, &named, &at);
    if (number == 0) at = layer;
    if (number == 0) number = find_name(pattern, n, &named);
    for (uint32_t i = 0; number == 0 && i < LENGTH(modules); i++) {
        const char *last = strrchr(modules[i].name, '.');
        if (!last || !is_name(last + 1, pattern, n)) continue;
        named = modules[i].id;
        number = FIRST_MODULE + i;
    }
    if (has_output_norms && tap_is_post_attention(number)) named = TAP_ATTN_POST_NORM;
    return number > 0 && named == id && at == layer;
}

/* Matches one pattern.  n: its bytes. */
static bool matches_one(const char *pattern, size_t n, bool has_output_norms, enum tap_id id, int32_t layer) {
    struct tap_text full;
    const char *name = memchr(pattern, '-', n) ? tap_show(&full, id, layer) : tap_spec(id)->name;
    return matches(pattern, n, name) || is_alias(pattern, n, has_output_norms, id, layer);
}

/* Returns the pattern at *at without the spaces around it, and sets *n to its length.  Moves *at to the next pattern,
 * or sets it to NULL if this was the last. */
static const char *next_pattern(const char **at, size_t *n) {
    const char *pattern = *at + strspn(*at, " ");
    *n = strcspn(pattern, ",");
    *at = pattern[*n] ? pattern + *n + 1 : NULL;
    while (*n > 0 && pattern[*n - 1] == ' ') --*n;
    return pattern;
}

bool tap_matches(const char *patterns, bool has_output_norms, enum tap_id id, int32_t layer) {
    if (!patterns) return true;
    for (size_t n; patterns;) {
        const char *pattern = next_pattern(&patterns, &n);
        if (matches_one(pattern, n, has_output_norms, id, layer)) return true;
    }
    return false;
}

/* Returns true if the pattern matches a tap outside the layers, or one in the layers first to last. */
static bool matches_any(const char *pattern, size_t n, bool has_output_norms, uint32_t first, uint32_t last) {
    for (uint32_t i = 0; i < TAP_COUNT; i++) {
        enum tap_id id = (enum tap_id)i;
        bool in_layer = tap_spec(id)->in_layer;
        if (!in_layer && matches_one(pattern, n, has_output_norms, id, -1)) return true;
        for (uint32_t il = first; in_layer && il <= last; il++) {
            if (matches_one(pattern, n, has_output_norms, id, (int32_t)il)) return true;
        }
    }
    return false;
}

plumb_status tap_check_patterns(const char *patterns, bool has_output_norms, uint32_t n_layer, uint32_t first,
                                uint32_t last, struct error *err) {
    if (last == UINT32_MAX) last = first < n_layer ? n_layer - 1 : first;
    if (last >= n_layer || first > last) {
        return error_set(err, PLUMB_ERROR_ARGUMENT, "layers %u-%u: the model has %u layers, numbered from 0", first,
                         last, n_layer);
    }
    for (size_t n; patterns;) {
        const char *pattern = next_pattern(&patterns, &n);
        if (matches_any(pattern, n, has_output_norms, first, last)) continue;
        struct shown shown;
        show_bytes(&shown, pattern, n);
        if (matches_any(pattern, n, has_output_norms, 0, n_layer - 1)) {
            return error_set(err, PLUMB_ERROR_ARGUMENT, "taps: \"%s\" is not in layers %u-%u", shown.text, first, last);
        }
        char known[1600];
        for (size_t i = 0, at = 0; i < TAP_COUNT && at < sizeof known; i++) {
            int more = snprintf(known + at, sizeof known - at, i > 0 ? ", %s" : "%s", tap_spec((enum tap_id)i)->name);
            at += (size_t)more;
        }
        return error_set(err, PLUMB_ERROR_ARGUMENT, "taps: unknown tap \"%s\"; known taps are %s", shown.text, known);
    }
    return PLUMB_OK;
}
