/* gguf: files made by the gguf package, files made here byte by byte, and hostile files.  Each is read with and without
 * a known size, all at once, byte by byte and in random pieces. */
#include "test.h"

#include "bytes.h"
#include "gguf_feed.h"

/* The corpus of the fuzz target is replayed here, so that every host sees it. */
#define LLVMFuzzerTestOneInput fuzz_gguf
#include "fuzz/gguf_fuzz.c"
#undef LLVMFuzzerTestOneInput

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- files from a text description --------------------------------------------------------------------------- */

/* Appends what the words of text say, little-endian:
 *   u8:N u16:N u32:N u64:N   numbers, decimal or 0x, negative ones wrap        b:TEXT  the bytes, nothing else
 *   s:TEXT                   a string: length u64 and bytes                    zero:N  N zero bytes
 *   head:T,K                 'GGUF', version 3, T tensors, K keys              run:N   N bytes that differ from others
 *   align:A                  zero bytes up to a multiple of A
 * and the names of value types, each as its u32 (the table is the specification's). */
static void build(struct bytes *b, const char *text) {
    static const char *const types[] = {"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool",
                                        "string", "array", "uint64", "int64", "float64"};
    while (*text != 0) {
        size_t len = strcspn(text, " ");
        const char *colon = memchr(text, ':', len), *argument = colon ? colon + 1 : text;
        size_t argument_len = len - (size_t)(argument - text);
        uint64_t number = *argument == '-' ? (uint64_t)strtoll(argument, NULL, 0) : strtoull(argument, NULL, 0);
        if (memcmp(text, "u8:", 3) == 0) put_number(b, number, 1);
        else if (strncmp(text, "u16:", 4) == 0) put_number(b, number, 2);
        else if (strncmp(text, "u32:", 4) == 0) put_number(b, number, 4);
        else if (strncmp(text, "u64:", 4) == 0) put_number(b, number, 8);
        else if (strncmp(text, "b:", 2) == 0) put(b, argument, argument_len);
        else if (strncmp(text, "s:", 2) == 0) put_string(b, argument, argument_len);
        else if (strncmp(text, "zero:", 5) == 0) while (number-- != 0) put_number(b, 0, 1);
        else if (strncmp(text, "run:", 4) == 0) while (number-- != 0) put_number(b, b->n * 7 + b->n / 251, 1);
        else if (strncmp(text, "align:", 6) == 0) while (b->n % number != 0) put_number(b, 0, 1);
        else if (strncmp(text, "head:", 5) == 0) {
            put(b, "GGUF\3\0\0", 8);
            put_number(b, number, 8);
            put_number(b, strtoull(strchr(argument, ',') + 1, NULL, 0), 8);
        } else {
            uint32_t type = 0;
            while (type < 13 && (strlen(types[type]) != len || memcmp(types[type], text, len) != 0)) type++;
            CHECK(type < 13, "no such word: %.*s", (int)len, text);
            put_number(b, type, 4);
        }
        text += len;
        while (*text == ' ') text++;
    }
}

/* ---- hostile files ------------------------------------------------------------------------------------------ */

struct hostile {
    const char *name;
    const char *file;               /* words for build */
    plumb_status status;
    const char *message;            /* is part of the message */
    /* The same without a known size, if that differs: a file that announces too much is then detected at its end. */
    plumb_status streamed_status;
    const char *streamed_message;
};

/* A size that this host cannot address is out of memory, before the end of the file shows that it was wrong. */
#define BEYOND_32_BITS (SIZE_MAX == UINT32_MAX ? PLUMB_ERROR_MEMORY : PLUMB_ERROR_TRUNCATED)
#define KEY_1 "head:0,1 s:a "
#define TENSOR_1 "head:1,0 s:a "
#define ALIGNMENT "head:0,1 s:general.alignment "
#define SAME PLUMB_OK, NULL
#define PREFIX PLUMB_ERROR_TRUNCATED, "the file ends at byte "

