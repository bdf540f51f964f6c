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
  let shownPhase: string | undefined;
  /** What each replica is at. Progress of one that is behind, or at what was shown already, is not shown. */
  const phases = new Map<number, string>();
  const fractions = new Map<number, number>();
  const of = Array.from({ length: count }, (_, index): Ui => ({
    phase: (name, detail) => {
      phases.set(index, name);
      if (isQuiet || seen.has(name)) return;
      seen.add(name);
      shownPhase = name;
      fractions.clear();
      ui.phase(name, detail);
    },
    step: (fraction, detail) => {
      if (isQuiet || phases.get(index) !== shownPhase) return;
      fractions.set(index, fraction);
      const mean = [...fractions.values()].reduce((a, b) => a + b, 0) / count;
      // Each replica counts the same kernels, or weights of about the same size.
      ui.step(mean, typeof detail === 'object' ? { ...detail, done: Math.round(mean * detail.total) } : detail);
    },
    run: () => undefined,
    table: () => undefined,
    note: (line) => {
      if (!isQuiet && isNew(line)) ui.note(line);
    },
    detail: (line) => {
      if (!isQuiet && isNew(line)) ui.detail(line);
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
