/* A second copy of the reader whose allocations fail on demand.  Called by gguf_test.c. */
#include "test.h"

#include <stdlib.h>

static long n_until_failure;   /* how many allocations succeed before one fails */

static bool fails_now(void) { return n_until_failure-- == 0; }
static void *failing_malloc(size_t n) { return fails_now() ? NULL : malloc(n); }
static void *failing_realloc(void *p, size_t n) { return fails_now() ? NULL : realloc(p, n); }
static bool failing_alloc_grow(void *array, size_t n, size_t *cap, size_t size) {
    return !(n == *cap && fails_now()) && alloc_grow(array, n, cap, size);
}
static void *failing_alloc_array(uint64_t n, size_t size) { return fails_now() ? NULL : alloc_array(n, size); }
#define malloc failing_malloc
#define realloc failing_realloc
#define alloc_array failing_alloc_array
#define alloc_grow failing_alloc_grow

/* The program also contains the real reader, so this copy needs other names. */
#define gguf_create failing_gguf_create
#define gguf_free failing_gguf_free
#define gguf_window failing_gguf_window
#define gguf_commit failing_gguf_commit
#define gguf_set_file_size failing_gguf_set_file_size
#define gguf_has_header failing_gguf_has_header
#define gguf_is_complete failing_gguf_is_complete
#define gguf_finish failing_gguf_finish
#define gguf_position failing_gguf_position
#define gguf_version failing_gguf_version
#define gguf_alignment failing_gguf_alignment
#define gguf_data_offset failing_gguf_data_offset
#define gguf_n_key failing_gguf_n_key
#define gguf_key_at failing_gguf_key_at
#define gguf_mark_keys failing_gguf_mark_keys
#define gguf_find_key failing_gguf_find_key
#define gguf_n_tensor failing_gguf_n_tensor
#define gguf_tensor_at failing_gguf_tensor_at
#define gguf_find_tensor failing_gguf_find_tensor
#define gguf_find_in_parts failing_gguf_find_in_parts
#define gguf_name_ends failing_gguf_name_ends
#define gguf_type_name failing_gguf_type_name
#define gguf_type_bytes failing_gguf_type_bytes
#define gguf_set_on_data failing_gguf_set_on_data
#define gguf_header_only failing_gguf_header_only
#include "gguf/gguf.c"

#include "gguf_feed.h"

void gguf_memory(void);
/* Lets each allocation fail in turn, until a run makes fewer allocations.  The sanitizer detects leaks. */
void gguf_memory(void) {
    size_t n;
    uint8_t *file = test_read_all("tests/vectors/gguf/small.gguf", &n);
    REQUIRE(file != NULL, "small.gguf");
    for (int known = 0; known < 2; known++) {
        bool failed = true;
        long k = 0;
        for (; k < 1000 && failed; k++) {
            plumb_status status = PLUMB_ERROR_MEMORY;
            struct feed feed = {.piece = 5000};
            struct error err = {PLUMB_ERROR_MEMORY, "out of memory: the reader"};
            uint64_t size = known ? n : PLUMB_SIZE_UNKNOWN;
            n_until_failure = k;
            struct gguf *g = gguf_create(size);
            if (g != NULL) status = feed_file(g, &feed, size, file, n, &err);
            failed = n_until_failure < 0;
            CHECK(status == (failed ? PLUMB_ERROR_MEMORY : PLUMB_OK), "allocation %ld: %s: %s", k,
                  plumb_status_name(status), err.message);
            CHECK(strstr(err.message, "out of memory: ") != NULL, "allocation %ld: %s", k, err.message);
            gguf_free(g);
        }
        CHECK(k > 10 && k < 1000, "%ld runs", k);
    }
    free(file);
}
