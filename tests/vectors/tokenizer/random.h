/* Random texts for oracle.c and tests/tokenizer_test.c, which must be the same in both: words, numbers and white space
 * of many scripts, marks, special tokens, unassigned code points and broken UTF-8. */
#include <stdint.h>
#include <string.h>

enum { N_RANDOM = 2000, RANDOM_MAX = 2048 };   /* texts, and bytes of one */

static uint32_t random_draw(uint64_t *state, uint32_t n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

static size_t random_put(char *out, uint32_t cp) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3f));
    out[0] = (char)(lead[n] | cp);
    return n;
}

/* Writes a text of at most RANDOM_MAX bytes and returns its length. */
static size_t random_text(uint64_t *state, char *out) {
    static const struct { uint32_t first, last; } scripts[] = {
        {'a', 'z'}, {'a', 'z'}, {'a', 'z'}, {'A', 'Z'}, {'A', 'z'}, {'0', '9'}, {'0', '9'}, {'!', '/'}, {' ', '~'},
        {0xa0, 0xff}, {0x100, 0x24f}, {0x2b0, 0x36f}, {0x370, 0x3ff}, {0x400, 0x52f}, {0x530, 0x6ff}, {0x900, 0x97f},
        {0xe00, 0xe5b}, {0x1000, 0x11ff}, {0x1780, 0x17ff}, {0x1e00, 0x1fff}, {0x2000, 0x206f}, {0x2070, 0x2bff},
        {0x3000, 0x303f}, {0x3040, 0x30ff}, {0x3105, 0x318e}, {0x4e00, 0x4fff}, {0xac00, 0xd7a3}, {0xf900, 0xfaff},
        {0xfb00, 0xfb4f}, {0xfe00, 0xfe6f}, {0xff00, 0xffef}, {0x10400, 0x1047f}, {0x1d400, 0x1d7ff},
        {0x1f300, 0x1faff}, {0x20000, 0x200ff}, {0x2f800, 0x2fa1d}, {0xe000, 0xe010}, {0x80, 0x10ffff},
    };
    static const char *const texts[] = {
        " ", " ", " ", " ", "  ", "   ", "     ", "\n", "\n\n", " \n", "\r\n", "\t", " \t ", "\xc2\xa0",
        "\xe3\x80\x80", "\xe2\x80\xa8", "\x0b\x0c", "'s", "'LL", "'re", " 'm", "'t", "n't", ".", ", ", " !", "?",
        "...", "---", "/", "$", "\xcc\x81", "e\xcc\x81\xcc\xa7", "\xc3\x89", "\xe2\x96\x81", "\xef\xbb\xbf",
        "\xef\xbf\xbd", "\xe2\x80\x8d", "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb", "the", " of", " and", "ing",
        "tion", "12", "2024", "100000", "1234567890", "\xd9\xa3\xd9\xa4", "\xc2\xb2", "\xe2\x85\xa7", "<s>", "</s>",
        "<unk>", "[MASK]", "[UNK]", "[CLS]", "<mask>", "<pad>", "<|im_start|>", "<|endoftext|>", "<bos>", "<dna>",
        "</dna>", "acgtACGTn", "CCCCCC", "<oov>", "<sentinel:12>", "IMGIMGABIZ", "<0x41>", "<extra_id_1>", "<user",
        "Wo\xc3\x9f", "\xc4\xb0",
    };
    size_t n = 0, n_piece = 1 + random_draw(state, 24);
    for (size_t i = 0; i < n_piece; i++) {
        uint32_t which = random_draw(state, 100);
        if (which < 45) {
            const char *text = texts[random_draw(state, sizeof texts / sizeof *texts)];
            memcpy(out + n, text, strlen(text));
            n += strlen(text);
            continue;
        }
        if (which < 47) {   /* bytes, without the lead bytes on which llama.cpp may throw */
            for (uint32_t k = 1 + random_draw(state, 3); k > 0; k--) {
                uint32_t byte = random_draw(state, 256);
                out[n++] = (char)(byte >= 0xf4 && byte <= 0xf7 ? 0xff : byte);
            }
            continue;
        }
        uint32_t script = random_draw(state, sizeof scripts / sizeof *scripts);
        for (uint32_t k = 1 + random_draw(state, 7); k > 0; k--) {
            uint32_t first = scripts[script].first;
            n += random_put(out + n, first + random_draw(state, scripts[script].last - first + 1));
        }
    }
    return n;
}
