/** Compares a run's log-likelihoods with golden ones: their errors, and how often the choices agree. */

/** Error and agreement of a 16-bit run of transformers against float64. A 16-bit run here must not be worse. */
export interface Yardstick {
  readonly error: number;
  readonly agreement: number;
}

export interface Compared extends Yardstick {
  readonly questions: number;
  /** Questions whose likeliest choice per character differs. */
  readonly others: number;
  /** The largest error needed in two log-likelihoods of a question to change its choice; 0 if no choice differs. */
  readonly turnedBy: number;
}

/**
 * Bounds for 16-bit answers to the demo's 136 examples. Transformers' share of 0.8 % corresponds to 1.1 questions, and
 * one more may be chance, so two choices may differ, if the errors are at most four times the mean. The share itself is
 * checked on the full question set.
 */
export const EVERYDAY = { error: 0.19, others: 2, turnedBy: 4 * 0.19 } as const;

interface Sample {
  readonly doc_id: number;
  readonly doc: { readonly endings?: unknown; readonly choices?: unknown };
  readonly filtered_resps: readonly (readonly [number | string, ...unknown[]])[];
}
interface Golden {
  readonly doc_id: number;
  readonly ll: readonly number[];
}

const lines = (text: string): unknown[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as unknown);
const best = (values: readonly number[]): number => values.reduce((at, value, i) => (value > values[at]! ? i : at), 0);

function choicesOf({ doc_id: id, doc: { endings, choices } }: Sample): readonly string[] {
  const list = [choices, (choices as { readonly text?: unknown } | undefined)?.text, endings].find(Array.isArray);
  if (list === undefined) throw new Error(`question ${id} has no choices`);
  return list as readonly string[];
}

/**
 * Compares samples_*.jsonl with golden lines { doc_id, ll }; other lines of the golden text are comments. Throws if a
 * question is missing or a value is not finite.
 */
export function compareGolden(samples: string, golden: string): Compared {
  const wanted = new Map(
    (lines(golden) as Golden[]).filter((line) => Array.isArray(line.ll)).map(({ doc_id: id, ll }) => [id, ll]),
  );
  const seen = new Set<number>();
  let [sum, count, others, turnedBy] = [0, 0, 0, 0];
  for (const sample of lines(samples) as Sample[]) {
    const want = wanted.get(sample.doc_id);
    const got = sample.filtered_resps.map(([value]) => Number(value));
    if (want?.length !== got.length || seen.has(sample.doc_id))
      throw new Error(
        `question ${sample.doc_id} is not in the golden file, occurs twice in the samples, or has a different number ` +
          'of choices',
      );
    if (!got.every(Number.isFinite))
      throw new Error(`question ${sample.doc_id} has the log-likelihoods ${got.join(', ')}`);
    seen.add(sample.doc_id);
    got.forEach((value, i) => {
      sum += Math.abs(value - want[i]!);
    });
    count += got.length;
    const lengths = choicesOf(sample).map((choice) => [...choice].length);
    const [mine, theirs] = [got, want].map((list) => best(list.map((value, i) => value / lengths[i]!)));
    if (mine === theirs) continue;
    others += 1;
    const gap = want[theirs!]! / lengths[theirs!]! - want[mine!]! / lengths[mine!]!;
    turnedBy = Math.max(turnedBy, gap / (1 / lengths[theirs!]! + 1 / lengths[mine!]!));
  }
  if (seen.size !== wanted.size) throw new Error(`${seen.size} of ${wanted.size} questions were scored`);
  return { questions: seen.size, error: sum / count, agreement: 1 - others / seen.size, others, turnedBy };
}
