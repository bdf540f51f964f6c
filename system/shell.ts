/** Commands that a message suggests, as a POSIX shell reads them back. */

/** One argument. */
export const quoteForShell = (text: string): string =>
  /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
