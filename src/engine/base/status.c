#include "plumb.h"

const char *plumb_status_name(plumb_status status) {
    switch (status) {
    case PLUMB_OK: return "PLUMB_OK";
    case PLUMB_ERROR_ARGUMENT: return "PLUMB_ERROR_ARGUMENT";
    case PLUMB_ERROR_STATE: return "PLUMB_ERROR_STATE";
    case PLUMB_ERROR_MEMORY: return "PLUMB_ERROR_MEMORY";
    case PLUMB_ERROR_IO: return "PLUMB_ERROR_IO";
    case PLUMB_ERROR_MAGIC: return "PLUMB_ERROR_MAGIC";
    case PLUMB_ERROR_VERSION: return "PLUMB_ERROR_VERSION";
    case PLUMB_ERROR_TRUNCATED: return "PLUMB_ERROR_TRUNCATED";
    case PLUMB_ERROR_METADATA: return "PLUMB_ERROR_METADATA";
    case PLUMB_ERROR_TENSOR: return "PLUMB_ERROR_TENSOR";
    case PLUMB_ERROR_UNSUPPORTED: return "PLUMB_ERROR_UNSUPPORTED";
    case PLUMB_ERROR_TOKENIZER: return "PLUMB_ERROR_TOKENIZER";
    case PLUMB_ERROR_TEMPLATE: return "PLUMB_ERROR_TEMPLATE";
    case PLUMB_ERROR_CONTEXT: return "PLUMB_ERROR_CONTEXT";
    case PLUMB_ERROR_TOKEN: return "PLUMB_ERROR_TOKEN";
    }
    return "PLUMB_ERROR";
}
