#!/usr/bin/env python3
"""Writes llama.txt and random.txt: grammars and strings, with the verdicts of llama.cpp v0.5.0.

    make.py LLAMA.CPP

LLAMA.CPP is the folder that tests/conformance/build.sh has built (build/conformance/llama.cpp).  llama.txt has the
cases of its tests test-grammar-parser.cpp, test-grammar-integration.cpp and test-llama-grammar.cpp: the tests are
compiled with their functions for a case changed, so that they print it (oracle.h).  random.txt has random grammars.

A file is a sequence of records.  LENGTH counts the bytes of the line or lines that follow:
    grammar LENGTH ok|fail       the text of a grammar, and whether llama.cpp accepts it; the records below are about it
    string LENGTH yes|no         is it a complete text of the grammar?  In it, \\xff and four bytes are a token
    all LONGEST LENGTH VERDICTS  an alphabet; one digit for each string of up to LONGEST of its characters, shorter ones
                                 first, then in the order of the alphabet: 0 it has left the grammar, 1 it can go on,
                                 2 it is complete
"""
import os, random, re, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
llama = os.path.abspath(sys.argv[1])

def insert(text, head, code):
    """Inserts code behind the line that begins with head and ends with {."""
    changed, n = re.subn('(' + re.escape(head) + r'[^{]*\{\n)', lambda m: m.group(1) + code, text, count=1)
    assert n == 1, head
    return changed

changes = {
    'test-grammar-parser.cpp': lambda t: insert(insert(t,
        'static void verify_parsing(', '    record_parsing(grammar_bytes);\n    return;\n'),
        'static void verify_failure(', '    record_parsing(grammar_bytes);\n    return;\n'),
    'test-grammar-integration.cpp': lambda t: insert(insert(t,
        'static bool test_build_grammar_fails(',
        '    llama_grammar * g = build_grammar(grammar_str);\n'
        '    print_bytes("grammar", grammar_str, g ? "ok" : "fail");\n'
        '    return true;\n'),
        'static void test(', '''    {
        auto * g = build_grammar(grammar_str);
        print_bytes("grammar", grammar_str, g ? "ok" : "fail");
        const llama_grammar_stacks start = llama_grammar_get_stacks(g);
        for (const auto * strings : {&passing_strings, &failing_strings}) {
            for (const auto & s : *strings) {
                bool matched = match_string(s, g);
                if (matched != (strings == &passing_strings)) abort();
                print_bytes("string", s, matched ? "yes" : "no");
                llama_grammar_get_stacks(g) = start;
            }
        }
    }
    return;
''').replace('fprintf(stdout', 'fprintf(stderr').replace('✅︎', 'ok'),
    # The test builds its grammar of elements.  print writes them as GBNF, with names that have "_", codes as <U+000A>,
    # and nothing for an empty alternative.
    'test-llama-grammar.cpp': lambda t: re.sub(
        r'(\n    (?:llama_grammar|auto) *\* *grammar = [^;]*;)',
        lambda m: m.group(1) + '''
    { FILE * f = tmpfile();
      parsed_grammar.print(f);
      std::string text(ftell(f), 0);
      rewind(f);
      if (fread(&text[0], 1, text.size(), f) != text.size()) abort();
      for (char & c : text) { if (c == '_') c = '-'; }
      const char * replaced[][2] = {{"<U+000A>", "\\\\n"}, {"<U+0009>", "\\\\t"}, {"| \\n", "| \\"\\"\\n"}};
      for (auto & r : replaced) {
          for (size_t at; (at = text.find(r[0])) != std::string::npos;) text.replace(at, strlen(r[0]), r[1]);
      }
      print_bytes("grammar", text, "ok");
      print_all(grammar, {"a", "=", "1", "(", ")", "+", "\\n", " "}, 4); }''', t, count=1),
}

oracle = '''#include "oracle.h"
int main(int argc, char ** argv) {
    std::string text;
    for (int c; (c = getchar()) != EOF;) text += (char) c;
    llama_grammar * g = parse(text);
    print_bytes("grammar", text, g ? "ok" : "fail");
    std::vector<std::string> characters(argv + 2, argv + argc);
    if (g) print_all(g, characters, atoi(argv[1]));
}
'''

def compile_cpp(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, 'w') as f:
        f.write(text)
    libraries = ['build/common/libllama-common.a', 'build/common/libllama-common-base.a', 'build/src/libllama.a',
                 'build/ggml/src/libggml.a', 'build/ggml/src/libggml-cpu.a', 'build/ggml/src/libggml-base.a']
    subprocess.run(['g++', '-O1', '-std=c++17', '-w', '-Itests', '-Iinclude', '-Iggml/include', '-Iggml/src',
                    '-Icommon', '-Ivendor', '-Isrc', '-I' + here, path, *libraries, '-lpthread', '-ldl', '-fopenmp',
                    '-o', path + '.out'], cwd=llama, check=True)
    return path + '.out'

# ---- random grammars ---------------------------------------------------------------------------------------------

def random_grammar(rng, letters):
    names = ['root', 'p', 'q', 'r'][:rng.randint(1, 4)]
    def symbol(depth):
        kind = rng.random()
        if kind < 0.35:
            return '"' + ''.join(rng.choice(letters) for _ in range(rng.randint(1, 3))) + '"'
        if kind < 0.55:
            chosen = ''.join(rng.sample(letters, rng.randint(1, len(letters) - 1)))
            return rng.choice(['[', '[', '[^']) + chosen + ']'
        if kind < 0.6:
            return '.'
        if kind < 0.8 or depth > 2:
            return rng.choice(names)
        return '(' + alternatives(depth + 1) + ')'
    def sequence(depth):
        return ' '.join(symbol(depth) + rng.choice(['', '', '', '', '*', '+', '?', '{2}', '{1,2}', '{0,3}', '{1,}'])
                        for _ in range(rng.randint(0 if rng.random() < 0.1 else 1, 3)))
    def alternatives(depth):
        return ' | '.join(sequence(depth) for _ in range(rng.choice([1, 1, 2, 3])))
    return ''.join(f'{name} ::= {alternatives(0)}\n' for name in names)

with tempfile.TemporaryDirectory() as folder:
    out = b''
    for name, change in changes.items():
        with open(os.path.join(llama, 'tests', name)) as f:
            text = f.read()
        included = '#include "../src/llama-grammar.h"\n'
        text = text.replace(included, included + '#include "oracle.h"\n')
        program = compile_cpp(folder, name, change(text))
        out += subprocess.run([program], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    with open(os.path.join(here, 'llama.txt'), 'wb') as f:
        f.write(out.replace(b'Running grammar integration tests...\n', b'').replace(b'All tests passed.\n', b''))

    program = compile_cpp(folder, 'oracle.cpp', oracle)
    rng = random.Random(22)
    out, n_ok, n_fail = b'', 0, 0
    while n_ok < 300:
        letters, longest = rng.choice([('ab', 7), ('ab', 7), ('a\u00e9\u20ac\U0001f600', 3)])
        grammar = random_grammar(rng, letters)
        try:
            result = subprocess.run([program, str(longest), *letters], input=grammar.encode(), stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, timeout=2)
        except subprocess.TimeoutExpired:   # llama.cpp misses left recursion behind rules that are empty indirectly
            continue
        assert result.returncode == 0, grammar
        if b'ok\n' in result.stdout.split(b'\n', 1)[0] + b'\n':
            n_ok += 1
        else:
            n_fail += 1
            if n_fail > 30:
                continue
        out += result.stdout
    with open(os.path.join(here, 'random.txt'), 'wb') as f:
        f.write(out)
