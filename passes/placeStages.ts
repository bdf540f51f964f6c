/**
 * Decides which devices run which part of a plan: replicas if the model fits one device, pipeline stages otherwise.
 */
import { UserError } from '../errors.js';
import type { Extents } from '../ir/extents.js';
import { DRAFT } from '../ir/function.js';
import type { WeightDecl } from '../ir/kernel.js';
import {
  type DevicePlacement,
  type FunctionPlan,
  leadingExtent,
  type LinkedFunction,
  type Parallelism,
  type Stage,
  stateBytes,
} from '../ir/plan.js';
import { bytes, percent } from '../system/text.js';
import { planMemory } from './planMemory.js';

export interface PlacementFacts {
  readonly plan: Pick<
    LinkedFunction<unknown>,
    'interface' | 'buffers' | 'weights' | 'states' | 'kernels' | 'launches' | 'capacity' | 'arenaBytes'
  >;
  readonly devices: number;
  /**
   * Bytes that weights, states and activations may take on each of the given number of devices; Infinity if there is
   * no limit.
   */
  readonly roomOn: (devices: number) => number;
  /** Rows of reserved states that there is to be memory for; none by default. */
  readonly tokens?: number | undefined;
  /** Cost of each launch in a typical micro-batch, in any unit. */
  readonly costs: readonly number[];
  /** Bytes that a weight takes on a device; 0 if it is read in place. */
  readonly weightBytes: (weight: WeightDecl) => number;
  /** If absent: replicas if the model fits a device, otherwise the fewest stages that hold it. */
  readonly wanted?: Parallelism;
}

export interface PlacedStage extends Stage {
  /** Share of a micro-batch's cost. */
  readonly share: number;
  readonly weightBytes: number;
  /** States that its launches use, and those that this function does not take: another one's stage may need them. */
  readonly stateBytes: number;
  /**
   * Activations: one arena for a single stage, two in a pipeline, where the next micro-batch arrives while one is
   * computed.
   */
  readonly arenaBytes: number;
}

export interface PlacedStages extends DevicePlacement {
  readonly stages: readonly PlacedStage[];
  /** Mean cost of a stage divided by the largest: how busy a full pipeline is on average. 1 is even. */
  readonly balance: number;
  /** Devices that run nothing. */
  readonly spare: number;
}

/** For a model that does not fit, longer pipelines than this are not searched. */
const MAX_STAGES = 64;
/** Micro-batches with fewer tokens than this leave a GPU mostly idle, so they are never suggested. */
const TOKEN_STEP = 128;

/** Arenas of each device of a pipeline. */
export const arenasOf = (stages: number): number => (stages === 1 ? 1 : 2);

/**
 * `layers.3.ffn.down` belongs to `layers.3.ffn`, half a layer, and so with layers of the function `draft`. A kernel
 * that has parts of both halves, `layers.3.attention_q_ffn_gate`, belongs to the first: functions of a plan may differ
 * in what they join. A path outside the layers belongs to its first name.
 */
export const halfOf = (path: string): string => {
  const names = path.split('.');
  const at = names[0] === DRAFT ? 1 : 0;
  const [half = path] =
    names[at] === 'layers'
      ? names
          .slice(0, at + 3)
          .join('.')
          .split('_')
      : names;
  return half;
};

/** Bytes of each state, and the launches that use it. */
const stateUses = ({
  plan,
  tokens = 0,
}: PlacementFacts): readonly { readonly bytes: number; readonly users: readonly number[] }[] =>
  plan.states.map((state) => ({
    bytes: stateBytes(state, tokens),
    users: plan.launches.flatMap(({ parameters }, i) => (parameters.includes(state.name) ? [i] : [])),
  }));

/**
 * Launches before which a plan may be cut into `stages`: the first ones of half layers, or any launch if those are too
 * few. No cut lies between users of a state, which is in the memory of one device.
 */
function cutPoints(facts: PlacementFacts, stages: number): readonly number[] {
  const { plan } = facts;
  const paths = new Map(plan.kernels.map((kernel) => [kernel.name, kernel.path]));
  const halves = plan.launches.map(({ kernel }) => halfOf(paths.get(kernel) ?? kernel));
  const kept = stateUses(facts);
  const isAllowed = (i: number): boolean =>
    kept.every(({ users }) => users.every((launch) => launch >= i) || users.every((launch) => launch < i));
  const allowed = halves.flatMap((_, i) => (i > 0 && isAllowed(i) ? [i] : []));
  const starts = allowed.filter((i) => halves[i] !== halves[i - 1]);
  return [0, ...(starts.length + 1 >= stages ? starts : allowed), plan.launches.length];
}

