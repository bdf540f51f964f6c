/** Skeletons of generated CUDA. */
import { Templates } from '../../templates.js';

const templates = new Templates(new URL('../templates/', import.meta.url), '.cu.hbs');

/** Prints templates/<name>.cu.hbs. Unknown names in the template are an error, nothing is escaped. */
export function render(name: string, values: object): string {
  return templates.render(name, values);
}

/** Hex digest of every template: what was measured with other skeletons says nothing about these. */
export function cudaTemplatesHash(): string {
  return templates.hash();
}
