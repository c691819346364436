/* Architectures that compute embeddings of tokens instead of logits; most let a token attend to those after it.  And
 * T5, whose decoder reads what its encoder computes. */
#include "base/math.h"
#include "model/architecture.h"

#include <stdlib.h>

/* The weights of BERT and its relatives, whose norms come after the residual is added. */
#define BERT (SET(TOKEN_EMBD) | SET(TOKEN_EMBD_NORM) | ATTENTION | SET(ATTN_OUT_NORM) | SET(LAYER_OUT_NORM))
#define BERT_BIAS (ATTENTION_BIAS | SET(TOKEN_EMBD_NORM) | SET(ATTN_OUT_NORM) | SET(LAYER_OUT_NORM))
#define RANK (SET(CLS) | SET(CLS_OUTPUT))
#define FUSED (SET(ATTN_QKV) | SET(FFN_GATE_UP))

static plumb_status plan_encoder(struct key_reader *r, struct plan *p) {
    (void)r;
    plan_set_causal(p, false);
    p->has_logits = false;
    return PLUMB_OK;
}

/* Every token has the first of the types that the model has learned. */
static plumb_status plan_token_types(struct key_reader *r, struct plan *p) {
    PLUMB_TRY(gguf_get_u32(r->gguf, "tokenizer.ggml.token_type_count", &p->n_token_type, r->err));
    if (p->n_token_type == 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key tokenizer.ggml.token_type_count is missing or 0");
    }
    return plan_encoder(r, p);
}

static plumb_status plan_bert(struct key_reader *r, struct plan *p) {
    plan_set_alibi(p, 0);   /* the positions are learned */
    return plan_token_types(r, p);
}

static plumb_status plan_nomic_bert(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "ffn_up.bias", "ffn_down.bias", NULL };
    p->unused = unused;
    return plan_token_types(r, p);
}

/* The second of every moe_every_n_layers layers has experts. */
static plumb_status plan_nomic_bert_moe(struct key_reader *r, struct plan *p) {
    uint32_t period = 0;
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "moe_every_n_layers"), &period, r->err));
    plan_use_n_ff(p);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        bool has_experts = period > 0 && il % period == 1;
        if (has_experts && p->layers[il].ffn.n_expert == 0) {
            return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is missing or 0", key_of(r, "expert_count"));
        }
        if (!has_experts) plan_set_dense(&p->layers[il]);
    }
    return plan_token_types(r, p);
}

static plumb_status plan_jina_bert_v2(struct key_reader *r, struct plan *p) {
    plan_set_alibi(p, 8);
    plan_set_qk_norm(p, QK_NORM_ROW);
    p->pooling.n_hidden = p->pooling.n_class = 1;   /* the reranker has one matrix of one row */
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct gguf_tensor *up = key_tensor(r, il, "ffn_up.weight");
        bool is_fused = up && up->shape[1] == 2 * (uint64_t)p->layers[il].ffn.n_ff;
        if (!is_fused) p->layers[il].without |= SET(FFN_GATE_UP);
    }
    return plan_token_types(r, p);
}

static void set_symmetric(struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].attn.is_symmetric = p->layers[il].attn.window > 0;
}

/* The first layer may lack its norm.  hidden_activation is that of the gate; llama.cpp takes any other name for GELU,
 * except "relu", which fits no matrices. */
static plumb_status plan_modern_bert(struct key_reader *r, struct plan *p) {
    static const struct { const char *name; enum activation kind; } kinds[] = {
        { "silu", ACT_SILU }, { "swish", ACT_SILU }, { "swiglu", ACT_SILU }, { "reglu", ACT_RELU },
    };
    struct gguf_string name = { "gelu", 4 };
    PLUMB_TRY(gguf_get_string(r->gguf, key_of(r, "hidden_activation"), &name, r->err));
    if (key_is_text(&name, "relu")) {
        return error_set(r->err, PLUMB_ERROR_UNSUPPORTED, "key %s: \"relu\" is not supported, expected gelu, silu or "
                         "reglu", r->key);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!key_is_text(&name, kinds[i].name)) continue;
        for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].ffn.activation = kinds[i].kind;
    }
    if (!key_tensor(r, 0, "attn_norm.weight")) p->layers[0].without |= SET(ATTN_NORM);
    PLUMB_TRY(plan_pattern(r, p, 3, 0, 10000.0f, true));
    set_symmetric(p);
    p->pooling.rank_of = PLUMB_POOLING_MEAN;
    p->pooling.rank_gelu = true;
    return plan_encoder(r, p);
}