/** Cost, weights and states of a range of launches; what several launches use counts once. */
function rangesOf(
  { plan, costs, weightBytes, tokens = 0 }: PlacementFacts,
  points: readonly number[],
): (first: number) => CutRange[] {
  const sizeOf = new Map([
    ...plan.weights.map((weight) => [weight.name, weightBytes(weight)] as const),
    ...plan.states.map((state) => [state.name, stateBytes(state, tokens)] as const),
  ]);
  return (first) => {
    const seen = new Set<string>();
    let cost = 0,
      bytes = 0,
      at = points[first]!;
    return points.slice(first + 1).map((end): CutRange => {
      for (; at < end; at++) {
        cost += costs[at]!;
        for (const name of plan.launches[at]!.parameters) {
          if (!seen.has(name)) bytes += sizeOf.get(name) ?? 0;
          seen.add(name);
        }
      }
      return { cost, bytes };
    });
  };
}

/** The most even cut into `stages` that fits devices with this much room, or undefined. */
function cut(
  facts: PlacementFacts,
  stages: number,
  room: number,
  arenaBytes = facts.plan.arenaBytes,
): readonly PlacedStage[] | undefined {
  const points = cutPoints(facts, stages);
  if (stages > points.length - 1) return undefined;
  const from = rangesOf(facts, points);
  const arenas = arenasOf(stages) * arenaBytes;
  const uses = stateUses(facts);
  const elsewhere = uses.filter(({ users }) => users.length === 0).reduce((sum, { bytes }) => sum + bytes, 0);
  const cuts = bestCuts(points.length - 1, stages, from, room - arenas - elsewhere);
  if (cuts === undefined) return undefined;
  const total = facts.costs.reduce((sum, cost) => sum + cost, 0);
  return cuts.map((part) => {
    const [first, end] = [points[part.first]!, points[part.end]!];
    const used = uses
      .filter(({ users }) => users.some((launch) => launch >= first && launch < end))
      .reduce((sum, { bytes }) => sum + bytes, 0);
    return {
      first,
      end,
      share: total > 0 ? part.cost / total : 1 / stages,
      weightBytes: part.bytes - used,
      stateBytes: used + elsewhere,
      arenaBytes: arenas,
    };
  });
}

function placed(stages: readonly PlacedStage[], replicas: number, devices: number): PlacedStages {
  return {
    replicas,
    stages,
    balance: 1 / stages.length / Math.max(...stages.map(({ share }) => share)),
    spare: devices - replicas * stages.length,
  };
}

/**
 * Places a plan on devices of one kind. Cuts lie between halves of layers and minimize the cost of the busiest stage,
 * including the embedding and the head. Pure and deterministic. Throws UserError if there are too few devices or they
 * have too little memory; the message says what would fit.
 */
export function placeStages(facts: PlacementFacts): PlacedStages {
  const { devices, wanted, plan } = facts;
  if (facts.costs.length !== plan.launches.length)
    throw new Error(`${facts.costs.length} costs for ${plan.launches.length} launches.`);
  if (!Number.isInteger(devices) || devices < 1) throw new Error(`A placement on ${devices} devices.`);
  if (wanted === undefined) return placeFreely(facts);
  const { replicas, stages } = wanted;
  if (replicas * stages > devices) {
    throw new UserError(
      `--parallel ${parallelText(wanted)} takes ${replicas * stages} devices; ` +
        `there ${devices === 1 ? 'is' : 'are'} ${devices}`,
      `use --devices ${replicas * stages}, or --parallel auto`,
    );
  }
  const most = cutPoints(facts, stages).length - 1;
  if (stages > most)
    throw new UserError(
      `${stages} stages of a plan that can be cut into ${most} at most: some stages would have nothing to do`,
      `use at most --parallel pp=${most}`,
    );
  const cuts = cut(facts, stages, facts.roomOn(devices));
  if (cuts === undefined) throw refusal(facts, stages);
  return placed(cuts, replicas, devices);
}

/** The fewest stages that hold the model. Devices that would be left over make the pipelines longer. */
function placeFreely(facts: PlacementFacts): PlacedStages {
  const { devices } = facts;
  const room = facts.roomOn(devices);
  for (let stages = 1; stages <= devices; stages++) {
    const fewest = cut(facts, stages, room);
    if (fewest === undefined) continue;
    const replicas = Math.floor(devices / stages);
    const longer = Math.floor(devices / replicas);
    return placed(longer === stages ? fewest : (cut(facts, longer, room) ?? fewest), replicas, devices);
  }
  throw refusal(facts, devices);
}

