/**
 * Compares the tensors in a checkpoint's files with those that the model needs, and reports differences in few lines.
 */
import type { Model } from './family/model.js';
import { FORMATS_OF, weightFormat } from './family/tensors.js';

/** `0–31`, or `0–3,7,9–12` */
function ranges(sorted: readonly number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < sorted.length;) {
    let j = i;
    while (sorted[j + 1] === (sorted[j] ?? 0) + 1) j++;
    parts.push(i === j ? `${sorted[i]}` : `${sorted[i]}–${sorted[j]}`);
    i = j + 1;
  }
  return parts.length > 8 ? `${parts.slice(0, 8).join(',')},…` : parts.join(',');
}

const LAYER = /^([\w.]{1,100}\.layers|blk)\.(\d{1,6})\.([\w.]{1,200})$/;
const PATTERN_LINES = 10;
/** If more tensors than this are missing from the same layers, they are printed as one line. */
const SUFFIXES_SHOWN = 3;

export interface Problem {
  readonly tensor: string;
  /** Equal for tensors with the same fault. */
  readonly text: string;
}

/** One line for each pattern: `model.layers.{0–31}.self_attn.q_proj.weight: missing`. */
function groupByPattern(problems: readonly Problem[]): string[] {
  const lines: string[] = [];
  /** Groups layers by (suffix, text), then suffixes by (layers, text). */
  const bySuffix = new Map<string, { prefix: string; suffix: string; text: string; layers: number[] }>();
  for (const { tensor, text } of problems) {
    const match = LAYER.exec(tensor);
    if (match === null) {
      lines.push(`${tensor}: ${text}`);
      continue;
    }
    const [, prefix = '', layer = '', suffix = ''] = match;
    const key = `${prefix}\n${suffix}\n${text}`;
    const group = bySuffix.get(key) ?? { prefix, suffix, text, layers: [] };
    bySuffix.set(key, group);
    group.layers.push(Number(layer));
  }
  const byLayers = new Map<string, { prefix: string; layers: string; text: string; suffixes: string[] }>();
  for (const { prefix, suffix, text, layers } of bySuffix.values()) {
    const printed = ranges(layers.sort((a, b) => a - b));
    const key = `${prefix}\n${layers.join(',')}\n${text}`;
    const group = byLayers.get(key) ?? { prefix, layers: printed, text, suffixes: [] };
    byLayers.set(key, group);
    group.suffixes.push(suffix);
  }
  for (const { prefix, layers, text, suffixes } of byLayers.values()) {
    const where = `${prefix}.{${layers}}`;
    if (suffixes.length > SUFFIXES_SHOWN)
      lines.push(`${where}.{${suffixes.slice(0, SUFFIXES_SHOWN).join(', ')}, … ${suffixes.length} in all}: ${text}`);
    else lines.push(...suffixes.map((suffix) => `${where}.${suffix}: ${text}`));
  }
  return lines.length > PATTERN_LINES
    ? [...lines.slice(0, PATTERN_LINES), `… and ${lines.length - PATTERN_LINES} more`]
    : lines;
}

/**
 * The reasons why `found` is not a checkpoint of `model`: missing tensors, wrong shapes, element types that cannot be
 * weights, and tensors (biases, say) that the model would leave unread and so compute a different result. Grouped by
 * pattern in a few lines; empty if there are none. `found` maps a name to its safetensors dtype and shape; `show` makes
 * a name printable, as the files have it. `describedBy`: what says how large they are. Problems that were `told` before
 * are printed with the others.
 */
export function checkTensors(
  model: Pick<Model, 'tensors' | 'isIgnored'>,
  found: ReadonlyMap<string, { readonly dtype: string; readonly shape: readonly number[] }>,
  show: (name: string) => string = (name) => name,
  describedBy = 'config.json',
  told: readonly Problem[] = [],
): string[] {
  const problems = [...told];
  const known = new Set<string>();
  for (const { name, shape, missingHint } of model.tensors) {
    known.add(name);
    const entry = found.get(name);
    if (entry === undefined)
      problems.push({ tensor: show(name), text: missingHint === undefined ? 'missing' : `missing (${missingHint})` });
    else if (entry.shape.length !== shape.length || entry.shape.some((extent, i) => extent !== shape[i])) {
      problems.push({
        tensor: show(name),
        text: `shape [${entry.shape.slice(0, 8).join(', ')}], but ${describedBy} requires [${shape.join(', ')}]`,
      });
    } else if (weightFormat(entry.dtype) === undefined) {
      problems.push({
        tensor: show(name),
        text: `element type ${entry.dtype} is not supported; supported: ${Object.keys(FORMATS_OF).join(', ')}`,
      });
    }
  }
  for (const name of found.keys()) {
    if (!known.has(name) && !model.isIgnored(name))
      problems.push({ tensor: show(name), text: 'not a tensor of this model' });
  }
  return groupByPattern(problems);
}
