/** A template of a task file: parsed once, rendered for each document. */
import { UserError } from '../../errors.js';
import { clipped } from '../../system/json.js';
import type { Dict } from '../../python/value.js';
import { evaluateTemplate } from './evaluate.js';
import { parseTemplate } from './parse.js';
import { TemplateProblem, type Statement } from './syntax.js';

const HINT = 'Templates may use loops, conditions, filters and methods of text, as lm-eval’s own task files do';

export class Template {
  readonly #statements: readonly Statement[];
  readonly #where: string;

  /** `where`: file, line and key of the template. Throws UserError that adds what is not supported. */
  constructor(source: string, where: string) {
    this.#where = where;
    this.#statements = this.#named(() => parseTemplate(source));
  }

  /** Throws UserError that names the template and the document. */
  render(fields: Dict, document: string): string {
    return this.#named(() => evaluateTemplate(this.#statements, fields), `, ${document}`);
  }

  #named<T>(action: () => T, document = ''): T {
    try {
      return action();
    } catch (error) {
      if (!(error instanceof TemplateProblem)) throw error;
      const line = error.line > 1 ? `, line ${error.line} of the template` : '';
      throw new UserError(`${this.#where}${line}${document}: ${clipped(error.message)}`, HINT, { cause: error });
    }
  }
}
