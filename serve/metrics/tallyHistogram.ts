/** A histogram of prom-client whose values were counted elsewhere: by another thread, or at 20 ns a value. */
import { Histogram, type Registry } from 'prom-client';
import { countOf, type Tally } from '../../system/buckets.js';

export interface LabelledTally {
  readonly labels: Readonly<Record<string, string>>;
  readonly tally: Tally;
}

export class TallyHistogram extends Histogram {
  private readonly about: { readonly name: string; readonly help: string };
  private readonly read: () => readonly LabelledTally[];

  /** `read`: what is shown, whenever somebody asks. */
  constructor(registry: Registry, name: string, help: string, read: () => readonly LabelledTally[]) {
    super({ name, help, registers: [registry], buckets: [] });
    this.about = { name, help };
    this.read = read;
  }

  /** What a registry prints: lines with the labels of each, and shared ones, of which there are none. */
  getForPromString() {
    const { name } = this.about;
    const values = this.read().flatMap(({ labels, tally }) => {
      let below = 0;
      const buckets = tally.bounds.map((bound, i) => ({ le: String(bound), value: (below += tally.counts[i]!) }));
      const count = countOf(tally);
      return [
        ...[...buckets, { le: '+Inf', value: count }].map(({ le, value }) => ({
          ...{ metricName: `${name}_bucket`, labels: { ...labels, le }, value },
        })),
        { metricName: `${name}_sum`, labels, value: tally.sum },
        { metricName: `${name}_count`, labels, value: count },
      ].map((line) => ({ ...line, sharedLabels: {} }));
    });
    return Promise.resolve({ ...this.about, type: 'histogram', values, aggregator: 'sum' });
  }
}
