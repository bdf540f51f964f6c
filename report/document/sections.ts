/**
 * The sections of pages: what a page may hold, by the name of its data block. A section is a type of document here, a
 * collector in report/collect and a view in report/page. A page has those for which there was something to read.
 */
import type { ComparisonDocument } from './comparison.js';
import type { KernelsDocument, PassesDocument } from './explore.js';
import type { MachineDocument } from './machine.js';
import type { QuestionsDocument } from './questions.js';
import type { ResultsDocument } from './results.js';
import type { SearchDocument } from './search.js';
import type { TuningDocument } from './tuning.js';

export interface Sections {
  readonly about: About;
  readonly results: ResultsDocument;
  readonly questions: QuestionsDocument;
  readonly comparison: ComparisonDocument;
  readonly search: SearchDocument;
  readonly machine: MachineDocument;
  readonly tuning: TuningDocument;
  readonly passes: PassesDocument;
  readonly kernels: KernelsDocument;
}

export type SectionName = keyof Sections;

/** A block of a page, with its content: any JSON. Names that are no section's belong to one: `questions.texts.0`. */
export interface Block {
  readonly name: string;
  readonly content: unknown;
}

/** A block's name in HTML. */
export const blockId = (name: string): string => `data-${name}`;

/** What a page says of itself. */
export interface About {
  readonly title: string;
  /** What is in it, in a line. */
  readonly subtitle: string;
  /** The program and its version. */
  readonly writer: string;
  /** When the page was written: an ISO date in UTC. */
  readonly written: string;
  /** What was amiss with files, and left out or cut: a line each. */
  readonly notes: readonly string[];
}
