/** Skeletons of generated C. */
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
  | 'logprobReduce'
  | 'loop';

const templates = new Templates<TemplateName>(new URL('./templates/', import.meta.url), '.c.hbs', abiText);

/** Prints templates/<name>.c.hbs. Unknown names in the template are an error, nothing is escaped. */
export function render(name: TemplateName, values: object): string {
  return templates.render(name, values);
}

/** The text of runtime/native/abi.h. */
export function abiText(): string {
  return readFileSync(fileURLToPath(ABI), 'utf8');
}

/** Hex digest of every template and of the ABI: what was measured with other skeletons says nothing about these. */
export function templatesHash(): string {
  return templates.hash();
}
