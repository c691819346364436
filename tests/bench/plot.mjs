/** docs/speed.svg: bars of prefill and decode for each engine, readable on light and on dark. */
const ALL = [['plumb', 'chromium', 'plumb'], ['plumb16', 'chromium', 'plumb, exact16'],
  ['plumb8', 'chromium', 'plumb, fast8'],
  ['wllama-2', 'chromium', 'wllama'], ['wllama-3', 'chromium', 'wllama'], ['llama.cpp', 'native', 'native llama.cpp']];
const MODELS = ['Q4_0', 'Q8_0', 'Q4_K_M'];
const WIDTH = 860, LEFT = 132, PANEL = 340, GAP = 40, BAR = 13, ROW = 20, TOP = 64, GROUP = 34;
const LABEL = 74;   // room for numbers after the longest bar

const round = (x) => x >= 100 ? x.toFixed(0) : x.toFixed(1);
const text = (x, y, content, style = '', anchor = 'start') =>
  `<text x="${x}" y="${y}"${style && ` class="${style}"`} text-anchor="${anchor}">${content}</text>`;

/** @param {import('./report.mjs').Speeds} speeds  see report.mjs */
export function plot(speeds) {
  const { versions, machine, date } = speeds.last;
  const models = speeds.models.filter(({ name }) => MODELS.includes(name) && speeds.lengths('decode', name).length > 0);
  const first = models[0]?.name;
  const prompt = speeds.nearest('prefill', 512, first), context = speeds.nearest('decode', 128, first);
  const engines = ALL.filter(([name, host]) => models.some(model => speeds.speed(model.name, `${name}/${host}/1`,
    'decode', context)));
  const parts = [];
  const panels = [
    ['prefill', prompt, `Prefill of ${prompt} tokens`], ['decode', context, `Decode at a context of ${context}`],
  ];
  const height = TOP + models.length * (engines.length * ROW + GROUP) + 40;
  panels.forEach(([kind, n, title], i) => {
    const x = LEFT + i * (PANEL + GAP);
    const of = (model, [name, host], threads) => speeds.speed(model, `${name}/${host}/${threads}`, kind, n);
    const most = Math.max(1, ...models.flatMap(({ name }) => engines.flatMap(engine =>
      [1, 2].map(threads => of(name, engine, threads) ?? 0))));
    const scale = (PANEL - LABEL) / most;
    parts.push(text(x, 26, `${title}, tokens/s`, 'title'));
    models.forEach(({ name, title: model }, group) => {
      const top = TOP + group * (engines.length * ROW + GROUP);
      if (i === 0) parts.push(text(8, top - 7, model, 'model'));
      engines.forEach((engine, row) => {
        const y = top + row * ROW;
        const [one, two] = [1, 2].map(threads => of(name, engine, threads));
        const label = engine[2] === 'wllama' ? `wllama ${versions[engine[0]]}` : engine[2];
        if (i === 0) parts.push(text(x - 8, y + BAR - 2, label, engine[2] === 'plumb' ? 'strong' : '', 'end'));
        const mine = engine[2].startsWith('plumb') ? ' mine' : '';
        for (const [style, speed] of [['two', two], ['one', one]]) {
          if (!speed) continue;
          const width = (speed * scale).toFixed(1);
          parts.push(`<rect class="${style}${mine}" x="${x}" y="${y}" width="${width}" height="${BAR}"/>`);
        }
        const numbers = [one, two].map(value => value ? round(value) : '-').join(' / ');
        parts.push(text((x + Math.max(one ?? 0, two ?? 0) * scale + 5).toFixed(1), y + BAR - 2, numbers, 'number'));
      });
    });
  });
  const [chromium] = versions.chromium.split('.');
  parts.push(text(8, height - 26, 'Inner bars and first numbers: 1 thread; outer bars and second numbers: 2.', 'note'));
  parts.push(text(8, height - 10, `plumb and wllama in Chromium ${chromium}, llama.cpp native; ${machine.cpu}, `
    + `${machine.cores} cores, ${date}.`, 'note'));
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}"
    viewBox="0 0 ${WIDTH} ${height}" role="img">
<title>Tokens per second of plumb, wllama and llama.cpp</title>
<style>
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 14px } .model, .strong { font-weight: 600 } .number, .note { font-size: 11px }
.one { fill: #6e7781 } .two { fill: #c4cad1 } .one.mine { fill: #0969da } .two.mine { fill: #9cc8fb }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .one { fill: #8b949e } .two { fill: #424a53 } .one.mine { fill: #58a6ff } .two.mine { fill: #1f4b80 }
}
</style>
${parts.join('\n')}
</svg>
`;
}