static plumb_status plan_neo_bert(struct key_reader *r, struct plan *p) {
    p->names[W_OUTPUT_NORM] = "enc.output_norm";
    return plan_encoder(r, p);
}

/* Dense layers follow pooling if the file was converted with those of sentence-transformers. */
static plumb_status plan_gemma_embedding(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "output.weight", NULL };
    uint32_t window = 0, n_in = 0, n_dense = 0;
    p->unused = unused;
    p->embedding_scale = (float)math_sqrt(p->n_embd);
    PLUMB_TRY(key_count(r, "attention.sliding_window", UINT32_MAX, &window));
    PLUMB_TRY(plan_windows(r, p, 6, window, 10000.0f));
    set_symmetric(p);
    PLUMB_TRY(key_width(r, "dense_2_feat_out", 0, &n_dense));
    PLUMB_TRY(key_width(r, "dense_3_feat_in", n_dense, &n_in));
    if (n_in != n_dense) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, but dense_2 has %u outputs", r->key, n_in,
                         n_dense);
    }
    /* Only a tensor vouches for a width: memory for it is allocated. */
    if (gguf_find_in_parts(r->parts, r->n_part, "dense_2.weight")) p->pooling.n_dense = n_dense;
    return plan_encoder(r, p);
}

/* What all layers of T5 have in common: Raffel et al. 2020, section 2.1.  Flan-T5 and T5 1.1 have gates.  Only the
 * first layer of the encoder and of the decoder need have attn_rel_b. */
static plumb_status plan_t5_layers(struct key_reader *r, struct plan *p) {
    uint32_t n_bucket = 0;
    PLUMB_TRY(key_count(r, "attention.relative_buckets_count", 4 * PLAN_FAR - 1, &n_bucket));
    if (n_bucket % 4 != 0) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, expected a multiple of 4", r->key, n_bucket);
    }
    p->names[W_ATTN_OUTPUT] = "attn_o";
    plan_set_alibi(p, 0);
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct layer_plan *l = &p->layers[il];
        r->prefix = l->prefix;
        if (il == plan_first(p, il)) PLUMB_TRY(key_requires(r, l->block, "attn_rel_b.weight"));
        l->attn.scale = 1.0f;
        l->attn.n_bucket = l->attn.reads_encoder ? 0 : n_bucket;
        if (!key_tensor(r, l->block, "ffn_gate.weight")) l->ffn.activation = ACT_RELU;
    }
    return PLUMB_OK;
}

static plumb_status plan_t5_encoder(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "output.weight", NULL };
    p->names[W_OUTPUT_NORM] = "enc.output_norm";
    p->unused = unused;
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].prefix = "enc.";
    PLUMB_TRY(plan_t5_layers(r, p));
    return plan_encoder(r, p);
}

/* T5 with its decoder.  A block of the decoder is two layers: one in which its tokens attend to each other, and one in
 * which they attend to the encoder's, with the feed-forward network. */
static plumb_status plan_t5(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "cross_attn_rel_b.weight", NULL };
    uint32_t n_encoder = p->n_layer, n_block = p->n_layer, start = UINT32_MAX;
    uint64_t n_tensor = 0;
    PLUMB_TRY(key_count(r, "decoder_block_count", 1u << 16, &n_block));
    for (size_t i = 0; i < r->n_part; i++) n_tensor += gguf_n_tensor(r->parts[i]);
    if (n_block > n_tensor) {
        return error_set(r->err, PLUMB_ERROR_METADATA, "key %s is %u, but the file has only %llu tensors", r->key,
                         n_block, (unsigned long long)n_tensor);
    }
    PLUMB_TRY(gguf_get_u32(r->gguf, key_of(r, "decoder_start_token_id"), &start, r->err));
    p->decoder_start = start > INT32_MAX ? -1 : (int32_t)start;   /* llama.cpp's -1 means that there is none */
    p->names[W_OUTPUT_NORM] = "dec.output_norm";
    p->unused = unused;
    p->n_layer = n_encoder + 2 * n_block;
    struct layer_plan *layers = realloc(p->layers, p->n_layer * sizeof *layers);
    if (!layers) return error_set(r->err, PLUMB_ERROR_MEMORY, "out of memory: the plan of %u layers", p->n_layer);
    p->layers = layers;
    p->n_encoder = n_encoder;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        bool in_decoder = il >= n_encoder, is_cross = in_decoder && (il - n_encoder) % 2 == 1;
        if (in_decoder) layers[il] = layers[0];
        layers[il].prefix = in_decoder ? "dec." : "enc.";
        layers[il].attn.is_causal = in_decoder && !is_cross;
        layers[il].attn.reads_encoder = is_cross;
        if (!in_decoder) continue;
        layers[il].block = (il - n_encoder) / 2;
        layers[il].without |= is_cross ? SET(ATTN_BUCKETS) : GATED | SET(FFN_NORM);
        if (!is_cross) layers[il].ffn.n_ff = 0;
    }
    return plan_t5_layers(r, p);
}

