/* The parts list of a release: CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json.  It has the same bytes for the same
 * files. */
import { createHash } from 'node:crypto';
import { VERSION, partsOf } from './files.mjs';

/** @param {string} licence  an identifier or an expression of SPDX */
const licences = licence => / /.test(licence) ? [{ expression: licence }] : [{ license: { id: licence } }];

/** @param {import('./files.mjs').Part} part */
const component = ({ name, version, licence, purl }) =>
  ({ type: 'library', 'bom-ref': `${name}@${version}`, name, version, licenses: licences(licence),
    ...purl && { purl } });

/** @param {{file: import('./files.mjs').File, sha256: string}[]} files
 * @param {{name: string, version: string}[]} tools  what built them @param {string} time  of the source, ISO 8601 */
export function sbom(files, tools, time) {
  const parts = new Map();
  const refs = files.map(({ file }) => partsOf(file).map(part => {
    const made = component(part);
    parts.set(made['bom-ref'], made);
    return made['bom-ref'];
  }));
  const own = licences('MIT');
  const text = JSON.stringify([files, tools, time, refs]);
  const id = createHash('sha256').update(text).digest('hex');
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: `urn:uuid:${id.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/, '$1-$2-8$3-8$4-$5')}`,
    version: 1,
    metadata: {
      timestamp: time,
      tools: { components: tools.map(tool => ({ type: 'application', ...tool })) },
      component: { type: 'application', 'bom-ref': 'plumb', name: 'plumb', version: VERSION, licenses: own,
        purl: `pkg:npm/plumb-llm@${VERSION}` },
    },
    components: [
      ...files.map(({ file, sha256 }) => ({ type: 'file', 'bom-ref': file.name, name: file.name, version: VERSION,
        hashes: [{ alg: 'SHA-256', content: sha256 }], licenses: own })),
      ...parts.values(),
    ],
    dependencies: [
      { ref: 'plumb', dependsOn: files.map(({ file }) => file.name) },
      ...files.map(({ file }, i) => ({ ref: file.name, dependsOn: refs[i] })),
      ...[...parts.keys()].map(ref => ({ ref })),
    ],
  };
}
