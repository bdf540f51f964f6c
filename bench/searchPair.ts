/** A generator and a verifier with made-up weights, which stay open while searches with other settings are measured. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { engineModelOf } from '../commands/engineModel.js';
import { EngineModels } from '../commands/engineModels.js';
import type { LoadedModel } from '../commands/loadModel.js';
import { FIRST_TOKENS, ModelMemory } from '../commands/modelMemory.js';
import { searchPorts } from '../commands/searchModels.js';
import type { Precision } from '../driver/precision.js';
import type { DeviceModel } from '../engine/device.js';
import { Engine, type EngineModel } from '../engine/engine.js';
import type { RequestHandle } from '../engine/handle.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import type { EngineRequest } from '../engine/request.js';
import { askedOf } from '../library/open.js';
import { searchProblem } from '../search/methods/searchProblem.js';
import { TokenTrie } from '../search/models/tokenTrie.js';
import type { SearchOptions } from '../search/options.js';
import type { Problem } from '../search/path.js';
import type { ProblemResult } from '../search/result.js';
import type { BenchTarget } from './command.js';
import { writeMadeUpFolder } from './madeUpFolder.js';
import { type ModelWork, MomentLog, type Role, ROLES, type SearchFigures } from './searchFigures.js';

export interface PairOptions {
  /** Folders of a config.json, or below bench/models. */
  readonly models: Readonly<Record<Role, string>>;
  readonly target: BenchTarget;
  /** Of each model, on a CPU. */
  readonly threads: number;
  readonly verifierPrecision: Precision;
  /** Copies of both models, each on a device of its own. */
  readonly replicas: number;
}

/** Settings of a run, beside those of the search. */
export interface RunOptions {
  readonly search: SearchOptions;
  /** Bytes for keys and values of both models on each device. Default: what is left. */
  readonly memory?: number | undefined;
  /** The generator's share of it, from 0 to 1. Default: it moves by itself. */
  readonly share?: number | undefined;
  /** Most problems at once. Default: as many as there is memory for. */
  readonly atOnce?: number | undefined;
  /** Most tokens of a call. Default: what the models were compiled for. */
  readonly callTokens?: number | undefined;
  /** Seconds after which the run ends where it is. */
  readonly limitSeconds?: number | undefined;
  /** Told from time to time how far it is. */
  readonly onProgress?: ((line: string) => void) | undefined;
}

const PROGRESS_MS = 20_000;

/** An engine that counts what its verifier must compute at least: every different beginning once. */
class CountingEngine extends Engine {
  readonly needed = new TokenTrie();

  override submit<R extends EngineRequest>(request: R, onHeld?: () => void): RequestHandle<R['kind']> {
    if (request.kind === 'score')
      this.needed.add(request.tokens, 1 + Math.max(...request.rows.map((row) => row.position)));
    if (request.kind === 'reward') this.needed.add(request.tokens, 1 + Math.max(...request.positions));
    return super.submit(request, onHeld);
  }
}

interface OpenModel {
  readonly loaded: LoadedModel;
  readonly request: { readonly model: string; readonly devices?: number | 'all' };
}

export class SearchPair {
  private readonly folder: string;
  private readonly models: Readonly<Record<Role, OpenModel>>;
  private isClosed = false;

  private constructor(folder: string, models: Readonly<Record<Role, OpenModel>>) {
    this.folder = folder;
    this.models = models;
  }

  /** Rejects with UserError where a model cannot be opened. */
  static async open({ models, target, threads, verifierPrecision, replicas }: PairOptions): Promise<SearchPair> {
    const folder = mkdtempSync(join(tmpdir(), 'tilewright-search-'));
    const opened: Partial<Record<Role, OpenModel>> = {};
    const close = async (): Promise<void> => {
      for (const each of Object.values(opened)) await each.loaded.close();
      rmSync(folder, { recursive: true, force: true });
    };
    try {
      const engineModels = new EngineModels();
      for (const role of ROLES) {
        // The name says how its texts are written.
        const model = join(folder, role === 'verifier' ? 'rlhflow-verifier' : 'generator');
        writeMadeUpFolder(models[role], model);
        const { asked, ui } = askedOf({
          ...{ model, init: 'random:1', target, threads, batchTokens: undefined },
          ...(role === 'verifier' ? { precision: verifierPrecision } : {}),
          ...(replicas > 1 ? { devices: replicas, parallel: { replicas, stages: 1 } } : {}),
        });
        const { loaded } = await engineModels.open(asked, ui, { logits: false });
        opened[role] = { loaded, request: asked };
      }
      return new SearchPair(folder, opened as Record<Role, OpenModel>);
    } catch (error) {
      await close();
      throw error;
    }
  }

