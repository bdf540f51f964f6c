/** The techniques that the benchmark of techniques compares, each as the calls that score a set of questions. */
import { type TokenizedQuestion, twoPhase, type TwoPhaseOptions } from '../evaluate/index.js';
import { orderPaths, pathsOf } from '../evaluate/pathOrder.js';
import { walk } from '../evaluate/walk.js';
import {
  allocatingCalls,
  type Call,
  type Engine,
  fixedCalls,
  packedCalls,
  stepCalls,
  UnprunedTime,
} from './ablationCalls.js';

export interface Technique {
  readonly name: string;
  readonly questions: readonly TokenizedQuestion[];
  calls(): Iterable<Call>;
  /** What is added to the time of the calls, in seconds, by all measurements so far; makes them again. */
  added?(): Promise<number>;
}

export interface TechniqueOptions {
  /** Sequences of a fixed batch. */
  readonly sequences: number;
  /** Tokens of a call of contexts, where they are computed in small calls. */
  readonly prefillTokens: number;
}

/** What the techniques are applied to. */
export interface Compared {
  readonly engine: Engine;
  readonly questions: readonly TokenizedQuestion[];
  /** The same without their activity labels. */
  readonly unlabelled: readonly TokenizedQuestion[];
  readonly options: TechniqueOptions;
}

/** A row of the table. */
interface Row {
  readonly name: (options: TechniqueOptions) => string;
  /** For the help of the benchmark. */
  readonly meaning: string;
  readonly isUnlabelled?: boolean;
  readonly calls: (
    engine: Engine,
    questions: readonly TokenizedQuestion[],
    options: TechniqueOptions,
  ) => Iterable<Call>;
  readonly isUnpruned?: boolean;
}

const inPhases =
  (more: (options: TechniqueOptions) => Omit<TwoPhaseOptions, 'limits'> = () => ({})): Row['calls'] =>
  (engine, questions, options) =>
    stepCalls(engine, twoPhase(pathsOf(questions), { limits: engine.limits, ...more(options) }));

/** The first one is what the others are compared with. */
const ROWS: readonly Row[] = [
  {
    name: () => 'one forward over trees',
    meaning: 'every common beginning once, in one call with its continuations: run --sharing tree',
    calls: (engine, questions) => packedCalls(engine, questions, 'tree'),
  },
  {
    name: ({ sequences }) => `sequence per choice, ${sequences} a call`,
    meaning: 'context and choice again for every choice, in fixed batches: --sequences of them',
    calls: (engine, questions, { sequences }) => fixedCalls(engine, pathsOf(questions), sequences),
  },
  {
    name: () => 'sequence per choice, calls filled',
    meaning: 'the same in dynamic batches, which take as many tokens as a call holds: run --sharing none',
    calls: (engine, questions) => packedCalls(engine, questions, 'none'),
  },
  {
    name: ({ sequences }) => `contexts, then choices, ${sequences} a call`,
    meaning: 'choices continue the kept keys and values of contexts; fixed batches of both',
    calls: inPhases(({ sequences }) => ({ sequences })),
  },
  {
    name: () => 'contexts, then choices, calls filled',
    meaning: 'the same in dynamic batches: run --sharing kv',
    calls: inPhases(),
  },
  {
    name: () => '… without activity labels',
    meaning: 'shorter prompts: other questions, with other answers',
    isUnlabelled: true,
    calls: inPhases(),
  },
  {
    name: ({ prefillTokens }) => `… contexts in calls of ${prefillTokens} tokens`,
    meaning: 'mini-batched prefill: small calls for contexts (--prefill), full ones for choices',
    calls: inPhases(({ prefillTokens }) => ({ prefillTokens })),
  },
  {
    name: () => '… last layer for every token',
    meaning: 'without pruning: adds what the kernels of the layer before take more than those of the last one',
    calls: inPhases(),
    isUnpruned: true,
  },
  {
    name: () => '… memory for each group of contexts',
    meaning: 'pages not allocated before: allocates and frees what keys and values of a group take',
    calls: (engine, questions) => allocatingCalls(engine, pathsOf(questions)),
  },
  {
    name: () => 'one forward over shared contexts',
    meaning: 'a context once, in one call with its choices: run --sharing context',
    calls: (engine, questions) => packedCalls(engine, questions, 'context'),
  },
  {
    name: () => 'trees whose beginnings are kept',
    meaning: 'keys and values of a beginning last from call to call: run --prefixes keep',
    calls: (engine, questions) => stepCalls(engine, walk(orderPaths(pathsOf(questions)).paths, engine.limits)),
  },
  {
    name: () => 'one forward over trees, without activity labels',
    meaning: 'the first row with the shorter prompts',
    isUnlabelled: true,
    calls: (engine, questions) => packedCalls(engine, questions, 'tree'),
  },
];

/** A line for each row with what it is. */
export const describeRows = (options: TechniqueOptions): string =>
  ROWS.map(({ name, meaning }) => `  ${name(options)}\n      ${meaning}`).join('\n');

/** The first one is what the others are compared with. */
export const techniquesOf = ({ engine, questions, unlabelled, options }: Compared): readonly Technique[] =>
  ROWS.map(({ name, isUnlabelled = false, isUnpruned = false, calls }) => {
    const own = isUnlabelled ? unlabelled : questions;
    const unpruned = isUnpruned ? new UnprunedTime() : undefined;
    const make = (): Iterable<Call> => calls(engine, own, options);
    return {
      name: name(options),
      questions: own,
      calls: make,
      ...(unpruned === undefined ? {} : { added: () => unpruned.measure(make()) }),
    };
  });
