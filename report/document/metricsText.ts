/** What /metrics says, and what two readings of it say of the time between them. */

export interface Line {
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
  readonly value: number;
}

/** Lines of the text format of Prometheus. What is no such line is left out. */
export function linesOf(text: string): readonly Line[] {
  return text.split('\n').flatMap((line) => {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (match === null) return [];
    const [, name = '', inner = '', number = ''] = match;
    const labels = new Map<string, string>();
    for (const [, key = '', value = ''] of inner.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g))
      labels.set(
        key,
        value.replace(/\\(.)/g, (_all, character: string) => (character === 'n' ? '\n' : character)),
      );
    return [{ name, labels, value: number === '+Inf' ? Infinity : Number(number) }];
  });
}

export interface Histogram {
  /** Ascending; the last is Infinity. */
  readonly bounds: readonly number[];
  /** Values up to each bound. */
  readonly counts: readonly number[];
  readonly sum: number;
}

/** One reading, of one model. */
export interface Reading {
  /** Milliseconds of some clock. */
  readonly at: number;
  readonly values: ReadonlyMap<string, number>;
  readonly histograms: ReadonlyMap<string, Histogram>;
}

export function readingOf(lines: readonly Line[], model: string, at: number): Reading {
  const own = lines.filter(({ labels }) => labels.get('model_name') === model);
  const values = new Map<string, number>();
  const found = new Map<string, [bound: number, count: number][]>();
  for (const { name, labels, value } of own) {
    const le = labels.get('le');
    if (le === undefined) values.set(name, (values.get(name) ?? 0) + value);
    else {
      const base = name.replace(/_bucket$/, '');
      const list = found.get(base) ?? [];
      list.push([le === '+Inf' ? Infinity : Number(le), value]);
      found.set(base, list);
    }
  }
  const histograms = new Map(
    [...found].map(([name, list]) => {
      list.sort(([a], [b]) => a - b);
      const sum = values.get(`${name}_sum`) ?? 0;
      return [name, { bounds: list.map(([bound]) => bound), counts: list.map(([, count]) => count), sum }] as const;
    }),
  );
  return { at, values, histograms };
}

/** What a histogram counted between two readings: how many, their mean, and what 99 % of them did not exceed. */
export interface Spread {
  readonly count: number;
  readonly mean: number;
  /** The bound of a bucket; Infinity where it lies above all. */
  readonly within: number;
}

export class Between {
  private readonly before: Reading;
  private readonly after: Reading;

  constructor(before: Reading, after: Reading) {
    this.before = before;
    this.after = after;
  }

  /** How much a counter has grown. */
  growth(name: string): number {
    return (this.after.values.get(name) ?? 0) - (this.before.values.get(name) ?? 0);
  }

  rate(name: string): number {
    return (1000 * this.growth(name)) / (this.after.at - this.before.at);
  }

  spread(name: string, share = 0.99): Spread | undefined {
    const [before, after] = [this.before.histograms.get(name), this.after.histograms.get(name)];
    if (after === undefined) return undefined;
    const counts = after.counts.map((count, i) => count - (before?.counts[i] ?? 0));
    const count = counts.at(-1) ?? 0;
    if (count <= 0) return undefined;
    const place = counts.findIndex((below) => below >= share * count);
    return { count, mean: (after.sum - (before?.sum ?? 0)) / count, within: after.bounds[place] ?? Infinity };
  }

  /** Whether the server was started anew between the two. */
  get isRestarted(): boolean {
    return this.growth('vllm:generation_tokens_total') < 0 || this.growth('vllm:prompt_tokens_total') < 0;
  }
}
