/* The table of known mistakes, and misread blocks: by hand and against gguf-py (tests/vectors/misread/make.py).  Each
 * known mistake must change the tap that it names and nothing before it. */
#include "mistakes/known.h"
#include "record.h"
#include "api/model.h"
#include "fixture.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void misread_vectors(void) {
    size_t n_file, n_record = 0, n_known = 0;
    uint8_t *file = test_read_all("tests/vectors/misread/misread.bin", &n_file);
    if (!file) return;
    for (size_t p = 0; p + 40 <= n_file; n_record++) {
        uint32_t n_bytes = load_u32(file + p + 32), n = load_u32(file + p + 36);
        const uint8_t *blocks = file + p + 40, *values = blocks + n_bytes;
        char name[33] = { 0 };
        memcpy(name, file + p, 32);
        p += 40 + (size_t)n_bytes + 4 * (size_t)n;
        const struct known_mistake *q = known_find(name);
        if (!CHECK(q && q->misread && p <= n_file, "%s", name)) break;
        float *dst = alloc_array(n, sizeof *dst);
        uint32_t n_wrong = 0;
        misread_row(q->type, q->misread, blocks, dst, n);
        for (uint32_t i = 0; i < n; i++) n_wrong += dst[i] != f32_from_bits(load_u32(values + 4 * i));
        CHECK(n_wrong == 0, "%s: %u of %u values differ", name, n_wrong, n);
        free(dst);
    }
    for (size_t i = 0; known_at(i); i++) n_known += known_at(i)->misread != MISREAD_NONE;
    CHECK(n_record == n_known, "%zu records, %zu known mistakes", n_record, n_known);
    free(file);
}

/* Without a mistake any bytes give the right dequantizer's bits (any NaN for a NaN). */
static void misread_none(void) {
    enum { N = 8 * 256 };
    static uint8_t bytes[4 * N];
    static float right[N], ours[N];
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
        const struct quant_traits *traits = quant_traits(type);
        if (!traits || traits->block_size == 0) continue;
        uint32_t n_wrong = 0;
        quant_dequantize(traits, bytes, right, N);
        misread_row(type, MISREAD_NONE, bytes, ours, N);
        for (size_t i = 0; i < N; i++) {
            n_wrong += f32_to_bits(right[i]) != f32_to_bits(ours[i]) && !(isnan(right[i]) && isnan(ours[i]));
        }
        CHECK(n_wrong == 0, "%s: %u of %d values differ", traits->name, n_wrong, N);
    }
}

/* w = 2 (q - 8).  Byte j holds element j in its low nibble and j + 16 in its high one.  Byte 0 is 0x21, the others are
 * 0x88. */
static void misread_by_hand(void) {
    struct { uint8_t d[2], qs[16]; } b = { { 0x00, 0x40 }, { 0x21 } };
    float w[32];
    memset(b.qs + 1, 0x88, 15);
    misread_row(QUANT_Q4_0, MISREAD_NONE, &b, w, 32);
    CHECK(w[0] == -14 && w[16] == -12 && w[1] == 0, "%g %g %g", (double)w[0], (double)w[16], (double)w[1]);
    misread_row(QUANT_Q4_0, MISREAD_NIBBLES, &b, w, 32);
    CHECK(w[0] == -12 && w[16] == -14 && w[1] == 0, "%g %g %g", (double)w[0], (double)w[16], (double)w[1]);
    misread_row(QUANT_Q4_0, MISREAD_LAYOUT, &b, w, 32);
    CHECK(w[0] == -14 && w[1] == -12 && w[16] == 0, "%g %g %g", (double)w[0], (double)w[1], (double)w[16]);
    misread_row(QUANT_Q4_0, MISREAD_OFFSET, &b, w, 32);
    CHECK(w[0] == 2 && w[16] == 4 && w[1] == 16, "%g %g %g", (double)w[0], (double)w[16], (double)w[1]);
    b.d[1] = 0x3c;   /* 1.0 as f16; as bf16 0x3c00 = 2^-7 */
    misread_row(QUANT_Q4_0, MISREAD_BF16, &b, w, 32);
    CHECK(w[0] == -7.0f / 128, "%g", (double)w[0]);
}