static const struct hostile hostile_rows[] = {
    /* header */
    {"an empty file", "", PREFIX "0, inside header", SAME},
    {"a file cut inside the magic", "b:GGU", PREFIX "3, inside header", SAME},
    {"a bad magic", "b:FUGG u32:3 u64:0 u64:0", PLUMB_ERROR_MAGIC, "header at byte 0: magic \"FUGG\"", SAME},
    {"a bad magic of control bytes", "u32:0x1b0a00ff u32:3", PLUMB_ERROR_MAGIC, "\"\\xff\\x00\\x0a\\x1b\"", SAME},
    {"a Git LFS pointer", "b:version zero:20", PLUMB_ERROR_MAGIC,
     "magic \"vers\" is not \"GGUF\": it is a Git LFS pointer; fetch the file with git lfs pull", SAME},
    {"gzip", "u32:0x00088b1f zero:20", PLUMB_ERROR_MAGIC, "compressed; unpack it", SAME},
    {"zstd", "u32:0xfd2fb528 zero:20", PLUMB_ERROR_MAGIC, "compressed; unpack it", SAME},
    {"xz", "u32:0x587a37fd zero:20", PLUMB_ERROR_MAGIC, "compressed; unpack it", SAME},
    {"bzip2", "b:BZh9 zero:20", PLUMB_ERROR_MAGIC, "compressed; unpack it", SAME},
    {"7-Zip", "u32:0xafbc7a37 zero:20", PLUMB_ERROR_MAGIC, "compressed; unpack it", SAME},
    {"zip", "u32:0x04034b50 zero:20", PLUMB_ERROR_MAGIC, "a zip archive or a PyTorch checkpoint", SAME},
    {"pickle", "u32:0x0a8a0280 zero:20", PLUMB_ERROR_MAGIC, "PyTorch checkpoint; convert", SAME},
    {"safetensors", "u64:30000 b:{ zero:20", PLUMB_ERROR_MAGIC, "safetensors; convert the model to GGUF", SAME},
    {"HDF5", "u32:0x46444889 zero:20", PLUMB_ERROR_MAGIC, "HDF5; convert", SAME},
    {"ggml", "u32:0x67676d6c zero:20", PLUMB_ERROR_MAGIC, "older than GGUF; convert", SAME},
    {"ggjt", "u32:0x67676a74 zero:20", PLUMB_ERROR_MAGIC, "older than GGUF; convert", SAME},
    {"a page", "b:<!DOCTYPE zero:20", PLUMB_ERROR_MAGIC, "it is a web page", SAME},
    {"another page", "b:<html> zero:20", PLUMB_ERROR_MAGIC, "it is a web page", SAME},
    {"JSON", "b:{\"error\" zero:20", PLUMB_ERROR_MAGIC, "it is JSON, perhaps a server's error", SAME},
    {"no such file", "b:Entry zero:20", PLUMB_ERROR_MAGIC, "it is a server's error", SAME},
    {"a lost beginning", "zero:40", PLUMB_ERROR_MAGIC, "begins with zeros; load it again", SAME},
    {"version 0", "b:GGUF u32:0 u64:0 u64:0", PLUMB_ERROR_VERSION,
     "header at byte 4: GGUF version 0 is not supported, expected 2 or 3", SAME},
    {"version 1", "b:GGUF u32:1 u32:0 u32:0", PLUMB_ERROR_VERSION, "GGUF version 1 is not", SAME},
    {"version 4", "b:GGUF u32:4 u64:0 u64:0", PLUMB_ERROR_VERSION, "GGUF version 4 is not", SAME},
    {"a big-endian file", "b:GGUF u32:0x03000000 u64:0", PLUMB_ERROR_VERSION, "big-endian", SAME},
    {"-1 tensors", "head:-1,0", PLUMB_ERROR_TENSOR,
     "header at byte 8: the file has 18446744073709551615 tensors, at most", SAME},
    {"-1 keys", "head:0,-1", PLUMB_ERROR_METADATA, "has 18446744073709551615 keys, at most", SAME},
    {"tensors whose table wraps 64 bits", "head:0x0400000000000001,0", PLUMB_ERROR_TENSOR, "at most", SAME},
    {"keys whose table wraps 32 bits", "head:0,0x10000001", PLUMB_ERROR_METADATA, "has 268435457 keys, at most", SAME},
    {"more tensors than bytes", "head:1000,0 zero:100", PLUMB_ERROR_TRUNCATED,
     "1000 tensors need 33016 bytes, but the file has only 116 more", PLUMB_ERROR_TENSOR, "tensor 0 at byte 24"},
    {"more keys than bytes", "head:0,1000 s:a uint8 u8:1", PLUMB_ERROR_TRUNCATED,
     "1000 keys need 14016 bytes, but the file has only 30 more", PLUMB_ERROR_TRUNCATED,
     "ends at byte 38, inside key 1"},

    /* keys */
    {"a key name of -1 bytes", "head:0,1 u64:-1 zero:20", PLUMB_ERROR_METADATA,
     "key 0 at byte 24: the name has 18446744073709551615 bytes, expected 1 to 65535", SAME},
    {"an empty key name", "head:0,1 u64:0 uint8 zero:9", PLUMB_ERROR_METADATA, "the name has 0 bytes", SAME},
    {"a key name that is too long", "head:0,1 u64:65536 run:65536 uint8 u8:0", PLUMB_ERROR_METADATA,
     "the name has 65536 bytes", SAME},
    {"a key name beyond the bytes", "head:0,1 u64:1000 run:30", PLUMB_ERROR_TRUNCATED,
     "key 0 at byte 24: 1000 bytes of a name need 1008 bytes, but the file has only 38 more",
     PREFIX "62, inside key 0"},
    {"a key name with a zero byte", "head:0,1 u64:3 b:a u8:0 b:b uint8 u8:0", PLUMB_ERROR_METADATA,
     "key 0 \"a\\x00b\" at byte 32: the name contains a zero byte", SAME},
    {"an unknown value type", KEY_1 "u32:13 zero:8", PLUMB_ERROR_METADATA,
     "key 0 \"a\" at byte 33: value type 13 is unknown", SAME},
    {"a negative value type", KEY_1 "u32:-1 zero:8", PLUMB_ERROR_METADATA, "value type 4294967295", SAME},
    {"an unknown element type", KEY_1 "array u32:13 u64:1 zero:8", PLUMB_ERROR_METADATA,
     "key 0 \"a\" at byte 37: value type 13 is unknown", SAME},
    {"a string of -1 bytes", KEY_1 "string u64:-1 zero:8", PLUMB_ERROR_METADATA,
     "key 0 \"a\" at byte 37: string 0 has 18446744073709551615 bytes", SAME},
    {"a string beyond 1 GiB", KEY_1 "string u64:0x40000001", PLUMB_ERROR_METADATA, "string 0 has 1073741825", SAME},
    {"a string beyond the bytes", KEY_1 "string u64:1000 run:999", PLUMB_ERROR_TRUNCATED,
     "1000 bytes of a string need 1008 bytes, but the file has only 1007 more", PREFIX "1044, inside key 0 \"a\""},
    {"a string of 1 GiB in a small file", KEY_1 "string u64:0x40000000 run:200000", PLUMB_ERROR_TRUNCATED,
     "1073741824 bytes of a string", PLUMB_ERROR_METADATA, "extend beyond byte 268435456, the limit for headers"},
    {"an array of -1 numbers", KEY_1 "array uint8 u64:-1", PLUMB_ERROR_METADATA,
     "key 0 \"a\" at byte 37: the array has 18446744073709551615 elements", SAME},
    {"an array whose size wraps 64 bits", KEY_1 "array uint64 u64:0x2000000000000001 zero:8", PLUMB_ERROR_METADATA,
     "the array has 2305843009213693953 elements", SAME},
    {"an array whose size wraps 32 bits", KEY_1 "array uint64 u64:0x20000001 zero:8", PLUMB_ERROR_TRUNCATED,
     "536870913 values need 4294967316 bytes, but the file has only 20 more", PLUMB_ERROR_METADATA,
     "beyond byte 268435456"},
    {"an array of numbers beyond the bytes", KEY_1 "array uint16 u64:50 zero:99", PLUMB_ERROR_TRUNCATED,
     "50 values need 112 bytes, but the file has only 111 more", PREFIX "148, inside key 0"},
    {"an array of 2^30 numbers in a small file", KEY_1 "array uint8 u64:0x40000000 run:200000", PLUMB_ERROR_TRUNCATED,
     "1073741824 values", PLUMB_ERROR_METADATA, "1073741824 values extend beyond byte 268435456"},
    {"a string that ends with the last byte that a header may have", KEY_1 "string u64:0xfffffd3 run:9",
     PLUMB_ERROR_TRUNCATED, "268435411 bytes", PREFIX "54, inside"},
    {"a string that ends one byte behind it", KEY_1 "string u64:0xfffffd4 run:9", PLUMB_ERROR_TRUNCATED,
     "268435412 bytes", PLUMB_ERROR_METADATA, "268435412 bytes of a string extend beyond byte 268435456"},
    {"more tensors than a header holds", "head:8200000,0", PLUMB_ERROR_TRUNCATED, "8200000 tensors",
     PLUMB_ERROR_METADATA, "8200000 tensors extend beyond byte 268435456"},
    {"65537 empty strings", KEY_1 "array string u64:65537 zero:524296", PLUMB_ERROR_METADATA,
     "key 0 \"a\" at byte 524345: the array has more than 65536 empty strings", SAME},
    {"an array of -1 strings", KEY_1 "array string u64:-1", PLUMB_ERROR_METADATA,
     "has 18446744073709551615 elements", SAME},
    {"an array of strings beyond the bytes", KEY_1 "array string u64:4 s:x s:y s:z", PLUMB_ERROR_TRUNCATED,
     "4 strings need 44 bytes, but the file has only 39 more", PREFIX "76, inside key 0"},
    {"an array whose last string is beyond the bytes", KEY_1 "array string u64:2 s:x u64:5 b:four",
     PLUMB_ERROR_TRUNCATED, "5 bytes of a string need 13 bytes, but the file has only 12 more",
     PREFIX "70, inside key 0"},
    {"an array whose second string is too long", KEY_1 "array string u64:2 s:x u64:-2 zero:20", PLUMB_ERROR_METADATA,
     "string 1 has 18446744073709551614 bytes", SAME},
    {"a nested array", KEY_1 "array array u64:1 uint8 u64:1 u8:0", PLUMB_ERROR_METADATA,
     "key 0 \"a\" at byte 37: arrays of arrays", SAME},
    {"a duplicate key", "head:0,3 s:a uint8 u8:1 s:b uint8 u8:1 s:a string s:c", PLUMB_ERROR_METADATA,
     "key 2 has the same name as key 0: \"a\"", SAME},
    {"a bool of 2", KEY_1 "bool u8:2", PLUMB_ERROR_METADATA,
     "key 0 \"a\" at byte 37: bool 0 of 1 is 2, expected 0 or 1", SAME},
    {"a bool of 255 in an array", KEY_1 "array bool u64:3 u8:0 u8:1 u8:255", PLUMB_ERROR_METADATA,
     "bool 2 of 3 is 255", SAME},
    {"an alignment of 0", ALIGNMENT "uint32 u32:0", PLUMB_ERROR_METADATA,
     "key 0 \"general.alignment\" at byte 53: 0 is not a power of two", SAME},
    {"an alignment of 13", ALIGNMENT "uint32 u32:13", PLUMB_ERROR_METADATA, "13 is not a power of two", SAME},
    {"an alignment of 0x80000000", ALIGNMENT "uint32 u32:0x80000000", PLUMB_ERROR_METADATA, "2147483648 is not", SAME},
    {"an alignment of 2^25", ALIGNMENT "uint32 u32:33554432", PLUMB_ERROR_METADATA, "33554432 is not", SAME},
    {"an alignment as uint64", ALIGNMENT "uint64 u64:32", PLUMB_ERROR_METADATA, "expected uint32, found uint64", SAME},
    {"an alignment as int32", ALIGNMENT "int32 u32:32", PLUMB_ERROR_METADATA, "expected uint32, found int32", SAME},
    {"an alignment as string", ALIGNMENT "string s:32", PLUMB_ERROR_METADATA, "expected uint32, found string", SAME},
    {"an alignment as array", ALIGNMENT "array uint32 u64:1 u32:32", PLUMB_ERROR_METADATA,
     "expected uint32, found an array of uint32", SAME},
    {"an alignment as empty array", ALIGNMENT "array uint32 u64:0 zero:2", PLUMB_ERROR_METADATA, "an array", SAME},

    /* tensor directory */
    {"a tensor name of -1 bytes", "head:1,0 u64:-1 zero:30", PLUMB_ERROR_TENSOR,
     "tensor 0 at byte 24: the name has 18446744073709551615 bytes, expected 1 to 64", SAME},
    {"an empty tensor name", "head:1,0 u64:0 u32:1 u64:32 u32:0 zero:12", PLUMB_ERROR_TENSOR, "has 0 bytes", SAME},
    {"a tensor name of 65 bytes", "head:1,0 u64:65 run:100", PLUMB_ERROR_TENSOR, "the name has 65 bytes", SAME},
    {"a tensor name beyond the bytes", "head:1,0 u64:60 run:50", PLUMB_ERROR_TRUNCATED,
     "tensor 0 at byte 24: 60 bytes of a name need 68 bytes, but the file has only 58 more",
     PREFIX "82, inside tensor 0"},
    {"a tensor name with a zero byte", "head:1,0 u64:2 u16:0x61 u32:1 u64:32 u32:0 u64:0 align:32 run:128",
     PLUMB_ERROR_TENSOR, "\"a\\x00\" at byte 32: the name contains a zero byte", SAME},
    {"0 dimensions", TENSOR_1 "u32:0 u32:0 u64:0 zero:30", PLUMB_ERROR_TENSOR,
     "tensor 0 \"a\" at byte 33: the tensor has 0 dimensions, expected 1 to 4", SAME},
    {"5 dimensions", TENSOR_1 "u32:5 u64:1 u64:1 u64:1 u64:1 u64:1 u32:0 u64:0", PLUMB_ERROR_TENSOR,
     "5 dimensions", SAME},
    {"-1 dimensions", TENSOR_1 "u32:-1 zero:30", PLUMB_ERROR_TENSOR, "4294967295 dimensions", SAME},
    {"a dimension of 0", TENSOR_1 "u32:2 u64:32 u64:0 u32:0 u64:0", PLUMB_ERROR_TENSOR,
     "tensor 0 \"a\" at byte 37: dimension 1 is 0", SAME},
    {"a negative dimension", TENSOR_1 "u32:1 u64:-32 u32:0 u64:0", PLUMB_ERROR_TENSOR, "dimension 0 is -32", SAME},
    {"elements that wrap 64 bits", TENSOR_1 "u32:2 u64:0x100000000 u64:0x100000000 u32:0 u64:0", PLUMB_ERROR_TENSOR,
     "shape [4294967296,4294967296,1,1] has 2^63 elements", SAME},
    {"elements that wrap 64 bits to few", TENSOR_1 "u32:2 u64:0x40000000001 u64:0x40000000001 u32:0 u64:0",
     PLUMB_ERROR_TENSOR, "shape [4398046511105,4398046511105,1,1]", SAME},
    {"elements of 2^63", TENSOR_1 "u32:4 u64:0x10000 u64:0x10000 u64:0x10000 u64:0x8000 u32:0 u64:0",
     PLUMB_ERROR_TENSOR, "shape [65536,65536,65536,32768]", SAME},
    {"bytes that wrap 64 bits to 0", TENSOR_1 "u32:2 u64:0x80000000 u64:0x80000000 u32:0 u64:0", PLUMB_ERROR_TENSOR,
     "4611686018427387904 elements of type F32 take 2^63 bytes", SAME},
    {"bytes that wrap 32 bits to few", TENSOR_1 "u32:1 u64:0x40000001 u32:0 u64:0 align:32 zero:32",
     PLUMB_ERROR_TRUNCATED, "tensor \"a\": its 4294967300 bytes end at byte 4294967364, but the file ends at byte 96",
     BEYOND_32_BITS, "4294967300 bytes"},
    {"a removed tensor type", TENSOR_1 "u32:1 u64:32 u32:4 u64:0", PLUMB_ERROR_UNSUPPORTED,
     "tensor 0 \"a\" at byte 37: tensor type 4 is unknown or was removed", SAME},
    {"an unknown tensor type", TENSOR_1 "u32:1 u64:32 u32:999 u64:0", PLUMB_ERROR_UNSUPPORTED, "tensor type 999", SAME},
    {"a negative tensor type", TENSOR_1 "u32:1 u64:32 u32:-1 u64:0", PLUMB_ERROR_UNSUPPORTED, "type 4294967295", SAME},
    {"a tensor type known by name", TENSOR_1 "u32:1 u64:32 u32:9 u64:0", PLUMB_ERROR_UNSUPPORTED,
     "tensor 0 \"a\" at byte 37: tensor type Q8_1 (9) is not supported", SAME},
    {"rows that are no multiple of the block", TENSOR_1 "u32:2 u64:16 u64:2 u32:2 u64:0", PLUMB_ERROR_TENSOR,
     "a row has 16 elements, expected a multiple of 32, the block size of Q4_0", SAME},
    {"rows that are no multiple of a superblock", TENSOR_1 "u32:1 u64:128 u32:16 u64:0", PLUMB_ERROR_TENSOR,
     "a row has 128 elements, expected a multiple of 256, the block size of IQ2_XXS", SAME},
    {"rows that are no multiple of 64", TENSOR_1 "u32:1 u64:32 u32:40 u64:0", PLUMB_ERROR_TENSOR,
     "a row has 32 elements, expected a multiple of 64, the block size of NVFP4", SAME},
    {"an offset of -1", TENSOR_1 "u32:1 u64:32 u32:0 u64:-1", PLUMB_ERROR_TENSOR,
     "offset 18446744073709551615 is not a multiple of the alignment 32", SAME},
    {"an offset that is not aligned", "head:1,1 s:general.alignment uint32 u32:64 s:a u32:1 u64:8 u32:0 u64:32 align:64"
     " run:64", PLUMB_ERROR_TENSOR, "tensor 0 \"a\" at byte 70: offset 32 is not a multiple of the alignment 64", SAME},
    {"an offset that wraps 64 bits", TENSOR_1 "u32:1 u64:32 u32:0 u64:-32 align:32 run:128", PLUMB_ERROR_TENSOR,
     "tensor \"a\": 128 bytes at offset 18446744073709551584 end beyond byte 2^63", SAME},
    {"an offset beyond the file", TENSOR_1 "u32:1 u64:32 u32:0 u64:0x100000000 align:32 run:128",
     PLUMB_ERROR_TRUNCATED, "its 128 bytes end at byte 4294967488, but the file ends at byte 192",
     PLUMB_ERROR_TRUNCATED, "ends at byte 192: tensor \"a\" has 0 of 128 bytes, and 0 more tensors are missing"},
    {"tensors whose sum wraps 64 bits", "head:2,0 s:a u32:1 u64:0x1ffffffffffffff0 u32:0 u64:0 s:b u32:1"
     " u64:0x1ffffffffffffff0 u32:0 u64:0x7fffffffffffffc0 align:32 run:32", PLUMB_ERROR_TENSOR,
     "beyond byte 2^63", SAME},
    {"a tensor of an exabyte", TENSOR_1 "u32:2 u64:0x20000000 u64:0x20000000 u32:0 u64:0 align:32 run:9999",
     PLUMB_ERROR_TRUNCATED, "its 1152921504606846976 bytes", BEYOND_32_BITS, "1152921504606846976 bytes"},
    {"tensors that overlap", "head:2,0 s:a u32:1 u64:16 u32:0 u64:0 s:b u32:1 u64:8 u32:0 u64:32 align:32 run:64",
     PLUMB_ERROR_TENSOR, "tensor \"b\" at offset 32 overlaps tensor \"a\", which ends at offset 64", SAME},
    {"tensors at one place", "head:2,0 s:a u32:1 u64:8 u32:0 u64:0 s:b u32:1 u64:8 u32:0 u64:0 align:32 run:64",
     PLUMB_ERROR_TENSOR, "tensor \"b\" at offset 0 overlaps tensor \"a\"", SAME},
    {"a duplicate tensor name", "head:3,0 s:a u32:1 u64:8 u32:0 u64:0 s:b u32:1 u64:8 u32:0 u64:32"
     " s:a u32:1 u64:8 u32:0 u64:64 align:32 run:96", PLUMB_ERROR_TENSOR,
     "tensor 2 has the same name as tensor 0: \"a\"", SAME},
    {"a directory cut short", TENSOR_1 "u32:4 u64:1 u64:1 u64:1", PREFIX "61, inside tensor 0 \"a\"", SAME},

    /* data */
    {"no data", TENSOR_1 "u32:1 u64:32 u32:0 u64:0", PLUMB_ERROR_TRUNCATED,
     "end at byte 192, but the file ends at byte 57",
     PREFIX "57: tensor \"a\" has 0 of 128 bytes"},
    {"data that is a byte short", "head:2,0 s:b u32:1 u64:8 u32:0 u64:32 s:a u32:1 u64:8 u32:0 u64:0 align:32 run:63",
     PLUMB_ERROR_TRUNCATED, "tensor \"b\": its 32 bytes end at byte 160, but the file ends at byte 159",
     PREFIX "159: tensor \"b\" has 31 of 32 bytes, and 0 more tensors are missing"},
    {"a megabyte that is a byte short", TENSOR_1 "u32:1 u64:0x40000 u32:0 u64:0 align:32 run:1048575",
     PLUMB_ERROR_TRUNCATED, "the file ends at byte 1048639",
     PREFIX "1048639: tensor \"a\" has 1048575 of 1048576 bytes"},
};

