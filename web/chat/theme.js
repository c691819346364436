/* Sets the colours: data-theme of the document is light or dark, as the reader has chosen or as in the system.  This is
 * not a module, so that it runs before anything is painted: a page that becomes dark a moment later would flash. */
(() => {
  const system = matchMedia('(prefers-color-scheme: dark)');
  let chosen = recall();

  /** @returns {unknown}  'light' or 'dark'; any other value: as in the system */
  function recall() {
    try {
      return JSON.parse(localStorage.getItem('plumb.settings') ?? 'null')?.theme;
    } catch {
      return undefined;   // storage is blocked, or the value is not ours
    }
  }
  function apply() {
    const dark = chosen === 'dark' || chosen !== 'light' && system.matches;
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  }

  apply();
  system.addEventListener('change', apply);
  addEventListener('storage', () => {   // another tab has changed it
    chosen = recall();
    apply();
  });
  addEventListener('plumb-theme', event => {
    chosen = /** @type {CustomEvent} */ (event).detail;
    apply();
  });
})();
