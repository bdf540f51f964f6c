/** Skeletons of generated C: the Handlebars templates beside this file, found from source and from dist alike. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import Handlebars from 'handlebars';

const TEMPLATES = new URL('./templates/', import.meta.url);
const ABI = new URL('../../runtime/native/abi.h', import.meta.url);

export type TemplateName =
  | 'prelude' | 'math' | 'amx' | 'microFma' | 'microAmx' | 'block' | 'gemm' | 'attention' | 'logprob' | 'logprobReduce' | 'loop';

const compiled = new Map<TemplateName, Handlebars.TemplateDelegate<object>>();
const engine = Handlebars.create();

/** Prints a template. Unknown names in the template are an error, nothing is escaped. */
export function render(name: TemplateName, values: object): string {
  let template = compiled.get(name);
  if (template === undefined) {
    const text = readFileSync(fileURLToPath(new URL(`${name}.c.hbs`, TEMPLATES)), 'utf8');
    template = engine.compile<object>(text, { noEscape: true, strict: true, assumeObjects: true });
    compiled.set(name, template);
  }
  return template(values);
}

/** The text of runtime/native/abi.h. */
export function abiText(): string {
  return readFileSync(fileURLToPath(ABI), 'utf8');
}

let hash: string | undefined;

/** Hex digest of every template and of the ABI: what was measured with other skeletons says nothing about these. */
export function templatesHash(): string {
  if (hash === undefined) {
    const digest = createHash('sha256').update(abiText());
    for (const name of readdirSync(fileURLToPath(TEMPLATES)).sort()) digest.update(name).update(readFileSync(fileURLToPath(new URL(name, TEMPLATES))));
    hash = digest.digest('hex').slice(0, 16);
  }
  return hash;
}
