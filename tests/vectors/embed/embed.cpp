/* Writes what llama.cpp computes for lines of text: their embeddings, or the scores of a reranker.
 *
 *   embed MODEL.gguf TEXTS OUT.json           tokenized as by llama.cpp's server: /v1/embeddings
 *   embed MODEL.gguf TEXTS OUT.json QUERY     by format_prompt_rerank of its tools/server/server-common.cpp, which
 *                                             make.sh cuts out of that file: /v1/rerank
 *
 * OUT.json has one object a line: {"tokens": [...], "vector": [...]}.  The pooling is the file's, and vectors are not
 * normalized.  As in logits.c, only arithmetic may differ from the reference pass: CPU, one thread, no flash attention,
 * f32 K and V, no repacked weights. */
#include <common.h>
#include <llama.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

struct mtmd_context;
struct mtmd_helper_init_opt {};
struct server_tokens : std::vector<llama_token> {
    using std::vector<llama_token>::push_back;
    void push_back(const server_tokens &other) { insert(end(), other.begin(), other.end()); }
};
static server_tokens tokenize_input_subprompt(const llama_vocab *vocab, mtmd_context *, const std::string &text,
                                              bool add_special, bool parse_special, const mtmd_helper_init_opt &) {
    server_tokens result;
    for (llama_token id : common_tokenize(vocab, text, add_special, parse_special)) result.push_back(id);
    return result;
}
#include "format_prompt_rerank.inc"

int main(int argc, char **argv) {
    if (argc < 4) throw std::runtime_error("expected MODEL TEXTS OUT [QUERY]");
    llama_log_set([](ggml_log_level level, const char *text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    llama_model_params mp = llama_model_default_params();
    mp.use_extra_bufts = false;
    llama_model *model = llama_model_load_from_file(argv[1], mp);
    if (!model) throw std::runtime_error("cannot load");
    const llama_vocab *vocab = llama_model_get_vocab(model);
    std::ifstream texts(argv[2]);
    FILE *out = fopen(argv[3], "wb");
    for (std::string text; std::getline(texts, text);) {
        server_tokens ids = argc > 4 ? format_prompt_rerank(model, vocab, nullptr, argv[4], text, {})
            : tokenize_input_subprompt(vocab, nullptr, text, true, true, {});
        llama_context_params cp = llama_context_default_params();
        cp.n_ctx = cp.n_batch = cp.n_ubatch = (uint32_t)ids.size();
        cp.n_threads = cp.n_threads_batch = 1;
        cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        cp.type_k = cp.type_v = GGML_TYPE_F32;
        cp.embeddings = true;
        llama_context *ctx = llama_init_from_model(model, cp);
        llama_batch batch = llama_batch_init((int32_t)ids.size(), 0, 1);
        for (size_t i = 0; i < ids.size(); i++) common_batch_add(batch, ids[i], (llama_pos)i, {0}, true);
        if (!ctx || llama_decode(ctx, batch) != 0) throw std::runtime_error("cannot embed");
        bool ranks = llama_pooling_type(ctx) == LLAMA_POOLING_TYPE_RANK;
        int n = ranks ? (int)llama_model_n_cls_out(model) : llama_model_n_embd_out(model);
        const float *vector = llama_get_embeddings_seq(ctx, 0);
        fprintf(out, "{\"tokens\": [");
        for (size_t i = 0; i < ids.size(); i++) fprintf(out, "%s%d", i > 0 ? ", " : "", ids[i]);
        fprintf(out, "], \"vector\": [");
        for (int i = 0; i < n; i++) fprintf(out, "%s%.9g", i > 0 ? ", " : "", (double)vector[i]);
        fprintf(out, "]}\n");
        llama_batch_free(batch);
        llama_free(ctx);
    }
    return fclose(out);
}