/* w = sc (q - 4), d = 1.  q has two bits in qs and the third in hmask.  Byte 0 of qs is 0xe4: q[0], q[32], q[64], q[96]
 * are 0, 1, 2, 3.  Byte 0 of hmask is 0x05: of q[0], q[32], ... q[224] the first and the third have their third bit.
 * Scales of groups 0..3: 33, 34, 32, 32; byte 0 holds lower bits of 0 and 8, byte 8 + i upper bits of i, i + 4, ... */
static void misread_q3_K_by_hand(void) {
    struct { uint8_t hmask[32], qs[64], scales[12], d[2]; } b = {
        .hmask = { 0x05 }, .qs = { 0xe4 }, .scales = { 1, 2, [8] = 0xaa, 0xaa, 0xaa, 0xaa }, .d = { 0x00, 0x3c } };
    static const struct {
        enum misread misread;
        float w0, w1, w16, w32;
    } rows[] = {
        { MISREAD_NONE, 0, -4, -8, 0 },         /* 1 * (4 - 4), 1 * (0 - 4), 2 * (0 - 4), 0 * (1 - 4) */
        { MISREAD_HIGH, -4, -4, -8, 0 },
        { MISREAD_HIGH_SIGN, -4, 0, 0, 0 },
        { MISREAD_HIGH_ORDER, 0, -4, -8, 0 },   /* bits 0 and 2 of byte 0: of elements 0 and 2 */
        { MISREAD_ORDER, 0, -3, -8, 0 },        /* q[1] = 1 */
        { MISREAD_OFFSET, 4, 0, 0, 0 },
        { MISREAD_SIGN, 0, -33 * 4, -34 * 4, 32 * -3 },
        { MISREAD_SCALE_BITS, 0, 31 * 4, 30 * 4, -32 * -3 },
        { MISREAD_SCALE_ORDER, 0, -4, 0, 2 * -3 },   /* byte 1, 0x02, holds lower bits of 2 and 3 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float w[256];
        misread_row(QUANT_Q3_K, rows[i].misread, &b, w, 256);
        CHECK(w[0] == rows[i].w0 && w[1] == rows[i].w1 && w[16] == rows[i].w16 && w[32] == rows[i].w32,
              "row %zu: %g %g %g %g", i, (double)w[0], (double)w[1], (double)w[16], (double)w[32]);
    }
}

/* Code 0 stands for -127, 15 for 113: byte 0 holds 15 and 0, for elements 0 and 16. */
static void misread_iq4_nl_by_hand(void) {
    struct { uint8_t d[2], qs[16]; } b = { { 0x00, 0x3c }, { 0x0f } };
    float w[32];
    misread_row(QUANT_IQ4_NL, MISREAD_NONE, &b, w, 32);
    CHECK(w[0] == 113 && w[16] == -127, "%g %g", (double)w[0], (double)w[16]);
    misread_row(QUANT_IQ4_NL, MISREAD_NIBBLES, &b, w, 32);
    CHECK(w[0] == -127 && w[16] == 113, "%g %g", (double)w[0], (double)w[16]);
    misread_row(QUANT_IQ4_NL, MISREAD_TABLE, &b, w, 32);
    CHECK(w[0] == 7 && w[16] == -8, "%g %g", (double)w[0], (double)w[16]);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void table(void) {
    size_t n = 0;
    for (; known_at(n); n++) {
        const struct known_mistake *q = known_at(n);
        CHECK(known_find(q->name) == q, "%s is there twice", q->name);
        CHECK(q->steps || q->edit || q->rewrite || q->tokens, "%s", q->name);
        struct known_set set = { 0 };
        CHECK(known_is_free(&set, q), "%s", q->name);
        known_add(&set, q);
        CHECK(!known_is_free(&set, q), "%s", q->name);
        for (size_t i = 0; i < n; i++) {
            const struct known_mistake *other = known_at(i);
            bool is_same = other->edit == q->edit && other->rewrite == q->rewrite && other->value == q->value
                        && other->at == q->at && !q->steps && !other->steps && other->weights == q->weights
                        && other->type == q->type && other->misread == q->misread && other->tokens == q->tokens;
            CHECK(!is_same, "%s = %s", q->name, other->name);
        }
    }
    CHECK(n == 335, "%zu known mistakes", n);
    CHECK(!known_find("rope.pairing"), "half a name");
}

static void tokens(void) {
    static const struct {
        const char *a, *b;
        size_t n, n_prompt;
        int32_t out[8];
    } rows[] = {
        { NULL, NULL, 5, 3, { 1, 2, 3, 4, 5 } },
        { "tokens.bos=missing", NULL, 4, 2, { 2, 3, 4, 5 } },
        { "tokens.bos=doubled", NULL, 6, 4, { 1, 1, 2, 3, 4, 5 } },
        { "tokens.last=twice", NULL, 6, 3, { 1, 2, 3, 3, 4, 5 } },
        { "tokens.bos=missing", "tokens.last=twice", 5, 2, { 2, 3, 3, 4, 5 } },
        { "tokens.bos=doubled", "tokens.last=twice", 7, 4, { 1, 1, 2, 3, 3, 4, 5 } },
        { "tokens.padding=included", NULL, 6, 4, { 1, 2, 3, 0, 4, 5 } },
        { "tokens.padding=included", "tokens.last=twice", 7, 4, { 1, 2, 3, 0, 3, 4, 5 } },
        { "tokens.bos=doubled", "tokens.padding=included", 7, 5, { 1, 1, 2, 3, 0, 4, 5 } },
    };
    static const int32_t ids[5] = { 1, 2, 3, 4, 5 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct known_set set = { 0 };
        int32_t out[8] = { 0 };
        size_t n_prompt = 3;
        if (rows[i].a) known_add(&set, known_find(rows[i].a));
        if (rows[i].b) known_add(&set, known_find(rows[i].b));
        size_t n = known_tokens(&set, ids, 5, &n_prompt, out);
        CHECK(n == rows[i].n && n_prompt == rows[i].n_prompt && memcmp(out, rows[i].out, sizeof out) == 0,
              "row %zu: %zu tokens, a prompt of %zu", i, n, n_prompt);
    }
    struct known_set set = { 1, { known_find("tokens.bos=missing") } };   /* a single token is not removed */
    int32_t out[4];
    size_t n_prompt = 1;
    CHECK(known_tokens(&set, ids, 2, &n_prompt, out) == 2 && n_prompt == 1 && out[0] == 1, "%zu", n_prompt);
}

static void applies(void) {
    static const struct {
        const char *model, *yes, *no;
    } rows[] = {   /* "a b c": known mistakes that apply, known mistakes that do not */
        { "f32", "tokens.bos=missing rope.pairing=halves rope.theta=500000 norm.eps=1e-6 norm.eps=0 attn.v=unpermuted "
          "attn.heads=interleaved attn.heads=first attn.heads=not_repeated output.head=zero weights.square=transposed "
          "rope.dim=half rope.dim=n_embd attn.mask=none kv.slot=stale tensor.offset=shifted",
          "rope.pairing=neighbours rope.theta=10000 norm.eps=1e-5 attn.bias=missing output.head=tied rope.dim=full "
          "rope.scaling=ignored F16.type=bf16 Q8_0.codes=unsigned embd.scale=missing attn.scale=ignored "
          "residual.scale=missing logits.scale=missing logits.scale=multiplied model.scales=ignored" },
        { "granite", "embd.scale=missing embd.scale=added attn.scale=ignored attn.scale=missing attn.scale=head_dim "
          "residual.scale=missing logits.scale=missing logits.scale=multiplied model.scales=ignored "
          "rope.pairing=halves output.head=zero", "rope.pairing=neighbours attn.bias=missing" },
        { "gemma3", "embd.scale=missing ffn.act=relu ffn.act=none ffn.act=gelu_erf rope.theta=500000 "
          "rope.theta=10000 norm.weight=plus_one",
          "ffn.act=gelu attn.bias=missing residual.scale=missing logits.scale=missing" },
        { "qwen2", "rope.pairing=neighbours attn.bias=missing Q8_0.codes=unsigned", "rope.pairing=halves" },
        { "untied", "output.head=tied", "output.head=zero" },
        { "heads-1to1", "attn.heads=first attn.v=unpermuted", "attn.heads=interleaved attn.heads=not_repeated" },
        { "heads-4to1", "attn.heads=not_repeated attn.merge=unpermuted",
          "attn.heads=interleaved attn.heads=first attn.v=unpermuted" },
        { "rope-linear", "rope.scaling=ignored rope.theta=10000", "" },
        { "rope-freqs", "rope.scaling=ignored", "rope.theta=10000" },
        { "rope-partial", "rope.dim=full rope.dim=half", "rope.pairing=halves" },
        { "key-length", "attn.scale=n_embd weights.square=transposed", "" },   /* attn_k is square */
        { "q4_k", "Q4_K.scales=swapped", "weights.square=transposed" },
        { "llama-bias", "attn.bias=missing norm.eps=1e-5", "" },
        { "q5_k", "Q5_K.high=missing", "Q4_K.d=bf16 F16.type=bf16" },
        { "bf16", "BF16.type=f16", "F16.type=bf16" },
        { "q2_k", "Q2_K.min=added", "Q3_K.high=inverted" },
        { "iq4_nl", "IQ4_NL.codes=linear", "IQ4_XS.codes=linear Q4_0.nibbles=swapped" },
        { "../archs/gemma2", "softcap.attn=missing softcap.logits=missing window.size=plus_one window.layers=shifted "
          "window.kind=chunk norm.post=before norm.post=residual block.order=parallel ffn.act=silu",
          "attn.softmax=no_max rope.base=local qk_norm.applied=none block.order=sequential norm.out=missing "
          "norm.mean=kept attn.sinks=missing router.norm=added attn.mask=causal ffn.act=gelu" },
        { "../archs/olmo2", "rope.base=global rope.base=exchanged qk_norm.kind=head norm.post=as_llama",
          "residual.from=norm qk_norm.kind=row qk_norm.kind=late" },
        { "../archs/gpt-oss", "attn.sinks=missing rope.yarn=linear router.gating=softmax experts.weighted=input "
          "ffn.bias=missing experts.chosen=smallest",
          "router.gating=softmax_used router.norm=added router.norm=missing router.scale=missing router.bias=missing "
          "shared.expert=missing experts.weighted=output rope.base=local" },
        { "../archs/qwen3moe", "router.norm=missing router.gating=sigmoid experts.used=one_fewer qk_norm.kind=late",
          "router.norm=added router.gating=softmax router.groups=ignored" },
        { "../archs/qwen2moe", "router.gating=softmax_used router.norm=added shared.gate=missing",
          "router.gating=softmax qk_norm.applied=none" },
        { "../archs/glm4moe", "router.bias=missing router.bias=in_weights router.groups=ignored router.scale=missing "
          "rope.sections=ignored shared.expert=missing", "shared.gate=missing qkv.split=by_group" },
        { "../archs/phi2", "block.order=sequential norm.mean=kept norm.bias=missing output.bias=missing rope.part=last",
          "block.order=parallel norm.mean=subtracted norm.embd=missing position.learned=missing" },
        { "../archs/gpt2", "position.learned=plus_two qkv.split=by_group", "rope.theta=500000 rope.applied=none "
          "rope.cache=unrotated rope.layers=all alibi.slopes=missing" },
        { "../archs/bloom", "norm.embd=missing alibi.slopes=positive", "position.learned=missing" },
        { "../archs/cohere2", "rope.layers=all rope.layers=shifted window.layers=exchanged", "rope.base=global" },
        { "../archs/hunyuan-dense", "qk_norm.kind=early", "qk_norm.kind=late qk_norm.kind=row" },
        { "../archs/mistral3-moe", "attn.temperature=missing", "attn.gate=missing" },
        { "../archs/gpt-oss", "ffn.limit=missing ffn.limit=one_sided ffn.limit=swapped window.kind=chunk",
          "window.kind=sliding pooling.kind=mean tokens.padding=included" },
        { "../archs/step35", "ffn.limit=missing", "ffn.limit=one_sided ffn.limit=swapped" },
        { "../archs/llama4", "window.kind=sliding", "window.kind=chunk ffn.limit=missing" },
        { "../archs/nomic-bert", "pooling.kind=cls pooling.kind=last tokens.padding=included", "pooling.kind=mean" },
        { "../archs/qwen3", "pooling.kind=cls pooling.kind=mean", "pooling.kind=last" },
        { "../archs/bert", "pooling.kind=last pooling.kind=mean", "pooling.kind=cls" },
        { "../archs/afmoe", "attn.gate=missing attn.gate=softplus", "attn.temperature=missing" },
        { "../archs/bert", "attn.mask=causal embd.types=missing norm.out=before",
          "attn.mask=none attn.mask=late norm.output=missing output.head=tied norm.post=before" },
        { "../archs/lfm2", "conv.gates=exchanged state.start=used conv.tail=late attn.scale=missing",
          "conv.bias=missing conv.act=missing state.kept=none scan.d=missing delta.unit=none" },
        { "../archs/mamba", "conv.bias=missing conv.act=missing dt.bias=missing scan.parts=exchanged scan.bc=exchanged "
          "recurrent.gate=missing", "conv.gate=missing recurrent.norm=moved scan.groups=interleaved attn.mask=none" },
        { "../archs/mamba2", "recurrent.norm=row recurrent.norm=moved scan.groups=interleaved", "delta.rule=early" },
        { "../archs/qwen35", "recurrent.norm=moved delta.heads=by_group delta.gate=sigmoid dt.softplus=missing",
          "recurrent.norm=row delta.heads=by_turns conv.bias=missing scan.b=exact" },
        { "../archs/minicpm3", "latent.q_norm=missing latent.rope=first_of_q latent.split=v_first", "rope.part=last" },
        { "../archs/plm", "latent.norm=missing", "latent.q_norm=missing latent.v_b=transposed latent.scale=absorbed" },
        { "../archs/deepseek2", "latent.rope=first_of_q", "latent.split=v_first" },
        { "../archs/kimi-linear", "delta.gate=silu delta.decay=first delta.decay=rows conv.tail=missing "
          "delta.unit=none latent.k_b=transposed latent.v_b=next_head latent.scale=absorbed attn.heads=not_repeated",
          "delta.gate=sigmoid delta.heads=by_turns lightning.act=missing attn.heads=first latent.split=v_first" },
        { "../archs/rwkv6", "shift.token=own shift.kept=none wkv.decay=one_exp wkv.bonus=missing wkv.eps=model "
          "state.kept=none state.start=used", "wkv.decay=unscaled lightning.decay=missing dt.bias=missing" },
        { "../archs/rwkv6qwen2", "shift.sign=reversed wkv.decay=inverted wkv.decay=one_exp",
          "wkv.bonus=missing wkv.eps=model" },
        { "../archs/rwkv7", "shift.token=next wkv.decay=unscaled wkv.bonus=missing", "wkv.decay=one_exp" },
        { "../archs/gemma4", "per_layer.rows=unscaled per_layer.rows=before_norm per_layer.sum=unscaled "
          "per_layer.part=next per_layer.part=first rope.base=global", "wkv.decay=one_exp latent.k_b=next_head" },
        { "../archs/gemma4-moe", "rope.base=global", "per_layer.part=next" },
        { "../archs/minimax-01", "lightning.split=by_kind lightning.act=missing lightning.decay=missing "
          "lightning.slopes=of_first lightning.slopes=from_zero lightning.norm=heads lightning.residual=input "
          "attn.gate=missing", "delta.gate=silu delta.decay=first conv.tail=missing" },
        { "../archs/qwen3next", "delta.heads=by_turns state.kept=prompt", "delta.heads=by_group" },
        /* Windows of 4 and 5 tokens around a token both reach 2 tokens far. */
        { "../archs/modern-bert", "window.size=minus_one window.size=ignored",
          "window.size=plus_one window.kind=chunk" },
        { "../archs/t5", "cross.mask=causal cross.source=decoder buckets.decoder=around buckets.encoder=before "
          "decoder.start=missing attn.mask=none attn.scale=head_dim", "attn.mask=causal rope.applied=none" },
        { "../archs/t5encoder", "buckets.encoder=before attn.mask=causal",
          "buckets.decoder=around cross.mask=causal cross.source=decoder decoder.start=missing attn.mask=none" },
        { "../archs/gemma-embedding", "window.size=plus_one", "window.size=minus_one window.kind=chunk" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_model *m = record_load(rows[i].model);
        for (int yes = 0; m && yes < 2; yes++) {
            char names[600], *save = names;
            snprintf(names, sizeof names, "%s", yes ? rows[i].yes : rows[i].no);
            for (char *end; *save; save = end) {
                end = save + strcspn(save, " ");
                if (*end) *end++ = 0;
                const struct known_mistake *q = known_find(save);
                if (!CHECK(q, "no known mistake %s", save)) continue;
                CHECK(known_applies(q, m->model, 256) == yes, "%s: %s", rows[i].model, save);
            }
        }
        if (m) CHECK(!known_applies(known_find("tokens.bos=missing"), m->model, -1), "without a BOS");
        const struct known_mistake *half = known_find("rope.dim=half");
        if (m && known_applies(known_find("rope.applied=none"), m->model, 256)) {
            struct rope_plan *ropes = m->model->plan.ropes;
            ropes[0].n_rot = m->model->plan.n_embd;
            CHECK(known_applies(half, m->model, 256), "as many elements as the embedding has can be halved");
            ropes[0].n_rot = ropes[1].n_rot = 2;
            CHECK(!known_applies(half, m->model, 256), "a single pair has no half");
        }
        plumb_model_free(m);
    }
}

/* ---- every known mistake changes its tap and nothing before it --------------------------------------------------- */

/* A model and the tokens that it is fed. */
struct subject {
    plumb_model *model;
    const int32_t *ids;   /* (N_TOKEN) */
    int32_t bos;
};

/* Runs a prompt and steps with the token list that the known mistakes give. */
static struct record *run_tokens(const struct subject *s, const struct known_set *q, record_force *force) {
    int32_t ids[N_TOKEN + 3];
    size_t n_prompt = N_PROMPT, n = known_tokens(q, s->ids, N_TOKEN, &n_prompt, ids);
    return record_run(s->model->model, q, ids, n_prompt, n, force, NULL);
}

/* The same tap of another run, or NULL. */
static const plumb_tap *find_tap(const struct record *run, const plumb_tap *tap) {
    for (size_t i = 0; i < run->n; i++) {
        const plumb_tap *t = &run->taps[i];
        if (strcmp(t->name, tap->name) == 0 && t->layer == tap->layer && t->pos == tap->pos) return t;
    }
    return NULL;
}

/* The name of the first tap of a that differs in b, or NULL.  A known mistake may leave out a tap. */
static const char *first_difference(const struct record *a, const struct record *b) {
    for (size_t i = 0; i < a->n; i++) {
        const plumb_tap *ta = &a->taps[i], *tb = find_tap(b, ta);
        size_t n = (size_t)ta->n_token * ta->n_head * ta->n;
        bool has_rows = tb && tb->n_token == ta->n_token;   /* without them a list of tokens differs */
        bool is_same = has_rows && tb->n == ta->n && memcmp(ta->data, tb->data, n * sizeof *ta->data) == 0;
        if (tb && !is_same) return ta->name;
    }
    return NULL;
}

enum { MAX_KNOWN = 400 };

/* The scores of some models are small. */
static void enlarge_twice(void *user, const plumb_tap *tap, double *x) {
    record_enlarge(user, tap, x);
    record_enlarge(user, tap, x);
}

/* Makes each known mistake that applies to a model, of reading its types or all others, and counts in seen those that
 * change first the tap of the table.  A model with other steps than Llama's may have another first tap.  Returns how
 * many were made. */
static size_t check_known(const char *name, const struct subject *s, bool is_misread, bool is_strict,
                           uint32_t seen[MAX_KNOWN]) {
    const struct model *m = s->model->model;
    const struct known_set none = { 0 };
    struct record *truth = run_tokens(s, &none, NULL), *enlarged = run_tokens(s, &none, enlarge_twice);
    size_t n_run = 0;
    for (size_t i = 0; known_at(i) && i < MAX_KNOWN; i++) {
        const struct known_mistake *q = known_at(i);
        if ((q->misread != MISREAD_NONE) != is_misread || !known_applies(q, m, s->bos)) continue;
        if (is_misread && q->type != m->token_embd.w->type) continue;
        bool is_large = strcmp(q->name, "attn.softmax=no_max") == 0;
        struct known_set set = { 0 };
        known_add(&set, q);
        struct record *run = run_tokens(s, &set, is_large ? enlarge_twice : NULL);
        const char *first = first_difference(is_large ? enlarged : truth, run);
        CHECK(first && (!is_strict || strcmp(first, q->tap) == 0), "%s, %s: first %s, not %s", name, q->name,
              first ? first : "none", q->tap);
        seen[i] += first && strcmp(first, q->tap) == 0;
        n_run++;
        record_free(run);
    }
    record_free(truth);
    record_free(enlarged);
    return n_run;
}

/* Llama 4's chunks and temperature begin at 8,192 tokens. */
static void shorten(struct plan *p) {
    for (uint32_t il = 0; il < p->n_layer; il++) {
        struct attn_plan *a = &p->layers[il].attn;
        if (a->window > N_TOKEN) a->window = 3;
        if (a->temperature_floor > N_TOKEN) a->temperature_floor = 3;
    }
}

static void first_taps(void) {
    static const char *const models[] = { "f32", "qwen2", "qwen3", "gemma3", "granite", "untied", "llama-bias",
                                          "heads-1to1", "heads-4to1", "rope-linear", "rope-freqs", "rope-partial",
                                          "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k",
                                          "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4", "nvfp4", "tq1_0",
                                          "tq2_0", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s", "iq1_m" };
    enum { N_MODEL = sizeof models / sizeof *models, N_SHAPES = 12 };   /* the first N_SHAPES differ in shape */
    static const char *const archs[] = { "gemma2", "olmo2", "gpt-oss", "qwen2moe", "qwen3moe", "glm4moe", "bailingmoe2",
                                         "command-r", "phi2", "gpt2", "bloom", "cohere2", "hunyuan-dense",
                                         "mistral3-moe", "afmoe", "llama4", "bert", "nomic-bert",
                                         "gemma4-moe", "gemma3n", "deepseek2", "plm", "jamba-moe", "qwen3next",
                                         "falcon-h1", "mamba2", "rwkv6", "rwkv7", "mamba", "lfm2", "qwen35",
                                         "minicpm3", "kimi-linear", "minimax-01", "t5" };
    static const int32_t arch_ids[N_TOKEN] = { 7, 1, 33, 60, 2, 19, 48 };
    size_t n_known = 0, n_run = 0;
    uint32_t seen[MAX_KNOWN] = { 0 };
    for (size_t k = 0; k < N_MODEL; k++) {
        if (!test_repeats(k)) continue;
        struct subject s = { record_load(models[k]), record_ids, 256 };
        if (s.model) n_run += check_known(models[k], &s, k >= N_SHAPES, true, seen);
        plumb_model_free(s.model);
    }
    for (size_t k = 0; k < sizeof archs / sizeof *archs; k++) {
        char path[120];
        if (!test_repeats(k)) continue;
        snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", archs[k]);
        struct subject s = { fixture_load(path), arch_ids, -1 };
        if (s.model) shorten(&s.model->model->plan);
        if (s.model) n_run += check_known(archs[k], &s, false, false, seen);
        plumb_model_free(s.model);
    }
    bool all = test_repeats(1);   /* a sample of the models does not see every mistake */
    for (; known_at(n_known); n_known++) CHECK(!all || seen[n_known] > 0, "%s was never seen", known_at(n_known)->name);
    test_note("%zu known mistakes, %zu runs", n_known, n_run);
}

/* With a token more than the model has positions, the last one is used twice. */
static void last_position(void) {
    static const int32_t ids[N_TOKEN] = { 7, 1, 33, 60, 2, 19, 48 };
    static const char *const names[] = { "tokens.bos=doubled", "position.learned=plus_two" };
    plumb_model *m = fixture_load("tests/vectors/archs/gpt2.gguf");
    if (!m) return;
    m->model->plan.n_ctx_train = N_TOKEN;   /* the rows after these are not to be read */
    struct known_set set = { 0 };
    for (size_t i = 0; i < 2; i++) {
        known_add(&set, known_find(names[i]));
        struct subject s = { m, ids, 0 };
        struct record *run = run_tokens(&s, &set, NULL);
        const float *embd = record_at(run, "embd", -1, N_TOKEN);
        const struct weight *words = m->model->token_embd.w, *rows = m->model->position_embd.w;
        float word[64], row[64];
        uint8_t bytes[256];
        if (CHECK(words->n_in <= 64 && rows->n_in == words->n_in, "%u elements", words->n_in)) {
            quant_dequantize(words->traits, weight_row(words, (size_t)ids[N_TOKEN - 1], bytes), word, words->n_in);
            quant_dequantize(rows->traits, weight_row(rows, N_TOKEN - 1, bytes), row, rows->n_in);
            double worst = 0;
            for (uint32_t k = 0; k < words->n_in; k++) {
                worst = fmax(worst, fabs((double)embd[k] - (double)word[k] - (double)row[k]));
            }
            CHECK(worst < 1e-6, "%s: off by %g", names[i], worst);
        }
        record_free(run);
    }
    plumb_model_free(m);
}

void test_known(void) {
    test_case("known mistakes: misread blocks equal gguf-py's for blocks with their bits moved", misread_vectors);
    test_case("known mistakes: without a mistake blocks equal the right dequantizers, bit for bit", misread_none);
    test_case("known mistakes: misread Q4_0 equals the values worked by hand", misread_by_hand);
    test_case("known mistakes: misread Q3_K equals the values worked by hand", misread_q3_K_by_hand);
    test_case("known mistakes: misread IQ4_NL by hand", misread_iq4_nl_by_hand);
    test_case("known mistakes: every entry of the table is there once", table);
    test_case("known mistakes: token lists by hand", tokens);
    test_case("known mistakes: which apply to which model", applies);
    test_case("known mistakes: each changes the tap it names and nothing before", first_taps);
    test_case("known mistakes: no row after the last learned position is read", last_position);
}
