/** Models that are made up in tests, behind the table of sequences that real ones have. */
import { SequenceTable, type StepInputs } from '../../driver/devices/sequenceTable.js';
import type { DeviceModel, StepAnswer } from '../../engine/device.js';
import { PAGE_TOKENS } from '../../engine/pages.js';

export interface MadeUpModel extends Pick<
  DeviceModel,
  'limits' | 'maxLength' | 'vocab' | 'classes' | 'isLost' | 'recovered'
> {
  /** Tokens whose keys and values there is room for. */
  readonly cacheTokens: number;
  /** What the function `step` computes. */
  call(inputs: StepInputs): Promise<StepAnswer>;
}

/** After StateLost it has another table, as another process has. */
export function madeUp({ cacheTokens, call, ...model }: MadeUpModel): DeviceModel & { table(): SequenceTable } {
  const { limits, maxLength, vocab, recovered } = model;
  const maxPages = Math.floor(cacheTokens / PAGE_TOKENS);
  const begin = (): SequenceTable =>
    new SequenceTable({
      pages: maxPages,
      keys: limits.keys,
      maxLength,
      keptRows: limits.keptRows,
      filters: vocab !== undefined,
    });
  let table = begin();
  return {
    ...model,
    ...{ maxPages, mappedPages: maxPages, piecePages: 1, pieceBytes: 0 },
    step: async (message) => call(table.apply(message).inputs),
    resize: (pages) => {
      table.resize(pages);
      return Promise.resolve(pages);
    },
    ...(recovered === undefined
      ? {}
      : {
          recovered: async () => {
            await recovered();
            table = begin();
          },
        }),
    table: () => table,
  };
}

/** The answer of a model whose token after n is n + 1. */
export function counted({ tokens, row }: Pick<StepInputs, 'tokens' | 'row'>): StepAnswer {
  const nextToken = row.map((at) => tokens[at]! + 1);
  const zeros = new Float32Array(row.length);
  return { logProb: zeros, nextTokenLogProb: zeros, isArgmax: nextToken.map(() => 1), nextToken };
}
