/** `tilewright inspect --diff`: what a pass changed, as a unified diff of the program's text. */
import { findStage, type Inspection, type RecordedStage, stageBefore } from '../commands/inspect.js';
import { stageText } from '../driver/compile/compile.js';
import { counted } from '../system/text.js';
import { type DiffLine, diffLines, type Hunk, hunkHead, hunksOf } from '../system/lineDiff.js';
import type { Style } from './style.js';

export interface StageDiff {
  readonly pass: string;
  readonly reason: string;
  /** The stage that the pass was given. */
  readonly before: string;
  readonly added: number;
  readonly removed: number;
  readonly hunks: readonly Hunk[];
}

const linesOf = (stage: RecordedStage): string[] => stageText(stage).trimEnd().split('\n');

/** Throws UsageError where there is no such pass, or nothing before it to compare with. */
export function stageDiff(inspection: Inspection, wanted: string): StageDiff {
  const stage = findStage(inspection, wanted);
  const before = stageBefore(inspection, stage);
  const lines = diffLines(linesOf(before), linesOf(stage));
  const marked = (sign: DiffLine['sign']): number => lines.filter((each) => each.sign === sign).length;
  return {
    pass: stage.name,
    reason: stage.reason,
    before: before.name,
    added: marked('+'),
    removed: marked('-'),
    hunks: hunksOf(lines),
  };
}

/** As `diff -u` writes it, below a line that says what was changed. */
export function describeDiff({ pass, reason, before, added, removed, hunks }: StageDiff, style: Style): string {
  const head = style.dim(`# ${pass}: ${reason}`);
  if (hunks.length === 0) return `${head}\n# no line differs from ${before}\n`;
  const painted = ({ sign, line }: DiffLine): string =>
    sign === '+' ? style.green(`+${line}`) : sign === '-' ? style.red(`-${line}`) : ` ${line}`;
  return `${[
    head,
    style.dim(`# ${counted(removed, 'line')} removed, ${counted(added, 'line')} added`),
    style.bold(`--- ${before}`),
    style.bold(`+++ ${pass}`),
    ...hunks.flatMap((hunk) => [style.cyan(hunkHead(hunk)), ...hunk.lines.map(painted)]),
  ].join('\n')}\n`;
}
