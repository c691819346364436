// Counts on the cases of the JSON Schema test suite, for llama.cpp's converter with its matcher and for XGrammar, what
// tests/json_schema_test.c counts for plumb: schemas that are enforced (each valid instance is accepted and each other
// one is refused), refused with a message, and wrong.
//
//   node tests/conformance/schemas.mjs build/schemas node_modules/@mlc-ai/web-xgrammar/lib/index.js
//
// build/schemas is schemas.cpp, compiled as its first lines say.  Both engines write members in the order of the
// schema, so an instance counts as accepted if it is in any order of its members (at the top level).  XGrammar runs
// with any white space, which is its default and gives it the best counts, and without its strict mode, in which
// objects have no other members than those of properties.  stderr has the messages of both.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [program, module] = process.argv.slice(2);
const suites = ['2020-12', 'draft7', 'draft4'];

function read(name) {
  const groups = [];
  const file = new URL(`../vectors/grammar/suite-${name}.txt`, import.meta.url);
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    if (line[0] === '=') groups.push({ schema: line.slice(2), tests: [] });
    else if (line[0] === '+' || line[0] === '-') {
      groups.at(-1).tests.push({ valid: line[0] === '+', json: line.slice(2) });
    }
  }
  return groups;
}

function* permutations(list) {
  if (list.length < 2) yield list;
  for (const [i, first] of list.entries()) {
    if (list.length > 1) for (const rest of permutations(list.toSpliced(i, 1))) yield [first, ...rest];
  }
}

function orders(json) {
  const value = JSON.parse(json);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [json];
  const entries = Object.entries(value);
  if (entries.length < 2 || entries.length > 4) return [json];
  return [...permutations(entries)].map((p) => `{${p.map(([k, v]) => `${JSON.stringify(k)}:${JSON.stringify(v)}`)}}`);
}

// llama.cpp: one process answers line by line.
const child = spawn(program, { stdio: ['pipe', 'pipe', 'inherit'] });
const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
async function ask(kind, text) {
  child.stdin.write(`${kind} ${Buffer.byteLength(text)}\n${text}\n`);
  return (await answers.next()).value;
}
const llama = {
  async compile(schema) { return (await ask('C', schema)) === 'ok'; },
  async accepts(json) { return (await ask('S', json)) === '1'; },
};

// The module is one for CommonJS in a package of ES modules, which Node does not load.  Some schemas end it with an
// abort, after which it does nothing any more, so each refused schema loads it anew.
const code = new Function('exports', 'module', 'require', '__filename', readFileSync(module, 'utf8'));
function load() {
  const exported = {};
  code(exported, { exports: exported }, createRequire(import.meta.url), module);
  return exported;
}
const xgrammar = {
  module: load(),
  async compile(schema) {
    try {
      this.grammar = await this.module.Grammar.fromJSONSchema(schema, true, undefined, undefined, false);
      return true;
    } catch (error) {
      console.error(String(error).slice(0, 200));
      this.module = load();
      return false;
    }
  },
  async accepts(json) { return this.module.Testings.isGrammarAcceptString(this.grammar, json); },
};

for (const [name, engine] of Object.entries({ 'llama.cpp': llama, xgrammar })) {
  for (const suite of suites) {
    const counts = { enforced: 0, refused: 0, wrong: 0 };
    for (const { schema, tests } of read(suite)) {
      let outcome = 'enforced';
      if (!await engine.compile(schema)) outcome = 'refused';
      else {
        for (const { valid, json } of tests) {
          let accepted = false;
          for (const text of orders(json)) accepted ||= await engine.accepts(text);
          if (accepted !== valid) outcome = 'wrong';
        }
      }
      counts[outcome]++;
    }
    console.log(name, suite, JSON.stringify(counts));
  }
}
child.stdin.end();
process.exit(0);