/* Whether tokens see later ones is said by the file. */
static plumb_status plan_llama_embed(struct key_reader *r, struct plan *p) {
    static const char *const unused[] = { "output.weight", NULL };
    p->unused = unused;
    p->has_logits = false;
    return plan_llama(r, p);
}

const struct architecture plan_encoder_rows[] = {
    { "bert", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, BERT | FFN | SET(POSITION_EMBD), SET(TOKEN_TYPES)
      | SET(ATTN_QKV) | RANK, BERT_BIAS | FFN | RANK, SCALED, plan_bert },
    { "nomic-bert", steps_block, ROPE_NEOX, NORM_LAYER, ACT_SILU, BERT | GATED, SET(TOKEN_TYPES) | SET(ATTN_QKV),
      BERT_BIAS, SCALED, plan_nomic_bert },
    { "nomic-bert-moe", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, BERT | FFN | (EXPERTS & ~SET(FFN_GATE_EXPS)),
      SET(TOKEN_TYPES) | SET(ATTN_QKV), BERT_BIAS | FFN, SCALED, plan_nomic_bert_moe },
    { "jina-bert-v2", steps_block, ROPE_NORM, NORM_LAYER, ACT_GELU_TANH, BERT | FFN | SET(TOKEN_TYPES), FUSED
      | SET(FFN_GATE) | QK_NORM | SET(ATTN_NORM_2) | SET(CLS), BERT_BIAS | FFN | SET(FFN_GATE_UP) | QK_NORM
      | SET(ATTN_NORM_2) | SET(CLS), SCALED, plan_jina_bert_v2 },
    { "jina-bert-v3", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, BERT | FFN, SET(TOKEN_TYPES) | SET(ATTN_QKV),
      BERT_BIAS | FFN, SCALED, plan_token_types },
    { "modern-bert", steps_block, ROPE_NEOX, NORM_LAYER, ACT_GELU_TANH, DENSE | FUSED | SET(TOKEN_EMBD_NORM), RANK
      | SET(CLS_NORM), QKV_BIAS | SET(CLS_OUTPUT), SCALED, plan_modern_bert },
    { "neo-bert", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | FUSED, RANK, QKV_BIAS | RANK, SCALED,
      plan_neo_bert },
    { "eurobert", steps_block, ROPE_NEOX, NORM_RMS, ACT_SILU, DENSE, SET(ATTN_QKV), QKV_BIAS, SCALED, plan_encoder },
    { "gemma-embedding", steps_block, ROPE_NEOX, NORM_RMS, ACT_GELU_TANH, DENSE | QK_NORM | POST_NORM, SET(ATTN_QKV)
      | SET(DENSE_2) | SET(DENSE_3), QKV_BIAS, SCALED, plan_gemma_embedding },
    { "t5", steps_encoder_decoder, ROPE_NORM, NORM_RMS, ACT_GELU_TANH, PLAIN | SET(ENCODER_NORM), SET(FFN_GATE)
      | SET(ATTN_BUCKETS) | SET(OUTPUT), 0, 0, plan_t5 },
    { "t5encoder", steps_block, ROPE_NORM, NORM_RMS, ACT_GELU_TANH, PLAIN, SET(FFN_GATE) | SET(ATTN_BUCKETS), 0, 0,
      plan_t5_encoder },
    { "llama-embed", steps_block, ROPE_NORM, NORM_RMS, ACT_SILU, DENSE | EXPERTS, SET(ATTN_QKV) | FACTORS,
      ATTENTION_BIAS | GATED, SCALED | GATED | EXPERTS, plan_llama_embed },
    { .name = NULL },
};
