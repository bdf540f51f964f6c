/** The file of `tilewright route`: strict JSON, within bounds, errors that name the field. */
import { z } from 'zod';
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import { parseJson, quote } from '../../system/json.js';
import { decodeUtf8, readBounded } from '../../system/read.js';
import { nearest } from '../../system/text.js';

export interface ReplicaConfig {
  /** In logs, metrics and the status: the file's name for it, or host and port. */
  readonly id: string;
  /** Without a path, a query and a trailing slash. */
  readonly url: string;
  /** What the replica wants to see of whoever asks it. */
  readonly key?: string;
  /** Share of the load, relative to the others. */
  readonly weight: number;
}

export interface AdapterConfig {
  /** What clients ask for as `model`. */
  readonly name: string;
  /** The model that it belongs to, as replicas serve it. */
  readonly base: string;
  /** Its folder as replicas see it. */
  readonly path: string;
  /** The same folder as this process sees it. */
  readonly folder: string;
  /** A name for its content; without one the folder is read, and its digest is the name. */
  readonly revision?: string;
}

export interface RouteConfig {
  readonly listen: { readonly host: string; readonly port: number };
  readonly replicas: readonly ReplicaConfig[];
  readonly adapters: readonly AdapterConfig[];
  /** What clients must show; none: everybody is let in. */
  readonly clientKeys: readonly string[];
  /** What drains and the status ask for; none: this machine's own programs only. */
  readonly adminKeys: readonly string[];
  readonly policy: z.infer<typeof policySchema>;
  readonly probe: z.infer<typeof probeSchema>;
  readonly limits: z.infer<typeof limitsSchema>;
}

export const MAX_REPLICAS = 256;
export const MAX_ADAPTERS = 65_536;
const MAX_FILE_BYTES = 32 << 20;
const MAX_SECONDS = 7 * 24 * 3600;

const seconds = (least = 0.05): z.ZodNumber => z.number().min(least).max(MAX_SECONDS);
const whole = (least: number, most: number): z.ZodNumber => z.int().min(least).max(most);
const name = z.string().regex(/^[^\p{Cc}\p{Zl}\p{Zp}@]{1,200}$/u, 'expected 1 to 200 letters, without @');
/** Also what stands in a URL, a header and a label as it is. */
const word = z.string().regex(/^[\w.:-]{1,100}$/, 'expected letters, digits and . : - _');
const variable = z.string().regex(/^[A-Za-z_]\w{0,100}$/, 'expected the name of an environment variable');
const path = z.string().regex(/^[^\0]{1,4096}$/, 'expected a path');

const policySchema = z.strictObject({
  /** A replica takes at most (1 + epsilon) times the mean load. */
  epsilon: z.number().min(0.01).max(16).default(0.5),
  /** How often adapters are spread anew. */
  placementSeconds: seconds(0.1).default(30),
  /** Periods for which demand must stay low before an adapter leaves a replica. */
  quietPeriods: whole(1, 1000).default(3),
  /** Requests that a replica of weight 1 runs at a time. */
  running: whole(1, 65_536).default(256),
  /** Adapters that a replica holds, where its metrics do not say. */
  slots: whole(1, 65_536).default(8),
});

const probeSchema = z.strictObject({
  periodSeconds: seconds().default(2),
  timeoutSeconds: seconds().default(2),
  /** Probes that fail in a row until a replica counts as down. */
  failures: whole(1, 100).default(2),
});

const limitsSchema = z.strictObject({
  bodyMiB: whole(1, 1024).default(32),
  /** Of all bodies that are held at a time. */
  heldMiB: whole(1, 1 << 20).default(1024),
  connections: whole(1, 1_000_000).default(16_384),
  /** Requests that wait for a replica, or for an adapter that is being loaded. */
  waiting: whole(0, 1_000_000).default(4096),
  /** So long. */
  waitSeconds: seconds().default(30),
  connectSeconds: seconds().default(3),
  /** A load of an adapter by a replica. */
  loadSeconds: seconds().default(120),
  /** Replicas that a request is tried on. */
  attempts: whole(1, 100).default(4),
  /** A client that takes nothing of what waits for it for so long is let go. */
  stallSeconds: seconds().default(120),
  /** What runs has so long once the router is told to stop. */
  drainSeconds: seconds().default(30),
});

const replicaSchema = z.strictObject({
  name: word.optional(),
  url: z.string().max(2000),
  keyVariable: variable.optional(),
  weight: z.number().min(0.001).max(1000).default(1),
});

const adapterSchema = z.strictObject({
  base: name,
  path,
  folder: path.optional(),
  revision: z
    .string()
    .regex(/^[\w.-]{1,64}$/, 'expected at most 64 letters, digits and . - _')
    .optional(),
});

const schema = z.strictObject({
  listen: z
    .strictObject({
      host: z.string().min(1).max(255).default('127.0.0.1'),
      port: whole(0, 65_535).default(8100),
    })
    .prefault({}),
  replicas: z.array(replicaSchema).min(1).max(MAX_REPLICAS),
  adapters: z.record(name, adapterSchema).default({}),
  clientKeyVariables: z.array(variable).max(1000).default([]),
  adminKeyVariable: variable.optional(),
  policy: policySchema.prefault({}),
  probe: probeSchema.prefault({}),
  limits: limitsSchema.prefault({}),
});

/** A shortest file, for help and errors. */
export const EXAMPLE_CONFIG = '{"replicas": [{"url": "http://127.0.0.1:8000"}]}';
const HINT = `a shortest one: ${EXAMPLE_CONFIG}; see tilewright route --help`;

