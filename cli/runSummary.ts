/** What `tilewright run` prints when it is done. */
import type { RunResult } from '../commands/runRequest.js';
import { isRecord } from '../system/json.js';
import { count, counted, duration, percent, si } from '../system/text.js';
import { comparisonText } from './compareText.js';
import { draftLines } from './draftText.js';

/** The table of results, what the run took, and the files that it wrote. `isVerbose`: with what else is counted. */
export function runSummary(result: RunResult, isVerbose = false): string {
  const lines = [result.table, ...throughputLines(result.results['throughput'], isVerbose)];
  lines.push(...generationLines(result.results['generation'], isVerbose));
  if (result.resultsPath !== undefined) lines.push(`results: ${result.resultsPath}`);
  if (result.samplesPath !== undefined) lines.push(`samples: ${result.samplesPath}`);
  if (result.comparisonPath !== undefined) lines.push(`comparison: ${result.comparisonPath}`);
  const { comparison } = result;
  const compared = comparison === undefined ? '' : `\n${comparisonText(comparison)}`;
  return `${lines.join('\n')}\n${compared}`;
}

/** The run in a few lines, from its throughput block. */
function throughputLines(block: unknown, isVerbose: boolean): string[] {
  if (!isRecord(block)) return [];
  const read = (name: string): number => {
    const value = block[name];
    return typeof value === 'number' ? value : NaN;
  };
  const [questions, load, score] = ['questions', 'loadSeconds', 'scoreSeconds'].map(read) as [number, number, number];
  const rate = read('tokensPerSecond');
  const flops = score > 0 ? read('modelFlops') / score : NaN;
  if (questions === 0) return [];
  return [
    `${counted(questions, 'question')} in ${duration(score)} after ${duration(load)} of loading: ` +
      `${count(rate)} tokens/s${flops > 0 ? `, ${si(flops, 'FLOP/s')}` : ''}`,
    ...sharingLines(read, isVerbose),
    ...busyLine(block['devices'], isVerbose),
  ];
}

/** What it took to generate texts, where tasks ask for some. */
function generationLines(block: unknown, isVerbose: boolean): string[] {
  if (!isRecord(block)) return [];
  const read = (name: string): number => Number(block[name] ?? 0);
  const [texts, seconds, computed, found] = [
    read('texts'),
    read('seconds'),
    read('computedTokens'),
    read('foundTokens'),
  ];
  return [
    `${counted(texts, 'text')} generated in ${duration(seconds)}` +
      (isVerbose
        ? `: ${counted(computed, 'token')} computed, ${counted(found, 'token')} of prompts found in the cache`
        : ''),
    ...draftLines({
      draftedTokens: read('draftedTokens'),
      acceptedTokens: read('acceptedTokens'),
      writtenTokens: read('writtenTokens'),
      writtenParts: read('writtenParts'),
    }),
  ];
}

/** What was computed, beside what other ways would have computed. Where nothing is shared there is nothing to say. */
function sharingLines(read: (name: string) => number, isVerbose: boolean): string[] {
  const [computed, alone, grouped, shared] = [
    'tokensComputed',
    'tokensWithoutSharing',
    'tokensGrouped',
    'tokensShared',
  ].map(read) as [number, number, number, number];
  if (!(alone > computed)) return [];
  const times = (tokens: number): string => `${(tokens / computed).toFixed(2)}×`;
  return [
    `${count(computed)} tokens computed instead of ${count(alone)}: ${times(alone)} fewer`,
    ...(isVerbose && grouped < alone
      ? [`with one sequence for choices of equal inputs: ${count(grouped)} tokens (${times(grouped)} as many)`]
      : []),
    ...(isVerbose && shared > 0
      ? [`with every common beginning once: ${count(shared)} tokens (this run: ${(computed / shared).toFixed(3)}×)`]
      : []),
  ];
}

/** `busy: device 0 99.2 %, device 1 98.7 %`. One device has nobody to wait for. */
function busyLine(devices: unknown, isVerbose: boolean): string[] {
  if (!Array.isArray(devices) || devices.length < (isVerbose ? 1 : 2)) return [];
  const shares = devices
    .filter(isRecord)
    .map(({ device, busyShare }) => `device ${Number(device)} ${percent(Number(busyShare))}`);
  return [`busy: ${shares.join(', ')}`];
}
