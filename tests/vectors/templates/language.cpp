/* Runs small templates with llama.cpp's Jinja engine.  make.sh builds and runs it.
 *
 *   language FILE
 *
 * The first line of FILE has the variables in JSON.  Each other line has a template, perhaps a tab, and what it was made
 * into.  Prints FILE with what the engine makes of each template now: the text, or "!" if the engine refuses it.
 * Control characters and "!" at the start of a text are written as \xNN. */
#include "jinja/lexer.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"
#include "json.h"

#include <cstdio>
#include <fstream>
#include <iostream>

static std::string unescaped(const std::string &s) {
    std::string out;
    for (size_t i = 0; i < s.size(); i++) {
        bool is_escape = s[i] == '\\' && i + 3 < s.size() && s[i + 1] == 'x';
        out += is_escape ? (char)std::stoi(s.substr(i + 2, 2), nullptr, 16) : s[i];
        if (is_escape) i += 3;
    }
    return out;
}

static std::string escaped(const std::string &s) {
    std::string out;
    for (size_t i = 0; i < s.size(); i++) {
        char code[8];
        std::snprintf(code, sizeof code, "\\x%02x", (unsigned char)s[i]);
        if ((unsigned char)s[i] < 0x20 || (i == 0 && s[i] == '!')) out += code;
        else out += s[i];
    }
    return out;
}

static std::string made(const std::string &source, const std::string &variables) {
    try {
        jinja::context context(source);
        context.current_time = 1784980800;   // 25 July 2026, 12:00 UTC
        jinja::global_from_json(context, common_json::parse(variables), false);
        jinja::program program = jinja::parse_from_tokens(jinja::lexer().tokenize(source));
        return escaped(jinja::runtime::gather_string_parts(jinja::runtime(context).execute(program))->as_string().str());
    } catch (const std::exception &) {
        return "!";
    }
}

int main(int argc, char **argv) {
    std::ifstream file(argc > 1 ? argv[1] : "");
    std::string variables, line;
    std::getline(file, variables);
    std::cout << variables << '\n';
    while (std::getline(file, line)) {
        std::string source = line.substr(0, line.find('\t'));
        std::cout << source << '\t' << made(unescaped(source), variables) << '\n';
    }
}
