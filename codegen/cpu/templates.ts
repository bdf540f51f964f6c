/** Templates of generated C. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Templates } from '../templates.js';

const ABI = new URL('../../runtime/native/abi.h', import.meta.url);

export type TemplateName =
  | 'prelude'
  | 'vectors512'
  | 'vectors256'
  | 'vectorsPortable'
  | 'vectors'
  | 'math'
  | 'amx'
  | 'microFma'
  | 'microAmx'
  | 'block'
  | 'besideProducts'
  | 'quadRows'
  | 'quadRound'
  | 'quads256'
  | 'quads512'
  | 'quadsPortable'
  | 'quadFew'
  | 'quadMany'
  | 'quadWiden'
  | 'quadBlock'
  | 'quadChoice'
  | 'gemm'
  | 'attention'
  | 'logprob'
  | 'gumbel'
  | 'logprobReduce'
  | 'sample'
  | 'route'
  | 'sortByExpert'
  | 'loop';

const templates = new Templates<TemplateName>(new URL('./templates/', import.meta.url), '.c.hbs', abiText);

/** Prints templates/<name>.c.hbs. An unknown name in the template is an error. Nothing is escaped. */
export function render(name: TemplateName, values: object): string {
  return templates.render(name, values);
}

/** What every C file of kernels begins with: vectors of 16 lanes for each instruction set, elementary functions. */
export const preludeText = (): string =>
  (['prelude', 'vectors512', 'vectors256', 'vectorsPortable', 'vectors', 'math', 'amx'] as const)
    .map((name) => render(name, {}))
    .join('\n');

/** The text of runtime/native/abi.h. */
export function abiText(): string {
  return readFileSync(fileURLToPath(ABI), 'utf8');
}

/** Hex digest of all templates and of the ABI. Tuning records made with other templates are not used. */
export function templatesHash(): string {
  return templates.hash();
}
