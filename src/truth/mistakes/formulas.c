#include "mistakes/formulas.h"

void norm_divide(enum norm_form form, double number, double eps, const double *from, const double *x, size_t n,
                 size_t step, double *h) {
    double sum = 0, sum2 = 0, sum_abs = 0, max = 0, count = (double)n, centred2 = 0, by = 1, less = 0;
    size_t some = number < count ? (size_t)number : n, half = n > 1 ? n / 2 : 1;
    size_t first = form == FORM_FIRST, end = form == FORM_LAST ? n - 1 : form == FORM_HALF ? half
                 : form == FORM_FIRST_SOME ? some : form == FORM_LESS_SOME && some < n ? n - some : n;
    for (size_t i = 0; i < n; i++) {
        double z = from[i * step];
        sum += z;
        sum2 += i >= first && i < end ? z * z : 0;
        sum_abs += fabs(z);
        max = fmax(max, fabs(z));
    }
    double mean = sum / count;
    for (size_t i = 0; i < n; i++) centred2 += (from[i * step] - mean) * (from[i * step] - mean);
    switch (form) {
    case FORM_LAYER: by = sqrt(centred2 / count + eps); less = mean; break;
    case FORM_CENTRED: by = sqrt(sum2 / count + eps); less = mean; break;
    case FORM_VARIANCE: by = sqrt(centred2 / count + eps); break;
    case FORM_NO_ROOT: by = sum2 / count + eps; break;
    case FORM_LAYER_NO_ROOT: by = centred2 / count + eps; less = mean; break;
    case FORM_SUM: by = sqrt(sum2 + eps); break;
    case FORM_LAYER_SUM: by = sqrt(centred2 + eps); less = mean; break;
    case FORM_OUTSIDE: by = sqrt(sum2 / count) + eps; break;
    case FORM_LAYER_OUTSIDE: by = sqrt(centred2 / count) + eps; less = mean; break;
    case FORM_SUM_OUTSIDE: by = sqrt(sum2) + eps; break;
    case FORM_LAYER_SUM_OUTSIDE: by = sqrt(centred2) + eps; less = mean; break;
    case FORM_N_1: by = sqrt(sum2 / (count - 1) + eps); break;
    case FORM_LAYER_N_1: by = sqrt(centred2 / (count - 1) + eps); less = mean; break;
    case FORM_HALF: by = sqrt(sum2 / (double)half + eps); break;
    case FORM_ABS: by = sum_abs / count + eps; break;
    case FORM_MAX: by = max + eps; break;
    case FORM_MEAN: by = fabs(mean) + eps; break;
    case FORM_TIMES: by = 1 / sqrt(sum2 / count + eps); break;
    case FORM_SUBTRACT: less = mean; break;
    case FORM_NONE: break;
    default: by = sqrt(sum2 / count + eps); break;
    }
    for (size_t i = 0; i < n; i++) h[i * step] = (x[i * step] - less) / by;
}

size_t cache_place(enum cache_order order, size_t n_slot, size_t n_kv, size_t group, size_t dim, size_t slot, size_t g,
                   size_t e) {
    size_t row = slot * n_kv + g, flat;
    switch (order) {
    case ORDER_ROWS_BY_HEAD: return (g * n_slot + slot) * dim + e;
    case ORDER_ROWS_BY_SLOT: return (row % n_slot * n_kv + row / n_slot) * dim + e;
    case ORDER_ELEMENTS_BY_SLOT:
        flat = slot * dim + e;
        return (flat % n_slot * n_kv + g) * dim + flat / n_slot;
    case ORDER_SLOTS_BY_ELEMENT:
        flat = e * n_slot + slot;
        return (flat / dim * n_kv + g) * dim + flat % dim;
    case ORDER_ELEMENTS_BY_HEAD:
        flat = g * dim + e;
        return (slot * n_kv + flat % n_kv) * dim + flat / n_kv;
    case ORDER_STRIDE_OF_Q: return slot * group < n_slot ? (slot * group * n_kv + g) * dim + e : SIZE_MAX;
    default: return row * dim + e;
    }
}

uint32_t kv_head_by(enum kv_rule rule, uint32_t h, uint32_t n_head, uint32_t n_kv) {
    uint32_t group = n_head / n_kv;
    switch (rule) {
    case KV_MODULO: return h % n_kv;
    case KV_REVERSED: return n_kv - 1 - h / group;
    case KV_NEXT: return (h / group + 1) % n_kv;
    case KV_FIRST: return 0;
    case KV_LAST: return n_kv - 1;
    case KV_EARLY: return (h + 1) / group % n_kv;
    default: return h / group;
    }
}

uint32_t array_place(enum array_order order, uint32_t i, uint32_t n) {
    uint32_t half = n / 2;
    switch (order) {
    case ARRAY_REVERSED: return n - 1 - i;
    case ARRAY_NEXT: return (i + 1) % n;
    case ARRAY_BEFORE: return (i + n - 1) % n;
    case ARRAY_HALVES: return (i + n - half) % n;
    case ARRAY_NEIGHBOURS: return n % 2 == 0 ? i ^ 1 : i;
    case ARRAY_FIRST_TWO: return n > 1 && i < 2 ? 1 - i : i;
    case ARRAY_ENDS: return i == 0 ? n - 1 : i == n - 1 ? 0 : i;
    case ARRAY_EVENS_FIRST: return i < n - half ? 2 * i : 2 * (i - (n - half)) + 1;
    case ARRAY_INTERLEAVED: return i % 2 == 0 ? i / 2 : n - half + i / 2;
    case ARRAY_ALL_FIRST: return 0;
    case ARRAY_ALL_LAST: return n - 1;
    case ARRAY_HALF_TWICE: return half > 0 ? i % half : i;
    case ARRAY_PAIRS_SAME: return i / 2 * 2;
    case ARRAY_ZERO_FIRST: return i == 0 ? UINT32_MAX : i;
    case ARRAY_ZERO_LAST: return i == n - 1 ? UINT32_MAX : i;
    case ARRAY_ZERO_QUARTER: return i >= n - (n / 4 > 0 ? n / 4 : 1) ? UINT32_MAX : i;
    case ARRAY_ZERO_HALF: return i >= n - half ? UINT32_MAX : i;
    case ARRAY_ZERO_FOURTHS: return i % 4 == 3 ? UINT32_MAX : i;
    case ARRAY_ZERO_ODD: return i % 2 == 1 ? UINT32_MAX : i;
    case ARRAY_ZERO_THIRD: return i >= n - n / 3 ? UINT32_MAX : i;
    case ARRAY_ZERO_LAST_8: return i + 8 >= n ? UINT32_MAX : i;
    case ARRAY_ZERO_LAST_16: return i + 16 >= n ? UINT32_MAX : i;
    case ARRAY_ZERO_LAST_32: return i + 32 >= n ? UINT32_MAX : i;
    case ARRAY_ZERO_BLOCKS: return i / 32 % 2 == 1 ? UINT32_MAX : i;
    case ARRAY_NEXT_BLOCK: return (i + 32) % n;
    case ARRAY_BEFORE_BLOCK: return n > 32 ? (i + n - 32) % n : i;
    case ARRAY_FOURTHS_SAME: return i % 4 == 3 ? i - 1 : i;
    case ARRAY_SECOND_HALF: return half > 0 ? n - half + i % half : i;
    default: return i;
    }
}
