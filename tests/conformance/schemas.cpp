// Answers questions on standard input with llama.cpp's converter of JSON Schema and its matcher; for schemas.mjs.
//
//   cd build/conformance/llama.cpp   # built by tests/conformance/build.sh
//   g++ -std=c++17 -O1 -Iinclude -Iggml/include -Icommon -Isrc -Ivendor ../../../tests/conformance/schemas.cpp
//     build/common/libllama-common.a build/common/libllama-common-base.a build/src/libllama.a
//     build/ggml/src/libggml.a build/ggml/src/libggml-cpu.a build/ggml/src/libggml-base.a
//     build/vendor/cpp-httplib/libcpp-httplib.a -lpthread -lgomp -ldl -o ../../schemas      (as one line)
//
// Records are "G n" (a grammar), "C n" (a schema to convert) or "S n" (a string), a line end, and n bytes.  Each has a
// line as its answer: for grammars "ok" or "error: ...", for strings "1" or "0".
#include "json-schema-to-grammar.h"
#include "../src/llama-grammar.h"
#include "../src/unicode.h"
#include "json.h"
#include "llama.h"
#include <cstdio>
#include <string>
static bool match(llama_grammar * grammar, const std::string & input) {
    const auto cpts = unicode_cpts_from_utf8(input);
    auto & stacks = llama_grammar_get_stacks(grammar);
    for (const auto & cpt : cpts) {
        llama_grammar_accept(grammar, cpt);
        if (stacks.empty()) return false;
    }
    for (const auto & s : stacks) if (s.empty()) return true;
    return false;
}
static llama_grammar * parse(const std::string & grammar) {
    return llama_grammar_init_impl(nullptr, grammar.c_str(), "root", false, nullptr, 0, nullptr, 0);
}
int main() {
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    char kind; size_t n; std::string grammar;
    while (scanf("%c %zu", &kind, &n) == 2) {
        getchar();
        std::string text(n, 0);
        if (n && fread(&text[0], 1, n, stdin) != n) return 1;
        getchar();
        if (kind == 'S') {
            auto * g = grammar.empty() ? nullptr : parse(grammar);
            if (!g) { puts("error"); fflush(stdout); continue; }
            puts(match(g, text) ? "1" : "0");
            llama_grammar_free_impl(g);
        } else {
            std::string error;
            grammar = text;
            if (kind == 'C') {
                try { grammar = json_schema_to_grammar(common_json::parse(text), true); }
                catch (const std::exception & ex) { error = ex.what(); grammar = ""; }
            }
            llama_grammar * g = nullptr;
            try { if (error.empty()) g = parse(grammar); }
            catch (const std::exception & ex) { error = ex.what(); }
            if (g) { puts("ok"); llama_grammar_free_impl(g); }
            else { for (auto & c : error) if (c == '\n') c = ' '; printf("error: %s\n", error.c_str()); grammar = ""; }
        }
        fflush(stdout);
    }
}