static const struct feed ways[] = {{.piece = SIZE_MAX}, {.piece = 1}, {.piece = 3}, {.piece = 0, .random = 77}};
enum { N_WAY = sizeof ways / sizeof ways[0] };

static void hostile_file(const void *p) {
    const struct hostile *row = p;
    struct bytes b = {0};
    build(&b, row->file);
    for (size_t i = 0; i < 2 * N_WAY; i++) {
        bool streamed = i >= N_WAY;
        bool other = streamed && row->streamed_message != NULL;
        plumb_status expected = other ? row->streamed_status : row->status;
        const char *message = other ? row->streamed_message : row->message;
        struct feed feed = ways[i % N_WAY];
        uint64_t size = streamed ? PLUMB_SIZE_UNKNOWN : b.n;
        feed.heap_start = heap_bytes();
        struct gguf *g = gguf_create(size);
        struct error err = {PLUMB_OK, ""}, again;
        if (!CHECK(g != NULL, "no memory")) break;
        plumb_status status = feed_file(g, &feed, size, b.data, b.n, &err);
        CHECK(status == expected && err.status == expected, "way %zu: %s, expected %s: %s", i,
              plumb_status_name(status), plumb_status_name(expected), err.message);
        CHECK(strstr(err.message, message) != NULL, "way %zu: message is: %s", i, err.message);
        CHECK(feed.excess == 0, "way %zu: %" PRIu64 " bytes more than the file justifies", i, feed.excess);
        CHECK(!gguf_is_complete(g), "way %zu: complete", i);
        if (gguf_finish(g, &again) == status && status != PLUMB_ERROR_TRUNCATED) {
            void *window;
            size_t len = 1;
            CHECK(gguf_window(g, &window, &len, &again) == status && len == 0, "a window of %zu after failing", len);
            CHECK(gguf_commit(g, 0, &again) == status, "a commit after failing");
            CHECK(strcmp(err.message, again.message) == 0, "later message is: %s", again.message);
        }
        gguf_free(g);
    }
    free(b.data);
}

