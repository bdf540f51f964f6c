/** A step while the scheduler puts it together. */
import type { PageCopy, Sequence } from './sequence.js';
import type { FoundAnswers, SequenceChunk } from './stepMessage.js';

export interface StepDraft {
  readonly pieces: SequenceChunk[];
  /** What it takes alone, where the two take turns. */
  only: 'prompts' | 'texts' | undefined;
  /** Most new tokens, and most sequences that go on token by token. */
  readonly budget: number;
  readonly most: number;
  tokens: number;
  keys: number;
  rows: number;
  filtered: number;
  entries: number;
  writing: number;
  /** Contents of pages that this step fills, and for whom: whoever needs them too waits for them. */
  readonly filling: Map<string, Sequence>;
  /** Tokens of prompts that it computes in pages, by the content before those. */
  readonly begun: Map<string, (readonly number[])[]>;
  readonly copies: PageCopy[];
  readonly answers: FoundAnswers[];
}
