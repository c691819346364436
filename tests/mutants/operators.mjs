/** The small faults that tests/mutants/mutants.mjs makes: where in a source each of them can be made. */
import ts from 'typescript';

/**
 * @typedef {object} Site
 * @property {string} operator  the name of the kind of fault
 * @property {number} at  the offset in the source
 * @property {number} length  how many characters are replaced
 * @property {string} text  by what
 */

/** The source with spaces instead of all that is no code to mutate; offsets and lines stay. */
export const mask = (path, source) => path.endsWith('.c') || path.endsWith('.h') ? maskC(source) : maskJs(source);

const blank = text => text.replace(/[^\n]/g, ' ');

/** Comments, strings, directives, and assertions, which the programs that ship do not contain. */
function maskC(source) {
  let code = source
    .replace(/\/\*[^]*?\*\/|\/\/.*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/g, blank)
    .replace(/^[ \t]*#(?:.*\\\n)*.*/gm, blank);
  for (const { index, 0: start } of code.matchAll(/\b(?:_Static_assert|static_assert|assert)\s*\(/g)) {
    const end = closing(code, index + start.length - 1) + 1;
    code = code.slice(0, index) + blank(code.slice(index, end)) + code.slice(end);
  }
  return code;
}

/** Keeps the tokens of the parser but strings, parts of templates and regular expressions. */
function maskJs(source) {
  const file = ts.createSourceFile('a.mjs', source, ts.ScriptTarget.Latest, true, ts.ScriptKind.JS);
  const { SyntaxKind } = ts;
  const skipped = new Set([SyntaxKind.StringLiteral, SyntaxKind.NoSubstitutionTemplateLiteral, SyntaxKind.TemplateHead,
    SyntaxKind.TemplateMiddle, SyntaxKind.TemplateTail, SyntaxKind.RegularExpressionLiteral]);
  const code = blank(source).split('');
  const keep = node => {
    if (node.kind >= SyntaxKind.FirstJSDocNode && node.kind <= SyntaxKind.LastJSDocNode) return;
    if (node.kind === SyntaxKind.ImportDeclaration) return;
    const children = node.getChildren(file);
    if (children.length) children.forEach(keep);
    else if (!skipped.has(node.kind))
      for (let i = node.getStart(file); i < node.end; i++) code[i] = source[i];
  };
  keep(file);
  return code.join('');
}

/** Whether the parser takes it. */
export const parses = source =>
  ts.createSourceFile('a.mjs', source, ts.ScriptTarget.Latest, false, ts.ScriptKind.JS).parseDiagnostics.length === 0;

/** The offset of the bracket that closes the one at `open`; the end of the code if there is none. */
function closing(code, open) {
  for (let i = open, depth = 0; i < code.length; i++) {
    if ('([{'.includes(code[i])) depth++;
    else if (')]}'.includes(code[i]) && --depth === 0) return i;
  }
  return code.length - 1;
}

/** All sites of a source, by operator. @param {string} path @param {string} source @returns {Map<string, Site[]>} */
export function sites(path, source) {
  const code = mask(path, source), found = new Map();
  const add = (operator, at, length, text) => {
    if (source.slice(at, at + length) === text) return;
    if (!found.has(operator)) found.set(operator, []);
    found.get(operator).push({ operator, at, length, text });
  };
  const each = (pattern, visit) => {
    for (const match of code.matchAll(pattern)) visit(match, match.index);
  };

  // `<` has spaces around it where it compares: not in an include, a shift, an arrow or a type.
  const other = { '<': '<=', '<=': '<', '>': '>=', '>=': '>', '==': '!=', '!=': '==', '===': '!==', '!==': '===' };
  each(/(?<= )([<>]=?|[=!]==?)(?= )/g, ([sign], at) => add('comparison', at, sign.length, other[sign]));

  each(/(?<![\w.$])(?:0x[0-9a-fA-F]+|\d+)(?=[uUlLn]*(?![\w.]))/g, ([number], at) => {
    const n = BigInt(number), step = (at % 2 || n === 0n) ? 1n : -1n;
    add('constant', at, number.length, number.startsWith('0x') ? `0x${(n + step).toString(16)}` : `${n + step}`);
  });

  each(/&&|\|\|/g, ([sign], at) => add('and-or', at, 2, sign === '&&' ? '||' : '&&'));

  each(/(?<=[\w)\]] )([+-])(=?)(?= )/g, ([sign], at) =>
    add('plus-minus', at, 1, sign[0] === '+' ? '-' : '+'));

  each(/\b(?:if|while) \(/g, ([start], at) => {
    const open = at + start.length - 1, end = closing(code, open);
    add('condition', open, end + 1 - open, `(!${source.slice(open, end + 1)})`);
  });

  // A statement that is a call and nothing else.
  each(/^([ \t]*(?:else )?)((?:await )?[\w$#.]+(?:->\w+)?\()/gm, ([, indent, start], line) => {
    if (/^(?:await )?(?:if|for|while|switch|return|function|super|catch)\b/.test(start)) return;
    const at = line + indent.length, end = closing(code, at + start.length - 1);
    const goesOn = !indent.trim() && !/[;{}):]/.test(code.slice(0, line).trimEnd().slice(-1));
    if (code[end + 1] !== ';' || goesOn) return;
    add('dropped call', at, end + 1 - at, path.endsWith('s') ? '0' : '(void)0');
  });

  // Two neighbours among the arguments of a call.
  each(/(?<!\bfunction )[\w$]\(/g, (_, at) => {
    if (/\b(?:if|for|while|switch|sizeof|catch)$/.test(code.slice(Math.max(0, at - 8), at + 1))) return;
    const end = closing(code, at + 1), parts = [];
    for (let i = at + 2, start = i, depth = 0; i <= end; i++) {
      if ('([{'.includes(code[i])) depth++;
      else if (depth === 0 && (code[i] === ',' || i === end)) {
        parts.push([start, i]);
        start = i + 1;
      } else if (')]}'.includes(code[i])) depth--;
    }
    // What is followed by a body, or has types, is a declaration.
    if (/^\s*\{/.test(code.slice(end + 1))) return;
    if (parts.some(part => /^\s*(?:const |struct |unsigned )*\w+ \**\w+\s*$/.test(code.slice(...part)))) return;
    for (let i = 0; i + 1 < parts.length; i++) {
      const [a, b] = [parts[i], parts[i + 1]].map(([from, to]) => source.slice(from, to).trim());
      if (!code.slice(...parts[i]).trim() || !code.slice(...parts[i + 1]).trim()) continue;   // a message
      if (a !== b) add('swapped arguments', parts[i][0], parts[i + 1][1] - parts[i][0], `${i ? ' ' : ''}${b}, ${a}`);
    }
  });

  // A guard with what it guards: a return, a throw, a jump.
  each(/\bif \(/g, ([start], at) => {
    const end = closing(code, at + start.length - 1);
    const exit = /^\s+(?:return|throw|continue|break|goto)\b[^;{}]*;/.exec(code.slice(end + 1));
    if (exit && !/^\s*else\b/.test(code.slice(end + 1 + exit[0].length)) && !/\belse $/.test(code.slice(0, at)))
      add('removed guard', at, end + 1 + exit[0].length - at, ';');
  });
  each(/^([ \t]*)((?:break|continue);)/gm, ([, indent, text], line) =>
    add('removed guard', line + indent.length, text.length, ';'));
  return found;
}

/** How many lines of code a source has. */
export const codeLines = (path, source) => mask(path, source).split('\n').filter(line => /\w/.test(line)).length;

export const apply = (source, { at, length, text }) => source.slice(0, at) + text + source.slice(at + length);
