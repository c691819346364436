/** Matches the number of a file of a split model. */
const NUMBER = /-\d{5}(?=-of-\d{5}\.gguf(?:$|[?#]))/i;

/** The name or URL that stands for all files of a split model: that of the first one. @param {string} name */
export const firstOf = name => name.replace(NUMBER, '-00001');