/* ---- good files --------------------------------------------------------------------------------------------- */

/* CRC-32 of zip, four bits at a time. */
static uint32_t crc32(uint32_t crc, const void *bytes, uint64_t n) {
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    const uint8_t *b = bytes;
    crc = ~crc;
    for (uint64_t i = 0; i < n; i++) {
        crc = table[(crc ^ b[i]) & 15] ^ crc >> 4;
        crc = table[(crc ^ b[i] >> 4) & 15] ^ crc >> 4;
    }
    return ~crc;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void put_line(struct bytes *b, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    put(b, line, (size_t)n);
}

/* Prints the same listing as tests/vectors/gguf/make.py. */
static void list(struct bytes *b, struct gguf *g, bool data) {
    put_line(b, "gguf %u %u %u\n", gguf_version(g), (unsigned)gguf_alignment(g), (unsigned)gguf_data_offset(g));
    for (uint64_t i = 0; i < gguf_n_key(g); i++) {
        const struct gguf_key *k = gguf_key_at(g, i);
        static const uint8_t sizes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
        uint32_t crc = 0;
        if (k->type != GGUF_STRING) crc = crc32(crc, k->values, k->n * sizes[k->type]);
        for (uint64_t j = 0; k->type == GGUF_STRING && j < k->n; j++) {
            uint8_t length[8];
            for (int m = 0; m < 8; m++) length[m] = (uint8_t)(k->strings[j].n >> 8 * m);
            crc = crc32(crc32(crc, length, 8), k->strings[j].data, k->strings[j].n);
        }
        put_line(b, "key %s %s%s %u %08x\n", k->name.data, gguf_type_name(k->type), k->is_array ? "[]" : "",
                 (unsigned)k->n, (unsigned)crc);
    }
    for (uint64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        put_line(b, "tensor %s %s %u", t->name.data, quant_traits(t->type)->name, (unsigned)t->shape[0]);
        for (uint32_t j = 1; j < t->n_dims; j++) put_line(b, ",%u", (unsigned)t->shape[j]);
        put_line(b, " %u %u", (unsigned)t->offset, (unsigned)t->n_bytes);
        if (data) put_line(b, " %08x", (unsigned)crc32(0, t->data, t->n_bytes));
        put_line(b, "\n");
    }
}

static void check_listing(struct gguf *g, const char *path, bool data) {
    size_t n;
    char *expected = test_read_all(path, &n);
    REQUIRE(expected != NULL, "%s", path);
    struct bytes actual = {0};
    list(&actual, g, data);
    put(&actual, "", 1);
    const char *a = (const char *)actual.data, *e = expected;
    while (*a != 0 || *e != 0) {
        size_t a_len = strcspn(a, "\n"), e_len = strcspn(e, "\n");
        CHECK(a_len == e_len && memcmp(a, e, a_len) == 0, "\"%.*s\", the gguf package says \"%.*s\"", (int)a_len, a,
              (int)e_len, e);
        a += a_len + (a[a_len] == '\n');
        e += e_len + (e[e_len] == '\n');
    }
    free(actual.data);
    free(expected);
}

static void small_file(uint8_t version) {
    size_t n;
    uint8_t *file = test_read_all("tests/vectors/gguf/small.gguf", &n);
    REQUIRE(file != NULL, "small.gguf");
    file[4] = version;
    for (size_t i = 0; i < 2 * N_WAY; i++) {
        struct feed feed = ways[i % N_WAY];
        uint64_t size = i < N_WAY ? n : PLUMB_SIZE_UNKNOWN;
        feed.heap_start = heap_bytes();
        struct gguf *g = gguf_create(size);
        struct error err = {PLUMB_OK, ""};
        if (!CHECK(g != NULL, "no memory")) break;
        plumb_status status = feed_file(g, &feed, size, file, n, &err);
        CHECK(status == PLUMB_OK && gguf_is_complete(g), "way %zu: %s", i, err.message);
        CHECK(gguf_version(g) == version, "version %u", (unsigned)gguf_version(g));
        CHECK(feed.excess == 0, "%" PRIu64 " bytes more than the file justifies", feed.excess);
        if (i == 0 && version == 3) check_listing(g, "tests/vectors/gguf/small.txt", true);
        struct bytes first = {0}, this = {0};
        if (status == PLUMB_OK) {   /* the other ways of reading give the same */
            struct feed whole = {.piece = SIZE_MAX};
            struct gguf *h = gguf_create(n);
            if (CHECK(h != NULL && feed_file(h, &whole, n, file, n, &err) == PLUMB_OK, "%s", err.message)) {
                list(&first, h, true);
                list(&this, g, true);
                CHECK(first.n == this.n && memcmp(first.data, this.data, first.n) == 0, "way %zu differs", i);
            }
            gguf_free(h);
        }
        free(first.data);
        free(this.data);
        gguf_free(g);
    }
    free(file);
}
static void small_v3(void) { small_file(3); }
static void small_v2(void) { small_file(2); }

/* CVE-2024-32878 and similar bugs: at the end of the bytes, what has been read is freed, and nothing else. */
static void every_prefix(void) {
    struct bytes b = {0};
    build(&b, "head:2,5 s:name string s:value s:list array string u64:3 s:x s: s:yz s:numbers array uint16 u64:3 run:6"
              " s:yes bool u8:1 s:none array string u64:0 s:t1 u32:1 u64:8 u32:0 u64:64 s:t2 u32:2 u64:4 u64:2 u32:1"
              " u64:0 align:32 run:96");
    for (size_t n = 0; n <= b.n; n++) {
        for (int known = 0; known < 2; known++) {
            struct feed feed = {.piece = 7};
            struct error err = {PLUMB_OK, ""};
            struct gguf *g = gguf_create(known ? b.n : PLUMB_SIZE_UNKNOWN);
            REQUIRE(g != NULL, "no memory");
            plumb_status status = feed_file(g, &feed, b.n, b.data, n, &err);
            CHECK(status == (n < b.n ? PLUMB_ERROR_TRUNCATED : PLUMB_OK), "%zu of %zu bytes: %s", n, b.n, err.message);
            CHECK(gguf_position(g) == n, "%zu bytes fed, position %" PRIu64, n, gguf_position(g));
            gguf_free(g);
        }
    }
    free(b.data);
}

static void read_words(struct gguf **out, const char *words) {
    struct bytes b = {0};
    struct error err = {PLUMB_OK, ""};
    build(&b, words);
    struct feed feed = {.piece = SIZE_MAX};
    *out = gguf_create(b.n);
    CHECK(*out != NULL && feed_file(*out, &feed, b.n, b.data, b.n, &err) == PLUMB_OK, "%s", err.message);
    free(b.data);
}

static void no_tensors(void) {
    struct gguf *g;
    read_words(&g, "head:0,0");
    CHECK(gguf_is_complete(g) && gguf_n_key(g) == 0 && gguf_n_tensor(g) == 0, "an empty header");
    CHECK(gguf_data_offset(g) == 32 && gguf_alignment(g) == 32, "data at %" PRIu64, gguf_data_offset(g));
    CHECK(gguf_find_key(g, "a") == NULL && gguf_key_at(g, 0) == NULL, "a key");
    CHECK(gguf_find_tensor(g, "a") == NULL && gguf_tensor_at(g, 0) == NULL, "a tensor");
    void *window;
    size_t len = 1;
    struct error err;
    CHECK(gguf_window(g, &window, &len, &err) == PLUMB_OK && len == 0, "a window of %zu", len);
    gguf_free(g);
}

/* The directory lists b, c, a; the file has a, a gap, b, c, and bytes after c. */
static void any_order(void) {
    struct bytes b = {0};
    build(&b, "head:3,0 s:b u32:1 u64:100 u32:0 u64:4096 s:c u32:2 u64:32 u64:3 u32:2 u64:4512 s:a u32:1 u64:1 u32:0"
              " u64:0 align:32");
    size_t data = b.n;
    build(&b, "run:5000");
    for (size_t i = 0; i < N_WAY; i++) {
        struct feed feed = ways[i];
        struct error err = {PLUMB_OK, ""};
        struct gguf *g = gguf_create(PLUMB_SIZE_UNKNOWN);
        size_t taken = 0, len = 1;
        void *window;
        REQUIRE(g != NULL, "no memory");
        REQUIRE(feed_bytes(g, &feed, PLUMB_SIZE_UNKNOWN, b.data, b.n, &taken, &err) == PLUMB_OK, "%s", err.message);
        CHECK(gguf_is_complete(g) && gguf_data_offset(g) == data, "data at %" PRIu64, gguf_data_offset(g));
        CHECK(gguf_window(g, &window, &len, &err) == PLUMB_OK && len == 0, "a window of %zu after the last byte", len);
        CHECK(i == 0 || taken < b.n, "all %zu bytes wanted", taken);
        static const struct { const char *name; size_t offset, n; } rows[] =
            {{"b", 4096, 400}, {"c", 4512, 54}, {"a", 0, 4}};
        for (size_t j = 0; j < 3; j++) {
            struct gguf_tensor *t = gguf_find_tensor(g, rows[j].name);
            REQUIRE(t != NULL && t == gguf_tensor_at(g, j), "tensor %s", rows[j].name);
            REQUIRE(t->n_bytes == rows[j].n && t->n_received == rows[j].n, "%s has %" PRIu64 " of %" PRIu64 " bytes",
                    rows[j].name, t->n_received, t->n_bytes);
            CHECK(memcmp(t->data, b.data + data + rows[j].offset, rows[j].n) == 0, "bytes of %s", rows[j].name);
        }
        gguf_free(g);
    }
    free(b.data);
}

/* The window is the tensor's own memory, and bytes that arrived with the header are moved there. */
static void windows(void) {
    struct bytes b = {0};
    struct error err = {PLUMB_OK, ""};
    build(&b, TENSOR_1 "u32:1 u64:1000 u32:0 u64:0 align:32");
    size_t header = b.n, len, taken;
    void *window;
    build(&b, "run:4000");
    struct gguf *g = gguf_create(b.n);
    REQUIRE(g != NULL, "no memory");
    CHECK(gguf_commit(g, 1, &err) == PLUMB_ERROR_ARGUMENT, "a commit without a window");
    CHECK(strstr(err.message, "1 bytes were committed, but the window has only 0") != NULL, "%s", err.message);
    REQUIRE(gguf_window(g, &window, &len, &err) == PLUMB_OK && len > 0, "%s", err.message);
    CHECK(gguf_commit(g, len + 1, &err) == PLUMB_ERROR_ARGUMENT, "a commit beyond the window");
    CHECK(gguf_position(g) == 0, "position %" PRIu64, gguf_position(g));
    CHECK(gguf_tensor_at(g, 0) == NULL && !gguf_has_header(g), "a tensor before the header");
    struct feed feed = {.piece = SIZE_MAX};
    REQUIRE(feed_bytes(g, &feed, b.n, b.data, header + 10, &taken, &err) == PLUMB_OK, "%s", err.message);
    const struct gguf_tensor *t = gguf_tensor_at(g, 0);
    REQUIRE(t != NULL && t->data != NULL && t->n_received == 10, "10 bytes came with the header");
    REQUIRE(gguf_window(g, &window, &len, &err) == PLUMB_OK, "%s", err.message);
    CHECK(window == t->data + 10 && len == 3990, "a window of %zu", len);
    memcpy(window, b.data + header + 10, 90);
    CHECK(gguf_commit(g, 90, &err) == PLUMB_OK, "%s", err.message);
    CHECK(gguf_commit(g, 1, &err) == PLUMB_ERROR_ARGUMENT, "a second commit to one window");
    CHECK(gguf_finish(g, &err) == PLUMB_ERROR_TRUNCATED, "%s", err.message);
    REQUIRE(feed_bytes(g, &feed, b.n, b.data + header + 100, 3900, &taken, &err) == PLUMB_OK, "%s", err.message);
    CHECK(taken == 3900 && gguf_finish(g, &err) == PLUMB_OK, "%s", err.message);
    CHECK(memcmp(t->data, b.data + header, 4000) == 0, "the tensor's bytes");
    gguf_free(g);

    /* A size that was too small for the file may be raised until the header shows the error. */
    g = gguf_create(5);
    REQUIRE(g != NULL, "no memory");
    CHECK(feed_file(g, &feed, 5, b.data, b.n, &err) == PLUMB_ERROR_TRUNCATED
          && strstr(err.message, "bytes, but the file has only 0 more") != NULL, "%s", err.message);
    gguf_free(g);
    g = gguf_create(50);
    REQUIRE(g != NULL, "no memory");
    CHECK(feed_file(g, &feed, 50, b.data, b.n, &err) == PLUMB_ERROR_TRUNCATED, "%s", err.message);
    gguf_free(g);
    g = gguf_create(50);
    REQUIRE(g != NULL && feed_bytes(g, &feed, 50, b.data, 20, &taken, &err) == PLUMB_OK, "%s", err.message);
    gguf_set_file_size(g, b.n);
    CHECK(feed_file(g, &feed, b.n, b.data + 20, b.n - 20, &err) == PLUMB_OK, "%s", err.message);
    gguf_free(g);
    free(b.data);
}

/* ---- many keys, typed access -------------------------------------------------------------------------------- */

/* Quadratic work on 200000 names would take minutes. */
static void many_names(void) {
    enum { N = 200000, N_KEY = 4096 };
    struct bytes b = {0};
    char name[32];
    put(&b, "GGUF\2\0\0", 8);
    put_number(&b, N, 8);
    put_number(&b, N_KEY, 8);
    for (uint32_t i = 0; i < N_KEY; i++) {
        put_string(&b, name, (size_t)snprintf(name, sizeof name, "key.%u", (unsigned)((uint64_t)i * 7919 % N_KEY)));
        put_number(&b, 4, 4);
        put_number(&b, i, 4);
    }
    for (uint32_t i = 0; i < N; i++) {
        put_string(&b, name, (size_t)snprintf(name, sizeof name, "tensor.%u", (unsigned)((uint64_t)i * 104729 % N)));
        put_number(&b, 1, 4);
        put_number(&b, 1, 8);
        put_number(&b, 0, 4);
        put_number(&b, (uint64_t)(N - 1 - i) * 32, 8);
    }
    build(&b, "align:32");
    struct feed feed = {.piece = 0, .random = 5, .heap_start = heap_bytes()};
    struct error err = {PLUMB_OK, ""};
    struct gguf *g = gguf_create(PLUMB_SIZE_UNKNOWN);
    size_t taken;
    REQUIRE(g != NULL, "no memory");
    REQUIRE(feed_bytes(g, &feed, PLUMB_SIZE_UNKNOWN, b.data, b.n, &taken, &err) == PLUMB_OK, "%s", err.message);
    CHECK(feed.excess == 0, "%" PRIu64 " bytes more than the file justifies", feed.excess);
    CHECK(gguf_n_key(g) == N_KEY && gguf_n_tensor(g) == N, "%" PRIu64 " keys", gguf_n_key(g));
    for (uint32_t i = 0; i < N; i += 997) {
        uint32_t value = UINT32_MAX;
        snprintf(name, sizeof name, "key.%u", (unsigned)((uint64_t)i * 7919 % N_KEY));
        CHECK(i >= N_KEY || (gguf_get_u32(g, name, &value, &err) == PLUMB_OK && value == i), "%s is %u", name,
              (unsigned)value);
        snprintf(name, sizeof name, "tensor.%u", (unsigned)((uint64_t)i * 104729 % N));
        CHECK(gguf_find_tensor(g, name) == gguf_tensor_at(g, i), "%s", name);
    }
    CHECK(gguf_find_key(g, "key.200000") == NULL && gguf_find_key(g, "") == NULL, "a key that is not there");
    gguf_free(g);
    free(b.data);
}

static const char typed_words[] =
    "head:0,24 s:u8 uint8 u8:200 s:i8 int8 u8:100 s:u16 uint16 u16:60000 s:i16 int16 u16:30000 s:u32 uint32 u32:-1"
    " s:i32 int32 u32:7 s:u64 uint64 u64:4294967295 s:i64 int64 u64:1 s:-i8 int8 u8:-1 s:-i16 int16 u16:-2"
    " s:-i32 int32 u32:-3 s:-i64 int64 u64:-4 s:u64.big uint64 u64:4294967296 s:f32 float32 u32:0xbfc00000"
    " s:f64 float64 u64:0x3fd0000000000000 s:f64.big float64 u64:0x47f0000000000000 s:f64.inf float64"
    " u64:0x7ff0000000000000 s:true bool u8:1 s:false bool u8:0 s:string string u64:3 b:a u8:0 b:b"
    " s:array array uint32 u64:2 u32:5 u32:6 s:strings array string u64:2 s:x s: s:empty array string u64:0"
    " s:bools array bool u64:1 u8:1";

static void typed_integers(void) {
    static const struct { const char *name; uint32_t value; const char *message; } rows[] = {
        {"u8", 200, 0}, {"i8", 100, 0}, {"u16", 60000, 0}, {"i16", 30000, 0}, {"u32", UINT32_MAX, 0}, {"i32", 7, 0},
        {"u64", UINT32_MAX, 0}, {"i64", 1, 0}, {"absent", 42, 0}, {"-i8", 0, "key \"-i8\" is -1, expected an integer"},
        {"-i16", 0, "is -2,"}, {"-i32", 0, "is -3,"}, {"-i64", 0, "is -4,"}, {"u64.big", 0, "is 4294967296,"},
        {"f32", 0, "is float32, expected an integer from 0 to 4294967295"}, {"true", 0, "is bool,"},
        {"string", 0, "is string,"}, {"array", 0, "is an array of uint32,"},
    };
    struct gguf *g;
    read_words(&g, typed_words);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t value = 42;
        struct error err = {PLUMB_OK, ""};
        plumb_status status = gguf_get_u32(g, rows[i].name, &value, &err);
        CHECK(status == (rows[i].message ? PLUMB_ERROR_METADATA : PLUMB_OK), "%s: %s", rows[i].name, err.message);
        CHECK(value == (rows[i].message ? 42 : rows[i].value), "%s is %u", rows[i].name, (unsigned)value);
        if (rows[i].message) CHECK(strstr(err.message, rows[i].message) != NULL, "%s: %s", rows[i].name, err.message);
    }
    gguf_free(g);
}

