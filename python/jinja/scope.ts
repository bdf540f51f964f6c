/** The names of a template that is being rendered. */
import type { Value } from '../value.js';
import type { Body } from './syntax.js';

/** What a template is given, what it has set outside of all blocks, and what its environment gives every template. */
export class Names {
  readonly given: ReadonlyMap<string, Value>;
  readonly globals: ReadonlyMap<string, Value>;
  readonly set: Map<string, Value>;

  constructor(given: ReadonlyMap<string, Value>, globals: ReadonlyMap<string, Value>, set = new Map<string, Value>()) {
    this.given = given;
    this.globals = globals;
    this.set = set;
  }

  get(name: string): Value | undefined {
    for (const names of [this.set, this.given, this.globals]) {
      const value = names.get(name);
      if (value !== undefined) return value;
    }
    return undefined;
  }
}

/** The names of one body while it runs. */
export class Scope {
  readonly #outer: Scope | undefined;
  readonly #names: Names;
  readonly #values = new Map<string, Value | undefined>();

  /** Every name of the body begins as the body says. */
  constructor(body: Body, names: Names, outer: Scope | undefined) {
    this.#outer = outer;
    this.#names = names;
    for (const [name, origin] of body.origins)
      this.#values.set(
        name,
        origin === 'context' ? names.get(name) : origin === 'outer' ? outer?.get(name) : undefined,
      );
  }

  get(name: string): Value | undefined {
    const value = this.#values.get(name);
    if (value !== undefined || this.#values.has(name)) return value;
    return this.#outer === undefined ? this.#names.get(name) : this.#outer.get(name);
  }

  set(name: string, value: Value | undefined): void {
    this.#values.set(name, value);
  }

  /** All names that have a value, the inner ones first. */
  all(): Map<string, Value> {
    const all = this.#outer?.all() ?? new Map<string, Value>();
    for (const [name, value] of this.#values) if (value !== undefined) all.set(name, value);
    return all;
  }

  get names(): Names {
    return this.#names;
  }
}
