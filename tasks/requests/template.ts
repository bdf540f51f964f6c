/** A template of a task file: parsed once, rendered for each document. */
import { UserError } from '../../errors.js';
import { JinjaTemplate, TASK_ENVIRONMENT, TemplateProblem } from '../../python/jinja/template.js';
import type { Dict } from '../../python/value.js';
import { clipped } from '../../system/json.js';

const HINT = 'Templates may use all of Jinja but other files, as lm-eval’s own task files do';

export class Template {
  readonly #template: JinjaTemplate;
  readonly #where: string;

  /** `where`: file, line and key of the template. Throws UserError that adds what is not supported. */
  constructor(source: string, where: string) {
    this.#where = where;
    this.#template = this.#named(() => new JinjaTemplate(source, TASK_ENVIRONMENT));
  }

  /** Throws UserError that names the template and the document. */
  render(fields: Dict, document: string): string {
    return this.#named(() => this.#template.render(fields), `, ${document}`);
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