static void typed_others(void) {
    struct gguf *g;
    struct error err = {PLUMB_OK, ""};
    read_words(&g, typed_words);
    float f = 42;
    CHECK(gguf_get_f32(g, "absent", &f, &err) == PLUMB_OK && f == 42, "%g", (double)f);
    CHECK(gguf_get_f32(g, "f32", &f, &err) == PLUMB_OK && f == -1.5f, "%g", (double)f);
    CHECK(gguf_get_f32(g, "f64", &f, &err) == PLUMB_OK && f == 0.25f, "%g", (double)f);
    CHECK(gguf_get_f32(g, "f64.big", &f, &err) == PLUMB_ERROR_METADATA && f == 0.25f, "%g", (double)f);
    CHECK(strstr(err.message, "key \"f64.big\" is 3.40282e+38") != NULL, "%s", err.message);
    CHECK(gguf_get_f32(g, "f64.inf", &f, &err) == PLUMB_OK && f > 3.4e38f, "%g", (double)f);
    CHECK(gguf_get_f32(g, "u32", &f, &err) == PLUMB_ERROR_METADATA, "an integer as float");
    CHECK(strcmp(err.message, "key \"u32\" is uint32, expected float32") == 0, "%s", err.message);

    bool yes = true;
    CHECK(gguf_get_bool(g, "absent", &yes, &err) == PLUMB_OK && yes, "an absent bool");
    CHECK(gguf_get_bool(g, "false", &yes, &err) == PLUMB_OK && !yes, "false");
    CHECK(gguf_get_bool(g, "true", &yes, &err) == PLUMB_OK && yes, "true");
    CHECK(gguf_get_bool(g, "u8", &yes, &err) == PLUMB_ERROR_METADATA && yes, "an integer as bool");
    CHECK(gguf_get_bool(g, "bools", &yes, &err) == PLUMB_ERROR_METADATA && yes, "an array as bool");
    CHECK(strcmp(err.message, "key \"bools\" is an array of bool, expected bool") == 0, "%s", err.message);

    struct gguf_string s = {"default", 7};
    CHECK(gguf_get_string(g, "absent", &s, &err) == PLUMB_OK && s.n == 7, "an absent string");
    CHECK(gguf_get_string(g, "strings", &s, &err) == PLUMB_ERROR_METADATA && s.n == 7, "an array as string");
    CHECK(gguf_get_string(g, "u8", &s, &err) == PLUMB_ERROR_METADATA && s.n == 7, "an integer as string");
    CHECK(gguf_get_string(g, "string", &s, &err) == PLUMB_OK && s.n == 3 && memcmp(s.data, "a\0b", 4) == 0, "a string");

    const struct gguf_key *k = gguf_key_at(g, 0);
    CHECK(gguf_get_array(g, "absent", GGUF_UINT32, &k, &err) == PLUMB_OK && k == NULL, "an absent array");
    CHECK(gguf_get_array(g, "array", GGUF_UINT32, &k, &err) == PLUMB_OK && k != NULL && k->n == 2 &&
          load_u32(k->values + 4) == 6, "an array");
    CHECK(gguf_get_array(g, "array", GGUF_INT32, &k, &err) == PLUMB_ERROR_METADATA && k == NULL, "another type");
    CHECK(strcmp(err.message, "key \"array\" is an array of uint32, expected an array of int32") == 0, "%s",
          err.message);
    CHECK(gguf_get_array(g, "string", GGUF_STRING, &k, &err) == PLUMB_ERROR_METADATA, "a string as array");
    CHECK(gguf_get_array(g, "empty", GGUF_STRING, &k, &err) == PLUMB_OK && k != NULL && k->n == 0, "an empty array");
    CHECK(gguf_get_array(g, "strings", GGUF_STRING, &k, &err) == PLUMB_OK && k != NULL && k->n == 2 &&
          strcmp(k->strings[0].data, "x") == 0 && strcmp(k->strings[1].data, "") == 0, "strings");
    gguf_free(g);
}