/** `variableOf`: what an environment variable holds. Throws UserError for a file that cannot be meant so. */
export function readConfig(file: string, variableOf: (variable: string) => string | undefined): RouteConfig {
  const text = decodeUtf8(readBounded(file, MAX_FILE_BYTES, HINT), file);
  return configOf(parseJson(text, file, HINT), file, variableOf);
}

/** Of a value that was read from `file`. */
export function configOf(
  value: unknown,
  file: string,
  variableOf: (variable: string) => string | undefined,
): RouteConfig {
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw refusal(file, parsed.error.issues[0]!, value);
  const { replicas, adapters, clientKeyVariables, adminKeyVariable, ...rest } = parsed.data;
  const secret = (from: string, where: string): string => {
    const found = variableOf(from);
    if (found !== undefined && /^[\x21-\x7e]{1,4096}$/.test(found)) return found;
    const what = found === undefined ? 'is not set' : 'holds no key: letters of ASCII without spaces';
    throw new UserError(`${file}: ${where}: the environment variable ${from} ${what}`, `set it: ${from}=KEY`);
  };
  const names = Object.keys(adapters);
  if (names.length > MAX_ADAPTERS)
    throw new UserError(`${file}: adapters: ${names.length} of them, at most ${MAX_ADAPTERS}`, 'use several routers');
  return {
    ...rest,
    replicas: replicasOf(file, replicas, secret),
    adapters: Object.entries(adapters).map(([own, { base, path: at, folder = at, revision }]) => {
      if (base === own)
        throw new UserError(`${file}: adapters.${quote(own)}: has the name of its base`, 'give it another name');
      return { name: own, base, path: at, folder, ...defined({ revision }) };
    }),
    clientKeys: clientKeyVariables.map((each, i) => secret(each, `clientKeyVariables[${i}]`)),
    adminKeys: adminKeyVariable === undefined ? [] : [secret(adminKeyVariable, 'adminKeyVariable')],
  };
}

function replicasOf(
  file: string,
  given: readonly z.infer<typeof replicaSchema>[],
  secret: (variable: string, where: string) => string,
): readonly ReplicaConfig[] {
  const replicas = given.map(({ name: own, url: address, keyVariable, weight }, i): ReplicaConfig => {
    const where = `replicas[${i}]`;
    const url = URL.canParse(address) ? new URL(address) : undefined;
    const isPlain =
      url !== undefined &&
      /^https?:$/.test(url.protocol) &&
      url.username === '' &&
      url.password === '' &&
      /^\/(v1\/?)?$/.test(url.pathname) &&
      url.search === '' &&
      url.hash === '';
    if (!isPlain)
      throw new UserError(
        `${file}: ${where}.url: expected http:// or https:// with a host and a port, and nothing behind, not ` +
          quote(address),
        'for example: "url": "http://10.0.0.5:8000"',
      );
    return {
      id: own ?? url.host,
      url: url.origin,
      weight,
      ...(keyVariable === undefined ? {} : { key: secret(keyVariable, `${where}.keyVariable`) }),
    };
  });
  for (const field of ['url', 'id'] as const) {
    const all = replicas.map((each) => each[field]);
    const second = all.findIndex((each, i) => all.indexOf(each) !== i);
    if (second < 0) continue;
    const what = field === 'url' ? 'url' : 'name';
    throw new UserError(
      `${file}: replicas[${all.indexOf(all[second]!)}] and [${second}] have one ${what}: ${all[second]!}`,
      field === 'url' ? 'name each replica once; weight makes one take more' : 'give each a name of its own',
    );
  }
  return replicas;
}

/** Names of fields beside one that is not known, where the schema has such an object. */
const SIBLINGS: Readonly<Record<string, readonly string[]>> = {
  '': Object.keys(schema.shape),
  listen: ['host', 'port'],
  replicas: Object.keys(replicaSchema.shape),
  adapters: Object.keys(adapterSchema.shape),
  policy: Object.keys(policySchema.shape),
  probe: Object.keys(probeSchema.shape),
  limits: Object.keys(limitsSchema.shape),
};

function refusal(file: string, issue: z.core.$ZodIssue, value: unknown): UserError {
  const where = placeOf(issue.path);
  if (issue.code === 'unrecognized_keys') {
    const stray = issue.keys[0] ?? '';
    const known = SIBLINGS[String(issue.path[0] ?? '')] ?? [];
    const meant = nearest(stray, known);
    return new UserError(
      `${file}: ${where === '' ? '' : `${where}: `}there is no field ${quote(stray)}`,
      meant === undefined ? `there are: ${known.join(', ')}` : `did you mean ${quote(meant)}?`,
    );
  }
  const given = valueAt(value, issue.path);
  const what = issue.code === 'invalid_key' ? (issue.issues[0]?.message ?? issue.message) : issue.message;
  const shown = given === undefined ? '' : ` (${quote(given)})`;
  return new UserError(`${file}: ${where === '' ? '' : `${where}: `}${what.slice(0, 300)}${shown}`, HINT);
}

const placeOf = (path: readonly PropertyKey[]): string =>
  path.map((each, i) => (typeof each === 'number' ? `[${each}]` : `${i > 0 ? '.' : ''}${wordOf(each)}`)).join('');

const wordOf = (key: PropertyKey): string => (/^[\w-]+$/.test(String(key)) ? String(key) : quote(String(key)));

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  let at = value;
  for (const key of path) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, key)) return undefined;
    at = (at as Readonly<Record<PropertyKey, unknown>>)[key];
  }
  return at;
}
