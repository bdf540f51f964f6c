/**
 * What adapters' names stand for: a folder, and the revision of what is in it. A revision is the digest of the files
 * that an adapter is read from, or what the configuration calls it. Replicas hold an adapter as NAME@REVISION, so each
 * says by itself which content it has.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { realpath, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { reasonOf } from '../../system/process.js';
import type { AdapterConfig } from './config.js';
import type { Tell } from './events.js';

/** A revision that can be loaded now. */
export interface Source {
  readonly revision: string;
  /** For replicas. */
  readonly path: string;
}

interface Entry {
  readonly config: AdapterConfig;
  source: Source | undefined;
  /** Sizes and times of the files that the digest is of. */
  signature: string;
  /** Why there is no source, or no newer one. */
  problem: string | undefined;
}

/** Files that an adapter is read from. */
const FILES = /^adapter_(config[.]json|model([.-][\w.-]*)?[.](safetensors|bin|json))$/;
const MAX_FILES = 256;
const MAX_BYTES = 64 * 2 ** 30;
const REVISION_DIGITS = 12;

const AT = '@';
export const heldName = ({ name, revision }: { readonly name: string; readonly revision: string }): string =>
  `${name}${AT}${revision}`;

/** Undefined for a name without a revision. */
export function parseHeldName(held: string): { readonly name: string; readonly revision: string } | undefined {
  const at = held.lastIndexOf(AT);
  return at <= 0 || at === held.length - 1 ? undefined : { name: held.slice(0, at), revision: held.slice(at + 1) };
}

/** Files of an adapter below a folder: their sizes and times as one text. Throws the system's errors. */
async function signatureOf(folder: string): Promise<{ readonly files: readonly string[]; readonly text: string }> {
  const names = (await readdir(folder)).filter((name) => FILES.test(name)).sort();
  if (!names.includes('adapter_config.json')) throw new Error('there is no adapter_config.json in it');
  if (names.length < 2) throw new Error('there are no weights in it: adapter_model.safetensors');
  if (names.length > MAX_FILES) throw new Error(`there are more than ${MAX_FILES} files in it`);
  let total = 0;
  const parts: string[] = [];
  for (const name of names) {
    const found = await stat(join(folder, name), { bigint: true });
    if (!found.isFile()) throw new Error(`${name} is no file`);
    total += Number(found.size);
    parts.push([name, found.size, found.mtimeNs, found.ctimeNs, found.ino, found.dev].join(' '));
  }
  if (total > MAX_BYTES) throw new Error(`it has more than ${MAX_BYTES / 2 ** 30} GiB`);
  return { files: names, text: parts.join('\n') };
}

async function digestOf(folder: string, files: readonly string[]): Promise<string> {
  const hash = createHash('sha256');
  for (const name of files) {
    const { size } = await stat(join(folder, name));
    // Names and sizes as well: no two lists of files have the same bytes.
    hash.update(`${name}\0${size}\0`);
    for await (const chunk of createReadStream(join(folder, name), { highWaterMark: 1 << 20 }))
      hash.update(chunk as Buffer);
  }
  return hash.digest('hex').slice(0, REVISION_DIGITS);
}

export class AdapterBook {
  private readonly entries = new Map<string, Entry>();
  private readonly tell: Tell;

  constructor(configs: readonly AdapterConfig[], tell: Tell) {
    this.tell = tell;
    for (const config of configs)
      this.entries.set(config.name, { config, source: undefined, signature: '', problem: 'it was not looked at yet' });
  }

  get names(): Iterable<string> {
    return this.entries.keys();
  }

  configOf(name: string): AdapterConfig | undefined {
    return this.entries.get(name)?.config;
  }

  sourceOf(name: string): Source | undefined {
    return this.entries.get(name)?.source;
  }

  problemOf(name: string): string | undefined {
    return this.entries.get(name)?.problem;
  }

  /** Looks at all folders. Returns the names whose revision is another than before. */
  async look(): Promise<readonly string[]> {
    const changed: string[] = [];
    for (const [name, entry] of this.entries) if (await this.lookAt(name, entry)) changed.push(name);
    return changed;
  }

  /** Whether a revision is still what its folder holds. */
  async isCurrent(name: string, revision: string): Promise<boolean> {
    const entry = this.entries.get(name);
    if (entry === undefined) return false;
    await this.lookAt(name, entry);
    return entry.problem === undefined && entry.source?.revision === revision;
  }

  private async lookAt(name: string, entry: Entry): Promise<boolean> {
    const { config } = entry;
    const before = entry.source?.revision;
    if (config.revision !== undefined) {
      entry.source = { revision: config.revision, path: config.path };
      entry.problem = undefined;
      return before !== config.revision;
    }
    try {
      // A link that is set to another folder is a new revision, and replicas are told the folder itself.
      const folder = await realpath(config.folder);
      const seen = await signatureOf(folder);
      const signature = `${folder}\n${seen.text}`;
      if (signature !== entry.signature || entry.source === undefined) {
        const revision = await digestOf(folder, seen.files);
        // Files that change while they are read are looked at again the next time.
        if ((await signatureOf(folder)).text !== seen.text) throw new Error('its files are being written');
        entry.signature = signature;
        entry.source = { revision, path: config.folder === config.path ? folder : config.path };
      }
      if (entry.problem !== undefined && before !== undefined)
        this.tell({
          event: 'revision',
          adapter: name,
          revision: entry.source.revision,
          why: 'its folder is there again',
        });
      entry.problem = undefined;
    } catch (error) {
      const problem = `its folder cannot be read: ${reasonOf(error)}`;
      if (problem !== entry.problem)
        this.tell({
          event: 'error',
          why: `adapter ${name}: ${problem}${before === undefined ? '' : '; what replicas hold is still served'}`,
        });
      entry.problem = problem;
    }
    return entry.source?.revision !== before;
  }
}