/* ---- real models, the corpus -------------------------------------------------------------------------------- */

struct real { const char *name, *model, *listing; };

static void real_header(const void *p) {
    const struct real *row = p;
    struct error err = {PLUMB_OK, ""};
    struct gguf *g = gguf_create(PLUMB_SIZE_UNKNOWN);
    REQUIRE(g != NULL, "no memory");
    while (!gguf_has_header(g)) {
        void *window;
        size_t len;
        REQUIRE(gguf_window(g, &window, &len, &err) == PLUMB_OK, "%s", err.message);
        int64_t n = test_read(row->model, gguf_position(g), window, len);
        REQUIRE(n > 0, "%s: %" PRId64 " bytes at %" PRIu64, row->model, n, gguf_position(g));
        REQUIRE(gguf_commit(g, (size_t)n, &err) == PLUMB_OK, "%s", err.message);
    }
    check_listing(g, row->listing, false);
    gguf_free(g);
}

static void corpus(void) {
    size_t n;
    char *names = test_read_all("tests/fuzz/corpus/gguf.txt", &n);
    REQUIRE(names != NULL, "the list of the corpus");
    int n_file = 0;
    for (char *name = strtok(names, "\n"); name != NULL; name = strtok(NULL, "\n"), n_file++) {
        char path[128];
        snprintf(path, sizeof path, "tests/fuzz/corpus/gguf/%s", name);
        uint8_t *file = test_read_all(path, &n);
        if (file != NULL) CHECK(fuzz_gguf(file, n) == 0, "%s", path);   /* traps on a finding */
        free(file);
    }
    CHECK(n_file >= 8, "%d files", n_file);
    free(names);
}

