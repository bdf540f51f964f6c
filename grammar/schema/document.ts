/** A schema as a document: its bounds, its drafts, where each part stands, and what references name. */
import { GrammarError } from '../grammar.js';

export type JsonObject = Readonly<Record<string, unknown>>;

/** JSON values of a schema, and how deep they lie. */
const MAX_VALUES = 400_000;
const MAX_DEPTH = 256;

/** A document, or a part of one with a URI of its own: what `#/…` and anchors refer to. */
interface Resource {
  readonly root: object;
  readonly uri: string;
  /** Up to draft 7, what stands beside `$ref` does not count. */
  readonly isRefAlone: boolean;
  readonly anchors: Map<string, object>;
}

interface Place {
  readonly parent: object | undefined;
  readonly key: string;
  readonly resource: Resource;
}

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** A keyword's value. Names that every object inherits are no keywords. */
export const own = (schema: JsonObject, keyword: string): unknown =>
  Object.hasOwn(schema, keyword) ? schema[keyword] : undefined;

/** Keywords whose values are schemas, or lists of some, and those whose members have names, not keywords. */
const SCHEMAS = new Set([
  ...['additionalItems', 'additionalProperties', 'allOf', 'anyOf', 'contains', 'contentSchema', 'else', 'if', 'items'],
  ...['not', 'oneOf', 'prefixItems', 'propertyNames', 'then', 'unevaluatedItems', 'unevaluatedProperties'],
]);
const NAMED = new Set(['$defs', 'definitions', 'dependencies', 'dependentSchemas', 'patternProperties', 'properties']);

const OLD_DRAFTS = /^https?:\/\/json-schema\.org\/draft-0[3-7]\/schema#?$/u;
const BASE = 'schema:///';

/** What the keys of a keyword's value are. Identifiers within an unknown keyword do not count. */
const roleOf = (keyword: string): Role => (SCHEMAS.has(keyword) ? 'schema' : NAMED.has(keyword) ? 'names' : 'value');

/** Whether keys are keywords, names of schemas, or of no schema. */
type Role = 'schema' | 'names' | 'value';

const escapeKey = (key: string): string => key.replaceAll('~', '~0').replaceAll('/', '~1');

export class SchemaDocument {
  readonly #places = new Map<object, Place>();
  readonly #resources = new Map<string, Resource>();
  readonly #root: unknown;

  /** Throws GrammarError where the schema is beyond bounds. */
  constructor(root: unknown) {
    this.#root = root;
    if (typeof root === 'object' && root !== null) this.#read(root);
  }

