/** Texts of questions, read block by block, and the search in them. */
import { type QuestionsDocument, type QuestionText, type QuestionTexts, textsBlock } from '../../document/questions.js';
import { readBlock } from '../parts/data.js';

/** What a search looks at: the question without the examples before it, its choices, its target, its outputs. */
const searched = ({ context, shots, choices, target = '', outputs = [] }: QuestionText): string =>
  [context.slice(shots), ...choices, target, ...outputs.flat()].join('\n').toLowerCase();

/** The block in which a row lies, of those that begin with the rows `starts`. */
export function blockOf(starts: readonly number[], row: number): number {
  let [low, high] = [0, starts.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (starts[middle]! <= row) low = middle;
    else high = middle;
  }
  return low;
}

export class Texts {
  readonly #blocks: readonly number[];
  readonly #rows: number;
  readonly #read = new Map<number, QuestionTexts>();
  readonly #searched = new Map<number, readonly string[]>();

  constructor({ blocks, docIds }: QuestionsDocument) {
    this.#blocks = blocks;
    this.#rows = docIds.length;
  }

  get blocks(): number {
    return this.#blocks.length;
  }

  blockOf(row: number): number {
    return blockOf(this.#blocks, row);
  }

  /** What has been read of a row; undefined where its block has not. */
  peek(row: number): QuestionText | undefined {
    const block = this.blockOf(row);
    return this.#read.get(block)?.[row - this.#blocks[block]!];
  }

  async read(block: number): Promise<QuestionTexts> {
    const texts = this.#read.get(block) ?? (await readBlock<QuestionTexts>(textsBlock(block)));
    this.#read.set(block, texts);
    return texts;
  }

  /** 1 for rows in which all words of the query are; undefined where a later search began. */
  async search(query: string, isCurrent: () => boolean): Promise<Uint8Array | undefined> {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const found = new Uint8Array(this.#rows);
    for (let block = 0; block < this.#blocks.length; block++) {
      let all = this.#searched.get(block);
      if (all === undefined) {
        all = (await this.read(block)).map(searched);
        this.#searched.set(block, all);
        if (!isCurrent()) return undefined;
      }
      const first = this.#blocks[block]!;
      all.forEach((text, i) => {
        if (words.every((word) => text.includes(word))) found[first + i] = 1;
      });
    }
    return found;
  }
}