void gguf_memory(void);   /* gguf_memory.c */
void test_gguf(void);
void test_gguf(void) {
    static const struct real real[] = {
        {"gguf: the header of SmolLM2 reads as the gguf package does", "models/SmolLM2-135M-Instruct.Q4_1.gguf",
         "tests/vectors/gguf/SmolLM2-135M-Instruct.Q4_1.txt"},
        {"gguf: the header of Gemma 3 reads as the gguf package does", "models/gemma-3-270m.Q4_K_M.gguf",
         "tests/vectors/gguf/gemma-3-270m.Q4_K_M.txt"},
    };
    test_case("gguf: every value and array type and the tensors of a v3 file equal the gguf package's", small_v3);
    test_case("gguf: the same file as v2 is read, however it is cut", small_v2);
    test_row(real[0].name, real_header, &real[0]);
    test_row(real[1].name, real_header, &real[1]);
    test_case("gguf: a file without tensors is complete at the end of its header", no_tensors);
    test_case("gguf: tensors may be in any order, with gaps and bytes after the last", any_order);
    test_case("gguf: windows are the tensors' memory, and misuse is an argument error", windows);
    test_case("gguf: a file truncated anywhere is an error that leaks no memory", every_prefix);
    test_case("gguf: any allocation that fails gives a status", gguf_memory);
    test_case("gguf: 4096 keys and 200000 tensors do not take quadratic time", many_names);
    test_case("gguf: integers of every type that fit 32 bits are read", typed_integers);
    test_case("gguf: floats, bools, strings and arrays are read only as their type", typed_others);
    TEST_ROWS("gguf: refuses ", hostile_file, hostile_rows);
    test_case("gguf: the fuzz corpus runs without a finding", corpus);
}
