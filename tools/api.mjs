/* Prints docs/api.md of the package: everything that its entries export, described by the comments of the modules,
 * which TypeScript parses.  A type that appears there but is not exported is an error: index.js must export it too.
 *
 *   node tools/api.mjs > web/docs/api.md     (`make docs`) */
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const web = fileURLToPath(new URL('../web/', import.meta.url));
const { config } = ts.readConfigFile(`${web}tsconfig.json`, ts.sys.readFile);
const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, web);
const ENTRIES = { 'plumb-llm': 'index.js', 'plumb-llm/openai': 'openai.js', 'plumb-llm/fetch': 'fetch.js',
  'plumb-llm/ai': 'ai.js', 'plumb-llm/prompt-api': 'prompt-api.js' };
const program = ts.createProgram(Object.values(ENTRIES).map(file => web + file), options);
const checker = program.getTypeChecker();

const exported = Object.entries(ENTRIES).map(([name, file]) => {
  const module = checker.getSymbolAtLocation(program.getSourceFile(web + file));
  const symbols = [...new Set(checker.getExportsOfModule(module).map(target))];
  const kind = symbol => [ts.isVariableDeclaration, ts.isClassDeclaration, () => true]
    .findIndex(is => is(declarationOf(symbol)));
  return { name, symbols: symbols.sort((a, b) => kind(a) - kind(b)) };
});
const titles = new Set(exported.flatMap(({ symbols }) => symbols.map(({ name }) => name)));
/** Types that appear on the page, but are not exported. @type {Set<string>} */
const missing = new Set();
/** Types of the language and its hosts, which the page does not describe. */
const KNOWN = new Set(`AbortSignal Array ArrayBuffer ArrayLike AsyncGenerator AsyncIterable Blob Error Event
  Float32Array Headers Infinity Int32Array IteratorResult Map NaN Omit Promise PromiseLike ReadableStream Record
  RequestInit Response Uint8Array URL`.split(/\s+/));

/** The symbol that a name stands for.  Follows aliases and typedefs that only import another type.
 * @param {ts.Symbol} symbol @returns {ts.Symbol} */
function target(symbol) {
  if (symbol.flags & ts.SymbolFlags.Alias) return target(checker.getAliasedSymbol(symbol));
  if (symbol.declarations?.some(ts.isVariableDeclaration)) return symbol;   // a typedef may have the name of a value
  const tag = symbol.declarations?.find(ts.isJSDocTypedefTag);
  const type = tag?.typeExpression?.type;
  if (!type || !ts.isImportTypeNode(type) || !type.qualifier || type.typeArguments) return symbol;
  return target(checker.getSymbolAtLocation(type.qualifier));
}

/** The declaration of the value if there is one, else of the type. @param {ts.Symbol} symbol */
function declarationOf(symbol) {
  return symbol.valueDeclaration ?? symbol.declarations[0];
}

/** The text of a comment as one line. @param {string | ts.NodeArray<any> | undefined} comment */
const words = comment => (ts.getTextOfJSDocComment(comment) ?? '').replace(/\s+/g, ' ').trim();
const anchor = name => `#${name.toLowerCase()}`;
const link = name => `[${name}](${anchor(name)})`;

/** A type as its author wrote it, but without module names; types computed from others are resolved.
 * @param {ts.Node | undefined} node @param {string} of  what has this type */
function typeText(node, of) {
  if (!node) return '';
  const computed = /typeof|\['|import\([^)]*\)\.Engine/.test(node.getText());
  const text = (computed ? checker.typeToString(checker.getTypeFromTypeNode(node), undefined,
    ts.TypeFormatFlags.NoTruncation | ts.TypeFormatFlags.UseSingleQuotesForStringLiteralType) : node.getText())
    .replace(/import\([^)]*\)\./g, '').replace(/\n\s*\*?\s*/g, ' ').replace(/^\((.*)\)$/s, '$1')
    .replace(/\b(?:\w+\.)(?=[A-Z]\w*)/g, '');
  for (const [name] of text.replace(/'[^']*'/g, '').matchAll(/(?<![\w.])[A-Z]\w+/g)) {
    if (!titles.has(name) && !KNOWN.has(name)) missing.add(`${name} (of ${of})`);
  }
  return text;
}
/** The same as code, followed by links to the types that this page describes. */
function linked(node, of) {
  const text = typeText(node, of);
  const names = [...new Set(text.match(/\b[A-Z]\w+/g) ?? [])].filter(name => titles.has(name) && name !== of);
  if (names.length && /^\w+$/.test(text)) return `[\`${text}\`](${anchor(text)})`;
  return `\`${text}\`${names.length ? ` (${names.map(link).join(', ')})` : ''}`;
}

