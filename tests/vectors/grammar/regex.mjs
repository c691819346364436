// Writes regex.txt: which strings match regular expressions, by RegExp with the flag u.  Lines:
//
//   = w REGEX     the whole string matches
//   = s REGEX     a part of it matches
//   + STRING      matches
//   - STRING      does not
//
// with encodeURIComponent's escapes.  The seed is fixed, so the same version of Node writes the same bytes.
//
//   node tests/vectors/grammar/regex.mjs
//
// V8 finds /\B/u between the two halves of a surrogate pair, where ECMA-262 has no position, so expressions with \b or
// \B have no strings with such characters.
import { writeFileSync } from 'node:fs';

let seed = 22;
const random = (n) => {   // mulberry32
  seed = seed + 0x6d2b79f5 | 0;
  let t = Math.imul(seed ^ seed >>> 15, 1 | seed);
  t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
  return ((t ^ t >>> 14) >>> 0) % n;
};
const pick = (list) => list[random(list.length)];

// Expressions as they are written in schemas, each with strings that are changed at random.
const real = [
  ['^[^@\\s]+@[^@\\s]+\\.[a-zA-Z]{2,}$', 'ada@example.org', 'a b@c.de'],
  ['^(0|[1-9]\\d*)\\.(0|[1-9]\\d*)\\.(0|[1-9]\\d*)(?:-[\\da-z.-]+)?$', '1.20.3-rc.1', '01.2.3'],
  ['^\\+?[1-9]\\d{1,14}$', '+4930123456', '0049'],
  ['^#(?:[0-9a-fA-F]{3}){1,2}$', '#a1B2c3', '#fff', '#ffff'],
  ['^(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d]{6,10}$', 'Passw0rd', 'password1', 'PASSWORD'],
  ['^(?!.*--)[a-z0-9-]+$', 'a-b-c', 'a--b'],
  ['^(?:(?!foo|bar)\\w)+$', 'fobarn', 'foba', 'xfoo'],
  ['\\bcat\\b', 'a cat sat', 'concat', 'cat'],
  ['^\\S+(?: \\S+)*$', 'one two', 'one  two', ' one'],
  ['^https?://[^\\s/$.?#].[^\\s]*$', 'https://example.org/a?b', 'ftp://x'],
  ['^\\$\\{[a-zA-Z_]\\w*\\}$', '${name_1}', '${1a}'],
  ['^[\\w\\-.]+$', 'a-b.c', 'a b'],
  ['^[A-Z]{2}\\d{2}(?: ?[\\dA-Z]{4}){2,7}(?: ?[\\dA-Z]{1,3})?$', 'DE89 3704 0044 0532 0130 00'],
  ['^\\d{4}-\\d{2}-\\d{2}(?!T)', '2026-11-24', '2026-11-24T10'],
  ['^(?<year>\\d{4})(?:-(?<month>\\d\\d))?$', '2026-11', '2026-1'],
  ['^[^"\\\\\\n]*$', 'plain', 'a "quoted" word'],
  ['^\\u00e9\\u{1F600}\\xe9\\cA\\0?$', 'é😀é\u0001', 'é😀é\u0001\0'],
  ['^[\\u{1F600}-\\u{1F64F}]{1,3}$', '😀😁', 'x😀'],
  ['^\\uD83D\\uDE00$', '😀'],
  ['^[^]$', '\n', '\n\n'],
  ['^[]$', '', 'a'],
  ['^\\p{L}+(?:[ \'-]\\p{L}+)*$', 'Jean-Luc Éluard', 'Müller 2'],
  ['^\\P{N}+$', 'abc', 'ab１'],
  ['^[\\p{P}\\p{S}]+$', '!+«€', 'a!'],
  ['^(a|ab)(c|bcd)(d*)$', 'abcd', 'acd', 'abbcd'],
  ['^(?:a*)*b$', 'aab', 'aa'],
  ['^(?:a?){3}b{2,}$', 'aabb', 'ab', 'aaaabb'],
  ['a$|^b|^$', 'xa', 'bx', '', 'xx'],
  ['(?:^|,)x(?=,|$)', 'a,x,b', 'xx', ',x'],
  ['^(?=(?!a)\\w)(?!$)[ab1]+', 'b1', 'ab', '1a'],
];
const atoms = ['a', 'b', '1', '.', '\\d', '\\w', '\\W', '\\s', '[ab]', '[^a]', '\\D', ' ', '\\x61', '\\u0062', 'é',
  '😀', '[é-😀]'];
const quantifiers = ['*', '+', '?', '{2}', '{1,2}', '{0,2}', '{1,}', '*?', '+?', '??'];
function atom(depth) {
  const k = random(100);
  if (k < 45 || depth === 0) return [pick(atoms), true];
  if (k < 60) return [`(${union(depth - 1)})`, true];
  if (k < 70) return [`(?:${union(depth - 1)})`, true];
  if (k < 77) return [`(?=${union(depth - 1)})`, false];
  if (k < 84) return [`(?!${union(depth - 1)})`, false];
  return [pick(['^', '$', '\\b', '\\B']), false];
}
function term(depth) {
  const [text, repeats] = atom(depth);
  return repeats && random(4) === 0 ? text + pick(quantifiers) : text;
}
function union(depth) {
  const sequence = () => Array.from({ length: pick([0, 1, 1, 2, 2, 3]) }, () => term(depth)).join('');
  return Array.from({ length: pick([1, 1, 1, 2, 3]) }, sequence).join('|');
}

const characters = [...'aaabb11 -.é😀\n"\\\u0001\u007f'];
const changed = (text) => {
  const list = [...text];
  for (let n = random(3); n > 0; n--) {
    const at = random(list.length + 1), added = random(2) === 0 ? [] : [pick(characters)];
    list.splice(at, random(2), ...added);
  }
  return list.join('');
};
const lines = [];
function write(regex, whole, strings) {
  const test = new RegExp(whole ? `^(?:${regex})$` : regex, 'u');
  lines.push(`= ${whole ? 'w' : 's'} ${encodeURIComponent(regex)}`);
  const words = /\\b/i.test(regex);
  for (const s of new Set(strings.map((t) => words ? t.replaceAll('😀', 'é') : t))) {
    lines.push(`${test.test(s) ? '+' : '-'} ${encodeURIComponent(s)}`);
  }
}
for (const [regex, ...strings] of real) {
  const some = [...strings, ...Array.from({ length: 12 }, () => changed(pick(strings)))];
  write(regex, false, some);
  write(regex, true, some);
}
for (let i = 0; i < 500; i++) {
  const strings = Array.from({ length: 12 }, () => Array.from({ length: random(7) }, () => pick(characters)).join(''));
  write(union(3), random(2) === 0, strings);
}
writeFileSync(new URL('regex.txt', import.meta.url), lines.join('\n') + '\n');
