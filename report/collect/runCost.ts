/** What a run took and how it was set, from results_*.json. Files are untrusted: numbers are numbers or left out. */
import type { Block, RunFiles } from '../../evaluate/compare/findRuns.js';
import { isRecord } from '../../system/json.js';
import type { DeviceShare, RunCost } from '../document/results.js';
import { startSchema } from './start.js';

const MAX_DEVICES = 256;
const MAX_SETTINGS = 40;
const MAX_CHARACTERS = 200;

const numberIn = (block: Block, name: string): number | null => {
  const value = block[name];
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
};

function deviceOf(value: unknown): readonly DeviceShare[] {
  if (!isRecord(value)) return [];
  const [device, computeSeconds, copySeconds, busyShare] = [
    ...['device', 'computeSeconds', 'copySeconds', 'busyShare'].map((name) => numberIn(value, name)),
  ] as [number | null, number | null, number | null, number | null];
  if (device === null || computeSeconds === null || busyShare === null) return [];
  return [{ device, computeSeconds, copySeconds: copySeconds ?? 0, busyShare }];
}

const COUNTS = [
  'questions',
  'tokensComputed',
  'tokensWithoutSharing',
  'tokensGrouped',
  'tokensShared',
  'loadSeconds',
  'scoreSeconds',
  'questionsPerSecond',
  'tokensPerSecond',
  'modelFlops',
] as const;

/** Null where the file has no throughput block, as those of lm-evaluation-harness. */
export function costOf({ content }: RunFiles): RunCost | null {
  const block = content['throughput'];
  if (!isRecord(block)) return null;
  const counts = Object.fromEntries(COUNTS.map((name) => [name, numberIn(block, name)]));
  const devices: readonly unknown[] = Array.isArray(block['devices']) ? block['devices'] : [];
  return {
    ...(counts as unknown as Omit<RunCost, 'devices' | 'start'>),
    devices: devices.slice(0, MAX_DEVICES).flatMap(deviceOf),
    // Earlier versions and shards that were merged have none.
    start: startSchema.safeParse(block['start']).data ?? null,
  };
}

const shown = (value: unknown): string | undefined => {
  const text =
    typeof value === 'string'
      ? value
      : typeof value === 'number' || typeof value === 'boolean'
        ? String(value)
        : Array.isArray(value)
          ? JSON.stringify(value)
          : undefined;
  if (text === undefined || text === '') return undefined;
  return text.length > MAX_CHARACTERS ? `${text.slice(0, MAX_CHARACTERS)}…` : text;
};

/** What decides how a run computes, then what it was given. */
export function settingsOf({ content, model, arithmetic }: RunFiles): (readonly [string, string])[] {
  const config: Block = isRecord(content['config']) ? content['config'] : {};
  const provenance: Block = isRecord(content['provenance']) ? content['provenance'] : {};
  const date = numberIn(content, 'date');
  const all: (readonly [string, unknown])[] = [
    ['model', model],
    ['arithmetic', arithmetic],
    ...Object.entries(config).filter(([name]) => name !== 'arithmetic' && name !== 'model'),
    ['date', date === null || date < 0 || date > 1e11 ? undefined : new Date(date * 1000).toISOString()],
    ['written by', content['model_source'] === 'tilewright' ? `tilewright ${String(content['git_hash'])}` : undefined],
    ['seconds in all', content['total_evaluation_time_seconds']],
    ...Object.entries(provenance),
  ];
  return all
    .flatMap(([name, value]) => {
      const text = shown(value);
      return text === undefined ? [] : [[name.slice(0, MAX_CHARACTERS).replaceAll('_', ' '), text] as const];
    })
    .slice(0, MAX_SETTINGS);
}
