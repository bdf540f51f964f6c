/** Which modules an adapter's configuration means, by PEFT's own rules of matching, and their ranks and scales. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { ADAPTER_HINT, type AdapterConfig, type Selection } from './config.js';
import { Pattern, PatternBudget } from './pattern.js';

/** PEFT's targets by the type of a model, where a file names none. */
const USUAL: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(['gpt_neox', 'falcon', 'bloom'].map((type) => [type, ['query_key_value']] as const)),
  ...Object.fromEntries(
    [
      'llama',
      'llama4',
      'mistral',
      'mixtral',
      'stablelm',
      'gemma',
      'gemma2',
      'gemma3_text',
      'qwen2',
      'qwen3',
      'opt',
    ].map((type) => [type, ['q_proj', 'v_proj']] as const),
  ),
  gpt2: ['c_attn'],
  mpt: ['Wqkv'],
  phi: ['q_proj', 'v_proj', 'fc1', 'fc2'],
};

type Test = (path: string) => boolean;

/** The ends of a path that begin behind a dot, and the path. */
function* endsOf(path: string): Generator<string> {
  yield path;
  for (let at = path.indexOf('.'); at >= 0; at = path.indexOf('.', at + 1)) yield path.slice(at + 1);
}

export class Targets {
  private readonly config: AdapterConfig;
  private readonly budget: PatternBudget;
  private readonly isTarget: Test;
  private readonly isExcluded: Test;
  private readonly saves: readonly Pattern[];
  private readonly ranks: readonly (readonly [Pattern, number])[];
  private readonly alphas: readonly (readonly [Pattern, number])[];
  private readonly lists: readonly Pattern[];
  private readonly parameters: ReadonlySet<string>;
  private readonly layers: ReadonlySet<number>;
  private readonly unmatched: Set<string>;
  private readonly unmatchedParameters: Set<string>;

  /** `modelType`: the base's, for files that leave the targets to PEFT. Throws UserError. */
  constructor(config: AdapterConfig, modelType: string | undefined) {
    this.config = config;
    this.budget = new PatternBudget(config.where);
    const named =
      config.targets === 'all linear' ? [] : config.targets === 'usual' ? usual(config, modelType) : config.targets;
    this.unmatched = new Set('pattern' in named ? [] : named);
    this.parameters = new Set(config.parameters);
    this.layers = new Set(config.layers);
    this.unmatchedParameters = new Set(config.parameters);
    this.isTarget = config.targets === 'all linear' ? () => true : this.test(named, this.unmatched);
    this.isExcluded = this.test(config.excluded);
    this.saves = config.saved.map((name) => new Pattern(`(?:^|.*\\.)(?:${name})(?:$|\\..*)`, this.budget));
    const patterns = (of: AdapterConfig['ranks']): readonly (readonly [Pattern, number])[] =>
      of.map(([key, value]) => [new Pattern(`(?:.*\\.)?(?:${key})$`, this.budget), value]);
    this.ranks = patterns(config.ranks);
    this.alphas = patterns(config.alphas);
    this.lists = config.layerLists.map((name) => new Pattern(name, this.budget));
  }

  private test(selection: Selection, unmatched?: Set<string>): Test {
    if ('pattern' in selection) {
      const pattern = new Pattern(selection.pattern, this.budget);
      return (path) => pattern.isWhole(path);
    }
    const names = new Set(selection);
    return (path) => {
      let isNamed = false;
      for (const end of endsOf(path)) {
        if (!names.has(end)) continue;
        isNamed = true;
        unmatched?.delete(end);
      }
      return isNamed;
    };
  }

  /** Whether a module gets a product. */
  has(path: string): boolean {
    // A name is matched where its module is excluded, too.
    const isTarget = this.isTarget(path);
    if (this.isExcluded(path) || this.saves.some((pattern) => pattern.isWhole(path))) return false;
    return isTarget && this.isOfLayer(path);
  }

  /** Whether a parameter does that is no module's weight. */
  hasParameter(path: string): boolean {
    let isNamed = false;
    for (const end of endsOf(path)) {
      if (!this.parameters.has(end)) continue;
      isNamed = true;
      this.unmatchedParameters.delete(end);
    }
    return isNamed;
  }

  private isOfLayer(path: string): boolean {
    const { layers, targets } = this.config;
    if (layers === undefined || typeof targets === 'string' || 'pattern' in targets) return true;
    const layer = this.layerOf(path);
    return layer !== undefined && this.layers.has(layer);
  }

  /** The first number in a path behind the name of a list. */
  private layerOf(path: string): number | undefined {
    if (this.lists.length === 0) {
      const found = /\.[^.]*\.(\d+)\./.exec(path)?.[1];
      return found === undefined ? undefined : Number(found);
    }
    for (const list of this.lists)
      for (let at = path.indexOf('.'); at >= 0; at = path.indexOf('.', at + 1))
        for (const end of [...list.ends(path, at + 1)].sort((a, b) => a - b)) {
          const found = /^\.(\d+)\./.exec(path.slice(end))?.[1];
          if (found !== undefined) return Number(found);
        }
    return undefined;
  }

  /** Rank and scale of a module's or parameter's product. */
  productOf(path: string): { readonly rank: number; readonly scale: number } {
    const { config } = this;
    const find = (patterns: Targets['ranks'], other: number): number =>
      patterns.find(([pattern]) => pattern.ends(path, 0).size > 0)?.[1] ?? other;
    const rank = find(this.ranks, config.rank);
    const alpha = find(this.alphas, config.alpha);
    return { rank, scale: alpha / (config.isRankStabilized ? Math.sqrt(rank) : rank) };
  }

  /** Throws UserError where a name of the list has matched no module so far. */
  requireMatched(): void {
    const [first] = [...this.unmatched, ...this.unmatchedParameters];
    if (first === undefined) return;
    const key = this.unmatched.has(first) ? 'target_modules' : 'target_parameters';
    throw new UserError(`${this.config.where}: ${key}: the model has no ${quote(first, 120)}`, ADAPTER_HINT);
  }
}

function usual({ where }: AdapterConfig, modelType: string | undefined): readonly string[] {
  const names = modelType !== undefined && Object.hasOwn(USUAL, modelType) ? USUAL[modelType] : undefined;
  if (names !== undefined) return names;
  throw new UserError(`${where}: target_modules is null, and PEFT has no list for ${quote(modelType)}`, ADAPTER_HINT);
}
