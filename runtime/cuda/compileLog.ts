/** Turns a CUDA compiler's error about a generated kernel into one error that shows the lines in question. */
import { UserError } from '../../errors.js';
import { excerpt } from '../cpu/compileError.js';

const MAX_SHOWN = 3;
const MAX_LOG = 2000;

interface Diagnostic {
  readonly line: number;
  readonly message: string;
}

/** `name.cu(12): error: words`, as NVRTC and nvcc write it. */
function diagnosticsOf(name: string, log: string): Diagnostic[] {
  return log.split('\n').flatMap((text) => {
    const match = /^(\S+)\((\d+)\): (?:catastrophic )?(error[^:]*: .*)$/.exec(text.trim());
    return match !== null && match[1] === name ? [{ line: Number(match[2]), message: match[3] ?? '' }] : [];
  });
}

/** The assembler refers to lines of PTX, which is not kept, so only its message is shown. */
const assemblerErrors = (log: string): string[] =>
  log.split('\n').filter((line) => /^ptxas .*(error|fatal)\b/i.test(line.trim()));

/** The error, with the kernel, the compiler's message and the generated lines. */
export function kernelCompileError(compiler: string, name: string, source: string, log: string): UserError {
  const diagnostics = diagnosticsOf(name, log);
  const assembler = assemblerErrors(log);
  const shown = [
    ...diagnostics
      .slice(0, MAX_SHOWN)
      .map(({ line, message }) => `${name}:${line}: ${message}\n${excerpt(source, line)}`),
    ...assembler.slice(0, MAX_SHOWN),
  ];
  const hidden = Math.max(0, diagnostics.length - MAX_SHOWN) + Math.max(0, assembler.length - MAX_SHOWN);
  const details =
    shown.length > 0 ? shown.join('\n') + (hidden > 0 ? `\n… and ${hidden} more` : '') : log.trim().slice(0, MAX_LOG);
  return new UserError(
    `${compiler} does not compile the generated ${name}:\n${details}`,
    'Try another compiler with TILEWRIGHT_NVRTC=/path/to/libnvrtc.so or TILEWRIGHT_NVCC=/path/to/nvcc; ' +
      'if it fails too, this is a bug in code generation.',
  );
}
