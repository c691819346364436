/* What MathML Core, which browsers show, lacks of the MathML that KaTeX writes: letters of other alphabets are
 * characters of their own, and columns that are aligned and parts that are boxed or struck out have classes. */

/** The first capital letter, small letter and digit of each alphabet, and letters that Unicode has elsewhere.
 * @type {Record<string, {start: number[], others?: Record<string, string>}>} */
const ALPHABETS = {
  bold: { start: [0x1d400, 0x1d41a, 0x1d7ce] },
  'bold-italic': { start: [0x1d468, 0x1d482] },
  'double-struck': { start: [0x1d538, 0x1d552, 0x1d7d8],
    others: { C: 'ℂ', H: 'ℍ', N: 'ℕ', P: 'ℙ', Q: 'ℚ', R: 'ℝ', Z: 'ℤ' } },
  script: { start: [0x1d49c, 0x1d4b6], others: { B: 'ℬ', E: 'ℰ', F: 'ℱ', H: 'ℋ', I: 'ℐ', L: 'ℒ', M: 'ℳ', R: 'ℛ',
    e: 'ℯ', g: 'ℊ', o: 'ℴ' } },
  fraktur: { start: [0x1d504, 0x1d51e], others: { C: 'ℭ', H: 'ℌ', I: 'ℑ', R: 'ℜ', Z: 'ℨ' } },
  'sans-serif': { start: [0x1d5a0, 0x1d5ba, 0x1d7e2] },
  monospace: { start: [0x1d670, 0x1d68a, 0x1d7f6] },
};

/** @param {string} text @param {string} variant  the value of mathvariant */
function inAlphabet(text, variant) {
  const { start = [], others = {} } = ALPHABETS[variant] ?? {};
  return text.replace(/[A-Za-z0-9]/g, letter => {
    const kind = letter >= 'a' ? 1 : letter >= 'A' ? 0 : 2, first = start[kind];
    return others[letter] ?? (first === undefined ? letter
      : String.fromCodePoint(first + letter.charCodeAt(0) - 'Aa0'.charCodeAt(kind)));
  });
}

/** @param {Element} math */
export function complete(math) {
  for (const one of math.querySelectorAll('[mathvariant]')) {
    const variant = one.getAttribute('mathvariant') ?? '';
    if (!Object.hasOwn(ALPHABETS, variant)) continue;
    if (one.childElementCount === 0) one.textContent = inAlphabet(one.textContent ?? '', variant);
    one.setAttribute('mathvariant', 'normal');
  }
  for (const enclosed of math.querySelectorAll('menclose')) {
    const row = document.createElementNS(enclosed.namespaceURI, 'mrow');
    row.setAttribute('class', enclosed.getAttribute('notation')?.includes('box') ? 'boxed' : 'struck');
    row.append(...enclosed.childNodes);
    enclosed.replaceWith(row);
  }
  for (const table of math.querySelectorAll('mtable[columnalign]')) {
    const aligns = table.getAttribute('columnalign')?.split(' ') ?? [];
    for (const row of table.children) {
      for (const [i, cell] of [...row.children].entries()) cell.classList.add(`to-${aligns[i] ?? 'center'}`);
    }
  }
}