  /** All problems, with memory as it is when models have just been opened. */
  async run(problems: readonly Problem[], options: RunOptions): Promise<SearchFigures> {
    const { search, memory, share, atOnce, callTokens, limitSeconds, onProgress } = options;
    const split = share === undefined ? undefined : [share, 1 - share];
    const budgets = new ModelMemory({ memory, split });
    const engine = new CountingEngine();
    for (const role of ROLES) await shrink(this.models[role]);
    for (const role of ROLES) engine.load(role, limited(freshModel(this.models[role], budgets), callTokens));
    const { loaded: generator } = this.models.generator;
    const { loaded: verifier } = this.models.verifier;
    const ports = await searchPorts(
      engine,
      { loaded: generator, name: 'generator' },
      { loaded: verifier, name: 'verifier' },
      { options: search, ...(atOnce === undefined ? {} : { atOnce }) },
    );
    const { schedule, judge } = ports;
    const writer = schedule.watch(ports.writer);
    const over = new AbortController();
    const timer = limitSeconds === undefined ? undefined : setTimeout(() => over.abort(), 1000 * limitSeconds);
    const results: (ProblemResult | undefined)[] = problems.map(() => undefined);
    let [iterations, tokens] = [0, 0];
    const onIteration = (done: { readonly tokens: number }): void => {
      iterations++;
      tokens += done.tokens;
    };
    const hasSpareTime = (): boolean => schedule.hasSpareTime;
    const searching = { writer, judge, options: search, signal: over.signal, hasSpareTime, onIteration };
    const log = new MomentLog(engine);
    const cpu = process.cpuUsage();
    const started = performance.now();
    const told = setInterval(() => {
      const rate = (1000 * tokens) / (performance.now() - started);
      onProgress?.(`${iterations} iterations, ${tokens} tokens, ${rate.toFixed(0)} tokens/s`);
    }, PROGRESS_MS);
    try {
      await schedule
        .run(
          problems,
          (problem) => searchProblem(problem, searching),
          (result, index) => void (results[index] = result),
          over.signal,
        )
        .catch((error: unknown) => {
          if (!over.signal.aborted) throw error;
        });
      const seconds = (performance.now() - started) / 1000;
      const { user, system } = process.cpuUsage(cpu);
      const work = (role: Role): ModelWork => {
        const { computedTokens, calls, foundTokens, preemptions, evictions } = engine.countsOf(role);
        return { computedTokens, calls, foundTokens, preemptions, evictions };
      };
      return {
        ...{ problems: problems.length, iterations, tokens, seconds },
        ...{ generator: work('generator'), verifier: work('verifier'), verifierNeeded: engine.needed.size },
        cpuSeconds: (user + system) / 1e6,
        moments: log.end(),
        results,
        peakProblems: schedule.peak,
        isCut: over.signal.aborted,
      };
    } finally {
      clearTimeout(timer);
      clearInterval(told);
      log.end();
      await engine.close();
      await ports.close();
    }
  }

  /** May be called again. */
  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    for (const role of ROLES) await this.models[role].loaded.close();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Memory is given back, as far as a model may have none. */
async function shrink({ loaded }: OpenModel): Promise<void> {
  for (const replica of engineModelOf(loaded).replicas) await replica.resize(FIRST_TOKENS / PAGE_TOKENS);
}

/** The model without anything in its pages, and without what would close it. */
function freshModel({ loaded, request }: OpenModel, memory: ModelMemory): EngineModel {
  const replicas = loaded.executor.members?.length ?? 1;
  return engineModelOf(loaded, {
    mostTokens: undefined,
    budgetOf: (replica) => memory.budgetOf(loaded, request, replica, replicas),
  });
}

/** Steps take at most so many tokens. */
function limited(model: EngineModel, callTokens: number | undefined): EngineModel {
  if (callTokens === undefined) return model;
  const of = (replica: DeviceModel): DeviceModel => ({
    ...replica,
    limits: {
      ...replica.limits,
      tokens: Math.min(replica.limits.tokens, callTokens),
      besideTokens: Math.min(replica.limits.besideTokens ?? Infinity, callTokens),
    },
  });
  return { ...model, replicas: model.replicas.map(of) };
}
