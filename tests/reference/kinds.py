"""What each architecture computes that LLaMA does not, from the papers and llama.cpp v0.5.0's src/models.

Every entry has the defaults of LLAMA unless it says otherwise:

    norm        "rms" or "layer"
    pairing     which elements RoPE rotates together: "neighbours" or "halves"
    act         "silu", "gelu" (its tanh form), "oai" (the clamped SwiGLU of gpt-oss) or "t5" (gelu with a gate, relu
                without)
    parallel    attention and feed forward read the same input, and both are added to it
    ffn_norm    the tensor of the norm before the feed-forward network, if the file has it
    qk_norm     norms of Q and K: over each "head" or the whole "row", if the file has their weights; "bare": over each
                head without weights
    late        these norms come after RoPE
    embedding   embeddings are multiplied by sqrt(n_embd)
    period      every period-th layer has no window, if the file has no pattern of its own
    local       what layers with a window rotate by: "key" (rope.freq_base_swa, unscaled), "same" (as the others),
                "unscaled" (the same base without scaling)
    nope        "windowless": layers without a window are not rotated; a number: every such layer is not; True: none is
    alibi       the slopes of ALiBi end with 2^-alibi; 0: there are none
    gating      how a router's scores become weights: "softmax", "sigmoid" or "softmax_used"; None: the file says it
    sum_to_1    weights are divided by their sum; None: the file says it
    before      an expert's input is multiplied by its weight, not its output
    factor      the key logit_scale is a factor of logits, not a divisor
    gate        attention has a gate for each element: True, or "in_q": its rows follow those of each head of Q
    alone       a layer has no feed-forward network
    output_norm the tensor of the norm after the last layer
    causal      tokens do not see later ones
    latent      attention is latent: "minicpm3", which also has other factors, or "absorbed"
    scores      a factor of scores, if the file has none; None: 1 / sqrt(head_dim)
    attn_scale  .scale tensors of attention are used
    v_norm      V is normalized, without weights
    limits      a layer has limits of its own of up and of the activated gate
    from_norm   outputs are added to the norms that they are computed from, times residual_scale
    mixer_scale .scale tensors are used of what a layer with a state has in place of attention
    ffn_scale   .scale tensors of the feed-forward network are used; "dense": not those of experts
"""
LLAMA = {"norm": "rms", "pairing": "neighbours", "act": "silu", "parallel": False, "ffn_norm": "ffn_norm",
         "qk_norm": "head", "late": False, "embedding": False, "period": 1, "local": "same", "nope": 0, "alibi": 0,
         "gating": "softmax", "sum_to_1": False, "before": False, "factor": False, "gate": False, "causal": True,
         "ffn_scale": False, "latent": False, "from_norm": False, "mixer_scale": True, "alone": False,
         "output_norm": "output_norm", "scores": None, "attn_scale": True, "limits": False,
         "v_norm": False}
HALVES = {"pairing": "halves"}
LAYER = {"norm": "layer", "pairing": "halves", "act": "gelu"}     # GPT-2 and its relatives
DEEPSEEK = {"pairing": "halves", "gating": None, "sum_to_1": None}   # with shared experts and biases of the router
KINDS = {
    "llama": {"sum_to_1": True, "ffn_scale": True}, "granite": {"sum_to_1": True, "ffn_scale": "dense"},
    "mistral3": {"sum_to_1": True, "ffn_scale": True},
    "qwen2": HALVES, "qwen2vl": HALVES, "qwen2moe": HALVES,
    "qwen3": {**HALVES, "ffn_scale": True}, "qwen3moe": {**HALVES, "sum_to_1": True, "ffn_scale": True},
    "gemma2": {**HALVES, "act": "gelu", "embedding": True, "period": 2},
    "gemma3": {**HALVES, "act": "gelu", "embedding": True, "period": 6, "local": "key"},
    "olmo2": {**HALVES, "qk_norm": "row", "period": 4, "local": "unscaled"},
    "olmoe": {**HALVES, "qk_norm": "row"},
    "gpt-oss": {**HALVES, "act": "oai", "ffn_norm": "post_attention_norm", "period": 2, "gating": "softmax_used"},
    "dots1": DEEPSEEK, "bailingmoe2": DEEPSEEK, "glm4moe": {**DEEPSEEK, "ffn_norm": "post_attention_norm"},
    "afmoe": {**DEEPSEEK, "embedding": True, "period": 4, "nope": 4, "gate": True},
    "command-r": {"norm": "layer", "parallel": True, "factor": True},
    "cohere2": {"norm": "layer", "parallel": True, "factor": True, "period": 4, "nope": "windowless",
                "ffn_scale": True},
    "phi2": {**LAYER, "parallel": True}, "gptneox": {**LAYER, "parallel": True},
    "gpt2": {**LAYER, "nope": True}, "bloom": {**LAYER, "nope": True, "alibi": 8},
    "bert": {**LAYER, "nope": True, "causal": False}, "nomic-bert": {**LAYER, "act": "silu", "causal": False},
    "glm4": {}, "smollm3": {"nope": 4}, "hunyuan-dense": {**HALVES, "late": True},
    "minicpm3": {**HALVES, "latent": "minicpm3"},
    "kimi-linear": {"latent": "absorbed", "nope": True, "gating": None, "sum_to_1": True},
    "bailingmoe3": {"latent": "absorbed", "gate": True, "gating": None, "sum_to_1": None, "attn_scale": False,
                    "limits": True},
    "deepseek2-ocr": DEEPSEEK,
    "gemma4": {**HALVES, "act": "gelu", "embedding": True, "local": "key", "scores": 1.0, "v_norm": True},
    "rwkv6": {"norm": "layer", "act": "relu_sqr", "ffn_norm": "attn_norm_2"},
    "rwkv7": {"norm": "layer", "act": "relu_sqr", "ffn_norm": "attn_norm_2"},
    "t5": {"act": "t5", "nope": True, "scores": 1.0},
    "minimax-01": {**HALVES, "sum_to_1": True, "from_norm": True},
    "lfm2": {**HALVES, "output_norm": "token_embd_norm"},
    "mamba": {"alone": True}, "mamba2": {"alone": True},
    "qwen35": {**HALVES, "ffn_norm": "post_attention_norm", "gate": "in_q", "ffn_scale": True},
    "qwen3next": {**HALVES, "ffn_norm": "post_attention_norm", "gate": "in_q", "ffn_scale": True, "mixer_scale": False,
                  "sum_to_1": True},
    "llama4": {"qk_norm": "bare", "late": True, "period": 4, "nope": 4, "gating": "sigmoid", "before": True},
}


def kind_of(arch):
    return {**LLAMA, **KINDS[arch]}