/** A function: its call as a heading, its description, its parameters. */
function functionText(title, declaration) {
  const { parameters } = declaration;
  const name = parameter => parameter.name.getText().replace(/^\{[^]*$/, 'options');
  const optional = parameter => parameter.initializer || checker.isOptionalParameter(parameter);
  const list = parameters.map(one => `${name(one)}${optional(one) ? '?' : ''}`).join(', ');
  const lines = [`### ${title}(${list})`, '', doc(declaration), ''];
  for (const parameter of parameters) {
    const [tag] = ts.getJSDocParameterTags(parameter);
    lines.push(item(name(parameter), optional(parameter), linked(ts.getJSDocType(parameter), title),
      words(tag?.comment)));
  }
  const returns = ts.getJSDocReturnTag(declaration);
  const type = ts.getJSDocReturnType(declaration);
  if (type) lines.push(`- returns ${linked(type, title)}${colon(words(returns?.comment))}`);
  return [...lines, ''];
}
const colon = text => text ? `: ${text}` : '';
const item = (name, optional, type, text) => `- \`${name}${optional ? '?' : ''}\`: ${type}${colon(text)}`;

/** The description of a declaration. @param {ts.Node} declaration */
function doc(declaration) {
  return ts.getJSDocCommentsAndTags(declaration).filter(ts.isJSDoc).map(({ comment }) => words(comment)).join(' ');
}

/** The items of the properties that a type described, by its title. @type {Map<string, Map<string, string>>} */
const listed = new Map();

/** The list of a type's properties; no lines if it has none.  Those that another type has in common with it are listed
 * there. @param {ts.Type} type @param {string} title */
function propertiesText(type, title) {
  const items = new Map(checker.getPropertiesOfType(type).map(property => {
    const declaration = property.declarations[0];
    const node = declaration.typeExpression?.type ?? declaration.type;
    const comment = words(declaration.comment) || ts.displayPartsToString(property.getDocumentationComment(checker));
    return [property.name, item(property.name, property.flags & ts.SymbolFlags.Optional, linked(node, title), comment)];
  }));
  const lines = [];
  for (const [other, others] of listed) {
    const same = [...items].filter(([name, text]) => others.get(name) === text).map(([name]) => name);
    if (same.length < 3) continue;
    const rest = [...others.keys()].filter(name => !same.includes(name));
    const names = list => list.map(name => `\`${name}\``).join(', ');
    lines.push(rest.length > same.length ? `- ${names(same)}: as in ${link(other)}`
      : `- all of ${link(other)}${rest.length ? ` but ${names(rest)}` : ''}`);
    for (const name of same) items.delete(name);
  }
  if (items.size) listed.set(title, items);
  return items.size + lines.length ? [...items.values(), ...lines, ''] : [];
}

/** @param {ts.Symbol} symbol */
function typedefText(symbol) {
  const tag = symbol.declarations.find(ts.isJSDocTypedefTag);
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  const described = type.symbol?.declarations?.find(ts.isClassDeclaration);
  if (described) {
    for (const { typeParameters } of ts.getJSDocTags(described).filter(ts.isJSDocTemplateTag)) {
      for (const { name } of typeParameters) KNOWN.add(name.text);
    }
    return classText(described);
  }
  const written = tag.typeExpression.type;
  const plain = type.isUnion() || checker.isArrayType(type) || !checker.getPropertiesOfType(type).length
    || type.getStringIndexType() && !type.isIntersection();
  return [`## ${symbol.name}`, '', ...plain && written ? [linked(written, symbol.name), ''] : [],
    words(tag.comment), '', ...plain ? [] : propertiesText(type, symbol.name)];
}

/** A class with its documented public members, including those of its base, unless the page describes that too.
 * @param {ts.ClassDeclaration} declaration */
function classText(declaration) {
  const title = declaration.name.text, own = (/[A-Z][a-z]+$/.exec(title)?.[0] ?? title).toLowerCase();
  const base = declaration.heritageClauses?.[0]?.types[0], baseName = base?.expression.getText() ?? '';
  const isListed = titles.has(baseName);
  const all = isListed ? ` It has all of ${link(baseName)}, too.` : '';
  const lines = [`## ${title}`, '', doc(declaration) + all, ''];
  const members = [...base && !isListed ? checker.getTypeAtLocation(base).symbol.declarations : [], declaration]
    .filter(ts.isClassDeclaration).flatMap(one => [...one.members]);
  const constructors = members.filter(ts.isConstructorDeclaration);
  const [constructor] = constructors.slice(-1);
  if (constructor && doc(constructor)) lines.push(...functionText(`new ${title}`, constructor));
  const fields = constructors.flatMap(({ body }) => body.statements)
    .filter(one => ts.isExpressionStatement(one) && ts.isBinaryExpression(one.expression)
      && /^this\.[a-z]\w*$/i.test(one.expression.left.getText()) && doc(one));
  for (const field of fields) {
    const symbol = checker.getSymbolAtLocation(field.expression.left);
    lines.push(`### ${own}.${symbol.name}`, '', doc(field), '');
    const type = ts.getJSDocType(field) ?? ts.getJSDocTypeTag(field)?.typeExpression.type;
    if (type) lines.push(`- ${linked(type, title)}`, '');
  }
  for (const member of members) {
    const { name: ofMember } = member, isKnown = ofMember && !ts.isPrivateIdentifier(ofMember)
      && !ts.isComputedPropertyName(ofMember);
    if (!isKnown || ts.isSetAccessor(member) || !ts.getJSDocCommentsAndTags(member).length) continue;
    const name = `${own}.${ofMember.getText()}`;
    if (ts.isMethodDeclaration(member)) lines.push(...functionText(name, member));
    else {
      const type = ts.getJSDocType(member) ?? ts.getJSDocReturnType(member);
      lines.push(`### ${name}`, '', doc(member), '', ...type ? [`- ${linked(type, title)}`, ''] : []);
    }
  }
  return lines;
}

/** An object with methods. @param {ts.Symbol} symbol */
function objectText(symbol) {
  const declaration = declarationOf(symbol);
  const lines = [`## ${symbol.name}`, '', doc(declaration.parent.parent), ''];
  for (const { name, declarations: [method] } of checker.getPropertiesOfType(checker.getTypeOfSymbol(symbol))) {
    if (!ts.isPrivateIdentifier(method.name)) lines.push(...functionText(`${symbol.name}.${name}`, method));
  }
  return lines;
}

const page = ['# plumb, the reference', '',
  '<!-- `make docs` writes this file from the comments of the modules: change those. -->', '',
  'Every function, option and type of the package, with units, defaults and errors. What has a `?` may be left out.',
  ''];
for (const { name, symbols } of exported) {
  page.push(`Of \`import ... from '${name}'\`: ${symbols.map(one => link(one.name)).join(', ')}.`, '');
}
for (const symbol of new Set(exported.flatMap(({ symbols }) => symbols))) {
  const declaration = declarationOf(symbol);
  page.push(...ts.isClassDeclaration(declaration) ? classText(declaration)
    : ts.isFunctionDeclaration(declaration) ? [`## ${symbol.name}`, '', ...functionText(symbol.name, declaration)]
      : ts.isVariableDeclaration(declaration) ? objectText(symbol) : typedefText(symbol));
}
if (missing.size > 0) throw new Error(`no entry exports these types: ${[...missing].join(', ')}`);
process.stdout.write(page.join('\n').replace(/\n{3,}/g, '\n\n').trimEnd() + '\n');
