// Prints what llama-eval-callback prints, for a model whose vocabulary has no texts.
//   callback MODEL.gguf ID...
#include "common.h"
#include "debug.h"
#include "llama.h"
#include "log.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char ** argv) {
    common_log_set_prefix(common_log_main(), false);
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model_params mp = llama_model_default_params();
    mp.use_extra_bufts = false;
    llama_model * model = llama_model_load_from_file(argv[1], mp);
    common_debug_cb_user_data data;
    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = 64;
    cp.n_threads = cp.n_threads_batch = 1;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    cp.type_k = cp.type_v = GGML_TYPE_F32;
    cp.cb_eval = common_debug_cb_eval;
    cp.cb_eval_user_data = &data;
    llama_context * context = model ? llama_init_from_model(model, cp) : nullptr;
    if (!context) return 1;
    std::vector<llama_token> ids;
    for (int i = 2; i < argc; i++) ids.push_back(atoi(argv[i]));
    printf("number of input tokens = %zu\n", ids.size());
    for (llama_token id : ids) printf("  %d\n", id);
    fflush(stdout);
    int status = llama_decode(context, llama_batch_get_one(ids.data(), (int32_t) ids.size()));
    common_log_pause(common_log_main());   // waits for the thread that prints
    return status;
}
