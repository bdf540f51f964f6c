/** Quotes commands that a message suggests for a POSIX shell. */

/** Quotes one argument. */
export const quoteForShell = (text: string): string =>
  /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
