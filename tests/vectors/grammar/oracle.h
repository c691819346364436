// What the changed tests of llama.cpp call (make.py): they print their cases, with the verdicts of llama.cpp's matcher.
// The format is described in make.py.
#pragma once
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>
#include "../src/llama-grammar.h"

static void print_bytes(const char * kind, const std::string & bytes, const std::string & verdict) {
    printf("%s %zu %s\n", kind, bytes.size(), verdict.c_str());
    fwrite(bytes.data(), 1, bytes.size(), stdout);
    printf("\n");
}

static llama_grammar * parse(const std::string & text) {
    return llama_grammar_init_impl(nullptr, text.c_str(), "root", false, nullptr, 0, nullptr, 0);
}

// 0: the string has left the grammar.  1: it can go on.  2: it is complete.
static char verdict_of(llama_grammar * grammar, const std::string & text) {
    const llama_grammar_stacks start = llama_grammar_get_stacks(grammar);
    char verdict = '1';
    try {
        llama_grammar_accept_str(*grammar, text);
        for (const auto & stack : llama_grammar_get_stacks(grammar)) {
            if (stack.empty()) verdict = '2';
        }
    } catch (const std::exception &) {
        verdict = '0';
    }
    llama_grammar_get_stacks(grammar) = start;
    return verdict;
}

// All strings of 0 .. longest of these characters: shorter ones first, then in the order of the characters.
static void print_all(llama_grammar * grammar, const std::vector<std::string> & characters, int longest) {
    std::vector<std::string> strings = {""};
    std::string verdicts, alphabet;
    for (size_t first = 0, n = 0; n <= (size_t) longest; n++) {
        size_t end = strings.size();
        for (size_t i = first; i < end; i++) {
            verdicts += verdict_of(grammar, strings[i]);
            for (const auto & c : characters) {
                if (n < (size_t) longest) strings.push_back(strings[i] + c);
            }
        }
        first = end;
    }
    for (const auto & c : characters) alphabet += c;
    print_bytes(("all " + std::to_string(longest)).c_str(), alphabet, verdicts);
}

// The characters of the grammar's text that may matter, at most six.
static std::vector<std::string> alphabet_of(const std::string & text) {
    std::vector<std::string> characters;
    for (char c : std::string("ab=1x(\nyzcd-+9 \"")) {
        std::string s(1, c);
        bool escaped = c == '\n' ? text.find("\\n") != std::string::npos : text.find(c) != std::string::npos;
        if (escaped && characters.size() < 6) characters.push_back(s);
    }
    return characters;
}

static void record_parsing(const std::string & text) {
    llama_grammar * grammar = parse(text);
    print_bytes("grammar", text, grammar ? "ok" : "fail");
    if (grammar) print_all(grammar, alphabet_of(text), 4);
}
