/** @typedef {{id: number, piece: string, bytes: number[], logprob: number, top: {id: number, piece: string, logprob: number}[]}} Token */
export function inspect(/** @type {any} */ _) {}
