/** Units of kernels as one text over fibres: their includes once, each unit's own text in a namespace. */
import { flattened, includesOf } from '../../../codegen/headers.js';
import { cudaHeadersOf } from '../../../codegen/cuda/index.js';

const OPENING = 'namespace tw {\n';

/** The text of a unit inside its namespace. */
export function bodyOf(source: string): string {
  const at = source.indexOf(OPENING);
  const end = source.lastIndexOf('}  // namespace tw');
  if (at < 0 || end < at) throw new Error('a unit has its text in namespace tw');
  return source.slice(at + OPENING.length, end);
}

/** The includes of units, each once. */
export const includesText = (sources: readonly string[]): string =>
  [...new Set(sources.flatMap((source) => includesOf(source.slice(0, source.indexOf(OPENING)))))]
    .map((name) => `#include "${name}"\n`)
    .join('');

/**
 * A unit whose headers stand in it, all in one namespace, but for those of lib/: what a test breaks to see that it is
 * noticed.
 */
export function openUnit(source: string): string {
  const text = flattened(source, cudaHeadersOf(source), (name) => name.startsWith('lib/'));
  const includes = includesOf(text).map((name) => `#include "${name}"\n`);
  const body = text
    .replaceAll(/^#include "[^"\n]*"\n/gm, '')
    .replaceAll(/^(?:namespace tw \{|\}  \/\/ namespace tw)\n/gm, '');
  return `${[...new Set(includes)].join('')}\n${OPENING}${body}}  // namespace tw\n`;
}
