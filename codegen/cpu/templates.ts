/** Templates and headers of generated C. */
import { fileURLToPath } from 'node:url';
import type { Header } from '../../ir/unit.js';
import { Headers } from '../headers.js';
import { Templates } from '../templates.js';

const FOLDER = new URL('./', import.meta.url);
/** What headers include of the runtime, by this name. */
const ABI = 'native/abi.h';
const RUNTIME = new URL('../../runtime/', import.meta.url);

export type TemplateName =
  | 'besideProducts'
  | 'quadRound'
  | 'quadFew'
  | 'quadMany'
  | 'quadWiden'
  | 'quadBlock'
  | 'quadChoice';

const headers = new Headers(FOLDER, { [ABI]: new URL(ABI, RUNTIME) });
const templates = new Templates<TemplateName>(new URL('./templates/', FOLDER), '.c.hbs', () => headers.allText());

/** Every header that a unit includes, itself or through another. */
export const cpuHeadersOf = (source: string): readonly Header[] => headers.of(source);

/** Flags that let a compiler find the headers where they lie, for units that are compiled without copies of them. */
export const includeFlags = (): string[] => [FOLDER, RUNTIME].map((folder) => `-I${fileURLToPath(folder)}`);

/** Prints templates/<name>.c.hbs. An unknown name in the template is an error. Nothing is escaped. */
export function render(name: TemplateName, values: object): string {
  return templates.render(name, values);
}

/** Hex digest of all templates and headers. Tuning records made with others are not used. */
export function templatesHash(): string {
  return templates.hash();
}
