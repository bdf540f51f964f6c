/** Templates of generated CUDA. */
import { Templates } from '../../templates.js';

const templates = new Templates(new URL('../templates/', import.meta.url), '.cu.hbs');

/** Prints templates/<name>.cu.hbs. An unknown name in the template is an error. Nothing is escaped. */
export function render(name: string, values: object): string {
  return templates.render(name, values);
}

/** Hex digest of all templates. Tuning records made with other templates are not used. */
export function cudaTemplatesHash(): string {
  return templates.hash();
}
