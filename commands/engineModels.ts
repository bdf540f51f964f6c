/** Opens models for an engine, one after another, in one process of devices, beside one another in memory. */
import { DeviceHost } from '../driver/devices/deviceHost.js';
import { settleTarget } from '../driver/devices/chooseTarget.js';
import { Phases } from '../driver/phases.js';
import type { WithTargetChoice } from '../driver/precision.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import { mayFeed } from '../driver/targets/index.js';
import type { EngineModel } from '../engine/engine.js';
import type { ModelDrafts } from '../engine/speculation.js';
import { classesOf } from '../models/model/model.js';
import { compileWithCache, type Demand } from './cacheSize.js';
import { engineModelOf } from './engineModel.js';
import { beginLoading, type LoadedModel } from './loadModel.js';
import { FIRST_TOKENS, type MemoryOptions, ModelMemory } from './modelMemory.js';

/** The smallest cache: a budget gives more once the model is there. */
const DEMAND: Demand = { prompt: 1, where: 'a prompt', least: 2, longest: 2, total: FIRST_TOKENS };

export interface OpenedForEngine {
  readonly loaded: LoadedModel;
  /** As the engine takes it. Closing it is the caller's. */
  readonly model: EngineModel;
}

export interface OpenOptions {
  /** Steps can keep logits, which filters, penalties, biases and top log-probabilities need. Default: true. */
  readonly logits?: boolean;
  /** Who proposes what may follow its texts. Default: nobody. */
  readonly drafts?: ModelDrafts | undefined;
  /** Asked before something is loaded; throws where the model is not wanted any more. */
  readonly stillWanted?: () => void;
}

export class EngineModels {
  /** A fault in native code ends a process of models, which is replaced, and not the program. */
  private readonly host = new DeviceHost({ isApart: true });
  private readonly memory: ModelMemory;

  constructor(memory: MemoryOptions = {}) {
    this.memory = new ModelMemory(memory);
  }

  /** Compiles a model, or reads an artifact, and loads it. Rejects with UserError if the user can fix the problem. */
  async open(asked: WithTargetChoice<LoadRequest>, ui: Ui, options: OpenOptions = {}): Promise<OpenedForEngine> {
    const { logits = true, drafts, stillWanted } = options;
    const settled = await settleTarget(asked, ui);
    const request: LoadRequest = { ...settled, feeds: mayFeed(settled) };
    stillWanted?.();
    const loading = beginLoading(request, ui, new Phases(), {
      host: this.host,
      // A head of classes has none.
      logitsFor: ({ config }) => logits && classesOf(config) === undefined,
    });
    const { cacheTokens } = request;
    const first = Math.min(FIRST_TOKENS, cacheTokens ?? Infinity);
    await this.memory.makeRoom(await loading.compile(first), loading.checkpoint, request);
    await compileWithCache(loading, { ...request, cacheTokens: first }, DEMAND, ui);
    const loaded = await loading.finish();
    try {
      const replicas = loaded.executor.members?.length ?? 1;
      const memory = {
        mostTokens: cacheTokens,
        budgetOf: (replica: number) => this.memory.budgetOf(loaded, request, replica, replicas),
      };
      const model = engineModelOf(loaded, memory, drafts);
      return { loaded, model };
    } catch (error) {
      await loaded.close();
      throw error;
    }
  }
}
