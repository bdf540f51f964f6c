/** Turns a compiler's error about generated C into one error that shows the lines in question. */
import { UserError } from '../../errors.js';

export interface SourceText {
  /** File name inside the library, [A-Za-z0-9_]+.c */
  readonly name: string;
  /** May be printed when it is read: a library that is in the cache does not need it. */
  readonly text: string;
  /** Names the text where it is known; else its SHA-256 does. */
  readonly digest?: string;
}

const MAX_SHOWN = 3;
const CONTEXT = 2;

interface Diagnostic {
  readonly line: number;
  readonly message: string;
}

function diagnosticsOf(source: SourceText, stderr: string): Diagnostic[] {
  const found: Diagnostic[] = [];
  for (const text of stderr.split('\n')) {
    const match = /^([A-Za-z0-9_.]+):(\d+)(?::\d+)?: (.*)$/.exec(text);
    if (match === null || match[1] !== source.name || /^(note|warning):/.test(match[3]!)) continue;
    found.push({ line: Number(match[2]), message: match[3]! });
  }
  return found;
}

/** The line (counted from 1), marked, with its neighbours. */
export function excerpt(text: string, line: number): string {
  const lines = text.split('\n');
  const from = Math.max(1, line - CONTEXT);
  return lines
    .slice(from - 1, line + CONTEXT)
    .map((content, i) => `${from + i === line ? '>' : ' '} ${String(from + i).padStart(5)} | ${content}`)
    .join('\n');
}

/** The error, with the file, the compiler's message and the generated lines. */
export function compileError(compiler: string, source: SourceText, stderr: string): UserError {
  const diagnostics = diagnosticsOf(source, stderr);
  const shown = diagnostics
    .slice(0, MAX_SHOWN)
    .map(
      (diagnostic) =>
        `${source.name}:${diagnostic.line}: ${diagnostic.message}\n${excerpt(source.text, diagnostic.line)}`,
    );
  const rest = diagnostics.length > MAX_SHOWN ? `\n… and ${diagnostics.length - MAX_SHOWN} more` : '';
  const details = shown.length > 0 ? shown.join('\n') + rest : stderr.trim().slice(0, 2000);
  return new UserError(
    `${compiler} does not compile the generated ${source.name}:\n${details}`,
    'Try another compiler with TILEWRIGHT_CC=/path/to/cc; if it fails too, this is a bug in code generation.',
  );
}