  #read(root: object): void {
    interface Entry extends Omit<Place, 'resource'> {
      readonly value: object;
      readonly depth: number;
      readonly resource: Resource | undefined;
      readonly role: Role;
    }
    const stack: Entry[] = [{ value: root, parent: undefined, key: '', depth: 0, resource: undefined, role: 'schema' }];
    let count = 0;
    for (let entry = stack.pop(); entry !== undefined; entry = stack.pop()) {
      const { value, parent, key, depth, role } = entry;
      if (depth > MAX_DEPTH) throw new GrammarError(`The schema is nested deeper than ${MAX_DEPTH} levels.`);
      const resource = this.#resourceOf(value, entry.resource, role === 'schema');
      this.#places.set(value, { parent, key, resource });
      for (const [name, child] of Object.entries(value)) {
        if (++count > MAX_VALUES) throw new GrammarError(`The schema has more than ${MAX_VALUES} values.`);
        if (typeof child !== 'object' || child === null) continue;
        const childRole =
          role === 'schema' && !Array.isArray(value) ? roleOf(name) : role === 'names' ? 'schema' : role;
        stack.push({ value: child, parent: value, key: name, depth: depth + 1, resource, role: childRole });
      }
    }
  }

  /** The resource that a value is part of: a new one where it has an identifier. */
  #resourceOf(value: object, outer: Resource | undefined, isSchema: boolean): Resource {
    if (outer !== undefined && (!isSchema || Array.isArray(value))) return outer;
    const schema = value as JsonObject;
    const draft = own(schema, '$schema') ?? undefined;
    const isRefAlone = typeof draft === 'string' ? OLD_DRAFTS.test(draft) : outer !== undefined && outer.isRefAlone;
    let id = own(schema, '$id') ?? (isRefAlone || outer === undefined ? own(schema, 'id') : undefined);
    // Beside a reference that counts alone, an identifier does not count.
    if (isRefAlone && typeof own(schema, '$ref') === 'string' && outer !== undefined) id = undefined;
    const anchors = [own(schema, '$anchor'), own(schema, '$dynamicAnchor')].filter((name) => typeof name === 'string');
    let resource = outer;
    if (typeof id === 'string' && id.startsWith('#') && id !== '#') anchors.push(id.slice(1));
    else if (typeof id === 'string' || resource === undefined) {
      const uri = resolveUri(typeof id === 'string' ? id : '', outer?.uri ?? BASE)?.split('#')[0] ?? BASE;
      const made: Resource = { root: value, uri, isRefAlone, anchors: new Map() };
      if (!this.#resources.has(uri)) this.#resources.set(uri, made);
      resource = made;
    }
    const found = resource ?? { root: value, uri: BASE, isRefAlone, anchors: new Map<string, object>() };
    for (const name of anchors) if (!found.anchors.has(name)) found.anchors.set(name, value);
    return found;
  }

  /** Where a part of the schema stands, as a JSON pointer; `keyword` of it. */
  pointer(part: unknown, keyword?: string): string {
    const keys: string[] = keyword === undefined ? [] : [escapeKey(keyword)];
    for (let at: unknown = part; typeof at === 'object' && at !== null;) {
      const place = this.#places.get(at);
      if (place?.parent === undefined) break;
      keys.push(escapeKey(place.key));
      at = place.parent;
    }
    return keys.length === 0 ? '' : `/${keys.reverse().join('/')}`;
  }

  /** Whether what stands beside a `$ref` of this part does not count. */
  isRefAlone(part: object): boolean {
    return this.#places.get(part)?.resource.isRefAlone ?? false;
  }

  /** What a reference in this part names. Throws GrammarError where that is not in this document. */
  resolve(reference: string, part: object): unknown {
    const where = this.pointer(part, '$ref');
    const resource = this.#places.get(part)?.resource;
    if (resource === undefined) throw new GrammarError('A reference stands outside of the schema.', where);
    const full = resolveUri(reference, resource.uri);
    const mark = full?.indexOf('#') ?? -1;
    const uri = mark < 0 ? full : full?.slice(0, mark);
    const target =
      reference.startsWith('#') || uri === resource.uri ? resource : uri === undefined ? uri : this.#resources.get(uri);
    if (target === undefined)
      throw new GrammarError(`"${reference.slice(0, 200)}" refers to another document; only local ones work.`, where);
    const fragment = reference.startsWith('#') ? reference.slice(1) : mark < 0 ? '' : (full?.slice(mark + 1) ?? '');
    const decoded = decodeFragment(fragment);
    if (decoded === '') return target.root;
    const found = decoded?.startsWith('/') === true ? follow(target.root, decoded) : target.anchors.get(decoded ?? '');
    if (found === undefined) throw new GrammarError(`"${reference.slice(0, 200)}" refers to nothing.`, where);
    return found;
  }

  get root(): unknown {
    return this.#root;
  }
}

function resolveUri(reference: string, base: string): string | undefined {
  try {
    return new URL(reference, base).href;
  } catch {
    return undefined;
  }
}

function decodeFragment(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

function follow(root: unknown, pointer: string): unknown {
  let at = root;
  for (const part of pointer.slice(1).split('/')) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, key)) return undefined;
    at = (at as JsonObject)[key];
  }
  return at;
}
