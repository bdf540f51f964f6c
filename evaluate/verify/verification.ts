/** What verifying a run came to: the content of `verify --json`, and the sentence that says it. */
import { counted } from '../../system/text.js';
import type { AnswerCounts } from './compareAnswers.js';
import { CHECKS, type Check, type CheckName, type Difference, type Findings } from './findings.js';

/** What computed answers: equal kinds give equal bits. */
export interface DeviceKind {
  /** `cpu`, `cuda`. */
  readonly target: string;
  /** `avx512`, `cuda:sm_90a`. */
  readonly isa: string;
  readonly arithmetic: string;
  /** For people; empty where it is not known. */
  readonly name: string;
}

/** `unchecked`: nothing that could be compared differs, but not all could be. */
export type Outcome = 'agrees' | 'differs' | 'unchecked';

export interface Verification {
  readonly verification: 1;
  /** The file of results. */
  readonly results: string;
  readonly outcome: Outcome;
  /** In one line. */
  readonly verdict: string;
  readonly sample: {
    /** Documents that were computed again, of those that the samples hold. */
    readonly documents: number;
    readonly of: number;
    readonly seed: number;
  };
  readonly checks: Readonly<Record<CheckName, Check>>;
  readonly answers: AnswerCounts;
  readonly devices: { readonly recorded: DeviceKind; readonly here: DeviceKind | null; readonly isSameKind: boolean };
  /** The version that wrote the results, and this one. */
  readonly versions: { readonly recorded: string; readonly here: string };
  /** The first of each check. */
  readonly differences: readonly Difference[];
  /** What was opened beside the results. */
  readonly opened: readonly { readonly what: string; readonly path: string }[];
  /** What had to be trusted. */
  readonly notes: readonly string[];
  readonly seconds: number;
}

/** Kinds by which bits may differ. */
export const isSameKind = (a: Omit<DeviceKind, 'name'>, b: Omit<DeviceKind, 'name'>): boolean =>
  a.target === b.target && a.isa === b.isa && a.arithmetic === b.arithmetic;

/** Checks of which any difference means that the results are not those of this model and this data. */
const OF_FILES: readonly CheckName[] = CHECKS.filter((check) => check !== 'answers');

export function outcomeOf(findings: Findings, sameKind: boolean): Outcome {
  if (OF_FILES.some((check) => findings.of(check).differing > 0)) return 'differs';
  if (findings.of('answers').differing > 0) return sameKind ? 'differs' : 'unchecked';
  return CHECKS.some((check) => findings.of(check).unchecked !== undefined) ? 'unchecked' : 'agrees';
}

const nats = (value: number): string =>
  value === 0 ? '0' : value < 1e-3 ? value.toExponential(1) : value.toPrecision(3);

/** What differs, by what most likely is the cause: a difference in the data makes others in answers. */
const CAUSES: readonly (readonly [CheckName, (n: number) => string])[] = [
  ['model', (n) => `the model is another one: ${counted(n, 'property differs', 'properties differ')}`],
  ['data', (n) => `documents or prompts are not those of the samples: ${counted(n, 'field differs', 'fields differ')}`],
  ['samples', (n) => `samples were edited: ${counted(n, 'line is', 'lines are')} not as a run writes them`],
  ['metrics', (n) => `figures do not follow from the answers: ${counted(n, 'value differs', 'values differ')}`],
  ['settings', (n) => `settings are not those by which the results are made: ${counted(n, 'differs', 'differ')}`],
];

/** How the answers compare, in one clause. */
export function answersLine({ logLikelihoods: lls, texts, choices }: AnswerCounts): string {
  const parts = [
    ...(lls.compared === 0 ? [] : [`${lls.equal} of ${counted(lls.compared, 'log-likelihood')}`]),
    ...(texts.compared === 0 ? [] : [`${texts.equal} of ${counted(texts.compared, 'text')}`]),
  ];
  const changed =
    choices.compared === 0 ? '' : `; another choice in ${choices.changed} of ${counted(choices.compared, 'document')}`;
  const by =
    lls.equal === lls.compared
      ? ''
      : `; mean |Δ| ${nats(lls.meanDifference)}, worst ${nats(lls.maxDifference)} nats${changed}`;
  return `${parts.join(' and ')} equal to the bit${by}`;
}

export function verdictOf(
  findings: Findings,
  outcome: Outcome,
  answers: AnswerCounts,
  { recorded, here }: { readonly recorded: DeviceKind; readonly here: DeviceKind | null },
): string {
  const isComputed = answers.logLikelihoods.compared + answers.texts.compared > 0;
  const again = isComputed ? `${answersLine(answers)}` : 'no answer was computed again';
  if (outcome === 'agrees') return `AGREES: ${again}`;
  const causes = CAUSES.flatMap(([check, say]) => {
    const { differing } = findings.of(check);
    return differing > 0 ? [say(differing)] : [];
  });
  const differing = findings.of('answers').differing;
  if (outcome === 'differs')
    return `DIFFERS: ${[...causes, ...(differing > 0 || causes.length === 0 ? [again] : [])].join('; ')}`;
  if (differing > 0)
    return (
      `CANNOT BE CHECKED to the bit: made on ${kindName(recorded)}, ` +
      `computed on ${here === null ? '?' : kindName(here)}, ` +
      `and bits cannot be expected of another kind of device. ${again}`
    );
  const why = CHECKS.flatMap((check) => findings.of(check).unchecked ?? []);
  return `CANNOT BE CHECKED in full: ${why[0] ?? ''}; ${again}`;
}

/** `cpu avx512, f32 (AMD EPYC 9654)` */
export const kindName = ({ isa, target, arithmetic, name }: DeviceKind): string =>
  `${isa.startsWith(target) ? isa : `${target} ${isa}`}, ${arithmetic}${name === '' ? '' : ` (${name})`}`;
