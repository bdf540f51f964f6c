/** Templates of generated C. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Templates } from '../templates.js';

const ABI = new URL('../../runtime/native/abi.h', import.meta.url);

export type TemplateName =
  | 'prelude'
  | 'math'
  | 'amx'
  | 'microFma'
  | 'microAmx'
  | 'block'
  | 'gemm'
  | 'attention'
  | 'logprob'
  | 'gumbel'
  | 'logprobReduce'
  | 'sample'
  | 'route'
  | 'arrange'
  | 'loop';

const templates = new Templates<TemplateName>(new URL('./templates/', import.meta.url), '.c.hbs', abiText);

/** Prints templates/<name>.c.hbs. An unknown name in the template is an error. Nothing is escaped. */
export function render(name: TemplateName, values: object): string {
  return templates.render(name, values);
}

/** The text of runtime/native/abi.h. */
export function abiText(): string {
  return readFileSync(fileURLToPath(ABI), 'utf8');
}

/** Hex digest of all templates and of the ABI. Tuning records made with other templates are not used. */
export function templatesHash(): string {
  return templates.hash();
}