/** `dp=4`, `pp=4`, `dpxpp=2x2`. */
export const parallelText = ({ replicas, stages }: Parallelism): string =>
  stages === 1 ? `dp=${replicas}` : replicas === 1 ? `pp=${stages}` : `dpxpp=${replicas}x${stages}`;

/** What a stage holds between calls. */
const held = ({ weightBytes, stateBytes }: PlacedStage): number => weightBytes + stateBytes;

/** `, 2.00 GiB of state`; empty where there is none. */
const stateText = ({ stateBytes }: PlacedStage): string => (stateBytes === 0 ? '' : `, ${bytes(stateBytes)} of state`);

/** The error for a plan that does not fit in `stages`. Its hint says what would fit. */
function refusal(facts: PlacementFacts, stages: number): UserError {
  const { plan, devices } = facts;
  const { most: tokens, counts } = leadingExtent(plan);
  const room = facts.roomOn(devices);
  // Cut without a limit on memory: the message reports what the fullest device would need.
  const unbounded = cut(facts, stages, Infinity) ?? [];
  const fullest = unbounded.reduce<PlacedStage | undefined>(
    (most, stage) => (most === undefined || held(stage) > held(most) ? stage : most),
    undefined,
  );
  const need =
    fullest === undefined
      ? ''
      : `: ${stages === 1 ? '' : 'its largest stage takes '}${bytes(fullest.weightBytes)} of weights` +
        `${fullest.stateBytes === 0 ? ' and' : `, ${bytes(fullest.stateBytes)} of state and`} ` +
        `${bytes(fullest.arenaBytes)} of activations of ${stages === 1 ? 'a micro-batch' : 'two micro-batches'} ` +
        `of ${tokens} ${counts}`;
  const hints: string[] = [];
  const fewer = fewerTokens(facts, stages, room);
  if (fewer !== undefined) hints.push(`smaller micro-batches (--batch-tokens ${fewer})`);
  // The parts of one CPU share its memory, so one device may hold what two cannot.
  const others = Array.from({ length: MAX_STAGES }, (_, i) => i + 1).find(
    (count) => cut(facts, count, facts.roomOn(count)) !== undefined,
  );
  if (others !== undefined)
    hints.push(
      others === 1
        ? 'one device (--devices 1)'
        : others > devices
          ? `${others} such devices (--devices ${others} --parallel pp=${others})`
          : `a pipeline of ${others} (--parallel pp=${others})`,
    );
  return new UserError(
    `This model does not fit ${stages === 1 ? 'a device' : `${stages} devices as a pipeline`} ` +
      `with room for ${bytes(room)}${stages === 1 ? '' : ' each'}${need}.`,
    hints.length > 0 ? `What would fit: ${hints.join(', or ')}.` : 'Use devices with more memory.',
  );
}

/** Every extent scaled by the same factor, rounded up. */
const scaled = (extents: Extents, factor: number): Extents =>
  Object.fromEntries(Object.entries(extents).map(([name, value]) => [name, Math.ceil(value * factor)]));

/** The largest micro-batch with which `stages` fit, if there is one. */
function fewerTokens(facts: PlacementFacts, stages: number, room: number): number | undefined {
  const { plan } = facts;
  const { most } = leadingExtent(plan);
  const fits = (tokens: number): boolean =>
    cut(facts, stages, room, planMemory(plan, scaled(plan.capacity.extents, tokens / most)).arenaBytes) !== undefined;
  let low = 0,
    high = Math.ceil(most / TOKEN_STEP);
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (fits(middle * TOKEN_STEP)) low = middle;
    else high = middle;
  }
  return low === 0 ? undefined : low * TOKEN_STEP;
}

/** Lines for the user: the placement, what each stage holds and does, and how even the load is predicted to be. */
export function printPlacement(
  { replicas, stages, balance, spare }: PlacedStages,
  plan: PlacementFacts['plan'],
): readonly string[] {
  const paths = new Map(plan.kernels.map((kernel) => [kernel.name, kernel.path]));
  const pathOf = (launch: number): string => paths.get(plan.launches[launch]!.kernel) ?? plan.launches[launch]!.kernel;
  const devices = replicas * stages.length;
  const head =
    `placement: ${parallelText({ replicas, stages: stages.length })} on ${devices} device${devices === 1 ? '' : 's'}` +
    (stages.length === 1
      ? `, ${bytes(stages[0]!.weightBytes)} of weights${stateText(stages[0]!)} each`
      : `, predicted balance ${percent(balance)}: ${(devices * balance).toFixed(2)}× one device`) +
    (spare === 0 ? '' : `; ${spare} left over`);
  if (stages.length === 1) return [head];
  return [
    head,
    ...stages.map(
      (stage, i) =>
        `  stage ${i}: ${pathOf(stage.first)} to ${pathOf(stage.end - 1)}, ` +
        `${percent(stage.share)} of the work, ` +
        `${bytes(stage.weightBytes)} of weights${stateText(stage)}, ${bytes(stage.arenaBytes)} of activations`,
    ),
  ];
}

