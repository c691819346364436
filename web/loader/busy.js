/** The error for a copy that another tab or process has locked. */
export class Busy extends Error {
  constructor() { super('another tab or process is using it'); }
}
