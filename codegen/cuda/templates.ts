/** Skeletons of generated CUDA: the Handlebars templates beside this file, found from source and from dist alike. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import Handlebars from 'handlebars';

const TEMPLATES = new URL('./templates/', import.meta.url);
const compiled = new Map<string, Handlebars.TemplateDelegate<object>>();
const engine = Handlebars.create();

/** Prints templates/<name>.cu.hbs. Unknown names in the template are an error, nothing is escaped. */
export function render(name: string, values: object): string {
  let template = compiled.get(name);
  if (template === undefined) {
    const text = readFileSync(fileURLToPath(new URL(`${name}.cu.hbs`, TEMPLATES)), 'utf8');
    template = engine.compile<object>(text, { noEscape: true, strict: true, assumeObjects: true });
    compiled.set(name, template);
  }
  return template(values);
}

let hash: string | undefined;

/** Hex digest of every template: what was measured with other skeletons says nothing about these. */
export function cudaTemplatesHash(): string {
  if (hash === undefined) {
    const digest = createHash('sha256');
    for (const name of readdirSync(fileURLToPath(TEMPLATES)).sort()) digest.update(name).update(readFileSync(fileURLToPath(new URL(name, TEMPLATES))));
    hash = digest.digest('hex').slice(0, 16);
  }
  return hash;
}
