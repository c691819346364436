/* Models whose keys and tensors contradict each other, made by overwriting bytes of good files.  Each gives a status
 * and a message that names the place, never a crash. */
#include "fixture.h"
#include "api/model.h"
#include "model/plan.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#define TINY "tests/vectors/synth/q8_0.gguf"
#define KEY_LENGTH "tests/vectors/synth/key-length.gguf"
#define ROPE_LINEAR "tests/vectors/synth/rope-linear.gguf"
#define ROPE_FREQS "tests/vectors/synth/rope-freqs.gguf"
#define GRANITE "tests/vectors/synth/granite.gguf"
#define QWEN3 "tests/vectors/synth/qwen3.gguf"
#define GEMMA3 "tests/vectors/synth/gemma3.gguf"
#define OLMOE "tests/vectors/archs/olmoe.gguf"
#define GROUPS "tests/vectors/archs/bailingmoe2.gguf"
#define LFM2 "tests/vectors/archs/lfm2.gguf"
#define QWEN35 "tests/vectors/archs/qwen35.gguf"
#define MAMBA "tests/vectors/archs/mamba.gguf"
#define MAMBA2 "tests/vectors/archs/mamba2.gguf"
#define NEMOTRON "tests/vectors/archs/nemotron_h.gguf"
#define T5 "tests/vectors/archs/t5encoder.gguf"
#define T5_WHOLE "tests/vectors/archs/t5.gguf"
#define FALCON_H1 "tests/vectors/archs/falcon-h1.gguf"
#define PLAMO2 "tests/vectors/archs/plamo2.gguf"
#define DEEPSEEK2 "tests/vectors/archs/deepseek2.gguf"
#define RWKV6 "tests/vectors/archs/rwkv6.gguf"
#define RWKV6QWEN2 "tests/vectors/archs/rwkv6qwen2.gguf"
#define RWKV7 "tests/vectors/archs/rwkv7.gguf"
#define ARWKV7 "tests/vectors/archs/arwkv7.gguf"
#define KIMI "tests/vectors/archs/kimi-linear.gguf"
#define LING "tests/vectors/archs/bailingmoe3.gguf"
#define MINIMAX "tests/vectors/archs/minimax-01.gguf"
#define OCR "tests/vectors/archs/deepseek2-ocr.gguf"
#define LATENT_EXPERTS "tests/vectors/archs/nemotron_h_moe-latent.gguf"
#define CHAMELEON "tests/vectors/archs/chameleon.gguf"
#define SWITCH "tests/vectors/archs/graniteswitch.gguf"
#define HUNYUAN "tests/vectors/archs/hunyuan-dense.gguf"
#define STEP35 "tests/vectors/archs/step35.gguf"
#define SINKS "tests/vectors/archs/gpt-oss.gguf"
#define LOOPS "tests/vectors/archs/nanbeige.gguf"
#define STATES "tests/vectors/archs/hrm_text.gguf"
#define ADJUGATES "tests/vectors/archs/grovemoe.gguf"
#define FUSED "tests/vectors/archs/hy_v3.gguf"
#define BERT "tests/vectors/archs/bert.gguf"
#define MODERN "tests/vectors/archs/modern-bert.gguf"
#define GEMMA3N "tests/vectors/archs/gemma3n.gguf"
#define GEMMA4 "tests/vectors/archs/gemma4.gguf"
#define GEMMA4_MOE "tests/vectors/archs/gemma4-moe.gguf"
#define NOMIC "tests/vectors/archs/nomic-bert-moe.gguf"
#define JINA "tests/vectors/archs/jina-bert-v2.gguf"
#define NEO "tests/vectors/archs/neo-bert.gguf"
#define GEMMA_EMBEDDING "tests/vectors/archs/gemma-embedding.gguf"
#define RERANKER "tests/vectors/archs/qwen3.gguf"

struct change {
    const char *name, *file;
    const char *find;        /* the bytes of a key or tensor name, its first occurrence */
    int skip;                /* from their end to the bytes that are overwritten; may be negative */
    uint32_t n;              /* how many, 1..8 */
    char bytes[9];
    plumb_status status;
    const char *message;     /* a part of it */
};

/* In the file a key's name is followed by its type, u32, and its value; a tensor's by n_dims, u32, its shape, u64 each,
 * its type, u32, and its offset, u64. */
