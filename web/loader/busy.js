/** Another tab or process is using the file. */
export class Busy extends Error {
  constructor() { super('another tab or process is using it'); }
}
