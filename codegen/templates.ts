/**
 * Templates of generated code: folders of Handlebars templates, found from the source and from dist. The build compiles
 * them and leaves the result beside their texts (scripts/buildDist.mjs), so that a command need not compile them.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import type Handlebars from 'handlebars';

/** Generated code is not HTML. A name that a template misspells is an error. */
export const TEMPLATE_OPTIONS = { noEscape: true, strict: true, assumeObjects: true };

type HandlebarsModule = typeof Handlebars;
type CompiledTemplate = Parameters<HandlebarsModule['template']>[0];

const require = createRequire(import.meta.url);

/** The templates `NAME` + suffix of one folder. */
export class Templates<Name extends string> {
  readonly #folder: URL;
  readonly #suffix: string;
  readonly #besides: () => string;
  readonly #ready = new Map<Name, Handlebars.TemplateDelegate<object>>();
  #build: ((name: Name) => Handlebars.TemplateDelegate<object>) | undefined;
  #hash: string | undefined;

  /**
   * @param folder a URL that ends in a slash.
   * @param suffix of the files, `.c.hbs` for example.
   * @param besides text that belongs to every template, for the digest.
   */
  constructor(folder: URL, suffix: string, besides: () => string = () => '') {
    this.#folder = folder;
    this.#suffix = suffix;
    this.#besides = besides;
  }

  /** Prints a template. An unknown name in the template is an error. Nothing is escaped. */
  render(name: Name, values: object): string {
    let template = this.#ready.get(name);
    if (template === undefined) {
      template = (this.#build ??= this.#builder())(name);
      this.#ready.set(name, template);
    }
    return template(values);
  }

  /**
   * Hex digest of the text of every template and of `besides`. Tuning records made with other templates are not used.
   */
  hash(): string {
    if (this.#hash === undefined) {
      const digest = createHash('sha256').update(this.#besides());
      for (const file of readdirSync(fileURLToPath(this.#folder))
        .filter((file) => file.endsWith(this.#suffix))
        .sort())
        digest.update(file).update(this.#text(file));
      this.#hash = digest.digest('hex').slice(0, 16);
    }
    return this.#hash;
  }

  #builder(): (name: Name) => Handlebars.TemplateDelegate<object> {
    const file = fileURLToPath(new URL('compiled.cjs', this.#folder));
    if (existsSync(file)) {
      const { template } = require('handlebars/runtime') as HandlebarsModule;
      const compiled = require(file) as Readonly<Record<string, CompiledTemplate>>;
      return (name) => {
        const found = compiled[`${name}${this.#suffix}`];
        if (found === undefined) throw new Error(`${file} has no template ${name}; npm run build makes it anew`);
        return template(found);
      };
    }
    const { compile } = require('handlebars') as HandlebarsModule;
    return (name) => compile(this.#text(`${name}${this.#suffix}`), TEMPLATE_OPTIONS);
  }

  #text(file: string): string {
    return readFileSync(fileURLToPath(new URL(file, this.#folder)), 'utf8');
  }
}
