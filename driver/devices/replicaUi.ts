/** One face for several processes that load the same model: each step once, how far they are on average, who warns. */
import type { Ui } from '../requests.js';

/** `device 2`, `devices 2 and 3`, `devices 4 to 7`: the devices of a replica, counted from 0. */
export function nameOfReplica(index: number, stages: number): string {
  const [first, last] = [index * stages, index * stages + stages - 1];
  if (stages === 1) return `device ${first}`;
  return `devices ${first} ${stages === 2 ? 'and' : 'to'} ${last}`;
}

export interface ReplicaUis {
  /** A face for each replica. What all say is shown once. */
  readonly of: readonly Ui[];
  /** From now on only warnings are handed on: who loads later does so beside something else. */
  quieten(): void;
}

/** `shown`: phases that were shown already. */
export function replicaUis(count: number, stages: number, ui: Ui, shown: readonly string[] = []): ReplicaUis {
  let isQuiet = false;
  const seen = new Set(shown);
  /** Equal but for numbers is said once. */
  const isNew = (line: string): boolean => {
    const words = line.replace(/[\d.]+/g, '#');
    return !seen.has(words) && seen.add(words).has(words);
  };
  const fractions = new Map<number, number>();
  const of = Array.from({ length: count }, (_, index): Ui => ({
    phase: (name, detail) => {
      if (isQuiet || seen.has(name)) return;
      seen.add(name);
      fractions.clear();
      ui.phase(name, detail);
    },
    step: (fraction, detail) => {
      if (isQuiet) return;
      fractions.set(index, fraction);
      ui.step([...fractions.values()].reduce((a, b) => a + b, 0) / count, detail);
    },
    run: () => undefined,
    table: () => undefined,
    note: (line) => {
      if (!isQuiet && isNew(line)) ui.note(line);
    },
    warn: (line) => ui.warn(`${nameOfReplica(index, stages)}: ${line}`),
  }));
  return {
    of,
    quieten: () => {
      isQuiet = true;
    },
  };
}
