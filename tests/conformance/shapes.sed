# Wider shapes than those of ../vectors/archs/shapes.sed, which come first: 6 heads, 3 of K and V, 8 experts of which 3
# are used, windows of 9 tokens, 5 or 6 layers, rows of 96 elements.
s/uint32_t n_embd  = 32;/uint32_t n_embd  = 96;/
s/n_embd = 32;/n_embd = 96;/
s/uint32_t n_head  = 4;/uint32_t n_head  = 6;/
s/n_head = 4;/n_head = 6;/
s/uint32_t n_ff    = 64;/uint32_t n_ff    = 96;/
s/uint32_t n_layer = 3;/uint32_t n_layer = 5;/
s/if (has_scans) n_layer = 5;/if (has_scans) n_layer = 6;/
s/uint32_t(3));$/uint32_t(9));/
s/LLM_KV_EXPERT_COUNT, uint32_t(4)/LLM_KV_EXPERT_COUNT, uint32_t(8)/
s/LLM_KV_EXPERT_USED_COUNT,  *uint32_t(2)/LLM_KV_EXPERT_USED_COUNT, uint32_t(3)/
s/LLM_ARCH_QWEN4EXP ? 32 : 2\*n_embd/LLM_ARCH_QWEN4EXP ? 8 * n_head : 2*n_embd/
s/std::vector<float>({0.3f, 0.0f, 0.4f})/std::vector<float>({0.3f, 0.0f, 0.4f, 0.0f, 0.5f})/
s/std::vector<float>({0.2f, 0.5f, 0.0f})/std::vector<float>({0.2f, 0.5f, 0.0f, 0.1f, 0.0f})/
s/{0.0f, 0.3f, 0.0f, 0.4f, 0.2f}/{0.0f, 0.3f, 0.0f, 0.4f, 0.2f, 0.1f}/
s/{0.5f, 0.2f, 0.3f, 0.0f, 0.4f}/{0.5f, 0.2f, 0.3f, 0.0f, 0.4f, 0.0f}/
