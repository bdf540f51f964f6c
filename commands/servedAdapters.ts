/** Adapters of a server: those of its start, and those that are named later. */
import { readdirSync, statSync } from 'node:fs';
import type { Engine } from '../engine/engine.js';
import { UsageError, UserError } from '../errors.js';
import { ADAPTER_RANK } from '../ir/adapterRows.js';
import { roundUp } from '../ir/types.js';
import type { AdapterSlots } from '../ir/adapterRows.js';
import type { AdapterFacts, AdapterOptions, AdapterSource } from '../serve/adapters/names.js';
import { AdapterReader } from './adapterReader.js';

export interface ServedAdapters {
  /** Names, and the folders of the adapters. */
  readonly given: readonly { readonly name: string; readonly path: string }[];
  /** A folder of adapters, which are read when somebody asks for one. */
  readonly folder?: string;
  /** Whether clients may load and unload adapters. */
  readonly allowsUpdates: boolean;
  /** Adapters that a device holds side by side. Default: DEFAULT_SLOTS, or as many as are given. */
  readonly slots?: number;
  /** Largest rank. Default: of those that are given, at least DEFAULT_RANK. */
  readonly rank?: number;
}

export const DEFAULT_SLOTS = 16;
export const DEFAULT_RANK = 16;

/** Adapters as a server has read them before it opens its model. */
export class OpenedAdapters {
  /** Rejects with UserError where a folder holds no adapter of the checkpoint at `model`. */
  static async open(model: string, asked: ServedAdapters): Promise<OpenedAdapters> {
    const names = asked.given.map(({ name }) => name);
    const twice = names.find((name, i) => names.indexOf(name) !== i);
    if (twice !== undefined)
      throw new UsageError(
        `two adapters would be called ${JSON.stringify(twice)}`,
        'give them names: --adapter first=DIR --adapter second=DIR',
      );
    if (asked.folder !== undefined) requireFolder(asked.folder);
    const reader = new AdapterReader(model);
    const given: { name: string; facts: AdapterFacts }[] = [];
    for (const { name, path } of asked.given) given.push({ name, facts: await reader.read(path) });
    return new OpenedAdapters(reader, asked, given);
  }

  readonly slots: AdapterSlots;
  readonly options: AdapterOptions;
  private readonly reader: AdapterReader;

  private constructor(
    reader: AdapterReader,
    { folder, allowsUpdates, slots, rank }: ServedAdapters,
    given: AdapterOptions['given'],
  ) {
    this.reader = reader;
    const largest = Math.max(DEFAULT_RANK, ...given.map(({ facts }) => facts.rank));
    const contents = new Set(given.map(({ facts }) => facts.hash));
    this.slots = {
      slots: slots ?? Math.max(DEFAULT_SLOTS, contents.size),
      rank: roundUp(rank ?? largest, ADAPTER_RANK),
    };
    this.options = { given, folder, allowsUpdates };
  }

  /** Whoever reads more of them, for the engine's model called `key`. */
  sourceFor(engine: Engine, key: string): AdapterSource {
    return {
      open: async (path) => {
        const read = await this.reader.read(path);
        await bringToDevices(engine, key, read);
        return read;
      },
      release: (hash) => engine.unloadAdapter(hash, key),
    };
  }

  close(): Promise<void> {
    return this.reader.close();
  }
}

/** Rejects where devices cannot hold the adapter: a request of one token is computed with it. */
async function bringToDevices(engine: Engine, model: string, { hash, path, rank }: AdapterFacts): Promise<void> {
  const named = { model, adapter: { hash, path, rank } };
  const handle =
    engine.limitsOf(model).classes !== undefined
      ? engine.submit({ kind: 'reward', tokens: [0], positions: [0], ...named })
      : engine.submit({ kind: 'score', tokens: [0], rows: [{ position: 0 }], ...named });
  for (let events = await handle.read(); events.length > 0; events = await handle.read())
    for (const event of events) if (event.kind === 'failed') throw event.error;
}

function requireFolder(folder: string): void {
  const isFolder = statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true;
  if (!isFolder) throw new UserError(`--adapter-folder ${folder}: there is no such folder`);
  if (readdirSync(folder).some((name) => name === 'adapter_config.json'))
    throw new UserError(
      `--adapter-folder ${folder}: it is an adapter itself`,
      `give the folder that it lies in, or --adapter ${folder}`,
    );
}