static const struct change changes[] = {
    { "another architecture", TINY, "llama", 0 - 5, 5, "lxama", PLUMB_ERROR_UNSUPPORTED, "\"lxama\" is not supported" },
    { "no block_count", TINY, "llama.block_count", -1, 1, "x", PLUMB_ERROR_METADATA, "llama.block_count is missing" },
    { "block_count is a float", TINY, "llama.block_count", 0, 4, "\6\0\0\0", PLUMB_ERROR_METADATA,
      "llama.block_count" },
    { "no block", TINY, "llama.block_count", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA, "is 0, expected 1 to 65536" },
    { "4 G blocks", TINY, "llama.block_count", 4, 4, "\377\377\377\377", PLUMB_ERROR_METADATA,
      "is 4294967295, expected" },
    { "65536 blocks in a file of 20 tensors", TINY, "llama.block_count", 4, 4, "\0\0\1\0", PLUMB_ERROR_METADATA,
      "block_count is 65536, but the file has only 20 tensors" },
    { "one block more than there is", TINY, "llama.block_count", 4, 4, "\3\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.2.attn_norm.weight is missing" },
    { "one block less than there is", TINY, "llama.block_count", 4, 4, "\1\0\0\0", PLUMB_ERROR_UNSUPPORTED,
      "\"blk.1.attn_norm.weight\" is not used" },
    { "another embedding_length", TINY, "llama.embedding_length", 4, 4, "\100\0\0\0", PLUMB_ERROR_TENSOR,
      "token_embd.weight: expected shape [64, 260], file has Q8_0 [32, 260]" },
    { "more tokens than rows of token_embd", TINY, "token_embd.weight", 12, 8, "\3\1\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "token_embd.weight: expected shape [32, 260], file has Q8_0 [32, 259]" },
    { "another feed_forward_length", TINY, "llama.feed_forward_length", 4, 4, "\101\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.0.ffn_gate.weight: expected shape [32, 65], file has Q8_0 [32, 64]" },
    { "no heads", TINY, "llama.attention.head_count", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA, "is 0, expected 1 to" },
    { "more heads than components", TINY, "llama.attention.head_count", 4, 4, "\100\0\0\0", PLUMB_ERROR_METADATA,
      "llama.attention.key_length is missing" },
    { "key heads that do not divide the query heads", TINY, "llama.attention.head_count_kv", 4, 4, "\3\0\0\0",
      PLUMB_ERROR_METADATA, "is 3, which does not divide the 4" },
    { "more key heads than query heads", TINY, "llama.attention.head_count_kv", 4, 4, "\10\0\0\0", PLUMB_ERROR_METADATA,
      "is 8, which does not divide the 4 query heads" },
    { "more experts used than there are", OLMOE, "olmoe.expert_used_count", 4, 4, "\5\0\0\0", PLUMB_ERROR_METADATA,
      "is 5, expected 1 to 4" },
    { "4 G experts", OLMOE, "olmoe.expert_count", 4, 4, "\377\377\377\377", PLUMB_ERROR_METADATA,
      "is 4294967295, expected at most 512" },
    { "one expert less than there is", OLMOE, "olmoe.expert_count", 4, 4, "\3\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.0.ffn_gate_inp.weight: expected shape [32, 3]" },
    { "matrices of fewer experts", OLMOE, "blk.1.ffn_up_exps.weight", 20, 8, "\3\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.1.ffn_up_exps.weight: expected shape [32, 64, 4], file has Q8_0 [32, 64, 3]" },
    { "no router", OLMOE, "blk.2.ffn_gate_inp.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED, "is not used by a olmoe" },
    { "layers that predict further tokens, and no other", OLMOE, "olmoe.nextn_predict_layers", 4, 4, "\3\0\0\0",
      PLUMB_ERROR_METADATA, "is 3 of 3 layers, expected fewer" },
    { "groups that do not divide the experts", GROUPS, "bailingmoe2.expert_group_count", 4, 4, "\3\0\0\0",
      PLUMB_ERROR_METADATA, "is 3, expected at most 64 and a divisor of the 4" },
    { "more groups used than there are", GROUPS, "bailingmoe2.expert_group_used_count", 4, 4, "\3\0\0\0",
      PLUMB_ERROR_METADATA, "is 3, expected 1 to 2" },
    { "groups with fewer experts than are used", GROUPS, "bailingmoe2.expert_used_count", 4, 4, "\3\0\0\0",
      PLUMB_ERROR_METADATA, "is 1, but these groups have fewer experts than the 3 that are used" },
    { "an odd number of pairs, of which half are rotated", STEP35, "step35.rope.dimension_count", 4, 4, "\6\0\0\0",
      PLUMB_ERROR_METADATA, "rope.dimension_count is 6, expected a multiple of 4" },
    { "an unknown gating", GROUPS, "bailingmoe2.expert_gating_func", 4, 4, "\11\0\0\0", PLUMB_ERROR_UNSUPPORTED,
      "is 9, expected 1 to 3" },
    { "4 G shared experts", GROUPS, "bailingmoe2.expert_shared_count", 4, 4, "\377\377\377\377", PLUMB_ERROR_METADATA,
      "is 4294967295, expected at most 1024" },
    { "no sinks", SINKS, "blk.1.attn_sinks.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED, "is not used by a gpt-oss" },
    { "sinks of fewer heads", SINKS, "blk.1.attn_sinks.weight", 4, 8, "\3\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "expected shape [4], file has F32 [3]" },
    { "a model that is too large", TINY, "llama", 0 - 5, 5, "hy_v4", PLUMB_ERROR_UNSUPPORTED,
      "\"hy_v4\" is a model with latent attention and hundreds of billions of parameters; plumb does not run these" },
    { "no heads of RWKV", RWKV7, "rwkv7.wkv.head_size", -1, 1, "x", PLUMB_ERROR_METADATA, "head_size is missing" },
    { "heads of RWKV without elements", RWKV7, "rwkv7.wkv.head_size", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA,
      "is 0, expected 1 to 4096" },
    { "heads of RWKV that do not make a token", RWKV7, "rwkv7.wkv.head_size", 4, 4, "\60\0\0\0", PLUMB_ERROR_METADATA,
      "is 48, which does not divide the 64 elements" },
    { "4 G elements in a head of RWKV", RWKV7, "rwkv7.wkv.head_size", 4, 4, "\377\377\377\377", PLUMB_ERROR_METADATA,
      "is 4294967295, expected 1 to 4096" },
    { "no feed-forward network of RWKV", RWKV7, "rwkv7.feed_forward_length", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA,
      "is 0, expected 1 to" },
    { "a feed-forward network of RWKV of another width", RWKV7, "rwkv7.feed_forward_length", 4, 4, "\101\0\0\0",
      PLUMB_ERROR_TENSOR, "channel_mix_key.weight: expected shape [64, 65], file has Q8_0 [64, 64]" },
    { "no rank of the decays of RWKV", RWKV7, "rwkv7.attention.decay_lora_rank", -1, 1, "x", PLUMB_ERROR_METADATA,
      "decay_lora_rank is missing" },
    { "another rank of the decays of RWKV", RWKV7, "rwkv7.attention.decay_lora_rank", 4, 4, "\7\0\0\0",
      PLUMB_ERROR_TENSOR, "time_mix_w1.weight: expected shape [64, 7], file has F32 [64, 6]" },
    { "4 G rows of the decays of RWKV", RWKV7, "rwkv7.attention.decay_lora_rank", 4, 4, "\377\377\377\377",
      PLUMB_ERROR_METADATA, "is 4294967295, expected 1 to 65536" },
    { "no rank of the learning rates of RWKV", RWKV7, "rwkv7.attention.iclr_lora_rank", 4, 4, "\0\0\0\0",
      PLUMB_ERROR_METADATA, "is 0, expected 1 to 65536" },
    { "another rank of the learning rates of RWKV", RWKV7, "rwkv7.attention.iclr_lora_rank", 4, 4, "\4\0\0\0",
      PLUMB_ERROR_TENSOR, "time_mix_a1.weight: expected shape [64, 4], file has F32 [64, 5]" },
    { "another rank of the values of RWKV", RWKV7, "rwkv7.attention.value_residual_mix_lora_rank", 4, 4, "\4\0\0\0",
      PLUMB_ERROR_TENSOR, "blk.1.time_mix_v1.weight: expected shape [64, 4], file has F32 [64, 3]" },
    { "no rank of the gates of RWKV", RWKV7, "rwkv7.attention.gate_lora_rank", -1, 1, "x", PLUMB_ERROR_METADATA,
      "gate_lora_rank is missing" },
    { "another rank of the gates of RWKV", RWKV7, "rwkv7.attention.gate_lora_rank", 4, 4, "\10\0\0\0",
      PLUMB_ERROR_TENSOR, "time_mix_g1.weight: expected shape [64, 8], file has F32 [64, 7]" },
    { "factors of a shift less", RWKV7, "blk.1.time_mix_lerp_fused.weight", 28, 8, "\5\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "time_mix_lerp_fused.weight: expected shape [64, 1, 1, 6], file has F32 [64, 1, 1, 5]" },
    { "no factors of shifts", RWKV7, "blk.2.time_mix_lerp_fused.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a rwkv7 model" },
    { "no bias of the norm of heads", RWKV7, "blk.1.time_mix_ln.bias", -6, 1, "x", PLUMB_ERROR_TENSOR,
      "tensor blk.1.time_mix_ln.bias is missing" },
    { "no bonus", RWKV7, "blk.2.time_mix_r_k.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED, "is not used by a rwkv7" },
    { "a bonus of fewer heads", RWKV7, "blk.2.time_mix_r_k.weight", 4, 8, "\40\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "expected shape [64], file has F32 [32]" },
    { "a norm of fewer heads", RWKV7, "blk.2.time_mix_ln.weight", 4, 8, "\40\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "expected shape [64], file has F32 [32]" },
    { "a norm of heads with a bias of fewer", RWKV7, "blk.2.time_mix_ln.bias", 4, 8, "\40\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "expected shape [64], file has F32 [32]" },
    { "values of layer 0 that no layer mixes", RWKV7, "blk.1.time_mix_v0.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a rwkv7" },
    { "two shifts in ARWKV", ARWKV7, "arwkv7.token_shift_count", 4, 4, "\2\0\0\0", PLUMB_ERROR_METADATA,
      "is 2, expected 1" },
    { "no count of shifts in ARWKV", ARWKV7, "arwkv7.token_shift_count", -1, 1, "x", PLUMB_ERROR_METADATA,
      "is 2, expected 1" },
    { "half a gate", ARWKV7, "blk.0.time_mix_g2.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a arwkv7" },
    { "no rank of the shifts of RWKV 6", RWKV6, "rwkv6.time_mix_extra_dim", -1, 1, "x", PLUMB_ERROR_METADATA,
      "time_mix_extra_dim is missing" },
    { "another rank of the shifts of RWKV 6", RWKV6, "rwkv6.time_mix_extra_dim", 4, 4, "\3\0\0\0", PLUMB_ERROR_TENSOR,
      "time_mix_w1.weight: expected shape [32, 15], file has F32 [32, 20]" },
    { "4 G rows of the shifts of RWKV 6", RWKV6, "rwkv6.time_mix_extra_dim", 4, 4, "\377\377\377\377",
      PLUMB_ERROR_METADATA, "is 4294967295, expected 1 to 4096" },
    { "fewer shifts of RWKV 6", RWKV6, "blk.0.time_mix_w2.weight", 20, 8, "\4\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "expected shape [4, 32, 5], file has F32 [4, 32, 4]" },
    { "another rank of the decays of RWKV 6", RWKV6, "rwkv6.time_decay_extra_dim", 4, 4, "\7\0\0\0",
      PLUMB_ERROR_TENSOR, "time_mix_decay_w1.weight: expected shape [32, 7], file has F32 [32, 6]" },
    { "a bonus of fewer heads of RWKV 6", RWKV6, "blk.0.time_mix_first.weight", 12, 8, "\3\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "expected shape [8, 4], file has F32 [8, 3]" },
    { "factors of shifts apart, of which one is missing", RWKV6, "blk.1.time_mix_lerp_v.weight", -8, 1, "y",
      PLUMB_ERROR_UNSUPPORTED, "is not used by a rwkv6 model" },
    { "no gate of a channel mix", RWKV6, "blk.1.channel_mix_receptance.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a rwkv6 model" },
    { "heads of K and V that do not divide the heads of RWKV", RWKV6QWEN2, "rwkv6qwen2.attention.head_count_kv", 4, 4,
      "\3\0\0\0", PLUMB_ERROR_METADATA, "is 3, which does not divide the 4 heads" },
    { "as many heads of K and V as of RWKV", RWKV6QWEN2, "rwkv6qwen2.attention.head_count_kv", 4, 4, "\0\0\0\0",
      PLUMB_ERROR_TENSOR, "time_mix_key.weight: expected shape [32, 32], file has Q8_0 [32, 16]" },
    { "a bias of fewer heads of K", RWKV6QWEN2, "blk.1.time_mix_key.bias", 4, 8, "\10\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "expected shape [16], file has F32 [8]" },
    { "no width of heads in Kimi Linear", KIMI, "kimi-linear.kda.head_dim", -1, 1, "x", PLUMB_ERROR_METADATA,
      "kda.head_dim is missing" },
    { "another width of heads in Kimi Linear", KIMI, "kimi-linear.kda.head_dim", 4, 4, "\20\0\0\0", PLUMB_ERROR_TENSOR,
      "expected shape [32, 64], file has Q8_0 [32, 32]" },
    { "heads of 4 G elements in Kimi Linear", KIMI, "kimi-linear.kda.head_dim", 4, 4, "\377\377\377\377",
      PLUMB_ERROR_METADATA, "is 4294967295, expected 1 to 4096" },
    { "a convolution over one token in Kimi Linear", KIMI, "kimi-linear.ssm.conv_kernel", 4, 4, "\1\0\0\0",
      PLUMB_ERROR_METADATA, "conv_kernel is 1, expected at least 2" },
    { "a convolution over more tokens in Kimi Linear", KIMI, "kimi-linear.ssm.conv_kernel", 4, 4, "\5\0\0\0",
      PLUMB_ERROR_TENSOR, "ssm_conv1d_q.weight: expected shape [5, 1, 32], file has F32 [4, 1, 32]" },
    { "no convolution of K", KIMI, "blk.2.ssm_conv1d_k.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a kimi-linear model" },
    { "a convolution of fewer V", KIMI, "blk.2.ssm_conv1d_v.weight", 20, 8, "\30\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "expected shape [4, 1, 32], file has F32 [4, 1, 24]" },
    { "decays of fewer heads", KIMI, "blk.0.ssm_a", 12, 8, "\3\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "expected shape [1, 4], file has F32 [1, 3]" },
    { "dt of heads, not of elements", KIMI, "blk.0.ssm_dt.bias", 4, 8, "\4\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.0.ssm_dt.bias: expected shape [32], file has F32 [4]" },
    { "half of the decays", KIMI, "blk.3.ssm_f_b.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a kimi-linear model" },
    { "another rank of gates", KIMI, "blk.3.ssm_g_a.weight", 12, 8, "\7\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.3.ssm_g_a.weight: expected shape [32, 8], file has Q8_0 [32, 7]" },
    { "a norm of narrower heads", KIMI, "blk.0.ssm_norm.weight", 4, 8, "\4\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "expected shape [8], file has F32 [4]" },
    { "beta of fewer heads", KIMI, "blk.0.ssm_beta.weight", 12, 8, "\3\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "expected shape [32, 4], file has Q8_0 [32, 3]" },
    { "a shorter output", KIMI, "blk.0.attn_output.weight", 12, 8, "\30\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.0.attn_output.weight: expected shape [32, 32], file has Q8_0 [32, 24]" },
    { "no latent attention that is absorbed", KIMI, "kimi-linear.attention.key_length_mla", 4, 4, "\0\0\0\0",
      PLUMB_ERROR_METADATA, "which is no latent attention" },
    { "no gating of experts in Kimi Linear", KIMI, "kimi-linear.expert_gating_func", -1, 1, "x",
      PLUMB_ERROR_UNSUPPORTED, "expert_gating_func is 0, expected 1 to 3" },
    { "no bound of decays in Ling 3", LING, "bailingmoe3.kda.gate_lower_bound", -1, 1, "x", PLUMB_ERROR_METADATA,
      "keys bailingmoe3.kda: safe_gate is true and gate_lower_bound 0, expected true and -10000 to less than 0" },
    { "a bound of decays that is no number", LING, "bailingmoe3.kda.gate_lower_bound", 4, 4, "\0\0\300\177",
      PLUMB_ERROR_METADATA, "and gate_lower_bound nan" },
    { "decays in Ling 3 without a bound", LING, "bailingmoe3.kda.safe_gate", 4, 1, "\0", PLUMB_ERROR_METADATA,
      "safe_gate is false" },
    { "two products for the decays of Ling 3", LING, "blk.0.ssm_f_a.weight", 12, 8, "\10\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "blk.0.ssm_f_a.weight: expected shape [32, 32], file has Q8_0 [32, 8]" },
    { "gates of fewer heads of latent attention", LING, "blk.1.attn_gate.weight", 12, 8, "\3\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "blk.1.attn_gate.weight: expected shape [32, 4], file has Q8_0 [32, 3]" },
    { "no gate of latent attention", LING, "blk.1.attn_gate.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a bailingmoe3 model" },
    { "no factor of the residual in MiniMax-01", MINIMAX, "minimax-01.residual_scale", -1, 1, "x",
      PLUMB_ERROR_METADATA, "residual_scale is missing or 0" },
    { "a wider V in MiniMax-01", MINIMAX, "minimax-01.embedding_length", 4, 4, "\100\0\0\0", PLUMB_ERROR_TENSOR,
      "expected shape [64, 64]" },
    { "Q, K and V of fewer heads of lightning attention", MINIMAX, "blk.0.attn_qkv.weight", 12, 8,
      "\100\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR, "expected shape [32, 96], file has Q8_0 [32, 64]" },
    { "a norm of one head of lightning attention", MINIMAX, "blk.0.attn_norm_2.weight", 4, 8, "\10\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "expected shape [32], file has F32 [8]" },
    { "no gate of lightning attention", MINIMAX, "blk.0.attn_gate.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a minimax-01 model" },
    { "another width of the experts of DeepSeek-OCR", OCR, "deepseek2-ocr.expert_feed_forward_length", 4, 4,
      "\100\0\0\0", PLUMB_ERROR_TENSOR, "expected shape [32, 64, 8], file has Q8_0 [32, 32, 8]" },
    { "a size of latent experts that is not theirs", LATENT_EXPERTS, "nemotron_h_moe.moe_latent_size", 4, 4,
      "\40\0\0\0", PLUMB_ERROR_TENSOR, "ffn_down_exps.weight: expected shape [64, 32, 4], file has Q8_0 [64, 64, 4]" },
    { "latent experts of 4 G elements", LATENT_EXPERTS, "nemotron_h_moe.moe_latent_size", 4, 4, "\377\377\377\377",
      PLUMB_ERROR_METADATA, "moe_latent_size is 4294967295, expected at most 4194304" },
    { "latent experts without their size", LATENT_EXPERTS, "nemotron_h_moe.moe_latent_size", -1, 1, "x",
      PLUMB_ERROR_TENSOR, "ffn_down_exps.weight: expected shape [64, 32, 4], file has Q8_0 [64, 64, 4]" },
    { "nothing behind latent experts", LATENT_EXPERTS, "blk.2.ffn_latent_up.weight", -8, 1, "x",
      PLUMB_ERROR_UNSUPPORTED, "is not used by a nemotron_h_moe model" },
    { "a shorter way to latent experts", LATENT_EXPERTS, "blk.2.ffn_latent_down.weight", 12, 8, "\40\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "blk.2.ffn_latent_down.weight: expected shape [32, 64], file has Q8_0 [32, 32]" },
    { "fewer tokens than codes of images", CHAMELEON, "chameleon.vocab_size", 4, 4, "\3\40\0\0", PLUMB_ERROR_METADATA,
      "the vocabulary has 8195 tokens, but this architecture has codes of images up to token 8195" },
    { "norms of fewer heads of K", CHAMELEON, "blk.0.attn_k_norm.weight", 12, 8, "\1\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "blk.0.attn_k_norm.weight: expected shape [8, 2], file has F32 [8, 1]" },
    { "biases of the norms of fewer heads", CHAMELEON, "blk.2.attn_q_norm.bias", 12, 8, "\3\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "blk.2.attn_q_norm.bias: expected shape [8, 4], file has F32 [8, 3]" },
    { "no adapters", SWITCH, "graniteswitch.adapters.count", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA,
      "adapters.count is 0, expected 1 to 4096" },
    { "4097 adapters", SWITCH, "graniteswitch.adapters.count", 4, 4, "\1\20\0\0", PLUMB_ERROR_METADATA,
      "adapters.count is 4097, expected 1 to 4096" },
    { "more adapters than tokens that switch them on", SWITCH, "graniteswitch.adapters.count", 4, 4, "\4\0\0\0",
      PLUMB_ERROR_METADATA, "adapters.token_ids_activate has 3 elements for 4 adapters" },
    { "no tokens that switch adapters on", SWITCH, "graniteswitch.adapters.token_ids_activate", -1, 1, "x",
      PLUMB_ERROR_METADATA, "adapters.token_ids_activate has 0 elements for 3 adapters" },
    { "tokens that switch adapters on, and have no embedding", SWITCH, "graniteswitch.adapters.token_ids_substitute",
      -1, 1, "x", PLUMB_ERROR_METADATA, "adapters.token_ids_substitute has 0 elements for 3 adapters" },
    { "the embedding of a token that is none", SWITCH, "graniteswitch.adapters.token_ids_substitute", 20, 4,
      "\100\0\0\0", PLUMB_ERROR_METADATA, "token_ids_substitute: element 1 is no token, of which there are 64" },
    { "the embedding of a negative token", SWITCH, "graniteswitch.adapters.token_ids_substitute", 24, 4,
      "\377\377\377\377", PLUMB_ERROR_METADATA, "token_ids_substitute: element 2 is no token" },
    { "an adapter of a negative token", SWITCH, "graniteswitch.adapters.token_ids_activate", 16, 4,
      "\377\377\377\377", PLUMB_OK, "" },   /* no text switches it on */
    { "adapters of rank 0", SWITCH, "graniteswitch.adapters.lora_rank", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA,
      "adapters.lora_rank is 0, expected 1 to 4096" },
    { "adapters of another rank", SWITCH, "graniteswitch.adapters.lora_rank", 4, 4, "\7\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.0.attn_q.lora_a: expected shape [32, 7, 4], file has F16 [32, 8, 4]" },
    { "a gain that is no number", SWITCH, "graniteswitch.adapters.router_gain", 4, 4, "\0\0\300\177",
      PLUMB_ERROR_METADATA, "adapters.router_gain is nan" },
    { "a gain below 0", SWITCH, "graniteswitch.adapters.router_gain", 4, 4, "\0\0\200\277", PLUMB_ERROR_METADATA,
      "adapters.router_gain is -1, expected 0 to" },
    { "matrices of fewer adapters", SWITCH, "blk.1.ffn_down.lora_b", 20, 8, "\3\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.1.ffn_down.lora_b: expected shape [8, 32, 4], file has F16 [8, 32, 3]" },
    { "an adapter of a matrix that is none", SWITCH, "blk.2.ffn_gate.lora_a", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a graniteswitch model" },
    { "an adapter without one of its matrices", SWITCH, "blk.2.attn_q.lora_b", -1, 1, "c", PLUMB_ERROR_UNSUPPORTED,
      "\"blk.2.attn_q.lora_c\" is not used by a graniteswitch model" },
    { "as many layers with shared K and V as there are", GEMMA4, "gemma4.attention.shared_kv_layers", 4, 4, "\6\0\0\0",
      PLUMB_ERROR_METADATA, "is 6 of 6 layers, expected fewer" },
    { "4 G layers with shared K and V", GEMMA4, "gemma4.attention.shared_kv_layers", 4, 4, "\377\377\377\377",
      PLUMB_ERROR_METADATA, "is 4294967295 of 6 layers, expected fewer" },
    { "K and V of a layer with a window", GEMMA4, "gemma4.attention.shared_kv_layers", 4, 4, "\4\0\0\0",
      PLUMB_ERROR_METADATA, "is 4, so layer 2 reads K and V of layer 1, which has another window" },
    { "K and V of a layer before the first", GEMMA4, "gemma4.attention.shared_kv_layers", 4, 4, "\5\0\0\0",
      PLUMB_ERROR_METADATA, "is 5, so layer 1 reads K and V of layer -1" },
    { "K and V of a layer with other heads", GEMMA4, "gemma4.attention.head_count_kv", 28, 4, "\1\0\0\0",
      PLUMB_ERROR_METADATA, "is 3, so layer 3 reads K and V of layer 1" },
    { "layers with K and V of their own that they lack", GEMMA4, "gemma4.attention.shared_kv_layers", 4, 4,
      "\0\0\0\0", PLUMB_ERROR_TENSOR, "blk.3.attn_k.weight is missing" },
    { "embeddings for each layer of 4 G", GEMMA4, "gemma4.embedding_length_per_layer_input", 4, 4, "\377\377\377\377",
      PLUMB_ERROR_METADATA, "is 4294967295, but 6 layers of that are more than 4194304 elements" },
    { "no embeddings for each layer", GEMMA4, "gemma4.embedding_length_per_layer_input", 4, 4, "\0\0\0\0",
      PLUMB_ERROR_UNSUPPORTED, "\"per_layer_token_embd.weight\" is not used by a gemma4" },
    { "embeddings for each layer of another width", GEMMA4, "gemma4.embedding_length_per_layer_input", 4, 4,
      "\41\0\0\0", PLUMB_ERROR_TENSOR,
      "per_layer_token_embd.weight: expected shape [198, 64], file has Q8_0 [192, 64]" },
    { "embeddings for each layer of fewer tokens", GEMMA4, "per_layer_token_embd.weight", 12, 8, "\77\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "expected shape [192, 64], file has Q8_0 [192, 63]" },
    { "no gate of a layer's embedding", GEMMA4, "blk.1.inp_gate.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a gemma4" },
    { "windows with heads of 0", GEMMA4, "gemma4.attention.key_length_swa", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA,
      "is 0, expected 1 to" },
    { "windows with heads of 4 G", GEMMA4, "gemma4.attention.value_length_swa", 4, 4, "\377\377\377\377",
      PLUMB_ERROR_METADATA, "is 4294967295, expected 1 to" },
    { "keys wider than values", GEMMA4, "gemma4.attention.key_length_swa", 4, 4, "\14\0\0\0", PLUMB_ERROR_METADATA,
      "layer 0 has keys of 12 elements and values of 8, which must be equal" },
    { "more rotated elements than a head of a window has", GEMMA4, "gemma4.rope.dimension_count_swa", 4, 4,
      "\20\0\0\0", PLUMB_ERROR_METADATA, "is 16, expected 1 to 8" },
    { "no layers with windows", GEMMA4, "gemma4.attention.sliding_window_pattern", -1, 1, "x", PLUMB_ERROR_METADATA,
      "sliding_window_pattern is missing" },
    { "no factors of RoPE", GEMMA4, "rope_freqs.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a gemma4" },
    { "no norm of a router", GEMMA4_MOE, "blk.1.ffn_gate_inp.scale", -7, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a gemma4" },
    { "a norm of a router of another width", GEMMA4_MOE, "blk.1.ffn_gate_inp.scale", 4, 8, "\4\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "blk.1.ffn_gate_inp.scale: expected shape [32], file has F32 [4]" },
    { "the second of several streams", GEMMA3N, "gemma3n.altup.active_idx", 4, 4, "\1\0\0\0", PLUMB_ERROR_UNSUPPORTED,
      "is 1, expected 0" },
    { "no streams", GEMMA3N, "gemma3n.altup.num_inputs", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA,
      "is 0, expected 1 to 64" },
    { "one stream", GEMMA3N, "gemma3n.altup.num_inputs", 4, 4, "\1\0\0\0", PLUMB_ERROR_METADATA,
      "is 1, expected at least 2" },
    { "4 G streams", GEMMA3N, "gemma3n.altup.num_inputs", 4, 4, "\377\377\377\377", PLUMB_ERROR_METADATA,
      "is 4294967295, expected 1 to 64" },
    { "one stream less", GEMMA3N, "gemma3n.altup.num_inputs", 4, 4, "\3\0\0\0", PLUMB_ERROR_TENSOR,
      "altup_proj.weight: expected shape [32, 32, 2], file has Q8_0 [32, 32, 3]" },
    { "coefficients of fewer streams", GEMMA3N, "blk.1.altup_predict_coef.weight", 12, 8, "\10\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "expected shape [4, 16], file has F32 [4, 8]" },
    { "a path beside attention of other columns", GEMMA3N, "blk.1.laurel_l.weight", 12, 8, "\20\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "expected shape [32, 256], file has Q8_0 [32, 16]" },
    { "no path beside attention", GEMMA3N, "blk.1.laurel_r.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a gemma3n" },
    { "streams, and no embeddings for each layer", GEMMA3N, "gemma3n.embedding_length_per_layer_input", 4, 4,
      "\0\0\0\0", PLUMB_ERROR_METADATA, "is 0, expected at least 1" },
    { "a sparsity that is NaN", GEMMA3N, "gemma3n.activation_sparsity_scale", 16, 4, "\0\0\300\177",
      PLUMB_ERROR_METADATA, "is missing, or nan for layer 0" },
    { "blocks that are computed 0 times", LOOPS, "nanbeige.num_loops", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA,
      "is 0, expected 1 to 512" },
    { "blocks that make too many layers", LOOPS, "nanbeige.num_loops", 4, 4, "\1\1\0\0", PLUMB_ERROR_METADATA,
      "is 257, but 257 times 2 blocks are more than 512 layers" },
    { "a block that is only a layer", LOOPS, "blk.1.attn_q.weight", -15, 1, "2", PLUMB_ERROR_UNSUPPORTED,
      "\"blk.2.attn_q.weight\" is not used" },
    { "stacks without layers", STATES, "hrm_text.hrm.layers_per_stack", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA,
      "is 0, expected 1 to 512" },
    { "stacks that do not make the layers", STATES, "hrm_text.hrm.h_cycles", 4, 4, "\3\0\0\0", PLUMB_ERROR_METADATA,
      "is 2, but 3 times 3 stacks of that are not the 12 layers" },
    { "4 G cycles", STATES, "hrm_text.hrm.l_cycles", 4, 4, "\377\377\377\377", PLUMB_ERROR_METADATA,
      "is 4294967295, expected 1 to 512" },
    { "more layers than blocks that are repeated can make", STATES, "hrm_text.block_count", 4, 4, "\1\2\0\0",
      PLUMB_ERROR_METADATA, "block_count is 513, but the file has only 239 tensors" },
    { "no first state", STATES, "hrm.z_l_init", -4, 1, "x", PLUMB_ERROR_UNSUPPORTED, "is not used by a hrm_text" },
    { "a first state of another width", STATES, "hrm.z_l_init", 4, 8, "\10\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "expected shape [32], file has F32 [8]" },
    { "groups that do not divide the experts", ADJUGATES, "grovemoe.experts_per_group", 4, 4, "\3\0\0\0",
      PLUMB_ERROR_METADATA, "is 3, expected a divisor of the 4 experts" },
    { "fewer adjugates than experts that are used", ADJUGATES, "grovemoe.experts_per_group", 4, 4, "\4\0\0\0",
      PLUMB_ERROR_METADATA, "is 4, expected a divisor of the 4 experts that makes at least 2 groups" },
    { "adjugates that are too wide", ADJUGATES, "grovemoe.expert_chunk_feed_forward_length", 4, 4, "\377\377\377\377",
      PLUMB_ERROR_METADATA, "is 4294967295, expected at most" },
    { "a scale of adjugates that is NaN", ADJUGATES, "grovemoe.expert_group_scale", 4, 4, "\0\0\300\177",
      PLUMB_ERROR_METADATA, "grovemoe.expert_group_scale is nan" },
    { "no adjugate", ADJUGATES, "blk.1.ffn_up_chexps.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED, "is not used by" },
    { "one adjugate less", ADJUGATES, "blk.1.ffn_up_chexps.weight", 20, 8, "\1\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.1.ffn_up_chexps.weight: expected shape [32, 32, 2], file has Q8_0 [32, 32, 1]" },
    { "no norm before the experts", "tests/vectors/archs/arctic.gguf", "blk.0.ffn_norm_exps.weight", -8, 1, "x",
      PLUMB_ERROR_UNSUPPORTED, "is not used by a arctic" },
    { "factors of fewer heads", "tests/vectors/archs/talkie.gguf", "blk.0.attn_q_norm.weight", 12, 8,
      "\3\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR, "blk.0.attn_q_norm.weight: expected shape [1, 4], file has F32 [1, 3]" },
    { "two factors of the embedding", "tests/vectors/archs/talkie.gguf", "blk.0.layer_output_scale.weight", 4, 8,
      "\2\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR, "expected shape [1], file has F32 [2]" },
    { "gates of experts in another shape", FUSED, "blk.1.ffn_gate_up_exps.weight", 12, 8, "\100\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "expected shape [32, 128, 4], file has Q8_0 [32, 64, 4]" },
    { "no gates of experts", FUSED, "blk.1.ffn_gate_up_exps.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "is not used by a hy_v3" },
    { "a limit of NaN", "tests/vectors/archs/step35.gguf", "step35.swiglu_clamp_exp", 16, 4, "\0\0\300\177",
      PLUMB_ERROR_METADATA, "key step35.swiglu_clamp_exp is missing, or nan for layer 0" },
    { "a limit of other networks of infinity", "tests/vectors/archs/step35.gguf", "step35.swiglu_clamp_shexp", 20, 4,
      "\0\0\200\177", PLUMB_ERROR_METADATA, "key step35.swiglu_clamp_shexp is missing, or inf for layer 1" },
    { "fewer tokens than rows of logits", "tests/vectors/archs/qwen3tts.gguf", "qwen3tts.vocab_size", 4, 4,
      "\100\0\0\0", PLUMB_ERROR_METADATA, "the vocabulary has 64 tokens, fewer than the 3072 rows" },
    { "half of YaRN", "tests/vectors/archs/grok.gguf", "grok.rope.scaling.yarn_ext_factor", 4, 4, "\0\0\0\77",
      PLUMB_ERROR_UNSUPPORTED, "is 0.5, expected 0 or 1" },
    { "no buckets in the encoder", T5_WHOLE, "enc.blk.0.attn_rel_b.weight", -16, 1, "7", PLUMB_ERROR_TENSOR,
      "tensor enc.blk.0.attn_rel_b.weight is missing" },
    { "no buckets in the decoder", T5_WHOLE, "dec.blk.0.attn_rel_b.weight", -16, 1, "1", PLUMB_ERROR_TENSOR,
      "tensor dec.blk.0.attn_rel_b.weight is missing" },
    { "no Q of cross attention", T5_WHOLE, "dec.blk.1.cross_attn_q.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "\"dec.blk.1.cross_attn_x.weight\" is not used" },
    { "K of cross attention in another shape", T5_WHOLE, "dec.blk.1.cross_attn_k.weight", 12, 8,
      "\40\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "dec.blk.1.cross_attn_k.weight: expected shape [32, 64], file has Q8_0 [32, 32]" },
    { "a norm of cross attention of another width", T5_WHOLE, "dec.blk.2.cross_attn_norm.weight", 4, 8,
      "\10\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "dec.blk.2.cross_attn_norm.weight: expected shape [32], file has F32 [8]" },
    { "a feed-forward network of cross attention", T5_WHOLE, "dec.blk.1.cross_attn_o.weight", -13, 6, "ffn_up",
      PLUMB_ERROR_UNSUPPORTED, "\"dec.blk.1.cross_ffn_up.weight\" is not used" },
    { "cross attention in the encoder", T5_WHOLE, "dec.blk.1.cross_attn_o.weight", -29, 3, "enc",
      PLUMB_ERROR_UNSUPPORTED, "\"enc.blk.1.cross_attn_o.weight\" is not used" },
    { "a block behind the decoder's", T5_WHOLE, "dec.blk.2.ffn_up.weight", -15, 1, "3", PLUMB_ERROR_UNSUPPORTED,
      "\"dec.blk.3.ffn_up.weight\" is not used by a t5 model of 4 blocks" },
    { "no norm of the encoder's output", T5_WHOLE, "enc.output_norm.weight", -22, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "\"xnc.output_norm.weight\" is not used" },
    { "an odd number of components to rotate in windows", SINKS, "gpt-oss.rope.dimension_count_swa", 4, 4, "\3\0\0\0",
      PLUMB_ERROR_METADATA, "is 3, expected an even number" },
    { "an epsilon that is NaN", TINY, "llama.attention.layer_norm_rms_epsilon", 4, 4, "\0\0\300\177",
      PLUMB_ERROR_METADATA, "layer_norm_rms_epsilon" },
    { "a tensor of another architecture", TINY, "blk.0.attn_q.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "\"blk.0.attn_x.weight\" is not used" },
    { "a tensor of a block that is not there", TINY, "blk.1.attn_q.weight", -15, 1, "7", PLUMB_ERROR_UNSUPPORTED,
      "\"blk.7.attn_q.weight\" is not used" },
    { "a transposed tensor", TINY, "blk.0.ffn_down.weight", 4, 8, "\40\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.0.ffn_down.weight: expected shape [64, 32], file has Q8_0 [32, 32]" },
    { "a norm that is not F32", TINY, "blk.0.ffn_norm.weight", 12, 4, "\1\0\0\0", PLUMB_ERROR_UNSUPPORTED,
      "blk.0.ffn_norm.weight: expected F32, file has F16" },
    { "a rope scaling that is not known", ROPE_LINEAR, "llama.rope.scaling.type", 12, 6, "magica",
      PLUMB_ERROR_UNSUPPORTED, "\"magica\" is not supported" },
    { "a rope scaling factor of 0 is none, of NaN is refused", ROPE_LINEAR, "llama.rope.scaling.factor", 4, 4,
      "\0\0\300\177", PLUMB_ERROR_METADATA, "rope.scaling.factor" },
    { "values of another length than keys", KEY_LENGTH, "llama.attention.value_length", 4, 4, "\10\0\0\0",
      PLUMB_ERROR_TENSOR, "blk.0.attn_v.weight: expected shape" },
    { "an odd number of components to turn", KEY_LENGTH, "llama.rope.dimension_count", 4, 4, "\17\0\0\0",
      PLUMB_ERROR_METADATA, "is 15, expected an even number" },
    { "more components to turn than a head has", KEY_LENGTH, "llama.rope.dimension_count", 4, 4, "\22\0\0\0",
      PLUMB_ERROR_METADATA, "is 18, expected 1 to 16" },
    { "a rope base of -1", ROPE_LINEAR, "llama.rope.freq_base", 4, 4, "\0\0\200\277", PLUMB_ERROR_METADATA,
      "is -1, expected" },
    { "no norm of the heads of Q", QWEN3, "blk.1.attn_q_norm.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "\"blk.1.attn_q_norx.weight\" is not used by a qwen3 model" },
    { "a norm of another length than a head", QWEN3, "blk.0.attn_k_norm.weight", 4, 8, "\10\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "blk.0.attn_k_norm.weight: expected shape [24], file has F32 [8]" },
    { "a norm after attention in qwen3", QWEN3, "general.architecture", 12, 5, "llama", PLUMB_ERROR_METADATA,
      "llama.block_count is missing" },
    { "a window of a negative size", GEMMA3, "gemma3.attention.sliding_window", 0, 8, "\5\0\0\0\377\377\377\377",
      PLUMB_ERROR_METADATA, "gemma3.attention.sliding_window" },
    { "a period of 0", GEMMA3, "gemma3.attention.sliding_window_pattern", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA,
      "gemma3.attention.sliding_window_pattern is 0, expected 1 to 65536" },
    { "a rope base of windows of NaN", GEMMA3, "gemma3.rope.freq_base_swa", 4, 4, "\0\0\300\177",
      PLUMB_ERROR_METADATA, "gemma3.rope.freq_base_swa is nan, expected 1 to 1e12" },
    { "a cap of the logits of -1", GEMMA3, "gemma3.final_logit_softcapping", 4, 4, "\0\0\200\277",
      PLUMB_ERROR_METADATA, "gemma3.final_logit_softcapping is -1, expected" },
    { "no logit_scale", GRANITE, "granite.logit_scale", -1, 1, "x", PLUMB_ERROR_METADATA,
      "granite.logit_scale is missing or 0" },
    { "a logit_scale of 0", GRANITE, "granite.logit_scale", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA,
      "granite.logit_scale is missing or 0" },
    { "a logit_scale of 1e-38", GRANITE, "granite.logit_scale", 4, 4, "\0\0\200\0", PLUMB_ERROR_METADATA,
      "granite.logit_scale is 1.17549e-38, expected" },
    { "an embedding_scale of infinity", GRANITE, "granite.embedding_scale", 4, 4, "\0\0\200\177",
      PLUMB_ERROR_METADATA, "granite.embedding_scale is inf, expected" },
    { "a residual_scale that is NaN", GRANITE, "granite.residual_scale", 4, 4, "\0\0\300\177", PLUMB_ERROR_METADATA,
      "granite.residual_scale" },
    { "an attention.scale of -1", GRANITE, "granite.attention.scale", 4, 4, "\0\0\200\277", PLUMB_ERROR_METADATA,
      "granite.attention.scale is -1, expected" },
    { "an unknown kind of pooling", BERT, "bert.pooling_type", 4, 4, "\5\0\0\0", PLUMB_ERROR_METADATA,
      "bert.pooling_type is 5, expected 0 to 4" },
    { "a kind of pooling that is a text", BERT, "bert.pooling_type", 0, 4, "\10\0\0\0", PLUMB_ERROR_METADATA, "" },
    { "no learned positions", BERT, "position_embd.weight", -13, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "\"positiox_embd.weight\" is not used by a bert model" },
    { "fewer learned positions than the context", BERT, "position_embd.weight", 12, 8, "\77\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "position_embd.weight: expected shape [32, 64], file has Q8_0 [32, 63]" },
    { "a context of 4 G learned positions", BERT, "bert.context_length", 4, 4, "\377\377\377\377", PLUMB_ERROR_TENSOR,
      "position_embd.weight: expected shape [32, 4294967295]" },
    { "no token types", BERT, "tokenizer.ggml.token_type_count", 4, 4, "\0\0\0\0", PLUMB_ERROR_METADATA,
      "tokenizer.ggml.token_type_count is missing or 0" },
    { "4 G token types", BERT, "tokenizer.ggml.token_type_count", 4, 4, "\377\377\377\377", PLUMB_ERROR_TENSOR,
      "token_types.weight: expected shape [32, 4294967295], file has F32 [32, 2]" },
    { "another number of token types", BERT, "token_types.weight", 12, 8, "\1\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "token_types.weight: expected shape [32, 2], file has F32 [32, 1]" },
    { "no norm of the embeddings", BERT, "token_embd_norm.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "\"token_embd_norx.weight\" is not used" },
    { "no norm after the residual", BERT, "blk.1.attn_output_norm.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "\"blk.1.attn_output_norx.weight\" is not used" },
    { "a norm after the layer of another length", BERT, "blk.2.layer_output_norm.weight", 4, 8,
      "\37\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.2.layer_output_norm.weight: expected shape [32], file has F32 [31]" },
    { "a classifier of fewer classes than labels", BERT, "cls.output.weight", 12, 8, "\2\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "cls.output.weight: expected shape [32, 3], file has Q8_0 [32, 2]" },
    { "more labels than the file has bytes", BERT, "bert.classifier.output_labels", 8, 8,
      "\377\377\377\377\0\0\0\0", PLUMB_ERROR_METADATA, "" },
    { "a classifier of another width", BERT, "cls.weight", 12, 8, "\1\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "cls.weight: expected shape [32, 32], file has Q8_0 [32, 1]" },
    { "more labels than the reranker has classes", RERANKER, "cls.output.weight", 12, 8, "\1\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "cls.output.weight: expected shape [32, 2], file has Q8_0 [32, 1]" },
    { "no norm of a later layer", MODERN, "blk.1.attn_norm.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "\"blk.1.attn_norx.weight\" is not used" },
    { "a negative window", MODERN, "modern-bert.attention.sliding_window", 0, 8, "\5\0\0\0\377\377\377\377",
      PLUMB_ERROR_METADATA, "modern-bert.attention.sliding_window" },
    { "a norm of the classifier that is transposed", MODERN, "cls.norm.weight", 4, 8, "\1\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "cls.norm.weight: expected shape [32], file has F32 [1]" },
    { "experts in no layer", NOMIC, "nomic-bert-moe.moe_every_n_layers", 4, 4, "\0\0\0\0", PLUMB_ERROR_UNSUPPORTED,
      "\"blk.1.ffn_gate_inp.weight\" is not used" },
    { "experts in every layer are in none", NOMIC, "nomic-bert-moe.moe_every_n_layers", 4, 4, "\1\0\0\0",
      PLUMB_ERROR_UNSUPPORTED, "\"blk.1.ffn_gate_inp.weight\" is not used" },
    { "experts in every 4294967295th layer", NOMIC, "nomic-bert-moe.moe_every_n_layers", 4, 4, "\377\377\377\377",
      PLUMB_ERROR_UNSUPPORTED, "\"blk.3.ffn_gate_inp.weight\" is not used" },
    { "layers with experts, and no experts", NOMIC, "nomic-bert-moe.expert_count", 4, 4, "\0\0\0\0",
      PLUMB_ERROR_METADATA, "nomic-bert-moe.expert_count is missing or 0" },
    { "fewer matrices than experts", NOMIC, "blk.3.ffn_down_exps.weight", 20, 8, "\3\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "blk.3.ffn_down_exps.weight: expected shape [64, 32, 4], file has Q8_0 [64, 32, 3]" },
    { "up and gate of another width", JINA, "blk.0.ffn_up.weight", 12, 8, "\177\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "blk.0.ffn_up.weight: expected shape [32, 64], file has Q8_0 [32, 127]" },
    { "a norm of Q of a head only", JINA, "blk.0.attn_q_norm.weight", 4, 8, "\10\0\0\0\0\0\0\0", PLUMB_ERROR_TENSOR,
      "blk.0.attn_q_norm.weight: expected shape [32], file has F32 [8]" },
    { "no last norm", NEO, "enc.output_norm.weight", -8, 1, "x", PLUMB_ERROR_UNSUPPORTED,
      "\"enc.output_norx.weight\" is not used" },
    { "no window", GEMMA_EMBEDDING, "gemma-embedding.attention.sliding_window", 4, 4, "\0\0\0\0",
      PLUMB_ERROR_METADATA, "sliding_window is 0, expected 1 to" },
    { "dense layers of 4 G", GEMMA_EMBEDDING, "gemma-embedding.dense_2_feat_out", 4, 4, "\377\377\377\377",
      PLUMB_ERROR_METADATA, "dense_2_feat_out is 4294967295, expected at most" },
    { "dense layers that do not follow each other", GEMMA_EMBEDDING, "gemma-embedding.dense_3_feat_in", 4, 4,
      "\101\0\0\0", PLUMB_ERROR_METADATA, "dense_3_feat_in is 65, but dense_2 has 64 outputs" },
    { "a dense layer of another width", GEMMA_EMBEDDING, "dense_2.weight", 12, 8, "\77\0\0\0\0\0\0\0",
      PLUMB_ERROR_TENSOR, "dense_2.weight: expected shape [32, 64], file has Q8_0 [32, 63]" },
    { "an attention.scale that is a count", GRANITE, "granite.attention.scale", 0, 4, "\4\0\0\0",
      PLUMB_ERROR_METADATA, "granite.attention.scale" },
};

/* The place after the first occurrence of text in the file, NULL if there is none. */
static uint8_t *find(uint8_t *file, size_t n, const char *text) {
    size_t len = strlen(text);
    for (size_t i = 0; i + len <= n; i++) {
        if (memcmp(file + i, text, len) == 0) return file + i + len;
    }
    return NULL;
}

static plumb_status load_bytes(plumb_model *m, const uint8_t *file, size_t n) {
    PLUMB_TRY(plumb_model_begin(m, n));
    PLUMB_TRY(fixture_give(m, file, 0, n, SIZE_MAX));
    return plumb_model_end(m);
}

static void change_row(const void *row) {
    const struct change *c = row;
    size_t n = 0;
    uint8_t *file = test_read_all(c->file, &n);
    REQUIRE(file, "no file");
    uint8_t *at = find(file, n, c->find);
    if (CHECK(at, "%s is not in the file", c->find)) {
        memcpy(at + c->skip, c->bytes, c->n);
        plumb_model *m = plumb_model_create();
        plumb_status status = load_bytes(m, file, n);
        CHECK(status == c->status, "%s: %s", plumb_status_name(status), plumb_model_error(m));
        CHECK(strstr(plumb_model_error(m), c->message), "message: %s", plumb_model_error(m));
        plumb_model_free(m);
    }
    free(file);
}

/* rope_freqs divides angles.  An element becomes 0, NaN, infinity, 1e-5. */
static void rope_factor_case(void) {
    size_t n = 0;
    uint8_t *file = test_read_all(ROPE_FREQS, &n);
    plumb_model *m = plumb_model_create();
    REQUIRE(file && CHECK(load_bytes(m, file, n) == PLUMB_OK, "%s", plumb_model_error(m)), "no file");
    plumb_tensor t = { .name = "" };
    for (uint64_t i = 0; i < plumb_model_n_tensor(m) && strcmp(t.name, "rope_freqs.weight") != 0; i++) {
        plumb_model_tensor(m, i, &t);
    }
    REQUIRE(strcmp(t.name, "rope_freqs.weight") == 0, "no rope_freqs in the file");
    uint64_t offset = t.offset;
    plumb_model_free(m);
    static const uint8_t values[][4] = { { 0, 0, 0, 0 }, { 0, 0, 0xc0, 0x7f }, { 0, 0, 0x80, 0x7f },
                                         { 0xac, 0xc5, 0x27, 0x37 } };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        memcpy(file + offset + 4, values[i], 4);
        m = plumb_model_create();
        CHECK(load_bytes(m, file, n) == PLUMB_ERROR_TENSOR && strstr(plumb_model_error(m), "element 1"), "%s",
              plumb_model_error(m));
        plumb_model_free(m);
    }
    free(file);
}

/* ---- additional keys --------------------------------------------------------------------------------------------- */

/* The file with one more key, and another whose name keeps the tensor data aligned.  record: type and value. */
static uint8_t *with_key(const uint8_t *file, size_t *n, const char *name, const void *record, size_t n_record) {
    size_t len = strlen(name), added = 8 + len + n_record, n_filler = 8 + 4 + 1 + 1;
    while ((added + n_filler) % 32 != 0) n_filler++;
    uint8_t *out = calloc(1, *n + added + n_filler), *p = out + 24;   /* after magic, version, n_tensor, n_key */
    if (!out) return NULL;
    memcpy(out, file, 24);
    out[16] = (uint8_t)(out[16] + 2);
    p[0] = (uint8_t)len;
    memcpy(p + 8, name, len);
    memcpy(p + 8 + len, record, n_record);
    p += added;
    p[0] = (uint8_t)(n_filler - 13);
    memset(p + 8, '.', n_filler - 13);
    memcpy(p + n_filler, file + 24, *n - 24);   /* type u8 and the value are zeros from calloc */
    *n += added + n_filler;
    return out;
}

static void experts_case(void) {
    size_t n = 0;
    uint8_t *file = test_read_all(TINY, &n);
    REQUIRE(file, "no file");
    for (uint8_t n_expert = 0; n_expert < 9; n_expert = (uint8_t)(n_expert + 8)) {
        size_t n_more = n;
        uint8_t *more = with_key(file, &n_more, "llama.expert_count", (uint8_t[8]){ 4, 0, 0, 0, n_expert }, 8);
        plumb_model *m = plumb_model_create();
        plumb_status status = more ? load_bytes(m, more, n_more) : PLUMB_ERROR_MEMORY;
        CHECK(status == (n_expert == 0 ? PLUMB_OK : PLUMB_ERROR_METADATA), "%u experts: %s: %s", n_expert,
              plumb_status_name(status), plumb_model_error(m));
        CHECK(n_expert == 0 || strstr(plumb_model_error(m), "key llama.expert_used_count is missing"), "%s",
              plumb_model_error(m));
        plumb_model_free(m);
        free(more);
    }
    free(file);
}

/* Keys that these files do not have, or in place of theirs. */
static void other_keys_case(void) {
    static const struct {
        const char *file, *key, *record;
        size_t n_record;
        plumb_status status;
        const char *message;
    } rows[] = {
        { MODERN, "modern-bert.hidden_activation", "\10\0\0\0" "\4\0\0\0\0\0\0\0" "relu", 16,
          PLUMB_ERROR_UNSUPPORTED, "key modern-bert.hidden_activation: \"relu\" is not supported" },
        { MODERN, "modern-bert.hidden_activation", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA, "expected string" },
        { MODERN, "modern-bert.attention.sliding_window_pattern", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA,
          "sliding_window_pattern is 0, expected 1 to 65536" },
        { MODERN, "modern-bert.attention.causal", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA, "expected bool" },
        { GEMMA_EMBEDDING, "gemma-embedding.classifier.output_labels", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA,
          "expected an array of string" },
        { GEMMA_EMBEDDING, "gemma-embedding.classifier.output_labels", "\11\0\0\0" "\4\0\0\0" "\1\0\0\0\0\0\0\0"
          "\0\0\0", 20, PLUMB_ERROR_METADATA, "expected an array of string" },
        { HUNYUAN, "hunyuan-dense.rope.scaling.alpha", "\6\0\0\0" "\312\362\111\161", 8,   /* 1e30 */
          PLUMB_ERROR_METADATA, "rope.scaling.alpha is 1e+30, which makes the frequency base 1.9307e+38" },
        { HUNYUAN, "hunyuan-dense.rope.scaling.alpha", "\6\0\0\0" "\140\102\242\015", 8,   /* 1e-30 */
          PLUMB_ERROR_METADATA, "rope.scaling.alpha is 1e-30, which makes the frequency base 5.17947e-31" },
        { TINY, "llama.attention.head_count", "\11\0\0\0" "\4\0\0\0" "\3\0\0\0\0\0\0\0"
          "\4\0\0\0" "\4\0\0\0" "\4\0\0", 28, PLUMB_ERROR_METADATA,
          "key llama.attention.head_count has 3 elements for 2 layers" },
        { TINY, "llama.attention.head_count_kv", "\11\0\0\0" "\4\0\0\0" "\2\0\0\0\0\0\0\0"
          "\2\0\0\0" "\3\0\0", 24, PLUMB_ERROR_METADATA,
          "layer 1 has 4 query heads, which the 3 heads of K and V do not divide" },
        { LFM2, "lfm2.shortconv.l_cache", "\4\0\0\0" "\1\0\0", 8, PLUMB_ERROR_METADATA,
          "key lfm2.shortconv.l_cache is 1, expected at least 2" },
        { QWEN35, "qwen35.ssm.inner_size", "\4\0\0\0" "\41\0\0", 8, PLUMB_ERROR_METADATA, "do not fit together" },
        { QWEN35, "qwen35.ssm.group_count", "\4\0\0\0" "\3\0\0", 8, PLUMB_ERROR_METADATA, "do not fit together" },
        { QWEN35, "qwen35.ssm.state_size", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA, "expected 1 to 4096" },
        { QWEN35, "qwen35.attention.value_length", "\4\0\0\0" "\100\0\0", 8, PLUMB_ERROR_METADATA,
          "value_length is 64, expected 8" },
        { QWEN35, "qwen35.attention.recurrent_layers", "\11\0\0\0" "\4\0\0\0" "\2\0\0\0\0\0\0\0"
          "\1\0\0\0" "\0\0\0", 24, PLUMB_ERROR_METADATA, "recurrent_layers has 2 elements for 3 layers" },
        { QWEN35, "qwen35.attention.head_count_kv", "\11\0\0\0" "\4\0\0\0" "\3\0\0\0\0\0\0\0"
          "\0\0\0\0" "\2\0\0\0" "\0\0\0", 28, PLUMB_OK, "" },   /* recurrent_layers decides */
        { MAMBA2, "mamba2.ssm.inner_size", "\4\0\0\0" "\101\0\0", 8, PLUMB_ERROR_METADATA,
          "4 heads, 2 groups of them, a convolution over 4 tokens and an inner size of 65 do not fit together" },
        { MAMBA2, "mamba2.ssm.inner_size", "\4\0\0\0" "\2\0\0", 8, PLUMB_ERROR_METADATA, "do not fit together" },
        { MAMBA2, "mamba2.ssm.inner_size", "\4\0\0\0" "\377\377\377\377", 8, PLUMB_ERROR_METADATA,
          "inner_size is 4294967295, expected 1 to 16777216" },
        { MAMBA2, "mamba2.ssm.inner_size", "\4\0\0\0" "\0\0\200", 8, PLUMB_ERROR_TENSOR,
          "blk.0.ssm_norm.weight: expected shape [4194304, 2], file has F32 [32, 2]" },
        { MAMBA2, "mamba2.ssm.group_count", "\4\0\0\0" "\3\0\0", 8, PLUMB_ERROR_METADATA, "do not fit together" },
        { MAMBA2, "mamba2.ssm.group_count", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA, "expected 1 to 4096" },
        { MAMBA2, "mamba2.ssm.time_step_rank", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA, "expected 1 to 65536" },
        { MAMBA2, "mamba2.ssm.state_size", "\4\0\0\0" "\0\20\0", 8, PLUMB_ERROR_TENSOR, "blk.0.ssm_in.weight" },
        { MAMBA2, "mamba2.ssm.state_size", "\4\0\0\0" "\1\20\0", 8, PLUMB_ERROR_METADATA, "expected 1 to 4096" },
        { MAMBA2, "mamba2.ssm.conv_kernel", "\4\0\0\0" "\1\0\0", 8, PLUMB_ERROR_METADATA,
          "a convolution over 1 tokens" },
        { MAMBA, "mamba.ssm.time_step_rank", "\4\0\0\0" "\5\0\0", 8, PLUMB_ERROR_TENSOR,
          "blk.0.ssm_x.weight: expected shape [64, 21], file has Q8_0 [64, 20]" },
        { MAMBA, "mamba.ssm.state_size", "\4\0\0\0" "\20\0\0", 8, PLUMB_ERROR_TENSOR,
          "blk.0.ssm_x.weight: expected shape [64, 36], file has Q8_0 [64, 20]" },
        { MAMBA, "mamba.ssm.dt_b_c_rms", "\7\0\0\0" "\1", 5, PLUMB_OK, "" },
        { MAMBA, "mamba.ssm.dt_b_c_rms", "\4\0\0\0" "\1\0\0", 8, PLUMB_ERROR_METADATA, "expected bool" },
        { MAMBA, "mamba.attention.head_count", "\4\0\0\0" "\0\0\0", 8, PLUMB_OK, "" },
        { MAMBA, "mamba.feed_forward_length", "\4\0\0\0" "\0\0\0", 8, PLUMB_OK, "" },
        { FALCON_H1, "falcon-h1.ssm.inner_size", "\4\0\0\0" "\200\0\0", 8, PLUMB_ERROR_TENSOR, "blk.0.ssm_" },
        { PLAMO2, "plamo2.ssm.time_step_rank", "\4\0\0\0" "\3\0\0", 8, PLUMB_ERROR_METADATA,
          "3 heads, 1 groups of them" },
        { NEMOTRON, "nemotron_h.feed_forward_length", "\4\0\0\0" "\100\0\0", 8, PLUMB_ERROR_UNSUPPORTED,
          "is not used by a nemotron_h model" },   /* every layer is a feed-forward network */
        { T5, "t5encoder.attention.relative_buckets_count", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA,
          "relative_buckets_count is 0, expected 1 to 511" },
        { T5, "t5encoder.attention.relative_buckets_count", "\4\0\0\0" "\2\0\0", 8, PLUMB_ERROR_METADATA,
          "relative_buckets_count is 2, expected a multiple of 4" },
        { T5, "t5encoder.attention.relative_buckets_count", "\4\0\0\0" "\0\2\0", 8, PLUMB_ERROR_METADATA,
          "relative_buckets_count is 512, expected 1 to 511" },
        { T5, "t5encoder.attention.relative_buckets_count", "\4\0\0\0" "\40\0\0", 8, PLUMB_ERROR_TENSOR,
          "enc.blk.0.attn_rel_b.weight: expected shape [4, 32], file has F32 [4, 16]" },
        { T5_WHOLE, "t5.decoder_block_count", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA,
          "decoder_block_count is 0, expected 1 to 65536" },
        { T5_WHOLE, "t5.decoder_block_count", "\4\0\0\0" "\377\377\377\377", 8, PLUMB_ERROR_METADATA,
          "decoder_block_count is 4294967295, expected 1 to 65536" },
        { T5_WHOLE, "t5.decoder_block_count", "\4\0\0\0" "\377\377\0", 8, PLUMB_ERROR_METADATA,
          "decoder_block_count is 65535, but the file has only 77 tensors" },
        { T5_WHOLE, "t5.decoder_block_count", "\4\0\0\0" "\2\0\0", 8, PLUMB_ERROR_UNSUPPORTED,
          "\"dec.blk.2.attn_norm.weight\" is not used" },
        { T5_WHOLE, "t5.decoder_block_count", "\4\0\0\0" "\4\0\0", 8, PLUMB_ERROR_TENSOR,
          "tensor dec.blk.3.attn_norm.weight is missing" },
        { T5_WHOLE, "t5.decoder_start_token_id", "\4\0\0\0" "\100\0\0", 8, PLUMB_ERROR_METADATA,
          "decoder_start_token_id is 64, but the vocabulary has 64 tokens" },
        { T5_WHOLE, "t5.decoder_start_token_id", "\4\0\0\0" "\377\377\377\377", 8, PLUMB_OK, "" },   /* none */
        { T5_WHOLE, "t5.decoder_start_token_id", "\10\0\0\0" "\1\0\0\0\0\0\0\0x", 13, PLUMB_ERROR_METADATA,
          "decoder_start_token_id" },
        { T5_WHOLE, "t5.attention.relative_buckets_count", "\4\0\0\0" "\40\0\0", 8, PLUMB_ERROR_TENSOR,
          "enc.blk.0.attn_rel_b.weight: expected shape [4, 32], file has F32 [4, 16]" },
        { T5_WHOLE, "t5.attention.causal", "\7\0\0\0" "\0", 5, PLUMB_OK, "" },   /* its parts say it */
        { LFM2, "lfm2.attention.head_count_kv", "\11\0\0\0" "\4\0\0\0" "\3\0\0\0\0\0\0\0"
          "\0\0\0\0" "\0\0\0\0" "\4\0\0", 28, PLUMB_ERROR_UNSUPPORTED, "blk.0.attn_" },   /* no attention there */
        { KIMI, "kimi-linear.attention.head_count_kv", "\4\0\0\0" "\1\0\0", 8, PLUMB_ERROR_TENSOR,
          "blk.0.attn_q.weight: expected shape [32, 80]" },   /* every layer has latent attention */
        { KIMI, "kimi-linear.attention.head_count_kv", "\11\0\0\0" "\4\0\0\0" "\5\0\0\0\0\0\0\0" "\1\0\0\0"
          "\0\0\0\0" "\0\0\0\0" "\0\0\0\0" "\0\0\0", 36, PLUMB_ERROR_TENSOR, "blk.0.attn_q.weight" },
        { MINIMAX, "minimax-01.full_attention_interval", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA,
          "full_attention_interval is 0, expected 1 to 65536" },
        { MINIMAX, "minimax-01.attention.key_length", "\4\0\0\0" "\20\0\0", 8, PLUMB_ERROR_METADATA,
          "heads of K have 16 elements and those of V 8" },
        { MINIMAX, "minimax-01.block_count", "\4\0\0\0" "\1\0\0", 8, PLUMB_ERROR_METADATA, "in 1 layers" },
        { MINIMAX, "minimax-01.attention.recurrent_layers", "\11\0\0\0" "\4\0\0\0" "\2\0\0\0\0\0\0\0"
          "\1\0\0\0" "\0\0\0", 24, PLUMB_ERROR_METADATA, "recurrent_layers has 2 elements for 5 layers" },
        { MINIMAX, "minimax-01.attention.head_count_kv", "\11\0\0\0" "\4\0\0\0" "\5\0\0\0\0\0\0\0" "\2\0\0\0"
          "\0\0\0\0" "\2\0\0\0" "\2\0\0\0" "\2\0\0", 36, PLUMB_ERROR_METADATA,
          "layer 1 has attention, but no heads" },
        { MINIMAX, "minimax-01.attention.head_count", "\11\0\0\0" "\4\0\0\0" "\5\0\0\0\0\0\0\0" "\4\0\0\0"
          "\4\0\0\0" "\4\0\0\0" "\0\0\0\0" "\4\0\0", 36, PLUMB_ERROR_METADATA,
          "layer 3 has attention, but no heads" },
        { OCR, "deepseek2-ocr.rope.freq_base", "\6\0\0\0" "\0\044\164\111", 8, PLUMB_ERROR_UNSUPPORTED,
          "the base is 1e+06, the positions are multiplied by 1 and the results by 1" },
        { OCR, "deepseek2-ocr.rope.scaling.factor", "\6\0\0\0" "\0\0\200\100", 8, PLUMB_ERROR_UNSUPPORTED,
          "the base is 10000, the positions are multiplied by 0.25" },
        { CHAMELEON, "chameleon.swin_norm", "\4\0\0\0" "\1\0\0", 8, PLUMB_ERROR_METADATA, "expected bool" },
        { CHAMELEON, "chameleon.swin_norm", "\7\0\0\0" "\1", 5, PLUMB_OK, "" },
        { SWITCH, "graniteswitch.adapters.token_ids_activate", "\6\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA,
          "token_ids_activate has 0 elements" },
        { SWITCH, "graniteswitch.adapters.token_ids_activate", "\11\0\0\0" "\6\0\0\0" "\3\0\0\0\0\0\0\0"
          "\0\0\0\0" "\0\0\0\0" "\0\0\0", 28, PLUMB_ERROR_METADATA, "expected an array of bool or of integers" },
        { SWITCH, "graniteswitch.expert_count", "\4\0\0\0" "\4\0\0", 8, PLUMB_ERROR_METADATA, "expert_used_count" },
        { DEEPSEEK2, "deepseek2.attention.kv_lora_rank", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA,
          "expected 1 to 65536" },
        { DEEPSEEK2, "deepseek2.attention.kv_lora_rank", "\4\0\0\0" "\17\0\0", 8, PLUMB_ERROR_METADATA,
          "which is no latent attention with vectors of 15, of which 8 are rotated" },
        { DEEPSEEK2, "deepseek2.attention.key_length_mla", "\4\0\0\0" "\10\0\0", 8, PLUMB_ERROR_METADATA,
          "heads of K have 8 elements, of which RoPE rotates 8" },
        { DEEPSEEK2, "deepseek2.attention.value_length_mla", "\4\0\0\0" "\1\0\1", 8, PLUMB_ERROR_METADATA,
          "those of V have 65537" },
        { DEEPSEEK2, "deepseek2.attention.q_lora_rank", "\4\0\0\0" "\0\0\0", 8, PLUMB_ERROR_METADATA,
          "expected 1 to 65536" },
        { DEEPSEEK2, "deepseek2.attention.head_count_kv", "\4\0\0\0" "\4\0\0", 8, PLUMB_ERROR_METADATA,
          "has 4 heads of K and V of 24 and 16 elements" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = 0;
        uint8_t *file = test_read_all(rows[i].file, &n), *here = file ? find(file, n, rows[i].key) : NULL;
        if (here) here[-1] = '_';
        uint8_t *more = file ? with_key(file, &n, rows[i].key, rows[i].record, rows[i].n_record) : NULL;
        plumb_model *m = plumb_model_create();
        plumb_status status = more ? load_bytes(m, more, n) : PLUMB_ERROR_MEMORY;
        CHECK(status == rows[i].status && strstr(plumb_model_error(m), rows[i].message), "%s: %s: %s", rows[i].key,
              plumb_status_name(status), plumb_model_error(m));
        plumb_model_free(m);
        free(more);
        free(file);
    }
}

/* A model without attention takes no memory for the heads that its keys speak of. */
static void unused_heads_case(void) {
    static const char heads[] = "\11\0\0\0" "\4\0\0\0" "\5\0\0\0\0\0\0\0" "\0\0\1\0" "\0\0\1\0" "\0\0\1\0"
        "\0\0\1\0" "\0\0\1";   /* 65536 in each of five layers */
    uint64_t bytes[2][2] = { { 0, 0 }, { 0, 0 } };
    size_t n = 0, n_more;
    uint8_t *file = test_read_all(MAMBA, &n), *here = file ? find(file, n, "mamba.attention.head_count") : NULL;
    REQUIRE(here, "no key");
    here[-1] = '_';
    n_more = n;
    uint8_t *more = with_key(file, &n_more, "mamba.attention.head_count", heads, sizeof heads);
    for (int k = 0; more && k < 4; k++) {
        plumb_model *m = plumb_model_create();
        plumb_session *s = NULL;
        const plumb_session_params params = { .pass = k % 2 ? PLUMB_PASS_REFERENCE : PLUMB_PASS_FAST };
        bool ok = (k < 2 ? load_bytes(m, file, n) : load_bytes(m, more, n_more)) == PLUMB_OK
               && plumb_session_create(&s, m, &params) == PLUMB_OK;
        CHECK(ok, "%s", plumb_model_error(m));
        if (ok) bytes[k / 2][k % 2] = plumb_session_bytes(s);
        plumb_session_free(s);
        plumb_model_free(m);
    }
    CHECK(bytes[0][0] > 0 && bytes[0][0] == bytes[1][0], "%llu bytes, not %llu", (unsigned long long)bytes[1][0],
          (unsigned long long)bytes[0][0]);
    CHECK(bytes[0][1] > 0 && bytes[0][1] == bytes[1][1], "reference: %llu bytes, not %llu",
          (unsigned long long)bytes[1][1], (unsigned long long)bytes[0][1]);
    free(more);
    free(file);
}

/* Logits after a few tokens, (260) f32. */
static void some_logits(const uint8_t *file, size_t n, float *logits) {
    static const int32_t ids[] = { 5, 77, 3, 200, 11, 42 };
    plumb_model *m = plumb_model_create();
    plumb_session *s = NULL;
    if (CHECK(load_bytes(m, file, n) == PLUMB_OK && plumb_session_create(&s, m, NULL) == PLUMB_OK
              && plumb_model_n_vocab(m) == 260, "%s", plumb_model_error(m))) {
        plumb_session_feed(s, ids, sizeof ids / sizeof *ids);
        memcpy(logits, plumb_session_logits(s), 260 * sizeof *logits);
    }
    plumb_session_free(s);
    plumb_model_free(m);
}

/* The kernel of a convolution may have any type: here F16, with numbers between 0.1 and 0.5. */
static void kernel_type_case(void) {
    static const int32_t ids[] = { 5, 7, 3 };
    size_t n = 0;
    uint8_t *file = test_read_all(LFM2, &n), *here = file ? find(file, n, "blk.1.shortconv.conv.weight") : NULL;
    if (!CHECK(here, "no kernel")) return;
    here[4 + 2 * 8] = 1;   /* the number of F16, behind the number of dimensions and two of them */
    plumb_model *m = plumb_model_create();
    plumb_session *s[2] = { NULL, NULL };
    REQUIRE(load_bytes(m, file, n) == PLUMB_OK, "%s", plumb_model_error(m));
    const struct weight *kernel = m->model->layers[1].w[W_CONV_KERNEL].w;
    uint8_t *codes = (uint8_t *)(uintptr_t)kernel->data;
    for (uint32_t i = 0; i < kernel->n_in * kernel->n_out; i++) {
        codes[2 * i] = (uint8_t)(37 * i);
        codes[2 * i + 1] = (uint8_t)(0x2e + i % 9);
    }
    for (int k = 0; k < 2; k++) {
        const plumb_session_params params = { .pass = k ? PLUMB_PASS_REFERENCE : PLUMB_PASS_FAST };
        CHECK(plumb_session_create(&s[k], m, &params) == PLUMB_OK && plumb_session_feed(s[k], ids, 3) == PLUMB_OK, "%s",
              plumb_model_error(m));
    }
    const float *fast = plumb_session_logits(s[0]), *right = plumb_session_logits(s[1]);
    for (uint32_t i = 0; fast && right && i < plumb_model_n_vocab(m); i++) {
        CHECK(fast[i] - right[i] < 0.05f && right[i] - fast[i] < 0.05f, "logit %u is %g, not %g", i, (double)fast[i],
              (double)right[i]);
    }
    for (int k = 0; k < 2; k++) plumb_session_free(s[k]);
    plumb_model_free(m);
    free(file);
}

/* A key of zeros has no direction, and so nothing is removed from the states: it is no division by 0. */
static void no_removal_case(void) {
    static const int32_t ids[] = { 5, 7, 3 };
    plumb_model *m = fixture_load(RWKV7);
    plumb_session *s[2] = { NULL, NULL };
    REQUIRE(m, "no model");
    for (uint32_t il = 0; il < m->model->plan.n_layer; il++) {
        const struct weight *key = m->model->layers[il].w[W_REMOVAL].w;
        memset((uint8_t *)(uintptr_t)key->data, 0, key->row_bytes);
    }
    for (int k = 0; k < 2; k++) {
        const plumb_session_params params = { .pass = k ? PLUMB_PASS_REFERENCE : PLUMB_PASS_FAST };
        CHECK(plumb_session_create(&s[k], m, &params) == PLUMB_OK && plumb_session_feed(s[k], ids, 3) == PLUMB_OK, "%s",
              plumb_model_error(m));
    }
    const float *fast = plumb_session_logits(s[0]), *right = plumb_session_logits(s[1]);
    for (uint32_t i = 0; fast && right && i < plumb_model_n_vocab(m); i++) {
        CHECK(fast[i] - right[i] < 0.05f && right[i] - fast[i] < 0.05f, "logit %u is %g, not %g", i, (double)fast[i],
              (double)right[i]);
    }
    for (int k = 0; k < 2; k++) plumb_session_free(s[k]);
    plumb_model_free(m);
}

/* llama.cpp reads rope.scale_linear where rope.scaling.factor is missing; "none" turns a factor off. */
static void rope_keys_case(void) {
    size_t n = 0, n_old, n_none;
    uint8_t *file = test_read_all(ROPE_LINEAR, &n);
    float linear[260], plain[260], old[260], none[260];
    REQUIRE(file, "no file");
    n_old = n_none = n;
    some_logits(file, n, linear);
    find(file, n, "llama.rope.scaling.type")[-1] = '_';
    uint8_t *is_none = with_key(file, &n_none, "llama.rope.scaling.type",
                                "\10\0\0\0" "\4\0\0\0\0\0\0\0" "none", 16);
    find(file, n, "llama.rope.scaling.factor")[-1] = '_';
    some_logits(file, n, plain);
    uint8_t *is_old = with_key(file, &n_old, "llama.rope.scale_linear", "\6\0\0\0" "\0\0\200\100", 8);   /* 4.0f */
    if (CHECK(is_none && is_old, "no memory")) {
        some_logits(is_none, n_none, none);
        some_logits(is_old, n_old, old);
        CHECK(memcmp(plain, linear, sizeof plain) != 0, "the factor changes nothing");
        CHECK(memcmp(old, linear, sizeof old) == 0, "rope.scale_linear");
        CHECK(memcmp(none, plain, sizeof none) == 0, "rope.scaling.type none");
    }
    free(is_none);
    free(is_old);
    free(file);
}

/* Each of Granite's factors matters.  0 means no factor, as in llama.cpp; the llama architecture ignores these keys. */
static void scales_case(void) {
    static const char *const names[] = { "granite.embedding_scale", "granite.residual_scale",
                                         "granite.attention.scale" };
    size_t n = 0, n_llama = 0, n_more;
    uint8_t *file = test_read_all(GRANITE, &n), *llama = test_read_all(TINY, &n_llama);
    REQUIRE(file && llama, "no file");
    n_more = n_llama;
    float all[260], zero[260], none[260];
    some_logits(file, n, all);
    for (size_t i = 0; i < 3; i++) {
        uint8_t *value = find(file, n, names[i]) + 4, kept[4];
        memcpy(kept, value, 4);
        memset(value, 0, 4);
        some_logits(file, n, zero);
        value[-5] = '_';   /* the key's name */
        some_logits(file, n, none);
        value[-5] = 'e';
        memcpy(value, kept, 4);
        CHECK(memcmp(all, none, sizeof all) != 0, "%s changes nothing", names[i]);
        CHECK(memcmp(zero, none, sizeof zero) == 0, "%s of 0 is not none", names[i]);
    }
    uint8_t *more = with_key(llama, &n_more, "llama.residual_scale", "\6\0\0\0" "\0\0\0\77", 8);   /* 0.5f */
    if (CHECK(more, "no memory")) {
        some_logits(more, n_more, all);
        some_logits(llama, n_llama, none);
        CHECK(memcmp(all, none, sizeof all) == 0, "llama.residual_scale has an effect");
    }
    free(more);
    free(file);
    free(llama);
}

/* Each number of Gemma's plan changes the logits, and the pattern of windows may also be a list of flags. */
static void windows_case(void) {
    static const struct { const char *key; uint8_t value[4]; } rows[] = {
        { "gemma3.attention.sliding_window", { 6, 0, 0, 0 } },
        { "gemma3.attention.sliding_window", { 0, 0, 0, 0 } },            /* no windows */
        { "gemma3.attention.sliding_window_pattern", { 2, 0, 0, 0 } },
        { "gemma3.rope.freq_base", { 0, 0x40, 0x1c, 0x46 } },             /* 10000 */
        { "gemma3.final_logit_softcapping", { 0, 0, 0xa8, 0x41 } },       /* 21 */
        { "gemma3.final_logit_softcapping", { 0, 0, 0, 0 } },             /* none */
        { "gemma3.attention.layer_norm_rms_epsilon", { 0, 0, 0, 0x3f } }, /* 0.5 */
    };
    size_t n = 0;
    uint8_t *file = test_read_all(GEMMA3, &n);
    REQUIRE(file, "no file");
    float right[260], other[260];
    some_logits(file, n, right);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t *value = find(file, n, rows[i].key) + 4, kept[4];
        memcpy(kept, value, 4);
        memcpy(value, rows[i].value, 4);
        some_logits(file, n, other);
        CHECK(memcmp(right, other, sizeof right) != 0, "%s changes nothing", rows[i].key);
        memcpy(value, kept, 4);
    }
    /* The period of 3 of 4 layers as flags: bool, and the number 1 as i32. */
    static const char pattern[] = "gemma3.attention.sliding_window_pattern";
    static const uint8_t bools[] = { 9, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1 };
    static const uint8_t short_list[] = { 9, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0 };
    static const uint8_t numbers[] = { 9, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
                                       0, 1, 0, 0, 0 };
    static const uint8_t floats[] = { 9, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    static const struct { const uint8_t *record; size_t n; const char *message; } lists[] = {
        { bools, sizeof bools, NULL }, { numbers, sizeof numbers, NULL },
        { short_list, sizeof short_list, "has 3 elements for 4 layers" },
        { floats, sizeof floats, "array of float32, expected an array of bool or of integers" },
    };
    find(file, n, pattern)[-1] = '_';   /* the other key's name */
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        size_t n_more = n;
        uint8_t *more = with_key(file, &n_more, pattern, lists[i].record, lists[i].n);
        plumb_model *m = plumb_model_create();
        plumb_status status = more ? load_bytes(m, more, n_more) : PLUMB_ERROR_MEMORY;
        if (lists[i].message) {
            CHECK(status == PLUMB_ERROR_METADATA && strstr(plumb_model_error(m), lists[i].message), "%s",
                  plumb_model_error(m));
        } else if (CHECK(status == PLUMB_OK, "%s", plumb_model_error(m))) {
            some_logits(more, n_more, other);
            CHECK(memcmp(right, other, sizeof right) == 0, "list %zu is not the period of 3", i);
        }
        plumb_model_free(m);
        free(more);
    }
    free(file);
}

/* In Granite rope.scaling.finetuned says whether there is RoPE. */
static void no_rope_case(void) {
    static const struct { const char *file, *key; bool matters; } rows[] = {
        { GRANITE, "granite.rope.scaling.finetuned", true },
        { TINY, "llama.rope.scaling.finetuned", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float logits[2][260];
        size_t n = 0;
        uint8_t *file = test_read_all(rows[i].file, &n);
        REQUIRE(file, "no file");
        for (uint8_t is_on = 0; is_on < 2; is_on++) {
            size_t n_more = n;
            uint8_t *more = with_key(file, &n_more, rows[i].key, (uint8_t[5]){ 7, 0, 0, 0, is_on }, 5);
            if (CHECK(more, "memory")) some_logits(more, n_more, logits[is_on]);
            free(more);
        }
        bool differs = memcmp(logits[0], logits[1], sizeof logits[0]) != 0;
        CHECK(differs == rows[i].matters, "%s: %s", rows[i].key, differs ? "other logits" : "the same logits");
        free(file);
    }
}

/* The default context is the training context (attention_test.c has the limit).  A batch is not longer than that. */
static void default_context_case(void) {
    static const uint8_t contexts[][4] = { { 50, 0, 0, 0 }, { 0, 8, 0, 0 }, { 0, 16, 0, 0 } };
    static const uint32_t n_ctx[] = { 50, 2048, 4096 }, n_batch[] = { 50, 128, 128 };
    size_t n = 0;
    uint8_t *file = test_read_all(TINY, &n);
    REQUIRE(file, "no file");
    for (size_t i = 0; i < 3; i++) {
        memcpy(find(file, n, "llama.context_length") + 4, contexts[i], 4);
        plumb_model *m = plumb_model_create();
        plumb_session *s = NULL;
        if (CHECK(load_bytes(m, file, n) == PLUMB_OK && plumb_session_create(&s, m, NULL) == PLUMB_OK, "%s",
                  plumb_model_error(m))) {
            CHECK(plumb_session_n_ctx(s) == n_ctx[i] && plumb_session_n_batch(s) == n_batch[i],
                  "%u tokens, batches of %u", plumb_session_n_ctx(s), plumb_session_n_batch(s));
        }
        plumb_session_free(s);
        plumb_model_free(m);
    }
    free(file);
}

/* Loads a changed file and feeds it n ids if it loads: a status or a model, never a crash or a hang.  Counts what
 * happened in *n_loaded and *n_refused, which has the files that were refused with a message. */
static void load_and_feed(const uint8_t *file, size_t n_byte, const int32_t *ids, size_t n, size_t *n_loaded,
                          size_t *n_refused) {
    plumb_model *m = plumb_model_create();
    if (load_bytes(m, file, n_byte) == PLUMB_OK) {
        plumb_session *s = NULL;
        plumb_session_params params = { .n_ctx = 4, .n_thread = 1 };   /* a thread takes longer to start than to run */
        if (plumb_session_create(&s, m, &params) == PLUMB_OK && plumb_session_feed(s, ids, n) != PLUMB_OK) {
            plumb_session_embed(s, ids, &(uint32_t) { (uint32_t)n }, 1, PLUMB_POOLING_MODEL);
        }
        plumb_session_free(s);
        ++*n_loaded;
    } else {
        *n_refused += plumb_model_error(m)[0] != '\0';
    }
    plumb_model_free(m);
}

/* Changes some bytes of the header of a model of each architecture, others in each: all bytes of all of them would take
 * minutes. */
static void flip_row(const void *row) {
    /* Browsers load a model more slowly. */
    enum { STEP = sizeof(size_t) == 4 ? 607 : 61 };
    char path[120];
    size_t n = 0, n_loaded = 0, n_refused = 0;
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", (const char *)row);
    uint8_t *file = test_read_all(path, &n);
    REQUIRE(file, "no file");
    plumb_model *whole = fixture_load(path);
    plumb_tensor first = { .offset = 0 };
    if (whole) plumb_model_tensor(whole, 0, &first);
    plumb_model_free(whole);
    size_t n_change = 0;
    for (size_t i = strlen(row) * 5 % STEP; i < first.offset; i += STEP, n_change++) {
        const uint8_t kept = file[i];
        file[i] ^= i % 2 ? 0x01 : 0xff;
        load_and_feed(file, n, (const int32_t[]) { 1, 2 }, 2, &n_loaded, &n_refused);
        file[i] = kept;
    }
    CHECK(n_change > 2 && n_loaded + n_refused == n_change, "%zu loaded, %zu refused of %zu", n_loaded, n_refused,
          n_change);
    free(file);
}

/* Changes every byte of the header, one at a time, to three values. */
static void flip_case(void) {
    size_t n = 0, n_loaded = 0, n_refused = 0, n_change = 0;
    uint8_t *file = test_read_all(TINY, &n);
    REQUIRE(file, "no file");
    for (size_t i = 0; i + 29064 < n; i++) {   /* the tensor data begins there */
        static const uint8_t xors[] = { 0x01, 0x80, 0xff };
        for (size_t k = 0; k < 3; k++) {
            if (!test_repeats(i + k)) continue;
            n_change++;
            file[i] ^= xors[k];
            load_and_feed(file, n, (const int32_t[]) { 1 }, 1, &n_loaded, &n_refused);
            file[i] ^= xors[k];
        }
    }
    CHECK(n_refused * 100 > n_change && n_loaded * 100 > n_change && n_refused + n_loaded == n_change,
          "%zu refused with a message, %zu loaded of %zu", n_refused, n_loaded, n_change);
    free(file);
}

void test_model(void) {
    TEST_ROWS("model: ", change_row, changes);
    test_case("model: the kernel of a convolution may have another type than F32", kernel_type_case);
    test_case("model: keys of zeros remove nothing from the states of RWKV", no_removal_case);
    test_case("model: rope_freqs of 0, NaN, infinity and 1e-5 are refused", rope_factor_case);
    test_case("model: keys that contradict the file or each other are refused", other_keys_case);
    test_case("model: the heads of layers that do not attend take no memory", unused_heads_case);
    test_case("model: experts need their keys, and an expert count of 0 is accepted", experts_case);
    test_case("model: rope.scale_linear is a RoPE factor, and rope.scaling.type none turns it off", rope_keys_case);
    test_case("model: Granite's factors are applied, but not factors of 0 or of other architectures", scales_case);
    test_case("model: each number of Gemma's plan matters, and windows may be a list of flags", windows_case);
    test_case("model: Granite's key turns RoPE off, and only in Granite", no_rope_case);
    test_case("model: the default context is the training context", default_context_case);
    for (size_t i = 0; plan_architecture(i); i++) {
        char name[100];
        snprintf(name, sizeof name, "model: any byte of the header may change: architecture %s", plan_architecture(i));
        if (test_repeats(i)) test_row(name, flip_row, plan_architecture(i));
    }
    test_case("model: any changed byte of a header gives a status or a model", flip_case);
}
