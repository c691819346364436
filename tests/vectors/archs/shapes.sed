# Other shapes and keys for llama.cpp's tests/test-llama-archs.cpp: several K/V heads, windows shorter than the prompt,
# fewer experts used than there are, pairs that M-RoPE leaves as they are, YaRN, temperature, groups of experts.
s/uint32_t n_vocab = 128;/uint32_t n_vocab = 64;/
s/uint32_t n_embd  = 256;/uint32_t n_embd  = 32;/
s/uint32_t n_head  = 2;/uint32_t n_head  = 4;/
s/uint32_t n_ff    = 384;/uint32_t n_ff    = 64;/
s/uint32_t n_layer = 2;/uint32_t n_layer = 3;/
s/const uint32_t n_ctx = 256;/const uint32_t n_ctx = 64;/
s/n_embd = 160;.*/n_embd = 32;/
s/uint32_t n_head_kv = n_head;/uint32_t n_head_kv = std::stoi(getenv("KV_HEADS"));/
s/n_head_kv = 1; \/\/ MQA.*/;/
s/n_ctx\/8);/uint32_t(3));/
s/LLM_KV_ATTENTION_LAYERNORM_RMS_EPS,  *1e-5f/LLM_KV_ATTENTION_LAYERNORM_RMS_EPS, arch == LLM_ARCH_COHERE2MOE ? 0.0f : 1e-5f/
s/LLM_KV_EXPERT_COUNT,  *uint32_t(2)/LLM_KV_EXPERT_COUNT, uint32_t(4)/
s/LLM_KV_LOGIT_SCALE,  *1.0f/LLM_KV_LOGIT_SCALE, 0.7f/
s/{n_embd_head\/4, n_embd_head\/4, n_embd_head\/4, n_embd_head\/4}/{2, 1, 0, 1}/
s/LLM_KV_INTERLEAVE_MOE_LAYER_STEP,  *uint32_t(2)/LLM_KV_INTERLEAVE_MOE_LAYER_STEP, uint32_t(arch == LLM_ARCH_LLAMA4 || arch == LLM_ARCH_ERNIE4_5_MOE ? 2 : 1)/
s/LLM_KV_EXPERT_GATING_FUNC,  *arch == LLM_ARCH_DEEPSEEK4 ? uint32_t(4) : uint32_t(2)/LLM_KV_EXPERT_GATING_FUNC, uint32_t(2)/
/if (moe) {/i\
    if (arch == LLM_ARCH_OPENAI_MOE || arch == LLM_ARCH_MELLUM || arch == LLM_ARCH_LAGUNA) {\
        ms.add_kv(LLM_KV_ROPE_SCALING_TYPE, "yarn");\
        ms.add_kv(LLM_KV_ROPE_SCALING_FACTOR, 4.0f);\
        ms.add_kv(LLM_KV_ROPE_SCALING_ORIG_CTX_LEN, uint32_t(16));\
        ms.add_kv(LLM_KV_ROPE_SCALING_ATTN_FACTOR, 1.5f);\
    }\
    if (arch == LLM_ARCH_MISTRAL3) {\
        ms.add_kv(LLM_KV_ATTENTION_TEMPERATURE_SCALE, 0.3f);\
        ms.add_kv(LLM_KV_ROPE_SCALING_ORIG_CTX_LEN, uint32_t(3));\
    }\
    if (arch == LLM_ARCH_BAILINGMOE2 || arch == LLM_ARCH_GLM4_MOE) {\
        ms.add_kv(LLM_KV_EXPERT_GROUP_COUNT, uint32_t(2));\
        ms.add_kv(LLM_KV_EXPERT_GROUP_USED_COUNT, uint32_t(1));\
    }\
    if (arch == LLM_ARCH_GROK) {\
        ms.add_kv(LLM_KV_EMBEDDING_SCALE, 3.0f);\
        ms.add_kv(LLM_KV_ATTENTION_OUTPUT_SCALE, 0.2f);\
        ms.add_kv(LLM_KV_ATTN_LOGIT_SOFTCAPPING, 2.0f);\
        ms.add_kv(LLM_KV_FINAL_LOGIT_SOFTCAPPING, 4.0f);\
        ms.add_kv(LLM_KV_ROPE_SCALING_TYPE, "yarn");\
        ms.add_kv(LLM_KV_ROPE_SCALING_FACTOR, 4.0f);\
        ms.add_kv(LLM_KV_ROPE_SCALING_ORIG_CTX_LEN, uint32_t(16));\
    }\
    if (arch == LLM_ARCH_GROVEMOE) ms.add_kv(LLM_KV_EXPERT_CHUNK_FEED_FORWARD_LENGTH, uint32_t(32));\
    if (arch == LLM_ARCH_STEP35) {\
        ms.add_kv(LLM_KV_SWIGLU_CLAMP_EXP, std::vector<float>({0.3f, 0.0f, 0.4f}));\
        ms.add_kv(LLM_KV_SWIGLU_CLAMP_SHEXP, std::vector<float>({0.2f, 0.5f, 0.0f}));\
    }\
    if (arch == LLM_ARCH_DEEPSEEK2 || arch == LLM_ARCH_MISTRAL4) {\
        ms.add_kv(LLM_KV_ROPE_SCALING_TYPE, "yarn");\
        ms.add_kv(LLM_KV_ROPE_SCALING_FACTOR, 4.0f);\
        ms.add_kv(LLM_KV_ROPE_SCALING_ORIG_CTX_LEN, uint32_t(16));\
        ms.add_kv(LLM_KV_ROPE_SCALING_YARN_LOG_MUL, 0.07f);\
    }\
    if (arch == LLM_ARCH_KIMI_LINEAR || arch == LLM_ARCH_BAILINGMOE3) {\
        ms.add_kv(LLM_KV_ATTENTION_HEAD_COUNT, n_head);\
        std::vector<uint32_t> latent(n_layer);\
        for (uint32_t il = 0; il < n_layer; il++) latent[il] = il % 3 == 1;\
        ms.add_kv(LLM_KV_ATTENTION_HEAD_COUNT_KV, latent);\
    }\
    if (arch == LLM_ARCH_MINIMAX_01) ms.add_kv(LLM_KV_ROPE_DIMENSION_COUNT, uint32_t(4));\
    if (arch == LLM_ARCH_MINICPM3) ms.add_kv(LLM_KV_ROPE_DIMENSION_COUNT, uint32_t(4));\
    if (arch == LLM_ARCH_HRM_TEXT) ms.add_kv(LLM_KV_EMBEDDING_SCALE, 2.0f);\
    ms.add_kv(LLM_KV_EXPERT_WEIGHTS_SCALE, 2.5f);\
    ms.add_kv(LLM_KV_EXPERT_WEIGHTS_NORM, arch != LLM_ARCH_DOTS1);
s/LLM_KV_SWIGLU_CLAMP_EXP, 7.0f/LLM_KV_SWIGLU_CLAMP_EXP, 0.2f/
s/n_vocab = 3072;.*/n_vocab = 3104;/
s/n_layer = 8;.*/n_layer = 12;/
s/LLM_KV_HRM_LAYERS_PER_STACK, uint32_t(1)/LLM_KV_HRM_LAYERS_PER_STACK, uint32_t(2)/
s/LLM_KV_HRM_L_CYCLES,  *uint32_t(3)/LLM_KV_HRM_L_CYCLES, uint32_t(2)/
s/LLM_KV_EXPERT_GROUP_SCALE,  *1.0f/LLM_KV_EXPERT_GROUP_SCALE, 0.6f/
s/LLM_KV_EXPERTS_PER_GROUP,  *uint32_t(1)/LLM_KV_EXPERTS_PER_GROUP, uint32_t(2)/
s/LLM_ARCH_QWEN4EXP ? 256 : 2\*n_embd/LLM_ARCH_QWEN4EXP ? 32 : 2*n_embd/
s/n_embd = 128;$/n_embd = 32;/
s/^        n_head = 1;$/        n_head = 4;/
s/n_ff   = 192;/n_ff   = 64;/
s/LLM_KV_ATTENTION_KEY_LENGTH,  *uint32_t(576)/LLM_KV_ATTENTION_KEY_LENGTH, uint32_t(24)/
s/LLM_KV_ATTENTION_VALUE_LENGTH,  *uint32_t(512)/LLM_KV_ATTENTION_VALUE_LENGTH, uint32_t(16)/
s/LLM_KV_ROPE_DIMENSION_COUNT,  *uint32_t(64)/LLM_KV_ROPE_DIMENSION_COUNT, uint32_t(8)/
s/LLM_KV_ATTENTION_KEY_LENGTH_MLA,  *uint32_t(192)/LLM_KV_ATTENTION_KEY_LENGTH_MLA, uint32_t(20)/
s/LLM_KV_ATTENTION_VALUE_LENGTH_MLA,  *uint32_t(128)/LLM_KV_ATTENTION_VALUE_LENGTH_MLA, uint32_t(28)/
s/uint32_t(64) : uint32_t(512)/uint32_t(64) : uint32_t(24)/
s/LLM_KV_ATTENTION_KV_LORA_RANK,  *uint32_t(512)/LLM_KV_ATTENTION_KV_LORA_RANK, uint32_t(16)/
s/LLM_KV_KDA_HEAD_DIM,  *uint32_t(128)/LLM_KV_KDA_HEAD_DIM, uint32_t(8)/
s/LLM_KV_SWIGLU_CLAMP_EXP,  *std::vector<float>({0.0f, 4.0f})/LLM_KV_SWIGLU_CLAMP_EXP, std::vector<float>({0.0f, 0.3f, 0.0f, 0.4f, 0.2f})/
s/LLM_KV_SWIGLU_CLAMP_SHEXP,  *std::vector<float>({0.0f, 5.0f})/LLM_KV_SWIGLU_CLAMP_SHEXP, std::vector<float>({0.5f, 0.2f, 0.3f, 0.0f, 0.4f})/
s/LLM_KV_SSM_STATE_SIZE,  *uint32_t(128)/LLM_KV_SSM_STATE_SIZE, uint32_t(8)/
/uint32_t n_head_kv = /i\
    const bool has_scans = arch == LLM_ARCH_MAMBA || arch == LLM_ARCH_MAMBA2 || arch == LLM_ARCH_JAMBA ||\
        arch == LLM_ARCH_FALCON_H1 || arch == LLM_ARCH_PLAMO2 || arch == LLM_ARCH_GRANITE_HYBRID ||\
        arch == LLM_ARCH_NEMOTRON_H || arch == LLM_ARCH_NEMOTRON_H_MOE || arch == LLM_ARCH_KIMI_LINEAR ||\
        arch == LLM_ARCH_BAILINGMOE3 || arch == LLM_ARCH_MINIMAX_01;\
    if (has_scans) n_layer = 5;
s/il == 1 ? 0 : n_head)/il == 1 || il > 2 ? 0 : n_head)/
s/il <= 1 ? 0 : n_ff)/il == 2 ? n_ff : 0)/
s/case LLM_ARCH_LLAMA_EMBED:/case LLM_ARCH_LLAMA_EMBED: case LLM_ARCH_JAMBA: case LLM_ARCH_GRANITE_HYBRID: case LLM_ARCH_NEMOTRON_H_MOE:/