// Cuts a sequence into parts so that the most expensive part is as cheap as possible.

/** Elements from one point to another: their total cost and their total bytes. */
export interface CutRange {
  readonly cost: number;
  readonly bytes: number;
}

/** Points `first` to `end` − 1. */
export interface CutPart extends CutRange {
  readonly first: number;
  readonly end: number;
}

interface State {
  readonly most: number;
  /** Sum of squared costs. Among cuts whose most expensive parts cost the same, the most even cut wins. */
  readonly squares: number;
  readonly part: CutPart;
  readonly before: State | undefined;
}

const isBetter = (a: Pick<State, 'most' | 'squares'>, b: State | undefined): boolean =>
  b === undefined || a.most < b.most || (a.most === b.most && a.squares < b.squares);

/**
 * Dynamic programming over (parts, end). `rangesFrom(first)[i]` is the range of elements from `first` to `first` + i.
 * Costs and bytes are not negative. Each of `parts` has at least one element and at most `maxBytes` bytes; undefined
 * if that is impossible. Takes time parts × points².
 */
export function bestCuts(
  points: number,
  parts: number,
  rangesFrom: (first: number) => readonly CutRange[],
  maxBytes: number,
): readonly CutPart[] | undefined {
  const ranges = Array.from({ length: points }, (_, first) => rangesFrom(first));
  let row: (State | undefined)[] = [];
  for (let count = 1; count <= parts; count++) {
    const next: (State | undefined)[] = new Array<State | undefined>(points + 1).fill(undefined);
    for (let first = count - 1; first < points; first++) {
      const before = row[first];
      if (count > 1 && before === undefined) continue;
      if (count === 1 && first > 0) break;
      ranges[first]!.forEach(({ cost, bytes }, i) => {
        if (bytes > maxBytes) return;
        const end = first + i + 1;
        const candidate = { most: Math.max(before?.most ?? 0, cost), squares: (before?.squares ?? 0) + cost * cost };
        if (isBetter(candidate, next[end])) next[end] = { ...candidate, part: { first, end, cost, bytes }, before };
      });
    }
    row = next;
  }
  const result: CutPart[] = [];
  for (let state = row[points]; state !== undefined; state = state.before) result.unshift(state.part);
  return result.length === 0 ? undefined : result;
}

// Functions of one plan in one pipeline: they are cut at the same halves of layers, so that the weights of a layer,
// and the keys and values that one function keeps there, are in the memory of one device.

type Launches = Pick<FunctionPlan<unknown>, 'interface' | 'kernels' | 'launches'>;

/** The half of a layer that each launch belongs to. */
export function halvesOf({ kernels, launches }: Pick<Launches, 'kernels' | 'launches'>): readonly string[] {
  const paths = new Map(kernels.map((kernel) => [kernel.name, kernel.path]));
  return launches.map(({ kernel }) => halfOf(paths.get(kernel) ?? kernel));
}

/**
 * The stages of each function, where those of `placed` are given. Throws UserError where there are more stages than
 * halves: another function has no such cut.
 */
export function followCuts(
  functions: readonly Launches[],
  placed: Launches,
  stages: readonly Stage[],
): Readonly<Record<string, readonly Stage[]>> {
  const halves = halvesOf(placed);
  return Object.fromEntries(
    functions.map((fn) => {
      if (fn.interface.name === placed.interface.name) return [fn.interface.name, stages];
      const own = halvesOf(fn);
      const starts = stages.map(({ first }, i) => {
        if (i === 0) return 0;
        if (halves[first] === halves[first - 1])
          throw new UserError(
            `${stages.length} stages of a model that generates: a cut lies inside half a layer`,
            `use at most --parallel pp=${new Set(own).size}`,
          );
        // A function without this half goes on with the first one that lies behind it.
        const start = own.findIndex((half) => halves.indexOf(half) >= first);
        return start < 0 ? fn.launches.length : start;
      });
      return [
        fn.interface.name,
        starts.map((first, i): Stage => ({ first, end: starts[i + 1] ?? fn.launches.length })),
      ];
    }),
  );
}
