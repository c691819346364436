/* The table's assembly and the one matrix product that all types share. */
#include "kernels/kernels.h"

#include <stdlib.h>

void kernels_init(struct kernels *k, bool scalar_only) {
    memset(k, 0, sizeof *k);
    kernels_fill_scalar(k);
#if defined(__wasm_simd128__)
    if (!scalar_only) kernels_fill_simd128(k);
#else
    (void)scalar_only;
#endif
}

bool kernels_have(const struct kernels *k, uint32_t type) {
    return type < QUANT_TYPE_COUNT && (k->unpack[type] || k->f32_from_row[type]);
}

/* ---- panels -------------------------------------------------------------------------------------------------- */

plumb_status panel_create(struct panel *p, uint32_t n_max, uint64_t *bytes) {
    memset(p, 0, sizeof *p);
    uint64_t n = ((uint64_t)n_max + 31) / 32 * 32, n_group = act_groups16(n_max);
    bool ok = true;
    for (int r = 0; r < TILE_ROWS; r++) {
        p->codes[r] = alloc_array(n, sizeof *p->codes[r]);
        p->scale[r] = alloc_array(n_group, sizeof *p->scale[r]);
        p->min[r] = alloc_array(n_group, sizeof *p->min[r]);
        ok = ok && p->codes[r] && p->scale[r] && p->min[r];
    }
    for (int r = 0; r < PANEL_ROWS; r++) {
        p->f32[r] = alloc_array(n, sizeof *p->f32[r]);
        ok = ok && p->f32[r];
    }
    p->pairs = alloc_array(n * TILE_ROWS, sizeof *p->pairs);
    p->scales = alloc_array(n_group * TILE_ROWS, sizeof *p->scales);
    if (!ok || !p->pairs || !p->scales) {
        panel_free(p);
        return PLUMB_ERROR_MEMORY;
    }
    *bytes += TILE_ROWS * (2 * n * sizeof *p->pairs + n_group * 3 * sizeof *p->scales)
            + PANEL_ROWS * n * sizeof **p->f32;
    return PLUMB_OK;
}

void panel_free(struct panel *p) {
    for (int r = 0; r < TILE_ROWS; r++) {
        free(p->codes[r]);
        free(p->scale[r]);
        free(p->min[r]);
    }
    for (int r = 0; r < PANEL_ROWS; r++) free(p->f32[r]);
    free(p->pairs);
    free(p->scales);
    memset(p, 0, sizeof *p);
}

/* Zeros behind the last group, up to a multiple of 4: the dot kernels read scales four at a time. */
static void pad_groups(float *values, uint32_t n_group) {
    for (uint32_t g = n_group; g % 4 != 0; g++) values[g] = 0.0f;
}

/* ---- the matrix product ---------------------------------------------------------------------------------------- */

static void quantize(const struct kernels *k, struct activations *a) {
    uint32_t n = a->n, n32 = act_groups32(n), n16 = act_groups16(n);
    for (uint32_t t = 0; t < a->n_token; t++) {
        float *d = a->d + (size_t)t * n32;
        float *sum32 = a->sum32 + (size_t)t * n32, *sum16 = a->sum16 + (size_t)t * n16;
        k->quantize_i16(a->x + (size_t)t * n, a->q + (size_t)t * n, d, sum32, sum16, n);
        pad_groups(d, n / 32);
        pad_groups(sum32, n / 32);
        pad_groups(sum16, n / 16);
    }
    a->quantized = true;
}

/* Unpacks n_row rows of W from row on; past the last row of n_out it is repeated. */
static void unpack_rows(const struct kernels *k, uint32_t type, const uint8_t *w, size_t row_bytes, uint32_t n_out,
                        uint32_t row, uint32_t n_row, struct panel *p) {
    const struct unpack_traits *unpack = k->unpack[type];
    for (uint32_t r = 0; r < n_row; r++) {
        const uint8_t *src = w + (size_t)(row + r < n_out ? row + r : n_out - 1) * row_bytes;
        if (unpack) {
            unpack->row(src, p->codes[r], p->scale[r], p->min[r], p->n);
            pad_groups(p->scale[r], p->n / unpack->group);
            if (unpack->has_min) pad_groups(p->min[r], p->n / unpack->group);
        } else {
            k->f32_from_row[type](src, p->f32[r], p->n);
        }
    }
    if (unpack) {
        p->group = unpack->group;
        p->has_min = unpack->has_min;
    }
}

/* 4 rows of W from row on times every token; the surplus past the last row is dropped. */
static void panel_matmul(const struct kernels *k, uint32_t type, uint32_t n_out, uint32_t row,
                         const struct activations *a, const struct panel *p, float *y) {
    uint32_t n = a->n, n_row = n_out - row < PANEL_ROWS ? n_out - row : PANEL_ROWS;
    uint32_t n32 = act_groups32(n), n16 = act_groups16(n);
    for (uint32_t t = 0; t < a->n_token; t++) {
        float dots[PANEL_ROWS];
        const int16_t *q = a->q + (size_t)t * n;
        const float *d = a->d + (size_t)t * n32;
        if (!k->unpack[type]) k->dot_f32_x4(dots, p, a->x + (size_t)t * n);
        else if (p->group == 32) k->dot_i16_g32(dots, p, q, d, a->sum32 + (size_t)t * n32);
        else k->dot_i16_g16(dots, p, q, d, a->sum16 + (size_t)t * n16);
        memcpy(y + (size_t)t * n_out + row, dots, n_row * sizeof *y);
    }
}

/* 8 rows times every token, of which there are 4 at least: the last tile begins early rather than be cut. */
static void tile_matmul(const struct kernels *k, uint32_t n_out, uint32_t row, const struct activations *a,
                        const struct panel *p, float *y) {
    uint32_t n = a->n, n32 = act_groups32(n), n_sum = p->group == 32 ? n32 : act_groups16(n);
    const float *sum = p->group == 32 ? a->sum32 : a->sum16;
    for (uint32_t next = 0; next < a->n_token; next += TILE_TOKENS) {
        size_t t = next + TILE_TOKENS <= a->n_token ? next : a->n_token - TILE_TOKENS;
        k->tile_i16(y + t * n_out + row, n_out, p, a->q + t * n, a->d + t * n32, n32, sum + t * n_sum, n_sum);
    }
}

void matmul(const struct kernels *k, uint32_t type, const uint8_t *w, size_t row_bytes, uint32_t n_out,
            struct activations *acts, struct panel *scratch, float *y) {
    if (k->unpack[type] && !acts->quantized) quantize(k, acts);
    uint32_t row = 0;
    bool has_tiles = k->unpack[type] && k->tile_i16 && acts->n_token >= TILE_TOKENS;
    scratch->n = acts->n;
    for (; has_tiles && n_out - row >= TILE_ROWS; row += TILE_ROWS) {
        unpack_rows(k, type, w, row_bytes, n_out, row, TILE_ROWS, scratch);
        k->interleave(scratch);
        tile_matmul(k, n_out, row, acts, scratch, y);
    }
    for (; row < n_out; row += PANEL_ROWS) {
        unpack_rows(k, type, w, row_bytes, n_out, row, PANEL_ROWS, scratch);
        panel_matmul(k, type, n_out, row, acts, scratch, y);
    }
}
