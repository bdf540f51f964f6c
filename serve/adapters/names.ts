/**
 * Names of adapters, which clients ask for as models. A name is one content at a time: requests that run keep what they
 * began with, and those behind a change have the new one.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { AdapterRef } from '../../engine/device.js';
import { ApiError, badRequest } from '../apiError.js';
import type { AdapterModels, ServedModel } from '../models.js';

/** What is known of an adapter once its files were read, and it fits the model. */
export interface AdapterFacts extends AdapterRef {
  readonly rank: number;
}

/** The engine's side. */
export interface AdapterSource {
  /** Reads a folder, and brings the adapter to the devices. Rejects with ApiError 400 where that cannot be done. */
  open(path: string): Promise<AdapterFacts>;
  /** Nobody will ask for it again: its slot is free once its last request has ended. */
  release(hash: string): Promise<void>;
}

export interface NamedAdapter {
  readonly name: string;
  readonly facts: AdapterFacts;
}

export interface AdapterOptions {
  /** Of the start. */
  readonly given: readonly NamedAdapter[];
  /** A folder of adapters, whose names are those of its folders: they are read when somebody asks for one. */
  readonly folder?: string | undefined;
  /** Whether clients may load adapters from paths of this machine, and unload them. */
  readonly allowsUpdates: boolean;
}

/** Names that cannot leave a folder. */
const FOLDER_NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const NAME = /^[^\p{Cc}\p{Zl}\p{Zp}]{1,200}$/u;
/** Most names. */
const MAX_NAMES = 10_000;

export class AdapterNames implements AdapterModels {
  /** Adapters as models, in the order of their loading. */
  private readonly named = new Map<string, ServedModel>();
  private readonly base: ServedModel;
  private readonly taken: ReadonlySet<string>;
  private readonly source: AdapterSource;
  private readonly options: AdapterOptions;
  /** Exchanges that read the name of a content and may still ask for it, by its hash. */
  private readonly held = new Map<string, number>();
  /** Work on a name, which waits for what was asked of the name before. */
  private readonly turns = new Map<string, Promise<unknown>>();

  /** `taken`: the names of models. */
  constructor(base: ServedModel, taken: readonly string[], source: AdapterSource, options: AdapterOptions) {
    this.base = base;
    this.taken = new Set(taken);
    this.source = source;
    this.options = options;
    for (const { name, facts } of options.given) this.named.set(name, this.modelOf(name, facts));
  }

  get allowsUpdates(): boolean {
    return this.options.allowsUpdates;
  }

  get models(): readonly ServedModel[] {
    return [...this.named.values()];
  }

  /** Looks a name up in the folder, where there is no model of that name. */
  async find(name: unknown): Promise<void> {
    const { folder } = this.options;
    if (typeof name !== 'string' || folder === undefined || this.has(name) || !FOLDER_NAME.test(name)) return;
    const path = join(folder, name);
    if (!existsSync(join(path, 'adapter_config.json'))) return;
    await this.inTurn(name, async () => {
      if (!this.has(name)) await this.put(name, path);
    });
  }

  /**
   * What the name stands for now stays until the function that is returned is called, once: whoever has read the name
   * may ask for it later, when the name means something else and the folder holds something else.
   */
  hold(name: unknown): () => void {
    const hash = typeof name === 'string' ? this.named.get(name)?.adapter?.hash : undefined;
    if (hash === undefined) return () => undefined;
    this.held.set(hash, (this.held.get(hash) ?? 0) + 1);
    return () => {
      const left = this.held.get(hash)! - 1;
      if (left > 0) return void this.held.set(hash, left);
      this.held.delete(hash);
      // A slot that is not given up is the least recently used one at some time.
      this.releaseUnnamed(hash).catch(() => undefined);
    };
  }

  /** Rejects with ApiError: 400 where the name is taken, or the folder holds no adapter of the model. */
  load(name: string, path: string, inPlace: boolean): Promise<void> {
    if (!NAME.test(name)) throw badRequest('lora_name: expected 1 to 200 letters', 'lora_name');
    return this.inTurn(name, async () => {
      if (this.taken.has(name) || (this.named.has(name) && !inPlace))
        throw badRequest(
          `the name ${JSON.stringify(name)} is taken: unload it first, or say "load_inplace": true`,
          'lora_name',
        );
      await this.put(name, path);
    });
  }

  /** Rejects with ApiError 404 where there is no such adapter. */
  unload(name: string): Promise<void> {
    return this.inTurn(name, async () => {
      const model = this.named.get(name);
      if (model?.adapter === undefined)
        throw new ApiError(404, `there is no adapter ${JSON.stringify(name.slice(0, 200))}`, {
          ...{ param: 'lora_name', code: 'model_not_found' },
        });
      this.named.delete(name);
      await this.releaseUnnamed(model.adapter.hash);
    });
  }

  private has(name: string): boolean {
    return this.taken.has(name) || this.named.has(name);
  }

  private async put(name: string, path: string): Promise<void> {
    if (!this.named.has(name) && this.named.size >= MAX_NAMES)
      throw badRequest(`there are ${MAX_NAMES} adapters already: unload some`, 'lora_name');
    const facts = await this.source.open(path);
    const old = this.named.get(name)?.adapter?.hash;
    this.named.set(name, this.modelOf(name, facts));
    if (old !== undefined && old !== facts.hash) await this.releaseUnnamed(old);
  }

  /** Other names may stand for the same content; who holds it releases it at the end. */
  private async releaseUnnamed(hash: string): Promise<void> {
    if (this.held.has(hash)) return;
    if (![...this.named.values()].some(({ adapter }) => adapter?.hash === hash)) await this.source.release(hash);
  }

  private modelOf(name: string, { hash, path, rank }: AdapterFacts): ServedModel {
    const { base } = this;
    return {
      ...base,
      names: [name],
      created: Math.floor(Date.now() / 1000),
      fingerprint: `${base.fingerprint}-${hash.slice(0, 12)}`,
      adapter: { hash, path, rank, parent: base.names[0] ?? base.key },
    };
  }

  private async inTurn<T>(name: string, work: () => Promise<T>): Promise<T> {
    const before = this.turns.get(name);
    const turn = (before ?? Promise.resolve()).catch(() => undefined).then(work);
    this.turns.set(name, turn);
    try {
      return await turn;
    } finally {
      if (this.turns.get(name) === turn) this.turns.delete(name);
    }
  }
}
